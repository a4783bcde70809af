//! Runs one service on every core: listens, starts, handles signals, drains, and ends.
//!
//! The framework and the gateway are built on this module.

mod bind;
mod core;
mod ending;
mod error;
mod listener;

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use blitz_http::{
    Config, Cores, Drain, FOREVER, ReservedDescriptors, ServeOptions, Service, Signal, Signals,
};

use self::bind::{
    DATAGRAMS_WAIT_MAX, ServiceListener, bind_datagrams, missing_datagrams, reserve_beside,
};
use self::core::{CoreSetup, Number, serve_core};
use self::ending::{CHECK_WHILE_DRAINING, Ending, Step};
use self::error::{ended_early, not_opened};

pub use self::bind::{BoundConfig, NewListeners, reserve, try_reserve, try_reserve_private};
pub use self::core::serve_on_core;
pub use self::ending::{DrainTimes, Tick};
pub use self::error::{EndError, StartError};
pub use self::listener::{AltSvc, ListenerConfig};

/// With a lower limit of sockets per core the start warns.
const SOCKETS_FEW: usize = 1024;

/// How to raise the limit of open files.
pub const MORE_OPEN_FILES: &str = "LimitNOFILE=65536 in the unit, --ulimit nofile=65536 for a container, or \
     ulimit -Hn 65536";

/// Starts the listeners and the service on every core; returns once all cores serve.
///
/// `make` returns the service of the calling core and its options. The listener's configuration
/// determines whether it uses TLS.
///
/// # Errors
/// [`StartError`]; cores that have started are stopped.
pub fn start<S: Service>(
    listeners: NewListeners,
    cores: &Config,
    make: impl Fn() -> (Rc<S>, ServeOptions) + Send + Sync + 'static,
) -> Result<Serving, StartError> {
    let (started, starts) = channel();
    let ended = Arc::new(AtomicUsize::new(0));
    let setup = Arc::new(CoreSetup {
        make,
        started,
        ended: Arc::clone(&ended),
    });
    let cores_config = Config {
        reserved: ReservedDescriptors {
            core: cores.reserved.core + listeners.configs().map(descriptors).sum::<usize>(),
            ..cores.reserved
        },
        ..cores.clone()
    };
    let cores = blitz_http::start(&cores_config, move |_| serve_core(Arc::clone(&setup)))
        .map_err(StartError::Start)?;
    let mut serving = Serving {
        cores,
        listeners: Vec::new(),
        numbers: 0,
        ended,
    };
    let opened = (0..serving.cores.count())
        .try_for_each(|_| starts.recv().unwrap_or_else(|_| Err(ended_early())))
        .and_then(|()| serving.open(listeners, DATAGRAMS_WAIT_MAX));
    if let Err(error) = opened {
        serving.drain(Duration::ZERO);
        return Err(error);
    }
    if let Err(error) = serving.cores.check_descriptors() {
        serving.drain(Duration::ZERO);
        let text = format!("{error}: {MORE_OPEN_FILES}");
        return Err(StartError::Start(io::Error::other(text)));
    }
    // A number that is chosen is not one of few descriptors.
    if cores_config.sockets_max == 0 {
        warn_of_few_sockets(&serving.cores);
    }
    Ok(serving)
}

/// The descriptors of a listener on each core: its sockets, and a connection that is accepted at the limit.
fn descriptors(listener: &ListenerConfig) -> usize {
    2 + usize::from(listener.tls.is_some() && listener.http3)
}

fn warn_of_few_sockets(cores: &Cores) {
    let limit = cores.sockets_max();
    if cores.share_all_descriptors() {
        tracing::warn!(
            limit,
            "each core may have few open sockets, and nothing is kept for the control interface; raise \
             the limit of open files: {MORE_OPEN_FILES}"
        );
    } else if limit < SOCKETS_FEW {
        tracing::warn!(
            limit,
            "each core may have few open sockets; raise the limit of open files: LimitNOFILE=65536 in \
             the unit, --ulimit nofile=65536 for a container, or ulimit -Hn 65536"
        );
    }
}

/// A running service. Dropping this value does not stop it.
pub struct Serving {
    cores: Cores,
    listeners: Vec<ServiceListener>,
    /// How many listeners there were.
    numbers: Number,
    ended: Arc<AtomicUsize>,
}

/// Listeners that others have taken the place of.
#[must_use = "they go on until they are closed"]
pub struct Superseded(Vec<Number>);

/// How long a core may take to open a listener; one that a handler blocks takes longer.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// How long cores have to end after a second TERM.
const END_AT_ONCE_TIMEOUT: Duration = Duration::from_secs(1);

impl Serving {
    /// The listeners, with port 0 replaced by the actual port.
    pub fn listeners(&self) -> impl Iterator<Item = &ListenerConfig> + Clone {
        self.listeners.iter().map(|entry| &entry.config)
    }

    /// Keeps the addresses of these listeners, for [`Serving::open_listeners`]. Those that are open already stay as
    /// they are.
    ///
    /// # Errors
    /// [`StartError::Listen`] for the first address that cannot be listened on.
    pub fn prepare(
        &self,
        configs: impl IntoIterator<Item = ListenerConfig>,
    ) -> Result<NewListeners, StartError> {
        let reserve = |address: &_| reserve_beside(&self.listeners, address);
        NewListeners::new(configs, &self.listeners, reserve)
    }

    /// Opens these listeners on every core. All others are superseded, and go on until they are closed.
    ///
    /// # Errors
    /// [`StartError`] if one cannot be opened; then all stay as they were.
    pub fn open_listeners(&mut self, listeners: NewListeners) -> Result<Superseded, StartError> {
        let mut before = self.numbers_in_use();
        self.open(listeners, Duration::ZERO)?;
        let now = self.numbers_in_use();
        before.retain(|number| !now.contains(number));
        Ok(Superseded(before))
    }

    /// Closes listeners. Running exchanges have `limit`; idle connections are closed, and clients are told to begin no more
    /// requests.
    pub fn close_listeners(&self, superseded: Superseded, limit: Duration) {
        self.close(superseded.0, limit);
    }

    fn numbers_in_use(&self) -> Vec<Number> {
        self.listeners
            .iter()
            .filter_map(|entry| entry.number)
            .collect()
    }

    /// Opens the listeners that are new. `wait` is how long a UDP port in use is waited for.
    fn open(&mut self, mut listeners: NewListeners, wait: Duration) -> Result<(), StartError> {
        let end = Instant::now() + wait;
        let mut opened = Vec::new();
        for entry in &mut listeners.entries {
            if entry.number.is_none() {
                let datagrams =
                    bind_datagrams(&mut entry.config, &self.listeners, self.cores.count(), end);
                opened.push((self.numbers, (entry.config.clone(), datagrams)));
                entry.number = Some(self.numbers);
                self.numbers += 1;
            }
        }
        let numbers: Vec<_> = opened.iter().map(|(number, _)| *number).collect();
        let opened = self.open_on_cores(opened);
        if let Err(error) = opened.and_then(|()| listeners.take_paths()) {
            self.close(numbers, Duration::ZERO);
            return Err(error);
        }
        self.listeners = listeners.entries;
        self.listeners
            .iter_mut()
            .for_each(|entry| entry.reservation = None);
        Ok(())
    }

    /// Tries again to bind UDP ports. A listener that gets its port is opened anew, because its responses tell clients of
    /// HTTP/3; exchanges of the one before have all their time.
    fn open_missing_datagrams(&mut self) {
        for index in 0..self.listeners.len() {
            let entry = &self.listeners[index];
            let missing = missing_datagrams(entry, &self.listeners, self.cores.count());
            let Some((config, datagrams)) = missing else {
                continue;
            };
            let number = self.numbers;
            self.numbers += 1;
            let opened = self.open_on_cores(vec![(number, (config.clone(), Some(datagrams)))]);
            if let Err(error) = opened {
                // It was warned of when the port could not be bound.
                tracing::debug!("no HTTP/3 at UDP {}: {error}", config.address);
                self.close(vec![number], Duration::ZERO);
                continue;
            }
            tracing::info!("HTTP/3 at UDP {}: the port could be bound", config.address);
            let entry = &mut self.listeners[index];
            entry.config = config;
            let before = entry.number.replace(number);
            self.close(before.into_iter().collect(), FOREVER);
        }
    }

    fn open_on_cores(&self, opened: Vec<(Number, BoundConfig)>) -> Result<(), StartError> {
        if opened.is_empty() {
            return Ok(());
        }
        let (sender, results) = channel();
        self.cores.post_all(move |_| {
            // The receiver is gone only if another core has failed.
            let _ = sender.send(core::open(&opened));
        });
        (0..self.cores.count()).try_for_each(|_| {
            let result = results.recv_timeout(OPEN_TIMEOUT);
            result.unwrap_or_else(|_| Err(not_opened()))
        })
    }

    fn close(&self, numbers: Vec<Number>, limit: Duration) {
        if !numbers.is_empty() {
            self.cores.post_all(move |_| core::close(&numbers, limit));
        }
    }

    /// The cores, with their driver and counters.
    #[must_use]
    pub fn cores(&self) -> &Cores {
        &self.cores
    }

    /// The number of cores that have ended.
    #[must_use]
    pub fn ended(&self) -> usize {
        self.ended.load(Ordering::Acquire)
    }

    /// Stops accepting, lets running requests finish, and drops the remaining ones after `limit`. A
    /// second call can only shorten the limit.
    pub fn drain(&self, limit: Duration) {
        self.cores
            .post_all(move |_| Drain::of_core().trigger(limit));
    }

    /// Waits until every core has ended.
    ///
    /// # Errors
    /// If a core has failed.
    pub fn join(self) -> io::Result<()> {
        self.cores.join()
    }

    /// Serves until a signal ends the service: TERM and QUIT let requests finish within these times, INT drops them. A
    /// second TERM or QUIT, at least 10 ms later, drops them as well, and ends the service within a second. Other signals
    /// do not end it.
    ///
    /// # Errors
    /// [`EndError`]: the service ended without such a signal.
    pub fn run_until_signal(
        self,
        signals: &Signals,
        times: impl Into<DrainTimes>,
    ) -> Result<(), EndError> {
        self.run_until_signal_with(signals, times, |_, _| ())
    }

    /// As [`Serving::run_until_signal`], and calls `on_tick` on the calling thread on HUP, on USR1
    /// and at least once per second.
    ///
    /// # Errors
    /// [`EndError`]: the service ended without such a signal.
    pub fn run_until_signal_with(
        mut self,
        signals: &Signals,
        times: impl Into<DrainTimes>,
        mut on_tick: impl FnMut(&mut Serving, Tick),
    ) -> Result<(), EndError> {
        let (mut ending, mut missing) = (Ending::new(times.into()), 0);
        loop {
            let ended = self.ended();
            if ended == self.cores.count() {
                break;
            }
            if ended > missing && !ending.has_begun() {
                missing = ended;
                let left = self.cores.count() - ended;
                tracing::error!(
                    ended,
                    left,
                    "a core has ended without a signal; the others continue"
                );
            }
            let signal = signals
                .wait(Some(ending.check()))
                .map_err(EndError::Failed)?;
            match ending.step(signal, Instant::now()) {
                Step::Nothing => {}
                Step::Tick(tick) => {
                    if tick == Tick::Periodic && !ending.has_begun() {
                        self.open_missing_datagrams();
                    }
                    on_tick(&mut self, tick);
                }
                Step::Drain { limit, is_first } => {
                    if is_first {
                        on_tick(&mut self, Tick::Drain);
                    }
                    self.drain(limit);
                }
                Step::EndAtOnce => {
                    self.end_at_once(signals)?;
                    break;
                }
                Step::Interrupted => return Err(EndError::Interrupted),
            }
        }
        self.join().map_err(EndError::Failed)?;
        match ending.has_begun() {
            true => Ok(()),
            false => Err(EndError::ListenersEnded),
        }
    }

    /// Drops running requests and waits until every core has ended.
    ///
    /// # Errors
    /// [`EndError::Terminated`] if a core does not end, for example because a handler blocks it.
    fn end_at_once(&self, signals: &Signals) -> Result<(), EndError> {
        self.drain(Duration::ZERO);
        let checks = END_AT_ONCE_TIMEOUT.as_millis() / CHECK_WHILE_DRAINING.as_millis();
        for _ in 0..checks {
            if self.ended() == self.cores.count() {
                return Ok(());
            }
            match signals.wait(Some(CHECK_WHILE_DRAINING)) {
                Ok(Some(Signal::Interrupt)) => return Err(EndError::Interrupted),
                Ok(_) => {}
                Err(error) => return Err(EndError::Failed(error)),
            }
        }
        Err(EndError::Terminated)
    }
}
