use blitz_http::{Peer, REQUEST_ID_BYTES_MAX, Scheme, Status, Version};

use super::connection_options::CONNECTION_OPTIONS_MAX;
use super::*;
use crate::trusted::TrustedProxies;
use crate::websocket::WebSocket;

const FIXED_ID: &str = "00000000000000ff00000000000000ff";

fn request(target: &str, fields: &[(&str, &str)]) -> RequestHead {
    let mut head = RequestHead::parse("GET", target).unwrap();
    head.set_authority("app.example:8080");
    for (name, value) in fields {
        head.fields.try_append(*name, value).unwrap();
    }
    head
}

fn peer(remote: &str) -> Peer {
    Peer {
        remote: Some(remote.parse().unwrap()),
        listener: Some("192.0.2.80:8080".parse().unwrap()),
        scheme: Scheme::Http,
        tls: None,
    }
}

fn edit(head: &mut RequestHead, peer: &Peer, trusted: bool) -> Result<(), NotForwarded> {
    edit_with(head, peer, trusted, false)
}

fn edit_with(
    head: &mut RequestHead,
    peer: &Peer,
    trusted: bool,
    sends_via: bool,
) -> Result<(), NotForwarded> {
    let loop_id = "this-proxy".parse().unwrap();
    let client = ForwardedClient {
        peer,
        is_trusted: trusted,
        trusted_proxies: &TrustedProxies::default(),
        upgrade: WebSocket::requested(head).map(|_| "websocket"),
        length: match head.fields.get_str(Name::ContentLength) {
            Some(length) => BodyLength::Known(length.parse().unwrap()),
            None if head.fields.contains(Name::TransferEncoding) => BodyLength::Unknown,
            None => BodyLength::Empty,
        },
        default_authority: "upstream:80",
        random: || 255,
        loop_id: &loop_id,
        sends_via,
        sends_certificate: false,
    };
    edit_request(head, &client, &mut b"leftover".to_vec()).map(|_| ())
}

/// The fields that the upstream gets for an untrusted client's request, names in lower case.
fn forwarded(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut head = request("/", fields);
    edit(&mut head, &peer("198.51.100.7:5000"), false).unwrap();
    lines(&head.fields)
}

fn lines(fields: &Fields) -> Vec<(String, String)> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    fields
        .iter()
        .map(|(name, value)| (name.as_str().to_ascii_lowercase(), text(value)))
        .collect()
}

fn names(fields: &[(&str, &str)]) -> Vec<String> {
    forwarded(fields)
        .into_iter()
        .map(|(name, _)| name)
        .collect()
}

fn value_of(lines: &[(String, String)], name: &str) -> Option<String> {
    let mut values = lines
        .iter()
        .filter(|(other, _)| other == name)
        .map(|(_, value)| value.clone());
    let value = values.next();
    assert_eq!(values.next(), None, "{name} twice");
    value
}

const ADDED: [&str; 7] = [
    "cdn-loop",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-port",
    "x-forwarded-host",
    "forwarded",
    "x-request-id",
];

#[test]
fn the_upstream_gets_the_clients_address_scheme_and_host() {
    let lines = forwarded(&[]);
    let value = |name| value_of(&lines, name).unwrap();
    assert_eq!(value("cdn-loop"), "this-proxy");
    assert_eq!(value("x-forwarded-for"), "198.51.100.7");
    assert_eq!(value("x-forwarded-proto"), "http");
    assert_eq!(value("x-forwarded-port"), "8080");
    assert_eq!(value("x-forwarded-host"), "app.example:8080");
    assert_eq!(
        value("forwarded"),
        "for=198.51.100.7;host=\"app.example:8080\";proto=http"
    );
    assert_eq!(value("x-request-id"), FIXED_ID);
    assert_eq!(lines.len(), ADDED.len());
}

/// As HTTP/1.0 allows. The upstream's own name is no fact about the client.
#[test]
fn a_request_without_host_has_no_forwarded_host() {
    for trusted in [false, true] {
        let mut head = RequestHead::parse("GET", "/").unwrap();
        head.fields.append(Name::XForwardedFor, "192.0.2.1");
        edit(&mut head, &peer("198.51.100.7:5000"), trusted).unwrap();
        assert_eq!(head.authority(), Some("upstream:80"));
        assert!(!head.fields.contains(Name::XForwardedHost), "{trusted}");
        assert_eq!(head.fields.get_str(Name::XForwardedPort), Some("80"));
        let forwarded = head.fields.get_str(Name::Forwarded).unwrap();
        assert!(!forwarded.contains("host="), "{trusted}: {forwarded}");
        assert!(
            forwarded.ends_with("for=198.51.100.7;proto=http"),
            "{forwarded}"
        );
    }
}

#[test]
fn ipv6_is_quoted_and_in_brackets_in_forwarded_only() {
    let mut head = request("/", &[]);
    edit(&mut head, &peer("[2001:db8::1]:5000"), false).unwrap();
    let lines = lines(&head.fields);
    assert_eq!(value_of(&lines, "x-forwarded-for").unwrap(), "2001:db8::1");
    let forwarded = value_of(&lines, "forwarded").unwrap();
    assert!(
        forwarded.starts_with("for=\"[2001:db8::1]\";"),
        "{forwarded}"
    );
}

#[test]
fn a_client_on_a_unix_socket_has_no_address() {
    let mut head = request("/", &[("X-Forwarded-For", "6.6.6.6")]);
    let unix_client = Peer {
        remote: None,
        listener: None,
        scheme: Scheme::Http,
        tls: None,
    };
    edit(&mut head, &unix_client, false).unwrap();
    assert!(!head.fields.contains(Name::XForwardedFor));
    assert_eq!(head.fields.get_str(Name::XForwardedPort), Some("8080"));
    assert!(
        head.fields
            .get_str(Name::Forwarded)
            .unwrap()
            .starts_with("for=unknown;")
    );
}

#[test]
fn forwarding_fields_of_untrusted_clients_are_replaced() {
    let lines = forwarded(&[
        ("X-Forwarded-For", "6.6.6.6"),
        ("x-forwarded-for", "7.7.7.7"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "evil.example"),
        ("X-Forwarded-Port", "1"),
        ("X-Forwarded-Prefix", "/evil"),
        ("X-Forwarded-Ssl", "on"),
        ("X-Scheme", "https"),
        ("X_Scheme", "https"),
        ("X-Url-Scheme", "https"),
        ("Front-End-Https", "on"),
        ("X-Real-IP", "6.6.6.6"),
        ("Forwarded", "for=6.6.6.6"),
        ("Client-Cert", ":AAAA:"),
        ("Client-Cert-Chain", ":AAAA:"),
    ]);
    let mut names: Vec<_> = lines.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    let mut expected = ADDED;
    expected.sort_unstable();
    assert_eq!(names, expected);
    assert!(
        lines
            .iter()
            .all(|(_, value)| !value.contains("6.6") && !value.contains("evil"))
    );
}

#[test]
fn forwarding_fields_of_a_trusted_proxy_are_extended_by_its_address() {
    let mut head = request(
        "/",
        &[
            ("X-Forwarded-For", "203.0.113.9, 203.0.113.10"),
            ("X-Forwarded-For", "203.0.113.11"),
            ("X-Forwarded-Proto", "https"),
            ("X-Forwarded-Host", "shop.example"),
            ("X-Forwarded-Prefix", "/shop"),
            ("Forwarded", "for=203.0.113.9;proto=https"),
            ("Client-Cert", ":AAAA:"),
        ],
    );
    edit(&mut head, &peer("10.0.0.1:5000"), true).unwrap();
    let lines = lines(&head.fields);
    let value = |name| value_of(&lines, name).unwrap();
    assert_eq!(
        value("x-forwarded-for"),
        "203.0.113.9, 203.0.113.10, 203.0.113.11, 10.0.0.1"
    );
    assert_eq!(value("x-forwarded-proto"), "https");
    assert_eq!(value("x-forwarded-host"), "shop.example");
    assert_eq!(value("x-forwarded-prefix"), "/shop");
    assert_eq!(
        value("forwarded"),
        "for=203.0.113.9, for=203.0.113.10, for=203.0.113.11;host=\"shop.example\";proto=https, \
         for=10.0.0.1;host=\"app.example:8080\";proto=http",
        "X-Forwarded-For has other addresses"
    );
    assert_eq!(
        value_of(&lines, "client-cert"),
        None,
        "a certificate comes from TLS only"
    );
}

#[test]
fn hop_by_hop_fields_are_not_forwarded() {
    let names = names(&[
        ("Connection", "keep-alive, X-Private , x-other"),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Connection", "keep-alive"),
        ("TE", "gzip"),
        ("Transfer-Encoding", "chunked"),
        ("Upgrade", "h2c"),
        ("HTTP2-Settings", "AAMAAABkAAQAAP__"),
        ("Proxy", "http://evil.example"),
        ("Proxy-Authorization", "Basic eDp5"),
        ("X-Private", "1"),
        ("x-OTHER", "1"),
        ("X-Kept", "1"),
    ]);
    assert_eq!(names[0], "x-kept");
    assert_eq!(names[1..], ADDED.map(String::from));
}

#[test]
fn connection_cannot_remove_end_to_end_fields() {
    let fields = [
        (
            "Connection",
            "close, Host, Content-Length, Authorization, Cookie, Content-Type, Via",
        ),
        (
            "Connection",
            "X-Forwarded-For, X-Request-Id, Forwarded, Cache-Control, Origin",
        ),
        ("Host", "app.example:8080"),
        ("Content-Length", "0"),
        ("Authorization", "Bearer x"),
        ("Cookie", "a=b"),
        ("Content-Type", "text/plain"),
        ("Cache-Control", "no-cache"),
        ("Origin", "http://app.example"),
        ("X-Request-Id", "from-client"),
    ];
    let lines = forwarded(&fields);
    for (name, value) in &fields[2..] {
        assert_eq!(
            value_of(&lines, &name.to_ascii_lowercase()).as_deref(),
            Some(*value)
        );
    }
    assert_eq!(
        value_of(&lines, "x-forwarded-for").as_deref(),
        Some("198.51.100.7")
    );
}

#[test]
fn too_many_connection_options_are_rejected() {
    let options = vec!["x"; CONNECTION_OPTIONS_MAX + 1].join(",");
    let mut head = request("/", &[("Connection", &options)]);
    let result = edit(&mut head, &peer("192.0.2.1:1"), false);
    assert_eq!(result, Err(NotForwarded::TooManyConnectionOptions));
    let empties = ",".repeat(1000);
    let mut head = request("/", &[("Connection", &empties)]);
    assert_eq!(edit(&mut head, &peer("192.0.2.1:1"), false), Ok(()));
}

#[test]
fn only_a_websocket_may_upgrade() {
    let upgrade = |fields: &[(&str, &str)]| value_of(&forwarded(fields), "upgrade");
    let connection = ("Connection", "keep-alive, Upgrade");
    assert_eq!(
        upgrade(&[connection, ("Upgrade", "WebSocket")]).as_deref(),
        Some("websocket")
    );
    assert_eq!(
        upgrade(&[connection, ("Upgrade", "h2c, websocket")]).as_deref(),
        Some("websocket")
    );
    assert_eq!(upgrade(&[connection, ("Upgrade", "h2c")]), None);
    assert_eq!(upgrade(&[connection, ("Upgrade", "TLS/1.0")]), None);
    assert_eq!(
        upgrade(&[("Upgrade", "websocket")]),
        None,
        "Connection must name it"
    );
}

#[test]
fn te_is_kept_for_trailers_only() {
    let te = |value| value_of(&forwarded(&[("TE", value)]), "te");
    assert_eq!(te("trailers").as_deref(), Some("trailers"));
    assert_eq!(te("gzip, Trailers;q=1").as_deref(), Some("trailers"));
    assert_eq!(te("gzip;q=0.5"), None);
}

#[test]
fn a_safe_request_id_is_kept() {
    let id = |value| value_of(&forwarded(&[("X-Request-Id", value)]), "x-request-id").unwrap();
    assert_eq!(id("abc-123"), "abc-123");
    for refused in [
        "with blank",
        "",
        "a\"b",
        "a,b",
        "a;b=c",
        "<script>",
        "{id}",
        "\u{e9}",
    ] {
        assert_eq!(id(refused), FIXED_ID, "{refused}");
    }
    assert_eq!(id(&"x".repeat(REQUEST_ID_BYTES_MAX + 1)), FIXED_ID);
}

#[test]
fn the_clients_host_is_kept_and_a_missing_one_is_the_targets() {
    let mut head = request("/", &[]);
    edit(&mut head, &peer("192.0.2.1:1"), false).unwrap();
    assert_eq!(head.authority(), Some("app.example:8080"));
    let mut head = RequestHead::parse("GET", "/").unwrap();
    head.version = Version::Http10;
    edit_with(&mut head, &peer("192.0.2.1:1"), false, true).unwrap();
    assert_eq!(head.authority(), Some("upstream:80"));
    assert_eq!(head.fields.get_str(Name::Via), Some("1.0 blitz"));
}

#[test]
fn responses_get_no_hop_by_hop_fields_and_via_by_choice() {
    let mut head = ResponseHead::new(Status::OK);
    for (name, value) in [
        ("Connection", "close, X-Hop, Set-Cookie"),
        ("Keep-Alive", "timeout=5"),
        ("Transfer-Encoding", "chunked"),
        ("Upgrade", "h2c"),
        ("Alt-Svc", "h3=\":8543\""),
        ("Proxy-Authenticate", "Basic"),
        ("X-Hop", "1"),
        ("Set-Cookie", "a=b"),
        ("Server", "upstream"),
        ("Date", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("Via", "1.1 inner"),
    ] {
        head.fields.append(name, value);
    }
    edit_response(&mut head, false, &mut Vec::new());
    let names: Vec<_> = lines(&head.fields)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["set-cookie", "server", "date", "via"]);
    edit_response(&mut head, true, &mut Vec::new());
    let vias: Vec<_> = head.fields.get_all(Name::Via).collect();
    assert_eq!(vias, [b"1.1 inner".as_slice(), b"1.1 blitz"]);
}

#[test]
fn trailers_cannot_contain_fields_of_a_head() {
    let mut fields = Fields::new();
    for name in [
        "Content-Length",
        "Transfer-Encoding",
        "Host",
        "Authorization",
        "Set-Cookie",
        "X-Forwarded-For",
        "X-Forwarded-Prefix",
        "Forwarded",
        "Alt-Svc",
        "CDN-Loop",
        "If-Match",
        "Location",
        "Origin",
        "WWW-Authenticate",
        "Grpc-Status",
        "Content-Digest",
    ] {
        fields.append(name, "1");
    }
    edit_trailers(&mut fields);
    let names: Vec<_> = lines(&fields).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["grpc-status", "content-digest"]);
}

#[test]
fn spoofed_fields_are_removed() {
    let spoofed = [
        ("X_Forwarded_For", "6.6.6.6"),
        ("x-forwarded_for", "6.6.6.6"),
        ("X_FORWARDED-PROTO", "https"),
        ("X_Forwarded_Prefix_Of_Some_Very_Long_And_Private_Name", "/"),
        ("X_Real_IP", "6.6.6.6"),
        ("Client_Cert", ":AAAA:"),
        ("Proxy_Authorization", "Basic eDp5"),
        ("Transfer_Encoding", "chunked"),
        ("X.Forwarded.For", "6.6.6.6"),
        ("x_forwarded.host", "evil"),
        ("X-Forwarded.Anything", "at all"),
        ("X.Real-IP", "6.6.6.6"),
        ("X~Forwarded~Proto", "https"),
        ("Client.Cert", ":AAAA:"),
        ("client_cert.chain", ":AAAA:"),
        // Gunicorn drops this from the path.
        ("SCRIPT_NAME", "/x"),
        ("script_name", "/x"),
        ("Path_Info", "/admin"),
        ("Content_Length", "5"),
        ("content.length", "5"),
        ("Content_Encoding", "gzip"),
        ("content.encoding", "gzip"),
        ("Transfer.Encoding", "chunked"),
        ("Keep.Alive", "timeout=5"),
        ("Proxy_Connection", "close"),
        ("HTTP2.Settings", "AAAA"),
        ("Snake_Case", "is not spoofed"),
        ("Dotted.Name", "not spoofed either"),
        ("Content_Lengths", "not spoofed either"),
        ("XX-Forwarded.For", "not spoofed either"),
    ];
    let kept = [
        "snake_case",
        "dotted.name",
        "content_lengths",
        "xx-forwarded.for",
    ];
    assert_eq!(names(&spoofed)[..4], kept);
    assert_eq!(names(&spoofed)[4..], ADDED.map(String::from));
    let mut head = request("/", &spoofed);
    edit(&mut head, &peer("10.0.0.1:1"), true).unwrap();
    let left: Vec<String> = lines(&head.fields).into_iter().map(|line| line.0).collect();
    assert_eq!(left[..4], kept, "trusted or not");
    let mut trailers = Fields::new();
    spoofed
        .iter()
        .for_each(|(name, value)| trailers.append(*name, value));
    edit_trailers(&mut trailers);
    assert_eq!(trailers.len(), 4);
}

#[test]
fn connection_cannot_remove_fields_of_a_trusted_proxy() {
    let mut head = request(
        "/",
        &[
            ("Connection", "X-Forwarded-Client-Cert, X-Forwarded-For"),
            ("X-Forwarded-Client-Cert", "Hash=1"),
            ("X-Forwarded-For", "192.0.2.1"),
        ],
    );
    edit(&mut head, &peer("10.0.0.1:1"), true).unwrap();
    let lines = lines(&head.fields);
    assert_eq!(
        value_of(&lines, "x-forwarded-client-cert").as_deref(),
        Some("Hash=1")
    );
    assert_eq!(
        value_of(&lines, "x-forwarded-for").as_deref(),
        Some("192.0.2.1, 10.0.0.1")
    );
}

#[test]
fn the_port_is_that_of_the_request() {
    for (scheme, authority, port) in [
        (Scheme::Http, "a.example", "80"),
        (Scheme::Https, "a.example", "443"),
        (Scheme::Https, "a.example:8443", "8443"),
        (Scheme::Http, "a.example:443", "443"),
        (Scheme::Http, "a.example:", "80"),
        (Scheme::Https, "[2001:db8::1]", "443"),
        (Scheme::Https, "[2001:db8::1]:8443", "8443"),
        (Scheme::Http, "192.0.2.1", "80"),
        (Scheme::Http, "a.example:00080", "80"),
        (Scheme::Https, "a.example:0", "443"),
        (Scheme::Http, "a.example:000", "80"),
        (Scheme::Http, "a.example:65535", "65535"),
    ] {
        let mut head = request("/", &[]);
        head.set_authority(authority);
        let peer = Peer {
            scheme,
            ..peer("198.51.100.7:5000")
        };
        edit(&mut head, &peer, false).unwrap();
        let sent = head.fields.get_str(Name::XForwardedPort);
        assert_eq!(sent, Some(port), "{authority}");
    }
}

#[test]
fn a_loop_is_found_and_other_members_are_kept() {
    let mut head = request("/", &[("CDN-Loop", "a, this-proxy; v=1")]);
    let edited = edit(&mut head, &peer("192.0.2.1:1"), false);
    assert_eq!(edited, Err(NotForwarded::Loop));
    let fields = [
        ("CDN-Loop", "a; x=\"this-proxy\", this-proxy-2"),
        ("Connection", "CDN-Loop"),
        ("CDN-Loop", "b"),
    ];
    let mut head = request("/", &fields);
    edit(&mut head, &peer("192.0.2.1:1"), false).unwrap();
    let members: Vec<_> = head.fields.get_all(Name::CdnLoop).collect();
    assert_eq!(members, [fields[0].1, "b", "this-proxy"].map(str::as_bytes));
}

#[test]
fn two_request_ids_are_replaced_by_one() {
    let fields = [("X-Request-Id", "one"), ("X-Request-Id", "two")];
    assert_eq!(
        value_of(&forwarded(&fields), "x-request-id").as_deref(),
        Some(FIXED_ID)
    );
}

#[test]
fn all_fields_that_connection_names_in_a_response_are_removed() {
    for others in [1, CONNECTION_OPTIONS_MAX, 500] {
        let mut head = ResponseHead::new(Status::OK);
        let names = (0..others).map(|number| format!("x-{number}"));
        let names = names.collect::<Vec<_>>().join(", ");
        head.fields
            .append(Name::Connection, format!("X-First, Set-Cookie, {names}"));
        head.fields.append(Name::Connection, "close, X-Last");
        for name in ["x-first", "X-LAST", "X-0", "Set-Cookie", "X-Other"] {
            head.fields.append(name, "1");
        }
        edit_response(&mut head, false, &mut Vec::new());
        let names = lines(&head.fields).into_iter().map(|(name, _)| name);
        assert_eq!(names.collect::<Vec<_>>(), ["set-cookie", "x-other"]);
    }
}

#[test]
fn one_expectation_is_forwarded_with_content_and_none_without_or_of_http_1_0() {
    for (version, framing, is_forwarded) in [
        (Version::Http10, ("Content-Length", "5"), false),
        (Version::Http11, ("Content-Length", "5"), true),
        (Version::Http11, ("Transfer-Encoding", "chunked"), true),
        (Version::Http2, ("Content-Length", "5"), true),
        (Version::Http11, ("Content-Length", "0"), false),
        (Version::Http11, ("Accept", "*/*"), false),
        (Version::Http3, ("Accept", "*/*"), false),
    ] {
        for lines in [1, 2, 3] {
            let mut fields = vec![framing];
            fields.resize(1 + lines, ("Expect", "100-Continue"));
            let mut head = request("/", &fields);
            head.version = version;
            edit(&mut head, &peer("192.0.2.1:1"), false).unwrap();
            let sent: Vec<_> = head.fields.get_all(Name::Expect).collect();
            let expected: &[&[u8]] = match is_forwarded {
                true => &[b"100-continue"],
                false => &[],
            };
            assert_eq!(sent, expected, "{version:?}, {framing:?}, {lines} lines");
        }
    }
}
