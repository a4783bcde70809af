//! Request targets (RFC 9112, section 3.2) and authorities (RFC 3986, section 3.2).

use std::net::Ipv6Addr;

use crate::error::ErrorKind;
use crate::message::{Method, Span, Target, TargetForm, is_token};
use crate::path::normalize;

/// Fills `target` from the first two parts of a request line, and says which method it is.
pub(crate) fn parse_request_line(
    target: &mut Target,
    method_text: &[u8],
    text: &[u8],
) -> Result<Method, ErrorKind> {
    target.clear();
    let method = Method::parse(method_text);
    if method == Method::Other {
        let token = std::str::from_utf8(method_text).map_err(|_| ErrorKind::Method)?;
        if !is_token(method_text) {
            return Err(ErrorKind::Method);
        }
        target.method = target.push(token);
    }
    let text = std::str::from_utf8(text).map_err(|_| ErrorKind::Target)?;
    match text.as_bytes() {
        _ if method == Method::Connect => parse_authority_form(target, text)?,
        [b'/', ..] => parse_origin_form(target, text)?,
        b"*" if method == Method::Options => {
            let star = target.push("*");
            target.set_whole(TargetForm::Asterisk, star);
        }
        _ => parse_absolute_form(target, method, text)?,
    }
    Ok(method)
}

fn parse_origin_form(target: &mut Target, text: &str) -> Result<(), ErrorKind> {
    let base = target.push(text).start;
    target.form = Some(TargetForm::Origin);
    parse_path_and_query(target, base, text)
}

/// `authority-form = uri-host ":" port`, and nothing else with CONNECT (RFC 9110, section 9.3.6).
fn parse_authority_form(target: &mut Target, text: &str) -> Result<(), ErrorKind> {
    let port = split_authority(text.as_bytes())
        .ok_or(ErrorKind::Target)?
        .port;
    let has_host = !text.starts_with(':');
    if !has_host || port.is_none_or(|port| port == 0) {
        return Err(ErrorKind::Target);
    }
    let authority = target.push(text);
    target.authority = Some(authority);
    let end = Span {
        start: authority.end,
        end: authority.end,
    };
    target.set_whole(TargetForm::Authority, end);
    Ok(())
}

/// `absolute-form = absolute-URI`, of which we know `http` and `https`.
fn parse_absolute_form(target: &mut Target, method: Method, text: &str) -> Result<(), ErrorKind> {
    let (scheme, rest) = text.split_once("://").ok_or(ErrorKind::Target)?;
    target.scheme = Some(match scheme {
        _ if scheme.eq_ignore_ascii_case("http") => "http",
        _ if scheme.eq_ignore_ascii_case("https") => "https",
        _ => return Err(ErrorKind::TargetScheme),
    });
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if authority.contains('@') {
        return Err(ErrorKind::TargetUserinfo);
    }
    // RFC 9110, section 4.2.1: "A recipient that processes such a URI reference MUST reject it as
    // invalid", about an empty host.
    if authority.is_empty() || authority.starts_with(':') || !is_authority(authority.as_bytes()) {
        return Err(ErrorKind::Target);
    }
    target.authority = Some(target.push(authority));
    target.form = Some(TargetForm::Absolute);
    // RFC 9112, section 3.2.4: OPTIONS on an absolute URI without path and query means `*`.
    if path.is_empty() && method == Method::Options {
        let star = target.push("*");
        target.set_whole(TargetForm::Absolute, star);
        return Ok(());
    }
    let base = target.text.len() as u32;
    if !path.starts_with('/') {
        target.push("/");
    }
    target.push(path);
    let text = target.text.split_off(base as usize);
    target.push(&text);
    parse_path_and_query(target, base, &text)
}

/// Splits `text`, which starts with `/` and lies in the target at `base`, and normalises the path.
#[inline]
fn parse_path_and_query(target: &mut Target, base: u32, text: &str) -> Result<(), ErrorKind> {
    let scan = scan_path(text.as_bytes())?;
    let (path, query) = text.split_at(scan.path_len);
    let path_end = base + path.len() as u32;
    target.raw_path = Span {
        start: base,
        end: path_end,
    };
    target.path = target.raw_path;
    if !query.is_empty() {
        if !is_query(&query.as_bytes()[1..]) {
            return Err(ErrorKind::Target);
        }
        target.query = Some(Span {
            start: path_end + 1,
            end: base + text.len() as u32,
        });
    }
    if scan.may_change {
        normalize_path(target, path, query)?;
    }
    Ok(())
}

/// Adds the normal form if it differs, with the query behind it.
#[cold]
fn normalize_path(target: &mut Target, path: &str, query: &str) -> Result<(), ErrorKind> {
    let start = target.text.len();
    normalize(path, &mut target.text)?;
    if &target.text[start..] == path {
        target.text.truncate(start);
        return Ok(());
    }
    target.path = Span {
        start: start as u32,
        end: target.text.len() as u32,
    };
    let whole_query = target.push(query);
    target.query = target.query.map(|_| Span {
        start: whole_query.start + 1,
        ..whole_query
    });
    Ok(())
}

struct PathScan {
    path_len: usize,
    /// There is an escape, or a segment that starts with a dot.
    may_change: bool,
}

#[inline]
fn scan_path(text: &[u8]) -> Result<PathScan, ErrorKind> {
    let mut may_change = false;
    let mut before = 0;
    for (at, &byte) in text.iter().enumerate() {
        if CLASS[byte as usize] & PATH == 0 {
            match byte {
                b'?' => {
                    return Ok(PathScan {
                        path_len: at,
                        may_change,
                    });
                }
                b'%' => may_change = true,
                b'.' => may_change |= before == b'/',
                _ => return Err(ErrorKind::Target),
            }
        }
        before = byte;
    }
    Ok(PathScan {
        path_len: text.len(),
        may_change,
    })
}

/// Whether this can be sent as a path.
pub(crate) fn is_path(text: &[u8]) -> bool {
    let byte_fits = |&byte: &u8| CLASS[byte as usize] & PATH != 0 || b"%.".contains(&byte);
    text.first() == Some(&b'/') && text.iter().all(byte_fits)
}

/// Whether this can be sent as a query.
#[inline]
pub(crate) fn is_query(text: &[u8]) -> bool {
    text.iter().all(|&byte| CLASS[byte as usize] & QUERY != 0)
}

/// Whether this is a host with an optional port; an empty host counts, as in `Host` it may.
#[inline]
pub(crate) fn is_authority(text: &[u8]) -> bool {
    text.iter().all(|&byte| CLASS[byte as usize] & HOST != 0) || split_authority(text).is_some()
}

struct Authority {
    port: Option<u16>,
}

/// Checks `host [ ":" port ]`. Hosts are the names that exist (letters, digits, `-._~`), IPv4, and
/// IPv6 in brackets: escapes, sub-delimiters, zones and future literals only serve attacks.
fn split_authority(text: &[u8]) -> Option<Authority> {
    let after_host = match text {
        [b'[', literal @ ..] => {
            let end = literal.iter().position(|&byte| byte == b']')?;
            std::str::from_utf8(&literal[..end])
                .ok()?
                .parse::<Ipv6Addr>()
                .ok()?;
            &literal[end + 1..]
        }
        _ => {
            let is_host = |byte: &u8| CLASS[*byte as usize] & HOST != 0;
            let end = text
                .iter()
                .position(|byte| !is_host(byte))
                .unwrap_or(text.len());
            &text[end..]
        }
    };
    match after_host {
        [] => Some(Authority { port: None }),
        // RFC 3986, section 3.2.3 allows the colon without a port.
        [b':'] => Some(Authority { port: None }),
        [b':', digits @ ..] if digits.iter().all(u8::is_ascii_digit) => {
            let port = std::str::from_utf8(digits).ok()?.parse().ok()?;
            Some(Authority { port: Some(port) })
        }
        _ => None,
    }
}

impl Target {
    /// The target has no query, and this as its path in every respect.
    fn set_whole(&mut self, form: TargetForm, path: Span) {
        self.form = Some(form);
        self.raw_path = path;
        self.path = path;
        self.query = None;
    }
}

const PATH: u8 = 1;
const QUERY: u8 = 2;
const HOST: u8 = 4;

/// What a byte may be part of. `%`, `.` and `?` in paths are looked at one by one.
///
/// Beyond RFC 3986 we take what browsers send unescaped: `[`, `]` and `|` in paths, and in queries
/// every visible character but `"`, `#`, `<` and `>` (the URL standard's query percent-encode set).
static CLASS: [u8; 256] = {
    let mut class = [0; 256];
    let mut byte = 0x21;
    while byte < 0x7f {
        let here = byte as u8;
        let unreserved = here.is_ascii_alphanumeric() || matches!(here, b'-' | b'.' | b'_' | b'~');
        let sub_delimiter = matches!(
            here,
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'='
        );
        let in_path =
            unreserved || sub_delimiter || matches!(here, b'/' | b':' | b'@' | b'[' | b']' | b'|');
        if in_path && here != b'.' {
            class[byte] |= PATH;
        }
        if !matches!(here, b'"' | b'#' | b'<' | b'>') {
            class[byte] |= QUERY;
        }
        if unreserved {
            class[byte] |= HOST;
        }
        byte += 1;
    }
    class
};
