//! Keys that match all requests of another one, or some of them.

use super::key::{Form, PathPattern, RouteKey};
use super::rank::{RankedSegment, steps};

impl RouteKey {
    /// Whether it matches all requests that the other one matches, as far as that follows from the beginning of a regex. A
    /// regex encloses nothing.
    #[must_use]
    pub fn encloses(&self, other: &RouteKey) -> bool {
        let has_methods = match (&self.methods, &other.methods) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(methods), Some(others)) => methods.includes(others),
        };
        has_methods && self.path.encloses(&other.path)
    }

    /// Whether both match some request, or may do so, as far as that follows from the beginning of a regex.
    #[must_use]
    pub fn overlaps(&self, other: &RouteKey) -> bool {
        let has_methods = match (&self.methods, &other.methods) {
            (Some(methods), Some(others)) => methods.overlaps(others),
            _ => true,
        };
        has_methods && self.path.overlaps(&other.path)
    }
}

impl PathPattern {
    fn encloses(&self, other: &PathPattern) -> bool {
        if self.is_regex() {
            return false;
        }
        let (mut outer, mut inner) = (steps(self), steps(other));
        loop {
            let is_covered = match (outer.next(), inner.next()) {
                (Some(RankedSegment::End(Form::Subtree)), _) => return true,
                (Some(RankedSegment::End(Form::Exact)), next) => {
                    return next == Some(RankedSegment::End(Form::Exact));
                }
                (Some(RankedSegment::End(_)), next) => return is_below(next),
                (
                    Some(RankedSegment::Prefix(_, start, _)),
                    Some(RankedSegment::Text(text) | RankedSegment::Prefix(_, text, _)),
                ) => {
                    return text.starts_with(start);
                }
                // The beginning of a segment, which is not empty, and all that follows it.
                (Some(RankedSegment::Param), Some(RankedSegment::Prefix(_, start, _))) => {
                    return !start.is_empty()
                        && outer.next() == Some(RankedSegment::End(Form::Subtree));
                }
                (Some(RankedSegment::Text(text)), Some(RankedSegment::Text(inner))) => {
                    text == inner
                }
                (Some(RankedSegment::Param), Some(RankedSegment::Text(inner))) => !inner.is_empty(),
                (Some(RankedSegment::Param), Some(RankedSegment::Param)) => true,
                _ => false,
            };
            if !is_covered {
                return false;
            }
        }
    }

    fn overlaps(&self, other: &PathPattern) -> bool {
        let (mut ours, mut others) = (steps(self), steps(other));
        loop {
            let goes_on = match (ours.next(), others.next()) {
                (Some(RankedSegment::End(Form::Subtree)), _)
                | (_, Some(RankedSegment::End(Form::Subtree))) => {
                    return true;
                }
                (Some(RankedSegment::End(Form::Exact)), next)
                | (next, Some(RankedSegment::End(Form::Exact))) => {
                    return next == Some(RankedSegment::End(Form::Exact));
                }
                (Some(RankedSegment::End(_)), next) | (next, Some(RankedSegment::End(_))) => {
                    return is_below(next);
                }
                (Some(RankedSegment::Prefix(_, a, _)), Some(RankedSegment::Prefix(_, b, _))) => {
                    return a.starts_with(b) || b.starts_with(a);
                }
                (Some(RankedSegment::Prefix(_, start, _)), Some(RankedSegment::Text(text)))
                | (Some(RankedSegment::Text(text)), Some(RankedSegment::Prefix(_, start, _))) => {
                    return text.starts_with(start);
                }
                (Some(RankedSegment::Text(a)), Some(RankedSegment::Text(b))) => a == b,
                (Some(RankedSegment::Text(text)), Some(RankedSegment::Param))
                | (Some(RankedSegment::Param), Some(RankedSegment::Text(text))) => !text.is_empty(),
                (Some(RankedSegment::Param), Some(RankedSegment::Param)) => true,
                // A segment that begins so; what follows it is anything.
                (Some(RankedSegment::Param), Some(RankedSegment::Prefix(..)))
                | (Some(RankedSegment::Prefix(..)), Some(RankedSegment::Param)) => return true,
                (None, _) | (_, None) => false,
            };
            if !goes_on {
                return false;
            }
        }
    }
}

/// Whether paths with this step have more segments than those that end there.
fn is_below(step: Option<RankedSegment<'_>>) -> bool {
    !matches!(
        step,
        None | Some(RankedSegment::End(Form::Exact | Form::Subtree))
    )
}
