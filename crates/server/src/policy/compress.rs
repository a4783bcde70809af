//! Compression of responses.

use std::sync::Arc;

use blitz_site::ContentCoding;
use blitz_site::compress::{Compression, MediaRange};

use super::{AppPolicy, Kind};
use crate::error::{Error, Result};

/// Compresses responses for clients that accept zstd, br or gzip; see [`compress`].
pub struct CompressPolicy {
    compression: Compression,
    error: Option<Error>,
}

/// Compresses responses for clients that accept zstd, br or gzip.
///
/// Small, compressed and partial content stays as it is, as do event streams. Pieces that a handler sends with
/// [`Writer::send`](crate::Writer::send) leave at once. Strong entity tags become weak ones. Requests of other sites
/// with cookies are not compressed, because the length of content could tell a secret in it (BREACH).
///
/// ```
/// use blitz::{App, policy::compress};
///
/// let app = App::new()
///     .policy(compress().min_size(512).algorithms(["br", "gzip"]))
///     .get("/", || "text ".repeat(1000));
/// # app.build().unwrap();
/// ```
pub fn compress() -> CompressPolicy {
    CompressPolicy {
        compression: Compression::default(),
        error: None,
    }
}

impl CompressPolicy {
    /// Compresses these types only, such as `text/*`, `application/json` and `application/*+json`.
    #[must_use]
    pub fn types<'t>(mut self, types: impl IntoIterator<Item = &'t str>) -> CompressPolicy {
        let mut ranges = Vec::new();
        for text in types {
            match MediaRange::parse(text) {
                Some(range) => ranges.push(range),
                None => self.refuse(
                    format!("`{text}` is not a media type"),
                    "Write for example `application/json` or `text/*`.",
                ),
            }
        }
        self.compression = self.compression.with_types(ranges);
        self
    }

    /// Leaves content with fewer bytes as it is, if its length is known. Default: 1 KiB.
    #[must_use]
    pub fn min_size(mut self, bytes: u64) -> CompressPolicy {
        self.compression = self.compression.with_min_size(bytes);
        self
    }

    /// The algorithms; of those that a client accepts equally the first one is used. Default: `zstd`, `br`, `gzip`.
    #[must_use]
    pub fn algorithms<'t>(mut self, names: impl IntoIterator<Item = &'t str>) -> CompressPolicy {
        let mut codings = Vec::new();
        for name in names {
            let mut all = ContentCoding::ALL.into_iter();
            match all.find(|coding| coding.name() == name) {
                Some(coding) => codings.push(coding),
                None => self.refuse(
                    format!("`{name}` is no algorithm of compression"),
                    "Write `zstd`, `br` or `gzip`.",
                ),
            }
        }
        self.compression = self.compression.with_codings(codings);
        self
    }

    fn refuse(&mut self, problem: String, remedy: &str) {
        let error = Error::new(problem).with_remedy(remedy);
        self.error.get_or_insert(error);
    }
}

impl From<CompressPolicy> for AppPolicy {
    fn from(policy: CompressPolicy) -> AppPolicy {
        let made: Result<Kind> = match policy.error {
            Some(error) => Err(error),
            None => Ok(Kind::Compress(Arc::new(policy.compression))),
        };
        AppPolicy(made)
    }
}
