//! Flow control of a connection, and the sizes of windows (RFC 9113, sections 5.2 and 6.9).

use super::frame::WINDOW_MAX;
use super::settings::WINDOW_DEFAULT;
use super::stream::credit;
use crate::error::ErrorKind;
use crate::limits::Limits;

/// A connection's window of less counts as used up.
const READER_WINDOW_MIN: i32 = 1024;

/// The windows of the connection, and the size of the windows of its streams.
#[derive(Debug)]
pub(crate) struct Flow {
    /// Bytes that the peer may still send.
    receive_window: i32,
    /// Bytes that were received and not released.
    held: u32,
    /// Whether held bytes reduce the window. On upstream connections they do not, because one stalled
    /// stream must not stop all others (rule 14); on client connections they do, because the memory
    /// of one connection is bounded (rule 4).
    counts_held: bool,
    /// Bytes that may still be sent.
    pub(crate) send_window: i32,
    /// All that the peer has announced beyond the first window.
    send_credit: u64,
    size: u32,
    size_max: u32,
    /// The initial window of a stream.
    stream_base: u32,
    /// The maximum window of a stream, according to the measurements so far.
    stream_size: u32,
    stream_size_max: u32,
    /// Bytes that the windows of all streams have grown by. More than the window of the connection
    /// would not raise the throughput, and stalled streams could hold more.
    grown: u32,
    grown_max: u32,
    /// The same while the caller allows less.
    growth_cap: u32,
    /// Less than these sizes is announced while memory is short.
    cap: u32,
    stream_cap: u32,
    probe: Probe,
}

/// Measures whether windows limit the peer: sends a PING and counts the content that is received
/// before its acknowledgement. If that is a third of a window, a larger one would be used.
#[derive(Debug)]
struct Probe {
    is_out: bool,
    bytes: u32,
    /// Bytes after which the next probe is worthwhile.
    threshold: u32,
}

impl Flow {
    pub(crate) fn new(limits: &Limits, counts_held: bool) -> Flow {
        let size = |bytes: usize| bytes.clamp(1, WINDOW_MAX as usize) as u32;
        let connection_size = size(limits.connection_buffer_bytes_max).max(WINDOW_DEFAULT);
        // Where held bytes close the window of the connection, that is the bound of a stream as well.
        let (stream_base, stream_size) = if counts_held {
            let bound = connection_size.min(size(limits.stream_window_bytes_max));
            (size(limits.stream_buffer_bytes_max), bound)
        } else {
            let base = size(limits.stream_window_bytes);
            (base, base)
        };
        Flow {
            receive_window: WINDOW_DEFAULT as i32,
            held: 0,
            counts_held,
            send_window: WINDOW_DEFAULT as i32,
            send_credit: 0,
            size: connection_size,
            size_max: size(limits.connection_window_bytes_max),
            stream_base,
            stream_size,
            stream_size_max: size(limits.stream_window_bytes_max),
            grown: 0,
            growth_cap: u32::MAX,
            grown_max: size(limits.connection_window_bytes_max),
            cap: u32::MAX,
            stream_cap: u32::MAX,
            probe: Probe {
                is_out: false,
                bytes: 0,
                threshold: stream_size / 2,
            },
        }
    }

    /// The initial window of a stream.
    #[inline]
    pub(crate) fn stream_base(&self) -> u32 {
        self.stream_base
    }

    /// Changes what the window of a stream begins with.
    pub(crate) fn set_stream_base(&mut self, bytes: u32) {
        self.stream_base = bytes;
    }

    /// The target window of a stream that has grown by `grown` bytes.
    #[inline]
    pub(crate) fn stream_target(&self, grown: u32) -> u32 {
        (self.stream_base + grown).min(self.stream_cap)
    }

    /// Doubles the window of a stream that has grown by `grown` bytes, if a larger one helps and memory
    /// permits; returns the new growth in bytes.
    pub(crate) fn grow_stream(&mut self, grown: u32) -> u32 {
        let size = self.stream_base + grown;
        let wanted = size.saturating_mul(2).min(self.stream_size);
        let more = wanted.saturating_sub(size);
        let all = self.grown.saturating_add(more);
        if wanted > self.stream_cap || all > self.grown_max.min(self.growth_cap) {
            return grown;
        }
        self.grown = all;
        grown + more
    }

    /// Bytes that the windows of all streams have grown by.
    #[inline]
    pub(crate) fn grown(&self) -> u32 {
        self.grown
    }

    /// How many more bytes they may grow by.
    #[inline]
    pub(crate) fn set_growth_left(&mut self, bytes: u32) {
        self.growth_cap = self.grown.saturating_add(bytes);
    }

    /// A stream whose window had grown by `grown` bytes has ended.
    #[inline]
    pub(crate) fn forget_growth(&mut self, grown: u32) {
        self.grown -= grown;
    }

    /// Sets the largest windows of a stream and of the connection.
    #[inline]
    pub(crate) fn set_caps(&mut self, stream: u32, connection: u32) {
        (self.stream_cap, self.cap) = (stream, connection);
    }

    #[inline]
    pub(crate) fn held(&self) -> u32 {
        self.held
    }

    /// Counts the payload of a DATA frame.
    #[inline]
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), ErrorKind> {
        if bytes as i64 > i64::from(self.receive_window) {
            return Err(ErrorKind::FlowControl);
        }
        self.receive_window -= bytes as i32;
        self.held += bytes as u32;
        Ok(())
    }

    /// Bytes were processed by their receiver.
    #[inline]
    pub(crate) fn release(&mut self, bytes: usize) {
        debug_assert!(
            bytes <= self.held as usize,
            "more bytes released than were received"
        );
        self.held = self.held.saturating_sub(bytes as u32);
    }

    /// The increment of the connection's window to announce, if it is worth a frame.
    #[inline]
    pub(crate) fn credit(&mut self) -> Option<u32> {
        let held = if self.counts_held { self.held } else { 0 };
        credit(&mut self.receive_window, held, self.size.min(self.cap))
    }

    /// Whether held content has used up the window.
    #[inline]
    pub(crate) fn is_used_up(&self) -> bool {
        self.counts_held && self.receive_window < READER_WINDOW_MIN
    }

    /// The increment to announce for a reader that waits while content that others do not read has
    /// used up the window, so that a stalled stream does not stop the rest (rule 14). Window and held
    /// content together stay within the largest window; while memory is short there is none.
    pub(crate) fn credit_for_reader(&mut self) -> Option<u32> {
        if !self.is_used_up() || self.cap < self.size {
            return None;
        }
        let used = i64::from(self.held) + i64::from(self.receive_window);
        let left = i64::from(self.size_max.max(self.size)) - used;
        let more = left.min(i64::from(self.stream_base));
        (more > 0).then(|| {
            self.receive_window += more as i32;
            more as u32
        })
    }

    /// RFC 9113, section 6.9.1: "A sender MUST NOT allow a flow-control window to exceed 2^31-1
    /// octets."
    pub(crate) fn grow_send_window(&mut self, by: u32) -> Result<(), ErrorKind> {
        let window = i64::from(self.send_window) + i64::from(by);
        if window > WINDOW_MAX {
            return Err(ErrorKind::FlowControl);
        }
        self.send_window = window as i32;
        self.send_credit += u64::from(by);
        Ok(())
    }

    /// See [`super::Connection::awaits_credit`].
    #[inline]
    pub(crate) fn awaits_credit(&self) -> Option<u64> {
        (self.send_window <= 0).then_some(self.send_credit)
    }

    /// Counts content that somebody will read. Returns whether a probe is to be sent now.
    #[inline]
    pub(crate) fn measure(&mut self, bytes: usize) -> bool {
        self.probe.bytes = self.probe.bytes.saturating_add(bytes as u32);
        let is_due = !self.probe.is_out
            && self.probe.bytes >= self.probe.threshold
            && self.stream_size < self.stream_size_max;
        if is_due {
            self.probe.is_out = true;
            self.probe.bytes = 0;
        }
        is_due
    }

    /// The acknowledgement of a probe arrived.
    pub(crate) fn end_probe(&mut self) {
        let probe = &mut self.probe;
        if !std::mem::take(&mut probe.is_out) {
            return;
        }
        // Credit is announced once half of a window is used, for the stream and for the connection apart:
        // a peer that waits for it sends less than the whole in a round trip.
        if probe.bytes >= self.stream_size / 3 {
            self.stream_size = (self.stream_size * 2).min(self.stream_size_max);
            self.size = self
                .size
                .max(self.stream_size * 2)
                .min(self.size_max.max(self.size));
            probe.threshold = self.stream_size / 2;
        } else {
            // The window was not the limit. It may be once the peer's congestion window has grown.
            let longest = self.stream_size.saturating_mul(16);
            probe.threshold = probe.threshold.saturating_mul(2).min(longest);
        }
        probe.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_waits_has_a_window_beside_held_content_up_to_the_largest() {
        let limits = Limits::default();
        let mut flow = Flow::new(&limits, true);
        flow.credit();
        assert_eq!(flow.credit_for_reader(), None, "the window is open");
        let mut held = limits.connection_buffer_bytes_max;
        flow.take(held).expect("within the window");
        assert_eq!(flow.credit(), None);
        while let Some(more) = flow.credit_for_reader() {
            flow.take(more as usize).expect("within the window");
            held += more as usize;
        }
        assert_eq!(held, limits.connection_window_bytes_max);

        let mut flow = Flow::new(&limits, true);
        flow.take(WINDOW_DEFAULT as usize)
            .expect("within the window");
        flow.set_caps(1024, 64 * 1024);
        assert_eq!(flow.credit_for_reader(), None, "memory is short");
    }

    /// Receives `bytes` within the next probe.
    fn probe(flow: &mut Flow, bytes: usize) {
        let take = |flow: &mut Flow| {
            flow.credit();
            flow.take(16_384).expect("within the window");
            flow.release(16_384);
            flow.measure(16_384)
        };
        while !take(flow) {}
        for _ in (0..bytes).step_by(16_384) {
            take(flow);
        }
        flow.end_probe();
    }

    #[test]
    fn windows_grow_to_their_limit_while_they_limit_the_peer() {
        let limits = Limits::default();
        let mut flow = Flow::new(&limits, false);
        while flow.stream_size < flow.stream_size_max {
            let before = flow.stream_size;
            probe(&mut flow, before as usize / 2);
            assert_eq!(flow.stream_size, before * 2);
        }
        assert_eq!(flow.stream_size as usize, limits.stream_window_bytes_max);
        assert!(flow.size as usize <= limits.connection_window_bytes_max);
    }

    #[test]
    fn windows_that_do_not_limit_the_peer_are_measured_ever_less_often() {
        let mut flow = Flow::new(&Limits::default(), true);
        let size = flow.stream_size;
        let mut thresholds = vec![];
        for _ in 0..7 {
            probe(&mut flow, 64 << 10);
            thresholds.push(flow.probe.threshold / size);
        }
        assert_eq!(flow.stream_size, size);
        assert_eq!(thresholds, [1, 2, 4, 8, 16, 16, 16]);
    }

    #[test]
    fn held_bytes_close_the_window_of_a_client_only() {
        for counts_held in [true, false] {
            let mut flow = Flow::new(&Limits::default(), counts_held);
            let mut taken = 0;
            while taken < 1 << 20 && flow.take(1024).is_ok() {
                taken += 1024;
                flow.credit();
            }
            let cap = if counts_held { 256 << 10 } else { 1 << 20 };
            assert_eq!(taken, cap, "{counts_held}");
        }
    }
    #[test]
    fn all_streams_grow_by_no_more_than_the_window_of_the_connection() {
        let limits = Limits::default();
        let mut flow = Flow::new(&limits, false);
        flow.stream_size = flow.stream_size_max;
        let mut streams = [0; 100];
        for _ in 0..10 {
            for grown in &mut streams {
                *grown = flow.grow_stream(*grown);
            }
        }
        let size_max = streams.iter().map(|grown| flow.stream_target(*grown)).max();
        assert_eq!(size_max, Some(128 << 10), "{streams:?}");
        let all: u32 = streams.iter().sum();
        assert_eq!(all as usize, limits.connection_window_bytes_max);
        streams
            .into_iter()
            .for_each(|grown| flow.forget_growth(grown));
        let mut alone = 0;
        for _ in 0..10 {
            alone = flow.grow_stream(alone);
        }
        assert_eq!(
            flow.stream_target(alone) as usize,
            limits.stream_window_bytes_max
        );
        flow.set_caps(32 << 10, u32::MAX);
        assert_eq!(flow.stream_target(alone), 32 << 10, "memory is short");
        assert_eq!(flow.grow_stream(0), 0);
    }
}
