//! A client and a server of HTTP/3, whose streams are delivered in pieces and in any order. Each end accepts and
//! understands the other's messages, with resets, refusals and a drain between. Then the client's streams are mutated:
//! the server does not panic, holds little memory, and sends nothing that an honest client does not accept.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use arbitrary::Arbitrary;
use blitz_proto::h3::{Code, Connection, Event, Received, StreamId};
use blitz_proto::{
    BodyLength, Error, ErrorKind, Fields, Limits, Method, RequestHead, ResponseHead, Status,
};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
enum Operation<'a> {
    Request {
        method: u8,
        length: Option<u8>,
    },
    /// A response, or an informational one.
    Respond {
        stream: u8,
        status: u16,
        length: Option<u8>,
    },
    Content {
        by: End,
        stream: u8,
        len: u8,
        is_last: bool,
    },
    Finish {
        by: End,
        stream: u8,
        has_trailers: bool,
    },
    /// Gives up a stream, in both directions.
    Cancel {
        by: End,
        stream: u8,
    },
    Drain {
        by: End,
        is_final: bool,
    },
    /// Delivers bytes of a stream.
    Deliver {
        by: End,
        stream: u8,
        len: u16,
    },
    /// Delivers the oldest reset or request to stop.
    Signal,
    Wait(u16),
    /// The client's encoder sends bytes.
    Instructions(&'a [u8]),
    /// Bytes replace some of the client's that were not delivered.
    Mutate {
        stream: u8,
        at: u16,
        removed: u8,
        bytes: &'a [u8],
    },
    /// The client sends a frame.
    Frame {
        stream: u8,
        kind: u8,
        payload: &'a [u8],
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Arbitrary)]
enum End {
    Client,
    Server,
}

impl End {
    fn other(self) -> End {
        match self {
            End::Client => End::Server,
            End::Server => End::Client,
        }
    }
}

/// With fewer requests, the floods of resets and of short frames cannot be reached.
const REQUESTS_MAX: u64 = 50;
const OPERATIONS_MAX: usize = 2_000;
const MEMORY_MAX: usize = 2 << 20;

/// Streams of the connection itself.
const CLIENT_CONTROL: u64 = 2;
const CLIENT_ENCODER: u64 = 6;
const CLIENT_DECODER: u64 = 10;
const SERVER_CONTROL: u64 = 3;
const SERVER_DECODER: u64 = 7;
/// RFC 9204, section 4.2.
const ENCODER_TYPE: u8 = 2;

fuzz_target!(|operations: Vec<Operation<'_>>| {
    let mut pair = Pair::new();
    for operation in operations.iter().take(OPERATIONS_MAX) {
        pair.apply(operation);
        pair.check();
    }
    pair.finish();
});

/// A message, as its sender or its receiver knows it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Message {
    informational: u32,
    /// The status of a response; 0 for a request.
    head: Option<u16>,
    content: u64,
    has_trailers: bool,
    has_ended: bool,
}

/// Bytes that one end has sent on a stream and that are not delivered.
#[derive(Default)]
struct Outgoing {
    bytes: Vec<u8>,
    has_fin: bool,
    /// It was reset, or its end was delivered.
    is_over: bool,
}

struct Peer {
    machine: Connection,
    received: Received,
    /// Input that was not consumed, and whether it has ended.
    input: BTreeMap<u64, (Vec<u8>, bool)>,
    outgoing: BTreeMap<u64, Outgoing>,
    sent: BTreeMap<u64, Message>,
    understood: BTreeMap<u64, Message>,
    has_failed: bool,
}

impl Peer {
    fn new(machine: Connection) -> Peer {
        Peer {
            machine,
            received: Received::default(),
            input: BTreeMap::new(),
            outgoing: BTreeMap::new(),
            sent: BTreeMap::new(),
            understood: BTreeMap::new(),
            has_failed: false,
        }
    }
}

enum Signal {
    Reset,
    Stop,
}

struct Pair {
    client: Peer,
    server: Peer,
    /// Resets and requests to stop on their way: to which end, the stream and the code.
    signals: Vec<(End, u64, Signal, Code)>,
    /// Streams that one end has given up.
    given_up: BTreeSet<u64>,
    requests: u64,
    now: Duration,
    /// No stream was mutated.
    is_honest: bool,
}

impl Pair {
    fn new() -> Pair {
        let limits = Limits::default();
        Pair {
            client: Peer::new(Connection::client(&limits)),
            server: Peer::new(Connection::server(&limits)),
            signals: Vec::new(),
            given_up: BTreeSet::new(),
            requests: 0,
            now: Duration::ZERO,
            is_honest: true,
        }
    }

    fn peer(&mut self, end: End) -> &mut Peer {
        match end {
            End::Client => &mut self.client,
            End::Server => &mut self.server,
        }
    }

    /// A stream of a request.
    fn stream(&self, number: u8) -> Option<u64> {
        Some(u64::from(number).checked_rem(self.requests)? * 4)
    }

    fn apply(&mut self, operation: &Operation<'_>) {
        match *operation {
            Operation::Request { method, length } => self.request(method, length),
            Operation::Respond {
                stream,
                status,
                length,
            } => {
                if let Some(stream) = self.stream(stream) {
                    self.respond(stream, status, length);
                }
            }
            Operation::Content {
                by,
                stream,
                len,
                is_last,
            } => {
                if let Some(stream) = self.stream(stream) {
                    self.content(by, stream, usize::from(len), is_last);
                }
            }
            Operation::Finish {
                by,
                stream,
                has_trailers,
            } => {
                if let Some(stream) = self.stream(stream) {
                    self.end(by, stream, has_trailers);
                }
            }
            Operation::Cancel { by, stream } => {
                if let Some(stream) = self.stream(stream) {
                    self.give_up(by, stream, Code::REQUEST_CANCELLED);
                }
            }
            Operation::Drain { by, is_final } => match is_final {
                true => self.peer(by).machine.drain_now(),
                false => self.peer(by).machine.drain(),
            },
            Operation::Deliver { by, stream, len } => {
                let outgoing = &self.peer(by).outgoing;
                let at = usize::from(stream).checked_rem(outgoing.len());
                if let Some(stream) = at.and_then(|at| outgoing.keys().nth(at).copied()) {
                    self.deliver(by, stream, usize::from(len));
                }
            }
            Operation::Signal => self.signal(),
            Operation::Wait(ms) => self.now += Duration::from_millis(ms.into()),
            Operation::Instructions(bytes) => self.instruct(bytes),
            Operation::Mutate {
                stream,
                at,
                removed,
                bytes,
            } => self.mutate(stream, at.into(), removed.into(), bytes),
            Operation::Frame {
                stream,
                kind,
                payload,
            } => {
                if let Some(stream) = self.stream(stream) {
                    self.frame(stream, kind, payload);
                }
            }
        }
        self.take_output();
    }

    fn request(&mut self, method: u8, length: Option<u8>) {
        if self.requests == REQUESTS_MAX || !self.client.machine.may_request() {
            return;
        }
        let method = [Method::Get, Method::Post, Method::Head, Method::Connect]
            [usize::from(method % 4)]
        .clone();
        let (target, authority) = match method {
            Method::Connect => ("a:443", "a:443"),
            _ => ("/path?query", "a"),
        };
        let mut head = RequestHead::new(method, target);
        head.set_authority(authority);
        let stream = self.requests * 4;
        self.requests += 1;
        let peer = &mut self.client;
        let outgoing = peer.outgoing.entry(stream).or_default();
        let (id, length) = (StreamId::new(stream), body_length(length));
        let has_ended = peer
            .machine
            .send_request(id, &head, length, &mut outgoing.bytes);
        outgoing.has_fin = has_ended;
        let message = Message {
            head: Some(0),
            has_ended,
            ..Message::default()
        };
        peer.sent.insert(stream, message);
    }

    fn respond(&mut self, stream: u64, status: u16, length: Option<u8>) {
        let id = StreamId::new(stream);
        let peer = &mut self.server;
        let is_asked = peer
            .understood
            .get(&stream)
            .is_some_and(|it| it.head.is_some());
        if !is_asked || peer.machine.response_started(id) {
            return;
        }
        let outgoing = peer.outgoing.entry(stream).or_default();
        let message = peer.sent.entry(stream).or_default();
        match status % 500 + 100 {
            // A client accepts only a few.
            ..200 if message.informational < 3 => {
                let head = ResponseHead::new(Status::CONTINUE);
                peer.machine
                    .send_informational(id, &head, &mut outgoing.bytes);
                message.informational += 1;
            }
            status => {
                let status = Status::new(status.max(200)).expect("three digits");
                let head = ResponseHead::new(status);
                let bytes = &mut outgoing.bytes;
                let has_ended = peer
                    .machine
                    .send_head(id, &head, body_length(length), bytes);
                outgoing.has_fin = has_ended;
                message.head = Some(status.code());
                message.has_ended = has_ended;
            }
        }
    }

    fn content(&mut self, by: End, stream: u64, len: usize, is_last: bool) {
        let peer = self.peer(by);
        let id = StreamId::new(stream);
        if len == 0 || !peer.machine.sends_body(id) {
            return;
        }
        let outgoing = peer.outgoing.entry(stream).or_default();
        let Ok(has_ended) = peer
            .machine
            .send_data(id, len, is_last, &mut outgoing.bytes)
        else {
            return;
        };
        let message = peer.sent.entry(stream).or_default();
        outgoing
            .bytes
            .extend((message.content..).take(len).map(|at| byte(stream, at)));
        outgoing.has_fin = has_ended;
        message.content += len as u64;
        message.has_ended = has_ended;
    }

    fn end(&mut self, by: End, stream: u64, has_trailers: bool) {
        let peer = self.peer(by);
        let id = StreamId::new(stream);
        let mut trailers = Fields::new();
        if has_trailers {
            trailers.append("x-trailer", "1");
        }
        let outgoing = peer.outgoing.entry(stream).or_default();
        let before = outgoing.bytes.len();
        if let Ok(true) = peer
            .machine
            .send_end(id, Some(&trailers), &mut outgoing.bytes)
        {
            outgoing.has_fin = true;
            let message = peer.sent.entry(stream).or_default();
            message.has_trailers = outgoing.bytes.len() > before;
            message.has_ended = true;
        }
    }

    /// Stops the work for a stream: what is not complete is reset, and the peer's direction is stopped.
    fn give_up(&mut self, by: End, stream: u64, code: Code) {
        self.given_up.insert(stream);
        let peer = self.peer(by);
        peer.machine.forget(StreamId::new(stream));
        self.reset(by, stream, code);
        self.signals.push((by.other(), stream, Signal::Stop, code));
    }

    fn reset(&mut self, by: End, stream: u64, code: Code) {
        let outgoing = self.peer(by).outgoing.entry(stream).or_default();
        let is_complete = outgoing.is_over || outgoing.has_fin;
        if !is_complete {
            outgoing.is_over = true;
            outgoing.bytes.clear();
            self.signals.push((by.other(), stream, Signal::Reset, code));
        }
    }

    fn signal(&mut self) {
        if self.signals.is_empty() {
            return;
        }
        let (to, stream, signal, code) = self.signals.remove(0);
        let now = self.now;
        let peer = self.peer(to);
        let id = StreamId::new(stream);
        if peer.has_failed {
            return;
        }
        let event = match signal {
            Signal::Reset => {
                let (_, has_ended) = peer.input.entry(stream).or_default();
                *has_ended = true;
                peer.machine.handle_reset(id, code, now)
            }
            Signal::Stop => {
                let event = peer.machine.handle_stopped(id, code, now);
                // QUIC resets a stream that is stopped (RFC 9000, section 3.5).
                self.reset(to, stream, code);
                event
            }
        };
        match event {
            Ok(Some(event)) => self.note(to, stream, &event, &[]),
            Ok(None) => {}
            Err(error) => self.fail(to, &error),
        }
    }

    fn instruct(&mut self, bytes: &[u8]) {
        self.is_honest = false;
        let outgoing = self.client.outgoing.entry(CLIENT_ENCODER).or_default();
        if outgoing.bytes.is_empty() && !self.server.input.contains_key(&CLIENT_ENCODER) {
            outgoing.bytes.push(ENCODER_TYPE);
        }
        outgoing.bytes.extend_from_slice(bytes);
    }

    fn frame(&mut self, stream: u64, kind: u8, payload: &[u8]) {
        self.is_honest = false;
        // Integers of one byte and of two (RFC 9000, section 16).
        let len = payload.len().min(0x3fff) as u16;
        let outgoing = self.client.outgoing.entry(stream).or_default();
        outgoing.bytes.push(kind % 0x40);
        outgoing.bytes.extend((len | 0x4000).to_be_bytes());
        outgoing.bytes.extend(&payload[..len.into()]);
    }

    fn mutate(&mut self, stream: u8, at: usize, removed: usize, bytes: &[u8]) {
        let streams = self.client.outgoing.iter_mut();
        let mut waiting: Vec<_> = streams
            .filter(|(_, outgoing)| !outgoing.bytes.is_empty())
            .collect();
        let Some(number) = usize::from(stream).checked_rem(waiting.len()) else {
            return;
        };
        let outgoing = &mut waiting[number].1.bytes;
        let at = at % outgoing.len();
        let end = outgoing.len().min(at + removed);
        outgoing.splice(at..end, bytes.iter().copied());
        self.is_honest = false;
    }

    /// Moves what the machines send on their own streams.
    fn take_output(&mut self) {
        let client = (&mut self.client, CLIENT_CONTROL, CLIENT_DECODER);
        let server = (&mut self.server, SERVER_CONTROL, SERVER_DECODER);
        for (peer, control, decoder) in [client, server] {
            let bytes = std::mem::take(peer.machine.control_output());
            peer.outgoing
                .entry(control)
                .or_default()
                .bytes
                .extend(bytes);
            let bytes = std::mem::take(peer.machine.decoder_output());
            peer.outgoing
                .entry(decoder)
                .or_default()
                .bytes
                .extend(bytes);
        }
    }

    fn deliver(&mut self, by: End, stream: u64, len: usize) {
        // The client has no dynamic table: what its mutated instructions cause is not for it.
        let is_foreign = !self.is_honest && stream == SERVER_DECODER;
        let outgoing = self.peer(by).outgoing.entry(stream).or_default();
        if outgoing.is_over {
            return;
        }
        let len = len.min(outgoing.bytes.len());
        let bytes: Vec<u8> = outgoing.bytes.drain(..len).collect();
        let has_fin = outgoing.has_fin && outgoing.bytes.is_empty();
        outgoing.is_over = has_fin;
        if !is_foreign && (has_fin || !bytes.is_empty()) {
            self.present(by.other(), stream, &bytes, has_fin);
        }
    }

    fn present(&mut self, to: End, stream: u64, bytes: &[u8], has_fin: bool) {
        let id = StreamId::new(stream);
        let peer = self.peer(to);
        if peer.has_failed {
            return;
        }
        let is_new = !peer.input.contains_key(&stream);
        let (input, has_ended) = peer.input.entry(stream).or_default();
        if *has_ended {
            return;
        }
        input.extend_from_slice(bytes);
        *has_ended = has_fin;
        let is_peers = to == End::Server || !id.is_request();
        if is_new
            && is_peers
            && let Err(code) = peer.machine.handle_opened(id)
        {
            self.give_up(to, stream, code);
            return;
        }
        self.run(to, stream);
        while let Some(unblocked) = self.peer(to).machine.next_unblocked() {
            self.run(to, unblocked.get());
        }
    }

    fn run(&mut self, to: End, stream: u64) {
        let id = StreamId::new(stream);
        loop {
            let now = self.now;
            let peer = self.peer(to);
            let Some((input, has_fin)) = peer.input.get_mut(&stream).filter(|_| !peer.has_failed)
            else {
                return;
            };
            let step = peer
                .machine
                .handle_input(id, input, *has_fin, now, &mut peer.received);
            let step = match step {
                Ok(step) => step,
                Err(error) => return self.fail(to, &error),
            };
            let consumed: Vec<u8> = input.drain(..step.consumed).collect();
            match step.event {
                Event::NeedMore => {
                    assert!(input.is_empty(), "NeedMore with input left");
                    return;
                }
                Event::Blocked => {
                    assert!(!self.is_honest, "the encoder makes nothing wait");
                    return;
                }
                event => self.note(to, stream, &event, &consumed),
            }
        }
    }

    fn note(&mut self, to: End, stream: u64, event: &Event, consumed: &[u8]) {
        let is_honest = self.is_honest;
        let peer = self.peer(to);
        let status = match to {
            End::Client => peer.received.response.status.code(),
            End::Server => 0,
        };
        let message = peer.understood.entry(stream).or_default();
        match event {
            Event::Head { end, .. } => match status {
                100..200 => message.informational += 1,
                _ => {
                    assert!(message.head.is_none(), "a second head");
                    message.head = Some(status);
                    message.has_ended = *end;
                }
            },
            Event::Data { range, end } => {
                assert!(message.head.is_some() && !message.has_ended);
                for got in &consumed[range.clone()] {
                    let is_right = *got == byte(stream, message.content);
                    assert!(is_right || !is_honest, "content has changed");
                    message.content += 1;
                }
                message.has_ended = *end;
            }
            Event::Trailers => {
                message.has_trailers = true;
                message.has_ended = true;
            }
            Event::Refused { error } => {
                assert!(!is_honest, "{error:?}");
                message.head = Some(0);
            }
            Event::Reset { error, code } => {
                let is_peers =
                    matches!(error.kind(), ErrorKind::PeerReset | ErrorKind::PeerRefused);
                assert!(is_peers || !is_honest, "{error:?}");
                self.give_up(to, stream, *code);
            }
            Event::Unwanted { .. } => assert!(!is_honest),
            Event::NeedMore
            | Event::Blocked
            | Event::GoAway { .. }
            | Event::Reprioritized { .. } => {}
        }
    }

    fn fail(&mut self, end: End, error: &Error) {
        let code = Code::of(error.kind());
        assert!(!self.is_honest, "{end:?} closes with {code}: {error:?}");
        // The client has read only what the server has sent.
        assert!(
            end == End::Server,
            "the client closes with {code}: {error:?}"
        );
        assert!(!self.server.has_failed, "a second failure");
        self.server.has_failed = true;
    }

    fn check(&self) {
        for peer in [&self.client, &self.server] {
            assert!(peer.machine.memory() < MEMORY_MAX);
        }
    }

    fn deliver_all(&mut self) {
        loop {
            self.take_output();
            let waiting = |by: End, peer: &Peer| {
                let is_waiting = |outgoing: &Outgoing| {
                    !outgoing.is_over && (outgoing.has_fin || !outgoing.bytes.is_empty())
                };
                let found = peer
                    .outgoing
                    .iter()
                    .find(|(_, outgoing)| is_waiting(outgoing));
                found.map(|(stream, _)| (by, *stream))
            };
            let next =
                waiting(End::Client, &self.client).or_else(|| waiting(End::Server, &self.server));
            match next {
                Some((by, stream)) => self.deliver(by, stream, usize::MAX),
                None if self.signals.is_empty() => return,
                None => self.signal(),
            }
        }
    }

    /// Delivers everything, and gives up what is not complete: then every message that was not given up was
    /// understood as it was sent, and nothing is left.
    fn finish(&mut self) {
        self.deliver_all();
        self.check();
        if !self.is_honest {
            return;
        }
        for (from, to) in [(&self.client, &self.server), (&self.server, &self.client)] {
            for (stream, sent) in &from.sent {
                if !self.given_up.contains(stream) {
                    assert_eq!(to.understood.get(stream), Some(sent), "stream {stream}");
                }
            }
        }
        for stream in (0..self.requests).map(|number| number * 4) {
            let is_complete =
                |peer: &Peer| peer.sent.get(&stream).is_some_and(|sent| sent.has_ended);
            if !is_complete(&self.client) || !is_complete(&self.server) {
                self.give_up(End::Client, stream, Code::REQUEST_CANCELLED);
            }
        }
        self.deliver_all();
        assert_eq!(self.client.machine.stream_count(), 0);
        assert_eq!(self.server.machine.stream_count(), 0);
    }
}

fn body_length(length: Option<u8>) -> BodyLength {
    length.map_or(BodyLength::Unknown, |length| {
        BodyLength::Known(length.into())
    })
}

/// The byte of a stream's content at this place.
fn byte(stream: u64, at: u64) -> u8 {
    (stream * 7 + at) as u8
}
