//! How an exchange ends on a server.

use std::task::{Context, Poll};

use blitz_proto::Status;

use super::deadline::{Deadline, poll_server_deadline};
use super::framing::ServerFraming;
use super::refusal::{missing_response, refuse_content};
use super::state::{BodyState, ExchangeState, MessageState, note};
use crate::counters::count;
use crate::error::{BodyError, Refusal};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExchangeOutcome {
    /// The response is complete.
    Complete,
    /// The service did not respond.
    Missing,
    /// The response was truncated.
    Cut,
    /// The client has left.
    Gone,
    /// A deadline was missed.
    TimedOut(Deadline),
}

/// The last step of an exchange that has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conclusion {
    /// The response was sent; some of the request may still come.
    Complete,
    /// The core has responded instead of the service.
    Refused,
    /// The client is gone.
    Gone,
    /// The exchange ends for the client in both directions.
    Cancelled,
    /// The response is incomplete, and the client must be able to detect that.
    Failed,
}

/// Whether an exchange is over; if not, the task will be woken when that may have changed.
#[inline]
pub(crate) fn poll_outcome<F: ServerFraming>(
    framing: &mut F,
    id: F::Id,
    is_service_done: bool,
    cx: &mut Context<'_>,
) -> Poll<ExchangeOutcome> {
    let Some(exchange) = framing.exchange(id) else {
        return Poll::Ready(ExchangeOutcome::Gone);
    };
    if let Some(outcome) = exchange.outcome(is_service_done) {
        return Poll::Ready(outcome);
    }
    note(&mut exchange.task, cx);
    if framing.poll_client_gone(id, cx).is_ready() {
        return Poll::Ready(ExchangeOutcome::Gone);
    }
    poll_server_deadline(framing, id, is_service_done, cx)
        .map(|deadline| missed(framing, id, deadline))
}

/// The service is dropped now, and its handle of the body tells it why.
#[cold]
fn missed<F: ServerFraming>(framing: &mut F, id: F::Id, deadline: Deadline) -> ExchangeOutcome {
    if let (Deadline::RequestRate, Some(exchange)) = (deadline, framing.exchange(id)) {
        exchange.receiving.body = BodyState::Failed(BodyError::TimedOut);
    }
    ExchangeOutcome::TimedOut(deadline)
}

impl ExchangeState {
    #[inline]
    fn outcome(&self, is_service_done: bool) -> Option<ExchangeOutcome> {
        if self.is_gone {
            return Some(ExchangeOutcome::Gone);
        }
        let is_tunnel_receiving = self.is_tunnel && matches!(self.receiving.body, BodyState::Open);
        match self.message {
            MessageState::Cut => Some(ExchangeOutcome::Cut),
            MessageState::Missing if is_service_done => Some(ExchangeOutcome::Missing),
            MessageState::Done if is_service_done && !is_tunnel_receiving => {
                Some(ExchangeOutcome::Complete)
            }
            MessageState::Due | MessageState::Open | MessageState::Missing | MessageState::Done => {
                None
            }
        }
    }
}

/// Counts an outcome and responds where the service did not.
pub(crate) fn conclude<F: ServerFraming>(
    framing: &mut F,
    id: F::Id,
    outcome: ExchangeOutcome,
) -> Conclusion {
    match outcome {
        ExchangeOutcome::Complete => Conclusion::Complete,
        ExchangeOutcome::Missing => {
            let refusal = missing_response(framing, id);
            refuse_content(framing, id, refusal);
            Conclusion::Refused
        }
        ExchangeOutcome::Gone => {
            count(|counters| counters.cancelled += 1);
            Conclusion::Gone
        }
        ExchangeOutcome::Cut => {
            count(|counters| counters.cancelled += 1);
            Conclusion::Failed
        }
        ExchangeOutcome::TimedOut(deadline) => time_out(framing, id, deadline),
    }
}

#[cold]
fn time_out<F: ServerFraming>(framing: &mut F, id: F::Id, deadline: Deadline) -> Conclusion {
    let is_tunnel = framing
        .exchange(id)
        .is_some_and(|exchange| exchange.is_tunnel);
    count(|counters| match deadline {
        Deadline::SendStall | Deadline::TunnelIdle if is_tunnel => counters.tunnel_timeouts += 1,
        Deadline::SendStall | Deadline::TunnelIdle => counters.send_stalls += 1,
        Deadline::HalfClose => counters.cancelled += 1,
        Deadline::RequestRate | Deadline::RequestIdle | Deadline::StreamIdle => {
            counters.body_timeouts += 1;
        }
    });
    if deadline != Deadline::RequestRate {
        return Conclusion::Cancelled;
    }
    // The rest of it is discarded after the refusal.
    if let Some(exchange) = framing.exchange(id) {
        exchange.receiving.body = BodyState::Open;
    }
    let refusal = Refusal {
        status: Status::REQUEST_TIMEOUT,
        rule: "request-body-too-slow",
    };
    refuse_content(framing, id, refusal);
    Conclusion::Refused
}
