//! Sequences of operations of a client and a handler on a server: the output must always be whole
//! frames within the client's windows, and the memory must stay bounded.
#![no_main]

use std::time::Duration;

use arbitrary::Arbitrary;
use blitz_proto::h2::{Code, Connection, Event, Received, StreamId};
use blitz_proto::{BodyLength, Limits, ResponseHead, Status};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
enum Operation<'a> {
    /// The client sends bytes.
    Raw(&'a [u8]),
    /// The client sends a frame.
    Frame {
        kind: u8,
        flags: u8,
        stream: u8,
        payload: &'a [u8],
    },
    /// The client sends a valid request.
    Request { stream: u8, end: bool },
    /// The client sends WINDOW_UPDATE.
    Window { stream: u8, by: u16 },
    /// The handler sends the final head.
    Head {
        stream: u8,
        status: u16,
        length: Option<u16>,
    },
    /// The handler sends content.
    Data { stream: u8, len: u16, end: bool },
    /// The handler ends the response.
    End { stream: u8 },
    /// The handler resets the stream.
    Reset { stream: u8 },
    /// The handler releases received content.
    Release,
    /// The server begins a shutdown.
    Drain,
    /// Time passes.
    Wait(u16),
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// A valid request, encoded with indices of the static table.
const GET: &[u8] = b"\x82\x87\x84\x01\x01a";

fuzz_target!(|operations: Vec<Operation<'_>>| {
    let mut run = Run::new();
    run.receive(PREFACE);
    for operation in &operations {
        run.perform(operation);
        run.check();
    }
});

struct Run {
    connection: Connection,
    received: Received,
    pending: Vec<u8>,
    out: Vec<u8>,
    now: Duration,
    known: Vec<StreamId>,
    /// Streams whose final head was sent.
    answered: Vec<StreamId>,
    held: Vec<(StreamId, usize)>,
    failed: bool,
}

impl Run {
    fn new() -> Run {
        let mut connection = Connection::server(&Limits::default());
        let mut out = Vec::new();
        connection.start(&mut out);
        Run {
            connection,
            received: Received::default(),
            pending: Vec::new(),
            out,
            now: Duration::ZERO,
            known: Vec::new(),
            answered: Vec::new(),
            held: Vec::new(),
            failed: false,
        }
    }

    fn stream(&self, index: u8) -> Option<StreamId> {
        let index = usize::from(index).checked_rem(self.known.len())?;
        self.known.get(index).copied()
    }

    fn perform(&mut self, operation: &Operation<'_>) {
        match *operation {
            Operation::Raw(bytes) => self.receive(bytes),
            Operation::Frame {
                kind,
                flags,
                stream,
                payload,
            } => {
                self.receive_frame(kind % 18, flags, stream, payload);
            }
            Operation::Request { stream, end } => {
                self.receive_frame(1, 4 | u8::from(end), stream | 1, GET);
            }
            Operation::Window { stream, by } => {
                let [a, b] = by.to_be_bytes();
                self.receive_frame(8, 0, stream, &[0, 0, a, b]);
            }
            Operation::Head {
                stream,
                status,
                length,
            } => self.head(stream, status, length),
            Operation::Data { stream, len, end } => self.data(stream, usize::from(len), end),
            Operation::End { stream } => {
                if let Some(stream) = self.stream(stream) {
                    let _ = self.connection.send_end(stream, None, &mut self.out);
                }
            }
            Operation::Reset { stream } => {
                if let Some(stream) = self.stream(stream) {
                    self.connection.reset(stream, Code::CANCEL, &mut self.out);
                }
            }
            Operation::Release => {
                for (stream, len) in std::mem::take(&mut self.held) {
                    self.connection.release(stream, len, &mut self.out);
                }
            }
            Operation::Drain => self.connection.drain(&mut self.out),
            Operation::Wait(ms) => self.now += Duration::from_millis(u64::from(ms)),
        }
    }

    fn head(&mut self, stream: u8, status: u16, length: Option<u16>) {
        let Some(stream) = self.stream(stream) else {
            return;
        };
        if self.answered.contains(&stream) {
            return;
        }
        self.answered.push(stream);
        let status = Status::new(200 + status % 800).unwrap_or(Status::OK);
        let length = length.map_or(BodyLength::Unknown, |length| {
            BodyLength::Known(length.into())
        });
        self.connection
            .send_head(stream, &ResponseHead::new(status), length, &mut self.out);
    }

    fn data(&mut self, stream: u8, len: usize, end: bool) {
        let Some(stream) = self.stream(stream) else {
            return;
        };
        let window = self.connection.send_window(stream);
        let sent = self
            .connection
            .send_data(stream, len, end, &mut self.out)
            .unwrap_or(0);
        assert!(sent <= len.min(window).min(16_384));
        self.out.resize(self.out.len() + sent, b'x');
        self.connection.mark_ready(stream);
        if let Some(next) = self.connection.next_to_send() {
            assert!(self.connection.send_window(next) > 0);
        }
    }

    fn receive_frame(&mut self, kind: u8, flags: u8, stream: u8, payload: &[u8]) {
        let len = payload.len().min(16_384);
        let [.., a, b, c] = (len as u32).to_be_bytes();
        let header = [a, b, c, kind, flags, 0, 0, 0, stream];
        self.receive(&[&header, &payload[..len]].concat());
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        loop {
            let (received, out) = (&mut self.received, &mut self.out);
            let Ok(step) = self
                .connection
                .handle_input(&self.pending, self.now, received, out)
            else {
                assert!(!self.failed, "a second failure");
                self.failed = true;
                self.pending.clear();
                return;
            };
            self.pending.drain(..step.consumed);
            match step.event {
                Event::NeedMore => {
                    assert!(self.pending.is_empty(), "NeedMore with input left");
                    return;
                }
                Event::Head { stream, .. } | Event::Refused { stream, .. } => {
                    assert!(!self.known.contains(&stream), "a second head");
                    self.known.push(stream);
                }
                Event::Data { stream, range, .. } => {
                    assert!(self.known.contains(&stream));
                    self.held.push((stream, range.len()));
                }
                Event::Reset { stream, .. } if stream.get() % 4 == 1 => {
                    self.connection.forget(stream);
                }
                _ => {}
            }
        }
    }

    /// Checks that the output is whole frames of valid sizes, and that little memory is held.
    fn check(&mut self) {
        let mut rest = &self.out[..];
        while let Some((header, after)) = rest.split_first_chunk::<9>() {
            let len = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
            assert!(len <= 16_384 && header[3] <= 9);
            rest = after.get(len..).expect("a whole frame");
        }
        assert!(rest.is_empty());
        self.out.clear();
        assert!(self.connection.stream_count() <= 100);
        assert!(self.connection.memory() < 200 << 10);
        let held: usize = self.held.iter().map(|(_, len)| len).sum();
        assert!(self.connection.held() >= held || self.failed);
        assert!(self.connection.held() <= 2 << 20);
    }
}
