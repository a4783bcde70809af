//! The address of a collector.

use std::fmt;
use std::str::FromStr;

use blitz_http::is_authority;

/// The ports of OTLP over HTTP and gRPC.
const HTTP_PORT: u16 = 4318;
const GRPC_PORT: u16 = 4317;

/// A collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) is_tls: bool,
    /// A name or an address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// The host with its port, as it is sent.
    pub(super) authority: String,
    /// The start of the paths of OTLP over HTTP, without a slash at its end.
    pub(super) path: String,
}

/// How a collector takes OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OtlpProtocol {
    Grpc,
    Http,
}

/// Why a text is no URL of a collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InvalidEndpoint(&'static str);

impl Endpoint {
    /// The usual protocol at its port.
    pub(super) fn protocol(&self) -> OtlpProtocol {
        match self.port {
            HTTP_PORT => OtlpProtocol::Http,
            _ => OtlpProtocol::Grpc,
        }
    }
}

impl FromStr for Endpoint {
    type Err = InvalidEndpoint;

    fn from_str(url: &str) -> Result<Endpoint, InvalidEndpoint> {
        let (is_tls, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => {
                return Err(InvalidEndpoint(
                    "write for example \"http://127.0.0.1:4317\"",
                ));
            }
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(InvalidEndpoint("write credentials as `headers`"));
        }
        if path.contains(['?', '#', ' ']) || !path.is_ascii() || authority.contains(['?', '#']) {
            return Err(InvalidEndpoint("leave out what follows the path"));
        }
        let full = path.trim_end_matches('/');
        if full.ends_with("/v1/traces") || full.ends_with("/v1/logs") {
            return Err(InvalidEndpoint(
                "leave out /v1/traces and /v1/logs, which are added",
            ));
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !authority.ends_with(']') => (host, Some(port)),
            _ => (authority, None),
        };
        let port = match port {
            Some(port) => match port.parse() {
                Ok(0) | Err(_) => return Err(InvalidEndpoint("write a port from 1 to 65535")),
                Ok(port) => port,
            },
            None => GRPC_PORT,
        };
        if host.is_empty() || !is_authority(authority.as_bytes()) {
            return Err(InvalidEndpoint(
                "write a host, such as \"http://collector.example:4317\"",
            ));
        }
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        Ok(Endpoint {
            is_tls,
            host: bare.unwrap_or(host).to_owned(),
            port,
            authority: format!("{host}:{port}"),
            path: path.trim_end_matches('/').to_owned(),
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.path)
    }
}

impl fmt::Display for InvalidEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        for (url, shown, host, protocol) in [
            (
                "http://collector:4317",
                "http://collector:4317",
                "collector",
                OtlpProtocol::Grpc,
            ),
            (
                "http://collector",
                "http://collector:4317",
                "collector",
                OtlpProtocol::Grpc,
            ),
            (
                "https://c.example:4318/",
                "https://c.example:4318",
                "c.example",
                OtlpProtocol::Http,
            ),
            (
                "http://[::1]:4318/a/b/",
                "http://[::1]:4318/a/b",
                "::1",
                OtlpProtocol::Http,
            ),
            (
                "http://[::1]",
                "http://[::1]:4317",
                "::1",
                OtlpProtocol::Grpc,
            ),
        ] {
            let endpoint: Endpoint = url.parse().unwrap();
            assert_eq!(
                (endpoint.to_string(), &*endpoint.host),
                (shown.to_owned(), host)
            );
            assert_eq!(endpoint.protocol(), protocol);
        }
    }

    #[test]
    fn other_texts_are_refused_with_a_remedy() {
        for (url, remedy) in [
            ("collector:4317", "http://127.0.0.1:4317"),
            ("grpc://collector:4317", "http://127.0.0.1:4317"),
            ("http://", "a host"),
            ("http://:4317", "a host"),
            ("http://a b:4317", "a host"),
            ("http://a:0", "a port"),
            ("http://a:70000", "a port"),
            ("http://a:x", "a port"),
            ("http://user:secret@a:4317", "headers"),
            ("http://a:4317/?x", "the path"),
            ("http://a:4318/v1/traces", "leave out /v1/traces"),
            ("http://a:4318/otlp/v1/logs/", "leave out /v1/traces"),
        ] {
            let error = url.parse::<Endpoint>().unwrap_err().to_string();
            assert!(error.contains(remedy), "{url}: {error}");
        }
    }
}
