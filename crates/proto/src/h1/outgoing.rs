//! Sending content, under any framing.

use super::encode;
use crate::error::ErrorKind;
use crate::message::{BodyLength, Fields};

/// The state of the message that is being sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outgoing {
    /// The head was not sent yet.
    Head,
    /// This many bytes of content are left.
    Length(u64),
    /// Chunked content.
    Chunked {
        /// A chunk-size line was sent; the data of the chunk and its line end follow.
        is_open: bool,
    },
    /// Content that the end of the connection delimits.
    UntilClose,
    /// The head was sent, no content follows, and `send_end` was not called yet.
    NoContent,
    /// Opaque bytes in both directions.
    Tunnel,
    /// Everything was sent.
    Done,
}

impl Outgoing {
    /// Whether content follows the head.
    pub(crate) fn has_content(self) -> bool {
        match self {
            Outgoing::Length(left) => left > 0,
            Outgoing::Chunked { .. } | Outgoing::UntilClose | Outgoing::Tunnel => true,
            Outgoing::Head | Outgoing::NoContent | Outgoing::Done => false,
        }
    }

    /// The bytes of content that are left, if their number alone frames them.
    pub(crate) fn content_left(self) -> Option<u64> {
        match self {
            Outgoing::Length(left) => Some(left),
            _ => None,
        }
    }

    /// Appends the framing before `len` bytes of content.
    pub(crate) fn data_prefix(&mut self, len: usize, out: &mut Vec<u8>) -> Result<(), ErrorKind> {
        match self {
            // An empty chunk would end the message.
            _ if len == 0 => {}
            Outgoing::Length(left) => {
                *left = left.checked_sub(len as u64).ok_or(ErrorKind::BodyTooLong)?;
            }
            Outgoing::Chunked { is_open } => {
                *is_open = true;
                encode::chunk_size(len, out);
            }
            Outgoing::UntilClose | Outgoing::Tunnel => {}
            Outgoing::Head | Outgoing::NoContent | Outgoing::Done => {
                return Err(ErrorKind::BodyForbidden);
            }
        }
        Ok(())
    }

    /// Appends the framing after the same bytes of content.
    pub(crate) fn data_suffix(&mut self, out: &mut Vec<u8>) {
        if let Outgoing::Chunked {
            is_open: is_open @ true,
        } = self
        {
            *is_open = false;
            out.extend_from_slice(b"\r\n");
        }
    }

    /// The state for sending content of this length; `Unknown` is chunked.
    pub(crate) fn content(length: BodyLength) -> Outgoing {
        match length {
            BodyLength::Empty => Outgoing::NoContent,
            BodyLength::Known(length) => Outgoing::Length(length),
            BodyLength::NothingButTrailers => Outgoing::Length(0),
            BodyLength::Unknown => Outgoing::Chunked { is_open: false },
        }
    }

    /// Ends the message.
    pub(crate) fn end(
        &mut self,
        trailers: Option<&Fields>,
        out: &mut Vec<u8>,
    ) -> Result<(), ErrorKind> {
        match self {
            Outgoing::Length(1..) => return Err(ErrorKind::BodyTooShort),
            Outgoing::Chunked { .. } => {
                out.extend_from_slice(b"0\r\n");
                encode::trailers(trailers, out);
            }
            Outgoing::Head => return Err(ErrorKind::BodyForbidden),
            _ => {}
        }
        *self = Outgoing::Done;
        Ok(())
    }
}
