//! WebSockets between any two versions of HTTP; `upgrade.rs` has the tunnel of HTTP/1.1 itself.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use blitz_gateway::Options;
use blitz_http::{
    BodyLength, IoChoice, Limits, Method, Name, RequestHead, ResponseHead, Status, WebSocketKey,
};
use blitz_proto::h2::{Code, StreamId};
use blitz_testing::H1Peer;

use crate::h2::{H2Upstream, result_of};
use crate::h2_client::Client;
use crate::h2_peer::H2Peer;
use crate::site_rules::gateway_with;
use crate::support::{Proxy, Upstream, eventually, ok};
use crate::upstream_tls::{Accepted, TlsUpstream};

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

fn upgrade_request(path: &str, key: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: p\r\n\r\n"
    )
}

fn connect(path: &str) -> RequestHead {
    let mut head = RequestHead::new(Method::Get, path);
    head.set_authority("a");
    head.set_protocol(Some("websocket"));
    head.fields.append(Name::SecWebSocketVersion, "13");
    head.fields.append(Name::SecWebSocketProtocol, "p");
    head
}

/// Switches on request and then echoes, until FIN.
fn echo_h1(peer: &mut H1Peer) {
    while let Some((head, _)) = peer.request() {
        if head.field("upgrade") != Some("websocket") || head.line.contains("/no") {
            peer.send(ok("plain"));
            continue;
        }
        let key = WebSocketKey::parse(head.field("sec-websocket-key").unwrap().as_bytes());
        let (right, wrong) = (key.unwrap().accept(), ACCEPT.replace('s', "t"));
        let accepts = match head.line.split(' ').nth(1) {
            Some("/wrong") => vec![wrong],
            Some("/missing") => vec![],
            Some("/empty") => vec![String::new()],
            Some("/twice") => vec![right, wrong],
            _ => vec![right],
        };
        let accepts = accepts
            .iter()
            .map(|accept| format!("Sec-WebSocket-Accept: {accept}\r\n"));
        peer.send(format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             {}Sec-WebSocket-Protocol: p\r\n\r\n",
            accepts.collect::<String>()
        ));
        while let Some(bytes) = peer.some() {
            peer.send(bytes);
        }
        peer.send("bye");
        peer.finish();
        return;
    }
}

/// The same over HTTP/2, one stream after the other.
fn echo_h2(mut peer: H2Peer, received: &Mutex<Vec<RequestHead>>) {
    while let Some((stream, head)) = peer.next() {
        received.lock().unwrap().push(head.clone());
        if head.protocol() != Some("websocket") {
            peer.answer(stream, Status::OK, "plain");
        } else if head.path() == "/no" {
            peer.answer(stream, Status::FORBIDDEN, "no");
        } else {
            echo_stream(&mut peer, stream);
        }
    }
}

fn echo_stream(peer: &mut H2Peer, stream: StreamId) {
    let mut head = ResponseHead::new(Status::OK);
    head.fields.append(Name::SecWebSocketProtocol, "p");
    head.fields.append(Name::SecWebSocketAccept, "of nobody");
    peer.start(stream, &head, BodyLength::Unknown);
    let mut sent = 0;
    loop {
        let received = peer.until(stream, |received| {
            received.content.len() > sent || received.is_complete || received.reset.is_some()
        });
        if received.reset.is_some() {
            return;
        }
        peer.send(stream, &received.content[sent..], false);
        sent = received.content.len();
        if received.is_complete {
            return peer.send(stream, b"bye", true);
        }
    }
}

/// An HTTP/2 upstream without TLS, and the requests that it has received.
struct H2c {
    upstream: H2Upstream,
    received: Arc<Mutex<Vec<RequestHead>>>,
}

impl H2c {
    fn new(supports_connect: bool) -> H2c {
        H2c::delayed(supports_connect, Duration::ZERO)
    }

    /// Sends its SETTINGS after this delay.
    fn delayed(supports_connect: bool, delay: Duration) -> H2c {
        let received = Arc::<Mutex<Vec<RequestHead>>>::default();
        let seen = Arc::clone(&received);
        let upstream = H2Upstream::scripted(move |_, mut peer| {
            if !supports_connect {
                disable_extended_connect(&mut peer);
            }
            thread::sleep(delay);
            echo_h2(peer, &seen);
        });
        H2c { upstream, received }
    }

    fn proxy(&self, io: IoChoice) -> Proxy {
        Proxy::to(io, &[&self.upstream.url])
    }

    fn accepted(&self) -> usize {
        self.upstream.accepted()
    }

    fn received(&self) -> Vec<RequestHead> {
        self.received.lock().unwrap().clone()
    }
}

/// Replaces SETTINGS_ENABLE_CONNECT_PROTOCOL by an unknown setting.
fn disable_extended_connect(peer: &mut H2Peer) {
    let setting = [0, 8, 0, 0, 0, 1];
    let at = peer.out.windows(6).position(|bytes| bytes == setting);
    peer.out[at.unwrap()] = 0xf0;
}

/// A WebSocket of an HTTP/1.1 client, from the handshake to the end.
fn check_websocket_h1(proxy: &Proxy) {
    let mut peer = proxy.peer();
    peer.send(upgrade_request("/chat", KEY) + "early");
    let answer = peer.head().unwrap();
    assert_eq!(answer.line, "HTTP/1.1 101 Switching Protocols");
    assert_eq!(answer.field("upgrade"), Some("websocket"));
    assert_eq!(answer.field("sec-websocket-accept"), Some(ACCEPT));
    assert_eq!(answer.field("sec-websocket-protocol"), Some("p"));
    assert_eq!(peer.exactly(5).unwrap(), b"early");
    for message in ["one", "two"] {
        peer.send(message);
        assert_eq!(peer.exactly(3).unwrap(), message.as_bytes());
    }
    let large = "x".repeat(1 << 17);
    thread::scope(|scope| {
        let mut writer = peer.writer();
        scope.spawn(move || std::io::Write::write_all(&mut writer, large.as_bytes()).unwrap());
        assert_eq!(peer.exactly(1 << 17).unwrap().len(), 1 << 17);
    });
    peer.send("last");
    peer.finish();
    assert_eq!(peer.rest(), (b"lastbye".to_vec(), true));
}

/// The same over HTTP/2.
fn check_websocket_h2(proxy: &Proxy) {
    let mut client = Client::connect(proxy.address);
    // Its SETTINGS arrive with the first response.
    client.get("/plain");
    assert!(client.machine.allows_extended_connect());
    let stream = client.send_head(&connect("/chat"), BodyLength::Unknown);
    client.send(stream, b"early", false);
    let answer = client.until(stream, |answer| answer.content == b"early");
    assert_eq!(answer.status, Some(Status::OK));
    assert_eq!(answer.fields.get_str(Name::SecWebSocketProtocol), Some("p"));
    for name in [Name::Upgrade, Name::Connection, Name::SecWebSocketAccept] {
        assert_eq!(answer.fields.get(name), None, "{name:?}");
    }
    let mut length = 5;
    for bytes in [&b"one"[..], &[b'x'; 50_000], &[b'y'; 200_000]] {
        client.send(stream, bytes, false);
        length += bytes.len();
        client.until(stream, |answer| answer.content.len() == length);
    }
    client.send(stream, b"last", true);
    assert!(client.answer(stream).content.ends_with(b"lastbye"));
}

fn status_of(proxy: &Proxy, request: &str) -> (u16, Option<String>) {
    let mut client = proxy.client();
    client.send(request);
    let answer = client.response();
    (
        answer.status,
        answer.field("proxy-status").map(str::to_owned),
    )
}

const UPGRADE_FAILED: &str = "blitz; error=http_upgrade_failed";

scenarios! {
    fn every_version_reaches_every_version(io) {
        let one = Upstream::scripted(|_, peer| echo_h1(peer));
        let two = H2c::new(true);
        let tls = TlsUpstream::scripted(&["h2", "http/1.1"], |_, accepted| match accepted {
            Accepted::H1(mut peer) => echo_h1(&mut peer),
            Accepted::H2(peer) => echo_h2(*peer, &Mutex::default()),
        });
        for proxy in [Proxy::to(io, &[&one.url()]), two.proxy(io), tls.proxy(io)] {
            check_websocket_h1(&proxy);
            check_websocket_h2(&proxy);
            assert_eq!(proxy.counters().tunnels, 2);
            eventually("nothing is left", || proxy.http_counters().connections == 0);
        }
        for head in two.received().iter().filter(|head| head.path() == "/chat") {
            assert_eq!((head.method_str(), head.protocol()), ("CONNECT", Some("websocket")));
            assert_eq!((head.scheme(), head.authority()), (Some("http"), Some("a")));
            assert_eq!(head.fields.get_str(Name::SecWebSocketVersion), Some("13"));
            for name in [Name::SecWebSocketKey, Name::Upgrade, Name::Connection] {
                assert_eq!(head.fields.get(name), None, "{name:?}");
            }
        }
        assert_eq!(two.accepted(), 1);
        assert_eq!(tls.accepted(), 1);
    }

    fn an_extended_connect_that_its_route_does_not_allow_is_refused(io) {
        let upstream = Upstream::scripted(|_, peer| echo_h1(peer));
        let text = format!(
            "[site.\"*\"]\nto = \"{}\"\n\"/chat\".upgrade = [\"tcp\"]\n",
            upstream.url()
        );
        let proxy = gateway_with(io, Options::default(), &text);
        let mut client = Client::connect(proxy.address);
        assert_eq!(client.get("/plain").content, b"plain");
        let stream = client.send_head(&connect("/chat"), BodyLength::Unknown);
        assert_eq!(client.answer(stream).status, Some(Status::METHOD_NOT_ALLOWED));
        assert_eq!(client.get("/plain").content, b"plain", "its neighbours are not harmed");
        assert!(upstream.heads().iter().all(|head| head.line.contains("/plain")));
    }

    fn a_tls_upstream_without_extended_connect_gets_http1(io) {
        let tls = TlsUpstream::scripted(&["h2", "http/1.1"], |_, accepted| match accepted {
            Accepted::H1(mut peer) => echo_h1(&mut peer),
            Accepted::H2(mut peer) => {
                disable_extended_connect(&mut peer);
                echo_h2(*peer, &Mutex::default());
            }
        });
        let proxy = tls.proxy(io);
        check_websocket_h1(&proxy);
        check_websocket_h2(&proxy);
        let mut client = proxy.client();
        for _ in 0..3 {
            assert_eq!(client.get("/").text(), "plain");
        }
        assert_eq!(tls.accepted(), 3, "one of HTTP/2, and one for each WebSocket");
        // A refusal over HTTP/1.1 leaves no connection in the pool.
        assert_eq!(status_of(&proxy, &upgrade_request("/no", KEY)).0, 200);
        assert_eq!(client.get("/").text(), "plain");
        assert_eq!(proxy.http_counters().upstream_idle, 1);
    }

    fn an_h2c_upstream_without_extended_connect_gets_no_request_but_502(io) {
        let upstream = H2c::new(false);
        let proxy = upstream.proxy(io);
        for _ in 0..2 {
            let (status, proxy_status) = status_of(&proxy, &upgrade_request("/chat", KEY));
            assert_eq!((status, proxy_status.as_deref()), (502, Some(UPGRADE_FAILED)));
            let mut client = Client::connect(proxy.address);
            client.get("/");
            let stream = client.send_head(&connect("/chat"), BodyLength::Unknown);
            let answer = client.until(stream, |answer| answer.status.is_some());
            assert_eq!(answer.status, Some(Status::BAD_GATEWAY));
            assert_eq!(answer.fields.get_str(Name::ProxyStatus), Some(UPGRADE_FAILED));
        }
        assert!(upstream.received().iter().all(|head| head.path() == "/"));
        // The address has no cooldown.
        assert_eq!(proxy.client().get("/").text(), "plain");
        assert_eq!(upstream.accepted(), 1);
    }

    fn the_first_websocket_waits_for_the_upstreams_settings(io) {
        let upstream = H2c::delayed(true, Duration::from_millis(100));
        let proxy = upstream.proxy(io);
        check_websocket_h1(&proxy);
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("h2c://{}", silent.local_addr().unwrap());
        let mut options = Options::default();
        options.client.limits.connect_timeout = Duration::from_millis(100);
        let proxy = Proxy::with(io, &[&url], options);
        assert_eq!(status_of(&proxy, &upgrade_request("/", KEY)).1.as_deref(), Some(UPGRADE_FAILED));
    }

    fn an_invalid_accept_field_is_a_bad_gateway(io) {
        let upstream = Upstream::scripted(|_, peer| echo_h1(peer));
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = Client::connect(proxy.address);
        client.get("/");
        for path in ["/wrong", "/missing", "/empty", "/twice"] {
            let stream = client.send_head(&connect(path), BodyLength::Unknown);
            let answer = client.until(stream, |answer| answer.status.is_some());
            assert_eq!(answer.status, Some(Status::BAD_GATEWAY), "{path}");
            assert_eq!(answer.fields.get_str(Name::ProxyStatus), Some(UPGRADE_FAILED));
        }
        assert_eq!(proxy.counters().tunnels, 0);
    }

    fn refusals_of_the_upstream_are_forwarded(io) {
        let upstream = H2c::new(true);
        let proxy = upstream.proxy(io);
        let mut client = proxy.client();
        client.send(upgrade_request("/no", KEY));
        let answer = client.response();
        assert_eq!((answer.status, answer.text()), (403, "no"));
        assert_eq!(client.get("/").text(), "plain");
        let mut client = Client::connect(proxy.address);
        client.get("/");
        let stream = client.send_head(&connect("/no"), BodyLength::Unknown);
        let answer = client.until(stream, |answer| answer.is_complete);
        assert_eq!((answer.status, &answer.content[..]), (Some(Status::FORBIDDEN), &b"no"[..]));
    }

    fn an_invalid_key_is_a_bad_request_if_the_gateway_has_to_answer_it(io) {
        let upstream = H2c::new(true);
        let proxy = upstream.proxy(io);
        for key in ["", "short", "dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Key: x"] {
            assert_eq!(status_of(&proxy, &upgrade_request("/chat", key)).0, 400, "{key:?}");
        }
        assert_eq!(upstream.received().len(), 0);
    }

    fn each_side_closes_when_the_other_closes(io) {
        let (sender, receiver) = channel();
        let upstream = H2Upstream::scripted(move |_, mut peer| {
            while let Some((stream, head)) = peer.next() {
                peer.start(stream, &ResponseHead::new(Status::OK), BodyLength::Unknown);
                peer.send(stream, b"hello", false);
                if head.path() == "/resets" {
                    peer.until(stream, |received| received.content == b"now");
                    peer.reset(stream, Code::INTERNAL_ERROR);
                    continue;
                }
                if head.path() == "/ends" {
                    peer.send(stream, b"", true);
                }
                let received = peer.until(stream, |received| received.is_complete || received.reset.is_some());
                let _ = sender.send((head.path().to_owned(), received.reset, received.content));
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        let begin = |path: &str| {
            let mut peer = proxy.peer();
            peer.send(upgrade_request(path, KEY));
            assert!(peer.head().unwrap().line.contains("101"));
            assert_eq!(peer.exactly(5).unwrap(), b"hello");
            peer
        };
        let peer = begin("/client-resets");
        peer.reset();
        let (_, reset, _) = result_of(&receiver);
        assert_eq!(reset, Some(Code::CANCEL));
        let mut peer = begin("/ends");
        assert!(peer.is_closed_by_peer());
        peer.send("still here");
        peer.finish();
        assert_eq!(result_of(&receiver), ("/ends".to_owned(), None, b"still here".to_vec()));
        let mut peer = begin("/resets");
        peer.send("now");
        assert!(peer.is_closed_by_peer());
        eventually("nothing is left", || proxy.http_counters().connections == 0);
        assert_eq!(upstream.accepted(), 1, "the connection is none the worse");
    }

    fn a_silent_websocket_times_out_over_http2(io) {
        let upstream = Upstream::scripted(|_, peer| echo_h1(peer));
        let options = Options {
            limits: Limits {
                stream_idle_timeout: Duration::from_millis(300),
                ..Limits::default()
            },
            ..Options::default()
        };
        let proxy = Proxy::with(io, &[&upstream.url()], options);
        let mut client = Client::connect(proxy.address);
        client.get("/plain");
        let stream = client.send_head(&connect("/chat"), BodyLength::Unknown);
        // Longer than the timeout, but not silent.
        for length in 1..=5 {
            client.send(stream, b"x", false);
            client.until(stream, |answer| answer.content.len() == length);
            thread::sleep(Duration::from_millis(100));
        }
        eventually("given up", || proxy.http_counters().tunnel_timeouts == 1);
        client.until(stream, |answer| answer.reset.is_some());
        assert_eq!(client.get("/plain").content, b"plain");
    }

    fn data_before_a_reset_is_delivered(io) {
        let upstream = H2Upstream::scripted(|_, mut peer| {
            while let Some((stream, head)) = peer.next() {
                peer.start(stream, &ResponseHead::new(Status::OK), BodyLength::Unknown);
                peer.send(stream, b"hello", false);
                peer.until(stream, |received| received.content == b"close");
                let ends = head.path() == "/ends";
                peer.send_and_reset(stream, b"closed", ends, Code::CANCEL);
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        for path in ["/ends", "/breaks"] {
            let mut peer = proxy.peer();
            peer.send(upgrade_request(path, KEY));
            assert!(peer.head().unwrap().line.contains("101"));
            assert_eq!(peer.exactly(5).unwrap(), b"hello");
            peer.send("close");
            assert_eq!(peer.exactly(6).unwrap(), b"closed", "{path}");
            assert!(peer.is_closed_by_peer());
        }
        eventually("nothing is left", || proxy.http_counters().connections == 0);
    }

    fn a_handshake_on_a_dead_pooled_connection_is_retried(io) {
        let upstream = H2Upstream::scripted(|_, mut peer| {
            // The first request gets a response; the second finds the connection closed.
            let (stream, head) = peer.next().unwrap();
            if head.protocol().is_some() {
                echo_stream(&mut peer, stream);
                return peer.expect_end();
            }
            peer.answer(stream, Status::OK, "plain");
            drop(peer.next());
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        assert_eq!(proxy.client().get("/").text(), "plain");
        check_websocket_h1(&proxy);
        assert_eq!(proxy.counters().retries, 1);
        assert_eq!(upstream.accepted(), 2);
    }
}
