//! The server of a run: the parts of its URL, and its address.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use blitz_http::Address;

/// The server that a URL names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) is_https: bool,
    /// Without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// Scheme and authority as in the URL, which all URLs of the run begin with.
    pub(super) base: String,
}

impl Origin {
    /// # Errors
    /// What is wrong with the URL, and what to write.
    pub(super) fn parse(url: &str) -> Result<Origin, String> {
        let wrong = || format!("`{url}` is no URL; write http://HOST:PORT/PATH or https://…");
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let is_https = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(wrong()),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let authority = &rest[..end];
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().map_err(|_| wrong())?),
            _ => (authority, if is_https { 443 } else { 80 }),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        match host.is_empty() || authority.contains('@') {
            true => Err(wrong()),
            false => Ok(Origin {
                is_https,
                host: host.to_owned(),
                port,
                base: url[..url.len() - rest.len() + end].to_owned(),
            }),
        }
    }

    /// The address to connect to.
    ///
    /// # Errors
    /// The host is unknown, and what to do.
    pub(super) fn address(&self, given: Option<&str>) -> Result<Address, String> {
        if let Some(given) = given {
            if let Some(path) = given.strip_prefix("unix:") {
                return Ok(Address::unix(path));
            }
            let parsed = given.parse::<SocketAddr>();
            return parsed.map(Address::from).map_err(|_| {
                format!("`{given}` is no address; write 127.0.0.1:8080, [::1]:8080 or unix:/PATH")
            });
        }
        let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
        let ip = ip_of(&self.host, &hosts).ok_or_else(|| {
            format!(
                "the address of `{}` is not known: it is not in /etc/hosts; write --address IP:PORT",
                self.host
            )
        })?;
        Ok(Address::from(SocketAddr::new(ip, self.port)))
    }
}

/// An address, `localhost` (RFC 6761, section 6.3), or a name in the hosts file.
fn ip_of(host: &str, hosts: &str) -> Option<IpAddr> {
    if let Ok(ip) = host.parse() {
        return Some(ip);
    }
    let is_local = host.eq_ignore_ascii_case("localhost") || host.ends_with(".localhost");
    if is_local {
        return Some(Ipv4Addr::LOCALHOST.into());
    }
    hosts.lines().find_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let ip = words.next()?.parse().ok()?;
        words
            .any(|name| name.eq_ignore_ascii_case(host))
            .then_some(ip)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_scheme_host_and_port() {
        let origin = Origin::parse("https://a.example/x?y=http://b:1/").unwrap();
        assert!(origin.is_https);
        assert_eq!((origin.host.as_str(), origin.port), ("a.example", 443));
        assert_eq!(origin.base, "https://a.example");
        let origin = Origin::parse("http://[::1]:8080").unwrap();
        assert_eq!((origin.host.as_str(), origin.port), ("::1", 8080));
        assert_eq!(origin.base, "http://[::1]:8080");
        for url in [
            "a.example",
            "ftp://a/",
            "http://",
            "http://a:b/",
            "http://u@a/",
        ] {
            assert!(
                Origin::parse(url).unwrap_err().contains("write http"),
                "{url}"
            );
        }
    }

    #[test]
    fn hosts_are_addresses_localhost_or_names_of_the_file() {
        let hosts = "# comment\n10.0.0.7 a.example b.example # c.example\n";
        assert_eq!(ip_of("::1", hosts), "::1".parse().ok());
        assert_eq!(ip_of("localhost", hosts), "127.0.0.1".parse().ok());
        assert_eq!(ip_of("B.example", hosts), "10.0.0.7".parse().ok());
        assert_eq!(ip_of("c.example", hosts), None);
    }
}
