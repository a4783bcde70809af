//! The facts for observers about requests and incomplete heads that no service gets, and about handshakes after which no request can
//! come.

use std::rc::Rc;
use std::time::Instant;

use blitz_proto::{RequestHead, Status, Version};

use crate::error::Refusal;
use crate::exchange::Peer;
use crate::options::ServeOptions;

/// The end of a request, or of a connection without one, before a service got it.
#[derive(Debug, Clone, Copy)]
pub enum Refused<'a> {
    /// A request that was refused.
    Request(RefusedRequest<'a>),
    /// A handshake that has failed.
    Handshake(FailedHandshake<'a>),
    /// A head that was not complete when its connection ended.
    IncompleteHead(IncompleteHead<'a>),
}

/// A request that the server has refused before a service got it.
#[derive(Debug, Clone, Copy)]
pub struct RefusedRequest<'a> {
    /// The part of its head that was received, if at least its request line was.
    pub head: Option<&'a RequestHead>,
    /// Why it was refused.
    pub refusal: Refusal,
    /// Status of the response; `None` if none was possible.
    pub status: Option<Status>,
    /// Bytes of the response's content.
    pub content_bytes: usize,
    /// Version of the connection.
    pub version: Version,
    /// The client.
    pub peer: &'a Rc<Peer>,
}

/// A TLS handshake that has failed, over TCP or QUIC.
#[derive(Debug, Clone, Copy)]
pub struct FailedHandshake<'a> {
    /// Stable name of the cause: see [`TlsError::cause`](crate::TlsError::cause).
    pub cause: &'static str,
    /// When it began. A client that has sent nothing began when it connected.
    pub started: Instant,
    /// The version of HTTP, if the transport allows only one.
    pub version: Option<Version>,
    /// The client, with the facts about TLS that were known.
    pub peer: &'a Rc<Peer>,
}

/// A head of HTTP/1.1 that was not complete when its connection ended, without a response. A head that came too slowly is
/// a request that was refused.
#[derive(Debug, Clone, Copy)]
pub struct IncompleteHead<'a> {
    /// The part of the head that was received, if at least its request line was.
    pub head: Option<&'a RequestHead>,
    /// Stable name of the cause: `client-gone` or `evicted`.
    pub cause: &'static str,
    /// When its first byte was received.
    pub started: Instant,
    /// The client.
    pub peer: &'a Rc<Peer>,
}

/// Tells the observer, if there is one.
pub(crate) fn tell<'a>(options: &ServeOptions, refused: impl FnOnce() -> Refused<'a>) {
    if let Some(observe) = &options.refused {
        observe(&refused());
    }
}
