//! Fields that have browsers protect pages: on every response of a route, those of the application kept.

use blitz_gateway::Options;
use blitz_http::{BodyLength, Method, RequestHead};
use blitz_testing::Response;

use crate::h2::h2;
use crate::site_rules::{HOST, ask, gateway, gateway_with};
use crate::support::Upstream;

/// The usual fields, without those of TLS.
const USUAL: [(&str, &str); 5] = [
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "strict-origin-when-cross-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    (
        "permissions-policy",
        "camera=(), display-capture=(), geolocation=(), hid=(), idle-detection=(), microphone=(), midi=(), payment=(), \
         serial=(), usb=(), xr-spatial-tracking=()",
    ),
];

fn assert_usual(response: &Response, context: &str) {
    for (name, value) in USUAL {
        assert_eq!(response.all(name), [value], "{context}: {name}");
    }
    assert_eq!(
        response.field("strict-transport-security"),
        None,
        "{context}"
    );
    assert_eq!(response.field("content-security-policy"), None, "{context}");
}

scenarios! {
    fn every_response_of_the_route_has_the_fields(io) {
        let upstream = Upstream::with_text("in");
        let url = upstream.url();
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            to = "{url}"
            security_headers = true
            "/gone" = {{ to = "http://127.0.0.1:1" }}
            "/closed" = {{ deny = ["127.0.0.0/8"] }}
            "/limited" = {{ rate_limit = "1/h" }}
            "/get" = {{ methods = ["GET"] }}
            "/old" = {{ redirect = "301 /new" }}
            "/fixed" = {{ respond = "200 fixed" }}
            "/cors" = {{ cors = ["https://a.example"] }}
            "/small" = {{ body_max = "1" }}
            "/off" = {{ security_headers = false }}
        "#));
        let mut client = proxy.client();
        assert_eq!(ask(&mut client, "GET /limited", HOST).status, 200);
        let preflight = format!("{HOST}Origin: https://a.example\r\nAccess-Control-Request-Method: GET\r\n");
        for (line, fields, status) in [
            ("GET /", HOST, 200),
            ("GET /gone", HOST, 502),
            ("GET /closed", HOST, 403),
            ("GET /limited", HOST, 429),
            ("POST /get", &format!("{HOST}Content-Length: 0\r\n"), 405),
            ("GET /old", HOST, 301),
            ("GET /fixed", HOST, 200),
            ("OPTIONS /cors", &preflight, 204),
        ] {
            let response = ask(&mut client, line, fields);
            assert_eq!(response.status, status, "{line}");
            assert_usual(&response, line);
        }
        let response = ask(&mut client, "GET /off", HOST);
        assert!(USUAL.iter().all(|(name, _)| response.field(name).is_none()));
        let response = ask(&mut client, "POST /small", &format!("{HOST}Content-Length: 2\r\n"));
        assert_eq!(response.status, 413);
        assert_usual(&response, "413");
    }

    fn paths_without_a_route_have_the_fields_of_the_site(io) {
        let proxy = gateway(io, r#"
            defaults.security_headers = { frame = "sameorigin" }
            [site."a.example"]
            security_headers = true
            cors = { origins = ["https://app.example"], credentials = true }
            headers.X-Site = "1"
            errors.404 = "404.html"
            "/only".respond = "200 only"
            "/only".security_headers = false
            [site."b.example"]
            "/only".respond = "200 only"
            [site."c.example"]
            security_headers = false
            "/only" = { respond = "200 only", cors = ["*"], security_headers = true }
        "#);
        let mut client = proxy.client();
        let origin = "Origin: https://app.example\r\n";
        let response = ask(&mut client, "GET /none", &format!("{HOST}{origin}Accept: text/html\r\n"));
        assert_eq!((response.status, response.text()), (404, "<h1>not here</h1>"));
        assert_usual(&response, "404");
        assert_eq!(response.field("access-control-allow-origin"), Some("https://app.example"));
        assert_eq!(response.field("access-control-allow-credentials"), Some("true"));
        assert_eq!((response.field("vary"), response.field("x-site")), (Some("Origin"), Some("1")));
        // Scripts see that 404 only if its preflight is answered.
        let asked = format!("{HOST}{origin}Access-Control-Request-Method: PUT\r\n");
        let response = ask(&mut client, "OPTIONS /none", &asked);
        assert_eq!((response.status, response.field("access-control-allow-methods")), (204, Some("PUT")));
        assert_eq!(response.field("x-site"), Some("1"));
        let response = ask(&mut client, "GET /none", &format!("{HOST}Origin: https://evil.example\r\n"));
        assert_eq!((response.status, response.field("access-control-allow-origin")), (404, None));
        assert_usual(&response, "404 of another origin");
        let response = ask(&mut client, "GET /only", HOST);
        assert_eq!((response.status, response.field("x-frame-options")), (200, None));
        let response = ask(&mut client, "GET /none", "Host: b.example\r\n");
        assert_eq!((response.status, response.field("x-frame-options")), (404, Some("SAMEORIGIN")));
        assert_eq!(response.field("access-control-allow-origin"), None);
        let response = ask(&mut client, "GET /none", &format!("Host: c.example\r\n{origin}"));
        assert_eq!((response.status, response.field("x-frame-options")), (404, None));
        assert_eq!(response.field("access-control-allow-origin"), None);
        let response = ask(&mut client, "OPTIONS /none", &asked.replace("a.example:8080", "c.example"));
        assert_eq!((response.status, response.field("access-control-allow-methods")), (404, None));
        // Over HTTP/2.
        let mut client = h2(&proxy);
        let mut head = RequestHead::new(Method::Get, "/none");
        head.set_authority("a.example");
        let stream = client.send_head(&head, BodyLength::Empty);
        let fields = client.answer(stream).fields;
        assert_eq!(fields.get_str("x-frame-options"), Some("DENY"));
        assert!(fields.get_str("vary").is_some_and(|vary| vary.contains("Origin")));
    }

    fn fields_of_the_application_are_kept_and_those_of_headers_win(io) {
        let upstream = Upstream::with_response(
            "HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n\
             HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Frame-Options: SAMEORIGIN\r\nReferrer-Policy: origin\r\n\r\nin",
        );
        let url = upstream.url();
        let proxy = gateway(io, &format!(r#"
            [site."a.example"]
            to = "{url}"
            security_headers = {{ csp = "default-src 'self'", permissions = false, nosniff = false, frame = "off", hsts = "1d" }}
            "/own" = {{ security_headers = true, headers.X-Frame-Options = "from-headers", headers.Referrer-Policy = false }}
            "/replaced".security_headers = {{ replace = true, frame = "sameorigin", opener = "same-origin-allow-popups" }}
        "#));
        let mut client = proxy.client();
        client.send(format!("GET / HTTP/1.1\r\n{HOST}\r\n"));
        let interim = client.response();
        assert_eq!(interim.status, 103);
        assert_eq!(interim.field("content-security-policy"), None, "only final responses have the fields");
        let response = client.response();
        for (name, value) in [
            ("content-security-policy", Some("default-src 'self'")),
            ("x-frame-options", Some("SAMEORIGIN")),
            ("referrer-policy", Some("origin")),
            ("cross-origin-opener-policy", Some("same-origin")),
            ("permissions-policy", None),
            ("x-content-type-options", None),
            ("strict-transport-security", None),
        ] {
            assert_eq!(response.field(name), value, "{name}");
        }
        client.send(format!("GET /own HTTP/1.1\r\n{HOST}\r\n"));
        client.response();
        let response = client.response();
        assert_eq!(response.all("x-frame-options"), ["from-headers"]);
        assert_eq!(response.field("referrer-policy"), None);
        assert_eq!(response.field("x-content-type-options"), Some("nosniff"));
        client.send(format!("GET /replaced HTTP/1.1\r\n{HOST}\r\n"));
        client.response();
        let response = client.response();
        assert_eq!(response.all("x-frame-options"), ["SAMEORIGIN"]);
        assert_eq!(response.all("referrer-policy"), ["strict-origin-when-cross-origin"]);
        assert_eq!(response.field("cross-origin-opener-policy"), Some("same-origin-allow-popups"));
    }

    fn strict_transport_security_is_for_clients_that_use_tls(io) {
        let text = r#"
            [site."a.example"]
            respond = "200 in"
            security_headers = { hsts = "730d", hsts_subdomains = true, hsts_preload = true }
        "#;
        let options = Options {
            trusted_proxies: ["127.0.0.1".parse().unwrap()].into_iter().collect(),
            ..Options::default()
        };
        let proxy = gateway_with(io, options, text);
        let mut client = proxy.client();
        let of = |client: &mut _, fields: &str| {
            let response = ask(client, "GET /", &format!("{HOST}{fields}"));
            response.field("strict-transport-security").map(str::to_owned)
        };
        let sent = Some("max-age=63072000; includeSubDomains; preload".to_owned());
        assert_eq!(of(&mut client, ""), None);
        assert_eq!(of(&mut client, "X-Forwarded-Proto: http\r\n"), None);
        assert_eq!(of(&mut client, "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\n"), sent);
        // Of other clients the field says nothing.
        let other = gateway(io, text);
        let mut client = other.client();
        assert_eq!(of(&mut client, "X-Forwarded-Proto: https\r\n"), None);
        // Over HTTP/2 in clear text.
        let mut client = h2(&other);
        let mut head = RequestHead::new(Method::Get, "/");
        head.set_authority("a.example");
        let stream = client.send_head(&head, BodyLength::Empty);
        let fields = client.answer(stream).fields;
        assert_eq!(fields.get_str("strict-transport-security"), None);
        assert_eq!(fields.get_str("x-frame-options"), Some("DENY"));
    }
}
