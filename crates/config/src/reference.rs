//! The page with all keys, `docs/keys.md`, made from their table.

use crate::keys::{KEYS, Key, Kind, Scope, Since, table_name};

/// The tables of the page, in its order: the heading, and the text above the keys.
const SECTIONS: &[(Scope, &str, &str)] = &[
    (
        Scope::Top,
        "Top of the file",
        "Keys above the first table. `defaults` has `tls`, `https_redirect` and [the keys of routes](#routes) but `when`.",
    ),
    (
        Scope::Site,
        "Sites",
        "Keys of `[site.\"HOST\"]`, which also has [the keys of routes](#routes), for its route `/`.",
    ),
    (
        Scope::Route,
        "Routes",
        "Keys of `\"/PATH\"` in a site, of a site itself, and of `defaults`. `false` takes away an inherited value, except of\n\
         booleans, `to`, `redirect` and `respond`.",
    ),
    (
        Scope::Timeout,
        "Table timeout",
        "Keys of `timeout` in a route.",
    ),
    (
        Scope::Respond,
        "Table respond",
        "Keys of `respond` in a route, if it is a table.",
    ),
    (
        Scope::Buffer,
        "Table buffer_request",
        "Keys of `buffer_request` in a route, if it is a table.",
    ),
    (
        Scope::Cors,
        "Table cors",
        "Keys of `cors` in a route, if it is a table.",
    ),
    (
        Scope::Compress,
        "Table compress",
        "Keys of `compress` in a route, if it is a table; without one of them its default applies.",
    ),
    (
        Scope::Jwt,
        "Table jwt",
        "Keys of `jwt` in a route. It has one of `keys_url`, `keys_file`, `secret_file` and `secret`. [Access](access.md) has examples.",
    ),
    (
        Scope::ForwardAuth,
        "Table forward_auth",
        "Keys of `forward_auth` in a route. [Forward authentication](forward-auth.md) has examples.",
    ),
    (
        Scope::ForwardAuthCache,
        "Table forward_auth_cache",
        "Keys of `cache` in `forward_auth`.",
    ),
    (
        Scope::RateLimit,
        "Table rate_limit",
        "Keys of `rate_limit` in a route, if it is a table.",
    ),
    (
        Scope::Networks,
        "Table networks",
        "Keys of `allow` and `deny` in a route, if they are tables. [Networks](networks.md) has the files.",
    ),
    (
        Scope::Decompress,
        "Table decompress",
        "Keys of `decompress` in a route, if it is a table; without one of them its default applies.",
    ),
    (
        Scope::Mirror,
        "Table mirror",
        "Keys of `mirror` in a route. [Mirroring](mirroring.md) has examples.",
    ),
    (
        Scope::SecurityHeaders,
        "Table security_headers",
        "Keys of `security_headers` in a route, if it is a table; the others have their defaults. `false` leaves a field out.",
    ),
    (
        Scope::BasicAuth,
        "Table basic_auth",
        "Keys of `basic_auth` in a route, if it is a table. [Passwords](passwords.md#names-with-passwords) has examples.",
    ),
    (
        Scope::ApiKeys,
        "Table api_keys",
        "Keys of `api_keys` in a route. [Keys of programs](passwords.md#keys-of-programs) has examples.",
    ),
    (
        Scope::When,
        "Blocks when",
        "Conditions of a block `[[site.\"HOST\".when]]`, which also has keys of routes but `use`.",
    ),
    (Scope::Upstream, "Upstreams", "Keys of `[upstream.NAME]`."),
    (
        Scope::Retry,
        "Table retry",
        "Keys of `retry` in an upstream. [Retries](retries.md) has examples.",
    ),
    (
        Scope::Queue,
        "Table queue",
        "Keys of `queue` in an upstream. [Retries](retries.md#queues) has an example.",
    ),
    (
        Scope::Shed,
        "Table shed",
        "Keys of `shed` in an upstream, if it is a table; without one of them its default applies. [Overload](overload.md)\n\
         has examples.",
    ),
    (
        Scope::Listener,
        "Tables of listeners",
        "Keys of a table in the lists `listen` and `listen_tls`.",
    ),
    (
        Scope::Tls,
        "Table tls",
        "Keys of `tls` in a site, if it is a table.",
    ),
    (
        Scope::Certificate,
        "Tables of certificates",
        "Keys of a table in the list `certificates`.",
    ),
    (
        Scope::Server,
        "Table server",
        "Keys of `[server]`: settings of the process.",
    ),
    (Scope::Log, "Table log", "Keys of `[log]`."),
    (
        Scope::AccessLog,
        "Table access_log",
        "Keys of `access` in `[log]`, if it is a table. [The access log](access-log.md) lists the fields.",
    ),
    (
        Scope::AccessLogWhen,
        "Table access_log_when",
        "Keys of `when` in the table `log.access`.",
    ),
    (
        Scope::Limits,
        "Table limits",
        "Keys of `[limits]`: sizes are in bytes.",
    ),
    (Scope::Metrics, "Table metrics", "Keys of `[metrics]`."),
    (
        Scope::Tracing,
        "Table tracing",
        "Keys of `[tracing]`. [Traces](tracing.md) has examples.",
    ),
    (
        Scope::Redis,
        "Table redis",
        "Keys of `[redis]`; a text is its `url`. [Rate limits](rate-limits.md#several-processes) has examples.",
    ),
    (
        Scope::SiteLimits,
        "Table limits of a site",
        "Keys of `limits` in a site, which are at most those of the process.",
    ),
    (
        Scope::UpstreamLimits,
        "Table limits of an upstream",
        "Keys of `limits` in an upstream, which may be more or less than those of the process.",
    ),
    (
        Scope::Outlier,
        "Table outlier",
        "Keys of `outlier` in an upstream, if it is a table.",
    ),
    (
        Scope::Health,
        "Table health",
        "Keys of `health` in an upstream; a text is its `path`. [Health of servers](health.md) has examples.",
    ),
    (
        Scope::Control,
        "Table control",
        "Keys of `[control]`. `control = false` is the same as `false` for both.",
    ),
];

/// The content of `docs/keys.md`: a table for each scope.
#[must_use]
pub fn reference() -> String {
    let mut page = String::from(
        "# Keys of the configuration file\n\n\
         All keys, with their defaults. [The configuration file](configuration.md) describes the language. A key that is\n\
         *not yet* in this version is the error `not-yet`. `cargo xtask reference` writes this page from the table in\n\
         [keys.rs](../crates/config/src/keys.rs).\n",
    );
    for (scope, title, text) in SECTIONS {
        page += &format!(
            "\n## {title}\n\n{text}\n\n| key | value | default | meaning |\n|---|---|---|---|\n"
        );
        let (built, planned): (Vec<_>, Vec<_>) = KEYS
            .iter()
            .filter(|key| key.scope == *scope)
            .partition(|key| key.since != Since::NotYet);
        for key in built.into_iter().chain(planned) {
            page += &row(key);
        }
    }
    page
}

fn row(key: &Key) -> String {
    let (value, default) = match key.since {
        Since::Version(_) => (value(key.kind), default(key)),
        Since::NotYet => ("*not yet*".to_owned(), String::new()),
    };
    let cells = [
        format!("`{}`", key.name),
        value,
        default,
        key.text.to_owned(),
    ];
    let cells = cells.map(|cell| match cell.is_empty() {
        true => " ".to_owned(),
        false => format!(" {cell} "),
    });
    format!("|{}|\n", cells.join("|"))
}

/// Values by which limits count.
const RATE_KEYS: &str = "`\"client\"`, `\"user\"`, `\"header:NAME\"`, `\"cookie:NAME\"`, `\"jwt:CLAIM\"`, a list of these, \
                         whose combinations are counted, or `\"route\"` for all requests together";

/// Values of `sticky`.
const STICKY: &str =
    "`\"cookie\"`, `\"cookie:NAME\"`, `\"client\"`, `\"header:NAME\"` or `\"jwt:CLAIM\"`";

/// Values of `hash`.
const SERVER_KEY: &str = "`\"client\"`, `\"header:NAME\"`, `\"cookie:NAME\"` or `\"jwt:CLAIM\"`";

/// Values of `to`.
const TARGET: &str =
    "URL without a path, or the name of an upstream; a list of them; or their weights";

/// Values of `servers`.
const SERVERS: &str = "list of URLs, or their weights: `{ \"http://10.0.0.1:3000\" = 3, \"http://10.0.0.2:3000\" = 1 }`";

/// Conditions on values.
const MATCHES: &str =
    "by names: `\"text\"`, `\"text*\"`, `\"~regex\"`, `\"!…\"`, `true` or `false`";

/// The allowed values of a key, for the table.
fn value(kind: Kind) -> String {
    let text = match kind {
        Kind::Boolean => "`true` or `false`",
        Kind::Version => "`1`",
        Kind::Folder => "folder: `\"/srv/www\"`",
        Kind::Text => "text",
        Kind::Texts => "list of texts",
        Kind::Networks => "list of networks: `\"10.0.0.0/8\"`, `\"192.0.2.7\"`, `\"unix\"`",
        Kind::ClientNetworks => "list of networks, or a [table](#table-networks) with files",
        Kind::Methods => "list of methods: `[\"GET\", \"POST\"]`",
        Kind::Duration => "duration: `\"30s\"`, or `\"forever\"`",
        Kind::Time => "duration: `\"30s\"`, or `\"0\"`",
        Kind::Seconds => "duration in whole seconds: `\"30s\"`, or `\"0\"`",
        Kind::TimeLimit => "duration: `\"30s\"`, `\"0\"` or `\"forever\"`",
        Kind::Size => "size: `\"10m\"`",
        Kind::Cors => "list of origins: `[\"https://app.example\"]`, or a [table](#table-cors)",
        Kind::SecurityHeaders => "boolean, or a [table](#table-security_headers)",
        Kind::Switch(scope) => return switch(scope),
        Kind::Compress => "boolean, `\"files\"`, or a [table](#table-compress)",
        Kind::Decompress => "boolean, or a [table](#table-decompress)",
        Kind::FieldNames => "name of a field, or list of names",
        Kind::BasicAuth => "file, or a [table](#table-basic_auth)",
        Kind::RateLimit => "rate: `\"100/s\"`, or a [table](#table-rate_limit)",
        Kind::Rate => "rate: `\"100/s\"`, `/min`, `/h`, `/d`",
        Kind::RateKeys => RATE_KEYS,
        Kind::RequestBuffer => "size: `\"1m\"`, or a [table](#table-buffer_request)",
        Kind::SizeTo(max) => return format!("size up to `\"{}\"`", in_units(max)),
        Kind::NumberTo(max) | Kind::CountTo(max) => return format!("1 to {max}"),
        Kind::ZeroTo(max) => return format!("0 to {max}"),
        Kind::OneOf(words) => return one_of(words),
        Kind::Socket => "path of a socket, or `false`",
        Kind::AccessLog => "destination: `\"stdout\"`, a [table](#table-access_log), or `false`",
        Kind::Percent => "number above 0 and up to 100: `10`",
        Kind::Share => "number from 0 to 1: `0.01`",
        Kind::Statuses => "list of statuses: `[404, \"5xx\"]`",
        Kind::StatusOrStatuses => "status: `204`, `\"2xx\"`, or a list of these",
        Kind::Health => "path: `\"/healthz\"`, or a [table](#table-health)",
        Kind::ControlAddress => "address, or `false`",
        Kind::Certificates => "list of files, or of [tables](#tables-of-certificates)",
        Kind::Tls => "`true`, `false`, or a [table](#table-tls)",
        Kind::Status => "200 to 599",
        Kind::Target => TARGET,
        Kind::Servers => SERVERS,
        Kind::Sticky => STICKY,
        Kind::ServerKey => SERVER_KEY,
        Kind::Redirect => "`\"STATUS URL\"` or `\"STATUS /path\"`",
        Kind::Respond => "`204`, `\"503 text\"`, or a [table](#table-respond)",
        Kind::Fields => "[changes of fields](configuration.md#routes) by their names",
        Kind::ErrorPages => "files by statuses: `{ 404 = \"404.html\", 5xx = \"50x.html\" }`",
        Kind::Table(Scope::Redis) => "URL, or a [table](#table-redis)",
        Kind::Table(scope) => return table(scope),
        Kind::Sites => "[sites](#sites) by their hosts, or their URLs",
        Kind::Upstreams => "[upstreams](#upstreams) by their names",
        Kind::Listeners => "list of addresses, or of [tables](#tables-of-listeners)",
        Kind::Presets => "[keys of routes](#routes) but `use` and `when`, by names",
        Kind::Names => "name, or list of names",
        Kind::OneOrMore => "text, or list of texts",
        Kind::ClaimFields => "claims by names of fields: `{ X-User = \"sub\" }`",
        Kind::ClaimDemands => {
            "demands by claims: `{ role = \"admin\" }`, `{ role = [\"a\", \"b\"] }`, `{ role = true }`"
        }
        Kind::Blocks => "list of [blocks](#blocks-when)",
        Kind::Matches => MATCHES,
        Kind::FieldTexts => "texts by names of fields: `{ X-Api-Key = \"${KEY}\" }`",
        Kind::Clients => "network, or list of networks, with `!` for all others",
        Kind::MethodOrMethods => "method, or list of methods",
    };
    text.to_owned()
}

fn switch(scope: Scope) -> String {
    format!("boolean, or a [table](#table-{})", table_name(scope))
}

/// A link to the keys of a table.
fn table(scope: Scope) -> String {
    let found = SECTIONS.iter().find(|(section, ..)| *section == scope);
    match found {
        Some((_, title, _)) => {
            let anchor = title.to_lowercase().replace(' ', "-");
            format!("[table](#{anchor})")
        }
        None => "table".to_owned(),
    }
}

/// A size in its largest unit.
fn in_units(bytes: u64) -> String {
    let units = [(1 << 30, "g"), (1 << 20, "m"), (1 << 10, "k")];
    let unit = units
        .into_iter()
        .find(|(size, _)| bytes.is_multiple_of(*size));
    unit.map_or_else(
        || bytes.to_string(),
        |(size, name)| format!("{}{name}", bytes / size),
    )
}

/// `"a"`, `"b"` or `"c"`.
fn one_of(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`\"{word}\"`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

/// The default as it would be written in a file, if it is a value.
fn default(key: &Key) -> String {
    let default = key.default;
    let is_quantity = matches!(
        key.kind,
        Kind::Duration
            | Kind::Time
            | Kind::Seconds
            | Kind::TimeLimit
            | Kind::Size
            | Kind::SizeTo(_)
    );
    let begins_with_digit = default.starts_with(|first: char| first.is_ascii_digit());
    if is_quantity && begins_with_digit {
        return format!("`\"{default}\"`");
    }
    let end = match default.chars().next() {
        Some('[') => default.find(']'),
        Some('"') => default.rfind('"'),
        _ => None,
    };
    match end {
        Some(end) => {
            let (value, rest) = default.split_at(end + 1);
            format!("`{value}`{rest}")
        }
        None if begins_with_digit || ["true", "false"].contains(&default) => format!("`{default}`"),
        None => default.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_a_row() {
        let page = reference();
        for key in KEYS {
            assert!(page.contains(&row(key)), "{} in {:?}", key.name, key.scope);
        }
        let rows = page.lines().filter(|line| line.starts_with("| `"));
        assert_eq!(rows.count(), KEYS.len());
    }

    #[test]
    fn values_and_defaults_are_those_of_a_file() {
        let page = reference();
        for line in [
            "| `connect` | duration: `\"30s\"`, or `\"forever\"` | `\"4s\"` | how long connecting may take |",
            "| `io` | `\"auto\"`, `\"uring\"` or `\"epoll\"` | `\"auto\"` | the I/O driver |",
            "| `head_max` | size up to `\"1m\"` | `\"32k\"` | bytes of the fields of a request |",
            "| `listen_tls` | list of addresses, or of [tables](#tables-of-listeners) | `[\":443\"]` if a site has TLS | addresses for HTTPS and HTTP/3 |",
            "| `timeout` | [table](#table-timeout) | | how long an upstream may take |",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
    }
}
