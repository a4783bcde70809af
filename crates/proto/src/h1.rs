//! HTTP/1.0 and HTTP/1.1 (RFC 9112), both ends of a connection.
//!
//! The receiving side has one file per layer: `finder` delimits a section, `section` buffers it,
//! `head` splits and checks it with `framing`, `diagnose` names the violated rule, `body` and
//! `chunked` delimit the content. The sending side is `encode` for heads and `outgoing` for content.
//! [`Server`] and [`Client`] combine both sides for their end of a connection.

mod body;
mod chunked;
mod client;
mod diagnose;
mod encode;
mod finder;
mod framing;
mod head;
mod outgoing;
mod section;
mod server;

use std::ops::Range;

use crate::message::BodyLength;
pub use client::Client;
pub use server::Server;

/// The result of one call of `handle_input`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Bytes of the input that were consumed and must not be presented again.
    pub consumed: usize,
    /// The event that they caused.
    pub event: Event,
}

/// An event on the receiving side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// No event yet: call again with more input.
    NeedMore,
    /// The remaining input belongs to the next exchange: keep it and present it again when the
    /// response is complete, or when an upgrade is accepted or refused. The caller keeps at most
    /// `Limits::pipelined_bytes_max` bytes.
    Paused,
    /// The caller's head is complete; the value is the length of content that it declares.
    Head(BodyLength),
    /// Content, or bytes of a tunnel: this range of the input, within the consumed bytes.
    Data(Range<usize>),
    /// The caller's trailers are complete; `End` follows.
    Trailers,
    /// The message is complete.
    End,
}
