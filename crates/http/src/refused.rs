//! The facts for observers about a request that no service gets.

use std::rc::Rc;

use blitz_proto::{RequestHead, Status, Version};

use crate::error::Refusal;
use crate::exchange::Peer;

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
