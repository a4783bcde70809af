//! Valid keys of routes, and the problems of others.

use blitz_http::Method;
use blitz_site::matcher::{PathPattern, RouteKey, RouteTable};

#[track_caller]
fn refused(text: &str, problem: &str) {
    let error = RouteKey::parse(text).expect_err(text);
    assert!(error.problem().contains(problem), "{text}: {error}");
    assert!(!error.fix().is_empty(), "{text}");
    assert_eq!(
        error.to_string(),
        format!("{}; {}", error.problem(), error.fix())
    );
}

#[test]
fn keys_are_printed_as_they_are_matched() {
    for (text, printed) in [
        ("/", "/"),
        ("/a", "/a"),
        ("/a/", "/a/"),
        ("=/a/", "=/a/"),
        ("=/", "=/"),
        ("/a*", "/a*"),
        ("/a/*", "/a/"),
        ("/*", "/*"),
        ("/a*b", "/a*b"),
        ("/u/{id}/posts", "/u/{id}/posts"),
        ("HEAD,GET /a", "GET,HEAD /a"),
        ("PURGE,GET /a", "GET,PURGE /a"),
        ("/caf\u{e9}", "/caf%C3%A9"),
        ("/a b", "/a%20b"),
        ("/%7euser/%2f", "/~user/%2F"),
        ("/.well-known", "/.well-known"),
        ("/.*", "/.*"),
    ] {
        assert_eq!(RouteKey::parse(text).expect(text).to_string(), printed);
    }
}

#[test]
fn other_texts_are_refused_with_a_remedy() {
    refused("", "starts with `/`");
    refused("a", "starts with `/`");
    refused("=a", "starts with `/`");
    refused("=/a*", "one path");
    refused("/a?x=1", "no `?`");
    refused("/a#top", "no `#`");
    refused("/a/../b", "`..`");
    refused("/a/%2e", "`%2e`");
    refused("/a%2", "two hexadecimal digits");
    refused("/a%00", "%00");
    refused("/u-{id}", "whole segment");
    refused("/{id", "whole segment");
    refused("/{id}*", "whole segment");
    refused("/{}", "no name");
    refused("/{a-b}", "no name");
    refused("/{id}/{id}", "twice");
    refused("/{a}/{b}/{c}/{d}/{e}/{f}/{g}/{h}", "more than 7");
    refused("get /a", "case-sensitive");
    refused("GET, /a", "no method");
    refused("GET,GET /a", "twice");
    refused("PURGE,PURGE /a", "twice");
    refused("G\u{e9}T /a", "no method");
}

#[test]
fn the_names_of_parameters_have_the_order_of_the_path() {
    let key = RouteKey::parse("/{a}/b/{c}/").expect("it is a key");
    assert_eq!(key.path.names().collect::<Vec<_>>(), ["a", "c"]);
    let longest = RouteKey::parse("/{a}/{b}/{c}/{d}/{e}/{f}/{g}").expect("it is a key");
    let table = RouteTable::new(vec![longest]);
    let path = "/1/2/3/4/5/6/7/8/9";
    let found = table.find(path, Method::Get, "").expect("it matches");
    assert_eq!(
        (found.param(path, 6), found.param(path, 7)),
        (Some("7"), None)
    );
    assert_eq!(found.rest(path), "/8/9");
}

/// Flags have prefixes in normal form. `/` of a flag is a prefix as others: it matches no request without a path.
#[test]
fn prefixes_are_patterns() {
    let patterns = [
        PathPattern::everything(),
        PathPattern::subtree("/"),
        PathPattern::subtree("/a"),
        PathPattern::starting_with("/a."),
        PathPattern::starting_with("/a/"),
    ];
    let keys = patterns.map(|path| RouteKey {
        methods: None,
        path,
    });
    let table = RouteTable::new(keys.to_vec());
    for (path, route) in [
        ("*", 0),
        ("", 0),
        ("/", 1),
        ("/b", 1),
        ("/a", 2),
        ("/a.b", 3),
        ("/ab", 1),
        ("/a/b", 4),
    ] {
        let found = table.find(path, Method::Options, "");
        assert_eq!(found.map(|found| found.route), Some(route), "{path}");
    }
    assert_eq!(table.keys(), keys);
}

/// Ranges of parameters have 16 bits. A path beyond that gets the right route or none.
#[test]
fn long_paths_get_the_route_of_their_first_segments() {
    let keys = ["/", "/u", "=/u/{id}", "/u/{id}/posts", "/files"];
    let keys = keys.map(|key| RouteKey::parse(key).expect("it is a key"));
    let table = RouteTable::new(keys.to_vec());
    let find = |path: &str| table.find(path, Method::Get, "");
    let long = "a".repeat(70_000);
    for first in ["/files/a/b", "/u/7/posts"] {
        let path = format!("{first}/{long}/c");
        let found = find(&path).expect("it matches");
        assert_eq!(found.route, if first == "/u/7/posts" { 3 } else { 4 });
        let after = if found.route == 3 { "" } else { "/a/b" };
        assert_eq!(found.rest(&path), format!("{after}/{long}/c"));
        assert_eq!(found.param(&path, 0), (found.route == 3).then_some("7"));
        assert_eq!(table.explain(&path, Method::Get, "")[0].0, found.route);
    }
    for path in [
        format!("/u/{long}"),
        format!("/u/{long}/posts"),
        format!("/{long}"),
    ] {
        assert_eq!(find(&path), None);
    }
    let longest = format!("/u/{}", &long[..65_532]);
    assert_eq!(find(&longest).map(|found| found.route), Some(2));
    let everything = RouteTable::new(vec![RouteKey::parse("/").expect("it is a key")]);
    assert!(
        everything
            .find(&format!("/{long}"), Method::Get, "")
            .is_some()
    );
}
