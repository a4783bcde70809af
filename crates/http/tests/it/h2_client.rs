//! A blocking HTTP/2 client: our protocol machine over a plain socket.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use blitz_http::{BodyLength, Fields, Limits, Method, RequestHead, Status};
use blitz_proto::h2::{Code, Connection, Event, Received, StreamId};
use blitz_testing::Raw;

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pub(crate) machine: Connection,
    received: Received,
    input: Vec<u8>,
    pub(crate) out: Vec<u8>,
    answers: HashMap<StreamId, Answer>,
    /// The error code of the server's GOAWAY, if received.
    pub(crate) go_away: Option<Code>,
    /// The machine's output is not sent.
    pub(crate) is_mute: bool,
    /// Received bytes are returned to the server's windows.
    pub(crate) reads: bool,
    /// Received bytes that were not returned to the windows.
    held: Vec<(StreamId, usize)>,
}

/// The received part of one stream.
#[derive(Debug, Default, Clone)]
pub(crate) struct Answer {
    pub(crate) informational: Vec<Status>,
    pub(crate) status: Option<Status>,
    pub(crate) fields: Fields,
    pub(crate) content: Vec<u8>,
    pub(crate) trailers: Option<Fields>,
    pub(crate) is_complete: bool,
    pub(crate) reset: Option<Code>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        Client::connect_with(address, &Limits::default())
    }

    pub(crate) fn connect_with(address: SocketAddr, limits: &Limits) -> Client {
        let stream = TcpStream::connect(address).expect("the server listens");
        let mut client = Client::over(stream, limits);
        client.machine.start(&mut client.out);
        client
    }

    /// Continues with HTTP/2 on a connection that has begun with an HTTP/1.1 request. The response
    /// arrives in the returned stream.
    pub(crate) fn upgraded(stream: TcpStream, method: Method) -> (Client, StreamId) {
        let mut client = Client::over(stream, &Limits::default());
        let mut preface = Vec::new();
        client.machine.start(&mut preface);
        // The machine handles it like other requests, but its frames are not sent. GET adds no
        // entry to the table of fields.
        let request = RequestHead::new(method, "/");
        let stream = client.send_head(&request, BodyLength::Empty);
        client.out = preface;
        (client, stream)
    }

    fn over(stream: TcpStream, limits: &Limits) -> Client {
        let Raw(stream) = Raw::over(stream);
        Client {
            stream,
            machine: Connection::client(limits, false),
            received: Received::default(),
            input: Vec::new(),
            out: Vec::new(),
            answers: HashMap::new(),
            go_away: None,
            reads: true,
            is_mute: false,
            held: Vec::new(),
        }
    }

    /// Returns the received bytes to the server's windows.
    pub(crate) fn read_all(&mut self) {
        for (stream, bytes) in self.held.drain(..) {
            self.machine.release(stream, bytes, &mut self.out);
        }
    }

    /// Queues the head of a request; the next [`flush`](Client::flush) sends it.
    pub(crate) fn request(&mut self, method: Method, path: &str, length: BodyLength) -> StreamId {
        let mut head = RequestHead::new(method, path);
        head.set_authority("a");
        self.send_head(&head, length)
    }

    pub(crate) fn send_head(&mut self, head: &RequestHead, length: BodyLength) -> StreamId {
        let opened = self.machine.send_request(head, length, &mut self.out);
        let stream = opened.expect("the server takes more streams");
        self.answers.insert(stream, Answer::default());
        stream
    }

    pub(crate) fn get(&mut self, path: &str) -> Answer {
        let stream = self.request(Method::Get, path, BodyLength::Empty);
        self.answer(stream)
    }

    pub(crate) fn flush(&mut self) {
        self.stream.write_all(&self.out).expect("writes");
        self.out.clear();
    }

    /// Queues as much content as the windows allow; returns the number of bytes.
    pub(crate) fn queue(&mut self, stream: StreamId, content: &[u8]) -> usize {
        let mut queued = 0;
        loop {
            let (machine, out) = (&mut self.machine, &mut self.out);
            let now = machine.send_data(stream, content.len() - queued, true, out);
            let now = now.expect("as declared");
            if now == 0 {
                return queued;
            }
            self.out.extend_from_slice(&content[queued..queued + now]);
            queued += now;
        }
    }

    /// Sends content, and receives in between.
    pub(crate) fn send(&mut self, stream: StreamId, mut content: &[u8], end: bool) {
        loop {
            let sent = self
                .machine
                .send_data(stream, content.len(), end, &mut self.out)
                .expect("as declared");
            self.out.extend_from_slice(&content[..sent]);
            content = &content[sent..];
            self.flush();
            if content.is_empty() {
                return;
            }
            if sent == 0 {
                self.machine.mark_ready(stream);
                assert!(self.receive(), "the window opens");
            }
        }
    }

    /// Ends a request with three bytes, whichever length it has declared.
    pub(crate) fn send_short_end(&mut self, stream: StreamId) {
        let mut frame = vec![0, 0, 3, 0, 1];
        frame.extend(stream.get().to_be_bytes());
        frame.extend(b"012");
        self.stream.write_all(&frame).expect("writes");
    }

    /// Waits until the response is complete, or the stream was reset.
    pub(crate) fn answer(&mut self, stream: StreamId) -> Answer {
        self.until(stream, |answer| {
            answer.is_complete || answer.reset.is_some()
        })
    }

    /// Waits until `holds` is true for the received part of a stream.
    pub(crate) fn until(&mut self, stream: StreamId, holds: impl Fn(&Answer) -> bool) -> Answer {
        self.flush();
        while !holds(&self.answers[&stream]) {
            assert!(self.receive(), "closed early: {:?}", self.answers[&stream]);
        }
        self.answers[&stream].clone()
    }

    /// Waits for the end of the connection.
    pub(crate) fn expect_end(&mut self) {
        self.flush();
        while self.receive() {}
    }

    /// Receives once; `false` at the end.
    pub(crate) fn receive(&mut self) -> bool {
        let mut bytes = [0; 16 * 1024];
        let received = match self.stream.read(&mut bytes) {
            Ok(received) => received,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            Err(error) if error.kind() == ErrorKind::Interrupted => return true,
            Err(error) => panic!("{error}"),
        };
        self.input.extend_from_slice(&bytes[..received]);
        let mut input = std::mem::take(&mut self.input);
        loop {
            let now = Duration::ZERO;
            let step = self
                .machine
                .handle_input(&input, now, &mut self.received, &mut self.out)
                .expect("the server keeps to the protocol");
            let is_done = step.event == Event::NeedMore;
            self.note(&step.event, &input);
            input.drain(..step.consumed);
            if is_done {
                break;
            }
        }
        self.input = input;
        if received > 0 && !self.is_mute {
            // The server may be closing already.
            let _ = self.stream.write_all(&self.out);
            self.out.clear();
        }
        received > 0
    }

    fn note(&mut self, event: &Event, input: &[u8]) {
        match event {
            Event::Head { stream, end, .. } => {
                let head = &self.received.response;
                let answer = self.answers.entry(*stream).or_default();
                if head.status.is_informational() {
                    answer.informational.push(head.status);
                } else {
                    answer.status = Some(head.status);
                    answer.fields.clone_from(&head.fields);
                }
                answer.is_complete |= end;
            }
            Event::Data { stream, range, end } => {
                let answer = self.answers.entry(*stream).or_default();
                answer.content.extend_from_slice(&input[range.clone()]);
                answer.is_complete |= end;
                self.held.push((*stream, range.len()));
                if self.reads {
                    self.read_all();
                }
            }
            Event::Trailers { stream } => {
                let answer = self.answers.entry(*stream).or_default();
                answer.trailers = Some(self.received.trailers.clone());
                answer.is_complete = true;
            }
            Event::Reset { stream, code, .. } => {
                self.answers.entry(*stream).or_default().reset = Some(*code);
            }
            Event::GoAway { code } => self.go_away = Some(*code),
            Event::NeedMore | Event::Refused { .. } | Event::Pong => {}
        }
    }
}
