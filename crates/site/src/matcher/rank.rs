//! The rank of keys, and keys that contradict each other.
//!
//! Keys that match a request are compared segment by segment, and the first difference decides: text, a text with
//! a star or the text that a regex begins with (the longer one first, of equal ones the regex), a parameter, the end of
//! the pattern. Between equal paths, the key with methods comes first, then the regex with the greater priority.

use std::cmp::{Ordering, Reverse};

use super::key::{Form, PathPattern, RouteKey, Segment};
use super::path_regex::PathRegex;

/// Two keys that contradict each other. Numbers are positions in the list of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clash {
    /// The key that comes first in the list.
    pub first: usize,
    /// The other one.
    pub second: usize,
    /// How they contradict each other.
    pub kind: ClashKind,
}

/// A kind of contradiction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClashKind {
    /// Both match the same requests with the same rank.
    Same,
    /// They differ in a slash at the end, as `/a` and `/a/`: the one without it would get a single path.
    Slash,
}

/// A step of a pattern, in the order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RankedSegment<'p> {
    Text(&'p str),
    /// The start of a segment, by its length, and what follows it.
    Prefix(Reverse<usize>, &'p str, Behind),
    Param,
    End(Form),
}

/// The form of a segment after its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Behind {
    /// Matches of a regex. The start may be empty.
    Regex,
    Anything,
}

/// The steps of a pattern; the last one is its end, or the start of a segment.
pub(super) fn steps(pattern: &PathPattern) -> impl Iterator<Item = RankedSegment<'_>> {
    let form = pattern.form();
    let mut segments = pattern.segments().peekable();
    let mut is_ended = false;
    std::iter::from_fn(move || {
        if is_ended {
            return None;
        }
        let Some(segment) = segments.next() else {
            is_ended = true;
            return Some(RankedSegment::End(form));
        };
        is_ended = matches!(form, Form::Prefix | Form::Regex) && segments.peek().is_none();
        let behind = match form {
            Form::Regex => Behind::Regex,
            _ => Behind::Anything,
        };
        Some(match segment {
            Segment::Text(text) if is_ended => {
                RankedSegment::Prefix(Reverse(text.len()), text, behind)
            }
            Segment::Text(text) => RankedSegment::Text(text),
            Segment::Param => RankedSegment::Param,
        })
    })
}

impl RouteKey {
    /// Compares the ranks of two keys. Between texts that no path has both it is the alphabet.
    #[must_use]
    pub fn cmp_rank(&self, other: &RouteKey) -> Ordering {
        let priority = |key: &RouteKey| key.path.as_regex().map(PathRegex::rank);
        let by_path = self.path.cmp_rank(&other.path);
        by_path
            .then(self.methods.is_none().cmp(&other.methods.is_none()))
            .then_with(|| priority(self).cmp(&priority(other)))
    }

    /// The keys that contradict others, ordered by the second one of each pair.
    #[must_use]
    pub fn clashes(keys: &[RouteKey]) -> Vec<Clash> {
        let order = ranked(keys);
        let same_path = |a: &usize, b: &usize| keys[*a].path.cmp_rank(&keys[*b].path).is_eq();
        let groups: Vec<&[usize]> = order.chunk_by(same_path).collect();
        let mut clashes = Vec::new();
        for (at, group) in groups.iter().enumerate() {
            for (place, &second) in group.iter().enumerate() {
                let mut before = group[..place].iter();
                let first = before.find(|&&first| have_equal_rank(&keys[first], &keys[second]));
                clashes.extend(first.map(|&first| clash(first, second, ClashKind::Same)));
            }
            // `/a` comes directly behind `/a/`.
            let Some(with) = at.checked_sub(1).map(|before| groups[before]) else {
                continue;
            };
            if !keys[group[0]].path.lacks_slash_of(&keys[with[0]].path) {
                continue;
            }
            for &without in *group {
                let takes_all = |with: &&usize| takes_methods_of(&keys[**with], &keys[without]);
                let with = with.iter().find(takes_all);
                clashes.extend(with.map(|&with| clash(with, without, ClashKind::Slash)));
            }
        }
        clashes.sort_by_key(|clash| (clash.second, clash.kind, clash.first));
        clashes
    }
}

impl PathPattern {
    /// The order of precedence; equal for patterns that match the same paths, and for regexes with the same beginning.
    pub(super) fn cmp_rank(&self, other: &PathPattern) -> Ordering {
        steps(self).cmp(steps(other))
    }

    /// Whether the patterns differ in the slash at the end only, and the other one has it.
    fn lacks_slash_of(&self, other: &PathPattern) -> bool {
        let steps_before =
            |pattern| steps(pattern).filter(|step| !matches!(step, RankedSegment::End(_)));
        (self.form(), other.form()) == (Form::Subtree, Form::Below)
            && steps_before(self).eq(steps_before(other))
    }
}

/// The positions of the keys by rank; those of equal rank in the order of the list.
pub(super) fn ranked(keys: &[RouteKey]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by(|&a, &b| keys[a].cmp_rank(&keys[b]));
    order
}

fn clash(a: usize, b: usize, kind: ClashKind) -> Clash {
    Clash {
        first: a.min(b),
        second: a.max(b),
        kind,
    }
}

/// Whether two keys of the same path take the same request.
fn have_equal_rank(a: &RouteKey, b: &RouteKey) -> bool {
    match (&a.methods, &b.methods) {
        (None, None) => true,
        (Some(a), Some(b)) => a.overlaps(b),
        _ => false,
    }
}

fn takes_methods_of(key: &RouteKey, other: &RouteKey) -> bool {
    match (&key.methods, &other.methods) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(methods), Some(others)) => methods.includes(others),
    }
}
