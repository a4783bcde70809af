//! Suggestions for misspelt words and for words of other servers.

/// Words of other servers in lower case, with their replacements.
const FOREIGN: &[(&str, &str, &str)] = &[
    ("body_limit", "other servers", "write `body_max`"),
    (
        "certificate",
        "other servers",
        "write `certificates` at the top of the file",
    ),
    (
        "hostname",
        "other servers",
        "the host is the name of the site: [site.\"app.example\"]",
    ),
    (
        "hsts",
        "other servers",
        "write `headers.Strict-Transport-Security = \"max-age=31536000\"`",
    ),
    ("max_body", "other servers", "write `body_max`"),
    ("proxy", "other servers", "write `to`"),
    (
        "response_headers",
        "other servers",
        "write `headers.NAME = \"value\"`",
    ),
    ("target", "other servers", "write `to`"),
    ("upstream_host", "other servers", "write `host`"),
    ("url", "other servers", "write `to`"),
    (
        "websocket",
        "other servers",
        "leave it out: WebSockets need no key",
    ),
    (
        "websockets",
        "other servers",
        "leave it out: WebSockets need no key",
    ),
    ("whitelist", "other servers", "write `allow`"),
    ("acl", "HAProxy", "write the path as a key: \"/api\" = …"),
    ("add_header", "nginx", "write `headers.NAME = \"value\"`"),
    ("add_prefix", "Traefik", "write `path = \"/v2{rest}\"`"),
    ("addprefix", "Traefik", "write `path = \"/v2{rest}\"`"),
    (
        "alias",
        "nginx",
        "write `files`: the folder stands for the path of the route",
    ),
    (
        "auth_basic",
        "nginx",
        "write `basic_auth = { users_file = \"FILE\", realm = \"TEXT\" }`",
    ),
    (
        "auth_basic_user_file",
        "nginx",
        "write `basic_auth = \"FILE\"`",
    ),
    (
        "basicauth",
        "Caddy and Traefik",
        "write `basic_auth = \"FILE\"`",
    ),
    ("autoindex", "nginx", "write `list = true`"),
    ("backend", "Traefik and HAProxy", "write `to`"),
    ("bind", "HAProxy and Caddy", "write `listen`"),
    ("client_max_body_size", "nginx", "write `body_max`"),
    ("cluster", "Envoy", "write `to`"),
    (
        "customrequestheaders",
        "Traefik",
        "write `request_headers.NAME = \"value\"`",
    ),
    (
        "customresponseheaders",
        "Traefik",
        "write `headers.NAME = \"value\"`",
    ),
    ("default_backend", "HAProxy", "write `to`"),
    ("direct_response", "Envoy", "write `respond`"),
    ("entrypoints", "Traefik", "write `listen` or `listen_tls`"),
    ("error_page", "nginx", "write `errors.404 = \"FILE\"`"),
    ("errorfile", "HAProxy", "write `errors.503 = \"FILE\"`"),
    (
        "expires",
        "nginx",
        "write `headers.Cache-Control = \"max-age=…\"`",
    ),
    (
        "fallthrough",
        "other servers",
        "leave it out: write `fallback` for pages without a file",
    ),
    ("file_server", "Caddy", "write `files = \"/srv/www\"`"),
    ("handle", "Caddy", "write the path as a key: \"/api\" = …"),
    ("handle_errors", "Caddy", "write `errors.404 = \"FILE\"`"),
    (
        "handle_path",
        "Caddy",
        "write the path as a key, with `path = \"{rest}\"`",
    ),
    ("header_down", "Caddy", "write `headers.NAME = \"value\"`"),
    (
        "header_up",
        "Caddy",
        "write `request_headers.NAME = \"value\"`",
    ),
    ("host_rewrite", "Envoy", "write `host`"),
    ("ipallowlist", "Traefik", "write `allow`"),
    ("ipwhitelist", "Traefik", "write `allow`"),
    (
        "limit_except",
        "nginx",
        "write `methods`, or a key such as \"GET /api\"",
    ),
    ("location", "nginx", "write the path as a key: \"/api\" = …"),
    (
        "middlewares",
        "Traefik",
        "write the policies as keys of the route",
    ),
    (
        "more_set_headers",
        "nginx",
        "write `headers.NAME = \"value\"`",
    ),
    ("prefix_rewrite", "Envoy", "write `path = \"/v2{rest}\"`"),
    ("proxy_connect_timeout", "nginx", "write `timeout.connect`"),
    ("proxy_hide_header", "nginx", "write `headers.NAME = false`"),
    ("proxy_pass", "nginx", "write `to`"),
    (
        "proxy_read_timeout",
        "nginx",
        "write `timeout.response` and `timeout.idle`",
    ),
    (
        "proxy_set_header",
        "nginx",
        "write `request_headers.NAME = \"value\"`, or `host` for Host",
    ),
    ("proxypass", "Apache", "write `to`"),
    ("redir", "Caddy", "write `redirect = \"301 https://…\"`"),
    (
        "redirectregex",
        "Traefik",
        "write `redirect = \"301 https://…\"`",
    ),
    (
        "redirectscheme",
        "Traefik",
        "write `https_redirect` in a site with `tls`",
    ),
    ("remote_ip", "Caddy", "write `allow` or `deny`"),
    ("request_body", "Caddy", "write `body_max`"),
    (
        "return",
        "nginx",
        "write `redirect = \"301 https://…\"`, or `respond = 204`",
    ),
    ("reverse_proxy", "Caddy", "write `to`"),
    (
        "rewrite",
        "nginx and Caddy",
        "write `path` for the upstream, or `redirect` for the client",
    ),
    ("root", "nginx and Caddy", "write `files = \"/srv/www\"`"),
    ("gzip", "nginx", "write `compress = true`"),
    ("keepalive", "nginx", "leave it out: connections are kept"),
    (
        "large_client_header_buffers",
        "nginx",
        "write `limits.head_max` at the top of the file",
    ),
    (
        "least_conn",
        "nginx",
        "write `balance = \"least_requests\"` in an upstream",
    ),
    (
        "limit_req",
        "nginx",
        "limits of rates are planned, and without them there is none",
    ),
    (
        "proxy_buffering",
        "nginx",
        "leave it out: content is streamed",
    ),
    (
        "proxy_intercept_errors",
        "nginx",
        "write `replace_errors = true`",
    ),
    (
        "proxy_request_buffering",
        "nginx",
        "write `buffer_request = \"1m\"`",
    ),
    (
        "real_ip_header",
        "nginx",
        "write `trusted_proxies` at the top of the file",
    ),
    (
        "rule",
        "Traefik",
        "write the host as the name of a site, and the path as a key",
    ),
    (
        "server_name",
        "nginx",
        "write the host as the name of a site: [site.\"NAME\"]",
    ),
    ("service", "Traefik", "write `to`"),
    (
        "set_real_ip_from",
        "nginx",
        "write `trusted_proxies` at the top of the file",
    ),
    (
        "ssl_certificate",
        "nginx",
        "write `certificates` at the top of the file",
    ),
    (
        "ssl_certificate_key",
        "nginx",
        "the key is beside its file of `certificates`, as NAME.key",
    ),
    (
        "strip_prefix",
        "Traefik and Caddy",
        "write `path = \"{rest}\"`",
    ),
    ("stripprefix", "Traefik", "write `path = \"{rest}\"`"),
    (
        "try_files",
        "nginx and Caddy",
        "write `files`, with `extensions` or `fallback`",
    ),
    ("uri", "Caddy", "write `path`"),
    ("uri_strip_prefix", "Caddy", "write `path = \"{rest}\"`"),
    (
        "use_backend",
        "HAProxy",
        "write the path as a key, with `to`",
    ),
];

/// Placeholders of other servers, and ours.
const FOREIGN_PLACEHOLDERS: &[(&str, &str)] = &[
    ("uri", "{path}"),
    ("request_uri", "{path}"),
    ("http.request.uri", "{path}"),
    ("http.request.uri.path", "{path}"),
    ("http.request.host", "{host}"),
    ("http.request.method", "{method}"),
    ("http.request.scheme", "{scheme}"),
    ("http.request.uri.query", "{query}"),
    ("http.request.uuid", "{request_id}"),
    ("uuid", "{request_id}"),
    ("hostport", "{host}"),
    ("http_host", "{host}"),
    ("remote", "{client}"),
    ("remote_addr", "{client}"),
    ("remote_host", "{client}"),
    ("http.request.remote.host", "{client}"),
    ("client_ip", "{client}"),
    ("ip", "{client}"),
    ("args", "{query}"),
    ("query_string", "{query}"),
    ("url", "{path}"),
    ("proto", "{scheme}"),
];

/// Variables of nginx, with their replacements. None begins with another one before it.
const FOREIGN_VARIABLES: &[(&str, &str)] = &[
    ("$request_uri", "write {path}; the query is kept"),
    ("$uri", "write {path}"),
    ("$is_args", "leave it out; the query is kept"),
    ("$args", "write {query}"),
    ("$query_string", "write {query}"),
    ("$host", "write {host}"),
    ("$http_host", "write {host}"),
    ("$server_name", "write {host}"),
    ("$scheme", "write {scheme}"),
    ("$remote_addr", "write {client}"),
    ("$request_method", "write {method}"),
    ("$request_id", "write {request_id}"),
    (
        "$proxy_add_x_forwarded_for",
        "leave it out; forwarding fields are set without it",
    ),
];

/// The server whose word this is, and the replacement.
pub(crate) fn foreign(word: &str) -> Option<(&'static str, &'static str)> {
    let word = word.to_ascii_lowercase();
    let found = FOREIGN.iter().find(|(foreign, ..)| *foreign == word);
    found.map(|(_, server, label)| (*server, *label))
}

/// The replacement for a placeholder of another server.
pub(crate) fn foreign_placeholder(name: &str) -> Option<&'static str> {
    let found = FOREIGN_PLACEHOLDERS
        .iter()
        .find(|(foreign, _)| *foreign == name);
    found.map(|(_, ours)| *ours)
}

/// A variable of another server in a text, and its replacement.
pub(crate) fn foreign_variable(text: &str) -> Option<(&'static str, &'static str)> {
    let found = FOREIGN_VARIABLES
        .iter()
        .find(|(foreign, _)| text.contains(foreign));
    found.copied()
}

/// The word that differs least from this one, if it is near enough to be meant.
#[must_use]
pub fn nearest<'a>(word: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let distance_max = match word.chars().count() {
        0..=4 => 1,
        5..=7 => 2,
        _ => 3,
    };
    let with_distance = words.map(|other| (distance(word, other), other));
    let nearest = with_distance.min_by_key(|(distance, _)| *distance)?;
    (nearest.0 <= distance_max && nearest.0 < word.chars().count()).then_some(nearest.1)
}

/// The word that is meant without doubt: no other one is as near, and few characters differ.
pub(crate) fn certain<'a>(word: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let distance_max = match word.chars().count() {
        0 | 1 => 0,
        2..=7 => 1,
        _ => 2,
    };
    let mut near: Vec<_> = words.map(|other| (distance(word, other), other)).collect();
    near.sort_unstable();
    let (first, meant) = *near.first()?;
    let is_alone = near.get(1).is_none_or(|(second, _)| *second > first);
    (first <= distance_max && is_alone).then_some(meant)
}

/// The least number of characters that are inserted, removed, replaced or exchanged with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before_last[j - 2] + 1);
            }
            row.push(least);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_by_their_distance() {
        let words = ["to", "tls", "path", "aliases", "https_redirect"];
        for (word, expected) in [
            ("too", Some("to")),
            ("t", Some("to")),
            ("tsl", Some("tls")),
            ("alias", Some("aliases")),
            ("http_redirect", Some("https_redirect")),
            ("something", None),
        ] {
            let found = nearest(word, words.into_iter());
            // A single letter is no misspelling.
            let expected = expected.filter(|_| word.len() > 1);
            assert_eq!(found, expected, "{word}");
        }
    }

    #[test]
    fn a_repair_has_no_second_word_that_is_as_near() {
        let words = ["to", "tls", "path", "host", "https_redirect"];
        for (word, expected) in [
            ("too", Some("to")),
            ("pathh", Some("path")),
            ("http_redirec", Some("https_redirect")),
            ("hosts_x", None),
            ("ts", None),
            ("t", None),
        ] {
            assert_eq!(certain(word, words.into_iter()), expected, "{word}");
        }
        assert_eq!(certain("pat", ["path", "part"].into_iter()), None);
    }
}
