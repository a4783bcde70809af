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
        let pair = pair.trim_ascii().strip_prefix(name.as_bytes())?;
        pair.strip_prefix(b"=")
    })
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
}
