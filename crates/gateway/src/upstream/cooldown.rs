//! Addresses that could not be connected to, which requests avoid while there are others.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long an address is avoided after a failure. It doubles with each probe that takes long to fail.
pub(super) const COOLDOWN_MIN: Duration = Duration::from_secs(1);
/// The longest cooldown, and how long an address is avoided while a probe is pending.
pub(super) const COOLDOWN_MAX: Duration = Duration::from_secs(30);

/// The cooldowns of a core. When one ends, a single request probes the address, because a connect that is
/// not answered costs it seconds. The others avoid the address until the outcome.
#[derive(Debug, Default)]
pub(super) struct Cooldowns(Vec<Cooldown>);

#[derive(Debug)]
struct Cooldown {
    address: SocketAddr,
    length: Duration,
    until: Instant,
    /// A request went to the address after its cooldown; the outcome is not known yet.
    is_probed: bool,
}

impl Cooldowns {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether requests avoid `address`.
    pub(super) fn contains(&self, address: SocketAddr, now: Instant) -> bool {
        let mut all = self.0.iter();
        all.any(|one| one.address == address && one.until > now)
    }

    /// How long requests will avoid `address`, if they do.
    pub(super) fn left(&self, address: SocketAddr, now: Instant) -> Option<Duration> {
        let one = self.0.iter().find(|one| one.address == address)?;
        let left = one.until.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }

    /// The number of addresses that requests avoid.
    pub(super) fn count(&self, now: Instant) -> usize {
        self.0.iter().filter(|one| one.until > now).count()
    }

    /// Notes that a request goes to `address`, which is not avoided. If it failed before, this is its
    /// probe. A request that is dropped has no outcome, so a probe ends with the longest cooldown.
    pub(super) fn picked(&mut self, address: SocketAddr, now: Instant) {
        if let Some(one) = self.find(address) {
            one.is_probed = true;
            one.until = now + COOLDOWN_MAX;
        }
    }

    /// Notes that no connection to `address` could be made. `is_slow`: the failure took time, unlike a
    /// refused connection, which costs the next probe nothing.
    pub(super) fn failed(&mut self, address: SocketAddr, is_slow: bool, now: Instant) {
        let Some(one) = self.find(address) else {
            return self.0.push(Cooldown {
                address,
                length: COOLDOWN_MIN,
                until: now + COOLDOWN_MIN,
                is_probed: false,
            });
        };
        // Requests that began before the first failure end one after the other, and count as one.
        one.length = match (is_slow, one.is_probed) {
            (false, _) => COOLDOWN_MIN,
            (true, false) => one.length,
            (true, true) => (one.length * 2).min(COOLDOWN_MAX),
        };
        one.until = now + one.length;
        one.is_probed = false;
    }

    /// Notes that a request that went to `address` ended without an outcome: the next one is the probe.
    pub(super) fn undecided(&mut self, address: SocketAddr, now: Instant) {
        if let Some(one) = self.find(address).filter(|one| one.is_probed) {
            one.is_probed = false;
            one.until = now;
        }
    }

    /// Notes that `address` is connected to.
    pub(super) fn end(&mut self, address: SocketAddr) {
        self.0.retain(|one| one.address != address);
    }

    /// Forgets the addresses that are not in `all`.
    pub(super) fn retain(&mut self, all: &[SocketAddr]) {
        self.0.retain(|one| all.contains(&one.address));
    }

    fn find(&mut self, address: SocketAddr) -> Option<&mut Cooldown> {
        self.0.iter_mut().find(|one| one.address == address)
    }
}
