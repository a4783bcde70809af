//! The known parts of the request line and the host of a refused request, for logs.

use super::{Method, Name, RequestHead, RequestTarget, TargetForm, is_token};

/// Longest part of a refused path or host that is kept.
const KEPT_BYTES_MAX: usize = 1024;

/// Longest unregistered method that is kept.
const METHOD_BYTES_MAX: usize = 64;

impl RequestHead {
    /// Keeps method, path and host of a head of HTTP/1 that was refused or is incomplete, as far as they
    /// were received. Nothing about them is checked.
    #[cold]
    pub fn keep_refused(&mut self) {
        let block = &self.fields.block;
        let end = block
            .iter()
            .position(|&byte| byte == b'\r' || byte == b'\n');
        let line = &block[..end.unwrap_or(block.len())];
        let mut words = line.split(|&byte| byte == b' ');
        let (Some(method), Some(target)) = (words.next(), words.next()) else {
            return;
        };
        let host = match self.fields.get(Name::Host) {
            Some(host) => host,
            None => host_of_lines(block),
        };
        let (host, path) = split_absolute(target).unwrap_or((host, target));
        self.method = keep(&mut self.target, method, path, host);
    }

    /// The same of a head of HTTP/1 that ended early, if its request line is complete.
    #[cold]
    pub fn keep_incomplete(&mut self) {
        if self.fields.block.contains(&b'\n') {
            self.keep_refused();
        }
    }

    /// The path without its query, as it was received, also of a refused request; `None` if it is not
    /// known. Without a path the method is not known either.
    #[must_use]
    pub fn known_path(&self) -> Option<&str> {
        self.target
            .form
            .map(|_| self.target.at(self.target.raw_path))
    }
}

/// Keeps the parts of a refused request in `target`, without the secrets that requests must not have: a fragment, and the
/// name and password of a user (RFC 9110, sections 7.1 and 4.2.4). Returns the method.
#[cold]
pub(crate) fn keep(target: &mut RequestTarget, method: &[u8], path: &[u8], host: &[u8]) -> Method {
    target.clear();
    let known = Method::parse(method);
    if known == Method::Other && method.len() <= METHOD_BYTES_MAX && is_token(method) {
        target.method = target.push(&text_of(method));
    }
    let mut parts = path.split(|byte| matches!(byte, b'?' | b'#'));
    let path = match parts.next().unwrap_or_default() {
        path @ [b'/', ..] => path,
        authority => without_user(authority),
    };
    let host = without_user(host);
    target.form = Some(TargetForm::Origin);
    target.raw_path = target.push(&text_of(path));
    if !host.is_empty() {
        target.authority = Some(target.push(&text_of(host)));
    }
    known
}

/// An authority without the name and the password of a user.
fn without_user(authority: &[u8]) -> &[u8] {
    let at = authority.iter().rposition(|&byte| byte == b'@');
    &authority[at.map_or(0, |at| at + 1)..]
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(KEPT_BYTES_MAX)]).into_owned()
}

/// The value of `Host` in a head whose lines are not read yet; empty if its line is not complete.
fn host_of_lines(block: &[u8]) -> &[u8] {
    let lines = block.split_inclusive(|&byte| byte == b'\n');
    let mut fields = lines.filter_map(|line| line.strip_suffix(b"\n"));
    let host = fields.find_map(|line| {
        let (name, value) = line.split_at_checked(b"Host:".len())?;
        name.eq_ignore_ascii_case(b"Host:").then_some(value)
    });
    host.unwrap_or_default().trim_ascii()
}

/// Host and path of a target in absolute form.
fn split_absolute(target: &[u8]) -> Option<(&[u8], &[u8])> {
    let scheme = target.windows(3).position(|bytes| bytes == b"://")?;
    let has_scheme = target[..scheme].iter().all(u8::is_ascii_alphanumeric);
    let rest = &target[scheme + 3..];
    let host = rest.iter().position(|byte| b"/?#".contains(byte));
    has_scheme.then(|| rest.split_at(host.unwrap_or(rest.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(block: &str) -> Option<(String, String)> {
        let mut head = RequestHead::default();
        head.fields.block.extend_from_slice(block.as_bytes());
        head.keep_refused();
        let path = head.known_path()?.to_owned();
        Some((head.method_str().to_owned(), path))
    }

    #[test]
    fn a_cut_off_path_is_not_known() {
        for (block, path) in [
            ("", None),
            ("GET /a", None),
            ("GET /ab HTTP/1.1\r", None),
            ("GET /ab HTTP/1.1\r\nHost: a", Some("/ab")),
        ] {
            let mut head = RequestHead::default();
            head.fields.block.extend_from_slice(block.as_bytes());
            head.keep_incomplete();
            assert_eq!((head.known_path(), head.authority()), (path, None));
        }
    }

    #[test]
    fn the_parts_of_a_refused_request_line_are_kept_as_far_as_they_are_known() {
        for (block, method, path) in [
            ("GET /a?b=c HTTP/1.1\r\nX: 1\r\n", "GET", "/a"),
            ("GET /a b HTTP/1.1\r\n", "GET", "/a"),
            ("BREW /pot HTTP/1.1\n", "BREW", "/pot"),
            ("POST /a", "POST", "/a"),
            ("GET http://a.example/b?c HTTP/1.1\r\n", "GET", "/b"),
            ("G(T /a HTTP/1.1\r\n", "", "/a"),
        ] {
            let expected = Some((method.to_owned(), path.to_owned()));
            assert_eq!(known(block), expected, "{block:?}");
        }
        assert_eq!(known(""), None);
        assert_eq!(known("GET"), None);
        let mut head = RequestHead::default();
        let lines = b"GET /a HTTP/1.1\r\nhost: a.example \r\nX: 1";
        head.fields.block.extend_from_slice(lines);
        head.keep_refused();
        assert_eq!(head.authority(), Some("a.example"));
        let long = known(&format!("GET /{} HTTP/1.1\r\n", "\u{e9}".repeat(4000))).unwrap();
        assert!(long.1.len() < 2 * KEPT_BYTES_MAX);
    }
}
