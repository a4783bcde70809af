//! `blitz run`: the built-in site and the gateway in front of it, until a signal ends them.

use std::fmt;
use std::io::{self, IsTerminal};
use std::num::NonZeroUsize;
use std::process::{self, ExitCode};
use std::thread;
use std::time::Duration;

use blitz::serving;
use blitz_gateway::{Gateway, Options, Running, StartError, Target};
use blitz_http::{Config, IoChoice, Signal, Signals};
use clap::{Args, ValueEnum};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

use crate::{announce, listen};

/// A newcomer reaches it as `http://localhost:8080`, and nobody else's machine does.
const LISTEN_DEFAULT: &str = "127.0.0.1:8080";

/// What a process says that was interrupted twice: 128 + SIGINT, as shells count.
const INTERRUPTED: i32 = 130;

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// Where to listen: ADDR:PORT, :PORT for every address, or unix:/path; may be repeated
    #[arg(long, value_name = "ADDR", default_value = LISTEN_DEFAULT)]
    listen: Vec<String>,

    /// Where requests go: URL, or PREFIX=URL for paths below PREFIX; may be repeated
    #[arg(long, value_name = "[PREFIX=]URL")]
    to: Vec<String>,

    /// How many cores to use, one thread each [default: all]
    #[arg(long, value_name = "N")]
    cores: Option<NonZeroUsize>,

    /// How to talk to the kernel; auto takes io_uring where it is allowed
    #[arg(long, value_enum, default_value_t = Io::Auto)]
    io: Io,

    /// How much to say on standard error; debug names the rule of each refused request
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t = Log::Info)]
    log: Log,
}

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
        Err(error) => {
            eprintln!("blitz: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start_and_wait(arguments: &RunArguments) -> Result<(), String> {
    let gateway = gateway(arguments)?;
    let site = blitz::builtin::app().into_service().map_err(in_words)?;
    // Before the cores start, so that no signal is lost between.
    let signals = Signals::block().map_err(in_words)?;
    let running = gateway
        .start(move || site.on_core())
        .map_err(cannot_start)?;
    announce::announce(&running);
    wait_for_end(signals, running).map_err(in_words)
}

fn gateway(arguments: &RunArguments) -> Result<Gateway, String> {
    let config = Config {
        io: arguments.io.into(),
        cores: arguments.cores.map_or(0, NonZeroUsize::get),
        ..Config::default()
    };
    let mut gateway = Gateway::new().config(config);
    for value in &arguments.listen {
        gateway = gateway.listen(listen::parse(value).map_err(in_words)?);
    }
    for value in &arguments.to {
        gateway = gateway.to(value.parse::<Target>().map_err(in_words)?);
    }
    Ok(gateway)
}

fn cannot_start(error: StartError) -> String {
    match error {
        StartError::Serving(serving::StartError::Listen(address, cause)) => {
            listen::cannot_bind(&address, &cause).to_string()
        }
        other => other.to_string(),
    }
}

/// Obeys signals: TERM and QUIT finish what runs, INT drops it, and one more ends at once.
fn wait_for_end(signals: Signals, running: Running) -> io::Result<()> {
    let patience = loop {
        match signals.wait(None)? {
            Some(Signal::Terminate | Signal::Quit) => break Options::default().drain_timeout,
            Some(Signal::Interrupt) => break Duration::ZERO,
            // There is no file to load or to reopen, and no newer process to make way for.
            Some(Signal::Hangup | Signal::User1 | Signal::User2) | None => {}
        }
    };
    running.drain(patience);
    thread::spawn(move || {
        // An error here leaves the drain to its deadline.
        while let Ok(signal) = signals.wait(None) {
            if signal == Some(Signal::Interrupt) {
                process::exit(INTERRUPTED);
            }
        }
    });
    running.join()
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

fn in_words(error: impl fmt::Display) -> String {
    error.to_string()
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
