//! WebSockets, the only upgrade that passes (rule 15), as each version of HTTP asks for them: with
//! `Upgrade` (RFC 6455, section 4) or with an extended CONNECT (RFC 8441, section 4).
//!
//! While a request for one is on its way through the gateway it is a GET with `Upgrade`; what it
//! has to be for its upstream is known once there is a connection. Where the two sides differ, the
//! gateway is one end of the handshake of HTTP/1.1, and does what that end has to do.

use blitz_http::{
    Method, Name, Protocol, RequestHead, ResponseHead, Status, Version, WebSocketKey,
};

use super::contains_token;

/// A request's wish for a WebSocket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WebSocket {
    client: Protocol,
    /// Of a client of HTTP/1.1 its own, if it is one; for others the one that the upstream gets.
    key: Option<WebSocketKey>,
}

/// The client's `Sec-WebSocket-Key` is none, so that nobody can answer it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoKey;

impl WebSocket {
    /// Whether the request is for one.
    pub(crate) fn wanted(head: &RequestHead) -> Option<WebSocket> {
        match head.method {
            Method::Get if is_upgrade(head) => Some(WebSocket {
                client: Protocol::Http1,
                key: key(head),
            }),
            Method::Connect if is_connect(head) => Some(WebSocket {
                client: Protocol::Http2,
                key: None,
            }),
            _ => None,
        }
    }

    /// Makes a GET of an extended CONNECT. `Upgrade` is added where hop-by-hop fields are edited.
    pub(crate) fn normalize(&self, head: &mut RequestHead) {
        if self.client == Protocol::Http2 {
            head.set_protocol(None);
            head.method = Method::Get;
            // RFC 8441, section 5: it is not used, and what is there would not be answered.
            head.fields.remove(Name::SecWebSocketKey);
        }
    }

    /// Makes of it what an upstream of this protocol understands, also after an attempt at one of
    /// the other.
    pub(crate) fn ask(
        &mut self,
        head: &mut RequestHead,
        protocol: Protocol,
        random: fn() -> u64,
    ) -> Result<(), NoKey> {
        match protocol {
            Protocol::Http1 => {
                head.set_protocol(None);
                head.method = Method::Get;
                if self.client == Protocol::Http2 {
                    self.key.get_or_insert_with(|| WebSocketKey::new(random));
                    if !head.fields.contains(Name::SecWebSocketVersion) {
                        head.fields.append(Name::SecWebSocketVersion, "13");
                    }
                }
                if let Some(key) = &self.key {
                    head.fields.set(Name::SecWebSocketKey, key.as_bytes());
                }
            }
            Protocol::Http2 => {
                if self.client == Protocol::Http1 && self.key.is_none() {
                    return Err(NoKey);
                }
                head.set_protocol(Some("websocket"));
                head.fields.remove(Name::SecWebSocketKey);
            }
        }
        Ok(())
    }

    /// Whether an upstream that leaves HTTP does so as it was asked to. An upstream of HTTP/1.1 that
    /// a client of HTTP/2 has asked is heard by nobody but us, so the proof is ours to check.
    pub(crate) fn is_granted(&self, head: &ResponseHead) -> bool {
        if head.status != Status::SWITCHING_PROTOCOLS {
            return head.status.is_success();
        }
        let mut protocols = head.fields.get_all(Name::Upgrade);
        let is_websocket = protocols
            .next()
            .is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"websocket"));
        let mut accepts = head.fields.get_all(Name::SecWebSocketAccept);
        let is_proved = match (self.client, &self.key) {
            // The client checks the answer to its own key.
            (Protocol::Http1, _) => true,
            (Protocol::Http2, Some(key)) => {
                accepts.next() == Some(key.accept().as_bytes()) && accepts.next().is_none()
            }
            (Protocol::Http2, None) => false,
        };
        is_websocket && protocols.next().is_none() && is_proved
    }

    /// Makes of the upstream's consent what the client understands; of HTTP/2 it is made further
    /// down.
    pub(crate) fn grant(&self, head: &mut ResponseHead) {
        head.fields.append(Name::Upgrade, "websocket");
        if head.status != Status::SWITCHING_PROTOCOLS {
            head.status = Status::SWITCHING_PROTOCOLS;
            if let Some(key) = &self.key {
                head.fields.set(Name::SecWebSocketAccept, key.accept());
            }
        }
    }

    /// Whether the client would take any success for its tunnel.
    pub(crate) fn is_connect(&self) -> bool {
        self.client == Protocol::Http2
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

/// The only key of a request.
fn key(head: &RequestHead) -> Option<WebSocketKey> {
    let mut keys = head.fields.get_all(Name::SecWebSocketKey);
    let key = keys.next().and_then(WebSocketKey::parse);
    key.filter(|_| keys.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
    const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

    fn upgrade() -> RequestHead {
        let mut head = RequestHead::new(Method::Get, "/chat?a");
        head.fields.append(Name::Upgrade, "websocket");
        head.fields.append(Name::Connection, "Upgrade");
        head.fields.append(Name::SecWebSocketKey, KEY);
        head
    }

    fn connect() -> RequestHead {
        let mut head = RequestHead::new(Method::Get, "/chat?a");
        head.set_protocol(Some("websocket"));
        head
    }

    #[test]
    fn each_form_becomes_the_other_and_back() {
        for mut head in [upgrade(), connect()] {
            let mut socket = WebSocket::wanted(&head).unwrap();
            socket.normalize(&mut head);
            let mut keys = Vec::new();
            for _ in 0..2 {
                assert_eq!(socket.ask(&mut head, Protocol::Http1, || 7), Ok(()));
                assert_eq!(
                    (head.method_str(), head.path_and_query()),
                    ("GET", "/chat?a")
                );
                assert_eq!(head.protocol(), None);
                keys.push(
                    head.fields
                        .get_str(Name::SecWebSocketKey)
                        .unwrap()
                        .to_owned(),
                );
                assert_eq!(socket.ask(&mut head, Protocol::Http2, || 7), Ok(()));
                assert_eq!(head.method_str(), "CONNECT");
                assert_eq!(head.protocol(), Some("websocket"));
                assert_eq!(head.fields.get(Name::SecWebSocketKey), None);
            }
            assert_eq!(keys[0], keys[1]);
            assert_eq!(socket.is_connect(), keys[0] != KEY);
        }
    }

    #[test]
    fn who_has_no_key_cannot_be_answered_for_an_upstream_of_http2() {
        for keys in [&[][..], &["no key"], &[KEY, KEY]] {
            let mut head = upgrade();
            head.fields.remove(Name::SecWebSocketKey);
            for key in keys {
                head.fields.append(Name::SecWebSocketKey, key);
            }
            let mut socket = WebSocket::wanted(&head).unwrap();
            assert_eq!(
                socket.ask(&mut head.clone(), Protocol::Http2, || 7),
                Err(NoKey)
            );
            // One of HTTP/1.1 says itself what it thinks of it.
            assert_eq!(socket.ask(&mut head, Protocol::Http1, || 7), Ok(()));
            assert_eq!(
                head.fields.get_all(Name::SecWebSocketKey).count(),
                keys.len()
            );
        }
    }

    #[test]
    fn consent_is_checked_and_translated() {
        let mut switching = ResponseHead::new(Status::SWITCHING_PROTOCOLS);
        switching.fields.append(Name::Upgrade, "WebSocket");
        let mut socket = WebSocket::wanted(&connect()).unwrap();
        assert!(socket.ask(&mut connect(), Protocol::Http1, || 7).is_ok());
        assert!(!socket.is_granted(&switching), "without a proof");
        let accept = socket.key.clone().unwrap().accept();
        switching.fields.append(Name::SecWebSocketAccept, accept);
        assert!(socket.is_granted(&switching));
        let mut twice = switching.clone();
        twice.fields.append(Name::SecWebSocketAccept, ACCEPT);
        assert!(!socket.is_granted(&twice), "with two proofs");
        switching.fields.append(Name::Upgrade, "h2c");
        assert!(!socket.is_granted(&switching), "of two protocols");
        let socket = WebSocket::wanted(&upgrade()).unwrap();
        let mut ok = ResponseHead::new(Status::OK);
        ok.fields.append(Name::SecWebSocketAccept, "made up");
        assert!(socket.is_granted(&ok));
        socket.grant(&mut ok);
        assert_eq!(ok.status, Status::SWITCHING_PROTOCOLS);
        assert_eq!(ok.fields.get_str(Name::SecWebSocketAccept), Some(ACCEPT));
    }
}
