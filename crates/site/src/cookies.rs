//! Cookies of a request (RFC 6265, section 4.2.1).

use blitz_http::{Fields, Name};

/// The values of the cookies with a name, in their order.
pub fn cookies<'a, 'n>(
    fields: &'a Fields,
    name: &'n str,
) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
    let lines = fields.get_all(Name::Cookie);
    let pairs = lines.flat_map(|line| line.split(|byte| *byte == b';'));
    pairs.filter_map(move |pair| {
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        let (found, value) = pair.split_at(equals);
        // Most applications take no notice of spaces around a name.
        let is_named = found.len() >= name.len() && trim(found) == name.as_bytes();
        is_named.then(|| value[1..].trim_ascii())
    })
}

/// Without what any common reader takes for space: that of ASCII, and the spaces of ISO 8859-1 and of UTF-8 in it.
fn trim(mut text: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| {
        byte.is_ascii_whitespace() || matches!(byte, 0x0b | 0x1c..=0x1f | 0x85 | 0xa0 | 0xc2)
    };
    while let [first, rest @ ..] = text
        && is_space(first)
    {
        text = rest;
    }
    while let [rest @ .., last] = text
        && is_space(last)
    {
        text = rest;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_have_all_their_values() {
        let mut fields = Fields::default();
        fields.append(Name::Cookie, "a=1; id=x; idx=no; id=y");
        let values: Vec<_> = cookies(&fields, "id").collect();
        assert_eq!(values, [b"x", b"y"]);
    }

    #[test]
    fn spaces_around_a_name_hide_no_cookie() {
        for line in [
            &b"id =1"[..],
            b"\xa0id=1",
            b"\xc2\xa0id=1",
            b"\x85id\t=1",
            b"a=b;\x0bid\x1f=1 ; c=d",
        ] {
            let mut fields = Fields::default();
            // Not all of them are valid in a field that is made here.
            fields.append(Name::Cookie, "a=1; id=1");
            let other: Vec<_> = line.iter().copied().filter(|byte| *byte >= 0x20).collect();
            fields.append(Name::Cookie, other);
            let values: Vec<_> = cookies(&fields, "id").collect();
            assert_eq!(values, [b"1", b"1"], "{line:?}");
        }
    }
}
