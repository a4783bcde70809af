//! The bytes that streams may queue and hold where they share a connection (rule 4).

use std::task::{Context, Poll};

use blitz_proto::Limits;
use blitz_reactor::FAIR_SHARE_MAX;

use super::stream::QueuedContent;
use crate::exchange::note;

/// Shares of a stream that a connection may queue, and hold, while the core is short of memory.
pub(in crate::conn) const STREAMS_WHEN_SHORT: usize = 4;

/// A connection with no more than this queued may queue more, however short the core of memory is.
const UNSENT_MIN: usize = 4 * 1024;

/// Whether less than half of the core's memory is left, judged by a stream's share of it.
pub(in crate::conn) fn is_short(share: usize, limits: &Limits) -> bool {
    share < share_max(limits) / 2
}

/// The share of a stream on an idle core, in bytes.
pub(in crate::conn) fn share_max(limits: &Limits) -> usize {
    limits.stream_buffer_bytes_max.min(FAIR_SHARE_MAX)
}

/// Bytes that a stream may have queued before it gets another piece, as far as that depends on it alone. Half of its
/// share is for bytes that were received and not yet taken (rule 4).
pub(in crate::conn) fn usual_room(share: usize, limits: &Limits) -> usize {
    (limits.stream_buffer_bytes_max / 4).min(share)
}

/// The same on a server's connection that has `unsent` bytes queued; `None` if no stream gets another piece. When a
/// connection has its share queued, each stream gets a piece at a time. While the core is short of memory, a connection
/// with more than the shares of a few streams gets nothing.
pub(in crate::conn) fn room_of_server(unsent: usize, limits: &Limits) -> Option<usize> {
    let share = blitz_reactor::fair_share();
    if is_short(share, limits) && unsent > UNSENT_MIN.max(share * STREAMS_WHEN_SHORT) {
        None
    } else if unsent <= limits.connection_buffer_bytes_max / 2 {
        Some(usual_room(share, limits))
    } else {
        Some(0)
    }
}

impl QueuedContent {
    /// Ready if there is room for another piece; else the writer is woken when there is room.
    pub(in crate::conn) fn poll_room(&mut self, room: Option<usize>, cx: &Context<'_>) -> Poll<()> {
        if room.is_some_and(|below| self.queued <= below) {
            return Poll::Ready(());
        }
        note(&mut self.writer, cx);
        self.wake_at = room.unwrap_or(0);
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_core_is_not_short_of_memory_however_much_a_stream_may_hold() {
        for stream_buffer_bytes_max in [16 * 1024, 64 * 1024, 1 << 30] {
            let limits = Limits {
                stream_buffer_bytes_max,
                ..Limits::default()
            };
            let share = share_max(&limits);
            assert!(!is_short(FAIR_SHARE_MAX, &limits));
            assert!(is_short(share / 2 - 1, &limits), "{share}");
        }
    }
}
