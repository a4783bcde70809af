//! The settings of a store.

use std::time::Duration;

use blitz_config::{Diagnostic, Placed, Process, Redis};
use redis::Client;

const TIMEOUT: Duration = Duration::from_millis(250);
const PREFIX: &str = "blitz:";

/// A server, and how it is used.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct StoreSettings {
    pub(super) url: String,
    pub(super) timeout: Duration,
    pub(super) prefix: String,
}

impl StoreSettings {
    /// `None` if there is none.
    pub(super) fn of(process: &Process) -> Option<StoreSettings> {
        let Redis {
            url,
            timeout,
            prefix,
        } = &process.redis;
        let text = |text: &Option<Placed<String>>| text.as_ref().map(|text| text.value.clone());
        Some(StoreSettings {
            url: text(url)?,
            timeout: timeout.as_ref().map_or(TIMEOUT, |timeout| timeout.value),
            prefix: text(prefix).unwrap_or_else(|| PREFIX.to_owned()),
        })
    }
}

/// Mistakes that the file's own reader cannot see.
pub(super) fn check(redis: &Redis, diagnostics: &mut Vec<Diagnostic>) {
    let Some(url) = &redis.url else { return };
    if url.value.starts_with("redis://") && Client::open(url.value.as_str()).is_err() {
        let message = "this is no URL of Redis";
        let label = "write redis://host:6379, or redis://user:password@host:6379/0";
        let span = url.span.clone();
        diagnostics.push(Diagnostic::error("redis-url", span, message, label));
    }
}
