//! HTTP/2 with clients, with upstreams, and with both.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use blitz_http::{
    BodyLength, Fields, Limits, Method, Name, RequestHead, ResponseHead, Status, WebSocketKey,
};
use blitz_proto::h2::Code;
use blitz_testing::refusing_address;

use crate::h2_client::Client;
use crate::h2_peer::{H2Peer, ReceivedRequest};
use crate::support::{Proxy, Upstream, eventually, ok};

/// An HTTP/2 upstream that runs a script for each connection, with its number from 0.
pub(crate) struct H2Upstream {
    pub(crate) url: String,
    accepted: Arc<AtomicUsize>,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl H2Upstream {
    pub(crate) fn scripted(script: impl Fn(usize, H2Peer) + Send + Sync + 'static) -> H2Upstream {
        H2Upstream::scripted_with(&Limits::default(), script)
    }

    pub(crate) fn scripted_with(
        limits: &Limits,
        script: impl Fn(usize, H2Peer) + Send + Sync + 'static,
    ) -> H2Upstream {
        let limits = Arc::new(limits.clone());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("h2c://{}", listener.local_addr().unwrap());
        let accepted = Arc::new(AtomicUsize::new(0));
        let (script, counter) = (Arc::new(script), Arc::clone(&accepted));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let number = counter.fetch_add(1, Ordering::SeqCst);
                let (script, limits) = (Arc::clone(&script), Arc::clone(&limits));
                thread::spawn(move || script(number, H2Peer::over(stream, &limits)));
            }
        });
        H2Upstream {
            url,
            accepted,
            received: Arc::default(),
        }
    }

    /// Responds to each request with its method, path and content.
    fn echoing() -> H2Upstream {
        let received = Arc::<Mutex<Vec<ReceivedRequest>>>::default();
        let seen = Arc::clone(&received);
        let upstream = H2Upstream::scripted(move |_, mut peer| {
            while let Some((stream, received)) = peer.request() {
                let text = echo_of(&received);
                seen.lock().unwrap().push(received);
                peer.answer(stream, Status::OK, &text);
            }
        });
        H2Upstream {
            received,
            ..upstream
        }
    }

    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// The only request that it received.
    fn received(&self) -> ReceivedRequest {
        let received = self.received.lock().unwrap();
        assert_eq!(received.len(), 1, "{received:?}");
        received[0].clone()
    }
}

fn echo_of(received: &ReceivedRequest) -> String {
    let (method, path) = (received.head.method_str(), received.head.path_and_query());
    let content = String::from_utf8_lossy(&received.content);
    format!("{method} {path} {content}")
}

pub(crate) fn h2(proxy: &Proxy) -> Client {
    Client::connect(proxy.address)
}

fn names(fields: &Fields) -> Vec<String> {
    let name = |(name, _): (blitz_http::FieldName<'_>, _)| {
        String::from_utf8_lossy(name.as_bytes()).to_lowercase()
    };
    fields.iter().map(name).collect()
}

/// Waits for the result of a script.
pub(crate) fn result_of<T>(receiver: &Receiver<T>) -> T {
    receiver.recv_timeout(crate::support::SOON).unwrap()
}

scenarios! {
    fn http1_requests_are_forwarded_to_an_http2_upstream(io) {
        let upstream = H2Upstream::echoing();
        let proxy = Proxy::with_request_trailers(io, &upstream.url);
        let mut client = proxy.client();
        client.send(
            "POST /x?y=1 HTTP/1.1\r\nHost: example.org\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\n\
             Keep-Alive: 5\r\nTE: trailers, gzip\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\n\r\n\
             5\r\nhello\r\n0\r\nX-Sum: 5\r\n\r\n",
        );
        let answer = client.response();
        assert_eq!((answer.status, answer.text()), (200, "POST /x?y=1 hello"));
        let received = upstream.received();
        assert_eq!(received.head.authority(), Some("example.org"));
        assert_eq!(received.head.fields.get_str(Name::Te), Some("trailers"));
        assert_eq!(received.trailers.unwrap().get_str("x-sum"), Some("5"));
        let sent = names(&received.head.fields);
        for hop in ["connection", "keep-alive", "x-hop", "upgrade", "transfer-encoding", "host"] {
            assert!(!sent.contains(&hop.to_owned()), "{hop} in {sent:?}");
        }
        for number in 0..5 {
            assert_eq!(client.get(&format!("/{number}")).text(), format!("GET /{number} "));
        }
        assert_eq!(upstream.accepted(), 1);
    }

    fn http2_requests_are_forwarded_to_an_http1_upstream(io) {
        let upstream = Upstream::scripted(|_, peer| {
            while let Some((head, body)) = peer.request() {
                let text = format!("{} {}", head.line, String::from_utf8_lossy(&body));
                peer.send(format!("HTTP/1.1 200 OK\r\nConnection: X-Hop\r\nX-Hop: 1\r\nTransfer-Encoding: \
                    chunked\r\n\r\n{:x}\r\n{text}\r\n0\r\nX-Sum: 1\r\n\r\n", text.len()));
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = h2(&proxy);
        let stream = client.request(Method::Post, "/x?y", BodyLength::Unknown);
        client.send(stream, b"hello", true);
        let answer = client.answer(stream);
        assert_eq!(answer.content, b"POST /x?y HTTP/1.1 hello");
        assert_eq!(answer.trailers.unwrap().get_str("x-sum"), Some("1"));
        assert_eq!(answer.fields.get_str("x-hop"), None);
        let head = upstream.head();
        assert_eq!(head.field("host"), Some("a"));
        assert_eq!(head.field("transfer-encoding"), Some("chunked"));
    }

    fn http2_requests_share_http2_connections(io) {
        let upstream = H2Upstream::echoing();
        let proxy = Proxy::to(io, &[&format!("/api={}", upstream.url)]);
        let mut client = h2(&proxy);
        let streams: Vec<_> = (0..90)
            .map(|n| (n, client.request(Method::Get, &format!("/api/{n}"), BodyLength::Empty)))
            .collect();
        for (n, stream) in streams {
            assert_eq!(client.answer(stream).content, format!("GET /api/{n} ").as_bytes());
        }
        assert_eq!(upstream.accepted(), 1);
        assert_eq!(client.get("/other").content, b"built in");
    }

    fn a_grpc_call_is_forwarded_unchanged(io) {
        let upstream = H2Upstream::scripted(|_, mut peer| {
            while let Some((stream, head)) = peer.next() {
                if head.path() == "/s/Fails" {
                    let mut only = ResponseHead::new(Status::OK);
                    only.fields.append(Name::ContentType, "application/grpc");
                    only.fields.append("grpc-status", "12");
                    peer.start(stream, &only, BodyLength::Empty);
                    peer.flush();
                    continue;
                }
                assert_eq!(head.fields.get_str(Name::Te), Some("trailers"));
                assert_eq!(head.fields.get_str("grpc-timeout"), Some("5S"));
                peer.start(stream, &ResponseHead::new(Status::OK), BodyLength::Unknown);
                peer.flush();
                let mut sent_bytes = 0;
                loop {
                    let received = peer.until(stream, |received| received.is_complete || received.content.len() > sent_bytes);
                    if received.content.len() > sent_bytes {
                        peer.send(stream, &received.content[sent_bytes..], false);
                        sent_bytes = received.content.len();
                    }
                    if received.is_complete && sent_bytes == received.content.len() {
                        break;
                    }
                }
                let mut trailers = Fields::new();
                trailers.append("grpc-status", "0");
                trailers.append("grpc-message", "fine");
                peer.finish(stream, Some(&trailers));
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        let mut client = h2(&proxy);
        let mut head = RequestHead::new(Method::Post, "/s/Echoes");
        head.set_authority("grpc.example");
        head.fields.append(Name::ContentType, "application/grpc");
        head.fields.append(Name::Te, "trailers");
        head.fields.append("grpc-timeout", "5S");
        let stream = client.send_head(&head, BodyLength::Unknown);
        // The response head arrives before any message was sent.
        client.until(stream, |answer| answer.status == Some(Status::OK));
        for message in [&b"\0\0\0\0\x02hi"[..], b"\0\0\0\0\0"] {
            let before = client.until(stream, |_| true).content.len();
            client.send(stream, message, false);
            let answer = client.until(stream, |answer| answer.content.len() == before + message.len());
            assert!(answer.content.ends_with(message));
        }
        client.send(stream, b"", true);
        let answer = client.answer(stream);
        let trailers = answer.trailers.unwrap();
        assert_eq!(trailers.get_str("grpc-status"), Some("0"));
        assert_eq!(trailers.get_str("grpc-message"), Some("fine"));
        head.set_path("/s/Fails");
        let stream = client.send_head(&head, BodyLength::Unknown);
        client.send(stream, b"\0\0\0\0\0", true);
        let answer = client.answer(stream);
        assert_eq!(answer.fields.get_str("grpc-status"), Some("12"));
        assert_eq!(answer.fields.get_str(Name::ContentLength), None);
        assert!(answer.trailers.is_none() && answer.content.is_empty());
    }

    fn trailers_follow_a_message_that_declares_no_content(io) {
        let of = |text: &str| {
            let mut trailers = Fields::new();
            trailers.append("x-sum", text);
            trailers
        };
        let upstream = H2Upstream::scripted(move |_, mut peer| {
            while let Some((stream, received)) = peer.request() {
                assert_eq!(received.head.fields.get_str(Name::ContentLength), Some("0"));
                let sum = received.trailers.as_ref().and_then(|fields| fields.get_str("x-sum"));
                let ok = ResponseHead::new(Status::OK);
                // The first part has to be forwarded before the rest is known.
                peer.start(stream, &ok, BodyLength::NothingButTrailers);
                peer.flush();
                peer.finish(stream, sum.map(of).as_ref());
            }
        });
        let proxy = Proxy::with_request_trailers(io, &upstream.url);
        let mut client = h2(&proxy);
        for sum in [Some("1"), None] {
            let stream = client.request(Method::Post, "/", BodyLength::NothingButTrailers);
            let (trailers, out) = (sum.map(of), &mut client.out);
            client.machine.send_end(stream, trailers.as_ref(), out).unwrap();
            let answer = client.answer(stream);
            assert_eq!(answer.fields.get_str(Name::ContentLength), Some("0"));
            let trailers = answer.trailers.as_ref();
            assert_eq!(trailers.and_then(|fields| fields.get_str("x-sum")), sum);
            assert_eq!(answer.reset, None);
        }
        // If nothing can follow, the gateway does not wait.
        let stream = client.request(Method::Post, "/", BodyLength::Known(0));
        assert!(client.answer(stream).trailers.is_none());
        assert_eq!(upstream.accepted(), 1);
    }

    // nginx 1.22 closes its connection for them, with the requests of others on it.
    fn an_http2_upstream_gets_no_trailers_of_requests_without_a_flag(io) {
        let upstream = H2Upstream::echoing();
        let proxy = Proxy::to(io, &[&upstream.url]);
        let mut client = proxy.client();
        client.send(
            "POST /x HTTP/1.1\r\nHost: a\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n\
             5\r\nhello\r\n0\r\nX-Sum: 5\r\n\r\n",
        );
        assert_eq!(client.response().text(), "POST /x hello");
        let received = upstream.received();
        assert!(received.trailers.is_none_or(|trailers| trailers.is_empty()));
        assert_eq!(received.head.fields.get_str(Name::Trailer), None);
    }

    fn http1_drops_trailers_after_a_length_of_0(io) {
        let mut trailers = Fields::new();
        trailers.append("x-sum", "1");
        let sent = trailers.clone();
        let upstream = H2Upstream::scripted(move |_, mut peer| {
            while let Some((stream, _)) = peer.request() {
                let ok = ResponseHead::new(Status::OK);
                peer.start(stream, &ok, BodyLength::NothingButTrailers);
                peer.finish(stream, Some(&sent));
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        let mut client = proxy.client();
        for _ in 0..2 {
            let answer = client.get("/");
            assert_eq!(answer.field("content-length"), Some("0"));
            assert_eq!(answer.field("transfer-encoding"), None);
        }
        let upstream = Upstream::with_text("fine");
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = h2(&proxy);
        for index in 0..2 {
            let stream = client.request(Method::Post, "/", BodyLength::NothingButTrailers);
            let out = &mut client.out;
            client.machine.send_end(stream, Some(&trailers), out).unwrap();
            assert_eq!(client.answer(stream).content, b"fine");
            let head = &upstream.heads()[index];
            assert_eq!(head.field("content-length"), Some("0"));
            assert_eq!(head.field("transfer-encoding"), None);
        }
        assert_eq!(upstream.accepted(), 1);
    }

    fn large_content_is_forwarded_in_both_directions(io) {
        let upstream = H2Upstream::echoing();
        let proxy = Proxy::to(io, &[&upstream.url]);
        let body = "0123456789abcdef".repeat(1 << 17);
        let mut client = h2(&proxy);
        let stream = client.request(Method::Put, "/", BodyLength::Known(body.len() as u64));
        client.send(stream, body.as_bytes(), true);
        let answer = client.answer(stream);
        assert_eq!(answer.content.len(), body.len() + 6);
        assert!(answer.content.ends_with(body.as_bytes()));
    }

    fn a_client_that_stops_reading_does_not_delay_others(io) {
        let upstream = H2Upstream::scripted(|_, mut peer| {
            let (large, _) = peer.head();
            peer.start(large, &ResponseHead::new(Status::OK), BodyLength::Unknown);
            let content = vec![b'x'; 8 << 20];
            let mut sent = peer.send_some(large, &content, false);
            while let Some((stream, _)) = peer.request() {
                peer.answer(stream, Status::OK, &"y".repeat(10_000));
                sent += peer.send_some(large, &content[sent..], false);
            }
            assert!(sent < 8 << 20, "it was held back");
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        let mut stalled = h2(&proxy);
        stalled.reads = false;
        stalled.request(Method::Get, "/large", BodyLength::Empty);
        stalled.flush();
        let mut client = h2(&proxy);
        for _ in 0..99 {
            assert_eq!(client.get("/").content.len(), 10_000);
        }
        assert_eq!(upstream.accepted(), 1);
    }

    fn a_cancelled_request_is_reset_at_the_upstream(io) {
        let (sender, receiver) = channel();
        let upstream = H2Upstream::scripted(move |_, mut peer| {
            while let Some((stream, head)) = peer.next() {
                if head.path() == "/next" {
                    peer.answer(stream, Status::OK, "next");
                    continue;
                }
                let received = peer.until(stream, |received| received.reset.is_some());
                let _ = sender.send(received.reset);
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        let mut client = h2(&proxy);
        let stream = client.request(Method::Get, "/never", BodyLength::Empty);
        client.flush();
        eventually("the request arrives", || upstream.accepted() == 1);
        thread::sleep(std::time::Duration::from_millis(50));
        client.machine.reset(stream, Code::CANCEL, &mut client.out);
        client.flush();
        assert_eq!(result_of(&receiver), Some(Code::CANCEL));
        let mut peer = proxy.peer();
        peer.send("GET /never HTTP/1.1\r\nHost: a\r\n\r\n");
        thread::sleep(std::time::Duration::from_millis(50));
        peer.reset();
        assert_eq!(result_of(&receiver), Some(Code::CANCEL));
        assert_eq!(client.get("/next").content, b"next");
        assert_eq!(upstream.accepted(), 1);
    }

    fn refused_requests_of_any_method_are_retried(io) {
        let upstream = H2Upstream::scripted(|number, mut peer| {
            while let Some((stream, received)) = peer.request() {
                match number {
                    0 => peer.reset(stream, Code::REFUSED_STREAM),
                    _ => peer.answer(stream, Status::OK, &echo_of(&received)),
                }
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        let mut client = h2(&proxy);
        let stream = client.request(Method::Post, "/x", BodyLength::Known(5));
        client.send(stream, b"hello", true);
        assert_eq!(client.answer(stream).content, b"POST /x hello");
        assert_eq!((upstream.accepted(), proxy.counters().retries), (2, 1));
    }

    fn goaway_under_load_loses_no_request(io) {
        // Each connection responds to ten requests and refuses the later ones.
        let upstream = H2Upstream::scripted(|_, mut peer| {
            let mut answered = 0;
            while let Some((stream, received)) = peer.request() {
                peer.answer(stream, Status::OK, &echo_of(&received));
                answered += 1;
                if answered == 10 {
                    peer.send_go_away(stream.get());
                    return peer.fin_and_wait();
                }
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        let mut clients: Vec<_> = (0..4).map(|_| h2(&proxy)).collect();
        for round in 0..25 {
            let streams: Vec<_> = clients
                .iter_mut()
                .map(|client| {
                    let stream = client.request(Method::Post, "/", BodyLength::Known(2));
                    client.send(stream, b"hi", true);
                    stream
                })
                .collect();
            for (client, stream) in clients.iter_mut().zip(streams) {
                let answer = client.answer(stream);
                assert_eq!(answer.content, b"POST / hi", "round {round}: {answer:?}");
            }
        }
        assert!(upstream.accepted() >= 10, "{}", upstream.accepted());
    }

    fn failures_have_different_statuses(io) {
        let resets = H2Upstream::scripted(|_, mut peer| {
            while let Some((stream, _)) = peer.request() {
                peer.reset(stream, Code::INTERNAL_ERROR);
            }
        });
        let dies = H2Upstream::scripted(|_, mut peer| drop(peer.request()));
        let speaks_http1 = Upstream::with_text("what?");
        let broken = H2Upstream::scripted(|_, mut peer| {
            let (stream, _) = peer.head();
            // HEADERS whose block is one field without a status.
            peer.out.extend_from_slice(&[0, 0, 3, 1, 5]);
            peer.out.extend_from_slice(&stream.get().to_be_bytes());
            peer.out.extend_from_slice(&[0x0f, 0x04, 0]);
            peer.expect_end();
        });
        const HTTP1: &str = "http_protocol_error; details=\"http1-response\"";
        const BROKEN: &str = "http_protocol_error; details=\"pseudo-header-missing\"";
        for (url, error) in [
            (resets.url.clone(), "connection_terminated"),
            (dies.url.clone(), "connection_terminated"),
            (format!("h2c://{}", refusing_address()), "connection_refused"),
            (format!("h2c://127.0.0.1:{}", speaks_http1.port()), HTTP1),
            (broken.url.clone(), BROKEN),
        ] {
            let proxy = Proxy::to(io, &[&url]);
            let mut client = proxy.client();
            client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
            let answer = client.response();
            assert_eq!(answer.status, 502);
            let wanted = format!("blitz; error={error}");
            assert_eq!(answer.field("proxy-status"), Some(wanted.as_str()), "{url}");
        }
    }

    // RFC 9110, section 8.6: in a response to HEAD it would be the length of GET's.
    fn a_head_response_without_a_length_gets_none(io) {
        let upstream = H2Upstream::scripted(|_, mut peer| {
            for _ in 0..2 {
                let (stream, _) = peer.head();
                peer.start(stream, &ResponseHead::new(Status::OK), BodyLength::Unknown);
                peer.flush();
            }
            peer.expect_end();
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        let mut peer = proxy.peer();
        peer.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = peer.head().unwrap();
        assert!(head.line.starts_with("HTTP/1.1 200 "), "{}", head.line);
        assert_eq!(head.field("content-length"), None);
        let mut client = h2(&proxy);
        let stream = client.request(Method::Head, "/", BodyLength::Empty);
        let answer = client.answer(stream);
        assert!(answer.is_complete && answer.fields.get("content-length").is_none());
    }

    fn an_incomplete_response_is_incomplete_for_the_client(io) {
        let upstream = H2Upstream::scripted(|_, mut peer| {
            let (stream, _) = peer.head();
            peer.start(stream, &ResponseHead::new(Status::OK), BodyLength::Known(9));
            peer.send(stream, b"half", false);
            peer.reset(stream, Code::INTERNAL_ERROR);
            peer.expect_end();
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        let mut client = h2(&proxy);
        let stream = client.request(Method::Get, "/", BodyLength::Empty);
        let answer = client.answer(stream);
        assert!(answer.reset.is_some() && !answer.is_complete, "{answer:?}");
    }

    fn interim_responses_are_forwarded(io) {
        let upstream = H2Upstream::scripted(|_, mut peer| {
            let (stream, head) = peer.head();
            assert_eq!(head.fields.get_str(Name::Expect), Some("100-continue"));
            for status in [Status::EARLY_HINTS, Status::CONTINUE] {
                let head = ResponseHead::new(status);
                peer.machine.send_informational(stream, &head, &mut peer.out);
            }
            let received = peer.until(stream, |received| received.is_complete);
            peer.answer(stream, Status::OK, &echo_of(&received));
            peer.expect_end();
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        let mut peer = proxy.peer();
        peer.send("PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
        assert_eq!(peer.head().unwrap().line, "HTTP/1.1 103 Early Hints");
        assert_eq!(peer.head().unwrap().line, "HTTP/1.1 100 Continue");
        peer.send("hi");
        assert!(peer.head().unwrap().line.starts_with("HTTP/1.1 200 "));
        assert_eq!(peer.exactly(8).unwrap(), b"PUT / hi");
    }

    fn a_websocket_over_http2_reaches_an_http1_upstream(io) {
        let upstream = Upstream::scripted(|_, peer| {
            let key = loop {
                let Some(head) = peer.head() else { return };
                match head.line.split(' ').nth(1) {
                    Some("/chat") => break head.field("sec-websocket-key").unwrap().to_owned(),
                    Some("/plain") => peer.send(ok("")),
                    _ => peer.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno"),
                };
            };
            let accept = WebSocketKey::parse(key.as_bytes()).unwrap().accept();
            peer.send(format!(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: p\r\n\r\n",
            ));
            while let Some(byte) = peer.exactly(1) {
                peer.send(byte);
            }
            peer.send("bye");
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = h2(&proxy);
        assert_eq!(client.get("/").status, Some(Status::FORBIDDEN));
        assert!(client.machine.allows_extended_connect());
        let mut asks = RequestHead::new(Method::Get, "/chat");
        asks.set_authority("a");
        asks.set_protocol(Some("websocket"));
        asks.fields.append(Name::SecWebSocketVersion, "13");
        asks.fields.append(Name::SecWebSocketProtocol, "p");
        let stream = client.send_head(&asks, BodyLength::Unknown);
        // Before the response, as over HTTP/1.1.
        client.send(stream, b"early", false);
        let answer = client.until(stream, |answer| answer.content == b"early");
        assert_eq!(answer.status, Some(Status::OK));
        assert_eq!(answer.fields.get_str(Name::SecWebSocketProtocol), Some("p"));
        let sent = names(&answer.fields);
        for name in ["upgrade", "connection", "sec-websocket-accept"] {
            assert!(!sent.contains(&name.to_owned()), "{name} in {sent:?}");
        }
        client.send(stream, b"last", true);
        assert_eq!(client.answer(stream).content, b"earlylastbye");
        let head = upstream.heads().pop().unwrap();
        assert_eq!(head.line, "GET /chat HTTP/1.1");
        assert_eq!(head.field("upgrade"), Some("websocket"));
        assert_eq!(head.field("sec-websocket-key").unwrap().len(), 24);
        assert_eq!(proxy.counters().tunnels, 1);
        for (path, status) in [("/plain", Status::BAD_GATEWAY), ("/no", Status::FORBIDDEN)] {
            asks.set_path(path);
            let stream = client.send_head(&asks, BodyLength::Unknown);
            let answer = client.until(stream, |answer| answer.status.is_some());
            assert_eq!(answer.status, Some(status), "{path}");
        }
    }

    fn head_responses_have_no_content_in_any_version(io) {
        let upstream = H2Upstream::scripted(|_, mut peer| {
            while let Some((stream, _)) = peer.request() {
                peer.start(stream, &ResponseHead::new(Status::OK), BodyLength::Known(5));
                peer.flush();
            }
        });
        let one = Upstream::with_response(ok("hello").trim_end_matches("hello"));
        for url in [upstream.url.clone(), one.url()] {
            let proxy = Proxy::to(io, &[&url]);
            let mut client = h2(&proxy);
            for _ in 0..2 {
                let stream = client.request(Method::Head, "/", BodyLength::Empty);
                let answer = client.answer(stream);
                assert_eq!(answer.fields.get_str(Name::ContentLength), Some("5"));
                assert_eq!((answer.status, answer.content.len()), (Some(Status::OK), 0));
            }
        }
    }
}
