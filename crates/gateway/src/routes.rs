//! The routes of a site in the router.

use std::fmt;
use std::ops::Range;

use blitz_http::{Method, RequestHead};
use blitz_site::matcher::{Clash, ClashKind, PathPattern, RouteKey, RouteTable, Verdict};

use crate::route::Route;
use crate::target::{Prefix, Target};

/// The method that routes and rules see, with the name of [`Method::Other`]: a WebSocket over HTTP/2 and HTTP/3 is asked
/// for with an extended CONNECT, and the upstream gets GET (RFC 8441, section 5).
#[inline]
pub(crate) fn method_of(head: &RequestHead) -> (Method, &str) {
    match head.method {
        Method::Connect if head.protocol().is_some() => (Method::Get, ""),
        Method::Other => (Method::Other, head.method_str()),
        method => (method, ""),
    }
}

/// The routes of a site.
#[derive(Debug)]
pub struct Routes {
    table: RouteTable,
    /// In the order of the keys.
    values: Box<[Route]>,
}

/// The table follows from the keys.
impl PartialEq for Routes {
    fn eq(&self, other: &Routes) -> bool {
        self.table.keys() == other.table.keys() && self.values == other.values
    }
}

/// Two targets that contradict each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteConflict {
    /// They match the same requests, so that the second one would never get any.
    Same {
        /// The prefix that both match.
        prefix: Prefix,
        /// The upstream of the first one.
        first: String,
        /// The upstream of the second one.
        second: String,
    },
    /// `/api` and `/api/` go to different places.
    Slash {
        /// The prefix without the slash.
        prefix: Prefix,
        /// The upstream of the one without the slash.
        without: String,
        /// The upstream of the one with the slash.
        with: String,
    },
}

impl Routes {
    /// These routes. Of keys that match the same requests the first one is found.
    #[must_use]
    pub fn new(routes: Vec<(RouteKey, Route)>) -> Routes {
        let (keys, values): (Vec<_>, Vec<_>) = routes.into_iter().unzip();
        Routes {
            table: RouteTable::new(keys),
            values: values.into(),
        }
    }

    /// The routes of these targets.
    ///
    /// # Errors
    /// Two targets contradict each other.
    pub(crate) fn of_targets(mut targets: Vec<Target>) -> Result<Routes, RouteConflict> {
        if let Some(conflict) = first_conflict(&targets) {
            return Err(conflict);
        }
        targets.sort_by(|a, b| b.prefix.text().cmp(a.prefix.text()));
        let route = |target: Target| (key(&target), Route::to(target));
        Ok(Routes::new(targets.into_iter().map(route).collect()))
    }

    /// The route of a request. Never allocates.
    #[inline]
    pub(crate) fn find(&self, head: &RequestHead) -> Option<&Route> {
        if self.table.has_one_for_all() {
            return self.values.first();
        }
        let (method, token) = method_of(head);
        self.find_for(head.path(), method, token)
    }

    /// The route for this path, which must be normalised (rule 10), and method. `token` is the name of
    /// [`Method::Other`].
    #[inline(always)]
    pub(crate) fn find_for(&self, path: &str, method: Method, token: &str) -> Option<&Route> {
        let position = self.table.position(path, method, token)?;
        Some(&self.values[position])
    }

    /// The same, if a regex matches it.
    pub(crate) fn find_regex_for(&self, path: &str, method: Method, token: &str) -> Option<&Route> {
        let position = self.table.position(path, method, token)?;
        let is_regex = self.table.key(position).path.is_regex();
        is_regex.then(|| &self.values[position])
    }

    /// The named groups of the regex of a request, with the parts of the path that they match.
    pub(crate) fn groups(&self, head: &RequestHead) -> Vec<(&str, Range<usize>)> {
        let (method, token) = method_of(head);
        let position = self.table.position(head.path(), method, token);
        let key = position.map(|position| self.table.key(position));
        key.map_or_else(Vec::new, |key| key.path.groups(head.path()))
    }

    /// All routes by rank for a request, those that match first.
    pub(crate) fn explain(&self, head: &RequestHead) -> Vec<(&Route, Verdict)> {
        let (method, token) = method_of(head);
        let verdicts = self.table.explain(head.path(), method, token);
        let routes = verdicts.into_iter();
        routes
            .map(|(route, verdict)| (&self.values[route], verdict))
            .collect()
    }

    /// All routes by rank.
    pub fn ranked(&self) -> impl Iterator<Item = &Route> {
        let ranked = self.table.ranked().into_iter();
        ranked.map(|route| &self.values[route])
    }

    /// The route with this position among all.
    #[must_use]
    pub fn at(&self, position: usize) -> &Route {
        &self.values[position]
    }

    /// All routes.
    pub fn iter(&self) -> impl Iterator<Item = &Route> {
        self.values.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Route> {
        self.values.iter_mut()
    }
}

fn first_conflict(targets: &[Target]) -> Option<RouteConflict> {
    let keys: Vec<RouteKey> = targets.iter().map(key).collect();
    let mut clashes = RouteKey::clashes(&keys).into_iter();
    clashes.find_map(|clash| conflict(clash, targets))
}

fn key(target: &Target) -> RouteKey {
    let path = match &target.prefix {
        Prefix::Everything => PathPattern::everything(),
        Prefix::Segments(path) => PathPattern::subtree(path),
        Prefix::Text(text) => PathPattern::starting_with(text),
    };
    RouteKey {
        methods: None,
        path,
    }
}

fn conflict(clash: Clash, targets: &[Target]) -> Option<RouteConflict> {
    let (first, second) = (&targets[clash.first], &targets[clash.second]);
    let match_all = first.prefix.matches_all_paths() && second.prefix.matches_all_paths();
    match clash.kind {
        ClashKind::Slash if !match_all => slash_conflict(first, second),
        ClashKind::Slash | ClashKind::Same => Some(RouteConflict::Same {
            prefix: second.prefix.clone(),
            first: first.url(),
            second: second.url(),
        }),
    }
}

/// The conflict of targets whose prefixes differ by a slash at the end only: almost always one was
/// meant, since the other would get a single path.
fn slash_conflict(a: &Target, b: &Target) -> Option<RouteConflict> {
    let (Prefix::Segments(text), Prefix::Segments(other)) = (&a.prefix, &b.prefix) else {
        return None;
    };
    let (without, with) = match (text.strip_suffix('/'), other.strip_suffix('/')) {
        (None, Some(stripped)) if stripped == text => (a, b),
        (Some(stripped), None) if stripped == other => (b, a),
        _ => return None,
    };
    // `/api=http://h/v2` and `/api/=http://h/v2/` are the same place.
    let path = |target: &Target| Some(target.path.as_ref()?.trim_end_matches('/').to_owned());
    let is_same = a.origin == b.origin && a.url() == b.url() && path(a) == path(b);
    (!is_same).then(|| RouteConflict::Slash {
        prefix: without.prefix.clone(),
        without: without.url(),
        with: with.url(),
    })
}

impl fmt::Display for RouteConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RouteConflict::Same {
                prefix,
                first,
                second,
            } => {
                let matched = if prefix.matches_all_paths() {
                    "all paths"
                } else {
                    &prefix.to_string()
                };
                write!(
                    f,
                    "--to is given twice for {matched}, to {first} and to {second}\n  \
                     keep one of them, or give one a prefix of its own: --to /PREFIX={second}"
                )
            }
            RouteConflict::Slash {
                prefix,
                without,
                with,
            } => write!(
                f,
                "--to {prefix}={without} would get the path {prefix} only, because {prefix}/ goes to \
                 {with}\n  keep one of them: {prefix} matches {prefix} and everything below it"
            ),
        }
    }
}

impl std::error::Error for RouteConflict {}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(values: &[&str]) -> Result<Routes, RouteConflict> {
        Routes::of_targets(values.iter().map(|value| value.parse().unwrap()).collect())
    }

    fn port_for(routes: &Routes, path: &str) -> Option<String> {
        let found = routes.find_for(path, Method::Get, "")?.target();
        found.map(|target| target.authority.clone())
    }

    #[test]
    fn the_longest_prefix_of_whole_segments_wins() {
        let table = routes(&[
            "http://all:1",
            "/api=http://api:2",
            "/api/v2=http://v2:3",
            "/a=http://a:4",
        ])
        .unwrap();
        for (path, authority) in [
            ("/", "all:1"),
            ("/api", "api:2"),
            ("/api/", "api:2"),
            ("/apix", "all:1"),
            ("/api/v", "api:2"),
            ("/api/v2", "v2:3"),
            ("/api/v2/x", "v2:3"),
            ("/api/v2x", "api:2"),
            ("/a", "a:4"),
            ("/a/api/v2", "a:4"),
            ("*", "all:1"),
        ] {
            assert_eq!(port_for(&table, path).as_deref(), Some(authority), "{path}");
        }
    }

    #[test]
    fn other_paths_match_nothing_without_a_target_for_all_paths() {
        let table = routes(&["/api=http://api:2"]).unwrap();
        assert_eq!(port_for(&table, "/"), None);
        assert_eq!(port_for(&table, "/apix"), None);
        assert_eq!(port_for(&routes(&[]).unwrap(), "/"), None);
    }

    #[test]
    fn text_prefixes_match_within_a_segment() {
        let table = routes(&["/blitz.v1.=http://grpc:1", "/img*=http://img:2"]).unwrap();
        assert_eq!(
            port_for(&table, "/blitz.v1.Greeter/Hello").as_deref(),
            Some("grpc:1")
        );
        assert_eq!(port_for(&table, "/blitz.v10.Greeter/Hello"), None);
        assert_eq!(port_for(&table, "/imgs/1").as_deref(), Some("img:2"));
        assert_eq!(port_for(&table, "/img").as_deref(), Some("img:2"));
    }

    #[test]
    fn a_segment_prefix_wins_over_the_same_text() {
        let table = routes(&["/img*=http://text:1", "/img=http://segment:2"]).unwrap();
        assert_eq!(port_for(&table, "/img/x").as_deref(), Some("segment:2"));
        assert_eq!(port_for(&table, "/imgs").as_deref(), Some("text:1"));
    }

    #[test]
    fn a_prefix_that_ends_in_a_slash_matches_only_paths_below() {
        let table = routes(&["/docs/=http://docs:1"]).unwrap();
        assert_eq!(port_for(&table, "/docs"), None);
        assert_eq!(port_for(&table, "/docs/").as_deref(), Some("docs:1"));
        assert_eq!(port_for(&table, "/docs/a").as_deref(), Some("docs:1"));
    }

    #[test]
    fn duplicates_are_an_error_that_names_both() {
        for twice in [
            ["/api=http://a:1", "/api=http://b:2"],
            ["http://a:1", "http://b:2"],
            ["http://a:1", "/=http://b:2"],
            ["/*=http://a:1", "/=http://b:2"],
            ["/img*=http://a:1", "/img*=http://b:2"],
        ] {
            let error = routes(&twice).unwrap_err().to_string();
            assert!(
                error.contains("http://a:1") && error.contains("http://b:2"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_prefix_with_and_without_a_slash_has_one_place() {
        for (values, is_valid) in [
            (["/a=http://a:1", "/a/=http://b:2"], false),
            (["/a/=http://b:2", "/a=http://a:1"], false),
            (["/a=http://a:1", "/a/=https://a:1"], false),
            (["/a=http://a:1/x", "/a/=http://a:1/y"], false),
            (["/a=http://a:1", "/a/=http://a:1/"], false),
            (["/a=http://a:1", "/a/=http://a:1"], true),
            (["/a=http://a:1/x", "/a/=http://a:1/x/"], true),
            (["/a=http://a:1", "/a/b/=http://b:2"], true),
            (["/a*=http://a:1", "/a/=http://b:2"], true),
        ] {
            let table = routes(&values);
            assert_eq!(table.is_ok(), is_valid, "{values:?}");
            let message = table.err().map(|error| error.to_string());
            assert!(message.is_none_or(|message| message.contains("/a/ goes to http")));
        }
    }

    /// Every table of these prefixes against every short path.
    #[test]
    fn the_table_agrees_with_a_search_of_all_prefixes() {
        const PREFIXES: [&str; 11] = [
            "", "/=", "/*=", "/a=", "/a/=", "/a*=", "/a.=", "/a/b=", "/a/b*=", "/ab=", "/b=",
        ];
        let mut paths = vec![String::from("*")];
        for length in 0..5_u32 {
            let paths_of_length = (0..4_usize.pow(length)).map(|number| {
                let letters = (0..length).map(|at| b"/ab."[number >> (2 * at) & 3] as char);
                std::iter::once('/').chain(letters).collect()
            });
            paths.extend(paths_of_length);
        }
        for chosen in 0..1_usize << PREFIXES.len() {
            let is_chosen = |at: &usize| chosen >> at & 1 == 1;
            let values = (0..PREFIXES.len()).filter(is_chosen);
            // `/a/` goes where `/a` goes: otherwise they contradict each other.
            let port = |at| if PREFIXES[at] == "/a/=" { at } else { at + 1 };
            let values = values.map(|at| format!("{}http://h:{}", PREFIXES[at], port(at)));
            let targets: Vec<Target> = values.map(|value| value.parse().unwrap()).collect();
            // Only one target may match all paths.
            let Ok(table) = Routes::of_targets(targets.clone()) else {
                continue;
            };
            for path in &paths {
                let found = targets
                    .iter()
                    .filter(|target| target.prefix.matches(path))
                    .max_by_key(|target| {
                        let is_segments = matches!(target.prefix, Prefix::Segments(_));
                        (target.prefix.text().len(), is_segments)
                    });
                let in_table = table
                    .find_for(path, Method::Get, "")
                    .and_then(Route::target);
                assert_eq!(in_table, found, "{path} in {targets:?}");
            }
        }
    }

    #[test]
    fn many_parents_lead_to_the_target_for_all_paths() {
        let deep: String = (0..100).map(|level| format!("/{level}")).collect();
        let mut values: Vec<String> = (0..100).map(|n| format!("/n{n}=http://n:1")).collect();
        values.push(format!("{deep}=http://deep:1"));
        values.push(String::from("http://all:1"));
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let table = routes(&values).unwrap();
        assert_eq!(port_for(&table, &deep).as_deref(), Some("deep:1"));
        assert_eq!(
            port_for(&table, &format!("{deep}x")).as_deref(),
            Some("all:1")
        );
        assert_eq!(port_for(&table, "/n99/x").as_deref(), Some("n:1"));
        assert_eq!(port_for(&table, "/n100").as_deref(), Some("all:1"));
    }
}
