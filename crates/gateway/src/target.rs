//! One `--to` flag: which requests it takes and where they go.
//!
//! `--to http://127.0.0.1:3000` takes everything no other target took;
//! `--to /api=http://127.0.0.1:4000` takes `/api` and what lies below it.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// What one `--to URL` or `--to PREFIX=URL` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Which paths it takes.
    pub prefix: Prefix,
    /// Where they are sent.
    pub origin: Origin,
    /// Replaces the prefix on the way out; `None` keeps the prefix.
    pub path: Option<String>,
    /// Host and port as the URL spells them, for requests that carry no `Host` of their own.
    pub authority: String,
}

/// Which request paths a target takes. Paths are compared after normalising (rule 10).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Prefix {
    /// Whatever no other target took, `OPTIONS *` included.
    Everything,
    /// The path itself and everything below it: `/api` takes `/api` and `/api/x`, not `/apix`.
    Segments(String),
    /// Every path that begins with this text, as written with a final `*` (dropped) or `.` (kept).
    Text(String),
}

/// Where a target's requests are sent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Origin {
    /// An address, used as it is.
    Ip(SocketAddr),
    /// This machine, over IPv4 or IPv6, whichever answers.
    Localhost(u16),
    /// A name for the resolver, lower case.
    Name(String, u16),
    /// A unix stream socket.
    Unix(PathBuf),
}

/// Why a `--to` value was refused, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetError {
    value: String,
    problem: String,
    fix: String,
}

impl Target {
    /// Writes the path to ask the upstream for to `out`, if it is not the one the client asked for.
    ///
    /// `path` must be normalised and one that this target's prefix takes.
    pub fn replace_path(&self, path: &str, out: &mut String) -> Replaced {
        let Some(replacement) = &self.path else {
            return Replaced::Kept;
        };
        let rest = path.get(self.prefix.replaced_len()..).unwrap_or_default();
        // `/a*=http://host/b/` must not turn `/a../secret` into `/b/../secret`.
        if replacement.ends_with('/') && matches!(rest.split('/').next(), Some("." | "..")) {
            return Replaced::Climbs;
        }
        out.clear();
        // One slash between the two: `/v2/` and `/x` meet as `/v2/x`.
        let overlap = rest.starts_with('/') && replacement.ends_with('/');
        out.push_str(&replacement[..replacement.len() - usize::from(overlap)]);
        out.push_str(rest);
        Replaced::Written
    }
}

/// What became of a path on its way to the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaced {
    /// The target names no path of its own: the client's is sent.
    Kept,
    /// The new path was written.
    Written,
    /// The two would join to a `.` or `..` segment, which nobody may ask for: 400.
    Climbs,
}

impl Prefix {
    /// Whether a request for `path` belongs here.
    pub fn takes(&self, path: &str) -> bool {
        match self {
            Prefix::Everything => true,
            Prefix::Text(text) => path.starts_with(text.as_str()),
            Prefix::Segments(prefix) => path.strip_prefix(prefix.as_str()).is_some_and(|rest| {
                rest.is_empty() || rest.starts_with('/') || prefix.ends_with('/')
            }),
        }
    }

    /// Bytes of a path that decide a match; the larger number is the more specific prefix.
    #[allow(clippy::len_without_is_empty)] // a measure, not a container
    pub fn len(&self) -> usize {
        match self {
            Prefix::Everything => 0,
            Prefix::Segments(prefix) | Prefix::Text(prefix) => prefix.len(),
        }
    }

    /// Whether no path is left for anybody else.
    pub fn takes_all_paths(&self) -> bool {
        matches!(self, Prefix::Everything)
            || matches!(self, Prefix::Segments(text) | Prefix::Text(text) if text == "/")
    }

    /// How much of a matching path a replacement stands for: the slash that ends a prefix stays.
    fn replaced_len(&self) -> usize {
        match self {
            Prefix::Segments(prefix) => prefix.strip_suffix('/').unwrap_or(prefix).len(),
            Prefix::Text(text) => text.strip_suffix('/').unwrap_or(text).len(),
            Prefix::Everything => 0,
        }
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(value: &str) -> Result<Target, TargetError> {
        parse(value).map_err(|Fault { problem, fix }| TargetError {
            value: value.to_owned(),
            problem,
            fix,
        })
    }
}

impl TargetError {
    /// The value as it was given.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// What is wrong with it.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// What to write instead.
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
            Prefix::Everything => f.write_str("everything else"),
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
            Origin::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

// ------------------------------------------------------------------------------------- parsing

/// A problem and its remedy, before the flag's value is known.
struct Fault {
    problem: String,
    fix: String,
}

fn fault<T>(problem: impl Into<String>, fix: impl Into<String>) -> Result<T, Fault> {
    Err(Fault {
        problem: problem.into(),
        fix: fix.into(),
    })
}

fn parse(value: &str) -> Result<Target, Fault> {
    if value.is_empty() {
        return fault(
            "the value is empty",
            "write for example --to http://127.0.0.1:3000",
        );
    }
    if let Some(bad) = value.chars().find(|c| c.is_whitespace() || c.is_control()) {
        return fault(
            format!("it contains {bad:?}"),
            "write it without blanks; encode a blank in a path as %20",
        );
    }
    let (prefix, url) = if value.starts_with('/') {
        let Some((prefix, url)) = value.split_once('=') else {
            return fault(
                "a value that begins with / is PREFIX=URL, and the =URL is missing",
                format!("write for example --to {value}=http://127.0.0.1:3000"),
            );
        };
        (parse_prefix(prefix)?, url)
    } else {
        (Prefix::Everything, value)
    };
    let Location {
        origin,
        path,
        authority,
    } = parse_url(url)?;
    Ok(Target {
        prefix,
        origin,
        path,
        authority,
    })
}

fn parse_prefix(text: &str) -> Result<Prefix, Fault> {
    if text.contains('?') {
        return fault(
            "the prefix contains a ?, and targets are chosen by path alone",
            "leave out the ? and what follows it",
        );
    }
    // The last segment may go on in a request's path: `/.` takes `/.well-known`.
    let (whole, last) = text.rsplit_once('/').unwrap_or_default();
    check_path(whole, "the prefix")?;
    check_characters(last, "the prefix")?;
    if let Some(before) = text.strip_suffix('*') {
        return Ok(Prefix::Text(before.to_owned()));
    }
    if text.ends_with('.') {
        return Ok(Prefix::Text(text.to_owned()));
    }
    Ok(Prefix::Segments(text.to_owned()))
}

/// Where a URL points.
struct Location {
    origin: Origin,
    path: Option<String>,
    authority: String,
}

fn parse_url(url: &str) -> Result<Location, Fault> {
    if let Some(path) = strip_scheme(url, "unix:") {
        return parse_unix(path);
    }
    let Some(rest) = strip_scheme(url, "http://") else {
        return Err(wrong_scheme(url));
    };
    let (authority, path) = match rest.find(['/', '?', '#']) {
        Some(end) => rest.split_at(end),
        None => (rest, ""),
    };
    let origin = parse_authority(authority)?;
    if path.contains('?') || path.contains('#') {
        return fault(
            "the URL carries a query or a fragment, which a target cannot have",
            "end it after the path; the client's own query is always passed on",
        );
    }
    let path = if path.is_empty() {
        None
    } else {
        check_path(path, "the URL's path")?;
        Some(path.to_owned())
    };
    Ok(Location {
        origin,
        path,
        authority: authority.to_ascii_lowercase(),
    })
}

/// What follows `scheme`, in whatever case it is written (RFC 3986 section 3.1).
fn strip_scheme<'a>(url: &'a str, scheme: &str) -> Option<&'a str> {
    let (start, rest) = url.split_at_checked(scheme.len())?;
    start.eq_ignore_ascii_case(scheme).then_some(rest)
}

fn parse_unix(path: &str) -> Result<Location, Fault> {
    if !path.starts_with('/') || path.len() < 2 {
        return fault(
            "a unix socket is named by its absolute path",
            format!(
                "write for example unix:/run/{}",
                path.trim_start_matches(['.', '/'])
            ),
        );
    }
    // sockaddr_un holds 108 bytes, the last of them a NUL.
    if path.len() > 107 {
        return fault(
            format!(
                "the socket path has {} bytes, and Linux takes at most 107",
                path.len()
            ),
            "move the socket to a directory with a shorter name",
        );
    }
    // No authority exists here; upstream applications expect some name, and nginx and curl agree.
    let authority = String::from("localhost");
    Ok(Location {
        origin: Origin::Unix(PathBuf::from(path)),
        path: None,
        authority,
    })
}

/// Says what to do about a URL that begins with neither `http://` nor `unix:`.
fn wrong_scheme(url: &str) -> Fault {
    let example = || format!("write http://{}", url.trim_start_matches('/'));
    let (problem, fix) = match url.split_once("://").map(|(s, _)| s.to_ascii_lowercase()) {
        Some(scheme) if scheme == "https" || scheme == "h2c" => (
            format!("{scheme}:// targets are not built yet"),
            format!(
                "write http://{} if the application also listens in clear",
                &url[scheme.len() + 3..]
            ),
        ),
        Some(scheme) if scheme == "ws" || scheme == "wss" => (
            format!(
                "{scheme}:// is not needed for a target, since WebSockets pass through http://"
            ),
            format!("write http://{}", &url[scheme.len() + 3..]),
        ),
        Some(scheme) => (
            format!("the scheme {scheme}:// is unknown"),
            String::from("write http://HOST:PORT or unix:/PATH"),
        ),
        None if url.is_empty() => (
            String::from("the URL is missing"),
            String::from("write for example http://127.0.0.1:3000"),
        ),
        None if url.bytes().all(|b| b.is_ascii_digit()) => (
            String::from("a port alone is not a URL"),
            format!("write http://127.0.0.1:{url}"),
        ),
        None => (
            String::from("the URL does not say http:// or unix:/"),
            example(),
        ),
    };
    Fault { problem, fix }
}

fn parse_authority(authority: &str) -> Result<Origin, Fault> {
    if authority.contains('@') {
        return fault(
            "the URL carries a user name, which would be sent to nobody",
            "leave out everything up to the @",
        );
    }
    if let Some(rest) = authority.strip_prefix('[') {
        return parse_ipv6(rest);
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) => (host, parse_port(port)?),
        None => (authority, 80),
    };
    if host.is_empty() {
        return fault(
            "the URL names no host",
            format!("write http://127.0.0.1:{port}"),
        );
    }
    if host.contains(':') {
        return fault(
            "an IPv6 address in a URL stands in brackets",
            format!("write http://[{authority}], or http://[{host}]:{port}"),
        );
    }
    parse_host(host, port)
}

/// `rest` is what follows the opening bracket (RFC 3986 section 3.2.2).
fn parse_ipv6(rest: &str) -> Result<Origin, Fault> {
    let Some((address, after)) = rest.split_once(']') else {
        return fault(
            "the [ of an IPv6 address has no ]",
            format!("write http://[{rest}]"),
        );
    };
    let Ok(ip) = address.parse::<Ipv6Addr>() else {
        return fault(
            format!("{address:?} is not an IPv6 address"),
            "write for example http://[::1]:3000",
        );
    };
    let port = match after.strip_prefix(':') {
        Some(port) => parse_port(port)?,
        None if after.is_empty() => 80,
        None => {
            return fault(
                format!("{after:?} cannot follow the ] of an address"),
                format!("write http://[{address}]:3000"),
            );
        }
    };
    Ok(Origin::Ip(SocketAddr::new(ip.into(), port)))
}

fn parse_port(port: &str) -> Result<u16, Fault> {
    match port.parse::<u16>() {
        Ok(number) if number > 0 && port.bytes().all(|b| b.is_ascii_digit()) => Ok(number),
        _ => fault(
            format!("{port:?} is not a port"),
            "write a number from 1 to 65535 after the colon, or leave out the colon for port 80",
        ),
    }
}

fn parse_host(host: &str, port: u16) -> Result<Origin, Fault> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(Origin::Ip(SocketAddr::new(ip, port)));
    }
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    // A name whose last label is a number is a mistyped address, never a name (WHATWG URL).
    let last_label = name.rsplit('.').next().unwrap_or_default();
    if last_label.bytes().all(|b| b.is_ascii_digit()) && !last_label.is_empty() {
        return fault(
            format!("{host:?} looks like an IPv4 address but is none"),
            "write four numbers from 0 to 255, without leading zeros",
        );
    }
    if let Some(problem) = name_problem(&name) {
        return fault(
            format!("{host:?} is not a host name: {problem}"),
            "write a name of letters, digits, hyphens and dots; international names in their xn-- form",
        );
    }
    // RFC 6761 section 6.3: localhost and the names below it are this machine, never a query.
    if name == "localhost" || name.ends_with(".localhost") {
        return Ok(Origin::Localhost(port));
    }
    Ok(Origin::Name(name, port))
}

/// RFC 1123 section 2.1, with the underscore that container platforms put into names.
fn name_problem(name: &str) -> Option<&'static str> {
    if name.len() > 253 {
        return Some("it has more than 253 characters");
    }
    name.split('.').find_map(|label| {
        let ordinary = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        if label.is_empty() {
            Some("it has an empty part")
        } else if label.len() > 63 {
            Some("a part has more than 63 characters")
        } else if !label.bytes().all(ordinary) {
            Some("it has a character that names cannot have")
        } else if label.starts_with('-') || label.ends_with('-') {
            Some("a part begins or ends with a hyphen")
        } else {
            None
        }
    })
}

/// Refuses a path that is not normalised: no request path looks like it (rule 10).
fn check_path(path: &str, what: &str) -> Result<(), Fault> {
    if path
        .split('/')
        .any(|segment| segment == "." || segment == "..")
    {
        return fault(
            format!("{what} has a . or .. between slashes, which requests are matched without"),
            "write the path that is left when the dots are followed",
        );
    }
    check_characters(path, what)
}

fn check_characters(text: &str, what: &str) -> Result<(), Fault> {
    if let Some(bad) = text.chars().find(|&c| !is_path_char(c)) {
        return fault(
            format!("{what} contains {bad:?}, which a path cannot"),
            "write it percent-encoded",
        );
    }
    check_escapes(text, what)
}

fn is_path_char(c: char) -> bool {
    // RFC 3986 section 3.3: pchar and "/".
    c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@%/".contains(c)
}

fn check_escapes(path: &str, what: &str) -> Result<(), Fault> {
    let bytes = path.as_bytes();
    for at in (0..bytes.len()).filter(|&at| bytes[at] == b'%') {
        let value = path
            .get(at + 1..at + 3)
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let Some(byte) = value else {
            return fault(
                format!("{what} has a % that begins no escape"),
                "write % itself as %25",
            );
        };
        if byte == 0 {
            return fault(
                format!("{what} contains %00"),
                "leave it out; such requests get 400",
            );
        }
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            return fault(
                format!(
                    "{what} escapes {:?}, and requests are matched with it decoded",
                    byte as char
                ),
                format!("write {} in its place", byte as char),
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(value: &str) -> Target {
        value.parse().unwrap()
    }

    fn origin(value: &str) -> Origin {
        target(value).origin
    }

    fn sent_path(value: &str, path: &str) -> String {
        let target = target(value);
        assert!(target.prefix.takes(path), "{value} does not take {path}");
        let mut out = String::from("leftover");
        match target.replace_path(path, &mut out) {
            Replaced::Kept => path.to_owned(),
            Replaced::Written => out,
            Replaced::Climbs => String::from("refused"),
        }
    }

    #[test]
    fn a_plain_url_takes_everything() {
        let plain = target("http://127.0.0.1:3000");
        assert_eq!(plain.prefix, Prefix::Everything);
        assert_eq!(plain.origin, Origin::Ip("127.0.0.1:3000".parse().unwrap()));
        assert_eq!(
            (plain.path, plain.authority.as_str()),
            (None, "127.0.0.1:3000")
        );
    }

    #[test]
    fn hosts_are_addresses_names_or_sockets() {
        assert_eq!(
            origin("http://[::1]:3000"),
            Origin::Ip("[::1]:3000".parse().unwrap())
        );
        assert_eq!(
            origin("http://[::1]"),
            Origin::Ip("[::1]:80".parse().unwrap())
        );
        assert_eq!(
            origin("http://10.0.0.1/x"),
            Origin::Ip("10.0.0.1:80".parse().unwrap())
        );
        assert_eq!(origin("HTTP://LocalHost:1"), Origin::Localhost(1));
        assert_eq!(origin("http://app.localhost"), Origin::Localhost(80));
        assert_eq!(
            origin("http://App_1.Example.:81"),
            Origin::Name("app_1.example".into(), 81)
        );
        assert_eq!(
            origin("unix:/run/app.sock"),
            Origin::Unix("/run/app.sock".into())
        );
        assert_eq!(
            origin("/a=unix:/run/a=b.sock"),
            Origin::Unix("/run/a=b.sock".into())
        );
    }

    #[test]
    fn a_value_with_a_slash_is_split_at_its_first_equals_sign() {
        let split = target("/a=http://h:1/b=c");
        assert_eq!(split.prefix, Prefix::Segments("/a".into()));
        assert_eq!(split.path.as_deref(), Some("/b=c"));
    }

    #[test]
    fn a_final_star_or_dot_matches_as_text() {
        assert_eq!(target("/a*=http://h").prefix, Prefix::Text("/a".into()));
        assert_eq!(target("/a.=http://h").prefix, Prefix::Text("/a.".into()));
        assert_eq!(target("/a/.=http://h").prefix, Prefix::Text("/a/.".into()));
        assert_eq!(target("/=http://h").prefix, Prefix::Segments("/".into()));
    }

    #[test]
    fn the_prefix_is_kept_unless_the_url_has_a_path() {
        for (value, path, sent) in [
            ("/api=http://h", "/api/x", "/api/x"),
            ("/api=http://h/", "/api/x", "/x"),
            ("/api=http://h/", "/api", "/"),
            ("/api=http://h/", "/api/", "/"),
            ("/api=http://h/v2", "/api", "/v2"),
            ("/api=http://h/v2", "/api/", "/v2/"),
            ("/api=http://h/v2/", "/api", "/v2/"),
            ("/api=http://h/v2/", "/api/x", "/v2/x"),
            ("/api/=http://h/v2", "/api/x", "/v2/x"),
            ("/api/=http://h/", "/api/", "/"),
            ("/=http://h/base", "/x", "/base/x"),
            ("http://h/base", "/", "/base/"),
            ("http://h/base/", "/x/y", "/base/x/y"),
            ("/img*=http://h/pictures", "/img1/x", "/pictures1/x"),
            ("/img/*=http://h/pictures/", "/img/x", "/pictures/x"),
            ("/a.=http://h/b.", "/a.X/Y", "/b.X/Y"),
        ] {
            assert_eq!(sent_path(value, path), sent, "{value} {path}");
        }
    }

    #[test]
    fn a_replaced_prefix_cannot_be_climbed_out_of() {
        assert_eq!(
            sent_path("/img*=http://h/pictures/", "/img../secret"),
            "refused"
        );
        assert_eq!(sent_path("/img*=http://h/pictures/", "/img."), "refused");
        assert_eq!(
            sent_path("/img*=http://h/pictures", "/img../x"),
            "/pictures../x"
        );
        assert_eq!(
            sent_path("/img*=http://h/pictures/", "/img...x"),
            "/pictures/...x"
        );
    }

    /// Each line: the value, a word of what must be said to be wrong, a word of the remedy.
    const REFUSED: &[(&str, &str, &str)] = &[
        ("", "empty", "http://127.0.0.1:3000"),
        (
            "127.0.0.1:3000",
            "does not say http://",
            "http://127.0.0.1:3000",
        ),
        (
            "localhost:3000",
            "does not say http://",
            "http://localhost:3000",
        ),
        ("3000", "port alone", "http://127.0.0.1:3000"),
        ("//host", "PREFIX=URL", "--to"),
        ("/api", "=URL is missing", "/api=http://"),
        ("/api=", "URL is missing", "http://"),
        ("/api=4000", "port alone", "http://127.0.0.1:4000"),
        (
            "https://h",
            "https:// targets are not built yet",
            "http://h",
        ),
        ("H2C://h", "h2c:// targets are not built yet", "http://h"),
        ("ws://h/x", "WebSockets pass", "http://h/x"),
        ("ftp://h", "ftp:// is unknown", "http://HOST:PORT"),
        ("http://", "names no host", "http://127.0.0.1:80"),
        ("http://:3000", "names no host", "http://127.0.0.1:3000"),
        ("http://h:", "not a port", "1 to 65535"),
        ("http://h:0", "not a port", "1 to 65535"),
        ("http://h:+80", "not a port", "1 to 65535"),
        ("http://h:65536", "not a port", "1 to 65535"),
        ("http://u:p@h", "user name", "@"),
        ("http://h/?a=b", "query", "after the path"),
        ("http://h#top", "fragment", "after the path"),
        ("http://::1:80", "brackets", "["),
        ("http://[::1", "no ]", "]"),
        ("http://[::g]", "not an IPv6 address", "[::1]"),
        ("http://[::1]80", "cannot follow", "[::1]:"),
        ("http://10.0.0.256", "looks like an IPv4", "0 to 255"),
        ("http://10.0.1", "looks like an IPv4", "0 to 255"),
        ("http://a..b", "empty part", "letters"),
        ("http://-a", "hyphen", "letters"),
        ("http://a!b", "cannot have", "letters"),
        ("http://bücher.example", "cannot have", "xn--"),
        ("http://h /x", "' '", "%20"),
        ("http://h/\u{7}", "'\\u{7}'", "blanks"),
        ("http://h/<x>", "'<'", "percent-encoded"),
        ("http://h/a/../b", ". or ..", "followed"),
        ("http://h/a/..", ". or ..", "followed"),
        ("/a/./b=http://h", ". or ..", "followed"),
        ("/a?b=http://h", "by path alone", "leave out"),
        ("/%41=http://h", "escapes 'A'", "write A"),
        ("/%4=http://h", "begins no escape", "%25"),
        ("/%00=http://h", "%00", "400"),
        ("unix:app.sock", "absolute path", "unix:/run/app.sock"),
        ("unix:/", "absolute path", "unix:/run/"),
    ];

    #[test]
    fn a_refusal_names_the_value_what_is_wrong_and_what_to_write() {
        for (value, problem, fix) in REFUSED {
            let error = value.parse::<Target>().expect_err(value);
            assert!(error.problem().contains(problem), "{value}: {error}");
            assert!(error.fix().contains(fix), "{value}: {error}");
            assert!(error.to_string().contains(value), "{error}");
        }
        let long = format!("unix:/{}", "x".repeat(107));
        assert!(
            long.parse::<Target>()
                .unwrap_err()
                .problem()
                .contains("107")
        );
    }

    #[test]
    fn what_is_printed_is_what_was_written() {
        for value in ["/a*", "/a.", "/a", "/a/"] {
            assert_eq!(
                target(&format!("{value}=http://h")).prefix.to_string(),
                value
            );
        }
        assert_eq!(origin("unix:/run/a").to_string(), "unix:/run/a");
        assert_eq!(origin("http://[::1]:1").to_string(), "http://[::1]:1");
    }
}
