//! Hand-written frames, and the events of a server or a client that receives them, in one line.

use std::fmt::Write as _;
use std::time::Duration;

use blitz_proto::h2::{Code, Connection, Event, Received, StreamId};
use blitz_proto::{
    BodyLength, Error, Fields, Limits, Method, Name, RequestHead, ResponseHead, Status,
};
use blitz_testing::h2::{flag, literals};

pub(crate) use blitz_testing::h2::kind::{
    CONTINUATION, DATA, GOAWAY, HEADERS, PING, PRIORITY, PRIORITY_UPDATE, PUSH_PROMISE, RST_STREAM,
    SETTINGS, WINDOW_UPDATE,
};
pub(crate) use blitz_testing::h2::{PREFACE, frame};

/// END_STREAM, or ACK.
pub(crate) const END: u8 = flag::END_STREAM;
/// END_HEADERS
pub(crate) const EH: u8 = flag::END_HEADERS;
pub(crate) const PADDED: u8 = flag::PADDED;
pub(crate) const DEPENDS: u8 = flag::PRIORITY;

/// A request in which only the path may change.
pub(crate) const GET: &str = ":method: GET\n:scheme: https\n:authority: a\n:path: /";
pub(crate) const POST: &str = ":method: POST\n:scheme: https\n:authority: a\n:path: /";

/// A block of the fields in `name: value` lines, all as literals that no table holds.
pub(crate) fn block(fields: &str) -> Vec<u8> {
    let lines = fields.split('\n').filter(|line| !line.is_empty());
    literals(lines.map(|line| {
        let colon = line[1..].find(':').expect("a colon") + 1;
        let value = line[colon + 1..].strip_prefix(' ');
        (&line[..colon], value.unwrap_or(""))
    }))
}

pub(crate) fn headers(flags: u8, stream: u32, fields: &str) -> Vec<u8> {
    frame(HEADERS, flags, stream, block(fields))
}

/// Rows of `"section and case": [frames] => transcript;`.
macro_rules! rows {
    ($($section:literal: [$($frame:expr),*] => $expected:expr;)*) => {
        vec![$(($section, vec![$($frame),*].concat(), String::from($expected))),*]
    };
}
pub(crate) use rows;

/// Whether every row has its transcript.
pub(crate) fn check(rows: Vec<(&str, Vec<u8>, String)>, run: impl Fn(&[u8]) -> String) {
    let mut failures = String::new();
    for (section, frames, expected) in rows {
        let seen = run(&frames);
        if seen != expected {
            failures += &format!("\n{section}\n  expected {expected}\n  saw      {seen}");
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

/// The events of a server on a connection with a valid preface and SETTINGS.
pub(crate) fn server(frames: &[u8]) -> String {
    let mut raw = PREFACE.to_vec();
    raw.extend_from_slice(&frame(SETTINGS, 0, 0, []));
    raw.extend_from_slice(frames);
    server_raw(&raw)
}

/// The same for any bytes; panics if the events depend on how the bytes are cut.
pub(crate) fn server_raw(raw: &[u8]) -> String {
    in_all_pieces(raw, |pieces| Run::server().run(pieces))
}

/// The events of a client that has sent a complete request with this method on stream 1.
pub(crate) fn client(method: Method, frames: &[u8]) -> String {
    let mut raw = frame(SETTINGS, 0, 0, []);
    raw.extend_from_slice(frames);
    in_all_pieces(&raw, |pieces| Run::client(method).run(pieces))
}

fn in_all_pieces(raw: &[u8], run: impl Fn(&[&[u8]]) -> String) -> String {
    let whole = run(&[raw]);
    let step = 1 + raw.len() / 2_000;
    for cut in (1..raw.len()).step_by(step) {
        let (front, back) = raw.split_at(cut);
        assert_eq!(run(&[front, back]), whole, "cut at {cut}");
    }
    let bytes: Vec<&[u8]> = raw.chunks(1).collect();
    assert_eq!(run(&bytes), whole, "byte by byte");
    whole
}

struct Run {
    connection: Connection,
    received: Received,
    out: Vec<u8>,
    line: String,
    data: Vec<u8>,
    is_server: bool,
}

impl Run {
    fn server() -> Run {
        Run::new(Connection::server(&Limits::default()), true)
    }

    fn client(method: Method) -> Run {
        let mut run = Run::new(Connection::client(&Limits::default(), true), false);
        let target = if method == Method::Connect {
            "a:443"
        } else {
            "/"
        };
        let mut head = RequestHead::new(method, target);
        head.set_authority(if method == Method::Connect {
            "a:443"
        } else {
            "a"
        });
        run.connection
            .send_request(&head, BodyLength::Empty, &mut run.out)
            .expect("stream 1");
        run.out.clear();
        run
    }

    fn new(mut connection: Connection, is_server: bool) -> Run {
        let mut out = Vec::new();
        connection.start(&mut out);
        Run {
            connection,
            received: Received::default(),
            out: Vec::new(),
            line: String::new(),
            data: Vec::new(),
            is_server,
        }
    }

    fn run(mut self, pieces: &[&[u8]]) -> String {
        let mut pending = Vec::new();
        for piece in pieces {
            pending.extend_from_slice(piece);
            if let Err(error) = self.drain(&mut pending) {
                self.event(&format!("failed {}", error.rule()));
                break;
            }
        }
        self.event("");
        let sent = describe_output(&self.out);
        if sent.is_empty() {
            self.line
        } else {
            format!("{} => {sent}", self.line)
        }
    }

    fn drain(&mut self, pending: &mut Vec<u8>) -> Result<(), Error> {
        loop {
            let now = Duration::ZERO;
            let out = &mut self.out;
            let step = self
                .connection
                .handle_input(pending, now, &mut self.received, out)?;
            if let Event::Data { range, .. } = &step.event {
                self.data.extend_from_slice(&pending[range.clone()]);
            }
            pending.drain(..step.consumed);
            if step.event == Event::NeedMore {
                assert!(pending.is_empty(), "NeedMore with input left");
                return Ok(());
            }
            self.note(&step.event);
        }
    }

    fn note(&mut self, event: &Event) {
        match *event {
            Event::NeedMore => {}
            Event::Head {
                stream,
                length,
                end,
            } => {
                let mut text = format!("{stream} {}", self.describe_head());
                match length {
                    BodyLength::Empty => {}
                    BodyLength::Known(length) => text += &format!(" ={length}"),
                    BodyLength::NothingButTrailers => text += " =0?",
                    BodyLength::Unknown => text += " =?",
                }
                self.event(&text);
                self.end(stream, end);
            }
            Event::Data { stream, end, .. } => {
                // Nothing is released, so that tests can observe closed windows.
                self.end(stream, end);
            }
            Event::Trailers { stream } => {
                let text = format!("{stream} trailers [{}]", lines(&self.received.trailers));
                self.event(&text);
                self.end(stream, true);
            }
            Event::Refused { stream, error } => {
                self.event(&format!(
                    "{stream} refused {} {}",
                    error.status(),
                    error.rule()
                ));
            }
            Event::Reset { stream, error, .. } => {
                self.event(&format!("{stream} reset {}", error.rule()));
            }
            Event::GoAway { code } => self.event(&format!("goaway {code}")),
            Event::Pong => self.event("pong"),
        }
    }

    fn describe_head(&self) -> String {
        if !self.is_server {
            let head = &self.received.response;
            return format!("{} [{}]", head.status, lines(&head.fields));
        }
        let head = &self.received.request;
        let authority = head.authority().unwrap_or("-");
        let mut text = format!(
            "{} {} @{authority}",
            head.method_str(),
            head.path_and_query()
        );
        if let Some(protocol) = head.protocol() {
            text += &format!(" :{protocol}");
        }
        format!("{text} [{}]", lines(&head.fields))
    }

    /// Responds to a complete message with an empty 200, so that streams close.
    fn end(&mut self, stream: StreamId, end: bool) {
        if end {
            self.event(&format!("{stream} end"));
            if self.is_server {
                let head = ResponseHead::default();
                self.connection
                    .send_head(stream, &head, BodyLength::Empty, &mut self.out);
            }
        }
    }

    fn event(&mut self, text: &str) {
        if !self.data.is_empty() {
            let data = std::mem::take(&mut self.data);
            let len = data.len();
            let text = if len < 50 {
                format!("{:?}", String::from_utf8_lossy(&data))
            } else {
                format!("{len} bytes")
            };
            self.event(&text);
        }
        if !text.is_empty() {
            let separator = if self.line.is_empty() { "" } else { " | " };
            let _ = write!(self.line, "{separator}{text}");
        }
    }
}

fn lines(fields: &Fields) -> String {
    let line = |(name, value): (blitz_proto::FieldName<'_>, &[u8])| {
        format!(
            "{}: {}",
            name.as_str().to_ascii_lowercase(),
            String::from_utf8_lossy(value)
        )
    };
    fields.iter().map(line).collect::<Vec<_>>().join(", ")
}

/// The frames of the output, except acknowledgements of SETTINGS, WINDOW_UPDATE and responses.
fn describe_output(mut out: &[u8]) -> String {
    let mut all = Vec::new();
    while let Some((header, rest)) = out.split_first_chunk::<9>() {
        let len = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        let stream = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
        let (payload, rest) = rest.split_at(len);
        out = rest;
        let code = |at: usize| {
            let bytes = payload[at..at + 4].try_into().expect("four bytes");
            Code(u32::from_be_bytes(bytes))
        };
        match header[3] {
            RST_STREAM => all.push(format!("RST_STREAM {stream} {}", code(0))),
            GOAWAY => all.push(format!("GOAWAY {}", code(4))),
            PING => all.push(format!(
                "PING {} {:?}",
                header[4],
                String::from_utf8_lossy(payload)
            )),
            SETTINGS if header[4] == 0 => all.push("SETTINGS".to_owned()),
            _ => {}
        }
    }
    all.join(", ")
}

// Not every test file uses every name.
const _: (Name, Status) = (Name::Host, Status::OK);
