//! How a WebSocket ends when one side has ended (rule 16).

use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use blitz_gateway::Options;
use blitz_http::{BodyLength, Method, Name, RequestHead, ResponseHead, Status, WebSocketKey};
use blitz_proto::h2::{Code, StreamId};
use blitz_testing::H1Peer;
use blitz_testing::h3::kind::{DATA, HEADERS};
use blitz_testing::h3::{data, request_with};
use blitz_testing::quic::{RawClient, RawExchange, ResponseEnd};

use crate::h2::{H2Upstream, result_of};
use crate::h2_client::Client;
use crate::h3_support::{QuicServer, block_on};
use crate::support::{Proxy, Upstream};

/// The time within which the tester of a closed tunnel expects that it is gone.
const GONE: Duration = Duration::from_secs(3);

/// More than a connection may have at a time.
const MANY: usize = 130;

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

fn switch(peer: &mut H1Peer) -> bool {
    let Some(head) = peer.head() else {
        return false;
    };
    let key = WebSocketKey::parse(head.field("sec-websocket-key").unwrap().as_bytes());
    peer.send(format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: {}\r\n\r\n",
        key.unwrap().accept()
    ))
}

fn content() -> Vec<u8> {
    (0..300_000_u32).map(|at| (at % 251) as u8).collect()
}

/// An upstream that sends content and FIN when it has received a byte, and then the time until the
/// gateway has closed the connection.
fn closing_upstream() -> (Upstream, Receiver<Duration>) {
    let (sender, receiver) = channel();
    let upstream = Upstream::scripted(move |_, peer| {
        if switch(peer) && peer.exactly(1).is_some() {
            peer.send(content());
            peer.finish();
            let ended = Instant::now();
            peer.rest();
            let _ = sender.send(ended.elapsed());
        }
    });
    (upstream, receiver)
}

/// An upstream that receives until FIN, sends for a second, and never ends its own side; with what it has
/// received, and whether the gateway has closed the connection a second later.
fn open_upstream() -> (Upstream, Receiver<(Vec<u8>, bool)>) {
    let (sender, receiver) = channel();
    let upstream = Upstream::scripted(move |_, peer| {
        if !switch(peer) {
            return;
        }
        let (received, _) = peer.rest();
        for _ in 0..20 {
            peer.send("tick");
            thread::sleep(Duration::from_millis(50));
        }
        thread::sleep(Duration::from_secs(1));
        // A closed connection answers with RST.
        peer.send("late");
        thread::sleep(Duration::from_millis(50));
        let _ = sender.send((received, !peer.send("late")));
    });
    (upstream, receiver)
}

fn half_close_timeout(timeout: Duration) -> Options {
    let mut options = Options::default();
    options.limits.tunnel_half_close_timeout = timeout;
    options
}

fn connect() -> RequestHead {
    let mut head = RequestHead::new(Method::Get, "/chat");
    head.set_authority("a");
    head.set_protocol(Some("websocket"));
    head.fields.append(Name::SecWebSocketVersion, "13");
    head
}

fn h2_client(proxy: &Proxy) -> Client {
    let mut client = Client::connect(proxy.address);
    client.flush();
    while !client.machine.allows_extended_connect() {
        assert!(client.receive());
    }
    client
}

fn open_h2(client: &mut Client) -> StreamId {
    let stream = client.send_head(&connect(), BodyLength::Unknown);
    let answer = client.until(stream, |answer| {
        answer.status.is_some() || answer.reset.is_some()
    });
    assert_eq!(answer.status, Some(Status::OK), "{answer:?}");
    stream
}

async fn open_h3(client: &RawClient) -> RawExchange {
    let head = [(":protocol", "websocket"), ("sec-websocket-version", "13")];
    let mut exchange = client
        .exchange(request_with("CONNECT", "/chat", &head))
        .await;
    assert_eq!(exchange.frame().await.unwrap().0, HEADERS);
    exchange
}

async fn rest_h3(exchange: &mut RawExchange) -> (Vec<u8>, ResponseEnd) {
    let mut content = Vec::new();
    loop {
        match exchange.frame().await {
            Ok((DATA, piece)) => content.extend_from_slice(&piece),
            Ok((kind, _)) => panic!("frame of type {kind:#x}"),
            Err(end) => return (content, end),
        }
    }
}

fn h1_client(proxy: &Proxy) -> H1Peer {
    let mut peer = proxy.peer();
    peer.send(format!(
        "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ));
    assert!(peer.head().unwrap().line.contains("101"));
    peer
}

scenarios! {
    fn the_stream_of_an_http2_client_ends_with_the_upstream(io) {
        let (upstream, closed) = closing_upstream();
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = h2_client(&proxy);
        let stream = open_h2(&mut client);
        client.send(stream, b"x", false);
        let answer = client.until(stream, |answer| answer.is_complete || answer.reset.is_some());
        let ended = Instant::now();
        assert_eq!((answer.reset, answer.content == content()), (None, true));
        assert!(result_of(&closed) < GONE / 3);
        // It is discarded.
        client.send(stream, &[b'y'; 10_000], false);
        let answer = client.until(stream, |answer| answer.reset.is_some());
        assert_eq!(answer.reset, Some(Code::NO_ERROR));
        assert!(ended.elapsed() < GONE);
        assert_eq!(client.machine.stream_count(), 0);
    }

    fn the_stream_of_an_http2_client_ends_with_that_of_the_upstream(io) {
        let (sender, receiver) = channel();
        let upstream = H2Upstream::scripted(move |_, mut peer| {
            while let Some((stream, _)) = peer.next() {
                peer.start(stream, &ResponseHead::new(Status::OK), BodyLength::Unknown);
                peer.until(stream, |received| received.content == b"x");
                peer.send(stream, &content(), true);
                let ended = Instant::now();
                let received = peer.until(stream, |received| received.is_complete || received.reset.is_some());
                let _ = sender.send((received.reset, ended.elapsed()));
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        let mut client = h2_client(&proxy);
        for _ in 0..2 {
            let stream = open_h2(&mut client);
            client.send(stream, b"x", false);
            assert!(client.answer(stream).content == content());
            let (reset, elapsed) = result_of(&receiver);
            assert_eq!(reset, None, "the stream ends without a reset");
            assert!(elapsed < GONE / 3);
        }
        assert_eq!(upstream.accepted(), 1);
    }

    fn a_failed_upstream_is_an_error_of_the_stream(io) {
        let upstream = Upstream::scripted(|_, peer| {
            if switch(peer) && peer.exactly(1).is_some() {
                peer.send("last");
                // It is sent with RST: a byte is left unread.
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = h2_client(&proxy);
        let stream = open_h2(&mut client);
        client.send(stream, b"xx", false);
        let answer = client.answer(stream);
        assert_eq!(answer.content, b"last");
        assert!(answer.is_complete || answer.reset == Some(Code::CONNECT_ERROR), "{answer:?}");
    }

    fn more_websockets_than_streams_are_opened_one_after_the_other(io) {
        let (upstream, closed) = closing_upstream();
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = h2_client(&proxy);
        for _ in 0..MANY {
            let stream = open_h2(&mut client);
            client.send(stream, b"x", false);
            let answer = client.until(stream, |answer| answer.is_complete);
            assert!(answer.content == content());
            // To this client, as to Firefox, the stream is over with the upstream's end.
            client.machine.reset(stream, Code::CANCEL, &mut Vec::new());
            assert!(result_of(&closed) < GONE / 3);
        }
        assert_eq!(proxy.http_counters().refused_for("stream-limit"), 0);
        assert_eq!(proxy.counters().tunnels, MANY as u64);
        assert_eq!(client.go_away, None);
    }

    fn a_tunnel_ends_soon_after_its_http2_client(io) {
        let (upstream, received) = open_upstream();
        let proxy = Proxy::with(io, &[&upstream.url()], half_close_timeout(GONE / 6));
        let mut client = h2_client(&proxy);
        let stream = open_h2(&mut client);
        client.send(stream, b"last", true);
        let answer = client.answer(stream);
        assert_eq!((answer.reset, answer.content), (None, b"tick".repeat(20)), "bytes extend the time");
        assert_eq!(result_of(&received), (b"last".to_vec(), true));
        assert_eq!(proxy.counters().tunnels_half_closed, 1);
    }

    fn a_tunnel_ends_soon_after_its_http1_client(io) {
        let (upstream, received) = open_upstream();
        let proxy = Proxy::with(io, &[&upstream.url()], half_close_timeout(GONE / 6));
        let mut peer = h1_client(&proxy);
        peer.send("last");
        peer.finish();
        assert_eq!(peer.rest(), (b"tick".repeat(20), true));
        assert_eq!(result_of(&received), (b"last".to_vec(), true));
    }

    fn an_http1_client_that_does_not_end_has_a_moment_after_the_upstream(io) {
        let (upstream, closed) = closing_upstream();
        let proxy = Proxy::with(io, &[&upstream.url()], half_close_timeout(GONE / 10));
        let mut peer = h1_client(&proxy);
        peer.send("x");
        assert!(peer.rest() == (content(), true));
        let closed = result_of(&closed);
        assert!((GONE / 20..GONE / 3).contains(&closed), "{closed:?}");
    }

    fn the_stream_of_an_http3_client_ends_with_the_upstream(io) {
        let (upstream, closed) = closing_upstream();
        let server = QuicServer::to(io, &upstream.url(), Options::default());
        block_on(async {
            let client = server.raw_client().await;
            let mut exchange = open_h3(&client).await;
            exchange.write(data("x")).await;
            let (received, end) = rest_h3(&mut exchange).await;
            let ended = Instant::now();
            assert!(received == content() && end == ResponseEnd::Fin, "{end:?}");
            exchange.write(data([b'y'; 10_000])).await;
            assert_eq!(exchange.stop_code().await, Some(0x100));
            assert!(ended.elapsed() < GONE);
        });
        assert!(result_of(&closed) < GONE / 3);
    }

    fn more_websockets_than_streams_are_opened_over_http3(io) {
        let (upstream, closed) = closing_upstream();
        let server = QuicServer::to(io, &upstream.url(), Options::default());
        let began = Instant::now();
        block_on(async {
            let client = server.raw_client().await;
            for _ in 0..MANY {
                let mut exchange = open_h3(&client).await;
                exchange.write(data("x")).await;
                let (received, end) = rest_h3(&mut exchange).await;
                assert!(received == content() && end == ResponseEnd::Fin, "{end:?}");
                // RFC 9000, section 3.5: the answer to STOP_SENDING is a reset.
                tokio::spawn(async move {
                    exchange.stop_code().await;
                    exchange.send.reset(0_u32.into()).unwrap();
                });
            }
        });
        assert!(began.elapsed() < 4 * GONE);
        assert_eq!(server.proxy.counters().tunnels, MANY as u64);
        for _ in 0..MANY {
            assert!(result_of(&closed) < GONE / 3);
        }
    }

    fn a_tunnel_ends_soon_after_its_http3_client(io) {
        let (upstream, received) = open_upstream();
        let server = QuicServer::to(io, &upstream.url(), half_close_timeout(GONE / 6));
        block_on(async {
            let client = server.raw_client().await;
            let mut exchange = open_h3(&client).await;
            exchange.write(data("last")).await;
            exchange.send.finish().unwrap();
            assert_eq!(rest_h3(&mut exchange).await, (b"tick".repeat(20), ResponseEnd::Fin));
        });
        assert_eq!(result_of(&received), (b"last".to_vec(), true));
    }
}
