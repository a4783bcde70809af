//! The server of a run: the parts of its URL, and its addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use blitz_http::{Address, parse_zoned};

use super::LookUp;

/// The server that a URL names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OriginUrl {
    pub(super) is_https: bool,
    /// Without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// Scheme and authority as in the URL, which all URLs of the run begin with, without a zone.
    pub(super) base: String,
    /// The rest of the URL.
    pub(super) rest: String,
}

impl OriginUrl {
    /// # Errors
    /// The fault of the URL, and the text to write.
    pub(super) fn parse(url: &str) -> Result<OriginUrl, String> {
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
        let base = &url[..url.len() - rest.len() + end];
        // A zone means something on this machine only, so that no request has it (RFC 6874, section 4).
        let base = match (base.find('%'), base.find(']')) {
            (Some(zone), Some(end)) if zone < end => base[..zone].to_owned() + &base[end..],
            _ => base.to_owned(),
        };
        match host.is_empty() || authority.contains('@') {
            true => Err(wrong()),
            false => Ok(OriginUrl {
                is_https,
                host: host.to_owned(),
                port,
                base,
                rest: rest[end..].to_owned(),
            }),
        }
    }

    /// The host without its zone, which no certificate has.
    pub(super) fn name(&self) -> &str {
        self.host.split('%').next().unwrap_or_default()
    }

    /// Where the server is: at the address `given`, or at that of the host.
    ///
    /// # Errors
    /// The fault of the address, and the text to write.
    pub(super) fn location(&self, given: Option<&str>) -> Result<Location, String> {
        let Some(given) = given else {
            return self.location_of_host();
        };
        if let Some(path) = given.strip_prefix("unix:") {
            return Ok(Location::Addresses(vec![Address::unix(path)]));
        }
        if let Ok(address) = given.parse::<SocketAddr>() {
            return Ok(Location::of([address]));
        }
        let parts = given
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("]:"));
        let zoned = parts.and_then(|(ip, port)| parse_zoned(ip, port.parse().ok()?));
        match zoned {
            Some(Ok(address)) => Ok(Location::of([address])),
            Some(Err(error)) => Err(format!("{error}; `ip link` lists the interfaces")),
            None => Err(format!(
                "`{given}` is no address; write 127.0.0.1:8080, [::1]:8080 or unix:/PATH"
            )),
        }
    }

    fn location_of_host(&self) -> Result<Location, String> {
        let host = self.host.as_str();
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(Location::of([SocketAddr::new(ip, self.port)]));
        }
        if let Some(zoned) = parse_zoned(host, self.port) {
            let found = zoned.map(|address| Location::of([address]));
            return found.map_err(|error| format!("{error}; `ip link` lists the interfaces"));
        }
        let lower = host.to_ascii_lowercase();
        Ok(
            match lower == "localhost" || lower.ends_with(".localhost") {
                // No name server may resolve it (RFC 6761, section 6.3).
                true => Location::of([
                    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), self.port),
                    SocketAddr::new(Ipv6Addr::LOCALHOST.into(), self.port),
                ]),
                false => Location::Name(host.to_owned(), self.port),
            },
        )
    }
}

/// Where a server is.
#[derive(Debug)]
pub(super) enum Location {
    /// At one of these addresses, at least one.
    Addresses(Vec<Address>),
    /// At those of this name, with this port.
    Name(String, u16),
}

impl Location {
    fn of<const N: usize>(addresses: [SocketAddr; N]) -> Location {
        Location::Addresses(addresses.map(Address::from).into())
    }

    /// The addresses, at least one, in the order in which they are tried.
    ///
    /// # Errors
    /// Why the name has none, and what to do.
    pub(super) fn resolve(self, look_up: LookUp<'_>) -> Result<Vec<Address>, String> {
        let (name, port) = match self {
            Location::Addresses(addresses) => return Ok(addresses),
            Location::Name(name, port) => (name, port),
        };
        let reason = match look_up(&name, port) {
            Ok(found) if found.is_empty() => "it has none".to_owned(),
            Ok(found) => return Ok(found.into_iter().map(Address::from).collect()),
            Err(reason) => reason,
        };
        Err(format!(
            "no address of `{name}`: {reason}; correct the name, or write --address IP:PORT"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_scheme_host_and_port() {
        let origin = OriginUrl::parse("https://a.example/x?y=http://b:1/").unwrap();
        assert!(origin.is_https);
        assert_eq!((origin.host.as_str(), origin.port), ("a.example", 443));
        assert_eq!(origin.base, "https://a.example");
        for zone in ["%lo", "%25lo"] {
            let origin = OriginUrl::parse(&format!("http://[fe80::1{zone}]:8080/a?b")).unwrap();
            assert_eq!(origin.base, "http://[fe80::1]:8080");
            assert_eq!(origin.rest, "/a?b");
            let Ok(Location::Addresses(found)) = origin.location(None) else {
                panic!("it is an address");
            };
            let [Address::Tcp(SocketAddr::V6(address))] = &*found else {
                panic!("{found:?}");
            };
            assert!(address.scope_id() > 0);
        }
        let missing = OriginUrl::parse("http://[fe80::1%none0]/")
            .unwrap()
            .location(None);
        assert!(missing.unwrap_err().contains("no interface \"none0\""));
        let origin = OriginUrl::parse("http://[::1]:8080").unwrap();
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
                OriginUrl::parse(url).unwrap_err().contains("write http"),
                "{url}"
            );
        }
    }

    /// The addresses of the host, if names have those of `look_up`.
    fn addresses(url: &str, look_up: LookUp<'_>) -> Result<Vec<String>, String> {
        let location = OriginUrl::parse(url).unwrap().location(None)?;
        let addresses = location.resolve(look_up)?;
        Ok(addresses.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn addresses_and_localhost_are_not_looked_up() {
        let none = |url| addresses(url, &|_, _| panic!("it is looked up")).unwrap();
        assert_eq!(none("http://[::1]:8080/"), ["[::1]:8080"]);
        assert_eq!(
            none("https://LOCALHOST/"),
            ["127.0.0.1:443", "[::1]:443"],
            "both families"
        );
        assert_eq!(none("http://a.localhost/")[0], "127.0.0.1:80");
    }

    #[test]
    fn names_have_all_their_addresses_or_a_reason_and_a_remedy() {
        let two = |name: &str, port| {
            assert_eq!(name, "a.example");
            let ips = ["10.0.0.7".parse().unwrap(), "fd00::7".parse().unwrap()];
            Ok(ips.map(|ip| SocketAddr::new(ip, port)).into())
        };
        let found = addresses("http://a.example:81/", &two).unwrap();
        assert_eq!(found, ["10.0.0.7:81", "[fd00::7]:81"]);
        let none = |_: &str, _| Err("for a reason".to_owned());
        let error = addresses("http://a.example/", &none).unwrap_err();
        assert!(
            error.contains("`a.example`: for a reason") && error.contains("--address"),
            "{error}"
        );
    }

    #[test]
    fn a_given_address_replaces_the_host() {
        let origin = OriginUrl::parse("http://a.example/").unwrap();
        for given in ["[::1]:8080", "unix:/run/a.sock"] {
            let location = origin.location(Some(given)).unwrap();
            let addresses = location.resolve(&|_, _| panic!("it is looked up"));
            assert_eq!(addresses.unwrap()[0].to_string(), given);
        }
        let error = origin.location(Some("a.example")).unwrap_err();
        assert!(error.contains("127.0.0.1:8080"), "{error}");
    }
}
