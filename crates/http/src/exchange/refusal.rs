//! Responses that the core generates.

use std::rc::Rc;

use blitz_proto::{Error, Fields, Status};

use super::framing::ServerFraming;
use super::respond::send_response;
use super::state::Body;
use crate::counters::count_refused;
use crate::error::{BodyError, Refusal, refusal_response};

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
    let (status, peer) = (refusal.status.code(), framing.remote());
    tracing::debug!(rule = refusal.rule, status, ?peer, "refused");
    if !framing.is_response_started(id) {
        let options = Rc::clone(framing.options());
        let (mut head, content) = refusal_response(refusal, fields, as_problem, &options);
        framing.close_if_exclusive();
        send_response(framing, id, &mut head, content);
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
