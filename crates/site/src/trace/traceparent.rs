//! The field `traceparent` (W3C Trace Context, section 3.2).

use std::num::NonZeroU64;

use blitz_http::{Fields, Name};

use super::{RANDOM, SAMPLED, SpanId, TraceId};

/// The length of version 00, and the least of later ones.
const LENGTH: usize = 55;

/// Where the parts of version 00 begin; a `-` is before each.
const TRACE_ID: usize = 3;
const SPAN_ID: usize = 36;
const FLAGS: usize = 53;

/// The highest version; it is invalid.
const FORBIDDEN: u64 = 0xff;

/// A valid field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Traceparent {
    pub(super) trace_id: TraceId,
    pub(super) span_id: SpanId,
    /// The known ones.
    pub(super) flags: u8,
}

impl Traceparent {
    /// That of a request; `None` if it has none, an invalid one, or several.
    #[inline]
    pub(super) fn of(fields: &Fields) -> Option<Traceparent> {
        let mut values = fields.get_all(Name::Traceparent);
        let value = values.next()?;
        match values.next() {
            None => Traceparent::parse(value),
            Some(_) => None,
        }
    }

    pub(super) fn parse(value: &[u8]) -> Option<Traceparent> {
        let (parts, rest) = value.split_at_checked(LENGTH)?;
        let has_dashes = [TRACE_ID, SPAN_ID, FLAGS]
            .iter()
            .all(|part| parts[part - 1] == b'-');
        let version = number(&parts[..2])?;
        // Later versions may have more parts.
        let has_valid_end = match (version, rest) {
            (FORBIDDEN, _) => false,
            (_, []) => true,
            (version, [next, ..]) => version > 0 && *next == b'-',
        };
        if !has_dashes || !has_valid_end {
            return None;
        }
        let (high, low) = parts[TRACE_ID..SPAN_ID - 1].split_at(16);
        let trace_id = TraceId {
            high: number(high)?,
            low: number(low)?,
        };
        let span_id = NonZeroU64::new(number(&parts[SPAN_ID..FLAGS - 1])?)?;
        // Section 3.2.2.5: "Vendors MUST set those to zero" is about the other flags.
        let flags = number(&parts[FLAGS..])? as u8 & (SAMPLED | RANDOM);
        let is_valid = trace_id.high != 0 || trace_id.low != 0;
        is_valid.then_some(Traceparent {
            trace_id,
            span_id: SpanId(span_id),
            flags,
        })
    }
}

/// A field of version 00.
pub(super) fn write(trace_id: TraceId, span_id: SpanId, flags: u8) -> [u8; LENGTH] {
    let mut value = [b'-'; LENGTH];
    value[..2].copy_from_slice(b"00");
    let (high, low) = value[TRACE_ID..SPAN_ID - 1].split_at_mut(16);
    write_number(trace_id.high, high);
    write_number(trace_id.low, low);
    write_number(span_id.0.get(), &mut value[SPAN_ID..FLAGS - 1]);
    write_number(flags.into(), &mut value[FLAGS..]);
    value
}

/// A hexadecimal number. Section 3.2.2: the digits are lower case.
fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |number, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u64::from(digit))
    })
}

fn write_number(mut number: u64, digits: &mut [u8]) {
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[number as usize & 15];
        number >>= 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    fn flags(value: &str) -> Option<u8> {
        let parsed = Traceparent::parse(value.as_bytes())?;
        assert_eq!(parsed.trace_id.to_string(), TRACE);
        assert_eq!(parsed.span_id.to_string(), SPAN);
        Some(parsed.flags)
    }

    #[test]
    fn valid_fields_are_read() {
        for (value, expected) in [
            (format!("00-{TRACE}-{SPAN}-00"), 0),
            (format!("00-{TRACE}-{SPAN}-01"), 1),
            (format!("00-{TRACE}-{SPAN}-02"), 2),
            (format!("00-{TRACE}-{SPAN}-03"), 3),
            // Unknown flags are not passed on.
            (format!("00-{TRACE}-{SPAN}-ff"), 3),
            (format!("00-{TRACE}-{SPAN}-08"), 0),
            // Later versions.
            (format!("01-{TRACE}-{SPAN}-01"), 1),
            (format!("cc-{TRACE}-{SPAN}-01-"), 1),
            (format!("fe-{TRACE}-{SPAN}-01-what-the-future-brings"), 1),
        ] {
            assert_eq!(flags(&value), Some(expected), "{value}");
        }
    }

    #[test]
    fn invalid_fields_are_refused() {
        let zeros = "0".repeat(32);
        for value in [
            String::new(),
            "00".to_owned(),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}-01-"),
            format!("00-{TRACE}-{SPAN}-01-extra"),
            format!("00-{TRACE}-{SPAN}-010"),
            format!("01-{TRACE}-{SPAN}-01.extra"),
            format!("00-{TRACE}-{SPAN}-1"),
            format!("00-{TRACE}-{SPAN}-"),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{zeros}-{SPAN}-01"),
            format!("00-{TRACE}-{}-01", &zeros[..16]),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-{}-01", SPAN.to_uppercase()),
            format!("0A-{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}-0A"),
            format!("0-{TRACE}-{SPAN}-01"),
            format!("000-{TRACE}-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", &TRACE[1..]),
            format!("00-{TRACE}1-{SPAN}-01"),
            format!("00-{TRACE}-{}-01", &SPAN[1..]),
            format!("00-{TRACE}-{SPAN}1-01"),
            format!("00-{}.-{SPAN}-01", &TRACE[1..]),
            format!("00_{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}_{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}_01"),
            format!("00-{TRACE}-{SPAN}-0\u{e9}"),
            format!(" 00-{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}-01,00-{TRACE}-{SPAN}-01"),
        ] {
            assert_eq!(Traceparent::parse(value.as_bytes()), None, "{value}");
        }
    }

    #[test]
    fn of_two_fields_neither_holds() {
        let value = format!("00-{TRACE}-{SPAN}-01");
        let mut fields = Fields::new();
        fields.append(Name::Traceparent, &value);
        assert!(Traceparent::of(&fields).is_some());
        fields.append(Name::Traceparent, &value);
        assert_eq!(Traceparent::of(&fields), None);
    }

    #[test]
    fn written_fields_are_read_back() {
        let parsed = Traceparent::parse(format!("01-{TRACE}-{SPAN}-03-x").as_bytes()).unwrap();
        let written = write(parsed.trace_id, parsed.span_id, parsed.flags);
        assert_eq!(written, *format!("00-{TRACE}-{SPAN}-03").as_bytes());
        assert_eq!(Traceparent::parse(&written), Some(parsed));
    }
}
