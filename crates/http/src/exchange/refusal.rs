//! Responses that the core generates.

use std::net::SocketAddr;
use std::rc::Rc;

use blitz_proto::{Error, Fields, Name, ResponseHead, Status, Version};

use super::framing::ServerFraming;
use super::respond::send_response;
use super::state::Body;
use crate::counters::count_refused;
use crate::error::{BodyError, Refusal, refusal_response};
use crate::log_limit::LogLimit;

/// Refuses a request for its content, or because the service did not respond. The service has its head.
pub(super) fn refuse_content<F: ServerFraming>(framing: &mut F, id: F::Id, refusal: Refusal) {
    let as_problem = framing
        .exchange(id)
        .is_some_and(|exchange| exchange.accepts_problem);
    refuse(framing, id, refusal, &Fields::new(), as_problem);
}

/// Responds instead of the service, if a response is still possible. `fields` are the request's fields
/// received so far.
pub(crate) fn refuse<F: ServerFraming>(
    framing: &mut F,
    id: F::Id,
    refusal: Refusal,
    fields: &Fields,
    as_problem: bool,
) {
    count_refused(refusal.rule);
    let peer = framing.remote();
    if framing.is_response_started(id) {
        log_refusal(refusal, None, F::VERSION, peer);
    } else {
        let options = Rc::clone(framing.options());
        let (mut head, content) = refusal_response(refusal, fields, as_problem, &options);
        log_refusal(refusal, Some(&head), F::VERSION, peer);
        framing.close_if_exclusive();
        send_response(framing, id, &mut head, content);
    }
}

/// Logs a refusal and its response, if there can be one. A status of 5xx is a warning.
pub(crate) fn log_refusal(
    refusal: Refusal,
    response: Option<&ResponseHead>,
    version: Version,
    peer: Option<SocketAddr>,
) {
    static WARNINGS: LogLimit = LogLimit::new();
    let Refusal { status, rule } = refusal;
    let status = status.code();
    let protocol = version.as_str();
    let client = peer.map(tracing::field::display);
    let request_id = response.and_then(|head| head.fields.get_str(Name::XRequestId));
    if status < 500 {
        tracing::debug!(
            request_id,
            status,
            cause = rule,
            client,
            protocol,
            "refused"
        );
    } else if let Some(omitted) = WARNINGS.allow(rule, "", blitz_reactor::now()) {
        let omitted = (omitted > 0).then_some(omitted);
        tracing::warn!(
            request_id,
            status,
            cause = rule,
            client,
            protocol,
            omitted,
            "refused"
        );
    }
}

/// Counts and logs a stream that is reset because it exceeds a limit or breaks a rule.
#[cold]
pub(crate) fn refuse_stream(error: Error, peer: Option<SocketAddr>) {
    static LINES: LogLimit = LogLimit::new();
    let rule = error.rule();
    count_refused(rule);
    if tracing::enabled!(tracing::Level::DEBUG)
        && let Some(omitted) = LINES.allow(rule, "", blitz_reactor::now())
    {
        let client = peer.map(tracing::field::display);
        let omitted = (omitted > 0).then_some(omitted);
        tracing::debug!(cause = rule, client, omitted, "stream refused");
    }
}

/// The refusal of a request that breaks a rule.
pub(crate) fn refusal_of(error: Error) -> Refusal {
    Refusal {
        status: error.status(),
        rule: error.rule(),
    }
}

/// The refusal of a request without a response: for the fault of its body, if it has one.
pub(super) fn missing_response<F: ServerFraming>(framing: &mut F, id: F::Id) -> Refusal {
    match framing
        .exchange(id)
        .map(|exchange| &exchange.receiving.body)
    {
        Some(Body::Failed(BodyError::Malformed(error))) => refusal_of(*error),
        Some(Body::Failed(error @ BodyError::Truncated)) => Refusal {
            status: error.status(),
            rule: "truncated-body",
        },
        _ => Refusal {
            status: Status::INTERNAL_SERVER_ERROR,
            rule: "no-answer",
        },
    }
}
