//! The key exchange of a WebSocket handshake over HTTP/1.1, which proves that both sides support
//! WebSockets (RFC 6455, section 1.3). HTTP/2 does not need it (RFC 8441, section 5).

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// Appended to a key before hashing.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A `Sec-WebSocket-Key`: sixteen bytes in base64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebSocketKey([u8; 24]);

impl WebSocketKey {
    /// A new random key, for our own requests.
    #[must_use]
    pub fn new(random: fn() -> u64) -> WebSocketKey {
        let bits = (u128::from(random()) << 64) | u128::from(random());
        WebSocketKey::of(bits.to_be_bytes())
    }

    fn of(nonce: [u8; 16]) -> WebSocketKey {
        let mut key = [0; 24];
        let written = BASE64_STANDARD.encode_slice(nonce, &mut key);
        assert_eq!(written, Ok(key.len()), "16 bytes are 24 characters");
        WebSocketKey(key)
    }

    /// Parses a peer's key; `None` if it is invalid. The unused bits of the last character may have
    /// any value.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<WebSocketKey> {
        let key: [u8; 24] = value.try_into().ok()?;
        let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
        let is_key = key[..22].iter().all(is_base64) && key.ends_with(b"==");
        is_key.then_some(WebSocketKey(key))
    }

    /// The value of `Sec-WebSocket-Key`.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The matching value of `Sec-WebSocket-Accept` (RFC 6455, section 4.2.2).
    #[must_use]
    pub fn accept(&self) -> String {
        let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[&self.0[..], GUID].concat());
        BASE64_STANDARD.encode(hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc_is_reproduced() {
        // RFC 6455, section 1.3.
        let key = WebSocketKey::of(*b"the sample nonce");
        assert_eq!(key.as_bytes(), b"dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(key.accept(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn only_sixteen_bytes_in_base64_are_a_valid_key() {
        for good in [
            "dGhlIHNhbXBsZSBub25jZQ==",
            "/////////////////////w==",
            "+++++++++++++++++++++x==",
        ] {
            assert!(WebSocketKey::parse(good.as_bytes()).is_some(), "{good}");
        }
        for bad in [
            "",
            "dGhlIHNhbXBsZSBub25jZQ",
            "dGhlIHNhbXBsZSBub25jZQ= ",
            "dGhlIHNhbXBsZSBub25jZQ===",
            "dGhlIHNhbXBsZSBub25-ZQ==",
        ] {
            assert!(WebSocketKey::parse(bad.as_bytes()).is_none(), "{bad}");
        }
    }
}
