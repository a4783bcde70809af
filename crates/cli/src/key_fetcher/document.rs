//! A fetched document, and how long it stays fresh.

use std::time::Duration;

use blitz_http::{Fields, Name};

/// The content of a successful response.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Document {
    pub(super) content: Vec<u8>,
    /// `max-age` of `Cache-Control`.
    pub(super) max_age: Option<Duration>,
}

/// `max-age` of a response (RFC 9111, section 5.2.2.1). Of several the first counts; one that is no number counts as
/// none.
pub(super) fn max_age(fields: &Fields) -> Option<Duration> {
    let lines = fields.get_all(Name::CacheControl);
    let lines = lines.filter_map(|line| std::str::from_utf8(line).ok());
    let mut directives = lines.flat_map(|line| line.split(',')).map(str::trim);
    let value = directives.find_map(|directive| {
        let (name, value) = directive.split_once('=')?;
        name.eq_ignore_ascii_case("max-age").then_some(value)
    })?;
    let seconds: u32 = value.trim_matches('"').parse().ok()?;
    Some(Duration::from_secs(seconds.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_is_that_of_cache_control() {
        for (lines, expected) in [
            (&[][..], None),
            (&["max-age=60"], Some(60)),
            (&["public, MAX-AGE=\"60\", must-revalidate"], Some(60)),
            (&["no-store", "max-age=1, max-age=2"], Some(1)),
            (&["s-maxage=60"], None),
            (&["max-age=-1"], None),
            (&["max-age=99999999999999999999"], None),
            (&["max-age"], None),
        ] {
            let mut fields = Fields::default();
            lines
                .iter()
                .for_each(|line| fields.append("cache-control", *line));
            assert_eq!(
                max_age(&fields),
                expected.map(Duration::from_secs),
                "{lines:?}"
            );
        }
    }
}
