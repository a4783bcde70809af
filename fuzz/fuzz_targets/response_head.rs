//! Any bytes as responses: the outcome must not depend on how the bytes are cut, and a connection with
//! surplus bytes must not be reusable.
#![no_main]

use blitz_proto::h1::{Client, Event};
use blitz_proto::{BodyLength, Fields, Limits, Method, Name, RequestHead, ResponseHead};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (kind, piece, bytes) = input;
    let whole = outcome(kind, bytes, bytes.len().max(1));
    assert_eq!(outcome(kind, bytes, usize::from(piece) + 1), whole);
});

#[derive(Debug, Default, PartialEq)]
struct Outcome {
    heads: Vec<(u16, Vec<(String, Vec<u8>)>, Option<BodyLength>)>,
    content: Vec<u8>,
    ends: usize,
    refused: Option<&'static str>,
    reusable: bool,
}

fn request(kind: u8) -> RequestHead {
    match kind % 4 {
        0 => RequestHead::new(Method::Head, "/"),
        1 => RequestHead::new(Method::Connect, "a:443"),
        2 => {
            let mut head = RequestHead::new(Method::Get, "/");
            head.fields.append(Name::Upgrade, "websocket");
            head
        }
        _ => RequestHead::new(Method::Get, "/"),
    }
}

fn outcome(kind: u8, bytes: &[u8], piece: usize) -> Outcome {
    let mut client = Client::new(&Limits::default());
    client.send_request(&request(kind), BodyLength::Empty, &mut Vec::new());
    client
        .send_end(None, &mut Vec::new())
        .expect("an empty request is complete");
    let (mut head, mut trailers) = (ResponseHead::default(), Fields::new());
    let (mut seen, mut pending) = (Outcome::default(), Vec::new());
    'pieces: for piece in bytes.chunks(piece) {
        pending.extend_from_slice(piece);
        loop {
            let step = match client.handle_input(&pending, &mut head, &mut trailers) {
                Ok(step) => step,
                Err(error) => {
                    assert!(!client.reusable());
                    seen.refused = Some(error.rule());
                    break 'pieces;
                }
            };
            match step.event {
                Event::NeedMore | Event::Paused => {
                    pending.drain(..step.consumed);
                    break;
                }
                Event::Head(length) => {
                    let fields = &head.fields;
                    let lines = fields
                        .iter()
                        .map(|(n, v)| (n.as_str().to_owned(), v.to_vec()));
                    seen.heads
                        .push((head.status.code(), lines.collect(), Some(length)));
                }
                Event::Data(range) => seen.content.extend_from_slice(&pending[range]),
                Event::Trailers => assert!(!trailers.is_empty()),
                Event::End => {
                    seen.ends += 1;
                    let is_surplus = step.consumed < pending.len();
                    assert!(
                        !(is_surplus && client.reusable()),
                        "a connection with surplus bytes is reusable"
                    );
                }
            }
            pending.drain(..step.consumed);
        }
    }
    seen.reusable = client.reusable();
    assert!(!seen.reusable || (seen.ends == 1 && pending.is_empty()));
    seen
}
