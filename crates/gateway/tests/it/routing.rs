//! The upstream of a request, and the path that it gets.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::thread;

use blitz_testing::h2::kind::{HEADERS, SETTINGS};
use blitz_testing::h2::{PREFACE, frame};
use socket2::{Domain, Socket, Type};

use crate::support::{Proxy, Upstream, eventually, unix_upstream};

scenarios! {
    fn the_longest_prefix_of_whole_segments_wins(io) {
        let (all, api, v2) = (Upstream::with_text("all"), Upstream::with_text("api"), Upstream::with_text("v2"));
        let targets = [all.url(), format!("/api={}", api.url()), format!("/api/v2={}", v2.url())];
        let proxy = Proxy::to(io, &targets.each_ref().map(String::as_str));
        let mut client = proxy.client();
        for (path, upstream_name) in
            [("/", "all"), ("/apix", "all"), ("/api", "api"), ("/api/v2x", "api"), ("/api/v2/x", "v2")]
        {
            assert_eq!(client.get(path).text(), upstream_name, "{path}");
        }
    }

    fn unmatched_requests_go_to_the_built_in_site(io) {
        let api = Upstream::with_text("api");
        let proxy = Proxy::to(io, &[&format!("/api={}", api.url())]);
        let mut client = proxy.client();
        let answer = client.get("/");
        assert_eq!((answer.status, answer.text()), (404, "built in"));
        assert_eq!(client.get("/api").text(), "api");
        let counters = proxy.counters();
        assert_eq!((counters.routed, counters.unrouted), (1, 1));
    }

    fn the_prefix_is_kept_and_a_path_in_the_url_replaces_it(io) {
        let upstream = Upstream::with_text("");
        let targets = [
            format!("/kept={}", upstream.url()),
            format!("/moved={}/new", upstream.url()),
            format!("/gone={}/", upstream.url()),
        ];
        let proxy = Proxy::to(io, &targets.each_ref().map(String::as_str));
        let mut client = proxy.client();
        for path in ["/kept/a?x=1", "/moved/a?x=/moved", "/moved", "/gone/a?", "/gone"] {
            client.get(path);
        }
        let lines: Vec<_> = upstream.heads().into_iter().map(|head| head.line).collect();
        assert_eq!(
            lines,
            [
                "GET /kept/a?x=1 HTTP/1.1",
                "GET /new/a?x=/moved HTTP/1.1",
                "GET /new HTTP/1.1",
                "GET /a? HTTP/1.1",
                "GET / HTTP/1.1",
            ]
        );
    }

    fn the_matched_path_is_the_path_sent(io) {
        let (open, closed) = (Upstream::with_text("open"), Upstream::with_text("closed"));
        let targets = [open.url(), format!("/admin={}", closed.url())];
        let proxy = Proxy::to(io, &targets.each_ref().map(String::as_str));
        let mut client = proxy.client();
        for path in ["/admin", "/x/../admin", "/%61dmin", "/x/%2e%2e/admin", "/./admin/"] {
            assert_eq!(client.get(path).text(), "closed", "{path}");
        }
        assert_eq!(client.get("/admin%2Fx").text(), "open");
        let lines: Vec<_> = closed.heads().into_iter().map(|head| head.line).collect();
        assert_eq!(
            lines,
            ["/admin", "/admin", "/%61dmin", "/admin", "/admin/"]
                .map(|path| format!("GET {path} HTTP/1.1"))
        );
    }

    fn a_path_cannot_leave_the_path_that_replaces_its_prefix(io) {
        let upstream = Upstream::with_text("");
        let proxy = Proxy::to(io, &[&format!("/img*={}/pictures/", upstream.url())]);
        let answer = proxy.client().get("/img../secret");
        assert_eq!(answer.status, 400);
        assert_eq!(upstream.heads(), []);
    }

    fn options_for_the_whole_server_reach_the_target_without_a_prefix(io) {
        let upstream = Upstream::with_text("");
        let proxy = Proxy::to(io, &[&format!("{}/base", upstream.url())]);
        let mut client = proxy.client();
        client.send("OPTIONS * HTTP/1.1\r\nHost: test\r\n\r\n");
        assert_eq!(client.response().status, 200);
        assert_eq!(upstream.head().line, "OPTIONS * HTTP/1.1");
    }

    fn an_absolute_target_without_a_path_means_the_whole_server(io) {
        let upstream = Upstream::with_text("");
        let proxy = Proxy::to(io, &[&format!("{}/base", upstream.url())]);
        let mut client = proxy.client();
        for target in ["OPTIONS http://a", "GET http://a", "GET http://a?q=/../x"] {
            client.send(format!("{target} HTTP/1.1\r\nHost: a\r\n\r\n"));
            assert_eq!(client.response().status, 200);
        }
        let lines: Vec<_> = upstream.heads().into_iter().map(|head| head.line).collect();
        assert_eq!(
            lines,
            ["OPTIONS * HTTP/1.1", "GET /base/ HTTP/1.1", "GET /base/?q=/../x HTTP/1.1"]
        );
    }

    fn unusual_spellings_are_matched_and_forwarded_alike(io) {
        let (open, api) = (Upstream::with_text("open"), Upstream::with_text("api"));
        let targets = [
            open.url(),
            format!("/api={}/v2", api.url()),
            format!("/docs/={}/d/", api.url()),
            format!("/.={}", api.url()),
        ];
        let proxy = Proxy::to(io, &targets.each_ref().map(String::as_str));
        let mut client = proxy.client();
        for (path, sent) in [
            ("/api", Some("/v2")),
            ("/api/", Some("/v2/")),
            ("/api?/../x", Some("/v2?/../x")),
            ("/api//x", Some("/v2//x")),
            ("/api/..", None),
            ("/api/../api/x", Some("/v2/x")),
            ("/api%2fx", None),
            ("/ap%69/%2f%61%2e/x", Some("/v2/%2f%61%2e/x")),
            ("/api/%252e%252e/x", Some("/v2/%252e%252e/x")),
            ("//api/x", None),
            ("/docs", None),
            ("/docs/", Some("/d/")),
            ("/docs//", Some("/d//")),
            ("/docs/%2e", Some("/d/")),
            ("/.well-known/x", Some("/.well-known/x")),
            ("/%2ewell-known/x", Some("/%2ewell-known/x")),
        ] {
            let before = api.heads().len();
            let upstream_name = client.get(path);
            assert_eq!(upstream_name.text(), if sent.is_some() { "api" } else { "open" }, "{path}");
            let line = api.heads().get(before).map(|head| head.line.clone());
            assert_eq!(line, sent.map(|sent| format!("GET {sent} HTTP/1.1")), "{path}");
        }
        for path in [
            "/api/..\\x",
            "/api/../../x",
            "/api/%2e%2e/%2e%2e/x",
            "/api\t",
            "/api#x",
            "/\u{e9}\\x",
            "/api/<..\\x",
            "/api/..%2Fsecret",
            "/api/..%5csecret",
            "/api/..;/secret",
            "/api/x%2F..%2F..%2Fsecret",
        ] {
            let mut peer = proxy.peer();
            peer.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            assert!(peer.head().unwrap().line.contains(" 400 "), "{path}");
        }
    }

    fn raw_bytes_are_encoded_and_match_like_their_escapes(io) {
        let (open, closed) = (Upstream::with_text("open"), Upstream::with_text("closed"));
        let targets = [
            open.url(),
            format!("/caf%C3%A9={}", closed.url()),
            format!("/a%7Cb={}/moved", closed.url()),
        ];
        let proxy = Proxy::to(io, &targets.each_ref().map(String::as_str));
        let mut client = proxy.client();
        for (path, sent) in [
            ("/caf\u{e9}", "/caf%C3%A9"),
            ("/caf%C3%A9", "/caf%C3%A9"),
            ("/caf%c3%a9/x", "/caf%c3%a9/x"),
            ("/caf%c3\u{e9}/../caf\u{e9}/<x>?\u{e9}", "/caf%C3%A9/%3Cx%3E?%C3%A9"),
            ("/x/../c\u{61}f\u{e9}/%7e", "/caf%C3%A9/%7e"),
            ("http://a/caf\u{e9}", "/caf%C3%A9"),
            ("/a|b/{x}", "/moved/%7Bx%7D"),
            ("/a%7cb/%7bx}", "/moved/%7bx%7D"),
            ("/a|b?\"^`\\", "/moved?%22%5E%60%5C"),
        ] {
            let before = closed.heads().len();
            assert_eq!(client.get(path).text(), "closed", "{path}");
            assert_eq!(closed.heads()[before].line, format!("GET {sent} HTTP/1.1"));
        }
        for path in ["/caf\u{e8}", "/caf\u{e9}x", "/a\u{7c}", "/cafe\u{301}"] {
            assert_eq!(client.get(path).text(), "open", "{path}");
        }
        let latin1 = b"GET /caf\xe9?\xff HTTP/1.1\r\nHost: a\r\n\r\n";
        let before = open.heads().len();
        let mut peer = proxy.peer();
        peer.send(latin1);
        assert!(peer.head().unwrap().line.contains(" 200 "));
        assert_eq!(open.heads()[before].line, "GET /caf%E9?%FF HTTP/1.1");
    }

    fn raw_bytes_of_http2_paths_are_encoded(io) {
        let (open, closed) = (Upstream::with_text("open"), Upstream::with_text("closed"));
        let proxy = Proxy::to(io, &[&open.url(), &format!("/caf%C3%A9={}", closed.url())]);
        let path = "/caf\u{e9}/|?<\u{65e5}>";
        // GET, http, an authority of one byte, and the path as a literal without Huffman coding.
        let block = [b"\x82\x86\x01\x01a\x04", &[path.len() as u8][..], path.as_bytes()].concat();
        let (settings, headers) = (frame(SETTINGS, 0, 0, []), frame(HEADERS, 5, 1, &block));
        let mut peer = proxy.peer();
        peer.send([PREFACE, &settings, &headers].concat());
        eventually("the request is forwarded", || !closed.heads().is_empty());
        assert_eq!(closed.head().line, "GET /caf%C3%A9/%7C?%3C%E6%97%A5%3E HTTP/1.1");
    }

    fn a_target_that_is_too_long_when_encoded_gets_414(io) {
        let upstream = Upstream::with_text("");
        let proxy = Proxy::to(io, &[&upstream.url()]);
        for (raw_bytes, status) in [(2700, " 200 "), (2750, " 414 ")] {
            let mut peer = proxy.peer();
            peer.send(format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "<".repeat(raw_bytes)));
            assert!(peer.head().unwrap().line.contains(status), "{raw_bytes}");
        }
        assert_eq!(upstream.head().line.len(), "GET / HTTP/1.1".len() + 3 * 2700);
    }

    fn absolute_targets_are_sent_in_origin_form_with_their_host(io) {
        let upstream = Upstream::with_text("");
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = proxy.client();
        client.send("GET http://real.example/x?y HTTP/1.1\r\nHost: other.example\r\n\r\n");
        assert_eq!(client.response().status, 200);
        let head = upstream.head();
        assert_eq!(head.line, "GET /x?y HTTP/1.1");
        assert_eq!(head.field("host"), Some("real.example"));
    }

    fn unix_sockets_and_localhost_are_upstreams(io) {
        let path = unix_upstream(&format!("{io:?}"), "over unix");
        let upstream = Upstream::with_text("over loopback");
        let targets =
            [format!("/unix=unix:{}", path.display()), format!("http://localhost:{}", upstream.port())];
        let proxy = Proxy::to(io, &targets.each_ref().map(String::as_str));
        let mut client = proxy.client();
        assert_eq!(client.get("/unix").text(), "over unix");
        assert_eq!(client.get("/").text(), "over loopback");
        std::fs::remove_file(path).unwrap();
    }

    fn localhost_returns_to_ipv4_once_it_answers(io) {
        let v4 = bound(Domain::IPV4, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let port = v4.local_addr().unwrap().as_socket().unwrap().port();
        let v6 = bound(Domain::IPV6, SocketAddr::from((Ipv6Addr::LOCALHOST, port)));
        let proxy = Proxy::to(io, &[&format!("http://localhost:{port}")]);
        let mut client = proxy.client();
        serve(v6, "over IPv6");
        assert_eq!(client.get("/").text(), "over IPv6");
        serve(v4, "over IPv4");
        eventually("IPv4 is tried again", || client.get("/").text() == "over IPv4");
        assert_eq!(client.get("/").text(), "over IPv4");
    }
}

/// A socket that refuses connections.
fn bound(domain: Domain, address: SocketAddr) -> Socket {
    let socket = Socket::new(domain, Type::STREAM, None).unwrap();
    socket.bind(&address.into()).unwrap();
    socket
}

/// Listens, and answers each request on a connection of its own.
fn serve(socket: Socket, text: &'static str) {
    socket.listen(16).unwrap();
    let length = text.len();
    let response =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}");
    thread::spawn(move || {
        for mut stream in TcpListener::from(socket).incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(response.as_bytes());
        }
    });
}
