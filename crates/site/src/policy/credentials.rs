//! Where requests have their credentials: at one place, and once.

use blitz_http::{Fields, Name};

use super::spelling::{is_spelling, spelled_cookies};
use crate::cookies::cookies;

/// The credentials of a request at a place.
pub(super) enum Found<'a> {
    None,
    One(&'a [u8]),
    Several,
}

impl<'a> Found<'a> {
    /// Those of two places.
    pub(super) fn and(self, more: Found<'a>) -> Found<'a> {
        match (self, more) {
            (Found::None, more) => more,
            (found, Found::None) => found,
            _ => Found::Several,
        }
    }
}

/// Those of the scheme in the only line; those of other schemes are none. Of several lines, or of several schemes in a
/// line, nobody knows which one an upstream takes. [A second scheme](has_second_scheme) behind this one is not looked for
/// here, because no valid credentials have it.
pub(super) fn of_authorization<'a>(fields: &'a Fields, scheme: &str) -> Found<'a> {
    let line = match single(fields.get_all(Name::Authorization)) {
        Found::One(line) => line,
        found => return found,
    };
    let Some((name, rest)) = line.split_at_checked(scheme.len()) else {
        return of_other_scheme(line);
    };
    match rest.first() {
        Some(b' ' | b'\t') | None if name.eq_ignore_ascii_case(scheme.as_bytes()) => {
            Found::One(rest.trim_ascii())
        }
        _ => of_other_scheme(line),
    }
}

fn of_other_scheme(line: &[u8]) -> Found<'_> {
    match has_second_scheme(line) {
        true => Found::Several,
        false => Found::None,
    }
}

/// Whether there is a second scheme in a line, as in `Bearer x, Basic y`. RFC 9110, section 11.6.2, has one only: some
/// servers take the first one, others the last. A parameter follows a comma in credentials of one scheme.
pub(super) fn has_second_scheme(line: &[u8]) -> bool {
    if !line.contains(&b',') {
        return false;
    }
    let (mut is_quoted, mut is_escaped) = (false, false);
    let mut members = line.split(|byte| {
        let is_quote = *byte == b'"' && !is_escaped;
        is_quoted ^= is_quote;
        is_escaped = is_quoted && !is_quote && !is_escaped && *byte == b'\\';
        *byte == b',' && !is_quoted
    });
    members.next();
    members.any(|member| {
        let member = member.trim_ascii();
        let end = member
            .iter()
            .position(|byte| matches!(byte, b'=' | b' ' | b'\t' | b'"'));
        let behind = member[end.unwrap_or(member.len())..].trim_ascii_start();
        !member.is_empty() && behind.first() != Some(&b'=')
    })
}

/// That of the only cookie with a name. One that an application can take for it, by its spelling or because it divides the
/// field otherwise, would not be checked, and makes them several.
pub(super) fn of_cookies<'h>(fields: &'h Fields, name: &str) -> Found<'h> {
    let mut exact = 0;
    let found = single(cookies(fields, name).inspect(|_| exact += 1));
    match spelled_cookies(fields, name) > exact {
        true => Found::Several,
        false => found,
    }
}

/// The value, as it is written, of the only parameter of a query with a name, with the same rule.
pub(super) fn of_query<'h>(query: Option<&'h str>, name: &str) -> Found<'h> {
    let pairs = query.unwrap_or_default().split(['&', ';']);
    let pairs = pairs.filter_map(|pair| pair.split_once('='));
    pairs.fold(Found::None, |known, (found, value)| {
        match is_spelling(found.as_bytes(), name) {
            true if is_named(found, name) => known.and(Found::One(value.as_bytes())),
            true => Found::Several,
            false => known,
        }
    })
}

/// Whether every application takes the name of a parameter, as it is written, for this one (URL Standard, section 5.1), but
/// for spaces around it.
fn is_named(found: &str, name: &str) -> bool {
    let mut decoded = form_urlencoded::parse(found.as_bytes());
    let decoded = decoded.next().map(|(decoded, _)| decoded);
    decoded.is_some_and(|decoded| decoded.trim() == name)
}

pub(super) fn single<'h>(mut values: impl Iterator<Item = &'h [u8]>) -> Found<'h> {
    match (values.next(), values.next()) {
        (None, _) => Found::None,
        (Some(value), None) => Found::One(value),
        (Some(_), Some(_)) => Found::Several,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_one_scheme() {
        for (line, is_several) in [
            ("Bearer x", false),
            ("Bearer x,", false),
            ("Bearer x, ,", false),
            (
                "Digest username=\"a, Basic b\", realm = \"r\",qop=auth",
                false,
            ),
            ("Digest a=\"\\\", Basic b\", c=d", false),
            (
                "AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=c;d, Signature=e",
                false,
            ),
            ("Bearer x, Basic y", true),
            ("Bearer x,Basic y=", true),
            ("Bearer x,\tBasic\ty", true),
            ("Digest a=\"b\", Bearer x", true),
            ("Digest a=\"\\\\\", Basic b", true),
            ("Negotiate, Basic y", true),
            ("Basic y, Negotiate", true),
            ("Bearer x, y", true),
            ("Bearer x, \"y\"", true),
        ] {
            assert_eq!(has_second_scheme(line.as_bytes()), is_several, "{line}");
        }
    }

    #[test]
    fn no_spelling_hides_a_parameter() {
        let value = |query: &'static str| match of_query(Some(query), "a_token") {
            Found::None => "none",
            Found::One(value) => str::from_utf8(value).unwrap(),
            Found::Several => "several",
        };
        for query in [
            "a_token=1",
            "x=2&%61_token=1",
            "x;a_toke%6e=1",
            "+a_token=1",
            "a_token%20=1&b",
        ] {
            assert_eq!(value(query), "1", "{query}");
        }
        for query in ["", "x=1&a_tok=2", "a_token", "xa_token=1&a_token2=1"] {
            assert_eq!(value(query), "none", "{query}");
        }
        for other in [
            "a_token",
            "A_Token",
            "a.token",
            "a%20token",
            "a+token",
            "a[token",
            "a_token[]",
            "a_token%00",
        ] {
            let (before, behind) = (
                format!("a_token=1&{other}=2"),
                format!("{other}=2&a_token=1"),
            );
            for query in [before, behind] {
                let found = of_query(Some(&query), "a_token");
                assert!(matches!(found, Found::Several), "{query}");
            }
        }
        assert!(matches!(of_query(None, "a_token"), Found::None));
    }
}
