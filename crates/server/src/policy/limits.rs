//! Limits of requests: in a time, and at a time.

use std::sync::Arc;
use std::time::Duration;

use blitz_site::{Concurrency, Policy, RateKey, RateLimit, RateLimitSettings};

use super::{AppPolicy, Kind};
use crate::error::Error;

/// The most requests of a rate, of a burst and at a time.
const COUNT_MAX: u32 = 1_000_000;

/// The longest time in which an empty burst may come back. A key counts as used until then.
const REFILL_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

const UNITS: [(&str, u64); 4] = [("s", 1), ("min", 60), ("h", 3600), ("d", 24 * 3600)];

/// Limits requests per time; see [`rate_limit`].
#[derive(Clone)]
pub struct RateLimitPolicy {
    rate: Result<(u32, Duration), Error>,
    burst: Option<u32>,
    /// `None` is the client.
    by: Option<Vec<RateKey>>,
    dry_run: bool,
}

/// Limits the requests of each client: `100/s`, `10/min`, `1000/h` or `5000/d`, on all cores together.
///
/// Requests beyond it get 429 with `Retry-After`. A client of IPv6 is its network of 64 bits. Behind a proxy all
/// requests are those of the proxy, unless the app is a part of a gateway that trusts it.
///
/// ```
/// use blitz::{App, policy::rate_limit};
///
/// let app = App::new()
///     .policy(rate_limit("10/min").burst(20).by_header("x-api-key"))
///     .get("/", || "Hello, World!");
/// # app.build().unwrap();
/// ```
pub fn rate_limit(rate: &str) -> RateLimitPolicy {
    RateLimitPolicy {
        rate: parse(rate),
        burst: None,
        by: None,
        dry_run: false,
    }
}

impl RateLimitPolicy {
    /// The most requests at once. Default: the number of the rate.
    #[must_use]
    pub fn burst(mut self, requests: u32) -> RateLimitPolicy {
        self.burst = Some(requests);
        self
    }

    /// Counts by the address of the client, which is the default, beside other values.
    #[must_use]
    pub fn by_client(self) -> RateLimitPolicy {
        self.by(RateKey::Client)
    }

    /// Counts by the value of a field.
    #[must_use]
    pub fn by_header(self, name: &str) -> RateLimitPolicy {
        self.by(RateKey::Header(name.to_ascii_lowercase().into()))
    }

    /// Counts by the value of a cookie.
    #[must_use]
    pub fn by_cookie(self, name: &str) -> RateLimitPolicy {
        self.by(RateKey::Cookie(name.into()))
    }

    /// Counts by the value of a claim of the token that [`jwt`](super::jwt) has verified. Tokens without it count together.
    #[must_use]
    pub fn by_claim(self, name: &str) -> RateLimitPolicy {
        self.by(RateKey::Claim(name.into()))
    }

    /// Counts all requests together.
    #[must_use]
    pub fn for_all(mut self) -> RateLimitPolicy {
        self.by = Some(Vec::new());
        self
    }

    /// Counts requests beyond the limit and lets them pass.
    #[must_use]
    pub fn dry_run(mut self) -> RateLimitPolicy {
        self.dry_run = true;
        self
    }

    fn by(mut self, key: RateKey) -> RateLimitPolicy {
        self.by.get_or_insert_default().push(key);
        self
    }

    /// The policy, which counts at this place. It was checked.
    pub(super) fn placed(self, place: &str) -> Policy {
        let (count, period) = self.rate.unwrap_or((1, REFILL_MAX));
        Policy::RateLimit(Arc::new(RateLimit::new(RateLimitSettings {
            place: place.to_owned(),
            count,
            period,
            burst: self.burst.unwrap_or(count),
            by: self.by.unwrap_or_else(|| vec![RateKey::Client]),
            dry_run: self.dry_run,
            store: None,
        })))
    }
}

impl From<RateLimitPolicy> for AppPolicy {
    fn from(policy: RateLimitPolicy) -> AppPolicy {
        let (count, period) = match &policy.rate {
            Ok(rate) => *rate,
            Err(error) => return AppPolicy(Err(error.clone())),
        };
        let burst = policy.burst.unwrap_or(count);
        if !(1..=COUNT_MAX).contains(&burst) {
            let problem = format!("a burst is from 1 to {COUNT_MAX} requests");
            return AppPolicy(Err(Error::new(problem)));
        }
        if period * burst / count > REFILL_MAX {
            let error = Error::new("a burst of this size needs more than a week to come back");
            return AppPolicy(Err(
                error.with_remedy("Set a smaller burst or a higher rate.")
            ));
        }
        AppPolicy(Ok(Kind::RateLimit(policy)))
    }
}

/// Limits requests at a time, on all cores together. Those beyond get 503.
///
/// ```
/// use blitz::{App, policy::concurrency};
///
/// let app = App::new().policy(concurrency(100)).get("/", || "Hello, World!");
/// # app.build().unwrap();
/// ```
pub fn concurrency(max: u32) -> AppPolicy {
    AppPolicy(match (1..=COUNT_MAX).contains(&max) {
        true => Ok(Kind::Concurrency(max)),
        false => {
            let problem = format!("a concurrency is from 1 to {COUNT_MAX} requests");
            Err(Error::new(problem))
        }
    })
}

pub(super) fn placed(place: &str, max: u32) -> Policy {
    Policy::Concurrency(Arc::new(Concurrency::new(place, max)))
}

fn parse(text: &str) -> Result<(u32, Duration), Error> {
    let parsed = text.split_once('/').and_then(|(number, unit)| {
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        let count = number.parse::<u32>().ok().filter(|_| is_number)?;
        let (_, seconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
        let count = Some(count).filter(|count| (1..=COUNT_MAX).contains(count))?;
        Some((count, Duration::from_secs(*seconds)))
    });
    parsed.ok_or_else(|| {
        let error = Error::new(format!("`{text}` is no rate"));
        error.with_remedy("Write for example `100/s`, `10/min`, `1000/h` or `5000/d`.")
    })
}
