//! Names of cookies and parameters in the spellings that applications take for the same one.
//!
//! ASP.NET Core compares without case, and ends cookies at commas as well; PHP reads `.`, a space and `[` as `_`, ends a
//! name at NUL, and makes a list of `name[]`; others end cookies at spaces, decode names, or take no notice of quotes.

use std::borrow::Cow;

use blitz_http::{Fields, Name};

/// The number of cookies that an application can take for those with this name, however it divides the field.
pub(super) fn spelled_cookies(fields: &Fields, name: &str) -> usize {
    let lines = fields.get_all(Name::Cookie);
    let parts = lines.flat_map(|line| line.split(|byte| matches!(byte, b';' | b',')));
    parts.map(|part| spelled_in(part, name)).sum()
}

/// The number of them in a part without separators but spaces and quotes, which divide it for some only.
fn spelled_in(part: &[u8], name: &str) -> usize {
    let words = part.split(|byte| is_space(*byte) || *byte == b'"');
    let mut before: &[u8] = b"";
    let mut found = 0;
    for word in words.filter(|word| !word.is_empty()) {
        // The name of a value ends before it, or, with a space or quote between them, one word before.
        if word[0] == b'=' && !before.contains(&b'=') {
            found += usize::from(is_spelling(before, name));
        }
        found += usize::from(key(word).is_some_and(|key| is_spelling(key, name)));
        before = word;
    }
    match found {
        0 => usize::from(key(part).is_some_and(|key| is_spelling(key, name))),
        found => found,
    }
}

/// The text before the first `=` that does not begin the text.
fn key(text: &[u8]) -> Option<&[u8]> {
    let is_before = |byte: &u8| is_space(*byte) || matches!(byte, b'=' | b'"');
    let start = text.iter().position(|byte| !is_before(byte))?;
    let text = &text[start..];
    let end = text.iter().position(|byte| *byte == b'=')?;
    Some(&text[..end])
}

fn is_space(byte: u8) -> bool {
    byte <= b' ' && byte != 0
}

/// Whether an application can take a name, as it is written, for this one: letters and digits are the same.
pub(super) fn is_spelling(found: &[u8], name: &str) -> bool {
    let decoded = match found.contains(&b'%') {
        true => {
            form_urlencoded::parse(found)
                .next()
                .map_or(Cow::Borrowed(found), |(decoded, _)| match decoded {
                    Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                    Cow::Owned(text) => Cow::Owned(text.into_bytes()),
                })
        }
        false => Cow::Borrowed(found),
    };
    if folded(name.as_bytes()).next().is_none() {
        return decoded.trim_ascii() == name.as_bytes();
    }
    let until = |end: u8| decoded.split(move |byte| *byte == end).next();
    let beginnings = [Some(&*decoded), until(0), until(b'[')];
    let mut beginnings = beginnings.into_iter().flatten();
    beginnings.any(|text| match text.is_ascii() {
        true => folded(text).eq(folded(name.as_bytes())),
        false => {
            // Some letters are ASCII in another case, such as the sign of Kelvin.
            let text = String::from_utf8_lossy(text).to_uppercase().to_lowercase();
            folded(text.as_bytes()).eq(folded(name.as_bytes()))
        }
    })
}

/// Letters, in lower case, and digits.
fn folded(text: &[u8]) -> impl Iterator<Item = u8> {
    let kept = text.iter().filter(|byte| byte.is_ascii_alphanumeric());
    kept.map(u8::to_ascii_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_spellings_that_applications_take_for_one() {
        for found in [
            "access_token",
            "Access-Token",
            "access.token",
            "access token",
            "access+token",
            "access%20token",
            "access[token",
            "access_token[]",
            "access_token[0]",
            "access_token%5Ba%5D",
            "access_token%00",
            "access_token%00x",
            "%61ccess_token",
            "acce%C5%BFs_token",
            "access_to%E2%84%AAen",
            " access_token\u{a0}",
            "[access_token",
        ] {
            assert!(is_spelling(found.as_bytes(), "access_token"), "{found}");
        }
        for found in [
            "",
            "token",
            "access_token2",
            "x_access_token",
            "access_toke",
        ] {
            assert!(!is_spelling(found.as_bytes(), "access_token"), "{found}");
        }
        assert!(is_spelling(b" _", "_") && !is_spelling(b"-", "_") && !is_spelling(b"", "_"));
    }

    #[test]
    fn cookies_are_found_however_they_are_divided() {
        for (line, expected) in [
            ("id=1", 1),
            ("a=b; c=d", 0),
            ("id", 0),
            ("id=1; ID=2", 2),
            ("id=1, id=2", 2),
            ("a=b, id=2", 1),
            ("a=b, x=y; c=\"d, e=f\"", 0),
            ("=id=1", 1),
            ("==\"id=1", 1),
            ("\"id\"=1", 1),
            ("\"id\" = 1", 1),
            ("i.d=1", 1),
            ("i d=1", 1),
            ("i[d=1", 1),
            ("id[]=1", 1),
            ("a=b id=1", 1),
            ("a=b id =1", 1),
            ("a=\"b; id=1\"", 1),
            ("id=1 id=2", 2),
            ("id=\"1=2=\"", 1),
            ("a=id=1", 0),
            ("a=/?id=1", 0),
        ] {
            let mut fields = Fields::default();
            fields.append(Name::Cookie, line);
            assert_eq!(spelled_cookies(&fields, "id"), expected, "{line}");
        }
    }
}
