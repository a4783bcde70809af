//! Clients of HTTP/1.1.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use blitz_testing::{Client, H1Peer};

use super::ledger::Ledger;

/// Longer than any timeout of the gateway.
const PATIENCE: Duration = Duration::from_secs(30);

fn head(method: &str, path: &str, lines: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n")
}

fn peer(address: SocketAddr) -> H1Peer {
    H1Peer::new(TcpStream::connect(address).unwrap())
}

fn status(line: &str) -> u16 {
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Requests of all kinds, one after another.
pub(super) fn run(ledger: &Ledger, address: SocketAddr, rounds: usize) {
    for _ in 0..rounds {
        let mut client = Client::connect(address);
        for kind in ["ok", "missing", "fixed", "ok"] {
            ask(ledger, &mut client, &get, kind);
        }
        pipelined(ledger, &mut client);
        let upload = |path: &str| head("POST", path, "Content-Length: 5\r\n") + "hello";
        ask(ledger, &mut client, &upload, "ok");
        let chunked = "Transfer-Encoding: chunked\r\n";
        let chunked = |path: &str| head("POST", path, chunked) + "5\r\nhello\r\n0\r\n\r\n";
        ask(ledger, &mut Client::connect(address), &chunked, "ok");
        for kind in ["closed", "down", "slow", "reset"] {
            ask(ledger, &mut Client::connect(address), &get, kind);
        }
        let malformed = |path: &str| head("GET", path, "Bad Name: x\r\n");
        ask(ledger, &mut Client::connect(address), &malformed, "bad");
        cut(ledger, address);
        leave(ledger, address);
    }
}

fn get(path: &str) -> String {
    head("GET", path, "")
}

/// A request with a complete response.
fn ask(ledger: &Ledger, client: &mut Client, request: &dyn Fn(&str) -> String, kind: &str) {
    let path = ledger.send(kind, "http1");
    client.send(request(&path));
    ledger.got(&path, client.response().status);
}

fn pipelined(ledger: &Ledger, client: &mut Client) {
    let paths = ["ok", "fixed", "missing"].map(|kind| ledger.send(kind, "http1"));
    client.send(paths.each_ref().map(|path| get(path)).concat());
    for path in paths {
        ledger.got(&path, client.response().status);
    }
}

/// The response ends early.
fn cut(ledger: &Ledger, address: SocketAddr) {
    let path = ledger.send("cut", "http1");
    let mut peer = peer(address);
    peer.send(get(&path));
    ledger.got(&path, status(&peer.head().unwrap().line));
    assert_eq!(peer.rest().0, b"hello");
}

/// Clients that leave: within a request, before its response, and within it; with FIN and with RST.
fn leave(ledger: &Ledger, address: SocketAddr) {
    for resets in [false, true] {
        let leave = |peer: H1Peer| match resets {
            true => peer.reset(),
            false => drop(peer),
        };
        let path = ledger.send("upload", "http1");
        let mut within_request = peer(address);
        within_request.send(head("POST", &path, "Content-Length: 1000\r\n") + "hello");
        ledger.wait_arrived(&path);
        leave(within_request);

        let path = ledger.send("slow", "http1");
        let mut before_response = peer(address);
        before_response.send(get(&path));
        ledger.wait_arrived(&path);
        leave(before_response);

        let path = ledger.send("stream", "http1");
        let mut within_response = peer(address);
        within_response.send(get(&path));
        ledger.got(&path, status(&within_response.head().unwrap().line));
        within_response.some();
        leave(within_response);

        // The gateway may not see the request.
        let path = ledger.send("partial", "http1");
        let mut within_head = peer(address);
        within_head.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n"));
        leave(within_head);
        let path = ledger.send("ok", "http1");
        let mut at_once = peer(address);
        at_once.send(get(&path));
        leave(at_once);
    }
}

/// A head that is not complete in time.
pub(super) fn leave_slowly(ledger: &Ledger, address: SocketAddr) {
    let path = ledger.send("slow-head", "http1");
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n").unwrap();
    ledger.got(&path, read_status(&mut stream));
}

/// Content that comes too slowly.
pub(super) fn upload_slowly(ledger: &Ledger, address: SocketAddr) {
    let path = ledger.send("slow-upload", "http1");
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "{}",
        head("POST", &path, "Content-Length: 1000\r\n")
    )
    .unwrap();
    let mut writer = stream.try_clone().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            let end = Instant::now() + PATIENCE;
            while Instant::now() < end && writer.write_all(b"x").is_ok() {
                thread::sleep(Duration::from_millis(100));
            }
        });
        ledger.got(&path, read_status(&mut stream));
        let _ = stream.shutdown(Shutdown::Both);
    });
}

fn read_status(stream: &mut TcpStream) -> u16 {
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        response.push(byte[0]);
    }
    status(&String::from_utf8(response).unwrap())
}

/// A request that ends within the drain, one that is cut off, and new ones until the process accepts no more.
pub(super) fn be_drained(ledger: &Ledger, address: SocketAddr) {
    let path = ledger.send("stream", "http1");
    let mut streamed = peer(address);
    streamed.send(get(&path));
    ledger.got(&path, status(&streamed.head().unwrap().line));
    let path = ledger.send("hold", "http1");
    let mut held = peer(address);
    held.send(get(&path));
    ledger.wait_arrived(&path);
    ledger.is_drainable();
    while let Ok(stream) = TcpStream::connect(address) {
        let path = ledger.send("ok", "http1");
        let mut peer = H1Peer::new(stream);
        peer.send(head("GET", &path, "Connection: close\r\n"));
        let Some(head) = peer.head() else { continue };
        ledger.got(&path, status(&head.line));
        peer.rest();
    }
    ledger.got(&path, status(&held.head().unwrap().line));
    streamed.rest();
}
