//! HTTP/2 (RFC 9113), both ends of a connection.
//!
//! [`Connection`] is the machine. Its parts are a file each: `frame` and `settings` are layouts,
//! [`hpack`] compresses fields, `section` decodes heads and `encode` sends them; `stream` and
//! `streams` are the states, `flow` is flow control, and `floods` limits the frames that cost their
//! sender nothing.
//!
//! Only the rules of HTTP/2 alone are here. HTTP/3 has these in common with it, outside of this
//! module: `field_section` (from fields to heads and back), `field_compression` (integers and the
//! Huffman code), `content` (declared and real lengths), `priority` and `flood`.

mod code;
mod connection;
mod encode;
mod floods;
mod flow;
mod frame;
pub mod hpack;
mod repeat;
mod section;
mod settings;
mod stream;
mod streams;

use std::ops::Range;

pub use code::Code;
pub use connection::Connection;
pub use settings::UpgradeSettings;

use crate::error::Error;
use crate::message::{BodyLength, Fields, RequestHead, ResponseHead};

/// The number of a stream, unique in its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub(crate) u32);

impl StreamId {
    /// The number on the wire.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl std::fmt::Display for StreamId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Where a machine puts the messages it receives. One will do for many connections: what an event
/// speaks of may be moved out until the next call.
#[derive(Debug, Default)]
pub struct Received {
    /// The head of a server's [`Event::Head`], and what is known of that of [`Event::Refused`].
    pub request: RequestHead,
    /// The head of a client's [`Event::Head`].
    pub response: ResponseHead,
    /// The fields of [`Event::Trailers`].
    pub trailers: Fields,
}

/// What one call of `handle_input` did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Bytes of the input that are dealt with and must not be presented again.
    pub consumed: usize,
    /// What they meant.
    pub event: Event,
}

/// What arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Nothing to report: present more input when there is some.
    NeedMore,
    /// A complete head is in [`Received`]. To a server it is a new stream; to a client it may be
    /// informational, and then others follow.
    Head {
        /// Whose head it is.
        stream: StreamId,
        /// What it declares about the content; of an answer to HEAD, about that of GET.
        length: BodyLength,
        /// The message has neither content nor trailers; no other event will say so.
        end: bool,
    },
    /// Content, or bytes of a tunnel.
    Data {
        /// Whose content it is.
        stream: StreamId,
        /// Where in the input it is, inside of what was consumed; may be empty if it is the end.
        /// Every byte of it is to be given to `Connection::release`, once it is taken.
        range: Range<usize>,
        /// The message ends here.
        end: bool,
    },
    /// Trailer fields are in [`Received`]; the message ends here.
    Trailers {
        /// Whose trailers they are.
        stream: StreamId,
    },
    /// To a server: a new stream with a request that is understood, but breaks a limit or names a
    /// target that cannot be. To be answered with the status of the error; content that comes is
    /// not reported.
    Refused {
        /// Whose request it is.
        stream: StreamId,
        /// The rule, with the status.
        error: Error,
    },
    /// The stream is over before its time: nothing more is received or sent on it. A server has to
    /// call `Connection::forget` as soon as it has stopped working on it.
    Reset {
        /// Which stream; one that no head was reported of, if its head was malformed.
        stream: StreamId,
        /// `PeerReset` or `PeerRefused`, or else the rule that the peer has broken.
        error: Error,
        /// The code of RST_STREAM, whoever sent it.
        code: Code,
    },
    /// The peer closes the connection once what is under way is complete. A client sends no more
    /// requests; those that will not be answered are reset with `PeerRefused` next.
    GoAway {
        /// Why.
        code: Code,
    },
    /// The peer answered `Connection::ping`.
    Pong,
}
