//! A request that cannot be sent waits for a name that has moved, and by choice for an upstream that restarts.

use std::os::unix::net::UnixListener;
use std::thread;
use std::time::{Duration, Instant};

use blitz_gateway::Options;
use blitz_testing::{LateListener, refusing_address};

use crate::name_server::NameServer;
use crate::names::target;
use crate::support::{Proxy, Upstream, eventually, ok, serve_all};

const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";

fn retrying(limit: Duration) -> Options {
    Options {
        connect_retry: limit,
        ..Options::default()
    }
}

scenarios! {
    fn a_request_waits_for_the_look_up_that_it_causes(io) {
        for ttl in [1, 200] {
            let names = NameServer::with_ttl(2, ttl);
            let upstream = Upstream::with_text("moved");
            let proxy = Proxy::with(io, &[&target(&upstream)], names.options());
            eventually("it was queried", || names.received() >= 2);
            // The answers are known, and the upstream moves.
            thread::sleep(Duration::from_millis(50));
            names.set_octet(1);
            let mut client = proxy.client();
            client.send(POST);
            let answer = client.response();
            assert_eq!((answer.status, answer.text()), (200, "moved"), "TTL {ttl}");
            assert_eq!(upstream.heads().len(), 1);
        }
    }

    fn an_upstream_that_stays_down_is_answered_for_at_once(io) {
        let names = NameServer::with_ttl(2, 200);
        let upstream = Upstream::with_text("unreachable");
        let proxy = Proxy::with(io, &[&target(&upstream)], names.options());
        let mut client = proxy.client();
        // Two look-ups change nothing.
        for _ in 0..2 {
            assert_eq!(client.get("/").status, 502);
        }
        let start = Instant::now();
        for _ in 0..20 {
            assert_eq!(client.get("/").status, 502);
        }
        assert!(start.elapsed() < Duration::from_millis(900), "{:?}", start.elapsed());
    }

    fn requests_wait_while_their_upstream_restarts(io) {
        let late = LateListener::bind();
        let options = retrying(Duration::from_secs(5));
        let proxy = Proxy::with(io, &[&format!("http://{}", late.address())], options);
        let mut clients: Vec<_> = (0..8).map(|_| proxy.client()).collect();
        for client in &mut clients {
            client.send(POST);
        }
        thread::sleep(Duration::from_millis(300));
        serve_all(late.listen(), |_, peer| {
            while peer.request().is_some() {
                peer.send(ok("back"));
            }
        });
        for client in &mut clients {
            let answer = client.response();
            assert_eq!((answer.status, answer.text()), (200, "back"));
        }
    }

    fn requests_wait_for_a_unix_socket(io) {
        let name = format!("blitz-reconnect-{io:?}-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        let options = retrying(Duration::from_secs(5));
        let proxy = Proxy::with(io, &[&format!("unix:{}", path.display())], options);
        let mut client = proxy.client();
        client.send(POST);
        thread::sleep(Duration::from_millis(150));
        let listener = UnixListener::bind(&path).unwrap();
        thread::spawn(move || {
            use std::io::{Read, Write};
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(ok("back").as_bytes());
        });
        assert_eq!(client.response().text(), "back");
        let _ = std::fs::remove_file(&path);
    }

    fn attempts_to_connect_end_after_their_time(io) {
        let address = refusing_address();
        for (limit, least, most) in [(0, 0, 200), (400, 400, 1500)] {
            let options = retrying(Duration::from_millis(limit));
            let proxy = Proxy::with(io, &[&format!("http://{address}")], options);
            let start = Instant::now();
            let answer = proxy.client().get("/");
            let took = start.elapsed().as_millis();
            assert_eq!(answer.field("proxy-status"), Some("blitz; error=connection_refused"));
            assert!((least..most).contains(&took), "{limit} ms: {took} ms");
        }
    }
}
