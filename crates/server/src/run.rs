//! Running a built app: cores, listeners, signals.

use crate::error::{Error, Result};
use crate::service::Service;
use blitz_http::{
    Address, Config, Cores, Drain, DriverKind, IoChoice, Limits, Listener, ServeOptions, Signal,
    Signals, serve, start,
};
use std::env::VarError;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::task::Poll;
use std::time::Duration;

/// Where a server listens if nobody says otherwise.
const DEFAULT_ADDRESS: &str = "127.0.0.1:8080";

/// How a server runs, as far as it was said.
pub(crate) struct Settings {
    pub(crate) listen: Vec<String>,
    pub(crate) cores: Option<usize>,
    pub(crate) io: Option<IoChoice>,
    pub(crate) limits: Limits,
    pub(crate) server_name: Option<String>,
    pub(crate) drain_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            listen: Vec::new(),
            cores: None,
            io: None,
            limits: Limits::default(),
            server_name: None,
            drain_timeout: Duration::from_secs(30),
        }
    }
}

/// Serves until a signal ends it.
pub(crate) fn run(service: Service, mut settings: Settings) -> Result {
    ask_environment(&mut settings)?;
    let mut addresses = Vec::new();
    for text in &settings.listen {
        let wanted = parse_address(text)?;
        let address = Listener::reserve(&wanted).map_err(|error| cannot_listen(&wanted, &error))?;
        addresses.push(address);
    }
    let signals = Signals::block().map_err(|error| cannot("wait for signals", &error))?;
    let config = Config {
        io: settings.io.unwrap_or_default(),
        cores: settings.cores.unwrap_or_default(),
        ..Config::default()
    };
    let (started, starts) = channel();
    let ended = Arc::new(AtomicUsize::new(0));
    let plan = Arc::new(Plan {
        service,
        addresses,
        settings,
        started,
        ended: Arc::clone(&ended),
    });
    let on_core = Arc::clone(&plan);
    let cores = start(&config, move |_| serve_core(Arc::clone(&on_core)))
        .map_err(|error| cannot("start", &error))?;
    for _ in 0..cores.count() {
        // A core that ends without a word has panicked, and the panic said why.
        starts
            .recv()
            .unwrap_or_else(|_| Err(Error::new("a core ended while it started")))?;
    }
    announce(&plan.addresses, &cores);
    wait_for_end(&signals, &cores, &ended, plan.settings.drain_timeout)?;
    cores.join().map_err(|error| cannot("keep running", &error))
}

/// What every core does.
struct Plan {
    service: Service,
    addresses: Vec<Address>,
    settings: Settings,
    started: Sender<Result>,
    ended: Arc<AtomicUsize>,
}

/// Listens on every address and serves until drained.
async fn serve_core(plan: Arc<Plan>) {
    let mut listeners = Vec::new();
    for address in &plan.addresses {
        match Listener::bind(address) {
            Ok(listener) => listeners.push(listener),
            Err(error) => {
                let _ = plan.started.send(Err(cannot_listen(address, &error)));
                return;
            }
        }
    }
    let _ = plan.started.send(Ok(()));
    let service = plan.service.on_core();
    let options = Rc::new(ServeOptions {
        limits: plan.settings.limits.clone(),
        server: plan.settings.server_name.clone(),
        ..ServeOptions::default()
    });
    let serving = listeners
        .into_iter()
        .map(|listener| Box::pin(serve(listener, Rc::clone(&service), Rc::clone(&options))));
    all(serving.collect()).await;
    plan.ended.fetch_add(1, Ordering::Release);
}

/// Waits for all of them.
async fn all<F: Future>(mut serving: Vec<Pin<Box<F>>>) {
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

/// Says where it listens and how.
fn announce(addresses: &[Address], cores: &Cores) {
    let urls: Vec<String> = addresses.iter().map(url).collect();
    let driver = match cores.driver() {
        DriverKind::Uring => "io_uring",
        DriverKind::Epoll => "epoll",
    };
    let plural = if cores.count() == 1 { "core" } else { "cores" };
    eprintln!(
        "Listening on {} ({driver}, {} {plural})",
        urls.join(", "),
        cores.count()
    );
    if let Some(reason) = cores.fallback_reason() {
        eprintln!("Using epoll because {reason}");
    }
}

/// Obeys signals until every core has ended.
fn wait_for_end(signals: &Signals, cores: &Cores, ended: &AtomicUsize, limit: Duration) -> Result {
    // Cores also end by themselves, when all their listeners fail.
    const LOOK: Duration = Duration::from_secs(1);
    const LOOK_WHILE_DRAINING: Duration = Duration::from_millis(10);
    let (mut look, mut interrupted) = (LOOK, false);
    while ended.load(Ordering::Acquire) < cores.count() {
        let signal = signals
            .wait(Some(look))
            .map_err(|error| cannot("wait for signals", &error))?;
        let limit = match signal {
            Some(Signal::Terminate | Signal::Quit) => limit,
            // The caller's `main` ends, and the cores with it.
            Some(Signal::Interrupt) if interrupted => return Err(Error::new("interrupted")),
            Some(Signal::Interrupt) => {
                interrupted = true;
                Duration::ZERO
            }
            Some(Signal::Hangup | Signal::User1 | Signal::User2) | None => continue,
        };
        look = LOOK_WHILE_DRAINING;
        cores.post_all(move |_| Drain::of_core().trigger(limit));
    }
    Ok(())
}

/// Fills in from the environment what the program did not say.
fn ask_environment(settings: &mut Settings) -> Result {
    if settings.listen.is_empty() {
        let addresses = variable("BLITZ_LISTEN")?.unwrap_or_else(|| DEFAULT_ADDRESS.to_owned());
        settings.listen.extend(
            addresses
                .split(',')
                .map(|address| address.trim().to_owned()),
        );
    }
    if settings.cores.is_none()
        && let Some(cores) = variable("BLITZ_CORES")?
    {
        let number = cores.parse().map_err(|_| {
            let remedy = "Give a number, or 0 for all cores.";
            Error::new(format!("BLITZ_CORES is `{cores}`, which is no number")).with_remedy(remedy)
        })?;
        settings.cores = Some(number);
    }
    if settings.io.is_none()
        && let Some(io) = variable("BLITZ_IO")?
    {
        settings.io = Some(match io.as_str() {
            "auto" => IoChoice::Auto,
            "uring" => IoChoice::Uring,
            "epoll" => IoChoice::Epoll,
            _ => {
                let remedy = "Choose `auto`, `uring` or `epoll`.";
                return Err(Error::new(format!("BLITZ_IO is `{io}`")).with_remedy(remedy));
            }
        });
    }
    Ok(())
}

/// An environment variable; one that is empty counts as not set.
fn variable(name: &str) -> Result<Option<String>> {
    match std::env::var(name) {
        Ok(value) if value.is_empty() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(Error::new(format!("{name} is not UTF-8"))),
    }
}

fn parse_address(text: &str) -> Result<Address> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(Address::Unix(Arc::new(PathBuf::from(path))));
    }
    let on_all = text.strip_prefix(':').map(|port| format!("[::]:{port}"));
    let found = on_all.as_deref().unwrap_or(text).to_socket_addrs();
    match found.ok().and_then(|mut addresses| addresses.next()) {
        Some(address) => Ok(Address::Tcp(address)),
        None => Err(
            Error::new(format!("`{text}` is no address to listen on")).with_remedy(
                "Write an address and a port, such as 127.0.0.1:8080, [::1]:8080 or :8080, \
             or unix:/path/to/socket.",
            ),
        ),
    }
}

fn url(address: &Address) -> String {
    match address {
        Address::Tcp(address) => format!("http://{address}"),
        Address::Unix(path) => format!("unix:{}", path.display()),
    }
}

fn cannot_listen(address: &Address, error: &io::Error) -> Error {
    let address_text = match address {
        Address::Tcp(address) => address.to_string(),
        Address::Unix(path) => path.display().to_string(),
    };
    let failure = Error::new(format!("cannot listen on {address_text}: {error}"));
    match error.kind() {
        ErrorKind::AddrInUse => failure.with_remedy(
            "Another program has this address. Stop it (`ss -ltnp` shows which it is), or choose \
             another with `.listen(..)` or BLITZ_LISTEN.",
        ),
        ErrorKind::AddrNotAvailable => {
            failure.with_remedy("This machine has no such address; `ip address` lists its own.")
        }
        ErrorKind::PermissionDenied => failure.with_remedy(
            "Ports below 1024 need the capability CAP_NET_BIND_SERVICE; \
             a unix socket needs a directory that you may write to.",
        ),
        _ => failure,
    }
}

fn cannot(what: &str, error: &io::Error) -> Error {
    Error::new(format!("cannot {what}: {error}"))
}
