//! What is matched is what is sent (RULES 10).

use blitz_proto::path::normalize;
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
        ("/a%2f..%2fb", "/a%2F..%2Fb"),
        ("/%e2%82%ac", "/%E2%82%AC"),
        ("/%25%32%65", "/%252e"),
        ("/a%3f", "/a%3F"),
    ] {
        assert_eq!(normal(path).as_deref(), Ok(expected), "{path}");
    }
}

#[test]
fn what_cannot_be_normalised_is_refused() {
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
fn raw_path_and_query_survive_normalising() {
    let head = RequestHead::parse("GET", "/a/../b%2d?x=/../%zz").expect("a good target");
    assert_eq!(head.raw_path(), "/a/../b%2d");
    assert_eq!(head.path(), "/b-");
    assert_eq!(head.query(), Some("x=/../%zz"));
    assert_eq!(head.path_and_query(), "/b-?x=/../%zz");
}

#[test]
fn parts_of_a_target_are_replaced_one_by_one() {
    let mut head = RequestHead::new(Method::Get, "/a?b=c");
    head.set_path("/x/y");
    assert_eq!((head.path_and_query(), head.raw_path()), ("/x/y?b=c", "/a"));
    head.set_query(Some("q"));
    assert_eq!((head.path_and_query(), head.query()), ("/x/y?q", Some("q")));
    head.set_query(None);
    assert_eq!((head.path_and_query(), head.query()), ("/x/y", None));
    head.set_authority("example.org:81");
    assert_eq!(head.authority(), Some("example.org:81"));
    head.clear();
    assert_eq!((head.path_and_query(), head.authority()), ("/", None));
    head.set_query(Some("only"));
    assert_eq!(
        (head.path_and_query(), head.path(), head.raw_path()),
        ("/?only", "/", "/")
    );
}

#[test]
#[should_panic(expected = "invalid path")]
fn a_path_that_would_split_the_request_line_is_a_bug_of_the_caller() {
    RequestHead::default().set_path("/a HTTP/1.1\r\nX: y");
}

proptest! {
    #[test]
    fn the_normal_form_is_its_own_normal_form(path in "/[a-z./%2eE5Ff]{0,30}") {
        if let Ok(once) = normal(&path) {
            prop_assert_eq!(normal(&once), Ok(once.clone()));
            prop_assert!(once.starts_with('/'));
            prop_assert!(!once.split('/').any(|segment| segment == "." || segment == ".."));
        }
    }

    #[test]
    fn no_path_makes_it_panic(path in "/\\PC{0,30}") {
        let _ = normal(&path);
    }
}
