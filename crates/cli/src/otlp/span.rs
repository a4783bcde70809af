//! The spans of a request, with the names of OpenTelemetry's semantic conventions of HTTP.

use std::net::{IpAddr, SocketAddr};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use blitz_gateway::access_log::redact_query;
use blitz_gateway::{OwnedRecord, RecordBatch, SpanId, TraceContext, TraceEvent, TraceEventKind};
use blitz_http::{Address, Method, Status};

use super::protobuf::{Attribute, Message};

/// Fields of `Span`.
const TRACE_ID: u32 = 1;
const SPAN_ID: u32 = 2;
const TRACE_STATE: u32 = 3;
const PARENT_SPAN_ID: u32 = 4;
const NAME: u32 = 5;
const KIND: u32 = 6;
const START: u32 = 7;
const END: u32 = 8;
const ATTRIBUTES: u32 = 9;
const EVENTS: u32 = 11;
const DROPPED_EVENTS: u32 = 12;
const STATUS: u32 = 15;
const FLAGS: u32 = 16;

/// Values of `kind`.
const SERVER: u64 = 2;
const CLIENT: u64 = 3;

/// In `flags`: it is known whether the parent is of another process, and it is.
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// The code of a `Status`.
const ERROR: u64 = 2;

/// The value of a method that is not registered.
const OTHER_METHOD: &str = "_OTHER";

/// A request whose spans are written.
pub(super) struct Spans<'a> {
    pub(super) batch: &'a RecordBatch,
    pub(super) record: &'a OwnedRecord,
    pub(super) trace: TraceContext,
    pub(super) redacts_query: bool,
}

impl Spans<'_> {
    /// The span of the request.
    pub(super) fn server(&self) -> Vec<u8> {
        let record = self.record;
        let mut span = Message::default();
        let flags = u32::from(self.trace.flags);
        let (parent, flags) = match self.trace.parent {
            Some(parent) => (Some(parent), flags | HAS_IS_REMOTE | IS_REMOTE),
            None => (None, flags | HAS_IS_REMOTE),
        };
        self.begin(&mut span, self.trace.span_id, parent, flags);
        span.text(NAME, &name(record, true));
        span.number(KIND, SERVER);
        self.times(&mut span, record.started, record.finished);
        self.method(&mut span);
        self.url(&mut span);
        self.client(&mut span);
        let mut add = |key: &str, value: Attribute<'_>| span.attribute(ATTRIBUTES, key, value);
        if !record.route().is_empty() {
            add("http.route", Attribute::Bytes(record.route()));
        }
        if !record.site().is_empty() {
            add("blitz.site", Attribute::Bytes(record.site()));
        }
        if !record.request_id().is_empty() {
            let id = Attribute::Listed(record.request_id());
            add("http.request.header.x-request-id", id);
        }
        if let Some(user_agent) = user_agent(self.batch, record) {
            add("user_agent.original", Attribute::Bytes(user_agent));
        }
        let bytes = [
            ("http.request.body.size", record.request_bytes),
            ("http.response.body.size", record.response_bytes),
        ];
        for (key, count) in bytes.into_iter().filter(|(_, count)| *count > 0) {
            add(key, Attribute::Number(count));
        }
        if let Some(code) = record.grpc_status {
            add("rpc.grpc.status_code", Attribute::Number(code.into()));
        }
        if record.ended != "complete" {
            add("blitz.ended", Attribute::Text(record.ended));
        }
        if let Some(rule) = record.rule {
            add("blitz.rule", Attribute::Text(rule));
        }
        end(&mut span, record.status, server_error(record).as_deref());
        span.into_bytes()
    }

    /// The span of the request to its upstream, with all attempts; `None` if there was none.
    pub(super) fn client_span(&self) -> Option<Vec<u8>> {
        let record = self.record;
        if record.attempts == 0 && record.connect_failures == 0 {
            return None;
        }
        let mut span = Message::default();
        let flags = u32::from(self.trace.flags) | HAS_IS_REMOTE;
        let trace = &self.trace;
        self.begin(&mut span, trace.client_span_id, Some(trace.span_id), flags);
        span.text(NAME, &name(record, false));
        span.number(KIND, CLIENT);
        self.times(&mut span, contacted(record), record.finished);
        self.method(&mut span);
        if let Some(url) = self.sent_url() {
            span.attribute(ATTRIBUTES, "url.full", Attribute::Bytes(&url));
        }
        if let Some(address) = &record.upstream {
            add_address(
                &mut span,
                ATTRIBUTES,
                address,
                "server.address",
                "server.port",
            );
            let (peer, port) = ("network.peer.address", "network.peer.port");
            add_address(&mut span, ATTRIBUTES, address, peer, port);
        }
        let sent_again = record.attempts.saturating_sub(1);
        if sent_again > 0 {
            let count = Attribute::Number(sent_again.into());
            span.attribute(ATTRIBUTES, "http.request.resend_count", count);
        }
        for event in record.trace_events() {
            self.event(&mut span, event);
        }
        if record.dropped_trace_events() > 0 {
            span.number(DROPPED_EVENTS, record.dropped_trace_events().into());
        }
        let status = record.status.filter(|_| record.responded.is_some());
        end(&mut span, status, client_error(record).as_deref());
        Some(span.into_bytes())
    }

    fn begin(&self, span: &mut Message, id: SpanId, parent: Option<SpanId>, flags: u32) {
        span.bytes(TRACE_ID, &self.trace.trace_id.bytes());
        span.bytes(SPAN_ID, &id.bytes());
        if let Some(parent) = parent {
            span.bytes(PARENT_SPAN_ID, &parent.bytes());
        }
        if !self.record.trace_state().is_empty() {
            span.text(TRACE_STATE, self.record.trace_state());
        }
        span.fixed32(FLAGS, flags);
    }

    fn times(&self, span: &mut Message, start: Instant, end: Instant) {
        span.fixed64(START, unix_nanos(self.batch.wall_clock(start)));
        span.fixed64(END, unix_nanos(self.batch.wall_clock(end)));
    }

    fn method(&self, span: &mut Message) {
        let key = "http.request.method";
        match self.record.method {
            Method::Other => {
                span.attribute(ATTRIBUTES, key, Attribute::Text(OTHER_METHOD));
                let original = Attribute::Bytes(self.record.method_name());
                span.attribute(ATTRIBUTES, "http.request.method_original", original);
            }
            known => span.attribute(ATTRIBUTES, key, Attribute::Text(known.as_str())),
        }
    }

    fn url(&self, span: &mut Message) {
        let record = self.record;
        let mut add = |key: &str, value: Attribute<'_>| span.attribute(ATTRIBUTES, key, value);
        add("url.scheme", Attribute::Text(record.scheme.as_str()));
        add("url.path", Attribute::Bytes(record.path()));
        if let Some(query) = record.query() {
            let mut redacted = Vec::new();
            let query = match self.redacts_query {
                true => {
                    redact_query(query, &mut redacted);
                    &redacted[..]
                }
                false => query,
            };
            add("url.query", Attribute::Bytes(query));
        }
        let (host, port) = host_and_port(record.host());
        if !host.is_empty() {
            add("server.address", Attribute::Bytes(host));
        }
        if let Some(port) = port {
            add("server.port", Attribute::Number(port.into()));
        }
        let version = record.version.as_str();
        let version = version.strip_prefix("HTTP/").unwrap_or(version);
        add("network.protocol.version", Attribute::Text(version));
    }

    /// The URL of the request to the upstream, at its address. A unix socket has none, so that it is the client's host.
    fn sent_url(&self) -> Option<Vec<u8>> {
        let record = self.record;
        let mut url = match record.is_upstream_tls {
            true => b"https://".to_vec(),
            false => b"http://".to_vec(),
        };
        match record.upstream.as_ref()? {
            Address::Tcp(address) => {
                let address = SocketAddr::new(address.ip().to_canonical(), address.port());
                url.extend(address.to_string().into_bytes());
            }
            Address::Unix(_) if record.host().is_empty() => return None,
            Address::Unix(_) => url.extend(record.host()),
        }
        let target = record.sent_target();
        let mark = target.iter().position(|byte| *byte == b'?');
        match mark.filter(|_| self.redacts_query) {
            Some(mark) => {
                url.extend(&target[..=mark]);
                redact_query(&target[mark + 1..], &mut url);
            }
            None => url.extend(target),
        }
        Some(url)
    }

    fn client(&self, span: &mut Message) {
        let mut add_ip = |key: &str, ip: IpAddr| {
            let ip = ip.to_canonical().to_string();
            span.attribute(ATTRIBUTES, key, Attribute::Text(&ip));
        };
        if let Some(ip) = self.record.client() {
            add_ip("client.address", ip);
        }
        if let Some(remote) = self.record.remote {
            add_ip("network.peer.address", remote.ip());
            let port = Attribute::Number(remote.port().into());
            span.attribute(ATTRIBUTES, "network.peer.port", port);
        }
    }

    fn event(&self, span: &mut Message, event: &TraceEvent) {
        let (name, cause) = match event.kind {
            TraceEventKind::Contact => return,
            TraceEventKind::ConnectFailure(cause) => ("connect failure", cause),
            TraceEventKind::Retry(cause) => ("retry", cause),
        };
        span.message(EVENTS, |message| {
            message.fixed64(1, unix_nanos(self.batch.wall_clock(event.time)));
            message.bytes(2, name.as_bytes());
            message.attribute(3, "error.type", Attribute::Text(cause));
            if let Some(address) = &event.address {
                let (peer, port) = ("network.peer.address", "network.peer.port");
                add_address(message, 3, address, peer, port);
            }
        });
    }
}

/// `GET /path` for the request, `GET` for that to the upstream: names must not be as many as the paths.
fn name(record: &OwnedRecord, has_route: bool) -> Vec<u8> {
    let method = match record.method {
        Method::Other => "HTTP",
        known => known.as_str(),
    };
    let mut name = method.as_bytes().to_vec();
    if has_route && !record.route().is_empty() {
        name.push(b' ');
        name.extend_from_slice(record.route());
    }
    name
}

/// Writes the status of the response, and the error of the span.
fn end(span: &mut Message, status: Option<Status>, error: Option<&str>) {
    if let Some(status) = status {
        let code = Attribute::Number(status.code().into());
        span.attribute(ATTRIBUTES, "http.response.status_code", code);
    }
    if let Some(error) = error {
        span.attribute(ATTRIBUTES, "error.type", Attribute::Text(error));
        span.message(STATUS, |status| status.number(3, ERROR));
    }
}

/// Whether the server's side ended the request early.
fn has_failed(record: &OwnedRecord) -> bool {
    matches!(record.ended, "failed" | "cut-off" | "aborted")
}

/// The error of a server: statuses from 500 on, and responses that ended early. Those of clients are none.
fn server_error(record: &OwnedRecord) -> Option<String> {
    let code = record.status.map(Status::code).filter(|code| *code >= 500);
    if code.is_none() && !has_failed(record) {
        return None;
    }
    let cause = record.cause.map(str::to_owned);
    let code = code.map(|code| code.to_string());
    cause.or(code).or_else(|| Some(record.ended.to_owned()))
}

/// The error of a client: statuses from 400 on as well.
fn client_error(record: &OwnedRecord) -> Option<String> {
    if matches!(record.ended, "failed" | "cut-off") {
        return record.cause.map(str::to_owned);
    }
    let status = record.status.filter(|_| record.responded.is_some());
    let code = status.map(Status::code).filter(|code| *code >= 400);
    code.map(|code| code.to_string())
}

/// When the upstream was sought first.
fn contacted(record: &OwnedRecord) -> Instant {
    let events = record.trace_events().iter();
    let mut contacts = events.filter(|event| event.kind == TraceEventKind::Contact);
    contacts.next().map_or(record.started, |event| event.time)
}

fn add_address(span: &mut Message, field: u32, address: &Address, key: &str, port_key: &str) {
    match address {
        Address::Tcp(address) => {
            let ip = address.ip().to_canonical().to_string();
            span.attribute(field, key, Attribute::Text(&ip));
            span.attribute(field, port_key, Attribute::Number(address.port().into()));
        }
        Address::Unix(path) => {
            let path = path.as_os_str().as_encoded_bytes();
            span.attribute(field, key, Attribute::Bytes(path));
        }
    }
}

/// `User-Agent`, if it was noted.
fn user_agent<'a>(batch: &RecordBatch, record: &'a OwnedRecord) -> Option<&'a [u8]> {
    let is_user_agent = |name: &str| name.eq_ignore_ascii_case("User-Agent");
    let mut headers = batch.headers.iter();
    let index = headers.position(|noted| is_user_agent(noted.name.as_str()))?;
    Some(record.header_at(index)).filter(|value| !value.is_empty())
}

/// The parts of `Host`, an address of IPv6 without its brackets.
fn host_and_port(authority: &[u8]) -> (&[u8], Option<u16>) {
    let (host, port) = match authority.iter().rposition(|byte| *byte == b':') {
        Some(colon) if authority.last() != Some(&b']') => {
            (&authority[..colon], Some(&authority[colon + 1..]))
        }
        _ => (authority, None),
    };
    let inner = host.strip_prefix(b"[");
    let inner = inner.and_then(|host| host.strip_suffix(b"]"));
    let port = port.and_then(|port| std::str::from_utf8(port).ok());
    (
        inner.unwrap_or(host),
        port.and_then(|port| port.parse().ok()),
    )
}

pub(super) fn unix_nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_ports_and_brackets() {
        for (authority, host, port) in [
            ("app.example", "app.example", None),
            ("app.example:81", "app.example", Some(81)),
            ("[::1]:443", "::1", Some(443)),
            ("[::1]", "::1", None),
            ("a:", "a", None),
            ("", "", None),
        ] {
            assert_eq!(host_and_port(authority.as_bytes()), (host.as_bytes(), port));
        }
    }
}
