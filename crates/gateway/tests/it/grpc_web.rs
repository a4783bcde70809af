//! gRPC-Web calls at a gRPC upstream, and their responses at the client.

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use blitz_gateway::Options;
use blitz_http::{BodyLength, Fields, IoChoice, Method, Name, RequestHead, ResponseHead, Status};
use blitz_proto::h2::{Code, StreamId};
use blitz_testing::refusing_address;

use crate::h2::{H2Upstream, h2};
use crate::h2_peer::{H2Peer, ReceivedRequest};
use crate::support::{Proxy, Upstream};

/// A message of two bytes, as gRPC frames it, and in base64.
const MESSAGE: &[u8] = b"\0\0\0\0\x02hi";
const MESSAGE_TEXT: &str = "AAAAAAJoaQ==";

/// The frame after the messages of a successful call.
const STATUS_OK: &[u8] = b"\x80\0\0\0\x0fgrpc-status:0\r\n";

/// A request over HTTP/1.1 with this content.
fn post(content_type: &str, fields: &str, content: &str) -> String {
    let length = content.len();
    format!(
        "POST /s/m HTTP/1.1\r\nHost: a\r\nContent-Type: {content_type}\r\nX-Grpc-Web: 1\r\n\
         Content-Length: {length}\r\n{fields}\r\n{content}"
    )
}

/// Starts a response.
fn begin(peer: &mut H2Peer, stream: StreamId) {
    let mut head = ResponseHead::new(Status::OK);
    head.fields
        .append(Name::ContentType, "application/grpc+proto");
    peer.start(stream, &head, BodyLength::Unknown);
    peer.flush();
}

fn finish(peer: &mut H2Peer, stream: StreamId) {
    let mut trailers = Fields::new();
    trailers.append("grpc-status", "0");
    peer.finish(stream, Some(&trailers));
}

/// Echoes the message of each call and reports the call.
fn echo(sender: std::sync::mpsc::Sender<ReceivedRequest>) -> H2Upstream {
    let sender = Mutex::new(sender);
    H2Upstream::scripted(move |_, mut peer| {
        while let Some((stream, received)) = peer.request() {
            begin(&mut peer, stream);
            peer.send(stream, &received.content, false);
            finish(&mut peer, stream);
            let _ = sender.lock().unwrap().send(received);
        }
    })
}

/// The bytes of a sequence of base64 texts.
fn decoded(text: &[u8]) -> Vec<u8> {
    let value = |letter: u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => panic!("no letter of base64: {letter}"),
    };
    let quads = text.chunks(4).flat_map(|quad| {
        let letters: Vec<_> = quad.iter().filter(|&&letter| letter != b'=').collect();
        let bits = letters
            .iter()
            .fold(0_u32, |bits, letter| bits << 6 | u32::from(value(**letter)));
        let bits = bits << (6 * (4 - letters.len()));
        bits.to_be_bytes()[1..letters.len()].to_vec()
    });
    quads.collect()
}

/// The response to a call of an HTTP/1.1 client in this form.
fn response_of_call(
    io: IoChoice,
    to: &str,
    content_type: &str,
    fields: &str,
    content: &str,
) -> (String, Vec<u8>) {
    let proxy = Proxy::to(io, &[to]);
    let mut client = proxy.client();
    client.send(post(content_type, fields, content));
    let answer = client.response();
    assert_eq!(answer.status, 200);
    assert_eq!(answer.field("grpc-status"), None);
    let content_type = answer.field("content-type").unwrap_or_default().to_owned();
    (content_type, answer.body)
}

scenarios! {
    fn a_browser_is_redirected_to_https(io) {
        let to = format!("h2c://{}", refusing_address());
        let options = Options { redirect_https: true, ..Options::default() };
        let proxy = Proxy::with(io, &[&to], options);
        let mut client = proxy.client();
        client.send(post("application/grpc-web+proto", "", ""));
        let answer = client.response();
        assert_eq!((answer.status, answer.field("grpc-status")), (308, None));
        assert!(answer.field("location").unwrap().ends_with("/s/m"));
    }

    fn a_grpc_web_call_becomes_a_grpc_call(io) {
        let (sender, receiver) = channel();
        let upstream = echo(sender);
        let message = std::str::from_utf8(MESSAGE).unwrap();
        let (content_type, body) =
            response_of_call(io, &upstream.url, "application/grpc-web+proto", "grpc-timeout: 5S\r\n", message);
        assert_eq!(content_type, "application/grpc-web+proto");
        assert_eq!(body, [MESSAGE, STATUS_OK].concat());
        let received = receiver.recv().unwrap();
        let fields = &received.head.fields;
        assert_eq!(fields.get_str(Name::ContentType), Some("application/grpc+proto"));
        assert_eq!(fields.get_str(Name::Te), Some("trailers"));
        assert_eq!(fields.get_str("grpc-timeout"), Some("5S"));
        assert_eq!(fields.get_str("x-grpc-web"), None);
        assert_eq!(received.content, MESSAGE);
    }

    fn base64_is_decoded_and_encoded_piece_by_piece(io) {
        let (sender, receiver) = channel();
        let upstream = echo(sender);
        let two = [MESSAGE_TEXT, MESSAGE_TEXT].concat();
        let (content_type, body) =
            response_of_call(io, &upstream.url, "application/grpc-web-text", "", &two);
        assert_eq!(content_type, "application/grpc-web-text+proto");
        assert_eq!(decoded(&body), [MESSAGE, MESSAGE, STATUS_OK].concat());
        assert_eq!(receiver.recv().unwrap().content, [MESSAGE, MESSAGE].concat());
        // The response has the form that the client accepts.
        let accept = "Accept: application/grpc-web\r\n";
        let (content_type, body) =
            response_of_call(io, &upstream.url, "application/grpc-web-text", accept, MESSAGE_TEXT);
        assert_eq!(content_type, "application/grpc-web+proto");
        assert_eq!(body, [MESSAGE, STATUS_OK].concat());
        // Over HTTP/2, split at every byte.
        let proxy = Proxy::to(io, &[&upstream.url]);
        let mut client = h2(&proxy);
        let mut head = RequestHead::new(Method::Post, "/s/m");
        head.set_authority("a");
        head.fields.append(Name::ContentType, "application/grpc-web-text+proto");
        let stream = client.send_head(&head, BodyLength::Unknown);
        for piece in two.as_bytes().chunks(5) {
            client.send(stream, piece, false);
            thread::sleep(Duration::from_millis(5));
        }
        client.send(stream, b"", true);
        let answer = client.answer(stream);
        assert_eq!(decoded(&answer.content), [MESSAGE, MESSAGE, STATUS_OK].concat());
        assert!(answer.trailers.is_none());
    }

    fn a_response_is_forwarded_message_by_message(io) {
        let (sender, receiver) = channel::<()>();
        let receiver = Mutex::new(receiver);
        let upstream = H2Upstream::scripted(move |_, mut peer| {
            while let Some((stream, _)) = peer.request() {
                begin(&mut peer, stream);
                for _ in 0..3 {
                    peer.send(stream, MESSAGE, false);
                    // Nothing more is sent before the client has received it.
                    receiver.lock().unwrap().recv().unwrap();
                }
                finish(&mut peer, stream);
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        let mut peer = proxy.peer();
        peer.send(post("application/grpc-web-text", "", MESSAGE_TEXT));
        assert_eq!(peer.head().unwrap().field("transfer-encoding"), Some("chunked"));
        let size = format!("{:x}", MESSAGE_TEXT.len());
        for _ in 0..3 {
            assert_eq!(peer.line().as_ref(), Some(&size));
            assert_eq!(peer.line().as_deref(), Some(MESSAGE_TEXT));
            sender.send(()).unwrap();
        }
        assert_eq!(decoded(&peer.chunks().unwrap()), STATUS_OK);
    }

    fn a_response_without_messages_has_only_trailers(io) {
        let upstream = H2Upstream::scripted(|_, mut peer| {
            while let Some((stream, _)) = peer.request() {
                let mut only = ResponseHead::new(Status::OK);
                only.fields.append(Name::ContentType, "application/grpc");
                only.fields.append("grpc-status", "5");
                only.fields.append("x-other", "stays");
                only.fields.append("grpc-message", "no such thing");
                peer.start(stream, &only, BodyLength::Empty);
                peer.flush();
            }
        });
        let expected = b"\x80\0\0\0\x2bgrpc-status:5\r\ngrpc-message:no such thing\r\n";
        let (_, body) = response_of_call(io, &upstream.url, "application/grpc-web", "", "");
        assert_eq!(body, expected);
        let (_, body) = response_of_call(io, &upstream.url, "application/grpc-web-text", "", "");
        assert_eq!(decoded(&body), expected);
    }

    fn the_gateways_own_responses_are_a_trailers_frame(io) {
        let status = |to: &str, content_type: &str, fields: &str, content: &str| {
            let (_, body) = response_of_call(io, to, content_type, fields, content);
            let body = match content_type.contains("text") {
                true => decoded(&body),
                false => body,
            };
            assert_eq!(body[0], 0x80);
            let text = String::from_utf8(body[5..].to_vec()).unwrap();
            let status = text.strip_prefix("grpc-status:").unwrap();
            status.split_once("\r\ngrpc-message:").unwrap().0.to_owned()
        };
        let dead = format!("h2c://{}", refusing_address());
        assert_eq!(status(&dead, "application/grpc-web", "", ""), "14");
        assert_eq!(status(&dead, "application/grpc-web-text", "", ""), "14");
        assert_eq!(status(&format!("/x={dead}"), "application/grpc-web", "", ""), "12");
        let silent = H2Upstream::scripted(|_, mut peer| while peer.request().is_some() {});
        let deadline = "grpc-timeout: 50m\r\n";
        assert_eq!(status(&silent.url, "application/grpc-web-text", deadline, ""), "4");
        for wrong in ["AAA", "A?==", "AAAAAAJoaQ==x"] {
            assert_eq!(status(&silent.url, "application/grpc-web-text", "", wrong), "13");
        }
        // A response without a status is a failure.
        let mute = H2Upstream::scripted(|_, mut peer| {
            while let Some((stream, _)) = peer.request() {
                begin(&mut peer, stream);
                peer.finish(stream, None);
            }
        });
        assert_eq!(status(&mute.url, "application/grpc-web", "", ""), "2");
    }

    fn an_incomplete_response_ends_with_a_frame_only_between_messages(io) {
        let upstream = H2Upstream::scripted(|_, mut peer| {
            while let Some((stream, received)) = peer.request() {
                begin(&mut peer, stream);
                let sent = match received.head.fields.get_str("x-cut") {
                    Some(_) => &MESSAGE[..6],
                    None => MESSAGE,
                };
                peer.send(stream, sent, false);
                thread::sleep(Duration::from_millis(50));
                peer.reset(stream, Code::INTERNAL_ERROR);
            }
        });
        let (_, body) = response_of_call(io, &upstream.url, "application/grpc-web", "", "");
        assert!(body.starts_with(MESSAGE), "{body:?}");
        assert!(body[MESSAGE.len() + 5..].starts_with(b"grpc-status:14\r\n"), "{body:?}");
        let proxy = Proxy::to(io, &[&upstream.url]);
        let mut peer = proxy.peer();
        peer.send(post("application/grpc-web", "X-Cut: 1\r\n", ""));
        peer.head().unwrap();
        let (rest, _) = peer.rest();
        assert!(rest.ends_with(&MESSAGE[4..6]) || rest.ends_with(b"\x02h\r\n"), "{rest:?}");
    }

    fn responses_have_no_minimum_rate_but_requests_have(io) {
        let upstream = H2Upstream::scripted(|_, mut peer| {
            while let Some((stream, _)) = peer.next() {
                let received = peer.until(stream, |received| received.is_complete || received.reset.is_some());
                if received.is_complete {
                    thread::sleep(Duration::from_millis(300));
                    begin(&mut peer, stream);
                    finish(&mut peer, stream);
                }
            }
        });
        let mut options = Options::default();
        options.limits.body_rate_grace = Duration::from_millis(200);
        options.client.response_timeout = Duration::from_millis(200);
        let proxy = Proxy::with(io, &[&upstream.url], options);
        let mut client = proxy.client();
        client.send(post("application/grpc-web", "", ""));
        assert_eq!(client.response().body, STATUS_OK);
        let whole = post("application/grpc-web", "", "\0\0\0\0\x02hi");
        client.send(&whole[..whole.len() - 1]);
        assert_eq!(client.response().status, 408);
    }

    fn responses_other_than_grpc_are_not_translated(io) {
        // An HTTP/1.1 upstream has to support gRPC-Web itself.
        let upstream = Upstream::with_response(
            "HTTP/1.1 200 OK\r\nContent-Type: application/grpc-web-text\r\nContent-Length: 4\r\n\r\nAAAA",
        );
        let (content_type, body) =
            response_of_call(io, &upstream.url(), "application/grpc-web-text", "", MESSAGE_TEXT);
        assert_eq!((&*content_type, &*body), ("application/grpc-web-text", &b"AAAA"[..]));
        let head = upstream.head();
        assert_eq!(head.field("content-type"), Some("application/grpc-web-text"));
        assert_eq!((head.field("x-grpc-web"), head.field("te")), (Some("1"), None));
        // Other responses, and preflight requests of browsers, are forwarded unchanged.
        let upstream = H2Upstream::scripted(|_, mut peer| {
            while let Some((stream, received)) = peer.request() {
                let status = match received.head.method {
                    Method::Options => Status::NO_CONTENT,
                    _ => Status::FORBIDDEN,
                };
                peer.answer(stream, status, if status == Status::FORBIDDEN { "no" } else { "" });
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        let mut client = proxy.client();
        client.send(post("application/grpc-web", "", ""));
        let answer = client.response();
        assert_eq!((answer.status, answer.text()), (403, "no"));
        client.send("OPTIONS /s/m HTTP/1.1\r\nHost: a\r\nOrigin: http://b\r\n\r\n");
        assert_eq!(client.response().status, 204);
    }
}
