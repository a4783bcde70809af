//! Each machine parses the output of the other, in pieces of any size.

use blitz_proto::h1::{Client, Event, Server};
use blitz_proto::{BodyLength, Fields, Limits, Method, Name, RequestHead, ResponseHead, Status};
use proptest::prelude::*;

/// A received message: content, trailers, and whether it is complete.
#[derive(Debug, Default, PartialEq)]
struct Received {
    head: Vec<(String, Vec<u8>)>,
    content: Vec<u8>,
    trailers: Vec<(String, Vec<u8>)>,
    ended: bool,
}

fn lines(fields: &Fields) -> Vec<(String, Vec<u8>)> {
    fields
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), value.to_vec()))
        .collect()
}

/// Cuts `bytes` into pieces of the given lengths, repeated as often as needed.
fn pieces<'a>(bytes: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let mut rest = bytes;
    let mut pieces = Vec::new();
    for length in lengths.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at((*length).min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

/// Passes pieces to `step`, a machine's `handle_input`, and collects its events.
fn receive(
    pieces: &[&[u8]],
    mut step: impl FnMut(&[u8], &mut Received) -> (usize, Event),
) -> Received {
    let mut received = Received::default();
    let mut pending: Vec<u8> = Vec::new();
    for piece in pieces {
        pending.extend_from_slice(piece);
        loop {
            let (consumed, event) = step(&pending, &mut received);
            if let Event::Data(range) = &event {
                received.content.extend_from_slice(&pending[range.clone()]);
            }
            pending.drain(..consumed);
            match event {
                Event::NeedMore | Event::Paused => break,
                Event::End => {
                    received.ended = true;
                    break;
                }
                _ => {}
            }
        }
    }
    assert!(pending.is_empty());
    received
}

fn name() -> impl Strategy<Value = String> {
    // Never the name of a framing field, since the encoder generates those.
    "x-[a-z0-9!#$%&'*+.^_`|~-]{0,20}"
}

fn value() -> impl Strategy<Value = String> {
    "([!-~\u{e9}]([ \t!-~]{0,30}[!-~])?)?"
}

fn fields() -> impl Strategy<Value = Vec<(String, String)>> {
    prop::collection::vec((name(), value()), 0..8)
}

fn filled(pairs: &[(String, String)]) -> Fields {
    let mut fields = Fields::new();
    for (name, value) in pairs {
        fields
            .try_append(name.as_str(), value)
            .expect("generated fields are valid");
    }
    fields
}

fn expected(pairs: &[(String, String)]) -> Vec<(String, Vec<u8>)> {
    pairs
        .iter()
        .map(|(name, value)| (name.clone(), value.clone().into_bytes()))
        .collect()
}

proptest! {
    #[test]
    fn chunked_responses_arrive_as_they_were_sent(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..8),
        trailers in fields(),
        lengths in prop::collection::vec(1..40_usize, 1..6),
    ) {
        let mut server = Server::new(&Limits::default());
        let (mut head, mut none) = (RequestHead::default(), Fields::new());
        let get = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let step = server.handle_input(get, &mut head, &mut none).expect("a good request");
        prop_assert_eq!(step.event, Event::Head(BodyLength::Empty));

        let mut wire = Vec::new();
        server.send_head(&ResponseHead::default(), BodyLength::Unknown, &mut wire);
        for chunk in &chunks {
            server.send_data_prefix(chunk.len(), &mut wire).expect("chunks have no end");
            wire.extend_from_slice(chunk);
            server.send_data_suffix(&mut wire);
        }
        server.send_end(Some(&filled(&trailers)), &mut wire).expect("chunks may end");

        let mut client = Client::new(&Limits::default());
        client.send_request(&head, BodyLength::Empty, &mut Vec::new());
        client.send_end(None, &mut Vec::new()).expect("nothing is missing");
        let (mut head, mut fields) = (ResponseHead::default(), Fields::new());
        let received = receive(&pieces(&wire, &lengths), |input, received| {
            let step = client.handle_input(input, &mut head, &mut fields).expect("our own bytes");
            if step.event == Event::Trailers {
                received.trailers = lines(&fields);
            }
            (step.consumed, step.event)
        });
        prop_assert!(received.ended && client.reusable());
        prop_assert_eq!(received.content, chunks.concat());
        prop_assert_eq!(received.trailers, expected(&trailers));
    }

    #[test]
    fn requests_arrive_as_they_were_sent(
        method in "[A-Z]{1,12}",
        path in "(/[a-zA-Z0-9_~:@!$&'()*+,;=-]{0,10}){1,5}",
        query in prop::option::of("[a-z0-9/?=&%\\[\\]]{0,20}"),
        host in "[a-z0-9]([a-z0-9.-]{0,20})?(:[0-9]{1,4})?",
        pairs in fields(),
        content in prop::option::of(prop::collection::vec(any::<u8>(), 0..100)),
        lengths in prop::collection::vec(1..60_usize, 1..6),
    ) {
        prop_assume!(method != "CONNECT");
        let target = query.as_ref().map_or(path.clone(), |query| format!("{path}?{query}"));
        let mut request = RequestHead::parse(&method, &target).expect("a good request line");
        request.set_authority(&host);
        request.fields = filled(&pairs);
        let declared = content.as_ref().map(|content| BodyLength::Known(content.len() as u64));

        let mut wire = Vec::new();
        let mut client = Client::new(&Limits::default());
        client.send_request(&request, declared.unwrap_or(BodyLength::Empty), &mut wire);
        if let Some(content) = &content {
            client.send_data_prefix(content.len(), &mut wire).expect("as declared");
            wire.extend_from_slice(content);
            client.send_data_suffix(&mut wire);
        }
        client.send_end(None, &mut wire).expect("as declared");

        let mut server = Server::new(&Limits::default());
        let (mut head, mut fields) = (RequestHead::default(), Fields::new());
        let received = receive(&pieces(&wire, &lengths), |input, _| {
            let step = server.handle_input(input, &mut head, &mut fields).expect("our own bytes");
            (step.consumed, step.event)
        });
        prop_assert!(received.ended);
        prop_assert_eq!(received.content, content.unwrap_or_default());
        prop_assert_eq!(head.method_str(), method);
        prop_assert_eq!(head.path_and_query(), target);
        prop_assert_eq!(head.authority(), Some(host.as_str()));
        head.fields.retain(|name, _| name.known() == Name::Other);
        prop_assert_eq!(lines(&head.fields), expected(&pairs));
    }

    #[test]
    fn response_heads_arrive_as_they_were_sent(
        code in 200..1000_u16,
        pairs in fields(),
        length in prop::option::of(any::<u32>()),
    ) {
        let mut response = ResponseHead::new(Status::new(code).expect("three digits"));
        response.fields = filled(&pairs);
        let length = length.map_or(BodyLength::Unknown, |length| BodyLength::Known(length.into()));
        let mut server = Server::new(&Limits::default());
        let (mut head, mut none) = (RequestHead::default(), Fields::new());
        let raw = b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n";
        server.handle_input(raw, &mut head, &mut none).expect("a good request");
        let mut wire = Vec::new();
        server.send_head(&response, length, &mut wire);

        let mut client = Client::new(&Limits::default());
        client.send_request(&RequestHead::new(Method::Head, "/"), BodyLength::Empty, &mut vec![]);
        let mut received = ResponseHead::default();
        let step = client.handle_input(&wire, &mut received, &mut none).expect("our own bytes");
        prop_assert_eq!(step.consumed, wire.len());
        prop_assert_eq!(received.status, response.status);
        if !matches!(code, 204 | 304) {
            prop_assert_eq!(step.event, Event::Head(length));
        }
        received.fields.retain(|name, _| name.known() == Name::Other);
        prop_assert_eq!(lines(&received.fields), expected(&pairs));
    }

    #[test]
    fn no_input_causes_a_panic(
        bytes in prop::collection::vec(prop_oneof![
            any::<u8>(),
            prop::sample::select(&b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n"[..]),
        ], 0..200),
    ) {
        let mut server = Server::new(&Limits::default());
        let (mut head, mut trailers) = (RequestHead::default(), Fields::new());
        let mut rest = &bytes[..];
        while let Ok(step) = server.handle_input(rest, &mut head, &mut trailers) {
            rest = &rest[step.consumed..];
            if matches!(step.event, Event::NeedMore | Event::Paused) {
                break;
            }
        }
    }
}
