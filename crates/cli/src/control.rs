//! The control interface of a running Blitz: reloads over a unix socket, and over an address of its own health, metrics and
//! state. An app of the framework serves each on a core of its own: any user of this machine can occupy that of the
//! address.

mod access;
mod actions;
mod admission;
mod certificates;
mod clients;
mod configuration;
mod connections;
mod failures;
mod health;
mod index;
mod listener;
mod log_level;
mod metrics;
mod negotiation;
mod page;
mod rendering;
mod servers;
mod socket;
mod state;
mod tail;
mod upstreams;
mod waiting;

use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use blitz::middleware::default_header;
use blitz::{App, Service};
use blitz_config::{ControlAddress, Placed, Socket};
use blitz_host::serving::{self, ListenerConfig, NewListeners, Serving};
use blitz_http::{Address, Config, IoChoice, Limits, Pinning, ServeOptions};

pub(crate) use self::log_level::LogLevel;
pub(crate) use self::state::{ControlState, Observed};
pub(crate) use self::waiting::Outcome;

/// `--control` and `--control-listen`: without one.
pub(crate) const OFF: &str = "off";

/// How long requests may go on when the socket is closed: some have asked for the end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The most connections of each place, at a low limit of open files and at a high one. The cores of the gateway leave their
/// descriptors free.
const CONNECTIONS_MAX: RangeInclusive<u64> = 16..=256;

/// The share of the open files that the connections of a place may be.
const CONNECTIONS_SHARE: u64 = 64;

/// How long a client of the address may take nothing of its responses. Such connections are not idle, so that new ones
/// take the place of none.
const STALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Where the control interface is to be; `None` is the default.
pub(crate) struct Places<'a> {
    pub(crate) socket: Option<&'a Placed<Socket>>,
    pub(crate) address: Option<&'a Placed<ControlAddress>>,
    /// Whether the usual sockets are tried: `blitz reload` looks there for a process with a file.
    pub(crate) has_usual_socket: bool,
    /// The listeners of the sites.
    pub(crate) others: &'a [ListenerConfig],
}

impl Places<'_> {
    /// Whether one was chosen.
    fn are_demanded(&self) -> bool {
        let socket = self.socket.map(|socket| &socket.value);
        let address = self.address.map(|address| &address.value);
        matches!(socket, Some(Socket::Path(_))) || matches!(address, Some(ControlAddress::On(_)))
    }
}

/// The control interface of this process.
pub(crate) struct Control {
    /// `None` if it is turned off, or could not be opened.
    socket: Option<Serving>,
    /// The same.
    address: Option<Serving>,
    pub(crate) state: Arc<ControlState>,
}

impl Control {
    /// Opens the socket and the address. One that is not demanded, or whose port is in use, is a warning.
    ///
    /// # Errors
    /// The problem and the remedy.
    pub(crate) fn open(places: &Places<'_>, state: ControlState) -> Result<Control, String> {
        let address = listener::reserve(places)?;
        let socket = socket::reserve(places)?;
        let mut control = Control {
            socket: None,
            address: None,
            state: Arc::new(state),
        };
        let open = |listeners: Option<NewListeners>, options: fn() -> ServeOptions| {
            let opened = listeners.map(|listeners| start(listeners, &control.state, options));
            match opened.transpose() {
                Err(problem) if !places.are_demanded() => {
                    tracing::warn!("{}", problem.replace("\n  ", "; "));
                    Ok(None)
                }
                opened => opened,
            }
        };
        let address = open(address, options_of_address)?;
        let socket = open(socket, options_of_socket)?;
        (control.address, control.socket) = (address, socket);
        if let Some(address) = control.address() {
            control.state.set_port(address.port());
        }
        Ok(control)
    }

    /// The most connections that it may have.
    pub(crate) fn connections_max(&self) -> usize {
        let places = [&self.socket, &self.address].into_iter().flatten();
        places.map(|place| place.cores().sockets_max()).sum()
    }

    /// The address, if it is open.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        let listener = self.address.as_ref()?.listeners().next()?;
        match listener.address {
            Address::Tcp(address) => Some(address),
            Address::Unix(_) => None,
        }
    }

    /// From now on it is not ready, and reads no configuration.
    pub(crate) fn end(&self) {
        self.state.readiness.end();
        self.state.waiting.close();
    }

    /// Closes the socket, which the next process may open. The address goes on, for those that ask whether it is ready.
    pub(crate) fn close_socket(&self) {
        self.state.followers.end();
        if let Some(socket) = &self.socket {
            socket.drain(CLOSE_TIMEOUT);
        }
    }
}

fn start(
    listeners: NewListeners,
    state: &Arc<ControlState>,
    options: fn() -> ServeOptions,
) -> Result<Serving, String> {
    let service = service(state).map_err(|error| cannot_start(&error))?;
    // It waits most of the time, and a ring would be memory for nothing.
    let config = Config {
        io: IoChoice::Epoll,
        cores: 1,
        pin: Pinning::Off,
        sockets_max: connections_max(blitz_http::prepare_descriptors()),
        ..Config::default()
    };
    let make = move || (service.on_core(), options());
    serving::start(listeners, &config, make).map_err(|error| cannot_start(&error))
}

fn cannot_start(problem: &dyn Display) -> String {
    format!(
        "the control interface cannot be started: {problem}\n  \
         turn it off with --control {OFF} and --control-listen {OFF}"
    )
}

fn options_of_socket() -> ServeOptions {
    ServeOptions {
        warn_at_limit: Some(|limit| {
            tracing::warn!(
                limit,
                "the control socket has as many connections as it may: those that have been idle longest \
                 are closed in favour of new ones; `ss -xp` shows the programs that hold them"
            );
        }),
        ..ServeOptions::default()
    }
}

/// Any user of this machine is a client.
fn options_of_address() -> ServeOptions {
    ServeOptions {
        limits: Limits {
            send_stall_timeout: STALL_TIMEOUT,
            ..Limits::default()
        },
        close_at_limit: true,
        warn_at_limit: Some(|limit| {
            tracing::warn!(
                limit,
                "the address of the control interface has as many connections as it may: those that have \
                 been idle longest are closed in favour of new ones; `ss -tnp` shows the programs that hold \
                 them"
            );
        }),
        ..ServeOptions::default()
    }
}

/// With this limit of open files.
fn connections_max(open_files: u64) -> usize {
    let share = open_files / CONNECTIONS_SHARE;
    share.clamp(*CONNECTIONS_MAX.start(), *CONNECTIONS_MAX.end()) as usize
}

fn service(state: &Arc<ControlState>) -> blitz::Result<Service> {
    App::new()
        .state(Arc::clone(state))
        .wrap(default_header("X-Content-Type-Options", "nosniff"))
        .wrap(default_header(
            "Cross-Origin-Resource-Policy",
            "same-origin",
        ))
        .wrap(access::check)
        .get("/", index::index)
        .get("/livez", health::livez)
        .get("/readyz", health::readyz)
        .get("/healthz", health::readyz)
        .get("/metrics", metrics::metrics)
        .get("/config", configuration::config)
        .get("/config/diff", configuration::config_diff)
        .get("/explain", configuration::explain)
        .get("/upstreams", upstreams::upstreams)
        .post("/upstreams/drain", servers::drain)
        .post("/upstreams/undrain", servers::undrain)
        .get("/certificates", certificates::certificates)
        .get("/connections", connections::connections)
        .get("/failures", failures::failures)
        .get("/tail", tail::tail)
        .get("/log-level", log_level::log_level)
        .post("/log-level", log_level::set_log_level)
        .post("/reload", actions::reload)
        .post("/drain", actions::drain)
        .fallback(index::not_found)
        .into_service()
}
