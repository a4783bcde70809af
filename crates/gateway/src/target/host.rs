//! Host and port of a URL: an address, this machine, or a name to resolve.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use blitz_http::parse_zoned;

use super::Origin;
use super::parse::{InvalidTarget, UrlScheme, invalid};

/// Parses the part between the scheme and the path.
pub(super) fn origin(authority: &str, scheme: &UrlScheme) -> Result<Origin, InvalidTarget> {
    let prefix = scheme.prefix;
    if authority.contains('@') {
        return invalid(
            "the URL contains a user name, which is never sent",
            "leave out everything up to the @",
        );
    }
    if let Some(rest) = authority.strip_prefix('[') {
        return parse_ipv6(rest, scheme);
    }
    if let Some((first, _)) = authority.split_once(',') {
        return invalid(
            "a target has one upstream, and this is a list",
            format!(
                "write {prefix}{first}; requests are distributed over all addresses of a name, so \
                 several upstreams can have one name"
            ),
        );
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) => (host, parse_port(port, scheme)?),
        None => (authority, scheme.default_port),
    };
    if host.is_empty() {
        return invalid(
            "the URL has no host",
            format!("write {prefix}127.0.0.1:{port}"),
        );
    }
    let is_ipv6 = |c: char| c.is_ascii_hexdigit() || c == ':' || c == '.';
    if let Some((name, _)) = host.split_once(':').filter(|_| !host.chars().all(is_ipv6)) {
        return invalid(
            "the URL has more than one port",
            format!("write {prefix}{name}:{port}"),
        );
    }
    if host.contains(':') {
        return invalid(
            "an IPv6 address in a URL needs brackets",
            match host.parse::<Ipv6Addr>() {
                Ok(_) => format!("write {prefix}[{authority}], or {prefix}[{host}]:{port}"),
                Err(_) => format!("write {prefix}[{authority}]"),
            },
        );
    }
    parse_host(host, port)
}

/// `rest` is the text after the opening bracket (RFC 3986 section 3.2.2).
fn parse_ipv6(rest: &str, scheme: &UrlScheme) -> Result<Origin, InvalidTarget> {
    let prefix = scheme.prefix;
    let Some((address, after)) = rest.split_once(']') else {
        return invalid(
            "the [ of an IPv6 address has no ]",
            match rest.rsplit_once(':') {
                Some((address, port)) if address.parse::<Ipv6Addr>().is_ok() => {
                    format!("write {prefix}[{address}]:{port}, or {prefix}[{rest}]")
                }
                _ => format!("write {prefix}[{rest}]"),
            },
        );
    };
    let port = match after.strip_prefix(':') {
        Some(port) => parse_port(port, scheme)?,
        None if after.is_empty() => scheme.default_port,
        None => {
            return invalid(
                format!("{after:?} cannot follow the ] of an address"),
                format!("write {prefix}[{address}]:3000"),
            );
        }
    };
    match (address.parse::<Ipv6Addr>(), parse_zoned(address, port)) {
        (Ok(ip), _) => Ok(Origin::Ip(SocketAddr::new(ip.into(), port))),
        (Err(_), Some(Ok(address))) => Ok(Origin::Ip(address)),
        (Err(_), Some(Err(error))) => invalid(
            error.to_string(),
            "`ip link` lists the interfaces; write one after the %",
        ),
        (Err(_), None) => invalid(
            format!("{address:?} is not an IPv6 address"),
            format!("write for example {prefix}[::1]:3000"),
        ),
    }
}

/// The authority as requests have it: a zone means something on this machine only (RFC 6874, section 4).
pub(super) fn without_zone(authority: &str) -> String {
    let lower = authority.to_ascii_lowercase();
    match (lower.find('%'), lower.find(']')) {
        (Some(zone), Some(end)) if zone < end => lower[..zone].to_owned() + &lower[end..],
        _ => lower,
    }
}

fn parse_port(port: &str, scheme: &UrlScheme) -> Result<u16, InvalidTarget> {
    match port.parse::<u16>() {
        Ok(number) if number > 0 && port.bytes().all(|b| b.is_ascii_digit()) => Ok(number),
        _ => invalid(
            match port.parse::<u64>() {
                Ok(65536..) => format!("{port:?} is not a port, because it is above 65535"),
                _ => format!("{port:?} is not a port"),
            },
            format!(
                "write a number from 1 to 65535 after the colon, or leave out the colon for port {}",
                scheme.default_port
            ),
        ),
    }
}

fn parse_host(host: &str, port: u16) -> Result<Origin, InvalidTarget> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(Origin::Ip(SocketAddr::new(ip, port)));
    }
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    // A name whose last label is a number is a mistyped address, never a name (WHATWG URL).
    let last_label = name.rsplit('.').next().unwrap_or_default();
    if last_label.bytes().all(|b| b.is_ascii_digit()) && !last_label.is_empty() {
        return invalid(
            format!("{host:?} looks like an IPv4 address, but is not one"),
            "write four numbers from 0 to 255 without leading zeros",
        );
    }
    if let Some(problem) = name_problem(&name) {
        return invalid(
            format!("{host:?} is not a host name: {problem}"),
            "write a name of letters, digits, hyphens and dots; international names in their xn-- form",
        );
    }
    // RFC 6761 section 6.3: localhost and its subdomains are this machine and are never queried.
    if name == "localhost" || name.ends_with(".localhost") {
        return Ok(Origin::Localhost(port));
    }
    Ok(Origin::Name(name, port))
}

/// RFC 1123 section 2.1, with the underscore that container platforms put into names.
fn name_problem(name: &str) -> Option<&'static str> {
    if name.len() > 253 {
        return Some("it has more than 253 characters");
    }
    name.split('.').find_map(|label| {
        let ordinary = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        if label.is_empty() {
            Some("it has an empty part")
        } else if label.len() > 63 {
            Some("a part has more than 63 characters")
        } else if !label.bytes().all(ordinary) {
            Some("it has an invalid character")
        } else if label.starts_with('-') || label.ends_with('-') {
            Some("a part begins or ends with a hyphen")
        } else {
            None
        }
    })
}
