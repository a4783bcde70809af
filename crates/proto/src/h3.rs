//! HTTP/3 (RFC 9114), both ends of a connection.
//!
//! [`Connection`] is the state machine. QUIC is not here: the caller passes on what comes on each stream, and
//! writes what commands append to the stream they name. Each part is a file: `frame` and `settings` define
//! layouts, [`qpack`] compresses fields, `section` decodes heads, `stream` holds the state of a request,
//! `unidirectional` reads the streams beside the requests, and `floods` limits what costs the peer nothing.
//!
//! The parts that HTTP/3 shares with HTTP/2 are outside this module: `field_section`, `field_compression`, `content`,
//! `priority` and `flood`.

mod code;
mod connection;
mod floods;
mod frame;
pub mod qpack;
mod section;
mod settings;
mod stream;
mod unidirectional;

use std::ops::Range;

use crate::error::Error;
use crate::message::BodyLength;

pub use crate::h2::Received;
pub use code::Code;
pub use connection::Connection;

/// The number of a stream of QUIC (RFC 9000, section 2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub(crate) u64);

impl StreamId {
    /// The stream of this number.
    #[must_use]
    pub const fn new(number: u64) -> StreamId {
        StreamId(number)
    }

    /// The number on the wire.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whether a client has opened the stream, for both directions: only these carry requests.
    #[must_use]
    pub const fn is_request(self) -> bool {
        self.0 & 0b11 == 0
    }
}

impl std::fmt::Display for StreamId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
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
    /// No event yet: call again with more input of the stream, unless it has ended.
    NeedMore,
    /// The stream waits for instructions on another one (RFC 9204, section 2.2.1). Call again, with the input that
    /// was not consumed, once [`Connection::next_unblocked`] names it.
    Blocked,
    /// A complete head is in [`Received`]. To a server it is a new request; to a client it may be
    /// informational, and then others follow.
    Head {
        /// The declared length of the content; in a response to HEAD, of the content that GET would have.
        length: BodyLength,
        /// The message has neither content nor trailers; no other event will say so.
        end: bool,
    },
    /// Content, or bytes of a tunnel.
    Data {
        /// Its range in the consumed input; may be empty at the end of the message.
        range: Range<usize>,
        /// The message ends here.
        end: bool,
    },
    /// Trailer fields are in [`Received`]; the message ends here.
    Trailers,
    /// To a server: a request that exceeds a limit or has an invalid target. The caller responds with the status of the
    /// error; content of the request is not reported.
    Refused {
        /// The violated rule, with the status.
        error: Error,
    },
    /// The stream ended early. The caller resets its own direction and stops the peer's with `code`, unless the
    /// peer has ended it, and calls [`Connection::forget`] as soon as it has stopped its work for the stream.
    Reset {
        /// `PeerReset`, `PeerRefused`, or the rule that the peer violated.
        error: Error,
        /// The code, from either side.
        code: Code,
    },
    /// The stream is of no use: the caller stops it with this code, and passes on nothing more of it.
    Unwanted {
        /// Why.
        code: Code,
    },
    /// The peer closes the connection after the requests in progress. A client sends no more requests; those on
    /// streams from this number on are not processed.
    GoAway {
        /// The first number.
        from: StreamId,
    },
    /// The client has changed the priority of a request (RFC 9218, section 7.2).
    Reprioritized {
        /// The request's stream.
        stream: StreamId,
    },
}
