//! WebSockets, the only upgrade that passes (rule 15), as each version of HTTP asks for them.

use blitz_http::{Method, Name, RequestHead, Version};

use super::contains_token;

/// How a client asks for a WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WebSocket {
    /// With `Upgrade` (RFC 6455, section 4.1).
    Upgrade,
    /// With an extended CONNECT (RFC 8441, section 4).
    Connect,
}

/// Whether the request asks for a WebSocket, and how.
pub(crate) fn wanted_websocket(head: &RequestHead) -> Option<WebSocket> {
    match head.method {
        Method::Get => is_upgrade(head).then_some(WebSocket::Upgrade),
        Method::Connect => is_connect(head).then_some(WebSocket::Connect),
        _ => None,
    }
}

fn is_upgrade(head: &RequestHead) -> bool {
    head.version == Version::Http11
        && contains_token(&head.fields, Name::Upgrade, "websocket")
        && contains_token(&head.fields, Name::Connection, "upgrade")
}

fn is_connect(head: &RequestHead) -> bool {
    let is_websocket = |protocol: &str| protocol.eq_ignore_ascii_case("websocket");
    head.protocol().is_some_and(is_websocket)
}

/// Makes of an extended CONNECT what an upstream of HTTP/1.1 understands. RFC 8441, section 5:
/// there is no `Sec-WebSocket-Key` in it, so the upstream gets one of ours.
pub(crate) fn turn_into_upgrade(head: &mut RequestHead, random: fn() -> u64) {
    head.set_protocol(None);
    head.method = Method::Get;
    let key = (u128::from(random()) << 64) | u128::from(random());
    head.fields.set(Name::SecWebSocketKey, base64(key));
    if !head.fields.contains(Name::SecWebSocketVersion) {
        head.fields.append(Name::SecWebSocketVersion, "13");
    }
}

/// Sixteen bytes in base64 (RFC 4648, section 4).
fn base64(bytes: u128) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    // 128 bits are 21 letters and two bits, which the 22nd begins with.
    let letter = |at: u32| match at {
        21 => (bytes & 3) << 4,
        at => bytes >> (122 - 6 * at) & 63,
    };
    let letters = (0..22).map(|at| char::from(LETTERS[letter(at) as usize]));
    letters.chain("==".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sixteen_bytes_in_base64() {
        // The key of RFC 6455, section 1.3.
        let nonce = u128::from_be_bytes(*b"the sample nonce");
        assert_eq!(base64(nonce), "dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(base64(u128::MAX), "/////////////////////w==");
    }

    #[test]
    fn an_extended_connect_becomes_a_get() {
        let mut head = RequestHead::new(Method::Get, "/chat?a");
        head.set_protocol(Some("websocket"));
        assert_eq!(wanted_websocket(&head), Some(WebSocket::Connect));
        turn_into_upgrade(&mut head, || 0);
        assert_eq!(
            (head.method_str(), head.path_and_query()),
            ("GET", "/chat?a")
        );
        assert_eq!(head.fields.get_str(Name::SecWebSocketVersion), Some("13"));
        assert_eq!(head.protocol(), None);
    }
}
