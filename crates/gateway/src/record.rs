//! The record of a request. Counters are derived from it; access logs, metrics and traces can be.
//!
//! Every request has one record, and it is emitted exactly once: when the request ends, or when its
//! future is dropped because the client left.

mod log;

use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use blitz_http::{
    BodyError, BodyLength, Exchange, LogLimit, Method, Peer, RequestHead, Status, Upstream, Version,
};

use crate::counters::{Counters, count};
use crate::proxy_status::Failure;
use crate::rejection::Rejection;
use crate::route::Route;
use crate::trusted::TrustedProxies;

/// What is known of a request when it ends.
#[derive(Clone)]
pub struct Record<'a> {
    /// Time of the turn in which the gateway received the request.
    pub started: Instant,
    /// When the last attempt got its connection.
    pub connected: Option<Instant>,
    /// When the upstream's final response head came.
    pub responded: Option<Instant>,
    /// Method of the client's request.
    pub method: Method,
    /// Version of the client's request.
    pub version: Version,
    /// The client's connection.
    pub client: Rc<Peer>,
    /// The client's address, if a trusted proxy told it and the request was forwarded.
    pub forwarded_client: Option<IpAddr>,
    /// The route that matched.
    pub route: Option<&'a Route>,
    /// Where the last attempt went.
    pub upstream: Option<Upstream>,
    /// How often the request was sent.
    pub attempts: u8,
    /// Addresses to which no connection could be made.
    pub connect_failures: u8,
    /// Whether the connection of the last attempt had carried a request before.
    pub is_connection_reused: bool,
    /// Whether it was sent again (rule 13).
    pub is_retried: bool,
    /// Whether the client got the head of the upstream's response. Otherwise the gateway responded,
    /// or there was no response.
    pub is_relayed: bool,
    /// Whether the connection became a tunnel.
    pub is_tunnel: bool,
    /// Status that was sent to the client.
    pub status: Option<Status>,
    /// Content received from the client, of a tunnel as well.
    pub request_bytes: u64,
    /// Content sent to the client, of a tunnel as well.
    pub response_bytes: u64,
    /// How the request ended.
    pub ended: Ended,
    /// Name of the details of a failure: the rule that the response violates, the reason for which TLS
    /// failed, or the received alert.
    pub rule: Option<&'static str>,
    /// `grpc-status` that the gateway sent in place of the upstream.
    pub grpc_status: Option<u8>,
    /// Declared length of the content that is sent to the client.
    response_length: BodyLength,
    observers: &'a Observers,
}

/// What is told of the records of a gateway, on all cores.
#[derive(Debug, Default)]
pub(crate) struct Observers {
    pub(crate) hook: Option<RecordHook>,
    pub(crate) trusted_proxies: TrustedProxies,
    /// The limit of lines about failures.
    pub(crate) warnings: LogLimit,
}

impl Observers {
    #[inline]
    fn see_all(&self) -> bool {
        self.hook.is_some() || tracing::enabled!(tracing::Level::DEBUG)
    }
}

/// How a request ended.
#[derive(Debug, Clone)]
pub enum Ended {
    /// The response is complete.
    Complete,
    /// No target matched. The built-in site responds, or the gateway with the status of a call; the
    /// record has neither.
    Unrouted,
    /// The gateway rejected the request.
    Rejected(Rejection),
    /// The upstream failed. The client got a status: an HTTP status, or that of a gRPC call, in
    /// trailers if the response had begun and if they were possible.
    Failed(Failure),
    /// The request's content failed: the client left within it, was too slow, or broke the rules.
    RequestContent(BodyError),
    /// The upstream's response ended early, after its head was relayed; or the end of the drain cut the
    /// request off.
    CutOff(Failure),
    /// The client closed its connection or reset its stream before it had the whole response. Also if the
    /// gateway closed the connection because the client read too slowly.
    ClientGone,
}

impl Ended {
    /// Stable name, for logs.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Ended::Complete => "complete",
            Ended::Unrouted => "unrouted",
            Ended::Rejected(_) => "rejected",
            Ended::Failed(_) => "failed",
            Ended::RequestContent(_) => "request-content",
            Ended::CutOff(_) => "cut-off",
            Ended::ClientGone => "client-gone",
        }
    }

    /// Stable name of the cause, if there is one: the rule of a rejection or of invalid content, or the
    /// error in `Proxy-Status`.
    #[must_use]
    pub fn cause(&self) -> Option<&'static str> {
        match self {
            Ended::Rejected(rejection) => Some(rejection.rule()),
            Ended::RequestContent(error) => Some(error.rule()),
            Ended::Failed(failure) | Ended::CutOff(failure) => Some(failure.token()),
            Ended::Complete | Ended::Unrouted | Ended::ClientGone => None,
        }
    }
}

/// A function that is called with each record, on the core of its request, and with the rest of the
/// request's head: the path is the client's, or `/` if it was too long to be kept.
#[derive(Clone)]
pub struct RecordHook(Arc<Hook>);

type Hook = dyn Fn(&Record<'_>, &RequestHead) + Send + Sync;

impl RecordHook {
    /// Calls this function for each record.
    pub fn new(hook: impl Fn(&Record<'_>, &RequestHead) + Send + Sync + 'static) -> RecordHook {
        RecordHook(Arc::new(hook))
    }
}

impl fmt::Debug for RecordHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecordHook")
    }
}

impl<'a> Record<'a> {
    /// The record of a request that begins now.
    #[inline]
    pub(crate) fn new(
        head: &RequestHead,
        client: Rc<Peer>,
        route: Option<&'a Route>,
        observers: &'a Observers,
    ) -> Record<'a> {
        let started = blitz_http::now();
        Record {
            started,
            connected: None,
            responded: None,
            method: head.method,
            version: head.version,
            client,
            forwarded_client: None,
            route,
            upstream: None,
            attempts: 0,
            connect_failures: 0,
            is_connection_reused: false,
            is_retried: false,
            is_relayed: false,
            is_tunnel: false,
            status: None,
            request_bytes: 0,
            response_bytes: 0,
            // Stays if the future is dropped.
            ended: Ended::ClientGone,
            rule: None,
            grpc_status: None,
            response_length: BodyLength::Unknown,
            observers,
        }
    }

    /// Time since the start. Records are seen when their requests end.
    #[must_use]
    pub fn duration(&self) -> Duration {
        blitz_http::now().saturating_duration_since(self.started)
    }

    /// The gateway's own response.
    pub(crate) fn sent_own_response(&mut self, status: Status, content_bytes: usize) {
        self.status = Some(status);
        // A response to HEAD declares its content and does not send it.
        if self.method != Method::Head {
            self.response_bytes = content_bytes as u64;
        }
    }

    /// The head of the upstream's response goes to the client.
    #[inline]
    pub(crate) fn relayed(&mut self, status: Status) {
        self.status = Some(status);
        self.is_relayed = true;
    }

    /// Content of this length follows the head.
    #[inline]
    pub(crate) fn announced(&mut self, length: BodyLength) {
        self.response_length = length;
    }

    /// Whether all content of a response of known length was sent.
    pub(crate) fn has_all_content(&self) -> bool {
        matches!(self.response_length, BodyLength::Known(length) if length == self.response_bytes)
    }

    /// The head that opens a tunnel goes to the client.
    pub(crate) fn opened_tunnel(&mut self, status: Status) {
        self.relayed(status);
        self.is_tunnel = true;
        count(|counters| counters.tunnels += 1);
    }
}

/// Emits the record of a request that has ended. The caller emits no record twice.
#[inline]
pub(crate) fn emit(record: &Record<'_>, head: &RequestHead) {
    let is_plain = record.connect_failures == 0 && !record.is_retried;
    let is_ordinary = is_plain && matches!(record.ended, Ended::Complete);
    count(|counters| add(counters, record, is_ordinary));
    if !is_ordinary {
        log::log_failure(record, head);
    }
    if record.observers.see_all() {
        observe(record, head);
    }
}

/// Emits the record of a request that no target matched. It has only what the gateway knows, since
/// the built-in site answers.
#[inline]
pub(crate) fn emit_unrouted(observers: &Observers, exchange: &Exchange) {
    if observers.see_all() {
        return emit_observed(observers, exchange);
    }
    // The same without a record.
    count(|counters| counters.unrouted += 1);
}

#[cold]
fn emit_observed(observers: &Observers, exchange: &Exchange) {
    let head = &exchange.request;
    let mut record = Record::new(head, Rc::clone(&exchange.peer), None, observers);
    record.ended = Ended::Unrouted;
    emit(&record, head);
}

#[cold]
fn observe(record: &Record<'_>, head: &RequestHead) {
    log::log_end(record, head);
    if let Some(RecordHook(hook)) = &record.observers.hook {
        hook(record, head);
    }
}

#[inline]
fn add(counters: &mut Counters, record: &Record<'_>, is_ordinary: bool) {
    if record.route.is_some() {
        counters.routed += 1;
    }
    if let (true, false, Some(status)) = (record.is_relayed, record.is_tunnel, record.status) {
        let class = usize::from(status.code() / 100).clamp(1, 5);
        counters.responses[class - 1] += 1;
    }
    if !is_ordinary {
        add_rare(counters, record);
    }
}

#[cold]
fn add_rare(counters: &mut Counters, record: &Record<'_>) {
    counters.connect_failures += u64::from(record.connect_failures);
    counters.retries += u64::from(record.is_retried);
    if let Ended::Failed(failure) = record.ended {
        counters.failures[failure as usize] += 1;
    }
    if record.is_relayed {
        counters.cut_off += u64::from(!matches!(record.ended, Ended::Complete));
        return;
    }
    match record.ended {
        Ended::Unrouted => counters.unrouted += 1,
        Ended::Rejected(rejection) => counters.rejections[rejection as usize] += 1,
        Ended::RequestContent(_) => counters.client_faults += 1,
        Ended::Complete | Ended::Failed(_) | Ended::CutOff(_) | Ended::ClientGone => {}
    }
}
