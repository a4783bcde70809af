//! Any bytes as the output of a server, for a client with open requests: the events must not depend
//! on how the bytes are cut.
#![no_main]

use std::time::Duration;

use blitz_proto::h2::{Connection, Event, Received};
use blitz_proto::{BodyLength, Limits, Method, RequestHead};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    let whole = run(bytes, bytes.len().max(1));
    let pieces = run(bytes, usize::from(piece) + 1);
    assert_eq!(whole, pieces);
});

/// The events as text; consecutive content is joined.
fn run(bytes: &[u8], piece: usize) -> (Vec<String>, Vec<u8>) {
    let mut connection = Connection::client(&Limits::default(), true);
    let mut out = Vec::new();
    connection.start(&mut out);
    for method in [Method::Get, Method::Head, Method::Post] {
        let mut head = RequestHead::new(method, "/");
        head.set_authority("a");
        connection
            .send_request(&head, BodyLength::Known(3), &mut out)
            .expect("a free stream");
    }
    out.clear();
    let (mut received, mut pending, mut seen) = (Received::default(), Vec::new(), Seen::default());
    let settings: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
    for piece in std::iter::once(settings).chain(bytes.chunks(piece)) {
        pending.extend_from_slice(piece);
        loop {
            let step = connection.handle_input(&pending, Duration::ZERO, &mut received, &mut out);
            let step = match step {
                Ok(step) => step,
                Err(error) => {
                    seen.event(format!("failed {}", error.rule()));
                    seen.event(String::new());
                    return (seen.events, out);
                }
            };
            let content = match &step.event {
                Event::Data { range, .. } => pending[range.clone()].to_vec(),
                _ => Vec::new(),
            };
            pending.drain(..step.consumed);
            match step.event {
                Event::NeedMore => break,
                Event::Data { stream, end, .. } => {
                    seen.content.push((stream.get(), content));
                    if end {
                        seen.event(format!("{stream} end"));
                    }
                }
                Event::Head { .. } => {
                    seen.event(format!("{:?} {:?}", step.event, received.response))
                }
                Event::Trailers { .. } => {
                    seen.event(format!("{:?} {:?}", step.event, received.trailers))
                }
                event => seen.event(format!("{event:?}")),
            }
        }
    }
    seen.event(String::new());
    (seen.events, out)
}

#[derive(Default)]
struct Seen {
    events: Vec<String>,
    content: Vec<(u32, Vec<u8>)>,
}

impl Seen {
    fn event(&mut self, text: String) {
        let mut joined: Vec<(u32, Vec<u8>)> = Vec::new();
        for (stream, bytes) in std::mem::take(&mut self.content) {
            match joined.last_mut() {
                Some((last, all)) if *last == stream => all.extend_from_slice(&bytes),
                _ => joined.push((stream, bytes)),
            }
        }
        self.events
            .extend(joined.iter().map(|content| format!("{content:?}")));
        self.events.push(text);
    }
}
