//! Passwords that a core has checked. A hash takes as long as thousands of requests, so it is not computed for each.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;

/// The most passwords of a core.
const PASSWORDS_MAX: usize = 4096;

/// How long a password counts as checked.
const LIFETIME: Duration = Duration::from_secs(300);

/// A keyed hash of a user's line, or of a name that nobody has, and a password. Nobody learns a password from the memory
/// of a core by less work than a search among all, and a user whose password has changed has other digests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Digest(pub(super) [u8; 32]);

struct Remembered {
    key: hmac::Key,
    /// With their ends.
    passwords: HashMap<Digest, Instant>,
    /// From the oldest on.
    order: VecDeque<Digest>,
}

thread_local! {
    static REMEMBERED: RefCell<Option<Remembered>> = const { RefCell::new(None) };
}

fn with<T>(use_it: impl FnOnce(&mut Remembered) -> T) -> T {
    REMEMBERED.with_borrow_mut(|remembered| use_it(remembered.get_or_insert_with(Remembered::new)))
}

impl Remembered {
    fn new() -> Remembered {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        Remembered {
            key: key.expect("the system has random numbers"),
            passwords: HashMap::new(),
            order: VecDeque::new(),
        }
    }
}

pub(super) fn digest(line: &[u8], password: &[u8]) -> Digest {
    with(|remembered| {
        let mut context = hmac::Context::with_key(&remembered.key);
        context.update(&(line.len() as u64).to_le_bytes());
        context.update(line);
        context.update(password);
        let mut digest = [0; 32];
        digest.copy_from_slice(context.sign().as_ref());
        Digest(digest)
    })
}

/// Whether the password was checked within its lifetime.
pub(super) fn is_known(digest: &Digest, now: Instant) -> bool {
    with(|remembered| {
        let end = remembered.passwords.get(digest);
        end.is_some_and(|end| now < *end)
    })
}

/// Remembers a password; the oldest ones make room.
pub(super) fn add(digest: Digest, now: Instant) {
    with(|remembered| {
        let end = now + LIFETIME;
        if remembered.passwords.insert(digest, end).is_none() {
            remembered.order.push_back(digest);
        }
        while remembered.order.len() > PASSWORDS_MAX {
            if let Some(oldest) = remembered.order.pop_front() {
                remembered.passwords.remove(&oldest);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_passwords_make_room_and_lines_tell_them_apart() {
        let start = Instant::now();
        let is_known = |digest: &Digest| is_known(digest, start + LIFETIME / 2);
        let of = |number: u64| digest(b"user:hash", &number.to_be_bytes());
        for number in 0..PASSWORDS_MAX as u64 + 10 {
            add(of(number), start);
        }
        assert!(!is_known(&of(9)) && is_known(&of(10)));
        assert!(is_known(&of(PASSWORDS_MAX as u64 + 9)));
        assert!(!super::is_known(&of(10), start + LIFETIME));
        // The same password of another line, and bytes that move from the line to the password.
        assert!(!is_known(&digest(b"user:other", &10_u64.to_be_bytes())));
        add(digest(b"a:b", b"c"), start);
        assert!(is_known(&digest(b"a:b", b"c")) && !is_known(&digest(b"a:", b"bc")));
        with(|remembered| assert_eq!(remembered.order.len(), remembered.passwords.len()));
    }
}
