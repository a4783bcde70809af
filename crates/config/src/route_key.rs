//! The key of a route: the requests that it matches.

use std::cmp::{Ordering, Reverse};
use std::fmt;

use crate::method::Methods;
use crate::path_regex::PathRegex;
use crate::pattern::PathPattern;

/// The requests that a route matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteKey {
    /// `None` is every method. HEAD is among them where GET is, unless another key with this path names HEAD.
    pub methods: Option<Methods>,
    /// The paths.
    pub path: PathPattern,
}

impl RouteKey {
    /// All requests of a site: `/`.
    pub(crate) fn everything() -> RouteKey {
        RouteKey {
            methods: None,
            path: PathPattern::everything(),
        }
    }

    /// Whether it matches all requests that the other one matches.
    #[must_use]
    pub fn encloses(&self, other: &RouteKey) -> bool {
        let has_methods = match (self.methods, other.methods) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(outer), Some(inner)) => outer.intersection(inner) == inner,
        };
        has_methods && self.path.encloses(&other.path)
    }

    /// The requests that both match.
    pub(crate) fn intersection(&self, other: &RouteKey) -> Option<RouteKey> {
        let methods = match (self.methods, other.methods) {
            (None, methods) | (methods, None) => methods,
            (Some(a), Some(b)) => Some(a.intersection(b)),
        };
        if methods.is_some_and(Methods::is_empty) {
            return None;
        }
        let path = self.path.intersection(&other.path)?;
        Some(RouteKey { methods, path })
    }

    /// Which of two keys that match one request comes first: by the path, then that with methods, then the regex with the
    /// greater priority.
    pub(crate) fn by_rank(&self, other: &RouteKey) -> Ordering {
        let further = |key: &RouteKey| {
            let priority = Reverse(key.path.priority());
            (
                key.methods.is_none(),
                priority,
                key.methods.map(Methods::bits),
            )
        };
        let texts = [self, other].map(|key| key.path.regex().map(PathRegex::text));
        let by_path = self.path.by_rank(&other.path);
        by_path
            .then_with(|| further(self).cmp(&further(other)))
            .then_with(|| texts[0].cmp(&texts[1]))
    }
}

impl fmt::Display for RouteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.methods {
            Some(methods) => write!(f, "{methods} {}", self.path),
            None => self.path.fmt(f),
        }
    }
}
