//! `blitz run`: the built-in site and the gateway in front of it, until a signal ends them.

use std::fmt;
use std::io::{self, IsTerminal};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use blitz::serving::{self, EndError, ListenerConfig, Tick};
use blitz_gateway::{
    Gateway, Options, StartError, Target, TargetError, TrustedProxy, TrustedProxyError,
};
use blitz_http::{Address, Config, IoChoice, Limits, Signals};
use clap::{Args, ValueEnum};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

use crate::tls::{Tls, TlsArguments};
use crate::upstream_tls::{UpstreamTls, UpstreamTlsArguments};
use crate::{announce, listen, tls};

/// A newcomer reaches it as `http://localhost:8080`, and nobody else's machine does.
const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
/// The same as `https://localhost:8443`.
const LISTEN_TLS_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8443);

/// The exit code of a process that was interrupted twice: 128 + SIGINT, as shells count.
const INTERRUPTED: u8 = 130;

/// The exit code for wrong words, as clap has it.
const USAGE: u8 = 2;

/// A process runs at most so many reactors.
const CORES_MAX: usize = 4096;

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// Where to listen: ADDR:PORT, :PORT for every address, or unix:/path; with h2c:// in front,
    /// for HTTP/2 only; may be repeated [default: 127.0.0.1:8080, and 127.0.0.1:8443 for HTTPS]
    #[arg(long, value_name = "ADDR", value_parser = listen::parse_endpoint)]
    listen: Vec<ListenerConfig>,

    /// Where to listen for HTTPS; may be repeated
    #[arg(long, value_name = "ADDR", value_parser = listen::parse)]
    listen_tls: Vec<Address>,

    #[command(flatten)]
    tls: TlsArguments,

    /// Send requests in clear text to HTTPS, but for /.well-known/acme-challenge/
    #[arg(long)]
    redirect_https: bool,

    /// Tell upstreams who the client has proved to be: Client-Cert, Client-Cert-Chain (RFC 9440)
    #[arg(long, requires = "client_ca")]
    client_cert_header: bool,

    /// Where requests go: URL, or PREFIX=URL for paths below PREFIX; may be repeated. URL is
    /// http://HOST:PORT, https://HOST, h2c://HOST:PORT for HTTP/2, or unix:/PATH
    #[arg(long, value_name = "[PREFIX=]URL", value_parser = target)]
    to: Vec<Target>,

    #[command(flatten)]
    upstream_tls: UpstreamTlsArguments,

    /// Proxies in front of this one whose X-Forwarded-* and Forwarded are believed and extended;
    /// from anybody else they are replaced. CIDR is 10.0.0.0/8, a single address, or unix for all
    /// clients of a unix socket; may be repeated [default: nobody]
    #[arg(long, value_name = "CIDR", value_delimiter = ',', value_parser = trusted_proxy)]
    trusted_proxies: Vec<TrustedProxy>,

    /// How long a client of HTTP/1.1 that has ended its side is kept when nothing of its answer
    /// leaves: 500ms, 1s, 5m, 0 to cancel at once, or forever
    #[arg(long, value_name = "DURATION", value_parser = grace, default_value = "1s", allow_hyphen_values = true)]
    half_close_grace: Grace,

    /// Let clients in clear text switch to HTTP/2 with Upgrade: h2c, which RFC 9113 removed; never
    /// for trusted proxies, unix sockets and forwarded requests. Not safe behind a proxy that
    /// forwards Upgrade and adds no field: later requests pass its access rules
    #[arg(long)]
    h2c_upgrade: bool,

    /// How many cores to use, one thread each [default: all]
    #[arg(long, value_name = "N", value_parser = cores, allow_negative_numbers = true)]
    cores: Option<usize>,

    /// How to talk to the kernel; auto takes io_uring where it is allowed
    #[arg(long, value_enum, default_value_t = Io::Auto)]
    io: Io,

    /// How much to say on standard error; debug names the rule of each refused request
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t = Log::Info)]
    log: Log,
}

/// How long a half-closed client is kept; `None` is for ever.
#[derive(Debug, Clone, Copy)]
struct Grace(Option<Duration>);

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Io {
    Auto,
    Uring,
    Epoll,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Log {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// Serves until a signal ends it.
pub(crate) fn run(arguments: &RunArguments) -> ExitCode {
    log_to_stderr(arguments.log.into());
    match start_and_wait(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.exit(),
    }
}

/// What ends the program other than in order.
struct Failure {
    /// What is wrong, and what to do.
    text: String,
    code: u8,
}

impl Failure {
    fn exit(self) -> ExitCode {
        eprintln!("blitz: {}", self.text);
        ExitCode::from(self.code)
    }
}

fn start_and_wait(arguments: &RunArguments) -> Result<(), Failure> {
    let places = Places::of(arguments).map_err(|text| Failure { text, code: USAGE })?;
    // Before anything that takes time, so that no signal ends the program by default, and to its
    // very end: a second TERM then does not change the exit code.
    let signals = Box::leak(Box::new(Signals::install().map_err(failed)?));
    let mut tls = match places.tls.as_slice() {
        [] => None,
        _ => Some(Tls::load(&arguments.tls).map_err(failed)?),
    };
    let site = blitz::builtin::app().into_service().map_err(failed)?;
    let mut upstream_tls = UpstreamTls::load(&arguments.upstream_tls).map_err(failed)?;
    let secure = places.tls.clone();
    let running = gateway(arguments, places, tls.as_ref())
        .upstream_tls(upstream_tls.slot())
        .start(move || site.on_core())
        .map_err(|error| cannot_start(&secure, &error))?;
    announce::announce(&running, tls.as_ref());
    let keep = |tick| {
        if let Some(tls) = &mut tls {
            tls.on_tick(tick);
        }
        upstream_tls.on_tick(tick);
        if tick == Tick::Reload && tls.is_none() && !upstream_tls.has_files() {
            tracing::info!("there is nothing to read again: no certificate is in use");
        }
    };
    let outcome = running.run_until_signal_with(signals, keep);
    outcome.map_err(|error| ended(&error))
}

/// Where to listen.
struct Places {
    plain: Vec<ListenerConfig>,
    tls: Vec<Address>,
}

impl Places {
    /// What the flags say or leave to us; or what is wrong with them together.
    fn of(arguments: &RunArguments) -> Result<Places, String> {
        let tls = &arguments.tls;
        tls.check()?;
        let mut places = Places {
            plain: arguments.listen.clone(),
            tls: arguments.listen_tls.clone(),
        };
        let needs_tls = [
            ("--cert", tls.has_certificates()),
            ("--client-ca", tls.asks_clients()),
            ("--redirect-https", arguments.redirect_https),
        ];
        let needs_tls = needs_tls.iter().find(|(_, given)| *given);
        if places.plain.is_empty() && places.tls.is_empty() {
            places.plain.push(Address::Tcp(LISTEN_DEFAULT).into());
            // Nobody has asked for it, so that another who has the port is no reason to stop.
            if needs_tls.is_some() || is_free(LISTEN_TLS_DEFAULT) {
                places.tls.push(Address::Tcp(LISTEN_TLS_DEFAULT));
            }
        }
        match needs_tls {
            Some((flag, _)) if places.tls.is_empty() => Err(format!(
                "{flag} is for HTTPS, and nothing listens for that\n  \
                 add for example --listen-tls :8443"
            )),
            _ => Ok(places),
        }
    }
}

fn is_free(address: SocketAddr) -> bool {
    let tried = serving::reserve([Address::Tcp(address).into()]);
    if let Err(error) = &tried {
        tracing::warn!("no HTTPS: {error}; --listen-tls ADDR takes another port");
    }
    tried.is_ok()
}

fn gateway(arguments: &RunArguments, places: Places, tls: Option<&Tls>) -> Gateway {
    let config = Config {
        io: arguments.io.into(),
        cores: arguments.cores.unwrap_or_default(),
        ..Config::default()
    };
    let options = Options {
        trusted_proxies: arguments.trusted_proxies.iter().copied().collect(),
        h2c_upgrade: arguments.h2c_upgrade,
        redirect_https: arguments.redirect_https,
        client_cert_header: arguments.client_cert_header,
        limits: Limits {
            half_close_grace: arguments.half_close_grace.0,
            ..Limits::default()
        },
        ..Options::default()
    };
    let gateway = Gateway::new().config(config).options(options);
    let gateway = places.plain.into_iter().fold(gateway, Gateway::listen);
    let slots = tls.into_iter().cycle().map(Tls::slot);
    let gateway = places
        .tls
        .into_iter()
        .zip(slots)
        .fold(gateway, |gateway, (address, slot)| {
            gateway.listen_tls(address, slot)
        });
    arguments.to.iter().cloned().fold(gateway, Gateway::to)
}

/// Reads a `--to`; clap names flag and value before what this says.
fn target(value: &str) -> Result<Target, String> {
    let said = |error: TargetError| format!("{}\n  {}", error.problem(), error.fix());
    value.parse().map_err(said)
}

fn trusted_proxy(value: &str) -> Result<TrustedProxy, String> {
    let said = |error: TrustedProxyError| format!("{}\n  {}", error.problem(), error.fix());
    value.trim().parse().map_err(said)
}

fn grace(value: &str) -> Result<Grace, String> {
    match value {
        "forever" => Ok(Grace(None)),
        "0" => Ok(Grace(Some(Duration::ZERO))),
        _ => humantime::parse_duration(value)
            .map(|grace| Grace(Some(grace)))
            .map_err(|_| "this is no duration\n  write 500ms, 1s, 5m, 0 or forever".to_owned()),
    }
}

fn cores(value: &str) -> Result<usize, String> {
    match value.parse() {
        Ok(cores @ 1..=CORES_MAX) => Ok(cores),
        _ => Err(format!(
            "this is no number of cores\n  write one from 1 to {CORES_MAX}, or leave out --cores for all"
        )),
    }
}

/// `secure` is where TLS was to be spoken.
fn cannot_start(secure: &[Address], error: &StartError) -> Failure {
    match error {
        StartError::Serving(serving::StartError::Listen(address, cause)) => {
            let flag = match secure.contains(address) {
                true => "--listen-tls",
                false => "--listen",
            };
            failed(listen::cannot_bind(flag, address, cause))
        }
        StartError::Duplicate(duplicate) => Failure {
            text: duplicate.to_string(),
            code: USAGE,
        },
        StartError::Tls(error) => failed(tls::said(error)),
        StartError::Serving(_) | StartError::Resolve(_) => failed(format!(
            "{error}\n  `blitz doctor` shows what this machine allows"
        )),
    }
}

fn ended(error: &EndError) -> Failure {
    match error {
        EndError::Interrupted => Failure {
            text: error.to_string(),
            code: INTERRUPTED,
        },
        EndError::ListenersEnded | EndError::Failed(_) => failed(format!(
            "{error}\n  the lines above say why; `blitz doctor` shows what this machine allows"
        )),
    }
}

fn failed(error: impl fmt::Display) -> Failure {
    Failure {
        text: error.to_string(),
        code: 1,
    }
}

/// Our own events at `level`, those of libraries only when something is wrong.
fn log_to_stderr(level: LevelFilter) {
    let filter = Targets::new()
        .with_default(level.min(LevelFilter::WARN))
        .with_target("blitz", level);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none());
    tracing_subscriber::registry()
        .with(lines)
        .with(filter)
        .init();
}

impl From<Io> for IoChoice {
    fn from(io: Io) -> IoChoice {
        match io {
            Io::Auto => IoChoice::Auto,
            Io::Uring => IoChoice::Uring,
            Io::Epoll => IoChoice::Epoll,
        }
    }
}

impl From<Log> for LevelFilter {
    fn from(log: Log) -> LevelFilter {
        match log {
            Log::Off => LevelFilter::OFF,
            Log::Error => LevelFilter::ERROR,
            Log::Warn => LevelFilter::WARN,
            Log::Info => LevelFilter::INFO,
            Log::Debug => LevelFilter::DEBUG,
            Log::Trace => LevelFilter::TRACE,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use blitz_http::Drain;

    use super::*;

    /// Waiting for a signal then, it would look alive to everybody but its clients.
    #[test]
    fn a_gateway_that_listens_nowhere_any_more_is_a_failure() {
        let (done, outcome) = channel();
        thread::spawn(move || {
            let signals = Signals::install().expect("signals can be waited for");
            let site = blitz::builtin::app()
                .into_service()
                .expect("it is built in");
            let running = Gateway::new()
                .listen(Address::Tcp(([127, 0, 0, 1], 0).into()))
                .start(move || {
                    blitz_http::spawn(async { Drain::of_core().trigger(Duration::ZERO) });
                    site.on_core()
                });
            done.send(
                running
                    .expect("it starts")
                    .run_until_signal(&signals)
                    .map_err(|error| ended(&error)),
            )
        });
        let outcome = outcome.recv_timeout(Duration::from_secs(10));
        let failure = outcome.expect("it is noticed").expect_err("no signal came");
        assert_eq!(failure.code, 1);
        assert!(
            failure.text.contains("stopped listening"),
            "{}",
            failure.text
        );
    }
}
