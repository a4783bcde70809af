//! Events within the spans of a request.

use std::time::Instant;

use blitz_http::Address;

/// The most events of a request.
const EVENTS_MAX: usize = 32;

/// An event while a request looks for a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceEvent {
    /// When it happened.
    pub time: Instant,
    /// The kind.
    pub kind: TraceEventKind,
    /// The address of the upstream.
    pub address: Option<Address>,
}

/// The kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceEventKind {
    /// The upstream is sought, later than in the turn in which the request was received.
    Contact,
    /// No connection to the address could be made, for this reason.
    ConnectFailure(&'static str),
    /// The request is sent again, as an attempt has failed for this reason.
    Retry(&'static str),
}

/// The events of a request that is recorded, most of which have none.
#[derive(Debug, Clone, Default)]
pub(crate) struct TraceEvents(Option<Box<Events>>);

#[derive(Debug, Clone, Default)]
struct Events {
    first: Vec<TraceEvent>,
    dropped: u32,
}

impl TraceEvents {
    #[cold]
    pub(crate) fn add(&mut self, event: TraceEvent) {
        let events = self.0.get_or_insert_default();
        match events.first.len() < EVENTS_MAX {
            true => events.first.push(event),
            false => events.dropped += 1,
        }
    }

    pub(crate) fn all(&self) -> &[TraceEvent] {
        self.0.as_ref().map_or(&[], |events| &events.first)
    }

    /// How many were too many.
    pub(crate) fn dropped(&self) -> u32 {
        self.0.as_ref().map_or(0, |events| events.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_a_bound() {
        let mut events = TraceEvents::default();
        let event = TraceEvent {
            time: Instant::now(),
            kind: TraceEventKind::Retry("x"),
            address: None,
        };
        for _ in 0..EVENTS_MAX + 2 {
            events.add(event.clone());
        }
        assert_eq!((events.all().len(), events.dropped()), (EVENTS_MAX, 2));
    }
}
