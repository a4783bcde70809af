//! `Expect: 100-continue` is answered by the upstream (rule 12).

use std::time::Duration;

use blitz_gateway::Options;

use crate::support::{Proxy, Upstream, ok};

const REQUEST: &str =
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";

scenarios! {
    fn the_upstreams_100_continue_is_forwarded_before_the_content(io) {
        let upstream = Upstream::scripted(|_, peer| {
            let head = peer.head().unwrap();
            assert_eq!(head.field("expect"), Some("100-continue"));
            peer.send("HTTP/1.1 100 Continue\r\n\r\n");
            let body = peer.exactly(5).unwrap();
            peer.send(ok(std::str::from_utf8(&body).unwrap()));
        });
        let options = Options { continue_timeout: Duration::from_secs(60), ..Options::default() };
        let proxy = Proxy::with(io, &[&upstream.url()], options);
        let mut client = proxy.client();
        client.send(REQUEST);
        assert_eq!(client.response().status, 100);
        client.send("hello");
        assert_eq!(client.response().text(), "hello");
    }

    fn no_content_is_sent_after_a_refusal(io) {
        let upstream = Upstream::scripted(|number, peer| {
            peer.head();
            if number == 0 {
                peer.send("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n");
                assert!(peer.is_closed_by_peer(), "no body, and no further request");
            } else {
                peer.send(ok("fresh"));
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = proxy.client();
        client.send(REQUEST);
        assert_eq!(client.response().status, 401, "and no 100 before");
        assert_eq!(proxy.client().get("/").text(), "fresh");
        assert_eq!(upstream.accepted(), 2);
    }

    fn an_upstream_without_100_continue_gets_the_content_after_a_timeout(io) {
        let upstream = Upstream::scripted(|_, peer| {
            let (_, body) = peer.request().unwrap();
            peer.send(ok(std::str::from_utf8(&body).unwrap()));
        });
        let options = Options { continue_timeout: Duration::from_millis(50), ..Options::default() };
        let proxy = Proxy::with(io, &[&upstream.url()], options);
        let mut client = proxy.client();
        client.send(REQUEST);
        assert_eq!(client.response().status, 100, "sent by the gateway");
        client.send("hello");
        assert_eq!(client.response().text(), "hello");
    }

    fn content_that_arrives_without_100_continue_is_forwarded(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.head();
            peer.send("HTTP/1.1 100 Continue\r\n\r\n");
            let body = peer.exactly(5).unwrap();
            peer.send(ok(std::str::from_utf8(&body).unwrap()));
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = proxy.client();
        client.send(format!("{REQUEST}hello"));
        let mut answer = client.response();
        if answer.status == 100 {
            answer = client.response();
        }
        assert_eq!(answer.text(), "hello");
    }

    fn an_upstream_that_closes_after_100_continue_has_not_responded(io) {
        for is_reset in [false, true] {
            let upstream = Upstream::scripted(move |_, peer| {
                peer.head();
                peer.send("HTTP/1.1 100 Continue\r\n\r\n");
                if !is_reset {
                    peer.exactly(2);
                }
            });
            let proxy = Proxy::to(io, &[&upstream.url()]);
            let mut client = proxy.client();
            client.send(REQUEST.replace("POST", "PUT"));
            assert_eq!(client.response().status, 100);
            client.send("he");
            let answer = client.response();
            assert_eq!(answer.status, 502);
            let status = answer.field("proxy-status");
            assert_eq!(status, Some("blitz; error=connection_terminated"), "reset: {is_reset}");
            assert_eq!(upstream.accepted(), 1, "the request is not sent again");
        }
    }

    fn any_other_expectation_fails(io) {
        let upstream = Upstream::with_text("");
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = proxy.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n");
        assert_eq!(client.response().status, 417);
        assert_eq!(upstream.heads(), []);
    }
}
