//! The outcome of a request, its explanation by `explain`, and the request that the upstream receives agree.

use std::env;

use blitz_config::{Document, Environment, read};
use blitz_gateway::{
    Gateway, LoadedFile, Rejection, RequestOutcome, Sites, TrustedProxies, compile, explain,
};
use blitz_http::{IoChoice, Peer, RequestHead, Scheme};
use blitz_testing::Client;

use crate::jwt::{SECRET, token};
use crate::site_rules::sites_of;
use crate::support::{Proxy, Upstream, numbers};

/// Parts of paths that servers read in several ways.
const SEGMENTS: [&str; 24] = [
    "admin",
    "adm%69n",
    "ADMIN",
    "a",
    "b",
    "api",
    "%61pi",
    "u",
    "7",
    "raw",
    "prefix",
    "pre",
    "",
    "",
    ".",
    "..",
    "%2e",
    "%2f",
    "a%2Fb",
    "%5c",
    ";x",
    "admin;v=1",
    "..;",
    "a+b%20c",
];

/// Requests of each driver; `.ci/run --full` sends more.
const REQUESTS: usize = 3_000;

fn requests() -> usize {
    let chosen = env::var("BLITZ_EXPLAINED_REQUESTS").ok();
    chosen.map_or(REQUESTS, |number| number.parse().expect("a number"))
}

/// Targets that follow from a seed.
fn targets(seed: u64) -> impl Iterator<Item = String> {
    let mut random = numbers(seed);
    std::iter::from_fn(move || {
        let mut target = String::new();
        for _ in 0..=random(5) {
            target.push('/');
            target.push_str(SEGMENTS[random(SEGMENTS.len())]);
        }
        if random(4) == 0 {
            target.push_str(["?q=/../admin;x", "?clos%65d"][random(2)]);
        }
        Some(target)
    })
}

/// The sites of a text, and a gateway that has them.
fn started(io: IoChoice, text: &str) -> (Sites, Proxy) {
    let document = Document::new("blitz.toml", text);
    let (configuration, mut diagnostics) = read(&document, &Environment::default());
    let mut no_file = |_: &str| -> Result<LoadedFile, _> { Err((String::new(), String::new())) };
    let compiled = compile(&configuration, &mut no_file, &mut diagnostics);
    assert_eq!(diagnostics, []);
    let sites = Sites::of_file(compiled.clone());
    let gateway = compiled.into_iter().fold(Proxy::gateway(io), Gateway::site);
    (sites, Proxy::start(gateway, &[]))
}

fn peer() -> Peer {
    Peer {
        remote: Some(([127, 0, 0, 1], 1).into()),
        listener: None,
        scheme: Scheme::Http,
        tls: None,
    }
}

#[test]
fn an_explanation_says_why_a_token_is_refused() {
    let text = format!(
        "[site.\"a.example\"]\nrespond = 200\njwt = {{ secret = \"{SECRET}\", audience = \"api\" }}\n"
    );
    let (sites, _proxy) = started(IoChoice::Epoll, &text);
    for (audience, expected) in [
        (
            "web",
            Some("its audience `aud` is \"web\", and the route expects \"api\""),
        ),
        ("api", None),
    ] {
        let mut head = RequestHead::parse("GET", "/").unwrap();
        head.set_authority("a.example");
        let token = token(&format!(",\"aud\":\"{audience}\""));
        head.fields
            .append("authorization", format!("Bearer {token}"));
        let explanation = explain(&sites, &mut head, &peer(), &TrustedProxies::default());
        assert_eq!(explanation.reason.as_deref(), expected);
    }
}

scenarios! {
    fn explanations_say_what_happens(io) {
        let upstream = blitz_testing::Upstream::start(|request| {
            let path = request.line.split(' ').nth(1).unwrap_or_default();
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len()).into_bytes()
        });
        let text = format!(r#"
            [site."a.example"]
            to = "{}"
            "/admin".allow = ["10.0.0.0/8"]
            "/a/admin".deny = ["127.0.0.0/8"]
            "/api".path = "/v2{{rest}}"
            "/api/b".path = "{{rest}}"
            "/u/{{id}}/b".path = "/x/{{id}}{{rest}}"
            "=/a/b" = {{ redirect = "301 {{path}}/there" }}
            "/pre*".path = "/new{{rest}}"
            "/raw".raw_path = true
            '~/a/a[^/]*/admin.*'.deny = ["127.0.0.0/8"]
            '~/u/(?<id>7|b)(?<tail>/.*)?' = {{ path = "/n/{{id}}{{tail}}" }}
            '~/pre/(?<name>.*)' = {{ redirect = "301 /moved/{{name}}" }}
            "POST /b" = {{ respond = 204 }}
            "=/b/b" = {{ when = [{{ header.x-side = "!left", redirect = "302 /right" }}] }}
            [[site."a.example".when]]
            header.x-side = "left"
            query.closed = true
            respond = 503
            [[site."a.example".when]]
            header.x-side = "~^r.*t$"
            deny = ["127.0.0.0/8"]
            [[site."a.example"."/api".when]]
            method = "POST"
            path = "/posted{{rest}}"
            [[site."a.example"."/admin".when]]
            client = "!10.0.0.0/8"
            allow = ["unix"]
        "#, upstream.url());
        let (sites, proxy) = started(io, &text);
        let peer = peer();
        let mut client = proxy.client();
        let mut outcomes = [0; 5];
        for (number, target) in targets(0x9e37_79b9).take(requests()).enumerate() {
            let method = if number % 5 == 0 { "POST" } else { "GET" };
            let side = ["", "", "left", "right", "root"][number % 7 % 5];
            client.send(format!("{method} {target} HTTP/1.1\r\nHost: a.example\r\nX-Side: {side}\r\nContent-Length: 0\r\n\r\n"));
            let response = client.response();
            let Ok(mut head) = RequestHead::parse(method, &target) else {
                assert_eq!(response.status, 400, "{method} {target}");
                outcomes[0] += 1;
                client = Client::connect(proxy.address);
                continue;
            };
            head.set_authority("a.example");
            head.fields.try_append("X-Side", side).unwrap();
            let explanation = explain(&sites, &mut head, &peer, &TrustedProxies::default());
            let context = || format!("{method} {target}: {:?}, {} {}", explanation.outcome, response.status, response.text());
            match &explanation.outcome {
                RequestOutcome::Rejected(rejection) => {
                    assert_eq!(response.status, rejection.status().code(), "{}", context());
                    let is_ambiguous = *rejection == Rejection::AmbiguousPath;
                    assert!(explanation.reading.is_none() || is_ambiguous, "{}", context());
                    outcomes[4] += usize::from(explanation.reading.is_some());
                    outcomes[1] += 1;
                }
                RequestOutcome::Answered { status, location } => {
                    assert_eq!(response.status, *status, "{}", context());
                    assert_eq!(response.field("location"), location.as_deref(), "{}", context());
                    outcomes[2] += 1;
                }
                RequestOutcome::App | RequestOutcome::File(_) => {
                    panic!("there are no apps and no files: {}", context())
                }
                RequestOutcome::Forwarded { target: sent, .. } => {
                    assert_eq!((response.status, response.text()), (200, sent.as_str()), "{}", context());
                    outcomes[3] += 1;
                    // A path that a route composes, or forwards byte for byte, is not checked.
                    if matches!(explanation.routes[0].0.name.as_ref(), "/" | "/admin" | "/a/admin") {
                        check_servlet(sent, &context());
                    }
                }
            }
        }
        assert!(outcomes.iter().all(|count| *count > 10), "{outcomes:?}");
    }

    fn the_head_that_is_explained_is_sent(io) {
        let upstream = Upstream::with_text("ok");
        let text = format!(r#"
            [site."a.example"]
            to = "{}"
            host = "b.example"
            request_headers.X-Tenant = "{{cookie.tenant}}"
            request_headers.X-Secret = false
            request_headers.X-Both = ["one", "{{header.x-in}}"]
            "/x".path = "{{rest}}"
        "#, upstream.url());
        let (sites, proxy) = started(io, &text);
        let mut client = proxy.client();
        let lines = [
            ("Cookie", "tenant=t1"),
            ("X-Secret", "1"),
            ("X-In", "two"),
            ("TE", "trailers, gzip"),
            ("X-Forwarded-For", "192.0.2.1"),
            ("Forwarded", "for=192.0.2.1"),
            ("Proxy", "x"),
            ("Accept", "*/*"),
        ];
        let mut head = RequestHead::parse("GET", "/x").unwrap();
        head.set_authority("a.example");
        let mut request = "GET /x HTTP/1.1\r\nHost: a.example\r\n".to_owned();
        for (name, value) in lines {
            head.fields.try_append(name, value).unwrap();
            request += &format!("{name}: {value}\r\n");
        }
        client.send(request + "\r\n");
        assert_eq!(client.response().status, 200);
        let explanation = explain(&sites, &mut head, &peer(), &TrustedProxies::default());
        let RequestOutcome::Forwarded { host, fields, .. } = explanation.outcome else {
            panic!("{explanation:?}");
        };
        assert_eq!(host, "b.example");
        // Random, or written for the connection.
        let others = ["host", "cdn-loop", "x-request-id", "connection", "te"];
        let same = |fields: Vec<(String, String)>| {
            let fields = fields.into_iter().map(|(name, value)| (name.to_lowercase(), value));
            let mut fields: Vec<_> = fields.filter(|(name, _)| !others.contains(&name.as_str())).collect();
            fields.sort();
            fields
        };
        let (explained, sent) = (same(fields), same(upstream.head().fields));
        assert_eq!(explained, sent);
        for (name, value) in [("x-tenant", "t1"), ("x-forwarded-prefix", "/x")] {
            assert!(sent.contains(&(name.to_owned(), value.to_owned())), "{sent:?}");
        }
    }
}

#[test]
fn files_before_an_upstream_and_content_codings_are_explained() {
    let text = r#"
        defaults.decompress = true
        [site."a.example"]
        files = "/srv"
        to = "http://127.0.0.1:1"
        cors = ["https://app.example"]
        "/own".decompress = false
        [site."b.example"]
        cors = ["https://app.example"]
        "/only" = { respond = 204 }
    "#;
    let sites = Sites::of_file(sites_of(text));
    let outcome = |host: &str, line: &str, fields: &[(&str, &str)]| {
        let (method, target) = line.split_once(' ').unwrap();
        let mut head = RequestHead::parse(method, target).unwrap();
        head.set_authority(host);
        for (name, value) in fields {
            head.fields.try_append(*name, *value).unwrap();
        }
        explain(&sites, &mut head, &peer(), &TrustedProxies::default()).outcome
    };
    for (line, expected) in [
        ("GET /a.txt?x", Some("/srv/a.txt")),
        ("HEAD /%61/", Some("/srv/a/")),
        ("GET /.git/config", None),
        ("POST /a.txt", None),
    ] {
        let RequestOutcome::Forwarded { file, target, .. } = outcome("a.example", line, &[]) else {
            panic!("{line}");
        };
        assert_eq!(file.as_deref(), expected, "{line}");
        assert!(line.ends_with(&target), "{line}: {target}");
    }
    for (path, coding, sent, is_rejected) in [
        ("/x", "gzip", None, false),
        ("/x", "identity", None, false),
        ("/x", "compress", None, true),
        ("/own", "compress", Some("compress"), false),
    ] {
        let fields = [("Content-Encoding", coding), ("Content-Length", "10")];
        match outcome("a.example", &format!("POST {path}"), &fields) {
            RequestOutcome::Forwarded { fields, .. } => {
                let is_coding = |name: &str| name.eq_ignore_ascii_case("content-encoding");
                let found = fields.iter().find(|(name, _)| is_coding(name));
                assert_eq!(
                    found.map(|(_, value)| value.as_str()),
                    sent,
                    "{path} {coding}"
                );
                assert!(!is_rejected, "{path} {coding}");
            }
            other => {
                assert_eq!(other, RequestOutcome::Rejected(Rejection::ContentCoding));
                assert!(is_rejected, "{path} {coding}");
            }
        }
    }
    let asked = [
        ("Origin", "https://app.example"),
        ("Access-Control-Request-Method", "PUT"),
    ];
    let preflight = RequestOutcome::Rejected(Rejection::Preflight);
    assert_eq!(outcome("b.example", "OPTIONS /none", &asked), preflight);
    let unknown = RequestOutcome::Rejected(Rejection::UnknownPath);
    assert_eq!(outcome("b.example", "PUT /none", &asked[..1]), unknown);
}

/// Checks that a servlet container does not read a forwarded path as a protected one. A container drops path
/// parameters, decodes the path, merges slashes, and removes dot segments.
fn check_servlet(sent: &str, context: &str) {
    let path = sent.split('?').next().unwrap_or_default();
    let without: Vec<_> = path
        .split('/')
        .map(|segment| segment.split(';').next().unwrap_or_default())
        .collect();
    let decoded = without
        .join("/")
        .replace("%2f", "/")
        .replace("%2F", "/")
        .replace("%5c", "/")
        .replace("%5C", "/");
    let decoded = decoded
        .replace("%69", "i")
        .replace("%61", "a")
        .replace("%2e", ".");
    let mut segments: Vec<&str> = Vec::new();
    for segment in decoded.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            other => segments.push(other),
        }
    }
    let is_of_regex = match segments[..] {
        ["a", second, third, ..] => second.starts_with('a') && third.starts_with("admin"),
        _ => false,
    };
    let is_protected =
        segments.starts_with(&["admin"]) || segments.starts_with(&["a", "admin"]) || is_of_regex;
    assert!(!is_protected, "{context}");
}
