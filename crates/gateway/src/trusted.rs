//! Trusted proxies: clients whose forwarding fields are kept.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use blitz_config::{Network, ValueError};
use blitz_http::Peer;

/// Clients whose `X-Forwarded-*` and `Forwarded` fields are believed; by default none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    networks: Vec<Network>,
}

/// A network, an address, or all clients of a unix socket: `10.0.0.0/8`, `fd00::/8`, `192.0.2.1`,
/// `unix`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrustedProxy(Network);

/// Why a text is not a trusted proxy, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedProxyError(ValueError);

impl TrustedProxies {
    /// Whether the client of this connection is a trusted proxy.
    #[inline]
    pub fn contains(&self, peer: &Peer) -> bool {
        self.contains_remote(peer.remote)
    }

    /// Whether there are none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.networks.is_empty()
    }

    /// The same with the address of the connection, which a unix socket has not.
    #[inline]
    pub(crate) fn contains_remote(&self, remote: Option<SocketAddr>) -> bool {
        // The usual case, checked for every request.
        !self.networks.is_empty() && self.contains_client(remote.map(|remote| remote.ip()))
    }

    /// Whether a proxy with this address is trusted.
    pub(crate) fn contains_address(&self, ip: IpAddr) -> bool {
        self.contains_client(Some(ip))
    }

    fn contains_client(&self, client: Option<IpAddr>) -> bool {
        self.networks.iter().any(|network| network.contains(client))
    }
}

impl FromIterator<TrustedProxy> for TrustedProxies {
    fn from_iter<I: IntoIterator<Item = TrustedProxy>>(proxies: I) -> TrustedProxies {
        TrustedProxies {
            networks: proxies
                .into_iter()
                .map(|TrustedProxy(network)| network)
                .collect(),
        }
    }
}

impl From<Network> for TrustedProxy {
    fn from(network: Network) -> TrustedProxy {
        TrustedProxy(network)
    }
}

impl fmt::Display for TrustedProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for TrustedProxy {
    type Err = TrustedProxyError;

    fn from_str(text: &str) -> Result<TrustedProxy, TrustedProxyError> {
        let network = Network::parse(text);
        network.map(TrustedProxy).map_err(TrustedProxyError)
    }
}

impl TrustedProxyError {
    /// The problem with the text.
    pub fn problem(&self) -> &str {
        &self.0.problem
    }

    /// The remedy.
    pub fn fix(&self) -> &str {
        &self.0.remedy
    }
}

impl fmt::Display for TrustedProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem(), self.fix())
    }
}

impl std::error::Error for TrustedProxyError {}

#[cfg(test)]
mod tests {
    use blitz_http::Scheme;

    use super::*;

    fn trusts(networks: &[&str], remote: Option<&str>) -> bool {
        let trusted: TrustedProxies = networks.iter().map(|text| text.parse().unwrap()).collect();
        let remote = remote.map(|address| address.parse().unwrap());
        trusted.contains(&Peer {
            remote,
            listener: None,
            scheme: Scheme::Http,
            tls: None,
        })
    }

    #[test]
    fn no_client_is_trusted_by_default() {
        assert!(!trusts(&[], Some("127.0.0.1:1")));
        assert!(!trusts(&[], None));
    }

    #[test]
    fn networks_and_addresses_of_both_families() {
        assert!(trusts(&["10.0.0.0/8"], Some("10.255.0.1:1")));
        assert!(trusts(&["10.0.0.0/8"], Some("[::ffff:10.0.0.1]:1")));
        assert!(!trusts(&["10.0.0.0/8"], Some("11.0.0.1:1")));
        assert!(trusts(&["192.0.2.1"], Some("192.0.2.1:1")));
        assert!(!trusts(&["192.0.2.1"], Some("192.0.2.2:1")));
        assert!(trusts(&["fd00::/8"], Some("[fdff::1]:1")));
        assert!(!trusts(&["fd00::/8"], Some("[fe00::1]:1")));
        assert!(trusts(&["::/0"], Some("192.0.2.2:1")));
        assert!(!trusts(&["0.0.0.0/0"], Some("[fe00::1]:1")));
        assert!(trusts(&["unix"], None));
    }
}
