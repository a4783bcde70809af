//! One stream (RFC 9113, section 5.1).
//!
//! Each state of the RFC is a pair of one state per direction:
//!
//! ```text
//!                    sending
//!               Head/Body    Done
//! receiving   +------------+-------------------+
//!  Head/Body  | open       | half-closed(local)|
//!  Done       | hc(remote) | closed: leaves the table
//!             +------------+-------------------+
//! ```
//!
//! A reset stream leaves the table, too. In a server it stays, as [`Receiving::ResetByPeer`] or
//! [`Receiving::ResetByUs`], until the server has stopped its work on it (rule 19).

use super::frame::WINDOW_MAX;
use crate::content::{ContentLeft, RequestKind};
use crate::error::ErrorKind;
use crate::informational::InformationalRate;
use crate::priority::{Priority, PriorityOverride};

/// A stream's state; small, since thousands may be open and idle.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: u32,
    pub(crate) receiving: Receiving,
    pub(crate) sending: Sending,
    /// The client's priority with the response's override applied.
    pub(crate) priority: Priority,
    pub(crate) priority_override: PriorityOverride,
    pub(crate) request: RequestKind,
    pub(crate) expects_continue: bool,
    /// The stream has content to send, but no window for it.
    pub(crate) is_blocked: bool,
    pub(crate) informational: InformationalRate,
    /// Bytes that the peer may still send.
    pub(crate) receive_window: i32,
    /// Bytes that the peer sent and the caller has not released.
    pub(crate) held: u32,
    /// Bytes that the peer's window has grown by.
    pub(crate) grown: u32,
    /// Bytes that may still be sent; negative after the peer reduced its window.
    pub(crate) send_window: i32,
    pub(crate) receive_left: ContentLeft,
    pub(crate) send_left: ContentLeft,
}

const _: () = assert!(size_of::<Stream>() <= 56);

/// The state of the receiving direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receiving {
    /// No final head was received; only a client's streams begin in this state.
    Head,
    /// The head was received; content may follow.
    Body,
    /// The whole message was received.
    Done,
    /// RST_STREAM was received.
    ResetByPeer,
    /// RST_STREAM was sent; further frames are ignored.
    ResetByUs,
}

/// The state of the sending direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sending {
    /// No final head was sent; only a server's streams begin in this state.
    Head,
    /// The head was sent; content follows.
    Body,
    /// The whole message was sent.
    Done,
}

impl Stream {
    /// Counts the content of a DATA frame from its header: `flow` bytes against the window, `len` bytes
    /// of content. `end` is the frame's END_STREAM.
    #[inline]
    pub(crate) fn take_content(
        &mut self,
        flow: usize,
        len: usize,
        end: bool,
    ) -> Result<(), ErrorKind> {
        // RFC 9113, section 6.9.1: "A sender MUST NOT send a flow-controlled frame with a length
        // that exceeds the space available in either of the flow-control windows"; "Frames with zero
        // length with the END_STREAM flag set [...] MAY be sent if there is no available space".
        if flow > 0 && flow as i64 > i64::from(self.receive_window) {
            return Err(ErrorKind::FlowControl);
        }
        self.receive_window -= flow as i32;
        self.held += flow as u32;
        let left = self.receive_left.after(len as u64);
        self.receive_left = left.ok_or(ErrorKind::ContentLengthMismatch)?;
        if end { self.check_length() } else { Ok(()) }
    }

    /// Whether the content may end here.
    #[inline]
    pub(crate) fn check_length(&self) -> Result<(), ErrorKind> {
        // RFC 9113, section 8.1.1: "A request or response is also malformed if the value of a
        // content-length header field does not equal the sum of the DATA frame payload lengths".
        match self.receive_left.may_end() {
            true => Ok(()),
            false => Err(ErrorKind::ContentLengthMismatch),
        }
    }

    /// Whether both directions have ended.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.sending == Sending::Done && self.receiving == Receiving::Done
    }

    /// Changes the window for sending. RFC 9113, section 6.9.1: "A sender MUST NOT allow a
    /// flow-control window to exceed 2^31-1 octets."
    pub(crate) fn grow_send_window(&mut self, by: i64) -> Result<(), ErrorKind> {
        let window = i64::from(self.send_window) + by;
        if window > WINDOW_MAX {
            return Err(ErrorKind::FlowControl);
        }
        self.send_window = window as i32;
        Ok(())
    }

    /// Whether the reader keeps up, so that a larger window may help: half of the current window was
    /// released since the last announcement, and few bytes are held.
    #[inline]
    pub(crate) fn keeps_up(&self, target: u32) -> bool {
        let missing = i64::from(target) - i64::from(self.receive_window) - i64::from(self.held);
        missing >= i64::from(target / 2) && self.held <= target / 4
    }

    /// The increment that restores the peer's window to `target` bytes; `None` while it is less than
    /// half of that.
    #[inline]
    pub(crate) fn credit(&mut self, target: u32) -> Option<u32> {
        if self.receiving != Receiving::Body && self.receiving != Receiving::Head {
            return None;
        }
        credit(&mut self.receive_window, self.held, target)
    }
}

/// The same for any window.
#[inline]
pub(crate) fn credit(window: &mut i32, held: u32, target: u32) -> Option<u32> {
    let missing = i64::from(target) - i64::from(*window) - i64::from(held);
    if missing <= 0 || missing < i64::from(target / 2) {
        return None;
    }
    *window += missing as i32;
    Some(missing as u32)
}
