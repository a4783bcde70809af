//! `health`: a path, or a table.

use std::ops::RangeInclusive;
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::{Entry, Reader, entries};
use crate::access_log::LoggedStatus;
use crate::balance::GroupServer;
use crate::health::{HealthCheck, HealthKind, HttpCheck};
use crate::keys::{Key, Scope};
use crate::span::{Placed, Span};
use crate::units::{self, ValueError};

const PATH: &str = "\"/healthz\"";

const INTERVAL: Duration = Duration::from_secs(10);
/// More checks than this are load, and fewer tell nothing of now.
const INTERVALS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);

const TIMEOUT: Duration = Duration::from_secs(2);
/// A shorter one would fail in a busy process.
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(60);

const RISE: u64 = 2;
const FALL: u64 = 3;

/// The most bytes of a path, of a text and of a name.
const PATH_BYTES_MAX: usize = 2048;
const BODY_BYTES_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 255;

/// The values of a `health`, before its kind is known.
#[derive(Default)]
struct OwnHealth {
    kind: Option<String>,
    path: Option<Placed<String>>,
    host: Option<Placed<String>>,
    statuses: Option<Placed<Vec<LoggedStatus>>>,
    body: Option<Placed<String>>,
    service: Option<Placed<String>>,
    interval: Option<Duration>,
    timeout: Option<Duration>,
    rise: Option<u64>,
    fall: Option<u64>,
}

impl OwnHealth {
    /// A key that belongs to another kind, with its place and that kind.
    fn foreign_key(&self, kind: &str) -> Option<(&'static str, Span, &'static str)> {
        let keys = [
            ("path", self.path.as_ref().map(|path| &path.span), "http"),
            (
                "status",
                self.statuses.as_ref().map(|all| &all.span),
                "http",
            ),
            ("body", self.body.as_ref().map(|body| &body.span), "http"),
            (
                "service",
                self.service.as_ref().map(|one| &one.span),
                "grpc",
            ),
            ("host", self.host.as_ref().map(|host| &host.span), "http"),
        ];
        let is_foreign = |name: &str, of: &str| of != kind && !(name == "host" && kind == "grpc");
        keys.into_iter().find_map(|(name, span, of)| {
            let span = span.filter(|_| is_foreign(name, of))?;
            Some((name, span.clone(), of))
        })
    }
}

impl Reader<'_> {
    pub(super) fn health(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Placed<HealthCheck>> {
        let before = self.diagnostics.len();
        let mut own = OwnHealth::default();
        match value.get_ref() {
            DeValue::Table(table) => {
                for entry in entries(table) {
                    if let Some(key) = self.key(Scope::Health, &entry) {
                        self.health_key(key, &entry, &mut own);
                    }
                }
            }
            DeValue::String(_) => own.path = self.health_path(value),
            other => {
                let label = format!("write a path such as {PATH}, or a table");
                self.wrong_type(value.span(), other, "a path or a table", &label);
            }
        }
        if self.diagnostics.len() > before {
            return None;
        }
        let check = HealthCheck {
            interval: own.interval.unwrap_or(INTERVAL),
            timeout: own.timeout.unwrap_or(TIMEOUT),
            rise: own.rise.unwrap_or(RISE) as u16,
            fall: own.fall.unwrap_or(FALL) as u16,
            kind: self.health_kind(value.span(), own)?,
        };
        Some(Placed::new(check, value.span()))
    }

    fn health_key(&mut self, key: &Key, entry: &Entry<'_, '_>, own: &mut OwnHealth) {
        let value = entry.value;
        match key.name {
            "kind" => own.kind = self.one_of(value, key),
            "path" => own.path = self.health_path(value),
            "host" => own.host = self.checked_text(value, "\"app.example\"", host),
            "service" => own.service = self.checked_text(value, "\"shop.Cart\"", service),
            "body" => own.body = self.checked_text(value, "\"ok\"", body),
            "status" => own.statuses = self.health_statuses(value),
            "interval" => own.interval = self.time_within(value, "\"10s\"", INTERVALS, BETWEEN),
            "timeout" => own.timeout = self.time_within(value, "\"2s\"", TIMEOUTS, TAKES),
            "rise" => own.rise = self.number(value, key),
            _ => own.fall = self.number(value, key),
        }
    }

    fn health_path(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Placed<String>> {
        self.checked_text(value, PATH, path)
    }

    fn checked_text(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        example: &str,
        check: fn(&str) -> Result<(), ValueError>,
    ) -> Option<Placed<String>> {
        let text = self.text(value, example)?;
        self.parsed(&text, check)?;
        Some(text.placed())
    }

    fn health_statuses(
        &mut self,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Placed<Vec<LoggedStatus>>> {
        let statuses = match value.get_ref() {
            DeValue::Array(items) if items.is_empty() => {
                let message = "no response would be healthy";
                self.error("health", value.span(), message, "write for example \"2xx\"");
                return None;
            }
            DeValue::Array(items) => items
                .iter()
                .filter_map(|item| self.logged_status(item))
                .collect(),
            _ => vec![self.logged_status(value)?],
        };
        Some(Placed::new(statuses, value.span()))
    }

    fn time_within(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        example: &str,
        range: RangeInclusive<Duration>,
        problem: &str,
    ) -> Option<Duration> {
        self.unit_value(
            value,
            "duration",
            example,
            |text| match units::parse_duration(text)? {
                time if range.contains(&time) => Ok(time),
                _ => Err(ValueError::new(
                    "health",
                    problem,
                    format!("write for example {example}"),
                )),
            },
        )
    }

    /// The kind, if the other keys belong to it.
    fn health_kind(&mut self, span: Span, own: OwnHealth) -> Option<HealthKind> {
        let kind = own.kind.as_deref().unwrap_or("http");
        let found = own.foreign_key(kind);
        if let Some((name, span, of)) = found {
            let message = format!("`{name}` is for checks of the kind \"{of}\"");
            let label = format!("leave it out, or write kind = \"{of}\"");
            self.error("health", span, message, label);
            return None;
        }
        let host = own.host.map(|host| host.value);
        Some(match kind {
            "grpc" => HealthKind::Grpc {
                service: own.service.map(|service| service.value).unwrap_or_default(),
                host,
            },
            "tcp" => HealthKind::Tcp,
            "tls" => HealthKind::Tls,
            _ => {
                let Some(path) = own.path else {
                    let label = format!(
                        "add path = {PATH}, or another `kind`: \"grpc\", \"tcp\" or \"tls\""
                    );
                    self.error("health", span, "`path` is missing", label);
                    return None;
                };
                let statuses = own.statuses.map(|statuses| statuses.value);
                HealthKind::Http(HttpCheck {
                    path: path.value,
                    host,
                    statuses: statuses.unwrap_or_else(|| vec![LoggedStatus::Class(2)]),
                    body: own.body.map(|body| body.value),
                })
            }
        })
    }

    /// Finds servers that cannot have checks of this kind.
    pub(super) fn check_health(&mut self, health: &Placed<HealthCheck>, servers: &[GroupServer]) {
        let (schemes, lack): (&[&str], &str) = match health.value.kind {
            HealthKind::Http(_) | HealthKind::Tcp => return,
            HealthKind::Grpc { .. } => (&["h2c://", "https://"], "HTTP/2, which gRPC needs"),
            HealthKind::Tls => (&["https://"], "TLS"),
        };
        let can_have = |server: &&GroupServer| {
            let url = server.url.value.to_ascii_lowercase();
            !schemes.iter().any(|scheme| url.starts_with(scheme))
        };
        if let Some(server) = servers.iter().find(can_have) {
            let place = self.document.place(server.url.span.start);
            let kind = health.value.kind.name();
            let message = format!("the server at {place} has no {lack}");
            let label = format!(
                "write its URL with {}, or another `kind` than \"{kind}\"",
                schemes.join(" or ")
            );
            self.error("health", health.span.clone(), message, label);
        }
    }
}

const BETWEEN: &str = "the time between two checks is from 100 ms to 1 hour";
const TAKES: &str = "a check may take from 10 ms to 1 minute";

fn path(text: &str) -> Result<(), ValueError> {
    let is_sent = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
    match text.starts_with('/') && text.len() <= PATH_BYTES_MAX && text.bytes().all(is_sent) {
        true => Ok(()),
        false => Err(ValueError::new(
            "health",
            "this is no path of a check",
            format!("write for example {PATH}; other characters than ASCII are escaped"),
        )),
    }
}

fn host(text: &str) -> Result<(), ValueError> {
    let is_of_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    name(text, is_of_host, "this is no host", "\"app.example\"")
}

fn service(text: &str) -> Result<(), ValueError> {
    let is_of_name = |byte: u8| byte.is_ascii_graphic();
    name(
        text,
        is_of_name,
        "this is no name of a service",
        "\"shop.Cart\"",
    )
}

fn name(
    text: &str,
    is_part: fn(u8) -> bool,
    problem: &str,
    example: &str,
) -> Result<(), ValueError> {
    match (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_part) {
        true => Ok(()),
        false => Err(ValueError::new(
            "health",
            problem,
            format!("write for example {example}"),
        )),
    }
}

fn body(text: &str) -> Result<(), ValueError> {
    match (1..=BODY_BYTES_MAX).contains(&text.len()) {
        true => Ok(()),
        false => Err(ValueError::new(
            "health",
            "this text is empty, or longer than 256 bytes",
            "write a part of it, or leave it out",
        )),
    }
}
