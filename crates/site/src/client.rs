//! The address of a client, and clients as limits count them.

use std::net::IpAddr;

/// The client of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAddress {
    /// An address, which a trusted proxy may have told.
    Address(IpAddr),
    /// A process of this machine.
    Unix,
    /// Someone behind a trusted proxy whose field says no address.
    Unknown,
}

/// A client as limits count it. One of IPv6 has at least the 64 bits behind its network, and would count as many times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ClientNetwork {
    V4(u32),
    /// The first 64 bits.
    V6(u64),
    Unix,
    Unknown,
}

impl ClientAddress {
    pub(crate) fn network(self) -> ClientNetwork {
        match self {
            ClientAddress::Address(address) => match address.to_canonical() {
                IpAddr::V4(address) => ClientNetwork::V4(u32::from(address)),
                IpAddr::V6(address) => ClientNetwork::V6((u128::from(address) >> 64) as u64),
            },
            ClientAddress::Unix => ClientNetwork::Unix,
            ClientAddress::Unknown => ClientNetwork::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_a_network_are_one_client() {
        let of = |text: &str| ClientAddress::Address(text.parse().unwrap()).network();
        assert_eq!(of("2001:db8:1:2:3::4"), of("2001:db8:1:2::"));
        assert_ne!(of("2001:db8:1:2::"), of("2001:db8:1:3::"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
