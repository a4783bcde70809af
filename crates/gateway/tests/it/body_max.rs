//! Content beyond `body_bytes_max` is rejected, whether its length is declared or not.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use blitz_gateway::{Options, Rejection};
use blitz_http::{BodyLength, Fields, IoChoice, Method, Name, RequestHead, ResponseHead, Status};
use blitz_proto::h2::Code;
use blitz_testing::{H1Peer, Response};

use crate::h2::{H2Upstream, h2, result_of};
use crate::support::{Proxy, Upstream, ok};

const MAX: usize = 100_000;

/// More than all buffers on the way hold.
const LARGE: usize = 12 << 20;

const CHUNK: usize = 1 << 16;

fn limited() -> Options {
    Options {
        body_bytes_max: Some(MAX as u64),
        ..Options::default()
    }
}

fn with_limit(io: IoChoice, target: &str) -> Proxy {
    Proxy::with(io, &[target], limited())
}

/// Upstreams of each version that respond with the number of bytes, and report whether the content
/// was complete.
fn counting_upstreams() -> ([String; 2], Receiver<bool>) {
    let (sender, receiver) = channel();
    let over_http1 = counting_over_http1(sender.clone());
    (
        [over_http1.url(), counting_over_http2(sender).url],
        receiver,
    )
}

fn counting_over_http1(is_complete: Sender<bool>) -> Upstream {
    Upstream::scripted(move |_, peer| {
        while let Some(head) = peer.head() {
            let length = head.field("content-length");
            let length = length.map_or(0, |length| length.parse().unwrap());
            let body = match head.field("transfer-encoding") {
                Some(_) => peer.chunks(),
                None => peer.exactly(length),
            };
            let _ = is_complete.send(body.is_some());
            let Some(body) = body else { return };
            peer.send(ok(&body.len().to_string()));
        }
    })
}

fn counting_over_http2(is_complete: Sender<bool>) -> H2Upstream {
    H2Upstream::scripted(move |_, mut peer| {
        while let Some((stream, request)) = peer.request() {
            let _ = is_complete.send(request.is_complete);
            if request.is_complete {
                peer.answer(stream, Status::OK, &request.content.len().to_string());
            }
        }
    })
}

fn chunked(bytes: usize) -> Vec<u8> {
    let mut request = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    let mut left = bytes;
    while left > 0 {
        let chunk = left.min(CHUNK);
        request.extend(format!("{chunk:x}\r\n").into_bytes());
        request.resize(request.len() + chunk, b'x');
        request.extend(b"\r\n");
        left -= chunk;
    }
    request.extend(b"0\r\n\r\n");
    request
}

fn declared(bytes: usize) -> Vec<u8> {
    let mut request =
        format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n").into_bytes();
    request.resize(request.len() + bytes, b'x');
    request
}

fn is_rejection(answer: &Response) -> bool {
    let text = answer.text();
    answer.status == 413 && text.contains("the content is larger than this server accepts")
}

/// The number of the status of a gRPC call, or the content of the response. Content with a declared
/// length is never sent.
fn call(proxy: &Proxy, content_type: &str, content: &[u8], length: BodyLength) -> String {
    let mut head = RequestHead::new(Method::Post, "/s/m");
    head.set_authority("a");
    head.fields.append(Name::ContentType, content_type);
    let mut client = h2(proxy);
    let stream = client.send_head(&head, length);
    if length == BodyLength::Unknown {
        client.send(stream, content, true);
    }
    let answer = client.answer(stream);
    assert_eq!(answer.status, Some(Status::OK), "{answer:?}");
    let status = answer.fields.get_str("grpc-status").map(str::to_owned);
    status.unwrap_or_else(|| String::from_utf8_lossy(&answer.content).into_owned())
}

/// A response that begins before the content of its request ends.
fn begin_early(peer: &mut H1Peer) {
    while peer.head().is_some() {
        peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nearly\r\n");
        if peer.chunks().is_none() {
            return;
        }
        peer.send("0\r\n\r\n");
    }
}

scenarios! {
    fn content_of_exactly_the_limit_passes(io) {
        let (targets, is_complete) = counting_upstreams();
        for target in targets {
            let proxy = with_limit(io, &target);
            let mut client = proxy.client();
            for request in [declared(MAX), chunked(MAX)] {
                client.send(request);
                let answer = client.response();
                assert_eq!((answer.status, answer.text()), (200, "100000"));
            }
            let mut client = h2(&proxy);
            for length in [BodyLength::Known(MAX as u64), BodyLength::Unknown] {
                let stream = client.request(Method::Post, "/", length);
                client.send(stream, &vec![b'x'; MAX], true);
                assert_eq!(client.answer(stream).content, b"100000");
            }
            assert!((0..4).all(|_| result_of(&is_complete)));
            assert_eq!(proxy.counters().rejected(Rejection::ContentTooLarge), 0);
        }
    }

    fn a_declared_length_beyond_the_limit_is_rejected_without_the_upstream(io) {
        let upstream = Upstream::with_text("never");
        let proxy = with_limit(io, &upstream.url());
        // The client sends everything before it reads.
        for bytes in [MAX + 1, LARGE] {
            let mut client = proxy.client();
            client.send(declared(bytes));
            let answer = client.response();
            assert!(is_rejection(&answer), "{answer:?}");
        }
        let mut client = proxy.client();
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {LARGE}\r\n");
        client.send(head + "Expect: 100-continue\r\n\r\n");
        assert!(is_rejection(&client.response()), "there is no 100 before");
        let mut client = h2(&proxy);
        let stream = client.request(Method::Post, "/", BodyLength::Known(LARGE as u64));
        let answer = client.answer(stream);
        assert_eq!((answer.status, answer.reset), (Some(Status::CONTENT_TOO_LARGE), None));
        assert_eq!(upstream.accepted(), 0);
        assert_eq!(proxy.counters().rejected(Rejection::ContentTooLarge), 4);
    }

    fn streamed_content_beyond_the_limit_is_rejected_and_never_complete_for_the_upstream(io) {
        let (targets, is_complete) = counting_upstreams();
        for target in targets {
            let proxy = with_limit(io, &target);
            for bytes in [MAX + 1, LARGE] {
                let mut client = proxy.client();
                client.send(chunked(bytes));
                let answer = client.response();
                assert!(is_rejection(&answer), "{answer:?}");
                assert!(!result_of(&is_complete), "{target}");
                // The rest was discarded, and the connection is as good as before.
                client.send(chunked(MAX));
                assert_eq!(client.response().text(), "100000");
                assert!(result_of(&is_complete));
            }
            let mut client = h2(&proxy);
            let stream = client.request(Method::Post, "/", BodyLength::Unknown);
            client.send(stream, &vec![b'x'; MAX + 1], false);
            let answer = client.answer(stream);
            assert_eq!((answer.status, answer.reset), (Some(Status::CONTENT_TOO_LARGE), None));
            assert!(!result_of(&is_complete), "{target}");
            let stream = client.request(Method::Post, "/", BodyLength::Unknown);
            client.send(stream, &[b'x'; MAX], true);
            assert_eq!(client.answer(stream).content, b"100000");
            assert!(result_of(&is_complete));
            assert_eq!((proxy.counters().rejected(Rejection::ContentTooLarge), proxy.counters().retries), (3, 0));
        }
    }

    fn a_client_of_http2_that_sends_on_gets_the_rejection_before_the_reset(io) {
        let (targets, _) = counting_upstreams();
        let proxy = with_limit(io, &targets[0]);
        let mut client = h2(&proxy);
        let stream = client.request(Method::Post, "/", BodyLength::Unknown);
        let piece = vec![b'x'; CHUNK];
        let mut answer = client.until(stream, |_| true);
        let mut answered = None;
        while answer.reset.is_none() {
            let sent = client.machine.send_data(stream, piece.len(), false, &mut client.out).unwrap();
            client.out.extend(&piece[..sent]);
            client.flush();
            if sent == 0 {
                client.machine.mark_ready(stream);
                assert!(client.receive(), "the window opens, or the stream is reset");
            }
            answer = client.until(stream, |_| true);
            if answer.is_complete {
                answered.get_or_insert_with(Instant::now);
            }
        }
        // Some clients do not see a response with a reset directly behind it. This one is silent when it has no more
        // credit.
        let answered = answered.expect("the response is complete").elapsed();
        assert!(answered > Duration::from_millis(400), "{answered:?}");
        assert_eq!(answer.status, Some(Status::CONTENT_TOO_LARGE));
        assert_eq!(answer.reset, Some(Code::NO_ERROR));
    }

    fn content_that_exceeds_the_limit_within_the_response_cuts_it_off(io) {
        let upstream = Upstream::scripted(|_, peer| begin_early(peer));
        let proxy = with_limit(io, &upstream.url());
        let mut peer = proxy.peer();
        let request = chunked(MAX + 1);
        let (begin, end) = request.split_at(MAX);
        peer.send(begin);
        assert_eq!(peer.head().unwrap().line, "HTTP/1.1 200 OK");
        assert_eq!(peer.exactly(10).unwrap(), b"5\r\nearly\r\n");
        peer.send(end);
        assert!(peer.rest().0.is_empty());
        let mut client = h2(&proxy);
        let stream = client.request(Method::Post, "/", BodyLength::Unknown);
        client.send(stream, &[b'x'; MAX], false);
        client.until(stream, |answer| answer.content == b"early");
        client.send(stream, b"x", true);
        let answer = client.answer(stream);
        assert!(answer.reset.is_some() && !answer.is_complete, "{answer:?}");
        crate::support::eventually("both are counted", || proxy.counters().cut_off == 2);
    }

    fn calls_beyond_the_limit_have_exhausted_a_resource(io) {
        let upstream = H2Upstream::scripted(|_, mut peer| {
            while let Some((stream, request)) = peer.request() {
                if !request.is_complete {
                    continue;
                }
                peer.start(stream, &ResponseHead::new(Status::OK), BodyLength::Unknown);
                let mut trailers = Fields::new();
                trailers.append("grpc-status", "0");
                peer.finish(stream, Some(&trailers));
            }
        });
        let proxy = with_limit(io, &upstream.url);
        let content = vec![0; MAX + 1];
        let declared = BodyLength::Known(content.len() as u64);
        for length in [BodyLength::Unknown, declared] {
            assert_eq!(call(&proxy, "application/grpc", &content, length), "8");
            let web = call(&proxy, "application/grpc-web", &content, length);
            assert!(web.contains("grpc-status:8"), "{web}");
        }
        // The client's bytes count: base64 of less than the limit is more.
        let text = "AAAA".repeat(MAX / 4 + 1);
        let web = call(&proxy, "application/grpc-web-text", text.as_bytes(), BodyLength::Unknown);
        assert!(!web.is_empty() && proxy.counters().rejected(Rejection::ContentTooLarge) == 5, "{web}");
        let text = "AAAA".repeat(MAX / 4);
        call(&proxy, "application/grpc-web-text", text.as_bytes(), BodyLength::Unknown);
        assert_eq!(proxy.counters().rejected(Rejection::ContentTooLarge), 5);
    }

    fn a_call_beyond_the_limit_whose_response_has_begun_ends_with_its_status(io) {
        let upstream = H2Upstream::scripted(|_, mut peer| {
            while let Some((stream, _)) = peer.next() {
                peer.start(stream, &ResponseHead::new(Status::OK), BodyLength::Unknown);
                peer.send(stream, b"early", false);
                peer.until(stream, |request| request.reset.is_some());
            }
        });
        let proxy = with_limit(io, &upstream.url);
        let mut head = RequestHead::new(Method::Post, "/s/m");
        head.set_authority("a");
        head.fields.append(Name::ContentType, "application/grpc");
        let mut client = h2(&proxy);
        let stream = client.send_head(&head, BodyLength::Unknown);
        client.send(stream, &[0; MAX], false);
        client.until(stream, |answer| answer.content == b"early");
        client.send(stream, &[0], false);
        let trailers = client.answer(stream).trailers.unwrap();
        assert_eq!(trailers.get_str("grpc-status"), Some("8"));
    }

    fn content_that_is_sent_again_counts_once(io) {
        let upstream = Upstream::scripted(|number, peer| {
            let (_, body) = peer.request().unwrap();
            if number > 0 {
                peer.send(ok(&body.len().to_string()));
            }
        });
        let options = Options { body_bytes_max: Some(40_000), ..Options::default() };
        let proxy = Proxy::with(io, &[&upstream.url()], options);
        let mut client = proxy.client();
        client.send([b"PUT", &chunked(40_000)[4..]].concat());
        assert_eq!(client.response().text(), "40000");
        assert_eq!((proxy.counters().retries, proxy.counters().rejected(Rejection::ContentTooLarge)), (1, 0));
    }

    fn the_limit_holds_without_a_target(io) {
        let proxy = Proxy::with(io, &[], limited());
        let mut client = proxy.client();
        client.send(declared(MAX));
        assert_eq!(client.response().text(), "built in");
        let mut client = proxy.client();
        client.send(declared(LARGE));
        assert!(is_rejection(&client.response()));
    }

    fn tunnels_have_no_limit(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.head();
            peer.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
            assert!(peer.exactly(2 * MAX).is_some());
            peer.send("all");
        });
        let proxy = with_limit(io, &upstream.url());
        let mut peer = proxy.peer();
        peer.send(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
        );
        assert!(peer.head().unwrap().line.contains("101"));
        peer.send(vec![b'x'; 2 * MAX]);
        assert_eq!(peer.exactly(3).unwrap(), b"all");
    }

    fn a_slow_client_may_use_its_connection_after_the_rejection(io) {
        let (targets, _) = counting_upstreams();
        let proxy = with_limit(io, &targets[0]);
        let mut client = proxy.client();
        let request = chunked(2 * MAX);
        for piece in request.chunks(MAX / 2) {
            client.send(piece);
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(is_rejection(&client.response()));
        client.send(chunked(10));
        assert_eq!(client.response().text(), "10");
    }
}
