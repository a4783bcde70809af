//! The header of the PROXY protocol, with which a connection to a server tells its client.

use blitz_proto::proxy_protocol::{ProxiedAddresses, ProxyVersion, encode};
use blitz_reactor::Chunk;

/// The header at the beginning of a connection to an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProxyHeader {
    /// The version of the protocol.
    pub version: ProxyVersion,
    /// The client and the address that it has connected to; `None` if they are unknown.
    pub addresses: Option<ProxiedAddresses>,
}

impl ProxyHeader {
    pub(crate) fn encoded(&self) -> Chunk {
        let mut bytes = Vec::new();
        encode(self.version, self.addresses, &mut bytes);
        Chunk::from(bytes)
    }
}
