//! The frames of HTTP/2 that are counted, and their limits.

use std::time::Duration;

use crate::error::ErrorKind;
use crate::flood::{EventCounts, ResetCounts, Traffic};
use crate::limits::Limits;

/// Frames that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Flood {
    Settings,
    Ping,
    PingAck,
    GoAway,
    EmptyFrame,
    SmallData,
    WindowUpdate,
    Priority,
    UnknownFrame,
    StrayFrame,
}

const KINDS: usize = 10;

/// Small DATA frames that each open stream adds to their limit.
const SMALL_DATA_PER_STREAM: u32 = 1_000;

/// The counts of one connection.
#[derive(Debug)]
pub(crate) struct Floods {
    frames: EventCounts<KINDS>,
    resets: ResetCounts,
}

impl Floods {
    pub(crate) fn new(limits: &Limits) -> Floods {
        let mut by_kind = [0; KINDS];
        by_kind[Flood::Settings as usize] = limits.settings_frames_max;
        by_kind[Flood::Ping as usize] = limits.pings_max;
        by_kind[Flood::PingAck as usize] = limits.ping_acks_max;
        by_kind[Flood::GoAway as usize] = limits.goaways_max;
        by_kind[Flood::EmptyFrame as usize] = limits.empty_frames_max;
        by_kind[Flood::SmallData as usize] = limits.small_data_frames_max;
        by_kind[Flood::WindowUpdate as usize] = limits.window_updates_max;
        by_kind[Flood::Priority as usize] = limits.priority_frames_max;
        by_kind[Flood::UnknownFrame as usize] = limits.unknown_frames_max;
        by_kind[Flood::StrayFrame as usize] = limits.stray_frames_max;
        Floods {
            frames: EventCounts::new(by_kind, limits.frames_window),
            resets: ResetCounts::new(limits),
        }
    }

    /// Counts a frame; too many of its kind are an error.
    pub(crate) fn note(&mut self, flood: Flood, now: Duration) -> Result<(), ErrorKind> {
        self.note_with(flood, now, |traffic| allowance(flood, traffic))
    }

    /// Counts a small DATA frame while `streams` are open: each of them may be a WebSocket, whose
    /// frames of one character have three bytes.
    pub(crate) fn note_small_data(
        &mut self,
        streams: usize,
        now: Duration,
    ) -> Result<(), ErrorKind> {
        let allowance = (streams as u32).saturating_mul(SMALL_DATA_PER_STREAM);
        self.note_with(Flood::SmallData, now, |_| allowance)
    }

    fn note_with(
        &mut self,
        flood: Flood,
        now: Duration,
        allowance: impl FnOnce(&Traffic) -> u32,
    ) -> Result<(), ErrorKind> {
        match self.frames.admits(flood as usize, now, allowance) {
            true => Ok(()),
            false => Err(flood.error()),
        }
    }

    /// A stream was opened.
    #[inline]
    pub(crate) fn stream_opened(&mut self) {
        self.frames.stream_opened();
        self.resets.stream_opened();
    }

    #[inline]
    pub(crate) fn content_received(&mut self, bytes: usize) {
        self.frames.content_received(bytes);
    }

    #[inline]
    pub(crate) fn content_sent(&mut self, bytes: usize, is_whole: bool) {
        self.frames.content_sent(bytes, is_whole);
    }

    /// Counts a stream that the peer reset, or that was reset because of the peer's error; `is_early`
    /// if its response had not begun.
    pub(crate) fn stream_reset(&mut self, is_early: bool, now: Duration) -> Result<(), ErrorKind> {
        self.resets.stream_reset(is_early, now)
    }
}

/// The number by which honest traffic raises the limit of a kind of frames.
fn allowance(flood: Flood, traffic: &Traffic) -> u32 {
    let streams = traffic.streams_opened;
    match flood {
        // grpc-go and gRPC's C core measure the bandwidth with a PING for each DATA frame.
        Flood::Ping | Flood::PingAck => (traffic.bytes_received >> 10)
            .saturating_add(traffic.bytes_sent >> 10)
            .saturating_add(traffic.frames()),
        // gRPC's C core returns each small message to the windows of its stream and its connection.
        Flood::WindowUpdate => (traffic.bytes_sent >> 8)
            .saturating_add(traffic.frames_sent.saturating_mul(2))
            .saturating_add(streams),
        Flood::Priority | Flood::UnknownFrame | Flood::StrayFrame => streams.saturating_mul(2),
        // Some servers send an empty frame with the head or before the end. Between frames with
        // content, empty ones at most double the cost.
        Flood::EmptyFrame => streams.saturating_add(traffic.frames_received),
        // gRPC changes windows after such a measurement.
        Flood::Settings => traffic.frames() >> 4,
        Flood::GoAway | Flood::SmallData => 0,
    }
}

impl Flood {
    fn error(self) -> ErrorKind {
        match self {
            Flood::Settings => ErrorKind::SettingsFlood,
            Flood::Ping => ErrorKind::PingFlood,
            Flood::PingAck => ErrorKind::PingAckFlood,
            Flood::GoAway => ErrorKind::GoAwayFlood,
            Flood::EmptyFrame => ErrorKind::EmptyFrameFlood,
            Flood::SmallData => ErrorKind::SmallDataFlood,
            Flood::WindowUpdate => ErrorKind::WindowUpdateFlood,
            Flood::Priority => ErrorKind::PriorityFlood,
            Flood::UnknownFrame => ErrorKind::UnknownFrameFlood,
            Flood::StrayFrame => ErrorKind::StrayFrameFlood,
        }
    }
}
