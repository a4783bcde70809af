//! Verdicts of policies that a core remembers, under keys that clients choose.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

use siphasher::sip::SipHasher13;

/// The most values.
pub(super) const VALUES_MAX: usize = 4096;

/// The most bytes of all keys and values.
pub(super) const BYTES_MAX: usize = 4 * 1024 * 1024;

/// The numbers of a policy and of its state, such as its keys: the values of another one do not count.
pub(super) type Owner = (u64, u64);

/// Values by a hash with a key of its own, so that nobody can choose keys whose hashes collide. The oldest ones make room.
pub(super) struct Memory<T> {
    hash_key: [u64; 2],
    values: HashMap<u64, Remembered<T>, BuildHasherDefault<HashOfKey>>,
    /// From the oldest on.
    order: VecDeque<u64>,
    bytes: usize,
}

struct Remembered<T> {
    owner: Owner,
    key: Box<[u8]>,
    /// Those of key and value.
    bytes: usize,
    value: T,
}

/// The hash is already one.
#[derive(Default)]
struct HashOfKey(u64);

impl Hasher for HashOfKey {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a hash is a number")
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl<T> Default for Memory<T> {
    fn default() -> Memory<T> {
        let random = RandomState::new();
        Memory {
            hash_key: [0_u64, 1].map(|number| random.hash_one(number)),
            values: HashMap::default(),
            order: VecDeque::new(),
            bytes: 0,
        }
    }
}

impl<T> Memory<T> {
    /// The value of a key. The part of it that is hashed must be one that differs, since of two with the same hash the
    /// later one is remembered.
    pub(super) fn find(&self, owner: Owner, key: &[u8], hashed: &[u8]) -> Option<&T> {
        let found = self.values.get(&self.hash(owner, hashed))?;
        (found.owner == owner && *found.key == *key).then_some(&found.value)
    }

    /// One number for both of the owner, which is compared as well: each write costs as much as a word of the hash.
    #[inline]
    fn hash(&self, (policy, state): Owner, hashed: &[u8]) -> u64 {
        let [one, other] = self.hash_key;
        let mut hasher = SipHasher13::new_with_keys(one, other);
        hasher.write_u64(policy.rotate_left(32) ^ state);
        hasher.write(hashed);
        hasher.finish()
    }

    /// Remembers a value with so many bytes.
    pub(super) fn add(
        &mut self,
        owner: Owner,
        key: &[u8],
        hashed: &[u8],
        (value, bytes): (T, usize),
    ) {
        let hash = self.hash(owner, hashed);
        let added = Remembered {
            owner,
            key: key.into(),
            bytes: key.len() + bytes,
            value,
        };
        self.bytes += added.bytes;
        match self.values.insert(hash, added) {
            None => self.order.push_back(hash),
            Some(replaced) => self.bytes -= replaced.bytes,
        }
        while self.order.len() > VALUES_MAX || self.bytes > BYTES_MAX {
            let Some(oldest) = self.order.pop_front() else {
                break;
            };
            if let Some(removed) = self.values.remove(&oldest) {
                self.bytes -= removed.bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_values_make_room_for_new_ones() {
        let mut memory = Memory::default();
        let key = |number: usize| number.to_be_bytes();
        for number in 0..VALUES_MAX + 10 {
            memory.add((1, 1), &key(number), &key(number), (number, 0));
        }
        let find = |owner, number| memory.find(owner, &key(number), &key(number)).copied();
        assert_eq!(find((1, 1), 9), None);
        for number in [10, VALUES_MAX + 9] {
            assert_eq!(find((1, 1), number), Some(number));
        }
        // Not of another policy, of other keys, or for another key with the same hashed part.
        assert_eq!(find((2, 1), 10), None);
        assert_eq!(find((1, 2), 10), None);
        assert_eq!(memory.find((1, 1), b"other", &key(10)), None);
    }

    #[test]
    fn values_have_so_many_bytes_at_most() {
        let mut memory = Memory::default();
        for policy in 0..1000 {
            memory.add((policy, 0), b"key", b"key", ((), 8 * 1024));
        }
        assert!(memory.bytes <= BYTES_MAX);
        assert_eq!(memory.values.len(), memory.order.len());
        assert!(memory.values.len() >= BYTES_MAX / (9 * 1024));
        // A value in place of another one.
        let before = (memory.bytes, memory.values.len());
        memory.add((999, 0), b"key", b"key", ((), 8 * 1024));
        assert_eq!((memory.bytes, memory.values.len()), before);
    }
}
