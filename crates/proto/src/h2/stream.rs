//! One stream (RFC 9113, section 5.1).
//!
//! The RFC's states are pairs of what each direction has come to:
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
//! A stream that was reset leaves the table too, except that in a server it stays, as
//! [`Receiving::Reset`] or [`Receiving::GivenUp`], until our side has stopped working on it (rule 19).

use super::frame::WINDOW_MAX;
use crate::content::{ContentLeft, RequestKind};
use crate::error::ErrorKind;
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
    /// Has content to send, and no window for it.
    pub(crate) is_blocked: bool,
    pub(crate) informational_count: u8,
    /// Bytes that the peer may still send.
    pub(crate) receive_window: i32,
    /// Bytes that the peer sent and nobody has released.
    pub(crate) held: u32,
    /// Bytes that the peer's window has grown by.
    pub(crate) grown: u32,
    /// Bytes that we may still send; negative after the peer made its window smaller.
    pub(crate) send_window: i32,
    pub(crate) receive_left: ContentLeft,
    pub(crate) send_left: ContentLeft,
}

const _: () = assert!(size_of::<Stream>() <= 56);

/// What the peer has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receiving {
    /// Nothing final yet; only a client's streams begin so.
    Head,
    /// A head; content may come.
    Body,
    /// As before, but nobody is interested in the content.
    Discarded,
    /// Everything.
    Done,
    /// RST_STREAM.
    Reset,
    /// Something that made us send RST_STREAM; whatever else comes is ignored.
    GivenUp,
}

/// What we have sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sending {
    /// Nothing final yet; only a server's streams begin so.
    Head,
    /// A head; content is to come.
    Body,
    /// Everything.
    Done,
}

impl Stream {
    /// Counts content as it is announced by a frame: `flow` bytes for the window, `len` of content,
    /// which are the last ones with `end`.
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

    /// Both directions are over.
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

    /// Whether what was received was taken so fast that a larger window may be of use: half of the
    /// present one has been taken since it was last announced, and hardly anything is held.
    #[inline]
    pub(crate) fn keeps_up(&self, target: u32) -> bool {
        let missing = i64::from(target) - i64::from(self.receive_window) - i64::from(self.held);
        missing >= i64::from(target / 2) && self.held <= target / 4
    }

    /// What is to be announced for the peer to have `target` bytes again; nothing while that is
    /// less than half.
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
