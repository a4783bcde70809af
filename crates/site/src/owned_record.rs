//! Records without borrows: other threads make lines of logs and spans of them.

mod texts;

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use blitz_http::{Address, Method, Name, RequestHead, Scheme, Status, TlsVersion, Version};

use crate::access_log::NotedHeader;
use crate::trace::{TraceContext, TraceEvent, TraceEvents};
use texts::Texts;

pub(crate) use texts::Text;

/// Longest id of a request: that of a rejected one may be invalid.
const ID_MAX: usize = 128;

/// All facts of a request that has ended. Texts that a client has sent are as it has sent them, so whoever writes them
/// escapes them, and leaves out what nobody may read.
#[derive(Debug)]
pub struct OwnedRecord {
    /// As in [`Record`](crate::Record).
    pub started: Instant,
    /// When the request ended.
    pub finished: Instant,
    /// As in [`Record`](crate::Record).
    pub connected: Option<Instant>,
    /// As in [`Record`](crate::Record).
    pub responded: Option<Instant>,
    /// As in [`Record`](crate::Record).
    pub method: Method,
    /// As in [`Record`](crate::Record).
    pub version: Version,
    /// That of the client's connection.
    pub scheme: Scheme,
    /// The address of the client's connection; `None` on a unix socket.
    pub remote: Option<SocketAddr>,
    /// As in [`Record`](crate::Record).
    pub forwarded_client: Option<IpAddr>,
    /// The handshake of the client's connection; `None` in clear text.
    pub tls: Option<TlsFacts>,
    /// Status that was sent to the client.
    pub status: Option<Status>,
    /// As in [`Record`](crate::Record).
    pub request_bytes: u64,
    /// Content sent to the client.
    pub response_bytes: u64,
    /// Where the last attempt went.
    pub upstream: Option<Address>,
    /// Whether connections to it use TLS.
    pub is_upstream_tls: bool,
    /// As in [`Record`](crate::Record).
    pub attempts: u8,
    /// As in [`Record`](crate::Record).
    pub connect_failures: u8,
    /// As in [`Record`](crate::Record).
    pub is_connection_reused: bool,
    /// As in [`Record`](crate::Record).
    pub grpc_status: Option<u8>,
    /// How the request ended: the name of its [`Ended`](crate::Ended).
    pub ended: &'static str,
    /// The name of the cause, if it did not end with a complete response.
    pub cause: Option<&'static str>,
    /// The rule of the [`Record`](crate::Record), or else the name of the failure, if the cause says less.
    pub rule: Option<&'static str>,
    /// As in [`Record`](crate::Record).
    pub omitted: u64,
    /// Whether there was no request, because the handshake failed.
    pub is_handshake: bool,
    /// Whether there was a request, whose head was complete or refused.
    pub is_request: bool,
    /// Whether it has a line in the access log.
    pub is_logged: bool,
    /// Whether it is exported as a log record.
    pub is_exported: bool,
    /// As in [`Record`](crate::Record).
    pub trace: Option<TraceContext>,
    pub(crate) trace_events: TraceEvents,
    texts: Texts,
}

/// The results of a TLS handshake, by their registered names.
#[derive(Debug, Clone, Copy)]
pub struct TlsFacts {
    /// The version.
    pub version: TlsVersion,
    /// The cipher suite; empty if the handshake failed before it was chosen.
    pub cipher_suite: &'static str,
    /// The group of the key exchange.
    pub key_exchange: Option<&'static str>,
}

impl OwnedRecord {
    #[cold]
    pub(crate) fn new() -> Box<OwnedRecord> {
        let now = blitz_http::now();
        Box::new(OwnedRecord {
            started: now,
            finished: now,
            connected: None,
            responded: None,
            method: Method::Other,
            version: Version::Http11,
            scheme: Scheme::Http,
            remote: None,
            forwarded_client: None,
            tls: None,
            status: None,
            request_bytes: 0,
            response_bytes: 0,
            upstream: None,
            is_upstream_tls: false,
            attempts: 0,
            connect_failures: 0,
            is_connection_reused: false,
            grpc_status: None,
            ended: "",
            cause: None,
            rule: None,
            omitted: 0,
            is_handshake: false,
            is_request: true,
            is_logged: false,
            is_exported: false,
            trace: None,
            trace_events: TraceEvents::default(),
            texts: Texts::default(),
        })
    }

    /// Notes the parts of a head: later it is the upstream's, and parts of it are freed.
    pub(crate) fn note(&mut self, head: &RequestHead, headers: &[NotedHeader]) {
        self.texts.note(head, headers);
    }

    /// Notes the id of the request, which this head has.
    #[inline]
    pub(crate) fn note_id(&mut self, head: &RequestHead) {
        if let Some(id) = head.fields.get(Name::XRequestId) {
            self.texts.set(Text::Id, &id[..id.len().min(ID_MAX)]);
        }
    }

    /// Notes the name of the client.
    pub(crate) fn note_user(&mut self, user: &str) {
        self.texts.note_user(user);
    }

    /// Notes path and query of the head that is sent to the upstream.
    pub(crate) fn note_sent(&mut self, head: &RequestHead) {
        self.texts.note_sent(head);
    }

    /// Notes the state of the client's trace.
    pub(crate) fn note_trace_state(&mut self, head: &RequestHead) {
        self.texts.note_trace_state(head);
    }

    #[inline]
    pub(crate) fn set_text(&mut self, text: Text, value: &[u8]) {
        self.texts.set(text, value);
    }

    /// Forgets the texts, so that the next record can use their memory. `None` if they need too much of it.
    pub(crate) fn emptied(mut self: Box<Self>) -> Option<Box<OwnedRecord>> {
        self.texts.clear().then_some(self)
    }

    /// The client: the one that a trusted proxy has told, otherwise that of the connection; `None` on a unix socket.
    #[must_use]
    pub fn client(&self) -> Option<IpAddr> {
        let remote = || self.remote.map(|remote| remote.ip());
        self.forwarded_client.or_else(remote)
    }

    /// The events while a response was sought; only requests that are recorded in a trace have some.
    #[must_use]
    pub fn trace_events(&self) -> &[TraceEvent] {
        self.trace_events.all()
    }

    /// How many of them were too many.
    #[must_use]
    pub fn dropped_trace_events(&self) -> u32 {
        self.trace_events.dropped()
    }

    /// The method.
    #[must_use]
    pub fn method_name(&self) -> &[u8] {
        match self.method {
            Method::Other => self.texts.get(Text::Method),
            known => known.as_str().as_bytes(),
        }
    }

    /// The host of the request with its port. Like each of the texts it is empty if there is none.
    #[must_use]
    pub fn host(&self) -> &[u8] {
        self.texts.get(Text::Host)
    }

    /// The path as it was received, or its beginning.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        self.texts.get(Text::Path)
    }

    /// The query as it was received, or its beginning.
    #[must_use]
    pub fn query(&self) -> Option<&[u8]> {
        self.texts.query()
    }

    /// The value of the field at this place among those that were noted.
    #[must_use]
    pub fn header_at(&self, index: usize) -> &[u8] {
        self.texts.header_at(index)
    }

    /// `X-Request-Id`, the client's or a new one.
    #[must_use]
    pub fn request_id(&self) -> &[u8] {
        self.texts.get(Text::Id)
    }

    /// The name of the client, as policies or its handshake have verified.
    #[must_use]
    pub fn user(&self) -> &[u8] {
        self.texts.get(Text::User)
    }

    /// The name of the site.
    #[must_use]
    pub fn site(&self) -> &[u8] {
        self.texts.get(Text::Site)
    }

    /// The paths of the route as written.
    #[must_use]
    pub fn route(&self) -> &[u8] {
        self.texts.get(Text::Route)
    }

    /// Path and query as they were sent to the upstream, or their beginnings; only requests that are recorded in a trace
    /// have them.
    #[must_use]
    pub fn sent_target(&self) -> &[u8] {
        self.texts.get(Text::SentTarget)
    }

    /// `tracestate` of the client, if its trace is recorded.
    #[must_use]
    pub fn trace_state(&self) -> &[u8] {
        self.texts.get(Text::TraceState)
    }

    /// The server name of the handshake (SNI).
    #[must_use]
    pub fn server_name(&self) -> &[u8] {
        self.texts.get(Text::ServerName)
    }

    /// The protocol of the handshake (ALPN).
    #[must_use]
    pub fn alpn(&self) -> &[u8] {
        self.texts.get(Text::Alpn)
    }
}
