//! Values that are left out.

/// In place of a value.
pub(crate) const REDACTED: &[u8] = b"***";

/// Writes the values of a query as `***`; the names of its parameters stay.
pub fn redact_query(query: &[u8], out: &mut Vec<u8>) {
    for (index, pair) in query.split(|byte| *byte == b'&').enumerate() {
        if index > 0 {
            out.push(b'&');
        }
        match pair.iter().position(|byte| *byte == b'=') {
            Some(equals) if !is_padding(&pair[equals..], equals) => {
                out.extend_from_slice(&pair[..=equals]);
                out.extend_from_slice(REDACTED);
            }
            // Without a name the whole text may be a secret.
            _ if !pair.is_empty() => out.extend_from_slice(REDACTED),
            _ => {}
        }
    }
}

/// Whether this end of a long text, from its first `=`, is the padding of base64.
fn is_padding(end: &[u8], before: usize) -> bool {
    const NAME_MAX: usize = 16;
    before > NAME_MAX && end.len() <= 2 && end.iter().all(|byte| *byte == b'=')
}

/// Writes a URL without its fragment and the name and password of a user, and the values of its query as
/// [`redact_query`].
pub(super) fn redact_url(url: &[u8], out: &mut Vec<u8>) {
    let [scheme, authority, rest] = url_without_user(without_fragment(url));
    let mark = rest.iter().position(|byte| *byte == b'?');
    let (path, query) = rest.split_at(mark.unwrap_or(rest.len()));
    for part in [scheme, authority, path] {
        out.extend_from_slice(part);
    }
    if let Some((mark, query)) = query.split_first() {
        out.push(*mark);
        redact_query(query, out);
    }
}

/// A URL in parts: up to its authority, the authority without a user, and the rest. As browsers do, it takes a
/// backslash for a slash, and any number of slashes behind a scheme for two.
pub(crate) fn url_without_user(url: &[u8]) -> [&[u8]; 3] {
    let is_slash = |byte: &u8| matches!(byte, b'/' | b'\\');
    let is_of_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    let name = url.iter().take_while(|byte| is_of_scheme(byte)).count();
    let scheme = match &url[name..] {
        [b':', next, ..] if name > 0 && is_slash(next) => name + 1,
        _ => 0,
    };
    let slashes = url[scheme..].iter().take_while(|byte| is_slash(byte));
    let start = match (scheme, slashes.count()) {
        // A path.
        (0, 1) => return [b"", b"", url],
        (_, slashes) => scheme + slashes,
    };
    let ends = |byte: &u8| is_slash(byte) || matches!(byte, b'?' | b'#');
    let end = url[start..].iter().position(ends);
    let end = end.map_or(url.len(), |length| start + length);
    [&url[..start], without_user(&url[start..end]), &url[end..]]
}

/// A text up to its fragment, which clients must not send (RFC 9110, sections 7.1 and 10.1.3).
fn without_fragment(text: &[u8]) -> &[u8] {
    let hash = text.iter().position(|byte| *byte == b'#');
    &text[..hash.unwrap_or(text.len())]
}

/// An authority without the name and the password of a user (RFC 9110, section 4.2.4).
fn without_user(authority: &[u8]) -> &[u8] {
    let at = authority.iter().rposition(|byte| *byte == b'@');
    &authority[at.map_or(0, |at| at + 1)..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_queries_are_left_out() {
        let redacted = |query: &str| {
            let mut out = Vec::new();
            redact_query(query.as_bytes(), &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(redacted("token=abc&x=&y"), "token=***&x=***&***");
        assert_eq!(redacted("a=b=c&&"), "a=***&&");
        assert_eq!(redacted(""), "");
        assert_eq!(redacted("eyJhbGciOiJIUzI1NiJ9c2VjcmV0=="), "***");
        assert_eq!(redacted("x=="), "x=***");
    }

    #[test]
    fn a_url_has_neither_user_nor_fragment() {
        let redacted = |url: &str| {
            let mut out = Vec::new();
            redact_url(url.as_bytes(), &mut out);
            String::from_utf8(out).unwrap()
        };
        for (url, expected) in [
            ("https://a.example/b", "https://a.example/b"),
            (
                "https://u:p@a.example/b@c?d=e#f",
                "https://a.example/b@c?d=***",
            ),
            ("https://u:p@a.example", "https://a.example"),
            ("https://a.example/#token=x", "https://a.example/"),
            ("/a?b", "/a?***"),
            ("/b@c", "/b@c"),
            ("//u:p@a.example/b@c", "//a.example/b@c"),
            ("https:/u:p@a.example/", "https:/a.example/"),
            ("https:\\\\u:p@a.example\\b", "https:\\\\a.example\\b"),
            ("https:u:p@a.example/", "a.example/"),
            ("u:p@a.example", "a.example"),
            ("https://u@a.example?b=c", "https://a.example?b=***"),
            ("", ""),
        ] {
            assert_eq!(redacted(url), expected);
        }
    }
}
