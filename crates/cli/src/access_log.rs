//! The access log of the process: its settings from a file or flags, and its output, which a reload may replace.

use std::path::Path;
use std::sync::Arc;

use blitz_config::{
    AccessLog as AccessLogKeys, Diagnostic, LoggedStatus, Placed, Process, Share, nearest,
};
use blitz_gateway::access_log::{
    self, AccessLog, Fact, HeaderName, LogField, LogFilter, LogFormat, LogSettings, LogSink,
};
use blitz_host::log::{Destination, LogOutput};

use crate::differences;
use crate::redaction::is_secret;

/// The word in `redact` for the values of queries.
const QUERY: &str = "query";

/// The access log in use.
#[derive(Default)]
pub(crate) struct OpenAccessLog(Option<Open>);

#[derive(Clone)]
struct Open {
    to: Destination,
    output: LogOutput,
    log: Arc<AccessLog>,
}

/// The access log of another configuration, which is not in use yet.
pub(crate) struct NewAccessLog {
    open: Option<Open>,
    is_kept: bool,
}

/// Lines go to an output.
struct Sink(LogOutput);

impl LogSink for Sink {
    fn write(&self, lines: Vec<u8>) -> Vec<u8> {
        self.0.write(lines)
    }

    fn lose(&self, lines: u64) {
        self.0.count_dropped(lines);
    }
}

impl OpenAccessLog {
    /// The log that these settings demand. An equal one that is in use stays.
    ///
    /// # Errors
    /// Its file or socket cannot be opened; the problem and the remedy.
    pub(crate) fn prepare(&self, process: &Process) -> Result<NewAccessLog, String> {
        let Some((to, settings)) = wanted(process) else {
            return Ok(NewAccessLog {
                open: None,
                is_kept: self.0.is_none(),
            });
        };
        let same_output = self.0.as_ref().filter(|open| open.to == to);
        if let Some(open) = same_output.filter(|open| *open.log.settings() == settings) {
            return Ok(NewAccessLog {
                open: Some(open.clone()),
                is_kept: true,
            });
        }
        let output = match same_output {
            Some(open) => open.output.clone(),
            None => LogOutput::open(&to).map_err(|error| {
                format!(
                    "the access log cannot be opened: {error}\n  change log.access or --access-log"
                )
            })?,
        };
        let log = AccessLog::new(settings, Arc::new(Sink(output.clone())));
        let log = Arc::new(log);
        Ok(NewAccessLog {
            open: Some(Open { to, output, log }),
            is_kept: false,
        })
    }

    /// Uses another log.
    pub(crate) fn replace(&mut self, new: NewAccessLog) {
        self.0 = new.open;
    }

    /// Writes the lines that wait, for at most a second. The process ends.
    pub(crate) fn finish(&self) {
        if let Some(open) = &self.0 {
            open.output.finish();
        }
    }

    /// Opens its file again, after logrotate or others have moved it.
    pub(crate) fn reopen(&self) {
        match &self.0 {
            None => tracing::info!("nothing to reopen: no log is written to a file"),
            Some(open) => {
                tracing::info!("opening the access log anew");
                open.output.reopen();
            }
        }
    }
}

impl NewAccessLog {
    /// The log for the gateway.
    pub(crate) fn log(&self) -> Option<Arc<AccessLog>> {
        self.open.as_ref().map(|open| Arc::clone(&open.log))
    }

    /// A line for people, if it differs from the log in use.
    pub(crate) fn change(&self) -> &'static str {
        differences::log_line(self.is_kept)
    }
}

/// The destination and the settings; `None` if there is no log.
fn wanted(process: &Process) -> Option<(Destination, LogSettings)> {
    let keys = &process.log.access.as_ref()?.value;
    // It was checked.
    let to = keys.to.as_ref()?.value.parse().ok()?;
    Some((to, settings(keys)))
}

/// The settings of the access log, also if there is none.
pub(crate) fn settings_of(process: &Process) -> LogSettings {
    let keys = process.log.access.as_ref();
    keys.map_or_else(LogSettings::default, |keys| settings(&keys.value))
}

fn settings(keys: &AccessLogKeys) -> LogSettings {
    let usual = LogSettings::default();
    let fields = keys.fields.as_ref().map(|fields| -> Vec<LogField> {
        let fields = fields.iter();
        // They were checked.
        fields
            .filter_map(|field| field.value.parse().ok())
            .collect()
    });
    let (redacted, redacts_query) = match &keys.redact {
        None => {
            let chosen = fields.iter().flatten().filter_map(|field| match field {
                LogField::Header(name) if is_secret(name.as_str()) => Some(name.clone()),
                _ => None,
            });
            let redacted = usual.redacted.into_iter().chain(chosen);
            (redacted.collect(), usual.redacts_query)
        }
        Some(names) => {
            let is_query = |name: &&Placed<String>| name.value == QUERY;
            let (query, names): (Vec<_>, Vec<_>) = names.iter().partition(is_query);
            let names = names.into_iter().map(|name| HeaderName::new(&name.value));
            (names.collect(), !query.is_empty())
        }
    };
    LogSettings {
        format: match keys.format.as_deref() {
            Some("logfmt") => LogFormat::Logfmt,
            Some("combined") => LogFormat::Combined,
            _ => LogFormat::Json,
        },
        fields: fields.unwrap_or(usual.fields),
        redacted,
        redacts_query,
        filter: LogFilter {
            statuses: keys
                .when
                .statuses
                .iter()
                .map(|status| match *status {
                    LoggedStatus::Code(code) => access_log::LoggedStatus::Code(code),
                    LoggedStatus::Class(class) => access_log::LoggedStatus::Class(class),
                })
                .collect(),
            slower: keys.when.slower,
            sample: keys.sample.map(Share::number),
        },
        handshakes: keys.handshakes.unwrap_or(usual.handshakes),
    }
}

/// A relative file begins at the folder of the configuration.
pub(crate) fn resolve(keys: &mut AccessLogKeys, folder: &Path) {
    if let Some(to) = &mut keys.to
        && let Ok(Destination::File(file)) = to.value.parse()
    {
        to.value = folder.join(file).display().to_string();
    }
}

/// Mistakes that the file's own reader cannot see.
pub(crate) fn check(keys: &Placed<AccessLogKeys>, diagnostics: &mut Vec<Diagnostic>) {
    let AccessLogKeys {
        to,
        format,
        fields,
        redact,
        ..
    } = &keys.value;
    let mut error = |code, place: &Placed<String>, message: String, label: String| {
        let span = place.span.clone();
        diagnostics.push(Diagnostic::error(code, span, message, label));
    };
    if let Some(to) = to
        && let Err(problem) = to.value.parse::<Destination>()
    {
        error(
            "access-log-to",
            to,
            "this is no destination of a log".to_owned(),
            problem.to_string(),
        );
    }
    let is_combined = format.as_deref() == Some("combined");
    check_fields(keys, is_combined, fields.as_deref(), diagnostics);
    let mut error = |code, place: &Placed<String>, message: String, label: String| {
        let span = place.span.clone();
        diagnostics.push(Diagnostic::error(code, span, message, label));
    };
    for name in redact.iter().flatten().filter(|name| name.value != QUERY) {
        if format!("header.{}", name.value)
            .parse::<LogField>()
            .is_err()
        {
            let message = format!("`{}` is no name of a field", name.value);
            error(
                "access-log-field",
                name,
                message,
                "write for example \"Authorization\", or \"query\"".to_owned(),
            );
        }
    }
}

fn check_fields(
    keys: &Placed<AccessLogKeys>,
    is_combined: bool,
    fields: Option<&[Placed<String>]>,
    diagnostics: &mut Vec<Diagnostic>,
) {
    if fields.is_some_and(<[_]>::is_empty) {
        let message = "lines would have no field".to_owned();
        let label =
            "leave out `fields` for all, or write for example [\"ts\", \"status\"]".to_owned();
        let span = keys.span.clone();
        diagnostics.push(Diagnostic::error("access-log-field", span, message, label));
        return;
    }
    let mut error = |code, place: &Placed<String>, message: String, label: String| {
        let span = place.span.clone();
        diagnostics.push(Diagnostic::error(code, span, message, label));
    };
    let mut names = Vec::new();
    for field in fields.unwrap_or_default() {
        if is_combined {
            let message = "the combined format has its own fields".to_owned();
            error(
                "contradiction",
                field,
                message,
                "leave out `fields`, or write format = \"json\"".to_owned(),
            );
            break;
        }
        match field.value.parse::<LogField>() {
            Err(_) => {
                let message = format!("lines of the access log have no field `{}`", field.value);
                error("access-log-field", field, message, suggestion(&field.value));
            }
            // Of two values with one name readers may take that of the client (RFC 8259, section 4).
            Ok(parsed) if names.contains(&parsed.name()) => {
                let message = format!("lines would have two fields `{}`", parsed.name());
                error(
                    "access-log-field",
                    field,
                    message,
                    "leave out one of them".to_owned(),
                );
            }
            Ok(parsed) => names.push(parsed.name()),
        }
    }
}

fn suggestion(name: &str) -> String {
    let names = Fact::ALL.iter().map(|(fact, _)| fact.name());
    match nearest(name, names.clone()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => {
            let all: Vec<_> = names.collect();
            format!("write one of {}, or header.NAME", all.join(", "))
        }
    }
}

/// The log of a process at its start.
///
/// # Errors
/// As [`OpenAccessLog::prepare`].
pub(crate) fn open(process: &Process) -> Result<(OpenAccessLog, Option<Arc<AccessLog>>), String> {
    let mut open = OpenAccessLog::default();
    let new = open.prepare(process)?;
    let log = new.log();
    open.replace(new);
    Ok((open, log))
}
