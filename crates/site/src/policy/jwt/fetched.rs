//! Key sets that are fetched from URLs while the process runs. Policies with the same URL share theirs, also over
//! reloads. The thread that fetches finds those in use here.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::{ArcSwapOption, Guard};

use super::keys::{Algorithm, JwtKey, public_key_set};
use super::token::key_id;

/// The keys of a URL, as they were fetched last.
#[derive(Debug)]
pub struct FetchedKeys {
    url: String,
    algorithms: Vec<Algorithm>,
    /// The certificates in PEM that verify that of the server; `None` are those of the system.
    authorities: Option<Box<[u8]>>,
    latest: ArcSwapOption<NumberedSet>,
    /// A token names a key that is not there.
    is_wanted: AtomicBool,
    /// The last fetch has failed.
    is_failing: AtomicBool,
}

/// A key set, with a number that no other set of the process has.
#[derive(Debug)]
pub(super) struct NumberedSet {
    pub(super) keys: Vec<JwtKey>,
    pub(super) number: u64,
}

/// Fetches of key sets since the start of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeyFetches {
    /// Key sets that were fetched and can be used.
    pub fetched: u64,
    /// Fetches that failed.
    pub failed: u64,
    /// URLs in use whose last fetch has failed.
    pub failing: u64,
}

/// All that policies in memory use; as many as the configurations in memory name.
static ALL: Mutex<Vec<Weak<FetchedKeys>>> = Mutex::new(Vec::new());

static FETCHED: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicU64 = AtomicU64::new(0);

fn all() -> MutexGuard<'static, Vec<Weak<FetchedKeys>>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The key sets that policies in memory use.
#[must_use]
pub fn fetched_keys_in_use() -> Vec<Arc<FetchedKeys>> {
    let mut all = all();
    all.retain(|keys| keys.strong_count() > 0);
    all.iter().filter_map(Weak::upgrade).collect()
}

/// The fetches until now.
#[must_use]
pub fn key_fetches() -> KeyFetches {
    let is_failing = |keys: &Arc<FetchedKeys>| keys.is_failing.load(Ordering::Relaxed);
    KeyFetches {
        fetched: FETCHED.load(Ordering::Relaxed),
        failed: FAILED.load(Ordering::Relaxed),
        failing: fetched_keys_in_use()
            .iter()
            .filter(|keys| is_failing(keys))
            .count() as u64,
    }
}

impl FetchedKeys {
    /// Those of a URL for these algorithms, without which keys have their own ones. The certificate of the server is
    /// verified with these authorities in PEM, or those of the system.
    #[must_use]
    pub fn shared(
        url: &str,
        algorithms: &[Algorithm],
        authorities: Option<&[u8]>,
    ) -> Arc<FetchedKeys> {
        let mut all = all();
        let known = all.iter().filter_map(Weak::upgrade);
        let mut same = known.filter(|keys| {
            keys.url == url && keys.algorithms == algorithms && keys.authorities() == authorities
        });
        if let Some(keys) = same.next() {
            return keys;
        }
        let keys = Arc::new(FetchedKeys {
            url: url.to_owned(),
            algorithms: algorithms.to_vec(),
            authorities: authorities.map(Box::from),
            latest: ArcSwapOption::empty(),
            is_wanted: AtomicBool::new(false),
            is_failing: AtomicBool::new(false),
        });
        all.push(Arc::downgrade(&keys));
        keys
    }

    /// The URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The certificates in PEM that verify that of the server; `None` are those of the system.
    #[must_use]
    pub fn authorities(&self) -> Option<&[u8]> {
        self.authorities.as_deref()
    }

    /// Whether there are keys.
    #[must_use]
    pub fn has_keys(&self) -> bool {
        self.latest.load().is_some()
    }

    pub(super) fn latest(&self) -> Guard<Option<Arc<NumberedSet>>> {
        self.latest.load()
    }

    /// Uses the keys of a document, which was fetched now or earlier. Returns how many they are and notes on others, or
    /// nothing if they are those in use.
    ///
    /// # Errors
    /// The document cannot be used; the keys in use stay.
    pub fn replace(&self, document: &[u8]) -> Result<Option<(usize, Vec<String>)>, String> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let (keys, notes) = public_key_set(document, &self.algorithms)?;
        let before = self.latest.load();
        if before.as_ref().is_some_and(|before| before.keys == keys) {
            return Ok(None);
        }
        let count = keys.len();
        // Tokens that were verified with the keys before are verified again.
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        self.latest
            .store(Some(Arc::new(NumberedSet { keys, number })));
        Ok(Some((count, notes)))
    }

    /// Uses no keys any more.
    pub fn remove(&self) {
        self.latest.store(None);
    }

    /// Counts a fetch.
    pub fn note_fetch(&self, is_successful: bool) {
        let count = if is_successful { &FETCHED } else { &FAILED };
        count.fetch_add(1, Ordering::Relaxed);
        self.is_failing.store(!is_successful, Ordering::Relaxed);
    }

    /// Whether a token has named a key that is not there, since the last call.
    #[must_use]
    pub fn take_wish(&self) -> bool {
        self.is_wanted.swap(false, Ordering::Relaxed)
    }

    /// The keys do not verify a token: if it names another one, that may have been published since.
    #[cold]
    pub(super) fn note_refused(&self, keys: &[JwtKey], token: &[u8]) {
        // Reads alone are not contended.
        if self.is_wanted.load(Ordering::Relaxed) {
            return;
        }
        let is_unknown = |id: String| !keys.iter().any(|key| key.has_id(&id));
        if key_id(token).is_some_and(is_unknown) {
            self.is_wanted.store(true, Ordering::Relaxed);
        }
    }
}

impl PartialEq for FetchedKeys {
    fn eq(&self, other: &FetchedKeys) -> bool {
        self.url == other.url
            && self.algorithms == other.algorithms
            && self.authorities == other.authorities
    }
}

impl Eq for FetchedKeys {}

impl Hash for FetchedKeys {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.url, &self.algorithms, &self.authorities).hash(state);
    }
}
