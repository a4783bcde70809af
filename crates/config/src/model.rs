//! The model of a configuration file, with the place of each value.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::network::Network;
use crate::process::{MessageLimits, Process};
use crate::route_key::RouteKey;
use crate::settings::{Settings, Unrouted};
use crate::span::Placed;
use crate::variant::Variants;

/// The whole configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Configuration {
    /// Addresses for clear text; `None` is the default, port 80.
    pub listen: Option<Vec<Placed<Listener>>>,
    /// Addresses for TLS; `None` is the default, port 443 if a site has TLS.
    pub listen_tls: Option<Vec<Placed<Listener>>>,
    /// Proxies whose forwarding fields are trusted.
    pub trusted_proxies: Vec<Placed<Network>>,
    /// Certificates of the file and of its sites.
    pub certificates: Vec<Placed<CertificateFile>>,
    /// Settings of the process.
    pub process: Process,
    /// The folder of the file, where relative paths begin; empty until the caller of the reader sets it.
    pub folder: PathBuf,
    /// The sites in the order of the file.
    pub sites: Vec<Site>,
}

impl Configuration {
    /// Whether the default listener for clear text is opened if `listen` names none: all sites but those with addresses of
    /// their own are served there.
    #[must_use]
    pub fn has_default_listener(&self) -> bool {
        self.listen.is_none() && self.sites_of_all_listeners().next().is_some()
    }

    /// The same of the default listener for TLS, which a site with TLS needs.
    #[must_use]
    pub fn has_default_tls_listener(&self) -> bool {
        self.listen_tls.is_none() && self.sites_of_all_listeners().any(|site| site.tls.is_on)
    }

    fn sites_of_all_listeners(&self) -> impl Iterator<Item = &Site> {
        self.sites.iter().filter(|site| site.listen.is_none())
    }
}

/// An address to listen on. Its place is that of the whole table, if it is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// The address.
    pub address: Placed<String>,
    /// Whether connections begin with a header of the PROXY protocol.
    pub proxy_protocol: bool,
}

/// A certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFile {
    /// Its file, or a pattern for several.
    pub file: String,
    /// The file of its key; `None` if that is found beside it.
    pub key: Option<String>,
}

/// The hosts of a site, and where its requests go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The name of the site.
    pub host: Placed<Host>,
    /// Other hosts with the same content.
    pub aliases: Vec<Placed<Host>>,
    /// Hosts whose requests get 308 to the name of the site.
    pub canonical_for: Vec<Placed<Host>>,
    /// Whether clients use TLS.
    pub tls: Tls,
    /// Limits of its requests, which are at most those of the process.
    pub limits: MessageLimits,
    /// The only addresses of its listeners; `None` is all of the file.
    pub listen: Option<Vec<Placed<String>>>,
    /// The routes by rank: of those that match a request, the first one takes it. The site's own has the path `/`.
    pub routes: Vec<Route>,
    /// The settings for responses that belong to no route.
    pub unrouted: Unrouted,
}

/// TLS of a site.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// Whether the site has TLS.
    pub is_on: bool,
    /// Whether clear text is redirected to HTTPS.
    pub redirects: bool,
    /// Certificates of its clients.
    pub clients: Option<Arc<ClientCertificates>>,
    /// The least version, if it is not the default.
    pub min: Option<Placed<MinVersion>>,
}

/// Certificates of the clients of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificates {
    /// The file with their authorities.
    pub ca: Placed<String>,
    /// Whether handshakes fail without one.
    pub is_required: bool,
    /// Whether upstreams get them.
    pub is_forwarded: bool,
}

/// The least version of TLS that is not the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MinVersion {
    /// RFC 8446.
    Tls13,
}

/// A route: requests of one path of a site, and their settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The requests that it matches. The place of the site's own route is the name of the site.
    pub key: Placed<RouteKey>,
    /// Which of two regexes with the same beginning comes first, if that is written; its value is also in the key.
    pub priority: Option<Placed<u64>>,
    /// Its settings, including the inherited ones.
    pub settings: Settings,
    /// Its settings for requests that meet conditions; `None` without blocks `when`.
    pub variants: Option<Box<Variants>>,
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

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Exact(name) => f.write_str(name),
            Host::Wildcard(parent) => write!(f, "*.{parent}"),
            Host::Any => f.write_str("*"),
        }
    }
}
