//! How fast a body arrives.

use std::time::{Duration, Instant};

use blitz_proto::{BodyLength, Limits};

/// Content that a connection has received. A peer may send the bodies of several streams one after the other, so each
/// is also measured by the rate of its connection: see [`Pace::share`].
#[derive(Clone, Copy, Default)]
pub(crate) struct ReceivedContent {
    pub(crate) bytes: u64,
    pub(crate) last: Option<Instant>,
    /// Streams that are open; 0 for a connection that has one at a time.
    pub(crate) streams: usize,
}

impl ReceivedContent {
    pub(crate) fn add(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.last = Some(blitz_reactor::now());
    }
}

/// Bytes and waiting time of a body that is being received. Only time in which a reader waits counts: the
/// sender is not to blame for a slow reader.
#[derive(Default)]
pub(crate) struct Pace {
    /// The length that the head declared, or 0.
    bytes_declared: u64,
    pub(crate) bytes: u64,
    waited: Duration,
    waiting_since: Option<Instant>,
    /// Bytes that the connection had received before this body was waited for.
    connection_bytes_before: Option<u64>,
    /// This body's part of what the connection has received since.
    bytes_shared: u64,
    /// When the connection last received content.
    connection_last: Option<Instant>,
}

impl Pace {
    pub(crate) fn new(length: BodyLength) -> Pace {
        let mut pace = Pace::default();
        pace.declare(length);
        pace
    }

    /// Stores the length that the head declares.
    pub(crate) fn declare(&mut self, length: BodyLength) {
        self.bytes_declared = match length {
            BodyLength::Known(bytes) => bytes,
            BodyLength::Empty | BodyLength::NothingButTrailers | BodyLength::Unknown => 0,
        };
    }

    /// Bytes of the declared length that are still to be read; `None` without a declared length.
    pub(crate) fn bytes_left(&self) -> Option<u64> {
        let is_declared = self.bytes_declared > 0;
        is_declared.then(|| self.bytes_declared.saturating_sub(self.bytes))
    }

    pub(crate) fn begin_waiting(&mut self) {
        self.waiting_since.get_or_insert_with(blitz_reactor::now);
    }

    /// Something arrived.
    pub(crate) fn end_waiting(&mut self) {
        if let Some(since) = self.waiting_since.take() {
            self.waited += blitz_reactor::now().saturating_duration_since(since);
        }
    }

    /// The time until now does not count: nothing was received from the connection.
    pub(crate) fn forgive(&mut self) {
        if let Some(since) = &mut self.waiting_since {
            *since = blitz_reactor::now();
        }
    }

    /// Stores what the connection has received meanwhile: each of its streams counts as if it had got an equal part. So a
    /// peer whose streams wait for each other is not too slow, and one that keeps many of them waiting has to send as
    /// much as if it served them all.
    pub(crate) fn share(&mut self, received: ReceivedContent) {
        if received.streams > 1 {
            let before = *self.connection_bytes_before.get_or_insert(received.bytes);
            self.bytes_shared = (received.bytes - before) / received.streams as u64;
            self.connection_last = received.last;
        }
    }

    /// When a request's body will be below the minimum rate, if nothing arrives until then; `None`
    /// while no reader waits.
    pub(crate) fn rate_due(&self, limits: &Limits) -> Option<Instant> {
        Some(self.waiting_since? + self.allowed(limits.body_rate_grace, limits))
    }

    /// When the body will have been silent for `timeout`.
    pub(crate) fn silence_due(&self, timeout: Duration) -> Instant {
        let since = self.waiting_since.unwrap_or_else(blitz_reactor::now);
        self.connection_last.map_or(since, |last| since.max(last)) + timeout
    }

    /// When a response's body will have been silent for `timeout` or, if it has a declared length,
    /// will be below the minimum rate, for which it has at least `body_idle_timeout`. One without may
    /// be a stream of events, which is slow by nature.
    pub(crate) fn response_due(&self, timeout: Duration, limits: &Limits) -> Instant {
        let silence = self.silence_due(timeout);
        match self.waiting_since {
            Some(since) if self.bytes_declared > 0 => {
                let grace = timeout.max(limits.body_idle_timeout);
                silence.min(since + self.allowed(grace, limits))
            }
            _ => silence,
        }
    }

    /// Waiting that is left after `grace` and what the bytes have earned.
    fn allowed(&self, grace: Duration, limits: &Limits) -> Duration {
        let rate = limits.body_rate_min.max(1);
        let bytes = self.bytes.max(self.bytes_shared);
        let earned = Duration::from_micros(bytes.saturating_mul(1_000_000) / rate);
        (grace + earned).saturating_sub(self.waited)
    }
}
