//! A choice among members with weights: the targets of a route, or the servers of a target.

use std::cell::Cell;

use blitz_config::{Balance, ClientKey, ServerKey, Sticky};

use super::cookie::Tokens;

/// The ramp of a member that gets all of its weight.
pub(super) const FULL_WEIGHT: u64 = 256;

/// Random members that are drawn before all are looked at, because few are usable.
const DRAWS_MAX: u32 = 4;

/// A member is slow if its responses take so many times as long as those of the other, and so much longer.
const SLOW_FROM: f64 = 2.0;
const SLOW_SECONDS: f64 = 0.025;

/// A slow member is as if it had at most so many times its requests. One that was slow once never gets none of them while
/// the others are overloaded.
const SLOWNESS_MAX: f64 = 16.0;

/// How many times its share of the requests a member may have by hashes, and requests that each may have.
const LOAD_BOUND: f64 = 1.25;
const LOAD_FREE: f64 = 8.0;

/// The choice of a core, which knows only its own requests.
pub(super) struct Selector {
    balance: Balance,
    pub(super) sticky: Option<Sticky>,
    /// The texts by which cookies name its members.
    pub(super) tokens: Tokens,
    members: Box<[Member]>,
    /// The sum of the weights of each member and of those before it.
    sums: Box<[u32]>,
    are_weights_equal: bool,
    /// The member whose turn it is, if weights are equal.
    turn: Cell<usize>,
}

/// The members as a request finds them.
pub(super) trait View {
    /// Whether the request may go there.
    fn is_usable(&self, member: usize) -> bool;

    /// Whether only requests that ask for the member go there.
    fn is_drained(&self, _member: usize) -> bool {
        false
    }

    /// Requests that it has.
    fn in_flight(&self, _member: usize) -> u32 {
        0
    }

    /// How long it takes to respond, in seconds, if that is known.
    fn latency(&self, _member: usize) -> Option<f64> {
        None
    }

    /// The same without the decline since its last response: at least as long; 0 if it is not known.
    fn latency_max(&self, _member: usize) -> f64 {
        0.0
    }

    /// The part of its weight that it gets, of [`FULL_WEIGHT`]; at least 1.
    fn ramp(&self, _member: usize) -> u32 {
        FULL_WEIGHT as u32
    }
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
    /// A claim of its verified token.
    Claim(&'n str),
}

impl<'n> From<&'n ServerKey> for ClientValue<'n> {
    fn from(key: &'n ServerKey) -> ClientValue<'n> {
        match key {
            ServerKey::Request(ClientKey::Client) => ClientValue::Address,
            ServerKey::Request(ClientKey::Header(name)) => ClientValue::Header(name),
            ServerKey::Request(ClientKey::Cookie(name)) => ClientValue::Cookie(name),
            ServerKey::Claim(name) => ClientValue::Claim(name),
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
        let members: Box<[Member]> = members.map(member).collect();
        let sums = members.iter().scan(0, |sum, member| {
            *sum += u32::from(member.weight);
            Some(*sum)
        });
        Selector {
            balance,
            sticky,
            tokens: Tokens::default(),
            sums: sums.collect(),
            are_weights_equal: members.iter().all(|one| one.weight == members[0].weight),
            turn: Cell::new(0),
            members,
        }
    }

    /// Whether requests say something about the choice.
    pub(super) fn has_affinity(&self) -> bool {
        self.sticky.is_some() || matches!(self.balance, Balance::Hash(_))
    }

    /// The wish of a request with these values.
    pub(super) fn affinity(&self, value: impl Fn(ClientValue<'_>) -> Option<Vec<u8>>) -> Affinity {
        let hash_of = |key: &ServerKey| value(key.into()).map(|value| hash(&value));
        let mut affinity = Affinity::default();
        match &self.sticky {
            Some(Sticky::Cookie(name)) => {
                let token = value(ClientValue::Cookie(name));
                affinity.member = token.and_then(|token| self.tokens.member(&token));
            }
            Some(Sticky::Key(key)) => affinity.hash = hash_of(key),
            None => {}
        }
        if let (None, Balance::Hash(key)) = (affinity.hash, &self.balance) {
            affinity.hash = hash_of(key);
        }
        affinity
    }

    /// The number of its members.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    pub(super) fn weight(&self, member: usize) -> u16 {
        self.members[member].weight
    }

    /// The member for a request.
    pub(super) fn pick(
        &self,
        affinity: Affinity,
        view: &impl View,
        random: impl FnMut() -> u64,
    ) -> Option<usize> {
        let wanted = affinity.member.map(usize::from);
        if let Some(member) = wanted.filter(|member| view.is_usable(*member)) {
            return Some(member);
        }
        if let Some(hash) = affinity.hash {
            let is_bounded = !matches!(self.sticky, Some(Sticky::Key(_)));
            return self.by_hash(hash, is_bounded, view);
        }
        match self.balance {
            _ if self.members.len() == 1 => self.usable(view).next(),
            Balance::P2c => self.of_two(view, random),
            Balance::LeastRequests => self.least(view),
            Balance::RoundRobin | Balance::Hash(_) => {
                self.in_turn(|at| self.is_usable(view, at), view)
            }
        }
    }

    /// Whether a member gets requests that do not ask for it.
    fn is_usable(&self, view: &impl View, at: usize) -> bool {
        self.members[at].weight > 0 && !view.is_drained(at) && view.is_usable(at)
    }

    fn usable(&self, view: &impl View) -> impl Iterator<Item = usize> {
        (0..self.members.len()).filter(move |at| self.is_usable(view, *at))
    }

    /// The weight that a member has now.
    fn weight_now(&self, view: &impl View, at: usize) -> u64 {
        u64::from(self.members[at].weight) * u64::from(view.ramp(at))
    }

    /// Smooth weighted round robin, as in nginx: each turn gives all members their weight, and the one that is chosen pays
    /// for all.
    fn in_turn(&self, is_usable: impl Fn(usize) -> bool, view: &impl View) -> Option<usize> {
        let mut total = 0;
        let mut best: Option<(usize, i64)> = None;
        for at in (0..self.members.len()).filter(|at| is_usable(*at)) {
            let weight = self.weight_now(view, at) as i64;
            let member = &self.members[at];
            let credit = member.credit.get() + weight;
            member.credit.set(credit);
            total += weight;
            if best.is_none_or(|(_, most)| credit > most) {
                best = Some((at, credit));
            }
        }
        let (at, credit) = best?;
        self.members[at].credit.set(credit - total);
        Some(at)
    }

    /// Of two members, chosen at random by their weights, the one that costs less. A core does not know the requests of
    /// others, which all would go to the same member if each chose the best of all. With equal weights the first of the two
    /// is the one whose turn it is, so that few requests are distributed evenly as well.
    fn of_two(&self, view: &impl View, mut random: impl FnMut() -> u64) -> Option<usize> {
        let first = match self.next_turn(view, &mut random) {
            Some(first) => first,
            None => self.at_random(view, None, &mut random)?,
        };
        let may_be_slow = |at| view.latency_max(at) > SLOW_SECONDS;
        let is_first_slow = may_be_slow(first);
        // None costs less.
        if self.are_weights_equal && !is_first_slow && view.in_flight(first) == 0 {
            return Some(first);
        }
        let drawn = self.at_random(view, None, &mut random)?;
        let is_other = drawn != first;
        let second = match is_other {
            true => Some(drawn),
            false => self.at_random(view, Some(first), &mut random),
        };
        let Some(second) = second else {
            return Some(first);
        };
        let (slowness, slowness_of_second) = match is_first_slow || may_be_slow(second) {
            true => slowness(view.latency(first), view.latency(second)),
            false => (1.0, 1.0),
        };
        let is_better = match is_other || self.are_weights_equal {
            true => {
                let cost = |at, slowness| self.cost(view, at, slowness);
                cost(second, slowness_of_second) < cost(first, slowness)
            }
            // The larger weight has won, unless the member is slow.
            false => slowness > slowness_of_second,
        };
        Some(if is_better { second } else { first })
    }

    /// The member whose turn it is, if it is usable. Another one in its place would get a second turn.
    fn next_turn(&self, view: &impl View, random: &mut impl FnMut() -> u64) -> Option<usize> {
        if !self.are_weights_equal {
            return None;
        }
        let at = self.turn.get();
        self.turn.set((at + 1) % self.members.len());
        let ramp = u64::from(view.ramp(at));
        let may_go =
            self.is_usable(view, at) && (ramp >= FULL_WEIGHT || random() % FULL_WEIGHT < ramp);
        may_go.then_some(at)
    }

    /// A usable member by its weight, other than `not`.
    fn at_random(
        &self,
        view: &impl View,
        not: Option<usize>,
        random: &mut impl FnMut() -> u64,
    ) -> Option<usize> {
        for _ in 0..DRAWS_MAX {
            let drawn = random();
            let at = self.drawn(drawn >> 32);
            let is_wanted = Some(at) != not && self.is_usable(view, at);
            if is_wanted && drawn % FULL_WEIGHT < u64::from(view.ramp(at)) {
                return Some(at);
            }
        }
        // Few are usable.
        let all = || self.usable(view).filter(|at| Some(*at) != not);
        let total: u64 = all().map(|at| self.weight_now(view, at)).sum();
        let mut left = random().checked_rem(total)?;
        all().find(|at| {
            let weight = self.weight_now(view, *at);
            let is_there = left < weight;
            left = left.saturating_sub(weight);
            is_there
        })
    }

    /// The member at a random number of 32 bits. There are members with a weight.
    fn drawn(&self, random: u64) -> usize {
        if self.are_weights_equal {
            return ((random * self.members.len() as u64) >> 32) as usize;
        }
        let total = u64::from(self.sums.last().copied().unwrap_or_default());
        let wanted = ((random * total) >> 32) as u32;
        let at = self.sums.partition_point(|sum| *sum <= wanted);
        at.min(self.members.len() - 1)
    }

    /// Requests for a weight of 1. Idle members are equal, so that each gets its share of the first requests; a slow one
    /// is as one that has several times the requests, and another one beside them.
    fn cost(&self, view: &impl View, at: usize, slowness: f64) -> f64 {
        let requests = f64::from(view.in_flight(at));
        let requests = match slowness > 1.0 {
            true => slowness * (requests + 1.0),
            false => requests,
        };
        requests / self.weight_now(view, at) as f64
    }

    /// The fewest requests for the weight; members with equally many take turns.
    fn least(&self, view: &impl View) -> Option<usize> {
        let relative = |at: usize| self.cost(view, at, 1.0);
        let least = self.usable(view).map(relative).min_by(f64::total_cmp)?;
        self.in_turn(|at| self.is_usable(view, at) && relative(at) <= least, view)
    }

    /// Weighted rendezvous hashing (Schindelhauer and Schomaker, 2005): each member has a score for each value, and the
    /// lowest is chosen. Without a member only its own values go elsewhere. `is_bounded`: members that have more than their
    /// share of the requests are passed over (Mirrokni, Thorup and Zadimoghaddam, 2016), so that a value that many requests
    /// have does not overload one.
    fn by_hash(&self, value: u64, is_bounded: bool, view: &impl View) -> Option<usize> {
        let score = |at: &usize| {
            let member = &self.members[*at];
            // Between 0 and 1, never one of them.
            let uniform = ((mix(value ^ member.id) >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
            -uniform.ln() / f64::from(member.weight)
        };
        let lowest = |a: &usize, b: &usize| score(a).total_cmp(&score(b));
        let best = self.usable(view).min_by(lowest)?;
        if !is_bounded || f64::from(view.in_flight(best)) < LOAD_FREE {
            return Some(best);
        }
        let (mut requests, mut weights) = (1, 0);
        for at in self.usable(view) {
            requests += u64::from(view.in_flight(at));
            weights += u64::from(self.members[at].weight);
        }
        let has_room = |at: &usize| {
            let weight = f64::from(self.members[*at].weight) / weights as f64;
            let bound = (requests as f64 * weight * LOAD_BOUND).ceil();
            f64::from(view.in_flight(*at)) < bound.max(LOAD_FREE)
        };
        let with_room = self.usable(view).filter(has_room).min_by(lowest);
        Some(with_room.unwrap_or(best))
    }
}

/// How much slower than the other one each of two members is: 1 within a factor of two, since times differ by chance.
fn slowness(first: Option<f64>, second: Option<f64>) -> (f64, f64) {
    let (Some(first), Some(second)) = (first, second) else {
        return (1.0, 1.0);
    };
    let of = |time: f64, other: f64| match time > other * SLOW_FROM && time - other > SLOW_SECONDS {
        true => (time / other).min(SLOWNESS_MAX),
        false => 1.0,
    };
    (of(first, second), of(second, first))
}

/// A hash that is the same in all processes and versions: FNV-1a, mixed because it spreads short texts badly.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    mix(bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

/// The finalizer of SplitMix64.
pub(super) fn mix(mut value: u64) -> u64 {
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

    /// Members with these requests, response times in milliseconds and ramps; missing ones are those of idle members.
    #[derive(Clone, Copy, Default)]
    struct Loads<'l> {
        requests: &'l [u32],
        times: &'l [u32],
        ramps: &'l [u32],
        unusable: &'l [usize],
    }

    impl View for Loads<'_> {
        fn is_usable(&self, member: usize) -> bool {
            !self.unusable.contains(&member)
        }

        fn in_flight(&self, member: usize) -> u32 {
            self.requests.get(member).copied().unwrap_or_default()
        }

        fn latency(&self, member: usize) -> Option<f64> {
            Some(f64::from(*self.times.get(member)?) / 1_000.0)
        }

        fn latency_max(&self, member: usize) -> f64 {
            self.latency(member).unwrap_or_default()
        }

        fn ramp(&self, member: usize) -> u32 {
            self.ramps
                .get(member)
                .copied()
                .unwrap_or(FULL_WEIGHT as u32)
        }
    }

    fn requests(requests: &[u32]) -> Loads<'_> {
        Loads {
            requests,
            ..Loads::default()
        }
    }

    fn without(unusable: &[usize]) -> Loads<'_> {
        Loads {
            unusable,
            ..Loads::default()
        }
    }

    /// How often each member is chosen, for random numbers that are spread evenly.
    fn chosen(selector: &Selector, loads: Loads<'_>, count: u64) -> Vec<usize> {
        let mut chosen = vec![0; selector.members.len()];
        let mut number = 0;
        for _ in 0..count {
            let random = || {
                number += 1;
                mix(number)
            };
            let at = selector.pick(Affinity::default(), &loads, random);
            chosen[at.unwrap()] += 1;
        }
        chosen
    }

    #[test]
    fn members_take_turns_by_their_weights() {
        let selector = selector(&[3, 1, 0, 2], Balance::RoundRobin);
        assert_eq!(chosen(&selector, Loads::default(), 600), [300, 100, 0, 200]);
        let order: Vec<usize> = (0..6)
            .map(|_| {
                selector
                    .pick(Affinity::default(), &Loads::default(), || 0)
                    .unwrap()
            })
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
            let at = selector.pick(Affinity::default(), &without(&[1]), || 0);
            assert_ne!(at, Some(1));
        }
        assert_eq!(chosen(&selector, Loads::default(), 30), [10, 10, 10]);
        assert_eq!(
            selector.pick(Affinity::default(), &without(&[0, 1, 2]), || 0),
            None
        );
    }

    #[test]
    fn of_two_members_the_one_with_fewer_requests_is_chosen() {
        let selector = selector(&[1, 1, 1], Balance::P2c);
        let counts = chosen(&selector, requests(&[0, 0, 5]), 9_000);
        assert_eq!(counts[2], 0, "the other one of two is always better");
        assert!(counts[0].abs_diff(counts[1]) < 300, "{counts:?}");
    }

    #[test]
    fn a_slow_member_is_chosen_only_when_the_others_have_many_requests() {
        let selector = selector(&[1, 1, 1], Balance::P2c);
        let mut loads = requests(&[3, 2, 0]);
        loads.times = &[10, 12, 210];
        assert_eq!(chosen(&selector, loads, 1_000)[2], 0);
        loads.requests = &[40, 40, 0];
        assert!(chosen(&selector, loads, 1_000)[2] > 600);
        // Differences within a factor of two, or of few milliseconds, are chance.
        loads.requests = &[1, 1, 0];
        loads.times = &[10, 10, 18];
        assert!(chosen(&selector, loads, 1_000)[2] > 600);
        loads.times = &[1, 1, 25];
        assert!(chosen(&selector, loads, 1_000)[2] > 600);
    }

    #[test]
    fn a_slow_member_with_most_of_the_weight_is_not_chosen() {
        let selector = selector(&[8, 1, 1], Balance::P2c);
        let mut loads = requests(&[0, 0, 0]);
        loads.times = &[210, 10, 10];
        assert_eq!(chosen(&selector, loads, 1_000)[0], 0);
    }

    #[test]
    fn a_member_that_returns_gets_a_part_of_its_weight() {
        for balance in [Balance::P2c, Balance::RoundRobin] {
            let selector = selector(&[1, 1], balance);
            let loads = Loads {
                ramps: &[FULL_WEIGHT as u32, 64],
                ..Loads::default()
            };
            let counts = chosen(&selector, loads, 5_000);
            assert!((900..1_100).contains(&counts[1]), "{counts:?}");
        }
    }

    #[test]
    fn without_requests_random_members_have_their_weights() {
        let selector = selector(&[95, 5, 0], Balance::P2c);
        let counts = chosen(&selector, Loads::default(), 10_000);
        assert!(
            (400..600).contains(&counts[1]) && counts[2] == 0,
            "{counts:?}"
        );
    }

    #[test]
    fn the_least_requests_for_the_weight_are_chosen() {
        let selector = selector(&[1, 2, 1, 0], Balance::LeastRequests);
        assert_eq!(
            chosen(&selector, requests(&[2, 3, 2, 0]), 10),
            [0, 10, 0, 0]
        );
        assert_eq!(chosen(&selector, requests(&[1, 4, 1, 0]), 10), [5, 0, 5, 0]);
    }

    #[test]
    fn a_value_stays_with_its_member_if_another_one_goes() {
        let key = Balance::Hash(ServerKey::Request(ClientKey::Client));
        let selector = selector(&[2, 1, 1, 0], key);
        let of = |value: u64, loads: Loads<'_>| {
            let affinity = Affinity {
                hash: Some(mix(value)),
                member: None,
            };
            selector.pick(affinity, &loads, || 0).unwrap()
        };
        let mut counts = [0; 4];
        for value in 0..4_000 {
            let all = of(value, Loads::default());
            counts[all] += 1;
            let without = of(value, without(&[1]));
            assert!(all == 1 && without != 1 || all == without, "{value}");
        }
        assert!((1_900..2_100).contains(&counts[0]), "{counts:?}");
        assert!(
            (900..1_100).contains(&counts[1]) && counts[3] == 0,
            "{counts:?}"
        );
        // A value that many requests have goes elsewhere when its member has more than its share.
        let first = of(7, Loads::default());
        let mut loads = [0; 4];
        loads[first] = 8;
        assert_ne!(of(7, requests(&loads)), first);
        loads[first] = 7;
        assert_eq!(of(7, requests(&loads)), first);
    }

    #[test]
    fn a_cookie_names_a_member_also_without_weight() {
        let selector = selector(&[1, 1, 0], Balance::P2c);
        for member in 0..3 {
            let affinity = Affinity {
                member: Some(member),
                hash: None,
            };
            let picked = selector.pick(affinity, &Loads::default(), || 0);
            assert_eq!(picked, Some(usize::from(member)));
            let other = selector.pick(affinity, &without(&[usize::from(member)]), || 0);
            assert!(other.is_some() && other != Some(usize::from(member)));
        }
    }

    /// Clients stay with their server by a hash when a process is restarted, so its values must not change.
    #[test]
    fn hashes_stay_the_same() {
        assert_eq!(hash(b""), mix(0xcbf2_9ce4_8422_2325));
        assert_ne!(hash(b"http://10.0.0.1:3000"), hash(b"http://10.0.0.2:3000"));
    }
}
