//! Hashes of passwords, in the forms that `htpasswd` and others write.

use argon2::{Algorithm, Argon2, Params, Version};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use md5::{Digest, Md5};
use sha_crypt::{PasswordVerifier, ShaCrypt};

use super::form::Form;

/// The most rounds of bcrypt, as a power of two: about 4 seconds.
const BCRYPT_COST_MAX: u32 = 16;

/// The most memory of Argon2, in KiB.
const ARGON2_MEMORY_MAX: u32 = 256 * 1024;

/// The most memory that all passes of Argon2 write, in KiB: about a second.
const ARGON2_WORK_MAX: u64 = 1024 * 1024;

/// The most lanes of Argon2.
const ARGON2_LANES_MAX: u32 = 64;

/// The most rounds of SHA-crypt: about a second.
const SHA_CRYPT_ROUNDS_MAX: u32 = 1_000_000;

/// The rounds of SHA-crypt whose hash names none.
const SHA_CRYPT_ROUNDS: u32 = 5000;

/// The rounds of Apache's MD5.
const APR1_ROUNDS: usize = 1000;

const CRYPT_ALPHABET: &[u8; 64] =
    b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

const REMEDY: &str = "write the line anew, with htpasswd -B FILE NAME for example";

/// A hash, with what its function needs.
pub(super) enum PasswordHash {
    /// Its text.
    Bcrypt(String),
    Argon2id {
        function: Argon2<'static>,
        salt: Vec<u8>,
        hash: Vec<u8>,
    },
    /// Its text, with SHA-256 or SHA-512.
    ShaCrypt(String),
    Apr1 {
        salt: String,
        hash: String,
    },
    Sha1(Vec<u8>),
}

/// A problem and its remedy.
type Problem = (String, String);

impl PasswordHash {
    /// # Errors
    /// It has a form that is not supported, or costs too much.
    pub(super) fn parse(text: &str) -> Result<PasswordHash, Problem> {
        if let Some(base64) = text.strip_prefix("{SHA}") {
            let hash = STANDARD.decode(base64).ok().filter(|hash| hash.len() == 20);
            return hash.map(PasswordHash::Sha1).ok_or_else(damaged);
        }
        if let Some(rest) = text.strip_prefix("$apr1$") {
            return apr1_of(rest).ok_or_else(damaged);
        }
        let is_of = |prefixes: &[&str]| prefixes.iter().any(|prefix| text.starts_with(prefix));
        if is_of(&["$2a$", "$2b$", "$2y$"]) {
            return bcrypt_of(text);
        }
        if is_of(&["$5$", "$6$"]) {
            return sha_crypt_of(text);
        }
        if text.starts_with("$argon2id$") {
            return argon2_of(text);
        }
        let problem = match text.strip_prefix('$') {
            Some(_) => {
                "has a hash of another form than those of bcrypt, Argon2id, SHA-crypt and htpasswd"
            }
            None if text.starts_with('{') => "has a hash of another form than those of htpasswd",
            None => {
                "has a password that is not hashed, or with DES, which keeps 8 characters of it"
            }
        };
        Err((problem.to_owned(), REMEDY.to_owned()))
    }

    /// Whether a password is quickly found by this hash.
    pub(super) fn is_weak(&self) -> bool {
        matches!(self, PasswordHash::Apr1 { .. } | PasswordHash::Sha1(_))
    }

    /// Hashes of the same form take the same time.
    pub(super) fn form(&self) -> Form {
        match self {
            PasswordHash::Bcrypt(text) => {
                let parts = text
                    .parse()
                    .map(|parts: bcrypt::HashParts| parts.get_cost());
                Form::Bcrypt {
                    cost: parts.unwrap_or_default().min(BCRYPT_COST_MAX),
                }
            }
            PasswordHash::Argon2id { function, .. } => Form::Argon2id {
                memory: function.params().m_cost(),
                passes: function.params().t_cost(),
                lanes: function.params().p_cost(),
            },
            PasswordHash::ShaCrypt(text) => {
                let rounds = text[3..].strip_prefix("rounds=");
                let rounds = rounds.and_then(|rest| rest.split_once('$')?.0.parse().ok());
                Form::ShaCrypt {
                    is_512: text.starts_with("$6$"),
                    rounds: rounds.unwrap_or(SHA_CRYPT_ROUNDS),
                }
            }
            PasswordHash::Apr1 { .. } => Form::Apr1,
            PasswordHash::Sha1(_) => Form::Sha1,
        }
    }

    /// Whether a check takes megabytes.
    pub(super) fn needs_memory(&self) -> bool {
        matches!(self, PasswordHash::Argon2id { .. })
    }

    /// Whether this is the password. Takes up to some seconds.
    pub(super) fn is_of(&self, password: &[u8]) -> bool {
        match self {
            // Of more than 72 bytes it takes the first 72, as htpasswd and all others do.
            PasswordHash::Bcrypt(text) => bcrypt::verify(password, text).unwrap_or_default(),
            PasswordHash::Argon2id {
                function,
                salt,
                hash,
            } => {
                let mut found = vec![0; hash.len()];
                let computed = function.hash_password_into(password, salt, &mut found);
                computed.is_ok() && verify_slices_are_equal(&found, hash).is_ok()
            }
            PasswordHash::ShaCrypt(text) => {
                let function = ShaCrypt::default();
                function.verify_password(password, text.as_str()).is_ok()
            }
            PasswordHash::Apr1 { salt, hash } => {
                let found = apr1(password, salt.as_bytes());
                verify_slices_are_equal(&found, hash.as_bytes()).is_ok()
            }
            PasswordHash::Sha1(hash) => {
                let found = digest(&SHA1_FOR_LEGACY_USE_ONLY, password);
                verify_slices_are_equal(found.as_ref(), hash).is_ok()
            }
        }
    }
}

fn damaged() -> Problem {
    let problem = "has a hash that is cut off, or has other characters than its form";
    (problem.to_owned(), REMEDY.to_owned())
}

fn too_costly(most: &str) -> Problem {
    let problem = "has a hash that takes too long or too much memory";
    (problem.to_owned(), format!("write it with {most} at most"))
}

fn bcrypt_of(text: &str) -> Result<PasswordHash, Problem> {
    let parts: bcrypt::HashParts = text.parse().map_err(|_| damaged())?;
    match parts.get_cost() {
        0..4 => Err(damaged()),
        cost if cost > BCRYPT_COST_MAX => Err(too_costly(&format!("cost {BCRYPT_COST_MAX}"))),
        _ => Ok(PasswordHash::Bcrypt(text.to_owned())),
    }
}

fn sha_crypt_of(text: &str) -> Result<PasswordHash, Problem> {
    let length = if text.starts_with("$5$") { 43 } else { 86 };
    let rest = &text["$5$".len()..];
    let rest = match rest.strip_prefix("rounds=") {
        None => rest,
        Some(rest) => {
            let (rounds, rest) = rest.split_once('$').ok_or_else(damaged)?;
            let rounds: u32 = rounds.parse().map_err(|_| damaged())?;
            if rounds > SHA_CRYPT_ROUNDS_MAX {
                return Err(too_costly(&format!("{SHA_CRYPT_ROUNDS_MAX} rounds")));
            }
            if rounds < sha_crypt::Params::ROUNDS_MIN {
                return Err(damaged());
            }
            rest
        }
    };
    let (salt, hash) = rest.split_once('$').ok_or_else(damaged)?;
    let is_whole = salt.len() <= 16 && hash.len() == length && is_crypt(salt) && is_crypt(hash);
    is_whole
        .then(|| PasswordHash::ShaCrypt(text.to_owned()))
        .ok_or_else(damaged)
}

/// `$argon2id$v=19$m=65536,t=3,p=4$SALT$HASH`.
fn argon2_of(text: &str) -> Result<PasswordHash, Problem> {
    let parts: Vec<&str> = text.split('$').skip(2).collect();
    let [version, parameters, salt, hash] = *parts else {
        return Err(damaged());
    };
    if version != "v=19" {
        return Err(damaged());
    }
    let mut numbers = [0_u32; 3];
    let mut all = parameters.split(',');
    for (number, name) in numbers.iter_mut().zip(["m=", "t=", "p="]) {
        let digits = all.next().and_then(|text| text.strip_prefix(name));
        let parsed = digits.and_then(|digits| digits.parse().ok());
        *number = parsed.ok_or_else(damaged)?;
    }
    let [memory, passes, lanes] = numbers;
    let work = u64::from(memory).saturating_mul(u64::from(passes));
    if memory > ARGON2_MEMORY_MAX || work > ARGON2_WORK_MAX || lanes > ARGON2_LANES_MAX {
        return Err(too_costly("256 MiB of memory, and four passes over them,"));
    }
    let decode = |text: &str| STANDARD_NO_PAD.decode(text).map_err(|_| damaged());
    let (salt, hash) = (decode(salt)?, decode(hash)?);
    let parameters = Params::new(memory, passes, lanes, Some(hash.len()));
    let parameters = parameters.map_err(|_| damaged())?;
    if all.next().is_some() || salt.len() < argon2::MIN_SALT_LEN {
        return Err(damaged());
    }
    Ok(PasswordHash::Argon2id {
        function: Argon2::new(Algorithm::Argon2id, Version::V0x13, parameters),
        salt,
        hash,
    })
}

fn apr1_of(rest: &str) -> Option<PasswordHash> {
    let (salt, hash) = rest.split_once('$')?;
    let is_whole = salt.len() <= 8 && hash.len() == 22 && is_crypt(salt) && is_crypt(hash);
    is_whole.then(|| PasswordHash::Apr1 {
        salt: salt.to_owned(),
        hash: hash.to_owned(),
    })
}

fn is_crypt(text: &str) -> bool {
    text.bytes().all(|byte| CRYPT_ALPHABET.contains(&byte))
}

/// Apache's variant of the MD5 of `crypt`, in its base64.
fn apr1(password: &[u8], salt: &[u8]) -> Vec<u8> {
    let mut first = Md5::new();
    first.update(password);
    first.update(b"$apr1$");
    first.update(salt);
    let mut hash = Md5::digest([password, salt, password].concat());
    let mut rest = password.len();
    while rest > 0 {
        first.update(&hash[..rest.min(16)]);
        rest = rest.saturating_sub(16);
    }
    let mut bits = password.len();
    while bits > 0 {
        first.update(if bits & 1 == 1 {
            &[0][..]
        } else {
            &password[..1]
        });
        bits >>= 1;
    }
    hash = first.finalize();
    for round in 0..APR1_ROUNDS {
        let is_odd = round % 2 == 1;
        let mut next = Md5::new();
        next.update(if is_odd { password } else { &hash[..] });
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        next.update(if is_odd { &hash[..] } else { password });
        hash = next.finalize();
    }
    let mut text = Vec::with_capacity(22);
    let mut push = |value: u32, digits: u32| {
        for digit in 0..digits {
            text.push(CRYPT_ALPHABET[(value >> (6 * digit)) as usize & 63]);
        }
    };
    for (a, b, c) in [(0, 6, 12), (1, 7, 13), (2, 8, 14), (3, 9, 15), (4, 10, 5)] {
        let [a, b, c] = [a, b, c].map(|at: usize| u32::from(hash[at]));
        push(a << 16 | b << 8 | c, 4);
    }
    push(u32::from(hash[11]), 2);
    text
}
