//! Which clients are proxies whose word about the real client is believed.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use blitz_http::Peer;

/// Networks whose `X-Forwarded-*` and `Forwarded` fields are kept; by default none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    networks: Vec<Network>,
    unix: bool,
}

/// Addresses that share their first bits; IPv4 as the mapped part of IPv6 (RFC 4291).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    address: u128,
    mask: u128,
}

/// Why a network was refused, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedProxiesError(String);

impl TrustedProxies {
    /// Adds one network: `10.0.0.0/8`, `fd00::/8`, a single address, or `unix` for every client of
    /// a unix socket.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn add(&mut self, text: &str) -> Result<(), TrustedProxiesError> {
        if text == "unix" {
            self.unix = true;
        } else {
            self.networks.push(text.parse()?);
        }
        Ok(())
    }

    /// Whether the client on this connection is such a proxy.
    pub fn contains(&self, peer: &Peer) -> bool {
        match peer.remote {
            // The usual case, and asked for every request.
            Some(_) if self.networks.is_empty() => false,
            Some(remote) => {
                let address = bits(remote.ip());
                self.networks
                    .iter()
                    .any(|network| address & network.mask == network.address)
            }
            None => self.unix,
        }
    }
}

impl FromStr for Network {
    type Err = TrustedProxiesError;

    fn from_str(text: &str) -> Result<Network, TrustedProxiesError> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let error = |fix: &str| {
            Err(TrustedProxiesError(format!(
                "{text:?} is no network: {fix}"
            )))
        };
        let Ok(ip) = address.parse::<IpAddr>() else {
            return error("write for example 10.0.0.0/8, fd00::/8 or 192.0.2.1");
        };
        let width: u32 = if ip.is_ipv4() { 32 } else { 128 };
        let Some(length) = length.map_or(Some(width), |text| text.parse().ok()) else {
            return error("write the number of leading bits after the slash");
        };
        if length > width {
            return error(&format!("it has at most {width} leading bits"));
        }
        let mask = u128::MAX.checked_shl(width - length).unwrap_or(0);
        let network = Network {
            address: bits(ip),
            mask,
        };
        if network.address & mask != network.address {
            return error(&format!(
                "bits after the first {length} are set; write them as zero"
            ));
        }
        Ok(network)
    }
}

fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

impl fmt::Display for TrustedProxiesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TrustedProxiesError {}

#[cfg(test)]
mod tests {
    use blitz_http::Scheme;

    use super::*;

    fn trusts(networks: &[&str], remote: Option<&str>) -> bool {
        let mut trusted = TrustedProxies::default();
        for network in networks {
            trusted.add(network).unwrap();
        }
        let remote = remote.map(|address| address.parse().unwrap());
        trusted.contains(&Peer {
            remote,
            listener: None,
            scheme: Scheme::Http,
        })
    }

    #[test]
    fn nobody_is_trusted_by_default() {
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
    fn what_is_no_network_is_refused() {
        for text in [
            "",
            "10.0.0.0/33",
            "10.0.0.1/8",
            "10/8",
            "::/129",
            "::/x",
            "example.com",
        ] {
            assert!(TrustedProxies::default().add(text).is_err(), "{text}");
        }
    }
}
