//! Runs a built app: settings, environment variables, start message.

use std::env::VarError;
use std::io::{self, ErrorKind};
use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use blitz_host::certificates::{CertificateReloader, Certificates};
use blitz_host::log;
use blitz_host::serving::{self, ListenerConfig, StartError};
use blitz_http::{Address, Config, Cores, IoChoice, Limits, Peer, ServeOptions, Signals};
use tracing::level_filters::LevelFilter;

use crate::error::{Error, Result};
use crate::service::Service;

/// The default address to listen on.
const DEFAULT_ADDRESS: &str = "127.0.0.1:8080";

/// The settings of a server; `None` and empty lists are filled in from the environment.
pub(crate) struct AppSettings {
    pub(crate) listen: Vec<String>,
    pub(crate) listen_tls: Vec<(String, Certificates)>,
    pub(crate) cores: Option<usize>,
    pub(crate) io: Option<IoChoice>,
    pub(crate) limits: Limits,
    pub(crate) server_name: Option<String>,
    pub(crate) h2c_upgrade: bool,
    pub(crate) http3: bool,
    pub(crate) drain_timeout: Duration,
}

impl Default for AppSettings {
    fn default() -> AppSettings {
        AppSettings {
            listen: Vec::new(),
            listen_tls: Vec::new(),
            cores: None,
            io: None,
            limits: Limits::default(),
            server_name: None,
            h2c_upgrade: false,
            http3: true,
            drain_timeout: Duration::from_secs(30),
        }
    }
}

/// Serves until a signal ends the server.
pub(crate) fn run(service: Service, mut settings: AppSettings) -> Result {
    let _log = log::to_stderr(LevelFilter::WARN).map_err(|error| cannot("log", &error))?;
    // First, because until then a signal ends the program by the default action.
    let signals = Signals::install().map_err(|error| cannot("wait for signals", &error))?;
    apply_environment(&mut settings)?;
    let configs: Result<Vec<ListenerConfig>> = settings
        .listen
        .iter()
        .map(|text| parse_listener(text))
        .collect();
    let mut configs = configs?;
    let mut reloaders = Vec::with_capacity(settings.listen_tls.len());
    for (text, certificates) in settings.listen_tls {
        let address = parse_address(&text)?;
        let reloader = CertificateReloader::load(certificates, signals.wall_clock());
        let reloader = reloader.map_err(|error| Error::from(&error))?;
        configs.push(ListenerConfig {
            http3: settings.http3,
            ..ListenerConfig::secure(address, reloader.slot())
        });
        reloaders.push(reloader);
    }
    let listeners = serving::reserve(configs).map_err(cannot_start)?;
    let config = Config {
        io: settings.io.unwrap_or_default(),
        cores: settings.cores.unwrap_or_default(),
        lingering: blitz_http::lingering(&settings.limits),
        ..Config::default()
    };
    let AppSettings {
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
    let serving = serving::start(listeners, &config, make).map_err(cannot_start)?;
    announce(serving.listeners(), serving.cores());
    // After an error `main` returns, and the process ends together with its cores.
    let on_tick = |_: &mut _, tick| {
        let now = signals.wall_clock();
        reloaders
            .iter_mut()
            .for_each(|reloader| reloader.on_tick(tick, now));
    };
    serving
        .run_until_signal_with(&signals, drain_timeout, on_tick)
        .map_err(|error| Error::new(error.to_string()))
}

/// Prints the listeners, the driver and the number of cores.
fn announce<'a>(listeners: impl Iterator<Item = &'a ListenerConfig>, cores: &Cores) {
    let urls: Vec<String> = listeners.map(url).collect();
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

/// Fills in settings that the program did not set from environment variables.
fn apply_environment(settings: &mut AppSettings) -> Result {
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
            let remedy = "Set it to a number, or to 0 for all cores.";
            Error::new(format!("BLITZ_CORES is `{cores}`, which is not a number"))
                .with_remedy(remedy)
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
                let remedy = "Set it to `auto`, `uring` or `epoll`.";
                let problem = format!("BLITZ_IO is `{io}`, which is not a driver");
                return Err(Error::new(problem).with_remedy(remedy));
            }
        });
    }
    Ok(())
}

/// An environment variable; an empty one counts as not set.
fn variable(name: &str) -> Result<Option<String>> {
    match std::env::var(name) {
        Ok(value) if value.is_empty() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(Error::new(format!("{name} is not UTF-8"))),
    }
}

fn parse_listener(text: &str) -> Result<ListenerConfig> {
    ListenerConfig::parse(text, parse_address)
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
            Error::new(format!("`{text}` is not an address to listen on")).with_remedy(
                "Write an address and a port, such as 127.0.0.1:8080, [::1]:8080 or :8080, \
             or unix:/path/to/socket.",
            ),
        ),
    }
}

fn url(listener: &ListenerConfig) -> String {
    let scheme = match (&listener.tls, listener.http2_only) {
        (Some(_), _) => "https",
        (None, true) => "h2c",
        (None, false) => "http",
    };
    match &listener.address {
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
            "Another program listens on this address. Stop it (`ss -ltnp` shows its name), or choose \
             another address with `.listen(..)` or BLITZ_LISTEN.",
        ),
        ErrorKind::AddrNotAvailable => {
            failure.with_remedy("This machine does not have this address; `ip address` lists its own.")
        }
        ErrorKind::AlreadyExists => {
            failure.with_remedy("Choose another path, or remove the file if it is not needed.")
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
