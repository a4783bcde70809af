//! The table of all keys: reader, suggestions and `not-yet` come from it.

/// Where a key may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// At the top of the file, before the first table.
    Top,
    /// In a site.
    Site,
    /// In a route, a site, or `defaults`.
    Route,
    /// In an upstream.
    Upstream,
    /// In the `timeout` of a route.
    Timeout,
    /// In a table that is the `respond` of a route.
    Respond,
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
    /// What it means, in a line.
    pub text: &'static str,
    /// Whether this version has it.
    pub since: Since,
}

const fn key(scope: Scope, name: &'static str, text: &'static str) -> Key {
    Key {
        scope,
        name,
        text,
        since: Since::Version(1),
    }
}

const fn planned(scope: Scope, name: &'static str, text: &'static str) -> Key {
    Key {
        since: Since::NotYet,
        ..key(scope, name, text)
    }
}

/// All keys, those of tables in a table not included.
pub const KEYS: &[Key] = &[
    key(
        Scope::Top,
        "certificates",
        "files with certificates and keys",
    ),
    key(
        Scope::Top,
        "config_version",
        "the version of the language: 1",
    ),
    key(Scope::Top, "defaults", "keys of all sites"),
    key(Scope::Top, "listen", "addresses for clear text"),
    key(Scope::Top, "listen_tls", "addresses for HTTPS and HTTP/3"),
    key(Scope::Top, "site", "the sites by their hosts"),
    key(
        Scope::Top,
        "trusted_proxies",
        "proxies whose forwarding fields are trusted",
    ),
    key(Scope::Top, "upstream", "upstreams with names"),
    planned(Scope::Top, "acme", "certificates of an authority"),
    planned(Scope::Top, "control", "the control API"),
    planned(Scope::Top, "include", "further files"),
    planned(Scope::Top, "limits", "limits of messages"),
    planned(Scope::Top, "log", "levels and access logs"),
    planned(Scope::Top, "preset", "keys of routes with a name"),
    planned(Scope::Top, "server", "settings of the process"),
    planned(Scope::Top, "tracing", "export of traces"),
    key(Scope::Site, "aliases", "other hosts with the same content"),
    key(
        Scope::Site,
        "https_redirect",
        "whether clear text is redirected to HTTPS",
    ),
    key(Scope::Site, "tls", "whether clients use TLS"),
    key(
        Scope::Site,
        "canonical_for",
        "hosts that are redirected to this one",
    ),
    planned(Scope::Site, "limits", "limits of messages"),
    planned(Scope::Site, "listen", "the only addresses of this site"),
    key(Scope::Route, "path", "the path that the upstream receives"),
    key(Scope::Route, "to", "the upstream"),
    planned(Scope::Route, "access_log", "whether requests are logged"),
    key(
        Scope::Route,
        "allow",
        "addresses of clients that are served",
    ),
    planned(Scope::Route, "basic_auth", "users with passwords"),
    key(Scope::Route, "body_max", "the most content of a request"),
    planned(
        Scope::Route,
        "buffer_request",
        "content that is read before it is forwarded",
    ),
    planned(Scope::Route, "compress", "compression of responses"),
    planned(Scope::Route, "concurrency", "the most requests at a time"),
    planned(
        Scope::Route,
        "cors",
        "origins that browsers may send requests from",
    ),
    key(
        Scope::Route,
        "deny",
        "addresses of clients that are refused",
    ),
    key(Scope::Route, "errors", "pages of errors"),
    planned(Scope::Route, "extensions", "endings that files may have"),
    planned(Scope::Route, "fallback", "the file for paths without one"),
    planned(Scope::Route, "files", "a folder with files"),
    key(Scope::Route, "headers", "fields of responses"),
    planned(Scope::Route, "hidden", "whether hidden files are served"),
    key(Scope::Route, "host", "the host that the upstream receives"),
    planned(Scope::Route, "index", "files that stand for their folder"),
    planned(Scope::Route, "jwt", "tokens that are demanded"),
    planned(Scope::Route, "list", "whether folders are listed"),
    key(Scope::Route, "methods", "methods that are allowed"),
    planned(
        Scope::Route,
        "mirror",
        "an upstream that gets copies of requests",
    ),
    planned(Scope::Route, "priority", "the order of regexes"),
    planned(Scope::Route, "rate_limit", "requests per time"),
    key(
        Scope::Route,
        "raw_path",
        "whether the path is forwarded as received",
    ),
    key(Scope::Route, "redirect", "another URL"),
    planned(
        Scope::Route,
        "replace_errors",
        "pages for errors of the upstream",
    ),
    key(
        Scope::Route,
        "request_headers",
        "fields of forwarded requests",
    ),
    key(
        Scope::Route,
        "request_trailers",
        "whether trailers of requests are forwarded",
    ),
    key(Scope::Route, "respond", "a fixed response"),
    planned(Scope::Route, "retries", "how often a request is sent again"),
    planned(
        Scope::Route,
        "satisfy",
        "whether all access rules are demanded",
    ),
    planned(Scope::Route, "sticky", "how clients stay with a server"),
    planned(
        Scope::Route,
        "symlinks",
        "which symbolic links are followed",
    ),
    key(Scope::Route, "timeout", "how long upstreams may take"),
    planned(
        Scope::Route,
        "upgrade",
        "protocols that clients may switch to",
    ),
    planned(Scope::Route, "use", "names of presets"),
    planned(Scope::Route, "when", "variants of the route"),
    planned(Scope::Route, "php", "FastCGI"),
    key(Scope::Timeout, "connect", "how long connecting may take"),
    key(Scope::Timeout, "idle", "how long a response may be silent"),
    key(
        Scope::Timeout,
        "response",
        "how long the head of a response may take",
    ),
    key(Scope::Respond, "body", "the content"),
    key(Scope::Respond, "file", "the file with the content"),
    key(Scope::Respond, "headers", "fields"),
    key(Scope::Respond, "status", "the status"),
    key(Scope::Upstream, "servers", "the URL of its server"),
    planned(Scope::Upstream, "balance", "how a server is chosen"),
    planned(
        Scope::Upstream,
        "connect_retry",
        "how long a request waits for a server",
    ),
    planned(
        Scope::Upstream,
        "connections_max",
        "the most connections of a core",
    ),
    planned(Scope::Upstream, "hash", "what chooses the server"),
    planned(Scope::Upstream, "health", "checks of the servers"),
    planned(
        Scope::Upstream,
        "idle_timeout",
        "how long connections may be idle",
    ),
    planned(Scope::Upstream, "limits", "limits of messages"),
    planned(
        Scope::Upstream,
        "proxy_protocol",
        "the header that tells the client's address",
    ),
    planned(
        Scope::Upstream,
        "queue",
        "requests that wait for a connection",
    ),
    planned(Scope::Upstream, "reuse", "whether connections are reused"),
    planned(Scope::Upstream, "sticky", "how clients stay with a server"),
    planned(Scope::Upstream, "tls", "trust and identity"),
];

/// The key of this name that may be written in this scope. A site has the keys of routes.
pub(crate) fn find(scope: Scope, name: &str) -> Option<&'static Key> {
    of(scope).find(|key| key.name == name)
}

/// Whether a key belongs to a site and not to its routes.
pub(crate) fn is_of_site(name: &str) -> bool {
    let mut keys = KEYS.iter();
    keys.any(|key| key.scope == Scope::Site && key.name == name)
}

/// The keys that may be written in this scope.
pub(crate) fn of(scope: Scope) -> impl Iterator<Item = &'static Key> {
    let is_of =
        move |key: &&Key| key.scope == scope || (scope == Scope::Site && key.scope == Scope::Route);
    KEYS.iter().filter(is_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_scope_has_a_name_twice() {
        for scope in [Scope::Top, Scope::Site, Scope::Route, Scope::Upstream] {
            for key in of(scope) {
                let same = of(scope).filter(|other| other.name == key.name);
                assert_eq!(same.count(), 1, "{} in {scope:?}", key.name);
            }
        }
    }
}
