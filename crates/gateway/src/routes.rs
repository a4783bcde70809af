//! The route of a request: the target with the longest prefix of its path.

use std::fmt;

use crate::target::{Prefix, Target};

/// All targets, the most specific first.
///
/// Matching walks the list, which is as long as the command line that wrote it.
#[derive(Debug, Default)]
pub struct Routes<T> {
    entries: Vec<(Prefix, T)>,
}

/// Two targets that claim the same requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DuplicateRoute {
    prefix: Prefix,
    first: String,
    second: String,
}

impl<T> Routes<T> {
    /// The route that takes `path`, which must be normalised (rule 10). Never allocates.
    pub fn find(&self, path: &str) -> Option<&T> {
        self.entries
            .iter()
            .find(|(prefix, _)| prefix.takes(path))
            .map(|(_, route)| route)
    }

    /// The routes with their prefixes, in the order in which they are asked.
    pub fn iter(&self) -> impl Iterator<Item = (&Prefix, &T)> {
        self.entries.iter().map(|(prefix, route)| (prefix, route))
    }

    /// Whether no target was given.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The same table with another value behind each prefix.
    pub fn map<U>(&self, mut make: impl FnMut(&T) -> U) -> Routes<U> {
        let entries = self
            .entries
            .iter()
            .map(|(prefix, route)| (prefix.clone(), make(route)));
        Routes {
            entries: entries.collect(),
        }
    }
}

impl Routes<Target> {
    /// Orders the targets.
    ///
    /// # Errors
    /// Two targets that claim the same requests: the second one would never get any.
    pub fn new(targets: Vec<Target>) -> Result<Routes<Target>, DuplicateRoute> {
        let mut routes = Routes::<Target> {
            entries: Vec::with_capacity(targets.len()),
        };
        for target in targets {
            let prefix = target.prefix.clone();
            let same = |other: &Prefix| {
                *other == prefix || (other.takes_all_paths() && prefix.takes_all_paths())
            };
            if let Some((_, first)) = routes.entries.iter().find(|(other, _)| same(other)) {
                let (first, second) = (first.origin.to_string(), target.origin.to_string());
                return Err(DuplicateRoute {
                    prefix,
                    first,
                    second,
                });
            }
            routes.entries.push((prefix, target));
        }
        // Of `/api` and `/api*` the first is narrower and goes before.
        let is_text = |prefix: &Prefix| matches!(prefix, Prefix::Text(_));
        routes
            .entries
            .sort_by_key(|(prefix, _)| (usize::MAX - prefix.len(), is_text(prefix)));
        Ok(routes)
    }
}

impl fmt::Display for DuplicateRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DuplicateRoute {
            prefix,
            first,
            second,
        } = self;
        let claimed = if prefix.takes_all_paths() {
            "everything"
        } else {
            &prefix.to_string()
        };
        write!(
            f,
            "--to is given twice for {claimed}, to {first} and to {second}; \
             keep one of them, or give one a prefix of its own: --to /PREFIX={second}"
        )
    }
}

impl std::error::Error for DuplicateRoute {}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(values: &[&str]) -> Result<Routes<Target>, DuplicateRoute> {
        Routes::new(values.iter().map(|value| value.parse().unwrap()).collect())
    }

    fn port_for(routes: &Routes<Target>, path: &str) -> Option<String> {
        routes.find(path).map(|target| target.authority.clone())
    }

    #[test]
    fn the_longest_prefix_on_a_segment_border_wins() {
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
    fn without_a_plain_url_the_rest_is_nobodys() {
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
    fn a_segment_prefix_goes_before_the_same_text() {
        let table = routes(&["/img*=http://text:1", "/img=http://segment:2"]).unwrap();
        assert_eq!(port_for(&table, "/img/x").as_deref(), Some("segment:2"));
        assert_eq!(port_for(&table, "/imgs").as_deref(), Some("text:1"));
    }

    #[test]
    fn a_prefix_that_ends_in_a_slash_takes_only_what_is_below() {
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
}
