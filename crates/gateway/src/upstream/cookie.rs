//! The cookies by which clients stay with a server: a text for each member of a set that only the gateway can make.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;

/// The bytes of the code of which the text is made. 128 bits cannot be guessed.
const CODE_BYTES: usize = 16;

/// Tells what the code is for: the secret may be used for something else as well.
const PURPOSE: &[u8] = b"blitz sticky cookie\n";

/// The value of a cookie, in hexadecimal digits.
pub(super) type Token = [u8; 2 * CODE_BYTES];

/// The secret that the cookies of a gateway are made with.
pub(crate) struct CookieKey(hmac::Key);

impl CookieKey {
    pub(crate) fn new(secret: &[u8; 32]) -> CookieKey {
        CookieKey(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The text that names a member, which stays the same as long as the secret does.
    pub(super) fn token(&self, member: &str) -> Token {
        let code = hmac::sign(&self.0, &[PURPOSE, member.as_bytes()].concat());
        let digit = |half: u8| b"0123456789abcdef"[usize::from(half)];
        let mut token = Token::default();
        for (pair, byte) in token.chunks_exact_mut(2).zip(code.as_ref()) {
            pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
        }
        token
    }
}

impl fmt::Debug for CookieKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CookieKey")
    }
}

/// The texts of the members of a set, in their order; none if no cookie is set.
#[derive(Debug, Clone, Default)]
pub(super) struct Tokens(Arc<[Token]>);

impl Tokens {
    pub(super) fn new<'n>(key: &CookieKey, members: impl Iterator<Item = &'n str>) -> Tokens {
        Tokens(members.map(|member| key.token(member)).collect())
    }

    /// The text that names a member.
    pub(super) fn of(&self, member: u16) -> Option<&str> {
        let token = self.0.get(usize::from(member))?;
        std::str::from_utf8(token).ok()
    }

    /// The member that a text names. The time does not tell how much of a text is right.
    pub(super) fn member(&self, text: &[u8]) -> Option<u16> {
        let is_it = |token: &Token| verify_slices_are_equal(token, text).is_ok();
        u16::try_from(self.0.iter().position(is_it)?).ok()
    }
}

/// The texts for the targets of a group, and for the servers of each.
#[derive(Debug)]
pub(crate) struct GroupTokens {
    pub(super) outer: Tokens,
    pub(super) inner: Box<[Tokens]>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(secret: u8) -> Tokens {
        let urls = ["http://10.0.0.1:3000", "http://10.0.0.2:3000"];
        Tokens::new(&CookieKey::new(&[secret; 32]), urls.into_iter())
    }

    #[test]
    fn a_text_names_a_member_only_with_the_same_secret() {
        let (one, other) = (tokens(1), tokens(2));
        for member in [0, 1] {
            let text = one.of(member).unwrap();
            assert_eq!(one.member(text.as_bytes()), Some(member));
            assert_eq!(other.member(text.as_bytes()), None);
            assert!(text.bytes().all(|byte| byte.is_ascii_hexdigit()));
            for at in 0..text.len() {
                let mut forged = text.as_bytes().to_vec();
                forged[at] ^= 1;
                assert_eq!(one.member(&forged), None);
                assert_eq!(one.member(&text.as_bytes()[..at]), None);
            }
        }
        assert_eq!(one.of(2), None);
        assert_eq!(Tokens::default().member(b""), None);
    }

    /// Cookies outlive a process, so their values must not change: HMAC-SHA-256 of the purpose and the URL.
    #[test]
    fn texts_stay_the_same() {
        assert_eq!(tokens(7).of(0), Some("f41ebd0e3cb35b76c2bfbc6435f07fea"));
    }
}
