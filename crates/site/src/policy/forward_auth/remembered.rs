//! Decisions that a core remembers, by what the authorizer knows the client by.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::time::Instant;

use crate::edit::{Edit, FieldChange};

/// The most decisions of a core.
const DECISIONS_MAX: usize = 4096;

/// The most bytes of all keys and fields of a core.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// The decisions of a core, by a hash with a key of its own, so that nobody can choose values whose hashes collide.
#[derive(Default)]
struct Remembered {
    hasher: RandomState,
    decisions: HashMap<u64, Decision>,
    /// From the oldest on.
    order: VecDeque<u64>,
    bytes: usize,
}

struct Decision {
    /// The policy that asked.
    policy: u64,
    key: Vec<u8>,
    expires: Instant,
    edits: Rc<[Edit]>,
}

impl Decision {
    fn bytes(&self) -> usize {
        let of_change = |change: &FieldChange| match change {
            FieldChange::Set(lines) => lines.iter().map(Vec::len).sum(),
            FieldChange::Default(line) | FieldChange::Add(line) => line.len(),
        };
        let edits = self.edits.iter().map(|edit| of_change(&edit.change));
        self.key.len() + edits.sum::<usize>()
    }
}

thread_local! {
    static REMEMBERED: RefCell<Remembered> = RefCell::default();
}

/// The fields of a request that this policy lets pass, if the decision has not expired.
pub(super) fn find(policy: u64, key: &[u8], now: Instant) -> Option<Rc<[Edit]>> {
    REMEMBERED.with_borrow(|remembered| {
        let hash = remembered.hasher.hash_one((policy, key));
        let found = remembered.decisions.get(&hash)?;
        let is_it = found.policy == policy && found.key == key && now < found.expires;
        is_it.then(|| Rc::clone(&found.edits))
    })
}

/// Remembers a decision; the oldest ones make room.
pub(super) fn add(policy: u64, key: Vec<u8>, expires: Instant, edits: Rc<[Edit]>) {
    REMEMBERED.with_borrow_mut(|remembered| {
        let hash = remembered.hasher.hash_one((policy, &*key));
        let added = Decision {
            policy,
            key,
            expires,
            edits,
        };
        remembered.bytes += added.bytes();
        match remembered.decisions.insert(hash, added) {
            None => remembered.order.push_back(hash),
            Some(replaced) => remembered.bytes -= replaced.bytes(),
        }
        while remembered.order.len() > DECISIONS_MAX || remembered.bytes > BYTES_MAX {
            let Some(oldest) = remembered.order.pop_front() else {
                break;
            };
            if let Some(removed) = remembered.decisions.remove(&oldest) {
                remembered.bytes -= removed.bytes();
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_oldest_decisions_make_room_for_new_ones() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let edits: Rc<[Edit]> = Rc::new([]);
        for number in 0..DECISIONS_MAX as u64 + 10 {
            let key = number.to_be_bytes().to_vec();
            add(1, key, after(10), Rc::clone(&edits));
        }
        let is_known = |number: u64| find(1, &number.to_be_bytes(), after(9)).is_some();
        assert!(!is_known(9) && is_known(10) && is_known(DECISIONS_MAX as u64 + 9));
        // Not of another policy, and not after the end.
        assert!(find(2, &10_u64.to_be_bytes(), after(9)).is_none());
        assert!(find(1, &10_u64.to_be_bytes(), after(10)).is_none());
        let large: Rc<[Edit]> = Rc::new([Edit {
            name: "a".into(),
            change: FieldChange::Set(vec![vec![b'x'; 8 * 1024]]),
        }]);
        for policy in 0..1000 {
            add(policy, Vec::new(), after(10), Rc::clone(&large));
        }
        REMEMBERED.with_borrow(|remembered| {
            assert!(remembered.bytes <= BYTES_MAX);
            assert_eq!(remembered.decisions.len(), remembered.order.len());
            assert!(remembered.decisions.len() >= BYTES_MAX / (8 * 1024) - 1);
        });
    }
}
