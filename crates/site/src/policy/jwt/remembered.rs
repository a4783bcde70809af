//! Tokens that a core has verified. They are not verified again until they expire: a signature costs more than the rest
//! of a request.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;

use super::super::token_facts::TokenFacts;

/// The most tokens of a core.
const TOKENS_MAX: usize = 4096;

/// The most bytes of all tokens of a core, without what they tell.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// The bytes of a token that are hashed; then all are compared.
const HASHED_BYTES: usize = 32;

/// The numbers of a policy and of the key set with which it verifies.
pub(super) type Verifier = (u64, u64);

/// The tokens of a core, by a hash with a key of its own, so that nobody can choose tokens whose hashes collide.
#[derive(Default)]
struct Remembered {
    hasher: RandomState,
    tokens: HashMap<u64, Token>,
    /// From the oldest on.
    order: VecDeque<u64>,
    bytes: usize,
}

struct Token {
    verifier: Verifier,
    token: Box<[u8]>,
    /// The second from which it is refused.
    expires: u64,
    facts: Rc<TokenFacts>,
}

impl Remembered {
    /// The end of a token is that of its signature, by which valid tokens differ; others are never added.
    fn hash(&self, verifier: Verifier, token: &[u8]) -> u64 {
        let end = token.len().saturating_sub(HASHED_BYTES);
        self.hasher.hash_one((verifier, &token[end..]))
    }
}

thread_local! {
    static REMEMBERED: RefCell<Remembered> = RefCell::default();
}

/// The content of a token that has been verified so, if it has not expired.
pub(super) fn find(verifier: Verifier, token: &[u8], now: u64) -> Option<Rc<TokenFacts>> {
    REMEMBERED.with_borrow(|remembered| {
        let hash = remembered.hash(verifier, token);
        let found = remembered.tokens.get(&hash)?;
        let is_it = found.verifier == verifier && *found.token == *token && now < found.expires;
        is_it.then(|| Rc::clone(&found.facts))
    })
}

/// Remembers a token; the oldest ones make room.
pub(super) fn add(verifier: Verifier, token: &[u8], expires: u64, facts: Rc<TokenFacts>) {
    REMEMBERED.with_borrow_mut(|remembered| {
        let hash = remembered.hash(verifier, token);
        let added = Token {
            verifier,
            token: token.into(),
            expires,
            facts,
        };
        remembered.bytes += token.len();
        match remembered.tokens.insert(hash, added) {
            None => remembered.order.push_back(hash),
            Some(replaced) => remembered.bytes -= replaced.token.len(),
        }
        while remembered.order.len() > TOKENS_MAX || remembered.bytes > BYTES_MAX {
            let Some(oldest) = remembered.order.pop_front() else {
                break;
            };
            if let Some(removed) = remembered.tokens.remove(&oldest) {
                remembered.bytes -= removed.token.len();
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_tokens_make_room_for_new_ones() {
        let facts = Rc::new(TokenFacts::default());
        let large = vec![b'x'; 8 * 1024];
        for number in 0..TOKENS_MAX as u64 + 10 {
            add((1, 0), &number.to_be_bytes(), 10, Rc::clone(&facts));
        }
        let is_known = |number: u64| find((1, 0), &number.to_be_bytes(), 9).is_some();
        assert!(!is_known(9) && is_known(10) && is_known(TOKENS_MAX as u64 + 9));
        // Not of another policy or with other keys, and not after the end.
        assert!(find((2, 0), &10_u64.to_be_bytes(), 9).is_none());
        assert!(find((1, 1), &10_u64.to_be_bytes(), 9).is_none());
        assert!(find((1, 0), &10_u64.to_be_bytes(), 10).is_none());
        for policy in 0..1000 {
            add((policy, 0), &large, 10, Rc::clone(&facts));
        }
        REMEMBERED.with_borrow(|remembered| {
            assert!(remembered.bytes <= BYTES_MAX);
            assert_eq!(remembered.tokens.len(), remembered.order.len());
            assert!(remembered.tokens.len() >= BYTES_MAX / large.len());
        });
    }
}
