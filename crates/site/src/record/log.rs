//! Log lines of requests, made from their records.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use blitz_http::{Address, Name, RequestHead, Status, Upstream, log_text};

use super::{Ended, Record, RouteName};
use crate::failure::Failure;
use crate::failures::{self, Occurrence, Unauthorized};
use crate::policy::{AuthorizerAttempt, NoDecision};

/// Longest id in a line: a rejected request may still have one that is not valid.
const ID_MAX: usize = 128;

/// Logs the end of a request at DEBUG.
pub(crate) fn log_end(record: &Record<'_>, head: &RequestHead) {
    tracing::debug!(
        request_id = request_id(head),
        client = client(record, head).map(tracing::field::display),
        protocol = record.version.as_str(),
        method = log_text::method(head),
        host = log_text::host(head),
        path = %log_text::path(head),
        status = record.response.status.map(Status::code),
        upstream = record.route.and_then(RouteName::upstream),
        address = record.upstream.as_ref().map(address),
        attempts = record.attempts,
        request_bytes = record.request_bytes,
        response_bytes = record.response.bytes,
        duration = %Seconds(record.duration()),
        ended = record.response.ended.as_str(),
        cause = record.response.ended.cause(),
        reason = record.route.and_then(RouteName::reason),
        "request ended"
    );
}

/// Logs a failure at WARN: a response of the gateway's own with 5xx or for a failed call, and a
/// response that was cut off. At most ten lines a second of each cause and route.
#[cold]
pub(crate) fn log_failure(record: &Record<'_>, head: &RequestHead) {
    let Some(cause) = cause(record) else { return };
    note(record, head, cause);
    if !tracing::enabled!(tracing::Level::WARN) {
        return;
    }
    let route = record.route.map_or("", RouteName::name);
    let (limit, now) = (&record.observers.warnings, blitz_http::now());
    let Some(omitted) = limit.allow(cause, route, now) else {
        return;
    };
    let dropped = (record.observers.dropped_lines)();
    write_failure(record, head, cause, omitted);
    // Perhaps it was another core's line that was dropped: rather one too many than one too few.
    if (record.observers.dropped_lines)() != dropped {
        limit.add_omitted(cause, route, now, omitted + 1);
    }
}

/// Counts the failure for operators who ask, also where the limit of lines or the level leaves its line out.
fn note(record: &Record<'_>, head: &RequestHead, cause: &'static str) {
    let kind = failures::Kind {
        cause,
        site: record.site,
        route: record.route.map(RouteName::name),
    };
    let occurrence = Occurrence {
        at: blitz_http::now(),
        status: record.response.status,
        grpc_status: record.grpc_status,
        address: failed_address(record).cloned(),
        phase: phase(record),
        rule: rule(record),
        certificate: refused_certificate(record),
        authorizer: no_decision(record).map(Unauthorized::of),
        request_id: failures::kept_id(request_id(head)),
    };
    let upstream = || failed_upstream(record);
    failures::note(kind, upstream, occurrence);
}

fn write_failure(record: &Record<'_>, head: &RequestHead, cause: &'static str, omitted: u64) {
    let since = |time: Option<Instant>| {
        time.map(|time| tracing::field::display(Seconds(time.duration_since(record.started))))
    };
    let message = match record.response.is_relayed {
        true => "response cut off",
        false => "request failed",
    };
    let certificate = refused_certificate(record);
    let certificate = certificate.as_deref();
    let why = no_decision(record);
    let attempt = why.map(|why| &why.attempt);
    tracing::warn!(
        request_id = request_id(head),
        client = client(record, head).map(tracing::field::display),
        protocol = record.version.as_str(),
        method = log_text::method(head),
        host = log_text::host(head),
        path = %log_text::path(head),
        status = record.response.status.map(Status::code),
        grpc_status = record.grpc_status,
        route = record.route.map(RouteName::name),
        upstream = failed_upstream(record),
        authorizer = why.map(|why| &*why.authorizer),
        address = failed_address(record).map(ToString::to_string),
        phase = phase(record),
        cause,
        rule = rule(record),
        authorizer_status = attempt.and_then(|one| one.status).map(Status::code),
        problem = attempt.and_then(AuthorizerAttempt::problem),
        certificate,
        attempts = record.attempts,
        connected = since(record.connected),
        responded = since(record.responded),
        duration = %Seconds(record.duration()),
        omitted = (omitted > 0).then_some(omitted),
        "{message}"
    );
}

/// Why the request failed; `None` if it did not, or if its client caused that.
fn cause(record: &Record<'_>) -> Option<&'static str> {
    match &record.response.ended {
        Ended::Failed(failure) | Ended::CutOff(failure) => Some(failure.detail()),
        Ended::Rejected(rejection) if is_server_error(record) => Some(rejection.detail()),
        Ended::RequestContent(_) if is_server_error(record) => Some("no memory for the content"),
        _ => None,
    }
}

/// Why an authorizer gave no decision, if the request failed for it.
fn no_decision<'r>(record: &Record<'r>) -> Option<&'r NoDecision> {
    record.route?.no_decision()
}

/// The URL of the upstream, with which a failure of an authorizer has nothing to do.
fn failed_upstream(record: &Record<'_>) -> Option<String> {
    match no_decision(record) {
        Some(_) => None,
        None => record.route.and_then(RouteName::upstream),
    }
}

/// Where the last attempt went.
fn failed_address<'r>(record: &'r Record<'_>) -> Option<&'r Address> {
    match no_decision(record) {
        Some(why) => why.attempt.address.as_ref(),
        None => record.upstream.as_ref().map(Upstream::address),
    }
}

fn rule(record: &Record<'_>) -> Option<&'static str> {
    let of_authorizer = || Some(no_decision(record)?.rejection.rule());
    record.rule.or_else(of_authorizer)
}

/// The certificate of the upstream or authorizer, if the request failed because it was refused.
fn refused_certificate(record: &Record<'_>) -> Option<Arc<str>> {
    if let Some(why) = no_decision(record) {
        return why.attempt.refused_certificate();
    }
    let Ended::Failed(failure) = record.response.ended else {
        return None;
    };
    if failure.token() != "tls_certificate_error" {
        return None;
    }
    match record.upstream.as_ref()?.address() {
        Address::Tcp(address) => blitz_http::refused_certificate(*address),
        Address::Unix(_) => None,
    }
}

fn is_server_error(record: &Record<'_>) -> bool {
    record
        .response
        .status
        .is_some_and(|status| status.code() >= 500)
}

/// The phase in which the request ended.
fn phase(record: &Record<'_>) -> &'static str {
    if record.response.is_relayed {
        "relay"
    } else if record.responded.is_some() {
        "response_policy"
    } else if record.connected.is_some() {
        "await_response"
    } else if record.upstream.is_some() {
        "connect"
    } else {
        match record.response.ended {
            Ended::Rejected(_) => "admit",
            Ended::Failed(Failure::ProxyLoopDetected) => "request_policy",
            _ => "pick",
        }
    }
}

/// Empty if the request was rejected before it had one.
fn request_id(head: &RequestHead) -> &str {
    let id = head.fields.get_str(Name::XRequestId).unwrap_or_default();
    log_text::start_of(id, ID_MAX)
}

/// The client's address, which a trusted proxy may have told; otherwise that of its connection, with
/// the port.
fn client(record: &Record<'_>, head: &RequestHead) -> Option<String> {
    let peer = &*record.client;
    let told = record
        .forwarded_client
        .or_else(|| (record.observers.told_client)(&head.fields, peer.remote));
    told.map(|client| client.to_string())
        .or_else(|| peer.remote.map(|remote| remote.to_string()))
}

fn address(upstream: &Upstream) -> String {
    upstream.address().to_string()
}

/// A duration in seconds with microseconds, which programs can read.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}", self.0.as_secs_f64())
    }
}
