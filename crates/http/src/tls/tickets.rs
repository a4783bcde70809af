//! Session tickets, which every core encrypts and decrypts without a lock (rule 22).

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use rustls::server::ProducesTickets;

use super::error::TlsConfigError;

/// The lifetime hint that clients receive, in seconds: the lifetime of keys that are rotated every
/// six hours.
const LIFETIME_SECONDS: u32 = 12 * 60 * 60;
/// Only large client certificates make larger tickets; such sessions get none.
const TICKET_BYTES_MAX: usize = 8 * 1024;
const NAME_BYTES: usize = 8;

/// The secrets that ticket keys are derived from. The control plane creates and rotates them. The
/// snapshots of all listeners and cores share them, so that a session can be resumed on any of
/// them that has the same policy.
///
/// Rotate them about every six hours with [`TicketKeys::rotated`]: a ticket is valid as long as
/// its keys exist, and an attacker with the keys can decrypt the resumed sessions.
#[derive(Clone)]
pub struct TicketKeys {
    current: [u8; 32],
    previous: Option<[u8; 32]>,
}

impl TicketKeys {
    /// New secrets from the operating system's randomness.
    ///
    /// # Errors
    /// There is no randomness.
    pub fn new() -> Result<TicketKeys, TlsConfigError> {
        Ok(TicketKeys {
            current: random()?,
            previous: None,
        })
    }

    /// New secrets for new tickets. Tickets from the current secrets are still accepted, older
    /// ones are not.
    ///
    /// # Errors
    /// There is no randomness.
    pub fn rotated(&self) -> Result<TicketKeys, TlsConfigError> {
        Ok(TicketKeys {
            current: random()?,
            previous: Some(self.current),
        })
    }

    /// The keys for one policy; each policy has its own. rustls requests no certificate when it
    /// resumes a session, so a listener that requires one must not accept tickets of a listener
    /// that does not.
    pub(super) fn for_policy(&self, policy: &[u8]) -> Result<Tickets, TlsConfigError> {
        let previous = self.previous.as_ref();
        Ok(Tickets {
            current: TicketKey::derive(&self.current, policy)?,
            previous: previous
                .map(|secret| TicketKey::derive(secret, policy))
                .transpose()?,
        })
    }
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKeys(..)")
    }
}

fn random() -> Result<[u8; 32], TlsConfigError> {
    let mut bytes = [0; 32];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| TlsConfigError::new(None, "the system provides no random bytes", ""))?;
    Ok(bytes)
}

/// The tickets of one policy.
#[derive(Debug)]
pub(super) struct Tickets {
    current: TicketKey,
    previous: Option<TicketKey>,
}

/// A key and its name, which is the start of its tickets. The cipher resists repeated nonces.
struct TicketKey {
    name: [u8; NAME_BYTES],
    key: RandomizedNonceKey,
}

impl TicketKey {
    fn derive(secret: &[u8; 32], policy: &[u8]) -> Result<TicketKey, TlsConfigError> {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let part = |label: &[u8]| {
            let mut context = hmac::Context::with_key(&secret);
            context.update(label);
            context.update(policy);
            context.sign()
        };
        let mut name = [0; NAME_BYTES];
        name.copy_from_slice(&part(b"blitz ticket name\0").as_ref()[..NAME_BYTES]);
        let key = RandomizedNonceKey::new(&AES_256_GCM_SIV, part(b"blitz ticket key\0").as_ref())
            .map_err(|_| TlsConfigError::new(None, "ticket keys cannot be derived", ""))?;
        Ok(TicketKey { name, key })
    }

    fn open(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let mut bytes = sealed.to_vec();
        let opened = self
            .key
            .open_in_place(nonce, Aad::from(self.name), &mut bytes);
        let len = opened.ok()?.len();
        bytes.truncate(len);
        Some(bytes)
    }
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKey(..)")
    }
}

/// A ticket has three parts: the key's name, a nonce, and the encrypted session.
impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        LIFETIME_SECONDS
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        if plain.len() > TICKET_BYTES_MAX {
            return None;
        }
        let TicketKey { name, key } = &self.current;
        let mut sealed = plain.to_vec();
        let nonce = key
            .seal_in_place_append_tag(Aad::from(*name), &mut sealed)
            .ok()?;
        Some([&name[..], nonce.as_ref(), &sealed].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, sealed) = ticket.split_first_chunk::<NAME_BYTES>()?;
        let keys = std::iter::once(&self.current).chain(&self.previous);
        let mut named = keys.filter(|key| key.name == *name);
        named.find_map(|key| key.open(sealed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_accepted_under_its_policy_until_its_keys_are_removed() {
        let keys = TicketKeys::new().unwrap();
        let open = keys.for_policy(b"open").unwrap();
        let ticket = open.encrypt(b"session").unwrap();
        assert_eq!(open.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        assert_eq!(
            keys.for_policy(b"demanding").unwrap().decrypt(&ticket),
            None
        );
        let rotated = keys.rotated().unwrap();
        let opened = rotated.for_policy(b"open").unwrap().decrypt(&ticket);
        assert_eq!(opened.as_deref(), Some(&b"session"[..]));
        let again = rotated.rotated().unwrap();
        assert_eq!(again.for_policy(b"open").unwrap().decrypt(&ticket), None);
    }

    #[test]
    fn a_changed_or_truncated_ticket_is_rejected() {
        let tickets = TicketKeys::new().unwrap().for_policy(b"").unwrap();
        let ticket = tickets.encrypt(b"session").unwrap();
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(tickets.decrypt(&changed), None);
            assert_eq!(tickets.decrypt(&ticket[..at]), None);
        }
    }
}
