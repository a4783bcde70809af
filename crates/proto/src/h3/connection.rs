//! One end of a connection.

mod control;
mod messages;
mod send;

use std::time::Duration;

use super::code::Code;
use super::floods::Floods;
use super::frame::{self, FrameType, Header, INTEGER_MAX, Partial, write_integer};
use super::qpack::{Decoder, Encoder};
use super::section::{RepeatedRequest, RepeatedResponse};
use super::settings::{LocalSettings, PeerSettings};
use super::stream::{Parsing, Receiving, Sending, Stream, Streams};
use super::unidirectional::{self, Purpose};
use super::{Event, Received, Step, StreamId};
use crate::error::{Error, ErrorKind, Side};
use crate::field_section::FieldSectionLimits;
use crate::limits::Limits;
use crate::priority::Priority;

/// One end of a connection: many exchanges at a time, each on a stream of QUIC.
///
/// The caller announces the streams that the peer opens ([`handle_opened`](Connection::handle_opened)), and
/// presents what comes on each, in order and with its end. After every arrival it calls `handle_input` until that
/// returns [`Event::NeedMore`] or [`Event::Blocked`], and presents the bytes that were not consumed again.
///
/// Commands append to the stream that they name. The output of the connection's own streams is in
/// [`control_output`](Connection::control_output) and [`decoder_output`](Connection::decoder_output).
///
/// A command on a stream that no longer exists does nothing: the peer may have reset it, and the caller may not
/// have handled the event yet.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    limits: ReceiveLimits,
    decoder: Decoder,
    repeated_request: RepeatedRequest,
    repeated_response: RepeatedResponse,
    encoder: Encoder,
    streams: Streams,
    /// Streams that wait for instructions.
    blocked: Vec<u64>,
    unidirectional: Vec<(u64, Purpose)>,
    /// Which of the peer's streams there were: control, encoder, decoder.
    seen: [bool; 3],
    floods: Floods,
    /// `None` until they were received.
    peer: Option<PeerSettings>,
    control_output: Vec<u8>,
    decoder_output: Vec<u8>,
    /// Requests on streams from this number on are not accepted; in a server.
    accepts_below: u64,
    /// The next number that no stream of the client has had.
    next_request: u64,
    closing: Closing,
    /// The number in the peer's GOAWAY.
    peer_limit: Option<u64>,
    /// The largest push that the client allows; there are none.
    push_max: Option<u64>,
    /// Priorities of streams that were not opened yet (RFC 9218, section 7.2).
    early_priorities: Vec<(u64, Priority)>,
}

/// The role of this end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Server,
    Client,
}

/// The limits of received field sections.
#[derive(Debug)]
struct ReceiveLimits {
    section: FieldSectionLimits,
    block_bytes_max: usize,
    informational_max: usize,
}

/// The progress of a graceful shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closing {
    No,
    /// A GOAWAY that still accepts everything was sent.
    Announced,
    /// A GOAWAY with the last accepted request was sent.
    Final,
}

/// Streams that may wait for instructions.
const BLOCKED_MAX: usize = 16;

/// Number of priorities kept for streams that were not opened yet.
const EARLY_PRIORITIES_MAX: usize = 16;

/// Bytes for the connection's own streams that wait for credit. A peer that gives none does not get more.
const OWED_BYTES_MAX: usize = 16 * 1024;

/// GOAWAY of a server that accepts what is on its way (RFC 9114, section 5.2).
const REQUEST_MAX: u64 = INTEGER_MAX & !0b11;

impl Connection {
    /// The server's end.
    #[must_use]
    pub fn server(limits: &Limits) -> Connection {
        Connection::new(Role::Server, limits)
    }

    /// The client's end.
    #[must_use]
    pub fn client(limits: &Limits) -> Connection {
        Connection::new(Role::Client, limits)
    }

    fn new(role: Role, limits: &Limits) -> Connection {
        let section = FieldSectionLimits::new(limits, role == Role::Server);
        let own = LocalSettings {
            table_capacity_max: limits.hpack_table_bytes_max,
            blocked_streams_max: BLOCKED_MAX,
            field_section_size_max: section.field_section_size_max(),
        };
        let mut control_output = Vec::new();
        write_integer(unidirectional::CONTROL, &mut control_output);
        own.write(role == Role::Server, &mut control_output);
        let mut decoder_output = Vec::new();
        write_integer(unidirectional::DECODER, &mut decoder_output);
        Connection {
            role,
            limits: ReceiveLimits {
                section,
                block_bytes_max: limits.header_block_bytes_max,
                informational_max: limits.informational_max,
            },
            decoder: Decoder::new(own.table_capacity_max),
            repeated_request: RepeatedRequest::new(),
            repeated_response: RepeatedResponse::new(),
            encoder: Encoder::default(),
            streams: Streams::default(),
            blocked: Vec::new(),
            unidirectional: Vec::new(),
            seen: [false; 3],
            floods: Floods::new(limits),
            peer: None,
            control_output,
            decoder_output,
            accepts_below: REQUEST_MAX + 1,
            next_request: 0,
            closing: Closing::No,
            peer_limit: None,
            push_max: None,
            early_priorities: Vec::new(),
        }
    }

    /// The bytes to send on the control stream, beginning with its type. The caller removes the bytes that it has sent.
    pub fn control_output(&mut self) -> &mut Vec<u8> {
        &mut self.control_output
    }

    /// The same for the stream of QPACK's decoder.
    pub fn decoder_output(&mut self) -> &mut Vec<u8> {
        &mut self.decoder_output
    }

    /// The peer has opened a stream.
    ///
    /// # Errors
    /// The code to refuse it with, on both directions; nothing of it is to be presented.
    pub fn handle_opened(&mut self, stream: StreamId) -> Result<(), Code> {
        if !stream.is_request() {
            // A server must not open streams in both directions; that is found at their first byte.
            self.unidirectional
                .push((stream.0, Purpose::Unknown(Partial::EMPTY)));
            return Ok(());
        }
        self.floods.stream_opened();
        self.next_request = self.next_request.max(stream.0 + 4);
        if stream.0 >= self.accepts_below {
            self.decoder.cancel(stream.0, &mut self.decoder_output);
            return Err(Code::REQUEST_REJECTED);
        }
        let mut state = Stream::new(Sending::Head);
        if let Some(priority) = self.early_priority(stream.0) {
            state.priority = priority;
            state.is_reprioritized = true;
        }
        self.streams.insert(stream.0, state);
        Ok(())
    }

    /// Handles input of a stream; `has_fin` if it is the last.
    ///
    /// # Errors
    /// The peer broke a rule that the whole connection depends on. The caller closes it with [`Code::of`].
    pub fn handle_input(
        &mut self,
        stream: StreamId,
        input: &[u8],
        has_fin: bool,
        now: Duration,
        received: &mut Received,
    ) -> Result<Step, Error> {
        let step = match self.streams.remove(&stream.0) {
            Some(mut state) => {
                let step = self.request_input(stream.0, &mut state, input, has_fin, now, received);
                // Bytes behind trailers are checked as well.
                let is_read =
                    has_fin && step.as_ref().is_ok_and(|step| step.consumed == input.len());
                if !state.is_closed() || !is_read {
                    self.streams.insert(stream.0, state);
                }
                step
            }
            None if stream.is_request() => Ok(Step {
                consumed: input.len(),
                event: Event::NeedMore,
            }),
            None => self.unidirectional_input(stream.0, input, has_fin, now),
        };
        self.check_owed()
            .and(step)
            .map_err(|kind| Error::new(kind, self.side()))
    }

    /// The peer has reset its direction of a stream.
    ///
    /// # Errors
    /// As [`Connection::handle_input`].
    pub fn handle_reset(
        &mut self,
        stream: StreamId,
        code: Code,
        now: Duration,
    ) -> Result<Option<Event>, Error> {
        let event = match stream.is_request() {
            true => self.lose(stream.0, code, now),
            false => self.close_unidirectional(stream.0, now).map(|()| None),
        };
        event.map_err(|kind| Error::new(kind, self.side()))
    }

    /// The peer wants nothing more of what this end sends on a stream. For a server that ends the exchange; a
    /// client sends no more of its request, and still gets the response.
    ///
    /// # Errors
    /// As [`Connection::handle_input`].
    pub fn handle_stopped(
        &mut self,
        stream: StreamId,
        code: Code,
        now: Duration,
    ) -> Result<Option<Event>, Error> {
        let event = match (stream.is_request(), self.role) {
            // The streams of the connection itself are as critical in this direction.
            (false, _) => Err(ErrorKind::CriticalStream),
            (true, Role::Server) => self.lose(stream.0, code, now),
            (true, Role::Client) => {
                if let Some(state) = self.streams.get_mut(&stream.0) {
                    state.sending = Sending::Done;
                    state.is_stopped = true;
                    if state.is_closed() {
                        self.streams.remove(&stream.0);
                    }
                }
                Ok(None)
            }
        };
        event.map_err(|kind| Error::new(kind, self.side()))
    }

    /// The peer has ended a stream early, in the direction that its exchange needs.
    fn lose(&mut self, id: u64, code: Code, now: Duration) -> Result<Option<Event>, ErrorKind> {
        let Some(state) = self.streams.get_mut(&id) else {
            return Ok(None);
        };
        if state.receiving == Receiving::Reset || state.is_closed() {
            return Ok(None);
        }
        let is_early = state.sending == Sending::Head;
        let needs_cancel = state.receiving != Receiving::Done;
        state.receiving = Receiving::Reset;
        state.section = Vec::new();
        self.blocked.retain(|blocked| *blocked != id);
        if needs_cancel {
            self.decoder.cancel(id, &mut self.decoder_output);
        }
        self.floods.stream_reset(is_early, now)?;
        let kind = match (self.role, code) {
            (Role::Client, Code::REQUEST_REJECTED) => ErrorKind::PeerRefused,
            _ => ErrorKind::PeerReset,
        };
        let error = Error::new(kind, self.side());
        Ok(Some(Event::Reset { error, code }))
    }

    /// A stream that waited for instructions which have arrived.
    pub fn next_unblocked(&mut self) -> Option<StreamId> {
        let at = self.blocked.iter().position(|id| {
            let state = self.streams.get(id);
            state.is_none_or(|state| match &state.parsing {
                Parsing::Blocked(prefix) => !self.decoder.is_blocked(prefix),
                _ => true,
            })
        })?;
        Some(StreamId(self.blocked.swap_remove(at)))
    }

    /// Removes a stream after its end, or after [`Event::Reset`] when the work for it has stopped. If something of
    /// its message is missing, the caller stops the peer's direction, and resets its own if that has not ended.
    pub fn forget(&mut self, stream: StreamId) {
        if let Some(state) = self.streams.remove(&stream.0) {
            self.blocked.retain(|id| *id != stream.0);
            if !matches!(state.receiving, Receiving::Done | Receiving::Reset) {
                self.decoder.cancel(stream.0, &mut self.decoder_output);
            }
        }
    }

    /// Gives back memory that only the next messages need.
    pub fn shrink(&mut self) {
        self.encoder = Encoder::default();
        self.streams.shrink_to_fit();
        self.control_output.shrink_to_fit();
        self.decoder_output.shrink_to_fit();
    }

    /// Begins a graceful shutdown. A server's first GOAWAY still accepts requests that are on their way; the
    /// final one follows with [`drain_now`](Connection::drain_now). A client sends no more requests.
    pub fn drain(&mut self) {
        if self.closing == Closing::No && self.role == Role::Server {
            self.closing = Closing::Announced;
            self.go_away(REQUEST_MAX);
        }
        if self.role == Role::Client {
            self.closing = Closing::Final;
        }
    }

    /// Sends the final GOAWAY: later requests are rejected, and the peer may retry them.
    pub fn drain_now(&mut self) {
        if self.closing != Closing::Final && self.role == Role::Server {
            self.closing = Closing::Final;
            self.accepts_below = self.next_request;
            self.go_away(self.next_request);
        }
    }

    fn go_away(&mut self, id: u64) {
        frame::write(frame::GOAWAY, &mut self.control_output, |out| {
            write_integer(id, out);
        });
    }

    /// Whether the shutdown is complete: no request will be accepted, and none is in progress.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        // The GOAWAY of a client is about pushes, and there are none.
        let peer_has_gone = self.role == Role::Client && self.peer_limit.is_some();
        (self.closing == Closing::Final || peer_has_gone) && self.streams.is_empty()
    }

    /// Whether the peer's SETTINGS were received.
    #[must_use]
    pub fn settings_received(&self) -> bool {
        self.peer.is_some()
    }

    /// Number of requests in progress, including those that were reset and not yet forgotten.
    #[must_use]
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// The priority of a stream.
    #[must_use]
    pub fn priority(&self, stream: StreamId) -> Option<Priority> {
        Some(self.streams.get(&stream.0)?.priority)
    }

    /// Whether these bytes, the last of their stream, are all of the content: one frame of this length, which is not 0.
    #[must_use]
    pub fn is_whole_content(&self, stream: StreamId, bytes: &[u8], length: u64) -> bool {
        let is_next = self.streams.get(&stream.0).is_some_and(|state| {
            let is_between_frames =
                matches!(&state.parsing, Parsing::Header(partial) if partial.is_empty());
            is_between_frames && state.receiving == Receiving::Body
        });
        let mut header = Partial::EMPTY;
        let (len, header) = header.header(bytes);
        let (kind, rest) = (FrameType::Data, (bytes.len() - len) as u64);
        is_next && length > 0 && rest == length && header == Some(Header { kind, len: length })
    }

    /// Bytes of field sections that have not come completely, or wait for instructions.
    #[must_use]
    pub fn partial_memory(&self) -> usize {
        let sections = self.streams.values().map(|state| state.section.capacity());
        sections.sum()
    }

    /// Bytes of memory held.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.decoder.memory()
            + self.repeated_request.memory()
            + self.repeated_response.memory()
            + self.partial_memory()
            + self.streams.capacity() * size_of::<(u64, Box<Stream>)>()
            + self.streams.len() * size_of::<Stream>()
            + self.control_output.capacity()
            + self.decoder_output.capacity()
    }

    /// The bytes that the peer makes this end send, and for which it gives no credit, are bounded.
    fn check_owed(&self) -> Result<(), ErrorKind> {
        match self.control_output.len() + self.decoder_output.len() <= OWED_BYTES_MAX {
            true => Ok(()),
            false => Err(ErrorKind::UnsentFlood),
        }
    }

    fn side(&self) -> Side {
        match self.role {
            Role::Server => Side::Request,
            Role::Client => Side::Response,
        }
    }
}
