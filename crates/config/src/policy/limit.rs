//! `rate_limit` and `concurrency`: how many requests pass.

use std::time::Duration;

use crate::balance::ClientKey;

/// Requests per time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RateLimit {
    /// The place that counts, where it is written.
    pub place: String,
    /// So many…
    pub count: u32,
    /// …in this time.
    pub period: Duration,
    /// The most at once.
    pub burst: u32,
    /// The values that are counted on their own; none counts all requests together.
    pub by: Vec<ClientKey>,
    /// Whether requests beyond it are only counted.
    pub dry_run: bool,
}

/// Requests at a time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Concurrency {
    /// The place that counts, where it is written.
    pub place: String,
    /// The most.
    pub max: u32,
}
