//! Routes that take requests of a protected route, against a reference that tries all requests.

use std::collections::BTreeSet;
use std::fmt::Write;

use blitz_config::{Document, read};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use crate::naive::{KEYS, Key, METHODS, paths};
use crate::support::environment;

/// The settings of a route: none, networks, or `false`.
const ALLOW: [&str; 3] = ["", "allow = [\"10.0.0.0/8\"]", "allow = false"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_gap_is_found_where_a_request_falls_through_it(
        keys in subsequence(&KEYS[..], 2..7).prop_shuffle(),
        allow in vec(select(&ALLOW[..]), 7),
    ) {
        let mut text = "[site.\"a.example\"]\nto = \"http://h:1\"\n".to_owned();
        for (key, allow) in keys.iter().zip(&allow) {
            let _ = writeln!(text, "\"{key}\" = {{ {allow} }}");
        }
        let (_, diagnostics) = read(&Document::new("f", text.as_str()), &environment());
        prop_assert!(diagnostics.iter().all(|one| one.code != "regex-tie"), "{diagnostics:?}");
        let gap = |key: &str| {
            let place = text.find(&format!("\"{key}\""));
            diagnostics.iter().any(|one| one.code == "access-gap" && Some(one.span.start) == place)
        };
        let found: BTreeSet<&str> = keys.iter().copied().filter(|key| gap(key)).collect();
        let expected = gaps(&keys, &allow);
        prop_assert!(expected.is_subset(&found), "{expected:?} {found:?}\n{text}");
        // Where one has the beginning of a segment and the other one a parameter, more may be demanded than is necessary.
        // So it is with regexes, of which the beginnings count.
        if !keys.iter().any(|key| key.contains(['*', '~'])) {
            prop_assert_eq!(found, expected, "{}", text);
        }
    }
}

fn gaps(keys: &[&'static str], allow: &[&str]) -> BTreeSet<&'static str> {
    let parsed: Vec<Key> = keys.iter().map(|key| Key::new(key, keys)).collect();
    let encloses = |outer: usize, inner: usize| parsed[outer].encloses(&parsed[inner]);
    let mut gaps = BTreeSet::new();
    let requests = (0..paths().len()).flat_map(|path| METHODS.map(|method| (method, path)));
    for (method, path) in requests {
        let matching: Vec<usize> = (0..keys.len())
            .filter(|&at| parsed[at].matches(method, path))
            .collect();
        let Some(&taker) = matching.iter().min_by_key(|&&at| parsed[at].rank()) else {
            continue;
        };
        for &protected in matching.iter().filter(|&&at| allow[at].contains('[')) {
            // The taker says it, or inherits it from a route that the protection does not come from.
            let is_own = (0..keys.len()).any(|level| {
                let is_level = level == taker || encloses(level, taker);
                !allow[level].is_empty() && is_level && !encloses(level, protected)
            });
            if taker != protected && !encloses(protected, taker) && !is_own {
                gaps.insert(keys[taker]);
            }
        }
    }
    let lacks_bare = |&at: &usize| allow[at].contains('[') && lacks_bare(keys, allow, at);
    gaps.extend((0..keys.len()).filter(lacks_bare).map(|at| keys[at]));
    gaps
}

/// Whether this is `/a/` or `=/a/`, and neither `/a` nor a further route has its protection for the path `/a`.
fn lacks_bare(keys: &[&'static str], allow: &[&str], at: usize) -> bool {
    let parsed = Key::new(keys[at], keys);
    let path = |key: &'static str| {
        key.split(' ')
            .next_back()
            .unwrap_or_default()
            .trim_start_matches('=')
    };
    let Some(bare) = path(keys[at])
        .strip_suffix('/')
        .filter(|bare| !bare.is_empty())
    else {
        return false;
    };
    let is_bare = |request: &str| {
        let mut parts = bare.split('/').zip(request.split('/'));
        let is_part = |(part, found): (&str, &str)| {
            part == found || (part.starts_with('{') && !found.is_empty())
        };
        bare.split('/').count() == request.split('/').count() && parts.all(is_part)
    };
    let requests = METHODS.iter().filter(|method| parsed.has_method(method));
    let paths = || paths().iter().enumerate().filter(|(_, path)| is_bare(path));
    let requests: Vec<_> = requests
        .flat_map(|method| paths().map(move |(path, _)| (*method, path)))
        .collect();
    let shape = |path: &str| path.replace("{y}", "{x}");
    let covers = |level: usize| {
        let other = Key::new(keys[level], keys);
        let takes_all = requests
            .iter()
            .all(|&(method, path)| other.matches(method, path));
        let is_own = !allow[level].is_empty() && !other.encloses(&parsed);
        takes_all && (is_own || shape(path(keys[level])) == shape(bare))
    };
    !(0..keys.len()).any(covers)
}

/// The pairs that are possible, one of each kind.
#[test]
fn gaps_have_few_forms() {
    for (protected, other, is_gap) in [
        ("POST /a", "/a/b", true),
        ("/{x}/b", "/a/{y}", true),
        ("=/{x}", "/a", true),
        ("/{x}/", "/a", true),
        ("=/{x}", "/a*", true),
        ("GET /", "/a", true),
        // Many servers answer `/a` as `/a/`.
        ("/a/", "/b", true),
        ("=/a/", "/b", true),
        ("/{x}/a/", "/b", true),
        ("/a/", "=/{x}", true),
        ("GET /a/", "POST =/a", true),
        ("GET /a/", "=/a", false),
        ("/a/", "/a", false),
        ("/{x}/", "=/{y}", false),
        ("=/", "/b", false),
        ("=/a", "/b", false),
        // Text protects all below it.
        ("/a", "/a/b", false),
        ("/a", "=/a/b", false),
        ("/a", "POST /a", false),
        ("/a*", "/ab", false),
        // The protected route comes first.
        ("/a/{y}", "/{x}/b", false),
        ("POST /a", "/a", false),
        ("/a/b", "/a", false),
        // No request matches both.
        ("POST /a", "GET /a/b", false),
        ("/a", "/b", false),
        // Of regexes the beginnings count.
        ("~/a/[0-9]+", "~/a/1.*", true),
        ("~/a/[0-9]+", "~/b/[0-9]+", false),
        ("~/a/[0-9]+", "/a/x", true),
        ("~/a/[0-9]+", "=/a/x", true),
        ("~/a/[0-9]+", "/a/{id}", false),
        ("~/a/[0-9]+", "/b", false),
        ("~/a/[0-9]+", "POST ~/a/x", true),
        ("~.*/secret", "/a", true),
        ("~/ab.*", "/ab", true),
        ("/a/{id}", "~/a/[0-9]+", true),
        ("/{x}/b", "~/a/[0-9]+", true),
        ("/a*", "~/ab?", false),
        // Text protects all below it.
        ("/a", "~/a/[0-9]+", false),
        ("/a/", "~/a/[0-9]+", true),
        ("/a", "~/a[0-9]+", false),
    ] {
        let text = format!(
            "[site.\"a.example\"]\nto = \"http://h:1\"\n\"{protected}\".allow = [\"unix\"]\n\"{other}\" = {{}}\n"
        );
        let (_, diagnostics) = read(&Document::new("f", text.as_str()), &environment());
        let found = diagnostics.iter().any(|one| one.code == "access-gap");
        assert_eq!(found, is_gap, "{protected} {other} {diagnostics:?}");
    }
}
