//! `rate_limit`: requests per time.

use std::cell::RefCell;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use siphasher::sip::SipHasher24;

use super::{CoreLimits, Notes, PolicyRequest, set};
use crate::client::{ClientAddress, ClientNetwork};
use crate::cookies::cookies;
use crate::counters::count;
use crate::rate::{CoreBuckets, Rate, StoreTable, Throttled};
use crate::rejection::Rejection;

/// Which requests a limit counts, and how.
#[derive(Debug, Clone)]
pub struct RateLimitSettings {
    /// The place where it is written. Limits with equal places and settings share their buckets, also over reloads.
    pub place: String,
    /// So many requests…
    pub count: u32,
    /// …in this time.
    pub period: Duration,
    /// The most at once.
    pub burst: u32,
    /// Requests with the same values share a bucket; without values all do.
    pub by: Vec<RateKey>,
    /// Whether requests beyond the limit are only counted.
    pub dry_run: bool,
    /// The store that has the buckets; without one this process has them.
    pub store: Option<StoreUse>,
}

/// How a limit uses a store that several processes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoreUse {
    /// For the hashes of values, equal in all processes.
    pub hash_key: [u64; 2],
    /// The behaviour while the store cannot be reached.
    pub on_failure: OnStoreFailure,
}

/// The behaviour of a limit while its store cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnStoreFailure {
    /// Each process has its share of the limit.
    LocalShare,
    /// All requests pass.
    Open,
    /// None does.
    Closed,
}

/// A value of a request by which a limit counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RateKey {
    /// The address of the client; of IPv6 the network of 64 bits, which one client has.
    Client,
    /// A field of this name, in lower case.
    Header(Box<str>),
    /// A cookie of this name.
    Cookie(Box<str>),
    /// The claim of this name, of the token that a policy has verified.
    Claim(Box<str>),
    /// The name of the client, as policies have verified.
    User,
}

/// Why a request has no token.
enum Refused {
    Throttled(Throttled),
    /// The store cannot be reached.
    WithoutStore,
}

/// The policy.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct RateLimit {
    /// Of the place and the settings.
    id: u64,
    rate: Rate,
    by: Box<[RateKey]>,
    dry_run: bool,
    store: Option<StoreUse>,
}

impl RateLimit {
    /// The policy of these settings.
    #[must_use]
    pub fn new(settings: RateLimitSettings) -> RateLimit {
        let rate = Rate::new(settings.count, settings.period, settings.burst);
        let mut id = DefaultHasher::new();
        (settings.place, rate, &settings.by).hash(&mut id);
        RateLimit {
            id: id.finish(),
            rate,
            by: settings.by.into(),
            dry_run: settings.dry_run,
            store: settings.store,
        }
    }

    /// Whether it counts by the identity of clients, which other policies verify before.
    pub(super) fn is_of_identity(&self) -> bool {
        let is_verified = |key: &RateKey| matches!(key, RateKey::Claim(_) | RateKey::User);
        self.by.iter().any(is_verified)
    }

    /// Not inlined, so that other policies do not take the client's address apart.
    #[inline(never)]
    pub(super) fn decide(
        &self,
        request: &PolicyRequest<'_>,
        notes: &mut Notes<'_>,
    ) -> Result<(), Rejection> {
        let Some(limits) = request.limits else {
            return Ok(());
        };
        let taken = match &self.store {
            None => {
                let mut buckets = self.buckets(limits).borrow_mut();
                let hasher = buckets.shared().hasher(self.id);
                let key = self.key(request, notes, hasher);
                let now = blitz_http::now();
                let taken = buckets.take(self.id, key, &self.rate, now);
                taken.map_err(Refused::Throttled)
            }
            Some(store) => self.take_shared(store, limits, request, notes),
        };
        match taken {
            Ok(()) => Ok(()),
            Err(_) if self.dry_run => {
                count(|counters| counters.rate_limit_dry_runs += 1);
                Ok(())
            }
            Err(Refused::Throttled(throttled)) => {
                self.note_wait(throttled, notes);
                Err(Rejection::RateLimited)
            }
            Err(Refused::WithoutStore) => {
                notes.edit_response(vec![set("retry-after", Some(b"1"))]);
                Err(Rejection::RateStore)
            }
        }
    }

    /// The table of its buckets. Values that clients choose without a proof have one of their own.
    fn buckets<'l>(&self, limits: &'l CoreLimits) -> &'l RefCell<CoreBuckets> {
        match self.is_chosen() {
            true => &limits.chosen,
            false => &limits.buckets,
        }
    }

    /// The table of its tokens from a store.
    fn store_table(&self) -> StoreTable {
        match self.is_chosen() {
            true => StoreTable::Chosen,
            false => StoreTable::Proved,
        }
    }

    /// Whether clients choose what it counts by, without a proof.
    fn is_chosen(&self) -> bool {
        let is_chosen = |key: &RateKey| matches!(key, RateKey::Header(_) | RateKey::Cookie(_));
        self.by.iter().any(is_chosen)
    }

    /// Takes a token that several processes share.
    #[inline(never)]
    fn take_shared(
        &self,
        store: &StoreUse,
        limits: &CoreLimits,
        request: &PolicyRequest<'_>,
        notes: &Notes<'_>,
    ) -> Result<(), Refused> {
        let now = blitz_http::now();
        let [one, other] = store.hash_key;
        let key = || {
            let mut hasher = SipHasher24::new_with_keys(one, other);
            hasher.write_u64(self.id);
            self.key(request, notes, hasher)
        };
        if limits.store.is_reachable(now) {
            let taken = (limits.store).take(self.store_table(), key(), &self.rate, now);
            if let Some(taken) = taken {
                return taken.map_err(Refused::Throttled);
            }
            count(|counters| counters.rate_limits_overflowed += 1);
        } else {
            match store.on_failure {
                OnStoreFailure::Open => return Ok(()),
                OnStoreFailure::Closed => return Err(Refused::WithoutStore),
                OnStoreFailure::LocalShare => {}
            }
        }
        let mut buckets = self.buckets(limits).borrow_mut();
        let share = self.rate.share(limits.store.processes());
        let mut hasher = buckets.shared().hasher(self.id);
        hasher.write_u64(key());
        let taken = buckets.take(self.id, hasher.finish(), &share, now);
        taken.map_err(Refused::Throttled)
    }

    /// The key of the request's bucket, by a hasher that has a key or the identity of the limit.
    fn key(&self, request: &PolicyRequest<'_>, notes: &Notes<'_>, mut hasher: impl Hasher) -> u64 {
        for key in &self.by {
            match key {
                RateKey::Client => hash_client(request.client, &mut hasher),
                RateKey::Header(name) => {
                    let lines = request.head.fields.get_all(&**name);
                    hash_values(lines, &mut hasher);
                }
                RateKey::Cookie(name) => {
                    hash_values(cookies(&request.head.fields, name), &mut hasher);
                }
                RateKey::User => {
                    let value = request.user(notes).map(str::as_bytes);
                    hash_values(value.into_iter(), &mut hasher);
                }
                RateKey::Claim(name) => {
                    let value = notes.claim(name).map(str::as_bytes);
                    hash_values(value.into_iter(), &mut hasher);
                }
            }
        }
        hasher.finish()
    }

    /// Fields of the draft draft-ietf-httpapi-ratelimit-headers-10: the burst is the quota, and the time in which it
    /// comes back the window.
    #[cold]
    fn note_wait(&self, throttled: Throttled, notes: &mut Notes<'_>) {
        let wait = whole_seconds(throttled.wait);
        let quota = self.rate.burst();
        let window = whole_seconds(self.rate.refill_time());
        let policy = format!("\"default\";q={quota};w={window}");
        let limit = format!("\"default\";r=0;t={wait}");
        notes.edit_response(vec![
            set("retry-after", Some(wait.to_string().as_bytes())),
            set("ratelimit-policy", Some(policy.as_bytes())),
            set("ratelimit", Some(limit.as_bytes())),
        ]);
    }
}

/// Rounded up, and at least one.
fn whole_seconds(time: Duration) -> u64 {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    seconds.max(1)
}

/// Numbers that stay the same: gateways that share a store may have different versions. The first word says which kind of
/// client it is, so that no two kinds have the same key.
#[inline]
fn hash_client(client: ClientAddress, hasher: &mut impl Hasher) {
    match client.network() {
        ClientNetwork::V4(address) => hasher.write_u64(kind(4) | u64::from(address)),
        ClientNetwork::V6(network) => {
            hasher.write_u64(kind(6));
            hasher.write_u64(network);
        }
        ClientNetwork::Unix => hasher.write_u64(kind(1)),
        ClientNetwork::Unknown => hasher.write_u64(kind(0)),
    }
}

fn kind(number: u64) -> u64 {
    number << 32
}

/// All values of a name, so that a further one does not hide the one that an upstream reads. Requests without any share
/// a key.
fn hash_values<'a>(values: impl Iterator<Item = &'a [u8]>, hasher: &mut impl Hasher) {
    let mut number = 0_u32;
    for value in values {
        value.hash(hasher);
        number += 1;
    }
    number.hash(hasher);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;
    use crate::policy::SharedLimits;

    fn client_key(text: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        hash_client(ClientAddress::Address(text.parse().unwrap()), &mut hasher);
        hasher.finish()
    }

    #[test]
    fn a_client_of_ipv6_is_its_network() {
        assert_eq!(client_key("2001:db8::1"), client_key("2001:db8::ffff:1"));
        assert_ne!(client_key("2001:db8::1"), client_key("2001:db8:0:1::1"));
        assert_ne!(client_key("192.0.2.1"), client_key("192.0.2.2"));
        assert_eq!(client_key("::ffff:192.0.2.1"), client_key("192.0.2.1"));
    }

    #[test]
    fn the_identity_is_that_of_place_and_settings() {
        let settings = |place: &str, burst, dry_run| {
            RateLimit::new(RateLimitSettings {
                place: place.to_owned(),
                count: 10,
                period: Duration::from_secs(1),
                burst,
                by: vec![RateKey::Client],
                dry_run,
                store: None,
            })
        };
        let id = settings("site a /", 10, false).id;
        assert_eq!(settings("site a /", 10, true).id, id);
        assert_ne!(settings("site a /", 11, false).id, id);
        assert_ne!(settings("site b /", 10, false).id, id);
    }

    #[test]
    fn values_that_a_client_invents_take_no_room_of_addresses() {
        let limits = CoreLimits::new(&Arc::new(SharedLimits::new(1, 7, Instant::now())));
        let has_own = |by: Vec<RateKey>| {
            let limit = RateLimit::new(RateLimitSettings {
                place: String::new(),
                count: 1,
                period: Duration::from_secs(1),
                burst: 1,
                by,
                dry_run: false,
                store: None,
            });
            let has_own = !std::ptr::eq(limit.buckets(&limits), &limits.buckets);
            assert_eq!(has_own, limit.store_table() == StoreTable::Chosen);
            has_own
        };
        assert!(has_own(vec![RateKey::Header("x-key".into())]));
        assert!(has_own(vec![RateKey::Client, RateKey::Cookie("id".into())]));
        assert!(!has_own(vec![RateKey::Client]) && !has_own(Vec::new()));
        assert!(!has_own(vec![RateKey::Claim("sub".into())]));
    }

    #[test]
    fn waits_are_whole_seconds() {
        for (milliseconds, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (60_000, 60)] {
            assert_eq!(whole_seconds(Duration::from_millis(milliseconds)), seconds);
        }
    }
}
