//! The regular expressions of keys, each for a whole path.

use std::cmp::Reverse;
use std::ops::Range;

use regex::bytes::Regex;

/// A regular expression with its priority.
#[derive(Debug, Clone)]
pub(super) struct PathRegex {
    pub(super) text: Box<str>,
    /// Which of two with the same beginning comes first: the greater one.
    pub(super) priority: u64,
    regex: Regex,
}

impl PathRegex {
    pub(super) fn new(text: &str, priority: u64, regex: Regex) -> PathRegex {
        PathRegex {
            text: text.into(),
            priority,
            regex,
        }
    }

    /// Whether a path matches. Requests without a path never do.
    pub(super) fn matches(&self, path: &str) -> bool {
        path.starts_with('/') && self.regex.is_match(path.as_bytes())
    }

    /// The named groups that take part in the match of a path.
    pub(super) fn groups(&self, path: &str) -> Vec<(&str, Range<usize>)> {
        let Some(captures) = self.regex.captures(path.as_bytes()) else {
            return Vec::new();
        };
        let names = self.regex.capture_names().flatten();
        names
            .filter_map(|name| Some((name, captures.name(name)?.range())))
            .collect()
    }

    pub(super) fn rank(&self) -> Reverse<u64> {
        Reverse(self.priority)
    }
}

impl PartialEq for PathRegex {
    fn eq(&self, other: &PathRegex) -> bool {
        (&self.text, self.priority) == (&other.text, other.priority)
    }
}

impl Eq for PathRegex {}
