//! The failures of late on a core, for operators who ask. All requests that failed with the same cause on the same route
//! are one entry with a count, so that a flood of one failure hides no other.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use blitz_http::{Address, Status, core_local};

use crate::policy::NoDecision;

/// Entries of a core. A new one replaces that which has not occurred for the longest time.
pub const FAILURES_MAX: usize = 64;

/// Longest id of a request that is kept.
const ID_MAX: usize = 128;

/// Requests that failed with the same cause on the same route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentFailure {
    /// The reason, as in lines of the log.
    pub cause: &'static str,
    /// The site that has the host of the requests.
    pub site: Option<Box<str>>,
    /// The paths of their route as written.
    pub route: Option<Box<str>>,
    /// The URL of its upstream.
    pub upstream: Option<Box<str>>,
    /// How many there were since this entry began.
    pub count: u64,
    /// The first one of them.
    pub first: Instant,
    /// The last one.
    pub last: Occurrence,
}

/// A failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occurrence {
    /// When the request ended.
    pub at: Instant,
    /// The status that the client got.
    pub status: Option<Status>,
    /// The status of a gRPC call.
    pub grpc_status: Option<u8>,
    /// The address of the last attempt, or of the authorizer.
    pub address: Option<Address>,
    /// The phase in which the request ended.
    pub phase: &'static str,
    /// Details of the cause.
    pub rule: Option<&'static str>,
    /// The certificate of the upstream, if it was refused.
    pub certificate: Option<Arc<str>>,
    /// The authorizer that gave no decision, if the request failed for it.
    pub authorizer: Option<Unauthorized>,
    /// The id of the request, which lines of logs have too.
    pub request_id: Box<str>,
}

/// An authorizer that gave no decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unauthorized {
    /// Its URL without the query.
    pub url: Box<str>,
    /// The status of its response, if that is the reason.
    pub status: Option<Status>,
    /// The failure in words.
    pub problem: Option<Box<str>>,
}

impl Unauthorized {
    pub(crate) fn of(why: &NoDecision) -> Unauthorized {
        Unauthorized {
            url: why.authorizer.clone(),
            status: why.attempt.status,
            problem: why.attempt.problem().map(Box::from),
        }
    }
}

/// The cause and the place of a failure, which its entry has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind<'a> {
    pub(crate) cause: &'static str,
    pub(crate) site: Option<&'a str>,
    pub(crate) route: Option<&'a str>,
}

impl RecentFailure {
    /// Whether both are about the same cause and route.
    #[must_use]
    pub fn is_same(&self, other: &RecentFailure) -> bool {
        (self.cause, &self.site, &self.route) == (other.cause, &other.site, &other.route)
    }

    /// Adds the count of another core.
    pub fn add(&mut self, other: RecentFailure) {
        self.count += other.count;
        self.first = self.first.min(other.first);
        if other.last.at > self.last.at {
            self.last = other.last;
        }
    }

    fn is(&self, kind: Kind<'_>) -> bool {
        self.cause == kind.cause
            && self.route.as_deref() == kind.route
            && self.site.as_deref() == kind.site
    }
}

/// The failures of late on the calling core.
#[must_use]
pub fn recent_failures() -> Vec<RecentFailure> {
    RECENT.with_borrow(Clone::clone)
}

/// Counts a failure of the calling core. `upstream` is asked for the first of its kind only.
pub(crate) fn note(kind: Kind<'_>, upstream: impl FnOnce() -> Option<String>, last: Occurrence) {
    RECENT.with_borrow_mut(|recent| note_in(recent, kind, upstream, last));
}

fn note_in(
    recent: &mut Vec<RecentFailure>,
    kind: Kind<'_>,
    upstream: impl FnOnce() -> Option<String>,
    last: Occurrence,
) {
    if let Some(known) = recent.iter_mut().find(|known| known.is(kind)) {
        known.count += 1;
        known.last = last;
        return;
    }
    if recent.len() >= FAILURES_MAX {
        let oldest = (0..recent.len()).min_by_key(|at| recent[*at].last.at);
        if let Some(oldest) = oldest {
            recent.swap_remove(oldest);
        }
    }
    recent.push(RecentFailure {
        cause: kind.cause,
        site: kind.site.map(Box::from),
        route: kind.route.map(Box::from),
        upstream: upstream().map(Box::from),
        count: 1,
        first: last.at,
        last,
    });
}

/// The id of a request as it is kept: that of a rejected one may be of any length.
pub(crate) fn kept_id(id: &str) -> Box<str> {
    blitz_http::log_text::start_of(id, ID_MAX).into()
}

core_local! {
    static RECENT: RefCell<Vec<RecentFailure>> = const { RefCell::new(Vec::new()) };
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn kind(route: &str) -> Kind<'_> {
        Kind {
            cause: "connection refused",
            site: Some("app.example"),
            route: Some(route),
        }
    }

    fn at(moment: Instant) -> Occurrence {
        Occurrence {
            at: moment,
            status: Some(Status::BAD_GATEWAY),
            grpc_status: None,
            address: None,
            phase: "connect",
            rule: None,
            certificate: None,
            authorizer: None,
            request_id: "id".into(),
        }
    }

    #[test]
    fn failures_of_a_cause_and_route_are_one_entry() {
        let (mut recent, start) = (Vec::new(), Instant::now());
        let second = Duration::from_secs(1);
        for number in 0..1000 {
            note_in(
                &mut recent,
                kind("/a"),
                || None,
                at(start + second * number),
            );
        }
        let other = Kind {
            site: None,
            ..kind("/a")
        };
        let url = || Some("http://u:1".to_owned());
        note_in(&mut recent, other, url, at(start));
        assert_eq!(recent.len(), 2);
        assert_eq!((recent[0].count, recent[1].count), (1000, 1));
        assert_eq!(
            (recent[0].first, recent[0].last.at),
            (start, start + second * 999)
        );
        assert_eq!(recent[1].upstream.as_deref(), Some("http://u:1"));
        assert!(!recent[0].is_same(&recent[1]));
    }

    #[test]
    fn the_entry_that_is_silent_for_the_longest_time_is_replaced() {
        let (mut recent, start) = (Vec::new(), Instant::now());
        let routes: Vec<_> = (0..=FAILURES_MAX)
            .map(|number| format!("/{number}"))
            .collect();
        let second = Duration::from_secs(1);
        for (number, route) in routes[..FAILURES_MAX].iter().enumerate() {
            let moment = start + second * number as u32;
            note_in(&mut recent, kind(route), || None, at(moment));
        }
        // The first one occurs again, and the second one is then the oldest.
        let later = start + second * 1000;
        note_in(&mut recent, kind("/0"), || None, at(later));
        note_in(&mut recent, kind(&routes[FAILURES_MAX]), || None, at(later));
        let is_there = |route: &str| recent.iter().any(|one| one.is(kind(route)));
        assert_eq!(recent.len(), FAILURES_MAX);
        assert!(is_there("/0") && !is_there("/1") && is_there(&routes[FAILURES_MAX]));
    }

    #[test]
    fn counts_of_cores_are_added() {
        let (mut one, mut other, start) = (Vec::new(), Vec::new(), Instant::now());
        let later = start + Duration::from_secs(5);
        note_in(&mut one, kind("/a"), || None, at(later));
        note_in(&mut other, kind("/a"), || None, at(start));
        let (mut one, other) = (one.remove(0), other.remove(0));
        assert!(one.is_same(&other));
        one.add(other);
        assert_eq!((one.count, one.first, one.last.at), (2, start, later));
    }
}
