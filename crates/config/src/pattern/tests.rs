//! All patterns of few segments against the paths that each matches.

use std::collections::HashSet;

use super::*;
use crate::method::Method;
use crate::route_key::RouteKey;

/// The paths of at most three segments; no pattern below tells longer ones from these.
fn paths() -> Vec<String> {
    const SEGMENTS: [&str; 6] = ["", "a", "ab", "abz", "az", "c"];
    let mut paths: Vec<String> = SEGMENTS.iter().map(|text| format!("/{text}")).collect();
    let mut last = paths.clone();
    for _ in 0..2 {
        let longer = |path: &String| SEGMENTS.map(|segment| format!("{path}/{segment}"));
        last = last.iter().flat_map(longer).collect();
        paths.extend_from_slice(&last);
    }
    paths
}

/// All patterns of at most two segments.
fn patterns() -> Vec<PathPattern> {
    let text = |text: &str| Segment::Text(text.into());
    let one = [text("a"), text("ab"), Segment::Parameter("x".into())];
    let mut lists: Vec<Vec<Segment>> = vec![Vec::new()];
    for segment in &one {
        lists.push(vec![segment.clone()]);
        lists.extend(
            one.iter()
                .map(|second| vec![segment.clone(), second.clone()]),
        );
    }
    let mut patterns = Vec::new();
    for list in lists {
        for end in [
            PathEnd::Below,
            PathEnd::Subtree,
            PathEnd::Prefix("a".into()),
            PathEnd::Prefix("ab".into()),
        ] {
            // `/*` is `/`.
            if !list.is_empty() || end != PathEnd::Below {
                let segments = list.clone().into();
                patterns.push(PathPattern { segments, end });
            }
        }
        let with_slash: Vec<Segment> = list.iter().cloned().chain([text("")]).collect();
        for segments in [list, with_slash] {
            if !segments.is_empty() {
                let (segments, end) = (segments.into(), PathEnd::Exact);
                patterns.push(PathPattern { segments, end });
            }
        }
    }
    patterns
}

/// The patterns with the numbers of the paths that they match.
fn with_matches() -> Vec<(PathPattern, HashSet<usize>)> {
    let paths = paths();
    let matches = |pattern: &PathPattern| {
        let matching = (0..paths.len()).filter(|&at| pattern.matches(&paths[at]));
        matching.collect()
    };
    let with_matches = |pattern: PathPattern| {
        let matches = matches(&pattern);
        (pattern, matches)
    };
    patterns().into_iter().map(with_matches).collect()
}

#[test]
fn a_pattern_encloses_another_one_if_it_matches_all_its_paths() {
    let all = with_matches();
    for (outer, outer_paths) in &all {
        for (inner, inner_paths) in &all {
            let expected = inner_paths.is_subset(outer_paths);
            assert_eq!(outer.encloses(inner), expected, "{outer} {inner}");
        }
    }
}

#[test]
fn an_intersection_has_the_paths_of_both() {
    let all = with_matches();
    let paths = paths();
    for (a, a_paths) in &all {
        for (b, b_paths) in &all {
            let both: HashSet<usize> = a_paths.intersection(b_paths).copied().collect();
            let found: HashSet<usize> = match a.intersection(b) {
                Some(found) => (0..paths.len())
                    .filter(|&at| found.matches(&paths[at]))
                    .collect(),
                None => HashSet::new(),
            };
            let has_prefix = [a, b].map(|one| matches!(one.end, PathEnd::Prefix(_)));
            match has_prefix {
                [false, false] => assert_eq!(found, both, "{a} {b}"),
                // A prefix where the other one has a parameter and more is no pattern.
                _ => assert!(both.is_subset(&found), "{a} {b}"),
            }
            assert_eq!(found.is_empty(), both.is_empty(), "{a} {b}");
        }
    }
}

#[test]
fn a_pattern_comes_before_those_that_enclose_it() {
    let all = with_matches();
    for (a, a_paths) in &all {
        for (b, b_paths) in &all {
            let order = a.by_rank(b);
            assert_eq!(order, b.by_rank(a).reverse(), "{a} {b}");
            assert_eq!(order.is_eq(), a == b, "{a} {b}");
            if a_paths.is_subset(b_paths) && a != b {
                assert!(order.is_lt(), "{a} {b}");
            }
        }
    }
}

#[test]
fn the_rank_orders_all_patterns() {
    let mut all = patterns();
    all.sort_by(PathPattern::by_rank);
    for (at, a) in all.iter().enumerate() {
        assert!(all[at + 1..].iter().all(|b| a.by_rank(b).is_lt()), "{a}");
    }
    let shown: Vec<String> = all.iter().map(PathPattern::to_string).collect();
    let of_a = shown
        .iter()
        .filter(|text| text.starts_with("/a/a") || text.starts_with("=/a/a"));
    let of_a: Vec<&str> = of_a.map(String::as_str).collect();
    let expected = [
        "=/a/a/",
        "/a/a/ab*",
        "/a/a/a*",
        "=/a/a",
        "/a/a/",
        "/a/a",
        "=/a/ab/",
        "/a/ab/ab*",
        "/a/ab/a*",
        "=/a/ab",
        "/a/ab/",
        "/a/ab",
        "/a/ab*",
        "/a/a*",
    ];
    assert_eq!(of_a, expected);
}

#[test]
fn shapes_are_equal_for_the_same_paths() {
    let all = with_matches();
    for (a, a_paths) in &all {
        for (b, b_paths) in &all {
            assert_eq!(a.shape() == b.shape(), a_paths == b_paths, "{a} {b}");
        }
    }
}

#[test]
fn the_root_matches_requests_without_a_path() {
    assert!(PathPattern::everything().matches("*"));
    assert!(PathPattern::everything().is_everything());
    let below = PathPattern {
        end: PathEnd::Prefix("a".into()),
        ..PathPattern::everything()
    };
    assert!(!below.matches("*"));
}

#[test]
fn keys_have_methods_and_paths() {
    let key = |methods: &[Method]| RouteKey {
        methods: (!methods.is_empty()).then(|| methods.iter().copied().collect()),
        path: PathPattern::everything(),
    };
    let (all, get, post) = (key(&[]), key(&[Method::Get]), key(&[Method::Post]));
    let both = key(&[Method::Get, Method::Post]);
    for (outer, inner, encloses) in [
        (&all, &get, true),
        (&get, &all, false),
        (&both, &get, true),
        (&get, &both, false),
        (&get, &post, false),
        (&all, &all, true),
    ] {
        assert_eq!(outer.encloses(inner), encloses, "{outer} {inner}");
    }
    assert_eq!(get.intersection(&post), None);
    assert_eq!(both.intersection(&all), Some(both.clone()));
    assert_eq!(both.intersection(&post), Some(post));
    assert!(get.by_rank(&all).is_lt());
}

fn of_regex(text: &str) -> PathPattern {
    PathPattern::of_regex(PathRegex::parse(text).expect("it is a regex"))
}

/// Only the beginning is known: all that it has is enclosed, and what it may have is shared.
#[test]
fn of_a_regex_the_beginning_counts() {
    let regexes = ["/a/[abz]+", "/a[b/].*", ".*z", "/ab/a.*", "/(a|ab)/c"];
    let paths = paths();
    for text in regexes {
        let regex = of_regex(text);
        assert_eq!(regex.to_string(), format!("~{text}"));
        assert!(!regex.encloses(&regex) && PathPattern::everything().encloses(&regex));
        let matching = |pattern: &PathPattern| -> HashSet<usize> {
            let matching = (0..paths.len()).filter(|&at| pattern.matches(&paths[at]));
            matching.collect()
        };
        let own = matching(&regex);
        assert!(!own.is_empty(), "{text}");
        for (other, others) in with_matches() {
            assert!(!regex.encloses(&other), "{text} {other}");
            assert!(
                !other.encloses(&regex) || own.is_subset(&others),
                "{text} {other}"
            );
            let both: HashSet<usize> = own.intersection(&others).copied().collect();
            for shared in [regex.intersection(&other), other.intersection(&regex)] {
                let found = shared.map(|shared| matching(&shared)).unwrap_or_default();
                assert!(both.is_subset(&found), "{text} {other}");
            }
            if other.encloses(&regex) {
                assert!(regex.by_rank(&other).is_lt(), "{text} {other}");
            }
            assert!(regex.by_rank(&other).is_ne(), "{text} {other}");
        }
    }
}

#[test]
fn regexes_have_ranks_among_others() {
    let mut keys = Vec::new();
    for (text, priority) in [
        ("/a/[0-9]+", 0),
        ("/a/[a-z]+", 2),
        ("/a/b[0-9]", 0),
        (".*", 0),
    ] {
        let mut path = of_regex(text);
        path.set_priority(priority);
        keys.push(RouteKey {
            methods: None,
            path,
        });
    }
    let methods = Some([Method::Get].into_iter().collect());
    let path = of_regex("/a/x?");
    keys.push(RouteKey { methods, path });
    let text = |text: &str| Segment::Text(text.into());
    let ends = [
        PathEnd::Subtree,
        PathEnd::Prefix("b".into()),
        PathEnd::Exact,
    ];
    for end in ends {
        let segments = Box::new([text("a")]);
        let path = PathPattern { segments, end };
        keys.push(RouteKey {
            methods: None,
            path,
        });
    }
    let parameter = Segment::Parameter("x".into());
    let path = PathPattern {
        segments: Box::new([text("a"), parameter]),
        end: PathEnd::Subtree,
    };
    keys.push(RouteKey {
        methods: None,
        path,
    });
    keys.sort_by(RouteKey::by_rank);
    let shown: Vec<String> = keys.iter().map(RouteKey::to_string).collect();
    let expected = [
        "~/a/b[0-9]",
        "/a/b*",
        "GET ~/a/x?",
        "~/a/[a-z]+",
        "~/a/[0-9]+",
        "/a/{x}",
        "=/a",
        "/a",
        "~.*",
    ];
    assert_eq!(shown, expected);
}
