//! Any operations on both ends of HTTP/3: streams in pieces and in any order, resets, commands. Nothing
//! panics, `NeedMore` leaves nothing behind, and memory stays bounded.
#![no_main]

use std::collections::BTreeMap;
use std::time::Duration;

use arbitrary::Arbitrary;
use blitz_proto::h3::{Code, Connection, Event, Received, StreamId};
use blitz_proto::{BodyLength, Limits, Method, RequestHead, ResponseHead, Status};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
enum Operation<'a> {
    Bytes(u8, &'a [u8], bool),
    Reset(u8, u16),
    Stopped(u8, u16),
    Head(u8, u16),
    Content(u8, u8, bool),
    End(u8),
    Forget(u8),
    Drain(bool),
    /// The connection's own streams are sent.
    Send,
}

/// Streams that the operations name.
const STREAMS: u8 = 32;

fuzz_target!(|input: (bool, Vec<Operation<'_>>)| {
    let (is_server, operations) = input;
    let limits = Limits::default();
    let mut end = match is_server {
        true => End::new(Connection::server(&limits), is_server),
        false => End::new(Connection::client(&limits), is_server),
    };
    for operation in operations {
        if end.apply(operation).is_err() {
            return;
        }
        assert!(end.machine.memory() < 2 << 20);
    }
});

struct End {
    machine: Connection,
    is_server: bool,
    /// Input that was not consumed, and whether it has ended.
    input: BTreeMap<u64, (Vec<u8>, bool)>,
    received: Received,
    out: Vec<u8>,
}

impl End {
    fn new(mut machine: Connection, is_server: bool) -> End {
        let mut out = Vec::new();
        if !is_server {
            let requests = [
                (Method::Get, "/"),
                (Method::Head, "/"),
                (Method::Connect, "a:443"),
            ];
            for (number, (method, target)) in requests.into_iter().enumerate() {
                let mut head = RequestHead::new(method, target);
                head.set_authority("a");
                let stream = StreamId::new(number as u64 * 4);
                machine.send_request(stream, &head, BodyLength::Known(3), &mut out);
            }
        }
        End {
            machine,
            is_server,
            input: BTreeMap::new(),
            received: Received::default(),
            out,
        }
    }

    /// An error if the connection has failed.
    fn apply(&mut self, operation: Operation<'_>) -> Result<(), ()> {
        self.out.clear();
        let id = |number: u8| StreamId::new(u64::from(number % STREAMS));
        let code = |code: u16| Code(u64::from(code));
        let now = Duration::ZERO;
        match operation {
            Operation::Bytes(stream, bytes, has_fin) => self.present(id(stream), bytes, has_fin)?,
            Operation::Reset(stream, why) => {
                let handled = self.machine.handle_reset(id(stream), code(why), now);
                handled.map_err(drop)?;
                self.input.entry(id(stream).get()).or_default().1 = true;
            }
            Operation::Stopped(stream, why) => {
                let handled = self.machine.handle_stopped(id(stream), code(why), now);
                handled.map_err(drop)?;
            }
            Operation::Head(stream, status) => {
                let stream = id(stream);
                let Some(status) = Status::new(200 + status % 400) else {
                    return Ok(());
                };
                if self.is_server && !self.machine.response_started(stream) {
                    let head = ResponseHead {
                        status,
                        ..ResponseHead::default()
                    };
                    self.machine
                        .send_head(stream, &head, BodyLength::Unknown, &mut self.out);
                }
            }
            Operation::Content(stream, len, is_last) => {
                let sent = self
                    .machine
                    .send_data(id(stream), len.into(), is_last, &mut self.out);
                let _ = sent;
            }
            Operation::End(stream) => {
                let _ = self.machine.send_end(id(stream), None, &mut self.out);
            }
            Operation::Forget(stream) => self.machine.forget(id(stream)),
            Operation::Drain(false) => self.machine.drain(),
            Operation::Drain(true) => self.machine.drain_now(),
            Operation::Send => {
                self.machine.control_output().clear();
                self.machine.decoder_output().clear();
            }
        }
        Ok(())
    }

    fn present(&mut self, stream: StreamId, bytes: &[u8], has_fin: bool) -> Result<(), ()> {
        let is_new = !self.input.contains_key(&stream.get());
        let (input, has_ended) = self.input.entry(stream.get()).or_default();
        if *has_ended {
            return Ok(());
        }
        input.extend_from_slice(bytes);
        *has_ended = has_fin;
        let is_peers = self.is_server || !stream.is_request();
        if is_new && is_peers && self.machine.handle_opened(stream).is_err() {
            return Ok(());
        }
        self.run(stream)?;
        while let Some(unblocked) = self.machine.next_unblocked() {
            self.run(unblocked)?;
        }
        Ok(())
    }

    fn run(&mut self, stream: StreamId) -> Result<(), ()> {
        let Some((input, has_fin)) = self.input.get_mut(&stream.get()) else {
            return Ok(());
        };
        loop {
            let now = Duration::ZERO;
            let step = self
                .machine
                .handle_input(stream, input, *has_fin, now, &mut self.received);
            let step = step.map_err(drop)?;
            if let Event::Data { range, .. } = &step.event {
                assert!(range.end <= step.consumed);
            }
            input.drain(..step.consumed);
            match step.event {
                Event::NeedMore => {
                    assert!(input.is_empty());
                    return Ok(());
                }
                Event::Blocked => return Ok(()),
                _ => {}
            }
        }
    }
}
