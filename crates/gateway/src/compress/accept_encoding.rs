//! `Accept-Encoding` (RFC 9110, section 12.5.3).

use blitz_config::Algorithm;

/// A weight in thousandths (RFC 9110, section 12.4.2).
type Weight = u16;

/// The weight of a coding without one.
const FULL: Weight = 1000;

/// The weights of codings that we have, where they are named.
#[derive(Default)]
struct Accepted {
    zstd: Option<Weight>,
    br: Option<Weight>,
    gzip: Option<Weight>,
    identity: Option<Weight>,
    any: Option<Weight>,
}

/// The algorithm of these, in their order of preference, that has the greatest weight in these lines; `None` if the
/// client accepts none, or prefers content without a coding. A client without the field gets none: it might not expect
/// one.
pub(super) fn choose<'a>(
    lines: impl Iterator<Item = &'a [u8]>,
    algorithms: &[Algorithm],
) -> Option<Algorithm> {
    let accepted = Accepted::parse(lines);
    let mut best: Option<(Algorithm, Weight)> = None;
    for &algorithm in algorithms {
        let weight = accepted.weight(algorithm);
        if weight > best.map_or(0, |(_, weight)| weight) {
            best = Some((algorithm, weight));
        }
    }
    let (algorithm, weight) = best?;
    (weight >= accepted.identity.unwrap_or(0)).then_some(algorithm)
}

impl Accepted {
    fn parse<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Accepted {
        let mut accepted = Accepted::default();
        for item in lines.flat_map(|line| line.split(|&byte| byte == b',')) {
            let mut parts = item.splitn(2, |&byte| byte == b';');
            let coding = parts.next().unwrap_or_default().trim_ascii();
            // A coding with a weight that is none is not accepted.
            let weight = parts.next().map_or(Some(FULL), weight).unwrap_or(0);
            let Some(place) = accepted.place(coding) else {
                continue;
            };
            // Of several the first counts.
            place.get_or_insert(weight);
        }
        accepted
    }

    fn place(&mut self, coding: &[u8]) -> Option<&mut Option<Weight>> {
        let is = |name: &str| coding.eq_ignore_ascii_case(name.as_bytes());
        match () {
            () if is("zstd") => Some(&mut self.zstd),
            () if is("br") => Some(&mut self.br),
            // RFC 9110, section 8.4.1.3: "A recipient SHOULD consider "x-gzip" to be equivalent to "gzip"."
            () if is("gzip") || is("x-gzip") => Some(&mut self.gzip),
            () if is("identity") => Some(&mut self.identity),
            () if is("*") => Some(&mut self.any),
            () => None,
        }
    }

    fn weight(&self, algorithm: Algorithm) -> Weight {
        let named = match algorithm {
            Algorithm::Zstd => self.zstd,
            Algorithm::Brotli => self.br,
            Algorithm::Gzip => self.gzip,
        };
        named.or(self.any).unwrap_or(0)
    }
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

    #[test]
    fn the_algorithm_follows_from_weights_and_preference() {
        const ALL: &[Algorithm] = &Algorithm::ALL;
        const GZIP: &[Algorithm] = &[Algorithm::Gzip];
        const BR_FIRST: &[Algorithm] = &[Algorithm::Brotli, Algorithm::Zstd, Algorithm::Gzip];
        for (value, algorithms, expected) in [
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
            let lines = [value.as_bytes()].into_iter();
            let chosen = choose(lines, algorithms).map_or("", Algorithm::name);
            assert_eq!(chosen, expected, "{value}");
        }
        assert_eq!(choose([].into_iter(), ALL), None);
        let lines = [&b"identity;q=0"[..], b"br"].into_iter();
        assert_eq!(choose(lines, ALL), Some(Algorithm::Brotli));
    }
}
