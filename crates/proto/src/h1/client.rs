//! The client's end of an HTTP/1 connection.
#![allow(clippy::todo, unused_variables, dead_code)] // signatures first

use super::{Event, Step};
use crate::error::Error;
use crate::limits::Limits;
use crate::message::{BodyLength, Fields, RequestHead, ResponseHead};

/// The client's end of one connection: requests out, responses in, one exchange at a time.
#[derive(Debug)]
pub struct Client {}

impl Client {
    /// A machine at the start of a connection, or between two exchanges.
    #[must_use]
    pub fn new(limits: &Limits) -> Client {
        todo!()
    }

    /// Appends a request head in origin form with `Host` from the authority, framing and
    /// `Connection`; fields of the head that say otherwise are skipped.
    ///
    /// # Panics
    /// If the exchange before is not complete, or the connection is not reusable.
    pub fn send_request(&mut self, head: &RequestHead, length: BodyLength, out: &mut Vec<u8>) {
        todo!()
    }

    /// Appends what goes before `len` bytes of content, and counts them.
    ///
    /// # Errors
    /// More content than declared: abort the connection.
    pub fn send_data_prefix(&mut self, len: usize, out: &mut Vec<u8>) -> Result<(), Error> {
        todo!()
    }

    /// Appends what goes after the same bytes of content.
    pub fn send_data_suffix(&mut self, out: &mut Vec<u8>) {
        todo!()
    }

    /// Ends the request; trailers are sent where the framing has room for them.
    ///
    /// # Errors
    /// Less content than declared: abort the connection.
    pub fn send_end(&mut self, trailers: Option<&Fields>, out: &mut Vec<u8>) -> Result<(), Error> {
        todo!()
    }

    /// Takes one step through the input: `Head` for each informational response and for the final
    /// one, then content, `Trailers`, `End`.
    ///
    /// # Errors
    /// The violated rule, also for bytes that no request asked for. The connection must close.
    pub fn handle_input(
        &mut self,
        input: &[u8],
        head: &mut ResponseHead,
        trailers: &mut Fields,
    ) -> Result<Step, Error> {
        todo!()
    }

    /// The server closed its sending side: `End` if that completes a response delimited by close
    /// or a tunnel, `NeedMore` if no response was due.
    ///
    /// # Errors
    /// The response is incomplete or never began.
    pub fn handle_eof(&mut self) -> Result<Event, Error> {
        todo!()
    }

    /// The next request says `Connection: close`.
    pub fn drain(&mut self) {
        todo!()
    }

    /// The request, with its content, was sent completely.
    #[must_use]
    pub fn request_done(&self) -> bool {
        todo!()
    }

    /// The final response, with its content, was received completely.
    #[must_use]
    pub fn response_done(&self) -> bool {
        todo!()
    }

    /// The head of the final response was received.
    #[must_use]
    pub fn response_started(&self) -> bool {
        todo!()
    }

    /// After 101, or 2xx to CONNECT: input is opaque `Data`, output is written by the caller.
    #[must_use]
    pub fn is_tunnel(&self) -> bool {
        todo!()
    }

    /// Whether another request may use the connection (RULES 11): the response was complete and
    /// self-delimited, the request fully sent, no surplus byte arrived, both sides keep alive.
    #[must_use]
    pub fn reusable(&self) -> bool {
        todo!()
    }
}
