//! Another service decides on the requests of a route.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use blitz_gateway::{Gateway, Options, Rejection};
use blitz_http::{BodyLength, Method, Name, RequestHead, Status, WebSocketKey};
use blitz_testing::h3::headers;
use blitz_testing::{H1Peer, Head, refusing_address};

use crate::h2::h2;
use crate::h3_support::{QuicServer, block_on};
use crate::site_rules::{HOST, ask, gateway, gateway_with, sites_of};
use crate::support::{Proxy, Upstream, ok, unix_upstream};

const GOOD: &str = "Cookie: session=good\r\n";

/// A busy machine is no reason for a failure.
const PATIENT: &str = "timeout = \"60s\"";

fn all<'h>(head: &'h Head, name: &str) -> Vec<&'h str> {
    let fields = head.fields.iter();
    let named = fields.filter(|(other, _)| other == name);
    named.map(|(_, value)| value.as_str()).collect()
}

/// An authorizer that knows one session, and forbids one path.
fn authorizer() -> Upstream {
    Upstream::scripted(|_, peer| {
        while let Some((head, _)) = peer.request() {
            let is_known = all(&head, "cookie").contains(&"session=good");
            let uri = head.field("x-forwarded-uri").unwrap_or_default();
            peer.send(match (is_known, uri) {
                (true, "/forbidden") => "HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno".to_owned(),
                (true, _) => {
                    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nremote-user: alice\r\nRemote-Groups: a\r\n\
                     Remote-Groups: b\r\nSet-Cookie: session=good; Path=/\r\nX-Other: 1\r\n\r\nok"
                        .to_owned()
                }
                (false, _) => {
                    "HTTP/1.1 302 Found\r\nTransfer-Encoding: chunked\r\nLocation: https://login.example/\r\n\
                     Set-Cookie: csrf=1\r\nSet-Cookie: next=2\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\n\
                     Keep-Alive: timeout=5\r\nAlt-Svc: h3=\":1\"\r\n\r\n6\r\nlog in\r\n0\r\n\r\n"
                        .to_owned()
                }
            });
        }
    })
}

/// A service that sends these bytes as its response.
fn service(response: impl Into<Vec<u8>>) -> Upstream {
    Upstream::with_response(response)
}

/// Answers one request of a client of HTTP/1.1.
fn status(proxy: &Proxy, fields: &str) -> u16 {
    ask(&mut proxy.client(), "GET /", &format!("{HOST}{fields}")).status
}

/// Sends a beginning, then parts until the other side closes.
fn endless(peer: &mut H1Peer, beginning: &str, part: &str) {
    if peer.request().is_some() && peer.send(beginning) {
        while peer.send(part) {}
    }
}

fn websocket_upstream() -> Upstream {
    Upstream::scripted(|_, peer| {
        while let Some((head, _)) = peer.request() {
            let Some(key) = head.field("sec-websocket-key") else {
                peer.send(ok("in"));
                continue;
            };
            let accept = WebSocketKey::parse(key.as_bytes()).unwrap().accept();
            peer.send(format!(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Accept: {accept}\r\n\r\n"
            ));
        }
    })
}

scenarios! {
    fn an_authorizer_decides(io) {
        let (upstream, authorizer) = (Upstream::with_text("in"), authorizer());
        let (to, url) = (upstream.url(), authorizer.url());
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            to = "{to}"
            cors = ["https://app.example"]
            headers.X-Site = "a"
            forward_auth = {{ url = "{url}/authz?rd=x", copy = ["Remote-User", "Remote-Groups"], {PATIENT} }}
            "=/health".forward_auth = false
            "/cookies".forward_auth = {{ url = "{url}/authz", cookies = true, {PATIENT} }}
        "#));
        let mut client = proxy.client();
        let sent = format!("{HOST}{GOOD}Content-Length: 4\r\nContent-Type: text/plain\r\nIf-None-Match: \"x\"\r\n\
            Range: bytes=0-1\r\nAccept: a/b\r\nAuthorization: Bearer x\r\nConnection: X-Gone\r\nX-Gone: 1\r\n\
            X-Forwarded-Uri: /spoofed\r\nX_Forwarded_Uri: /spoofed\r\nX-Original-URL: http://spoofed/\r\n\
            x.original.url: http://spoofed/\r\nX-Forwarded-Method: GET\r\nX-Forwarded-For: 192.0.2.1\r\n\
            Remote-User: spoofed\r\nremote_user: spoofed\r\nX-Original-Method: GET\r\n");
        client.send(format!("POST /a/%41?c=d HTTP/1.1\r\n{sent}\r\nbody"));
        let response = client.response();
        assert_eq!((response.status, response.text()), (200, "in"));
        assert_eq!((response.field("set-cookie"), response.field("x-site")), (None, Some("a")));
        let asked = authorizer.head();
        assert_eq!(asked.line, "GET /authz?rd=x HTTP/1.1");
        let host = url.strip_prefix("http://").unwrap();
        for (name, values) in [
            ("host", vec![host]),
            ("x-forwarded-method", vec!["POST"]),
            ("x-forwarded-uri", vec!["/a/%41?c=d"]),
            ("x-forwarded-host", vec!["a.example:8080"]),
            ("x-forwarded-proto", vec!["http"]),
            ("x-forwarded-for", vec!["127.0.0.1"]),
            ("x-original-method", vec!["POST"]),
            ("x-original-uri", vec!["/a/%41?c=d"]),
            ("x-original-url", vec!["http://a.example:8080/a/%41?c=d"]),
            ("cookie", vec!["session=good"]),
            ("authorization", vec!["Bearer x"]),
            ("accept", vec!["a/b"]),
        ] {
            assert_eq!(all(&asked, name), values, "{name}");
        }
        for name in ["content-length", "content-type", "if-none-match", "range", "x-gone", "transfer-encoding",
                     "x_forwarded_uri", "x.original.url", "remote-user", "remote_user", "expect"] {
            assert!(all(&asked, name).is_empty(), "{name}");
        }
        let passed = upstream.head();
        assert_eq!(all(&passed, "remote-user"), ["alice"]);
        assert_eq!(all(&passed, "remote-groups"), ["a", "b"]);
        assert!(all(&passed, "remote_user").is_empty() && all(&passed, "x-other").is_empty());
        // Its response to others is theirs; the content that they announce is not asked for.
        let fields = format!("{HOST}Origin: https://app.example\r\nExpect: 100-continue\r\nContent-Length: 5\r\n");
        let response = ask(&mut client, "POST /x", &fields);
        assert_eq!((response.status, response.text()), (302, "log in"));
        assert_eq!(response.field("location"), Some("https://login.example/"));
        assert_eq!(response.all("set-cookie"), ["csrf=1", "next=2"]);
        assert_eq!(response.field("access-control-allow-origin"), Some("https://app.example"));
        assert_eq!(response.field("x-site"), Some("a"));
        for name in ["x-hop", "keep-alive", "alt-svc", "transfer-encoding"] {
            assert_eq!(response.field(name), None, "{name}");
        }
        let mut client = proxy.client();
        client.send(format!("HEAD /x HTTP/1.1\r\n{HOST}\r\nGET /forbidden HTTP/1.1\r\n{HOST}{GOOD}Connection: close\r\n\r\n"));
        let text = String::from_utf8_lossy(&client.rest()).into_owned();
        let (head, rest) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 302") && head.contains("ontent-"), "{head}");
        assert!(rest.starts_with("HTTP/1.1 403") && rest.ends_with("no"), "{rest}");
        assert_eq!(status(&proxy, ""), 302);
        assert_eq!(ask(&mut proxy.client(), "GET /health", HOST).status, 200);
        let response = ask(&mut proxy.client(), "GET /cookies", &format!("{HOST}{GOOD}"));
        assert_eq!((response.status, response.field("set-cookie")), (200, Some("session=good; Path=/")));
        // A preflight is answered before.
        let preflight = format!("{HOST}Origin: https://app.example\r\nAccess-Control-Request-Method: PUT\r\n");
        assert_eq!(ask(&mut proxy.client(), "OPTIONS /x", &preflight).status, 204);
        assert_eq!(upstream.heads().len(), 3);
        let counters = proxy.counters();
        assert_eq!(counters.rejected(Rejection::Unauthenticated), 3);
        assert_eq!(counters.rejected(Rejection::Unauthorized), 1);
        // Its connection is kept.
        assert_eq!(authorizer.accepted(), 1);
    }

    fn only_the_authorizer_names_the_client(io) {
        let upstream = Upstream::with_text("in");
        let nameless = service(ok("ok"));
        let (to, url, nameless) = (upstream.url(), authorizer(), nameless.url());
        let url = url.url();
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            to = "{to}"
            request_trailers = true
            forward_auth = {{ url = "{url}", copy = ["Remote-User", "Authorization"], send = "Cookie", {PATIENT} }}
            "/nameless".forward_auth = {{ url = "{nameless}", copy = "Remote-User", {PATIENT} }}
            "/open".forward_auth = {{ url = "http://{}", copy = "Remote-User", on_failure = "open" }}
        "#, refusing_address()));
        let mut client = proxy.client();
        let spoofed = "Remote-User: root\r\nremote_user: root\r\nRemote.User: root\r\nREMOTE_USER: root\r\n\
                       Remote-Users: kept\r\nConnection: keep-alive, Remote-User\r\nAuthorization: Bearer x\r\n";
        for (path, user) in [("/", Some("alice")), ("/nameless", None), ("/open", None)] {
            client.send(format!(
                "POST {path} HTTP/1.1\r\n{HOST}{GOOD}{spoofed}Trailer: Remote-User\r\nTransfer-Encoding: chunked\r\n\r\n\
                 1\r\na\r\n0\r\nRemote-User: root\r\nremote_user: root\r\n\r\n"
            ));
            assert_eq!(client.response().status, 200, "{path}");
            let head = upstream.heads().pop().unwrap();
            assert_eq!(all(&head, "remote-user"), user.into_iter().collect::<Vec<_>>(), "{path}");
            assert_eq!(all(&head, "remote-users"), ["kept"]);
            for other in ["remote_user", "remote.user", "trailer"] {
                assert!(all(&head, other).is_empty(), "{other}");
            }
            // Of a field that is copied, the client's own never passes.
            assert_eq!(all(&head, "authorization").is_empty(), path == "/", "{path}");
        }
        assert_eq!(proxy.counters().authorizations_skipped, 1);
    }

    fn an_authorizer_gets_the_fields_of_send(io) {
        let authorizer = service(ok("ok"));
        let url = authorizer.url();
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            respond = "200 in"
            forward_auth = {{ url = "{url}", send = ["Cookie", "X-Token"], {PATIENT} }}
        "#));
        let fields = format!("{HOST}{GOOD}X-Token: t\r\nAccept: a/b\r\nX-Private: 1\r\n");
        assert_eq!(ask(&mut proxy.client(), "DELETE /p", &fields).status, 200);
        let asked = authorizer.head();
        assert_eq!((all(&asked, "cookie"), all(&asked, "x-token")), (vec!["session=good"], vec!["t"]));
        assert_eq!((all(&asked, "x-forwarded-method"), all(&asked, "x-forwarded-for")), (vec!["DELETE"], vec!["127.0.0.1"]));
        assert!(all(&asked, "accept").is_empty() && all(&asked, "x-private").is_empty());
    }

    fn no_decision_is_a_failure(io) {
        let large = "x".repeat(1 << 20);
        let failed = Rejection::AuthorizerFailed;
        let many = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(20);
        let empty = "Content-Length: 0\r\n\r\n";
        // With those that let a request pass with "open". A client can make an authorizer that repeats its fields send
        // one that is not valid.
        let cases: Vec<(Upstream, Rejection, bool)> = vec![
            (service(format!("HTTP/1.1 500 No\r\n{empty}")), failed, true),
            (Upstream::scripted(|_, peer| { peer.request(); }), failed, true),
            (Upstream::scripted(|_, peer| { peer.request(); peer.send("HTTP/1.1 200 OK\r\nX: "); }), failed, false),
            (Upstream::scripted(|_, peer| { peer.request(); peer.send("HTTP/1.1 103 Early Hints\r\n\r\n"); }), failed, false),
            (service("HTTP/1.1 304 No\r\n\r\n"), failed, false),
            (service(format!("HTTP/1.1 600 No\r\n{empty}")), failed, false),
            (service("HTTP/1.1 101 No\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"), failed, false),
            (service(format!("HTTP/1.1 200 OK\r\nRemote-User: a\rX-Admin: 1\r\n{empty}")), failed, false),
            (service(format!("HTTP/1.1 200 OK\r\nRemote-User: a\nX-Admin: 1\r\n{empty}")), failed, false),
            (service(format!("HTTP/1.1 200 OK\r\nRemote-User: a\0b\r\n{empty}")), failed, false),
            (service(format!("HTTP/1.1 401 No\r\nX: a\x01b\r\n{empty}")), failed, false),
            (service(format!("HTTP/1.1 302 No\r\nLocation: /a\0b\r\n{empty}")), failed, false),
            (service(format!("HTTP/1.1 302 No\r\nLocation: /a\nb\r\n{empty}")), failed, false),
            (service(format!("HTTP/1.1 302 No\r\nLocation: /a\x7fb\r\n{empty}")), failed, false),
            (service(format!("HTTP/1.1 401 {}\r\n{empty}", "x".repeat(9000))), failed, false),
            (service(format!("{many}HTTP/1.1 401 No\r\n{empty}")), failed, false),
            (service("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 1\r\n\r\n"), failed, false),
            (service("no HTTP\r\n\r\n"), failed, false),
            (service(format!("HTTP/1.1 200 OK\r\nX: {large}\r\n{empty}")), Rejection::AuthorizerTooLarge, false),
        ];
        for (at, (authorizer, rejection, passes)) in cases.iter().enumerate() {
            let url = authorizer.url();
            let proxy = gateway(io, &format!(r#"
                [site."a.example"]
                respond = "200 in"
                forward_auth = {{ url = "{url}", copy = "Remote-User", {PATIENT} }}
                "/open".forward_auth = {{ url = "{url}", copy = "Remote-User", on_failure = "open", {PATIENT} }}
            "#));
            let response = ask(&mut proxy.client(), "GET /", HOST);
            assert_eq!((response.status, response.field("retry-after")), (503, Some("1")), "{at}");
            let (open, refused, skipped) = if *passes { (200, 1, 1) } else { (503, 2, 0) };
            assert_eq!(ask(&mut proxy.client(), "GET /open", HOST).status, open, "{at}");
            let counters = proxy.counters();
            assert_eq!((counters.rejected(*rejection), counters.authorizations_skipped), (refused, skipped), "{at}");
        }
    }

    fn a_refusal_is_one_whatever_its_content(io) {
        let chunk = format!("4000\r\n{}\r\n", "y".repeat(0x4000));
        let endless_refusal = "HTTP/1.1 403 No\r\nTransfer-Encoding: chunked\r\n\r\n";
        let cut = "HTTP/1.1 403 No\r\nContent-Type: a/b\r\nContent-Length: 9\r\n\r\nx";
        for authorizer in [
            Upstream::scripted(move |_, peer| { peer.request(); peer.send(cut); }),
            Upstream::scripted(move |_, peer| if peer.request().is_some() { peer.send(cut); peer.rest(); }),
            service(format!("HTTP/1.1 403 No\r\nContent-Length: {}\r\n\r\n{}", 65537, "x".repeat(65537))),
            Upstream::scripted(move |_, peer| endless(peer, endless_refusal, &chunk)),
        ] {
            let url = authorizer.url();
            let proxy = gateway(io, &format!(r#"
                [site."a.example"]
                respond = "200 in"
                forward_auth = {{ url = "{url}", on_failure = "open", timeout = "1s" }}
            "#));
            let response = ask(&mut proxy.client(), "GET /", HOST);
            assert_eq!((response.status, response.text()), (403, ""), "{url}");
            assert_eq!(response.field("content-type"), None);
            assert_eq!(proxy.counters().authorizations_skipped, 0);
        }
    }

    fn an_authorizer_gets_who_the_client_is_whatever_the_client_says(io) {
        let (upstream, authorizer) = (Upstream::with_text("in"), service(ok("ok")));
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            to = "{}"
            api_keys = {{ file = "api-keys", forward = "X-User" }}
            jwt = {{ secret = "a secret of exactly 32 bytes ...", optional = true }}
            request_headers = {{ X-Name = "{{jwt.sub}}", X-Kept = "{{method}}" }}
            forward_auth = {{ url = "{}", {PATIENT} }}
        "#, upstream.url(), authorizer.url()));
        let fields = format!("{HOST}X-Api-Key: blitz_test_key_of_billing\r\nX-Name: root\r\nX_Name: root\r\nX-Kept: 1\r\nX-User: root\r\nx_user: root\r\nConnection: X-User\r\n");
        assert_eq!(ask(&mut proxy.client(), "GET /", &fields).status, 200);
        let asked = authorizer.head();
        assert_eq!((all(&asked, "x-user"), all(&asked, "x_user")), (vec!["billing"], vec![]));
        assert_eq!((all(&asked, "x-name"), all(&asked, "x_name")), (vec![], vec![]));
        assert_eq!(all(&asked, "x-kept"), vec!["1"]);
    }

    fn a_remembered_decision_is_about_the_host_that_a_proxy_tells(io) {
        let authorizer = Upstream::scripted(|_, peer| {
            while let Some((head, _)) = peer.request() {
                peer.send(match head.field("x-forwarded-host") {
                    Some("ok.example") => "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
                    _ => "HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n",
                });
            }
        });
        let options = Options {
            trusted_proxies: ["127.0.0.1".parse().unwrap()].into_iter().collect(),
            ..Options::default()
        };
        let proxy = gateway_with(io, options, &format!(r#"
            [site."a.example"]
            respond = "200 in"
            forward_auth = {{ url = "{}", cache = {{ for = "1h", by = "cookie:session" }}, {PATIENT} }}
        "#, authorizer.url()));
        for (host, expected) in [("deny.example", 403), ("ok.example", 200), ("deny.example", 403), ("ok.example", 200)] {
            assert_eq!(status(&proxy, &format!("{GOOD}X-Forwarded-Host: {host}\r\n")), expected, "{host}");
        }
        assert_eq!(proxy.counters().authorizations_remembered, 1);
    }

    fn a_client_cannot_make_a_failure_that_opens_the_route(io) {
        let authorizer = service("HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n");
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            respond = "200 in"
            forward_auth = {{ url = "{}", on_failure = "open", {PATIENT} }}
        "#, authorizer.url()));
        let options: Vec<String> = (0..17).map(|number| format!("a{number}")).collect();
        let fields = format!("{HOST}Connection: {}\r\n", options.join(", "));
        assert_eq!(ask(&mut proxy.client(), "GET /", &fields).status, 400);
        assert_eq!(ask(&mut proxy.client(), "GET /", HOST).status, 401);
        assert_eq!(proxy.counters().authorizations_skipped, 0);
    }

    fn an_authorizer_has_a_time_and_an_address(io) {
        let silent = Upstream::scripted(|_, peer| { peer.rest(); });
        let interim = Upstream::scripted(|_, peer| endless(peer, "", "HTTP/1.1 103 Early Hints\r\n\r\n"));
        for (url, rejection) in [
            (silent.url(), Rejection::AuthorizerTimeout),
            (format!("http://{}", refusing_address()), Rejection::AuthorizerUnreachable),
            ("unix:/nowhere/auth.sock:/verify".to_owned(), Rejection::AuthorizerUnreachable),
        ] {
            let proxy = gateway(io, &format!(r#"
                [site."a.example"]
                respond = "200 in"
                forward_auth = {{ url = "{url}", timeout = "300ms" }}
            "#));
            assert_eq!(status(&proxy, ""), 503, "{url}");
            assert_eq!(proxy.counters().rejected(rejection), 1, "{url}");
        }
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            respond = "200 in"
            forward_auth = {{ url = "{}", timeout = "300ms" }}
        "#, interim.url()));
        assert_eq!(status(&proxy, ""), 503);
    }

    fn content_that_nobody_needs_holds_up_no_request(io) {
        let dripping = Upstream::scripted(|_, peer| {
            if peer.request().is_some() {
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\nRemote-User: alice\r\n\r\nx");
                peer.rest();
            }
        });
        let chunk = "5\r\nhello\r\n".repeat(1000);
        let flood = Upstream::scripted(move |_, peer| {
            endless(peer, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", &chunk);
        });
        for url in [dripping.url(), flood.url()] {
            let proxy = gateway(io, &format!(r#"
                [site."a.example"]
                respond = "200 in"
                forward_auth = {{ url = "{url}", {PATIENT} }}
            "#));
            assert_eq!((status(&proxy, ""), status(&proxy, "")), (200, 200), "{url}");
        }
    }

    fn a_connection_that_has_ended_is_replaced(io) {
        // It closes after each response, without saying so.
        let authorizer = Upstream::scripted(|_, peer| {
            if peer.request().is_some() {
                peer.send(ok("ok"));
            }
        });
        let url = authorizer.url();
        let socket = unix_upstream("authorizer", "ok");
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            respond = "200 in"
            forward_auth = {{ url = "{url}", {PATIENT} }}
            "/unix".forward_auth = {{ url = "unix:{}:/verify?x", {PATIENT} }}
        "#, socket.display()));
        let mut client = proxy.client();
        for _ in 0..5 {
            assert_eq!(ask(&mut client, "GET /", HOST).status, 200);
        }
        assert_eq!(ask(&mut client, "GET /unix", HOST).status, 200);
        assert_eq!(authorizer.accepted(), 5);
    }

    fn decisions_are_remembered(io) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let authorizer = Upstream::scripted(move |_, peer| {
            while let Some((head, _)) = peer.request() {
                let number = count.fetch_add(1, Ordering::SeqCst);
                let uri = head.field("x-forwarded-uri").unwrap_or_default().to_owned();
                let fields = match uri.as_str() {
                    "/no-store" => "Cache-Control: private, no-store\r\n",
                    "/sets" => "Set-Cookie: a=b\r\n",
                    _ => "",
                };
                let status = if uri == "/refused" { 403 } else { 200 };
                peer.send(format!(
                    "HTTP/1.1 {status} X\r\nContent-Length: 0\r\nRemote-User: user{number}\r\n{fields}\r\n"
                ));
            }
        });
        let upstream = Upstream::with_text("in");
        let (to, url) = (upstream.url(), authorizer.url());
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            to = "{to}"
            forward_auth = {{ url = "{url}", copy = "Remote-User", cache = {{ for = "1h", by = ["cookie:session", "header:authorization"] }}, {PATIENT} }}
            "/any".forward_auth = {{ url = "{url}", copy = "Remote-User", cache = {{ for = "1h", by = "cookie:session", any_path = true }}, {PATIENT} }}
        "#));
        let mut client = proxy.client();
        let mut is_asked = |line: &str, fields: &str| {
            let before = asked.load(Ordering::SeqCst);
            let fields = format!("{HOST}{fields}Remote-User: root\r\nremote_user: root\r\n");
            let response = ask(&mut client, line, &fields);
            if response.status == 200 {
                let head = upstream.heads().pop().unwrap();
                let user = all(&head, "remote-user").concat();
                assert!(user.starts_with("user") && all(&head, "remote_user").is_empty(), "{head:?}");
            }
            asked.load(Ordering::SeqCst) - before == 1
        };
        for (line, fields, expected) in [
            ("GET /a", "Cookie: session=x\r\n", true),
            ("GET /a", "Cookie: session=x\r\n", false),
            ("GET /a", "Cookie: other=1; session=x\r\n", false),
            // Another client, with another proof.
            ("GET /a", "Cookie: session=y\r\n", true),
            ("GET /a", "Cookie: session=x; session=x\r\n", true),
            ("GET /a", "Cookie: session=x\r\nAuthorization: x\r\n", true),
            ("GET /a", "Authorization: x\r\n", true),
            ("GET /a", "Authorization: x\r\n", false),
            // Another request.
            ("GET /a?b", "Cookie: session=x\r\n", true),
            ("DELETE /a", "Cookie: session=x\r\n", true),
            ("GET /b", "Cookie: session=x\r\n", true),
            // Nobody is known.
            ("GET /a", "", true),
            ("GET /a", "", true),
            ("GET /a", "Cookie: session=\r\n", true),
            ("GET /a", "Cookie: session=\r\n", true),
            ("GET /no-store", "Cookie: session=x\r\n", true),
            ("GET /no-store", "Cookie: session=x\r\n", true),
            ("GET /sets", "Cookie: session=x\r\n", true),
            ("GET /sets", "Cookie: session=x\r\n", true),
            ("GET /refused", "Cookie: session=x\r\n", true),
            ("GET /refused", "Cookie: session=x\r\n", true),
            // The application may take them for the client's.
            ("GET /a", "Cookie: session=x; Session=y\r\n", true),
            ("GET /a", "Cookie: session=x; Session=y\r\n", true),
            ("GET /a", "Cookie: a=b, session=y; session=x\r\n", true),
            ("GET /any/x", "Cookie: session=z, session=y\r\n", true),
            ("GET /any/x", "Cookie: session=z, session=y\r\n", true),
            // Of another policy.
            ("GET /any/a", "Cookie: session=x\r\n", true),
            ("POST /any/b", "Cookie: session=x\r\nContent-Length: 0\r\n", false),
            ("GET /any/b", "Cookie: session=y\r\n", true),
        ] {
            assert_eq!(is_asked(line, fields), expected, "{line} {fields}");
        }
        assert_eq!(proxy.counters().authorizations_remembered, 4);
    }

    fn a_block_has_another_authorizer_decide_in_addition(io) {
        let (first, second) = (authorizer(), service("HTTP/1.1 401 No\r\nContent-Length: 6\r\n\r\nsecond"));
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            respond = "200 in"
            forward_auth = {{ url = "{}", {PATIENT} }}
            [[site."a.example".when]]
            header.X-Admin = true
            forward_auth = {{ url = "{}", {PATIENT} }}
        "#, first.url(), second.url()));
        let admin = "X-Admin: 1\r\n";
        assert_eq!(status(&proxy, GOOD), 200);
        assert_eq!(status(&proxy, &format!("{GOOD}{admin}")), 401);
        // One of the two refuses it first.
        assert_ne!(status(&proxy, admin), 200);
        assert_eq!((first.heads().len() >= 2, second.heads().is_empty()), (true, false));
    }

    fn requests_of_all_kinds_have_the_same_verdict(io) {
        let (upstream, authorizer) = (websocket_upstream(), authorizer());
        let text = format!(
            "[site.\"localhost\"]\nto = \"{}\"\nforward_auth = {{ url = \"{}\", {PATIENT} }}\n",
            upstream.url(),
            authorizer.url()
        );
        let site = |gateway: Gateway| Proxy::start(sites_of(&text).into_iter().fold(gateway, Gateway::site), &[]);
        let proxy = site(Proxy::gateway(io));
        let mut client = h2(&proxy);
        for (session, path, expected) in [("good", "/", 200), ("bad", "/", 302), ("good", "/forbidden", 403)] {
            let mut head = RequestHead::new(Method::Get, path);
            head.set_authority("localhost");
            head.fields.append(Name::Cookie, format!("session={session}"));
            let stream = client.send_head(&head, BodyLength::Empty);
            let answer = client.answer(stream);
            assert_eq!(answer.status.map(Status::code), Some(expected), "{session} {path}");
            let content: &[u8] = match expected { 200 => b"in", 302 => b"log in", _ => b"no" };
            assert_eq!(answer.content, content);
            // A call learns it from its own status.
            let mut head = RequestHead::new(Method::Post, path);
            head.set_authority("localhost");
            head.fields.append(Name::Cookie, format!("session={session}"));
            head.fields.append(Name::ContentType, "application/grpc");
            head.fields.append(Name::Te, "trailers");
            if expected != 200 {
                let stream = client.send_head(&head, BodyLength::Empty);
                let answer = client.answer(stream);
                let code = if expected == 302 { "16" } else { "7" };
                assert_eq!((answer.status, answer.fields.get_str("grpc-status")), (Some(Status::OK), Some(code)), "{answer:?}");
            }
            // A WebSocket over a stream.
            let mut head = RequestHead::new(Method::Get, path);
            head.set_authority("localhost");
            head.set_protocol(Some("websocket"));
            head.fields.append(Name::SecWebSocketVersion, "13");
            head.fields.append(Name::Cookie, format!("session={session}"));
            if expected != 200 {
                let stream = client.send_head(&head, BodyLength::Unknown);
                assert_eq!(client.answer(stream).status.map(Status::code), Some(expected));
                let asked = authorizer.heads().pop().unwrap();
                assert_eq!((all(&asked, "x-forwarded-method"), all(&asked, "upgrade")), (vec!["GET"], vec![]));
                assert!(all(&asked, "sec-websocket-version").is_empty());
            }
            // The same over HTTP/1.1.
            let mut client = proxy.client();
            let fields = format!("Host: localhost\r\nCookie: session={session}\r\n");
            assert_eq!(ask(&mut client, &format!("GET {path}"), &fields).status, expected);
            let upgrade = format!("{fields}Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n");
            let expected = if expected == 200 { 101 } else { expected };
            assert_eq!(ask(&mut client, &format!("GET {path}"), &upgrade).status, expected);
        }
        let server = QuicServer::with(|tls| site(Proxy::gateway_over_tls(io, tls)));
        block_on(async {
            let client = server.raw_client().await;
            for (session, path, expected) in [("good", "/", 200), ("bad", "/", 302), ("good", "/forbidden", 403)] {
                let cookie = format!("session={session}");
                let fields = [
                    (":method", "GET"),
                    (":scheme", "https"),
                    (":authority", "localhost"),
                    (":path", path),
                    ("cookie", cookie.as_str()),
                ];
                let response = client.ask(headers(&fields)).await;
                assert_eq!(response.heads.first().copied().flatten(), Some(expected), "{session} {path}");
            }
        });
        let asked = authorizer.heads().pop().unwrap();
        assert_eq!(all(&asked, "x-original-url"), ["https://localhost/forbidden"]);
    }
}
