//! Tokens that a core has taken and not spent.

/// Most leases of a core; 6 KiB.
const LEASES_MAX: usize = 256;

/// The leases of a core. Each key has one place.
#[derive(Debug, Default)]
pub(super) struct Leases(Vec<Lease>);

/// Tokens of a key.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lease {
    pub(super) key: u64,
    pub(super) interval: u64,
    pub(super) tokens: u32,
}

impl Leases {
    /// Spends a token of a key; false if there is none.
    pub(super) fn spend(&mut self, key: u64) -> bool {
        let lease = self.0.get_mut(place(key));
        let lease = lease.filter(|lease| lease.key == key && lease.tokens > 0);
        lease.map(|lease| lease.tokens -= 1).is_some()
    }

    /// Keeps tokens. Returns those of another key that had their place.
    pub(super) fn put(&mut self, key: u64, tokens: u32, interval: u64) -> Option<Lease> {
        if self.0.is_empty() {
            self.0 = vec![Lease::default(); LEASES_MAX];
        }
        let place = self.0.get_mut(place(key))?;
        let new = Lease {
            key,
            interval,
            tokens,
        };
        let before = std::mem::replace(place, new);
        (before.tokens > 0 && before.key != key).then_some(before)
    }
}

/// Other bits than those that choose the set of the key.
fn place(key: u64) -> usize {
    (key >> 48) as usize % LEASES_MAX
}
