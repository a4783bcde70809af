//! A line of the log.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant, SystemTime};

use blitz_http::{Address, Method, Name, RequestHead, Status, TlsInfo, Upstream, Version};

use super::field::Fact;
use super::filter::NO_RESPONSE;
use super::syntax::Syntax;
use super::{AccessLog, LogField, LogFilter, Noted, escape};
use crate::record::{Ended, Record};

/// Longest id of a request: that of a rejected one may be invalid.
const ID_MAX: usize = 128;

/// A request that has ended, with the parts of its head that were noted.
pub(crate) struct Line<'a> {
    record: &'a Record<'a>,
    noted: &'a Noted,
    request_id: &'a [u8],
    ended: Instant,
    duration: Duration,
}

/// The value of a field.
enum Value<'a> {
    Absent,
    Number(u64),
    /// In seconds with microseconds.
    Duration(Duration),
    /// A text of our own, which needs no escaping.
    Plain(&'a str),
    /// A text of a peer or of the configuration.
    Text(&'a [u8]),
    Time(SystemTime),
    Ip(IpAddr),
    Socket(SocketAddr),
    True,
}

impl<'a> Line<'a> {
    /// The line of a request that ends now. `head` has its id.
    pub(super) fn new(record: &'a Record<'a>, noted: &'a Noted, head: &'a RequestHead) -> Line<'a> {
        let id = head.fields.get(Name::XRequestId).unwrap_or_default();
        let ended = blitz_http::now();
        Line {
            record,
            noted,
            request_id: &id[..id.len().min(ID_MAX)],
            ended,
            duration: ended.saturating_duration_since(record.started),
        }
    }

    pub(super) fn is_wanted(&self, filter: &LogFilter) -> bool {
        filter.takes(self.record.response.status, self.duration)
    }

    /// Writes a line of fields with their names, without those that have no value.
    pub(super) fn keyed(&self, log: &AccessLog, syntax: Syntax, out: &mut Vec<u8>) {
        let start = out.len();
        let mut header = 0;
        for (field, key) in &log.keyed {
            let value = match field {
                LogField::Fact(fact) => self.fact(*fact),
                LogField::Header(_) => {
                    header += 1;
                    present(self.noted.header_at(header - 1))
                }
            };
            if !matches!(value, Value::Absent) {
                out.extend_from_slice(key.as_bytes());
                self.write(&value, syntax, out);
            }
        }
        match (syntax, out.get_mut(start)) {
            (Syntax::Json, Some(separator)) => *separator = b'{',
            (Syntax::Json, None) => out.push(b'{'),
            (_, Some(_)) => {
                out.remove(start);
            }
            (_, None) => {}
        }
        if syntax == Syntax::Json {
            out.push(b'}');
        }
        out.push(b'\n');
    }

    /// Writes a line in the combined format: the client, a dash for its identity, a dash for the user, the time, the
    /// request line, the status, the bytes of content, `Referer` and `User-Agent`.
    pub(super) fn combined(&self, out: &mut Vec<u8>) {
        let or_dash = |value: Value<'_>, out: &mut Vec<u8>| match value {
            Value::Absent => out.push(b'-'),
            value => self.write(&value, Syntax::Combined, out),
        };
        or_dash(self.fact(Fact::Client), out);
        out.extend_from_slice(b" - - [");
        let timestamps = &self.noted.log.timestamps;
        timestamps.common(self.started(), out);
        out.extend_from_slice(b"] \"");
        match self.is_handshake() {
            true => out.push(b'-'),
            false => {
                or_dash(self.fact(Fact::Method), out);
                out.push(b' ');
                or_dash(self.fact(Fact::Path), out);
                out.push(b' ');
                or_dash(self.fact(Fact::Protocol), out);
            }
        }
        out.extend_from_slice(b"\" ");
        let status = self.record.response.status;
        escape::number(status.map_or(NO_RESPONSE, Status::code).into(), out);
        out.push(b' ');
        escape::number(self.record.response.bytes, out);
        for index in 0..self.noted.log.log.headers.len() {
            out.extend_from_slice(b" \"");
            or_dash(present(self.noted.header_at(index)), out);
            out.push(b'"');
        }
        out.push(b'\n');
    }

    fn fact(&self, fact: Fact) -> Value<'_> {
        let record = self.record;
        match fact {
            Fact::Time => Value::Time(self.started()),
            Fact::RequestId => present(self.request_id),
            Fact::Client => self.client(),
            Fact::Method => self.method(),
            Fact::Scheme => Value::Plain(record.client.scheme.as_str()),
            Fact::Host => present(self.noted.host()),
            Fact::Path => present(self.noted.path()),
            Fact::Protocol => plain(self.version()),
            Fact::TlsVersion
            | Fact::TlsCipher
            | Fact::TlsGroup
            | Fact::TlsServerName
            | Fact::TlsAlpn => match &record.client.tls {
                Some(tls) => tls_fact(fact, tls),
                None => Value::Absent,
            },
            Fact::Status => number(record.response.status.map(Status::code)),
            Fact::BytesIn => Value::Number(record.request_bytes),
            Fact::BytesOut => Value::Number(record.response.bytes),
            Fact::Duration => Value::Duration(self.duration),
            Fact::FirstByte => self.since_start(record.responded),
            Fact::Site => record.site.map_or(Value::Absent, text),
            Fact::Route => record
                .route
                .map_or(Value::Absent, |route| text(route.name())),
            Fact::Upstream
            | Fact::ConnectTime
            | Fact::UpstreamTime
            | Fact::Attempts
            | Fact::ConnectFailures
            | Fact::Reused
            | Fact::GrpcStatus => self.upstream_fact(fact),
            Fact::Ended => Value::Plain(record.response.ended.as_str()),
            Fact::Cause => plain(record.response.ended.cause()),
            Fact::Omitted if record.omitted > 0 => Value::Number(record.omitted),
            Fact::Omitted => Value::Absent,
        }
    }

    fn upstream_fact(&self, fact: Fact) -> Value<'_> {
        let record = self.record;
        match fact {
            Fact::Upstream => match record.upstream.as_ref().map(Upstream::address) {
                None => Value::Absent,
                Some(Address::Tcp(address)) => Value::Socket(*address),
                Some(Address::Unix(path)) => Value::Text(path.as_os_str().as_encoded_bytes()),
            },
            Fact::ConnectTime => self.since_start(record.connected),
            Fact::UpstreamTime => match record.connected {
                Some(connected) => Value::Duration(self.ended.saturating_duration_since(connected)),
                None => Value::Absent,
            },
            Fact::Attempts => number((record.attempts > 0).then_some(record.attempts.into())),
            Fact::ConnectFailures => {
                let failures = record.connect_failures;
                number((failures > 0).then_some(failures.into()))
            }
            Fact::Reused if record.is_connection_reused => Value::True,
            Fact::GrpcStatus => number(record.grpc_status.map(u16::from)),
            _ => Value::Absent,
        }
    }

    fn client(&self) -> Value<'_> {
        let remote = || self.record.client.remote.map(|remote| remote.ip());
        match self.record.forwarded_client.or_else(remote) {
            Some(client) => Value::Ip(client),
            // The kernel forgets the address of a connection that was reset.
            None if self.record.client.listener.is_some() => Value::Absent,
            // A client of a unix socket has no address.
            None => Value::Plain("unix"),
        }
    }

    /// The version of HTTP. A failed handshake over TCP has none.
    fn version(&self) -> Option<&'static str> {
        let version = self.record.version;
        let is_known = !self.is_handshake() || version == Version::Http3;
        is_known.then(|| version.as_str())
    }

    fn is_handshake(&self) -> bool {
        matches!(self.record.response.ended, Ended::Handshake(_))
    }

    fn method(&self) -> Value<'_> {
        match self.record.method {
            Method::Other => present(self.noted.method()),
            known => Value::Plain(known.as_str()),
        }
    }

    fn started(&self) -> SystemTime {
        let now = blitz_http::wall_clock();
        now.checked_sub(self.duration).unwrap_or(now)
    }

    fn since_start(&self, time: Option<Instant>) -> Value<'_> {
        time.map_or(Value::Absent, |time| {
            Value::Duration(time.saturating_duration_since(self.record.started))
        })
    }

    fn write(&self, value: &Value<'_>, syntax: Syntax, out: &mut Vec<u8>) {
        match *value {
            Value::Absent => {}
            Value::Number(number) => escape::number(number, out),
            Value::Duration(duration) => {
                escape::number(duration.as_secs(), out);
                out.push(b'.');
                escape::digits(duration.subsec_micros(), 6, out);
            }
            Value::True => out.extend_from_slice(b"true"),
            Value::Text(text) => match syntax {
                Syntax::Json => escape::json(text, out),
                Syntax::Logfmt => escape::logfmt(text, out),
                Syntax::Combined => escape::combined(text, out),
            },
            Value::Plain(_) | Value::Time(_) | Value::Ip(_) | Value::Socket(_) => {
                let is_quoted = syntax == Syntax::Json;
                out.extend(is_quoted.then_some(b'"'));
                self.write_plain(value, out);
                out.extend(is_quoted.then_some(b'"'));
            }
        }
    }

    /// Writes a text that needs no escaping.
    fn write_plain(&self, value: &Value<'_>, out: &mut Vec<u8>) {
        match *value {
            Value::Plain(text) => out.extend_from_slice(text.as_bytes()),
            Value::Time(time) => self.noted.log.timestamps.rfc3339(time, out),
            Value::Ip(address) => escape::ip(address, out),
            Value::Socket(address) => {
                escape::socket(address, out);
            }
            _ => {}
        }
    }
}

/// Adds the line of a request that ends now.
pub(crate) fn add(record: &Record<'_>, noted: &Noted, head: &RequestHead) {
    let (line, log) = (Line::new(record, noted, head), &noted.log);
    let settings = log.log.settings();
    if settings.filter.takes_all() || line.is_wanted(&settings.filter) {
        log.add(|out| match log.log.syntax {
            Syntax::Combined => line.combined(out),
            syntax => line.keyed(&log.log, syntax, out),
        });
    }
}

fn tls_fact(fact: Fact, tls: &TlsInfo) -> Value<'_> {
    match fact {
        Fact::TlsVersion => Value::Plain(tls.version.as_str()),
        Fact::TlsCipher => present(tls.cipher_suite.as_bytes()),
        Fact::TlsGroup => plain(tls.key_exchange),
        Fact::TlsServerName => tls.server_name.as_deref().map_or(Value::Absent, text),
        _ => tls.alpn.as_deref().map_or(Value::Absent, Value::Text),
    }
}

fn present(text: &[u8]) -> Value<'_> {
    match text {
        [] => Value::Absent,
        text => Value::Text(text),
    }
}

fn text(text: &str) -> Value<'_> {
    Value::Text(text.as_bytes())
}

fn plain(text: Option<&'static str>) -> Value<'static> {
    text.map_or(Value::Absent, Value::Plain)
}

fn number(number: Option<u16>) -> Value<'static> {
    number.map_or(Value::Absent, |number| Value::Number(number.into()))
}
