//! Networks of clients and proxies: `10.0.0.0/8`, `192.0.2.7`, `unix`.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use crate::units::ValueError;

/// Addresses that share their first bits, or all clients of unix sockets. An IPv4 address equals the IPv6 address that
/// maps it (RFC 4291, section 2.5.5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network(Option<Range>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Range {
    address: u128,
    mask: u128,
}

/// The bits of an IPv6 address, and those before an IPv4 address that it maps.
const WIDTH: u32 = 128;
const MAPPED: u32 = 96;

impl Network {
    /// A network, an address, or `unix`.
    ///
    /// # Errors
    /// It is none of them, or an address with bits behind the length.
    pub fn parse(text: &str) -> Result<Network, ValueError> {
        if text == "unix" {
            return Ok(Network(None));
        }
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let Ok(ip) = address.parse::<IpAddr>() else {
            return Err(ValueError::new(
                "network",
                "this is neither an address nor a network",
                "write for example 10.0.0.0/8, fd00::/8, 192.0.2.1 or unix",
            ));
        };
        let width = if ip.is_ipv4() { WIDTH - MAPPED } else { WIDTH };
        let length = match length {
            None => Some(width),
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok(),
            Some(_) => None,
        };
        let Some(length) = length.filter(|length| *length <= width) else {
            return Err(ValueError::new(
                "network",
                "the length after the slash is invalid",
                format!("write a number from 0 to {width}"),
            ));
        };
        let mask = u128::MAX.checked_shl(width - length).unwrap_or(0);
        let (address, first) = (bits(ip), bits(ip) & mask);
        if address != first {
            let network = ip_of(first);
            return Err(ValueError::new(
                "network",
                format!("bits after the first {length} are set"),
                format!("write {network}/{length} for the network, or {ip} for the address"),
            ));
        }
        Ok(Network(Some(Range { address, mask })))
    }

    /// The addresses of both networks, which is one of the two or nothing.
    #[must_use]
    pub(crate) fn intersection(self, other: Network) -> Option<Network> {
        let (Some(a), Some(b)) = (self.0, other.0) else {
            return (self == other).then_some(self);
        };
        let (outer, inner) = if a.mask <= b.mask { (a, b) } else { (b, a) };
        (inner.address & outer.mask == outer.address).then_some(Network(Some(inner)))
    }

    /// The first and the last address as IPv6, which maps IPv4; `None` is clients of unix sockets.
    #[must_use]
    pub fn bounds(&self) -> Option<(Ipv6Addr, Ipv6Addr)> {
        let Range { address, mask } = self.0?;
        Some((
            Ipv6Addr::from_bits(address),
            Ipv6Addr::from_bits(address | !mask),
        ))
    }

    /// Whether a client has this address; `None` is a client of a unix socket.
    #[inline]
    #[must_use]
    pub fn contains(&self, client: Option<IpAddr>) -> bool {
        match (self.0, client) {
            (Some(range), Some(ip)) => bits(ip) & range.mask == range.address,
            (None, None) => true,
            _ => false,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Range { address, mask }) = self.0 else {
            return f.write_str("unix");
        };
        let ip = ip_of(address);
        let is_mapped = ip.is_ipv4() && mask.leading_ones() >= MAPPED;
        // `::ffff:0:0/95` has more than the IPv4 addresses.
        let (ip, length) = match is_mapped {
            true => (ip, mask.leading_ones() - MAPPED),
            false => (
                IpAddr::V6(Ipv6Addr::from_bits(address)),
                mask.leading_ones(),
            ),
        };
        match mask {
            u128::MAX => write!(f, "{ip}"),
            _ => write!(f, "{ip}/{length}"),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(network: &str, client: &str) -> bool {
        let client = (client != "unix").then(|| client.parse().expect(client));
        Network::parse(network).expect(network).contains(client)
    }

    #[test]
    fn networks_contain_addresses_of_both_families() {
        for (network, client, expected) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("::ffff:10.0.0.1", "10.0.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("fd00::/8", "fdff::1", true),
            ("fd00::/8", "fe00::1", false),
            ("::/0", "192.0.2.2", true),
            ("0.0.0.0/0", "fe00::1", false),
            ("0.0.0.0/0", "unix", false),
            ("::/0", "unix", false),
            ("unix", "unix", true),
            ("unix", "127.0.0.1", false),
        ] {
            assert_eq!(contains(network, client), expected, "{client} in {network}");
        }
    }

    #[test]
    fn networks_are_written_as_they_are_read() {
        for text in [
            "unix",
            "10.0.0.0/8",
            "192.0.2.1",
            "::/0",
            "0.0.0.0/0",
            "fd00::/8",
            "::1",
        ] {
            assert_eq!(Network::parse(text).expect(text).to_string(), text);
        }
    }

    #[test]
    fn invalid_networks_have_a_remedy() {
        for (text, remedy) in [
            ("", "for example 10.0.0.0/8"),
            ("example.com", "for example 10.0.0.0/8"),
            ("10/8", "for example 10.0.0.0/8"),
            ("10.0.0.0/33", "from 0 to 32"),
            ("10.0.0.0/", "from 0 to 32"),
            ("10.0.0.0/-1", "from 0 to 32"),
            ("10.0.0.0/+8", "from 0 to 32"),
            ("::/129", "from 0 to 128"),
            ("::/x", "from 0 to 128"),
            ("10.0.0.1/8", "10.0.0.0/8 for the network, or 10.0.0.1 for"),
            ("fd00::1/8", "fd00::/8 for the network"),
        ] {
            let error = Network::parse(text).expect_err(text);
            assert!(error.remedy.contains(remedy), "{text}: {error:?}");
        }
    }
}
