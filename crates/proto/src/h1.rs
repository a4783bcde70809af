//! HTTP/1.0 and HTTP/1.1 (RFC 9112), both ends of a connection.
//!
//! Receiving is built in layers, each a file: `finder` delimits a section, `section` collects it,
//! `head` splits and polices it with `framing`, `diagnose` names what was wrong, `body` and
//! `chunked` delimit the content. Sending is `encode` for heads and `outgoing` for content.
//! [`Server`] and [`Client`] put the two together for their end of a connection.

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
    /// The rest of the input is not for this exchange: keep it and present it again once the
    /// response is complete, or once an upgrade is decided. The caller bounds what it keeps by
    /// `Limits::pipelined_bytes_max`.
    Paused,
    /// A complete head is in the caller's head, with what it declares about the content.
    Head(BodyLength),
    /// Content, or bytes of a tunnel: this range of the input, inside what was consumed.
    Data(Range<usize>),
    /// Trailer fields are in the caller's trailers; `End` follows.
    Trailers,
    /// The message is complete.
    End,
}
