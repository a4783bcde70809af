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
            Some(equals) => {
                out.extend_from_slice(&pair[..=equals]);
                out.extend_from_slice(REDACTED);
            }
            // Without a name the whole text may be a secret.
            None if !pair.is_empty() => out.extend_from_slice(REDACTED),
            None => {}
        }
    }
}

/// Writes a URL with the same in its query. Writes nothing and gives `false` if it has none.
pub(super) fn redact_url(url: &[u8], out: &mut Vec<u8>) -> bool {
    let Some(mark) = url.iter().position(|byte| *byte == b'?') else {
        return false;
    };
    let (path, query) = url.split_at(mark + 1);
    out.extend_from_slice(path);
    redact_query(query, out);
    true
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
    }
}
