//! Runs one service on every core: listens, starts, handles signals, drains, and ends.
//!
//! The framework and the gateway are built on this module.

use std::fmt;
use std::fs;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use blitz_http::{
    Address, Config, CoreDatagramListener, Cores, DatagramListener, Drain, FOREVER, Listener,
    Reservation, ServeOptions, Service, Signal, Signals, TlsSlot,
};

/// With a lower limit of sockets per core the start warns.
const SOCKETS_FEW: usize = 1024;

/// How to raise the limit of open files.
pub const MORE_OPEN_FILES: &str = "LimitNOFILE=65536 in the unit, --ulimit nofile=65536 for a container, or \
     ulimit -Hn 65536";

/// The address and the protocols of a listener.
#[derive(Debug, Clone)]
pub struct ListenerConfig {
    /// The address.
    pub address: Address,
    /// The TLS settings; `None` for clear text.
    pub tls: Option<TlsSlot>,
    /// Clear text accepts only HTTP/2 with prior knowledge (RFC 9113, section 3.3).
    pub http2_only: bool,
    /// With TLS: HTTP/3 is served at the same port over UDP. If that port cannot be bound, the start warns; if it
    /// is in use, after 5 s.
    pub http3: bool,
    /// How clients learn of HTTP/3.
    pub alt_svc: AltSvc,
    /// Keeps the address until the cores listen.
    pub reservation: Option<Arc<Reservation>>,
}

/// The field `Alt-Svc` (RFC 7838) in responses over TLS: where HTTP/3 is served, or `clear` if it is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AltSvc {
    /// The port that clients see, where it is another one than that of the listener.
    pub port: Option<u16>,
    /// How long clients remember it; with zero, the field is not sent.
    pub max_age: Duration,
}

impl Default for AltSvc {
    fn default() -> AltSvc {
        AltSvc {
            port: None,
            max_age: Duration::from_secs(3600),
        }
    }
}

impl AltSvc {
    /// The value of the field; `port` is that of the UDP sockets, if there are any.
    fn value(&self, port: Option<u16>) -> Option<String> {
        let seconds = self.max_age.as_secs();
        match port {
            _ if seconds == 0 => None,
            None => Some("clear".to_owned()),
            Some(port) => {
                let port = self.port.unwrap_or(port);
                Some(format!("h3=\":{port}\"; ma={seconds}"))
            }
        }
    }
}

impl ListenerConfig {
    /// A listener for TLS, with HTTP/3.
    #[must_use]
    pub fn secure(address: Address, tls: TlsSlot) -> ListenerConfig {
        ListenerConfig {
            tls: Some(tls),
            http3: true,
            ..address.into()
        }
    }

    /// Parses a listener for clear text; the prefix `h2c://` means HTTP/2 only.
    ///
    /// # Errors
    /// Those of `parse`, which parses the address.
    pub fn parse<E>(
        text: &str,
        parse: impl FnOnce(&str) -> Result<Address, E>,
    ) -> Result<ListenerConfig, E> {
        match text.strip_prefix("h2c://") {
            Some(address) => parse(address).map(ListenerConfig::h2c),
            None => parse(text).map(ListenerConfig::from),
        }
    }

    /// A listener for clear text with HTTP/2 only.
    fn h2c(address: Address) -> ListenerConfig {
        ListenerConfig {
            http2_only: true,
            ..address.into()
        }
    }
}

impl From<Address> for ListenerConfig {
    /// Clear text with all versions of HTTP.
    fn from(address: Address) -> ListenerConfig {
        ListenerConfig {
            address,
            tls: None,
            http2_only: false,
            http3: false,
            alt_svc: AltSvc::default(),
            reservation: None,
        }
    }
}

/// Checks that no other program listens on these addresses, and keeps them until the cores listen; port 0
/// becomes a free one. Call it once, before the cores [start]. Waits for about a second while an address is in use, because a
/// process that was killed may still be releasing it.
///
/// # Errors
/// [`StartError::Listen`] for the first address that cannot be listened on.
pub fn reserve(
    configs: impl IntoIterator<Item = ListenerConfig>,
) -> Result<Vec<ListenerConfig>, StartError> {
    reserve_each(configs, Listener::reserve)
}

/// [`reserve`] for addresses that the program can do without: it does not wait until one is released.
///
/// # Errors
/// The same.
pub fn try_reserve(
    configs: impl IntoIterator<Item = ListenerConfig>,
) -> Result<Vec<ListenerConfig>, StartError> {
    reserve_each(configs, Listener::try_reserve)
}

fn reserve_each(
    configs: impl IntoIterator<Item = ListenerConfig>,
    reserve: fn(&Address) -> io::Result<Reservation>,
) -> Result<Vec<ListenerConfig>, StartError> {
    let reserved = configs.into_iter().map(|config| {
        let address = &config.address;
        match check_path(address).and_then(|()| reserve(address)) {
            Ok(reservation) => Ok(ListenerConfig {
                address: reservation.address().clone(),
                reservation: Some(Arc::new(reservation)),
                ..config
            }),
            Err(error) => Err(StartError::Listen(config.address, error)),
        }
    });
    reserved.collect()
}

/// Refuses a path with a file that is not a socket. Such a file refuses connections as a stale socket
/// does, but must not be removed.
fn check_path(address: &Address) -> io::Result<()> {
    let Address::Unix(path) = address else {
        return Ok(());
    };
    match fs::symlink_metadata(&**path) {
        Ok(found) if !found.file_type().is_socket() => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "the path exists and is not a socket",
        )),
        // Binding reports other problems of the path.
        _ => Ok(()),
    }
}

/// Starts the listeners and the service on every core; returns once all cores serve.
///
/// `make` returns the service of the calling core and its options. The listener's configuration
/// determines whether it uses TLS.
///
/// # Errors
/// [`StartError`]; cores that have started are stopped.
pub fn start<S: Service>(
    mut configs: Vec<ListenerConfig>,
    cores: &Config,
    make: impl Fn() -> (Rc<S>, ServeOptions) + Send + Sync + 'static,
) -> Result<Serving, StartError> {
    let (started, starts) = channel();
    let ended = Arc::new(AtomicUsize::new(0));
    let reservations: Vec<_> = (configs.iter_mut())
        .map(|config| config.reservation.take())
        .collect();
    let listeners = bind_datagrams(configs, cores.core_count());
    let configs = listeners.iter().map(|(config, _)| config.clone()).collect();
    let setup = Arc::new(CoreSetup {
        listeners,
        make,
        started,
        ended: Arc::clone(&ended),
    });
    let cores = blitz_http::start(cores, move |_| serve_core(Arc::clone(&setup)))
        .map_err(StartError::Start)?;
    let serving = Serving {
        cores,
        configs,
        ended,
    };
    for _ in 0..serving.cores.count() {
        if let Err(error) = starts.recv().unwrap_or_else(|_| Err(ended_early())) {
            serving.drain(Duration::ZERO);
            return Err(error);
        }
    }
    drop(reservations);
    if let Err(error) = serving.cores.check_descriptors() {
        serving.drain(Duration::ZERO);
        let text = format!("{error}: {MORE_OPEN_FILES}");
        return Err(StartError::Start(io::Error::other(text)));
    }
    warn_of_few_sockets(&serving.cores);
    Ok(serving)
}

/// A listener, and its UDP sockets if it serves HTTP/3.
pub type BoundConfig = (ListenerConfig, Option<DatagramListener>);

/// How long the start waits for UDP ports in use: a process that was told to end keeps its port until its
/// HTTP/3 connections are closed, about 3 s after their last response, although its TCP port is free at once.
const DATAGRAMS_WAIT_MAX: Duration = Duration::from_secs(5);

/// Time between attempts to bind them.
const DATAGRAMS_CHECK: Duration = Duration::from_millis(50);

/// Binds the UDP sockets of all listeners. What cannot be bound is not served over HTTP/3.
fn bind_datagrams(configs: Vec<ListenerConfig>, cores: usize) -> Vec<BoundConfig> {
    let end = Instant::now() + DATAGRAMS_WAIT_MAX;
    let bound = configs.into_iter().map(|mut config| {
        let address = match config.address {
            Address::Tcp(address) if config.http3 && config.tls.is_some() => address,
            _ => {
                config.http3 = false;
                return (config, None);
            }
        };
        let datagrams = bind_until(address, cores, end).inspect_err(|error| {
            let remedy = datagrams_remedy(address, error);
            tracing::warn!(
                "no HTTP/3 at UDP {address}: {error}; clients use HTTP/2 until a restart. {remedy}"
            );
        });
        config.http3 = datagrams.is_ok();
        (config, datagrams.ok())
    });
    bound.collect()
}

/// Binds the UDP sockets of an address; tries again until `end` while it is in use.
fn bind_until(address: SocketAddr, cores: usize, end: Instant) -> io::Result<DatagramListener> {
    let mut is_told = false;
    loop {
        match DatagramListener::bind(address, cores) {
            Err(error) if is_in_use(&error) && Instant::now() < end => {
                if !is_told {
                    is_told = true;
                    tracing::info!(
                        "UDP {address} is in use: waiting up to {DATAGRAMS_WAIT_MAX:?} for it, as a process \
                         that ends keeps it for its last HTTP/3 connections"
                    );
                }
                thread::sleep(DATAGRAMS_CHECK);
            }
            bound => return bound,
        }
    }
}

fn is_in_use(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse
}

fn datagrams_remedy(address: SocketAddr, error: &io::Error) -> String {
    let port = address.port();
    match is_in_use(error) {
        true => format!(
            "Stop the program that has this port, which `ss -lunp 'sport = :{port}'` shows, or let it end; \
             then restart"
        ),
        false => "Remove the cause, then restart".to_owned(),
    }
}

fn warn_of_few_sockets(cores: &Cores) {
    let limit = cores.sockets_max();
    if limit < SOCKETS_FEW {
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
    configs: Vec<ListenerConfig>,
    ended: Arc<AtomicUsize>,
}

/// Why a service could not start.
#[derive(Debug)]
pub enum StartError {
    /// An address cannot be listened on.
    Listen(Address, io::Error),
    /// The cores cannot be started.
    Start(io::Error),
}

/// Why a service ended other than by a graceful shutdown.
#[derive(Debug)]
pub enum EndError {
    /// A second INT arrived; running requests are dropped with the process.
    Interrupted,
    /// TERM or QUIT arrived during the shutdown, and a core did not end at once.
    Terminated,
    /// The listeners of all cores have ended without a signal.
    ListenersEnded,
    /// A core failed, or waiting for signals failed.
    Failed(io::Error),
}

/// Time between checks whether the cores have ended, after a signal.
const CHECK_WHILE_DRAINING: Duration = Duration::from_millis(10);

/// How long cores have to end after a second TERM.
const END_AT_ONCE_TIMEOUT: Duration = Duration::from_secs(1);

/// An event on the thread that waits for signals, at which it may do other work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tick {
    /// HUP: read the files again.
    Reload,
    /// No signal arrived for at most a second.
    Periodic,
    /// A signal ends the service; its cores still run.
    Drain,
}

impl Serving {
    /// The listeners, with port 0 replaced by the actual port.
    #[must_use]
    pub fn listeners(&self) -> &[ListenerConfig] {
        &self.configs
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

    /// Serves until a signal ends the service: TERM and QUIT let requests finish within
    /// `drain_timeout`, INT drops them. A second TERM or QUIT, at least 10 ms later, drops them as
    /// well, and ends the service within a second. Other signals have no effect.
    ///
    /// # Errors
    /// [`EndError`]: the service ended without such a signal.
    pub fn run_until_signal(
        self,
        signals: &Signals,
        drain_timeout: Duration,
    ) -> Result<(), EndError> {
        self.run_until_signal_with(signals, drain_timeout, |_, _| ())
    }

    /// As [`Serving::run_until_signal`], and calls `on_tick` on the calling thread on HUP and at least
    /// once per second.
    ///
    /// # Errors
    /// [`EndError`]: the service ended without such a signal.
    pub fn run_until_signal_with(
        self,
        signals: &Signals,
        drain_timeout: Duration,
        mut on_tick: impl FnMut(&Cores, Tick),
    ) -> Result<(), EndError> {
        // Cores may also end without a signal.
        const CHECK: Duration = Duration::from_secs(1);
        let (mut check, mut draining, mut interrupted, mut missing) = (CHECK, false, false, 0);
        let mut checks_while_draining = 0;
        loop {
            let ended = self.ended();
            if ended == self.cores.count() {
                break;
            }
            if ended > missing && !draining {
                missing = ended;
                let left = self.cores.count() - ended;
                tracing::error!(
                    ended,
                    left,
                    "a core has ended without a signal; the others continue"
                );
            }
            let limit = match signals.wait(Some(check)).map_err(EndError::Failed)? {
                // timeout(1) and others send TERM to the process and to its group, which is one TERM.
                // The first check may come at once.
                Some(Signal::Terminate | Signal::Quit) if checks_while_draining > 1 => {
                    self.end_at_once(signals)?;
                    break;
                }
                Some(Signal::Terminate | Signal::Quit) => {
                    match drain_timeout < FOREVER {
                        true => tracing::info!(
                            "draining: running requests have {drain_timeout:?} to end"
                        ),
                        false => tracing::info!("draining: running requests have no time limit"),
                    }
                    drain_timeout
                }
                Some(Signal::Interrupt) if interrupted => return Err(EndError::Interrupted),
                Some(Signal::Interrupt) => {
                    interrupted = true;
                    Duration::ZERO
                }
                Some(Signal::Hangup) => {
                    on_tick(&self.cores, Tick::Reload);
                    continue;
                }
                Some(Signal::User1 | Signal::User2) => continue,
                None => {
                    checks_while_draining += u32::from(draining);
                    on_tick(&self.cores, Tick::Periodic);
                    continue;
                }
            };
            if !draining {
                on_tick(&self.cores, Tick::Drain);
            }
            (check, draining) = (CHECK_WHILE_DRAINING, true);
            self.drain(limit);
        }
        self.join().map_err(EndError::Failed)?;
        if draining {
            Ok(())
        } else {
            Err(EndError::ListenersEnded)
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

/// The input of every core.
struct CoreSetup<F> {
    listeners: Vec<BoundConfig>,
    make: F,
    started: Sender<Result<(), StartError>>,
    ended: Arc<AtomicUsize>,
}

/// Serves on the calling core and reports whether it started.
async fn serve_core<S, F>(setup: Arc<CoreSetup<F>>)
where
    S: Service,
    F: Fn() -> (Rc<S>, ServeOptions),
{
    let mut status = CoreStatus {
        started: Some(setup.started.clone()),
        ended: Arc::clone(&setup.ended),
    };
    match bind(&setup.listeners) {
        Ok(listeners) => {
            let (service, options) = (setup.make)();
            status.report(Ok(()));
            serve_all(listeners, &service, &options).await;
        }
        Err(error) => status.report(Err(error)),
    }
}

/// Starts the listeners and serves on the calling core until it is drained: for programs that start
/// their cores themselves.
///
/// # Errors
/// [`StartError::Listen`].
pub async fn serve_on_core<S: Service>(
    configs: &[BoundConfig],
    make: impl FnOnce() -> (Rc<S>, ServeOptions),
) -> Result<(), StartError> {
    let listeners = bind(configs)?;
    let (service, options) = make();
    serve_all(listeners, &service, &options).await;
    Ok(())
}

/// A listener of the calling core.
struct CoreListener<'c> {
    listener: Listener,
    datagrams: Option<CoreDatagramListener>,
    config: &'c ListenerConfig,
}

/// Takes the sockets of the calling core. Without its UDP socket no client of any core may be told of HTTP/3, because
/// the kernel gives this core a part of them.
fn bind(configs: &[BoundConfig]) -> Result<Vec<CoreListener<'_>>, StartError> {
    let bound = configs.iter().map(|(config, datagrams)| {
        let failed = |error| StartError::Listen(config.address.clone(), error);
        let listener = Listener::bind(&config.address).map_err(failed)?;
        let datagrams = datagrams.as_ref().map(DatagramListener::of_core);
        Ok(CoreListener {
            listener,
            datagrams: datagrams.transpose().map_err(failed)?,
            config,
        })
    });
    bound.collect()
}

async fn serve_all<S: Service>(
    listeners: Vec<CoreListener<'_>>,
    service: &Rc<S>,
    options: &ServeOptions,
) {
    let mut serving: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
    for core_listener in listeners {
        let CoreListener {
            listener,
            datagrams,
            config,
        } = core_listener;
        let udp_port = datagrams.as_ref().map(|datagrams| datagrams.local().port());
        let is_tcp = matches!(config.address, Address::Tcp(_));
        let options = Rc::new(ServeOptions {
            tls: config.tls.clone(),
            multiplexed_only: config.http2_only,
            alt_svc: config.alt_svc.value(udp_port).filter(|_| is_tcp),
            ..options.clone()
        });
        if let (Some(datagrams), Some(tls)) = (datagrams, &config.tls) {
            let tls = tls.clone();
            let (service, options) = (Rc::clone(service), Rc::clone(&options));
            serving.push(Box::pin(async move {
                datagrams.serve(&tls, service, options).await;
            }));
        }
        let service = Rc::clone(service);
        serving.push(Box::pin(blitz_http::serve(listener, service, options)));
    }
    all(serving).await;
}

/// Reports the start and the end of a core. It is dropped in every case, also after a panic or a failure
/// of the driver.
struct CoreStatus {
    /// Receives the result of the start; `None` once it was sent.
    started: Option<Sender<Result<(), StartError>>>,
    ended: Arc<AtomicUsize>,
}

impl CoreStatus {
    fn report(&mut self, result: Result<(), StartError>) {
        if let Some(started) = self.started.take() {
            // The receiver is gone only if another core has failed to start.
            let _ = started.send(result);
        }
    }
}

impl Drop for CoreStatus {
    fn drop(&mut self) {
        self.report(Err(ended_early()));
        self.ended.fetch_add(1, Ordering::Release);
    }
}

/// The error for a core that panicked while it started; the panic hook has logged the reason.
fn ended_early() -> StartError {
    StartError::Start(io::Error::other("a core ended while it started"))
}

/// Waits for all futures.
async fn all(mut serving: Vec<Pin<Box<dyn Future<Output = ()>>>>) {
    poll_fn(|cx| {
        serving.retain_mut(|serving| serving.as_mut().poll(cx).is_pending());
        if serving.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Listen(Address::Tcp(address), error) => {
                write!(f, "cannot listen on {address}: {error}")
            }
            StartError::Listen(Address::Unix(path), error) => {
                write!(f, "cannot listen on unix:{}: {error}", path.display())
            }
            StartError::Start(error) => write!(f, "cannot start: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

impl fmt::Display for EndError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EndError::Interrupted => f.write_str("interrupted"),
            EndError::Terminated => f.write_str("terminated"),
            EndError::ListenersEnded => {
                f.write_str("every core has stopped listening without a signal")
            }
            EndError::Failed(error) => write!(f, "cannot keep running: {error}"),
        }
    }
}

impl std::error::Error for EndError {}
