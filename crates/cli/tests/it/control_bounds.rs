//! Many requests at the control address hold up neither each other nor those over the socket.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::control_support::{Controlled, Place};

const SITE: &str = "[site.\"a.example\"]\nrespond = 204\n";

/// A request over the address whose response nobody has read yet.
fn sent(place: &Place, target: &str) -> TcpStream {
    let Place::Address(address) = place else {
        panic!("it is an address")
    };
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("GET {target} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

#[test]
fn requests_of_clients_that_left_hold_up_nothing() {
    let control = Controlled::with_file(SITE);
    assert_eq!(control.address.get("/metrics").status, 200);
    for _ in 0..250 {
        drop(sent(&control.address, "/metrics"));
        drop(sent(&control.address, "/config/diff"));
    }
    let began = Instant::now();
    assert_eq!(control.socket.post("/reload").status, 200);
    assert_eq!(control.socket.get("/metrics").status, 200);
    for target in ["/metrics", "/failures", "/upstreams"] {
        let mut answer = control.address.get(target);
        while answer.status == 503 {
            assert!(answer.fields.contains("retry-after: 1\r\n"), "{target}");
            assert!(began.elapsed() < Duration::from_secs(8), "{target}");
            answer = control.address.get(target);
        }
        assert_eq!(answer.status, 200, "{target}");
    }
    assert!(began.elapsed() < Duration::from_secs(8));
}

#[test]
fn few_watch_clients_at_a_time() {
    const TARGET: &str = "/connections?top=1&seconds=10";
    let control = Controlled::with_file(SITE);
    let watchers: Vec<_> = (0..4).map(|_| sent(&control.address, TARGET)).collect();
    let refused = control.address.get(TARGET);
    assert_eq!(refused.status, 503, "{}", refused.content);
    assert!(refused.content.contains("\n  ask again in a second"));
    assert!(refused.fields.contains("retry-after: 1\r\n"));
    assert_eq!(control.address.get("/connections").status, 200);
    let place = control.socket.clone();
    assert_eq!(place.get("/connections?top=1&seconds=1").status, 200);
    drop(watchers);
}
