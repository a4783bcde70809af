//! Streams of HTTP/3 as bytes, and what a machine makes of them, as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use blitz_proto::h3::qpack::Encoder;
use blitz_proto::h3::{Code, Connection, Event, Received, StreamId};
use blitz_proto::{BodyLength, Limits, Method, RequestHead};

pub(crate) use blitz_testing::h3::kind::{DATA, GOAWAY, HEADERS, SETTINGS};
pub(crate) use blitz_testing::h3::{frame, integer};

/// The client's first request, and its streams in one direction.
pub(crate) const REQUEST: u64 = 0;
pub(crate) const CLIENT_CONTROL: u64 = 2;
pub(crate) const CLIENT_ENCODER: u64 = 6;
pub(crate) const CLIENT_DECODER: u64 = 10;
pub(crate) const SERVER_CONTROL: u64 = 3;
pub(crate) const SERVER_ENCODER: u64 = 7;

pub(crate) fn data(content: &str) -> Vec<u8> {
    frame(DATA, content.as_bytes())
}

/// A section with a line `name: value` for each field.
pub(crate) fn section(lines: &str) -> Vec<u8> {
    let (mut encoder, mut section) = (Encoder::default(), Vec::new());
    encoder.begin(&mut section);
    for line in lines.lines().filter(|line| !line.is_empty()) {
        let (name, value) = line[1..].split_once(": ").expect("a field");
        let name = format!("{}{name}", &line[..1]);
        encoder.encode(name.as_bytes(), value.as_bytes(), false, &mut section);
    }
    section
}

pub(crate) fn headers(lines: &str) -> Vec<u8> {
    frame(HEADERS, section(lines))
}

pub(crate) const GET: &str = ":method: GET\n:scheme: https\n:authority: a\n:path: /";
pub(crate) const POST: &str = ":method: POST\n:scheme: https\n:authority: a\n:path: /up";

/// Instructions that insert `x-name: value`, behind the type of the stream.
pub(crate) fn insertion() -> Vec<u8> {
    let mut bytes = vec![2, 0x3f, 0xe1, 0x1f, 0x46];
    bytes.extend_from_slice(b"x-name\x05value");
    bytes
}

/// A control stream up to the end of SETTINGS.
pub(crate) fn control() -> Vec<u8> {
    [integer(0), frame(SETTINGS, [])].concat()
}

/// Something that arrives.
pub(crate) enum Arrival {
    /// Bytes of a stream, and whether it ends.
    Bytes(u64, Vec<u8>, bool),
    Reset(u64, u64),
    Stopped(u64, u64),
}

pub(crate) fn more(stream: u64, bytes: Vec<u8>) -> Arrival {
    Arrival::Bytes(stream, bytes, false)
}

pub(crate) fn last(stream: u64, bytes: Vec<u8>) -> Arrival {
    Arrival::Bytes(stream, bytes, true)
}

/// A machine, and what it has said.
pub(crate) struct End {
    pub(crate) machine: Connection,
    is_server: bool,
    pub(crate) log: String,
    pub(crate) received: Received,
    /// Input of each stream that was not consumed, and whether the stream has ended.
    input: BTreeMap<u64, (Vec<u8>, bool)>,
    pub(crate) failure: Option<Code>,
    pub(crate) now: Duration,
    /// The bytes that are presented at a time.
    pub(crate) piece: usize,
}

impl End {
    pub(crate) fn server(limits: &Limits) -> End {
        End::new(Connection::server(limits), true)
    }

    pub(crate) fn client(limits: &Limits) -> End {
        End::new(Connection::client(limits), false)
    }

    fn new(machine: Connection, is_server: bool) -> End {
        End {
            machine,
            is_server,
            log: String::new(),
            received: Received::default(),
            input: BTreeMap::new(),
            failure: None,
            now: Duration::from_secs(1_000),
            piece: usize::MAX,
        }
    }

    /// Sends a request without content, as a client.
    pub(crate) fn request(&mut self, stream: u64) {
        let mut head = RequestHead::new(Method::Get, "/");
        head.set_authority("a");
        let (stream, mut out) = (StreamId::new(stream), Vec::new());
        let has_ended = self
            .machine
            .send_request(stream, &head, BodyLength::Empty, &mut out);
        assert!(has_ended);
    }

    pub(crate) fn say(&mut self, text: &str) {
        if !self.log.is_empty() {
            self.log.push_str(" | ");
        }
        self.log.push_str(text);
    }

    pub(crate) fn arrive(&mut self, arrival: &Arrival) {
        if self.failure.is_some() {
            return;
        }
        match arrival {
            Arrival::Bytes(stream, bytes, has_fin) => {
                let pieces: Vec<&[u8]> = match bytes.is_empty() {
                    true => vec![&[]],
                    false => bytes.chunks(self.piece).collect(),
                };
                let count = pieces.len();
                for (at, piece) in pieces.into_iter().enumerate() {
                    self.present(*stream, piece, *has_fin && at + 1 == count);
                }
            }
            Arrival::Reset(stream, code) => {
                let stream = StreamId::new(*stream);
                let event = self.machine.handle_reset(stream, Code(*code), self.now);
                self.note_ended(stream, event);
            }
            Arrival::Stopped(stream, code) => {
                let stream = StreamId::new(*stream);
                let event = self.machine.handle_stopped(stream, Code(*code), self.now);
                self.note_ended(stream, event);
            }
        }
    }

    fn note_ended(&mut self, stream: StreamId, event: Result<Option<Event>, blitz_proto::Error>) {
        match event {
            Ok(Some(event)) => self.note(stream, &event, &[]),
            Ok(None) => {}
            Err(error) => self.fail(error),
        }
    }

    fn fail(&mut self, error: blitz_proto::Error) {
        let code = Code::of(error.kind());
        self.failure = Some(code);
        self.say(&format!("{} {code}", error.rule()));
    }

    fn present(&mut self, stream: u64, bytes: &[u8], has_fin: bool) {
        let id = StreamId::new(stream);
        if !self.input.contains_key(&stream) {
            // A client has opened its own streams itself.
            let is_peers = self.is_server || !id.is_request();
            if is_peers && let Err(code) = self.machine.handle_opened(id) {
                self.say(&format!("{stream} refused {code}"));
            }
            self.input.insert(stream, (Vec::new(), false));
        }
        let (input, ended) = self.input.get_mut(&stream).expect("it was inserted");
        input.extend_from_slice(bytes);
        *ended |= has_fin;
        self.run(stream);
        while let Some(unblocked) = self.machine.next_unblocked() {
            self.run(unblocked.get());
        }
    }

    fn run(&mut self, stream: u64) {
        let id = StreamId::new(stream);
        loop {
            if self.failure.is_some() {
                return;
            }
            let Some((input, has_fin)) = self.input.get(&stream).cloned() else {
                return;
            };
            let step = self
                .machine
                .handle_input(id, &input, has_fin, self.now, &mut self.received);
            let step = match step {
                Ok(step) => step,
                Err(error) => return self.fail(error),
            };
            if let Some((left, _)) = self.input.get_mut(&stream) {
                left.drain(..step.consumed);
            }
            match step.event {
                Event::NeedMore => {
                    let left = &self.input[&stream].0;
                    assert!(left.is_empty(), "NeedMore with {} bytes left", left.len());
                    return;
                }
                Event::Blocked => return,
                event => self.note(id, &event, &input),
            }
        }
    }

    fn note(&mut self, stream: StreamId, event: &Event, input: &[u8]) {
        let mut text = format!("{stream} ");
        match event {
            Event::NeedMore | Event::Blocked => return,
            Event::Head { length, end } => {
                match self.is_server {
                    true => {
                        let head = &self.received.request;
                        let target = head.path_and_query();
                        let _ = write!(text, "{} {target} {length:?}", head.method_str());
                    }
                    false => {
                        let status = self.received.response.status.code();
                        let _ = write!(text, "{status} {length:?}");
                    }
                }
                if *end {
                    text.push_str(" end");
                }
            }
            Event::Data { range, end } => {
                let content = String::from_utf8_lossy(&input[range.clone()]);
                let _ = write!(text, "\"{content}\"{}", if *end { " end" } else { "" });
            }
            Event::Trailers => {
                let count = self.received.trailers.len();
                let _ = write!(text, "{count} trailers");
            }
            Event::Refused { error } => {
                let _ = write!(text, "refused {}", error.status().code());
            }
            Event::Reset { error, code } => {
                let _ = write!(text, "reset {} {code}", error.rule());
            }
            Event::Unwanted { code } => {
                let _ = write!(text, "unwanted {code}");
            }
            Event::GoAway { from } => {
                let _ = write!(text, "goes away from {from}");
            }
            Event::Reprioritized { stream } => {
                let _ = write!(text, "reprioritized {stream}");
            }
        }
        // Content that comes in pieces is one piece.
        if matches!(event, Event::Data { .. })
            && let Some(before) = self.log.strip_suffix('"')
            && let Some(at) = before.rfind(&format!("{stream} \""))
            && !before[at..].contains(" | ")
        {
            let new = text.split_once('"').expect("it has content").1.to_owned();
            self.log.truncate(self.log.len() - 1);
            self.log.push_str(&new);
            return;
        }
        self.say(&text);
    }
}

/// The events and output of a server for these arrivals, which come whole and byte by byte.
pub(crate) fn server(arrivals: &[Arrival]) -> String {
    said(|| End::server(&Limits::default()), arrivals)
}

/// The events and output of a client that has sent a request on stream 0.
pub(crate) fn client(arrivals: &[Arrival]) -> String {
    let begin = || {
        let mut end = End::client(&Limits::default());
        end.request(REQUEST);
        end
    };
    said(begin, arrivals)
}

/// The events and output of a server for these arrivals as they are. In pieces it would report content
/// before a fault.
pub(crate) fn server_at_once(arrivals: &[Arrival]) -> String {
    let mut end = End::server(&Limits::default());
    arrivals.iter().for_each(|arrival| end.arrive(arrival));
    end.log
}

fn said(begin: impl Fn() -> End, arrivals: &[Arrival]) -> String {
    let mut end = begin();
    arrivals.iter().for_each(|arrival| end.arrive(arrival));
    for piece in [1, 2, 3, 7] {
        let mut in_pieces = begin();
        in_pieces.piece = piece;
        arrivals
            .iter()
            .for_each(|arrival| in_pieces.arrive(arrival));
        assert_eq!(in_pieces.log, end.log, "in pieces of {piece}");
    }
    end.log
}
