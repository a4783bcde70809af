//! `blitz run`: runs the gateway and the built-in site until a signal ends them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use blitz_config::Process;
use blitz_gateway::access_log::AccessLog;
use blitz_gateway::{
    Gateway, Options, RateStore, RecordSink, Running, StartError, Target, TargetError,
    TraceSettings, TrustedProxy, TrustedProxyError,
};
use blitz_host::certificates;
use blitz_host::log;
use blitz_host::service_manager;
use blitz_host::serving::{self, EndError, ListenerConfig};
use blitz_http::{Address, Config, IoChoice, Signals};
use clap::Args;

use crate::built_in::BuiltInSite;
use crate::config::ConfigFile;
use crate::conflicts::ListenAddress;
use crate::control::{Control, ControlState, LogLevel, Observed, Places};
use crate::health_checks::HealthChecks;
use crate::key_fetcher::KeyFetcher;
use crate::listeners::ListenAddresses;
use crate::metrics_reader::ProcessFiles;
use crate::otlp::{Events, OpenExport};
use crate::process_flags::ProcessArguments;
use crate::rate_store::OpenRateStore;
use crate::records::Records;
use crate::reload::{ReloadSettings, ReloadedFile};
use crate::show_config::FileSettings;
use crate::size::size;
use crate::timeouts::TimeoutArguments;
use crate::tls::{FileTls, Tls, TlsArguments};
use crate::upgrades::{self, UpgradeArgument};
use crate::upkeep::Upkeep;
use crate::upstream_tls::{UpstreamTls, UpstreamTlsArguments};
use crate::{
    access_log, announce, config, conflicts, heading, listen, metrics_reader, process, show_config,
    sticky_secret,
};

/// Reachable as `http://localhost:8080`, and only from this machine.
const PORT_DEFAULT: u16 = 8080;
/// Reachable as `https://localhost:8443`, and only from this machine.
const TLS_PORT_DEFAULT: u16 = 8443;

/// The exit code after a second INT: 128 + SIGINT, as in shells.
const INTERRUPTED: u8 = 130;

/// The exit code after a second TERM if a core does not end: 128 + SIGTERM.
const TERMINATED: u8 = 143;

/// The exit code for usage errors, the same as clap's.
const USAGE: u8 = 2;

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// File with sites, routes, listeners and certificates, or a folder with blitz.toml
    ///
    /// Without it and the flags for the same settings: $BLITZ_CONFIG, ./blitz.toml or /etc/blitz/blitz.toml, if there is one.
    /// `blitz check FILE` finds its mistakes without a start. Flags for the same settings are errors beside it.
    #[arg(
        long, value_name = "FILE", help_heading = heading::CONFIGURATION,
        conflicts_with_all = ["listen", "listen_tls", "redirect_https", "to", "upgrade", "trusted_proxies", "cert", "key"],
    )]
    config: Option<PathBuf>,

    /// Print the configuration file that these flags stand for, and start nothing
    ///
    /// Comments name the flags that a file has no key for.
    #[arg(long, conflicts_with = "config", help_heading = heading::CONFIGURATION)]
    show_config: bool,

    /// Address to listen on: ADDR:PORT, :PORT or unix:/PATH; may be repeated [default: port 8080 of
    /// 127.0.0.1 and ::1, and their port 8443 for HTTPS]
    ///
    /// :PORT means every address of this machine, and port 0 a free one. With the prefix h2c:// the
    /// listener accepts HTTP/2 only.
    #[arg(long, value_name = "ADDR", value_parser = listen::parse_listener, help_heading = heading::LISTENERS)]
    listen: Vec<ListenerConfig>,

    /// Address to listen on for HTTPS; may be repeated
    #[arg(long, value_name = "ADDR", value_parser = listen::parse, help_heading = heading::LISTENERS)]
    listen_tls: Vec<Address>,

    #[command(flatten)]
    process: ProcessArguments,

    /// Redirect clear-text requests to HTTPS
    ///
    /// To port 443, or if the request names a port, to that of --listen-tls. Paths below
    /// /.well-known/acme-challenge/ are not redirected.
    #[arg(long, help_heading = heading::LISTENERS)]
    pub(crate) redirect_https: bool,

    #[command(flatten)]
    tls: TlsArguments,

    /// Target of requests: URL, or PREFIX=URL for paths below PREFIX; may be repeated
    ///
    /// URL is http://HOST:PORT, https://HOST, h2c://HOST:PORT for HTTP/2, or unix:/PATH. The longest
    /// matching prefix wins. A path in the URL replaces the prefix.
    #[arg(long, value_name = "[PREFIX=]URL", value_parser = target, help_heading = heading::TARGETS)]
    pub(crate) to: Vec<Target>,

    /// Send the trailers of requests to upstreams
    ///
    /// Some HTTP/1.1 servers take a trailer for the next request, so that one client could get the response
    /// of another, and some HTTP/2 servers close the connection with the requests of others on it. An
    /// HTTP/1.1 connection that has carried trailers is not used again.
    #[arg(long, help_heading = heading::TARGETS)]
    request_trailers: bool,

    /// Protocol that clients may switch to with Upgrade, beside WebSocket; may be repeated
    ///
    /// PROTOCOL is as in the field Upgrade, for example tcp for docker attach or SPDY/3.1 for kubectl exec.
    /// PREFIX is that of a --to; without it all targets over HTTP/1.1 allow the protocol. The bytes after
    /// the switch are not checked [default: none]
    #[arg(long, value_name = "[PREFIX=]PROTOCOL", value_parser = upgrades::parse, help_heading = heading::TARGETS)]
    pub(crate) upgrade: Vec<UpgradeArgument>,

    #[command(flatten)]
    upstream_tls: UpstreamTlsArguments,

    #[command(flatten)]
    timeouts: TimeoutArguments,

    /// Proxies in front of this one, whose X-Forwarded-* and Forwarded fields are trusted; may be repeated
    ///
    /// CIDR is 10.0.0.0/8, a single address, or unix for all clients of a unix socket. Fields of trusted
    /// proxies are extended, those of other clients are replaced [default: none]
    #[arg(long, value_name = "CIDR", value_delimiter = ',', value_parser = trusted_proxy, help_heading = heading::FIELDS)]
    pub(crate) trusted_proxies: Vec<TrustedProxy>,

    /// Send the client's certificate to upstreams in Client-Cert (RFC 9440)
    ///
    /// The chain is sent in Client-Cert-Chain.
    #[arg(long, requires = "client_ca", help_heading = heading::FIELDS)]
    client_cert_header: bool,

    /// The most content that a request may have: bytes, or 512k, 10m, 1g; 413 beyond
    ///
    /// WebSockets are not limited [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = size, allow_hyphen_values = true, help_heading = heading::LIMITS)]
    body_max: Option<u64>,
}

/// Serves until a signal ends the process.
pub(crate) fn run(arguments: &RunArguments) -> ExitCode {
    if arguments.show_config {
        return show_config(arguments);
    }
    match start_and_wait(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.exit(),
    }
}

fn show_config(arguments: &RunArguments) -> ExitCode {
    let checked =
        check(arguments).and_then(|()| upgrades::apply(&arguments.to, &arguments.upgrade));
    match checked {
        Ok(targets) => show_config::print(&file_settings(arguments, &targets)),
        Err(text) => RunError { text, code: USAGE }.exit(),
    }
}

/// The flags that have a key in the file.
pub(crate) fn file_settings<'a>(
    arguments: &'a RunArguments,
    targets: &'a [Target],
) -> FileSettings<'a> {
    let (mut listen, mut listen_tls) = (arguments.listen.clone(), arguments.listen_tls.clone());
    if has_default_listeners(arguments) {
        listen.extend(listen::local(PORT_DEFAULT).into_iter().map(Into::into));
        listen_tls.extend(listen::local(TLS_PORT_DEFAULT));
    }
    FileSettings {
        listen,
        listen_tls,
        redirect_https: arguments.redirect_https,
        trusted_proxies: arguments
            .trusted_proxies
            .iter()
            .map(ToString::to_string)
            .collect(),
        certificates: arguments.tls.pairs(),
        targets,
        request_trailers: arguments.request_trailers,
        body_max: arguments.body_max,
        timeouts: arguments.timeouts.of_routes(),
        process: arguments.process.settings(),
    }
}

/// An error that ends the process.
struct RunError {
    /// The problem and the remedy.
    text: String,
    code: u8,
}

impl RunError {
    fn exit(self) -> ExitCode {
        eprintln!("blitz: {}", self.text);
        ExitCode::from(self.code)
    }
}

fn start_and_wait(arguments: &RunArguments) -> Result<(), RunError> {
    let usage = |text| RunError { text, code: USAGE };
    let path = path_of_file(arguments);
    let file = config_file(arguments, path.as_deref())?;
    let flags = arguments.process.settings();
    let process = match &file {
        Some(file) => flags.clone().or(file.configuration.process.clone()),
        None => flags.clone(),
    };
    let events = Events::default();
    let (filter, log_level) = LogLevel::new(process::level(&process), events.clone());
    let _log = log::to_stderr(filter).map_err(failed)?;
    warn_of_cores(&flags, &process);
    let listeners = match &file {
        Some(file) => ListenAddresses::of_file(file),
        None => {
            check(arguments).map_err(usage)?;
            warn(arguments);
            listeners_of(arguments)
        }
    };
    let targets = upgrades::apply(&arguments.to, &arguments.upgrade).map_err(usage)?;
    // First, because until then a signal ends the process by the default action; and until the process
    // ends, so that a second TERM never ends it by the default action.
    let signals = Box::leak(Box::new(Signals::install().map_err(failed)?));
    let tls = load_tls(arguments, &listeners, file.as_ref())?;
    let built_in = built_in_site(arguments, file.is_some());
    let site = built_in.service().map_err(failed)?;
    let upstream_tls = UpstreamTls::load(&arguments.upstream_tls).map_err(failed)?;
    let rate_store = OpenRateStore::default();
    rate_store.open(&process);
    let in_file = path.as_deref().zip(file.as_ref());
    let reloaded = in_file.map(|file| reloaded(arguments, file, flags, &process, &rate_store));
    let (access_log, log) = access_log::open(&process).map_err(failed)?;
    let (records, export, observed) = open_records(&process, log, events, &rate_store)?;
    let configs = listeners.configs(&process, tls.as_ref());
    let in_use = reloaded.as_ref().map(ReloadedFile::in_use);
    let state = ControlState::new(in_use, log_level, records.consumers());
    let control = open_control(&process, file.is_some(), &configs, state)?;
    control.state.set_tls(tls.as_ref().map(Tls::slot));
    let files = process_files(&control);
    let reactor = process::reactor(&process, control.connections_max());
    let running = gateway(
        arguments, &process, reactor, file, configs, targets, observed,
    )
    .upstream_tls(upstream_tls.slot())
    .start(move || site.on_core())
    .map_err(|error| cannot_start(&listeners, process::io(&process), &error))?;
    let counts = (export.counts(), rate_store);
    control.state.started(Observed {
        gateway: running.state_reader(),
        metrics: metrics_reader::reader(&running, &control.state, counts, files),
    });
    announce::announce(&running, tls.as_ref(), control.address(), &built_in);
    service_manager::ready();
    let upkeep = Upkeep {
        key_fetcher: KeyFetcher::new(),
        health_checks: HealthChecks::new(running.health_checker()),
        file: reloaded,
        control,
        tls,
        upstream_tls,
        access_log,
        export,
    };
    wait(running, signals, upkeep, records)
}

/// The file, for reloads.
fn reloaded(
    arguments: &RunArguments,
    (path, file): (&Path, &ConfigFile),
    flags: Process,
    process: &Process,
    rate_store: &OpenRateStore,
) -> ReloadedFile {
    let settings = ReloadSettings {
        request_trailers: arguments.request_trailers,
        tls: arguments.tls.clone(),
        flags,
        rate_store: rate_store.clone(),
    };
    ReloadedFile::new(path, settings, file, process)
}

/// Opened before the cores share the rest of the descriptors; without the control interface nobody asks.
fn process_files(control: &Control) -> ProcessFiles {
    match control.connections_max() {
        0 => ProcessFiles::default(),
        _ => ProcessFiles::open(),
    }
}

/// Serves until a signal ends the process.
fn wait(
    running: Running,
    signals: &Signals,
    mut upkeep: Upkeep,
    records: Records,
) -> Result<(), RunError> {
    let ended =
        running.run_until_signal_with(signals, |tick, running| upkeep.on_tick(tick, running));
    // Before the output of the access log ends.
    records.finish();
    upkeep.access_log.finish();
    upkeep.export.finish();
    ended.map_err(|error| end_failure(&error))
}

/// The built-in site, which serves without a file, and paths that no target has.
fn built_in_site(arguments: &RunArguments, has_file: bool) -> BuiltInSite {
    let site = BuiltInSite::of_environment();
    let mut targets = arguments.to.iter();
    let is_served = !has_file && !targets.any(|target| target.prefix.matches_all_paths());
    if let Some(warning) = site.warning().filter(|_| is_served) {
        tracing::warn!("{warning}");
    }
    site
}

fn warn_of_cores(flags: &Process, process: &Process) {
    let setting = match flags.server.cores {
        Some(_) => "--cores",
        None => "server.cores =",
    };
    if let Some(warning) = conflicts::too_many_cores(setting, process::reactor(process, 0).cores) {
        tracing::warn!("{warning}");
    }
}

/// The thread of records, the export of traces, and the receivers of the gateway's records.
fn open_records(
    process: &Process,
    access_log: Option<Arc<AccessLog>>,
    events: Events,
    rate_store: &OpenRateStore,
) -> Result<(Records, OpenExport, RequestObservers), RunError> {
    let records = Records::start();
    let records = records.map_err(|error| failed(format!("no thread can be started: {error}")))?;
    let mut export = OpenExport::new(records.consumers(), events);
    let new = export.prepare(process).map_err(failed)?;
    let observed = RequestObservers {
        access_log,
        records: records.sink(),
        tracing: new.settings(),
        rate_store: rate_store.store(),
    };
    export.replace(new);
    Ok((records, export, observed))
}

/// The certificates, if there is a listener for TLS.
fn load_tls(
    arguments: &RunArguments,
    listeners: &ListenAddresses,
    file: Option<&ConfigFile>,
) -> Result<Option<Tls>, RunError> {
    if listeners.tls.is_empty() {
        return Ok(None);
    }
    let none = FileTls::default();
    let tls = Tls::load(&arguments.tls, file.map_or(&none, |file| &file.tls));
    tls.map(Some).map_err(failed)
}

fn open_control(
    process: &Process,
    has_file: bool,
    others: &[ListenerConfig],
    state: ControlState,
) -> Result<Control, RunError> {
    let places = Places {
        socket: process.control.socket.as_ref(),
        address: process.control.listen.as_ref(),
        has_usual_socket: has_file,
        others,
    };
    Control::open(&places, state).map_err(failed)
}

/// The file of `--config`, or the usual one if no flag has a key in it.
fn path_of_file(arguments: &RunArguments) -> Option<PathBuf> {
    let has_flags = !has_default_listeners(arguments)
        || !arguments.to.is_empty()
        || !arguments.upgrade.is_empty()
        || !arguments.trusted_proxies.is_empty()
        || arguments.redirect_https
        || arguments.tls.has_certificates();
    let usual = || (!has_flags).then(config::usual).flatten();
    arguments.config.clone().or_else(usual)
}

/// The file, whose mistakes are printed.
///
/// # Errors
/// It must not be used.
fn config_file(
    arguments: &RunArguments,
    path: Option<&Path>,
) -> Result<Option<ConfigFile>, RunError> {
    let Some(path) = path else {
        return Ok(None);
    };
    let flags = &arguments.process.http3;
    flags
        .check()
        .map_err(|text| RunError { text, code: USAGE })?;
    let file = ConfigFile::load(path, arguments.request_trailers).map_err(failed)?;
    file.report();
    match file.problem() {
        Some(problem) => Err(failed(format!("{problem}; nothing was started"))),
        None => Ok(Some(file)),
    }
}

/// Checks flags against each other. Nothing is bound or read before.
///
/// # Errors
/// A contradiction between flags, with the remedy.
pub(crate) fn check(arguments: &RunArguments) -> Result<(), String> {
    arguments.tls.check()?;
    arguments.process.http3.check()?;
    check_https(arguments)?;
    check_http3(arguments)?;
    check_upstream_tls(arguments)?;
    with_listeners(arguments, |listeners| {
        conflicts::check(&arguments.to, listeners)
    })
}

/// Logs settings that are probably not intended.
fn warn(arguments: &RunArguments) {
    let warnings = with_listeners(arguments, |listeners| {
        conflicts::warnings(&arguments.to, listeners)
    });
    for warning in warnings {
        tracing::warn!("{warning}");
    }
}

/// Calls `look` with the addresses of the flags, or the default ones for clear text.
fn with_listeners<T>(arguments: &RunArguments, look: impl FnOnce(&[ListenAddress<'_>]) -> T) -> T {
    let default = match has_default_listeners(arguments) {
        true => listen::local(PORT_DEFAULT),
        false => Vec::new(),
    };
    let plain = arguments.listen.iter().map(|listener| &listener.address);
    let listening = |flag| move |address| ListenAddress { flag, address };
    let plain = plain.chain(&default).map(listening("--listen"));
    let tls = arguments.listen_tls.iter().map(listening("--listen-tls"));
    let listeners: Vec<_> = plain.chain(tls).collect();
    look(&listeners)
}

/// # Errors
/// Flags for HTTPS, and no listener for it.
fn check_https(arguments: &RunArguments) -> Result<(), String> {
    match flag_for_https(arguments) {
        Some(flag) if !has_default_listeners(arguments) && arguments.listen_tls.is_empty() => {
            Err(format!(
                "{flag} is for HTTPS, but there is no listener for HTTPS\n  \
                 add for example --listen-tls :8443"
            ))
        }
        _ => Ok(()),
    }
}

/// # Errors
/// Flags for HTTP/3, and only unix sockets for HTTPS, which have no port.
fn check_http3(arguments: &RunArguments) -> Result<(), String> {
    let is_unix = |address: &Address| matches!(address, Address::Unix(_));
    let is_unix_only = !arguments.listen_tls.is_empty() && arguments.listen_tls.iter().all(is_unix);
    match arguments
        .process
        .http3
        .first_flag()
        .filter(|_| is_unix_only)
    {
        Some(flag) => Err(format!(
            "{flag} is for HTTP/3, but each --listen-tls is a unix socket\n  \
             add for example --listen-tls :8443"
        )),
        None => Ok(()),
    }
}

/// # Errors
/// Files for upstreams over TLS, and no such upstream.
fn check_upstream_tls(arguments: &RunArguments) -> Result<(), String> {
    let is_secure = |target: &Target| target.url().starts_with("https://");
    match arguments.upstream_tls.first_flag() {
        Some(flag) if !arguments.to.iter().any(is_secure) => Err(format!(
            "{flag} is for upstreams over TLS, but no --to is https://…\n  \
             add for example --to https://app.internal"
        )),
        _ => Ok(()),
    }
}

/// The first flag that needs a listener for HTTPS.
fn flag_for_https(arguments: &RunArguments) -> Option<&'static str> {
    let flags = [
        ("--cert", arguments.tls.has_certificates()),
        ("--client-ca", arguments.tls.asks_clients()),
        ("--redirect-https", arguments.redirect_https),
    ];
    let given = flags.into_iter().find(|(_, is_given)| *is_given);
    given
        .map(|(flag, _)| flag)
        .or_else(|| arguments.process.http3.first_flag())
}

fn has_default_listeners(arguments: &RunArguments) -> bool {
    arguments.listen.is_empty() && arguments.listen_tls.is_empty()
}

/// The listeners of the flags, or the default ones.
fn listeners_of(arguments: &RunArguments) -> ListenAddresses {
    let mut listeners = ListenAddresses {
        plain: arguments.listen.clone(),
        tls: arguments
            .listen_tls
            .iter()
            .cloned()
            .map(Into::into)
            .collect(),
        is_file: false,
    };
    if has_default_listeners(arguments) {
        let plain = listen::local(PORT_DEFAULT);
        listeners.plain.extend(plain.into_iter().map(Into::into));
        // No flag requests HTTPS, so a port in use is only a warning.
        let tls = listen::local(TLS_PORT_DEFAULT);
        if flag_for_https(arguments).is_some() || are_free(&tls) {
            listeners.tls = tls.into_iter().map(Into::into).collect();
        }
    }
    listeners
}

fn are_free(addresses: &[Address]) -> bool {
    let reserved = serving::try_reserve(addresses.iter().cloned().map(Into::into));
    if let Err(error) = &reserved {
        tracing::warn!("no HTTPS: {error}; choose another port with --listen-tls ADDR");
    }
    reserved.is_ok()
}

/// The receivers of the records of requests.
struct RequestObservers {
    access_log: Option<Arc<AccessLog>>,
    records: Arc<dyn RecordSink>,
    tracing: Option<TraceSettings>,
    rate_store: Arc<RateStore>,
}

fn gateway(
    arguments: &RunArguments,
    process: &Process,
    reactor: Config,
    file: Option<ConfigFile>,
    listeners: Vec<ListenerConfig>,
    targets: Vec<Target>,
    observed: RequestObservers,
) -> Gateway {
    let (trusted_proxies, sites) = match file {
        Some(file) => (file.trusted_proxies, file.sites),
        None => (arguments.trusted_proxies.clone(), Vec::new()),
    };
    let mut options = Options {
        body_bytes_max: arguments.body_max,
        trusted_proxies: trusted_proxies.into_iter().collect(),
        redirect_https: arguments.redirect_https,
        client_cert_header: arguments.client_cert_header,
        access_log: observed.access_log,
        record_sink: Some(observed.records),
        tracing: observed.tracing,
        rate_store: Some(observed.rate_store),
        sticky_secret: sticky_secret::stored_or_new,
        ..Options::default()
    };
    arguments.timeouts.apply(&mut options);
    process::apply(process, &mut options);
    let gateway = Gateway::new().config(reactor).options(options);
    let gateway = listeners.into_iter().fold(gateway, Gateway::listen);
    let gateway = sites.into_iter().fold(gateway, Gateway::site);
    let targets = targets.into_iter().map(|target| Target {
        request_trailers: arguments.request_trailers,
        ..target
    });
    targets.fold(gateway, Gateway::to)
}

/// Parses a `--to`. Clap prints the flag and the value before this message.
fn target(value: &str) -> Result<Target, String> {
    let message = |error: TargetError| format!("{}\n  {}", error.problem(), error.fix());
    value.parse().map_err(message)
}

fn trusted_proxy(value: &str) -> Result<TrustedProxy, String> {
    let message = |error: TrustedProxyError| format!("{}\n  {}", error.problem(), error.fix());
    value.trim().parse().map_err(message)
}

fn cannot_start(listeners: &ListenAddresses, io: IoChoice, error: &StartError) -> RunError {
    if let Some(problem) = listeners.problem(error) {
        return failed(problem);
    }
    match error {
        StartError::Conflict(conflict) => RunError {
            text: conflict.to_string(),
            code: USAGE,
        },
        StartError::Tls(error) => failed(certificates::message(error)),
        StartError::Serving(serving::StartError::Start(_)) if io == IoChoice::Uring => failed(
            format!("{error}\n  --io epoll needs no io_uring; `blitz doctor` checks this machine"),
        ),
        StartError::Serving(_) | StartError::Resolve(_) => {
            failed(format!("{error}\n  `blitz doctor` checks this machine"))
        }
    }
}

fn end_failure(error: &EndError) -> RunError {
    match error {
        EndError::Interrupted => RunError {
            text: error.to_string(),
            code: INTERRUPTED,
        },
        EndError::Terminated => RunError {
            text: error.to_string(),
            code: TERMINATED,
        },
        EndError::ListenersEnded | EndError::Failed(_) => failed(format!(
            "{error}\n  the log above has the reason; `blitz doctor` checks this machine"
        )),
    }
}

fn failed(error: impl fmt::Display) -> RunError {
    RunError {
        text: error.to_string(),
        code: 1,
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use blitz_http::Drain;

    use super::*;

    #[test]
    fn without_io_uring_the_other_driver_is_the_remedy() {
        let error = io::Error::other("a seccomp filter kills processes that use io_uring");
        let error = StartError::Serving(serving::StartError::Start(error));
        let listeners = ListenAddresses {
            plain: Vec::new(),
            tls: Vec::new(),
            is_file: false,
        };
        for (io, is_named) in [(IoChoice::Uring, true), (IoChoice::Epoll, false)] {
            let failure = cannot_start(&listeners, io, &error);
            assert!(failure.text.contains("seccomp"), "{}", failure.text);
            assert_eq!(failure.text.contains("--io epoll"), is_named);
            assert_eq!(failure.code, 1);
        }
    }

    /// Without listeners the process must not continue to wait for signals.
    #[test]
    fn a_gateway_whose_listeners_have_ended_is_a_failure() {
        let (done, ended) = channel();
        thread::spawn(move || {
            let signals = Signals::install().expect("signals can be waited for");
            let site = blitz::builtin::app()
                .into_service()
                .expect("the built-in site is valid");
            let running = Gateway::new()
                .listen(Address::Tcp(([127, 0, 0, 1], 0).into()))
                .start(move || {
                    blitz_http::spawn(async {
                        // Until then the other cores have opened theirs, also on a busy machine.
                        blitz_http::sleep(Duration::from_secs(1)).await;
                        Drain::of_core().trigger(Duration::ZERO);
                    });
                    site.on_core()
                });
            done.send(
                running
                    .expect("the gateway starts")
                    .run_until_signal(&signals)
                    .map_err(|error| end_failure(&error)),
            )
        });
        let ended = ended.recv_timeout(Duration::from_secs(30));
        let failure = ended
            .expect("the end is noticed")
            .expect_err("there was no signal");
        assert_eq!(failure.code, 1);
        assert!(
            failure.text.contains("stopped listening"),
            "{}",
            failure.text
        );
    }
}
