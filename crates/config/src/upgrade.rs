//! Protocols of the field `Upgrade` (RFC 9110, section 7.8).

use std::str::FromStr;

use crate::units::ValueError;

/// Longest name of a protocol, in bytes.
const PROTOCOL_BYTES_MAX: usize = 64;

/// A protocol beside WebSocket that clients may switch to: `tcp`, `SPDY/3.1`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UpgradeProtocol(String);

/// The protocols that clients of a route may switch to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Upgrades {
    /// Whether they may open WebSockets.
    pub websocket: bool,
    /// Other protocols, over HTTP/1.1 on both sides.
    pub others: Vec<UpgradeProtocol>,
}

impl Default for Upgrades {
    /// WebSockets only.
    fn default() -> Upgrades {
        Upgrades {
            websocket: true,
            others: Vec::new(),
        }
    }
}

impl Upgrades {
    /// No protocol.
    pub(crate) const NONE: Upgrades = Upgrades {
        websocket: false,
        others: Vec::new(),
    };

    /// Adds a protocol.
    ///
    /// # Errors
    /// It is not the name of a protocol, or one that is never forwarded.
    pub(crate) fn add(&mut self, text: &str) -> Result<(), ValueError> {
        match text.eq_ignore_ascii_case("websocket") {
            true => self.websocket = true,
            false => self.others.push(text.parse()?),
        }
        Ok(())
    }
}

impl UpgradeProtocol {
    /// The name, and perhaps a version after a slash.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for UpgradeProtocol {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<UpgradeProtocol, ValueError> {
        let refused = |problem, remedy| Err(ValueError::new("upgrade", problem, remedy));
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
                "leave it out; the URL of an upstream with HTTP/2 is h2c://…",
            ),
            "websocket" => refused(
                "this is not a protocol beside WebSocket",
                "write \"websocket\" in a file; with flags WebSockets are always forwarded",
            ),
            _ => Ok(UpgradeProtocol(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_that_carry_requests_are_never_allowed() {
        for text in ["tcp", "SPDY/3.1", "vnc", "a-b.c/1"] {
            assert_eq!(text.parse::<UpgradeProtocol>().unwrap().as_str(), text);
        }
        let long = "x".repeat(PROTOCOL_BYTES_MAX + 1);
        for text in [
            "h2c",
            "H2C",
            "h2c/1",
            "HTTP/2.0",
            "TLS/1.2",
            "websocket/13",
            "websocket",
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
    fn websockets_are_a_protocol_of_their_own() {
        let mut upgrades = Upgrades::NONE;
        upgrades.add("tcp").unwrap();
        assert!(!upgrades.websocket);
        upgrades.add("WebSocket").unwrap();
        assert!(upgrades.websocket);
        assert_eq!(upgrades.others.len(), 1);
    }
}
