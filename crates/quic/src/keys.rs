//! Secrets that the endpoints of all cores share.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::hkdf::{HKDF_SHA256, Prk, Salt};
use aws_lc_rs::hmac::{self, HMAC_SHA256};
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use blitz_reactor::Steering;
use quinn_proto::BloomTokenLog;

/// Memory for the used tokens, and the number of tokens that it is made for.
const TOKEN_LOG_BYTES: usize = 1024 * 1024;
const TOKENS_EXPECTED: u64 = 500_000;

/// The secrets of connection IDs, tokens and stateless resets, which are the same on every core: a packet may reach a
/// core that did not make them.
#[derive(Clone)]
pub struct Keys {
    secret: hmac::Key,
    steering: Steering,
    tokens_used: Arc<BloomTokenLog>,
    /// The number of endpoints so far.
    endpoints: Arc<AtomicU64>,
}

/// The system provides no random bytes.
#[derive(Debug)]
pub struct KeysError;

impl Keys {
    /// New secrets from the operating system's randomness.
    ///
    /// # Errors
    /// The system provides no random bytes.
    pub fn new() -> Result<Keys, KeysError> {
        let mut secret = [0; 32];
        SystemRandom::new()
            .fill(&mut secret)
            .map_err(|_| KeysError)?;
        Ok(Keys::from_secret(&secret))
    }

    /// As [`Keys::new`], but derived from `secret`, so that a simulation can be repeated.
    #[cfg(feature = "simulation")]
    #[must_use]
    pub fn repeatable(secret: &[u8; 32]) -> Keys {
        Keys::from_secret(secret)
    }

    /// Derives all keys from one secret.
    pub(crate) fn from_secret(secret: &[u8; 32]) -> Keys {
        let secret = hmac::Key::new(HMAC_SHA256, secret);
        let steering = derive(&secret, b"connection IDs", 0);
        Keys {
            steering: Steering::new(first(steering), 0),
            tokens_used: Arc::new(BloomTokenLog::new_expected_items(
                TOKEN_LOG_BYTES,
                TOKENS_EXPECTED,
            )),
            endpoints: Arc::default(),
            secret,
        }
    }

    /// A number that no other endpoint has: two endpoints of one core must not make the same random numbers.
    pub(crate) fn next_endpoint(&self) -> u64 {
        self.endpoints.fetch_add(1, Ordering::Relaxed)
    }

    /// How connection IDs name their core.
    #[must_use]
    pub fn steering(&self) -> &Steering {
        &self.steering
    }

    /// The key of tokens for stateless resets (RFC 9000, section 10.3.2).
    pub(crate) fn resets(&self) -> hmac::Key {
        hmac::Key::new(HMAC_SHA256, &derive(&self.secret, b"stateless resets", 0))
    }

    /// The key of address validation tokens (RFC 9000, section 8.1.4).
    pub(crate) fn tokens(&self) -> Prk {
        Salt::new(HKDF_SHA256, &[]).extract(&derive(&self.secret, b"tokens", 0))
    }

    /// Tokens that were used.
    pub(crate) fn tokens_used(&self) -> Arc<BloomTokenLog> {
        Arc::clone(&self.tokens_used)
    }

    /// The seed of an endpoint's random numbers.
    pub(crate) fn seed(&self, endpoint: u64) -> [u8; 32] {
        derive(&self.secret, b"random numbers", endpoint)
    }

    /// The key of the random bytes in an endpoint's connection IDs.
    pub(crate) fn ids(&self, endpoint: u64) -> hmac::Key {
        let key = derive(&self.secret, b"random bytes of IDs", endpoint);
        hmac::Key::new(HMAC_SHA256, &key)
    }
}

fn derive(secret: &hmac::Key, purpose: &[u8], number: u64) -> [u8; 32] {
    let mut context = hmac::Context::with_key(secret);
    context.update(&number.to_be_bytes());
    context.update(purpose);
    first(context.sign())
}

/// The first bytes of a longer value.
pub(crate) fn first<const N: usize>(bytes: impl AsRef<[u8]>) -> [u8; N] {
    let mut first = [0; N];
    first.copy_from_slice(&bytes.as_ref()[..N]);
    first
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(..)")
    }
}

impl fmt::Display for KeysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the system provides no random bytes")
    }
}

impl Error for KeysError {}
