//! The record of a request. Counters, metrics, the access log and the spans of traces are derived from it.
//!
//! Every request has one record, and it is emitted exactly once: when the request ends, or when its
//! future is dropped because the client left.

pub(crate) mod leave;
pub(crate) mod log;
pub(crate) mod measure;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use blitz_http::{
    BodyError, BodyLength, Drain, Fields, LogLimit, Method, Peer, Pooled, RequestHead, Status,
    Upstream, Version,
};

use crate::access_log::AccessLog;
use crate::counters::count;
use crate::failure::Failure;
use crate::metrics::RouteLabel;
use crate::policy::{Identity, NoDecision, Notes};
use crate::recorder::{BegunRecord, RecordSink, Recorder, Wanted};
use crate::rejection::Rejection;
use crate::trace::{TraceContext, TraceEvent, TraceEventKind, TraceEvents, TraceSettings};

/// The record of a request, complete when the request ends.
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
    /// The site that has the request's host; `None` if none has, or if there are no sites.
    pub site: Option<&'a str>,
    /// The route that matched.
    pub route: Option<&'a dyn RouteName>,
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
    /// Content received from the client, of a tunnel as well. That for an app is what the app has read, and for a fixed
    /// response what came in one piece with the head; both are counted only if records are observed.
    pub request_bytes: u64,
    /// The response to the client.
    pub response: ResponseRecord,
    /// Name of the details of a failure: the rule that the response violates, the reason for which TLS
    /// failed, or the received alert.
    pub rule: Option<&'static str>,
    /// `grpc-status` that the gateway sent in place of the upstream.
    pub grpc_status: Option<u8>,
    /// Failed handshakes or incomplete heads with the same cause that have no record, because there were too many since
    /// the last that has.
    pub omitted: u64,
    /// Its place in a trace; `None` if requests take part in none.
    pub trace: Option<TraceContext>,
    pub(crate) trace_events: TraceEvents,
    pub(crate) observers: &'a Observers,
    /// The part that leaves the core when the request ends; `None` if nobody wants it.
    pub(crate) begun: Option<BegunRecord>,
}

/// The response to a client, and its end.
#[derive(Debug, Clone)]
pub struct ResponseRecord {
    /// Status that was sent to the client.
    pub status: Option<Status>,
    /// Content sent to the client, of a tunnel as well. That of a streamed response of an app is counted only if
    /// records are observed.
    pub bytes: u64,
    /// Declared length of the content.
    length: BodyLength,
    /// How the request ended.
    pub ended: Ended,
    /// Whether the client got the head of the upstream's response. Otherwise something else responded, or there was no
    /// response.
    pub is_relayed: bool,
    /// Whether the connection became a tunnel.
    pub is_tunnel: bool,
    /// A response to HEAD declares its content and does not send it.
    has_no_content: bool,
    pub(crate) is_observed: bool,
}

/// A route as records name it.
pub trait RouteName {
    /// Its paths as written.
    fn name(&self) -> &str;
    /// The URL of its upstream; `None` if it has none.
    fn upstream(&self) -> Option<String>;
    /// Whether its requests have lines in the access log.
    fn is_logged(&self) -> bool {
        true
    }
    /// Why its authorizer gave no decision on the request.
    fn no_decision(&self) -> Option<&NoDecision> {
        None
    }
    /// Why it refused the token of the request.
    fn reason(&self) -> Option<&str> {
        None
    }
    /// The number of its texts in metrics.
    fn label(&self) -> RouteLabel;
}

/// The receivers of the records of a gateway, on all cores.
pub struct Observers {
    pub(crate) hook: Option<RecordHook>,
    told_client: ToldClient,
    dropped_lines: fn() -> u64,
    sink: Option<Arc<dyn RecordSink>>,
    /// The limit of lines about failures.
    warnings: LogLimit,
    /// The limit of records of failed handshakes, and of incomplete heads.
    pub(crate) without_request: LogLimit,
}

/// Tells the client that a trusted proxy has named, from the fields of a request and the address of its connection.
pub type ToldClient = Box<dyn Fn(&Fields, Option<SocketAddr>) -> Option<IpAddr> + Send + Sync>;

impl Observers {
    /// Observers whose hook receives all records. `dropped_lines` counts log lines that were dropped.
    pub fn new(
        hook: Option<RecordHook>,
        told_client: ToldClient,
        dropped_lines: fn() -> u64,
    ) -> Observers {
        Observers {
            hook,
            told_client,
            dropped_lines,
            sink: None,
            warnings: LogLimit::new(),
            without_request: LogLimit::new(),
        }
    }

    /// The same, and this sink takes the records. Without one each core writes the lines of the access log.
    #[must_use]
    pub fn with_sink(mut self, sink: Option<Arc<dyn RecordSink>>) -> Observers {
        self.sink = sink;
        self
    }

    /// Whether somebody is told of every request, beside the access log.
    #[inline]
    pub(crate) fn see_all(&self) -> bool {
        self.hook.is_some() || tracing::enabled!(tracing::Level::DEBUG)
    }
}

/// The observers on one core.
pub struct CoreObservers {
    shared: Arc<Observers>,
    recorder: Option<Rc<Recorder>>,
    tracing: Option<TraceSettings>,
}

impl CoreObservers {
    /// The observers of a core. With the access log that the core had `before` it continues.
    #[must_use]
    pub fn new(
        shared: &Arc<Observers>,
        log: Option<&Arc<AccessLog>>,
        tracing: Option<TraceSettings>,
        before: Option<&CoreObservers>,
    ) -> CoreObservers {
        let before = before.and_then(|before| before.recorder.as_ref());
        let is_traced = tracing.is_some();
        let recorder = match before.filter(|before| before.is_for(log, is_traced)) {
            Some(same) => Some(Rc::clone(same)),
            None => Recorder::new(log, shared.sink.as_ref(), is_traced),
        };
        CoreObservers {
            shared: Arc::clone(shared),
            recorder,
            tracing,
        }
    }

    /// The observers without a core.
    #[must_use]
    pub fn shared(&self) -> &Arc<Observers> {
        &self.shared
    }

    /// Whether somebody wants the record of a failed handshake that took so long.
    pub(crate) fn see_handshake(&self, duration: Duration) -> bool {
        let exports = self.tracing.is_some_and(|tracing| tracing.logs);
        let recorder = self.recorder.as_ref();
        recorder.is_some_and(|recorder| recorder.wants_handshake(duration, exports))
    }

    /// Whether somebody wants the record of an incomplete head whose connection ended after this time.
    pub(crate) fn see_incomplete_head(&self, duration: Duration) -> bool {
        let exports = self.tracing.is_some_and(|tracing| tracing.logs);
        let recorder = self.recorder.as_ref();
        recorder.is_some_and(|recorder| recorder.wants_unanswered(duration, exports))
    }

    /// The beginning of the record that leaves the core; `None` if nobody wants it.
    #[inline]
    fn begin(
        &self,
        route: Option<&dyn RouteName>,
        trace: Option<&TraceContext>,
        head: &RequestHead,
    ) -> Option<BegunRecord> {
        let recorder = self.recorder.as_ref()?;
        let has_log = recorder.has_log();
        let exports = self.tracing.is_some_and(|tracing| tracing.logs);
        let is_logged = (has_log || exports) && route.is_none_or(RouteName::is_logged);
        let is_sampled = trace.is_some_and(TraceContext::is_sampled);
        let wanted = Wanted {
            by_log: has_log && is_logged,
            by_export: exports && is_logged,
            by_others: recorder.is_followed() || is_sampled,
        };
        let mut begun = BegunRecord::new(recorder, wanted, head);
        if is_sampled && trace.is_some_and(|trace| trace.parent.is_some()) {
            begun
                .iter_mut()
                .for_each(|begun| begun.note_trace_state(head));
        }
        begun
    }
}

/// How a request ended, or a connection before its first request.
#[derive(Debug, Clone)]
pub enum Ended {
    /// The response is complete.
    Complete,
    /// The request was rejected.
    Rejected(Rejection),
    /// The server refused the request for this rule, before a site saw it.
    Refused(&'static str),
    /// There was no request, because the handshake failed for this cause.
    Handshake(&'static str),
    /// The connection ended within the head of the request, for this cause.
    IncompleteHead(&'static str),
    /// The upstream failed. The client got a status: an HTTP status, or that of a gRPC call, in
    /// trailers if the response had begun and if they were possible.
    Failed(Failure),
    /// The request's content failed: the client left within it, was too slow, or broke the rules.
    RequestContent(BodyError),
    /// The upstream's response ended early, after its head was relayed; or the end of the drain cut the
    /// request off.
    CutOff(Failure),
    /// An app gave its response up after the head.
    Aborted,
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
            Ended::Rejected(_) => "rejected",
            Ended::Refused(_) => "refused",
            Ended::Handshake(_) => "handshake",
            Ended::IncompleteHead(_) => "incomplete-head",
            Ended::Failed(_) => "failed",
            Ended::RequestContent(_) => "request-content",
            Ended::CutOff(_) => "cut-off",
            Ended::Aborted => "aborted",
            Ended::ClientGone => "client-gone",
        }
    }

    /// Stable name of the cause, if there is one: the rule of a rejection or of invalid content, or the
    /// error in `Proxy-Status`.
    #[must_use]
    pub fn cause(&self) -> Option<&'static str> {
        match self {
            Ended::Rejected(rejection) => Some(rejection.rule()),
            Ended::Refused(cause) | Ended::Handshake(cause) | Ended::IncompleteHead(cause) => {
                Some(cause)
            }
            Ended::RequestContent(error) => Some(error.rule()),
            Ended::Failed(failure) | Ended::CutOff(failure) => Some(failure.token()),
            Ended::Complete | Ended::Aborted | Ended::ClientGone => None,
        }
    }

    /// Stable name of the failure, if the cause says less.
    #[must_use]
    pub fn rule(&self) -> Option<&'static str> {
        match self {
            Ended::Failed(failure) | Ended::CutOff(failure) => failure.rule(),
            _ => None,
        }
    }
}

/// A function that is called with each record, on the core of its request, and with the rest of the
/// request's head: the path is the client's, or `/` if it was too long to be kept. Of a request that was refused before
/// its request line was complete, method and path are empty.
#[derive(Clone)]
pub struct RecordHook(pub(crate) Arc<Hook>);

pub(crate) type Hook = dyn Fn(&Record<'_>, &RequestHead) + Send + Sync;

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
    #[inline(always)]
    pub fn new(
        head: &RequestHead,
        client: Rc<Peer>,
        site: Option<&'a str>,
        route: Option<&'a dyn RouteName>,
        observers: &'a CoreObservers,
    ) -> Record<'a> {
        count(|counters| counters.in_flight += 1);
        let tracing = observers.tracing;
        let trace = tracing.map(|tracing| tracing.begin(&head.fields));
        let begun = observers.begin(route, trace.as_ref(), head);
        let is_observed = begun.is_some();
        // A literal as the last expression is made where the record stays, and is not moved.
        Record {
            started: blitz_http::now(),
            connected: None,
            responded: None,
            method: head.method,
            version: head.version,
            forwarded_client: match is_observed {
                true => (observers.shared.told_client)(&head.fields, client.remote),
                false => None,
            },
            client,
            site,
            route,
            upstream: None,
            attempts: 0,
            connect_failures: 0,
            is_connection_reused: false,
            is_retried: false,
            request_bytes: 0,
            response: ResponseRecord::new(head.method == Method::Head, is_observed),
            rule: None,
            grpc_status: None,
            omitted: 0,
            trace,
            trace_events: TraceEvents::default(),
            observers: &observers.shared,
            begun,
        }
    }

    /// The request began before its policies waited, which may know its user.
    #[inline]
    pub fn begin_with(&mut self, notes: Option<&Notes<'_>>) {
        let Some(notes) = notes else { return };
        if let Some(started) = notes.started {
            self.started = started;
        }
        if let Some(begun) = &mut self.begun {
            let subject = || self.client.client_certificate()?.subject();
            if let Some(user) = Identity::user(&notes.identities).or_else(subject) {
                begun.note_user(user);
            }
        }
    }

    /// Whether somebody is told of this request when it has ended.
    #[inline]
    #[must_use]
    pub fn is_observed(&self) -> bool {
        self.response.is_observed || self.observers.see_all()
    }

    /// The part of this head that logs and hooks show when the request has ended; `None` if nobody is told.
    #[inline]
    pub(crate) fn observe(&mut self, head: &Pooled<RequestHead>) -> Option<Pooled<RequestHead>> {
        if self.observers.see_all() {
            self.response.is_observed = true;
            self.forwarded_client = (self.observers.told_client)(&head.fields, self.client.remote);
            return Some(head.reduced());
        }
        if let Some(begun) = &mut self.begun {
            begun.note_id(head);
        }
        None
    }

    /// Notes that the upstream is sought now, to which this head is sent.
    #[inline]
    pub fn note_contact(&mut self, head: &RequestHead) {
        if self.is_sampled() {
            self.note_sampled_contact(head);
        }
    }

    #[inline(never)]
    fn note_sampled_contact(&mut self, head: &RequestHead) {
        // In the turn in which the request was received the time need not be said.
        if blitz_http::now() != self.started {
            self.add_event(TraceEventKind::Contact);
        }
        if let Some(begun) = &mut self.begun {
            begun.note_sent(head);
        }
    }

    /// Notes that no connection to the address of the upstream could be made, for this reason.
    pub fn note_connect_failure(&mut self, cause: &'static str) {
        if self.is_sampled() {
            self.add_event(TraceEventKind::ConnectFailure(cause));
        }
    }

    /// Notes that the request is sent again, as the last attempt has failed for this reason.
    pub fn note_retry(&mut self, cause: &'static str) {
        if self.is_sampled() {
            self.add_event(TraceEventKind::Retry(cause));
        }
    }

    /// Whether its spans are recorded.
    #[inline]
    fn is_sampled(&self) -> bool {
        self.trace.as_ref().is_some_and(TraceContext::is_sampled)
    }

    #[cold]
    fn add_event(&mut self, kind: TraceEventKind) {
        self.trace_events.add(TraceEvent {
            time: blitz_http::now(),
            kind,
            address: self.upstream.as_ref().map(Upstream::address).cloned(),
        });
    }

    /// Time since the start. Records are seen when their requests end.
    #[must_use]
    pub fn duration(&self) -> Duration {
        blitz_http::now().saturating_duration_since(self.started)
    }
}

impl ResponseRecord {
    #[inline]
    fn new(has_no_content: bool, is_observed: bool) -> ResponseRecord {
        ResponseRecord {
            status: None,
            bytes: 0,
            length: BodyLength::Unknown,
            // Stays if the future is dropped.
            ended: Ended::ClientGone,
            is_relayed: false,
            is_tunnel: false,
            has_no_content,
            is_observed,
        }
    }

    /// A complete response was sent.
    #[inline]
    pub(crate) fn sent(&mut self, status: Status, content_bytes: usize) {
        self.status = Some(status);
        if self.is_relayed {
            // The request may still have an end of its own.
            self.bytes = content_bytes as u64;
            return;
        }
        if !self.has_no_content {
            self.bytes = content_bytes as u64;
        }
        self.ended = Ended::Complete;
    }

    /// A complete response of the upstream was sent. The request may still have an end of its own.
    #[inline]
    pub(crate) fn relayed(&mut self, status: Status, content_bytes: usize) {
        self.status = Some(status);
        self.is_relayed = true;
        self.bytes = content_bytes as u64;
    }

    /// A head was sent that content of this length follows.
    #[inline]
    pub(crate) fn started(&mut self, status: Status, length: BodyLength) {
        self.status = Some(status);
        self.length = length;
    }

    /// The head that opens a tunnel goes to the client.
    pub(crate) fn opened_tunnel(&mut self, status: Status) {
        self.status = Some(status);
        self.is_relayed = true;
        self.is_tunnel = true;
        count(|counters| counters.tunnels += 1);
    }

    /// The server responds to a request whose content failed.
    pub fn failed_content(&mut self, error: BodyError) {
        self.status = Some(error.status());
        self.ended = Ended::RequestContent(error);
    }

    /// How the request ended, if its future was dropped although the client has a response.
    #[inline]
    pub fn find_end(&mut self) {
        if matches!(self.ended, Ended::ClientGone) {
            self.find_early_end();
        }
    }

    #[cold]
    fn find_early_end(&mut self) {
        if self.status.is_some() && self.has_all_content() {
            // An HTTP/2 upstream may end the response after its last byte, and the client need not wait.
            self.ended = Ended::Complete;
        } else if Drain::of_core().is_over() {
            self.ended = Ended::CutOff(Failure::DrainEnded);
        }
    }

    /// Whether all content of a response of known length was sent.
    fn has_all_content(&self) -> bool {
        matches!(self.length, BodyLength::Known(length) if length == self.bytes)
    }
}
