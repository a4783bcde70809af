//! The table of all keys: reader, suggestions, `not-yet` and the schema come from it.

use std::time::Duration;

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
    /// In a table that is the `shed` of an upstream.
    Shed,
    /// In the `timeout` of a route.
    Timeout,
    /// In a table that is the `respond` of a route.
    Respond,
    /// In a table that is the `buffer_request` of a route.
    Buffer,
    /// In a table that is the `cors` of a route.
    Cors,
    /// In a table that is the `compress` of a route.
    Compress,
    /// In a table that is the `decompress` of a route.
    Decompress,
    /// In the `mirror` of a route.
    Mirror,
    /// In the `jwt` of a route.
    Jwt,
    /// In the `forward_auth` of a route.
    ForwardAuth,
    /// In the `cache` of a `forward_auth`.
    ForwardAuthCache,
    /// In a table that is the `rate_limit` of a route.
    RateLimit,
    /// In a table that is the `allow` or `deny` of a route.
    Networks,
    /// In a table that is the `security_headers` of a route.
    SecurityHeaders,
    /// In a table that is the `basic_auth` of a route.
    BasicAuth,
    /// In the `api_keys` of a route.
    ApiKeys,
    /// In `server`.
    Server,
    /// In `log`.
    Log,
    /// In a table that is the `access` of `log`.
    AccessLog,
    /// In the `when` of an access log.
    AccessLogWhen,
    /// In the `limits` of the process.
    Limits,
    /// In `metrics`.
    Metrics,
    /// In `tracing`.
    Tracing,
    /// In `redis`.
    Redis,
    /// In the `limits` of a site.
    SiteLimits,
    /// In the `limits` of an upstream.
    UpstreamLimits,
    /// In a table that is the `outlier` of an upstream.
    Outlier,
    /// In a table that is the `health` of an upstream.
    Health,
    /// In `control`.
    Control,
    /// In a table that is the `tls` of a site.
    Tls,
    /// In a table of `certificates`.
    Certificate,
    /// In a preset: keys of routes.
    Preset,
    /// In a block `when`: conditions, and keys of routes.
    When,
    /// In a table of `listen` and `listen_tls`.
    Listener,
    /// In the `retry` of an upstream.
    Retry,
    /// In the `queue` of an upstream.
    Queue,
}

/// The kind of a value.
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
    /// A list of networks, or a table with files of them.
    ClientNetworks,
    /// `true`, `false`, or a table with the fields that differ.
    SecurityHeaders,
    /// A list of methods.
    Methods,
    /// A duration above zero, or `forever`.
    Duration,
    /// A duration, which may be zero.
    Time,
    /// A duration in whole seconds, which may be zero.
    Seconds,
    /// A duration, which may be zero, or `forever`.
    TimeLimit,
    /// A size above zero.
    Size,
    /// A size above zero, or a table with sizes.
    RequestBuffer,
    /// A list of origins, or a table with one.
    Cors,
    /// `true`, `false`, `"files"`, or a table with the choices.
    Compress,
    /// `true`, `false`, or a table with a size.
    Decompress,
    /// A text, or a list of texts.
    OneOrMore,
    /// Claims by names of fields.
    ClaimFields,
    /// Demands on claims by their names.
    ClaimDemands,
    /// The name of a field, or a list of names.
    FieldNames,
    /// A file with users, or a table with one.
    BasicAuth,
    /// A number of requests per time, or a table with one.
    RateLimit,
    /// A number of requests per time.
    Rate,
    /// A value of requests, or a list of them.
    RateKeys,
    /// A number from one to this one, which `false` takes away.
    CountTo(u64),
    /// A size from one byte to this many.
    SizeTo(u64),
    /// A number from one to this one.
    NumberTo(u64),
    /// A number from zero to this one.
    ZeroTo(u64),
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// The path of a socket, or `false`.
    Socket,
    /// The destination of an access log, a table with one, or `false`.
    AccessLog,
    /// A number from 0 to 1.
    Share,
    /// A number above 0, and at most 100.
    Percent,
    /// A list of statuses, or of `5xx` for all of a class.
    Statuses,
    /// A status, `5xx`, or a list of these.
    StatusOrStatuses,
    /// A path, or a table.
    Health,
    /// An address to listen on, or `false`.
    ControlAddress,
    /// A list of addresses, or of tables with an address.
    Listeners,
    /// A list of files with certificates.
    Certificates,
    /// `true`, `false`, or a table with a certificate.
    Tls,
    /// The status of a response, as a number or a text.
    Status,
    /// A URL or a name of an upstream, a list of them, or their weights.
    Target,
    /// A list of URLs, or their weights.
    Servers,
    /// How clients stay with a server.
    Sticky,
    /// A value of requests that chooses the server.
    ServerKey,
    /// A folder.
    Folder,
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
    /// `true`, `false`, or a table with the keys of a scope.
    Switch(Scope),
    /// Sites by their names.
    Sites,
    /// Upstreams by their names.
    Upstreams,
    /// Presets by their names.
    Presets,
    /// A name, or a list of names.
    Names,
    /// Blocks with conditions.
    Blocks,
    /// Conditions on values, by names.
    Matches,
    /// Texts by the names of fields.
    FieldTexts,
    /// A network, or a list of networks, with `!` for all others.
    Clients,
    /// A method, or a list of methods.
    MethodOrMethods,
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
    /// The kind of its value.
    pub kind: Kind,
    /// The default, if it can be stated in a few words.
    pub default: &'static str,
    /// The description, in one line.
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

/// The most cores of a process.
pub const CORES_MAX: u64 = 4096;

/// The largest section of fields: heads are held in memory, and those of a core have 16 MiB.
pub const HEAD_MAX: u64 = 1 << 20;

/// The most fields, or lines of a cookie, of a section.
pub const FIELDS_MAX: u64 = 10_000;

/// The most content that `buffer_request` has a core hold in memory, for one request or for all.
pub const BUFFER_MAX: u64 = 64 << 20;

/// The most content that `buffer_request` has a core hold in files, for one request or for all.
pub const BUFFER_FILE_MAX: u64 = 16 << 30;

/// The most series of requests: a core has up to 125 MB of them.
const SERIES_MAX: u64 = 1_000_000;

/// The greatest priority of a regex.
pub(crate) const PRIORITY_MAX: u64 = 1000;

/// The ones that count for a limit.
pub(crate) const STORES: &[&str] = &["local", "redis"];

/// Values of `on_failure`.
pub(crate) const ON_FAILURE: &[&str] = &["local_share", "open", "closed"];

/// The most consecutive failures before a server is ejected.
pub(crate) const FAILURES_MAX: u64 = 1_000;

/// How many times the response time of others a server may be allowed.
pub(crate) const TIMES_MAX: u64 = 1_000;

/// The largest `burst` of a `rate_limit`.
pub(crate) const BURST_MAX: u64 = 1_000_000;

/// The largest `retries`: each attempt may cost its upstream as much as the first.
pub(crate) const RETRIES_MAX: u64 = 8;

/// The largest `connections_max`, and `max` of `queue`.
pub(crate) const CONNECTIONS_MAX: u64 = 1_000_000;

/// The largest `concurrency`.
pub(crate) const CONCURRENCY_MAX: u64 = 1_000_000;

/// The most requests of a core that wait for an upstream that sheds load.
pub(crate) const SHED_QUEUE_MAX: u64 = 65_536;

/// The longest wait for an upstream that sheds load.
pub(crate) const SHED_WAIT_MAX: Duration = Duration::from_secs(10);

/// Values of `importance`.
pub(crate) const IMPORTANCES: &[&str] = &["critical", "high", "normal", "low"];

/// All keys. Names of sites, paths, statuses and fields are not keys.
#[rustfmt::skip] // a key is a line
pub const KEYS: &[Key] = &[
    key(Scope::Top, "certificates", Kind::Certificates, "none", "files with certificates and keys"),
    key(Scope::Top, "config_version", Kind::Version, "1", "the version of the language: 1"),
    key(Scope::Top, "control", Kind::Table(Scope::Control), "", "how other processes ask this one"),
    key(Scope::Top, "defaults", Kind::Table(Scope::Defaults), "", "keys of all sites"),
    key(Scope::Top, "include", Kind::Texts, "none", "files with further sites, upstreams, presets and certificates"),
    key(Scope::Top, "limits", Kind::Table(Scope::Limits), "", "limits of heads and trailers"),
    key(Scope::Top, "listen", Kind::Listeners, "[\":80\"]", "addresses for clear text"),
    key(Scope::Top, "listen_tls", Kind::Listeners, "[\":443\"] if a site has TLS", "addresses for HTTPS and HTTP/3"),
    key(Scope::Top, "log", Kind::Table(Scope::Log), "", "the log on standard error, and the access log"),
    key(Scope::Top, "metrics", Kind::Table(Scope::Metrics), "", "metrics of requests"),
    key(Scope::Top, "preset", Kind::Presets, "", "keys of routes with a name, for `use`"),
    key(Scope::Top, "redis", Kind::Table(Scope::Redis), "off", "Redis or Valkey, for limits that several processes share"),
    key(Scope::Top, "server", Kind::Table(Scope::Server), "", "settings of the process"),
    key(Scope::Top, "site", Kind::Sites, "", "the sites by their hosts"),
    key(Scope::Top, "tracing", Kind::Table(Scope::Tracing), "off", "export of traces"),
    key(Scope::Top, "trusted_proxies", Kind::Networks, "none", "proxies whose forwarding fields are trusted"),
    key(Scope::Top, "upstream", Kind::Upstreams, "", "upstreams with names"),
    planned(Scope::Top, "acme", "certificates of an authority"),
    key(Scope::Site, "aliases", Kind::Texts, "none", "other hosts with the same content"),
    key(Scope::Site, "canonical_for", Kind::Texts, "none", "hosts that are redirected to this one"),
    key(Scope::Site, "https_redirect", Kind::Boolean, "true with `tls`", "whether clear text is redirected to HTTPS"),
    key(Scope::Site, "limits", Kind::Table(Scope::SiteLimits), "those of the process", "smaller limits of its requests"),
    key(Scope::Site, "listen", Kind::Texts, "all", "the only addresses of this site, which are opened; with TLS if it has `tls`"),
    key(Scope::Site, "tls", Kind::Tls, "false", "whether clients use TLS, or with which certificate"),
    key(Scope::Route, "access_log", Kind::Boolean, "true", "whether its requests have lines in the access log"),
    key(Scope::Route, "allow", Kind::ClientNetworks, "all", "addresses of clients that are served"),
    key(Scope::Route, "api_keys", Kind::Table(Scope::ApiKeys), "off", "keys that requests of programs need"),
    key(Scope::Route, "basic_auth", Kind::BasicAuth, "off", "a file with the names and passwords that requests need"),
    key(Scope::Route, "body_max", Kind::Size, "no limit", "the most content of a request"),
    key(Scope::Route, "buffer_request", Kind::RequestBuffer, "off", "the most content that is received before the upstream is connected to"),
    key(Scope::Route, "client_cert", Kind::Boolean, "true with `client_ca`", "whether requests need a [certificate of the client](client-certificates.md)"),
    key(Scope::Route, "compress", Kind::Compress, "\"files\"", "whether responses are compressed for clients that accept it: all, none, or those of files"),
    key(Scope::Route, "concurrency", Kind::CountTo(CONCURRENCY_MAX), "no limit", "the most requests at a time, on all cores together"),
    key(Scope::Route, "cors", Kind::Cors, "off", "other origins whose requests browsers may send, and whose responses they may read"),
    key(Scope::Route, "decompress", Kind::Decompress, "false", "whether content of requests is decompressed before the upstream gets it"),
    key(Scope::Route, "deny", Kind::ClientNetworks, "none", "addresses of clients that are refused"),
    key(Scope::Route, "early_hints", Kind::Texts, "none", "values of `Link` that browsers get in a response with 103, before the page"),
    key(Scope::Route, "errors", Kind::ErrorPages, "built in", "pages of errors by their status"),
    key(Scope::Route, "extensions", Kind::Texts, "none", "endings that files may have and paths lack: `.html`"),
    key(Scope::Route, "fallback", Kind::Text, "none", "the file for pages without one"),
    key(Scope::Route, "files", Kind::Folder, "", "the folder with the files, which stands for the path of the route; with `to`, the upstream gets requests without a file"),
    key(Scope::Route, "forward_auth", Kind::Table(Scope::ForwardAuth), "off", "another service that decides on requests"),
    key(Scope::Route, "headers", Kind::Fields, "none", "changes of the fields of responses"),
    key(Scope::Route, "hidden", Kind::Boolean, "false", "whether files are sent whose names begin with a dot"),
    key(Scope::Route, "host", Kind::Text, "\"keep\"", "the host that the upstream receives"),
    key(Scope::Route, "importance", Kind::OneOf(IMPORTANCES), "\"normal\"", "the rank of requests where an upstream [sheds load](overload.md): those of a lower one are shed first"),
    key(Scope::Route, "index", Kind::Texts, "[\"index.html\"]", "files that stand for their folder"),
    key(Scope::Route, "jwt", Kind::Table(Scope::Jwt), "off", "signed tokens that requests need"),
    key(Scope::Route, "list", Kind::Boolean, "false", "whether folders without an index are listed"),
    key(Scope::Route, "methods", Kind::Methods, "all", "methods that are allowed"),
    key(Scope::Route, "mirror", Kind::Table(Scope::Mirror), "off", "another upstream that gets [copies of requests](mirroring.md), for which nothing waits"),
    key(Scope::Route, "path", Kind::Text, "the path of the request", "the path that the upstream receives"),
    key(Scope::Route, "priority", Kind::NumberTo(PRIORITY_MAX), "none", "which of two regexes comes first that begin with the same text: the greater one"),
    key(Scope::Route, "rate_limit", Kind::RateLimit, "off", "the most requests per time; it counts where it is written"),
    key(Scope::Route, "raw_path", Kind::Boolean, "false", "whether the path is forwarded as received"),
    key(Scope::Route, "redirect", Kind::Redirect, "", "a status and another URL"),
    key(Scope::Route, "replace_errors", Kind::Boolean, "false", "whether `errors` are for responses of the upstream, too"),
    key(Scope::Route, "request_headers", Kind::Fields, "none", "changes of the fields of forwarded requests"),
    key(Scope::Route, "request_trailers", Kind::Boolean, "false", "whether trailers of requests are forwarded"),
    key(Scope::Route, "respond", Kind::Respond, "", "a fixed response"),
    key(Scope::Route, "security_headers", Kind::SecurityHeaders, "off", "fields that have browsers protect pages: [the usual ones](security-headers.md), or a table of those that differ"),
    key(Scope::Route, "retries", Kind::ZeroTo(RETRIES_MAX), "1", "how often a request is [sent again](retries.md) that the upstream may have processed, if its method is idempotent"),
    key(Scope::Route, "satisfy", Kind::OneOf(&["all", "any"]), "\"all\"", "whether one suffices of the keys `allow`, `basic_auth`, `jwt`, `api_keys` and `client_cert` beside it"),
    key(Scope::Route, "sticky", Kind::Sticky, "off", "how clients stay with a server"),
    key(Scope::Route, "symlinks", Kind::OneOf(&["inside", "follow", "deny"]), "\"inside\"", "which symbolic links are followed: relative ones that stay in the folder, all, or none"),
    key(Scope::Route, "timeout", Kind::Table(Scope::Timeout), "", "how long an upstream may take"),
    key(Scope::Route, "to", Kind::Target, "", "the upstream"),
    key(Scope::Route, "upgrade", Kind::Texts, "[\"websocket\"]", "protocols that clients may switch to"),
    planned(Scope::Route, "php", "FastCGI"),
    key(Scope::Route, "use", Kind::Names, "none", "presets, which come before the keys beside it"),
    key(Scope::Route, "when", Kind::Blocks, "none", "variants of the route: the first block applies whose conditions hold; `false` for none of outer levels"),
    key(Scope::Timeout, "connect", Kind::Duration, "4s", "how long connecting may take"),
    key(Scope::Timeout, "idle", Kind::Duration, "60s", "how long the content of a response may be silent"),
    key(Scope::Timeout, "request", Kind::Duration, "no limit", "how long a request may take until the head of its response, with all [attempts](retries.md#deadlines)"),
    key(Scope::Timeout, "response", Kind::Duration, "60s", "how long the head of a response may take"),
    key(Scope::Respond, "body", Kind::Text, "none", "the content"),
    key(Scope::Respond, "file", Kind::Text, "none", "the file with the content"),
    key(Scope::Respond, "headers", Kind::Fields, "none", "fields"),
    key(Scope::Respond, "status", Kind::Status, "", "the status"),
    key(Scope::Buffer, "file", Kind::Size, "none", "the most content, what is beyond `memory` in a temporary file"),
    key(Scope::Buffer, "memory", Kind::Size, "", "the most content in memory"),
    key(Scope::Cors, "credentials", Kind::Boolean, "false", "whether requests may have cookies and other credentials"),
    key(Scope::Cors, "expose", Kind::Texts, "none", "fields of responses that scripts may read"),
    key(Scope::Cors, "headers", Kind::Texts, "those asked for", "fields that requests may have"),
    key(Scope::Cors, "max_age", Kind::Seconds, "1h", "how long browsers may remember the response to a preflight"),
    key(Scope::Cors, "methods", Kind::Texts, "those asked for", "methods that requests may have"),
    key(Scope::Cors, "origins", Kind::Texts, "", "origins such as `\"https://app.example\"`, `\"https://*.app.example\"`, or `\"*\"` for all"),
    key(Scope::Compress, "algorithms", Kind::Texts, "`[\"zstd\", \"br\", \"gzip\"]`", "the algorithms; of those that a client accepts equally, the first one is used"),
    key(Scope::Compress, "min_size", Kind::Size, "1k", "shorter content is not compressed, if its length is known"),
    key(Scope::Compress, "types", Kind::Texts, "[text and other types](compression.md#types)", "the types that are compressed: `\"text/css\"`, `\"text/*\"`, `\"application/*+json\"`"),
    key(Scope::Decompress, "max", Kind::Size, "10m", "the most content of a request after its decompression; `body_max` is a limit for it as well"),
    key(Scope::Jwt, "algorithms", Kind::OneOrMore, "those of the keys", "algorithms of signatures: `\"HS256\"`, `\"RS256\"`, `\"PS256\"`, each also with 384 and 512, `\"ES256\"`, `\"ES384\"`, `\"EdDSA\"`"),
    key(Scope::Jwt, "audience", Kind::OneOrMore, "none", "values of `aud`, one of which tokens need; without it tokens with `aud` are refused"),
    key(Scope::Jwt, "forward", Kind::ClaimFields, "none", "fields of forwarded requests that get the values of claims"),
    key(Scope::Jwt, "from", Kind::OneOrMore, "\"header\"", "where the token stands: `\"header\"`, which is `Authorization: Bearer`, `\"cookie:NAME\"` or `\"query:NAME\"`"),
    key(Scope::Jwt, "issuer", Kind::OneOrMore, "any", "values of `iss`, one of which tokens need"),
    key(Scope::Jwt, "keys_ca", Kind::Text, "those of the system", "a file with the authorities for the certificate of the server of `keys_url`"),
    key(Scope::Jwt, "keys_file", Kind::Text, "", "a JSON Web Key Set"),
    key(Scope::Jwt, "keys_url", Kind::Text, "", "the URL of a JSON Web Key Set, which is fetched"),
    key(Scope::Jwt, "leeway", Kind::Seconds, "\"30s\"", "how much the clocks may differ, at most 10 minutes"),
    key(Scope::Jwt, "optional", Kind::Boolean, "false", "whether requests without a token are served as well"),
    key(Scope::Jwt, "require", Kind::ClaimDemands, "none", "claims that tokens need"),
    key(Scope::Jwt, "scopes", Kind::OneOrMore, "none", "scopes that tokens need, all of them"),
    key(Scope::Jwt, "secret", Kind::Text, "", "the secret of issuer and gateway, of 32 bytes or more"),
    key(Scope::Jwt, "secret_file", Kind::Text, "", "a file with the secret"),
    key(Scope::Networks, "file", Kind::OneOrMore, "none", "files with networks, one a line"),
    key(Scope::Networks, "networks", Kind::Networks, "none", "further networks"),
    key(Scope::SecurityHeaders, "csp", Kind::Text, "none", "`Content-Security-Policy`"),
    key(Scope::SecurityHeaders, "frame", Kind::OneOf(&["deny", "sameorigin", "off"]), "\"deny\"", "`X-Frame-Options`: which pages may show a page in a frame"),
    key(Scope::SecurityHeaders, "hsts", Kind::Seconds, "\"365d\"", "`Strict-Transport-Security`, over TLS only: how long browsers use the host with TLS only; `\"0\"` has them forget it"),
    key(Scope::SecurityHeaders, "hsts_preload", Kind::Boolean, "false", "whether lists of browsers may have the host"),
    key(Scope::SecurityHeaders, "hsts_subdomains", Kind::Boolean, "false", "whether `hsts` is for all subdomains of the host as well"),
    key(Scope::SecurityHeaders, "nosniff", Kind::Boolean, "true", "`X-Content-Type-Options`: whether content has the type that it declares"),
    key(Scope::SecurityHeaders, "opener", Kind::OneOf(&["same-origin", "same-origin-allow-popups", "noopener-allow-popups", "unsafe-none"]), "\"same-origin\"", "`Cross-Origin-Opener-Policy`: which windows may reach each other"),
    key(Scope::SecurityHeaders, "permissions", Kind::Text, "[the usual ones](security-headers.md)", "`Permissions-Policy`: features that pages do not use"),
    key(Scope::SecurityHeaders, "referrer", Kind::OneOf(&["no-referrer", "no-referrer-when-downgrade", "origin", "origin-when-cross-origin", "same-origin", "strict-origin", "strict-origin-when-cross-origin", "unsafe-url"]), "\"strict-origin-when-cross-origin\"", "`Referrer-Policy`: what requests tell about the page that they come from"),
    key(Scope::SecurityHeaders, "replace", Kind::Boolean, "false", "whether fields of the application are replaced; otherwise they are kept"),
    key(Scope::ForwardAuth, "cache", Kind::Table(Scope::ForwardAuthCache), "off", "how decisions are remembered that let requests pass"),
    key(Scope::ForwardAuth, "cookies", Kind::Boolean, "false", "whether clients get the cookies that it sets when it lets a request pass"),
    key(Scope::ForwardAuth, "copy", Kind::FieldNames, "none", "fields of its response that the request gets; those that the client sent are removed"),
    key(Scope::ForwardAuth, "on_failure", Kind::OneOf(&["closed", "open"]), "\"closed\"", "without a decision `\"closed\"` responds with 503, and `\"open\"` lets the request pass without the fields of `copy`"),
    key(Scope::ForwardAuth, "send", Kind::FieldNames, "all but those of the content", "fields of the request that it gets, beside those about the client"),
    key(Scope::ForwardAuth, "timeout", Kind::Time, "5s", "how long it may take, at most 5 minutes"),
    key(Scope::ForwardAuth, "url", Kind::Text, "", "the URL of the requests to it; that of a unix socket is `\"unix:/run/auth.sock:/path\"`"),
    key(Scope::ForwardAuthCache, "any_path", Kind::Boolean, "false", "whether a decision is for all paths and methods of a host"),
    key(Scope::ForwardAuthCache, "by", Kind::OneOrMore, "", "all values by which it knows the client: `\"cookie:NAME\"`, `\"header:NAME\"`, `\"client\"`; requests without any are not remembered"),
    key(Scope::ForwardAuthCache, "for", Kind::Time, "", "how long, at most 1 hour"),
    key(Scope::BasicAuth, "forward", Kind::FieldNames, "none", "fields of forwarded requests that get the name of the user"),
    key(Scope::BasicAuth, "realm", Kind::Text, "\"site\"", "what browsers show with the question for the password"),
    key(Scope::BasicAuth, "users_file", Kind::Text, "", "the file with the users, as `htpasswd` writes it"),
    key(Scope::ApiKeys, "file", Kind::Text, "", "the file with the hashes of the keys, as `blitz api-key` writes them"),
    key(Scope::ApiKeys, "forward", Kind::FieldNames, "none", "fields of forwarded requests that get the name of the key"),
    key(Scope::ApiKeys, "from", Kind::OneOrMore, "\"header:X-Api-Key\"", "where the key stands: `\"header:NAME\"`, `\"cookie:NAME\"` or `\"query:NAME\"`; `\"header:Authorization\"` is `Authorization: Bearer`"),
    key(Scope::RateLimit, "burst", Kind::NumberTo(BURST_MAX), "the number of `rate`", "the most requests at once"),
    key(Scope::RateLimit, "by", Kind::RateKeys, "`\"client\"`", "what is counted on its own"),
    key(Scope::RateLimit, "dry_run", Kind::Boolean, "false", "whether requests beyond the limit are only counted"),
    key(Scope::RateLimit, "on_failure", Kind::OneOf(ON_FAILURE), "\"local_share\"", "what happens while the store cannot be reached: each process has its share of the limit, all requests pass, or none does"),
    key(Scope::RateLimit, "rate", Kind::Rate, "", "requests per time"),
    key(Scope::RateLimit, "store", Kind::OneOf(STORES), "\"local\"", "who counts: this process, or all that share `redis`"),
    key(Scope::Upstream, "balance", Kind::OneOf(&["p2c", "round_robin", "least_requests", "hash"]), "\"p2c\"", "how a server is chosen"),
    key(Scope::Upstream, "connections_max", Kind::NumberTo(CONNECTIONS_MAX), "8192", "the most connections in use of a core to each address of its servers"),
    key(Scope::Upstream, "hash", Kind::ServerKey, "\"client\"", "what chooses the server"),
    key(Scope::Upstream, "hedge", Kind::Duration, "off", "after which time without a response a request without content is [sent a second time](retries.md#hedging)"),
    key(Scope::Upstream, "health", Kind::Health, "off", "how its servers are checked"),
    key(Scope::Upstream, "limits", Kind::Table(Scope::UpstreamLimits), "those of the process", "limits of its responses"),
    key(Scope::Upstream, "outlier", Kind::Switch(Scope::Outlier), "true", "whether a server gets no requests for a time while it [fails and the others do not](upstreams.md#servers-that-fail)"),
    key(Scope::Upstream, "proxy_protocol", Kind::OneOf(&["v1", "v2"]), "none", "the header that tells the client's address"),
    key(Scope::Upstream, "queue", Kind::Table(Scope::Queue), "", "requests that wait for a connection"),
    key(Scope::Upstream, "retry", Kind::Table(Scope::Retry), "", "which requests are [sent again](retries.md)"),
    key(Scope::Upstream, "servers", Kind::Servers, "", "the URLs of its servers"),
    key(Scope::Upstream, "shed", Kind::Switch(Scope::Shed), "false", "whether requests are [shed](overload.md) that it cannot take, and within which bounds"),
    key(Scope::Upstream, "slow_start", Kind::Time, "off", "how long a server that is new or was unavailable gets fewer requests than its weight"),
    key(Scope::Upstream, "sticky", Kind::Sticky, "off", "how clients stay with a server"),
    key(Scope::Shed, "max", Kind::NumberTo(CONCURRENCY_MAX), "1000", "the greatest limit, on all cores together"),
    key(Scope::Shed, "min", Kind::NumberTo(CONCURRENCY_MAX), "1", "the least limit, on all cores together; each core has at least 1"),
    key(Scope::Shed, "queue", Kind::NumberTo(SHED_QUEUE_MAX), "256", "the most requests of a core that wait"),
    key(Scope::Shed, "wait", Kind::Time, "the time of a response without load, up to 1s", "how long a request waits at most, up to 10s"),
    key(Scope::Mirror, "percent", Kind::Percent, "100", "how many of the requests are copied"),
    key(Scope::Mirror, "to", Kind::Target, "", "the upstream of the copies"),
    planned(Scope::Upstream, "connect_retry", "how long a request waits for a server"),
    planned(Scope::Upstream, "idle_timeout", "how long connections may be idle"),
    planned(Scope::Upstream, "reuse", "whether connections are reused"),
    planned(Scope::Upstream, "tls", "trust and identity"),
    key(Scope::Server, "alt_svc_max_age", Kind::Seconds, "1h", "how long clients may remember HTTP/3"),
    key(Scope::Server, "alt_svc_port", Kind::NumberTo(65_535), "that of `listen_tls`", "the UDP port of HTTP/3 as clients see it"),
    key(Scope::Server, "cores", Kind::NumberTo(CORES_MAX), "one per processor", "how many cores, with a thread each"),
    key(Scope::Server, "drain_delay", Kind::Time, "0", "how long connections are still accepted at the end, while `/readyz` is 503"),
    key(Scope::Server, "drain_timeout", Kind::TimeLimit, "30s", "how long running requests may take at the end"),
    key(Scope::Server, "h2c_upgrade", Kind::Boolean, "false", "whether clients in clear text may upgrade to HTTP/2"),
    key(Scope::Server, "half_close_grace", Kind::TimeLimit, "1s", "how long a half-closed client is kept"),
    key(Scope::Server, "http3", Kind::Boolean, "true", "whether HTTPS is served over HTTP/3, too"),
    key(Scope::Server, "id", Kind::Text, "random", "what identifies this proxy in CDN-Loop"),
    key(Scope::Server, "io", Kind::OneOf(&["auto", "uring", "epoll"]), "\"auto\"", "the I/O driver"),
    key(Scope::Server, "lingering_time", Kind::Time, "30s", "how long a client may go on sending after its response"),
    key(Scope::Server, "lingering_timeout", Kind::Time, "5s", "the longest silence within `lingering_time`"),
    key(Scope::Server, "pin", Kind::OneOf(&["auto", "on", "off", "numa"]), "\"auto\"", "whether threads are pinned to processors, or with their memory to its nodes"),
    key(Scope::Server, "via", Kind::Boolean, "false", "whether forwarded messages get Via"),
    key(Scope::Server, "watch", Kind::Boolean, "false", "whether a change of the file is a reload"),
    key(Scope::Log, "level", Kind::OneOf(&["off", "error", "warn", "info", "debug", "trace"]), "\"info\"", "the least level"),
    key(Scope::Log, "summary", Kind::Time, "1m", "how often failures and refusals are summarized"),
    key(Scope::Log, "access", Kind::AccessLog, "false", "where a line for each request goes"),
    key(Scope::AccessLog, "fields", Kind::Texts, "all", "the fields of a line in their order; `header.NAME` is a field of the request"),
    key(Scope::AccessLog, "format", Kind::OneOf(&["json", "logfmt", "combined"]), "\"json\"", "the form of lines"),
    key(Scope::AccessLog, "handshakes", Kind::Boolean, "true", "whether failed TLS handshakes have lines"),
    key(Scope::AccessLog, "redact", Kind::Texts, "`[\"Authorization\", \"Proxy-Authorization\", \"Cookie\", \"query\"]`", "fields of requests whose values are left out; `query` is for the values of queries"),
    key(Scope::AccessLog, "sample", Kind::Share, "1, and 0 with `when`", "the share of the requests that meet no condition of `when`"),
    key(Scope::AccessLog, "to", Kind::Text, "", "`\"stdout\"`, `\"journal\"`, `\"syslog:/dev/log\"`, `\"syslog:HOST:PORT\"`, or a file"),
    key(Scope::AccessLog, "when", Kind::Table(Scope::AccessLogWhen), "none", "conditions, one of which a request meets that has a line"),
    key(Scope::AccessLogWhen, "slower", Kind::Time, "none", "the request took longer"),
    key(Scope::AccessLogWhen, "status", Kind::Statuses, "none", "the status of the response"),
    key(Scope::Limits, "cookies_max", Kind::NumberTo(FIELDS_MAX), "1000", "lines of a cookie over HTTP/2 and HTTP/3"),
    key(Scope::Limits, "fields_max", Kind::NumberTo(FIELDS_MAX), "100", "fields of a request"),
    key(Scope::Limits, "head_max", Kind::SizeTo(HEAD_MAX), "32k", "bytes of the fields of a request"),
    key(Scope::Limits, "request_line_max", Kind::SizeTo(HEAD_MAX), "8k", "bytes of a request line"),
    key(Scope::Limits, "trailer_fields_max", Kind::NumberTo(FIELDS_MAX), "32", "fields of the trailers of a request"),
    key(Scope::Limits, "trailers_max", Kind::SizeTo(HEAD_MAX), "8k", "bytes of the trailers of a request"),
    key(Scope::Limits, "upstream_fields_max", Kind::NumberTo(FIELDS_MAX), "200", "fields of an upstream's response"),
    key(Scope::Limits, "upstream_head_max", Kind::SizeTo(HEAD_MAX), "32k", "bytes of the fields of an upstream's response"),
    key(Scope::Metrics, "series_max", Kind::NumberTo(SERIES_MAX), "10000", "the most series of requests; those beyond count as `route=\"_other\"`"),
    key(Scope::Tracing, "headers", Kind::FieldTexts, "none", "fields of requests to the collector, such as its credentials"),
    key(Scope::Tracing, "logs", Kind::Boolean, "false", "whether requests, and warnings of the process, are exported as log records"),
    key(Scope::Tracing, "otlp", Kind::Text, "", "the URL of the collector, which takes OTLP"),
    key(Scope::Tracing, "protocol", Kind::OneOf(&["grpc", "http"]), "\"grpc\", and \"http\" with port 4318", "how it takes it: gRPC, or protobuf in HTTP"),
    key(Scope::Tracing, "sample", Kind::Share, "1", "the share of the traces that begin here which is recorded; of others their client decides"),
    key(Scope::Tracing, "service", Kind::Text, "\"blitz\"", "the name of this service in traces: `service.name`"),
    key(Scope::Redis, "prefix", Kind::Text, "\"blitz:\"", "the beginning of the names of keys; processes with the same one share their limits"),
    key(Scope::Redis, "timeout", Kind::Time, "\"250ms\"", "how long a response may take, from 10 ms to 5 s"),
    key(Scope::Redis, "url", Kind::Text, "", "the server: `redis://user:password@host:6379/0`"),
    key(Scope::SiteLimits, "fields_max", Kind::NumberTo(FIELDS_MAX), "that of the process", "fields of a request"),
    key(Scope::SiteLimits, "head_max", Kind::SizeTo(HEAD_MAX), "that of the process", "bytes of the fields of a request"),
    key(Scope::SiteLimits, "request_line_max", Kind::SizeTo(HEAD_MAX), "that of the process", "bytes of a request line"),
    key(Scope::SiteLimits, "trailers_max", Kind::SizeTo(HEAD_MAX), "that of the process", "bytes of the trailers of a request, where they are forwarded"),
    key(Scope::Outlier, "failures", Kind::NumberTo(FAILURES_MAX), "5", "consecutive failures after which a server is compared with the others"),
    key(Scope::Outlier, "latency", Kind::NumberTo(TIMES_MAX), "off", "how many times the median response time of the others a server may take"),
    key(Scope::Outlier, "time", Kind::Time, "5s", "how long the first ejection lasts; it doubles each time, up to a minute"),
    key(Scope::UpstreamLimits, "fields_max", Kind::NumberTo(FIELDS_MAX), "`upstream_fields_max` of the process", "fields of a response, and of its trailers"),
    key(Scope::UpstreamLimits, "head_max", Kind::SizeTo(HEAD_MAX), "`upstream_head_max` of the process", "bytes of the fields of a response, and of its trailers"),
    key(Scope::Health, "body", Kind::Text, "none", "a text that a healthy response has within its first 64 KiB"),
    key(Scope::Health, "fall", Kind::NumberTo(100), "3", "checks in a row that fail, after which a server is down"),
    key(Scope::Health, "host", Kind::Text, "that of the URL", "the host of the request"),
    key(Scope::Health, "interval", Kind::Time, "10s", "the time between two checks, 20 % more or less, from 100 ms to 1 hour"),
    key(Scope::Health, "kind", Kind::OneOf(&["http", "grpc", "tcp", "tls"]), "\"http\"", "the demand on a server"),
    key(Scope::Health, "path", Kind::Text, "", "path and query of the request"),
    key(Scope::Health, "rise", Kind::NumberTo(100), "2", "checks in a row that succeed, after which a server is up again"),
    key(Scope::Health, "service", Kind::Text, "the whole server", "the service of gRPC"),
    key(Scope::Health, "status", Kind::StatusOrStatuses, "\"2xx\"", "the statuses of a healthy response"),
    key(Scope::Health, "timeout", Kind::Time, "2s", "how long a check may take, from 10 ms to 1 minute"),
    key(Scope::Control, "listen", Kind::ControlAddress, "\"127.0.0.1:9180\"", "the address of health, metrics and state, which changes nothing"),
    key(Scope::Control, "socket", Kind::Socket, "\"/run/blitz/control.sock\"", "the socket of `blitz reload`"),
    key(Scope::Tls, "cert", Kind::Text, "one of `certificates`", "the file with the certificate"),
    key(Scope::Tls, "key", Kind::Text, "in the same file or beside it", "the file with its key"),
    key(Scope::Tls, "client_auth", Kind::OneOf(&["required", "optional"]), "\"required\"", "whether handshakes fail without a certificate of the client"),
    key(Scope::Tls, "client_ca", Kind::Text, "none", "the file with the authorities of [client certificates](client-certificates.md)"),
    key(Scope::Tls, "client_cert_header", Kind::Boolean, "false", "whether upstreams get the client's certificate, in `Client-Cert` (RFC 9440)"),
    key(Scope::Tls, "min", Kind::OneOf(&["1.2", "1.3"]), "\"1.2\"", "the least version of TLS"),
    key(Scope::Certificate, "cert", Kind::Text, "", "the file with the certificate"),
    key(Scope::Certificate, "key", Kind::Text, "in the same file or beside it", "the file with its key"),
    key(Scope::When, "client", Kind::Clients, "", "the address of the client"),
    key(Scope::When, "cookie", Kind::Matches, "", "cookies of the request"),
    key(Scope::When, "grpc", Kind::Boolean, "", "whether the request is a call of gRPC"),
    key(Scope::When, "header", Kind::Matches, "", "fields of the request"),
    key(Scope::When, "method", Kind::MethodOrMethods, "", "methods of the request"),
    key(Scope::When, "query", Kind::Matches, "", "parameters of the query"),
    key(Scope::When, "websocket", Kind::Boolean, "", "whether the request opens a WebSocket"),
    key(Scope::Listener, "address", Kind::Text, "", "the address"),
    key(Scope::Listener, "proxy_protocol", Kind::Boolean, "false", "whether connections begin with a PROXY header of a trusted proxy"),
    key(Scope::Queue, "max", Kind::NumberTo(CONNECTIONS_MAX), "4096", "the most requests of a core that wait for a connection to an address"),
    key(Scope::Queue, "timeout", Kind::Duration, "5s, or `timeout.connect` if longer", "how long a request waits for a connection"),
    key(Scope::Retry, "budget", Kind::Share, "0.2", "the share of the requests that may be sent again; 10 a second may be in any case"),
    key(Scope::Retry, "on", Kind::Statuses, "none", "statuses of responses in whose place a request is sent again: `[502, 503, 504, 425]`"),
    planned(Scope::Listener, "protocol", "the versions of HTTP"),
];

/// An earlier name of a key, which works for a year, with a warning that `blitz fmt --fix` repairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Renamed {
    /// The scope of the key in [`KEYS`].
    pub(crate) scope: Scope,
    pub(crate) old: &'static str,
    pub(crate) new: &'static str,
    /// The first day on which the old name is an error, as `2027-11-30`.
    pub(crate) until: &'static str,
}

/// All earlier names that still work.
pub(crate) const RENAMED: &[Renamed] = &[];

/// The table of these keys.
pub(crate) fn table_name(scope: Scope) -> &'static str {
    match scope {
        Scope::Top => "",
        Scope::Site => "site",
        Scope::Route => "route",
        Scope::Defaults => "defaults",
        Scope::Upstream => "upstream",
        Scope::Shed => "shed",
        Scope::Timeout => "timeout",
        Scope::Respond => "respond",
        Scope::Buffer => "buffer_request",
        Scope::Cors => "cors",
        Scope::Compress => "compress",
        Scope::Decompress => "decompress",
        Scope::Mirror => "mirror",
        Scope::Jwt => "jwt",
        Scope::ForwardAuth => "forward_auth",
        Scope::ForwardAuthCache => "forward_auth_cache",
        Scope::RateLimit => "rate_limit",
        Scope::Networks => "networks",
        Scope::SecurityHeaders => "security_headers",
        Scope::BasicAuth => "basic_auth",
        Scope::ApiKeys => "api_keys",
        Scope::Server => "server",
        Scope::Log => "log",
        Scope::AccessLog => "access_log",
        Scope::AccessLogWhen => "access_log_when",
        Scope::Limits => "limits",
        Scope::Metrics => "metrics",
        Scope::Tracing => "tracing",
        Scope::Redis => "redis",
        Scope::SiteLimits => "site_limits",
        Scope::UpstreamLimits => "upstream_limits",
        Scope::Outlier => "outlier",
        Scope::Health => "health",
        Scope::Control => "control",
        Scope::Tls => "tls",
        Scope::Certificate => "certificates",
        Scope::Preset => "preset",
        Scope::When => "when",
        Scope::Listener => "listen",
        Scope::Retry => "retry",
        Scope::Queue => "queue",
    }
}

/// The key of this name that may be written in this scope. A site has the keys of routes.
pub(crate) fn find(scope: Scope, name: &str) -> Option<&'static Key> {
    of(scope).find(|key| key.name == name)
}

/// Keys of sites that `defaults` has, too.
const SITE_DEFAULTS: [&str; 2] = ["https_redirect", "tls"];

/// Keys of routes that presets and blocks `when` do not have.
const OWN: [&str; 3] = ["priority", "use", "when"];

/// Keys of routes that `defaults` does not have.
const NO_DEFAULTS: [&str; 2] = ["priority", "when"];

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
            scope => scope == Scope::Route && !NO_DEFAULTS.contains(&key.name),
        },
        Scope::Preset => key.scope == Scope::Route && !OWN.contains(&key.name),
        Scope::When => match key.scope {
            Scope::Route => !OWN.contains(&key.name),
            scope => scope == Scope::When,
        },
        _ => key.scope == scope,
    };
    KEYS.iter().filter(is_of)
}

impl Key {
    /// Whether `false` takes away what is inherited.
    pub(crate) fn is_removable(&self) -> bool {
        let is_inherited = matches!(
            self.scope,
            Scope::Route | Scope::Timeout | Scope::SecurityHeaders
        );
        let is_other = matches!(
            self.kind,
            Kind::Boolean
                | Kind::Compress
                | Kind::Decompress
                | Kind::SecurityHeaders
                | Kind::NumberTo(_)
                | Kind::ZeroTo(_)
                | Kind::Target
                | Kind::Redirect
                | Kind::Respond
                | Kind::Names
                | Kind::Folder
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
            Scope::Buffer,
            Scope::Compress,
            Scope::Decompress,
            Scope::Mirror,
            Scope::Shed,
            Scope::Server,
            Scope::Log,
            Scope::Limits,
            Scope::Metrics,
            Scope::Tracing,
            Scope::Redis,
            Scope::SiteLimits,
            Scope::UpstreamLimits,
            Scope::Outlier,
            Scope::Health,
            Scope::Control,
            Scope::Tls,
            Scope::Certificate,
            Scope::Preset,
            Scope::When,
            Scope::Listener,
            Scope::Retry,
            Scope::Queue,
        ] {
            for key in of(scope) {
                let same = of(scope).filter(|other| other.name == key.name);
                assert_eq!(same.count(), 1, "{} in {scope:?}", key.name);
            }
        }
    }
}
