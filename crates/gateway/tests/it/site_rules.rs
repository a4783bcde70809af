//! Routes of a configuration file compose responses, demand properties of requests, and change messages.

use std::path::Path;
use std::thread;
use std::time::Duration;

use blitz_config::{Document, Environment, read};
use blitz_gateway::{Gateway, LoadedFile, Options, Rejection, Site, compile};
use blitz_http::{BodyLength, IoChoice, Method, RequestHead, Status};
use blitz_testing::{Client, Response};

use crate::h2::h2;
use crate::support::{Proxy, Upstream};

/// The password of `anna` and `slow` is `secrets`, that of `bert` `ünd:er`; `anna` has another one in `changed.htpasswd`. The
/// keys are `blitz_test_key_of_billing` and `blitz_test_key_of_old`, which has expired.
const FILES: [(&str, &str); 6] = [
    ("404.html", "<h1>not here</h1>"),
    ("down.json", "{\"down\":true}"),
    ("closed.txt", "closed\n"),
    (
        "users.htpasswd",
        "anna:$2y$04$ZmGSbpkAlFMMb6NAs4dimek28x1apJj3gERV7qL6gzUiklxX/Mp.e\n\
         bert:$2y$04$fZI2kfiAuZ6lVFcovr7CzO1Ei4qP4dW/gIEVWg3xVRNPOVCsD0jOC\n\
         slow:$2y$11$uGSAP1CN8tnZpHiyWOOEYuiisD/ZM5x0ipLllkGRumxlUa8op8AEy\n",
    ),
    (
        "changed.htpasswd",
        "anna:$2y$04$FcUpm/Jb5jCg6PSL37L5GO7TYs86TIE3GSBvXiN68BBCFFGcQbQs2\n\
         bert:$2y$04$fZI2kfiAuZ6lVFcovr7CzO1Ei4qP4dW/gIEVWg3xVRNPOVCsD0jOC\n",
    ),
    (
        "api-keys",
        "billing:sha256:bf95bd465f7b0c114bfe309a4c115246cf041de451817caed7a0b8544b15dd84\n\
         old:sha256:d224ce618d92ce8176f9c6e2768e93a6773631de3d70647ff95514c782626340:2020-01-01\n",
    ),
];

/// A file that configurations of tests name.
pub(crate) fn test_file(name: &str) -> Result<LoadedFile, (String, String)> {
    let file = FILES.iter().find(|(known, _)| *known == name);
    let (name, content) = file.ok_or_else(|| (format!("no file {name}"), String::new()))?;
    Ok(LoadedFile::new(Path::new(name), content.as_bytes()))
}

pub(crate) fn gateway_with(io: IoChoice, options: Options, text: &str) -> Proxy {
    let gateway = Proxy::gateway(io).options(options);
    Proxy::start(sites_of(text).into_iter().fold(gateway, Gateway::site), &[])
}

pub(crate) fn sites_of(text: &str) -> Vec<Site> {
    let document = Document::new("blitz.toml", text);
    let (configuration, mut diagnostics) = read(&document, &Environment::default());
    let sites = compile(&configuration, &mut test_file, &mut diagnostics);
    assert_eq!(diagnostics, [], "{text}");
    sites
}

pub(crate) fn gateway(io: IoChoice, text: &str) -> Proxy {
    gateway_with(io, Options::default(), text)
}

/// Sends a request with these lines of fields.
pub(crate) fn ask(client: &mut Client, line: &str, fields: &str) -> Response {
    client.send(format!("{line} HTTP/1.1\r\n{fields}\r\n"));
    client.response()
}

pub(crate) const HOST: &str = "Host: a.example:8080\r\n";

scenarios! {
    fn a_route_redirects_or_responds(io) {
        let proxy = gateway(io, r#"
            [site."a.example"]
            respond = "503 closed for {client}"
            canonical_for = ["www.a.example"]
            "/old" = { redirect = "301 https://new.example{rest}" }
            "/blog/{year}/{slug}" = { redirect = "307 /posts/{slug}?year={year}" }
            "/here" = { redirect = "308 https://{host}/there" }
            "/to" = { redirect = "302 {rest}" }
            "=/empty" = { respond = 204 }
            "=/file" = { respond = { status = 200, file = "down.json", headers.X-From = "file" } }
        "#);
        let mut client = proxy.client();
        for (path, status, location) in [
            ("/old/x?y=1", 301, "https://new.example/x?y=1"),
            ("/old", 301, "https://new.example"),
            ("/blog/2026/a%20b?z", 307, "/posts/a%20b?year=2026"),
            ("/here?q", 308, "https://a.example/there?q"),
            // No part of a request becomes a host.
            ("/to//evil.example/x", 302, "/evil.example/x"),
            ("/to/%5Cevil.example", 302, "/%5Cevil.example"),
        ] {
            let response = ask(&mut client, &format!("GET {path}"), HOST);
            assert_eq!(response.status, status, "{path}");
            assert_eq!(response.field("location"), Some(location), "{path}");
        }
        let response = ask(&mut client, "GET /x?y", "Host: www.a.example:8080\r\n");
        assert_eq!((response.status, response.field("location")), (308, Some("http://a.example:8080/x?y")));
        let response = ask(&mut client, "GET /any", HOST);
        assert_eq!((response.status, response.text()), (503, "closed for 127.0.0.1"));
        let response = ask(&mut client, "GET /empty", HOST);
        assert_eq!((response.status, response.field("content-length")), (204, None));
        let response = ask(&mut client, "POST /file", &format!("{HOST}Content-Length: 3\r\n\r\nabc"));
        assert_eq!((response.status, response.text()), (200, "{\"down\":true}"));
        assert_eq!(response.field("content-type"), Some("application/json"));
        assert_eq!(response.field("x-from"), Some("file"));
        assert!(response.field("x-request-id").is_none());
        let mut client = h2(&proxy);
        let mut head = RequestHead::new(Method::Get, "/old/x");
        head.set_authority("a.example");
        let stream = client.send_head(&head, BodyLength::Empty);
        assert_eq!(client.answer(stream).status.map(Status::code), Some(301));
    }

    fn fields_of_requests_and_responses_are_changed(io) {
        let upstream = Upstream::with_response(
            "HTTP/1.1 200 OK\r\nX-Powered-By: PHP\r\nCache-Control: no-store\r\nVary: Accept\r\nContent-Length: 2\r\n\r\nok",
        );
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            to = "{}"
            headers.X-Powered-By = false
            headers.Cache-Control = {{ default = "max-age=1" }}
            headers.Vary = {{ add = "Cookie" }}
            headers.X-Frame-Options = "DENY"
            headers.X-Asked = "{{method}} {{host}}{{path}} for {{client}}"
            headers.X-Missing = "{{header.x-none}}"
            headers.X-Spaces = " a "
            request_headers.X-Tenant = "{{cookie.tenant}}"
            request_headers.X-Secret = false
            request_headers.X-Both = ["one", "{{header.x-in}}"]
            request_headers.X-Query = "{{query}}"
            "/plain".headers.X-Frame-Options = false
            "/b" = {{ host = "upstream" }}
            "/c" = {{ host = "c.example" }}
        "#, upstream.url()));
        let mut client = proxy.client();
        let fields = format!("{HOST}Cookie: a=b; tenant=t1\r\nX-Secret: 1\r\nX-In: two\r\nX-Missing: 1\r\nX-Tenant: forged\r\n");
        let response = ask(&mut client, "GET /x?q=1", &fields);
        let values = |fields: &[(String, String)], name: &str| -> Vec<String> {
            let named = fields.iter().filter(|(known, _)| known == name);
            named.map(|(_, value)| value.clone()).collect()
        };
        let lines = |name: &str| values(&response.fields, name);
        assert_eq!(lines("x-powered-by"), [""; 0]);
        assert_eq!(lines("cache-control"), ["no-store"]);
        assert_eq!(lines("vary"), ["Accept", "Cookie"]);
        assert_eq!(lines("x-frame-options"), ["DENY"]);
        assert_eq!(lines("x-asked"), ["GET a.example/x for 127.0.0.1"]);
        assert_eq!(lines("x-missing"), [""; 0]);
        assert_eq!(lines("x-spaces"), ["a"]);
        let head = upstream.head();
        let sent = |name: &str| head.field(name).map(str::to_owned);
        assert_eq!(sent("x-tenant").as_deref(), Some("t1"));
        assert_eq!(sent("x-secret"), None);
        assert_eq!(sent("x-query").as_deref(), Some("q=1"));
        assert_eq!(values(&head.fields, "x-both"), ["one", "two"]);
        assert_eq!(sent("host").as_deref(), Some("a.example:8080"));
        let response = ask(&mut client, "GET /plain", HOST);
        assert_eq!(response.field("x-frame-options"), None);
        // Without the cookie the client's own field does not pass.
        let response = ask(&mut client, "GET /b", &format!("{HOST}X-Tenant: forged\r\n"));
        assert_eq!(response.status, 200);
        let head = upstream.heads().pop().unwrap();
        assert_eq!(head.field("x-tenant"), None);
        assert_eq!(head.field("host"), Some(upstream.url().trim_start_matches("http://")));
        ask(&mut client, "GET /c", HOST);
        assert_eq!(upstream.heads().pop().unwrap().field("host"), Some("c.example"));
    }

    fn paths_are_composed(io) {
        let upstream = Upstream::with_text("");
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            to = "{}"
            "/v1".path = "/v2{{rest}}"
            "/gone".path = "{{rest}}"
            "/u/{{id}}/posts".path = "/posts/{{id}}{{rest}}"
            "/find".path = "/by/{{header.x-name}}"
            "/pre*".path = "/new{{rest}}"
            "/raw".raw_path = true
            "/dot*".path = "{{rest}}"
            "/api/v3".path = "/three{{rest}}"
        "#, upstream.url()));
        let mut client = proxy.client();
        for (path, sent) in [
            ("/v1", "/v2"),
            ("/v1/", "/v2/"),
            ("/v1/a%2Fb?x=1", "/v2/a%2Fb?x=1"),
            ("/gone", "/"),
            ("/gone/x", "/x"),
            ("/u/7/posts/9", "/posts/7/9"),
            ("/find", "/by/a%2F..%20%3F"),
            ("/prefix/x", "/newfix/x"),
            ("/raw/a/%2e/b", "/raw/a/%2e/b"),
            ("/%61pi/v3/x", "/three/x"),
            ("/other/%41", "/other/%41"),
        ] {
            let response = ask(&mut client, &format!("GET {path}"), &format!("{HOST}X-Name: a/.. ?\r\n"));
            assert_eq!(response.status, 200, "{path}");
            assert_eq!(upstream.heads().pop().unwrap().line, format!("GET {sent} HTTP/1.1"), "{path}");
        }
        let before = upstream.heads().len();
        for (path, name) in [("/find", ".."), ("/find", "%2e"), ("/dot..", ""), ("/dot.;x", "")] {
            let response = ask(&mut proxy.client(), &format!("GET {path}"), &format!("{HOST}X-Name: {name}\r\n"));
            assert_eq!(response.status, if name == "%2e" { 200 } else { 400 }, "{path} {name}");
        }
        assert_eq!(upstream.heads().len(), before + 1);
        assert_eq!(upstream.heads().pop().unwrap().line, "GET /by/%252e HTTP/1.1");
    }

    fn addresses_and_methods_are_allowed_or_refused(io) {
        let upstream = Upstream::with_text("in");
        let options = Options {
            trusted_proxies: ["127.0.0.1".parse().unwrap()].into_iter().collect(),
            ..Options::default()
        };
        let proxy = gateway_with(io, options, &format!(r#"
            [site."a.example"]
            to = "{}"
            "/admin".allow = ["10.0.0.0/8"]
            "/open" = {{ deny = ["10.6.6.6"], methods = ["GET", "POST"] }}
            "POST /form".body_max = "10"
            "/projects".headers.X-A = "b"
        "#, upstream.url()));
        let status = |line: &str, address: &str| {
            ask(&mut proxy.client(), line, &format!("{HOST}X-Forwarded-For: {address}\r\n")).status
        };
        for (path, inside, outside) in [
            ("/admin", 200, 403),
            ("/admin/x", 200, 403),
            ("/%61dmin", 200, 403),
            ("/x/../admin", 200, 403),
            ("/administrator", 200, 200),
            // Servers read these as /admin too.
            ("/admin;x", 200, 400),
            ("//admin", 200, 400),
            ("/adm%69n%2f", 200, 400),
            ("/admin%2Fx", 200, 400),
            ("/x;/../admin", 200, 403),
            // These may leave their folder, which nobody may.
            ("/x/..;/admin", 400, 400),
            ("/x%2f..%2fadmin", 400, 400),
            ("/%5cadmin", 200, 400),
            ("/admin%3Fx", 200, 400),
            ("/admin%23", 200, 400),
            ("/admin%20", 200, 400),
            ("/admin%09/", 200, 400),
            ("/admin.", 200, 400),
            ("/admin%252Fx", 200, 400),
            ("/%2561dmin", 200, 400),
            ("/x%3F%2F..%2Fadmin", 400, 400),
            // Servers that decode once keep the dot segment.
            ("/admin%2F%252e%252e", 200, 400),
            ("/q%2Fz%252F..", 200, 200),
            ("/other%3Fx", 200, 200),
            ("/other%20x.", 200, 200),
            ("/ADMIN", 200, 200),
            ("/admin%00", 400, 400),
            ("/x//admin", 200, 200),
            ("/projects/a%2Fb", 200, 200),
            ("/projects;v=1/x", 200, 200),
        ] {
            assert_eq!(status(&format!("GET {path}"), "10.1.2.3"), inside, "{path}");
            assert_eq!(status(&format!("GET {path}"), "192.0.2.1"), outside, "{path}");
        }
        // Some servers take it for GET.
        assert_eq!(status("get /admin", "192.0.2.1"), 403);
        assert_eq!(status("get /x", "192.0.2.1"), 200);
        assert_eq!(status("GET /open", "10.6.6.6"), 403);
        assert_eq!(status("post /open", "10.6.6.7"), 405);
        assert_eq!(status("POST /open", "10.6.6.7"), 200);
        let response = ask(&mut proxy.client(), "PUT /open", HOST);
        assert_eq!((response.status, response.field("allow")), (405, Some("GET, HEAD, POST")));
        let with_content = format!("{HOST}Content-Length: 11\r\n\r\n01234567890");
        assert_eq!(ask(&mut proxy.client(), "POST /form", &with_content).status, 413);
        assert_eq!(ask(&mut proxy.client(), "PUT /form", &with_content).status, 200);
        let counters = proxy.counters();
        assert_eq!(counters.rejected(Rejection::AmbiguousPath), 13);
        assert_eq!(counters.rejected(Rejection::MethodNotAllowed), 2);
    }

    fn a_response_to_slow_content_has_the_rules_of_the_route(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.request();
            peer.is_closed_by_peer();
        });
        let mut options = Options::default();
        options.limits.body_rate_grace = Duration::from_millis(100);
        let proxy = gateway_with(io, options, &format!(
            "[site.\"a.example\"]\nto = \"{}\"\nheaders.X-A = \"b\"\nerrors = {{ 408 = \"404.html\" }}\n",
            upstream.url(),
        ));
        let mut peer = proxy.peer();
        peer.send(format!("PUT / HTTP/1.1\r\n{HOST}Accept: text/html\r\nContent-Length: 9\r\n\r\nabc"));
        let head = peer.head().unwrap();
        assert_eq!(head.line, "HTTP/1.1 408 Request Timeout");
        assert_eq!((head.field("x-a"), head.field("connection")), (Some("b"), Some("close")));
        assert_eq!(peer.rest().0, FILES[0].1.as_bytes());
        let mut client = h2(&proxy);
        let mut head = RequestHead::new(Method::Put, "/");
        head.set_authority("a.example");
        head.fields.append(blitz_http::Name::Accept, "text/html");
        let stream = client.send_head(&head, BodyLength::Known(9));
        let answer = client.answer(stream);
        assert_eq!(answer.status, Some(Status::REQUEST_TIMEOUT));
        assert_eq!((answer.fields.get_str("x-a"), &*answer.content), (Some("b"), FILES[0].1.as_bytes()));
    }

    fn no_spelling_leaves_the_rules(io) {
        let upstream = Upstream::with_text("in");
        let options = Options {
            trusted_proxies: ["127.0.0.9".parse().unwrap(), "unix".parse().unwrap()].into_iter().collect(),
            ..Options::default()
        };
        let proxy = gateway_with(io, options, &format!(r#"
            [site."a.example"]
            to = "{0}"
            "/admin".allow = ["10.0.0.0/8"]
            "/@adm".allow = ["10.0.0.0/8"]
            "GET /ws".allow = ["10.0.0.0/8"]
            "/post".methods = ["POST"]
            [site."raw.example"]
            to = "{0}"
            raw_path = true
            "/admin".allow = ["10.0.0.0/8"]
            "=/own".allow = ["10.0.0.0/8"]
        "#, upstream.url()));
        let status = |line: &str, host: &str| {
            ask(&mut proxy.client(), line, &format!("Host: {host}\r\n")).status
        };
        for (path, expected) in [
            ("/admin", 403),
            ("//x/admin", 400),
            ("///x/admin", 400),
            ("/%40adm", 400),
            ("/;%2Fadmin", 400),
            ("/admin%3Bx", 400),
            ("/x%40y", 200),
        ] {
            assert_eq!(status(&format!("GET {path}"), "a.example"), expected, "{path}");
        }
        for (path, expected) in [
            ("/x//../admin", 400),
            ("/x/%2F/../admin", 400),
            ("/public/;/../admin", 400),
            ("/x/../admin", 403),
            // Servers that keep dot segments.
            ("/admin/../y", 400),
            ("/x/../y", 200),
            ("/x//../y", 200),
            ("/x//../own/", 400),
            ("/x//../own/.", 400),
            ("/x//../own/x/..", 400),
        ] {
            assert_eq!(status(&format!("GET {path}"), "raw.example"), expected, "{path}");
        }
        // Readings of a long path would cost time.
        let long = "/y".repeat(600);
        assert_eq!(status(&format!("GET {long}"), "a.example"), 200);
        assert_eq!(status(&format!("GET {long}//y"), "a.example"), 400);
        // The upstream would get GET.
        let mut client = h2(&proxy);
        for (path, expected) in [("/ws", 403), ("//ws", 400), ("/admin", 403), ("/post", 405)] {
            let mut head = RequestHead::new(Method::Get, path);
            head.set_authority("a.example");
            head.set_protocol(Some("websocket"));
            head.fields.append(blitz_http::Name::SecWebSocketVersion, "13");
            let stream = client.send_head(&head, BodyLength::Unknown);
            assert_eq!(client.answer(stream).status.map(Status::code), Some(expected), "{path}");
        }
    }

    fn a_proxy_whose_client_is_unreadable_is_not_its_client(io) {
        let upstream = Upstream::with_text("in");
        let options = Options {
            trusted_proxies: ["127.0.0.1".parse().unwrap()].into_iter().collect(),
            ..Options::default()
        };
        let proxy = gateway_with(io, options, &format!(r#"
            [site."a.example"]
            to = "{}"
            "/in".allow = ["127.0.0.0/8"]
            "/out".deny = ["203.0.113.0/24"]
            "/open".headers.X-A = "b"
        "#, upstream.url()));
        let status = |path: &str, fields: &str| {
            ask(&mut proxy.client(), &format!("GET {path}"), &format!("{HOST}{fields}")).status
        };
        assert_eq!(status("/in", ""), 200);
        for fields in [
            "Forwarded: for=203.0.113.5\r\n",
            "Forwarded: =\r\nForwarded: for=203.0.113.5\r\n",
            "Forwarded: for=\"\r\nForwarded: for=203.0.113.5\r\n",
            "Forwarded: for=\", for=203.0.113.5\r\n",
            "X-Forwarded-For: unknown\r\n",
            "X-Forwarded-For: 10.0.0.1, garbage\r\n",
        ] {
            assert_eq!(status("/in", fields), 403, "{fields}");
            assert_eq!(status("/out", fields), 403, "{fields}");
            assert_eq!(status("/open", fields), 200, "{fields}");
        }
    }

    fn errors_have_pages_and_fields_of_the_site(io) {
        let proxy = gateway(io, r#"
            [site."a.example"]
            to = "http://127.0.0.1:1"
            headers.X-Site = "a"
            errors = { 404 = "404.html", 502 = "down.json", 5xx = "closed.txt" }
            "/b".errors.502 = false
            "/c" = { respond = 404 }
            "/secret".deny = ["127.0.0.0/8"]
        "#);
        let mut client = proxy.client();
        let mut get = |path: &str, accept: &str| {
            ask(&mut client, &format!("GET {path}"), &format!("{HOST}Accept: {accept}\r\n"))
        };
        let response = get("/x", "text/html");
        assert_eq!((response.status, response.text()), (502, "{\"down\":true}"));
        assert_eq!(response.field("x-site"), Some("a"));
        let response = get("/b", "text/html");
        assert_eq!(response.status, 502);
        assert!(response.text().contains("<h1>502"), "{}", response.text());
        // A response that is written has no page.
        assert_eq!(get("/c", "text/html").text(), "");
        let response = get("/secret", "*/*");
        assert_eq!((response.status, response.field("x-site")), (403, Some("a")));
    }

    fn pages_replace_errors_of_the_upstream(io) {
        let upstream = blitz_testing::Upstream::start(|request| {
            let path = request.line.split(' ').nth(1).unwrap_or_default();
            let status = path.rsplit('/').next().unwrap_or_default();
            let length = if status == "500" { 6 } else { 100_000 };
            let fields = "Content-Type: text/x\r\nContent-Encoding: x\r\nETag: \"a\"\r\nSet-Cookie: a=b\r\n\
                Content-Digest: x\r\nContent-Disposition: attachment\r\n";
            let content = "broken".repeat(length / 6 + 1);
            let content = &content[..length];
            format!("HTTP/1.1 {status} X\r\n{fields}Content-Length: {length}\r\n\r\n{content}").into_bytes()
        });
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            to = "{}"
            headers.X-Site = "a"
            errors = {{ 404 = "404.html", 5xx = "down.json" }}
            replace_errors = true
            "/own".replace_errors = false
            "/built-in".errors.5xx = false
        "#, upstream.url()));
        let mut client = proxy.client();
        for (line, status, text) in [
            ("GET /500", 500, Some("{\"down\":true}")),
            ("GET /503", 503, Some("{\"down\":true}")),
            ("GET /404", 404, Some("<h1>not here</h1>")),
            ("GET /403", 403, None),
            ("GET /200", 200, None),
            ("GET /own/500", 500, None),
            ("GET /built-in/500", 500, Some("<!doctype html>")),
            ("GET /plain/404", 404, Some("{\"title\":\"Not Found\"")),
        ] {
            let accept = if line.contains("plain") { "*/*" } else { "text/html" };
            client.send(format!("{line} HTTP/1.1\r\n{HOST}Accept: {accept}\r\n\r\n"));
            let response = client.response();
            assert_eq!(response.status, status, "{line}");
            assert_eq!((response.field("x-site"), response.field("set-cookie")), (Some("a"), Some("a=b")), "{line}");
            match text {
                Some(text) => {
                    assert!(response.text().to_lowercase().starts_with(&text.to_lowercase()), "{line}: {}", response.text());
                    for name in ["etag", "content-encoding", "content-digest", "content-disposition"] {
                        assert_eq!(response.field(name), None, "{line}");
                    }
                }
                None => assert!(response.text().starts_with("broken"), "{line}"),
            }
        }
    }

    fn each_route_has_its_own_time(io) {
        let upstream = Upstream::scripted(|_, peer| {
            while let Some(head) = peer.head() {
                if head.line.contains("/slow") {
                    thread::sleep(Duration::from_millis(1_500));
                }
                let sent = peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n");
                if head.line.contains("/stalls") {
                    thread::sleep(Duration::from_millis(1_500));
                }
                if !sent || !peer.send("ok") {
                    return;
                }
            }
        });
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            to = "{}"
            timeout.response = "300ms"
            "/patient".timeout.response = "8s"
            "/stalls".timeout = {{ response = "8s", idle = "300ms" }}
        "#, upstream.url()));
        for (path, status) in [("/slow", 504), ("/patient/slow", 200), ("/", 200)] {
            assert_eq!(ask(&mut proxy.client(), &format!("GET {path}"), HOST).status, status, "{path}");
        }
        let mut client = proxy.client();
        client.send(format!("GET /stalls HTTP/1.1\r\n{HOST}\r\n"));
        let rest = client.rest();
        assert!(rest.ends_with(b"\r\n\r\n"), "the content is cut off: {:?}", String::from_utf8_lossy(&rest));
    }
}
