//! Sites that are replaced while requests run: each ends with the sites that it began with, and nothing is lost.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use blitz_http::{BodyLength, Method, Status};
use blitz_testing::H1Peer;

use crate::h2::{H2Upstream, h2};
use crate::support::{Proxy, Upstream, eventually, held};

const WEBSOCKET: &str = "GET /socket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                         Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// Content of a download, and how often it is sent.
const PART: [u8; 1000] = [b'x'; 1000];
const PARTS: usize = 20;

/// Sends a part of the download each time that the sender sends.
fn download(peer: &mut H1Peer, next: &Receiver<()>) {
    peer.send(format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
        PART.len() * PARTS
    ));
    for _ in 0..PARTS {
        let _ = next.recv();
        peer.send(PART);
    }
}

/// An upstream with a download and a WebSocket that echoes.
fn long_lived() -> (Upstream, Sender<()>) {
    let (send, next) = channel();
    let next = Mutex::new(next);
    let upstream = Upstream::scripted(move |_, peer| {
        while let Some((head, _)) = peer.request() {
            if head.field("upgrade").is_none() {
                download(peer, &next.lock().unwrap());
                continue;
            }
            peer.send(SWITCHING);
            while let Some(bytes) = peer.some() {
                peer.send(bytes);
            }
        }
    });
    (upstream, send)
}

scenarios! {
    fn a_request_ends_with_its_route_and_the_next_one_has_the_new_route(io) {
        let ((old, release), new) = (held("old"), Upstream::with_text("new"));
        let mut proxy = Proxy::to(io, &[&old.url()]);
        let mut client = proxy.client();
        client.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\n");
        eventually("the request arrives", || old.heads().len() == 1);
        proxy.replace_targets(&[&new.url()]);
        client.send("GET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(proxy.counters().snapshots, 2);
        release.send(()).unwrap();
        assert_eq!(client.response().text(), "old");
        assert_eq!(client.response().text(), "new");
        eventually("the old snapshot is freed", || proxy.counters().snapshots == 1);
        assert_eq!((old.accepted(), new.accepted()), (1, 1));
    }

    fn streams_of_a_connection_have_the_routes_of_their_begin(io) {
        let ((old, release), new) = (held("old"), Upstream::with_text("new"));
        let mut proxy = Proxy::to(io, &[&old.url()]);
        let mut client = h2(&proxy);
        let first = client.request(Method::Get, "/1", BodyLength::Empty);
        client.flush();
        eventually("the request arrives", || old.heads().len() == 1);
        proxy.replace_targets(&[&new.url()]);
        assert_eq!(client.get("/2").content, b"new");
        release.send(()).unwrap();
        assert_eq!(client.answer(first).content, b"old");
        eventually("the old snapshot is freed", || proxy.counters().snapshots == 1);
    }

    fn upstreams_that_stay_keep_their_connections(io) {
        let other = Upstream::with_text("other");
        let upstream = Upstream::with_text("stays");
        let multiplexed = H2Upstream::scripted(|_, mut peer| {
            while let Some((stream, _)) = peer.request() {
                peer.answer(stream, Status::OK, "stays too");
            }
        });
        let (stays, stays_too) = (upstream.url(), format!("/h2={}", multiplexed.url));
        let mut proxy = Proxy::to(io, &[&stays, &stays_too]);
        let mut client = proxy.client();
        for turn in 0..5 {
            assert_eq!(client.get("/").text(), "stays");
            assert_eq!(client.get("/h2").text(), "stays too");
            eventually("both connections are idle", || proxy.http_counters().upstream_idle == 2);
            let changing = format!("/{turn}={}", other.url());
            proxy.replace_targets(&[&stays, &stays_too, &changing]);
        }
        assert_eq!(client.get("/4").text(), "other");
        assert_eq!((upstream.accepted(), multiplexed.accepted()), (1, 1));
        assert_eq!(proxy.http_counters().connections, 1, "the client kept its connection");
    }

    fn websockets_and_downloads_outlive_their_routes(io) {
        let ((old, send), new) = (long_lived(), Upstream::with_text("new"));
        let mut proxy = Proxy::to(io, &[&old.url()]);
        let mut socket = proxy.peer();
        socket.send(WEBSOCKET);
        assert_eq!(socket.head().unwrap().line, "HTTP/1.1 101 Switching Protocols");
        let mut downloads = [proxy.peer(), proxy.peer()];
        let [first, second] = &mut downloads;
        first.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\n");
        send.send(()).unwrap();
        assert_eq!(first.head().unwrap().line, "HTTP/1.1 200 OK");
        assert_eq!(first.exactly(PART.len()).unwrap(), PART);
        for _ in 1..PARTS {
            proxy.replace_targets(&[&new.url()]);
            socket.send("ping");
            assert_eq!(socket.exactly(4).unwrap(), b"ping");
            send.send(()).unwrap();
            assert_eq!(first.exactly(PART.len()).unwrap(), PART);
        }
        // The same connection gets the new route.
        for peer in [first, second] {
            peer.send("GET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(peer.head().unwrap().line, "HTTP/1.1 200 OK");
            assert_eq!(peer.exactly(3).unwrap(), b"new");
        }
        assert_eq!(proxy.counters().snapshots, 2, "the WebSocket has the old one");
        socket.finish();
        assert!(socket.is_closed_by_peer());
        eventually("the old snapshot is freed", || proxy.counters().snapshots == 1);
    }
}
