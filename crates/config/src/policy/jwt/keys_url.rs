//! The address of a key set.

use std::fmt;
use std::net::IpAddr;

use crate::units::ValueError;

const CODE: &str = "jwt-keys";

const EXAMPLE: &str = "write for example \"https://id.example/jwks.json\"";

/// The most bytes of a URL.
const URL_BYTES_MAX: usize = 2048;

/// The URL of a key set: over TLS, or of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeysUrl {
    /// Whether it is over TLS.
    pub is_tls: bool,
    /// A name in lower case, or an address without brackets.
    pub host: String,
    /// The port, also if it is that of the scheme.
    pub port: u16,
    /// The host as it is sent, with the port unless it is that of the scheme.
    pub authority: String,
    /// Path and query.
    pub target: String,
}

impl KeysUrl {
    /// # Errors
    /// The text is no such URL.
    pub fn parse(text: &str) -> Result<KeysUrl, ValueError> {
        let invalid = |problem: &str, remedy: &str| ValueError::new(CODE, problem, remedy);
        let (is_tls, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return Err(invalid("this is no URL of a key set", EXAMPLE)),
        };
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte);
        if text.len() > URL_BYTES_MAX || !rest.bytes().all(is_plain) {
            let problem = format!(
                "a URL has at most {URL_BYTES_MAX} bytes, and no spaces, quotes or letters beyond ASCII"
            );
            return Err(invalid(&problem, "write such bytes as %20"));
        }
        if rest.contains('#') {
            let problem = "a part after # is not sent";
            return Err(invalid(problem, "leave it out"));
        }
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.contains('@') {
            let problem = "key sets are public, and need no credentials";
            return Err(invalid(problem, "leave them out"));
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !authority.ends_with(']') => (host, Some(port)),
            _ => (authority, None),
        };
        let usual = if is_tls { 443 } else { 80 };
        let port = match port.map(str::parse) {
            None => usual,
            Some(Ok(port)) if port != 0 => port,
            Some(_) => return Err(invalid("this is no port", "write one from 1 to 65535")),
        };
        let host = host.to_ascii_lowercase();
        let bare = bare(&host).ok_or_else(|| invalid("the URL has no host", EXAMPLE))?;
        if !is_tls && !is_of_this_machine(&bare) {
            let problem = "who is on the way could replace keys that come in clear text";
            let remedy = "write https://; http:// is for 127.0.0.1, [::1] and localhost";
            return Err(invalid(problem, remedy));
        }
        let slash = if target.starts_with('/') { "" } else { "/" };
        Ok(KeysUrl {
            is_tls,
            authority: match port == usual {
                true => host,
                false => format!("{host}:{port}"),
            },
            host: bare,
            port,
            target: format!("{slash}{target}"),
        })
    }
}

/// A name, or an address without brackets.
fn bare(host: &str) -> Option<String> {
    if let Some(address) = host.strip_prefix('[') {
        let address = address.strip_suffix(']')?;
        let address: std::net::Ipv6Addr = address.parse().ok()?;
        return Some(address.to_string());
    }
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_name = !host.is_empty() && host.len() < 254 && host.bytes().all(is_part);
    is_name.then(|| host.to_owned())
}

fn is_of_this_machine(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => host == "localhost",
    }
}

impl fmt::Display for KeysUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_over_tls_and_of_this_machine_are_read() {
        for (text, shown, host, port) in [
            (
                "https://id.example/jwks.json",
                "https://id.example/jwks.json",
                "id.example",
                443,
            ),
            (
                "https://ID.example:443",
                "https://id.example/",
                "id.example",
                443,
            ),
            (
                "https://id.example:8443/a?b=c",
                "https://id.example:8443/a?b=c",
                "id.example",
                8443,
            ),
            (
                "https://id.example?b",
                "https://id.example/?b",
                "id.example",
                443,
            ),
            (
                "https://[2001:db8::1]/k",
                "https://[2001:db8::1]/k",
                "2001:db8::1",
                443,
            ),
            (
                "http://127.0.0.1:5556/keys",
                "http://127.0.0.1:5556/keys",
                "127.0.0.1",
                5556,
            ),
            ("http://[::1]/keys", "http://[::1]/keys", "::1", 80),
            (
                "http://localhost/keys",
                "http://localhost/keys",
                "localhost",
                80,
            ),
        ] {
            let url = KeysUrl::parse(text).expect(text);
            assert_eq!(
                (url.to_string().as_str(), &*url.host, url.port),
                (shown, host, port)
            );
            assert_eq!(KeysUrl::parse(shown).expect(shown), url);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "jwks.json",
            "id.example/jwks.json",
            "ftp://id.example/",
            "HTTPS://id.example/",
            "https://",
            "https:///jwks.json",
            "https://:443/",
            "https://id.example:0/",
            "https://id.example:x/",
            "https://id.example:65536/",
            "https://user:secret@id.example/",
            "https://id.example/#keys",
            "https://id example/",
            "https://id.example/a b",
            "https://id.example/\r\nX: 1",
            "https://id.example/\u{e4}",
            "https://[::1/",
            "https://[x]/",
            "https://a/\"",
            "https://a\\b/",
            "https://a,b/",
            "http://id.example/jwks.json",
            "http://10.0.0.1/",
            "http://127.0.0.1.example/",
            "http://0.0.0.0/",
            "http://localhost.example/",
            "http://127.0.0.1@id.example/",
        ] {
            assert!(KeysUrl::parse(text).is_err(), "{text}");
        }
        assert!(KeysUrl::parse(&format!("https://a/{}", "x".repeat(URL_BYTES_MAX))).is_err());
    }
}
