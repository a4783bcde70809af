//! Upstreams with paths of their own: `Location` and cookies name those of the client, and `X-Forwarded-Prefix` those that
//! a route removes.

use blitz_gateway::Options;
use blitz_http::{BodyLength, IoChoice, RequestHead};

use crate::h2::h2;
use crate::site_rules::gateway_with;
use crate::support::Proxy;

/// An upstream that redirects to what `X-To` says, with the cookies of `X-Cookie`, and tells what it has received.
fn upstream() -> blitz_testing::Upstream {
    blitz_testing::Upstream::start(|request| {
        let field = |name| request.field(name).unwrap_or_default();
        let cookies = field("x-cookie")
            .split('|')
            .filter(|cookie| !cookie.is_empty());
        let cookies: String = cookies
            .map(|cookie| format!("Set-Cookie: {cookie}\r\n"))
            .collect();
        let path = request.line.split(' ').nth(1).unwrap_or_default();
        format!(
            "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: {}\r\n{cookies}X-Got: {path} {}\r\n\r\n",
            field("x-to"),
            field("x-forwarded-prefix"),
        )
        .into_bytes()
    })
}

fn proxy(io: IoChoice, url: &str, options: Options) -> Proxy {
    let text = format!(
        r#"
        [site."a.example"]
        to = "{url}"
        "/v1".path = "/v2{{rest}}"
        "/v1/inner" = {{}}
        "/app".path = "{{rest}}"
        "/t/{{tenant}}".path = "{{rest}}"
        "/named" = {{ path = "/v2{{rest}}", host = "b.example" }}
        "/query".path = "/{{method}}{{rest}}"
        "/fixed".path = "/v2"
        "#
    );
    gateway_with(io, options, &text)
}

/// Path, location of the upstream, that of the client, path and prefix that the upstream got.
const CASES: [(&str, &str, &str, &str); 15] = [
    ("/v1/x", "/v2/y?z=/v2", "/v1/y?z=/v2", "/v2/x "),
    ("/v1/x", "/other", "/other", "/v2/x "),
    (
        "/v1/x",
        "http://a.example/v2/y",
        "http://a.example/v1/y",
        "/v2/x ",
    ),
    (
        "/v1/x",
        "https://b.example/v2/y",
        "https://b.example/v2/y",
        "/v2/x ",
    ),
    ("/v1/inner", "/v2/inner/", "/v1/inner/", "/v2/inner "),
    ("/app", "/login", "/app/login", "/ /app"),
    ("/app/x", "/", "/app/", "/x /app"),
    (
        "/app/x",
        "http://UPSTREAM/y",
        "http://a.example/app/y",
        "/x /app",
    ),
    ("/t/acme/x", "/y", "/t/acme/y", "/x /t/acme"),
    ("/%74/ac%6de/x", "/y", "/t/acme/y", "/x /t/acme"),
    (
        "/named/x",
        "https://b.example/v2/y",
        "http://a.example/named/y",
        "/v2/x ",
    ),
    (
        "/named/x",
        "//b.example/v2/y",
        "//a.example/named/y",
        "/v2/x ",
    ),
    // The client's paths are unknown for these.
    ("/query/x", "/GET/y", "/GET/y", "/GET/x "),
    ("/fixed", "/v2/y", "/v2/y", "/v2 "),
    ("/other", "/v2/y", "/v2/y", "/other "),
];

scenarios! {
    fn locations_are_those_of_the_client(io) {
        let upstream = upstream();
        let proxy = proxy(io, &upstream.url(), Options::default());
        let (mut client, mut client2) = (proxy.client(), h2(&proxy));
        for (path, to, location, got) in CASES {
            let to = to.replace("UPSTREAM", &upstream.address().to_string());
            client.send(format!(
                "GET {path} HTTP/1.1\r\nHost: a.example\r\nX-To: {to}\r\nX-Forwarded-Prefix: /forged\r\n\r\n"
            ));
            let response = client.response();
            assert_eq!(response.field("location"), Some(location), "{path} {to}");
            assert_eq!(response.field("x-got"), Some(got.trim_end()), "{path}");
            let mut head = RequestHead::parse("GET", path).unwrap();
            head.set_authority("a.example");
            head.fields.append("x-to", &to);
            let stream = client2.send_head(&head, BodyLength::Empty);
            let answer = client2.answer(stream);
            assert_eq!(answer.fields.get_str("location"), Some(location), "{path} {to}");
            assert_eq!(answer.fields.get_str("x-got"), Some(got.trim_end()), "{path}");
        }
    }

    fn cookies_have_the_paths_of_the_client(io) {
        let upstream = upstream();
        let proxy = proxy(io, &upstream.url(), Options::default());
        let mut client = proxy.client();
        for (path, cookies, expected) in [
            ("/v1", "a=1; Path=/v2|b=2; Path=/; Secure", &["a=1; Path=/v1", "b=2; Path=/; Secure"][..]),
            ("/app", "a=1; Path=/|b=2; path=/x|c=3", &["a=1; Path=/app", "b=2; path=/app/x", "c=3"][..]),
            ("/app", "__Host-a=1; Secure; Path=/", &["__Host-a=1; Secure; Path=/"][..]),
            ("/other", "a=1; Path=/v2", &["a=1; Path=/v2"][..]),
        ] {
            client.send(format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nX-Cookie: {cookies}\r\n\r\n"));
            let response = client.response();
            let found = response.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
            let found: Vec<&str> = found.map(|(_, value)| value.as_str()).collect();
            assert_eq!(found, expected, "{path}");
        }
    }

    fn a_trusted_proxy_tells_a_prefix_and_what_the_client_requested(io) {
        let upstream = upstream();
        let options = Options {
            trusted_proxies: ["127.0.0.1".parse().unwrap()].into_iter().collect(),
            ..Options::default()
        };
        let proxy = proxy(io, &upstream.url(), options);
        let mut client = proxy.client();
        client.send(format!(
            "GET /app/x HTTP/1.1\r\nHost: a.example\r\nX-Forwarded-Prefix: /outer\r\nX-Forwarded-Proto: https\r\n\
             X-Forwarded-Host: c.example\r\nX-To: http://{}/y\r\n\r\n",
            upstream.address()
        ));
        let response = client.response();
        assert_eq!(response.field("x-got"), Some("/x /outer/app"));
        assert_eq!(response.field("location"), Some("https://c.example/app/y"));
    }

    fn a_path_in_the_url_of_a_flag_rewrites_nothing(io) {
        let upstream = upstream();
        let proxy = Proxy::to(io, &[&format!("/a={}/b", upstream.url())]);
        let mut client = proxy.client();
        client.send("GET /a/x HTTP/1.1\r\nHost: a.example\r\nX-To: /b/y\r\n\r\n");
        let response = client.response();
        assert_eq!((response.field("location"), response.field("x-got")), (Some("/b/y"), Some("/b/x")));
    }

    fn no_location_leads_to_another_host(io) {
        let upstream = upstream();
        let text = format!("[site.\"a.example\"]\nto = \"{}\"\npath = \"/v2{{rest}}\"\n", upstream.url());
        let proxy = gateway_with(io, Options::default(), &text);
        let mut client = proxy.client();
        for (to, location) in [("/v2//evil.example/x", "/evil.example/x"), ("/v2/x", "/x"), ("/v2", "/")] {
            client.send(format!("GET / HTTP/1.1\r\nHost: a.example\r\nX-To: {to}\r\n\r\n"));
            assert_eq!(client.response().field("location"), Some(location));
        }
    }
}
