//! Sequences of operations of a client and a handler on a server: the output must always be valid
//! responses for a client, in the order of the requests.
#![no_main]

use arbitrary::Arbitrary;
use blitz_proto::h1::{Event, Server};
use blitz_proto::{BodyLength, Fields, Limits, Method, Name, RequestHead, ResponseHead, Status};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
enum Operation<'a> {
    /// The client sends bytes.
    Raw(&'a [u8]),
    /// The client sends a valid request.
    Request(Request),
    /// The handler sends a 1xx head.
    Informational,
    /// The handler sends the final head.
    Head {
        status: u16,
        length: Option<u16>,
        empty: bool,
        close: bool,
    },
    /// The handler sends content.
    Data(u8),
    /// The handler ends the response.
    End { trailer: bool },
    /// The server begins a shutdown.
    Drain,
    /// The client closes its sending side.
    Eof,
}

#[derive(Debug, Arbitrary)]
enum Request {
    Get,
    Head,
    Http10,
    Post,
    Chunked,
    Expect,
    Upgrade,
    Connect,
}

impl Request {
    fn bytes(&self) -> &'static [u8] {
        match self {
            Request::Get => b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            Request::Head => b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
            Request::Http10 => b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
            Request::Post => b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi",
            Request::Chunked => {
                b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
            }
            Request::Expect => {
                b"PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
            }
            Request::Upgrade => {
                b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
            }
            Request::Connect => b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
        }
    }
}

fuzz_target!(|operations: Vec<Operation<'_>>| {
    let mut run = Run::new();
    for operation in &operations {
        run.perform(operation);
        run.check();
    }
});

struct Run {
    server: Server,
    head: RequestHead,
    trailers: Fields,
    pending: Vec<u8>,
    out: Vec<u8>,
    /// A request's head was received and its response is not complete.
    in_exchange: bool,
    refused: bool,
}

impl Run {
    fn new() -> Run {
        Run {
            server: Server::new(&Limits::default()),
            head: RequestHead::default(),
            trailers: Fields::new(),
            pending: Vec::new(),
            out: Vec::new(),
            in_exchange: false,
            refused: false,
        }
    }

    fn perform(&mut self, operation: &Operation<'_>) {
        match operation {
            Operation::Raw(bytes) => self.receive(bytes),
            Operation::Request(request) => self.receive(request.bytes()),
            Operation::Informational => {
                if self.in_exchange && !self.server.response_started() {
                    let head = ResponseHead::new(Status::CONTINUE);
                    self.server.send_informational(&head, &mut self.out);
                }
            }
            Operation::Head {
                status,
                length,
                empty,
                close,
            } => {
                self.respond(*status, *length, *empty, *close);
            }
            Operation::Data(len) => self.send(usize::from(*len)),
            Operation::End { trailer } => self.end(*trailer),
            Operation::Drain => self.server.drain(),
            Operation::Eof => {
                self.refused |= self.server.handle_eof().is_err();
            }
        }
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        self.step();
    }

    fn step(&mut self) {
        loop {
            let Ok(step) =
                self.server
                    .handle_input(&self.pending, &mut self.head, &mut self.trailers)
            else {
                assert!(!self.refused, "nothing is read after a refusal");
                self.refused = true;
                continue;
            };
            assert!(step.consumed <= self.pending.len());
            if matches!(step.event, Event::Head(_)) {
                assert!(!self.in_exchange, "one exchange at a time");
                self.in_exchange = true;
            }
            self.pending.drain(..step.consumed);
            if matches!(step.event, Event::NeedMore | Event::Paused) {
                return;
            }
        }
    }

    fn respond(&mut self, status: u16, length: Option<u16>, empty: bool, close: bool) {
        let is_due = self.in_exchange || self.refused;
        if !is_due || self.server.response_started() {
            return;
        }
        let switches = self.server.upgrade_requested()
            && self.server.request_done()
            && !self.refused
            && self.head.method != Method::Connect;
        let status = match status {
            101 if switches => Status::SWITCHING_PROTOCOLS,
            // A 2xx to CONNECT opens a tunnel, for which the request must be complete.
            200..300 if self.head.method == Method::Connect => Status::METHOD_NOT_ALLOWED,
            200..1000 => Status::new(status).expect("three digits"),
            _ => Status::OK,
        };
        let mut head = ResponseHead::new(status);
        if close {
            head.fields.append(Name::Connection, "close");
        }
        let length = match length {
            _ if empty => BodyLength::Empty,
            Some(length) => BodyLength::Known(length.into()),
            None => BodyLength::Unknown,
        };
        self.server.send_head(&head, length, &mut self.out);
    }

    fn send(&mut self, len: usize) {
        if !self.server.sends_body() || self.server.is_tunnel() {
            return;
        }
        if self.server.send_data_prefix(len, &mut self.out).is_ok() {
            self.out.resize(self.out.len() + len, b'x');
            self.server.send_data_suffix(&mut self.out);
        }
    }

    fn end(&mut self, trailer: bool) {
        if !self.server.response_started() || self.server.response_done() {
            return;
        }
        let mut trailers = Fields::new();
        if trailer {
            trailers.append("X-Trailer", "1");
        }
        if self.server.send_end(Some(&trailers), &mut self.out).is_ok() {
            self.in_exchange = false;
            // The held bytes may be the next request.
            self.step();
        }
    }

    fn check(&self) {
        assert!(!(self.server.is_idle() && self.refused));
        if self.server.is_tunnel() || self.refused {
            assert!(!self.server.keep_alive() || self.server.is_tunnel());
        }
        assert!(self.server.response_started() || !self.server.sends_body());
        let text = String::from_utf8_lossy(&self.out);
        assert!(self.out.is_empty() || text.starts_with("HTTP/1.1 "));
    }
}
