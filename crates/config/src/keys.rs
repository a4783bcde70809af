//! The table of all keys: reader, suggestions, `not-yet` and the schema come from it.

/// Where a key may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// At the top of the file, before the first table.
    Top,
    /// In a site.
    Site,
    /// In a route, a site, or `defaults`.
    Route,
    /// In `defaults`: keys of routes, and some of sites.
    Defaults,
    /// In an upstream.
    Upstream,
    /// In the `timeout` of a route.
    Timeout,
    /// In a table that is the `respond` of a route.
    Respond,
}

/// What a value may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Boolean,
    /// The version of the language.
    Version,
    /// A text.
    Text,
    /// A list of texts.
    Texts,
    /// A list of networks.
    Networks,
    /// A list of methods.
    Methods,
    /// A duration above zero, or `forever`.
    Duration,
    /// A size above zero.
    Size,
    /// The status of a response, as a number or a text.
    Status,
    /// A URL or a name of an upstream, or a list of one URL.
    Target,
    /// A list of one URL.
    Servers,
    /// A status and a URL.
    Redirect,
    /// A status, a status and a text, or a table.
    Respond,
    /// Changes of fields by their names.
    Fields,
    /// Files by statuses.
    ErrorPages,
    /// A table with the keys of a scope.
    Table(Scope),
    /// Sites by their names.
    Sites,
    /// Upstreams by their names.
    Upstreams,
}

/// Whether this version has a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// The first version of the configuration that has it.
    Version(u32),
    /// It is planned.
    NotYet,
}

/// A key of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Where it may be written.
    pub scope: Scope,
    /// Its name.
    pub name: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// What applies without it, if that can be said in a few words.
    pub default: &'static str,
    /// What it means, in a line.
    pub text: &'static str,
    /// Whether this version has it.
    pub since: Since,
}

const fn key(
    scope: Scope,
    name: &'static str,
    kind: Kind,
    default: &'static str,
    text: &'static str,
) -> Key {
    Key {
        scope,
        name,
        kind,
        default,
        text,
        since: Since::Version(1),
    }
}

const fn planned(scope: Scope, name: &'static str, text: &'static str) -> Key {
    Key {
        since: Since::NotYet,
        ..key(scope, name, Kind::Text, "", text)
    }
}

/// All keys. Names of sites, paths, statuses and fields are not keys.
#[rustfmt::skip] // a key is a line
pub const KEYS: &[Key] = &[
    key(Scope::Top, "certificates", Kind::Texts, "none", "files with certificates and keys"),
    key(Scope::Top, "config_version", Kind::Version, "1", "the version of the language: 1"),
    key(Scope::Top, "defaults", Kind::Table(Scope::Defaults), "", "keys of all sites"),
    key(Scope::Top, "listen", Kind::Texts, "[\":80\"]", "addresses for clear text"),
    key(Scope::Top, "listen_tls", Kind::Texts, "[\":443\"] if a site has TLS", "addresses for HTTPS and HTTP/3"),
    key(Scope::Top, "site", Kind::Sites, "", "the sites by their hosts"),
    key(Scope::Top, "trusted_proxies", Kind::Networks, "none", "proxies whose forwarding fields are trusted"),
    key(Scope::Top, "upstream", Kind::Upstreams, "", "upstreams with names"),
    planned(Scope::Top, "acme", "certificates of an authority"),
    planned(Scope::Top, "control", "the control API"),
    planned(Scope::Top, "include", "further files"),
    planned(Scope::Top, "limits", "limits of messages"),
    planned(Scope::Top, "log", "levels and access logs"),
    planned(Scope::Top, "preset", "keys of routes with a name"),
    planned(Scope::Top, "server", "settings of the process"),
    planned(Scope::Top, "tracing", "export of traces"),
    key(Scope::Site, "aliases", Kind::Texts, "none", "other hosts with the same content"),
    key(Scope::Site, "canonical_for", Kind::Texts, "none", "hosts that are redirected to this one"),
    key(Scope::Site, "https_redirect", Kind::Boolean, "true with `tls`", "whether clear text is redirected to HTTPS"),
    key(Scope::Site, "tls", Kind::Boolean, "false", "whether clients use TLS"),
    planned(Scope::Site, "limits", "limits of messages"),
    planned(Scope::Site, "listen", "the only addresses of this site"),
    key(Scope::Route, "allow", Kind::Networks, "all", "addresses of clients that are served"),
    key(Scope::Route, "body_max", Kind::Size, "no limit", "the most content of a request"),
    key(Scope::Route, "deny", Kind::Networks, "none", "addresses of clients that are refused"),
    key(Scope::Route, "errors", Kind::ErrorPages, "built in", "pages of errors by their status"),
    key(Scope::Route, "headers", Kind::Fields, "none", "changes of the fields of responses"),
    key(Scope::Route, "host", Kind::Text, "\"keep\"", "the host that the upstream receives"),
    key(Scope::Route, "methods", Kind::Methods, "all", "methods that are allowed"),
    key(Scope::Route, "path", Kind::Text, "the path of the request", "the path that the upstream receives"),
    key(Scope::Route, "raw_path", Kind::Boolean, "false", "whether the path is forwarded as received"),
    key(Scope::Route, "redirect", Kind::Redirect, "", "a status and another URL"),
    key(Scope::Route, "request_headers", Kind::Fields, "none", "changes of the fields of forwarded requests"),
    key(Scope::Route, "request_trailers", Kind::Boolean, "false", "whether trailers of requests are forwarded"),
    key(Scope::Route, "respond", Kind::Respond, "", "a fixed response"),
    key(Scope::Route, "timeout", Kind::Table(Scope::Timeout), "", "how long an upstream may take"),
    key(Scope::Route, "to", Kind::Target, "", "the upstream"),
    planned(Scope::Route, "access_log", "whether requests are logged"),
    planned(Scope::Route, "basic_auth", "users with passwords"),
    planned(Scope::Route, "buffer_request", "content that is read before it is forwarded"),
    planned(Scope::Route, "compress", "compression of responses"),
    planned(Scope::Route, "concurrency", "the most requests at a time"),
    planned(Scope::Route, "cors", "origins that browsers may send requests from"),
    planned(Scope::Route, "extensions", "endings that files may have"),
    planned(Scope::Route, "fallback", "the file for paths without one"),
    planned(Scope::Route, "files", "a folder with files"),
    planned(Scope::Route, "hidden", "whether hidden files are served"),
    planned(Scope::Route, "index", "files that stand for their folder"),
    planned(Scope::Route, "jwt", "tokens that are demanded"),
    planned(Scope::Route, "list", "whether folders are listed"),
    planned(Scope::Route, "mirror", "an upstream that gets copies of requests"),
    planned(Scope::Route, "php", "FastCGI"),
    planned(Scope::Route, "priority", "the order of regexes"),
    planned(Scope::Route, "rate_limit", "requests per time"),
    planned(Scope::Route, "replace_errors", "pages for errors of the upstream"),
    planned(Scope::Route, "retries", "how often a request is sent again"),
    planned(Scope::Route, "satisfy", "whether all access rules are demanded"),
    planned(Scope::Route, "sticky", "how clients stay with a server"),
    planned(Scope::Route, "symlinks", "which symbolic links are followed"),
    planned(Scope::Route, "upgrade", "protocols that clients may switch to"),
    planned(Scope::Route, "use", "names of presets"),
    planned(Scope::Route, "when", "variants of the route"),
    key(Scope::Timeout, "connect", Kind::Duration, "4s", "how long connecting may take"),
    key(Scope::Timeout, "idle", Kind::Duration, "60s", "how long the content of a response may be silent"),
    key(Scope::Timeout, "response", Kind::Duration, "60s", "how long the head of a response may take"),
    key(Scope::Respond, "body", Kind::Text, "none", "the content"),
    key(Scope::Respond, "file", Kind::Text, "none", "the file with the content"),
    key(Scope::Respond, "headers", Kind::Fields, "none", "fields"),
    key(Scope::Respond, "status", Kind::Status, "", "the status"),
    key(Scope::Upstream, "servers", Kind::Servers, "", "the URL of its server"),
    planned(Scope::Upstream, "balance", "how a server is chosen"),
    planned(Scope::Upstream, "connect_retry", "how long a request waits for a server"),
    planned(Scope::Upstream, "connections_max", "the most connections of a core"),
    planned(Scope::Upstream, "hash", "what chooses the server"),
    planned(Scope::Upstream, "health", "checks of the servers"),
    planned(Scope::Upstream, "idle_timeout", "how long connections may be idle"),
    planned(Scope::Upstream, "limits", "limits of messages"),
    planned(Scope::Upstream, "proxy_protocol", "the header that tells the client's address"),
    planned(Scope::Upstream, "queue", "requests that wait for a connection"),
    planned(Scope::Upstream, "reuse", "whether connections are reused"),
    planned(Scope::Upstream, "sticky", "how clients stay with a server"),
    planned(Scope::Upstream, "tls", "trust and identity"),
];

/// The key of this name that may be written in this scope. A site has the keys of routes.
pub(crate) fn find(scope: Scope, name: &str) -> Option<&'static Key> {
    of(scope).find(|key| key.name == name)
}

/// Keys of sites that `defaults` has, too.
const SITE_DEFAULTS: [&str; 2] = ["https_redirect", "tls"];

/// Whether this version has a key of this name in this scope.
pub(crate) fn is_built(scope: Scope, name: &str) -> bool {
    find(scope, name).is_some_and(|key| key.since != Since::NotYet)
}

/// The keys that may be written in this scope.
pub(crate) fn of(scope: Scope) -> impl Iterator<Item = &'static Key> {
    let is_of = move |key: &&Key| match scope {
        Scope::Site => matches!(key.scope, Scope::Site | Scope::Route),
        Scope::Defaults => match key.scope {
            Scope::Site => SITE_DEFAULTS.contains(&key.name),
            scope => scope == Scope::Route,
        },
        _ => key.scope == scope,
    };
    KEYS.iter().filter(is_of)
}

impl Key {
    /// Whether `false` takes away what is inherited.
    pub(crate) fn is_removable(&self) -> bool {
        let is_inherited = matches!(self.scope, Scope::Route | Scope::Timeout);
        let is_other = matches!(
            self.kind,
            Kind::Boolean | Kind::Target | Kind::Redirect | Kind::Respond
        );
        is_inherited && !is_other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_scope_has_a_name_twice() {
        for scope in [
            Scope::Top,
            Scope::Site,
            Scope::Route,
            Scope::Defaults,
            Scope::Upstream,
            Scope::Timeout,
            Scope::Respond,
        ] {
            for key in of(scope) {
                let same = of(scope).filter(|other| other.name == key.name);
                assert_eq!(same.count(), 1, "{} in {scope:?}", key.name);
            }
        }
    }
}
