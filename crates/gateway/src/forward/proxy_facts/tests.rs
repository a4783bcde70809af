use super::*;

/// The forwarding fields that an upstream gets: the addresses, scheme, host, port, `Forwarded`.
type ForwardedFacts = (String, String, String, String, String);

/// The fields that are sent for a request to `http://own.example:8080` from the trusted 10.0.0.1.
fn sent(told: &[(&str, &str)]) -> ForwardedFacts {
    sent_for(told, "own.example:8080", Some("10.0.0.1:5000"))
}

fn sent_for(told: &[(&str, &str)], authority: &str, remote: Option<&str>) -> ForwardedFacts {
    let mut head = RequestHead::parse("GET", "/").unwrap();
    head.set_authority(authority);
    for (name, value) in told {
        head.fields.try_append(*name, value).unwrap();
    }
    let trusted = ["10.0.0.0/8", "fd00::/8", "unix"];
    let trusted = trusted.iter().map(|proxy| proxy.parse().unwrap()).collect();
    let peer = Peer {
        remote: remote.map(|remote| remote.parse().unwrap()),
        listener: None,
        scheme: Scheme::Http,
        tls: None,
    };
    add_forwarding_of_proxy(&mut head, &peer, &trusted);
    let value = |name: Name| {
        let mut values = head.fields.get_all(name);
        let value = values.next().unwrap_or_default();
        assert_eq!(values.next(), None, "{name:?} twice");
        String::from_utf8(value.to_vec()).unwrap()
    };
    (
        value(Name::XForwardedFor),
        value(Name::XForwardedProto),
        value(Name::XForwardedHost),
        value(Name::XForwardedPort),
        value(Name::Forwarded),
    )
}

fn check(told: &[(&str, &str)], expected: [&str; 5]) {
    let (addresses, scheme, host, port, forwarded) = sent(told);
    let sent = [addresses, scheme, host, port, forwarded];
    assert_eq!(sent, expected, "{told:?}");
}

/// Our own element.
const OWN: &str = "for=10.0.0.1;host=\"own.example:8080\";proto=http";

#[test]
fn x_forwarded_fields_alone_are_also_sent_as_forwarded() {
    check(
        &[
            ("X-Forwarded-For", "203.0.113.9"),
            ("X-Forwarded-Proto", "https"),
            ("X-Forwarded-Host", "shop.example"),
        ],
        [
            "203.0.113.9, 10.0.0.1",
            "https",
            "shop.example",
            "443",
            &format!("for=203.0.113.9;host=\"shop.example\";proto=https, {OWN}"),
        ],
    );
    check(
        &[
            (
                "X-Forwarded-For",
                "2001:db8::1, [2001:db8::2]:80,192.0.2.1:80",
            ),
            ("X-Forwarded-For", "garbage\""),
        ],
        [
            "2001:db8::1, [2001:db8::2]:80, 192.0.2.1:80, garbage\", 10.0.0.1",
            "http",
            "own.example:8080",
            "8080",
            &format!(
                "for=\"[2001:db8::1]\", for=\"[2001:db8::2]\", for=192.0.2.1, \
                 for=unknown;host=\"own.example:8080\";proto=http, {OWN}"
            ),
        ],
    );
}

#[test]
fn forwarded_alone_is_also_sent_as_x_forwarded_fields() {
    let element =
        "for=\"[2001:db8::1]:99\";by=_edge;HOST=\"shop.example:8443\";proto=HTTPS;x=\"a, b\"";
    check(
        &[("Forwarded", "for=_hidden"), ("Forwarded", element)],
        [
            "unknown, 2001:db8::1, 10.0.0.1",
            "https",
            "shop.example:8443",
            "8443",
            &format!(
                "for=unknown, for=\"[2001:db8::1]\";host=\"shop.example:8443\";proto=https, {OWN}"
            ),
        ],
    );
}

#[test]
fn partial_facts_are_completed_by_what_is_known() {
    let told = [("X-Forwarded-Proto", "https")];
    let only = "for=10.0.0.1;host=\"own.example\";proto=https";
    let (addresses, scheme, host, port, forwarded) =
        sent_for(&told, "own.example", Some("10.0.0.1:5000"));
    assert_eq!((addresses.as_str(), forwarded.as_str()), ("10.0.0.1", only));
    assert_eq!([scheme, host, port], ["https", "own.example", "443"]);

    let (addresses, scheme, host, port, forwarded) = sent_for(&told, "[::1]:9", None);
    assert_eq!(
        addresses, "",
        "the address of a unix socket's client is unknown"
    );
    assert_eq!([scheme, host, port], ["https", "[::1]:9", "9"]);
    assert_eq!(forwarded, "for=unknown;host=\"[::1]:9\";proto=https");
}

/// Most proxies write some of `X-Forwarded-*`, and pass on the client's `Forwarded`.
#[test]
fn forwarded_completes_no_x_forwarded_fields() {
    let spoofed = ("Forwarded", "for=203.0.113.9;host=evil;proto=https");
    for (honest, addresses, scheme, host, port) in [
        (
            ("X-Forwarded-For", "203.0.113.9"),
            "203.0.113.9, 10.0.0.1",
            "http",
            "own.example:8080",
            "8080",
        ),
        (
            ("X-Forwarded-Proto", "http"),
            "10.0.0.1",
            "http",
            "own.example:8080",
            "8080",
        ),
        (("X-Forwarded-Host", "a"), "10.0.0.1", "http", "a", "80"),
        (
            ("X-Forwarded-Port", "99"),
            "10.0.0.1",
            "http",
            "own.example:99",
            "99",
        ),
    ] {
        let sent = sent(&[honest, spoofed]);
        let expected = [addresses, scheme, host, port].map(str::to_owned);
        assert_eq!([sent.0, sent.1, sent.2, sent.3], expected, "{honest:?}");
        assert!(!sent.4.contains("evil"), "{honest:?}: {}", sent.4);
        assert!(!sent.4.contains("https"), "{honest:?}: {}", sent.4);
    }
}

#[test]
fn a_port_without_a_host_makes_no_host() {
    let told = [("X-Forwarded-Port", "8443"), ("X-Forwarded-Host", "a b")];
    let (_, _, host, port, forwarded) = sent_for(&told, "", None);
    assert_eq!((host.as_str(), port.as_str()), ("", "8443"));
    assert_eq!(forwarded, "for=unknown;proto=http");
}

#[test]
fn ports_come_from_the_host_and_then_from_their_own_field() {
    for (host, port, scheme, expected) in [
        (
            Some("a:8443"),
            Some("443"),
            "https",
            ("a:8443", "8443", "a:8443"),
        ),
        (Some("a"), Some("8443"), "https", ("a", "8443", "a:8443")),
        (Some("a"), None, "https", ("a", "443", "a")),
        (Some("a"), None, "http", ("a", "80", "a")),
        (Some("a"), Some("80"), "https", ("a", "443", "a")),
        (Some("a"), Some("443"), "http", ("a", "80", "a")),
        (
            Some("[::1]"),
            Some("99"),
            "http",
            ("[::1]", "99", "[::1]:99"),
        ),
        (
            None,
            None,
            "https",
            ("own.example:8080", "8080", "own.example:8080"),
        ),
        (
            None,
            Some("443"),
            "https",
            ("own.example", "443", "own.example"),
        ),
        (
            None,
            Some("99"),
            "https",
            ("own.example:99", "99", "own.example:99"),
        ),
        (
            None,
            Some("8080"),
            "http",
            ("own.example:8080", "8080", "own.example:8080"),
        ),
        (Some("a"), Some("00080"), "http", ("a", "80", "a")),
        (Some("a"), Some("0"), "http", ("a", "80", "a")),
        (Some("a:0"), None, "https", ("a", "443", "a")),
        (Some("a:0"), Some("99"), "https", ("a", "99", "a:99")),
        (Some("a"), Some("65536"), "http", ("a", "80", "a")),
        (Some("a"), Some("x"), "http", ("a", "80", "a")),
    ] {
        let mut told = vec![("X-Forwarded-Proto", scheme)];
        told.extend(host.map(|host| ("X-Forwarded-Host", host)));
        told.extend(port.map(|port| ("X-Forwarded-Port", port)));
        let (_, _, sent_host, sent_port, forwarded) = sent(&told);
        assert_eq!(
            (sent_host.as_str(), sent_port.as_str()),
            (expected.0, expected.1),
            "{told:?}"
        );
        let named = format!(";host=\"{}\";", expected.2);
        assert!(forwarded.contains(&named), "{told:?}: {forwarded}");
    }
}

#[test]
fn x_forwarded_fields_win_over_forwarded() {
    let honest = [
        ("X-Forwarded-For", "203.0.113.9"),
        ("X-Forwarded-Proto", "http"),
        ("X-Forwarded-Host", "shop.example"),
    ];
    for spoofed in [
        "for=6.6.6.6",
        "for=203.0.113.9, for=6.6.6.6",
        "for=6.6.6.6, for=203.0.113.9",
        "for=203.0.113.9;proto=https",
        "for=203.0.113.9;host=evil",
        "for=203.0.113.9;host=\"shop.example:99\"",
        "for=unknown",
        "for=\"",
        "for=203.0.113.9;for=203.0.113.9",
        "for=203.0.113.9;host=\"evil.example#\";proto=gopher",
        "for=203.0.113.9;x=\";host=evil.example;y=\"",
        "garbage",
    ] {
        let told = [&honest[..], &[("Forwarded", spoofed)]].concat();
        check(
            &told,
            [
                "203.0.113.9, 10.0.0.1",
                "http",
                "shop.example",
                "80",
                &format!("for=203.0.113.9;host=\"shop.example\";proto=http, {OWN}"),
            ],
        );
    }
    let same = "for=\"203.0.113.9:1\";proto=HTTP;host=\"SHOP.example:80\";by=_x";
    let told = [&honest[..], &[("Forwarded", same)]].concat();
    let same = format!("for=203.0.113.9;host=\"shop.example\";proto=http, {OWN}");
    assert_eq!(sent(&told).4, same);
}

#[test]
fn a_malformed_forwarded_alone_is_replaced() {
    for malformed in ["for=\"", "for=a, \"", "x", "for=6.6.6.6;for=6.6.6.6"] {
        check(
            &[("Forwarded", malformed)],
            ["10.0.0.1", "http", "own.example:8080", "8080", OWN],
        );
    }
}

#[test]
fn lists_are_read_from_the_right_up_to_the_client() {
    // The client claims to be 6.6.6.6 over HTTPS; two trusted proxies follow.
    check(
        &[
            ("X-Forwarded-For", "6.6.6.6, 203.0.113.9, 10.0.0.3, fd00::2"),
            ("X-Forwarded-Proto", "https, http, https, https"),
            ("X-Forwarded-Host", "evil, shop.example, inner, inner"),
            ("X-Forwarded-Port", "1, 8080, 3, 4"),
        ],
        [
            "6.6.6.6, 203.0.113.9, 10.0.0.3, fd00::2, 10.0.0.1",
            "http",
            "shop.example",
            "8080",
            &format!(
                "for=6.6.6.6, for=203.0.113.9;host=\"shop.example:8080\";proto=http, for=10.0.0.3, \
                 for=\"[fd00::2]\", {OWN}"
            ),
        ],
    );
    let list = "for=6.6.6.6;proto=https;host=evil, for=203.0.113.9;proto=http;host=shop.example, \
                for=10.0.0.3;proto=https;host=inner";
    check(
        &[("Forwarded", list)],
        [
            "6.6.6.6, 203.0.113.9, 10.0.0.3, 10.0.0.1",
            "http",
            "shop.example",
            "80",
            &format!(
                "for=6.6.6.6, for=203.0.113.9;host=\"shop.example\";proto=http, \
                 for=10.0.0.3;host=\"inner\";proto=https, {OWN}"
            ),
        ],
    );
    // All are trusted, and single values are those of the outermost proxy.
    check(
        &[
            ("X-Forwarded-For", "10.0.0.9, 10.0.0.8"),
            ("X-Forwarded-Proto", "https"),
        ],
        [
            "10.0.0.9, 10.0.0.8, 10.0.0.1",
            "https",
            "own.example:8080",
            "8080",
            &format!("for=10.0.0.9;host=\"own.example:8080\";proto=https, for=10.0.0.8, {OWN}"),
        ],
    );
}

#[test]
fn long_lists_keep_their_last_members() {
    let addresses: Vec<_> = (0..200).map(|number| format!("192.0.2.{number}")).collect();
    let (sent, .., forwarded) = sent(&[("X-Forwarded-For", &addresses.join(","))]);
    assert_eq!(sent.split(", ").count(), CHAIN_MAX + 1);
    assert!(sent.ends_with("192.0.2.199, 10.0.0.1"), "{sent}");
    assert_eq!(forwarded.split(", ").count(), CHAIN_MAX + 1);
}

#[test]
fn invalid_values_are_no_facts() {
    for (name, value) in [
        ("X-Forwarded-Proto", "ftp"),
        ("X-Forwarded-Proto", "\u{e9}"),
        ("X-Forwarded-Host", "a b"),
        ("X-Forwarded-Host", "a\"b"),
        ("X-Forwarded-Host", "a/b"),
        ("X-Forwarded-Host", "\u{e9}"),
        ("X-Forwarded-Port", "-1"),
        ("X-Forwarded-For", ","),
    ] {
        check(
            &[(name, value)],
            ["10.0.0.1", "http", "own.example:8080", "8080", OWN],
        );
    }
}

#[test]
fn the_scheme_of_a_websocket_is_that_of_its_request() {
    assert_eq!(sent(&[("X-Forwarded-Proto", "wss")]).1, "https");
    assert_eq!(sent(&[("X-Forwarded-Proto", "WS")]).1, "http");
}

#[test]
fn fields_that_tell_the_same_facts_in_another_way_agree_with_them() {
    let mut head = RequestHead::new(blitz_http::Method::Get, "/");
    for (name, value) in [
        ("X-Forwarded-For", "6.6.6.6, 203.0.113.9"),
        ("X-Forwarded-Proto", "http"),
        ("X-Forwarded-Ssl", "on"),
        ("X-Forwarded-Scheme", "http"),
        ("X-Forwarded-Protocol", "ssl"),
        ("X-Scheme", "https"),
        ("X-Url-Scheme", "HTTP"),
        ("Front-End-Https", "On"),
        ("X-Real-IP", "6.6.6.6"),
        ("X-Forwarded-Prefix", "/app"),
    ] {
        head.fields.append(name, value);
    }
    let peer = Peer {
        remote: Some(([10, 0, 0, 1], 5000).into()),
        listener: None,
        scheme: Scheme::Http,
        tls: None,
    };
    let trusted = ["10.0.0.0/8".parse().unwrap()].into_iter().collect();
    add_forwarding_of_proxy(&mut head, &peer, &trusted);
    let value = |name: &str| head.fields.get_str(name).map(str::to_owned);
    assert_eq!(value("X-Real-IP").as_deref(), Some("203.0.113.9"));
    assert_eq!(value("X-Forwarded-Ssl"), None);
    assert_eq!(value("X-Forwarded-Protocol"), None);
    assert_eq!(value("X-Scheme"), None);
    assert_eq!(value("X-Url-Scheme").as_deref(), Some("HTTP"));
    assert_eq!(value("Front-End-Https"), None);
    assert_eq!(value("X-Forwarded-Scheme").as_deref(), Some("http"));
    assert_eq!(value("X-Forwarded-Prefix").as_deref(), Some("/app"));
}
