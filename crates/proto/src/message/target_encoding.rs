//! Percent-encoding of the bytes that clients send raw in request targets.
//!
//! RFC 9112, section 3.2, recommends 400 for a target with such bytes, but browsers and many other
//! clients send them. They are accepted and encoded (RFC 3986, section 2.1): routes, handlers, logs and
//! upstreams see the encoded target alone, so that both spellings are one resource to all of them.
//! Escapes that the client has written keep their bytes.

use crate::error::ErrorKind;

/// The refused target with its raw bytes encoded.
///
/// # Errors
/// `refusal` if the target has another problem than raw bytes, or none. 414 if it is longer than
/// `len_max` bytes when encoded.
#[cold]
pub(crate) fn encode_refused(
    refusal: ErrorKind,
    target: &[u8],
    len_max: usize,
) -> Result<Vec<u8>, ErrorKind> {
    if refusal != ErrorKind::Target {
        return Err(refusal);
    }
    let query_start = target.iter().position(|&byte| byte == b'?');
    let path_end = query_start.unwrap_or(target.len());
    let is_raw = |at: usize, byte: u8| match byte {
        b'"' | b'<' | b'>' | b'^' | b'`' | b'{' | b'|' | b'}' | 0x80.. => true,
        // Some servers take it for a `/` in a path, and all take it as it is in a query.
        b'\\' => at > path_end,
        _ => false,
    };
    let mut encoded = Vec::with_capacity(target.len() + 2);
    for (at, &byte) in target.iter().enumerate() {
        if is_raw(at, byte) {
            encoded.extend_from_slice(&escape(byte));
        } else {
            encoded.push(byte);
        }
    }
    match encoded.len() {
        len if len == target.len() => Err(refusal),
        len if len > len_max => Err(ErrorKind::RequestLineTooLong),
        _ => Ok(encoded),
    }
}

fn escape(byte: u8) -> [u8; 3] {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    [
        b'%',
        DIGITS[usize::from(byte >> 4)],
        DIGITS[usize::from(byte & 15)],
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(target: &[u8]) -> Option<String> {
        let encoded = encode_refused(ErrorKind::Target, target, usize::MAX).ok()?;
        Some(String::from_utf8(encoded).expect("no byte of it is raw"))
    }

    #[test]
    fn exactly_the_bytes_that_clients_send_raw_are_encoded() {
        for byte in 0..=u8::MAX {
            let is_raw = b"\"<>^`{|}".contains(&byte) || !byte.is_ascii();
            let expected = is_raw.then(|| format!("/a%{byte:02X}"));
            assert_eq!(encoded(&[b'/', b'a', byte]), expected, "{byte}");
            let expected = (is_raw || byte == b'\\').then(|| format!("/?%{byte:02X}"));
            assert_eq!(encoded(&[b'/', b'?', byte]), expected, "{byte}");
        }
    }

    #[test]
    fn escapes_and_other_bytes_are_kept() {
        let target = b"/%e2%zz[x]?%5b\"#";
        assert_eq!(encoded(target).as_deref(), Some("/%e2%zz[x]?%5b%22#"));
    }

    #[test]
    fn only_refusals_of_bytes_lead_to_an_encoded_target() {
        let refusal = encode_refused(ErrorKind::TargetScheme, b"ftp://a/\"", 100);
        assert_eq!(refusal, Err(ErrorKind::TargetScheme));
    }

    #[test]
    fn the_encoded_target_has_a_limit() {
        assert!(encode_refused(ErrorKind::Target, b"/\"\"", 7).is_ok());
        let refusal = encode_refused(ErrorKind::Target, b"/\"\"", 6);
        assert_eq!(refusal, Err(ErrorKind::RequestLineTooLong));
    }
}
