//! Counts events that cost work and are of no use to the peer: an honest peer causes few of them, an
//! attacker needs many.
//!
//! The counted events depend on the version: HTTP/2 counts frames (see `h2::floods`), some of which
//! HTTP/3 leaves to QUIC. Both count resets of streams in the same way.

use std::time::Duration;

use crate::error::ErrorKind;
use crate::limits::Limits;

/// Counts of `KINDS` kinds of events since the beginning of the current window of time.
#[derive(Debug)]
pub(crate) struct EventCounts<const KINDS: usize> {
    limits: [u32; KINDS],
    counts: [u32; KINDS],
    window: Duration,
    started: Duration,
    /// Honest traffic in the window, which causes some of the peer's events.
    traffic: Traffic,
}

/// The traffic in the current window.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Traffic {
    pub(crate) bytes_received: u32,
    pub(crate) bytes_sent: u32,
    /// DATA frames with content.
    pub(crate) frames_received: u32,
    /// DATA frames that no window has cut short.
    pub(crate) frames_sent: u32,
    pub(crate) streams_opened: u32,
}

impl Traffic {
    pub(crate) fn frames(&self) -> u32 {
        self.frames_received.saturating_add(self.frames_sent)
    }
}

impl<const KINDS: usize> EventCounts<KINDS> {
    pub(crate) fn new(limits: [u32; KINDS], window: Duration) -> EventCounts<KINDS> {
        EventCounts {
            limits,
            counts: [0; KINDS],
            window,
            started: Duration::ZERO,
            traffic: Traffic::default(),
        }
    }

    /// Counts an event; false if its kind exceeds its limit, which `allowance` raises by the traffic
    /// in the window.
    #[inline]
    pub(crate) fn admits(
        &mut self,
        kind: usize,
        now: Duration,
        allowance: impl FnOnce(&Traffic) -> u32,
    ) -> bool {
        if now.saturating_sub(self.started) >= self.window {
            self.started = now;
            self.counts = [0; KINDS];
            self.traffic = Traffic::default();
        }
        self.counts[kind] += 1;
        self.counts[kind] <= self.limits[kind].saturating_add(allowance(&self.traffic))
    }

    #[inline]
    pub(crate) fn stream_opened(&mut self) {
        self.traffic.streams_opened = self.traffic.streams_opened.wrapping_add(1);
    }

    #[inline]
    pub(crate) fn content_received(&mut self, bytes: usize) {
        let traffic = &mut self.traffic;
        traffic.bytes_received = traffic.bytes_received.saturating_add(bytes as u32);
        traffic.frames_received = traffic.frames_received.wrapping_add(u32::from(bytes > 0));
    }

    /// Counts a DATA frame; `is_whole` if no window has cut it short. A peer that opens a window byte
    /// by byte must not get credit for the frames that it causes.
    #[inline]
    pub(crate) fn content_sent(&mut self, bytes: usize, is_whole: bool) {
        let traffic = &mut self.traffic;
        traffic.bytes_sent = traffic.bytes_sent.saturating_add(bytes as u32);
        traffic.frames_sent = traffic.frames_sent.wrapping_add(u32::from(is_whole));
    }
}

/// Counts streams that were reset (rule 19).
#[derive(Debug)]
pub(crate) struct ResetCounts {
    /// Resets before the response began.
    early_max: u32,
    early: u32,
    total_max: u32,
    total: u32,
    opened: u32,
    window: Duration,
    started: Duration,
}

impl ResetCounts {
    pub(crate) fn new(limits: &Limits) -> ResetCounts {
        ResetCounts {
            early_max: limits.resets_max,
            early: 0,
            total_max: limits.resets_total_max,
            total: 0,
            opened: 0,
            window: limits.resets_window,
            started: Duration::ZERO,
        }
    }

    #[inline]
    pub(crate) fn stream_opened(&mut self) {
        self.opened = self.opened.wrapping_add(1);
    }

    /// Counts a stream that the peer reset, or that was reset because of the peer's error; `is_early`
    /// if its response had not begun.
    ///
    /// Early resets end the connection only if they are also more than half of the streams opened: a
    /// proxy as the client forwards the cancels of many users. The total limits the cost of a client's
    /// cancels to a shared upstream; it is far above the number of cancels of honest users.
    pub(crate) fn stream_reset(&mut self, is_early: bool, now: Duration) -> Result<(), ErrorKind> {
        if now.saturating_sub(self.started) >= self.window {
            self.started = now;
            (self.early, self.total, self.opened) = (0, 0, 0);
        }
        self.early += u32::from(is_early);
        self.total += 1;
        if is_early && self.early > self.early_max && self.early > self.opened / 2 {
            return Err(ErrorKind::ResetFlood);
        }
        if self.total > self.total_max {
            return Err(ErrorKind::ResetRate);
        }
        Ok(())
    }
}
