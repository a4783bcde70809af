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
    pub by: Vec<RateKey>,
    /// Whether requests beyond it are only counted.
    pub dry_run: bool,
    /// Whether all processes with the same `redis` share it, and what happens while that cannot be reached.
    pub store: Option<OnFailure>,
}

/// The behaviour of a limit while its store cannot be reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum OnFailure {
    /// Each process has its share of the limit.
    #[default]
    LocalShare,
    /// All requests pass.
    Open,
    /// None does.
    Closed,
}

/// A value that requests are counted by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RateKey {
    /// One of the request.
    Request(ClientKey),
    /// A claim of its verified token.
    Claim(String),
    /// The name of its client, which other policies have verified.
    User,
}

impl RateLimit {
    /// The claims that it counts by.
    pub fn claims(&self) -> impl Iterator<Item = &str> {
        self.by.iter().filter_map(|key| match key {
            RateKey::Claim(name) => Some(name.as_str()),
            RateKey::Request(_) | RateKey::User => None,
        })
    }

    /// Whether it counts by the names of clients.
    pub(crate) fn is_by_user(&self) -> bool {
        self.by.contains(&RateKey::User)
    }

    /// Whether it counts by what other policies have verified.
    #[must_use]
    pub fn is_of_identity(&self) -> bool {
        self.is_by_user() || self.claims().next().is_some()
    }
}

/// Requests at a time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Concurrency {
    /// The place that counts, where it is written.
    pub place: String,
    /// The most.
    pub max: u32,
}
