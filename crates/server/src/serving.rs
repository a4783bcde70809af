//! One service on every core: listen, start, run_until_signal signals, drain, end.
//!
//! This is what [`App::run`](crate::App::run) stands on, and what a program uses that brings a
//! service of its own, as the gateway does.

use std::fmt;
use std::fs;
use std::future::poll_fn;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::task::Poll;
use std::time::Duration;

use blitz_http::{
    Address, Config, Cores, Drain, Listener, ServeOptions, Service, Signal, Signals, TlsSlot,
};

pub use crate::certificates::{ValidityWatch, unusable_reason};

/// Where to listen, and what is spoken there.
#[derive(Debug, Clone)]
pub struct ListenerConfig {
    /// The address.
    pub address: Address,
    /// With it the listener speaks TLS.
    pub tls: Option<TlsSlot>,
    /// In clear text: nothing but HTTP/2 with prior knowledge (RFC 9113, section 3.3).
    pub http2_only: bool,
}

impl ListenerConfig {
    /// A listener that speaks TLS.
    #[must_use]
    pub fn secure(address: Address, tls: TlsSlot) -> ListenerConfig {
        ListenerConfig {
            tls: Some(tls),
            ..address.into()
        }
    }

    /// A listener in clear text; what stands behind `h2c://` is one that speaks HTTP/2 only.
    ///
    /// # Errors
    /// Those of `parse`, which reads the address.
    pub fn read<E>(
        text: &str,
        parse: impl FnOnce(&str) -> Result<Address, E>,
    ) -> Result<ListenerConfig, E> {
        match text.strip_prefix("h2c://") {
            Some(address) => parse(address).map(ListenerConfig::h2c),
            None => parse(text).map(ListenerConfig::from),
        }
    }

    /// A listener in clear text that speaks HTTP/2 only.
    #[must_use]
    pub fn h2c(address: Address) -> ListenerConfig {
        ListenerConfig {
            http2_only: true,
            ..address.into()
        }
    }
}

impl From<Address> for ListenerConfig {
    /// In clear text, every version.
    fn from(address: Address) -> ListenerConfig {
        ListenerConfig {
            address,
            tls: None,
            http2_only: false,
        }
    }
}

/// Makes sure that nobody else listens on these addresses, and settles port 0 to a free one. To be
/// done once, before the cores [start].
///
/// # Errors
/// [`StartError::Listen`] for the first address that cannot be had.
pub fn reserve(
    endpoints: impl IntoIterator<Item = ListenerConfig>,
) -> Result<Vec<ListenerConfig>, StartError> {
    let settled = endpoints.into_iter().map(|endpoint| {
        let address = &endpoint.address;
        match spare_files(address).and_then(|()| Listener::reserve(address)) {
            Ok(address) => Ok(ListenerConfig {
                address,
                ..endpoint
            }),
            Err(error) => Err(StartError::Listen(endpoint.address, error)),
        }
    });
    settled.collect()
}

/// A socket that nobody serves any more makes way for ours. A file that is no socket refuses
/// connections just the same, and somebody needs it.
fn spare_files(address: &Address) -> io::Result<()> {
    let Address::Unix(path) = address else {
        return Ok(());
    };
    match fs::symlink_metadata(&**path) {
        Ok(found) if !found.file_type().is_socket() => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "there is something that is no socket",
        )),
        // What else may be wrong with the path shows when it is bound.
        _ => Ok(()),
    }
}

/// Listens on every endpoint and serves on every core; returns once all of them do.
///
/// `make` makes the service of the calling core and says how it is served; whether over TLS, the
/// endpoint decides.
///
/// # Errors
/// [`StartError`]; what has started by then is told to end.
pub fn start<S: Service>(
    endpoints: Vec<ListenerConfig>,
    config: &Config,
    make: impl Fn() -> (Rc<S>, ServeOptions) + Send + Sync + 'static,
) -> Result<Serving, StartError> {
    let (started, starts) = channel();
    let ended = Arc::new(AtomicUsize::new(0));
    let plan = Arc::new(Plan {
        endpoints: endpoints.clone(),
        make,
        started,
        ended: Arc::clone(&ended),
    });
    let cores = blitz_http::start(config, move |_| serve_core(Arc::clone(&plan)))
        .map_err(StartError::Start)?;
    let serving = Serving {
        cores,
        endpoints,
        ended,
    };
    for _ in 0..serving.cores.count() {
        if let Err(error) = starts.recv().unwrap_or_else(|_| Err(ended_early())) {
            serving.drain(Duration::ZERO);
            return Err(error);
        }
    }
    Ok(serving)
}

/// A service at work. Dropping it does not stop it.
pub struct Serving {
    cores: Cores,
    endpoints: Vec<ListenerConfig>,
    ended: Arc<AtomicUsize>,
}

/// Why a service cannot start.
#[derive(Debug)]
pub enum StartError {
    /// An address cannot be listened on.
    Listen(Address, io::Error),
    /// The cores cannot be started.
    Start(io::Error),
}

/// Why a service ended that nobody had told to end in order.
#[derive(Debug)]
pub enum EndError {
    /// A second interrupt; what was running is dropped with the process.
    Interrupted,
    /// No listener is left, on no core, and no signal asked for that.
    ListenersEnded,
    /// A core failed, or signals cannot be waited for.
    Failed(io::Error),
}

/// When the thread that waits for signals may do something besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tick {
    /// HUP: files are to be read again.
    Reload,
    /// No signal came for a while, a second or less.
    Periodic,
}

impl Serving {
    /// Where it listens, port 0 replaced by the port that was free.
    #[must_use]
    pub fn listeners(&self) -> &[ListenerConfig] {
        &self.endpoints
    }

    /// The cores, with their driver and their own counters.
    #[must_use]
    pub fn cores(&self) -> &Cores {
        &self.cores
    }

    /// How many cores serve no more.
    #[must_use]
    pub fn ended(&self) -> usize {
        self.ended.load(Ordering::Acquire)
    }

    /// Stops accepting, lets running requests finish, and after `limit` drops what is left. A
    /// second call can only bring the end nearer.
    pub fn drain(&self, limit: Duration) {
        self.cores
            .post_all(move |_| Drain::of_core().trigger(limit));
    }

    /// Waits until every core has ended.
    ///
    /// # Errors
    /// A core failed.
    pub fn join(self) -> io::Result<()> {
        self.cores.join()
    }

    /// Serves until a signal ends it: TERM and QUIT let requests finish within `patience`, INT
    /// drops them. The others have nothing to do here.
    ///
    /// # Errors
    /// [`EndError`]: the end came in another way.
    pub fn run_until_signal(self, signals: &Signals, patience: Duration) -> Result<(), EndError> {
        self.run_until_signal_with(signals, patience, |_| ())
    }

    /// As [`Serving::run_until_signal`], and calls `keep` on the calling thread when there may be something to
    /// do for those who serve.
    ///
    /// # Errors
    /// [`EndError`]: the end came in another way.
    pub fn run_until_signal_with(
        self,
        signals: &Signals,
        patience: Duration,
        mut keep: impl FnMut(Tick),
    ) -> Result<(), EndError> {
        // Cores may also end by themselves, and no signal tells.
        const LOOK: Duration = Duration::from_secs(1);
        const LOOK_WHILE_DRAINING: Duration = Duration::from_millis(10);
        let (mut look, mut told, mut interrupted, mut missing) = (LOOK, false, false, 0);
        loop {
            let ended = self.ended();
            if ended == self.cores.count() {
                break;
            }
            if ended > missing && !told {
                missing = ended;
                let left = self.cores.count() - ended;
                tracing::error!(
                    ended,
                    left,
                    "a core has ended by itself; the others serve on"
                );
            }
            let limit = match signals.wait(Some(look)).map_err(EndError::Failed)? {
                Some(Signal::Terminate | Signal::Quit) => patience,
                Some(Signal::Interrupt) if interrupted => return Err(EndError::Interrupted),
                Some(Signal::Interrupt) => {
                    interrupted = true;
                    Duration::ZERO
                }
                Some(Signal::Hangup) => {
                    keep(Tick::Reload);
                    continue;
                }
                Some(Signal::User1 | Signal::User2) => continue,
                None => {
                    keep(Tick::Periodic);
                    continue;
                }
            };
            (look, told) = (LOOK_WHILE_DRAINING, true);
            self.drain(limit);
        }
        self.join().map_err(EndError::Failed)?;
        if told {
            Ok(())
        } else {
            Err(EndError::ListenersEnded)
        }
    }
}

/// What every core starts from.
struct Plan<F> {
    endpoints: Vec<ListenerConfig>,
    make: F,
    started: Sender<Result<(), StartError>>,
    ended: Arc<AtomicUsize>,
}

/// Serves on the calling core and tells how that went.
async fn serve_core<S, F>(plan: Arc<Plan<F>>)
where
    S: Service,
    F: Fn() -> (Rc<S>, ServeOptions),
{
    let mut life = Life {
        started: Some(plan.started.clone()),
        ended: Arc::clone(&plan.ended),
    };
    match bind(&plan.endpoints) {
        Ok(listeners) => {
            let (service, options) = (plan.make)();
            life.say(Ok(()));
            serve_all(listeners, &service, &options).await;
        }
        Err(error) => life.say(Err(error)),
    }
}

/// Listens on every endpoint and serves on the calling core until it is drained: for programs that
/// start their cores themselves.
///
/// # Errors
/// [`StartError::Listen`].
pub async fn serve_on_core<S: Service>(
    endpoints: &[ListenerConfig],
    make: impl FnOnce() -> (Rc<S>, ServeOptions),
) -> Result<(), StartError> {
    let listeners = bind(endpoints)?;
    let (service, options) = make();
    serve_all(listeners, &service, &options).await;
    Ok(())
}

fn bind(endpoints: &[ListenerConfig]) -> Result<Vec<(Listener, &ListenerConfig)>, StartError> {
    let bound = endpoints.iter().map(|endpoint| {
        let bound = Listener::bind(&endpoint.address);
        let listener =
            bound.map_err(|error| StartError::Listen(endpoint.address.clone(), error))?;
        Ok((listener, endpoint))
    });
    bound.collect()
}

async fn serve_all<S: Service>(
    listeners: Vec<(Listener, &ListenerConfig)>,
    service: &Rc<S>,
    options: &ServeOptions,
) {
    let serving = listeners.into_iter().map(|(listener, endpoint)| {
        let options = ServeOptions {
            tls: endpoint.tls.clone(),
            http2_only: endpoint.http2_only,
            ..options.clone()
        };
        Box::pin(blitz_http::serve(
            listener,
            Rc::clone(service),
            Rc::new(options),
        ))
    });
    all(serving.collect()).await;
}

/// A core that serves; dropped however it ends, by a panic or a failing driver too.
struct Life {
    /// Who waits for it to start, until it was said how that went.
    started: Option<Sender<Result<(), StartError>>>,
    ended: Arc<AtomicUsize>,
}

impl Life {
    fn say(&mut self, outcome: Result<(), StartError>) {
        if let Some(started) = self.started.take() {
            // The receiver has gone only if another core failed to start as well.
            let _ = started.send(outcome);
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.say(Err(ended_early()));
        self.ended.fetch_add(1, Ordering::Release);
    }
}

/// It has panicked, and the panic said why.
fn ended_early() -> StartError {
    StartError::Start(io::Error::other("a core ended while it started"))
}

/// Waits for all of them.
async fn all<F: Future<Output = ()>>(mut serving: Vec<Pin<Box<F>>>) {
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
            EndError::ListenersEnded => {
                f.write_str("every core has stopped listening, and no signal asked for that")
            }
            EndError::Failed(error) => write!(f, "cannot keep running: {error}"),
        }
    }
}

impl std::error::Error for EndError {}
