//! Settings of the process: `server`, `log`, `limits`, `metrics`, `control`, `tracing` and `redis`. A file and the flags
//! of a command line say them alike.

use std::time::Duration;

use crate::access_log::{AccessLog, Share};
use crate::span::{Placed, Span};
use crate::units::TimeLimit;

/// All settings of the process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    /// The process and its connections.
    pub server: Server,
    /// The log on standard error.
    pub log: Log,
    /// Limits of heads and trailers.
    pub limits: MessageLimits,
    /// Metrics of requests.
    pub metrics: Metrics,
    /// The control interface.
    pub control: Control,
    /// The export of traces.
    pub tracing: Tracing,
    /// The store of limits that several processes share.
    pub redis: Redis,
}

impl Process {
    /// These settings, and those of `other` where these say nothing.
    #[must_use]
    pub fn or(self, other: Process) -> Process {
        Process {
            server: self.server.or(other.server),
            log: self.log.or(other.log),
            limits: self.limits.or(other.limits),
            metrics: self.metrics.or(other.metrics),
            control: self.control.or(other.control),
            tracing: self.tracing.or(other.tracing),
            redis: self.redis.or(other.redis),
        }
    }

    /// The keys of all values, as `server.cores`, with the values as a file has them and their places.
    #[must_use]
    pub fn written(&self) -> Vec<(String, String, Span)> {
        let tables = [
            ("server", self.server.written()),
            ("log", self.log.written()),
            ("limits", self.limits.written()),
            ("metrics", self.metrics.written()),
            ("control", self.control.written()),
            ("tracing", self.tracing.written()),
            ("redis", self.redis.written()),
        ];
        let mut all = Vec::new();
        for (table, values) in tables {
            let with_table = values
                .into_iter()
                .map(|(key, value, span)| (format!("{table}.{key}"), value, span));
            all.extend(with_table);
        }
        all
    }
}

/// A size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub u64);

/// Which control socket there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Socket {
    /// None.
    Off,
    /// The one with this path.
    Path(String),
}

/// The address of the control interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlAddress {
    /// None.
    Off,
    /// This one, as it is written.
    On(String),
}

/// Values of fields by their names, as they are written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldTexts(pub Vec<(String, String)>);

/// A value that a file has in one spelling.
pub(crate) trait Written {
    fn written(&self) -> String;
}

impl Written for bool {
    fn written(&self) -> String {
        self.to_string()
    }
}

impl Written for u64 {
    fn written(&self) -> String {
        self.to_string()
    }
}

impl Written for Bytes {
    fn written(&self) -> String {
        quoted(&self.0.to_string())
    }
}

impl Written for Duration {
    /// In whole milliseconds.
    fn written(&self) -> String {
        quoted(&format!("{}ms", self.as_nanos().div_ceil(1_000_000)))
    }
}

impl Written for TimeLimit {
    fn written(&self) -> String {
        match self {
            TimeLimit::After(duration) => duration.written(),
            TimeLimit::Forever => quoted("forever"),
        }
    }
}

impl Written for String {
    fn written(&self) -> String {
        quoted(self)
    }
}

impl Written for Socket {
    fn written(&self) -> String {
        match self {
            Socket::Off => false.written(),
            Socket::Path(path) => path.written(),
        }
    }
}

impl Written for ControlAddress {
    fn written(&self) -> String {
        match self {
            ControlAddress::Off => false.written(),
            ControlAddress::On(address) => address.written(),
        }
    }
}

impl Written for FieldTexts {
    fn written(&self) -> String {
        let fields = self.0.iter();
        let fields: Vec<_> = fields
            .map(|(name, value)| format!("{} = {}", quoted(name), quoted(value)))
            .collect();
        format!("{{ {} }}", fields.join(", "))
    }
}

/// A text of TOML whose `${` is no variable.
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.replace("${", "$${").chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out += &format!("\\u{:04x}", u32::from(c)),
            c => out.push(c),
        }
    }
    out + "\""
}

/// A table of settings.
pub(crate) trait SettingsTable {
    /// Where the value of a key belongs.
    fn slot(&mut self, key: &str) -> Option<Slot<'_>>;
}

/// Where a value belongs, by its type.
macro_rules! slots {
    ($($name:ident: $type:ty,)+) => {
        pub(crate) enum Slot<'a> {
            $($name(&'a mut Option<Placed<$type>>),)+
        }

        $(impl<'a> From<&'a mut Option<Placed<$type>>> for Slot<'a> {
            fn from(slot: &'a mut Option<Placed<$type>>) -> Slot<'a> {
                Slot::$name(slot)
            }
        })+
    };
}

slots! {
    Switch: bool,
    Number: u64,
    Bytes: Bytes,
    Duration: Duration,
    Limit: TimeLimit,
    Text: String,
    Socket: Socket,
    AccessLog: AccessLog,
    Address: ControlAddress,
    Share: Share,
    FieldTexts: FieldTexts,
}

/// A table of settings: its struct, and the common code for each of its keys.
macro_rules! table {
    ($(#[$doc:meta])* $name:ident { $($(#[$key_doc:meta])* $key:ident: $type:ty,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$key_doc])* pub $key: Option<Placed<$type>>,)+
        }

        impl $name {
            fn or(self, other: $name) -> $name {
                $name { $($key: self.$key.or(other.$key),)+ }
            }

            /// The keys of all values, with the values as a file has them and their places.
            #[must_use]
            pub fn written(&self) -> Vec<(&'static str, String, Span)> {
                let mut values = Vec::new();
                $(values.extend(self.$key.as_ref().map(|value| {
                    (stringify!($key), value.value.written(), value.span.clone())
                }));)+
                values
            }
        }

        impl SettingsTable for $name {
            fn slot(&mut self, key: &str) -> Option<Slot<'_>> {
                match key {
                    $(stringify!($key) => Some(Slot::from(&mut self.$key)),)+
                    _ => None,
                }
            }
        }
    };
}

table! {
    /// `server`: the process and its connections.
    Server {
        /// How many cores, with a thread each; by default one for each processor.
        cores: u64,
        /// Whether threads are pinned to processors: `auto`, `on` or `off`.
        pin: String,
        /// The I/O driver: `auto`, `uring` or `epoll`.
        io: String,
        /// Whether listeners for TLS serve HTTP/3; by default they do.
        http3: bool,
        /// The UDP port of HTTP/3 as clients see it.
        alt_svc_port: u64,
        /// How long clients may remember HTTP/3, in whole seconds.
        alt_svc_max_age: Duration,
        /// How long connections are still accepted when the process stops.
        drain_delay: Duration,
        /// How long running requests may take when the process or a listener stops.
        drain_timeout: TimeLimit,
        /// The name of this proxy in `CDN-Loop` (RFC 8586).
        id: String,
        /// Whether forwarded messages get `Via` (RFC 9110, section 7.6.3).
        via: bool,
        /// Whether clients in clear text may switch to HTTP/2 with `Upgrade: h2c`.
        h2c_upgrade: bool,
        /// Whether a change of the file is a reload.
        watch: bool,
        /// How long a half-closed client is kept while no byte of its response is sent.
        half_close_grace: TimeLimit,
        /// How long a client may go on sending after its response.
        lingering_time: Duration,
        /// The longest silence within that time.
        lingering_timeout: Duration,
    }
}

table! {
    /// `log`: the log on standard error, and the access log.
    Log {
        /// The least level: `off`, `error`, `warn`, `info`, `debug` or `trace`.
        level: String,
        /// How often failures and refusals are summarized; zero is never.
        summary: Duration,
        /// A line for each request.
        access: AccessLog,
    }
}

table! {
    /// `limits`: heads and trailers of messages.
    MessageLimits {
        /// Bytes of the fields of a request.
        head_max: Bytes,
        /// Fields of a request.
        fields_max: u64,
        /// Lines of a cookie over HTTP/2 and HTTP/3.
        cookies_max: u64,
        /// Bytes of a request line, or of a target.
        request_line_max: Bytes,
        /// Bytes of the trailers of a request.
        trailers_max: Bytes,
        /// Fields of the trailers of a request.
        trailer_fields_max: u64,
        /// Bytes of the fields of an upstream's response.
        upstream_head_max: Bytes,
        /// Fields of an upstream's response.
        upstream_fields_max: u64,
    }
}

table! {
    /// `metrics`: metrics of requests.
    Metrics {
        /// The most series of requests.
        series_max: u64,
    }
}

table! {
    /// `control`: how other processes ask this one.
    Control {
        /// The address for health, metrics and state.
        listen: ControlAddress,
        /// The socket of `blitz reload`.
        socket: Socket,
    }
}

table! {
    /// `tracing`: the export of traces.
    Tracing {
        /// The URL of the collector.
        otlp: String,
        /// How the collector takes spans: `grpc` or `http`.
        protocol: String,
        /// The share of the traces that begin here which is recorded.
        sample: Share,
        /// Whether requests are exported as log records, too.
        logs: bool,
        /// The name of this service.
        service: String,
        /// Fields of requests to the collector.
        headers: FieldTexts,
    }
}

table! {
    /// `redis`: the store of limits that several processes share.
    Redis {
        /// The server, with user, password and database.
        url: String,
        /// How long a response may take.
        timeout: Duration,
        /// The beginning of the names of keys.
        prefix: String,
    }
}
