//! IPv6 addresses with a zone: the interface of a link-local address (RFC 4007, section 11).

use std::ffi::CString;
use std::fmt;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::driver;

/// This machine has no such interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoInterface(String);

impl fmt::Display for NoInterface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this machine has no interface {:?}", self.0)
    }
}

impl std::error::Error for NoInterface {}

/// An address with a zone, `fe80::1%eth0` or `fe80::1%2`, also as URLs have it, `fe80::1%25eth0` (RFC 6874).
/// `None` if the text is no such address.
///
/// # Errors
/// The zone is no interface of this machine.
pub fn parse_zoned(text: &str, port: u16) -> Option<Result<SocketAddr, NoInterface>> {
    let (ip, zone) = text.split_once('%')?;
    let ip: Ipv6Addr = ip.parse().ok()?;
    // Without the escape, since an interface may be named `25`.
    let unescaped = || zone.strip_prefix("25").and_then(interface);
    let found = index_of(zone).or_else(unescaped).or_else(|| number(zone));
    let address = |scope| SocketAddrV6::new(ip, port, 0, scope).into();
    Some(found.map(address).ok_or_else(|| {
        let name = zone.strip_prefix("25").filter(|name| !name.is_empty());
        NoInterface(name.unwrap_or(zone).to_owned())
    }))
}

fn interface(zone: &str) -> Option<u32> {
    index_of(zone).or_else(|| number(zone))
}

fn number(zone: &str) -> Option<u32> {
    zone.parse().ok().filter(|&number| number > 0)
}

/// The number of the interface with this name.
fn index_of(name: &str) -> Option<u32> {
    driver::interface_index(&CString::new(name).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(text: &str) -> Option<Result<u32, NoInterface>> {
        let parsed = parse_zoned(text, 80)?;
        Some(parsed.map(|address| match address {
            SocketAddr::V6(address) => address.scope_id(),
            SocketAddr::V4(_) => 0,
        }))
    }

    #[test]
    fn zones_are_names_or_numbers_with_or_without_the_escape_of_urls() {
        let loopback = index_of("lo").expect("each network namespace has it");
        for text in ["fe80::1%lo", "fe80::1%25lo", "::1%lo"] {
            assert_eq!(scope(text), Some(Ok(loopback)), "{text}");
        }
        assert_eq!(scope("fe80::1%7"), Some(Ok(7)));
        assert_eq!(scope("fe80::1%257"), Some(Ok(7)));
        for text in ["fe80::1%none0", "fe80::1%25none0", "fe80::1%", "fe80::1%0"] {
            assert!(matches!(scope(text), Some(Err(_))), "{text}");
        }
        for text in ["fe80::1", "10.0.0.1%lo", "a%lo", "%lo"] {
            assert_eq!(scope(text), None, "{text}");
        }
    }
}
