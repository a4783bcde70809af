//! Conditional requests (RFC 9110, section 13).

use std::time::SystemTime;

use blitz_http::{Fields, Name};

use super::selection::Representation;

/// The answer of the preconditions of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Precondition {
    /// They hold, or there are none.
    Met,
    /// The client has the representation: 304.
    NotModified,
    /// The client wants another one: 412.
    Failed,
}

/// Evaluates the fields in the order of section 13.2.2.
pub(super) fn evaluate(fields: &Fields, representation: &Representation) -> Precondition {
    if fields.contains(Name::IfMatch) {
        if !has_tag(fields, Name::IfMatch, representation, Comparison::Strong) {
            return Precondition::Failed;
        }
    } else if let Some(date) = date(fields, Name::IfUnmodifiedSince)
        && representation.modified > date
    {
        return Precondition::Failed;
    }
    if fields.contains(Name::IfNoneMatch) {
        if has_tag(fields, Name::IfNoneMatch, representation, Comparison::Weak) {
            return Precondition::NotModified;
        }
    } else if let Some(date) = date(fields, Name::IfModifiedSince)
        && representation.modified <= date
    {
        return Precondition::NotModified;
    }
    Precondition::Met
}

/// Whether `If-Range`, if it is there, has the client's part belong to this representation (section 13.1.5).
pub(super) fn allows_range(
    fields: &Fields,
    representation: &Representation,
    now: SystemTime,
) -> bool {
    let mut lines = fields.get_all(Name::IfRange);
    let Some(value) = lines.next() else {
        return true;
    };
    if lines.next().is_some() {
        return false;
    }
    let value = value.trim_ascii();
    if value.starts_with(b"\"") || value.starts_with(b"W/") {
        return value == representation.tag.as_bytes();
    }
    // A date is a strong validator only if the file was not changed again within its second (section 8.8.2.2).
    let age = now.duration_since(representation.modified);
    parse_date(value) == Some(representation.modified) && age.is_ok_and(|age| age.as_secs() >= 1)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

/// Whether a list of tags has that of the representation, or is `*`.
fn has_tag(
    fields: &Fields,
    name: Name,
    representation: &Representation,
    comparison: Comparison,
) -> bool {
    let tag = representation.tag.as_bytes();
    fields.get_all(name).any(|line| {
        let line = line.trim_ascii();
        line == b"*"
            || tags(line).any(|(is_weak, other)| {
                other == tag
                    && (comparison == Comparison::Weak || !is_weak && !representation.is_weak)
            })
    })
}

/// The tags of a list, each with its quotes, and whether it is weak. A tag may have commas. The rest
/// behind a mistake is ignored.
fn tags(mut rest: &[u8]) -> impl Iterator<Item = (bool, &[u8])> {
    std::iter::from_fn(move || {
        while let [b',' | b' ' | b'\t', after @ ..] = rest {
            rest = after;
        }
        let (is_weak, quoted) = match rest {
            [b'W', b'/', quoted @ ..] => (true, quoted),
            quoted => (false, quoted),
        };
        let content = quoted.strip_prefix(b"\"")?;
        let length = content.iter().position(|byte| *byte == b'"')? + 2;
        let (tag, after) = quoted.split_at(length);
        rest = after;
        Some((is_weak, tag))
    })
}

/// A valid date; a field with another value, or of several lines, is ignored.
fn date(fields: &Fields, name: Name) -> Option<SystemTime> {
    let mut lines = fields.get_all(name);
    let value = lines.next()?;
    parse_date(value).filter(|_| lines.next().is_none())
}

fn parse_date(value: &[u8]) -> Option<SystemTime> {
    let text = std::str::from_utf8(value).ok()?;
    httpdate::parse_http_date(text.trim()).ok()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    const AT: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn representation() -> Representation {
        Representation {
            size: 100,
            modified: UNIX_EPOCH + Duration::from_secs(784_111_777),
            tag: "\"a,b\"".to_owned(),
            is_weak: false,
        }
    }

    fn fields(all: &[(Name, &str)]) -> Fields {
        let mut fields = Fields::new();
        all.iter()
            .for_each(|(name, value)| fields.append(*name, value));
        fields
    }

    #[test]
    fn preconditions_are_evaluated_in_order() {
        use Name as N;
        use Precondition as P;
        for (all, expected) in [
            (&[][..], P::Met),
            (&[(N::IfNoneMatch, "\"a,b\"")], P::NotModified),
            (&[(N::IfNoneMatch, "W/\"a,b\"")], P::NotModified),
            (
                &[(N::IfNoneMatch, "\"x\", W/\"y\" ,\"a,b\"")],
                P::NotModified,
            ),
            (
                &[(N::IfNoneMatch, "\"x\""), (N::IfNoneMatch, "\"a,b\"")],
                P::NotModified,
            ),
            (&[(N::IfNoneMatch, "*")], P::NotModified),
            (&[(N::IfNoneMatch, "\"a\"")], P::Met),
            (&[(N::IfNoneMatch, "a,b")], P::Met),
            (&[(N::IfNoneMatch, "\"x\", bad \"a,b\"")], P::Met),
            (&[(N::IfModifiedSince, AT)], P::NotModified),
            (&[(N::IfModifiedSince, AFTER)], P::NotModified),
            (&[(N::IfModifiedSince, BEFORE)], P::Met),
            (&[(N::IfModifiedSince, "yesterday")], P::Met),
            (
                &[(N::IfModifiedSince, "Sunday, 06-Nov-94 08:49:37 GMT")],
                P::NotModified,
            ),
            (
                &[(N::IfModifiedSince, AT), (N::IfModifiedSince, AT)],
                P::Met,
            ),
            // The tag counts, not the date.
            (
                &[(N::IfNoneMatch, "\"x\""), (N::IfModifiedSince, AT)],
                P::Met,
            ),
            (&[(N::IfMatch, "\"a,b\"")], P::Met),
            (&[(N::IfMatch, "*")], P::Met),
            (&[(N::IfMatch, "W/\"a,b\"")], P::Failed),
            (&[(N::IfMatch, "\"x\"")], P::Failed),
            (&[(N::IfMatch, "")], P::Failed),
            (&[(N::IfUnmodifiedSince, AT)], P::Met),
            (&[(N::IfUnmodifiedSince, BEFORE)], P::Failed),
            (&[(N::IfUnmodifiedSince, "bad")], P::Met),
            (
                &[(N::IfMatch, "\"a,b\""), (N::IfUnmodifiedSince, BEFORE)],
                P::Met,
            ),
            (
                &[(N::IfMatch, "\"a,b\""), (N::IfNoneMatch, "\"a,b\"")],
                P::NotModified,
            ),
            (
                &[(N::IfMatch, "\"x\""), (N::IfNoneMatch, "\"a,b\"")],
                P::Failed,
            ),
        ] {
            let outcome = evaluate(&fields(all), &representation());
            assert_eq!(outcome, expected, "{all:?}");
        }
    }

    #[test]
    fn a_part_is_sent_of_the_same_representation_only() {
        let now = representation().modified + Duration::from_secs(60);
        let allows = |values: &[&str], now| {
            let all: Vec<_> = values.iter().map(|value| (Name::IfRange, *value)).collect();
            allows_range(&fields(&all), &representation(), now)
        };
        assert!(allows(&[], now));
        assert!(allows(&["\"a,b\""], now));
        assert!(allows(&[AT], now));
        assert!(!allows(&[AT], representation().modified));
        for other in ["\"x\"", "W/\"a,b\"", BEFORE, AFTER, "", "a,b"] {
            assert!(!allows(&[other], now), "{other}");
        }
        assert!(!allows(&["\"a,b\"", "\"a,b\""], now));
    }
}
