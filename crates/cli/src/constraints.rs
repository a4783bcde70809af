//! Name constraints (RFC 5280, section 4.2.1.10): the names that an authority can issue for. With the
//! stolen key of a constrained authority only these names can be impersonated.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rcgen::{CidrSubnet, GeneralSubtree, NameConstraints};

/// A domain that does not exist (RFC 6761). Without a permitted domain all domains would be permitted.
const NO_DOMAIN: &str = "invalid";

/// The identifier of the extension, the critical flag, and the tag of the value.
const EXTENSION: [u8; 9] = [0x06, 0x03, 0x55, 0x1d, 0x1e, 0x01, 0x01, 0xff, 0x04];

const SEQUENCE: u8 = 0x30;
const PERMITTED: u8 = 0xa0;
const DNS_NAME: u8 = 0x82;
const IP_ADDRESS: u8 = 0x87;

/// Permits these names with all of their subdomains, and these addresses.
pub(crate) fn constrain(names: &[String]) -> NameConstraints {
    let mut permitted: Vec<_> = names.iter().map(|name| subtree(name)).collect();
    let mut excluded = Vec::new();
    if !permitted
        .iter()
        .any(|subtree| matches!(subtree, GeneralSubtree::DnsName(_)))
    {
        permitted.push(GeneralSubtree::DnsName(NO_DOMAIN.to_owned()));
    }
    if !permitted
        .iter()
        .any(|subtree| matches!(subtree, GeneralSubtree::IpAddress(_)))
    {
        excluded.extend([
            GeneralSubtree::IpAddress(CidrSubnet::from_v4_prefix([0; 4], 0)),
            GeneralSubtree::IpAddress(CidrSubnet::from_v6_prefix([0; 16], 0)),
        ]);
    }
    NameConstraints {
        permitted_subtrees: permitted,
        excluded_subtrees: excluded,
    }
}

fn subtree(name: &str) -> GeneralSubtree {
    match name.parse::<IpAddr>() {
        Ok(ip @ IpAddr::V4(_)) => GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(ip, 32)),
        Ok(ip @ IpAddr::V6(_)) => GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(ip, 128)),
        Err(_) => GeneralSubtree::DnsName(without_wildcard(name).to_owned()),
    }
}

/// The name without the `*` of its first label.
fn without_wildcard(name: &str) -> &str {
    name.strip_prefix("*.").unwrap_or(name)
}

/// Whether an authority that permits these names can issue for `name`.
pub(crate) fn permits(permitted: &[String], name: &str) -> bool {
    if let Ok(ip) = name.parse::<IpAddr>() {
        return permitted.iter().any(|one| one.parse() == Ok(ip));
    }
    let name = without_wildcard(name);
    permitted.iter().any(|one| {
        let before = name.strip_suffix(without_wildcard(one));
        before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
    })
}

/// The names and addresses that the authority of this certificate (DER) can issue for; `None` if it
/// is not constrained.
pub(crate) fn permitted(certificate: &[u8]) -> Option<Vec<String>> {
    let at = certificate
        .windows(EXTENSION.len())
        .position(|part| part == EXTENSION)?;
    // The last byte of the match is the tag of the value.
    let (_, value, _) = element(&certificate[at + EXTENSION.len() - 1..])?;
    let (_, constraints, _) = element(value)?;
    let (PERMITTED, mut subtrees, _) = element(constraints)? else {
        return None;
    };
    let mut names = Vec::new();
    while let Some((SEQUENCE, subtree, rest)) = element(subtrees) {
        subtrees = rest;
        let (tag, base, _) = element(subtree)?;
        names.extend(match tag {
            DNS_NAME => String::from_utf8(base.to_vec()).ok(),
            IP_ADDRESS => address(base).map(|ip| ip.to_string()),
            _ => None,
        });
    }
    Some(names)
}

/// The single address of a subnet.
fn address(subnet: &[u8]) -> Option<IpAddr> {
    let (address, mask) = subnet.split_at(subnet.len() / 2);
    if mask.iter().any(|&byte| byte != 0xff) {
        return None;
    }
    let v4 = <[u8; 4]>::try_from(address).map(|octets| Ipv4Addr::from(octets).into());
    let v6 = <[u8; 16]>::try_from(address).map(|octets| Ipv6Addr::from(octets).into());
    v4.or(v6).ok()
}

/// The first element of DER (X.690): its tag, its content, and the bytes after it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, length], rest) = der.split_first_chunk()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        0x81 => rest
            .split_first()
            .map(|(&length, rest)| (length.into(), rest))?,
        0x82 => rest
            .split_first_chunk()
            .map(|(&length, rest)| (u16::from_be_bytes(length).into(), rest))?,
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_permitted_with_subdomains_and_addresses_exactly() {
        let permitted: Vec<_> = ["a.example", "127.0.0.1", "*.b.example", "::1"]
            .map(str::to_owned)
            .into();
        for name in [
            "a.example",
            "x.a.example",
            "*.a.example",
            "b.example",
            "127.0.0.1",
            "::1",
        ] {
            assert!(permits(&permitted, name), "{name}");
        }
        for name in [
            "example",
            "xa.example",
            "c.example",
            "127.0.0.2",
            "::2",
            "0.0.1",
        ] {
            assert!(!permits(&permitted, name), "{name}");
        }
    }

    #[test]
    fn malformed_der_has_no_elements() {
        for der in [
            &[][..],
            &[0x30],
            &[0x30, 0x01],
            &[0x30, 0x81],
            &[0x30, 0x84, 0, 0, 0, 0],
        ] {
            assert_eq!(element(der), None, "{der:?}");
        }
        assert_eq!(
            element(&[0x30, 0x01, 7, 8]),
            Some((0x30, &[7][..], &[8][..]))
        );
    }
}
