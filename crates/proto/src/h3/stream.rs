//! One request and its response.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::frame::Partial;
use super::qpack::Prefix;
use crate::content::{ContentLeft, RequestKind};
use crate::error::ErrorKind;
use crate::informational::InformationalRate;
use crate::priority::{Priority, PriorityOverride};

/// The streams of requests.
pub(crate) type Streams = HashMap<u64, Box<Stream>, BuildHasherDefault<StreamHasher>>;

/// Numbers of streams ascend, and QUIC bounds the number of open streams, so a peer cannot choose numbers that
/// collide.
#[derive(Debug, Default)]
pub(crate) struct StreamHasher(u64);

impl Hasher for StreamHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a stream is a number")
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// A stream's state.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) receiving: Receiving,
    pub(crate) sending: Sending,
    pub(crate) parsing: Parsing,
    /// A field section whose end has not arrived, or that waits for instructions.
    pub(crate) section: Vec<u8>,
    /// The client's priority with the response's override applied.
    pub(crate) priority: Priority,
    pub(crate) priority_override: PriorityOverride,
    pub(crate) request: RequestKind,
    pub(crate) expects_continue: bool,
    /// The peer wants nothing more of what this end sends.
    pub(crate) is_stopped: bool,
    /// A PRIORITY_UPDATE has set the priority, so that the field of the request does not.
    pub(crate) is_reprioritized: bool,
    pub(crate) informational: InformationalRate,
    pub(crate) receive_left: ContentLeft,
    pub(crate) send_left: ContentLeft,
}

/// The state of the receiving direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receiving {
    /// No final head was received.
    Head,
    /// The head was received; content may follow.
    Body,
    /// As `Body`, but the content is discarded.
    Discarded,
    /// The whole message was received.
    Done,
    /// The stream was reset, by either end.
    Reset,
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

/// Where the input is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Parsing {
    /// In the header of a frame.
    Header(Partial),
    /// In content, with so many bytes left.
    Data(u64),
    /// In a field section.
    Section(u64),
    /// In a field section that is too long.
    LongSection(u64),
    /// Behind a field section that waits for instructions.
    Blocked(Prefix),
    /// In a frame that is ignored.
    Ignored(u64),
}

impl Parsing {
    pub(crate) const START: Parsing = Parsing::Header(Partial::EMPTY);
}

impl Stream {
    pub(crate) fn new(sending: Sending) -> Box<Stream> {
        Box::new(Stream {
            receiving: Receiving::Head,
            sending,
            parsing: Parsing::START,
            section: Vec::new(),
            priority: Priority::UNSTATED,
            priority_override: PriorityOverride::default(),
            request: RequestKind::Other,
            expects_continue: false,
            is_stopped: false,
            is_reprioritized: false,
            informational: InformationalRate::default(),
            receive_left: ContentLeft::UNDECLARED,
            send_left: ContentLeft::UNDECLARED,
        })
    }

    /// Whether the content may end here (RFC 9114, section 4.1.2).
    pub(crate) fn check_length(&self) -> Result<(), ErrorKind> {
        match self.receive_left.may_end() {
            true => Ok(()),
            false => Err(ErrorKind::ContentLengthMismatch),
        }
    }

    /// Whether both directions have ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.sending == Sending::Done && self.receiving == Receiving::Done
    }
}
