//! Fields that are added, kept and removed for upstreams and clients.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use blitz_gateway::{Failure, Gateway, Options};
use blitz_host::serving::ListenerConfig;
use blitz_http::{Address, BodyLength, Method, Name, RequestHead, Status, TlsSlot};

use crate::h2::h2;
use crate::support::{Proxy, Upstream, config};
use crate::tls_support::Authority;

scenarios! {
    fn the_upstream_sees_the_clients_host_and_address(io) {
        let upstream = Upstream::with_text("");
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = proxy.client();
        client.send(
            "GET / HTTP/1.1\r\nHost: shop.example:99\r\nX-Forwarded-For: 6.6.6.6\r\n\
             X-Forwarded-Proto: https\r\nForwarded: for=6.6.6.6\r\nX-Request-Id: abc\r\n\r\n",
        );
        assert_eq!(client.response().status, 200);
        let head = upstream.head();
        for (name, value) in [
            ("host", "shop.example:99"),
            ("x-forwarded-for", "127.0.0.1"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-host", "shop.example:99"),
            ("x-forwarded-port", "99"),
            ("forwarded", "for=127.0.0.1;host=\"shop.example:99\";proto=http"),
            ("x-request-id", "abc"),
        ] {
            assert_eq!(head.field(name), Some(value), "{name}");
        }
    }

    fn via_is_added_to_requests_and_responses_by_choice(io) {
        for (via, on_request, on_response) in
            [(false, None, None), (true, Some("2 blitz"), Some("1.1 blitz"))]
        {
            let upstream = Upstream::with_text("");
            let options = Options { via, ..Options::default() };
            let proxy = Proxy::with(io, &[&upstream.url()], options);
            let mut client = h2(&proxy);
            let stream = client.request(Method::Get, "/", BodyLength::Empty);
            let answer = client.answer(stream);
            assert_eq!(answer.fields.get_str(Name::Via), on_response);
            assert_eq!(upstream.head().field("via"), on_request);
        }
    }

    fn alt_svc_of_the_upstream_gives_way_to_that_of_this_server(io) {
        let upstream = Upstream::scripted(|_, peer| {
            while peer.request().is_some() {
                peer.send(
                    "HTTP/1.1 103 Early Hints\r\nAlt-Svc: h3=\":1\"\r\nLink: </a>\r\n\r\n\
                     HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nAlt-Svc: h3=\":1\"\r\n\
                     alt-svc: clear\r\n\r\n2\r\nhi\r\n0\r\nAlt-Svc: h3=\":1\"\r\nX-Sum: 1\r\n\r\n",
                );
            }
        });
        let authority = Authority::new();
        let secure = |http3| ListenerConfig {
            http3,
            ..ListenerConfig::secure(Address::Tcp((Ipv4Addr::LOCALHOST, 0).into()), TlsSlot::new(authority.server()))
        };
        let gateway = Proxy::gateway(io).listen(secure(true)).listen(secure(false));
        let proxy = Proxy::start(gateway, &[&upstream.url()]);
        let ports = proxy.ports();
        let here = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let own = format!("Alt-Svc: h3=\":{}\"; ma=3600", ports[1]);
        let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nTE: trailers\r\nConnection: close\r\n\r\n";
        for (port, expected) in
            [(ports[0], None), (ports[1], Some(own.as_str())), (ports[2], Some("Alt-Svc: clear"))]
        {
            let answer = if expected.is_none() {
                let mut peer = proxy.peer();
                peer.send(request);
                String::from_utf8(peer.rest().0).unwrap()
            } else {
                let mut stream = authority.client().connect(here(port));
                stream.write_all(request).unwrap();
                let mut answer = Vec::new();
                // Without close_notify the end is an error, and the text is complete nevertheless.
                let _ = stream.read_to_end(&mut answer);
                String::from_utf8(answer).unwrap()
            };
            let is_alt_svc = |line: &&str| line.to_ascii_lowercase().starts_with("alt-svc:");
            let found: Vec<_> = answer.lines().filter(is_alt_svc).collect();
            assert_eq!(found, expected.as_slice(), "{answer}");
            for other in ["103 Early Hints", "Link: </a>", "200 OK", "X-Sum: 1"] {
                assert!(answer.contains(other), "{answer}");
            }
        }
    }

    fn a_request_that_comes_back_gets_502(io) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let gateway = Gateway::new().listen(Address::Tcp(address)).config(config(io));
        let proxy = Proxy::start(gateway, &[&format!("http://{address}")]);
        let answer = proxy.client().get("/");
        assert_eq!(answer.status, 502);
        assert_eq!(answer.field("proxy-status"), Some("blitz; error=proxy_loop_detected"));
        assert!(answer.text().contains("came back to this proxy"), "{}", answer.text());
        assert_eq!(proxy.counters().failed(Failure::ProxyLoopDetected), 1);
    }

    fn only_a_member_of_cdn_loop_is_a_loop(io) {
        let upstream = Upstream::with_text("");
        let options = Options { loop_id: Some("edge-1".parse().unwrap()), ..Options::default() };
        let proxy = Proxy::with(io, &[&upstream.url()], options);
        let mut client = proxy.client();
        for (fields, status) in [
            ("", 200),
            ("CDN-Loop: edge-11, a; by=edge-1, b; x=\"edge-1, edge-1\"\r\n", 200),
            ("CDN-Loop: a\r\nConnection: cdn-loop\r\ncdn-loop: b;v=1 , Edge-1;v=1\r\n", 502),
            ("CDN-Loop: a;x=\", edge-1\r\n", 502),
        ] {
            client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
            assert_eq!(client.response().status, status, "{fields}");
        }
        let [first, second] = &upstream.heads()[..] else { panic!() };
        assert_eq!(first.field("cdn-loop"), Some("edge-1"));
        let values = second.fields.iter().filter(|(name, _)| name == "cdn-loop");
        let values: Vec<_> = values.map(|(_, value)| value.as_str()).collect();
        assert_eq!(values, ["edge-11, a; by=edge-1, b; x=\"edge-1, edge-1\"", "edge-1"]);
        let mut client = h2(&proxy);
        let mut head = RequestHead::new(Method::Get, "/");
        head.set_authority("a");
        head.fields.append(Name::CdnLoop, "edge-1");
        let stream = client.send_head(&head, BodyLength::Empty);
        assert_eq!(client.answer(stream).status, Some(Status::BAD_GATEWAY));
        head.set_method(Method::Post);
        head.fields.append(Name::ContentType, "application/grpc");
        let stream = client.send_head(&head, BodyLength::Empty);
        assert_eq!(client.answer(stream).fields.get_str("grpc-status"), Some("13"));
    }

    fn the_identifier_for_loops_is_random(io) {
        let upstream = Upstream::with_text("");
        for _ in 0..2 {
            let proxy = Proxy::to(io, &[&upstream.url()]);
            let mut client = proxy.client();
            client.get("/");
            client.get("/");
        }
        let ids: Vec<_> = upstream.heads();
        let ids: Vec<_> = ids.iter().map(|head| head.field("cdn-loop").unwrap()).collect();
        assert!(ids[0] == ids[1] && ids[2] == ids[3] && ids[0] != ids[2], "{ids:?}");
        assert!(ids[0].starts_with("blitz-"));
    }

    fn unsafe_request_ids_are_replaced(io) {
        let upstream = Upstream::with_text("");
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = proxy.client();
        let long = "x".repeat(129);
        for (id, is_kept) in
            [("a-Z_0.:/+=@", true), ("a b", false), ("a\"b", false), ("{a}", false), (&long, false)]
        {
            let before = upstream.heads().len();
            client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: {id}\r\n\r\n"));
            assert_eq!(client.response().status, 200);
            let heads = upstream.heads();
            let sent = heads[before].field("x-request-id").unwrap();
            assert_eq!(sent == id, is_kept, "{sent}");
        }
    }

    fn spoofed_fields_do_not_reach_the_upstream(io) {
        let upstream = Upstream::with_text("");
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = proxy.client();
        client.send(
            "POST / HTTP/1.1\r\nHost: a\r\nX.Forwarded.For: 6.6.6.6\r\nX_Forwarded.Proto: https\r\n\
             Content_Length: 9\r\nTransfer.Encoding: chunked\r\nClient.Cert: :AA==:\r\n\
             X.Kept: 1\r\nContent-Length: 2\r\n\r\nhi",
        );
        assert_eq!(client.response().status, 200);
        let head = upstream.head();
        for name in
            ["x.forwarded.for", "x_forwarded.proto", "content_length", "transfer.encoding", "client.cert"]
        {
            assert_eq!(head.field(name), None, "{name}");
        }
        assert_eq!((head.field("x.kept"), head.field("content-length")), (Some("1"), Some("2")));
    }

    fn fields_of_a_trusted_proxy_are_kept(io) {
        let upstream = Upstream::with_text("");
        let options = Options {
            trusted_proxies: ["127.0.0.0/8".parse().unwrap()].into_iter().collect(),
            ..Options::default()
        };
        let proxy = Proxy::with(io, &[&upstream.url()], options);
        let mut client = proxy.client();
        client.send(
            "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.9\r\n\
             X-Forwarded-Proto: https\r\n\r\n",
        );
        assert_eq!(client.response().status, 200);
        let head = upstream.head();
        assert_eq!(head.field("x-forwarded-for"), Some("203.0.113.9, 127.0.0.1"));
        assert_eq!(head.field("x-forwarded-proto"), Some("https"));
        assert_eq!(head.field("x-forwarded-port"), Some("443"));
        assert_eq!(
            head.field("forwarded"),
            Some(
                "for=203.0.113.9;host=\"a\";proto=https, \
                 for=127.0.0.1;host=\"a\";proto=http"
            )
        );
    }

    fn forwarding_fields_of_a_trusted_proxy_never_contradict_each_other(io) {
        let upstream = Upstream::with_text("");
        let options = Options {
            trusted_proxies: ["127.0.0.0/8".parse().unwrap()].into_iter().collect(),
            ..Options::default()
        };
        let proxy = Proxy::with(io, &[&upstream.url()], options);
        let own = "for=127.0.0.1;host=\"a\";proto=http";
        for (told, [addresses, proto, host, port, forwarded]) in [
            (
                &[("forwarded", "for=\"[2001:db8::1]\";proto=https;host=b")][..],
                ["2001:db8::1, 127.0.0.1", "https", "b", "443",
                    "for=\"[2001:db8::1]\";host=\"b\";proto=https"],
            ),
            (
                &[("forwarded", "for=6.6.6.6;proto=https"), ("x-forwarded-for", "192.0.2.1")],
                ["192.0.2.1, 127.0.0.1", "http", "a", "80", "for=192.0.2.1;host=\"a\";proto=http"],
            ),
            (
                &[("forwarded", "for=\"6.6.6.6"), ("x-forwarded-proto", "https")],
                ["127.0.0.1", "https", "a", "443", "for=127.0.0.1;host=\"a\";proto=https"],
            ),
        ] {
            let before = upstream.heads().len();
            let mut client = h2(&proxy);
            let mut head = RequestHead::new(Method::Get, "/");
            head.set_authority("a");
            told.iter().for_each(|(name, value)| head.fields.append(*name, value));
            let stream = client.send_head(&head, BodyLength::Empty);
            assert_eq!(client.answer(stream).status, Some(Status::OK));
            let head = &upstream.heads()[before];
            assert_eq!(head.field("x-forwarded-for"), Some(addresses));
            assert_eq!(head.field("x-forwarded-proto"), Some(proto));
            assert_eq!(head.field("x-forwarded-host"), Some(host));
            assert_eq!(head.field("x-forwarded-port"), Some(port));
            let sent = head.field("forwarded").unwrap();
            assert!(sent == forwarded || sent == format!("{forwarded}, {own}"), "{sent}");
        }
    }

    fn https_requests_of_a_trusted_proxy_are_not_redirected(io) {
        let upstream = Upstream::with_text("");
        let request = |fields| format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
        for (trusted, fields, location) in [
            ("127.0.0.0/8", "X-Forwarded-Proto: HTTPS", None),
            ("127.0.0.0/8", "X-Forwarded-Proto: http", Some("https://a/")),
            ("10.0.0.0/8", "X-Forwarded-Proto: https", Some("https://a/")),
            ("127.0.0.0/8", "Forwarded: for=192.0.2.1;proto=https", None),
            ("10.0.0.0/8", "Forwarded: for=192.0.2.1;proto=https", Some("https://a/")),
            ("127.0.0.0/8", "X-Forwarded-Host: b", Some("https://b/")),
            ("10.0.0.0/8", "X-Forwarded-Host: b", Some("https://a/")),
            (
                "127.0.0.0/8",
                "Forwarded: for=192.0.2.1;proto=https\r\nX-Forwarded-Proto: http",
                Some("https://a/"),
            ),
        ] {
            let options = Options {
                trusted_proxies: [trusted.parse().unwrap()].into_iter().collect(),
                redirect_https: true,
                ..Options::default()
            };
            let proxy = Proxy::with(io, &[&upstream.url()], options);
            let mut client = proxy.client();
            client.send(request(fields));
            let answer = client.response();
            let expected = if location.is_some() { 308 } else { 200 };
            assert_eq!(answer.status, expected, "{fields} from {trusted}");
            assert_eq!(answer.field("location"), location, "{fields} from {trusted}");
        }
    }

    fn the_port_of_a_redirect_is_that_of_the_other_listener_or_the_default(io) {
        let tls = TlsSlot::new(Authority::new().server());
        let gateway = Proxy::gateway(io).options(Options { redirect_https: true, ..Options::default() });
        let loopback = Address::Tcp((Ipv4Addr::LOCALHOST, 0).into());
        let gateway = gateway.listen_tls(loopback, tls);
        let proxy = Proxy::start(gateway, &[]);
        let tls_port = proxy.ports()[1];
        for (host, expected) in [
            ("a".to_owned(), "https://a/x".to_owned()),
            (format!("a:{}", proxy.address.port()), format!("https://a:{tls_port}/x")),
            (format!("[::1]:{}", proxy.address.port()), format!("https://[::1]:{tls_port}/x")),
            ("[::1]".to_owned(), "https://[::1]/x".to_owned()),
        ] {
            let mut client = proxy.client();
            client.send(format!("GET /x HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            assert_eq!(client.response().field("location"), Some(expected.as_str()));
        }
    }

    fn a_redirect_to_https_has_a_valid_location_or_the_request_is_refused(io) {
        let options = Options { redirect_https: true, ..Options::default() };
        let proxy = Proxy::with(io, &[], options);
        let mut redirected = 0;
        for byte in 1..=255_u8 {
            for (target, host) in [("/a~", "a"), ("/?a=~", "a"), ("http://a/~", "b"), ("/", "a~"), ("/", "~:80")] {
                let mut peer = proxy.peer();
                let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
                let request: Vec<_> = request.bytes().map(|b| if b == b'~' { byte } else { b }).collect();
                peer.send(&request);
                let answer = peer.head().unwrap();
                let status = &answer.line[9..12];
                if status == "308" {
                    let location = answer.field("location").unwrap();
                    let is_valid = location.bytes().all(|byte| byte.is_ascii_graphic());
                    assert!(is_valid && location.starts_with("https://"), "{byte}: {location}");
                    redirected += 1;
                } else {
                    assert_eq!((status, answer.field("location")), ("400", None), "{byte}: {target}, {host}");
                }
            }
        }
        assert!(redirected > 300, "{redirected}");
    }

    fn hop_by_hop_fields_are_removed_in_both_directions(io) {
        let upstream = Upstream::with_response(
            "HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Inner\r\nKeep-Alive: timeout=9\r\n\
             X-Inner: 1\r\nProxy-Authenticate: Basic\r\nX-Kept: 1\r\nServer: inner\r\n\
             Priority: u=1\r\n\
             Content-Length: 0\r\n\r\n",
        );
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = proxy.client();
        client.send(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X-Outer\r\nX-Outer: 1\r\n\
             Keep-Alive: 5\r\nProxy-Connection: keep-alive\r\nProxy: evil\r\n\
             Proxy-Authorization: x\r\nTE: gzip\r\nUpgrade: h2c\r\nHTTP2-Settings: AAAA\r\n\
             X-Kept: 1\r\n\r\n",
        );
        let answer = client.response();
        let head = upstream.head();
        for gone in [
            "connection", "x-outer", "keep-alive", "proxy-connection", "proxy",
            "proxy-authorization", "te", "upgrade", "http2-settings",
        ] {
            assert_eq!(head.field(gone), None, "{gone} reached the upstream");
        }
        assert_eq!(head.field("x-kept"), Some("1"));
        for gone in ["keep-alive", "x-inner", "proxy-authenticate"] {
            assert_eq!(answer.field(gone), None, "{gone} reached the client");
        }
        assert_eq!(answer.field("x-kept"), Some("1"));
        assert_eq!(answer.field("priority"), Some("u=1"));
        assert_eq!(answer.field("server"), Some("inner"));
        assert_eq!(answer.field("via"), None);
        assert!(answer.field("date").is_some(), "the gateway has a clock");
        assert_eq!(client.get("/").status, 200, "the connection continues");
    }

    fn connection_cannot_remove_end_to_end_fields(io) {
        let upstream = Upstream::with_text("");
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = proxy.client();
        client.send(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nAuthorization: x\r\nCookie: a=b\r\n\
             Connection: Host, Content-Length, Authorization, Cookie, X-Forwarded-For\r\n\r\nhi",
        );
        assert_eq!(client.response().status, 200);
        let head = upstream.head();
        for (name, value) in [
            ("host", "a"),
            ("content-length", "2"),
            ("authorization", "x"),
            ("cookie", "a=b"),
            ("x-forwarded-for", "127.0.0.1"),
        ] {
            assert_eq!(head.field(name), Some(value), "{name}");
        }
    }

    fn trace_and_connect_are_rejected(io) {
        let upstream = Upstream::with_text("");
        let proxy = Proxy::to(io, &[&upstream.url()]);
        for request in [
            "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n",
            "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n",
        ] {
            let mut client = proxy.client();
            client.send(request);
            assert_eq!(client.response().status, 405, "{request:?}");
        }
        assert_eq!(upstream.heads(), []);
    }

    fn options_with_max_forwards_are_counted_down(io) {
        let upstream = Upstream::with_text("");
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = proxy.client();
        client.send("OPTIONS / HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n");
        let answer = client.response();
        assert_eq!(answer.status, 204);
        assert!(answer.field("allow").is_some());
        client.send("OPTIONS / HTTP/1.1\r\nHost: a\r\nMax-Forwards: 7\r\n\r\n");
        assert_eq!(client.response().status, 200);
        assert_eq!(upstream.head().field("max-forwards"), Some("6"));
    }
}
