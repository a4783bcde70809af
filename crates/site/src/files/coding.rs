//! Negotiation of content codings (RFC 9110, section 12.5.3), for files that have compressed siblings.

use blitz_http::{Fields, Name};

/// Members of `Accept-Encoding` that are read; those behind them count as missing.
const MEMBERS_MAX: usize = 32;

/// A content coding for which a file may have a sibling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContentCoding {
    /// Brotli, `.br`.
    Brotli,
    /// Zstandard, `.zst`.
    Zstandard,
    /// Gzip, `.gz`.
    Gzip,
}

impl ContentCoding {
    /// All, the best first.
    pub const ALL: [ContentCoding; 3] = [
        ContentCoding::Brotli,
        ContentCoding::Zstandard,
        ContentCoding::Gzip,
    ];

    /// Its name in fields.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ContentCoding::Brotli => "br",
            ContentCoding::Zstandard => "zstd",
            ContentCoding::Gzip => "gzip",
        }
    }

    /// The ending of the sibling.
    #[must_use]
    pub fn ending(self) -> &'static str {
        match self {
            ContentCoding::Brotli => ".br",
            ContentCoding::Zstandard => ".zst",
            ContentCoding::Gzip => ".gz",
        }
    }
}

/// The codings that a client accepts, and how much it wants each: the weight in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct AcceptedCodings {
    weights: [u16; 3],
    identity: u16,
}

impl AcceptedCodings {
    /// Those of a request. Without the field, only the file itself is acceptable for sure.
    #[must_use]
    pub fn of(fields: &Fields) -> AcceptedCodings {
        let mut weights = [None; 3];
        let (mut any, mut identity) = (None, None);
        let lines = fields.get_all(Name::AcceptEncoding);
        let members = lines.flat_map(|line| line.split(|byte| *byte == b','));
        for member in members.take(MEMBERS_MAX) {
            let mut parts = member.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let name = parts.next().unwrap_or_default();
            let weight = parts.find_map(weight).unwrap_or(1000);
            let known = ContentCoding::ALL.iter().position(|coding| {
                let is_alias =
                    *coding == ContentCoding::Gzip && name.eq_ignore_ascii_case(b"x-gzip");
                is_alias || name.eq_ignore_ascii_case(coding.name().as_bytes())
            });
            match (known, name) {
                (Some(coding), _) => weights[coding] = Some(weight),
                (None, b"*") => any = Some(weight),
                (None, _) if name.eq_ignore_ascii_case(b"identity") => identity = Some(weight),
                (None, _) => {}
            }
        }
        AcceptedCodings {
            weights: weights.map(|weight: Option<u16>| weight.or(any).unwrap_or(0)),
            // RFC 9110: "If the representation has no content coding, then it is acceptable by default unless specifically
            // excluded". Its weight is then the least.
            identity: identity.unwrap_or(if any == Some(0) { 0 } else { 1 }),
        }
    }

    /// The acceptable codings that are at least as welcome as none, the most welcome first.
    pub fn ranked(self) -> impl Iterator<Item = ContentCoding> {
        let mut ranked = ContentCoding::ALL.map(|coding| (self.weights[coding as usize], coding));
        // Equal weights keep the order of `ALL`.
        ranked.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
        let welcome = ranked.into_iter();
        welcome
            .filter(move |(weight, _)| *weight > 0 && *weight >= self.identity)
            .map(|(_, coding)| coding)
    }
}

/// The weight of a parameter `q=…` (RFC 9110, section 12.4.2). An invalid one is 0, so that nothing is sent that the
/// client may not read.
fn weight(parameter: &[u8]) -> Option<u16> {
    let [b'q' | b'Q', b'=', value @ ..] = parameter else {
        return None;
    };
    let (whole, fraction) = match value {
        [whole] | [whole, b'.'] => (whole, &[][..]),
        [whole, b'.', fraction @ ..] if fraction.len() <= 3 => (whole, fraction),
        _ => return Some(0),
    };
    if !fraction.iter().all(u8::is_ascii_digit) {
        return Some(0);
    }
    let digit = |at: usize| fraction.get(at).map_or(0, |digit| u16::from(digit - b'0'));
    let thousandths = digit(0) * 100 + digit(1) * 10 + digit(2);
    Some(match whole {
        b'0' => thousandths,
        b'1' if thousandths == 0 => 1000,
        _ => 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranked(lines: &[&str]) -> String {
        let mut fields = Fields::new();
        lines
            .iter()
            .for_each(|line| fields.append(Name::AcceptEncoding, line));
        let ranked = AcceptedCodings::of(&fields).ranked();
        ranked
            .map(ContentCoding::name)
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn codings_are_ranked_by_their_weights() {
        for (lines, expected) in [
            (&[][..], ""),
            (&[""], ""),
            (&["gzip, deflate, br, zstd"], "br zstd gzip"),
            (&["gzip;q=1.0, br;q=0.5"], "gzip br"),
            (&["br;q=0, *"], "zstd gzip"),
            (&["*;q=0"], ""),
            (&["GZIP ; Q=0.001"], "gzip"),
            (&["x-gzip"], "gzip"),
            (&["gzip;q=0.5, identity"], ""),
            (&["gzip", "br;q=0.9"], "gzip br"),
            (&["br;q=2, gzip;q=0.1234, zstd;q=1.001"], ""),
            (&["gzip;level=1;q=0.5, br;q="], "gzip"),
        ] {
            assert_eq!(ranked(lines), expected, "{lines:?}");
        }
        let many = "a,".repeat(MEMBERS_MAX) + "gzip";
        assert_eq!(ranked(&[&many]), "");
    }
}
