//! `redis`, the store of limits that several processes share.

use std::time::Duration;

use super::Reader;
use crate::claims::all_settings;
use crate::model::Configuration;

pub(super) const URL: &str = "\"redis://127.0.0.1:6379\"";

/// Shorter ones would fail in a busy process, and longer ones would leave limits without tokens.
const TIMEOUTS: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(5)];

const PREFIX_BYTES_MAX: usize = 64;

impl Reader<'_> {
    pub(super) fn check_redis(&mut self, configuration: &Configuration) {
        let redis = &configuration.process.redis;
        if let Some(url) = &redis.url {
            let scheme = url.value.split_once("://").map(|(scheme, _)| scheme);
            match scheme {
                Some("redis") => {}
                Some("rediss") => self.not_yet(url.span.clone(), "`rediss://`"),
                _ => {
                    let label = format!("write for example {URL}");
                    self.error(
                        "redis-url",
                        url.span.clone(),
                        "this is no URL of Redis",
                        label,
                    );
                }
            }
        } else if let Some((_, _, span)) = redis.written().into_iter().next() {
            let label = format!("write for example url = {URL}");
            self.error("redis-url", span, "`url` is missing in `redis`", label);
        }
        if let Some(timeout) = &redis.timeout
            && !(TIMEOUTS[0]..=TIMEOUTS[1]).contains(&timeout.value)
        {
            let label = "write from \"10ms\" to \"5s\"";
            self.error(
                "redis-timeout",
                timeout.span.clone(),
                "this timeout is not possible",
                label,
            );
        }
        if let Some(prefix) = &redis.prefix {
            let is_plain = prefix.value.bytes().all(|byte| byte.is_ascii_graphic());
            if !is_plain || prefix.value.len() > PREFIX_BYTES_MAX {
                let message = "this prefix is not possible";
                let label = "write up to 64 ASCII characters without spaces, such as \"blitz:\"";
                self.error("redis-prefix", prefix.span.clone(), message, label);
            }
        }
        self.limits_without_redis(configuration);
    }

    fn limits_without_redis(&mut self, configuration: &Configuration) {
        if !configuration.process.redis.written().is_empty() {
            return;
        }
        let routes = configuration.sites.iter().flat_map(|site| &site.routes);
        for settings in routes.flat_map(all_settings) {
            let Some(limit) = &settings.policies.rate_limit else {
                continue;
            };
            let mut errors = self.diagnostics.iter();
            let is_known = errors.any(|error| error.code == "redis" && error.span == limit.span);
            if limit.value.store.is_some() && !is_known {
                let label = format!("write redis = {URL} at the top of the main file");
                self.error(
                    "redis",
                    limit.span.clone(),
                    "the store of this limit has no `redis`",
                    label,
                );
            }
        }
    }
}
