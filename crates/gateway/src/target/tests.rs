use blitz_http::path::normalize;

use super::*;

fn target(value: &str) -> Target {
    value.parse().unwrap()
}

fn origin(value: &str) -> Origin {
    target(value).origin
}

fn sent_path(value: &str, path: &str) -> String {
    let target = target(value);
    let mut matched = String::new();
    normalize(path, &mut matched).unwrap();
    assert!(
        target.prefix.matches(&matched),
        "{value} does not match {path}"
    );
    let mut out = String::from("leftover");
    match target.replace_path(&matched, path, &mut out) {
        Replaced::Kept => path.to_owned(),
        Replaced::Written => out,
        Replaced::DotSegment => String::from("refused"),
    }
}

#[test]
fn a_url_without_a_prefix_matches_all_paths() {
    let plain = target("http://127.0.0.1:3000");
    assert_eq!(plain.prefix, Prefix::Everything);
    assert_eq!(plain.origin, Origin::Ip("127.0.0.1:3000".parse().unwrap()));
    assert_eq!(
        (plain.path, plain.authority.as_str()),
        (None, "127.0.0.1:3000")
    );
}

#[test]
fn https_sets_the_default_port_and_the_host_of_the_certificate() {
    for (value, host, address) in [
        ("https://10.0.0.1", "10.0.0.1", "10.0.0.1:443"),
        ("HTTPS://[::1]:8443/x", "::1", "[::1]:8443"),
    ] {
        let target = target(value);
        assert!(target.tls);
        assert_eq!(target.host(), host);
        assert_eq!(target.origin, Origin::Ip(address.parse().unwrap()));
    }
    assert_eq!(
        origin("/a=https://App.example/b"),
        Origin::Name("app.example".into(), 443)
    );
    assert_eq!(target("https://localhost").host(), "localhost");
    assert!(!target("http://localhost").tls);
}

#[test]
fn hosts_are_addresses_names_or_sockets() {
    assert_eq!(
        origin("http://[::1]:3000"),
        Origin::Ip("[::1]:3000".parse().unwrap())
    );
    assert_eq!(
        origin("http://[::1]"),
        Origin::Ip("[::1]:80".parse().unwrap())
    );
    assert_eq!(
        origin("http://10.0.0.1/x"),
        Origin::Ip("10.0.0.1:80".parse().unwrap())
    );
    assert_eq!(origin("HTTP://LocalHost:1"), Origin::Localhost(1));
    assert_eq!(origin("http://app.localhost"), Origin::Localhost(80));
    assert_eq!(
        origin("http://App_1.Example.:81"),
        Origin::Name("app_1.example".into(), 81)
    );
    assert_eq!(
        origin("unix:/run/app.sock"),
        Origin::Unix("/run/app.sock".into())
    );
    assert_eq!(
        origin("unix:///run/app.sock"),
        Origin::Unix("/run/app.sock".into())
    );
    assert_eq!(
        origin("/a=unix:/run/a=b.sock"),
        Origin::Unix("/run/a=b.sock".into())
    );
}

#[test]
fn the_scheme_decides_the_protocol() {
    for (value, protocol, url) in [
        ("http://h:1", Protocol::Http1, "http://h:1"),
        ("h2c://h:1", Protocol::Http2, "h2c://h:1"),
        ("/a=H2C://h/b", Protocol::Http2, "h2c://h:80"),
        ("unix:/run/a", Protocol::Http1, "unix:/run/a"),
    ] {
        let target = target(value);
        assert_eq!((target.protocol, target.url().as_str()), (protocol, url));
    }
}

#[test]
fn a_value_with_a_slash_is_split_at_its_first_equals_sign() {
    let split = target("/a=http://h:1/b=c");
    assert_eq!(split.prefix, Prefix::Segments("/a".into()));
    assert_eq!(split.path.as_deref(), Some("/b=c"));
}

#[test]
fn a_final_star_or_dot_matches_as_text() {
    assert_eq!(target("/a*=http://h").prefix, Prefix::Text("/a".into()));
    assert_eq!(target("/a.=http://h").prefix, Prefix::Text("/a.".into()));
    assert_eq!(target("/a/.=http://h").prefix, Prefix::Text("/a/.".into()));
    assert_eq!(target("/=http://h").prefix, Prefix::Segments("/".into()));
}

#[test]
fn the_prefix_is_kept_unless_the_url_has_a_path() {
    for (value, path, sent) in [
        ("/api=http://h", "/api/x", "/api/x"),
        ("/api=http://h/", "/api/x", "/x"),
        ("/api=http://h/", "/api", "/"),
        ("/api=http://h/", "/api/", "/"),
        ("/api=http://h/v2", "/api", "/v2"),
        ("/api=http://h/v2", "/api/", "/v2/"),
        ("/api=http://h/v2/", "/api", "/v2/"),
        ("/api=http://h/v2/", "/api/x", "/v2/x"),
        ("/api/=http://h/v2", "/api/x", "/v2/x"),
        ("/api/=http://h/", "/api/", "/"),
        ("/=http://h/base", "/x", "/base/x"),
        ("http://h/base", "/", "/base/"),
        ("http://h/base/", "/x/y", "/base/x/y"),
        ("/img*=http://h/pictures", "/img1/x", "/pictures1/x"),
        ("/img/*=http://h/pictures/", "/img/x", "/pictures/x"),
        ("/a.=http://h/b.", "/a.X/Y", "/b.X/Y"),
        ("/api=http://h/v2", "/%61pi/%78", "/v2/%78"),
        ("/api=http://h/v2", "/ap%69", "/v2"),
        ("/a%2fb=http://h/v2", "/%61%2fb/c%2fd", "/v2/c%2fd"),
        ("/img*=http://h/pictures", "/%69mg%31/x", "/pictures%31/x"),
        ("/img/*=http://h/pictures/", "/im%67/%78", "/pictures/%78"),
        ("/api=http://h", "/%61pi/%78", "/%61pi/%78"),
    ] {
        assert_eq!(sent_path(value, path), sent, "{value} {path}");
    }
}

#[test]
fn a_path_cannot_leave_the_path_that_replaces_its_prefix() {
    assert_eq!(
        sent_path("/img*=http://h/pictures/", "/img../secret"),
        "refused"
    );
    assert_eq!(sent_path("/img*=http://h/pictures/", "/img."), "refused");
    for path in ["/img%2e%2e/x", "/img..%2Fx", "/img.%2e;/x", "/im%67.%5Cx"] {
        assert_eq!(
            sent_path("/img*=http://h/pictures/", path),
            "refused",
            "{path}"
        );
        assert_eq!(
            sent_path("/img*=http://h/a/b%2F", path),
            "refused",
            "{path}"
        );
    }
    assert_eq!(
        sent_path("/img*=http://h/pictures", "/img../x"),
        "/pictures../x"
    );
    assert_eq!(
        sent_path("/img*=http://h/pictures/", "/img...x"),
        "/pictures/...x"
    );
}

/// Each line: the value, a part of the problem, a part of the remedy.
const INVALID: &[(&str, &str, &str)] = &[
    ("", "empty", "http://127.0.0.1:3000"),
    ("127.0.0.1:3000", "has no scheme", "http://127.0.0.1:3000"),
    ("localhost:3000", "has no scheme", "http://localhost:3000"),
    ("3000", "port alone", "http://127.0.0.1:3000"),
    ("//host", "PREFIX=URL", "--to"),
    ("api=http://h:1", "slash before \"api\"", "/api=http://h:1"),
    (
        "api/v1=h:1",
        "slash before \"api/v1\"",
        "/api/v1=http://h:1",
    ),
    ("api=3000", "slash", "/api=http://127.0.0.1:3000"),
    ("api=unix:/run/a", "slash", "/api=unix:/run/a"),
    (
        "a.example=http://h:1",
        "is a host",
        "http://h:1 for all hosts",
    ),
    ("a:80=http://h:1", "is a host", "/PREFIX=http://h:1"),
    ("*=http://h", "not a prefix", "write http://h for all"),
    ("=http://h", "not a prefix", "write http://h for all"),
    ("^/api=http://h", "regular expression", "/api=http://h"),
    ("/api:http://h:1", "= between", "write /api=http://h:1"),
    ("/api http://h:1", "' '", "write /api=http://h:1"),
    (
        "/api=>http://h:1",
        ">http:// is unknown",
        "write http://h:1",
    ),
    ("/api=/v2", "path alone", "http://HOST:PORT/v2"),
    ("/run/app.sock", "unix: of a socket", "unix:/run/app.sock"),
    ("http//h:1", "no ://", "write http://h:1"),
    ("http:/h:1", "no ://", "write http://h:1"),
    ("HTTPS:h/x", "no ://", "write https://h/x"),
    ("http:://h", "no ://", "write http://h"),
    ("http:3000", "has no scheme", "http://http:3000"),
    ("http+unix:/run/a", "unix sockets carry", "unix:/run/a"),
    ("http://unix:/run/a:", "not a host", "unix:/run/a"),
    ("http://a:1,http://b:1", "list", "write http://a:1"),
    (
        "http://host:1:2",
        "more than one port",
        "write http://host:2",
    ),
    (":3000", "has no scheme", "http://127.0.0.1:3000"),
    ("99999", "port alone", "at most 65535"),
    ("\"http://h\"", "quotation marks", "leave them out"),
    ("grpcs://h", "grpcs:// is unknown", "https://h"),
    ("h3://h", "HTTP/3", "https://h"),
    ("uwsgi://h", "speak HTTP", "http://HOST:PORT"),
    ("tcp://h:1", "tcp:// is unknown", "http://h:1"),
    ("/api", "=URL is missing", "/api=http://"),
    ("/api=", "URL is missing", "http://"),
    ("/api=4000", "port alone", "http://127.0.0.1:4000"),
    ("h2://h", "h2:// is unknown", "h2c://h"),
    ("grpc://h:50051", "grpc:// is unknown", "h2c://h:50051"),
    ("h2c://", "has no host", "h2c://127.0.0.1:80"),
    ("h2c://h:0", "not a port", "1 to 65535"),
    ("https://:443", "has no host", "https://127.0.0.1:443"),
    ("https://h:0", "not a port", "for port 443"),
    ("https://[::1", "no ]", "https://[::1]"),
    ("ws://h/x", "other targets carry", "http://h/x"),
    ("wss://h/x", "other targets carry", "https://h/x"),
    ("ftp://h", "ftp:// is unknown", "http://HOST:PORT"),
    ("http://h:70000", "above 65535", "1 to 65535"),
    ("http://", "has no host", "http://127.0.0.1:80"),
    ("http://:3000", "has no host", "http://127.0.0.1:3000"),
    ("http://h:", "not a port", "1 to 65535"),
    ("http://h:0", "not a port", "1 to 65535"),
    ("http://h:+80", "not a port", "1 to 65535"),
    ("http://h:65536", "not a port", "1 to 65535"),
    ("http://u:p@h", "user name", "@"),
    ("http://h/?a=b", "query", "after the path"),
    ("http://h#top", "fragment", "after the path"),
    ("http://::1:80", "brackets", "["),
    ("http://[::1", "no ]", "]"),
    ("http://[::1:3000", "no ]", "write http://[::1]:3000, or"),
    ("http://[::g]", "not an IPv6 address", "[::1]"),
    ("http://[::1]80", "cannot follow", "[::1]:"),
    ("http://10.0.0.256", "looks like an IPv4", "0 to 255"),
    ("http://10.0.1", "looks like an IPv4", "0 to 255"),
    ("http://a..b", "empty part", "letters"),
    ("http://-a", "hyphen", "letters"),
    ("http://a!b", "invalid character", "letters"),
    ("http://bücher.example", "invalid character", "xn--"),
    ("http://h /x", "' '", "%20"),
    ("http://h/\u{7}", "'\\u{7}'", "remove it"),
    ("http://h/<x>", "'<'", "percent-encoded"),
    ("http://h/a/../b", ". or ..", "resolved"),
    ("http://h/a/..", ". or ..", "resolved"),
    ("http://h/a/..%2Fb", ". or ..", "resolved"),
    ("/a/..;/b=http://h", ". or ..", "resolved"),
    ("/a/./b=http://h", ". or ..", "resolved"),
    ("/a?b=http://h", "by path only", "leave out"),
    ("/%41=http://h", "escapes 'A'", "write A"),
    ("/%4=http://h", "hexadecimal", "%25"),
    ("/%00=http://h", "%00", "400"),
    ("unix:app.sock", "absolute path", "unix:$PWD/app.sock"),
    ("unix:./app.sock", "absolute path", "unix:$PWD/app.sock"),
    (
        "unix:run/a.sock",
        "absolute",
        "unix:/run/a.sock, or unix:$PWD/run/a",
    ),
    ("unix:/", "absolute path", "unix:/run/"),
];

#[test]
fn errors_contain_the_value_the_problem_and_a_remedy() {
    for (value, problem, fix) in INVALID {
        let error = value.parse::<Target>().expect_err(value);
        assert!(error.problem().contains(problem), "{value}: {error}");
        assert!(error.fix().contains(fix), "{value}: {error}");
        assert!(error.to_string().contains(value), "{error}");
    }
    let long = format!("unix:/{}", "x".repeat(107));
    assert!(
        long.parse::<Target>()
            .unwrap_err()
            .problem()
            .contains("107")
    );
}

#[test]
fn a_remedy_for_ipv6_is_a_valid_url() {
    for (value, fix) in [
        ("https://::1", "write https://[::1]"),
        ("http://::1:80", "write http://[::1:80], or http://[::1]:80"),
    ] {
        assert_eq!(value.parse::<Target>().unwrap_err().fix(), fix);
    }
}

#[test]
fn prefixes_and_origins_are_displayed_as_they_were_given() {
    for value in ["/a*", "/a.", "/a", "/a/"] {
        assert_eq!(
            target(&format!("{value}=http://h")).prefix.to_string(),
            value
        );
    }
    assert_eq!(origin("unix:/run/a").to_string(), "unix:/run/a");
    assert_eq!(origin("http://[::1]:1").to_string(), "http://[::1]:1");
}
