//! The end of a record: the counters, the logs and the observers that are told of a request that has ended.

use std::rc::Rc;

use blitz_http::{
    FailedHandshake, IncompleteHead, Method, Pooled, RefusedRequest, RequestHead, Version,
};

use crate::counters::{Counters, count};
use crate::record::measure::measure;
use crate::record::{CoreObservers, Ended, Record, RecordHook};
use crate::record::{leave, log};
use crate::recorder::BegunRecord;

/// Sources of records without a request, which are limited on their own.
const HANDSHAKES: &str = "handshakes";
const HEADS: &str = "heads";

/// Emits the record of a request that has ended. The caller emits no record twice.
#[inline]
pub fn emit(record: &mut Record<'_>, head: &RequestHead) {
    let is_plain = record.connect_failures == 0 && !record.is_retried;
    let is_ordinary = is_plain && matches!(record.response.ended, Ended::Complete);
    count(|counters| add(counters, record, is_ordinary));
    measure(record);
    if !is_ordinary {
        log::log_failure(record, head);
    }
    if let Some(mut begun) = record.begun.take() {
        begun.note_id(head);
        finish(begun, record);
    }
    if record.observers.see_all() {
        observe(record, head);
    }
}

/// The same if nobody observes the rest of the head. An app has logged its failures.
#[inline]
pub(crate) fn emit_unobserved(record: &mut Record<'_>) {
    let is_ordinary = matches!(record.response.ended, Ended::Complete);
    count(|counters| add(counters, record, is_ordinary));
    measure(record);
    if let Some(begun) = record.begun.take() {
        finish(begun, record);
    }
}

/// Emits the record of a request that the server has refused, and has counted and logged. The site is that of its host,
/// if it is known.
#[cold]
pub fn emit_refused(refused: &RefusedRequest<'_>, site: Option<&str>, observers: &CoreObservers) {
    let mut unknown = Pooled::<RequestHead>::take();
    unknown.method = Method::Other;
    let head = refused.head.unwrap_or(&unknown);
    let mut record = Record::new(head, Rc::clone(refused.peer), site, None, observers);
    record.version = refused.version;
    if let Some(status) = refused.status {
        record.response.sent(status, refused.content_bytes);
    }
    record.response.ended = Ended::Refused(refused.refusal.rule);
    emit(&mut record, head);
}

/// Emits the record of a failed handshake, which the server has counted and logged. At most ten in a second have the same
/// cause, so that a flood does not fill a disk; the others are counted.
#[cold]
pub fn emit_handshake(failed: &FailedHandshake<'_>, observers: &CoreObservers) {
    let now = blitz_http::now();
    if !observers.see_handshake(now.saturating_duration_since(failed.started)) {
        return;
    }
    let limit = &observers.shared().without_request;
    let Some(omitted) = limit.allow(failed.cause, HANDSHAKES, now) else {
        count(|counters| counters.handshakes_omitted += 1);
        return;
    };
    let mut unknown = Pooled::<RequestHead>::take();
    unknown.method = Method::Other;
    let mut record = Record::new(&unknown, Rc::clone(failed.peer), None, None, observers);
    record.started = failed.started;
    record.version = failed.version.unwrap_or(Version::Http11);
    record.omitted = omitted;
    record.response.ended = Ended::Handshake(failed.cause);
    finish_without_request(record);
}

/// Emits the record of a head that stays incomplete, which the server has counted. It is no request. There are as few as
/// those of failed handshakes. The site is that of its host, if it is known.
#[cold]
pub fn emit_incomplete_head(
    incomplete: &IncompleteHead<'_>,
    site: Option<&str>,
    observers: &CoreObservers,
) {
    let now = blitz_http::now();
    if !observers.see_incomplete_head(now.saturating_duration_since(incomplete.started)) {
        return;
    }
    let limit = &observers.shared().without_request;
    let Some(omitted) = limit.allow(incomplete.cause, HEADS, now) else {
        count(|counters| counters.heads_omitted += 1);
        return;
    };
    let mut unknown = Pooled::<RequestHead>::take();
    unknown.method = Method::Other;
    let head = incomplete.head.unwrap_or(&unknown);
    let mut record = Record::new(head, Rc::clone(incomplete.peer), site, None, observers);
    record.started = incomplete.started;
    record.version = Version::Http11;
    record.omitted = omitted;
    record.response.ended = Ended::IncompleteHead(incomplete.cause);
    finish_without_request(record);
}

/// Hands over the record of a connection without a request, which has no span.
fn finish_without_request(mut record: Record<'_>) {
    count(|counters| counters.in_flight = counters.in_flight.saturating_sub(1));
    record.trace = None;
    if let Some(begun) = record.begun.take() {
        finish(begun, &record);
    }
}

#[inline]
fn finish(begun: BegunRecord, record: &Record<'_>) {
    begun.finish(record.started, record.response.status, |owned, finished| {
        leave::copy(record, finished, owned);
    });
}

#[cold]
fn observe(record: &Record<'_>, head: &RequestHead) {
    // The server has logged its refusals.
    if !matches!(record.response.ended, Ended::Refused(_)) {
        log::log_end(record, head);
    }
    if let Some(RecordHook(hook)) = &record.observers.hook {
        hook(record, head);
    }
}

#[inline]
fn add(counters: &mut Counters, record: &Record<'_>, is_ordinary: bool) {
    let response = &record.response;
    counters.in_flight = counters.in_flight.saturating_sub(1);
    if record.route.is_some() {
        counters.routed += 1;
    } else if !matches!(response.ended, Ended::Rejected(_) | Ended::Refused(_)) {
        counters.unrouted += 1;
    }
    if let (true, false, Some(status)) = (response.is_relayed, response.is_tunnel, response.status)
    {
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
    let ended = &record.response.ended;
    if let Ended::Failed(failure) = *ended {
        counters.failures[failure as usize] += 1;
    }
    if record.response.is_relayed {
        counters.cut_off += u64::from(!matches!(ended, Ended::Complete));
        return;
    }
    match *ended {
        Ended::Rejected(rejection) => counters.rejections[rejection as usize] += 1,
        Ended::RequestContent(_) => counters.client_faults += 1,
        Ended::Complete
        | Ended::Refused(_)
        | Ended::Handshake(_)
        | Ended::IncompleteHead(_)
        | Ended::Failed(_)
        | Ended::CutOff(_)
        | Ended::Aborted
        | Ended::ClientGone => {}
    }
}
