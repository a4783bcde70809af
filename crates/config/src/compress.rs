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
    /// Those of files that are stored in a compressed form, too. Responses of upstreams are relayed as they are.
    Files,
    /// Those of upstreams as well.
    Responses(Arc<Compression>),
}

/// How responses are compressed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Compression {
    /// The types of content that are compressed.
    pub types: Vec<MediaRange>,
    /// Shorter content is not compressed if its length is known, in bytes.
    pub min_size: u64,
    /// The algorithms. Of those that a client accepts equally the first one is used.
    pub algorithms: Vec<Algorithm>,
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

/// The least known length of content that is compressed by default, in bytes.
const MIN_SIZE_DEFAULT: u64 = 1024;

/// The types that are compressed by default: those of text, and binary ones that have no compression of their own.
const TYPES_DEFAULT: [&str; 19] = [
    "text/*",
    "application/*+json",
    "application/*+xml",
    "application/javascript",
    "application/json",
    "application/jsonl",
    "application/ndjson",
    "application/rtf",
    "application/vnd.ms-fontobject",
    "application/wasm",
    "application/x-javascript",
    "application/x-ndjson",
    "application/xml",
    "application/yaml",
    "font/collection",
    "font/otf",
    "font/ttf",
    "image/bmp",
    "image/svg+xml",
];

/// The type of event streams, which `text/*` does not include.
const EVENT_STREAM: &str = "text/event-stream";

impl Default for Compression {
    fn default() -> Compression {
        let types = TYPES_DEFAULT.iter();
        Compression {
            types: types.filter_map(|text| text.parse().ok()).collect(),
            min_size: MIN_SIZE_DEFAULT,
            algorithms: Algorithm::ALL.into(),
        }
    }
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

/// Media types: one, all of a kind, or all of a kind with a suffix.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MediaRange {
    /// Before the slash, in lower case.
    kind: String,
    subtype: Subtype,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Subtype {
    /// This one, in lower case.
    Exact(String),
    /// Each that ends with this text, which begins with a plus sign.
    Suffix(String),
    Any,
}

impl MediaRange {
    /// Whether a media type without parameters is one of these. `text/*` does not include event streams: their pieces are
    /// small, and clients that read them are not always browsers.
    #[must_use]
    pub fn includes(&self, media_type: &[u8]) -> bool {
        let Some(slash) = media_type.iter().position(|&byte| byte == b'/') else {
            return false;
        };
        let (kind, subtype) = (&media_type[..slash], &media_type[slash + 1..]);
        if !kind.eq_ignore_ascii_case(self.kind.as_bytes()) {
            return false;
        }
        match &self.subtype {
            Subtype::Exact(exact) => subtype.eq_ignore_ascii_case(exact.as_bytes()),
            Subtype::Suffix(suffix) => {
                let start = subtype.len().checked_sub(suffix.len());
                start.is_some_and(|start| subtype[start..].eq_ignore_ascii_case(suffix.as_bytes()))
            }
            Subtype::Any => !media_type.eq_ignore_ascii_case(EVENT_STREAM.as_bytes()),
        }
    }
}

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
        let subtype_in_lower_case = subtype.to_ascii_lowercase();
        let subtype = match subtype.strip_prefix('*') {
            Some("") => Some(Subtype::Any),
            Some(suffix) if suffix.starts_with('+') && is_token(&suffix[1..]) => {
                Some(Subtype::Suffix(suffix.to_ascii_lowercase()))
            }
            Some(_) => None,
            None => is_token(subtype).then_some(Subtype::Exact(subtype_in_lower_case)),
        };
        match subtype {
            Some(subtype) if is_token(kind) => Ok(MediaRange {
                kind: kind.to_ascii_lowercase(),
                subtype,
            }),
            _ => refused(
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
    fn types_include_types_in_any_case() {
        let includes = |range: &str, media_type: &str| {
            let range: MediaRange = range.parse().unwrap();
            range.includes(media_type.as_bytes())
        };
        for (range, media_type, expected) in [
            ("text/*", "Text/HTML", true),
            ("text/*", "text/event-stream", false),
            ("text/event-stream", "text/Event-Stream", true),
            ("TEXT/Css", "text/css", true),
            ("text/css", "text/css2", false),
            ("application/*+json", "application/problem+JSON", true),
            ("application/*+json", "application/json", false),
            ("application/*+json", "text/x+json", false),
            ("application/*+json", "application/+json", true),
            ("text/*", "text", false),
            ("text/*", "", false),
            ("text/*", "/", false),
        ] {
            assert_eq!(
                includes(range, media_type),
                expected,
                "{range} {media_type}"
            );
        }
    }

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

    #[test]
    fn the_default_has_all_its_types() {
        assert_eq!(Compression::default().types.len(), TYPES_DEFAULT.len());
        let types = Compression::default().types;
        let has = |media_type: &str| {
            types
                .iter()
                .any(|range| range.includes(media_type.as_bytes()))
        };
        for media_type in [
            "text/html",
            "application/ld+json",
            "application/wasm",
            "image/svg+xml",
        ] {
            assert!(has(media_type), "{media_type}");
        }
        for media_type in [
            "image/png",
            "font/woff2",
            "text/event-stream",
            "application/zip",
        ] {
            assert!(!has(media_type), "{media_type}");
        }
    }
}
