//! Patterns of paths: which requests a route matches, and which of two routes comes first.

use std::borrow::Cow;
use std::cmp::{Ordering, Reverse};
use std::fmt;

use crate::path_regex::PathRegex;

/// The paths that a route matches, compared after normalising: segments, and their end.
///
/// The path `/` has one segment, which is empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PathPattern {
    /// The first segments of each path.
    pub segments: Box<[Segment]>,
    /// The end of each path, after these segments.
    pub end: PathEnd,
}

/// The segments of a path between two slashes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Segment {
    /// This text; it is empty at the end of `=/a/` only.
    Text(Box<str>),
    /// Any text that is not empty, with the name of the parameter.
    Parameter(Box<str>),
}

/// The end of a pattern: the paths that are allowed after its segments.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PathEnd {
    /// Nothing: `=/a`.
    Exact,
    /// One or more segments, of which the last may be empty: `/a/`.
    Below,
    /// Any segments or none: `/a`.
    Subtree,
    /// A segment that begins with this text, which is not empty, and any further ones: `/a*`.
    Prefix(Box<str>),
    /// Paths that the regex matches as a whole: `~/a\d+`. The segments are those that all its matches have.
    Regex {
        /// The regex.
        regex: PathRegex,
        /// Which of two regexes with the same beginning comes first: the greater one. By default 0.
        priority: u64,
    },
}

impl PathPattern {
    /// The paths that a regex matches.
    pub(crate) fn of_regex(regex: PathRegex) -> PathPattern {
        let mut segments = regex.beginning().split('/').skip(1).collect::<Vec<_>>();
        segments.pop();
        let segments = segments.into_iter();
        PathPattern {
            segments: segments.map(|text| Segment::Text(text.into())).collect(),
            end: PathEnd::Regex { regex, priority: 0 },
        }
    }

    /// The regex, if it has one.
    #[must_use]
    pub fn regex(&self) -> Option<&PathRegex> {
        match &self.end {
            PathEnd::Regex { regex, .. } => Some(regex),
            _ => None,
        }
    }

    /// The priority among regexes; 0 for other patterns.
    #[must_use]
    pub fn priority(&self) -> u64 {
        match &self.end {
            PathEnd::Regex { priority, .. } => *priority,
            _ => 0,
        }
    }

    /// Sets the priority of a regex.
    pub(crate) fn set_priority(&mut self, new: u64) {
        if let PathEnd::Regex { priority, .. } = &mut self.end {
            *priority = new;
        }
    }

    /// For a regex the pattern of all paths with its beginning.
    pub(crate) fn without_regex(&self) -> Cow<'_, PathPattern> {
        let PathEnd::Regex { regex, .. } = &self.end else {
            return Cow::Borrowed(self);
        };
        let end = match last_part(regex) {
            "" => PathEnd::Below,
            text => PathEnd::Prefix(text.into()),
        };
        Cow::Owned(PathPattern {
            segments: self.segments.clone(),
            end,
        })
    }

    /// Every path: `/`.
    pub(crate) fn everything() -> PathPattern {
        PathPattern {
            segments: Box::new([]),
            end: PathEnd::Subtree,
        }
    }

    /// Whether it matches every path.
    #[must_use]
    pub(crate) fn is_everything(&self) -> bool {
        self.segments.is_empty() && self.end == PathEnd::Subtree
    }

    /// Whether it matches this normalised path.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        if let Some(regex) = self.regex() {
            return regex.matches(path);
        }
        let Some(path) = path.strip_prefix('/') else {
            // That of `OPTIONS *`.
            return self.is_everything();
        };
        let mut rest = path.split('/');
        let is_match = |segment: &Segment| match (segment, rest.next()) {
            (_, None) => false,
            (Segment::Text(text), Some(found)) => **text == *found,
            (Segment::Parameter(_), Some(found)) => !found.is_empty(),
        };
        if !self.segments.iter().all(is_match) {
            return false;
        }
        match &self.end {
            PathEnd::Exact => rest.next().is_none(),
            PathEnd::Below => rest.next().is_some(),
            PathEnd::Subtree => true,
            PathEnd::Prefix(text) => rest.next().is_some_and(|next| next.starts_with(&**text)),
            PathEnd::Regex { .. } => false,
        }
    }

    /// Whether it matches all paths that the other one matches, as far as that follows from the beginning of a regex. A
    /// regex encloses nothing.
    #[must_use]
    pub fn encloses(&self, other: &PathPattern) -> bool {
        let other = &*other.without_regex();
        let (count, others) = (self.segments.len(), other.segments.len());
        let is_covered = |(at, segment): (usize, &Segment)| match other.segments.get(at) {
            Some(inner) => segment.covers(inner),
            // A prefix is the beginning of a segment that is not empty.
            None => {
                at == others
                    && matches!(other.end, PathEnd::Prefix(_))
                    && matches!(segment, Segment::Parameter(_))
            }
        };
        if !self.segments.iter().enumerate().all(is_covered) {
            return false;
        }
        match &self.end {
            PathEnd::Subtree => true,
            PathEnd::Exact => count == others && other.end == PathEnd::Exact,
            PathEnd::Below => {
                let has_more = matches!(other.end, PathEnd::Below | PathEnd::Prefix(_));
                others > count || (others == count && has_more)
            }
            PathEnd::Prefix(text) => match (other.segments.get(count), &other.end) {
                (Some(Segment::Text(inner)), _) => inner.starts_with(&**text),
                (None, PathEnd::Prefix(inner)) => others == count && inner.starts_with(&**text),
                _ => false,
            },
            PathEnd::Regex { .. } => false,
        }
    }

    /// Whether both have the same segments, whatever the names of parameters.
    pub(crate) fn has_segments_of(&self, other: &PathPattern) -> bool {
        let mut both = self.segments.iter().zip(&*other.segments);
        self.segments.len() == other.segments.len() && both.all(|(a, b)| a.covers(b) && b.covers(a))
    }

    /// For `/a/` and `=/a/` the pattern `=/a`.
    pub(crate) fn without_slash(&self) -> Option<PathPattern> {
        let segments = match (&self.end, &*self.segments) {
            (PathEnd::Below, all) => all,
            (PathEnd::Exact, [before @ .., last]) if last.is_empty_text() => before,
            _ => return None,
        };
        (!segments.is_empty()).then(|| PathPattern {
            segments: segments.into(),
            end: PathEnd::Exact,
        })
    }

    /// The paths that both match, as a pattern. A regex counts as all paths with its beginning.
    pub(crate) fn intersection(&self, other: &PathPattern) -> Option<PathPattern> {
        let (ours, others) = (&*self.without_regex(), &*other.without_regex());
        let (long, short) = match ours.segments.len() >= others.segments.len() {
            true => (ours, others),
            false => (others, ours),
        };
        let both = long.segments.iter().zip(&*short.segments);
        let mut segments: Vec<Segment> = both
            .map(|(a, b)| a.intersection(b))
            .collect::<Option<_>>()?;
        let further = &long.segments[short.segments.len()..];
        let Some((next, last)) = further.split_first() else {
            let end = long.end.intersection(&short.end)?;
            let segments = segments.into();
            return Some(PathPattern { segments, end });
        };
        match &short.end {
            PathEnd::Exact => return None,
            PathEnd::Below | PathEnd::Subtree | PathEnd::Regex { .. } => {
                segments.extend_from_slice(further);
            }
            PathEnd::Prefix(text) => match next {
                Segment::Text(found) if !found.starts_with(&**text) => return None,
                Segment::Text(_) => segments.extend_from_slice(further),
                Segment::Parameter(_) if last.is_empty() && long.end == PathEnd::Subtree => {
                    let end = PathEnd::Prefix(text.clone());
                    let segments = segments.into();
                    return Some(PathPattern { segments, end });
                }
                // `/a*` and `/{id}/b`: the language has no pattern for these paths, and this one has all of them.
                Segment::Parameter(_) => segments.extend_from_slice(further),
            },
        }
        Some(PathPattern {
            segments: segments.into(),
            end: long.end.clone(),
        })
    }

    /// Which of two patterns that match one path comes first: that with text where they differ, then that with a
    /// longer beginning of a segment, of equal ones the regex, that with a parameter, and that which ends, as `=/a`,
    /// `/a/`, `/a`. Others have some order. Regexes with the same beginning are equal.
    pub(crate) fn by_rank(&self, other: &PathPattern) -> Ordering {
        let count = self.segments.len().max(other.segments.len());
        let ranks = (0..=count).map(|at| self.rank(at).cmp(&other.rank(at)));
        ranks
            .fold(Ordering::Equal, Ordering::then)
            .then_with(|| self.end.order().cmp(&other.end.order()))
    }

    fn rank(&self, at: usize) -> Rank<'_> {
        match (self.segments.get(at), &self.end) {
            (Some(Segment::Text(text)), _) => Rank::Text(text),
            (Some(Segment::Parameter(_)), _) => Rank::Parameter,
            (None, PathEnd::Prefix(text)) if at == self.segments.len() => {
                Rank::Beginning(Reverse(text.len()), text, Beginning::OfPrefix)
            }
            (None, PathEnd::Regex { regex, .. }) if at == self.segments.len() => {
                let text = last_part(regex);
                Rank::Beginning(Reverse(text.len()), text, Beginning::OfRegex)
            }
            (None, _) => Rank::End,
        }
    }

    /// The same for patterns that match the same paths, whatever the names of their parameters.
    pub(crate) fn shape(&self) -> String {
        if let Some(regex) = self.regex() {
            return format!("~{}", regex.text());
        }
        let mut shape = String::new();
        for segment in &self.segments {
            shape.push('/');
            shape.push_str(match segment {
                Segment::Text(text) => text,
                Segment::Parameter(_) => "{}",
            });
        }
        match &self.end {
            PathEnd::Exact => shape.push('='),
            PathEnd::Below => shape.push_str("/?"),
            PathEnd::Subtree | PathEnd::Regex { .. } => {}
            PathEnd::Prefix(text) => {
                shape.push('/');
                shape.push_str(text);
                shape.push('?');
            }
        }
        shape
    }
}

/// The rank of a pattern at one segment. Patterns are ordered by their ranks, segment by segment.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Rank<'a> {
    Text(&'a str),
    Beginning(Reverse<usize>, &'a str, Beginning),
    Parameter,
    End,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Beginning {
    OfRegex,
    OfPrefix,
}

/// The beginning of the segment with which a regex is more than text.
fn last_part(regex: &PathRegex) -> &str {
    regex.beginning().rsplit('/').next().unwrap_or_default()
}

impl Segment {
    fn is_empty_text(&self) -> bool {
        matches!(self, Segment::Text(text) if text.is_empty())
    }

    fn covers(&self, other: &Segment) -> bool {
        match (self, other) {
            (Segment::Text(text), Segment::Text(inner)) => text == inner,
            (Segment::Text(_), Segment::Parameter(_)) => false,
            (Segment::Parameter(_), Segment::Text(inner)) => !inner.is_empty(),
            (Segment::Parameter(_), Segment::Parameter(_)) => true,
        }
    }

    fn intersection(&self, other: &Segment) -> Option<Segment> {
        match self.covers(other) {
            true => Some(other.clone()),
            false => other.covers(self).then(|| self.clone()),
        }
    }
}

impl PathEnd {
    /// The paths that both allow after the same segments.
    fn intersection(&self, other: &PathEnd) -> Option<PathEnd> {
        match (self, other) {
            (PathEnd::Subtree, end) | (end, PathEnd::Subtree) => Some(end.clone()),
            (PathEnd::Exact, PathEnd::Exact) => Some(PathEnd::Exact),
            (PathEnd::Exact, _) | (_, PathEnd::Exact) => None,
            (PathEnd::Below, end) | (end, PathEnd::Below) => Some(end.clone()),
            (PathEnd::Prefix(a), PathEnd::Prefix(b)) if a.starts_with(&**b) => Some(self.clone()),
            (PathEnd::Prefix(a), PathEnd::Prefix(b)) if b.starts_with(&**a) => Some(other.clone()),
            (PathEnd::Prefix(_), PathEnd::Prefix(_)) => None,
            // Intersections are those of their beginnings.
            (PathEnd::Regex { .. }, _) | (_, PathEnd::Regex { .. }) => None,
        }
    }

    fn order(&self) -> u8 {
        match self {
            PathEnd::Exact => 0,
            PathEnd::Prefix(_) | PathEnd::Regex { .. } => 1,
            PathEnd::Below => 2,
            PathEnd::Subtree => 3,
        }
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(regex) = self.regex() {
            return write!(f, "~{}", regex.text());
        }
        if self.end == PathEnd::Exact {
            f.write_str("=")?;
        }
        for segment in &self.segments {
            match segment {
                Segment::Text(text) => write!(f, "/{text}")?,
                Segment::Parameter(name) => write!(f, "/{{{name}}}")?,
            }
        }
        match &self.end {
            PathEnd::Exact => Ok(()),
            PathEnd::Below => f.write_str("/"),
            PathEnd::Subtree if self.segments.is_empty() => f.write_str("/"),
            PathEnd::Subtree | PathEnd::Regex { .. } => Ok(()),
            PathEnd::Prefix(text) => write!(f, "/{text}*"),
        }
    }
}

#[cfg(test)]
mod tests;
