//! Content codings, and their negotiation by `Accept-Encoding` (RFC 9110, section 12.5.3).

use blitz_http::{Fields, Name};

/// Members of `Accept-Encoding` that are read; those behind them count as missing.
const MEMBERS_MAX: usize = 32;

/// A weight in thousandths (RFC 9110, section 12.4.2).
type Weight = u16;

/// The weight of a coding without one.
const FULL: Weight = 1000;

/// A content coding.
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
    /// All, that with the least content first.
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

    /// The ending of files with it.
    #[must_use]
    pub fn ending(self) -> &'static str {
        match self {
            ContentCoding::Brotli => ".br",
            ContentCoding::Zstandard => ".zst",
            ContentCoding::Gzip => ".gz",
        }
    }
}

/// The codings that a client accepts, and how much it wants each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct AcceptedCodings {
    weights: [Weight; 3],
    /// That of content without a coding.
    identity: Weight,
}

impl AcceptedCodings {
    /// Those of a request. A client without the field gets content without a coding: it might not expect one.
    #[must_use]
    pub fn of(fields: &Fields) -> AcceptedCodings {
        let mut weights = [None; 3];
        let (mut any, mut identity) = (None, None);
        let lines = fields.get_all(Name::AcceptEncoding);
        let members = lines.flat_map(|line| line.split(|byte| *byte == b','));
        for member in members.take(MEMBERS_MAX) {
            let mut parts = member.splitn(2, |byte| *byte == b';');
            let name = parts.next().unwrap_or_default().trim_ascii();
            // A coding with a weight that is none is not accepted.
            let weight = parts.next().map_or(Some(FULL), weight).unwrap_or(0);
            let place = match (known(name), name) {
                (Some(coding), _) => &mut weights[coding as usize],
                (None, b"*") => &mut any,
                (None, _) if name.eq_ignore_ascii_case(b"identity") => &mut identity,
                (None, _) => continue,
            };
            // Of several the first counts.
            place.get_or_insert(weight);
        }
        AcceptedCodings {
            weights: weights.map(|weight: Option<Weight>| weight.or(any).unwrap_or(0)),
            // RFC 9110: "If the representation has no content coding, then it is acceptable by default unless specifically
            // excluded". Its weight is then the least.
            identity: identity.unwrap_or(if any == Some(0) { 0 } else { 1 }),
        }
    }

    /// The acceptable codings that are at least as welcome as none, the most welcome first.
    pub fn ranked(self) -> impl Iterator<Item = ContentCoding> {
        let mut ranked = ContentCoding::ALL;
        // Equal weights keep the order of `ALL`.
        ranked.sort_by_key(|coding| std::cmp::Reverse(self.weights[*coding as usize]));
        let welcome = ranked.into_iter();
        welcome.filter(move |coding| self.is_welcome(*coding))
    }

    /// The most welcome of these codings, and of several the first; `None` if the client accepts none, or prefers content
    /// without a coding.
    #[must_use]
    pub fn choose(self, codings: &[ContentCoding]) -> Option<ContentCoding> {
        let mut best: Option<ContentCoding> = None;
        for &coding in codings.iter().filter(|coding| self.is_welcome(**coding)) {
            let weight = |coding: ContentCoding| self.weights[coding as usize];
            if best.is_none_or(|best| weight(coding) > weight(best)) {
                best = Some(coding);
            }
        }
        best
    }

    /// Whether the client wants content with this coding at least as much as content without one.
    fn is_welcome(self, coding: ContentCoding) -> bool {
        let weight = self.weights[coding as usize];
        weight > 0 && weight >= self.identity
    }
}

/// The coding of this name, in any case.
fn known(name: &[u8]) -> Option<ContentCoding> {
    // RFC 9110, section 8.4.1.3: "A recipient SHOULD consider "x-gzip" to be equivalent to "gzip"."
    if name.eq_ignore_ascii_case(b"x-gzip") {
        return Some(ContentCoding::Gzip);
    }
    let mut all = ContentCoding::ALL.into_iter();
    all.find(|coding| name.eq_ignore_ascii_case(coding.name().as_bytes()))
}

/// The weight of `q=0.5`, with optional white space around it; `None` if it is none.
fn weight(parameter: &[u8]) -> Option<Weight> {
    let [b'q' | b'Q', b'=', value @ ..] = parameter.trim_ascii() else {
        return None;
    };
    let (whole, fraction) = match value {
        [whole] => (whole, &[][..]),
        [whole, b'.', fraction @ ..] if fraction.len() <= 3 => (whole, fraction),
        _ => return None,
    };
    let mut thousandths = 0;
    let mut unit = 100;
    for digit in fraction {
        if !digit.is_ascii_digit() {
            return None;
        }
        thousandths += Weight::from(digit - b'0') * unit;
        unit /= 10;
    }
    match whole {
        b'0' => Some(thousandths),
        b'1' if thousandths == 0 => Some(FULL),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ContentCoding::{Brotli, Gzip, Zstandard};

    fn accepted(lines: &[&str]) -> AcceptedCodings {
        let mut fields = Fields::new();
        lines
            .iter()
            .for_each(|line| fields.append(Name::AcceptEncoding, line));
        AcceptedCodings::of(&fields)
    }

    fn ranked(lines: &[&str]) -> String {
        let names = accepted(lines).ranked().map(ContentCoding::name);
        names.collect::<Vec<_>>().join(" ")
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
            (&["gzip;level=1;q=0.5, br;q="], ""),
        ] {
            assert_eq!(ranked(lines), expected, "{lines:?}");
        }
        let many = "a,".repeat(MEMBERS_MAX) + "gzip";
        assert_eq!(ranked(&[&many]), "");
    }

    #[test]
    fn the_coding_follows_from_weights_and_preference() {
        const ALL: &[ContentCoding] = &[Zstandard, Brotli, Gzip];
        const GZIP: &[ContentCoding] = &[Gzip];
        const BR_FIRST: &[ContentCoding] = &[Brotli, Zstandard, Gzip];
        for (value, codings, expected) in [
            ("gzip, deflate, br, zstd", ALL, "zstd"),
            ("gzip, deflate, br", ALL, "br"),
            ("gzip, deflate, br, zstd", BR_FIRST, "br"),
            ("gzip, deflate, br, zstd", GZIP, "gzip"),
            ("gzip", ALL, "gzip"),
            ("GZip", ALL, "gzip"),
            ("x-gzip", ALL, "gzip"),
            ("gzip;q=1.0, br;q=0.5, zstd;q=0.999", ALL, "gzip"),
            ("gzip;q=0.5,br;q=0.50,zstd;q=0.500", ALL, "zstd"),
            ("gzip ; Q=0.8 , br\t;\tq=0.9", ALL, "br"),
            ("*", ALL, "zstd"),
            ("*;q=0.1", ALL, "zstd"),
            ("gzip, *;q=0", ALL, "gzip"),
            ("zstd;q=0, *", ALL, "br"),
            ("br;q=0.001", ALL, "br"),
            ("identity;q=0, gzip;q=0.1", ALL, "gzip"),
            ("identity, gzip", ALL, "gzip"),
            ("identity;q=0.5, gzip;q=0.9", ALL, "gzip"),
            ("identity;q=0.5, gzip;q=0.4", ALL, ""),
            ("identity", ALL, ""),
            ("identity;q=0", ALL, ""),
            ("", ALL, ""),
            (",, ,", ALL, ""),
            ("deflate, compress", ALL, ""),
            ("gzip;q=0", ALL, ""),
            ("gzip;q=0.000", ALL, ""),
            ("*;q=0", ALL, ""),
            ("br", GZIP, ""),
            ("gzip;q=0, gzip", ALL, ""),
            ("gzip;q=2", ALL, ""),
            ("gzip;q=1.001", ALL, ""),
            ("gzip;q=0.1234", ALL, ""),
            ("gzip;q=.5", ALL, ""),
            ("gzip;q=-1", ALL, ""),
            ("gzip;q=", ALL, ""),
            ("gzip;q", ALL, ""),
            ("gzip;", ALL, ""),
            ("gzip;level=5", ALL, ""),
            ("gzip;q=0.5;x=y", ALL, ""),
            ("gzip;q=1.", ALL, "gzip"),
            ("gzipped", ALL, ""),
        ] {
            let chosen = accepted(&[value]).choose(codings);
            assert_eq!(chosen.map_or("", ContentCoding::name), expected, "{value}");
        }
        assert_eq!(accepted(&[]).choose(ALL), None);
        assert_eq!(accepted(&["identity;q=0", "br"]).choose(ALL), Some(Brotli));
    }
}
