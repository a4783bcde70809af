//! Any bytes as requests: the events must not depend on how the bytes are cut, and a forwarded request
//! must be parsed as the received one.
#![no_main]

use blitz_proto::h1::{Client, Event, Server};
use blitz_proto::{BodyLength, Error, Fields, Limits, RequestHead, ResponseHead};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    let whole = transcript(bytes, bytes.len().max(1));
    assert_eq!(transcript(bytes, usize::from(piece) + 1), whole);
});

/// Events with all their values; consecutive data counts as one.
#[derive(Debug, PartialEq)]
enum Seen {
    Head(String, Vec<(String, Vec<u8>)>, BodyLength),
    Data(Vec<u8>),
    Trailers(Vec<(String, Vec<u8>)>),
    End,
    Refused(&'static str),
}

fn transcript(bytes: &[u8], piece: usize) -> Vec<Seen> {
    let mut server = Server::new(&Limits::default());
    let (mut head, mut trailers) = (RequestHead::default(), Fields::new());
    let (mut all, mut pending) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(piece) {
        pending.extend_from_slice(piece);
        match drain(
            &mut server,
            &mut pending,
            &mut head,
            &mut trailers,
            &mut all,
        ) {
            Ok(()) => {}
            Err(error) => {
                all.push(Seen::Refused(error.rule()));
                break;
            }
        }
    }
    all
}

fn drain(
    server: &mut Server,
    pending: &mut Vec<u8>,
    head: &mut RequestHead,
    trailers: &mut Fields,
    all: &mut Vec<Seen>,
) -> Result<(), Error> {
    loop {
        let step = server.handle_input(pending, head, trailers)?;
        match step.event {
            Event::NeedMore | Event::Paused => {
                pending.drain(..step.consumed);
                return Ok(());
            }
            Event::Head(length) => {
                check_forwarding(head, length);
                let target = format!("{} {}", head.method_str(), head.path_and_query());
                all.push(Seen::Head(target, lines(&head.fields), length));
            }
            Event::Data(range) => match all.last_mut() {
                Some(Seen::Data(data)) => data.extend_from_slice(&pending[range]),
                _ => all.push(Seen::Data(pending[range].to_vec())),
            },
            Event::Trailers => all.push(Seen::Trailers(lines(trailers))),
            Event::End => {
                all.push(Seen::End);
                if !server.upgrade_requested() {
                    let mut out = Vec::new();
                    server.send_head(&ResponseHead::default(), BodyLength::Empty, &mut out);
                    server
                        .send_end(None, &mut out)
                        .expect("an empty response is complete");
                }
            }
        }
        pending.drain(..step.consumed);
    }
}

/// Checks that the encoded form of an accepted head is accepted and parsed in the same way.
fn check_forwarding(head: &RequestHead, length: BodyLength) {
    let is_raw = |byte: &u8| !byte.is_ascii_graphic() || b"\"<>^`{|}\\#".contains(byte);
    assert!(!head.path_and_query().as_bytes().iter().any(is_raw));
    let mut wire = Vec::new();
    Client::new(&Limits::default()).send_request(head, length, &mut wire);
    // The encoder may lengthen names to their canonical spelling and add framing fields.
    let limits = Limits {
        head_bytes_max: 1 << 20,
        fields_max: 200,
        ..Limits::default()
    };
    let mut again = RequestHead::default();
    let mut none = Fields::new();
    let step = Server::new(&limits).handle_input(&wire, &mut again, &mut none);
    let step = step.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&wire)));
    assert_eq!(step.consumed, wire.len());
    assert_eq!(again.method_str(), head.method_str());
    assert_eq!(again.path_and_query(), head.path_and_query());
    assert_eq!(
        again.authority().unwrap_or(""),
        head.authority().unwrap_or("")
    );
}

fn lines(fields: &Fields) -> Vec<(String, Vec<u8>)> {
    fields
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), value.to_vec()))
        .collect()
}
