//! Routes as the language defines them, by trying requests: slow, and without a line of the reader.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::LazyLock;

use regex::Regex;

/// Those of the keys, and one that no key names.
pub(crate) const METHODS: [&str; 5] = ["GET", "HEAD", "POST", "PUT", "DELETE"];

/// Keys of routes that overlap in all ways.
pub(crate) const KEYS: [&str; 27] = [
    "/a",
    "/a/",
    "=/a",
    "=/a/",
    "/a/b",
    "=/a/b",
    "/a/{y}",
    "/ab",
    "/{x}",
    "=/{x}",
    "/{x}/b",
    "/{x}/",
    "=/{x}/b",
    "/a*",
    "/ab*",
    "/a/b*",
    "/{x}/b*",
    "GET /a",
    "HEAD /a",
    "GET /{x}/b",
    "POST /a",
    "POST,PUT /a/b",
    "GET /",
    "=/",
    // None is for part of what another key matches, unless it begins with the key's text.
    "~/a/([bz]*)(/.*)?",
    "~/a(b.*)?",
    "~.*b",
];

/// The paths that could make a difference.
pub(crate) fn paths() -> &'static [String] {
    const SEGMENTS: [&str; 7] = ["", "a", "ab", "abz", "b", "bz", "c"];
    static PATHS: LazyLock<Vec<String>> = LazyLock::new(|| {
        let mut paths: Vec<String> = SEGMENTS.iter().map(|text| format!("/{text}")).collect();
        for from in [0, SEGMENTS.len()] {
            let longer = |path: &String| SEGMENTS.map(|segment| format!("{path}/{segment}"));
            let longer: Vec<String> = paths[from..].iter().flat_map(longer).collect();
            paths.extend(longer);
        }
        paths
    });
    &PATHS
}

/// For each key, which of the paths it matches.
fn matching(path: &str) -> &'static [bool] {
    static MATCHING: LazyLock<HashMap<&str, Vec<bool>>> = LazyLock::new(|| {
        let of_path = |key: &&'static str| {
            let path = key.split(' ').next_back().unwrap_or_default();
            let matching = paths().iter().map(|other| matches(path, other)).collect();
            (path, matching)
        };
        KEYS.iter().map(of_path).collect()
    });
    &MATCHING[path]
}

/// A key of a route beside all others of its site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    methods: Vec<&'static str>,
    path: &'static str,
    matching: &'static [bool],
}

impl Key {
    pub(crate) fn new(text: &'static str, others: &[&'static str]) -> Key {
        let split = |text: &'static str| match text.split_once(' ') {
            Some((methods, path)) => (methods.split(',').collect(), path),
            None => (Vec::new(), text),
        };
        let (mut methods, path): (Vec<&str>, &str) = split(text);
        let names_head = |other: &&&'static str| {
            let (methods, other): (Vec<&str>, &str) = split(other);
            methods.contains(&"HEAD") && other == path
        };
        if methods.contains(&"GET") && !others.iter().any(|other| names_head(&other)) {
            methods.push("HEAD");
        }
        let matching = matching(path);
        Key {
            methods,
            path,
            matching,
        }
    }

    pub(crate) fn has_method(&self, method: &str) -> bool {
        self.methods.is_empty() || self.methods.contains(&method)
    }

    /// Whether it matches a request with the path of this number.
    pub(crate) fn matches(&self, method: &str, path: usize) -> bool {
        self.has_method(method) && self.matching[path]
    }

    /// Of two routes that match a request the one with the smaller rank takes it.
    pub(crate) fn rank(&self) -> impl Ord {
        let (path, is_exact) = match self.path.strip_prefix('=') {
            Some(path) => (path, true),
            None => (self.path, false),
        };
        let mut segments: Vec<(u8, Reverse<usize>, &str)> = Vec::new();
        let texts: Vec<&str> = match path {
            _ if path.starts_with('~') => Vec::new(),
            path => path[1..].split('/').collect(),
        };
        if path.starts_with('~') {
            let (before, last) = beginning(path).rsplit_once('/').unwrap_or_default();
            let before = before.split('/').skip(1);
            segments.extend(before.map(|text| (0, Reverse(0), text)));
            // Before a text with a star.
            segments.push((1, Reverse(2 * last.len() + 1), ""));
        }
        for (at, text) in texts.iter().enumerate() {
            let is_last = at + 1 == texts.len();
            match text.strip_suffix('*') {
                _ if is_last && text.is_empty() && !is_exact => {}
                Some(text) => segments.push((1, Reverse(2 * text.len()), text)),
                None if text.starts_with('{') => segments.push((2, Reverse(0), "")),
                None => segments.push((0, Reverse(0), text)),
            }
        }
        let end = match path {
            _ if is_exact => 0,
            "/" => 2,
            path => 2 - usize::from(path.ends_with('/')),
        };
        segments.push((3, Reverse(0), ""));
        (segments, end, self.methods.is_empty())
    }

    pub(crate) fn encloses(&self, other: &Key) -> bool {
        if self.path.starts_with('~') {
            return false;
        }
        let has_methods = match other.methods.as_slice() {
            [] => self.methods.is_empty(),
            methods => methods.iter().all(|method| self.has_method(method)),
        };
        let mut paths = self.matching.iter().zip(other.matching);
        has_methods && paths.all(|(outer, inner)| *outer || !inner)
    }
}

/// The text that all matches of a regex begin with.
fn beginning(regex: &str) -> &'static str {
    match regex {
        "~/a/([bz]*)(/.*)?" => "/a/",
        "~/a(b.*)?" => "/a",
        _ => "/",
    }
}

fn matches(pattern: &str, path: &str) -> bool {
    if let Some(regex) = pattern.strip_prefix('~') {
        let regex = Regex::new(&format!("^(?:{regex})$")).expect("it is a regex");
        return path.starts_with('/') && regex.is_match(path);
    }
    let (pattern, is_exact) = match pattern.strip_prefix('=') {
        Some(pattern) => (pattern, true),
        None => (pattern, false),
    };
    if pattern == "/" && !is_exact {
        return true;
    }
    let mut found = path.split('/');
    for wanted in pattern.split('/') {
        let Some(segment) = found.next() else {
            return false;
        };
        let is_match = match wanted.strip_suffix('*') {
            Some(beginning) => return segment.starts_with(beginning),
            None if wanted.starts_with('{') => !segment.is_empty(),
            // The slash at the end: something follows.
            None if wanted.is_empty() && pattern.ends_with('/') && !is_exact => true,
            None => segment == wanted,
        };
        if !is_match {
            return false;
        }
    }
    !is_exact || found.next().is_none()
}

#[test]
fn the_reference_matches_what_the_language_says() {
    for (pattern, path, expected) in [
        ("/a", "/a", true),
        ("/a", "/a/b", true),
        ("/a", "/ab", false),
        ("/a/", "/a", false),
        ("/a/", "/a/", true),
        ("/a/", "/a/b", true),
        ("=/a", "/a", true),
        ("=/a", "/a/", false),
        ("=/a/", "/a/", true),
        ("=/a/", "/a/b", false),
        ("/u/{id}/p", "/u/1/p/x", true),
        ("/u/{id}/p", "/u//p", false),
        ("/a*", "/ab/c", true),
        ("/a*", "/b", false),
        ("=/", "/", true),
        ("=/", "/a", false),
        ("/", "*", true),
        ("~/a(b.*)?", "/ab/c", true),
        ("~/a(b.*)?", "/x/ab", false),
        ("~.*b", "/a/b", true),
        ("~.*b", "/a/bz", false),
        ("~.*b", "*b", false),
    ] {
        assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
    }
}
