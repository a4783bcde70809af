//! The path of a request as a path beneath a folder.

/// The only segment that begins with a dot and is served (RFC 8615).
const WELL_KNOWN: &[u8] = b".well-known";

/// A path beneath a folder: segments between slashes, none of them empty or a dot segment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FilePath {
    /// The bytes of the file system. Empty for the folder itself.
    pub path: Vec<u8>,
    /// Whether the request names a folder, by a slash at its end.
    pub is_folder: bool,
}

/// Why a path is not served. Clients are told only that there is nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathError {
    /// A segment begins with a dot.
    Hidden,
    /// A segment is empty, or has a slash, a backslash or NUL once it is decoded.
    Segment,
}

impl FilePath {
    /// The path behind the first `start` bytes of a normalised path.
    ///
    /// # Errors
    /// [`PathError`] for a path that is not served.
    pub fn new(normalized: &str, start: usize, hidden: bool) -> Result<FilePath, PathError> {
        // The part before it is text of the configuration, or a parameter of the route, which a file does not depend on. It
        // returns to the client in redirects, though.
        let before = normalized.get(..start).unwrap_or_default();
        if before.contains("//") || before.contains('\\') {
            return Err(PathError::Segment);
        }
        let rest = normalized.get(start..).unwrap_or_default();
        let mut path = Vec::with_capacity(rest.len());
        // Behind `/img*` the rest begins within a segment.
        let rest = rest.strip_prefix('/').unwrap_or(rest);
        let is_folder = normalized.ends_with('/');
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.is_empty() {
            return Ok(FilePath { path, is_folder });
        }
        for (number, segment) in rest.split('/').enumerate() {
            if number > 0 {
                path.push(b'/');
            }
            let at = path.len();
            decode(segment.as_bytes(), &mut path);
            let is_first = number == 0 && before.bytes().all(|byte| byte == b'/');
            check(&path[at..], is_first, hidden)?;
        }
        Ok(FilePath { path, is_folder })
    }

    /// Whether the last segment has no dot: a page rather than a file.
    #[must_use]
    pub fn is_page(&self) -> bool {
        let last = self.path.rsplit(|byte| *byte == b'/').next();
        !last.is_some_and(|last| last.contains(&b'.'))
    }

    /// The path with further text: a segment of a folder, or the ending of a file.
    #[must_use]
    pub fn with(&self, separator: &str, text: &str) -> Vec<u8> {
        let separator = if self.path.is_empty() { "" } else { separator };
        [&self.path, separator.as_bytes(), text.as_bytes()].concat()
    }
}

fn check(segment: &[u8], is_first: bool, hidden: bool) -> Result<(), PathError> {
    let is_refused = |byte: &u8| matches!(byte, b'/' | b'\\' | 0);
    if segment.is_empty() || segment.iter().any(is_refused) {
        return Err(PathError::Segment);
    }
    let may_have_dot = hidden || is_first && segment == WELL_KNOWN;
    match segment {
        b"." | b".." => Err(PathError::Segment),
        [b'.', ..] if !may_have_dot => Err(PathError::Hidden),
        _ => Ok(()),
    }
}

/// Appends a segment with its escapes decoded. The escapes of a normalised path are valid.
fn decode(segment: &[u8], out: &mut Vec<u8>) {
    let hex = |digit: u8| char::from(digit).to_digit(16);
    let mut rest = segment;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (b'%', &[high, low, ref after @ ..]) => match (hex(high), hex(low)) {
                (Some(high), Some(low)) => {
                    out.push((high << 4 | low) as u8);
                    rest = after;
                }
                _ => out.push(byte),
            },
            _ => out.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(normalized: &str, start: usize) -> Result<String, PathError> {
        let path = FilePath::new(normalized, start, false)?;
        let folder = if path.is_folder { "/" } else { "" };
        Ok(String::from_utf8(path.path).unwrap() + "|" + folder)
    }

    #[test]
    fn a_path_is_decoded_and_relative() {
        for (normalized, start, expected) in [
            ("/", 0, "|/"),
            ("/a", 0, "a|"),
            ("/a/b/", 0, "a/b|/"),
            ("/a%20b/%C3%A4", 0, "a b/ä|"),
            ("/assets", 7, "|"),
            ("/assets/", 7, "|/"),
            ("/assets/x", 7, "x|"),
            ("/imgx/y", 4, "x/y|"),
            ("/.well-known/security.txt", 0, ".well-known/security.txt|"),
            ("/a..b/c.", 0, "a..b/c.|"),
        ] {
            assert_eq!(
                path(normalized, start).as_deref(),
                Ok(expected),
                "{normalized}"
            );
        }
    }

    #[test]
    fn hidden_and_ambiguous_segments_are_not_served() {
        for hidden in [
            "/.git/config",
            "/a/.env",
            "/a/.well-known/x",
            "/.well-known/.x",
            "/.",
            "/...",
        ] {
            assert!(path(hidden, 0).is_err(), "{hidden}");
        }
        // With a route of its own the folder does not stand for the root.
        assert_eq!(path("/a/.well-known", 2), Err(PathError::Hidden));
        for refused in [
            "//a", "/a//b", "/a//", "/a%2Fb", "/a%5Cb", "/a\\b", "/%00", "//x/a",
        ] {
            assert_eq!(path(refused, 0), Err(PathError::Segment), "{refused}");
        }
        assert_eq!(path("/a//b/c", 4), Err(PathError::Segment));
        assert!(FilePath::new("/.git/config", 0, true).is_ok());
        assert!(FilePath::new("/a/..", 0, true).is_err());
    }
}
