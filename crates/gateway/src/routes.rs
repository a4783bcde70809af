//! Routes: the target of a request is the one with the longest prefix of its path.

use std::fmt;

use crate::target::{Prefix, Target};

/// All targets, by the text of their prefixes in descending order.
///
/// All texts between a path and a prefix of it begin with that prefix. So the matching entry is the
/// one with the greatest text that does not exceed the path, or one of its
/// [parents](RouteEntry::parent): a binary search and a few steps, however many targets there are.
#[derive(Debug, Default)]
pub struct Routes<T> {
    entries: Vec<RouteEntry<T>>,
}

#[derive(Debug)]
struct RouteEntry<T> {
    prefix: Prefix,
    route: T,
    /// The longest other prefix that this one's text begins with. Comes later in the list.
    parent: Option<usize>,
}

/// Two targets that contradict each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteConflict {
    /// They match the same requests, so that the second one would never get any.
    Same {
        /// What both match.
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

impl<T> Routes<T> {
    /// The route that matches `path`, which must be normalised (rule 10). Never allocates.
    pub fn find(&self, path: &str) -> Option<&T> {
        let start = match self.entries.len() {
            1 => 0,
            _ => self
                .entries
                .partition_point(|entry| entry.prefix.text() > path),
        };
        self.with_parents(start)
            .map(|at| &self.entries[at])
            .find(|entry| entry.prefix.matches(path))
            .map(|entry| &entry.route)
    }

    /// The routes with their prefixes, each before its parents.
    pub fn iter(&self) -> impl Iterator<Item = (&Prefix, &T)> {
        self.entries
            .iter()
            .map(|entry| (&entry.prefix, &entry.route))
    }

    /// Whether no target was given.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The same table with another value behind each prefix.
    pub fn map<U>(&self, mut make: impl FnMut(&T) -> U) -> Routes<U> {
        let entries = self.entries.iter().map(|entry| RouteEntry {
            prefix: entry.prefix.clone(),
            route: make(&entry.route),
            parent: entry.parent,
        });
        Routes {
            entries: entries.collect(),
        }
    }

    /// The entry at `start`, if there is one, and then its parents.
    fn with_parents(&self, start: usize) -> impl Iterator<Item = usize> {
        let first = (start < self.entries.len()).then_some(start);
        std::iter::successors(first, |&at| self.entries[at].parent)
    }

    fn link(&mut self) {
        for at in (0..self.entries.len()).rev() {
            let text = self.entries[at].prefix.text();
            let parent = self
                .with_parents(at + 1)
                .find(|&other| text.starts_with(self.entries[other].prefix.text()));
            self.entries[at].parent = parent;
        }
    }
}

impl Routes<Target> {
    /// Orders the targets.
    ///
    /// # Errors
    /// Two targets contradict each other.
    pub fn new(targets: Vec<Target>) -> Result<Routes<Target>, RouteConflict> {
        let mut entries: Vec<RouteEntry<Target>> = Vec::with_capacity(targets.len());
        for target in targets {
            let prefix = target.prefix.clone();
            let is_same = |other: &Prefix| {
                *other == prefix || (other.matches_all_paths() && prefix.matches_all_paths())
            };
            if let Some(other) = entries.iter().find(|entry| is_same(&entry.prefix)) {
                let (first, second) = (other.route.url(), target.url());
                return Err(RouteConflict::Same {
                    prefix,
                    first,
                    second,
                });
            }
            let mut others = entries.iter().map(|entry| &entry.route);
            if let Some(conflict) = others.find_map(|other| slash_conflict(other, &target)) {
                return Err(conflict);
            }
            entries.push(RouteEntry {
                prefix,
                route: target,
                parent: None,
            });
        }
        // `/api` is narrower than `/api*` and comes first.
        let is_text = |prefix: &Prefix| matches!(prefix, Prefix::Text(_));
        entries.sort_by(
            |RouteEntry { prefix: a, .. }, RouteEntry { prefix: b, .. }| {
                let descending = b.text().cmp(a.text());
                descending.then(is_text(a).cmp(&is_text(b)))
            },
        );
        let mut routes = Routes { entries };
        routes.link();
        Ok(routes)
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

    fn routes(values: &[&str]) -> Result<Routes<Target>, RouteConflict> {
        Routes::new(values.iter().map(|value| value.parse().unwrap()).collect())
    }

    fn port_for(routes: &Routes<Target>, path: &str) -> Option<String> {
        routes.find(path).map(|target| target.authority.clone())
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
        assert!(routes(&[]).unwrap().find("/").is_none());
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
            let Ok(table) = Routes::new(targets.clone()) else {
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
                assert_eq!(table.find(path), found, "{path} in {targets:?}");
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
