//! The store of limits that several processes share: Redis or Valkey. A thread takes tokens from it ahead of need, so
//! that no request waits for it ([`RateStore`] has the reasons and the bound).

mod link;
mod settings;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use blitz_config::{Diagnostic, Process, Redis};
use blitz_gateway::{RateStore, RateStoreFacts, StoreDemand};
use redis::{RedisError, RedisResult};

use self::link::Link;
use self::settings::StoreSettings;

/// The pause of the thread while requests need tokens, and otherwise.
const BUSY_TICK: Duration = Duration::from_millis(1);
const IDLE_TICK: Duration = Duration::from_millis(5);

/// How often a process says that it shares the store.
const JOIN_INTERVAL: Duration = Duration::from_secs(1);

/// The first and the longest pause before another attempt to connect; it doubles each time.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// After a connection that has worked for so long the first pause applies again.
const STEADY: Duration = Duration::from_secs(10);

/// Most keys in one message.
const KEYS_MAX: usize = 512;

/// The whole table is looked at in so many ticks.
const SWEEP_TICKS: usize = 200;

/// The store in use. Clones are the same.
#[derive(Clone)]
pub(crate) struct OpenRateStore {
    store: Arc<RateStore>,
    open: Arc<Mutex<Option<Open>>>,
}

struct Open {
    settings: StoreSettings,
    /// The thread ends when this is dropped.
    _running: Sender<()>,
}

impl Default for OpenRateStore {
    fn default() -> OpenRateStore {
        let store = RateStore::new(random(), Instant::now());
        OpenRateStore {
            store: Arc::new(store),
            open: Arc::default(),
        }
    }
}

impl OpenRateStore {
    /// The tokens, for the gateway.
    pub(crate) fn store(&self) -> Arc<RateStore> {
        Arc::clone(&self.store)
    }

    /// Uses the store of these settings from the start on. Waits for the outcome of the first attempt to connect, so that
    /// the first requests are counted there, but not longer than a response may take.
    pub(crate) fn open(&self, process: &Process) {
        let (first, attempted) = channel();
        self.start(StoreSettings::of(process), Some(first));
        if let Some(settings) = StoreSettings::of(process) {
            // It fails because that was too long.
            let _ = attempted.recv_timeout(settings.timeout);
        }
    }

    /// Uses the store of other settings. Gives a line for people if they differ.
    pub(crate) fn replace(&self, process: &Process) -> &'static str {
        let settings = StoreSettings::of(process);
        let in_use = self.lock().as_ref().map(|open| open.settings.clone());
        if settings == in_use {
            return "";
        }
        self.start(settings, None);
        CHANGED
    }

    /// The facts for metrics; `None` without a store.
    pub(crate) fn facts(&self) -> Option<RateStoreFacts> {
        let is_open = self.lock().is_some();
        is_open.then(|| self.store.facts(Instant::now()))
    }

    fn start(&self, settings: Option<StoreSettings>, first: Option<Sender<()>>) {
        *self.lock() = settings.map(|settings| {
            let (running, stopped) = channel();
            let thread = StoreThread {
                store: Arc::clone(&self.store),
                settings: settings.clone(),
                stopped,
                name: format!("{:016x}", random()),
                is_told: false,
            };
            let started = thread::Builder::new()
                .name("blitz-limits".to_owned())
                .spawn(move || thread.run(first));
            if let Err(error) = started {
                tracing::error!(
                    "no thread for `redis` can be started: {error}; limits do without it, raise the limit of threads"
                );
            }
            Open {
                settings,
                _running: running,
            }
        });
        if self.lock().is_none() {
            self.store.close();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A number that nobody can guess, on a thread without a core.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

const CHANGED: &str = "  ~ redis\n";

/// The line of a store that changes.
pub(crate) fn change(before: &Process, after: &Process) -> &'static str {
    match StoreSettings::of(before) == StoreSettings::of(after) {
        true => "",
        false => CHANGED,
    }
}

/// Mistakes that the file's own reader cannot see.
pub(crate) fn check(redis: &Redis, diagnostics: &mut Vec<Diagnostic>) {
    settings::check(redis, diagnostics);
}

/// The thread of a store.
struct StoreThread {
    store: Arc<RateStore>,
    settings: StoreSettings,
    /// Closed when it is to end.
    stopped: Receiver<()>,
    /// The name of this process in the store.
    name: String,
    /// Whether the log says that the store cannot be reached.
    is_told: bool,
}

impl StoreThread {
    fn run(mut self, mut first: Option<Sender<()>>) {
        let mut pause = PAUSE_MIN;
        loop {
            let started = Instant::now();
            let outcome = self.connect().and_then(|link| {
                drop(first.take());
                self.serve(link)
            });
            let Err(error) = outcome else { return };
            self.store.note_failure();
            self.tell_gone(&error);
            drop(first.take());
            if started.elapsed() > STEADY {
                pause = PAUSE_MIN;
            }
            if self.is_stopped_within(pause) {
                return;
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn connect(&mut self) -> RedisResult<Link> {
        let mut link = Link::open(&self.settings)?;
        self.join(&mut link)?;
        if std::mem::take(&mut self.is_told) {
            tracing::info!("redis: the store of rate limits answers again, and counts requests");
        }
        Ok(link)
    }

    fn join(&self, link: &mut Link) -> RedisResult<()> {
        let sent = Instant::now();
        let processes = link.join(&self.name)?;
        self.store.set_processes(processes);
        self.store.note_answer(sent, Instant::now());
        Ok(())
    }

    /// Takes and returns tokens until the thread is to end.
    fn serve(&mut self, mut link: Link) -> RedisResult<()> {
        let mut joined = Instant::now();
        let mut position = 0;
        let mut demands: Vec<StoreDemand> = Vec::new();
        loop {
            let tick = match demands.is_empty() {
                true => IDLE_TICK,
                false => BUSY_TICK,
            };
            if self.is_stopped_within(tick) {
                link.leave(&self.name);
                return Ok(());
            }
            let now = Instant::now();
            if now.saturating_duration_since(joined) >= JOIN_INTERVAL {
                self.join(&mut link)?;
                joined = now;
            }
            demands.clear();
            self.store.demands(KEYS_MAX, &mut demands);
            (self.store).sweep(&mut position, SWEEP_TICKS, now, &mut demands);
            if demands.is_empty() {
                continue;
            }
            let sent = Instant::now();
            let grants = link.take(&demands).inspect_err(|_| {
                demands
                    .iter()
                    .for_each(|demand| self.store.put_back(demand));
            })?;
            let now = Instant::now();
            self.store.note_answer(sent, now);
            for (demand, (granted, wait)) in demands.iter().zip(grants) {
                self.store.grant(demand, granted, wait, now);
            }
        }
    }

    fn is_stopped_within(&self, time: Duration) -> bool {
        !matches!(
            self.stopped.recv_timeout(time),
            Err(RecvTimeoutError::Timeout)
        )
    }

    fn tell_gone(&mut self, error: &RedisError) {
        // A socket that times out says that the resource is temporarily unavailable.
        let problem = match error.is_timeout() {
            true => format!("no response within {:?}", self.settings.timeout),
            false => error.to_string(),
        };
        if !std::mem::replace(&mut self.is_told, true) {
            tracing::warn!(
                "redis: the store of rate limits does not answer: {problem}; limits do what their `on_failure` says, and it is tried again"
            );
        }
    }
}
