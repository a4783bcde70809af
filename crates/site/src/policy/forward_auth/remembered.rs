//! Decisions that a core remembers, by what the authorizer knows the client by.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use super::super::memory::Memory;
use crate::edit::{Edit, FieldChange};

struct Decision {
    expires: Instant,
    edits: Rc<[Edit]>,
}

thread_local! {
    static REMEMBERED: RefCell<Memory<Decision>> = RefCell::default();
}

/// The fields of a request that this policy lets pass, if the decision has not expired.
pub(super) fn find(policy: u64, key: &[u8], now: Instant) -> Option<Rc<[Edit]>> {
    REMEMBERED.with_borrow(|remembered| {
        let found = remembered.find((policy, 0), key, key)?;
        (now < found.expires).then(|| Rc::clone(&found.edits))
    })
}

/// Remembers a decision.
pub(super) fn add(policy: u64, key: &[u8], expires: Instant, edits: Rc<[Edit]>) {
    let of_change = |change: &FieldChange| match change {
        FieldChange::Set(lines) => lines.iter().map(Vec::len).sum(),
        FieldChange::Default(line) | FieldChange::Add(line) => line.len(),
    };
    let bytes = edits.iter().map(|edit| of_change(&edit.change)).sum();
    let value = Decision { expires, edits };
    REMEMBERED.with_borrow_mut(|remembered| {
        remembered.add((policy, 0), key, key, (value, bytes));
    });
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_decision_is_known_until_its_end() {
        let end = Instant::now() + Duration::from_secs(10);
        let edits: Rc<[Edit]> = Rc::new([Edit {
            name: "a".into(),
            change: FieldChange::Set(vec![b"b".to_vec()]),
        }]);
        add(1, b"key", end, Rc::clone(&edits));
        let before = end - Duration::from_secs(1);
        assert_eq!(find(1, b"key", before), Some(edits));
        assert!(find(2, b"key", before).is_none());
        assert!(find(1, b"key", end).is_none());
    }
}
