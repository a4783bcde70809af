//! Limits of heads and trailers are those of the message, over every version, and can be raised (rule 25).

use blitz_gateway::Options;
use blitz_http::{BodyLength, Fields, Method, Name, RequestHead, ResponseHead, Status};
use blitz_testing::h3::request_with;

use crate::h2::{H2Upstream, h2};
use crate::h2_client::Client;
use crate::h3_support::{QuicServer, block_on};
use crate::support::{Proxy, Upstream, ok};

/// As many as a browser keeps for a site.
const COOKIES: usize = 180;

fn crumb(number: usize) -> String {
    format!("c{number:03}=1")
}

fn joined() -> String {
    (0..COOKIES).map(crumb).collect::<Vec<_>>().join("; ")
}

fn with_cookies() -> RequestHead {
    let mut head = RequestHead::new(Method::Get, "/");
    head.set_authority("a");
    (0..COOKIES).for_each(|n| head.fields.append(Name::Cookie, crumb(n)));
    head
}

/// An upstream that answers with its request's `Cookie` lines and their number.
fn cookie_upstream() -> Upstream {
    Upstream::scripted(|_, peer| {
        while let Some((head, _)) = peer.request() {
            peer.send(ok(head.field("cookie").unwrap_or("none")));
        }
    })
}

/// Sections of 200 KiB and 600 fields.
fn raised() -> Options {
    let mut options = Options::default();
    for limits in [&mut options.limits, &mut options.client.limits] {
        limits.head_bytes_max = 300 << 10;
        limits.fields_max = 700;
        limits.response_fields_max = 700;
        limits.request_line_bytes_max = 100 << 10;
        limits.trailer_bytes_max = 300 << 10;
        limits.trailer_fields_max = 700;
        limits.fit_header_blocks();
    }
    options
}

const FIELDS: usize = 600;

/// Bytes that Huffman coding does not shorten.
fn value() -> String {
    "~".repeat(340)
}

fn append_large(fields: &mut Fields) {
    (0..FIELDS).for_each(|n| fields.append(format!("x-{n}").as_str(), value()));
}

fn large_target() -> String {
    format!("/{}", "a".repeat(90_000))
}

fn count_large(fields: &Fields) -> usize {
    fields
        .iter()
        .filter(|(_, text)| **text == *value().as_bytes())
        .count()
}

scenarios! {
    fn cookies_in_lines_of_their_own_arrive_as_one(io) {
        let upstream = cookie_upstream();
        let h2_upstream = H2Upstream::scripted(|_, mut peer| {
            while let Some((stream, received)) = peer.request() {
                let lines = received.head.fields.get_all(Name::Cookie);
                let cookie = lines.collect::<Vec<_>>().join(&b"|"[..]);
                peer.start(stream, &ResponseHead::new(Status::OK), BodyLength::Known(cookie.len() as u64));
                peer.send(stream, &cookie, true);
            }
        });
        for url in [&upstream.url(), &h2_upstream.url] {
            let server = QuicServer::to(io, url, Options::default());
            block_on(async {
                let client = server.raw_client().await;
                let crumbs: Vec<_> = (0..COOKIES).map(crumb).collect();
                let fields: Vec<_> = crumbs.iter().map(|crumb| ("cookie", crumb.as_str())).collect();
                client.ask(request_with("GET", "/", &fields)).await.expect(200, joined());
            });
            let proxy = Proxy::to(io, &[url]);
            let mut client = h2(&proxy);
            // From the third on, equal heads are not decoded.
            for _ in 0..4 {
                let stream = client.send_head(&with_cookies(), BodyLength::Empty);
                let answer = client.answer(stream);
                assert_eq!((answer.status, answer.content), (Some(Status::OK), joined().into_bytes()));
            }
            let mut too_many = with_cookies();
            (0..1_000).for_each(|_| too_many.fields.append(Name::Cookie, "a=1"));
            let stream = client.send_head(&too_many, BodyLength::Empty);
            assert_eq!(client.answer(stream).status, Some(Status::REQUEST_HEADER_FIELDS_TOO_LARGE));
            assert_eq!(proxy.http_counters().refused_for("too-many-cookie-crumbs"), 1);
        }
    }

    fn raised_limits_hold_over_all_versions(io) {
        let h1 = Upstream::scripted(|_, peer| {
            while let Some((head, _)) = peer.request() {
                let large = head.fields.iter().filter(|(_, text)| *text == value()).count();
                assert_eq!((large, head.line.len() > 90_000), (FIELDS, true));
                let lines: String = (0..FIELDS).map(|n| format!("x-{n}: {}\r\n", value())).collect();
                peer.send(format!("HTTP/1.1 200 OK\r\n{lines}Transfer-Encoding: chunked\r\n\r\n0\r\n{lines}\r\n"));
            }
        });
        let limits = raised().client.limits;
        let h2_upstream = H2Upstream::scripted_with(&limits, |_, mut peer| {
            while let Some((stream, received)) = peer.request() {
                assert_eq!(count_large(&received.head.fields), FIELDS);
                let mut head = ResponseHead::new(Status::OK);
                append_large(&mut head.fields);
                peer.start(stream, &head, BodyLength::Unknown);
                peer.finish(stream, Some(&head.fields));
            }
        });
        for url in [&h1.url(), &h2_upstream.url] {
            let proxy = Proxy::with(io, &[url], raised());
            let mut head = RequestHead::new(Method::Get, &large_target());
            head.set_authority("a");
            append_large(&mut head.fields);
            let mut client = Client::connect_with(proxy.address, &limits);
            let stream = client.send_head(&head, BodyLength::Empty);
            let answer = client.answer(stream);
            assert_eq!(answer.status, Some(Status::OK), "{url}");
            assert_eq!(count_large(&answer.fields), FIELDS);
            assert_eq!(answer.trailers.as_ref().map(count_large), Some(FIELDS));

            let lines: String = (0..FIELDS).map(|n| format!("x-{n}: {}\r\n", value())).collect();
            let mut client = proxy.client();
            client.send(format!("GET {} HTTP/1.1\r\nHost: a\r\n{lines}\r\n", large_target()));
            assert_eq!(client.response().status, 200, "{url}");

            let server = QuicServer::to(io, url, raised());
            block_on(async {
                let client = server.raw_client().await;
                let (target, value) = (large_target(), value());
                let names: Vec<_> = (0..FIELDS).map(|n| format!("x-{n}")).collect();
                let fields: Vec<_> = names.iter().map(|name| (name.as_str(), value.as_str())).collect();
                client.ask(request_with("GET", &target, &fields)).await.expect(200, "");
            });
        }
    }

    fn raised_limits_are_limits(io) {
        let upstream = Upstream::with_text("fine");
        let proxy = Proxy::with(io, &[&upstream.url()], raised());
        for (line, fields, status) in [
            ("a".repeat(101 << 10), String::new(), 414),
            // With Host.
            (String::new(), "A: b\r\n".repeat(699), 200),
            (String::new(), "A: b\r\n".repeat(700), 431),
            (String::new(), format!("A: {}\r\n", "b".repeat(410 << 10)), 431),
        ] {
            let mut client = proxy.client();
            client.send(format!("GET /{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
            assert_eq!(client.response().status, status);
            let mut head = RequestHead::new(Method::Get, &format!("/{line}"));
            head.set_authority("a");
            for text in fields.lines() {
                head.fields.append("a", &text[3..]);
            }
            let mut client = h2(&proxy);
            let stream = client.send_head(&head, BodyLength::Empty);
            assert_eq!(client.answer(stream).status.map(Status::code), Some(status));
        }
    }
}
