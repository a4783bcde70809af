//! Responses of upstreams are compressed for clients that accept it.

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use blitz_http::{BodyLength, IoChoice, Method, Name, RequestHead, Status, TlsSlot};
use blitz_testing::Response;
use blitz_testing::h3::headers;

use crate::decoders::{begun, decoded};
use crate::h2::h2;
use crate::h3_support::{QuicServer, block_on};
use crate::site_rules::{HOST, ask, gateway};
use crate::support::{Proxy, Upstream, eventually};

/// The algorithms that most browsers accept.
const BROWSER: &str = "Accept-Encoding: gzip, deflate, br, zstd\r\n";

const CODINGS: [&str; 3] = ["zstd", "br", "gzip"];

/// A text of this length that can be compressed, but not to almost nothing.
fn text(length: usize) -> String {
    let mut text = String::new();
    let mut number = 1_u32;
    while text.len() < length {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        text += &format!("<p>line {} of it</p>\n", number >> 12);
    }
    text.truncate(length);
    text
}

/// A response of this type with more fields.
fn response(content_type: &str, fields: &str, content: &str) -> String {
    let length = content.len();
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{fields}\r\n{content}"
    )
}

/// A site with an upstream and these keys.
fn site(io: IoChoice, upstream: &Upstream, keys: &str) -> Proxy {
    let to = upstream.url();
    gateway(
        io,
        &format!("[site.\"a.example\"]\nto = \"{to}\"\n{keys}\n"),
    )
}

/// The content of a response, and its coding.
fn content(response: &Response) -> (Vec<u8>, Option<&str>) {
    match response.field("content-encoding") {
        Some(coding) => (decoded(coding, &response.body), Some(coding)),
        None => (response.body.clone(), None),
    }
}

/// The coding of the response to a browser's request with more fields.
fn coding_of(proxy: &Proxy, line: &str, fields: &str) -> Option<String> {
    let answer = ask(&mut proxy.client(), line, &format!("{HOST}{fields}"));
    answer.field("content-encoding").map(str::to_owned)
}

/// Sends each received text as a chunk of a response of this type, until there are none.
fn chunks(content_type: &'static str) -> (Upstream, Sender<Option<&'static str>>) {
    let (sender, receiver) = channel::<Option<&str>>();
    let receiver = std::sync::Mutex::new(receiver);
    let upstream = Upstream::scripted(move |_, peer| {
        peer.request();
        peer.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nTransfer-Encoding: chunked\r\n\r\n"
        ));
        while let Ok(Some(text)) = receiver.lock().unwrap().recv() {
            peer.send(format!("{:x}\r\n{text}\r\n", text.len()));
        }
        peer.send("0\r\n\r\n");
    });
    (upstream, sender)
}

scenarios! {
    fn each_algorithm_is_decoded_to_the_content_of_the_upstream(io) {
        // In one step, in several, and larger than every buffer.
        for length in [1500, 32 * 1024, 32 * 1024 + 1, 100_000, 3_000_000] {
            let page = text(length);
            let upstream = Upstream::with_response(response("text/html; charset=utf-8", "", &page));
            let proxy = site(io, &upstream, "compress = true");
            let mut client = proxy.client();
            for coding in CODINGS {
                for _ in 0..2 {
                    let fields = format!("{HOST}Accept-Encoding: {coding}\r\n");
                    let answer = ask(&mut client, "GET /", &fields);
                    assert_eq!(answer.field("content-encoding"), Some(coding));
                    assert_eq!(answer.field("vary"), Some("Accept-Encoding"));
                    assert!(decoded(coding, &answer.body) == page.as_bytes(), "{coding} {length}");
                    assert!(answer.body.len() < length / 2, "{} of {length}", answer.body.len());
                }
            }
            let answer = ask(&mut client, "GET /", HOST);
            assert_eq!((content(&answer).1, answer.field("vary")), (None, Some("Accept-Encoding")));
            assert!(answer.body == page.as_bytes());
            let counters = proxy.counters();
            assert_eq!((counters.compressed, counters.compressed_bytes_before), (6, 6 * length as u64));
            assert!(counters.compressed_bytes_after < counters.compressed_bytes_before / 2);
        }
    }

    fn all_versions_get_the_same(io) {
        for length in [2_000, 200_000] {
            let page = text(length);
            let upstream = Upstream::with_response(response("text/css", "ETag: \"a\"\r\n", &page));
            let proxy = site(io, &upstream, "compress = true");
            let mut client = h2(&proxy);
            for coding in CODINGS {
                let mut head = RequestHead::new(Method::Get, "/");
                head.set_authority("a.example");
                head.fields.append(Name::AcceptEncoding, coding);
                let stream = client.send_head(&head, BodyLength::Empty);
                let answer = client.answer(stream);
                assert_eq!(answer.status, Some(Status::OK));
                assert_eq!(answer.fields.get_str(Name::ContentEncoding), Some(coding));
                assert_eq!(answer.fields.get_str(Name::Etag), Some("W/\"a\""));
                let declared = answer.fields.get_str(Name::ContentLength);
                assert!(declared.is_none_or(|declared| declared == answer.content.len().to_string()));
                assert!(decoded(coding, &answer.content) == page.as_bytes());
            }
            let file = format!("[site.\"localhost\"]\nto = \"{}\"\ncompress = true\n", upstream.url());
            let server = QuicServer::with(|tls: TlsSlot| {
                let mut proxy = Proxy::start(Proxy::gateway_over_tls(io, tls), &[&upstream.url()]);
                proxy.replace_sites(&file);
                proxy
            });
            block_on(async {
                let client = server.raw_client().await;
                for coding in CODINGS {
                    let request = headers(&[
                        (":method", "GET"),
                        (":scheme", "https"),
                        (":authority", "localhost"),
                        (":path", "/"),
                        ("accept-encoding", coding),
                    ]);
                    let answer = client.ask(request).await;
                    assert_eq!(answer.heads, [Some(200)]);
                    assert!(decoded(coding, &answer.content) == page.as_bytes());
                }
            });
        }
    }

    fn responses_that_must_stay_as_they_are_do(io) {
        let page = text(5_000);
        let none = [
            ("text/html", "Content-Encoding: br\r\n"),
            ("text/html", "Content-Encoding: x, identity\r\n"),
            ("text/html", "Cache-Control: max-age=1 , No-Transform\r\n"),
            ("text/html", "Content-Range: bytes 0-4999/9000\r\n"),
            ("image/png", ""),
            ("text/event-stream", ""),
            ("font/woff2", ""),
            ("texthtml", ""),
        ];
        for (content_type, fields) in none {
            let upstream = Upstream::with_response(response(content_type, fields, &page));
            let proxy = site(io, &upstream, "compress = true");
            let answer = ask(&mut proxy.client(), "GET /", &format!("{HOST}{BROWSER}"));
            assert!(answer.body == page.as_bytes(), "{content_type} {fields}");
            assert_eq!(answer.field("vary"), None, "{content_type} {fields}");
            assert_eq!(answer.field("content-length"), Some("5000"));
            assert_eq!(proxy.counters().compressed, 0);
        }
        for (content_type, fields) in [
            ("Text/HTML ; charset=utf-8", "Content-Encoding: identity\r\n"),
            ("application/problem+json", "Cache-Control: max-age=1, no-transformer\r\n"),
        ] {
            let upstream = Upstream::with_response(response(content_type, fields, &page));
            let proxy = site(io, &upstream, "compress = true");
            assert_eq!(coding_of(&proxy, "GET /", BROWSER).as_deref(), Some("zstd"), "{fields}");
        }
    }

    fn a_client_can_ask_for_the_bytes_of_the_upstream(io) {
        let upstream = Upstream::with_response(response("text/html", "", &text(2000)));
        let proxy = site(io, &upstream, "compress = true");
        let fields = format!("{HOST}{BROWSER}Cache-Control: no-transform\r\n");
        let answer = ask(&mut proxy.client(), "GET /", &fields);
        assert_eq!((content(&answer).1, answer.field("vary")), (None, Some("Accept-Encoding")));
    }

    fn statuses_without_their_whole_content_are_left_alone(io) {
        let upstream = Upstream::scripted(|_, peer| {
            while let Some((head, _)) = peer.request() {
                let status = head.line.split(['/', ' ']).nth(2).unwrap().to_owned();
                let fields = "Content-Type: text/plain\r\nETag: \"a\"\r\nAccept-Ranges: bytes\r\n";
                peer.send(match &*status {
                    "204" | "304" => format!("HTTP/1.1 {status} x\r\n{fields}\r\n"),
                    _ => format!("HTTP/1.1 {status} x\r\n{fields}Content-Length: 2000\r\n\r\n{}", text(2000)),
                });
            }
        });
        let proxy = site(io, &upstream, "compress = true");
        for (status, expected) in [(200, true), (404, true), (500, true), (206, false), (204, false), (304, false)] {
            let answer = ask(&mut proxy.client(), &format!("GET /{status}"), &format!("{HOST}{BROWSER}"));
            assert_eq!(answer.status, status);
            assert_eq!(answer.field("content-encoding").is_some(), expected, "{status}");
            assert_eq!(answer.field("vary").is_some(), expected, "{status}");
            let tag = if expected { "W/\"a\"" } else { "\"a\"" };
            assert_eq!(answer.field("etag"), Some(tag), "{status}");
            assert_eq!(answer.field("accept-ranges").is_none(), expected, "{status}");
        }
    }

    fn the_head_is_that_of_the_compressed_content(io) {
        let fields = "ETag: \"v1\"\r\nAccept-Ranges: bytes\r\nContent-Digest: sha-256=:AA==:\r\n\
                      Repr-Digest: sha-256=:AA==:\r\nContent-MD5: AA==\r\nVary: Origin\r\nVary: Cookie\r\n\
                      Last-Modified: Mon, 30 Nov 2026 06:00:00 GMT\r\n";
        let page = text(40_000);
        for (length, is_whole) in [(2_000, true), (40_000, false)] {
            let upstream = Upstream::with_response(response("text/html", fields, &page[..length]));
            let proxy = site(io, &upstream, "compress = { algorithms = [\"gzip\"] }");
            let answer = ask(&mut proxy.client(), "GET /", &format!("{HOST}{BROWSER}"));
            assert_eq!(content(&answer), (page.as_bytes()[..length].to_vec(), Some("gzip")));
            assert_eq!(answer.field("etag"), Some("W/\"v1\""));
            assert_eq!(answer.field("vary"), Some("Origin, Cookie, Accept-Encoding"));
            assert!(answer.field("last-modified").is_some());
            for name in ["accept-ranges", "content-digest", "repr-digest", "content-md5"] {
                assert_eq!(answer.field(name), None, "{name}");
            }
            let declared = is_whole.then(|| answer.body.len().to_string());
            assert_eq!(answer.field("content-length"), declared.as_deref());
            // A client that accepts none gets the upstream's head, but for `Vary`.
            let answer = ask(&mut proxy.client(), "GET /", HOST);
            assert_eq!(answer.field("etag"), Some("\"v1\""));
            assert_eq!(answer.field("vary"), Some("Origin, Cookie, Accept-Encoding"));
            assert_eq!(answer.field("content-digest"), Some("sha-256=:AA==:"));
            assert_eq!(answer.field("content-length"), Some(&*length.to_string()));
        }
        for (vary, expected) in [("accept-ENCODING, Origin", "accept-ENCODING, Origin"), ("*", "*")] {
            let upstream = Upstream::with_response(response("text/html", &format!("Vary: {vary}\r\n"), &page));
            let proxy = site(io, &upstream, "compress = true");
            let answer = ask(&mut proxy.client(), "GET /", &format!("{HOST}{BROWSER}"));
            assert_eq!((answer.field("vary"), content(&answer).1), (Some(expected), Some("zstd")));
        }
    }

    fn head_gets_the_head_that_get_would_get(io) {
        let upstream = Upstream::scripted(|_, peer| {
            while let Some((head, _)) = peer.request() {
                let length = if head.line.contains("/short") { 10 } else { 5000 };
                let content = if head.line.starts_with("HEAD") { String::new() } else { text(length) };
                peer.send(format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nETag: \"a\"\r\nContent-Length: {length}\r\n\r\n{content}"
                ));
            }
        });
        let proxy = site(io, &upstream, "compress = true");
        let head_of = |path: &str, fields: &str| {
            let mut peer = proxy.peer();
            peer.send(format!("HEAD {path} HTTP/1.1\r\n{HOST}{fields}\r\nGET {path} HTTP/1.1\r\n{HOST}\r\n"));
            let head = peer.head().unwrap();
            // There is no content between the heads.
            assert!(peer.head().unwrap().line.starts_with("HTTP/1.1 200"));
            head
        };
        let head = head_of("/", BROWSER);
        assert_eq!(head.field("content-encoding"), Some("zstd"));
        assert_eq!((head.field("vary"), head.field("etag")), (Some("Accept-Encoding"), Some("W/\"a\"")));
        assert_eq!((head.field("content-length"), head.field("transfer-encoding")), (None, None));
        let head = head_of("/", "");
        assert_eq!((head.field("vary"), head.field("content-length")), (Some("Accept-Encoding"), Some("5000")));
        let head = head_of("/short", BROWSER);
        assert_eq!((head.field("vary"), head.field("content-length")), (None, Some("10")));
        assert_eq!(proxy.counters().compressed, 0);
    }

    fn a_revalidated_response_keeps_its_weak_tag(io) {
        let upstream = Upstream::with_response("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n");
        let proxy = site(io, &upstream, "compress = true");
        for (known, tag, vary) in [
            ("W/\"a\"", "W/\"a\"", Some("Accept-Encoding")),
            ("\"b\", W/\"a\"", "W/\"a\"", Some("Accept-Encoding")),
            ("\"a\"", "\"a\"", None),
            ("W/\"ab\"", "\"a\"", None),
        ] {
            let fields = format!("{HOST}{BROWSER}If-None-Match: {known}\r\n");
            let answer = ask(&mut proxy.client(), "GET /", &fields);
            assert_eq!(answer.status, 304);
            assert_eq!((answer.field("etag"), answer.field("vary")), (Some(tag), vary), "{known}");
        }
        assert!(upstream.heads().iter().all(|head| head.field("if-none-match").is_some()));
    }

    fn the_least_size_types_and_algorithms_can_be_chosen(io) {
        let upstream = Upstream::scripted(|_, peer| {
            while let Some((head, _)) = peer.request() {
                let path = head.line.split(' ').nth(1).unwrap();
                let (length, content_type) = path[1..].split_once('/').unwrap();
                peer.send(response(content_type, "", &text(length.parse().unwrap())));
            }
        });
        let proxy = site(io, &upstream, "compress = true");
        for (path, expected) in [("/1023/text/css", None), ("/1024/text/css", Some("zstd")), ("/0/text/css", None)] {
            assert_eq!(coding_of(&proxy, &format!("GET {path}"), BROWSER).as_deref(), expected, "{path}");
        }
        let proxy = site(io, &upstream, "compress = { types = [\"image/*\", \"text/event-stream\"], min_size = \"20\", algorithms = [\"br\", \"gzip\"] }");
        for (path, accepted, expected) in [
            ("/1000/image/png", "zstd, br, gzip", Some("br")),
            ("/1000/image/png", "br;q=0.5, gzip", Some("gzip")),
            ("/1000/image/png", "zstd", None),
            ("/20/text/event-stream", "gzip", Some("gzip")),
            ("/19/text/event-stream", "gzip", None),
            ("/1000/text/css", "gzip", None),
        ] {
            let fields = format!("Accept-Encoding: {accepted}\r\n");
            assert_eq!(coding_of(&proxy, &format!("GET {path}"), &fields).as_deref(), expected, "{path} {accepted}");
        }
    }

    fn routes_inherit_and_blocks_change_it(io) {
        let upstream = Upstream::with_response(response("text/html", "", &text(2000)));
        let to = upstream.url();
        let proxy = gateway(io, &format!(r#"
            defaults.compress = true
            [site."a.example"]
            to = "{to}"
            "/off".compress = false
            "/files".compress = "files"
            "/off/again".compress = {{ algorithms = ["gzip"] }}
            [[site."a.example"."/live".when]]
            header.X-Live = true
            compress = false
            [[site."a.example"."/files".when]]
            query.z = "gzip"
            compress = {{ algorithms = ["gzip"] }}
        "#));
        for (path, fields, expected) in [
            ("/", "", Some("zstd")),
            ("/off", "", None),
            ("/off/again", "", Some("gzip")),
            ("/files", "", None),
            ("/files?z=gzip", "", Some("gzip")),
            ("/live", "", Some("zstd")),
            ("/live", "X-Live: 1\r\n", None),
        ] {
            let fields = format!("{BROWSER}{fields}");
            assert_eq!(coding_of(&proxy, &format!("GET {path}"), &fields).as_deref(), expected, "{path} {fields}");
        }
        let proxy = site(io, &upstream, "");
        assert_eq!(coding_of(&proxy, "GET /", BROWSER), None);
    }

    fn the_changes_of_the_route_come_first(io) {
        let upstream = Upstream::with_response(response("application/octet-stream", "Vary: Origin\r\n", &text(50_000)));
        let keys = r#"
            compress = true
            request_headers.Accept-Encoding = false
            headers.Content-Type = "text/html"
            headers.Vary = { add = "Cookie" }
            "/kept".headers.Cache-Control = "no-transform"
        "#;
        let proxy = site(io, &upstream, keys);
        let answer = ask(&mut proxy.client(), "GET /", &format!("{HOST}{BROWSER}"));
        // The upstream does not compress, since it gets no `Accept-Encoding`, and the client's own still counts.
        assert_eq!(upstream.head().field("accept-encoding"), None);
        assert_eq!((content(&answer).1, answer.field("content-type")), (Some("zstd"), Some("text/html")));
        assert_eq!(answer.field("vary"), Some("Origin, Cookie, Accept-Encoding"));
        assert_eq!(coding_of(&proxy, "GET /kept", BROWSER), None);
    }

    fn requests_of_other_sites_with_credentials_are_not_compressed(io) {
        let upstream = Upstream::with_response(response("text/html", "", &text(2000)));
        let proxy = site(io, &upstream, "compress = true");
        let (cross, own) = ("Sec-Fetch-Site: cross-site\r\n", "Sec-Fetch-Site: same-origin\r\n");
        let (cookie, login) = ("Cookie: id=1\r\n", "Authorization: Basic YTpi\r\n");
        for (fields, expected) in [
            (format!("{cross}{cookie}"), None),
            (format!("{cross}{login}"), None),
            // A font or script that a page of another site embeds.
            (cross.to_owned(), Some("zstd")),
            (format!("{own}{cookie}"), Some("zstd")),
            (format!("Sec-Fetch-Site: none\r\n{cookie}"), Some("zstd")),
            (format!("Sec-Fetch-Site: same-site\r\n{cookie}"), Some("zstd")),
            (cookie.to_owned(), Some("zstd")),
        ] {
            let answer = ask(&mut proxy.client(), "GET /", &format!("{HOST}{BROWSER}{fields}"));
            assert_eq!(content(&answer).1, expected, "{fields}");
            assert_eq!(answer.field("vary"), Some("Accept-Encoding"), "{fields}");
        }
    }

    fn clients_of_http_1_0_get_a_declared_length(io) {
        let upstream = Upstream::with_response(response("text/html", "", &text(2000)));
        let proxy = site(io, &upstream, "compress = true");
        let mut peer = proxy.peer();
        peer.send(format!("GET / HTTP/1.0\r\n{HOST}{BROWSER}\r\n"));
        let head = peer.head().unwrap();
        assert_eq!((head.field("content-encoding"), head.field("content-length")), (None, Some("2000")));
    }

    fn events_arrive_one_by_one(io) {
        let events = ["data: first\n\n", "data: second, which has more\n\n", "data: third\n\n"];
        for coding in CODINGS {
            for content_type in ["text/event-stream", "application/x-ndjson"] {
                let (upstream, next) = chunks(content_type);
                let proxy = site(io, &upstream, "compress = { types = [\"text/event-stream\", \"application/x-ndjson\"] }");
                let mut peer = proxy.peer();
                peer.send(format!("GET / HTTP/1.1\r\n{HOST}Accept-Encoding: {coding}\r\n\r\n"));
                let head = peer.head().unwrap();
                assert_eq!(head.field("content-encoding"), Some(coding));
                let (mut received, mut expected) = (Vec::new(), Vec::new());
                for event in events {
                    next.send(Some(event)).unwrap();
                    expected.extend_from_slice(event.as_bytes());
                    // The next one is sent only when this one has arrived.
                    while begun(coding, &received).0 != expected {
                        received.extend(chunk(&mut peer).expect("the event arrives"));
                    }
                }
                next.send(None).unwrap();
                while let Some(more) = chunk(&mut peer) {
                    received.extend(more);
                }
                assert_eq!(decoded(coding, &received), expected);
            }
        }
    }

    fn a_response_that_fails_in_the_middle_has_no_valid_end(io) {
        let upstream = Upstream::scripted(|_, peer| {
            let (head, _) = peer.request().unwrap();
            peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n");
            let page = text(3000);
            match head.line.contains("/known") {
                true => peer.send(format!("Content-Length: 90000\r\n\r\n{page}")),
                false => peer.send(format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{page}\r\n", page.len())),
            };
        });
        let proxy = site(io, &upstream, "compress = true");
        for coding in CODINGS {
            for path in ["/known", "/chunked"] {
                let mut peer = proxy.peer();
                peer.send(format!("GET {path} HTTP/1.1\r\n{HOST}Accept-Encoding: {coding}\r\n\r\n"));
                assert_eq!(peer.head().unwrap().field("content-encoding"), Some(coding));
                let mut received = Vec::new();
                // The last chunk is missing.
                while let Some(line) = peer.line().filter(|line| !line.is_empty()) {
                    let size = usize::from_str_radix(&line, 16).unwrap();
                    assert_ne!(size, 0, "{coding} {path}");
                    received.extend(peer.exactly(size).unwrap());
                    peer.line();
                }
                let (content, is_complete) = begun(coding, &received);
                assert!(!is_complete && text(3000).as_bytes().starts_with(&content), "{coding} {path}");
                let mut client = h2(&proxy);
                let mut head = RequestHead::new(Method::Get, path);
                head.set_authority("a.example");
                head.fields.append(Name::AcceptEncoding, coding);
                let stream = client.send_head(&head, BodyLength::Empty);
                let answer = client.answer(stream);
                assert!(answer.reset.is_some() && !answer.is_complete, "{coding} {path}");
                assert!(!begun(coding, &answer.content).1, "{coding} {path}");
            }
        }
        assert_eq!(proxy.counters().cut_off, 12);
    }

    fn trailers_follow_the_compressed_content(io) {
        let upstream = Upstream::with_response(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n\
             2\r\nok\r\n0\r\nX-Sum: 2\r\nContent-Digest: sha-256=:AA==:\r\nDigest: x\r\n\r\n",
        );
        let proxy = site(io, &upstream, "compress = true");
        let mut peer = proxy.peer();
        peer.send(format!("GET / HTTP/1.1\r\n{HOST}TE: trailers\r\n{BROWSER}\r\n"));
        peer.head().unwrap();
        let mut received = Vec::new();
        while let Some(more) = chunk(&mut peer) {
            received.extend(more);
        }
        assert_eq!(decoded("zstd", &received), b"ok");
        assert_eq!((peer.line().as_deref(), peer.line().as_deref()), (Some("X-Sum: 2"), Some("")));
    }

    fn calls_of_grpc_are_left_alone(io) {
        let upstream = Upstream::with_response(response("application/grpc-web+proto", "", &text(5000)));
        let proxy = site(io, &upstream, "compress = { types = [\"application/*\"] }");
        let call = "Content-Type: application/grpc-web+proto\r\nContent-Length: 0\r\n";
        assert_eq!(coding_of(&proxy, "POST /s/m", &format!("{BROWSER}{call}")), None);
        assert_eq!(coding_of(&proxy, "GET /s/m", BROWSER).as_deref(), Some("zstd"));
    }

    fn a_client_that_reads_nothing_stops_the_upstream(io) {
        let (sender, progress) = channel();
        let upstream = Upstream::scripted(move |_, peer| {
            peer.request();
            peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n");
            // Random text, which is not compressed to almost nothing.
            let mut number = 1_u64;
            let mut piece = || -> String {
                let next = |_| {
                    number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    char::from(b' ' + (number >> 57) as u8 % 90)
                };
                (0..65_536).map(next).collect()
            };
            for _ in 0..512 {
                if !peer.send(format!("10000\r\n{}\r\n", piece())) {
                    return;
                }
                let _ = sender.send(65_536);
            }
        });
        let proxy = site(io, &upstream, "compress = true");
        let mut peer = proxy.peer();
        peer.send(format!("GET / HTTP/1.1\r\n{HOST}{BROWSER}\r\n"));
        peer.head();
        let mut sent = 0;
        while let Ok(bytes) = progress.recv_timeout(Duration::from_secs(1)) {
            sent += bytes;
        }
        assert!(sent < 24 << 20, "{sent} bytes were taken from the upstream for a client that reads none");
        drop(peer);
        eventually("the response has ended", || proxy.counters().compressed == 1);
    }
}

/// The next chunk; `None` for the last.
fn chunk(peer: &mut blitz_testing::H1Peer) -> Option<Vec<u8>> {
    let size = usize::from_str_radix(&peer.line()?, 16).expect("a chunk begins with its size");
    if size == 0 {
        return None;
    }
    let bytes = peer.exactly(size)?;
    assert_eq!(peer.line()?, "");
    Some(bytes)
}
