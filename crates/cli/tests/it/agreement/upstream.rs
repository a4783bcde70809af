//! The upstream, which does what the path of a request says.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use blitz_testing::H1Peer;

use super::ledger::Ledger;

/// The time that a response with `hold` takes.
const HOLD: Duration = Duration::from_millis(300);

/// The time between two pieces of a stream.
const BETWEEN_PIECES: Duration = Duration::from_millis(5);

/// Starts it.
pub(super) fn start(ledger: &Arc<Ledger>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let ledger = Arc::clone(ledger);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let ledger = Arc::clone(&ledger);
            thread::spawn(move || serve(&ledger, H1Peer::new(stream)));
        }
    });
    address
}

/// Serves a connection until it is closed.
fn serve(ledger: &Ledger, mut peer: H1Peer) {
    while let Some(head) = peer.head() {
        let path = head.line.split(' ').nth(1).expect("a request line");
        ledger.arrived(path);
        let kind = path.split('/').nth(1).expect("a path has a kind");
        if kind == "reset" {
            return;
        }
        let length = head
            .field("content-length")
            .map(|length| length.parse().unwrap());
        let is_whole = match head.field("transfer-encoding") {
            Some(_) => peer.chunks().is_some(),
            None => peer.exactly(length.unwrap_or(0)).is_some(),
        };
        let goes_on = is_whole && respond(&mut peer, kind, head.line.starts_with("HEAD"));
        if !goes_on {
            return;
        }
    }
}

/// Responds; false if the connection ends.
fn respond(peer: &mut H1Peer, kind: &str, is_head: bool) -> bool {
    match kind {
        "ok" if is_head => peer.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
        "ok" => peer.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"),
        "missing" => peer.send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
        "hold" => {
            thread::sleep(HOLD);
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        }
        "cut" => {
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhello");
            false
        }
        "stream" => {
            let mut is_open = peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            while is_open {
                thread::sleep(BETWEEN_PIECES);
                is_open = peer.send("5\r\nhello\r\n");
            }
            false
        }
        // It is silent until the gateway gives up.
        _ => {
            peer.rest();
            false
        }
    }
}
