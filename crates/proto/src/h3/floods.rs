//! Limits of what costs the peer nothing and this end work.

use std::time::Duration;

use crate::error::ErrorKind;
use crate::flood::{EventCounts, ResetCounts};
use crate::limits::Limits;

/// The kinds of events that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flood {
    /// GOAWAY, MAX_PUSH_ID and CANCEL_PUSH.
    Announcement,
    /// DATA without content.
    EmptyFrame,
    /// DATA of a few bytes.
    SmallData,
    Priority,
    UnknownFrame,
    /// Unidirectional streams of unknown types, or without one.
    Stream,
    /// KiB that the peer inserts into the table of the compression.
    Insertion,
    /// Instructions of QPACK, in both of its streams: one byte may duplicate an entry.
    Instruction,
}

const KINDS: usize = 8;

/// KiB that a peer may insert within the window, and for each request in it.
const INSERTIONS_MAX: u32 = 4 * 1024;
const INSERTIONS_PER_STREAM: u32 = 16;

/// Instructions within the window, and for each request in it: so many as the table of 4 KiB has entries, because a
/// request cannot refer to more.
const INSTRUCTIONS_MAX: u32 = 4 * 1024;
const INSTRUCTIONS_PER_STREAM: u32 = 128;

/// Small DATA frames for each open stream: each may be a WebSocket, whose messages are small.
const SMALL_DATA_PER_STREAM: u32 = 1_000;

#[derive(Debug)]
pub(crate) struct Floods {
    counts: EventCounts<KINDS>,
    resets: ResetCounts,
}

/// DATA with fewer bytes counts, unless it is the last of its message.
pub(crate) const SMALL_DATA_BYTES: u64 = 4;

impl Floods {
    pub(crate) fn new(limits: &Limits) -> Floods {
        let of_kinds = [
            limits.goaways_max,
            limits.empty_frames_max,
            limits.small_data_frames_max,
            limits.priority_frames_max,
            limits.unknown_frames_max,
            limits.unknown_frames_max,
            INSERTIONS_MAX,
            INSTRUCTIONS_MAX,
        ];
        Floods {
            counts: EventCounts::new(of_kinds, limits.frames_window),
            resets: ResetCounts::new(limits),
        }
    }

    #[inline]
    pub(crate) fn stream_opened(&mut self) {
        self.counts.stream_opened();
        self.resets.stream_opened();
    }

    #[inline]
    pub(crate) fn content_received(&mut self, bytes: usize) {
        self.counts.content_received(bytes);
    }

    /// Counts an event of this kind.
    pub(crate) fn note(&mut self, flood: Flood, now: Duration) -> Result<(), ErrorKind> {
        let is_admitted = self
            .counts
            .admits(flood as usize, now, |traffic| match flood {
                Flood::Announcement | Flood::SmallData => 0,
                Flood::Insertion => traffic.streams_opened.saturating_mul(INSERTIONS_PER_STREAM),
                Flood::Instruction => traffic
                    .streams_opened
                    .saturating_mul(INSTRUCTIONS_PER_STREAM),
                Flood::EmptyFrame => traffic
                    .streams_opened
                    .saturating_add(traffic.frames_received),
                Flood::Priority | Flood::UnknownFrame | Flood::Stream => {
                    traffic.streams_opened.saturating_mul(2)
                }
            });
        match is_admitted {
            true => Ok(()),
            false => Err(flood.error()),
        }
    }

    /// Counts DATA of a few bytes while `streams` are open.
    pub(crate) fn note_small_data(&mut self, streams: u32, now: Duration) -> Result<(), ErrorKind> {
        let allowance = streams.saturating_mul(SMALL_DATA_PER_STREAM);
        let kind = Flood::SmallData;
        match self.counts.admits(kind as usize, now, |_| allowance) {
            true => Ok(()),
            false => Err(kind.error()),
        }
    }

    /// Counts a stream that the peer reset, or that was reset for its errors.
    pub(crate) fn stream_reset(&mut self, is_early: bool, now: Duration) -> Result<(), ErrorKind> {
        self.resets.stream_reset(is_early, now)
    }
}

impl Flood {
    fn error(self) -> ErrorKind {
        match self {
            Flood::Announcement => ErrorKind::GoAwayFlood,
            Flood::EmptyFrame => ErrorKind::EmptyFrameFlood,
            Flood::SmallData => ErrorKind::SmallDataFlood,
            Flood::Priority => ErrorKind::PriorityFlood,
            Flood::UnknownFrame => ErrorKind::UnknownFrameFlood,
            Flood::Stream => ErrorKind::StreamFlood,
            Flood::Insertion | Flood::Instruction => ErrorKind::InsertionFlood,
        }
    }
}
