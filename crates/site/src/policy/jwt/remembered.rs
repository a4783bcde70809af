//! Tokens that a core has verified. They are not verified again until they expire: a signature costs more than the rest
//! of a request.

use std::cell::RefCell;
use std::rc::Rc;

use super::super::memory::{Memory, Owner};
use super::super::token_facts::TokenFacts;

/// The bytes of a token that are hashed; then all are compared.
const HASHED_BYTES: usize = 16;

struct Token {
    /// The second from which it is refused.
    expires: u64,
    facts: Rc<TokenFacts>,
}

thread_local! {
    static REMEMBERED: RefCell<Memory<Token>> = RefCell::default();
}

/// The end of a token is that of its signature, by which valid tokens differ; others are never added.
fn hashed(token: &[u8]) -> &[u8] {
    &token[token.len().saturating_sub(HASHED_BYTES)..]
}

/// The content of a token that has been verified so, if it has not expired.
pub(super) fn find(verifier: Owner, token: &[u8], now: u64) -> Option<Rc<TokenFacts>> {
    REMEMBERED.with_borrow(|remembered| {
        let found = remembered.find(verifier, token, hashed(token))?;
        (now < found.expires).then(|| Rc::clone(&found.facts))
    })
}

/// Remembers a token, without the bytes of what it tells.
pub(super) fn add(verifier: Owner, token: &[u8], expires: u64, facts: Rc<TokenFacts>) {
    let value = Token { expires, facts };
    REMEMBERED.with_borrow_mut(|remembered| {
        remembered.add(verifier, token, hashed(token), (value, 0));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_until_its_end() {
        let token = b"header.claims.a signature of many bytes";
        add((1, 0), token, 10, Rc::default());
        assert!(find((1, 0), token, 9).is_some());
        assert!(find((1, 0), token, 10).is_none());
        // Not with other claims.
        assert!(find((1, 0), b"header.others.a signature of many bytes", 9).is_none());
        add((1, 0), b"short", 10, Rc::default());
        assert!(find((1, 0), b"short", 9).is_some());
    }
}
