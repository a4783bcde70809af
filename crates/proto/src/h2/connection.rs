//! One end of a connection.

mod content;
mod control;
mod heads;
mod input;
mod send;

use std::time::Duration;

use super::code::Code;
use super::encode::LastHead;
use super::floods::Floods;
use super::flow::Flow;
use super::frame::{self, FrameType};
use super::hpack::{Decoder, Encoder};
use super::section::{RepeatedRequest, RepeatedResponse};
use super::settings::{LocalSettings, PeerSettings, WINDOW_DEFAULT};
use super::stream::{Receiving, Sending, Stream};
use super::streams::{Slot, StreamEnd, Streams};
use super::{Event, StreamId};
use crate::content::{ContentLeft, RequestKind};
use crate::error::{Error, ErrorKind, Side};
use crate::field_section::FieldSectionLimits;
use crate::field_section::send::request_fits;
use crate::informational::InformationalRate;
use crate::limits::Limits;
use crate::message::{Fields, Name, RequestHead};
use crate::priority::schedule::Schedule;
use crate::priority::{Priority, PriorityOverride};
use input::Input;

/// One end of a connection: many exchanges at a time, each on a stream.
///
/// Methods are of four kinds, as everywhere in this crate: `handle_input` and `handle_eof`;
/// commands, which append output to `out`; [`next_to_send`](Connection::next_to_send), the only
/// method to poll; getters.
///
/// A command on a stream that no longer exists does nothing: the peer may have reset it, and the
/// caller may not have handled the event yet.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    receive_limits: ReceiveLimits,
    input: Input,
    decoder: Decoder,
    encoder: Encoder,
    last_sent: LastHead,
    repeated_request: RepeatedRequest,
    repeated_response: RepeatedResponse,
    streams: Streams,
    schedule: Schedule<u32>,
    flow: Flow,
    floods: Floods,
    own: LocalSettings,
    own_acknowledged: bool,
    resize: Option<Resize>,
    peer: PeerSettings,
    settings_received: bool,
    /// Bytes that the peer's first SETTINGS add to the connection's send window.
    window_withheld: u32,
    /// Bytes of content that may still come for streams that this client has reset.
    late_content_max: u64,
    /// The highest stream of the peer that was received, and the highest that was accepted.
    last_seen: u32,
    last_accepted: u32,
    /// The next stream to open.
    next_own: u32,
    closing: Closing,
    /// After the peer's GOAWAY: the last stream identifier in it.
    peer_last: Option<u32>,
    /// Streams above `peer_last` were not all reported yet.
    refusing: bool,
    /// A header block was too long to be decoded, so that later ones cannot be decoded either.
    has_lost_block: bool,
    prioritizes: bool,
    /// Priorities of streams that were not opened yet (RFC 9218, section 7.1).
    early_priorities: Vec<(u32, Priority)>,
}

/// The role of this end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Server,
    /// A client, with the scheme of its requests.
    Client(&'static str),
}

/// When a stream was reset, for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WasReset {
    /// Before the response head.
    BeforeResponse,
    /// After it.
    Later,
}

/// The limits of received header blocks.
#[derive(Debug)]
struct ReceiveLimits {
    section: FieldSectionLimits,
    block_bytes_max: usize,
    continuations_max: u32,
    informational_max: usize,
}

/// A change of the initial window that the peer has not acknowledged.
#[derive(Debug, Clone, Copy)]
struct Resize {
    /// New size minus old size, in bytes.
    change: i32,
    /// The first stream that began with the new size.
    first: u32,
}

/// The progress of a graceful shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closing {
    No,
    /// A GOAWAY with the maximum stream identifier was sent, followed by a PING.
    Announced,
    /// A GOAWAY with the last accepted stream was sent.
    Final,
}

/// Number of priorities kept for streams that were not opened yet.
const EARLY_PRIORITIES_MAX: usize = 16;

/// Payloads of the PINGs that this end sends.
const PING_PROBE: [u8; 8] = *b"window??";
const PING_DRAIN: [u8; 8] = *b"draining";
const PING_CALLER: [u8; 8] = *b"alive???";

impl Connection {
    /// The server's end. [`start`](Connection::start) it.
    #[must_use]
    pub fn server(limits: &Limits) -> Connection {
        Connection::new(Role::Server, limits)
    }

    /// The client's end, whose requests have the scheme `https` or `http`.
    #[must_use]
    pub fn client(limits: &Limits, is_https: bool) -> Connection {
        let scheme = if is_https { "https" } else { "http" };
        Connection::new(Role::Client(scheme), limits)
    }

    fn new(role: Role, limits: &Limits) -> Connection {
        let is_server = role == Role::Server;
        let section = FieldSectionLimits::new(limits, is_server);
        let flow = Flow::new(limits, is_server);
        let table = limits.hpack_table_bytes_max.min(usize::from(u16::MAX));
        Connection {
            role,
            receive_limits: ReceiveLimits {
                section,
                block_bytes_max: limits.header_block_bytes_max,
                continuations_max: limits.continuations_max,
                informational_max: limits.informational_max,
            },
            input: Input::new(is_server),
            decoder: Decoder::new(table),
            encoder: Encoder::new(table),
            last_sent: LastHead::default(),
            repeated_request: RepeatedRequest::new(),
            repeated_response: RepeatedResponse::new(),
            streams: Streams::default(),
            schedule: Schedule::default(),
            floods: Floods::new(limits),
            own: LocalSettings {
                header_table_size: table as u32,
                concurrent_streams_max: limits.concurrent_streams_max,
                window: flow.stream_base(),
                header_list_size_max: section.field_section_size_max(),
            },
            flow,
            own_acknowledged: false,
            resize: None,
            peer: PeerSettings::DEFAULT,
            settings_received: false,
            window_withheld: 0,
            late_content_max: 0,
            last_seen: 0,
            last_accepted: 0,
            next_own: 1,
            closing: Closing::No,
            peer_last: None,
            refusing: false,
            has_lost_block: false,
            prioritizes: is_server,
            early_priorities: Vec::new(),
        }
    }

    /// Appends the start of the connection: SETTINGS, after the preface of a client.
    pub fn start(&mut self, out: &mut Vec<u8>) {
        if !self.is_server() {
            out.extend_from_slice(frame::PREFACE);
        }
        self.own.write(self.is_server(), out);
        if let Some(increment) = self.flow.credit() {
            frame::write_window_update(0, increment, out);
        }
    }

    /// Whether streams are sent in the order of the peer's priorities (RFC 9218) or round-robin. Only a
    /// server should use priorities: a gateway sends requests of different clients to an upstream, and
    /// no client may delay the others.
    pub fn set_prioritizes(&mut self, prioritizes: bool) {
        self.prioritizes = prioritizes;
    }

    /// Limits the windows that are announced from now on, of a stream and of the connection, in bytes:
    /// the less memory is left, the less a peer may send (rule 4). Windows that were announced before
    /// do not change. The minimum is 1 KiB, so that no window stays closed.
    #[inline]
    pub fn cap_windows(&mut self, stream: usize, connection: usize) {
        let cap = |bytes: usize| bytes.clamp(1 << 10, u32::MAX as usize) as u32;
        self.flow.set_caps(cap(stream), cap(connection));
    }

    /// Growth of the windows of all streams in bytes, for readers that keep up.
    #[inline]
    #[must_use]
    pub fn window_growth(&self) -> usize {
        self.flow.grown() as usize
    }

    /// Limits the further growth of the windows of all streams, in bytes.
    #[inline]
    pub fn cap_window_growth(&mut self, bytes: usize) {
        self.flow
            .set_growth_left(bytes.min(u32::MAX as usize) as u32);
    }

    /// The initial window of a client's streams, in bytes.
    #[inline]
    #[must_use]
    pub fn stream_window(&self) -> usize {
        self.own.window as usize
    }

    /// Changes the initial window of a client's streams; SETTINGS announce it before the next request.
    /// The windows of open streams change by the same difference when the server acknowledges the
    /// SETTINGS (RFC 9113, section 6.9.2). Does nothing while earlier SETTINGS are not acknowledged.
    pub fn set_stream_window(&mut self, bytes: usize, out: &mut Vec<u8>) {
        let window = bytes.clamp(1, frame::WINDOW_MAX as usize) as u32;
        if self.is_server() || !self.own_acknowledged || self.resize.is_some() {
            return;
        }
        self.resize = Some(Resize {
            change: window as i32 - self.own.window as i32,
            first: self.next_own,
        });
        self.own.window = window;
        self.flow.set_stream_base(window);
        LocalSettings::write_window(window, out);
    }

    /// The peer closed its sending side.
    ///
    /// # Errors
    /// The peer's message on an open stream is incomplete: those streams have failed. A server may
    /// still complete its responses to complete requests (rule 16).
    pub fn handle_eof(&mut self) -> Result<(), Error> {
        let is_complete =
            |stream: &Stream| !matches!(stream.receiving, Receiving::Head | Receiving::Body);
        self.closing = Closing::Final;
        if self.streams.iter().all(is_complete) {
            return Ok(());
        }
        let is_server = self.is_server();
        let kind = if is_server {
            ErrorKind::TruncatedBody
        } else {
            ErrorKind::ClosedBeforeResponse
        };
        Err(Error::new(kind, self.side()))
    }

    /// Begins a graceful shutdown. A server sends a GOAWAY with the maximum stream identifier, so that
    /// it still accepts requests in flight; the final GOAWAY follows after one round trip, or with
    /// [`drain_now`](Connection::drain_now). A client sends the final GOAWAY at once and no more requests.
    pub fn drain(&mut self, out: &mut Vec<u8>) {
        if self.closing != Closing::No {
            return;
        }
        if !self.is_server() {
            return self.drain_now(out);
        }
        self.closing = Closing::Announced;
        frame::write_go_away(frame::ID_MASK, Code::NO_ERROR, out);
        frame::write(FrameType::Ping, 0, 0, &PING_DRAIN, out);
    }

    /// Sends the final GOAWAY: streams above the last accepted one are ignored, and the peer may retry
    /// their requests.
    pub fn drain_now(&mut self, out: &mut Vec<u8>) {
        if self.closing != Closing::Final {
            self.closing = Closing::Final;
            frame::write_go_away(self.last_accepted, Code::NO_ERROR, out);
        }
    }

    /// Whether a request was refused because its header block was too long to be decoded. Later header blocks are
    /// ignored; the caller responds and then calls [`Connection::announce_lost_block`].
    #[must_use]
    pub fn has_lost_block(&self) -> bool {
        self.has_lost_block
    }

    /// Sends GOAWAY after a response to a header block that was too long: open streams continue, and the
    /// connection then ends.
    #[cold]
    pub fn announce_lost_block(&mut self, out: &mut Vec<u8>) {
        frame::write_go_away(self.last_accepted, Code::NO_ERROR, out);
    }

    /// Appends a PING; its acknowledgement causes [`Event::Pong`].
    pub fn ping(&mut self, out: &mut Vec<u8>) {
        frame::write(FrameType::Ping, 0, 0, &PING_CALLER, out);
    }

    /// Resets a stream; nothing more is received or sent on it. Returns what was reset, if RST_STREAM
    /// is sent.
    pub fn reset(&mut self, stream: StreamId, code: Code, out: &mut Vec<u8>) -> Option<WasReset> {
        let slot = self.streams.find(stream.0)?;
        let was_reset = match self.streams.at(slot).receiving {
            Receiving::ResetByPeer | Receiving::ResetByUs => None,
            Receiving::Head => Some(WasReset::BeforeResponse),
            _ => Some(WasReset::Later),
        };
        if was_reset.is_some() {
            frame::write_reset(stream.0, code, out);
        }
        self.expect_late_content(slot);
        self.remove(slot, StreamEnd::ByUs);
        was_reset
    }

    /// Removes a stream after [`Event::Reset`], when the server has stopped its work on it. Until then
    /// the stream counts against the client's limit (rule 19).
    pub fn forget(&mut self, stream: StreamId) {
        if let Some(slot) = self.streams.find(stream.0) {
            let end = match self.streams.at(slot).receiving {
                Receiving::ResetByPeer => StreamEnd::ByPeer,
                Receiving::ResetByUs => StreamEnd::ByUs,
                _ => return,
            };
            self.remove(slot, end);
        }
    }

    /// Returns credit for `bytes` of a stream's [`Event::Data`] that were processed, so that the peer
    /// may send as many more (rule 4). The caller releases every byte, also after the end of the stream.
    pub fn release(&mut self, stream: StreamId, bytes: usize, out: &mut Vec<u8>) {
        self.release_unread(bytes, out);
        if let Some(stream) = self.streams.get_mut(stream.0) {
            stream.held = stream.held.saturating_sub(bytes as u32);
            let mut target = self.flow.stream_target(stream.grown);
            if stream.keeps_up(target) {
                stream.grown = self.flow.grow_stream(stream.grown);
                target = self.flow.stream_target(stream.grown);
            }
            if let Some(increment) = stream.credit(target) {
                frame::write_window_update(stream.id, increment, out);
            }
        }
    }

    /// Returns credit to the connection alone: the peer may send no more on the stream.
    pub fn release_unread(&mut self, bytes: usize, out: &mut Vec<u8>) {
        self.flow.release(bytes);
        self.announce_credit(out);
    }

    /// Whether received content that was not released has used up the connection's window.
    #[inline]
    #[must_use]
    pub fn is_window_used_up(&self) -> bool {
        self.flow.is_used_up()
    }

    /// Announces credit for a stream whose reader waits, if content of others has used up the window of
    /// the connection (rule 14).
    #[cold]
    pub fn credit_reader(&mut self, out: &mut Vec<u8>) {
        if let Some(increment) = self.flow.credit_for_reader() {
            frame::write_window_update(0, increment, out);
        }
    }

    /// Closes the connection with this code, for a reason other than a received frame: appends GOAWAY;
    /// further input is discarded.
    pub fn close_with(&mut self, code: Code, out: &mut Vec<u8>) {
        self.closing = Closing::Final;
        self.input.close();
        frame::write_go_away(self.last_accepted, code, out);
    }

    /// Whether the peer has acknowledged this end's SETTINGS (RFC 9113, section 6.5.3).
    #[must_use]
    pub fn settings_acknowledged(&self) -> bool {
        self.own_acknowledged
    }

    /// Whether no stream is open.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.streams.len() == 0
    }

    /// Number of open streams, including streams that were reset and not yet forgotten.
    #[must_use]
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// The open streams, in no particular order.
    pub fn streams(&self) -> impl Iterator<Item = StreamId> {
        self.streams.iter().map(|stream| StreamId(stream.id))
    }

    /// Whether the shutdown is complete: one end has sent GOAWAY, no new stream will be accepted, and
    /// no stream is open.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.is_idle() && (self.closing == Closing::Final || self.peer_last.is_some())
    }

    /// Whether a frame or header section has begun and is not complete; partial DATA does not count.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.input.is_partial()
    }

    /// Bytes of memory that hold the received part of a frame and of a header section.
    #[must_use]
    pub fn partial_memory(&self) -> usize {
        self.input.memory()
    }

    /// Number of requests that a client may send now: as many as the server allows (RFC 9113, section
    /// 5.1.2), and 0 after either end has begun a shutdown.
    #[must_use]
    pub fn requests_available(&self) -> usize {
        if self.is_server() || self.is_closing() {
            return 0;
        }
        (self.peer.concurrent_streams_max as usize).saturating_sub(self.streams.len())
    }

    /// Whether a client may send no more requests: either end has begun a shutdown, or all numbers of streams
    /// are used.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        let has_begun = self.closing != Closing::No || self.peer_last.is_some();
        has_begun || self.next_own > frame::ID_MASK
    }

    /// Whether the peer's first SETTINGS were received; its limits are guesses until then.
    #[must_use]
    pub fn settings_received(&self) -> bool {
        self.settings_received
    }

    /// Whether the server allows extended CONNECT (RFC 8441). False before its first SETTINGS.
    #[must_use]
    pub fn allows_extended_connect(&self) -> bool {
        self.peer.connect_protocol
    }

    /// Whether a server accepts a request head of this size (RFC 9113, section 6.5.2). Some servers
    /// close the connection after a larger one, and with it the streams of others.
    #[inline]
    #[must_use]
    pub fn accepts_head(&self, head: &RequestHead) -> bool {
        let max = self.peer.header_list_size_max;
        match self.role {
            Role::Client(scheme) if max < u32::MAX => request_fits(head, scheme, max as usize),
            _ => true,
        }
    }

    /// Open streams whose requests may have caused the connection error that the peer's GOAWAY reports:
    /// the last one that the peer has processed and the first one that it has not, if they have no
    /// response.
    #[must_use]
    pub fn suspects(&self) -> [Option<StreamId>; 2] {
        let last = self.peer_last.unwrap_or(frame::ID_MASK);
        let waiting = || {
            self.streams
                .iter()
                .filter(|stream| stream.receiving == Receiving::Head)
                .map(|stream| stream.id)
        };
        [
            waiting().filter(|&id| id <= last).max().map(StreamId),
            waiting().filter(|&id| id > last).min().map(StreamId),
        ]
    }

    /// Whether the client waits for `100 Continue` before it sends the content.
    #[must_use]
    pub fn expects_continue(&self, stream: StreamId) -> bool {
        self.streams
            .get(stream.0)
            .is_some_and(|stream| stream.expects_continue)
    }

    /// Whether content may be sent on the stream: the head was sent, and the stream has not ended.
    #[must_use]
    pub fn sends_body(&self, stream: StreamId) -> bool {
        self.streams
            .get(stream.0)
            .is_some_and(|stream| stream.sending == Sending::Body)
    }

    /// Whether the peer's message was received completely, or the stream has ended otherwise.
    #[must_use]
    pub fn receive_done(&self, stream: StreamId) -> bool {
        let is_open = |receiving| matches!(receiving, Receiving::Head | Receiving::Body);
        !self
            .streams
            .get(stream.0)
            .is_some_and(|stream| is_open(stream.receiving))
    }

    /// Whether a server has sent, or a client received, the final response head. True if the stream has
    /// ended.
    #[must_use]
    pub fn response_started(&self, stream: StreamId) -> bool {
        self.streams
            .get(stream.0)
            .is_none_or(|stream| match self.role {
                Role::Server => stream.sending != Sending::Head,
                Role::Client(_) => stream.receiving != Receiving::Head,
            })
    }

    /// Bytes of content that may be sent on the stream now.
    #[must_use]
    pub fn send_window(&self, stream: StreamId) -> usize {
        let stream = self
            .streams
            .get(stream.0)
            .map_or(0, |stream| stream.send_window);
        stream.min(self.flow.send_window).max(0) as usize
    }

    /// While the connection's window permits no content: all bytes of credit that the peer has announced for
    /// it. The number changes when there was credit meanwhile.
    #[inline]
    #[must_use]
    pub fn awaits_credit(&self) -> Option<u64> {
        self.flow.awaits_credit()
    }

    /// Bytes that were received and not released, on all streams.
    #[must_use]
    pub fn held(&self) -> usize {
        self.flow.held() as usize
    }

    /// Bytes of memory that the connection occupies.
    #[must_use]
    pub fn memory(&self) -> usize {
        size_of::<Connection>()
            + self.input.memory()
            + self.decoder.memory()
            + self.encoder.memory()
            + self.last_sent.memory()
            + self.repeated_request.memory()
            + self.repeated_response.memory()
            + self.streams.memory()
            + self.schedule.memory()
            + self.early_priorities.capacity() * size_of::<(u32, Priority)>()
    }

    #[inline]
    fn is_server(&self) -> bool {
        self.role == Role::Server
    }

    /// Overrides the client's priority with the response's (RFC 9218, section 8). The override applies
    /// to this response only, also if it comes from a gateway's upstream.
    #[cold]
    fn prioritize(&mut self, slot: Slot, fields: &Fields) {
        if let Some(value) = fields.get(Name::Priority).filter(|_| self.prioritizes) {
            let stream = self.streams.at(slot);
            stream.priority_override = PriorityOverride::parse(value);
            stream.priority = stream.priority_override.over(stream.priority);
        }
    }

    fn side(&self) -> Side {
        if self.is_server() {
            Side::Request
        } else {
            Side::Response
        }
    }

    #[inline]
    fn announce_credit(&mut self, out: &mut Vec<u8>) {
        if let Some(increment) = self.flow.credit() {
            frame::write_window_update(0, increment, out);
        }
    }

    /// The state of a new stream.
    #[inline]
    fn new_stream(&self, id: u32, receiving: Receiving, sending: Sending) -> Stream {
        // Until this end's SETTINGS are acknowledged, the peer may use the default.
        let window = match self.own_acknowledged {
            true => self.own.window,
            false => self.own.window.max(WINDOW_DEFAULT),
        };
        Stream {
            id,
            receiving,
            sending,
            priority: Priority::UNSTATED,
            priority_override: PriorityOverride::default(),
            request: RequestKind::Other,
            expects_continue: false,
            is_blocked: false,
            informational: InformationalRate::default(),
            receive_window: window as i32,
            held: 0,
            grown: 0,
            send_window: self.peer.window as i32,
            receive_left: ContentLeft::UNDECLARED,
            send_left: ContentLeft::UNDECLARED,
        }
    }

    #[inline]
    fn remove(&mut self, slot: Slot, end: StreamEnd) {
        if !self.schedule.is_empty() {
            let id = self.streams.at(slot).id;
            self.schedule.remove(id);
        }
        let grown = self.streams.at(slot).grown;
        self.flow.forget_growth(grown);
        self.streams.remove(slot, end);
    }

    #[inline]
    fn remove_if_closed(&mut self, slot: Slot) {
        if self.streams.at(slot).is_closed() {
            self.remove(slot, StreamEnd::ByPeer);
        }
    }

    /// Resets a stream on which the peer violated a rule. It counts like a reset by the peer: otherwise
    /// a peer could avoid the limit of resets by violating rules (rule 19).
    #[cold]
    fn stream_error(
        &mut self,
        id: u32,
        kind: ErrorKind,
        now: Duration,
        out: &mut Vec<u8>,
    ) -> Result<Event, ErrorKind> {
        let code = Code::of(kind);
        frame::write_reset(id, code, out);
        let slot = self.streams.find(id);
        let is_early = slot.is_none_or(|slot| self.streams.at(slot).sending == Sending::Head);
        match slot {
            Some(slot) => self.end_stream(slot, Receiving::ResetByUs),
            None => self.streams.note_closed(id, StreamEnd::ByUs),
        }
        if self.is_server() {
            self.floods.stream_reset(is_early, now)?;
        }
        Ok(Event::Reset {
            stream: StreamId(id),
            error: Error::new(kind, self.side()),
            code,
        })
    }

    /// Ends a reset stream: a server keeps it until [`forget`](Connection::forget), a client removes it.
    fn end_stream(&mut self, slot: Slot, receiving: Receiving) {
        if !self.is_server() {
            let end = if receiving == Receiving::ResetByPeer {
                StreamEnd::ByPeer
            } else {
                self.expect_late_content(slot);
                StreamEnd::ByUs
            };
            return self.remove(slot, end);
        }
        let stream = self.streams.at(slot);
        stream.receiving = receiving;
        stream.sending = Sending::Done;
        let id = stream.id;
        self.schedule.remove(id);
    }

    /// Closes the connection because the peer violated a rule.
    #[cold]
    fn connection_error(&mut self, kind: ErrorKind, out: &mut Vec<u8>) -> Error {
        self.close_with(Code::of(kind), out);
        Error::new(kind, self.side())
    }
}
