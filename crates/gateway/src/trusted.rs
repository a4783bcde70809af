//! Trusted proxies: clients whose forwarding fields are kept.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use blitz_http::Peer;

/// Clients whose `X-Forwarded-*` and `Forwarded` fields are believed; by default none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    networks: Vec<Network>,
    unix: bool,
}

/// A network, an address, or all clients of a unix socket: `10.0.0.0/8`, `fd00::/8`, `192.0.2.1`,
/// `unix`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrustedProxy(Option<Network>);

/// Addresses that share their first bits; IPv4 as the mapped part of IPv6 (RFC 4291).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    address: u128,
    mask: u128,
}

/// Why a text is not a trusted proxy, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedProxyError {
    problem: String,
    fix: String,
}

impl TrustedProxies {
    /// Whether the client of this connection is a trusted proxy.
    #[inline]
    pub fn contains(&self, peer: &Peer) -> bool {
        self.contains_remote(peer.remote)
    }

    /// The same with the address of the connection, which a unix socket has not.
    #[inline]
    pub(crate) fn contains_remote(&self, remote: Option<SocketAddr>) -> bool {
        match remote {
            // The usual case, checked for every request.
            Some(_) if self.networks.is_empty() => false,
            Some(remote) => self.contains_address(remote.ip()),
            None => self.unix,
        }
    }

    /// Whether a proxy with this address is trusted.
    pub(crate) fn contains_address(&self, ip: IpAddr) -> bool {
        let address = bits(ip);
        self.networks
            .iter()
            .any(|network| address & network.mask == network.address)
    }
}

impl FromIterator<TrustedProxy> for TrustedProxies {
    fn from_iter<I: IntoIterator<Item = TrustedProxy>>(proxies: I) -> TrustedProxies {
        let mut all = TrustedProxies::default();
        for TrustedProxy(network) in proxies {
            all.unix |= network.is_none();
            all.networks.extend(network);
        }
        all
    }
}

impl FromStr for TrustedProxy {
    type Err = TrustedProxyError;

    fn from_str(text: &str) -> Result<TrustedProxy, TrustedProxyError> {
        match text {
            "unix" => Ok(TrustedProxy(None)),
            network => network.parse().map(|network| TrustedProxy(Some(network))),
        }
    }
}

impl FromStr for Network {
    type Err = TrustedProxyError;

    fn from_str(text: &str) -> Result<Network, TrustedProxyError> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let Ok(ip) = address.parse::<IpAddr>() else {
            return error(
                "this is neither an address nor a network",
                "write for example 10.0.0.0/8, fd00::/8, 192.0.2.1 or unix",
            );
        };
        let width: u32 = if ip.is_ipv4() { 32 } else { 128 };
        let length = length.map_or(Some(width), |text| text.parse().ok());
        let Some(length) = length.filter(|length| *length <= width) else {
            return error(
                "the length after the slash is invalid",
                &format!("write a number from 0 to {width}"),
            );
        };
        let mask = u128::MAX.checked_shl(width - length).unwrap_or(0);
        let (address, first) = (bits(ip), bits(ip) & mask);
        if address != first {
            return error(
                &format!("bits after the first {length} are set"),
                &format!(
                    "write {}/{length} for the network, or {ip} for the address",
                    ip_of(first)
                ),
            );
        }
        Ok(Network { address, mask })
    }
}

fn error<T>(problem: &str, fix: &str) -> Result<T, TrustedProxyError> {
    Err(TrustedProxyError {
        problem: problem.to_owned(),
        fix: fix.to_owned(),
    })
}

fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn ip_of(bits: u128) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from_bits(bits)).to_canonical()
}

impl TrustedProxyError {
    /// The problem with the text.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// The remedy.
    pub fn fix(&self) -> &str {
        &self.fix
    }
}

impl fmt::Display for TrustedProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem, self.fix)
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

    #[test]
    fn invalid_networks_are_errors_with_a_remedy() {
        for (text, fix) in [
            ("", "for example 10.0.0.0/8"),
            ("example.com", "for example 10.0.0.0/8"),
            ("10/8", "for example 10.0.0.0/8"),
            ("10.0.0.0/33", "from 0 to 32"),
            ("10.0.0.0/", "from 0 to 32"),
            ("10.0.0.0/-1", "from 0 to 32"),
            ("::/129", "from 0 to 128"),
            ("::/x", "from 0 to 128"),
            ("10.0.0.1/8", "10.0.0.0/8 for the network, or 10.0.0.1 for"),
            ("fd00::1/8", "fd00::/8 for the network"),
        ] {
            let error = text.parse::<TrustedProxy>().expect_err(text);
            assert!(error.fix().contains(fix), "{text}: {error}");
        }
    }
}
