//! The server's end of an HTTP/1 connection.
#![allow(clippy::todo, unused_variables, dead_code)] // signatures first

use super::Step;
use crate::error::Error;
use crate::limits::Limits;
use crate::message::{BodyLength, Fields, RequestHead, ResponseHead};

/// The server's end of one connection: requests in, responses out, one exchange at a time.
///
/// A machine that [`is_idle`](Server::is_idle) may be dropped and made anew at the next byte.
#[derive(Debug)]
pub struct Server {}

impl Server {
    /// A machine at the start of a connection, or between two exchanges.
    #[must_use]
    pub fn new(limits: &Limits) -> Server {
        todo!()
    }

    /// Takes one step through the input.
    ///
    /// A head goes to `head`, which is cleared first; trailers to `trailers`. Present the same two
    /// until the request's `End`.
    ///
    /// # Errors
    /// The violated rule. Nothing more is read afterwards; one response may still be sent if
    /// [`response_started`](Server::response_started) is false, and the connection must close.
    pub fn handle_input(
        &mut self,
        input: &[u8],
        head: &mut RequestHead,
        trailers: &mut Fields,
    ) -> Result<Step, Error> {
        todo!()
    }

    /// The client closed its sending side. Between requests, and after a complete one, that is
    /// fine: an answer under way is finished (RULES 16), and the connection then closes.
    ///
    /// # Errors
    /// The request is incomplete.
    pub fn handle_eof(&mut self) -> Result<(), Error> {
        todo!()
    }

    /// Appends a 1xx head other than 101, for example 100 or 103; nothing towards HTTP/1.0.
    pub fn send_informational(&mut self, head: &ResponseHead, out: &mut Vec<u8>) {
        todo!()
    }

    /// Appends the final response head, or 101, with framing and `Connection`; both are the
    /// machine's, and fields of the head that say otherwise are skipped.
    ///
    /// # Panics
    /// If no response is due, or the status is informational and not 101.
    pub fn send_head(&mut self, head: &ResponseHead, length: BodyLength, out: &mut Vec<u8>) {
        todo!()
    }

    /// Whether content is to follow the head that was sent: not for HEAD, 204, 304 and empty
    /// bodies. In a tunnel: true.
    #[must_use]
    pub fn sends_body(&self) -> bool {
        todo!()
    }

    /// Appends what goes before `len` bytes of content, and counts them.
    ///
    /// # Errors
    /// More content than declared, or content where none belongs: abort the connection.
    pub fn send_data_prefix(&mut self, len: usize, out: &mut Vec<u8>) -> Result<(), Error> {
        todo!()
    }

    /// Appends what goes after the same bytes of content.
    pub fn send_data_suffix(&mut self, out: &mut Vec<u8>) {
        todo!()
    }

    /// Ends the response; trailers are sent where the framing has room for them.
    ///
    /// # Errors
    /// Less content than declared: abort the connection.
    pub fn send_end(&mut self, trailers: Option<&Fields>, out: &mut Vec<u8>) -> Result<(), Error> {
        todo!()
    }

    /// No further request after this exchange: the next head says `Connection: close`.
    pub fn drain(&mut self) {
        todo!()
    }

    /// Between two exchanges, with no byte of the next.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        todo!()
    }

    /// Whether the client waits for `100 Continue` before it sends the content.
    #[must_use]
    pub fn expects_continue(&self) -> bool {
        todo!()
    }

    /// Whether the request asks to leave HTTP/1.1 for a protocol that its `Upgrade` field names
    /// (h2c does not count, RULES 15), or is a CONNECT. Until the response head, input after the
    /// request is `Paused`.
    #[must_use]
    pub fn upgrade_requested(&self) -> bool {
        todo!()
    }

    /// After 101, or 2xx to CONNECT: input is opaque `Data`, output is written by the caller.
    #[must_use]
    pub fn is_tunnel(&self) -> bool {
        todo!()
    }

    /// The request, with its content, was received completely.
    #[must_use]
    pub fn request_done(&self) -> bool {
        todo!()
    }

    /// The head of the final response was sent.
    #[must_use]
    pub fn response_started(&self) -> bool {
        todo!()
    }

    /// The response was sent completely.
    #[must_use]
    pub fn response_done(&self) -> bool {
        todo!()
    }

    /// Whether the connection goes on after this exchange. Final once the response head was sent;
    /// a request whose content is still incomplete when the response is done must be drained or
    /// the connection closed.
    #[must_use]
    pub fn keep_alive(&self) -> bool {
        todo!()
    }
}
