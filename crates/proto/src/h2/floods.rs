//! Counts what costs us work and brings the peer nothing: an honest peer has no reason to send
//! much of it, and an attacker needs a lot.

use std::time::Duration;

use crate::error::ErrorKind;
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

/// Counts since the beginning of the current window of time. Honest traffic in the window raises
/// some of the limits, because peers answer each of its pieces.
#[derive(Debug)]
pub(crate) struct Floods {
    limits: [u32; KINDS],
    counts: [u32; KINDS],
    window: Duration,
    started: Duration,
    content_received: u32,
    content_sent: u32,
    streams_opened: u32,
    resets: Resets,
}

/// Streams that were reset (rule 19).
#[derive(Debug)]
struct Resets {
    /// Of those before their response began.
    early_max: u32,
    early: u32,
    total_max: u32,
    total: u32,
    opened: u32,
    window: Duration,
    started: Duration,
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
            limits: by_kind,
            counts: [0; KINDS],
            window: limits.frames_window,
            started: Duration::ZERO,
            content_received: 0,
            content_sent: 0,
            streams_opened: 0,
            resets: Resets {
                early_max: limits.resets_max,
                early: 0,
                total_max: limits.resets_total_max,
                total: 0,
                opened: 0,
                window: limits.resets_window,
                started: Duration::ZERO,
            },
        }
    }

    /// Counts a frame; too many of its kind are an error.
    pub(crate) fn note(&mut self, flood: Flood, now: Duration) -> Result<(), ErrorKind> {
        if now.saturating_sub(self.started) >= self.window {
            self.started = now;
            self.counts = [0; KINDS];
            (
                self.content_received,
                self.content_sent,
                self.streams_opened,
            ) = (0, 0, 0);
        }
        let kind = flood as usize;
        self.counts[kind] += 1;
        let earned = match flood {
            Flood::Ping | Flood::PingAck => {
                (self.content_received >> 10) + (self.content_sent >> 10)
            }
            Flood::WindowUpdate => self.content_sent >> 8,
            Flood::Priority | Flood::UnknownFrame | Flood::StrayFrame => {
                self.streams_opened.saturating_mul(2)
            }
            Flood::Settings | Flood::GoAway | Flood::EmptyFrame | Flood::SmallData => 0,
        };
        if self.counts[kind] > self.limits[kind].saturating_add(earned) {
            return Err(flood.error());
        }
        Ok(())
    }

    /// A stream was opened.
    #[inline]
    pub(crate) fn stream_opened(&mut self) {
        self.streams_opened = self.streams_opened.wrapping_add(1);
        self.resets.opened = self.resets.opened.wrapping_add(1);
    }

    #[inline]
    pub(crate) fn content_received(&mut self, bytes: usize) {
        self.content_received = self.content_received.saturating_add(bytes as u32);
    }

    #[inline]
    pub(crate) fn content_sent(&mut self, bytes: usize) {
        self.content_sent = self.content_sent.saturating_add(bytes as u32);
    }

    /// Counts a stream that the peer reset, or made us reset; `is_early` if before its response
    /// began.
    ///
    /// Early resets end the connection only if they are also more than half of the streams opened: a
    /// proxy in front of us carries the cancels of many users. The total bounds what a client's
    /// cancels cost an upstream that others share, and is far above what users cancel.
    pub(crate) fn stream_reset(&mut self, is_early: bool, now: Duration) -> Result<(), ErrorKind> {
        let resets = &mut self.resets;
        if now.saturating_sub(resets.started) >= resets.window {
            resets.started = now;
            (resets.early, resets.total, resets.opened) = (0, 0, 0);
        }
        resets.early += u32::from(is_early);
        resets.total += 1;
        if is_early && resets.early > resets.early_max && resets.early > resets.opened / 2 {
            return Err(ErrorKind::ResetFlood);
        }
        if resets.total > resets.total_max {
            return Err(ErrorKind::ResetRate);
        }
        Ok(())
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
