//! `log.access`: a line for each request.

use std::fmt;
use std::time::Duration;

use crate::process::{Written, quoted};
use crate::span::Placed;

/// Settings of the access log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessLog {
    /// Where lines go: a file, or a word for another destination; `None` is nowhere.
    pub to: Option<Placed<String>>,
    /// The form of lines: `json`, `logfmt` or `combined`.
    pub format: Option<String>,
    /// The fields of lines; `None` is all.
    pub fields: Option<Vec<Placed<String>>>,
    /// Fields of requests that are left out of lines, or `query`; `None` is credentials.
    pub redact: Option<Vec<Placed<String>>>,
    /// Which requests have a line.
    pub when: AccessLogWhen,
    /// Whether failed handshakes have lines; `None` is yes.
    pub handshakes: Option<bool>,
    /// The share of the requests that meet no condition.
    pub sample: Option<Share>,
}

/// Conditions, one of which a request meets that has a line. Without any, all requests have one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessLogWhen {
    /// Statuses of responses.
    pub statuses: Vec<LoggedStatus>,
    /// The request took longer.
    pub slower: Option<Duration>,
}

/// Statuses of responses, 100 to 599.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LoggedStatus {
    /// One status: `404`.
    Code(u16),
    /// The hundred of this digit: `5xx`.
    Class(u16),
}

/// A number from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    millionths: u32,
}

const ALL_MILLIONTHS: f64 = 1e6;

impl Share {
    /// `None` if the number is not from 0 to 1.
    pub(crate) fn new(number: f64) -> Option<Share> {
        let is_share = (0.0..=1.0).contains(&number);
        is_share.then(|| Share {
            millionths: (number * ALL_MILLIONTHS).round() as u32,
        })
    }

    /// How many of a million.
    #[must_use]
    pub fn millionths(self) -> u32 {
        self.millionths
    }

    /// The number, to six places.
    #[must_use]
    pub fn number(self) -> f64 {
        f64::from(self.millionths) / ALL_MILLIONTHS
    }
}

impl Written for Share {
    fn written(&self) -> String {
        format!("{:?}", self.number())
    }
}

impl LoggedStatus {
    /// The status or class of this text.
    #[must_use]
    pub(crate) fn parse(text: &str) -> Option<LoggedStatus> {
        match text.as_bytes() {
            [digit @ b'1'..=b'5', b'x', b'x'] => Some(LoggedStatus::Class(u16::from(digit - b'0'))),
            [b'1'..=b'5', b'0'..=b'9', b'0'..=b'9'] => text.parse().ok().map(LoggedStatus::Code),
            _ => None,
        }
    }

    /// Whether a status is one of these.
    #[must_use]
    pub fn matches(self, status: u16) -> bool {
        match self {
            LoggedStatus::Code(code) => code == status,
            LoggedStatus::Class(digit) => digit == status / 100,
        }
    }
}

impl fmt::Display for LoggedStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoggedStatus::Code(code) => write!(f, "{code}"),
            LoggedStatus::Class(digit) => write!(f, "{digit}xx"),
        }
    }
}

impl Written for AccessLog {
    fn written(&self) -> String {
        let Some(to) = &self.to else {
            return false.written();
        };
        let mut values = vec![format!("to = {}", quoted(&to.value))];
        let texts = |texts: &[Placed<String>]| {
            let texts: Vec<String> = texts.iter().map(|text| quoted(&text.value)).collect();
            format!("[{}]", texts.join(", "))
        };
        values.extend(
            self.format
                .as_ref()
                .map(|format| format!("format = {}", quoted(format))),
        );
        values.extend(
            self.fields
                .as_ref()
                .map(|fields| format!("fields = {}", texts(fields))),
        );
        values.extend(
            self.redact
                .as_ref()
                .map(|names| format!("redact = {}", texts(names))),
        );
        let AccessLogWhen { statuses, slower } = &self.when;
        let mut when = Vec::new();
        if !statuses.is_empty() {
            let statuses: Vec<_> = statuses
                .iter()
                .map(|status| quoted(&status.to_string()))
                .collect();
            when.push(format!("status = [{}]", statuses.join(", ")));
        }
        when.extend(slower.map(|slower| format!("slower = {}", slower.written())));
        if !when.is_empty() {
            values.push(format!("when = {{ {} }}", when.join(", ")));
        }
        values.extend(
            self.sample
                .map(|sample| format!("sample = {}", sample.written())),
        );
        let handshakes = self.handshakes;
        values.extend(handshakes.map(|logged| format!("handshakes = {logged}")));
        match values.as_slice() {
            [_] => to.value.written(),
            values => format!("{{ {} }}", values.join(", ")),
        }
    }
}
