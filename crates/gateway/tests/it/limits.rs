//! The limits of connections to an upstream and of waiting requests.

use std::time::Duration;

use blitz_gateway::{Failure, Options};
use blitz_http::{ClientOptions, Limits};

use crate::support::{Proxy, Upstream, eventually};

/// A proxy with one connection to its upstream, for which one request may wait.
fn limited(io: blitz_http::IoChoice, upstream: &Upstream, wait: Duration) -> Proxy {
    let limits = Limits {
        upstream_connections_max: 1,
        upstream_waiting_max: 1,
        upstream_wait_timeout: wait,
        ..Limits::default()
    };
    let options = Options {
        client: ClientOptions {
            limits,
            ..ClientOptions::default()
        },
        ..Options::default()
    };
    Proxy::with(io, &[&upstream.url()], options)
}

const GET: &str = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";

scenarios! {
    fn a_full_queue_and_a_long_wait_are_503(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.request();
            peer.is_closed_by_peer();
        });
        let proxy = limited(io, &upstream, Duration::from_secs(1));
        let (mut first, mut waiting) = (proxy.client(), proxy.client());
        first.send(GET);
        eventually("the first is sent", || upstream.heads().len() == 1);
        waiting.send(GET);
        eventually("the second waits", || proxy.http_counters().upstream_limit_waits == 1);
        let refused = proxy.client().get("/x");
        let late = waiting.response();
        for answer in [refused, late] {
            assert_eq!(answer.status, 503);
            let expected = Some("blitz; error=connection_limit_reached");
            assert_eq!(answer.field("proxy-status"), expected);
            assert_eq!(answer.field("retry-after"), Some("1"));
        }
        let (counters, http) = (proxy.counters(), proxy.http_counters());
        assert_eq!(counters.failed(Failure::UpstreamQueueFull), 1);
        assert_eq!(counters.failed(Failure::ConnectionLimitReached), 1);
        assert_eq!((http.upstream_queue_full, http.upstream_queue_timeouts), (1, 1));
        assert_eq!((counters.connect_failures, upstream.accepted()), (0, 1));
    }

    fn a_large_head_is_released_when_no_retry_is_possible(io) {
        for (method, all_arrive) in [("POST", true), ("GET", false)] {
            let upstream = Upstream::scripted(|_, peer| {
                peer.request();
                peer.is_closed_by_peer();
            });
            let options = Options {
                limits: Limits {
                    heads_bytes_max: 150_000,
                    ..Limits::default()
                },
                ..Options::default()
            };
            let proxy = Proxy::with(io, &[&upstream.url()], options);
            let large = "x".repeat(20_000);
            let mut clients = Vec::new();
            for number in 1..=10 {
                let mut client = proxy.client();
                client.send(format!(
                    "{method} /x HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nX-Large: {large}\r\n\r\n"
                ));
                clients.push(client);
                eventually("the request is forwarded or refused", || {
                    let refused = proxy.http_counters().heads_refused as usize;
                    upstream.heads().len() + refused == number
                });
            }
            let refused = proxy.http_counters().heads_refused;
            assert_eq!(refused == 0, all_arrive, "{method}: {refused}");
        }
    }

    fn a_waiting_request_gets_the_next_free_connection(io) {
        let upstream = Upstream::scripted(|_, peer| {
            while let Some((head, _)) = peer.request() {
                std::thread::sleep(Duration::from_millis(200));
                peer.send(crate::support::ok(&head.line));
            }
        });
        let proxy = limited(io, &upstream, Duration::from_secs(5));
        let (mut first, mut second) = (proxy.client(), proxy.client());
        first.send(GET);
        second.send(GET);
        assert_eq!(first.response().text(), "GET /x HTTP/1.1");
        assert_eq!(second.response().text(), "GET /x HTTP/1.1");
        assert_eq!((upstream.accepted(), proxy.http_counters().upstream_limit_waits), (1, 1));
    }
}
