//! A set of many networks, and the look-up of an address among them.
//!
//! Networks are kept as ranges that do not touch each other, in the order of a binary search: whatever they are, a
//! look-up has as many steps as their number has bits, and each step is a few instructions without a branch.

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr};

/// The most networks of a set: 61 MiB of IPv6 that share nothing.
pub(crate) const NETWORKS_MAX: usize = 2_000_000;

/// `::ffff:0:0/96`, whose last 32 bits are an IPv4 address (RFC 4291, section 2.5.5.2).
const MAPPED: u128 = 0xffff_0000_0000;

/// Networks of both families, and whether clients of unix sockets are among them. An IPv4 address equals the IPv6
/// address that maps it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkSet {
    v4: Ranges<u32>,
    v6: Ranges<u128>,
    has_unix: bool,
    /// The number of networks before they were joined.
    count: usize,
}

/// The ranges may be millions: their numbers are enough to tell most sets apart.
impl Hash for NetworkSet {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.v4.starts.len(), self.v6.starts.len(), self.count).hash(state);
    }
}

/// Collects the networks of a set.
#[derive(Debug, Default)]
pub struct NetworkSetBuilder {
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
    has_unix: bool,
    count: usize,
}

impl NetworkSetBuilder {
    /// Adds the addresses from the first to the last one, or the clients of unix sockets. Returns whether there was room.
    #[must_use]
    pub fn add(&mut self, bounds: Option<(Ipv6Addr, Ipv6Addr)>) -> bool {
        if self.count == NETWORKS_MAX {
            return false;
        }
        self.count += 1;
        let Some((first, last)) = bounds else {
            self.has_unix = true;
            return true;
        };
        let (first, last) = (first.to_bits(), last.to_bits());
        let mapped_last = MAPPED | u128::from(u32::MAX);
        let (first_v4, last_v4) = (first.max(MAPPED), last.min(mapped_last));
        if first_v4 <= last_v4 {
            self.v4.push((first_v4 as u32, last_v4 as u32));
        }
        // A look-up of a mapped address never comes here, so the part of such addresses need not be cut out.
        if first < MAPPED || last > mapped_last {
            self.v6.push((first, last));
        }
        true
    }

    /// The set of these networks.
    #[must_use]
    pub fn build(self) -> NetworkSet {
        NetworkSet {
            v4: Ranges::new(self.v4),
            v6: Ranges::new(self.v6),
            has_unix: self.has_unix,
            count: self.count,
        }
    }
}

impl NetworkSet {
    /// Whether a client has one of the addresses; `None` is a client of a unix socket.
    #[must_use]
    pub fn contains(&self, client: Option<IpAddr>) -> bool {
        let v6 = match client {
            None => return self.has_unix,
            Some(IpAddr::V4(v4)) => return self.v4.contains(v4.to_bits()),
            Some(IpAddr::V6(v6)) => v6.to_bits(),
        };
        match v6 >> 32 == MAPPED >> 32 {
            true => self.v4.contains(v6 as u32),
            false => self.v6.contains(v6),
        }
    }

    /// The number of networks that it was made of.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// The bytes that it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<NetworkSet>() + self.v4.bytes() + self.v6.bytes()
    }
}

/// Ranges of addresses of one family, in the order in which a search meets them: the tree of a binary search, level by
/// level, whose node `k` has the children `2k` and `2k + 1`. The first node has the number 1.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Ranges<A> {
    /// The first addresses. Before those of the first node there is one without a meaning.
    starts: Box<[A]>,
    /// The last addresses.
    ends: Box<[A]>,
}

/// An address as a number.
trait Address: Copy + Ord + Default {
    /// The address before it, if there is one.
    fn before(self) -> Option<Self>;
}

impl Address for u32 {
    fn before(self) -> Option<u32> {
        self.checked_sub(1)
    }
}

impl Address for u128 {
    fn before(self) -> Option<u128> {
        self.checked_sub(1)
    }
}

impl<A: Address> Ranges<A> {
    fn new(mut ranges: Vec<(A, A)>) -> Ranges<A> {
        ranges.sort_unstable();
        // Ranges that overlap or touch become one.
        ranges.dedup_by(|next, last| {
            let is_joined = next.0.before().is_none_or(|before| before <= last.1);
            if is_joined {
                last.1 = last.1.max(next.1);
            }
            is_joined
        });
        let mut tree = Ranges {
            starts: vec![A::default(); ranges.len() + 1].into(),
            ends: vec![A::default(); ranges.len() + 1].into(),
        };
        tree.fill(1, &mut ranges.into_iter());
        tree
    }

    /// Fills the nodes from this one downwards with the next ranges, which are sorted.
    fn fill(&mut self, node: usize, ranges: &mut impl Iterator<Item = (A, A)>) {
        if node >= self.starts.len() {
            return;
        }
        self.fill(2 * node, ranges);
        if let Some((start, end)) = ranges.next() {
            self.starts[node] = start;
            self.ends[node] = end;
        }
        self.fill(2 * node + 1, ranges);
    }

    #[inline]
    fn contains(&self, address: A) -> bool {
        let mut node = 1;
        // The last range that begins at or before the address.
        let mut last = 0;
        while node < self.starts.len() {
            let has_begun = self.starts[node] <= address;
            last = if has_begun { node } else { last };
            node = 2 * node + usize::from(has_begun);
        }
        last > 0 && self.ends.get(last).is_some_and(|end| address <= *end)
    }

    /// The number of ranges.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.starts.len() - 1
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.starts) + size_of_val(&*self.ends)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    fn set(ranges: &[(u128, u128)]) -> NetworkSet {
        let mut builder = NetworkSetBuilder::default();
        for (first, last) in ranges {
            let bounds = (Ipv6Addr::from_bits(*first), Ipv6Addr::from_bits(*last));
            assert!(builder.add(Some(bounds)));
        }
        builder.build()
    }

    /// Addresses close to each other and to the ends of both families, so that networks overlap and touch.
    fn address() -> impl Strategy<Value = u128> {
        let near = prop_oneof![
            Just(0_u128),
            Just(MAPPED),
            Just(MAPPED | u128::from(u32::MAX)),
            Just(MAPPED | 0x0a00_0000),
            Just(0x2001_0db8 << 96),
            Just(u128::MAX),
            any::<u128>(),
        ];
        (near, -300_i64..300).prop_map(|(at, offset)| at.saturating_add_signed(i128::from(offset)))
    }

    fn network() -> impl Strategy<Value = (u128, u128)> {
        let length = prop_oneof![0_u32..=128, 90_u32..=128, 118_u32..=128];
        (address(), length).prop_map(|(at, length)| {
            let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
            (at & mask, at | !mask)
        })
    }

    proptest! {
        #[test]
        fn a_set_has_the_addresses_of_its_networks(
            networks in prop::collection::vec(network(), 0..40),
            others in prop::collection::vec(address(), 0..40),
        ) {
            let set = set(&networks);
            let bounds = networks.iter().flat_map(|(first, last)| {
                [*first, *last, first.saturating_sub(1), last.saturating_add(1)]
            });
            for address in bounds.chain(others) {
                let expected = networks.iter().any(|(first, last)| (*first..=*last).contains(&address));
                let v6 = Ipv6Addr::from_bits(address);
                prop_assert_eq!(set.contains(Some(v6.into())), expected, "{}", v6);
                prop_assert_eq!(set.contains(Some(IpAddr::V6(v6).to_canonical())), expected, "{}", v6);
            }
            prop_assert!(!set.contains(None));
        }
    }

    #[test]
    fn an_empty_set_has_nobody_and_unix_sockets_have_no_address() {
        let mut builder = NetworkSetBuilder::default();
        let empty = NetworkSetBuilder::default().build();
        let local = Some(Ipv4Addr::LOCALHOST.into());
        assert!(!empty.contains(None) && !empty.contains(local));
        assert!(builder.add(None));
        let unix = builder.build();
        assert!(unix.contains(None) && !unix.contains(local));
        assert_eq!(unix.count(), 1);
    }

    #[test]
    fn networks_that_touch_are_one_range() {
        let of_v4 = |first: u32, last: u32| (MAPPED | u128::from(first), MAPPED | u128::from(last));
        let joined = set(&[of_v4(256, 511), of_v4(0, 255), of_v4(300, 400)]);
        assert_eq!((joined.v4.len(), joined.v6.len()), (1, 0));
        let all = set(&[(0, u128::MAX)]);
        assert_eq!((all.v4.len(), all.v6.len()), (1, 1));
    }

    /// The most networks that a set may have take less than 64 MiB, whatever they are.
    #[test]
    fn a_full_set_is_bounded() {
        let mut builder = NetworkSetBuilder::default();
        for number in 0..NETWORKS_MAX as u128 {
            let at = Ipv6Addr::from_bits(number << 65 | 1 << 125);
            assert!(builder.add(Some((at, at))));
        }
        assert!(!builder.add(None));
        let full = builder.build();
        assert_eq!(full.v6.len(), NETWORKS_MAX);
        assert!(full.bytes() < 64 << 20, "{}", full.bytes());
    }
}
