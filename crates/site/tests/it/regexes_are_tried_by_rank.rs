//! Keys that are regular expressions: their rank among others, their groups, and paths of any length.

use blitz_http::Method;
use blitz_site::matcher::{PathPattern, RouteKey, RouteTable, Verdict};
use regex::bytes::Regex;

fn regex(text: &str, beginning: &str, priority: u64) -> RouteKey {
    let compiled = Regex::new(&format!(r"\A(?:{text})\z")).expect("it is a regex");
    RouteKey {
        methods: None,
        path: PathPattern::regex(text, beginning, priority, compiled),
    }
}

fn table() -> RouteTable {
    let plain = |key| RouteKey::parse(key).expect("it is a key");
    RouteTable::new(vec![
        plain("/"),
        plain("/u/{id}"),
        regex(r"/u/(?<number>\d+)(?<tail>/.*)?", "/u/", 0),
        plain("/u/4*"),
        regex("/u/4[a-f]+", "/u/4", 0),
        plain("/u/me"),
        regex("/u/[0-9a-f]+", "/u/", 7),
        regex(r".*\.php", "/", 0),
        plain("/img*"),
        regex("/img[0-9]", "/img", 0),
    ])
}

#[test]
fn longer_beginnings_come_first_and_then_regexes() {
    let table = table();
    for (path, expected) in [
        ("/u/me", 5),
        ("/u/me/x", 5),
        ("/u/4", 3),
        ("/u/4ab", 4),
        ("/u/4ag", 3),
        // The regex with the greater priority.
        ("/u/17", 6),
        ("/u/17/x", 2),
        ("/u/x", 1),
        ("/u", 0),
        ("/x.php", 7),
        ("/u/x.php", 1),
        ("/img7", 9),
        ("/img77", 8),
        ("/im", 0),
    ] {
        let found = table.find(path, Method::Get, "").map(|found| found.route);
        assert_eq!(found, Some(expected), "{path}");
    }
    // No path, so only the route for everything.
    let found = table.find("*", Method::Options, "");
    assert_eq!(found.map(|found| found.route), Some(0));
}

#[test]
fn an_explanation_says_which_regexes_match() {
    let table = table();
    let explained = table.explain("/u/17/x", Method::Get, "");
    let verdict = |route| explained.iter().find(|(other, _)| *other == route);
    assert_eq!(explained[0], (2, Verdict::Applies));
    assert_eq!(verdict(1), Some(&(1, Verdict::Behind(2))));
    assert_eq!(verdict(6), Some(&(6, Verdict::OtherPaths)));
    let path = &table.key(2).path;
    assert_eq!(path.groups("/u/17/x"), [("number", 3..5), ("tail", 5..7)]);
    assert_eq!(path.groups("/u/17"), [("number", 3..5)]);
    assert_eq!(path.to_string(), r"~/u/(?<number>\d+)(?<tail>/.*)?");
}

#[test]
fn a_regex_sees_all_of_a_long_path() {
    let table = RouteTable::new(vec![
        regex("(/a)*/end", "/", 0),
        RouteKey::parse("/").expect("it is a key"),
    ]);
    let long = "/a".repeat(40_000);
    for (path, expected) in [(format!("{long}/end"), 0), (format!("{long}/other"), 1)] {
        let found = table.find(&path, Method::Get, "");
        assert_eq!(found.map(|found| found.route), Some(expected));
    }
}

/// Braces of a regex are text, so that it has no parameters.
#[test]
fn a_regex_has_no_parameters() {
    let key = regex(r"/\{id\}/x{2}", "/{id}/x", 0);
    assert_eq!(key.path.names().count(), 0);
    let table = RouteTable::new(vec![key]);
    let found = table.find("/{id}/xx", Method::Get, "").expect("it matches");
    assert_eq!(
        (found.param("/{id}/xx", 0), found.rest("/{id}/xx")),
        (None, "")
    );
    assert_eq!(table.find("/7/xx", Method::Get, ""), None);
}
