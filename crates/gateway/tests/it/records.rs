//! Each request has exactly one record.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use blitz_gateway::{Ended, Failure, Options, Record, RecordHook, Rejection};
use blitz_http::{BodyError, BodyLength, IoChoice, Name, ResponseHead, Status};
use blitz_proto::h2::Code;
use blitz_testing::{H1Peer, refusing_address};

use crate::h2::H2Upstream;
use crate::support::{Proxy, Upstream, eventually, ok};

/// The owned parts of a record.
#[derive(Debug, Clone)]
struct RecordedRequest {
    path: String,
    status: Option<u16>,
    request_bytes: u64,
    response_bytes: u64,
    attempts: u8,
    is_connection_reused: bool,
    is_relayed: bool,
    is_tunnel: bool,
    has_upstream: bool,
    route: Option<String>,
    grpc_status: Option<u8>,
    ended: Ended,
}

/// A proxy whose records are kept.
struct Recorder {
    proxy: Proxy,
    seen: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl Recorder {
    fn to(io: IoChoice, target: &str) -> Recorder {
        Recorder::with(io, target, Options::default())
    }

    fn with(io: IoChoice, target: &str, mut options: Options) -> Recorder {
        let seen = Arc::<Mutex<Vec<RecordedRequest>>>::default();
        let keeps = Arc::clone(&seen);
        options.record_hook = Some(RecordHook::new(move |record: &Record<'_>, head| {
            let times = [record.connected, record.responded];
            let times = times.into_iter().flatten().collect::<Vec<_>>();
            assert!(times.iter().all(|time| *time >= record.started) && times.is_sorted());
            assert!(record.duration() < Duration::from_secs(60));
            keeps.lock().unwrap().push(RecordedRequest {
                path: head.raw_path().to_owned(),
                status: record.response.status.map(Status::code),
                request_bytes: record.request_bytes,
                response_bytes: record.response.bytes,
                attempts: record.attempts,
                is_connection_reused: record.is_connection_reused,
                is_relayed: record.response.is_relayed,
                is_tunnel: record.response.is_tunnel,
                has_upstream: record.upstream.is_some(),
                route: record.route.map(|route| route.name().to_owned()),
                grpc_status: record.grpc_status,
                ended: record.response.ended.clone(),
            });
        }));
        let proxy = Proxy::with(io, &[target], options);
        Recorder { proxy, seen }
    }

    /// The only record. Waits for it, and for another one until the proxy has ended.
    fn only(self) -> RecordedRequest {
        let Recorder { proxy, seen } = self;
        eventually("there is a record", || !seen.lock().unwrap().is_empty());
        drop(proxy);
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen[0].clone()
    }

    fn send_request(&self, request: &str) -> H1Peer {
        let mut peer = self.proxy.peer();
        peer.send(request);
        peer
    }
}

scenarios! {
    fn a_complete_exchange(io) {
        let upstream = Upstream::with_text("hello");
        let recorder = Recorder::to(io, &format!("/api={}/v1", upstream.url()));
        let mut client = recorder.proxy.client();
        client.send("PUT /api/x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
        assert_eq!(client.response().text(), "hello");
        assert_eq!(recorder.proxy.counters().responses, [0, 1, 0, 0, 0]);
        let seen = recorder.only();
        assert!(matches!(seen.ended, Ended::Complete), "{seen:?}");
        assert_eq!((seen.status, seen.request_bytes, seen.response_bytes), (Some(200), 3, 5));
        assert_eq!((seen.attempts, seen.is_connection_reused), (1, false));
        assert_eq!((seen.path.as_str(), seen.route.as_deref()), ("/api/x", Some("/api")));
        assert!(seen.is_relayed && seen.has_upstream && !seen.is_tunnel);
    }

    fn streamed_content_on_a_reused_connection(io) {
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n";
        let upstream = Upstream::with_response(chunked);
        let recorder = Recorder::to(io, &upstream.url());
        let mut client = recorder.proxy.client();
        for _ in 0..2 {
            client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
            client.send("3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
            assert_eq!(client.response().text(), "hello!");
        }
        eventually("there are two", || recorder.seen.lock().unwrap().len() == 2);
        let seen = recorder.seen.lock().unwrap().clone();
        assert!(seen.iter().all(|seen| (seen.request_bytes, seen.response_bytes) == (5, 6)), "{seen:?}");
        assert_eq!((seen[0].is_connection_reused, seen[1].is_connection_reused), (false, true));
    }

    fn a_rejected_request(io) {
        let upstream = Upstream::with_text("hello");
        let recorder = Recorder::to(io, &upstream.url());
        let head = recorder.send_request("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n").head().unwrap();
        assert!(head.line.contains(" 405 "), "{head:?}");
        assert_eq!(recorder.proxy.counters().rejected(Rejection::Method), 1);
        let seen = recorder.only();
        assert!(matches!(seen.ended, Ended::Rejected(Rejection::Method)), "{seen:?}");
        assert_eq!((seen.status, seen.attempts, seen.is_relayed), (Some(405), 0, false));
        assert!(seen.response_bytes > 0);
    }

    fn a_redirect_of_a_preflight_check(io) {
        let options = Options { redirect_https: true, ..Options::default() };
        let recorder = Recorder::with(io, "http://127.0.0.1:9", options);
        assert_eq!(recorder.proxy.client().get("/x").status, 308);
        let counters = recorder.proxy.counters();
        assert_eq!((counters.rejected(Rejection::HttpsOnly), counters.routed, counters.unrouted), (1, 0, 0));
        let seen = recorder.only();
        assert!(matches!(seen.ended, Ended::Rejected(Rejection::HttpsOnly)), "{seen:?}");
        assert_eq!((seen.path.as_str(), seen.status, seen.route), ("/x", Some(308), None));
    }

    fn an_unmatched_request(io) {
        let recorder = Recorder::to(io, "/api=http://127.0.0.1:9");
        assert_eq!(recorder.proxy.client().get("/x").text(), "built in");
        let counters = recorder.proxy.counters();
        assert_eq!((counters.unrouted, counters.routed), (1, 0));
        let seen = recorder.only();
        assert!(matches!(seen.ended, Ended::Complete), "{seen:?}");
        assert_eq!((seen.path.as_str(), seen.status, seen.response_bytes, seen.route), ("/x", Some(404), 8, None));
    }

    fn an_upstream_that_cannot_be_reached(io) {
        let recorder = Recorder::to(io, &format!("http://{}", refusing_address()));
        assert_eq!(recorder.proxy.client().get("/").status, 502);
        let counters = recorder.proxy.counters();
        assert_eq!((counters.failed(Failure::ConnectionRefused), counters.connect_failures), (1, 1));
        let seen = recorder.only();
        assert!(matches!(seen.ended, Ended::Failed(Failure::ConnectionRefused)), "{seen:?}");
        assert_eq!((seen.status, seen.attempts, seen.is_relayed), (Some(502), 0, false));
        assert!(seen.has_upstream && seen.response_bytes > 0);
    }

    fn a_head_request_to_an_upstream_that_cannot_be_reached(io) {
        let recorder = Recorder::to(io, &format!("http://{}", refusing_address()));
        let mut peer = recorder.send_request("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(peer.head().unwrap().line.contains(" 502 "));
        let seen = recorder.only();
        assert_eq!((seen.status, seen.response_bytes), (Some(502), 0));
    }

    fn an_upstream_that_is_too_slow(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.request();
            peer.is_closed_by_peer();
        });
        let mut options = Options::default();
        options.client.response_timeout = Duration::from_millis(100);
        let recorder = Recorder::with(io, &upstream.url(), options);
        assert_eq!(recorder.proxy.client().get("/").status, 504);
        let seen = recorder.only();
        assert!(matches!(seen.ended, Ended::Failed(Failure::HttpResponseTimeout)), "{seen:?}");
        assert_eq!((seen.status, seen.attempts), (Some(504), 1));
    }

    fn a_request_whose_content_is_too_large(io) {
        let chunked = "5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n";
        for (framing, content, attempts) in [
            ("Content-Length: 8", "too long", 0),
            ("Transfer-Encoding: chunked", chunked, 1),
        ] {
            let upstream = Upstream::scripted(|_, peer| {
                peer.request();
            });
            let options = Options { body_bytes_max: Some(5), ..Options::default() };
            let recorder = Recorder::with(io, &upstream.url(), options);
            let mut peer = recorder.send_request(&format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n"));
            peer.send(content);
            assert!(peer.head().unwrap().line.contains(" 413 "));
            let seen = recorder.only();
            assert!(matches!(seen.ended, Ended::Rejected(Rejection::ContentTooLarge)), "{seen:?}");
            assert_eq!((seen.status, seen.attempts, seen.is_relayed), (Some(413), attempts, false));
            assert!(seen.request_bytes <= 5, "{seen:?}");
        }
    }

    fn the_client_leaves_within_its_content(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.request();
        });
        let recorder = Recorder::to(io, &upstream.url());
        let peer = recorder.send_request("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello");
        eventually("the upstream has the head", || upstream.heads().len() == 1);
        peer.reset();
        let seen = recorder.only();
        let is_gone = matches!(
            seen.ended,
            Ended::ClientGone | Ended::RequestContent(BodyError::Reset | BodyError::Truncated)
        );
        assert!(is_gone, "{seen:?}");
        assert_eq!((seen.request_bytes, seen.attempts, seen.is_relayed), (5, 1, false));
    }

    fn the_client_leaves_before_the_response(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.request();
            peer.is_closed_by_peer();
        });
        let recorder = Recorder::to(io, &upstream.url());
        let peer = recorder.send_request("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        eventually("the upstream has the head", || upstream.heads().len() == 1);
        peer.reset();
        let seen = recorder.only();
        assert!(matches!(seen.ended, Ended::ClientGone), "{seen:?}");
        assert_eq!((seen.status, seen.attempts), (None, 1));
    }

    fn a_request_whose_content_is_too_slow(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.request();
            peer.is_closed_by_peer();
        });
        let mut options = Options::default();
        options.limits.body_rate_grace = Duration::from_millis(200);
        let recorder = Recorder::with(io, &upstream.url(), options);
        let mut peer = recorder.send_request("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n");
        let head = peer.head().unwrap();
        assert!(head.line.contains(" 408 "), "{head:?}");
        let seen = recorder.only();
        assert!(matches!(seen.ended, Ended::RequestContent(BodyError::TimedOut)), "{seen:?}");
        assert_eq!((seen.status, seen.attempts, seen.is_relayed), (Some(408), 1, false));
    }

    fn the_client_leaves_after_the_last_byte_and_before_the_end(io) {
        let upstream = H2Upstream::scripted(|_, mut peer| {
            let (stream, _) = peer.request().unwrap();
            peer.start(stream, &ResponseHead::new(Status::OK), BodyLength::Known(5));
            peer.send(stream, b"hello", false);
            thread::sleep(Duration::from_millis(500));
        });
        let recorder = Recorder::to(io, &upstream.url);
        let mut peer = recorder.send_request("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        peer.head().unwrap();
        assert_eq!(peer.exactly(5).unwrap(), b"hello");
        peer.reset();
        let seen = recorder.only();
        assert!(matches!(seen.ended, Ended::Complete), "{seen:?}");
        assert_eq!((seen.status, seen.response_bytes), (Some(200), 5));
    }

    fn the_client_leaves_within_the_response(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.request();
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
            peer.is_closed_by_peer();
        });
        let recorder = Recorder::to(io, &upstream.url());
        let mut peer = recorder.send_request("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        peer.head().unwrap();
        assert_eq!(peer.exactly(5).unwrap(), b"hello");
        peer.reset();
        eventually("it is counted", || recorder.proxy.counters().cut_off == 1);
        let seen = recorder.only();
        assert!(matches!(seen.ended, Ended::ClientGone), "{seen:?}");
        assert_eq!((seen.status, seen.response_bytes, seen.is_relayed), (Some(200), 5, true));
    }

    fn an_incomplete_response(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.request();
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
        });
        let recorder = Recorder::to(io, &upstream.url());
        let mut peer = recorder.send_request("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let (_, is_clean) = peer.rest();
        assert!(!is_clean);
        eventually("it is counted", || recorder.proxy.counters().cut_off == 1);
        let seen = recorder.only();
        assert!(matches!(seen.ended, Ended::CutOff(Failure::HttpResponseIncomplete)), "{seen:?}");
        assert_eq!((seen.status, seen.response_bytes), (Some(200), 5));
    }

    fn an_incomplete_grpc_web_response(io) {
        let upstream = H2Upstream::scripted(|_, mut peer| {
            let (stream, _) = peer.request().unwrap();
            let mut head = ResponseHead::new(Status::OK);
            head.fields.append(Name::ContentType, "application/grpc");
            peer.start(stream, &head, BodyLength::Unknown);
            peer.send(stream, b"\0\0\0\0\x02hi", false);
            thread::sleep(Duration::from_millis(50));
            peer.reset(stream, Code::INTERNAL_ERROR);
        });
        let recorder = Recorder::to(io, &upstream.url);
        let mut peer = recorder.send_request(
            "POST /s/m HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc-web\r\nContent-Length: 0\r\n\r\n",
        );
        peer.head().unwrap();
        let content = peer.chunks().unwrap();
        let seen = recorder.only();
        assert!(matches!(seen.ended, Ended::Failed(Failure::HttpResponseIncomplete)), "{seen:?}");
        assert_eq!(seen.response_bytes, content.len() as u64, "with the frame of the status");
        assert_eq!(seen.grpc_status, Some(14));
    }

    fn a_retried_request(io) {
        let upstream = Upstream::scripted(|number, peer| {
            peer.request();
            if number > 0 {
                peer.send(ok("second"));
            }
        });
        let recorder = Recorder::to(io, &upstream.url());
        assert_eq!(recorder.proxy.client().get("/").text(), "second");
        assert_eq!(recorder.proxy.counters().retries, 1);
        let seen = recorder.only();
        assert!(matches!(seen.ended, Ended::Complete), "{seen:?}");
        assert_eq!((seen.attempts, seen.status, seen.response_bytes), (2, Some(200), 6));
    }

    fn a_websocket(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.head();
            peer.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
            assert_eq!(peer.exactly(4).unwrap(), b"ping");
            peer.send("pong!");
            peer.rest();
        });
        let recorder = Recorder::to(io, &upstream.url());
        let mut peer = recorder.send_request(
            "GET /chat HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
        );
        peer.head().unwrap();
        peer.send("ping");
        assert_eq!(peer.exactly(5).unwrap(), b"pong!");
        let counters = recorder.proxy.counters();
        assert_eq!((counters.tunnels, counters.routed), (1, 0), "the request has not ended");
        peer.finish();
        peer.rest();
        let seen = recorder.only();
        assert!(matches!(seen.ended, Ended::Complete), "{seen:?}");
        assert_eq!((seen.request_bytes, seen.response_bytes), (4, 5));
        assert_eq!((seen.path.as_str(), seen.status, seen.is_tunnel), ("/chat", Some(101), true));
    }

    fn the_gateway_stops_while_a_request_waits(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.request();
            peer.is_closed_by_peer();
        });
        let recorder = Recorder::to(io, &upstream.url());
        let _peer = recorder.send_request("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        eventually("the upstream has the head", || upstream.heads().len() == 1);
        let Recorder { proxy, seen } = recorder;
        drop(proxy);
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 1, "{seen:?}");
        assert!(matches!(seen[0].ended, Ended::CutOff(Failure::DrainEnded)), "{seen:?}");
        assert_eq!((seen[0].status, seen[0].attempts), (None, 1));
    }

    fn the_deadline_of_a_call_passes(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.request();
            peer.is_closed_by_peer();
        });
        let recorder = Recorder::to(io, &upstream.url());
        let head = recorder
            .send_request(
                "POST /blitz.v1.Greeter/Hello HTTP/1.1\r\nHost: a\r\n\
                 Content-Type: application/grpc-web+proto\r\nGrpc-Timeout: 100m\r\n\
                 Content-Length: 5\r\n\r\n\0\0\0\0\0",
            )
            .head()
            .unwrap();
        assert!(head.line.contains(" 200 "), "{head:?}");
        assert_eq!(recorder.proxy.counters().failed(Failure::DeadlineExceeded), 1);
        let seen = recorder.only();
        assert!(matches!(seen.ended, Ended::Failed(Failure::DeadlineExceeded)), "{seen:?}");
        assert_eq!((seen.status, seen.request_bytes, seen.is_relayed), (Some(200), 5, false));
        assert_eq!(seen.grpc_status, Some(4));
    }
}
