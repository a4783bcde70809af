//! One `--to` flag: which requests it matches and where they are sent.
//!
//! `--to http://127.0.0.1:3000` matches everything that no other target matches;
//! `--to /api=http://127.0.0.1:4000` matches `/api` and everything below it;
//! `--to h2c://127.0.0.1:5000` uses HTTP/2.

mod hint;
mod host;
mod parse;
mod path;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use blitz_config::UpgradeProtocol;
use blitz_http::{Protocol, path as request_path};

/// Begins the URL of a service.
const SERVICE_PREFIX: &str = "srv+";

/// One `--to URL` or `--to PREFIX=URL`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Paths that it matches.
    pub prefix: Prefix,
    /// The upstream.
    pub origin: Origin,
    /// Protocol in clear text; over TLS it is negotiated.
    pub protocol: Protocol,
    /// Whether connections use TLS.
    pub tls: bool,
    /// Replaces the prefix in forwarded paths; `None` keeps it.
    pub path: Option<String>,
    /// Host and port as written in the URL, for requests without `Host`.
    pub authority: String,
    /// Whether the upstream gets the trailers of requests (rule 11); by default not.
    pub request_trailers: bool,
    /// Protocols beside WebSocket that clients may switch to with `Upgrade`; by default none.
    pub upgrades: Vec<UpgradeProtocol>,
}

/// The request paths that a target matches. Paths are compared after normalising (rule 10).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Prefix {
    /// Everything that no other target matches, `OPTIONS *` included.
    Everything,
    /// The path itself and everything below it: `/api` matches `/api` and `/api/x`, not `/apix`.
    Segments(String),
    /// Every path that begins with this text, as written with a final `*` (dropped) or `.` (kept).
    Text(String),
}

/// The upstream of a target.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Origin {
    /// An address, used as it is.
    Ip(SocketAddr),
    /// This machine, over IPv4 or IPv6.
    Localhost(u16),
    /// A name for the resolver, lower case.
    Name(String, u16),
    /// A name with SRV records, lower case: its servers are those of the records.
    Service(String),
    /// A unix stream socket.
    Unix(PathBuf),
}

/// Why a `--to` value is invalid, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetError {
    value: String,
    problem: String,
    fix: String,
}

impl Target {
    /// Its upstream as a URL without path.
    pub fn url(&self) -> String {
        self.origin.url(self.tls, self.protocol)
    }

    /// The host that the certificate of a target over TLS must have: without brackets or port.
    #[must_use]
    pub fn host(&self) -> String {
        match &self.origin {
            Origin::Ip(address) => address.ip().to_string(),
            Origin::Name(name, _) | Origin::Service(name) => name.clone(),
            Origin::Localhost(_) | Origin::Unix(_) => "localhost".to_owned(),
        }
    }

    /// Whether its servers are those of SRV records.
    pub(crate) fn is_service(&self) -> bool {
        matches!(self.origin, Origin::Service(_))
    }

    /// A server of this service; `None` if a name server tells a host that is none.
    pub(crate) fn of_service(&self, host: &str, port: u16) -> Option<Target> {
        let url = self.url();
        let (scheme, _) = url.strip_prefix(SERVICE_PREFIX)?.split_once("://")?;
        let server: Target = format!("{scheme}://{host}:{port}").parse().ok()?;
        // A name server may tell a text that ends the host of a URL.
        server.path.is_none().then(|| Target {
            prefix: self.prefix.clone(),
            path: self.path.clone(),
            request_trailers: self.request_trailers,
            upgrades: self.upgrades.clone(),
            ..server
        })
    }

    /// Writes the upstream's path to `out`, if it differs from the client's.
    ///
    /// `matched` is the normalised path, which this target's prefix must match. `sent` is the same
    /// path as it would be sent; its part that corresponds to the prefix is replaced.
    pub(crate) fn replace_path(&self, matched: &str, sent: &str, out: &mut String) -> Replaced {
        let Some(replacement) = &self.path else {
            return Replaced::Kept;
        };
        let prefix_len = request_path::sent_len(sent, matched, self.prefix.replaced_len());
        let rest = sent.get(prefix_len..).unwrap_or_default();
        out.clear();
        // One slash between the two: `/v2/` and `/x` become `/v2/x`.
        let overlap = rest.starts_with('/') && replacement.ends_with('/');
        let kept = &replacement[..replacement.len() - usize::from(overlap)];
        // `/a*=http://host/b/` must not turn `/a../secret` into `/b/../secret`.
        let last = kept.rsplit('/').next().unwrap_or_default();
        let first = rest.split('/').next().unwrap_or_default();
        if !first.is_empty() {
            out.push_str(last);
            out.push_str(first);
            if request_path::may_be_dot_segment(out) {
                return Replaced::DotSegment;
            }
            out.clear();
        }
        out.push_str(kept);
        out.push_str(rest);
        Replaced::Written
    }
}

impl Origin {
    /// The upstream as a URL without path.
    pub(crate) fn url(&self, has_tls: bool, protocol: Protocol) -> String {
        let origin = self.to_string();
        if let Origin::Service(name) = self {
            return match protocol {
                _ if has_tls => format!("{SERVICE_PREFIX}https://{name}"),
                Protocol::Http2 => format!("{SERVICE_PREFIX}h2c://{name}"),
                _ => origin,
            };
        }
        match origin.strip_prefix("http://") {
            Some(authority) if has_tls => format!("https://{authority}"),
            Some(authority) if protocol == Protocol::Http2 => format!("h2c://{authority}"),
            _ => origin,
        }
    }
}

/// Outcome of replacing a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replaced {
    /// The target has no path of its own: the client's is sent.
    Kept,
    /// The new path was written.
    Written,
    /// The joined path would contain a `.` or `..` segment: 400.
    DotSegment,
}

impl Prefix {
    /// Whether the prefix matches `path`, without the router.
    #[cfg(test)]
    pub(crate) fn matches(&self, path: &str) -> bool {
        match self {
            Prefix::Everything => true,
            Prefix::Text(text) => path.starts_with(text.as_str()),
            Prefix::Segments(prefix) => path.strip_prefix(prefix.as_str()).is_some_and(|rest| {
                rest.is_empty() || rest.starts_with('/') || prefix.ends_with('/')
            }),
        }
    }

    /// The start of every path that it matches. Of two matching prefixes the longer one wins.
    pub fn text(&self) -> &str {
        match self {
            Prefix::Everything => "",
            Prefix::Segments(prefix) | Prefix::Text(prefix) => prefix,
        }
    }

    /// Whether it matches every path.
    pub fn matches_all_paths(&self) -> bool {
        matches!(self, Prefix::Everything)
            || matches!(self, Prefix::Segments(text) | Prefix::Text(text) if text == "/")
    }

    /// Length of the part of a matching path that is replaced. The slash at the end of a prefix
    /// stays.
    fn replaced_len(&self) -> usize {
        match self {
            Prefix::Segments(prefix) => prefix.strip_suffix('/').unwrap_or(prefix).len(),
            Prefix::Text(text) => text.strip_suffix('/').unwrap_or(text).len(),
            Prefix::Everything => 0,
        }
    }
}

impl TargetError {
    /// The value as it was given.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// The problem with it.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// The remedy.
    pub fn fix(&self) -> &str {
        &self.fix
    }
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--to {}: {}; {}", self.value, self.problem, self.fix)
    }
}

impl std::error::Error for TargetError {}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Prefix::Everything => f.write_str("other paths"),
            Prefix::Segments(prefix) => f.write_str(prefix),
            Prefix::Text(text) if text.ends_with('.') => f.write_str(text),
            Prefix::Text(text) => write!(f, "{text}*"),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Ip(address) => write!(f, "http://{address}"),
            Origin::Localhost(port) => write!(f, "http://localhost:{port}"),
            Origin::Name(name, port) => write!(f, "http://{name}:{port}"),
            Origin::Service(name) => write!(f, "{SERVICE_PREFIX}http://{name}"),
            Origin::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests;
