//! Running a built app: settings, environment, announcement.

use crate::certificates::{CertificateReloader, Certificates};
use crate::error::{Error, Result};
use crate::service::Service;
use crate::serving::{self, ListenerConfig, StartError};
use blitz_http::{Address, Config, Cores, IoChoice, Limits, Peer, ServeOptions, Signals};
use std::env::VarError;
use std::io::{self, ErrorKind};
use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Where a server listens if nobody says otherwise.
const DEFAULT_ADDRESS: &str = "127.0.0.1:8080";

/// How a server runs, as far as it was said.
pub(crate) struct Settings {
    pub(crate) listen: Vec<String>,
    pub(crate) listen_tls: Vec<(String, Certificates)>,
    pub(crate) cores: Option<usize>,
    pub(crate) io: Option<IoChoice>,
    pub(crate) limits: Limits,
    pub(crate) server_name: Option<String>,
    pub(crate) h2c_upgrade: bool,
    pub(crate) drain_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            listen: Vec::new(),
            listen_tls: Vec::new(),
            cores: None,
            io: None,
            limits: Limits::default(),
            server_name: None,
            h2c_upgrade: false,
            drain_timeout: Duration::from_secs(30),
        }
    }
}

/// Serves until a signal ends it.
pub(crate) fn run(service: Service, mut settings: Settings) -> Result {
    // Before anything that takes time, so that no signal ends the program by default.
    let signals = Signals::install().map_err(|error| cannot("wait for signals", &error))?;
    ask_environment(&mut settings)?;
    let wanted: Result<Vec<ListenerConfig>> = settings
        .listen
        .iter()
        .map(|text| parse_endpoint(text))
        .collect();
    let mut wanted = wanted?;
    let mut reloaders = Vec::with_capacity(settings.listen_tls.len());
    for (text, certificates) in settings.listen_tls {
        let address = parse_address(&text)?;
        let reloader = CertificateReloader::load(certificates, signals.wall_clock());
        let reloader = reloader.map_err(|error| Error::from(&error))?;
        wanted.push(ListenerConfig::secure(address, reloader.slot()));
        reloaders.push(reloader);
    }
    let endpoints = serving::reserve(wanted).map_err(cannot_start)?;
    let config = Config {
        io: settings.io.unwrap_or_default(),
        cores: settings.cores.unwrap_or_default(),
        ..Config::default()
    };
    let Settings {
        limits,
        server_name,
        h2c_upgrade,
        drain_timeout,
        ..
    } = settings;
    let make = move || {
        let options = ServeOptions {
            limits: limits.clone(),
            server: server_name.clone(),
            h2c_upgrade: h2c_upgrade.then(|| Rc::new(|_: &Peer| true) as _),
            ..ServeOptions::default()
        };
        (service.on_core(), options)
    };
    let serving = serving::start(endpoints, &config, make).map_err(cannot_start)?;
    announce(serving.listeners(), serving.cores());
    // After an error the caller's `main` ends, and what is left of the cores with it.
    let keep = |tick| {
        let now = signals.wall_clock();
        reloaders
            .iter_mut()
            .for_each(|reloader| reloader.on_tick(tick, now));
    };
    serving
        .run_until_signal_with(&signals, drain_timeout, keep)
        .map_err(|error| Error::new(error.to_string()))
}

/// Says where it listens and how.
fn announce(endpoints: &[ListenerConfig], cores: &Cores) {
    let urls: Vec<String> = endpoints.iter().map(url).collect();
    let driver = cores.driver();
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

/// Fills in from the environment what the program did not say.
fn ask_environment(settings: &mut Settings) -> Result {
    if settings.listen.is_empty() && settings.listen_tls.is_empty() {
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

fn parse_endpoint(text: &str) -> Result<ListenerConfig> {
    ListenerConfig::read(text, parse_address)
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

fn url(endpoint: &ListenerConfig) -> String {
    let scheme = match (&endpoint.tls, endpoint.http2_only) {
        (Some(_), _) => "https",
        (None, true) => "h2c",
        (None, false) => "http",
    };
    match &endpoint.address {
        Address::Tcp(address) => format!("{scheme}://{address}"),
        Address::Unix(path) => format!("unix:{}", path.display()),
    }
}

fn cannot_start(error: StartError) -> Error {
    let failure = Error::new(error.to_string());
    let StartError::Listen(_, error) = error else {
        return failure;
    };
    match error.kind() {
        ErrorKind::AddrInUse => failure.with_remedy(
            "Another program has this address. Stop it (`ss -ltnp` shows which it is), or choose \
             another with `.listen(..)` or BLITZ_LISTEN.",
        ),
        ErrorKind::AddrNotAvailable => {
            failure.with_remedy("This machine has no such address; `ip address` lists its own.")
        }
        ErrorKind::AlreadyExists => {
            failure.with_remedy("Choose another path, or remove what is there if nobody needs it.")
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
