//! Request identifiers that clients send in `X-Request-Id`.

/// Longest identifier that is accepted.
pub const REQUEST_ID_BYTES_MAX: usize = 128;

/// Whether a client's identifier is safe for logs, responses and upstreams: 1 to 128 letters, digits
/// and `-_.:/+=@`.
///
/// UUIDs, ULIDs, base64, URNs and the identifiers of common proxies and frameworks are such. White
/// space, quotes, commas, brackets and controls, which could forge parts of a log line, are not.
#[must_use]
pub fn is_request_id(id: &[u8]) -> bool {
    let is_safe = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(byte);
    (1..=REQUEST_ID_BYTES_MAX).contains(&id.len()) && id.iter().all(is_safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_short_and_of_safe_characters() {
        for id in [
            "7b0c9a3e-1f44-4e0f-9d9a-6f9d1c2b3a4d",
            "01JD3Q6V7W8X9Y0Z1A2B3C4D5E",
            "urn:uuid:7b0c9a3e-1f44-4e0f-9d9a-6f9d1c2b3a4d",
            "aGVsbG8+d29ybGQv/w==",
            "host/AbC_1.2@3",
            "x",
        ] {
            assert!(is_request_id(id.as_bytes()), "{id}");
        }
        for byte in 0..=u8::MAX {
            let is_safe = byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(&byte);
            assert_eq!(is_request_id(&[b'a', byte]), is_safe, "{byte}");
        }
        assert!(!is_request_id(b""));
        assert!(is_request_id(&[b'x'; REQUEST_ID_BYTES_MAX]));
        assert!(!is_request_id(&[b'x'; REQUEST_ID_BYTES_MAX + 1]));
    }
}
