//! Flags of `blitz run` for settings of the process. Each is a key of `server`, `log`, `limits` or `control`, and stands
//! above that of the file.

use std::path::PathBuf;
use std::time::Duration;

use blitz_config::{
    AccessLog, CORES_MAX, Control, ControlAddress, Log, Placed, Process, Server, Socket, TimeLimit,
};
use blitz_gateway::LoopId;
use blitz_host::log::{Destination, DestinationError};
use clap::{Args, ValueEnum};

use crate::control::OFF;
use crate::http3::Http3Arguments;
use crate::message_limits::MessageLimitArguments;
use crate::timeouts::{duration, time_limit};
use crate::{heading, listen};

#[derive(Debug, Clone, Args)]
pub(crate) struct ProcessArguments {
    /// Socket for `blitz reload`, or off [default: with a file /run/blitz/control.sock, or else
    /// $XDG_RUNTIME_DIR/blitz/control.sock]
    #[arg(long, value_name = "PATH", help_heading = heading::CONFIGURATION)]
    control: Option<PathBuf>,

    /// Address for health, metrics and state, or off [default: 127.0.0.1:9180]
    ///
    /// Other addresses than those of this machine serve /livez, /readyz and /metrics only. Requests that
    /// change something need the socket of --control.
    #[arg(long, value_name = "ADDR", value_parser = control_address, help_heading = heading::CONFIGURATION)]
    control_listen: Option<String>,

    #[command(flatten)]
    pub(crate) http3: Http3Arguments,

    /// Allow clear-text clients to switch to HTTP/2 with Upgrade: h2c
    ///
    /// RFC 9113 removed this switch. It never applies to trusted proxies, unix sockets and forwarded
    /// requests. It is not safe behind a proxy that forwards Upgrade and adds no field: later requests
    /// bypass its access rules.
    #[arg(long, help_heading = heading::LISTENERS)]
    h2c_upgrade: bool,

    /// Add Via to forwarded requests and responses
    ///
    /// Many upstreams do not compress for proxies then.
    #[arg(long, help_heading = heading::FIELDS)]
    via: bool,

    /// Identifier of this proxy in CDN-Loop (RFC 8586) [default: random]
    ///
    /// A request that comes back with it gets 502. At most 64 characters.
    #[arg(long, value_name = "TOKEN", value_parser = loop_id, help_heading = heading::FIELDS)]
    loop_id: Option<String>,

    #[command(flatten)]
    limits: MessageLimitArguments,

    /// How long connections are still accepted after TERM, while /readyz is 503 [default: 0]
    ///
    /// Write 5s, so that load balancers notice before connections are refused.
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true, help_heading = heading::LIMITS)]
    drain_delay: Option<Duration>,

    /// How long running requests and tunnels may take after TERM [default: 30s]
    ///
    /// Write 500ms, 30s, 5m, forever, or 0 to end them immediately.
    #[arg(long, value_name = "DURATION", value_parser = time_limit, allow_hyphen_values = true, help_heading = heading::LIMITS)]
    timeout_drain: Option<TimeLimit>,

    /// How long to keep a half-closed HTTP/1.1 client while no byte of its response is sent [default: 1s]
    ///
    /// Write 500ms, 1s, 5m, 0 to cancel immediately, or forever.
    #[arg(long, value_name = "DURATION", value_parser = time_limit, allow_hyphen_values = true, help_heading = heading::LIMITS)]
    half_close_grace: Option<TimeLimit>,

    /// How long an HTTP/1.1 client may go on sending after its response, so that it reads the response [default: 30s]
    ///
    /// Write 500ms, 30s, or 0 to close immediately.
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true, help_heading = heading::LIMITS)]
    lingering_time: Option<Duration>,

    /// The longest silence within --lingering-time [default: 5s]
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true, help_heading = heading::LIMITS)]
    lingering_timeout: Option<Duration>,

    /// Number of cores, with one thread each [default: all]
    #[arg(long, value_name = "N", value_parser = cores, allow_negative_numbers = true, help_heading = heading::PROCESS)]
    cores: Option<u64>,

    /// Pin each core's thread to a processor [default: auto]
    ///
    /// auto does so if there are as many cores as processors that the process may use. numa keeps each core, and its
    /// memory, on a node of memory.
    #[arg(long, value_enum, value_name = "WHEN", help_heading = heading::PROCESS)]
    pin: Option<Pin>,

    /// I/O driver; auto chooses io_uring if the kernel allows it [default: auto]
    #[arg(long, value_enum, help_heading = heading::PROCESS)]
    io: Option<Io>,

    /// Log level on standard error; debug logs the violated rule of each refused request [default: info]
    #[arg(long, value_name = "LEVEL", value_enum, help_heading = heading::PROCESS)]
    log: Option<Level>,

    /// Where a line of JSON for each request goes: stdout, journal, syslog:/dev/log, syslog:HOST:PORT, or a file
    #[arg(long, value_name = "TO", value_parser = destination, help_heading = heading::PROCESS)]
    access_log: Option<String>,

    /// How often to log a summary of failures and refusals, if there were any [default: 1m]
    ///
    /// Write 30s, 1m, or 0 for never.
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true, help_heading = heading::PROCESS)]
    log_summary: Option<Duration>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Pin {
    Auto,
    On,
    Off,
    Numa,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Io {
    Auto,
    Uring,
    Epoll,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Level {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl ProcessArguments {
    /// The settings that the flags stand for.
    pub(crate) fn settings(&self) -> Process {
        let mut server = Server {
            cores: given(self.cores),
            pin: named(self.pin),
            io: named(self.io),
            drain_delay: given(self.drain_delay),
            drain_timeout: given(self.timeout_drain),
            id: given(self.loop_id.clone()),
            via: switched_on(self.via),
            h2c_upgrade: switched_on(self.h2c_upgrade),
            half_close_grace: given(self.half_close_grace),
            lingering_time: given(self.lingering_time),
            lingering_timeout: given(self.lingering_timeout),
            ..Server::default()
        };
        self.http3.set(&mut server);
        Process {
            server,
            log: Log {
                level: named(self.log),
                summary: given(self.log_summary),
                access: given(self.access_log.clone().map(|to| AccessLog {
                    to: given(Some(to)),
                    ..AccessLog::default()
                })),
            },
            limits: self.limits.settings(),
            control: Control {
                listen: given(
                    self.control_listen
                        .as_ref()
                        .map(|address| match &**address {
                            OFF => ControlAddress::Off,
                            _ => ControlAddress::On(address.clone()),
                        }),
                ),
                socket: given(self.control.as_ref().map(|path| match path.to_str() {
                    Some(OFF) => Socket::Off,
                    _ => Socket::Path(path.display().to_string()),
                })),
            },
            ..Process::default()
        }
    }
}

/// A value that stands in no file.
pub(crate) fn given<T>(value: Option<T>) -> Option<Placed<T>> {
    value.map(|value| Placed::new(value, 0..0))
}

/// A flag without a value says nothing where it is not given.
fn switched_on(is_on: bool) -> Option<Placed<bool>> {
    given(is_on.then_some(true))
}

fn named(value: Option<impl ValueEnum>) -> Option<Placed<String>> {
    let name = value.and_then(|value| Some(value.to_possible_value()?.get_name().to_owned()));
    given(name)
}

fn loop_id(value: &str) -> Result<String, String> {
    let checked = value.parse::<LoopId>();
    checked
        .map(|_| value.to_owned())
        .map_err(|error| error.to_string())
}

fn destination(value: &str) -> Result<String, String> {
    match value
        .parse()
        .map_err(|error: DestinationError| error.to_string())?
    {
        // A file of these settings may lie elsewhere.
        Destination::File(path) => {
            let path = std::path::absolute(path).map_err(|error| error.to_string())?;
            Ok(path.display().to_string())
        }
        _ => Ok(value.to_owned()),
    }
}

fn control_address(value: &str) -> Result<String, String> {
    match value {
        OFF => Ok(value.to_owned()),
        _ => listen::parse_control(value).map(|_| value.to_owned()),
    }
}

fn cores(value: &str) -> Result<u64, String> {
    match value.parse() {
        Ok(cores @ 1..=CORES_MAX) => Ok(cores),
        _ => Err(format!(
            "this is not a number of cores\n  \
             write one from 1 to {CORES_MAX}, or leave out --cores for all"
        )),
    }
}
