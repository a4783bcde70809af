//! `mirror`: copies of requests for another upstream, for which nothing waits.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use blitz_testing::{Head, refusing_address};

use crate::h2::h2;
use crate::site_rules::{HOST, ask, gateway};
use crate::support::{Proxy, SOON, Upstream, eventually, ok};

/// An upstream that responds with its name, and the requests that it gets.
fn recording(name: &'static str) -> (Upstream, Receiver<(Head, Vec<u8>)>) {
    let (got, requests) = channel();
    let upstream = Upstream::scripted(move |_, peer| {
        while let Some(request) = peer.request() {
            let _ = got.send(request);
            peer.send(ok(name));
        }
    });
    (upstream, requests)
}

fn mirroring(upstream: &Upstream, mirror: &str, keys: &str) -> String {
    let url = upstream.url();
    format!("[site.\"*\"]\nto = \"{url}\"\nmirror = {mirror}\n{keys}\n")
}

/// Sends so many requests, which the upstream answers.
fn send(proxy: &Proxy, count: usize) {
    let mut client = proxy.client();
    for _ in 0..count {
        let response = ask(&mut client, "GET /", HOST);
        assert_eq!((response.status, response.text()), (200, "own"));
    }
}

scenarios! {
    fn a_copy_is_what_the_upstream_gets(io) {
        let ((upstream, own), (mirror, copies)) = (recording("own"), recording("copy"));
        let to = format!("{{ to = \"{}\" }}", mirror.url());
        let keys = "path = \"/v2{rest}\"\nrequest_headers.X-Of-Route = \"yes\"";
        let proxy = gateway(io, &mirroring(&upstream, &to, keys));
        let mut client = proxy.client();
        let fields = format!("{HOST}Authorization: Bearer a\r\nX-Own: b\r\nConnection: X-Own\r\n");
        let response = ask(&mut client, "GET /a?b=c", &fields);
        assert_eq!((response.status, response.text()), (200, "own"));
        let content = "x".repeat(1_000);
        client.send(format!("POST /b HTTP/1.1\r\n{HOST}Content-Length: 1000\r\n\r\n{content}"));
        assert_eq!(client.response().text(), "own");
        client.send(format!("PUT /c HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"));
        assert_eq!(client.response().text(), "own");
        let mut copies: Vec<_> = (0..3).map(|_| copies.recv_timeout(SOON).unwrap()).collect();
        for (head, content) in own.iter().take(3) {
            let place = copies.iter().position(|(copy, _)| copy.line == head.line);
            let (copy, copied) = copies.remove(place.unwrap());
            assert_eq!(copied, content, "{head:?}");
            let fields = |head: &Head| {
                let mut fields = head.fields.clone();
                // Chunks become a whole.
                fields.retain(|(name, _)| !matches!(&*name.to_ascii_lowercase(), "content-length" | "transfer-encoding"));
                fields.sort();
                fields
            };
            assert_eq!(fields(&copy), fields(&head));
            assert_eq!(copy.field("x-of-route"), Some("yes"));
        }
        assert_eq!(proxy.counters().mirrored, 3);
    }

    fn requests_of_http2_are_copied_and_those_to_its_own_host_have_it(io) {
        let ((upstream, _own), (mirror, copies)) = (recording("own"), recording("copy"));
        let to = format!("{{ to = \"{}\" }}", mirror.url());
        let proxy = gateway(io, &mirroring(&upstream, &to, "host = \"upstream\""));
        assert_eq!(h2(&proxy).get("/a").content, b"own");
        let (head, _) = copies.recv_timeout(SOON).unwrap();
        assert_eq!(head.line, "GET /a HTTP/1.1");
        assert_eq!(head.field("host"), Some(&*format!("127.0.0.1:{}", mirror.port())));
    }

    fn a_share_of_the_requests_is_copied(io) {
        let ((upstream, _own), (mirror, copies)) = (recording("own"), recording("copy"));
        let to = format!("{{ to = \"{}\", percent = 25 }}", mirror.url());
        let proxy = gateway(io, &mirroring(&upstream, &to, "\"/not\".mirror = false"));
        send(&proxy, 400);
        let mut client = proxy.client();
        for _ in 0..50 {
            assert_eq!(ask(&mut client, "GET /not", HOST).status, 200);
        }
        // 100 with a deviation of 9.
        let mirrored = proxy.counters().mirrored;
        assert!((40..=160).contains(&mirrored), "{mirrored}");
        for _ in 0..mirrored {
            let (head, _) = copies.recv_timeout(SOON).unwrap();
            assert_eq!(head.line, "GET / HTTP/1.1");
        }
        assert!(copies.try_recv().is_err());
    }

    fn a_mirror_that_is_down_or_never_responds_delays_nothing(io) {
        let (upstream, _own) = recording("own");
        let proxy = gateway(io, &mirroring(&upstream, &format!("{{ to = \"http://{}\" }}", refusing_address()), ""));
        send(&proxy, 20);
        eventually("the copies have failed", || proxy.counters().mirror_failures == 20);
        let silent = Upstream::scripted(|_, peer| drop(peer.rest()));
        let proxy = gateway(io, &mirroring(&upstream, &format!("{{ to = \"{}\" }}", silent.url()), ""));
        let start = Instant::now();
        send(&proxy, 20);
        let mut client = proxy.client();
        client.send(format!("POST / HTTP/1.1\r\n{HOST}Content-Length: 4\r\n\r\n"));
        client.send("body");
        assert_eq!(client.response().text(), "own");
        assert!(start.elapsed() < SOON);
        assert_eq!(proxy.counters().mirrored, 21);
    }

    fn copies_under_way_are_bounded(io) {
        let (upstream, _own) = recording("own");
        // It takes connections, and nothing of them.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let proxy = gateway(io, &mirroring(&upstream, &format!("{{ to = \"http://{address}\" }}"), ""));
        send(&proxy, 400);
        let counters = proxy.counters();
        assert_eq!(counters.mirrored + counters.mirrors_over_limit, 400);
        assert!(counters.mirrored >= 256, "{counters:?}");
        // On a slow machine some have failed meanwhile, whose places others took.
        let bound = 256 + counters.mirror_failures;
        assert!(counters.mirrored <= bound, "{counters:?}");
    }

    fn long_content_and_incomplete_content_is_not_copied(io) {
        let ((upstream, own), (mirror, copies)) = (recording("own"), recording("copy"));
        let to = format!("{{ to = \"{}\" }}", mirror.url());
        let proxy = gateway(io, &mirroring(&upstream, &to, ""));
        let long = "x".repeat(64 * 1024 + 1);
        let mut client = proxy.client();
        client.send(format!("POST / HTTP/1.1\r\n{HOST}Content-Length: {}\r\n\r\n{long}", long.len()));
        assert_eq!(client.response().text(), "own");
        let chunk = format!("{:x}\r\n{long}\r\n0\r\n\r\n", long.len());
        client.send(format!("POST / HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n{chunk}"));
        assert_eq!(client.response().text(), "own");
        assert!(own.iter().take(2).all(|(_, content)| content == long.as_bytes()));
        let mut leaving = proxy.peer();
        leaving.send(format!("POST / HTTP/1.1\r\n{HOST}Content-Length: 10\r\n\r\nabc"));
        eventually("it has begun", || proxy.counters().in_flight == 1);
        leaving.reset();
        eventually("all three are counted", || proxy.counters().mirrors_without_content == 3);
        assert!(copies.try_recv().is_err());
        assert_eq!(proxy.counters().mirrored, 0);
    }

    fn a_named_upstream_with_several_servers_gets_copies(io) {
        let ((upstream, _own), (a, copies)) = (recording("own"), recording("copy"));
        let named = format!("[upstream.test]\nservers = [\"http://{}\", \"{}\"]", refusing_address(), a.url());
        let proxy = gateway(io, &mirroring(&upstream, "{ to = \"test\" }", &named));
        send(&proxy, 10);
        for _ in 0..10 {
            copies.recv_timeout(SOON).unwrap();
        }
        assert_eq!(proxy.counters().mirror_failures, 0);
    }
}
