//! Ends of an HTTP/2 connection that behave like an honest application, for the tests.

use std::collections::BTreeMap;
use std::time::Duration;

use blitz_proto::h2::{Code, Connection, Event, Received, StreamId};
use blitz_proto::{
    BodyLength, Error, Fields, Limits, Method, Name, RequestHead, ResponseHead, Status,
};

/// A message from the peer, as the application receives it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) start: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) content: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
    pub(crate) is_complete: bool,
    /// The rule that ended the stream early.
    pub(crate) reset: Option<&'static str>,
}

/// One end: a connection, its pending output, and the received messages.
pub(crate) struct End {
    pub(crate) connection: Connection,
    is_server: bool,
    pub(crate) out: Vec<u8>,
    pub(crate) messages: BTreeMap<StreamId, Message>,
    pub(crate) failure: Option<Error>,
    pub(crate) now: Duration,
    /// Whether received content is released at once, so that windows reopen.
    pub(crate) releases: bool,
    /// Requests that are complete and have no response yet.
    pub(crate) complete: Vec<StreamId>,
    /// Refused requests and their statuses.
    pub(crate) refused: Vec<(StreamId, Status)>,
    pub(crate) pongs: usize,
    pub(crate) go_away: Option<Code>,
    pub(crate) received: Received,
    pending: Vec<u8>,
    sending: BTreeMap<StreamId, Content>,
}

/// The pending content of a stream.
struct Content {
    bytes: Vec<u8>,
    at: usize,
    trailers: Option<Fields>,
}

impl End {
    pub(crate) fn server(limits: &Limits) -> End {
        End::new(Connection::server(limits), true)
    }

    pub(crate) fn client(limits: &Limits) -> End {
        End::new(Connection::client(limits, true), false)
    }

    fn new(mut connection: Connection, is_server: bool) -> End {
        let mut out = Vec::new();
        connection.start(&mut out);
        End {
            connection,
            is_server,
            out,
            messages: BTreeMap::new(),
            failure: None,
            now: Duration::from_secs(1000),
            releases: true,
            complete: Vec::new(),
            refused: Vec::new(),
            pongs: 0,
            go_away: None,
            received: Received::default(),
            pending: Vec::new(),
            sending: BTreeMap::new(),
        }
    }

    /// Takes the pending output.
    pub(crate) fn take_out(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Presents bytes, and handles the events.
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        loop {
            let step = self.connection.handle_input(
                &self.pending,
                self.now,
                &mut self.received,
                &mut self.out,
            );
            match step {
                Ok(step) => {
                    let input = self.pending.clone();
                    self.pending.drain(..step.consumed);
                    if step.event == Event::NeedMore {
                        assert!(self.pending.is_empty(), "NeedMore with input left");
                        return;
                    }
                    self.note(step.event, step.consumed, &input);
                }
                Err(error) => {
                    assert!(self.failure.is_none(), "a second failure");
                    self.failure = Some(error);
                    self.pending.clear();
                    return;
                }
            }
        }
    }

    fn note(&mut self, event: Event, consumed: usize, input: &[u8]) {
        match event {
            Event::NeedMore => {}
            Event::Head {
                stream,
                end,
                length,
            } => {
                // A response to HEAD may end without declaring a length.
                assert!(!end || !self.is_server || length != BodyLength::Unknown);
                self.note_head(stream);
                self.note_end(stream, end);
            }
            Event::Data { stream, range, end } => {
                assert!(range.end <= consumed, "data outside of what was consumed");
                let len = range.len();
                self.message(stream)
                    .content
                    .extend_from_slice(&input[range]);
                if self.releases {
                    self.connection.release(stream, len, &mut self.out);
                }
                self.note_end(stream, end);
            }
            Event::Trailers { stream } => {
                let trailers = lines(&self.received.trailers);
                self.message(stream).trailers = trailers;
                self.note_end(stream, true);
            }
            Event::Refused { stream, error } => self.refused.push((stream, error.status())),
            Event::Reset { stream, error, .. } => {
                self.message(stream).reset = Some(error.rule());
                self.sending.remove(&stream);
                self.connection.forget(stream);
            }
            Event::GoAway { code } => self.go_away = Some(code),
            Event::Pong => self.pongs += 1,
        }
    }

    fn message(&mut self, stream: StreamId) -> &mut Message {
        self.messages.entry(stream).or_default()
    }

    fn note_head(&mut self, stream: StreamId) {
        let is_request = !self.received.request.fields.is_empty()
            || self.received.request.scheme().is_some()
            || self.received.request.authority().is_some();
        let (start, fields) = if is_request {
            let head = &self.received.request;
            let scheme = head.scheme().unwrap_or("-");
            let authority = head.authority().unwrap_or("-");
            let mut start = format!(
                "{} {} @{authority} {scheme}",
                head.method_str(),
                head.path_and_query()
            );
            if let Some(protocol) = head.protocol() {
                start += &format!(" :{protocol}");
            }
            (start, lines(&head.fields))
        } else {
            let head = &self.received.response;
            (head.status.to_string(), lines(&head.fields))
        };
        let message = self.message(stream);
        if !message.start.is_empty() {
            message.start += " ";
        }
        message.start += &start;
        message.fields = fields;
    }

    fn note_end(&mut self, stream: StreamId, end: bool) {
        if end {
            assert!(!self.message(stream).is_complete, "a second end");
            self.message(stream).is_complete = true;
            self.complete.push(stream);
        }
    }

    /// Responds to every complete request: with its content, or with a greeting if it has none.
    pub(crate) fn answer(&mut self) {
        for (stream, status) in std::mem::take(&mut self.refused) {
            self.respond(stream, &ResponseHead::new(status), Vec::new(), None);
        }
        for stream in std::mem::take(&mut self.complete) {
            if self.connection.response_started(stream) {
                continue;
            }
            let content = self.messages[&stream].content.clone();
            let content = if content.is_empty() {
                b"Hello, World!".to_vec()
            } else {
                content
            };
            let mut head = ResponseHead::default();
            head.fields.append(Name::ContentType, "text/plain");
            self.respond(stream, &head, content, None);
        }
        self.send();
    }

    pub(crate) fn respond(
        &mut self,
        stream: StreamId,
        head: &ResponseHead,
        content: Vec<u8>,
        trailers: Option<Fields>,
    ) {
        let length = match trailers {
            Some(_) => BodyLength::Unknown,
            None => BodyLength::Known(content.len() as u64),
        };
        self.connection
            .send_head(stream, head, length, &mut self.out);
        self.queue(stream, content, trailers);
    }

    pub(crate) fn request(
        &mut self,
        head: &RequestHead,
        content: Vec<u8>,
        trailers: Option<Fields>,
    ) -> Option<StreamId> {
        let length = match trailers {
            Some(_) => BodyLength::Unknown,
            None if content.is_empty() => BodyLength::Empty,
            None => BodyLength::Known(content.len() as u64),
        };
        let stream = self.connection.send_request(head, length, &mut self.out)?;
        self.queue(stream, content, trailers);
        Some(stream)
    }

    pub(crate) fn get(&mut self, path: &str) -> StreamId {
        let mut head = RequestHead::new(Method::Get, path);
        head.set_authority("example.org");
        self.request(&head, Vec::new(), None)
            .expect("a free stream")
    }

    fn queue(&mut self, stream: StreamId, bytes: Vec<u8>, trailers: Option<Fields>) {
        if self.connection.sends_body(stream) {
            self.sending.insert(
                stream,
                Content {
                    bytes,
                    at: 0,
                    trailers,
                },
            );
            self.connection.mark_ready(stream);
        }
    }

    /// Sends content as far as the windows allow, a frame at a time.
    pub(crate) fn send(&mut self) {
        while self.send_frame().is_some() {}
    }

    pub(crate) fn send_frame(&mut self) -> Option<StreamId> {
        let stream = self.connection.next_to_send()?;
        let content = self.sending.get_mut(&stream)?;
        let rest = &content.bytes[content.at..];
        let end = content.trailers.is_none();
        let sent = self
            .connection
            .send_data(stream, rest.len(), end, &mut self.out);
        let sent = sent.expect("as much as declared");
        self.out.extend_from_slice(&rest[..sent]);
        content.at += sent;
        if content.at < content.bytes.len() {
            self.connection.mark_ready(stream);
        } else {
            let trailers = self
                .sending
                .remove(&stream)
                .and_then(|content| content.trailers);
            self.connection
                .send_end(stream, trailers.as_ref(), &mut self.out)
                .expect("as much as declared");
        }
        Some(stream)
    }
}

fn lines(fields: &Fields) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let is_name = |name: &str| {
        !name.is_empty() && !name.contains(|c: char| !c.is_ascii_graphic() || c == ':')
    };
    fields
        .iter()
        .map(|(name, value)| (name.as_str().to_ascii_lowercase(), text(value)))
        .inspect(|(name, _)| assert!(is_name(name), "{name:?} is no field name"))
        .collect()
}

/// A client and a server that know each other's settings.
pub(crate) fn pair() -> (End, End) {
    let limits = Limits::default();
    let (mut client, mut server) = (End::client(&limits), End::server(&limits));
    settle(&mut client, &mut server);
    (client, server)
}

/// A request with content.
pub(crate) fn post(path: &str) -> RequestHead {
    let mut head = RequestHead::new(Method::Post, path);
    head.set_authority("example.org");
    head
}

/// Moves bytes both ways until both ends have no more output.
pub(crate) fn settle(client: &mut End, server: &mut End) {
    loop {
        client.send();
        let to_server = client.take_out();
        let to_client = server.take_out();
        if to_server.is_empty() && to_client.is_empty() {
            return;
        }
        server.receive(&to_server);
        server.answer();
        client.receive(&to_client);
    }
}
