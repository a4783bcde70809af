//! HTTP/2 (RFC 9113), both ends of a connection.
//!
//! [`Connection`] is the state machine. Each of its parts is a file: `frame` and `settings` define
//! layouts, [`hpack`] compresses fields, `section` decodes heads and `encode` sends them; `stream` and
//! `streams` hold the states, `flow` is flow control, and `floods` limits frames that cost their
//! sender nothing.
//!
//! This module holds only the rules that are specific to HTTP/2. It shares with HTTP/3, outside this
//! module: `field_section` (from fields to heads and back), `field_compression` (integers and the
//! Huffman code), `content` (declared and real lengths), `priority` and `flood`.

mod code;
mod connection;
mod encode;
mod floods;
mod flow;
mod frame;
pub mod hpack;
mod section;
mod settings;
mod stream;
mod streams;

use std::ops::Range;

use crate::error::Error;
use crate::message::{BodyLength, Fields, RequestHead, ResponseHead};

pub use code::Code;
pub use connection::{Connection, WasReset};
pub use settings::UpgradeSettings;

/// The number of a stream, unique in its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub(crate) u32);

impl StreamId {
    /// The stream of this number.
    #[must_use]
    pub const fn new(number: u32) -> StreamId {
        StreamId(number)
    }

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

/// The messages that a machine receives. One can be shared by many connections: the message of an
/// event may be moved out until the next call.
#[derive(Debug, Default)]
pub struct Received {
    /// The head of a server's [`Event::Head`], and the known parts of that of [`Event::Refused`].
    pub request: RequestHead,
    /// The head of a client's [`Event::Head`].
    pub response: ResponseHead,
    /// The fields of [`Event::Trailers`].
    pub trailers: Fields,
}

/// The result of one call of `handle_input`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Bytes of the input that were consumed and must not be presented again.
    pub consumed: usize,
    /// The event in these bytes.
    pub event: Event,
}

/// An event on the receiving side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// No event yet: call again with more input.
    NeedMore,
    /// A complete head is in [`Received`]. To a server it is a new stream; to a client it may be
    /// informational, and then others follow.
    Head {
        /// The stream of the head.
        stream: StreamId,
        /// The declared length of the content; in a response to HEAD, of the content that GET would have.
        length: BodyLength,
        /// The message has neither content nor trailers; no other event will say so.
        end: bool,
    },
    /// Content, or bytes of a tunnel.
    Data {
        /// The stream of the content.
        stream: StreamId,
        /// Its range in the consumed input; may be empty at the end of the message. The caller
        /// releases every byte with `Connection::release` once it is processed.
        range: Range<usize>,
        /// The message ends here.
        end: bool,
    },
    /// Trailer fields are in [`Received`]; the message ends here.
    Trailers {
        /// The stream of the trailers.
        stream: StreamId,
    },
    /// To a server: a new stream whose request exceeds a limit or has an invalid target. The caller responds with the
    /// status of the error. Its content follows as that of other requests.
    Refused {
        /// The stream of the request.
        stream: StreamId,
        /// The violated rule, with the status.
        error: Error,
    },
    /// The stream ended early: nothing more is received or sent on it. A server has to call
    /// `Connection::forget` as soon as it has stopped its work for the stream.
    Reset {
        /// The stream; its head was not reported if it was malformed.
        stream: StreamId,
        /// `PeerReset`, `PeerRefused`, or the rule that the peer violated.
        error: Error,
        /// The code of RST_STREAM, from either side.
        code: Code,
    },
    /// The peer closes the connection after the streams in progress. A client sends no more requests;
    /// those that the peer does not process are reset with `PeerRefused` next.
    GoAway {
        /// Why.
        code: Code,
    },
    /// The peer acknowledged `Connection::ping`.
    Pong,
}
