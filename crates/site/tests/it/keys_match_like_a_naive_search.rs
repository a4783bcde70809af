//! Random tables of hosts and keys against a search that tries every key, with the sentences of the rank as code.

use std::cmp::Ordering;

use blitz_http::Method;
use blitz_site::matcher::{
    ClashKind, HostTable, Methods, PathPattern, RouteKey, RouteTable, Verdict,
};
use regex::bytes::Regex;

/// A part of a pattern between two slashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Segment {
    Text(&'static str),
    Star(&'static str),
    /// The text with which a regex goes on, perhaps none.
    Begins(&'static str),
    Param,
}

/// The part of a regex after its text.
#[derive(Debug, Clone)]
struct Tail {
    text: &'static str,
    priority: u64,
    /// The whole regex, at both ends of a path.
    regex: Regex,
}

/// Where a pattern ends that has no star: `=/a`, `/a/`, `/a`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Exact,
    Below,
    Subtree,
}

#[derive(Debug, Clone)]
struct Key {
    methods: Option<Vec<&'static str>>,
    segments: Vec<Segment>,
    end: End,
    tail: Option<Tail>,
}

impl Key {
    fn parsed(&self) -> RouteKey {
        let Some(tail) = &self.tail else {
            return RouteKey::parse(&self.text()).expect("it is a key");
        };
        let methods = self.methods.as_ref();
        let methods =
            methods.map(|methods| Methods::parse(&methods.join(",")).expect("these are methods"));
        let (text, beginning) = (self.regex_text(tail.text), beginning(&self.segments));
        RouteKey {
            methods,
            path: PathPattern::regex(&text, &beginning, tail.priority, tail.regex.clone()),
        }
    }

    fn regex_text(&self, tail: &str) -> String {
        beginning(&self.segments).replace('.', "\\.") + tail
    }

    fn text(&self) -> String {
        let mut text = String::new();
        if let Some(methods) = &self.methods {
            text += &format!("{} ", methods.join(","));
        }
        if let Some(tail) = &self.tail {
            return format!("{text}~{}", self.regex_text(tail.text));
        }
        if self.end == End::Exact {
            text.push('=');
        }
        for (at, segment) in self.segments.iter().enumerate() {
            match segment {
                Segment::Text(part) => text += &format!("/{part}"),
                Segment::Star(part) => text += &format!("/{part}*"),
                Segment::Begins(_) => {}
                Segment::Param => text += &format!("/{{p{at}}}"),
            }
        }
        if self.end == End::Below || self.segments.is_empty() {
            text.push('/');
        }
        text
    }

    fn has_path_of(&self, other: &Key) -> bool {
        let tail = |key: &Key| key.tail.as_ref().map(|tail| tail.text);
        (&self.segments, self.end, tail(self)) == (&other.segments, other.end, tail(other))
    }

    fn names(&self, method: &str) -> bool {
        self.methods
            .as_ref()
            .is_some_and(|all| all.contains(&method))
    }

    fn takes_method(&self, method: &str, all: &[Key]) -> bool {
        let as_get = || {
            let mut same = all.iter().filter(|other| self.has_path_of(other));
            method == "HEAD" && self.names("GET") && !same.any(|other| other.names("HEAD"))
        };
        self.methods.is_none() || self.names(method) || as_get()
    }

    /// The values of the parameters and the rest, if the path matches.
    fn matches<'p>(&self, path: &'p str, parts: &[&'p str]) -> Option<(Vec<&'p str>, &'p str)> {
        if self.segments.is_empty() && self.end == End::Subtree {
            return Some((Vec::new(), path));
        }
        if let Some(tail) = &self.tail {
            let is_match = path.starts_with('/') && tail.regex.is_match(path.as_bytes());
            return is_match.then_some((Vec::new(), ""));
        }
        let (mut params, mut end) = (Vec::new(), 0);
        for (at, segment) in self.segments.iter().enumerate() {
            let part = *parts.get(at)?;
            match segment {
                Segment::Text(text) if part == *text => {}
                Segment::Param if !part.is_empty() => params.push(part),
                Segment::Star(text) if part.starts_with(text) => {
                    return Some((params, &path[end + 1 + text.len()..]));
                }
                _ => return None,
            }
            end += 1 + part.len();
        }
        let rest = &path[end..];
        let fits = match self.end {
            End::Exact => rest.is_empty(),
            End::Below => rest.starts_with('/'),
            End::Subtree => true,
        };
        fits.then_some((params, rest))
    }

    /// "Routes that match are compared segment by segment, and the first difference decides: text; `text*` or regex (the
    /// longer text first, then the regex); `{parameter}`; the end, as `=/a`, `/a/`, `/a`. Then a key with methods comes
    /// first. Equal rank is settled by `priority`, greater first."
    fn cmp_rank(&self, other: &Key) -> Ordering {
        let place = |segment: Option<&Segment>| match segment {
            Some(Segment::Text(_)) => (0, 0, 0),
            Some(Segment::Begins(text)) => (1, usize::MAX - text.len(), 0),
            Some(Segment::Star(text)) => (1, usize::MAX - text.len(), 1),
            Some(Segment::Param) => (2, 0, 0),
            None => (3, 0, 0),
        };
        for at in 0..=self.segments.len().max(other.segments.len()) {
            let places = (place(self.segments.get(at)), place(other.segments.get(at)));
            if places.0 != places.1 {
                return places.0.cmp(&places.1);
            }
        }
        let by_end = self.end.cmp(&other.end);
        let priority = |key: &Key| key.tail.as_ref().map(|tail| tail.priority);
        by_end
            .then(self.methods.is_none().cmp(&other.methods.is_none()))
            .then(priority(other).cmp(&priority(self)))
    }
}

/// The text of a regex before its tail.
fn beginning(segments: &[Segment]) -> String {
    let mut text = String::new();
    for segment in segments {
        if let Segment::Text(part) | Segment::Begins(part) = segment {
            text += &format!("/{part}");
        }
    }
    text
}

struct Random(u64);

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % count
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

const TEXTS: [&str; 6] = ["a", "ab", "abc", "b", "a.b", ""];
const PARTS: [&str; 8] = ["a", "ab", "abc", "abcd", "b", "a.b", "", "x"];
const METHODS: [&str; 5] = ["GET", "HEAD", "POST", "PURGE", "MOVE"];
const HOSTS: [&str; 9] = [
    "a.x",
    "b.x",
    "x",
    "b.a.x",
    "*.x",
    "*.a.x",
    "*",
    "192.0.2.1",
    "::1",
];
const AUTHORITIES: [&str; 15] = [
    "a.x",
    "A.X",
    "a.x:80",
    "a.x.",
    "b.x",
    "c.X",
    "x",
    "b.a.x",
    "c.a.x",
    "d.c.a.x",
    "192.0.2.1",
    "[::1]",
    "[0:0::1]:8080",
    "[::2]",
    "",
];

const TAILS: [&str; 6] = ["[a-z]+", "(/.*)?", ".*b", "[^/]*", "(b|bc)?(/x)?", ".*"];

fn methods(random: &mut Random) -> Option<Vec<&'static str>> {
    (random.below(3) == 0).then(|| {
        let chosen = 1 + random.below(31);
        let methods = (0..METHODS.len()).filter(|at| chosen >> at & 1 == 1);
        methods.map(|at| METHODS[at]).collect()
    })
}

fn regex_key(random: &mut Random) -> Key {
    let methods = methods(random);
    let segments = (0..random.below(3)).map(|_| Segment::Text(random.of(&TEXTS[..5])));
    let mut segments: Vec<Segment> = segments.collect();
    segments.push(Segment::Begins(random.of(&["", "a", "ab"])));
    let text = random.of(&TAILS);
    let whole = beginning(&segments).replace('.', "\\.") + text;
    let tail = Tail {
        text,
        priority: random.below(3) as u64,
        regex: Regex::new(&format!("^(?:{whole})$")).expect("it is a regex"),
    };
    Key {
        methods,
        segments,
        end: End::Subtree,
        tail: Some(tail),
    }
}

fn key(random: &mut Random) -> Key {
    let methods = methods(random);
    let segments = (0..random.below(4)).map(|_| match random.below(3) {
        0 => Segment::Param,
        _ => Segment::Text(random.of(&TEXTS)),
    });
    let mut key = Key {
        methods,
        segments: segments.collect(),
        end: random.of(&[End::Exact, End::Below, End::Subtree]),
        tail: None,
    };
    if random.below(4) == 0 {
        // A star behind a slash is another form of the slash.
        key.segments.push(Segment::Star(random.of(&TEXTS[..5])));
        key.end = End::Subtree;
    }
    // These are the forms of the same text: `/a/` ends in an empty segment only with `=`.
    if key.end != End::Exact && key.segments.last() == Some(&Segment::Text("")) {
        key.segments.pop();
        key.end = End::Below;
    }
    if key.segments.is_empty() {
        match key.end {
            End::Exact => key.segments.push(Segment::Text("")),
            _ => key.end = End::Subtree,
        }
    }
    key
}

fn path(random: &mut Random) -> String {
    match random.below(40) {
        0 => "*".to_owned(),
        1 => String::new(),
        _ => (0..=random.below(4))
            .map(|_| format!("/{}", random.of(&PARTS)))
            .collect(),
    }
}

/// The keys of a site with their table.
struct Site {
    keys: Vec<Key>,
    table: RouteTable,
}

fn site(random: &mut Random) -> Site {
    let has_regexes = random.below(4) == 0;
    let keys = (0..=random.below(14)).map(|_| match has_regexes && random.below(3) == 0 {
        true => regex_key(random),
        false => key(random),
    });
    let keys: Vec<Key> = keys.collect();
    let parsed = keys.iter().map(|key| {
        let parsed = key.parsed();
        assert_eq!(parsed.to_string(), key.text());
        parsed
    });
    let table = RouteTable::new(parsed.collect());
    Site { keys, table }
}

/// The matching keys by rank.
fn naive(keys: &[Key], path: &str, method: &str) -> Vec<usize> {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let takes = |key: &Key| key.matches(path, &parts).is_some() && key.takes_method(method, keys);
    let mut matching: Vec<usize> = (0..keys.len()).filter(|&at| takes(&keys[at])).collect();
    matching.sort_by(|&a, &b| keys[a].cmp_rank(&keys[b]));
    matching
}

/// Whether a route was found.
fn check_route(site: &Site, path: &str, method: &str) -> bool {
    let expected = naive(&site.keys, path, method);
    let found = site
        .table
        .find(path, Method::parse(method.as_bytes()), method);
    let context = || format!("{method} {path:?} among {:?}", texts(&site.keys));
    assert_eq!(
        found.map(|one| one.route),
        expected.first().copied(),
        "{}",
        context()
    );
    let Some(found) = found else { return false };
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let (params, rest) = site.keys[found.route]
        .matches(path, &parts)
        .expect("it was found");
    for at in 0..=params.len() {
        assert_eq!(
            found.param(path, at),
            params.get(at).copied(),
            "{}",
            context()
        );
    }
    assert_eq!(found.rest(path), rest, "{}", context());
    true
}

fn check_explanation(site: &Site, path: &str, method: &str) {
    let explained = site
        .table
        .explain(path, Method::parse(method.as_bytes()), method);
    let expected = naive(&site.keys, path, method);
    let is_match = |verdict: &Verdict| matches!(verdict, Verdict::Applies | Verdict::Behind(_));
    let matching = explained.iter().filter(|(_, verdict)| is_match(verdict));
    assert_eq!(
        matching.map(|(route, _)| *route).collect::<Vec<_>>(),
        expected
    );
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    for (route, verdict) in &explained {
        let fits = site.keys[*route].matches(path, &parts).is_some();
        let reason = match (expected.first(), fits) {
            (Some(best), _) if best == route => Verdict::Applies,
            (Some(best), _) if expected.contains(route) => Verdict::Behind(*best),
            (_, true) => Verdict::OtherMethods,
            (_, false) => Verdict::OtherPaths,
        };
        assert_eq!(*verdict, reason, "{}", site.keys[*route].text());
    }
    let ranked = site.table.ranked().into_iter();
    let ranked: Vec<usize> = ranked.filter(|route| expected.contains(route)).collect();
    assert_eq!(ranked, expected);
    let mut all: Vec<usize> = explained.iter().map(|(route, _)| *route).collect();
    all.sort_unstable();
    assert_eq!(all, (0..site.keys.len()).collect::<Vec<_>>());
}

/// The site of an authority, by the sentences about hosts.
fn naive_host(hosts: &[(&str, usize)], authority: &str) -> Option<usize> {
    let host = match authority {
        "[::1]" | "[0:0::1]:8080" => "::1".to_owned(),
        name => name
            .trim_end_matches(":80")
            .trim_end_matches('.')
            .to_lowercase(),
    };
    let of = |name: &str| {
        hosts
            .iter()
            .find(|(host, _)| *host == name)
            .map(|(_, site)| *site)
    };
    let parent = || {
        host.split_once('.')
            .and_then(|(_, parent)| of(&format!("*.{parent}")))
    };
    of(&host).or_else(parent).or_else(|| of("*"))
}

fn host_table(hosts: &[(&str, usize)]) -> HostTable<usize> {
    let mut table = HostTable::default();
    for (host, site) in hosts {
        let before = match (*host, host.strip_prefix("*.")) {
            ("*", _) => table.insert_any(*site),
            (_, Some(parent)) => table.insert_wildcard(parent, *site),
            (name, None) => table.insert_exact(name, *site),
        };
        assert_eq!(before, None);
    }
    table
}

/// Looks up `look_ups` requests in each of `tables` random tables.
fn check(seed: u64, tables: usize, look_ups: usize) {
    let mut random = Random(seed);
    let mut found = 0;
    for _ in 0..tables {
        let sites: Vec<Site> = (0..=random.below(2)).map(|_| site(&mut random)).collect();
        let mut hosts: Vec<(&str, usize)> = Vec::new();
        for host in HOSTS {
            if random.below(2) == 0 {
                hosts.push((host, random.below(sites.len())));
            }
        }
        let table = host_table(&hosts);
        for number in 0..look_ups {
            let authority = random.of(&AUTHORITIES);
            let at = table.find(Some(authority)).copied();
            assert_eq!(
                at,
                naive_host(&hosts, authority),
                "{authority} in {hosts:?}"
            );
            // A look-up without a site would test no route.
            let site = &sites[at.unwrap_or_default()];
            let (path, method) = (path(&mut random), random.of(&METHODS));
            found += usize::from(check_route(site, &path, method) && at.is_some());
            if number % 25 == 0 {
                check_explanation(site, &path, method);
            }
        }
    }
    let all = tables * look_ups;
    assert!(
        found > all / 4 && found < all,
        "{found} of {all} had a route, seed {seed}"
    );
}

#[test]
fn a_million_random_requests() {
    std::thread::scope(|scope| {
        for seed in 1..=4 {
            scope.spawn(move || check(seed * 0x9e37_79b9_7f4a, 1_000, 250));
        }
    });
}

#[test]
fn keys_of_equal_rank_clash() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut seen = [0, 0];
    for _ in 0..20_000 {
        let keys: Vec<Key> = (0..=random.below(6)).map(|_| key(&mut random)).collect();
        let parsed = keys
            .iter()
            .map(|key| RouteKey::parse(&key.text()).expect("it is a key"));
        let found = RouteKey::clashes(&parsed.collect::<Vec<_>>());
        for (second, key) in keys.iter().enumerate() {
            let equal = keys[..second]
                .iter()
                .position(|first| have_equal_rank(first, key));
            let mut same = found.iter().filter(|clash| clash.kind == ClashKind::Same);
            let same = same.find(|clash| clash.second == second);
            assert_eq!(same.map(|clash| clash.first), equal, "{:?}", texts(&keys));
            seen[0] += usize::from(equal.is_some());
        }
        let slashes = found.iter().filter(|clash| clash.kind == ClashKind::Slash);
        let mut losers: Vec<usize> = slashes
            .map(|clash| match keys[clash.first].end {
                End::Subtree => clash.first,
                _ => clash.second,
            })
            .collect();
        losers.sort_unstable();
        let loses = |key: &Key| keys.iter().any(|with| loses_to_slash(key, with));
        let expected: Vec<usize> = (0..keys.len()).filter(|&at| loses(&keys[at])).collect();
        assert_eq!(losers, expected, "{:?}", texts(&keys));
        seen[1] += losers.len();
    }
    assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
}

/// All paths of at most four of the parts.
fn all_paths() -> Vec<String> {
    let mut paths = vec![String::new()];
    for from in [0, 1, 9, 73] {
        let longer = |path: &String| PARTS.map(|part| format!("{path}/{part}"));
        let longer: Vec<String> = paths[from..].iter().flat_map(longer).collect();
        paths.extend(longer);
    }
    paths
}

#[test]
fn keys_enclose_and_overlap_others() {
    let (mut random, paths) = (Random(0x51_7cc1_b727_2202), all_paths());
    let matching = |key: &Key| -> Vec<bool> {
        let matches = |path: &String| {
            let parts: Vec<&str> = path.split('/').skip(1).collect();
            key.matches(path, &parts).is_some()
        };
        paths.iter().map(matches).collect()
    };
    let mut seen = [0, 0];
    for _ in 0..600 {
        let keys = [key(&mut random), key(&mut random)];
        let [outer, inner] = keys.each_ref().map(matching);
        let methods = keys.each_ref().map(|key| key.methods.as_deref());
        let (has_all, has_some) = match methods {
            [None, _] => (true, true),
            [Some(_), None] => (false, true),
            [Some(outer), Some(inner)] => (
                inner.iter().all(|method| outer.contains(method)),
                inner.iter().any(|method| outer.contains(method)),
            ),
        };
        let encloses = has_all
            && outer
                .iter()
                .zip(&inner)
                .all(|(outer, inner)| *outer || !inner);
        let overlaps = has_some && outer.iter().zip(&inner).any(|(a, b)| *a && *b);
        let [first, second] = keys
            .each_ref()
            .map(|key| RouteKey::parse(&key.text()).expect("it is a key"));
        assert_eq!(first.encloses(&second), encloses, "{first} {second}");
        assert_eq!(first.overlaps(&second), overlaps, "{first} {second}");
        seen[0] += usize::from(encloses);
        seen[1] += usize::from(overlaps && !encloses);
    }
    assert!(seen.iter().all(|count| *count > 30), "{seen:?}");
}

/// Of regexes only the beginning is known: they enclose nothing, and may overlap more than they do.
#[test]
fn regexes_are_enclosed_by_the_text_that_they_begin_with() {
    let (mut random, paths) = (Random(0x2c_1b3c_6d1f), all_paths());
    let matching = |key: &Key| -> Vec<bool> {
        let matches = |path: &String| {
            let parts: Vec<&str> = path.split('/').skip(1).collect();
            key.matches(path, &parts).is_some()
        };
        paths.iter().map(matches).collect()
    };
    let mut seen = [0, 0];
    for _ in 0..400 {
        let keys = [key(&mut random), regex_key(&mut random)];
        let [outer, inner] = keys.each_ref().map(matching);
        let [first, second] = keys.each_ref().map(Key::parsed);
        let both = || outer.iter().zip(&inner);
        let is_subset = both().all(|(outer, inner)| *outer || !inner);
        assert!(!first.encloses(&second) || is_subset, "{first} {second}");
        assert!(!second.encloses(&first), "{first} {second}");
        let has_methods = match (&keys[0].methods, &keys[1].methods) {
            (Some(ours), Some(others)) => ours.iter().any(|method| others.contains(method)),
            _ => true,
        };
        let overlaps = has_methods && both().any(|(a, b)| *a && *b);
        assert!(!overlaps || first.overlaps(&second), "{first} {second}");
        assert_eq!(
            first.overlaps(&second),
            second.overlaps(&first),
            "{first} {second}"
        );
        seen[0] += usize::from(first.encloses(&second));
        seen[1] += usize::from(overlaps);
    }
    assert!(seen.iter().all(|count| *count > 10), "{seen:?}");
}

fn have_equal_rank(a: &Key, b: &Key) -> bool {
    let takes_same = match (&a.methods, &b.methods) {
        (None, None) => true,
        (Some(a), Some(b)) => a.iter().any(|method| b.contains(method)),
        _ => false,
    };
    a.has_path_of(b) && takes_same
}

/// Whether `/a` gets a single path, because this `/a/` takes its methods.
fn loses_to_slash(without: &Key, with: &Key) -> bool {
    let takes_all = match (&with.methods, &without.methods) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(with), Some(without)) => without.iter().all(|method| with.contains(method)),
    };
    let has_star = matches!(without.segments.last(), Some(Segment::Star(_)));
    (without.end, with.end) == (End::Subtree, End::Below)
        && without.segments == with.segments
        && !has_star
        && takes_all
}

fn texts(keys: &[Key]) -> Vec<String> {
    keys.iter().map(Key::text).collect()
}
