//! Remedies for values of `--to` that are not valid, guessed from what people write.

use super::parse::InvalidTarget;

/// Protocols of application servers that are not HTTP.
const OTHER_PROTOCOLS: [&str; 7] = ["fcgi", "fastcgi", "uwsgi", "scgi", "ajp", "file", "ftp"];

/// The first folders of absolute paths in which sockets usually are.
const FOLDERS: [&str; 6] = ["run", "var", "tmp", "srv", "home", "opt"];

fn hint(problem: impl Into<String>, fix: impl Into<String>) -> InvalidTarget {
    InvalidTarget {
        problem: problem.into(),
        fix: fix.into(),
    }
}

/// For `NAME=URL`: a value with a prefix that does not begin with a slash.
pub(super) fn prefix_without_slash(value: &str) -> Option<InvalidTarget> {
    let (prefix, url) = value.split_once('=')?;
    // Otherwise the equals sign is in the URL.
    if prefix.contains("://") || prefix.contains("unix:") {
        return None;
    }
    let url = with_scheme(url);
    let path = prefix.trim_start_matches(['^', '~', '/']);
    let is_host = prefix.contains(['.', ':']) || prefix == "localhost";
    Some(if prefix.is_empty() || prefix == "*" {
        hint(
            format!("{prefix:?} is not a prefix"),
            format!("write {url} for all paths"),
        )
    } else if prefix.starts_with(['^', '~']) {
        hint(
            "a prefix is plain text, not a regular expression",
            format!("write /{path}={url} for paths below /{path}"),
        )
    } else if is_host {
        hint(
            format!("{prefix:?} is a host, but targets are selected by path only"),
            format!(
                "write {url} for all hosts, or /PREFIX={url} for a path; for several hosts run one \
                 Blitz for each"
            ),
        )
    } else {
        hint(
            format!("the slash before {prefix:?} is missing"),
            format!("write /{prefix}={url}"),
        )
    })
}

/// For a value that begins with a slash and has no equals sign.
pub(super) fn prefix_without_url(value: &str) -> InvalidTarget {
    let scheme = ["http://", "https://", "h2c://", "unix:"];
    let at = scheme.iter().filter_map(|scheme| value.find(scheme)).min();
    if let Some(at) = at {
        let prefix = value[..at].trim_end_matches([':', '>', '-', ',', '|']);
        let url = &value[at..];
        return hint(
            "the = between prefix and URL is missing",
            format!("write {prefix}={url}"),
        );
    }
    if value.ends_with(".sock") || value.ends_with(".socket") {
        return hint(
            "the unix: of a socket is missing",
            format!("write unix:{value}"),
        );
    }
    hint(
        "a value that begins with / is PREFIX=URL, and the =URL is missing",
        format!("write for example --to {value}=http://127.0.0.1:3000"),
    )
}

/// For a value with a character that is neither in a prefix nor in a URL.
pub(super) fn bad_character(value: &str, bad: char) -> InvalidTarget {
    let mut words = value.split_whitespace();
    let fix = match (words.next(), words.next()) {
        (Some(prefix), Some(url)) if prefix.starts_with('/') && url.contains("://") => {
            format!("write {prefix}={url}")
        }
        _ => String::from("remove it; encode a blank in a path as %20"),
    };
    hint(format!("it contains {bad:?}"), fix)
}

/// For a socket with a path that is not absolute.
pub(super) fn relative_socket(path: &str) -> InvalidTarget {
    let path = path.strip_prefix("./").unwrap_or(path);
    let (folder, name) = path.split_once('/').unwrap_or(("", path));
    let fix = if name.trim_matches('/').is_empty() {
        String::from("write for example unix:/run/app.sock")
    } else if FOLDERS.contains(&folder) {
        format!("write unix:/{path}, or unix:$PWD/{path} for a path below this folder")
    } else {
        format!("write unix:$PWD/{path} for a path below this folder, or unix:/run/app.sock")
    };
    hint("a unix socket needs an absolute path", fix)
}

/// For a URL that begins with none of `http://`, `https://`, `h2c://` and `unix:`.
pub(super) fn wrong_scheme(url: &str) -> InvalidTarget {
    if let Some((scheme, path)) = url.split_once("+unix:") {
        return hint(
            format!("the scheme {scheme}+unix: is unknown; unix sockets carry HTTP/1.1"),
            format!("write unix:/{}", path.trim_start_matches('/')),
        );
    }
    if let Some(fixed) = without_typo(url) {
        return hint(
            "there is no :// between the scheme and the host",
            format!("write {fixed}"),
        );
    }
    match url.split_once("://") {
        Some((scheme, rest)) => unknown_scheme(&scheme.to_ascii_lowercase(), rest),
        None => no_scheme(url),
    }
}

fn unknown_scheme(scheme: &str, rest: &str) -> InvalidTarget {
    let unknown = format!("the scheme {scheme}:// is unknown");
    match scheme {
        "h2" | "http2" | "grpc" => hint(
            unknown,
            format!("write h2c://{rest} for HTTP/2 without TLS, or https://{rest}"),
        ),
        "grpcs" => hint(
            unknown,
            format!("write https://{rest}, which uses HTTP/2 if the upstream offers it"),
        ),
        "h3" | "quic" => hint(
            "HTTP/3 to upstreams is not available",
            format!("write https://{rest}"),
        ),
        "ws" | "wss" => hint(
            format!("{scheme}:// is not needed, because other targets carry WebSockets as well"),
            format!("write {}://{rest}", scheme.replace("ws", "http")),
        ),
        _ if OTHER_PROTOCOLS.contains(&scheme) => hint(
            format!("the scheme {scheme}:// is unknown: upstreams speak HTTP"),
            "let the application listen for HTTP, and write http://HOST:PORT or unix:/PATH",
        ),
        _ if scheme.starts_with(['"', '\'']) => hint(
            "the value contains quotation marks",
            "leave them out; a shell removes them, but files of systemd and Compose may keep them",
        ),
        _ => hint(
            unknown,
            format!("write http://{rest}, https://{rest} for TLS, or unix:/PATH for a socket"),
        ),
    }
}

fn no_scheme(url: &str) -> InvalidTarget {
    if url.is_empty() {
        return hint(
            "the URL is missing",
            "write for example http://127.0.0.1:3000",
        );
    }
    if url.bytes().all(|b| b.is_ascii_digit()) {
        let fix = match url.parse::<u16>() {
            Ok(1..) => format!("write http://127.0.0.1:{url}"),
            _ => String::from("write http://127.0.0.1:PORT; a port is at most 65535"),
        };
        return hint("a port alone is not a URL", fix);
    }
    if url.starts_with('/') {
        return hint(
            "a path alone is not a URL",
            format!("write http://HOST:PORT{url}, or unix:{url} for a socket"),
        );
    }
    let url = match url.strip_prefix(':') {
        Some(port) => format!("127.0.0.1:{port}"),
        None => url.to_owned(),
    };
    hint(
        "the URL has no scheme",
        format!("write http://{url}, https://{url} for TLS, or h2c://{url} for HTTP/2 without TLS"),
    )
}

/// The URL with `://` in place of something similar, as in `http//host`.
fn without_typo(url: &str) -> Option<String> {
    ["https", "http", "h2c"].into_iter().find_map(|scheme| {
        let (start, rest) = url.split_at_checked(scheme.len())?;
        let host = rest.trim_start_matches([':', ';', '/', '\\', '.']);
        let separator = &rest[..rest.len() - host.len()];
        let is_typo = start.eq_ignore_ascii_case(scheme)
            && separator.contains(['/', '\\', ';', ':'])
            && separator != "://"
            && !host.is_empty();
        // `http:3000` is a host and a port.
        let is_port = separator == ":" && host.bytes().all(|b| b.is_ascii_digit());
        (is_typo && !is_port).then(|| format!("{scheme}://{host}"))
    })
}

fn with_scheme(url: &str) -> String {
    if url.contains("://") || url.starts_with("unix:") {
        url.trim_start_matches('>').to_owned()
    } else if !url.is_empty() && url.bytes().all(|b| b.is_ascii_digit()) {
        format!("http://127.0.0.1:{url}")
    } else if url.is_empty() {
        String::from("http://127.0.0.1:3000")
    } else {
        format!("http://{url}")
    }
}
