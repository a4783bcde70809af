//! Upgrades to protocols other than WebSocket, which a route allows by name (rule 15): `docker attach`
//! uses `tcp`, `kubectl exec` uses `SPDY/3.1`.
//!
//! Both sides use HTTP/1.1, and the gateway knows nothing about the protocol.

use blitz_config::{UpgradeProtocol, Upgrades};
use blitz_http::{Name, RequestHead, ResponseHead, Status, Version};

use crate::forward::contains_token;

/// A request to switch to a protocol that its route allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Upgrade(UpgradeProtocol);

impl Upgrade {
    /// The first allowed protocol that the request names.
    pub(crate) fn requested(head: &RequestHead, allowed: &Upgrades) -> Option<Upgrade> {
        let may_switch = !allowed.others.is_empty()
            && head.version == Version::Http11
            && contains_token(&head.fields, Name::Connection, "upgrade");
        let is_named = |protocol: &&UpgradeProtocol| {
            contains_token(&head.fields, Name::Upgrade, protocol.as_str())
        };
        let protocol = allowed
            .others
            .iter()
            .filter(|_| may_switch)
            .find(is_named)?;
        Some(Upgrade(protocol.clone()))
    }

    /// The protocol, as `Upgrade` has it.
    pub(crate) fn protocol(&self) -> &str {
        self.0.as_str()
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
    fn only_allowed_protocols_of_http_1_1_with_connection_upgrade_are_requested() {
        let allowed = Upgrades {
            others: ["tcp", "SPDY/3.1"]
                .map(|protocol| protocol.parse().unwrap())
                .into(),
            ..Upgrades::default()
        };
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
            assert_eq!(Upgrade::requested(&head, &Upgrades::default()), None);
        }
    }
}
