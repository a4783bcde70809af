//! The core that fetches the key sets of `jwt.keys_url`, one of its own beside those of the sites.

mod document;
mod request;
mod schedule;
mod stored;

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use blitz_config::KeysUrl;
use blitz_gateway::{FetchedKeys, fetched_keys_in_use};
use blitz_http::{CaSet, Config, IoChoice, Pinning, sleep, spawn};

use self::document::Document;
use self::schedule::Schedule;
use self::stored::Stored;

/// How often a core looks for keys that are wanted, and for URLs of a new configuration.
const TICK: Duration = Duration::from_millis(500);

/// How long keys are used while they cannot be fetched again. A key that its issuer has withdrawn verifies tokens as
/// long at most.
const STALE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Starts the core when a configuration needs it.
pub(crate) struct KeyFetcher {
    is_started: bool,
}

impl KeyFetcher {
    /// One that is started if it is needed.
    pub(crate) fn new() -> KeyFetcher {
        let mut fetcher = KeyFetcher { is_started: false };
        fetcher.start_if_needed();
        fetcher
    }

    /// Starts it if keys are in use that are fetched. It runs until the process ends.
    pub(crate) fn start_if_needed(&mut self) {
        if self.is_started || fetched_keys_in_use().is_empty() {
            return;
        }
        self.is_started = true;
        // It waits most of the time, and a ring would be memory for nothing.
        let config = Config {
            io: IoChoice::Epoll,
            cores: 1,
            pin: Pinning::Off,
            ..Config::default()
        };
        if let Err(error) = blitz_http::start(&config, |_| run()) {
            tracing::error!(
                "no keys for tokens are fetched: {error}; raise the limit of threads, and start again"
            );
        }
    }
}

/// Has a task for each key set in use.
async fn run() {
    let mut known: Vec<Weak<FetchedKeys>> = Vec::new();
    loop {
        known.retain(|keys| keys.strong_count() > 0);
        for keys in fetched_keys_in_use() {
            let keys = Arc::downgrade(&keys);
            if !known.iter().any(|known| known.ptr_eq(&keys)) {
                known.push(Weak::clone(&keys));
                spawn(keep(keys));
            }
        }
        sleep(TICK).await;
    }
}

/// Fetches a key set again and again, until nothing uses it.
async fn keep(keys: Weak<FetchedKeys>) {
    let Some(mut source) = keys.upgrade().and_then(|keys| Source::new(&keys)) else {
        return;
    };
    loop {
        // The set must not be kept in use from here.
        let Some(in_use) = keys.upgrade() else {
            return;
        };
        if in_use.take_wish() {
            source.schedule.want();
        }
        if source.schedule.is_due(blitz_http::now()) {
            source.fetch(&in_use).await;
        }
        source.expire(&in_use);
        drop(in_use);
        sleep(TICK).await;
    }
}

/// A key set with its times.
struct Source {
    url: KeysUrl,
    /// They verify the certificate of the server; `None` are those of the system.
    authorities: Option<CaSet>,
    schedule: Schedule,
    stored: Stored,
    /// When the keys in use were fetched.
    fetched: Option<Instant>,
}

impl Source {
    fn new(keys: &FetchedKeys) -> Option<Source> {
        // The configuration has such URLs and authorities only.
        let url = KeysUrl::parse(keys.url()).ok()?;
        let authorities = match keys.authorities() {
            Some(pem) => Some(CaSet::from_pem(pem).ok()?),
            None => None,
        };
        let now = blitz_http::now();
        let mut source = Source {
            schedule: Schedule::new(now),
            stored: Stored::of(&url, keys.authorities()),
            fetched: None,
            authorities,
            url,
        };
        source.use_stored(keys, now);
        Some(source)
    }

    /// Uses the keys that an earlier process has fetched until they are fetched again.
    fn use_stored(&mut self, keys: &FetchedKeys, now: Instant) {
        let Some((content, age)) = self.stored.read(SystemTime::now()) else {
            return;
        };
        if keys.has_keys() || age > STALE_MAX {
            return;
        }
        if let Ok(Some((count, _))) = keys.replace(&content) {
            let url = &self.url;
            self.fetched = now.checked_sub(age);
            tracing::info!("{count} keys of {url} are those that were fetched before the start");
        }
    }

    async fn fetch(&mut self, keys: &FetchedKeys) {
        let fetched = request::fetch(&self.url, self.authorities.as_ref()).await;
        let used = fetched.and_then(|document| {
            let change = keys.replace(&document.content)?;
            Ok((document, change))
        });
        let now = blitz_http::now();
        keys.note_fetch(used.is_ok());
        match used {
            Ok((document, change)) => self.succeed(now, &document, change),
            Err(problem) => {
                let state = match keys.has_keys() {
                    true => "the earlier ones stay in use for at most a day",
                    false => "requests with a token get 503",
                };
                let is_first = self.schedule.fail(now, blitz_http::random_u64());
                let url = &self.url;
                match is_first {
                    true => {
                        tracing::warn!("the keys of {url} cannot be fetched: {problem}; {state}");
                    }
                    false => tracing::debug!("the keys of {url} cannot be fetched: {problem}"),
                }
            }
        }
    }

    fn succeed(&mut self, now: Instant, document: &Document, change: Option<(usize, Vec<String>)>) {
        let url = &self.url;
        self.fetched = Some(now);
        let random = blitz_http::random_u64();
        let was_failing = self.schedule.succeed(now, document.max_age, random);
        match change {
            Some((count, notes)) => {
                let notes: String = notes.iter().map(|note| format!("; {note}")).collect();
                tracing::info!("{url} has {count} keys for tokens{notes}");
            }
            None if was_failing => tracing::info!("the keys of {url} are fetched again"),
            None => {}
        }
        if let Err(problem) = self.stored.write(&document.content, SystemTime::now()) {
            tracing::debug!("the keys of {url} are not stored for the next start: {problem}");
        }
    }

    /// Gives up keys that are too old.
    fn expire(&mut self, keys: &FetchedKeys) {
        let now = blitz_http::now();
        let is_old = |fetched: Instant| now.saturating_duration_since(fetched) > STALE_MAX;
        if self.fetched.is_some_and(is_old) {
            self.fetched = None;
            keys.remove();
            let url = &self.url;
            tracing::error!(
                "the keys of {url} could not be fetched for a day, and are not used any more: requests with a token \
                 get 503"
            );
        }
    }
}
