//! A choice among members with weights: the targets of a route, or the servers of a target.

use std::cell::Cell;

use blitz_config::{Balance, ClientKey, Sticky};

/// The choice of a core, which knows only its own requests.
pub(super) struct Selector {
    balance: Balance,
    pub(super) sticky: Option<Sticky>,
    members: Box<[Member]>,
}

/// A member to choose.
struct Member {
    /// The same in all processes and after restarts.
    id: u64,
    /// 0 gets only requests that ask for it.
    weight: u16,
    /// The turns that it has saved while others had theirs.
    credit: Cell<i64>,
}

/// The wish of a request for a member.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Affinity {
    /// The member that its cookie names.
    pub(super) member: Option<u16>,
    /// A value that chooses the member.
    pub(super) hash: Option<u64>,
}

/// A value of a request that may choose a member.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ClientValue<'n> {
    /// The address of the client.
    Address,
    /// A field.
    Header(&'n str),
    Cookie(&'n str),
}

impl<'n> From<&'n ClientKey> for ClientValue<'n> {
    fn from(key: &'n ClientKey) -> ClientValue<'n> {
        match key {
            ClientKey::Client => ClientValue::Address,
            ClientKey::Header(name) => ClientValue::Header(name),
            ClientKey::Cookie(name) => ClientValue::Cookie(name),
        }
    }
}

impl Selector {
    /// Members are given by a name that stays the same, and a weight.
    pub(super) fn new<'n>(
        members: impl Iterator<Item = (&'n str, u16)>,
        balance: Balance,
        sticky: Option<Sticky>,
    ) -> Selector {
        let member = |(name, weight): (&str, u16)| Member {
            id: hash(name.as_bytes()),
            weight,
            credit: Cell::new(0),
        };
        Selector {
            balance,
            sticky,
            members: members.map(member).collect(),
        }
    }

    /// Whether requests say something about the choice.
    pub(super) fn has_affinity(&self) -> bool {
        self.sticky.is_some() || matches!(self.balance, Balance::Hash(_))
    }

    /// The wish of a request with these values.
    pub(super) fn affinity(&self, value: impl Fn(ClientValue<'_>) -> Option<Vec<u8>>) -> Affinity {
        let hash_of = |key: &ClientKey| value(key.into()).map(|value| hash(&value));
        let mut affinity = Affinity::default();
        match &self.sticky {
            Some(Sticky::Cookie(name)) => {
                let token = value(ClientValue::Cookie(name));
                affinity.member = token.and_then(|token| self.member(&token));
            }
            Some(Sticky::Key(key)) => affinity.hash = hash_of(key),
            None => {}
        }
        if let (None, Balance::Hash(key)) = (affinity.hash, &self.balance) {
            affinity.hash = hash_of(key);
        }
        affinity
    }

    /// The text by which a cookie names a member.
    pub(super) fn token(&self, member: u16) -> String {
        format!("{:016x}", self.members[usize::from(member)].id)
    }

    /// The member that the text of a cookie names.
    fn member(&self, token: &[u8]) -> Option<u16> {
        let token = std::str::from_utf8(token).ok()?;
        let id = u64::from_str_radix(token, 16).ok()?;
        let at = self.members.iter().position(|member| member.id == id)?;
        u16::try_from(at).ok()
    }

    pub(super) fn weight(&self, member: usize) -> u16 {
        self.members[member].weight
    }

    /// The member for a request. `load` is how many requests a member has.
    pub(super) fn pick(
        &self,
        affinity: Affinity,
        is_usable: impl Fn(usize) -> bool,
        load: impl Fn(usize) -> u32,
        random: impl FnOnce() -> u64,
    ) -> Option<usize> {
        let wanted = affinity.member.map(usize::from);
        if let Some(member) = wanted.filter(|member| is_usable(*member)) {
            return Some(member);
        }
        let is_usable = |member: &usize| self.members[*member].weight > 0 && is_usable(*member);
        if let Some(hash) = affinity.hash {
            return self.by_hash(hash, is_usable);
        }
        match self.balance {
            Balance::P2c => self.of_two(random(), is_usable, load),
            Balance::LeastRequests => self.least(is_usable, load),
            Balance::RoundRobin | Balance::Hash(_) => self.in_turn(is_usable),
        }
    }

    fn usable(&self, is_usable: impl Fn(&usize) -> bool) -> impl Iterator<Item = usize> {
        (0..self.members.len()).filter(move |member| is_usable(member))
    }

    /// Smooth weighted round robin, as in nginx: each turn gives all members their weight, and the one that is chosen pays
    /// for all.
    fn in_turn(&self, is_usable: impl Fn(&usize) -> bool) -> Option<usize> {
        let mut total = 0;
        let mut best: Option<(usize, i64)> = None;
        for at in self.usable(is_usable) {
            let member = &self.members[at];
            let credit = member.credit.get() + i64::from(member.weight);
            member.credit.set(credit);
            total += i64::from(member.weight);
            if best.is_none_or(|(_, most)| credit > most) {
                best = Some((at, credit));
            }
        }
        let (at, credit) = best?;
        self.members[at].credit.set(credit - total);
        Some(at)
    }

    /// Of two members, chosen at random by their weights, the one with fewer requests for its weight. A core does not know
    /// the requests of others, which all would go to the same member if each chose the best of all.
    fn of_two(
        &self,
        random: u64,
        is_usable: impl Fn(&usize) -> bool,
        load: impl Fn(usize) -> u32,
    ) -> Option<usize> {
        let all = || self.usable(&is_usable);
        let total: u64 = all().map(|at| u64::from(self.members[at].weight)).sum();
        let at_random = |random: u64| {
            let mut left = random.checked_rem(total)?;
            all().find(|at| {
                let weight = u64::from(self.members[*at].weight);
                let is_there = left < weight;
                left = left.saturating_sub(weight);
                is_there
            })
        };
        let (first, second) = (
            at_random(random >> 32)?,
            at_random(random & u64::from(u32::MAX))?,
        );
        let is_better = self.relative(second, &load) < self.relative(first, &load);
        Some(if is_better { second } else { first })
    }

    /// The fewest requests for the weight; members with equally many take turns.
    fn least(
        &self,
        is_usable: impl Fn(&usize) -> bool,
        load: impl Fn(usize) -> u32,
    ) -> Option<usize> {
        let loads = self.usable(&is_usable).map(|at| self.relative(at, &load));
        let least = loads.min_by(f64::total_cmp)?;
        self.in_turn(|at| is_usable(at) && self.relative(*at, &load) <= least)
    }

    /// Requests for a weight of 1. Idle members are equal, so that each gets its share of the first requests.
    fn relative(&self, member: usize, load: impl Fn(usize) -> u32) -> f64 {
        f64::from(load(member)) / f64::from(self.members[member].weight)
    }

    /// Weighted rendezvous hashing (Schindelhauer and Schomaker, 2005): each member has a score for each value, and the
    /// lowest is chosen. Without a member only its own values go elsewhere.
    fn by_hash(&self, value: u64, is_usable: impl Fn(&usize) -> bool) -> Option<usize> {
        let score = |at: &usize| {
            let member = &self.members[*at];
            // Between 0 and 1, never one of them.
            let uniform = ((mix(value ^ member.id) >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
            -uniform.ln() / f64::from(member.weight)
        };
        let all = self.usable(is_usable);
        all.min_by(|a, b| score(a).total_cmp(&score(b)))
    }
}

/// A hash that is the same in all processes and versions: FNV-1a, mixed because it spreads short texts badly.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    mix(bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

/// The finalizer of SplitMix64.
fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = ["a", "b", "c", "d"];

    fn selector(weights: &[u16], balance: Balance) -> Selector {
        let members = NAMES.into_iter().zip(weights.iter().copied());
        Selector::new(members, balance, None)
    }

    /// How often each member is chosen, with these requests at each, for random numbers that are spread evenly.
    fn chosen(selector: &Selector, loads: &[u32], count: u64) -> Vec<usize> {
        let mut chosen = vec![0; loads.len()];
        for number in 0..count {
            let random = || mix(number);
            let at = selector.pick(Affinity::default(), |_| true, |at| loads[at], random);
            chosen[at.unwrap()] += 1;
        }
        chosen
    }

    #[test]
    fn members_take_turns_by_their_weights() {
        let selector = selector(&[3, 1, 0, 2], Balance::RoundRobin);
        assert_eq!(chosen(&selector, &[0; 4], 600), [300, 100, 0, 200]);
        let order: Vec<usize> = (0..6)
            .map(|_| selector.in_turn(|at| selector.weight(*at) > 0).unwrap())
            .collect();
        assert_eq!(
            order,
            [0, 3, 0, 1, 3, 0],
            "no member has all its turns at once"
        );
    }

    #[test]
    fn a_member_that_cannot_be_used_gets_no_turn_and_owes_none() {
        let selector = selector(&[1, 1, 1], Balance::RoundRobin);
        for _ in 0..100 {
            let at = selector.pick(Affinity::default(), |at| at != 1, |_| 0, || 0);
            assert_ne!(at, Some(1));
        }
        assert_eq!(chosen(&selector, &[0; 3], 30), [10, 10, 10]);
        assert_eq!(
            selector.pick(Affinity::default(), |_| false, |_| 0, || 0),
            None
        );
    }

    #[test]
    fn of_two_members_the_one_with_fewer_requests_is_chosen() {
        let selector = selector(&[1, 1, 1], Balance::P2c);
        let counts = chosen(&selector, &[0, 0, 5], 9_000);
        // The third one is chosen only if it is drawn twice.
        assert!((800..1_200).contains(&counts[2]), "{counts:?}");
        assert!(counts[0].abs_diff(counts[1]) < 300, "{counts:?}");
    }

    #[test]
    fn without_requests_random_members_have_their_weights() {
        let selector = selector(&[95, 5, 0], Balance::P2c);
        let counts = chosen(&selector, &[0; 3], 10_000);
        assert!(
            (400..600).contains(&counts[1]) && counts[2] == 0,
            "{counts:?}"
        );
    }

    #[test]
    fn the_least_requests_for_the_weight_are_chosen() {
        let selector = selector(&[1, 2, 1, 0], Balance::LeastRequests);
        assert_eq!(chosen(&selector, &[2, 3, 2, 0], 10), [0, 10, 0, 0]);
        assert_eq!(chosen(&selector, &[1, 4, 1, 0], 10), [5, 0, 5, 0]);
    }

    #[test]
    fn a_value_stays_with_its_member_if_another_one_goes() {
        let key = Balance::Hash(ClientKey::Client);
        let selector = selector(&[2, 1, 1, 0], key);
        let of = |value: u64, is_usable: fn(usize) -> bool| {
            let affinity = Affinity {
                hash: Some(mix(value)),
                member: None,
            };
            selector.pick(affinity, is_usable, |_| 0, || 0).unwrap()
        };
        let mut counts = [0; 4];
        for value in 0..4_000 {
            let all = of(value, |_| true);
            counts[all] += 1;
            let without = of(value, |at| at != 1);
            assert!(all == 1 && without != 1 || all == without, "{value}");
        }
        assert!((1_900..2_100).contains(&counts[0]), "{counts:?}");
        assert!(
            (900..1_100).contains(&counts[1]) && counts[3] == 0,
            "{counts:?}"
        );
    }

    #[test]
    fn a_cookie_names_a_member_also_without_weight() {
        let selector = selector(&[1, 1, 0], Balance::P2c);
        for member in 0..3 {
            let token = selector.token(member);
            assert_eq!(selector.member(token.as_bytes()), Some(member), "{token}");
            let affinity = Affinity {
                member: Some(member),
                hash: None,
            };
            let picked = selector.pick(affinity, |_| true, |_| 0, || 0);
            assert_eq!(picked, Some(usize::from(member)));
            let other = selector.pick(affinity, |at| at != usize::from(member), |_| 0, || 0);
            assert!(other.is_some() && other != Some(usize::from(member)));
        }
        for unknown in ["", "x", "1", "http://10.0.0.1:3000", "ffffffffffffffff"] {
            assert_eq!(selector.member(unknown.as_bytes()), None, "{unknown}");
        }
    }

    /// Cookies outlive a process, so their values must not change.
    #[test]
    fn hashes_stay_the_same() {
        assert_eq!(hash(b""), mix(0xcbf2_9ce4_8422_2325));
        assert_ne!(hash(b"http://10.0.0.1:3000"), hash(b"http://10.0.0.2:3000"));
    }
}
