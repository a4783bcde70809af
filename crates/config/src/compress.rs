//! Which responses are compressed, and how.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::units::ValueError;

/// Which responses of a route are compressed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Compress {
    /// None.
    Never,
    /// Those of files. Other responses are sent as they are.
    Files,
    /// All: those of upstreams, apps and the gateway as well.
    Responses(Arc<Compression>),
}

/// How responses are compressed; `None` is the default of the gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Compression {
    /// The types of content that are compressed.
    pub types: Option<Vec<MediaRange>>,
    /// Shorter content is not compressed if its length is known, in bytes.
    pub min_size: Option<u64>,
    /// The algorithms. Of those that a client accepts equally the first one is used.
    pub algorithms: Option<Vec<Algorithm>>,
}

/// An algorithm of compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Zstandard (RFC 8878).
    Zstd,
    /// Brotli (RFC 7932).
    Brotli,
    /// Gzip (RFC 1952).
    Gzip,
}

impl Algorithm {
    /// All of them in the order of preference.
    pub const ALL: [Algorithm; 3] = [Algorithm::Zstd, Algorithm::Brotli, Algorithm::Gzip];

    /// The name of its content coding (RFC 9110, section 8.4.1).
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Zstd => "zstd",
            Algorithm::Brotli => "br",
            Algorithm::Gzip => "gzip",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Algorithm, ValueError> {
        let mut all = Algorithm::ALL.into_iter();
        let found = all.find(|algorithm| algorithm.name() == text);
        found.ok_or_else(|| {
            let remedy = match text {
                "brotli" => "write \"br\", as in the field Content-Encoding",
                "zstandard" => "write \"zstd\", as in the field Content-Encoding",
                _ => "write \"zstd\", \"br\" or \"gzip\"",
            };
            ValueError::new("algorithm", "there is no such algorithm", remedy)
        })
    }
}

/// Media types, in lower case: one, all of a kind as `text/*`, or all of a kind with a suffix as `application/*+json`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MediaRange(pub String);

impl FromStr for MediaRange {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<MediaRange, ValueError> {
        let refused = |problem, remedy| Err(ValueError::new("media-type", problem, remedy));
        if text.contains(';') {
            return refused(
                "a type has no parameters here",
                "leave out what begins with the semicolon",
            );
        }
        let is_token = |text: &str| {
            let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
            !text.is_empty() && text.bytes().all(is_token)
        };
        let Some((kind, subtype)) = text.split_once('/') else {
            return refused(
                "this is not a media type",
                "write for example \"application/json\", or \"text/*\"",
            );
        };
        if kind == "*" {
            return refused(
                "this includes images, videos and archives, which are compressed already",
                "name the types, or leave out `types` for the default",
            );
        }
        let is_subtype = match subtype.strip_prefix('*') {
            Some("") => true,
            Some(suffix) => suffix.starts_with('+') && is_token(&suffix[1..]),
            None => is_token(subtype),
        };
        match is_subtype && is_token(kind) {
            true => Ok(MediaRange(text.to_ascii_lowercase())),
            false => refused(
                "this is not a media type",
                "write for example \"application/json\", \"text/*\" or \"application/*+json\"",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_types_are_refused() {
        for text in [
            "",
            "text",
            "*/*",
            "*/json",
            "text/",
            "/css",
            "text/*css",
            "text/*+",
            "text/a b",
            "text/css; charset=utf-8",
            "text/a/b",
            "te xt/css",
        ] {
            assert!(text.parse::<MediaRange>().is_err(), "{text:?}");
        }
    }
}
