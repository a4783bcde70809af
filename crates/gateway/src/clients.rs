//! The networks of clients that a route serves.

use std::net::IpAddr;
use std::sync::Arc;

use blitz_config::Network;
use blitz_site::{ClientAddress, NetworkSet};

/// The clients of `allow` and `deny`. By default all are served.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Access {
    /// If it is there, others get 403.
    pub(crate) allow: Option<Arc<ClientList>>,
    /// These get 403.
    pub(crate) deny: Option<Arc<ClientList>>,
}

/// A list of networks. Routes that inherit it share it, and lists that name the same file share its set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct ClientList {
    /// A few, which are compared one after the other.
    pub(crate) networks: Box<[Network]>,
    /// More, and those of files.
    pub(crate) sets: Box<[Arc<NetworkSet>]>,
    /// A list that must have the client, too.
    pub(crate) within: Option<Arc<ClientList>>,
}

impl Access {
    /// Whether all clients are served.
    pub(crate) fn is_empty(&self) -> bool {
        self.allow.is_none() && self.deny.is_none()
    }

    /// Whether this client is served.
    pub(crate) fn admits(&self, client: ClientAddress) -> bool {
        let client = match client {
            ClientAddress::Address(address) => Some(address),
            ClientAddress::Unix => None,
            ClientAddress::Unknown => return self.is_empty(),
        };
        let is_in = |list: &Arc<ClientList>| list.contains(client);
        !self.deny.as_ref().is_some_and(is_in) && self.allow.as_ref().is_none_or(is_in)
    }
}

impl ClientList {
    /// Whether a client has one of the addresses; `None` is a client of a unix socket.
    fn contains(&self, client: Option<IpAddr>) -> bool {
        let is_in = self.networks.iter().any(|network| network.contains(client))
            || self.sets.iter().any(|set| set.contains(client));
        let within = self.within.as_ref();
        is_in && within.is_none_or(|within| within.contains(client))
    }
}

#[cfg(test)]
mod tests {
    use blitz_site::read_networks;

    use super::*;

    fn set(text: &str) -> Arc<NetworkSet> {
        Arc::new(read_networks(text.as_bytes()).expect("all are networks"))
    }

    fn client(text: &str) -> ClientAddress {
        match text {
            "unix" => ClientAddress::Unix,
            "unknown" => ClientAddress::Unknown,
            text => ClientAddress::Address(text.parse().expect("it is an address")),
        }
    }

    #[test]
    fn lists_of_networks_sets_and_surroundings_decide_together() {
        let outer = ClientList {
            sets: [set("10.0.0.0/8\nunix")].into(),
            ..ClientList::default()
        };
        let access = Access {
            allow: Some(Arc::new(ClientList {
                networks: [Network::parse("192.0.2.1").unwrap()].into(),
                sets: [set("10.1.0.0/16"), set("10.2.0.0/16\nunix")].into(),
                within: Some(Arc::new(outer)),
            })),
            deny: Some(Arc::new(ClientList {
                sets: [set("10.1.2.3")].into(),
                ..ClientList::default()
            })),
        };
        for (text, is_served) in [
            ("10.1.0.1", true),
            ("::ffff:10.2.0.1", true),
            ("10.3.0.1", false),
            ("10.1.2.3", false),
            ("192.0.2.1", false),
            ("unix", true),
            ("unknown", false),
        ] {
            assert_eq!(access.admits(client(text)), is_served, "{text}");
        }
        assert!(Access::default().admits(ClientAddress::Unknown));
    }
    /// The language and files have readers of their own.
    #[test]
    fn networks_of_files_are_those_of_the_language() {
        for text in [
            "unix",
            "10.0.0.0/8",
            "::ffff:10.0.0.0/104",
            "192.0.2.1",
            "fd00::/8",
            "::/0",
            "0.0.0.0/0",
            "::1",
            "",
            "example.com",
            "10/8",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/-1",
            "10.0.0.0/+8",
            "::/129",
            "::/x",
            "10.0.0.1/8",
            "fd00::1/8",
            "UNIX",
            "::ffff:10.0.0.1/8",
        ] {
            let of_language = match Network::parse(text) {
                Ok(network) => Ok(network.bounds()),
                Err(error) => Err((error.problem, error.remedy)),
            };
            assert_eq!(blitz_site::parse_network(text), of_language, "{text}");
        }
    }
}
