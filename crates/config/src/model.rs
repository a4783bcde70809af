//! What a file says, with the place of each value.

use std::fmt;
use std::ops::Range;

/// A part of the file, in bytes.
pub type Span = Range<usize>;

/// A value and its place in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed<T> {
    /// The value.
    pub value: T,
    /// Where it is written; for values with variables the whole value.
    pub span: Span,
}

/// The whole configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Configuration {
    /// Addresses for clear text; `None` is the default, port 80.
    pub listen: Option<Vec<Placed<String>>>,
    /// Addresses for TLS; `None` is the default, port 443 if a site has TLS.
    pub listen_tls: Option<Vec<Placed<String>>>,
    /// Proxies whose forwarding fields are trusted.
    pub trusted_proxies: Vec<Placed<String>>,
    /// Files with certificates, or patterns for such files.
    pub certificates: Vec<Placed<String>>,
    /// The sites in the order of the file.
    pub sites: Vec<Site>,
}

/// The hosts of a site, and where its requests go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The name of the site.
    pub host: Placed<Host>,
    /// Other hosts with the same content.
    pub aliases: Vec<Placed<Host>>,
    /// Whether clients use TLS.
    pub tls: Tls,
    /// The routes; the site's own has the path `/`.
    pub routes: Vec<Route>,
}

/// TLS of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tls {
    /// Whether the site has TLS.
    pub is_on: bool,
    /// Whether clear text is redirected to HTTPS.
    pub redirects: bool,
}

/// Requests of one path of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The path.
    pub path: Placed<PathPattern>,
    /// URL of the upstream.
    pub to: Placed<String>,
    /// What replaces the path in forwarded requests; `None` keeps it.
    pub replacement: Option<String>,
}

/// A name of a site.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// One host: a name in lower case, or an address without brackets.
    Exact(String),
    /// Names with one label more than this one.
    Wildcard(String),
    /// Every host that no other site has.
    Any,
}

/// The paths that a route matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathPattern {
    /// `/a`: this path and everything below it; with a slash at its end, only below it.
    Segments(String),
    /// `/a*`: every path that begins with this text.
    Text(String),
}

impl PathPattern {
    /// The start of every path that it matches.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            PathPattern::Segments(text) | PathPattern::Text(text) => text,
        }
    }

    /// Whether it matches all requests that the other pattern matches.
    #[must_use]
    pub fn encloses(&self, other: &PathPattern) -> bool {
        match self {
            PathPattern::Text(text) => other.text().starts_with(text.as_str()),
            PathPattern::Segments(text) => match other {
                _ if text == "/" => true,
                PathPattern::Text(_) => other
                    .text()
                    .strip_prefix(text.as_str())
                    .is_some_and(|rest| text.ends_with('/') || rest.starts_with('/')),
                PathPattern::Segments(below) => {
                    below.strip_prefix(text.as_str()).is_some_and(|rest| {
                        rest.is_empty() || text.ends_with('/') || rest.starts_with('/')
                    })
                }
            },
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Exact(name) => f.write_str(name),
            Host::Wildcard(parent) => write!(f, "*.{parent}"),
            Host::Any => f.write_str("*"),
        }
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathPattern::Segments(text) => f.write_str(text),
            PathPattern::Text(text) => write!(f, "{text}*"),
        }
    }
}
