//! `Expect: 100-continue` is answered by the upstream (rule 12).

use std::thread;
use std::time::Duration;

use blitz_gateway::Options;
use blitz_http::{BodyLength, IoChoice, Method, Name, RequestHead};

use crate::h2::h2;
use crate::support::{Proxy, Upstream, ok};

/// An upstream that never sends 100, and answers with the length of the content.
fn taciturn() -> Upstream {
    Upstream::scripted(|_, peer| {
        let head = peer.head().unwrap();
        let content = match head.field("content-length") {
            Some(length) => peer.exactly(length.parse().unwrap()),
            None => peer.chunks(),
        };
        peer.send(ok(&format!("{} bytes", content.unwrap().len())));
    })
}

/// A gateway that would hold content for longer than a test waits.
fn patient(io: IoChoice, target: &str) -> Proxy {
    let options = Options {
        continue_timeout: Duration::from_secs(60),
        ..Options::default()
    };
    Proxy::with(io, &[target], options)
}

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

    fn content_that_arrives_without_100_continue_is_not_held_for_it(io) {
        for framing in ["Content-Length: 5\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"] {
            // It comes with the head, later, or in parts, and the client may end its side.
            for parts in [[0, 0], [1, 0], [0, 3], [1, 3]] {
                for ends in [false, true] {
                    let proxy = patient(io, &taciturn().url());
                    let mut client = proxy.client();
                    let request = format!("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n{framing}");
                    let head = request.find("\r\n\r\n").unwrap() + 4;
                    let mut sent = 0;
                    for end in [head * parts[0], head + parts[1], request.len()] {
                        client.send(&request[sent..end.max(sent)]);
                        sent = end.max(sent);
                        thread::sleep(Duration::from_millis(20));
                    }
                    if ends {
                        client.finish();
                    }
                    let answer = client.response();
                    assert_eq!((answer.status, answer.text()), (200, "5 bytes"), "{framing}, {parts:?}, {ends}");
                }
            }
        }
    }

    fn a_reader_of_the_next_request_sends_100_continue(io) {
        let proxy = patient(io, &format!("/x={}", taciturn().url()));
        let mut client = proxy.client();
        client.send(format!("{}hello", REQUEST.replace(" / ", " /x ")));
        assert_eq!(client.response().text(), "5 bytes");
        client.send(REQUEST.replace(" / ", " /read "));
        assert_eq!(client.response().status, 100);
        client.send("hello");
        assert_eq!(client.response().text(), "built in");
    }

    fn content_over_http_2_is_not_held_for_100_continue(io) {
        for length in [BodyLength::Known(5), BodyLength::Unknown] {
            // The upstream closes its connection behind each response.
            let proxy = patient(io, &taciturn().url());
            let mut client = h2(&proxy);
            let mut head = RequestHead::new(Method::Post, "/");
            head.set_authority("a");
            head.fields.append(Name::Expect, "100-continue");
            let stream = client.send_head(&head, length);
            client.send(stream, b"he", false);
            client.send(stream, b"llo", true);
            assert_eq!(client.answer(stream).content, b"5 bytes", "{length:?}");
        }
    }

    fn a_connection_is_not_used_again_after_a_refusal_of_content_that_was_sent(io) {
        let upstream = Upstream::scripted(|_, peer| {
            // It takes content for the next request, as servers do that refuse it unread.
            while let Some(head) = peer.head() {
                match head.field("expect") {
                    Some(_) => peer.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"),
                    None => peer.send(ok(&head.line)),
                };
            }
        });
        let proxy = patient(io, &upstream.url());
        let content = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
        let length = content.len();
        let mut client = proxy.client();
        client.send(format!(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n\r\n{content}"
        ));
        assert_eq!(client.response().status, 403);
        assert_eq!(proxy.client().get("/mine").text(), "GET /mine HTTP/1.1");
        assert_eq!(upstream.accepted(), 2);
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
