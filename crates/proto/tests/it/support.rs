//! Passes input in pieces to a machine and describes its events in one line.

use std::fmt::Write as _;
use std::time::Duration;

use blitz_proto::h1::{Client, Event, Server};
use blitz_proto::{
    BodyLength, Error, Fields, Limits, Method, RequestHead, ResponseHead, Status, Version,
};

/// The events of a server that receives `raw`; panics if they depend on how the input is cut.
///
/// Every complete request gets an empty 200, so that pipelined ones follow. Requests to upgrade get
/// none: input after those is held.
pub(crate) fn requests(raw: &[u8]) -> String {
    requests_with(raw, &Limits::default())
}

pub(crate) fn requests_with(raw: &[u8], limits: &Limits) -> String {
    in_all_pieces(raw, |pieces| ServerRun::new(limits).run(pieces))
}

/// The same for a client that receives `raw` as the response to a request with this method.
pub(crate) fn responses(method: Method, raw: &[u8]) -> String {
    responses_to(
        &RequestHead::new(method, target_for(method)),
        raw,
        &Limits::default(),
    )
}

pub(crate) fn responses_to(request: &RequestHead, raw: &[u8], limits: &Limits) -> String {
    in_all_pieces(raw, |pieces| run_client(request, pieces, limits))
}

fn target_for(method: Method) -> &'static str {
    if method == Method::Connect {
        "example.org:443"
    } else {
        "/"
    }
}

fn in_all_pieces(raw: &[u8], run: impl Fn(&[&[u8]]) -> String) -> String {
    let whole = run(&[raw]);
    let text = || String::from_utf8_lossy(&raw[..raw.len().min(300)]).into_owned();
    // All cuts of a long input would take quadratic time and test nothing more.
    let step = 1 + raw.len() / 2_000;
    for cut in (1..raw.len()).step_by(step) {
        let (front, back) = raw.split_at(cut);
        assert_eq!(run(&[front, back]), whole, "cut at {cut}: {:?}", text());
    }
    let bytes: Vec<&[u8]> = raw.chunks(1).collect();
    assert_eq!(run(&bytes), whole, "byte by byte: {:?}", text());
    whole
}

/// The events of one connection, joined to a line; consecutive data is one event.
#[derive(Default)]
struct Transcript {
    line: String,
    data: Vec<u8>,
}

impl Transcript {
    fn data(&mut self, bytes: &[u8]) {
        self.data.extend_from_slice(bytes);
    }

    fn event(&mut self, text: &str) {
        if !self.data.is_empty() {
            let data = std::mem::take(&mut self.data);
            self.event(&format!("{:?}", String::from_utf8_lossy(&data)));
        }
        let separator = if self.line.is_empty() { "" } else { " | " };
        let _ = write!(self.line, "{separator}{text}");
    }

    fn refusal(&mut self, error: Error) {
        self.event(&format!("refused {} {}", error.status(), error.rule()));
    }

    fn finish(mut self) -> String {
        if !self.data.is_empty() {
            self.event("…");
        }
        self.line
    }
}

struct ServerRun {
    server: Server,
    head: RequestHead,
    trailers: Fields,
    transcript: Transcript,
    pending: Vec<u8>,
}

impl ServerRun {
    fn new(limits: &Limits) -> ServerRun {
        ServerRun {
            server: Server::new(limits),
            head: RequestHead::default(),
            trailers: Fields::new(),
            transcript: Transcript::default(),
            pending: Vec::new(),
        }
    }

    fn run(mut self, pieces: &[&[u8]]) -> String {
        for piece in pieces {
            self.pending.extend_from_slice(piece);
            if let Err(error) = self.drain() {
                self.transcript.refusal(error);
                self.refused();
                return self.transcript.finish();
            }
        }
        if !self.pending.is_empty() {
            let held = format!("held {:?}", String::from_utf8_lossy(&self.pending));
            self.transcript.event(&held);
        }
        if let Err(error) = self.server.handle_eof() {
            self.transcript.refusal(error);
        }
        self.transcript.finish()
    }

    fn drain(&mut self) -> Result<(), Error> {
        loop {
            let step =
                self.server
                    .handle_input(&self.pending, &mut self.head, &mut self.trailers)?;
            if let Event::Data(range) = &step.event {
                assert!(
                    range.end <= step.consumed,
                    "data outside of what was consumed"
                );
                self.transcript.data(&self.pending[range.clone()]);
            }
            self.pending.drain(..step.consumed);
            match step.event {
                Event::NeedMore | Event::Paused => return Ok(()),
                Event::Head(length) => {
                    let line = describe_request(&self.server, &self.head, length);
                    self.transcript.event(&line);
                }
                Event::Data(_) => {}
                Event::Trailers => self.transcript.event(&describe_fields(&self.trailers)),
                Event::End => {
                    self.transcript.event("end");
                    self.answer();
                }
            }
        }
    }

    fn answer(&mut self) {
        if !self.server.upgrade_requested() {
            let mut out = Vec::new();
            self.server
                .send_head(&ResponseHead::default(), BodyLength::Empty, &mut out);
            self.server
                .send_end(None, &mut out)
                .expect("an empty response is complete");
        }
    }

    /// A refused request can still get a response, and then no more input is read.
    fn refused(&mut self) {
        assert!(!self.server.keep_alive());
        let rest = b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n";
        let step = self
            .server
            .handle_input(rest, &mut self.head, &mut self.trailers);
        let step = step.expect("input after a refusal is discarded");
        assert_eq!((step.consumed, step.event), (rest.len(), Event::NeedMore));
        if !self.server.response_started() {
            let mut out = Vec::new();
            let head = ResponseHead::new(Status::BAD_REQUEST);
            self.server.send_head(&head, BodyLength::Known(0), &mut out);
            let text = String::from_utf8_lossy(&out);
            assert!(text.contains("\r\nConnection: close\r\n"), "{text}");
        }
    }
}

fn describe_request(server: &Server, head: &RequestHead, length: BodyLength) -> String {
    let mut line = format!("{} {}", head.method_str(), head.path_and_query());
    let _ = write!(line, " @{}", head.authority().unwrap_or("-"));
    if let Some(scheme) = head.scheme() {
        let _ = write!(line, " {scheme}");
    }
    line.push_str(&describe_length(length));
    let flags = [
        (head.version == Version::Http10, " 1.0"),
        (!server.keep_alive(), " close"),
        (server.expects_continue(), " continue"),
        (server.upgrade_requested(), " upgrade"),
        (server.h2c_requested(), " h2c"),
    ];
    line.extend(flags.iter().filter(|(set, _)| *set).map(|(_, text)| *text));
    line
}

fn describe_length(length: BodyLength) -> String {
    match length {
        BodyLength::Empty => String::new(),
        BodyLength::Known(length) => format!(" ={length}"),
        BodyLength::NothingButTrailers => " =0?".to_owned(),
        BodyLength::Unknown => " =?".to_owned(),
    }
}

fn describe_fields(fields: &Fields) -> String {
    let lines: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("{}: {}", name.as_str(), String::from_utf8_lossy(value)))
        .collect();
    format!("trailers [{}]", lines.join(", "))
}

fn run_client(request: &RequestHead, pieces: &[&[u8]], limits: &Limits) -> String {
    let mut client = Client::new(limits);
    let mut out = Vec::new();
    client.send_request(request, BodyLength::Empty, &mut out);
    client
        .send_end(None, &mut out)
        .expect("an empty request is complete");
    let (mut head, mut trailers) = (ResponseHead::default(), Fields::new());
    let mut transcript = Transcript::default();
    let mut pending: Vec<u8> = Vec::new();
    for piece in pieces {
        pending.extend_from_slice(piece);
        if let Err(error) = drain_client(
            &mut client,
            &mut pending,
            &mut head,
            &mut trailers,
            &mut transcript,
        ) {
            assert!(!client.reusable());
            transcript.refusal(error);
            return transcript.finish();
        }
    }
    let reusable = client.reusable();
    match client.handle_eof() {
        Ok(Event::End) => transcript.event("end by close"),
        Ok(_) => {}
        Err(error) => transcript.refusal(error),
    }
    if reusable {
        transcript.event("reusable");
    }
    transcript.finish()
}

fn drain_client(
    client: &mut Client,
    pending: &mut Vec<u8>,
    head: &mut ResponseHead,
    trailers: &mut Fields,
    transcript: &mut Transcript,
) -> Result<(), Error> {
    loop {
        let step = client.handle_input(pending, head, trailers)?;
        if let Event::Data(range) = &step.event {
            assert!(
                range.end <= step.consumed,
                "data outside of what was consumed"
            );
            transcript.data(&pending[range.clone()]);
        }
        pending.drain(..step.consumed);
        match step.event {
            Event::NeedMore | Event::Paused => return Ok(()),
            Event::Head(length) => {
                let tunnel = if client.is_tunnel() { " tunnel" } else { "" };
                let line = format!("{}{}{tunnel}", head.status, describe_length(length));
                if head.status.is_informational() && !client.is_tunnel() {
                    client.informational_arrived(Duration::ZERO)?;
                }
                transcript.event(&line);
            }
            Event::Data(_) => {}
            Event::Trailers => transcript.event(&describe_fields(trailers)),
            Event::End => {
                transcript.event("end");
                assert!(
                    pending.is_empty() || !client.reusable(),
                    "a connection with surplus bytes is reusable"
                );
            }
        }
    }
}
