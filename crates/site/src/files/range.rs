//! Range requests (RFC 9110, section 14).

use std::ops::Range;

use blitz_http::{Fields, Name};

/// The most ranges of a request. More are ignored, and the whole file is sent (section 14.2: a server may do so for
/// "egregious range requests").
const RANGES_MAX: usize = 16;

/// The parts that a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ranges {
    /// All of it: there is no field, or it is to be ignored.
    Whole,
    /// One part, or several in the order of the field; none is empty.
    Parts(Vec<Range<u64>>),
    /// None of the ranges overlaps the content: 416.
    Unsatisfiable,
}

/// The parts of content of this length. Ranges that together are longer than the content are ignored: they would have
/// the server send more than it has.
pub(super) fn ranges(fields: &Fields, length: u64) -> Ranges {
    let mut lines = fields.get_all(Name::Range);
    let (Some(value), None) = (lines.next(), lines.next()) else {
        return Ranges::Whole;
    };
    let Some(specs) = strip_unit(value.trim_ascii()) else {
        return Ranges::Whole;
    };
    let (mut parts, mut number, mut total) = (Vec::new(), 0, 0_u64);
    for spec in specs.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
        // A list may have empty members (section 5.6.1.2).
        if spec.is_empty() {
            continue;
        }
        number += 1;
        let Some(part) = parse(spec, length).filter(|_| number <= RANGES_MAX) else {
            return Ranges::Whole;
        };
        total = total.saturating_add(part.end - part.start);
        if !part.is_empty() {
            parts.push(part);
        }
    }
    match &parts[..] {
        _ if number == 0 || total > length => Ranges::Whole,
        [] => Ranges::Unsatisfiable,
        _ => Ranges::Parts(parts),
    }
}

fn strip_unit(value: &[u8]) -> Option<&[u8]> {
    let (unit, specs) = value.split_at_checked(6)?;
    unit.eq_ignore_ascii_case(b"bytes=").then_some(specs)
}

/// The part that a range names, which is empty if it does not overlap the content. `None` for one that is none.
fn parse(spec: &[u8], length: u64) -> Option<Range<u64>> {
    let dash = spec.iter().position(|byte| *byte == b'-')?;
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    match (first, last) {
        ([], last) => Some(length.saturating_sub(number(last)?)..length),
        (first, []) => Some(number(first)?.min(length)..length),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            let end = last.saturating_add(1).min(length);
            (first <= last).then_some(first.min(end)..end)
        }
    }
}

/// Digits; a number that is too large is the largest one.
fn number(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| {
        digits.iter().fold(0_u64, |number, digit| {
            number
                .saturating_mul(10)
                .saturating_add(u64::from(digit - b'0'))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &str, length: u64) -> Ranges {
        let mut fields = Fields::new();
        fields.append(Name::Range, value);
        ranges(&fields, length)
    }

    #[test]
    fn ranges_are_read_as_the_rfc_says() {
        let parts = |all: &[Range<u64>]| Ranges::Parts(all.to_vec());
        let one = |part: Range<u64>| Ranges::Parts(vec![part]);
        for (value, expected) in [
            ("bytes=0-9", one(0..10)),
            ("Bytes=0-0", one(0..1)),
            ("bytes=90-", one(90..100)),
            ("bytes=-10", one(90..100)),
            ("bytes=-200", one(0..100)),
            ("bytes=90-200", one(90..100)),
            ("bytes=0-0, -1", parts(&[0..1, 99..100])),
            ("bytes=50-59,,0-9 ,", parts(&[50..60, 0..10])),
            ("bytes=100-, 0-0", one(0..1)),
            ("bytes=0-99999999999999999999999", one(0..100)),
            ("bytes=100-", Ranges::Unsatisfiable),
            ("bytes=100-200, 300-", Ranges::Unsatisfiable),
            ("bytes=-0", Ranges::Unsatisfiable),
            ("bytes=99999999999999999999999-", Ranges::Unsatisfiable),
            ("bytes=", Ranges::Whole),
            ("bytes=,", Ranges::Whole),
            ("bytes=5-4", Ranges::Whole),
            ("bytes=a-b", Ranges::Whole),
            ("bytes=1", Ranges::Whole),
            ("bytes=-", Ranges::Whole),
            ("bytes=+1-2", Ranges::Whole),
            ("bytes=0-1, x", Ranges::Whole),
            ("items=0-1", Ranges::Whole),
            ("by", Ranges::Whole),
            // Together they are longer than the content.
            ("bytes=0-, 0-", Ranges::Whole),
            ("bytes=0-99, 0-0", Ranges::Whole),
        ] {
            assert_eq!(of(value, 100), expected, "{value}");
        }
        assert_eq!(of("bytes=0-", 0), Ranges::Unsatisfiable);
        assert_eq!(of("bytes=-5", 0), Ranges::Unsatisfiable);
    }

    #[test]
    fn the_number_of_ranges_is_bounded() {
        let many = |number| format!("bytes={}", "0-0,".repeat(number));
        assert_eq!(
            of(&many(RANGES_MAX), 100),
            Ranges::Parts(vec![0..1; RANGES_MAX])
        );
        assert_eq!(of(&many(RANGES_MAX + 1), 100), Ranges::Whole);
        let mut twice = Fields::new();
        twice.append(Name::Range, "bytes=0-0");
        twice.append(Name::Range, "bytes=1-1");
        assert_eq!(ranges(&twice, 100), Ranges::Whole);
    }
}
