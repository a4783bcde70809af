//! The access log: a line for each request, made from its record.

mod batch;
mod escape;
mod field;
mod filter;
mod line;
mod redaction;
mod syntax;
mod timestamp;

use std::fmt;
use std::sync::Arc;

use syntax::Syntax;

pub use batch::RecordBatch;
pub use field::{Fact, HeaderName, LogField, NotedHeader, UnknownField};
pub use filter::{LogFilter, LoggedStatus};
pub use line::{FieldValue, LineWriter};
pub use redaction::redact_query;

pub(crate) use redaction::{REDACTED, url_without_user};

/// Takes lines of an access log.
pub trait LogSink: Send + Sync {
    /// Takes whole lines, each with its end, without waiting. Returns an empty buffer for the next ones.
    fn write(&self, lines: Vec<u8>) -> Vec<u8>;

    /// Counts lines that were lost before they were written.
    fn lose(&self, _lines: u64) {}
}

/// The form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// A JSON object, without the fields that have no value.
    #[default]
    Json,
    /// `field=value`, without the fields that have no value.
    Logfmt,
    /// The combined format of Apache httpd and nginx. A request without a response has the status 499.
    Combined,
}

/// The settings of an access log.
#[derive(Debug, Clone, PartialEq)]
pub struct LogSettings {
    /// The form of its lines.
    pub format: LogFormat,
    /// The fields in their order; the combined format has its own.
    pub fields: Vec<LogField>,
    /// Fields of requests whose values are left out.
    pub redacted: Vec<HeaderName>,
    /// Whether the values of queries are left out, in `Referer` as well.
    pub redacts_query: bool,
    /// Which requests have a line.
    pub filter: LogFilter,
    /// Whether failed handshakes have lines, as requests without a response.
    pub handshakes: bool,
}

impl Default for LogSettings {
    fn default() -> LogSettings {
        let redacted = ["Authorization", "Proxy-Authorization", "Cookie"];
        LogSettings {
            format: LogFormat::Json,
            fields: LogField::usual(),
            redacted: redacted.map(HeaderName::new).to_vec(),
            redacts_query: true,
            filter: LogFilter::default(),
            handshakes: true,
        }
    }
}

/// An access log, shared by all cores.
pub struct AccessLog {
    settings: LogSettings,
    /// The fields with their text before the value, such as `,"status":`.
    keyed: Box<[(LogField, Box<str>)]>,
    /// Fields of requests that are noted.
    headers: Arc<[NotedHeader]>,
    syntax: Syntax,
    sink: Arc<dyn LogSink>,
}

impl AccessLog {
    /// A log with these settings, whose lines this sink takes.
    #[must_use]
    pub fn new(settings: LogSettings, sink: Arc<dyn LogSink>) -> AccessLog {
        let syntax = Syntax::of(settings.format);
        let fields = match settings.format {
            LogFormat::Json | LogFormat::Logfmt => settings.fields.clone(),
            LogFormat::Combined => LogField::combined(),
        };
        let headers = fields.iter().filter_map(LogField::header);
        let headers = headers.map(|name| NotedHeader {
            name: name.clone(),
            is_redacted: settings.redacted.contains(name),
        });
        let headers = headers.collect();
        let keyed = fields.into_iter().map(|field| {
            let key = syntax.key(&field);
            (field, key.into())
        });
        AccessLog {
            keyed: keyed.collect(),
            headers,
            syntax,
            sink,
            settings,
        }
    }

    pub(crate) fn headers(&self) -> Arc<[NotedHeader]> {
        Arc::clone(&self.headers)
    }

    /// The same, and those of spans.
    pub(crate) fn headers_and_usual(&self) -> Arc<[NotedHeader]> {
        let usual = NotedHeader::usual();
        let is_new = |usual: &&NotedHeader| self.headers.iter().all(|own| own.name != usual.name);
        let mut headers = self.headers.to_vec();
        headers.extend(usual.iter().filter(is_new).map(|usual| NotedHeader {
            name: usual.name.clone(),
            is_redacted: self.settings.redacted.contains(&usual.name),
        }));
        headers.into()
    }

    pub(crate) fn lose(&self, lines: u64) {
        self.sink.lose(lines);
    }

    /// Its settings.
    #[must_use]
    pub fn settings(&self) -> &LogSettings {
        &self.settings
    }
}

impl fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessLog")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
