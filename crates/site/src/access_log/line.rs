//! A line of the log.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant, SystemTime};

use blitz_http::{Address, Name, Status, Version};

use super::field::Fact;
use super::filter::NO_RESPONSE;
use super::redaction::{redact_query, redact_url};
use super::syntax::Syntax;
use super::timestamp::Timestamps;
use super::{AccessLog, HeaderName, LogField, NotedHeader, RecordBatch, escape};
use crate::owned_record::OwnedRecord;
use crate::trace::{SpanId, TraceId};

/// Writes lines of records.
#[derive(Debug, Default)]
pub struct LineWriter {
    lines: Vec<u8>,
    timestamps: Timestamps,
    scratch: Vec<u8>,
}

impl LineWriter {
    /// Gives the log of a batch the lines of those records that have one.
    pub fn write(&mut self, batch: &RecordBatch) {
        let Some(log) = &batch.log else { return };
        for record in batch.records.iter().filter(|record| record.is_logged) {
            self.add(batch, record, log);
        }
        if !self.lines.is_empty() {
            self.lines = log.sink.write(std::mem::take(&mut self.lines));
        }
    }

    /// Writes the line that a record of this batch has in a log with the settings of this one.
    pub fn line(&mut self, batch: &RecordBatch, record: &OwnedRecord, log: &AccessLog) -> &[u8] {
        self.lines.clear();
        self.add(batch, record, log);
        &self.lines
    }

    /// Calls `visit` with the values that the line of a record has in a log of this form, each with the position of its
    /// field among those of the log.
    pub fn fields(
        &mut self,
        batch: &RecordBatch,
        record: &OwnedRecord,
        log: &AccessLog,
        mut visit: impl FnMut(usize, FieldValue<'_>),
    ) {
        let mut text = std::mem::take(&mut self.lines);
        let mut line = self.of(batch, record, log);
        for (index, (field, _)) in log.keyed.iter().enumerate() {
            let value = line.value(field);
            let value = match value {
                Value::Absent => continue,
                Value::Number(number) => FieldValue::Number(number),
                Value::Duration(duration) => FieldValue::Duration(duration),
                Value::True => FieldValue::True,
                Value::Text(text) => FieldValue::Text(text),
                _ => {
                    text.clear();
                    line.write_raw(&value, &mut text);
                    FieldValue::Text(&text)
                }
            };
            visit(index, value);
        }
        text.clear();
        self.lines = text;
    }

    fn of<'a>(
        &'a mut self,
        batch: &'a RecordBatch,
        record: &'a OwnedRecord,
        log: &'a AccessLog,
    ) -> Line<'a> {
        Line {
            record,
            log,
            headers: &batch.headers,
            started: batch.wall_clock(record.started),
            timestamps: &mut self.timestamps,
            scratch: &mut self.scratch,
        }
    }

    fn add(&mut self, batch: &RecordBatch, record: &OwnedRecord, log: &AccessLog) {
        let mut lines = std::mem::take(&mut self.lines);
        let mut line = self.of(batch, record, log);
        match log.syntax {
            Syntax::Combined => line.combined(&mut lines),
            _ => line.keyed(&mut lines),
        }
        self.lines = lines;
    }
}

struct Line<'a> {
    record: &'a OwnedRecord,
    log: &'a AccessLog,
    headers: &'a [NotedHeader],
    started: SystemTime,
    timestamps: &'a mut Timestamps,
    scratch: &'a mut Vec<u8>,
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
    /// Path and query.
    Target(&'a [u8], &'a [u8]),
    /// A URL of a peer.
    Url(&'a [u8]),
    Time(SystemTime),
    Ip(IpAddr),
    Socket(SocketAddr),
    TraceId(TraceId),
    SpanId(SpanId),
    True,
}

/// The value of a field, for other forms than lines.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FieldValue<'a> {
    /// A text, perhaps of a client.
    Text(&'a [u8]),
    /// A number.
    Number(u64),
    /// In seconds.
    Duration(Duration),
    /// It holds.
    True,
}

impl<'a> Line<'a> {
    /// Writes a line of fields with their names, without those that have no value.
    fn keyed(&mut self, out: &mut Vec<u8>) {
        let (syntax, start) = (self.log.syntax, out.len());
        for (field, key) in &self.log.keyed {
            let value = self.value(field);
            if !matches!(value, Value::Absent) {
                out.extend_from_slice(key.as_bytes());
                self.write(&value, out);
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

    /// Writes a line in the combined format: the client, a dash for its identity, the user or a dash, the time, the
    /// request line, the status, the bytes of content, `Referer` and `User-Agent`.
    fn combined(&mut self, out: &mut Vec<u8>) {
        self.write_or_dash(&self.fact(Fact::Client), out);
        out.extend_from_slice(b" - ");
        match self.record.user() {
            [] => out.push(b'-'),
            user => escape::combined_word(user, out),
        }
        out.extend_from_slice(b" [");
        self.timestamps.common(self.started, out);
        out.extend_from_slice(b"] \"");
        if self.record.is_handshake {
            out.push(b'-');
        } else {
            self.write_or_dash(&self.fact(Fact::Method), out);
            out.push(b' ');
            self.write_or_dash(&self.fact(Fact::Path), out);
            out.push(b' ');
            out.extend_from_slice(self.record.version.as_str().as_bytes());
        }
        out.extend_from_slice(b"\" ");
        let status = self.record.status;
        escape::number(status.map_or(NO_RESPONSE, Status::code).into(), out);
        out.push(b' ');
        escape::number(self.record.response_bytes, out);
        for (field, _) in &self.log.keyed {
            if let LogField::Header(name) = field {
                out.extend_from_slice(b" \"");
                self.write_or_dash(&self.header(name), out);
                out.push(b'"');
            }
        }
        out.push(b'\n');
    }

    fn value(&self, field: &LogField) -> Value<'a> {
        match field {
            LogField::Fact(fact) => self.fact(*fact),
            LogField::Header(name) => self.header(name),
        }
    }

    fn fact(&self, fact: Fact) -> Value<'a> {
        let record = self.record;
        match fact {
            Fact::Time => Value::Time(self.started),
            Fact::RequestId => present(record.request_id()),
            Fact::Client => self.client(),
            Fact::User => present(record.user()),
            Fact::Method => present(record.method_name()),
            Fact::Scheme => Value::Plain(record.scheme.as_str()),
            Fact::Host => present(record.host()),
            Fact::Path => match (record.path(), record.query()) {
                ([], None) => Value::Absent,
                (path, None) => Value::Text(path),
                (path, Some(query)) => Value::Target(path, query),
            },
            // A failed handshake over TCP has none.
            Fact::Protocol if record.is_handshake && record.version != Version::Http3 => {
                Value::Absent
            }
            Fact::Protocol => Value::Plain(record.version.as_str()),
            Fact::TlsVersion => plain(record.tls.map(|tls| tls.version.as_str())),
            Fact::TlsCipher => {
                let suite = record.tls.map_or("", |tls| tls.cipher_suite);
                present(suite.as_bytes())
            }
            Fact::TlsGroup => plain(record.tls.and_then(|tls| tls.key_exchange)),
            Fact::TlsServerName => present(record.server_name()),
            Fact::TlsAlpn => present(record.alpn()),
            Fact::Status => number(record.status.map(Status::code)),
            Fact::BytesIn => Value::Number(record.request_bytes),
            Fact::BytesOut => Value::Number(record.response_bytes),
            Fact::Duration => self.since_start(Some(record.finished)),
            Fact::FirstByte => self.since_start(record.responded),
            Fact::Site => present(record.site()),
            Fact::Route => present(record.route()),
            Fact::Upstream
            | Fact::ConnectTime
            | Fact::UpstreamTime
            | Fact::Attempts
            | Fact::ConnectFailures
            | Fact::Reused
            | Fact::GrpcStatus => self.upstream_fact(fact),
            Fact::Ended => Value::Plain(record.ended),
            Fact::Cause => plain(record.cause),
            Fact::Rule => plain(record.rule),
            Fact::Omitted if record.omitted > 0 => Value::Number(record.omitted),
            Fact::Omitted => Value::Absent,
            Fact::TraceId => record
                .trace
                .map_or(Value::Absent, |trace| Value::TraceId(trace.trace_id)),
            Fact::SpanId => record
                .trace
                .map_or(Value::Absent, |trace| Value::SpanId(trace.span_id)),
        }
    }

    fn upstream_fact(&self, fact: Fact) -> Value<'a> {
        let record = self.record;
        match fact {
            Fact::Upstream => match &record.upstream {
                None => Value::Absent,
                Some(Address::Tcp(address)) => Value::Socket(*address),
                Some(Address::Unix(path)) => Value::Text(path.as_os_str().as_encoded_bytes()),
            },
            Fact::ConnectTime => self.since_start(record.connected),
            Fact::UpstreamTime => record.connected.map_or(Value::Absent, |connected| {
                Value::Duration(record.finished.saturating_duration_since(connected))
            }),
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

    fn client(&self) -> Value<'a> {
        match self.record.client() {
            Some(client) => Value::Ip(client),
            // The kernel forgets the address of a connection that was reset.
            None if self.record.is_handshake => Value::Absent,
            // A client of a unix socket has no address.
            None => Value::Plain("unix"),
        }
    }

    fn header(&self, name: &HeaderName) -> Value<'a> {
        let index = self.headers.iter().position(|noted| noted.name == *name);
        match index.map_or(&b""[..], |index| self.record.header_at(index)) {
            [] => Value::Absent,
            url if name.is(Name::Referer) => Value::Url(url),
            text => Value::Text(text),
        }
    }

    fn since_start(&self, time: Option<Instant>) -> Value<'a> {
        time.map_or(Value::Absent, |time| {
            Value::Duration(time.saturating_duration_since(self.record.started))
        })
    }

    fn write_or_dash(&mut self, value: &Value<'_>, out: &mut Vec<u8>) {
        match value {
            Value::Absent => out.push(b'-'),
            value => self.write(value, out),
        }
    }

    fn write(&mut self, value: &Value<'_>, out: &mut Vec<u8>) {
        match *value {
            Value::Absent => {}
            Value::Number(number) => escape::number(number, out),
            Value::Duration(duration) => {
                escape::number(duration.as_secs(), out);
                out.push(b'.');
                escape::digits(duration.subsec_micros(), 6, out);
            }
            Value::True => out.extend_from_slice(b"true"),
            Value::Text(text) => self.write_text(text, out),
            Value::Target(..) | Value::Url(_) => self.write_redacted(value, out),
            Value::Plain(_)
            | Value::Time(_)
            | Value::Ip(_)
            | Value::Socket(_)
            | Value::TraceId(_)
            | Value::SpanId(_) => {
                let is_quoted = self.log.syntax == Syntax::Json;
                out.extend(is_quoted.then_some(b'"'));
                self.write_plain(value, out);
                out.extend(is_quoted.then_some(b'"'));
            }
        }
    }

    fn write_text(&self, text: &[u8], out: &mut Vec<u8>) {
        match self.log.syntax {
            Syntax::Json => escape::json(text, out),
            Syntax::Logfmt => escape::logfmt(text, out),
            Syntax::Combined => escape::combined(text, out),
        }
    }

    /// Writes a text as the log's syntax has it.
    fn write_redacted(&mut self, value: &Value<'_>, out: &mut Vec<u8>) {
        let mut text = std::mem::take(self.scratch);
        text.clear();
        self.write_raw(value, &mut text);
        self.write_text(&text, out);
        *self.scratch = text;
    }

    /// Writes a value without escaping.
    fn write_raw(&mut self, value: &Value<'_>, out: &mut Vec<u8>) {
        let redacts_query = self.log.settings.redacts_query;
        match *value {
            Value::Target(path, query) => {
                out.extend_from_slice(path);
                out.push(b'?');
                match redacts_query {
                    true => redact_query(query, out),
                    false => out.extend_from_slice(query),
                }
            }
            Value::Url(url) if redacts_query => redact_url(url, out),
            Value::Url(url) => out.extend_from_slice(url),
            Value::Text(text) => out.extend_from_slice(text),
            _ => self.write_plain(value, out),
        }
    }

    /// Writes a text that needs no escaping.
    fn write_plain(&mut self, value: &Value<'_>, out: &mut Vec<u8>) {
        match *value {
            Value::Plain(text) => out.extend_from_slice(text.as_bytes()),
            Value::Time(time) => self.timestamps.rfc3339(time, out),
            Value::Ip(address) => escape::ip(address, out),
            Value::Socket(address) => escape::socket(address, out),
            // Writing to memory cannot fail.
            Value::TraceId(id) => drop(write!(out, "{id}")),
            Value::SpanId(id) => drop(write!(out, "{id}")),
            _ => {}
        }
    }
}

fn present(text: &[u8]) -> Value<'_> {
    match text {
        [] => Value::Absent,
        text => Value::Text(text),
    }
}

fn plain(text: Option<&'static str>) -> Value<'static> {
    text.map_or(Value::Absent, Value::Plain)
}

fn number(number: Option<u16>) -> Value<'static> {
    number.map_or(Value::Absent, |number| Value::Number(number.into()))
}
