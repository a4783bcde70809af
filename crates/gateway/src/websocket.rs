//! WebSockets, the only upgrade that is forwarded (rule 15), in both of their forms: `Upgrade`
//! (RFC 6455, section 4) and extended CONNECT (RFC 8441, section 4).
//!
//! On its way through the gateway the request is a GET with `Upgrade`. The form for the upstream is
//! chosen when there is a connection. Where the two sides differ, the gateway is one end of the
//! handshake of RFC 6455.

use blitz_http::{
    Method, Name, RequestHead, ResponseHead, Status, UpgradeForm, Version, WebSocketKey,
};

use crate::forward::contains_token;

/// A request for a WebSocket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WebSocket {
    /// The client's form.
    client: UpgradeForm,
    /// With `Upgrade` the client's own key, if it is valid; with extended CONNECT the one that the
    /// upstream gets.
    key: Option<WebSocketKey>,
}

/// The client's `Sec-WebSocket-Key` is invalid, so that no `Sec-WebSocket-Accept` belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InvalidKey;

impl WebSocket {
    /// The WebSocket that the request is for, if it is for one.
    pub(crate) fn requested(head: &RequestHead) -> Option<WebSocket> {
        match head.method {
            Method::Get if is_upgrade(head) => Some(WebSocket {
                client: UpgradeForm::UpgradeField,
                key: key(head),
            }),
            Method::Connect if is_extended_connect(head) => Some(WebSocket {
                client: UpgradeForm::ExtendedConnect,
                key: None,
            }),
            _ => None,
        }
    }

    /// Makes an extended CONNECT a GET. `Upgrade` is added where hop-by-hop fields are edited.
    pub(crate) fn normalize(&self, head: &mut RequestHead) {
        if self.client == UpgradeForm::ExtendedConnect {
            head.set_protocol(None);
            head.method = Method::Get;
            // RFC 8441, section 5: the field is not used, and no field would belong to it in the response.
            head.fields.remove(Name::SecWebSocketKey);
        }
    }

    /// Gives the request this form, also after an attempt in the other one.
    ///
    /// # Errors
    /// The gateway would have to answer the client's key, and it is invalid.
    pub(crate) fn prepare(
        &mut self,
        head: &mut RequestHead,
        form: UpgradeForm,
        random: fn() -> u64,
    ) -> Result<(), InvalidKey> {
        match form {
            UpgradeForm::UpgradeField => {
                head.set_protocol(None);
                head.method = Method::Get;
                if self.client == UpgradeForm::ExtendedConnect {
                    self.key.get_or_insert_with(|| WebSocketKey::new(random));
                    if !head.fields.contains(Name::SecWebSocketVersion) {
                        head.fields.append(Name::SecWebSocketVersion, "13");
                    }
                }
                if let Some(key) = &self.key {
                    head.fields.set(Name::SecWebSocketKey, key.as_bytes());
                }
            }
            UpgradeForm::ExtendedConnect => {
                if self.client == UpgradeForm::UpgradeField && self.key.is_none() {
                    return Err(InvalidKey);
                }
                head.set_protocol(Some("websocket"));
                head.fields.remove(Name::SecWebSocketKey);
            }
        }
        Ok(())
    }

    /// Whether a response that opens a tunnel opens the one that was requested. The gateway checks
    /// the response to its own key, since the client does not see it.
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
            // The client checks the response to its own key.
            (UpgradeForm::UpgradeField, _) => true,
            (UpgradeForm::ExtendedConnect, Some(key)) => {
                accepts.next() == Some(key.accept().as_bytes()) && accepts.next().is_none()
            }
            (UpgradeForm::ExtendedConnect, None) => false,
        };
        is_websocket && protocols.next().is_none() && is_proved
    }

    /// Makes the upstream's head the response to an `Upgrade`. For clients of extended CONNECT the
    /// responder translates it.
    pub(crate) fn grant(&self, head: &mut ResponseHead) {
        head.fields.append(Name::Upgrade, "websocket");
        if head.status != Status::SWITCHING_PROTOCOLS {
            head.status = Status::SWITCHING_PROTOCOLS;
            if let Some(key) = &self.key {
                head.fields.set(Name::SecWebSocketAccept, key.accept());
            }
        }
    }

    /// Whether the client takes any success for an open tunnel.
    pub(crate) fn is_extended_connect(&self) -> bool {
        self.client == UpgradeForm::ExtendedConnect
    }
}

impl WebSocket {
    /// Whether the request opens a WebSocket, in either form.
    pub(crate) fn is_requested(head: &RequestHead) -> bool {
        is_upgrade(head) || is_extended_connect(head)
    }
}

fn is_upgrade(head: &RequestHead) -> bool {
    head.version == Version::Http11
        && contains_token(&head.fields, Name::Upgrade, "websocket")
        && contains_token(&head.fields, Name::Connection, "upgrade")
}

fn is_extended_connect(head: &RequestHead) -> bool {
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
            let mut socket = WebSocket::requested(&head).unwrap();
            socket.normalize(&mut head);
            let mut keys = Vec::new();
            for _ in 0..2 {
                assert_eq!(
                    socket.prepare(&mut head, UpgradeForm::UpgradeField, || 7),
                    Ok(())
                );
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
                assert_eq!(
                    socket.prepare(&mut head, UpgradeForm::ExtendedConnect, || 7),
                    Ok(())
                );
                assert_eq!(head.method_str(), "CONNECT");
                assert_eq!(head.protocol(), Some("websocket"));
                assert_eq!(head.fields.get(Name::SecWebSocketKey), None);
            }
            assert_eq!(keys[0], keys[1]);
            assert_eq!(socket.is_extended_connect(), keys[0] != KEY);
        }
    }

    #[test]
    fn an_invalid_key_fails_for_extended_connect_only() {
        for keys in [&[][..], &["no key"], &[KEY, KEY]] {
            let mut head = upgrade();
            head.fields.remove(Name::SecWebSocketKey);
            for key in keys {
                head.fields.append(Name::SecWebSocketKey, key);
            }
            let mut socket = WebSocket::requested(&head).unwrap();
            assert_eq!(
                socket.prepare(&mut head.clone(), UpgradeForm::ExtendedConnect, || 7),
                Err(InvalidKey)
            );
            // With `Upgrade` the upstream judges the key itself.
            assert_eq!(
                socket.prepare(&mut head, UpgradeForm::UpgradeField, || 7),
                Ok(())
            );
            assert_eq!(
                head.fields.get_all(Name::SecWebSocketKey).count(),
                keys.len()
            );
        }
    }

    #[test]
    fn the_response_is_checked_and_translated() {
        let mut switching = ResponseHead::new(Status::SWITCHING_PROTOCOLS);
        switching.fields.append(Name::Upgrade, "WebSocket");
        let mut socket = WebSocket::requested(&connect()).unwrap();
        assert!(
            socket
                .prepare(&mut connect(), UpgradeForm::UpgradeField, || 7)
                .is_ok()
        );
        assert!(!socket.is_granted(&switching), "without a proof");
        let accept = socket.key.clone().unwrap().accept();
        switching.fields.append(Name::SecWebSocketAccept, accept);
        assert!(socket.is_granted(&switching));
        let mut twice = switching.clone();
        twice.fields.append(Name::SecWebSocketAccept, ACCEPT);
        assert!(!socket.is_granted(&twice), "with two proofs");
        switching.fields.append(Name::Upgrade, "h2c");
        assert!(!socket.is_granted(&switching), "of two protocols");
        let socket = WebSocket::requested(&upgrade()).unwrap();
        let mut ok = ResponseHead::new(Status::OK);
        ok.fields.append(Name::SecWebSocketAccept, "made up");
        assert!(socket.is_granted(&ok));
        socket.grant(&mut ok);
        assert_eq!(ok.status, Status::SWITCHING_PROTOCOLS);
        assert_eq!(ok.fields.get_str(Name::SecWebSocketAccept), Some(ACCEPT));
    }
}
