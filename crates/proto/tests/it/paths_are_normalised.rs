//! The matched path and the sent path identify the same resource (rule 10).

use blitz_proto::path::{normalize, remove_dot_segments, sent_len};
use blitz_proto::{ErrorKind, Method, RequestHead};
use proptest::prelude::*;

fn normal(path: &str) -> Result<String, &'static str> {
    let mut out = String::from("before");
    normalize(path, &mut out).map_err(ErrorKind::rule)?;
    Ok(out
        .strip_prefix("before")
        .expect("text is only appended")
        .to_owned())
}

#[test]
fn dot_segments_and_unreserved_escapes_disappear() {
    for (path, expected) in [
        ("/", "/"),
        ("/a/b", "/a/b"),
        ("/a/./b", "/a/b"),
        ("/a/b/.", "/a/b/"),
        ("/a/b/..", "/a/"),
        ("/a/..", "/"),
        ("/.", "/"),
        ("/a/../b/../c", "/c"),
        ("/a//../b", "/a/b"),
        ("//..", "/"),
        ("/a/b//c", "/a/b//c"),
        ("/...", "/..."),
        ("/.a/..b/c..", "/.a/..b/c.."),
        ("/%41%7a%30%2D%2e%5F%7E", "/Az0-._~"),
        ("/%2e/a", "/a"),
        ("/a/%2E%2e/b", "/b"),
        ("/a%2fb%5c", "/a%2Fb%5C"),
        ("/%e2%82%ac", "/%E2%82%AC"),
        ("/%25%32%65", "/%252e"),
        ("/a%3f", "/a%3F"),
    ] {
        assert_eq!(normal(path).as_deref(), Ok(expected), "{path}");
    }
}

#[test]
fn invalid_paths_are_refused() {
    for (path, rule) in [
        ("/..", "target-above-root"),
        ("/a/../..", "target-above-root"),
        ("/%2e%2e/a", "target-above-root"),
        ("/%", "target-escape-malformed"),
        ("/%4", "target-escape-malformed"),
        ("/%4/1", "target-escape-malformed"),
        ("/%g1", "target-escape-malformed"),
        ("/%%41", "target-escape-malformed"),
        ("/%00", "target-nul"),
        ("/a/%00/..", "target-nul"),
    ] {
        assert_eq!(normal(path), Err(rule), "{path}");
    }
}

#[test]
fn ambiguous_dot_segments_are_refused() {
    for path in [
        "/a/..%2Fsecret",
        "/a/..%2fsecret",
        "/a/..%5Cb",
        "/a/..%5c",
        "/a/%2e%2e%2fb",
        "/a/.%2E%2Fb",
        "/a/x%2F..%2Fb",
        "/a/x%2F..",
        "/a/x%5c.%2f..",
        "/a/%2F..",
        "/a/x%2F.",
        "/a/.%2Fb",
        "/a/..;/b",
        "/a/..;x=1/b",
        "/a/%2e%2e;x",
        "/.;/x",
        "/a/..%3Bx/b",
        "/a/x;y%2F../b",
        "/a/x%2F..;y/b",
        "/a/..\\b",
        "/a/..;/../b",
    ] {
        assert_eq!(normal(path), Err("target-dot-segment-ambiguous"), "{path}");
        let mut sent = String::new();
        assert!(remove_dot_segments(path, &mut sent).is_err(), "{path}");
    }
    for path in [
        "/a/...%2Fb",
        "/a/..x%2Fb",
        "/a/.x;y",
        "/a/x;y=../b",
        "/a/x;..",
        "/a/..=;x",
        "/a/%252e%252e%252fb",
        "/a/..%20%2Fb",
        "/a%2F%5Cb;c",
        "/..a/a..",
    ] {
        assert_eq!(normal(path).as_deref(), Ok(path), "{path}");
    }
}

#[test]
fn the_sent_path_keeps_the_received_spelling() {
    for (target, matched, sent) in [
        ("/%61b/%7ec?d", "/ab/~c", "/%61b/%7ec?d"),
        ("/a%2fb?%2f", "/a%2Fb", "/a%2fb?%2f"),
        ("/a/../%62%c3%bc?x", "/b%C3%BC", "/%62%c3%bc?x"),
        ("/x/%2e/%79/..?", "/x/", "/x/?"),
        ("/a/../b", "/b", "/b"),
        ("/a%3bb/%61", "/a%3Bb/a", "/a%3bb/%61"),
        ("http://h/%61/./b?q", "/a/b", "/%61/b?q"),
    ] {
        let head = RequestHead::parse("GET", target).expect("a good target");
        assert_eq!(
            (head.path(), head.path_and_query()),
            (matched, sent),
            "{target}"
        );
        assert_eq!(
            head.sent_path(),
            sent.split('?').next().unwrap_or(sent),
            "{target}"
        );
    }
}

#[test]
fn a_matched_prefix_is_located_in_the_sent_path() {
    for (sent, matched, len, expected) in [
        ("/api/x", "/api/x", 4, 4),
        ("/%61pi/x", "/api/x", 4, 6),
        ("/ap%69/x", "/api/x", 4, 6),
        ("/ap%69", "/api", 4, 6),
        ("/a%2fb/%63", "/a%2Fb/c", 6, 6),
        ("/a%2fb/%63", "/a%2Fb/c", 8, 10),
        ("/%61%25%62", "/a%25b", 5, 7),
        ("/a", "/a", 0, 0),
    ] {
        assert_eq!(sent_len(sent, matched, len), expected, "{sent}");
    }
}

#[test]
fn raw_path_and_query_survive_normalising() {
    let head = RequestHead::parse("GET", "/a/../b%2d?x=/../%zz").expect("a good target");
    assert_eq!(head.raw_path(), "/a/../b%2d");
    assert_eq!(head.path(), "/b-");
    assert_eq!(head.query(), Some("x=/../%zz"));
    assert_eq!(head.path_and_query(), "/b%2d?x=/../%zz");
}

#[test]
fn raw_bytes_and_their_escapes_are_one_path() {
    for (raw, encoded) in [
        ("/caf\u{e9}?q=\u{e9}", "/caf%C3%A9?q=%C3%A9"),
        (
            "/<a>\"{b}|^`/\u{1f600}",
            "/%3Ca%3E%22%7Bb%7D%7C%5E%60/%F0%9F%98%80",
        ),
        ("/?a\\b<", "/?a%5Cb%3C"),
        ("/%61/./\u{e9}%2f?%", "/%61/%C3%A9%2f?%"),
        ("http://h/\u{e9}?|", "http://h/%C3%A9?%7C"),
    ] {
        let raw = RequestHead::parse("GET", raw).expect("raw bytes are accepted");
        let encoded = RequestHead::parse("GET", encoded).expect("a good target");
        assert_eq!(raw.path(), encoded.path());
        assert_eq!(raw.path_and_query(), encoded.path_and_query());
        assert_eq!(raw.query(), encoded.query());
    }
    let head = RequestHead::parse("GET", "/\u{e9}/../x").expect("raw bytes are accepted");
    assert_eq!(head.raw_path(), "/%C3%A9/../x");
    assert_eq!((head.path(), head.sent_path()), ("/x", "/x"));
    for target in [
        "/a\\b",
        "/\u{e9}\\",
        "/<\\?",
        "/\u{7f}\u{e9}",
        "/\u{e9} x",
        "http://\u{e9}/",
    ] {
        assert!(RequestHead::parse("GET", target).is_err(), "{target:?}");
    }
}

#[test]
fn parts_of_a_target_are_replaced_one_by_one() {
    let mut head = RequestHead::new(Method::Get, "/a?b=c");
    head.set_path("/x/y");
    assert_eq!((head.path_and_query(), head.raw_path()), ("/x/y?b=c", "/a"));
    head.set_authority("example.org:81");
    assert_eq!(head.authority(), Some("example.org:81"));
    head.clear();
    assert_eq!((head.path_and_query(), head.authority()), ("/", None));
    head.set_path("/only");
    assert_eq!(
        (head.path_and_query(), head.path(), head.raw_path()),
        ("/only", "/only", "/only")
    );
}

#[test]
#[should_panic(expected = "invalid path")]
fn setting_a_path_that_would_split_the_request_line_panics() {
    RequestHead::default().set_path("/a HTTP/1.1\r\nX: y");
}

/// A path as the most lenient server reads it: all escapes decoded, `\` as `/`, parameters dropped,
/// empty and dot segments resolved. `None` if it leads above the root.
fn lenient_segments(path: &str) -> Option<Vec<String>> {
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|d| std::str::from_utf8(d).ok());
        let escape = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match escape.filter(|_| byte == b'%') {
            Some(decoded) => {
                bytes.push(decoded);
                rest = &after[2..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    let text = String::from_utf8_lossy(&bytes).replace('\\', "/");
    let mut segments = Vec::new();
    for segment in text.split('/') {
        match segment.split(';').next().unwrap_or_default() {
            "" | "." => {}
            ".." => {
                segments.pop()?;
            }
            name => segments.push(name.to_owned()),
        }
    }
    Some(segments)
}

proptest! {
    /// An accepted path below a prefix stays below it for every server that reads the sent path.
    #[test]
    fn no_accepted_path_leaves_its_matched_prefix(
        pieces in prop::collection::vec(
            prop::sample::select(&[
                "/", ".", "..", "a", "%61", "%2e", "%2E", "%2F", "%2f", "%5C", "%5c", ";", "%3b",
                ";x=1", "%25", "%20", "secret", "\\",
            ][..]),
            0..12,
        ),
    ) {
        let path = format!("/a/{}", pieces.concat());
        let Ok(head) = RequestHead::parse("GET", &path) else {
            return Ok(());
        };
        prop_assert_eq!(normal(head.sent_path()), Ok(head.path().to_owned()));
        if head.path().starts_with("/a/") {
            let segments = lenient_segments(head.sent_path());
            let first = segments.as_ref().and_then(|all| all.first());
            prop_assert_eq!(first.map(String::as_str), Some("a"), "{:?}", head.sent_path());
            let len = sent_len(head.sent_path(), head.path(), 2);
            prop_assert!(head.sent_path()[len..].starts_with('/'));
            prop_assert_eq!(normal(&head.sent_path()[..len]), Ok(String::from("/a")));
        }
    }

    /// Whether a client or Blitz encodes a byte, routes match the same path, and upstreams receive it.
    #[test]
    fn every_raw_target_is_one_with_its_encoded_spelling(
        pieces in prop::collection::vec(
            prop::sample::select(&[
                "/", ".", "..", "a", "%2e", "%2F", ";", "?", "[", "\u{e9}", "\u{65e5}", "<", "\"", "|", "^",
                "%3C", "%c3%a9",
            ][..]),
            0..12,
        ),
    ) {
        let raw = format!("/{}", pieces.concat());
        let is_raw = |c: char| !c.is_ascii() || "<\"|^".contains(c);
        let encode = |c: char| {
            let mut utf8 = [0; 4];
            let bytes = c.encode_utf8(&mut utf8).bytes();
            bytes.map(|byte| format!("%{byte:02X}")).collect::<String>()
        };
        let encoded: String =
            raw.chars().map(|c| if is_raw(c) { encode(c) } else { c.to_string() }).collect();
        let parts = |target: &str| {
            let head = RequestHead::parse("GET", target).map_err(|error| error.rule())?;
            Ok::<_, &str>((head.path().to_owned(), head.path_and_query().to_owned()))
        };
        prop_assert_eq!(parts(&raw), parts(&encoded));
    }

    #[test]
    fn the_normal_form_is_its_own_normal_form(path in "/[a-z./%2eE5Ff]{0,30}") {
        if let Ok(once) = normal(&path) {
            prop_assert_eq!(normal(&once), Ok(once.clone()));
            prop_assert!(once.starts_with('/'));
            prop_assert!(!once.split('/').any(|segment| segment == "." || segment == ".."));
        }
    }

    #[test]
    fn no_path_causes_a_panic(path in "/\\PC{0,30}") {
        let _ = normal(&path);
    }
}
