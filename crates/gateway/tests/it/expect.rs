//! `Expect: 100-continue` is the upstream's to answer (rule 12).

use std::time::Duration;

use blitz_gateway::Options;

use crate::support::{Proxy, Upstream, ok};

const ASKS: &str =
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";

scenarios! {
    fn the_upstreams_continue_is_passed_on_before_the_body(io) {
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
        client.send(ASKS);
        assert_eq!(client.response().status, 100);
        client.send("hello");
        assert_eq!(client.response().text(), "hello");
    }

    fn a_refusal_in_its_place_spares_the_body(io) {
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
        client.send(ASKS);
        assert_eq!(client.response().status, 401, "and no 100 before");
        assert_eq!(proxy.client().get("/").text(), "fresh");
        assert_eq!(upstream.accepted(), 2);
    }

    fn an_upstream_that_knows_no_continue_gets_the_body_all_the_same(io) {
        let upstream = Upstream::scripted(|_, peer| {
            let (_, body) = peer.request().unwrap();
            peer.send(ok(std::str::from_utf8(&body).unwrap()));
        });
        let options = Options { continue_timeout: Duration::from_millis(50), ..Options::default() };
        let proxy = Proxy::with(io, &[&upstream.url()], options);
        let mut client = proxy.client();
        client.send(ASKS);
        assert_eq!(client.response().status, 100, "said by the gateway");
        client.send("hello");
        assert_eq!(client.response().text(), "hello");
    }

    fn a_client_that_does_not_wait_is_not_kept_waiting(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.head();
            peer.send("HTTP/1.1 100 Continue\r\n\r\n");
            let body = peer.exactly(5).unwrap();
            peer.send(ok(std::str::from_utf8(&body).unwrap()));
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = proxy.client();
        client.send(format!("{ASKS}hello"));
        let mut answer = client.response();
        if answer.status == 100 {
            answer = client.response();
        }
        assert_eq!(answer.text(), "hello");
    }

    fn any_other_expectation_fails(io) {
        let upstream = Upstream::saying("");
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = proxy.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n");
        assert_eq!(client.response().status, 417);
        assert_eq!(upstream.heads(), []);
    }
}
