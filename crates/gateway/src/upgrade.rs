//! Upgrades to protocols other than WebSocket, which a target allows by name (rule 15): `docker attach`
//! uses `tcp`, `kubectl exec` uses `SPDY/3.1`.
//!
//! Both sides use HTTP/1.1, and the gateway knows nothing about the protocol.

use std::fmt;
use std::str::FromStr;

use blitz_http::{Name, RequestHead, ResponseHead, Status, Version};

use crate::forward::contains_token;

/// Longest name of a protocol.
const PROTOCOL_BYTES_MAX: usize = 64;

/// A protocol that clients may switch to, as in `Upgrade` (RFC 9110, section 7.8): `tcp`, `SPDY/3.1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpgradeProtocol(String);

/// Why a text is not such a protocol, and the remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpgradeProtocolError {
    problem: &'static str,
    fix: &'static str,
}

impl UpgradeProtocolError {
    /// The problem.
    #[must_use]
    pub fn problem(&self) -> &'static str {
        self.problem
    }

    /// The remedy.
    #[must_use]
    pub fn fix(&self) -> &'static str {
        self.fix
    }
}

impl fmt::Display for UpgradeProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem, self.fix)
    }
}

impl std::error::Error for UpgradeProtocolError {}

impl FromStr for UpgradeProtocol {
    type Err = UpgradeProtocolError;

    fn from_str(text: &str) -> Result<UpgradeProtocol, UpgradeProtocolError> {
        let refused = |problem, fix| Err(UpgradeProtocolError { problem, fix });
        let is_token = |part: &str| {
            let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-._+".contains(&byte);
            !part.is_empty() && part.bytes().all(is_token)
        };
        let (name, version) = text.split_once('/').unwrap_or((text, "1"));
        if text.len() > PROTOCOL_BYTES_MAX || !is_token(name) || !is_token(version) {
            return refused(
                "this is not the name of a protocol",
                "write it as in the field Upgrade, for example tcp or SPDY/3.1",
            );
        }
        match name.to_ascii_lowercase().as_str() {
            "h2c" | "h2" | "http" | "tls" => refused(
                "this protocol carries requests past the gateway, and is never forwarded",
                "leave it out; upstreams with HTTP/2 are --to h2c://…",
            ),
            "websocket" => refused("WebSockets are always forwarded", "leave it out"),
            _ => Ok(UpgradeProtocol(text.to_owned())),
        }
    }
}

/// A request to switch to a protocol that its target allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Upgrade(UpgradeProtocol);

impl Upgrade {
    /// The first allowed protocol that the request names.
    pub(crate) fn requested(head: &RequestHead, allowed: &[UpgradeProtocol]) -> Option<Upgrade> {
        let may_switch = !allowed.is_empty()
            && head.version == Version::Http11
            && contains_token(&head.fields, Name::Connection, "upgrade");
        let is_named =
            |protocol: &&UpgradeProtocol| contains_token(&head.fields, Name::Upgrade, &protocol.0);
        let protocol = allowed.iter().filter(|_| may_switch).find(is_named)?;
        Some(Upgrade(protocol.clone()))
    }

    /// The protocol, as `Upgrade` has it.
    pub(crate) fn protocol(&self) -> &str {
        &self.0.0
    }

    /// Whether a response that opens a tunnel switches to this protocol, and to no other.
    pub(crate) fn is_granted(&self, head: &ResponseHead) -> bool {
        let mut protocols = head.fields.get_all(Name::Upgrade);
        let is_same = protocols
            .next()
            .is_some_and(|protocol| protocol.eq_ignore_ascii_case(self.protocol().as_bytes()));
        head.status == Status::SWITCHING_PROTOCOLS && is_same && protocols.next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use blitz_http::Method;

    use super::*;

    #[test]
    fn protocols_that_carry_requests_are_never_allowed() {
        for text in ["tcp", "SPDY/3.1", "vnc", "a-b.c/1"] {
            assert_eq!(text.parse::<UpgradeProtocol>().unwrap().0, text);
        }
        let long = "x".repeat(PROTOCOL_BYTES_MAX + 1);
        for text in [
            "h2c",
            "H2C",
            "h2c/1",
            "HTTP/2.0",
            "TLS/1.2",
            "websocket",
            "WebSocket",
            "",
            "/",
            "a/",
            "a b",
            "a,b",
            "a/b/c",
            &long,
        ] {
            assert!(text.parse::<UpgradeProtocol>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn only_allowed_protocols_of_http_1_1_with_connection_upgrade_are_requested() {
        let allowed = ["tcp", "SPDY/3.1"].map(|protocol| protocol.parse().unwrap());
        for (version, connection, upgrade, expected) in [
            (Version::Http11, "Upgrade", "tcp", Some("tcp")),
            (Version::Http11, "keep-alive, upgrade", "TCP", Some("tcp")),
            (
                Version::Http11,
                "Upgrade",
                "other, spdy/3.1",
                Some("SPDY/3.1"),
            ),
            (Version::Http11, "Upgrade", "SPDY/3.0", None),
            (Version::Http11, "Upgrade", "h2c", None),
            (Version::Http11, "close", "tcp", None),
            (Version::Http10, "Upgrade", "tcp", None),
        ] {
            let mut head = RequestHead::new(Method::Post, "/");
            head.version = version;
            head.fields.append(Name::Connection, connection);
            head.fields.append(Name::Upgrade, upgrade);
            let found = Upgrade::requested(&head, &allowed);
            let found = found.as_ref().map(Upgrade::protocol);
            assert_eq!(found, expected, "{version:?}, {connection}, {upgrade}");
            assert_eq!(Upgrade::requested(&head, &[]), None);
        }
    }
}
