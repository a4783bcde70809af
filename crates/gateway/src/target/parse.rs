//! The parser of `--to`: a prefix, a URL, and the errors with their remedies.

use std::path::PathBuf;
use std::str::FromStr;

use blitz_http::{Protocol, Scheme};

use super::{Origin, Prefix, SERVICE_PREFIX, Target, TargetError, hint, host, path};

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(value: &str) -> Result<Target, TargetError> {
        target(value).map_err(|invalid| invalid.of(value))
    }
}

/// Parses the value of one `--to`.
pub(super) fn target(value: &str) -> Result<Target, InvalidTarget> {
    if value.is_empty() {
        return invalid(
            "the value is empty",
            "write for example --to http://127.0.0.1:3000",
        );
    }
    if let Some(bad) = value.chars().find(|c| c.is_whitespace() || c.is_control()) {
        return Err(hint::bad_character(value, bad));
    }
    let (prefix, url) = if value.starts_with('/') {
        let Some((prefix, url)) = value.split_once('=') else {
            return Err(hint::prefix_without_url(value));
        };
        (parse_prefix(prefix)?, url)
    } else if let Some(missing) = hint::prefix_without_slash(value) {
        return Err(missing);
    } else {
        (Prefix::Everything, value)
    };
    let ParsedUrl {
        origin,
        protocol,
        tls,
        path,
        authority,
    } = parse_url(url)?;
    Ok(Target {
        prefix,
        origin,
        protocol,
        tls,
        path,
        authority,
        request_trailers: false,
        upgrades: Vec::new(),
    })
}

/// A problem and its remedy, before the flag's value is known.
pub(super) struct InvalidTarget {
    pub(super) problem: String,
    pub(super) fix: String,
}

impl InvalidTarget {
    pub(super) fn of(self, value: &str) -> TargetError {
        TargetError {
            value: value.to_owned(),
            problem: self.problem,
            fix: self.fix,
        }
    }
}

pub(super) fn invalid<T>(
    problem: impl Into<String>,
    fix: impl Into<String>,
) -> Result<T, InvalidTarget> {
    Err(InvalidTarget {
        problem: problem.into(),
        fix: fix.into(),
    })
}

fn parse_prefix(text: &str) -> Result<Prefix, InvalidTarget> {
    if text.contains('?') {
        return invalid(
            "the prefix contains a ?, but targets are selected by path only",
            "leave out the ? and everything after it",
        );
    }
    if let Some(before) = text.strip_suffix('*') {
        return text_prefix(before);
    }
    if text.ends_with('.') {
        return text_prefix(text);
    }
    segments_prefix(text)
}

/// The prefix of all paths that begin with a text. Its last segment may be a part of one in a request's path: `/.`
/// matches `/.well-known`.
pub(super) fn text_prefix(text: &str) -> Result<Prefix, InvalidTarget> {
    let (whole, last) = text.rsplit_once('/').unwrap_or_default();
    path::check(whole, "the prefix")?;
    path::check_characters(last, "the prefix")?;
    Ok(Prefix::Text(path::with_upper_escapes(text)))
}

/// The prefix of a path and all below it.
pub(super) fn segments_prefix(text: &str) -> Result<Prefix, InvalidTarget> {
    path::check(text, "the prefix")?;
    Ok(Prefix::Segments(path::with_upper_escapes(text)))
}

/// A scheme with a host and a port.
#[derive(Debug)]
pub(super) struct UrlScheme {
    pub(super) prefix: &'static str,
    pub(super) default_port: u16,
    protocol: Protocol,
    tls: bool,
}

/// All of them. Over TLS the protocol is negotiated.
const SCHEMES: [UrlScheme; 3] = [
    UrlScheme {
        prefix: "http://",
        default_port: Scheme::Http.default_port(),
        protocol: Protocol::Http1,
        tls: false,
    },
    UrlScheme {
        prefix: "https://",
        default_port: Scheme::Https.default_port(),
        protocol: Protocol::Http1,
        tls: true,
    },
    UrlScheme {
        prefix: "h2c://",
        default_port: Scheme::Http.default_port(),
        protocol: Protocol::Http2,
        tls: false,
    },
];

/// The parts of a target's URL.
struct ParsedUrl {
    origin: Origin,
    protocol: Protocol,
    tls: bool,
    path: Option<String>,
    authority: String,
}

fn parse_url(url: &str) -> Result<ParsedUrl, InvalidTarget> {
    if let Some(path) = strip_scheme(url, "unix:") {
        return parse_unix(path);
    }
    let of_scheme =
        |scheme: &'static UrlScheme| strip_scheme(url, scheme.prefix).map(|rest| (scheme, rest));
    if let Some(url) = strip_scheme(url, SERVICE_PREFIX) {
        return parse_service(url);
    }
    let Some((scheme, rest)) = SCHEMES.iter().find_map(of_scheme) else {
        return Err(hint::wrong_scheme(url));
    };
    if let Some(path) = strip_scheme(rest, "unix:") {
        return invalid(
            "a unix socket is not a host",
            format!("write unix:{}", path.split(':').next().unwrap_or(path)),
        );
    }
    let (authority, path) = match rest.find(['/', '?', '#']) {
        Some(end) => rest.split_at(end),
        None => (rest, ""),
    };
    let origin = host::origin(authority, scheme)?;
    if path.contains('?') || path.contains('#') {
        return invalid(
            "the URL has a query or a fragment, which a target cannot have",
            "end it after the path; the client's query is always forwarded",
        );
    }
    let path = if path.is_empty() {
        None
    } else {
        path::check(path, "the URL's path")?;
        Some(path.to_owned())
    };
    Ok(ParsedUrl {
        origin,
        protocol: scheme.protocol,
        tls: scheme.tls,
        path,
        authority: host::without_zone(authority),
    })
}

/// The URL of a service without `srv+`. Its records have the ports.
fn parse_service(url: &str) -> Result<ParsedUrl, InvalidTarget> {
    let has_scheme = |scheme: &UrlScheme| strip_scheme(url, scheme.prefix).is_some();
    if !SCHEMES.iter().any(has_scheme) {
        return invalid(
            "srv+ comes before http://, https:// or h2c://",
            "write for example srv+http://_api._tcp.internal.example",
        );
    }
    let parsed = parse_url(url)?;
    match &parsed.origin {
        Origin::Name(name, _) if *name == parsed.authority.trim_end_matches('.') => Ok(ParsedUrl {
            origin: Origin::Service(name.clone()),
            authority: name.clone(),
            ..parsed
        }),
        Origin::Name(name, _) => invalid(
            "the ports of a service are those of its SRV records",
            format!("write {name} without a port"),
        ),
        _ => invalid(
            "only a name has SRV records",
            "write for example srv+http://_api._tcp.internal.example",
        ),
    }
}

/// The part after `scheme`, in whatever case it is written (RFC 3986 section 3.1).
fn strip_scheme<'a>(url: &'a str, scheme: &str) -> Option<&'a str> {
    let (start, rest) = url.split_at_checked(scheme.len())?;
    start.eq_ignore_ascii_case(scheme).then_some(rest)
}

fn parse_unix(path: &str) -> Result<ParsedUrl, InvalidTarget> {
    if !path.starts_with('/') || path.len() < 2 {
        return Err(hint::relative_socket(path));
    }
    // As in `unix:///run/app.sock`.
    let path = format!("/{}", path.trim_start_matches('/'));
    // sockaddr_un holds 108 bytes, the last of them a NUL.
    if path.len() > 107 {
        return invalid(
            format!(
                "the socket path has {} bytes, and Linux takes at most 107",
                path.len()
            ),
            "move the socket to a directory with a shorter name",
        );
    }
    // A socket has no authority, but applications expect one. nginx and curl send this one.
    let authority = String::from("localhost");
    Ok(ParsedUrl {
        origin: Origin::Unix(PathBuf::from(path)),
        protocol: Protocol::Http1,
        tls: false,
        path: None,
        authority,
    })
}
