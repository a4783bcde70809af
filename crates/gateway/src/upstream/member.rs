//! A server as all cores know it: what one of them or an operator says of it counts for every core.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::set::Identity;
use super::shared_retries::SharedRetries;

/// How long other requests avoid a server after one went there to find out whether it works again. A request that its
/// client left says nothing.
const PROBE_TIME: Duration = Duration::from_secs(10);

/// A server that has worked for so long after an ejection begins anew: the next ejection is a short one.
const FORGIVEN_AFTER: Duration = Duration::from_secs(60);

/// The knowledge that cores share about a server. Reading it costs one load from a cache line that hardly ever changes.
#[derive(Debug)]
pub(crate) struct Member {
    /// Its URL.
    pub(crate) url: Box<str>,
    /// The retries of requests to it, and to upstreams whose first server it is.
    pub(crate) retries: SharedRetries,
    is_drained: AtomicBool,
    /// Until when requests avoid it, in nanoseconds since `base`; 0: they do not. Once the time is over, one request goes
    /// there.
    avoided_until: AtomicU64,
    /// How often it was ejected in a row.
    ejections: AtomicU32,
    /// Since when it is available again, or in use at all, as `avoided_until`; 0: since the start.
    available_since: AtomicU64,
    base: OnceLock<Instant>,
}

impl Member {
    pub(super) fn new(url: &str) -> Member {
        Member {
            url: url.into(),
            retries: SharedRetries::default(),
            is_drained: AtomicBool::new(false),
            avoided_until: AtomicU64::new(0),
            ejections: AtomicU32::new(0),
            available_since: AtomicU64::new(0),
            base: OnceLock::new(),
        }
    }

    /// Whether an operator has taken it out: it gets only requests of clients that stay with it.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_drained.load(Ordering::Relaxed)
    }

    pub(crate) fn set_drained(&self, is_drained: bool) {
        self.is_drained.store(is_drained, Ordering::Relaxed);
    }

    /// Whether requests avoid it, because it was ejected or could not be connected to.
    #[inline]
    pub(crate) fn is_avoided(&self, now: Instant) -> bool {
        let until = self.avoided_until.load(Ordering::Relaxed);
        until != 0 && self.nanos(now) < until
    }

    /// Whether it was avoided and has not responded since.
    #[inline]
    pub(super) fn is_on_probation(&self) -> bool {
        self.avoided_until.load(Ordering::Relaxed) != 0
    }

    /// Lets the caller go there. Of the cores that want to find out whether it works again, one may.
    pub(super) fn try_probe(&self, now: Instant) -> bool {
        let until = self.avoided_until.load(Ordering::Relaxed);
        let time = self.nanos(now);
        if until == 0 {
            return true;
        }
        let next = time.saturating_add(nanos_of(PROBE_TIME));
        until <= time
            && self
                .avoided_until
                .compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Has requests avoid it for a time.
    pub(super) fn avoid(&self, time: Duration, now: Instant) {
        let until = self.nanos(now).saturating_add(nanos_of(time));
        self.avoided_until.store(until.max(1), Ordering::Relaxed);
    }

    /// Counts an ejection. Returns how many there were in a row.
    pub(super) fn count_ejection(&self, now: Instant) -> u32 {
        let since = self.available_since.load(Ordering::Relaxed);
        if self.nanos(now).saturating_sub(since) >= nanos_of(FORGIVEN_AFTER) {
            self.ejections.store(0, Ordering::Relaxed);
        }
        self.ejections.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// It has responded: it gets requests again.
    pub(super) fn returned(&self, now: Instant) {
        if self.avoided_until.swap(0, Ordering::Relaxed) != 0 {
            self.became_available(now);
        }
    }

    /// It becomes available now.
    pub(crate) fn became_available(&self, now: Instant) {
        let since = self.nanos(now).max(1);
        self.available_since.store(since, Ordering::Relaxed);
    }

    /// How long it has been available; `None` if it was from the start.
    pub(super) fn available_for(&self, now: Instant) -> Option<Duration> {
        match self.available_since.load(Ordering::Relaxed) {
            0 => None,
            since => Some(Duration::from_nanos(self.nanos(now).saturating_sub(since))),
        }
    }

    /// How long requests will avoid it.
    pub(crate) fn avoided_for(&self, now: Instant) -> Option<Duration> {
        let until = self.avoided_until.load(Ordering::Relaxed);
        let left = until.saturating_sub(self.nanos(now));
        (left > 0).then(|| Duration::from_nanos(left))
    }

    /// A time in nanoseconds, above 0.
    #[inline]
    fn nanos(&self, now: Instant) -> u64 {
        let base = *self.base.get_or_init(|| now);
        nanos_of(now.saturating_duration_since(base)).saturating_add(1)
    }
}

fn nanos_of(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The servers of a gateway. They outlive configurations: a reload forgets nothing about those that stay.
#[derive(Debug, Clone, Default)]
pub(crate) struct Members(Arc<Mutex<HashMap<Identity, Weak<Member>>>>);

impl Members {
    /// The server with this identity, which is new if no configuration in use has it.
    pub(crate) fn get(&self, identity: &Identity) -> Arc<Member> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(identity).and_then(Weak::upgrade) {
            return known;
        }
        // Only before it grows, since there may be many.
        if all.len() == all.capacity() {
            all.retain(|_, member| member.strong_count() > 0);
        }
        let member = Arc::new(Member::new(&identity.url()));
        all.insert(identity.clone(), Arc::downgrade(&member));
        member
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_core_probes_a_server_whose_time_is_over() {
        let (member, now) = (Member::new("http://a"), Instant::now());
        assert!(member.try_probe(now) && member.try_probe(now));
        let time = Duration::from_secs(5);
        member.avoid(time, now);
        assert!(member.is_avoided(now + time / 2) && !member.try_probe(now + time / 2));
        assert_eq!(member.avoided_for(now), Some(time));
        let after = now + time;
        assert!(!member.is_avoided(after) && member.is_on_probation());
        assert!(member.try_probe(after));
        assert!(member.is_avoided(after) && !member.try_probe(after));
        assert!(
            member.try_probe(after + PROBE_TIME),
            "the first had no outcome"
        );
        member.returned(after);
        assert!(!member.is_on_probation() && member.try_probe(after));
        assert_eq!(member.available_for(after + time), Some(time));
    }

    #[test]
    fn ejections_count_in_a_row() {
        let (member, now) = (Member::new("http://a"), Instant::now());
        assert_eq!(member.count_ejection(now), 1);
        member.avoid(Duration::from_secs(5), now);
        member.returned(now + Duration::from_secs(5));
        assert_eq!(member.count_ejection(now + Duration::from_secs(6)), 2);
        let later = now + Duration::from_secs(10);
        member.returned(later);
        assert_eq!(member.count_ejection(later + FORGIVEN_AFTER), 1);
    }
}
