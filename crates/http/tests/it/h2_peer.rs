//! A blocking, scripted HTTP/2 server: our protocol machine over a socket, with or without TLS.

use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use blitz_http::{BodyLength, Fields, Limits, RequestHead, ResponseHead, Status};
use blitz_proto::h2::{Code, Connection, Event, Received, StreamId};
use blitz_testing::PeerStream;

use crate::support::SOON;

pub(crate) struct H2Peer {
    stream: Box<dyn PeerStream>,
    pub(crate) machine: Connection,
    received: Received,
    input: Vec<u8>,
    pub(crate) out: Vec<u8>,
    requests: HashMap<StreamId, ReceivedRequest>,
    /// Streams whose heads the script has not read.
    new: VecDeque<StreamId>,
    /// The client has sent GOAWAY.
    pub(crate) go_away: bool,
    /// Whether it reads content, so that windows reopen.
    pub(crate) reads: bool,
    /// Whether a read timeout is allowed.
    is_waiting: bool,
}

/// The received part of one stream.
#[derive(Debug, Default, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) head: RequestHead,
    pub(crate) content: Vec<u8>,
    pub(crate) trailers: Option<Fields>,
    pub(crate) is_complete: bool,
    pub(crate) reset: Option<Code>,
}

impl H2Peer {
    pub(crate) fn accept(listener: &TcpListener) -> H2Peer {
        H2Peer::accept_with(listener, &Limits::default())
    }

    pub(crate) fn accept_with(listener: &TcpListener, limits: &Limits) -> H2Peer {
        let (stream, _) = listener.accept().expect("accepts");
        H2Peer::over(stream, limits)
    }

    pub(crate) fn over(stream: TcpStream, limits: &Limits) -> H2Peer {
        H2Peer::speaking(Box::new(stream), limits)
    }

    pub(crate) fn speaking(mut stream: Box<dyn PeerStream>, limits: &Limits) -> H2Peer {
        stream.set_timeouts();
        let mut peer = H2Peer {
            stream,
            machine: Connection::server(limits),
            received: Received::default(),
            input: Vec::new(),
            out: Vec::new(),
            requests: HashMap::new(),
            new: VecDeque::new(),
            go_away: false,
            reads: true,
            is_waiting: false,
        };
        peer.machine.start(&mut peer.out);
        peer
    }

    /// The next request's head.
    pub(crate) fn head(&mut self) -> (StreamId, RequestHead) {
        let next = self.next();
        next.expect("a request comes")
    }

    /// The next request's head; `None` if the client closes first.
    pub(crate) fn next(&mut self) -> Option<(StreamId, RequestHead)> {
        self.flush();
        while self.new.is_empty() {
            if !self.receive() {
                return None;
            }
        }
        let stream = self.new.pop_front()?;
        Some((stream, self.requests[&stream].head.clone()))
    }

    /// The streams that have begun since the last call.
    pub(crate) fn take_new(&mut self) -> Vec<StreamId> {
        self.new.drain(..).collect()
    }

    /// The next request, complete.
    pub(crate) fn request(&mut self) -> Option<(StreamId, ReceivedRequest)> {
        let (stream, _) = self.next()?;
        let request = self.until(stream, |request| {
            request.is_complete || request.reset.is_some()
        });
        Some((stream, request))
    }

    /// Waits until `holds` is true for the received part of a stream.
    pub(crate) fn until(
        &mut self,
        stream: StreamId,
        holds: impl Fn(&ReceivedRequest) -> bool,
    ) -> ReceivedRequest {
        self.flush();
        while !holds(&self.requests[&stream]) {
            assert!(self.receive(), "closed early: {:?}", self.requests[&stream]);
        }
        self.requests[&stream].clone()
    }

    /// Sends a complete response.
    pub(crate) fn answer(&mut self, stream: StreamId, status: Status, content: &str) {
        let length = match content.len() {
            0 => BodyLength::Empty,
            bytes => BodyLength::Known(bytes as u64),
        };
        self.start(stream, &ResponseHead::new(status), length);
        if !content.is_empty() {
            self.send(stream, content.as_bytes(), true);
        }
        self.flush();
    }

    /// Queues the head of a response.
    pub(crate) fn start(&mut self, stream: StreamId, head: &ResponseHead, length: BodyLength) {
        self.machine.send_head(stream, head, length, &mut self.out);
    }

    /// Sends content, and receives in between.
    pub(crate) fn send(&mut self, stream: StreamId, content: &[u8], end: bool) {
        let sent = self.send_some(stream, content, end);
        if sent < content.len() {
            self.machine.mark_ready(stream);
            assert!(self.receive(), "the window opens");
            self.send(stream, &content[sent..], end);
        }
    }

    /// Sends as much as the windows allow.
    pub(crate) fn send_some(&mut self, stream: StreamId, content: &[u8], end: bool) -> usize {
        let mut sent = 0;
        loop {
            let rest = content.len() - sent;
            let now = self
                .machine
                .send_data(stream, rest, end, &mut self.out)
                .expect("as declared");
            self.out.extend_from_slice(&content[sent..sent + now]);
            sent += now;
            self.flush();
            if now == 0 || sent == content.len() {
                return sent;
            }
        }
    }

    pub(crate) fn finish(&mut self, stream: StreamId, trailers: Option<&Fields>) {
        let ended = self.machine.send_end(stream, trailers, &mut self.out);
        ended.expect("as declared");
        self.flush();
    }

    pub(crate) fn reset(&mut self, stream: StreamId, code: Code) {
        self.machine.reset(stream, code, &mut self.out);
        self.flush();
    }

    /// Sends content followed at once by a reset.
    pub(crate) fn send_and_reset(
        &mut self,
        stream: StreamId,
        content: &[u8],
        end: bool,
        code: Code,
    ) {
        let sent = self
            .machine
            .send_data(stream, content.len(), end, &mut self.out);
        assert_eq!(sent.expect("as declared"), content.len());
        self.out.extend_from_slice(content);
        self.reset(stream, code);
    }

    /// The bytes of a GOAWAY with the last processed stream.
    pub(crate) fn send_go_away(&mut self, last: u32) {
        self.out.extend_from_slice(&[0, 0, 8, 7, 0, 0, 0, 0, 0]);
        self.out.extend_from_slice(&last.to_be_bytes());
        self.out.extend_from_slice(&[0; 4]);
        self.flush();
    }

    pub(crate) fn flush(&mut self) {
        // The client may have closed.
        let _ = self.stream.write_all(&self.out);
        let _ = self.stream.flush();
        self.out.clear();
    }

    /// Receives for a while.
    pub(crate) fn wait(&mut self, within: Duration) {
        self.flush();
        self.stream
            .set_read_timeout(Some(Duration::from_millis(10)));
        self.is_waiting = true;
        let until = Instant::now() + within;
        while Instant::now() < until && self.receive() {}
        self.stream.set_read_timeout(Some(SOON));
        self.is_waiting = false;
    }

    /// Waits for the end of the connection.
    pub(crate) fn expect_end(&mut self) {
        self.flush();
        while self.receive() {}
    }

    /// Sends FIN.
    pub(crate) fn fin(&mut self) {
        self.flush();
        // The client may have closed.
        let _ = self.stream.fin();
    }

    /// Sends FIN and waits for the client's.
    pub(crate) fn fin_and_wait(mut self) {
        self.fin();
        self.expect_end();
    }

    /// Receives once; `false` at the end.
    pub(crate) fn receive(&mut self) -> bool {
        let mut bytes = [0; 16 * 1024];
        let received = match self.stream.read(&mut bytes) {
            Ok(received) => received,
            Err(error) if is_end(error.kind()) => 0,
            Err(error) if error.kind() == ErrorKind::Interrupted => return true,
            Err(error) if error.kind() == ErrorKind::WouldBlock && self.is_waiting => return true,
            Err(error) => panic!("{error}"),
        };
        self.input.extend_from_slice(&bytes[..received]);
        let mut input = std::mem::take(&mut self.input);
        loop {
            let step = self
                .machine
                .handle_input(&input, Duration::ZERO, &mut self.received, &mut self.out)
                .expect("the client keeps to the protocol");
            let is_done = step.event == Event::NeedMore;
            self.note(&step.event, &input);
            input.drain(..step.consumed);
            if is_done {
                break;
            }
        }
        self.input = input;
        if received > 0 {
            self.flush();
        }
        received > 0
    }

    fn note(&mut self, event: &Event, input: &[u8]) {
        match event {
            Event::Head { stream, end, .. } => {
                let request = ReceivedRequest {
                    head: self.received.request.clone(),
                    is_complete: *end,
                    ..ReceivedRequest::default()
                };
                self.requests.insert(*stream, request);
                self.new.push_back(*stream);
            }
            Event::Data { stream, range, end } => {
                let request = self.requests.entry(*stream).or_default();
                request.content.extend_from_slice(&input[range.clone()]);
                request.is_complete |= end;
                if self.reads {
                    self.machine.release(*stream, range.len(), &mut self.out);
                }
            }
            Event::Trailers { stream } => {
                let request = self.requests.entry(*stream).or_default();
                request.trailers = Some(self.received.trailers.clone());
                request.is_complete = true;
            }
            Event::Reset { stream, code, .. } => {
                self.requests.entry(*stream).or_default().reset = Some(*code);
                self.machine.forget(*stream);
            }
            Event::GoAway { .. } => self.go_away = true,
            Event::NeedMore | Event::Refused { .. } | Event::Pong => {}
        }
    }
}

/// The end of a connection; over TLS also an end without close_notify.
fn is_end(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof)
}
