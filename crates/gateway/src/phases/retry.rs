//! Phase `prepare_retry`: whether a request is sent again (rule 13).

use blitz_http::ClientError;
use blitz_site::{Ended, Failure, count};

use crate::reconnecting::Reconnecting;
use crate::request::Request;
use crate::route::ForwardRoute;
use crate::service::GatewayService;
use crate::upstream::{Processed, RetryBudget};

/// How often a request is sent again that the upstream certainly did not process. A server that is being
/// replaced may refuse it on one connection after the other.
const UNPROCESSED_RETRIES_MAX: u8 = 8;

/// Makes the request ready for its next attempt.
///
/// # Errors
/// There is none: sending it again might not have the effect of sending it once, or was tried often
/// enough; a part of the response came; the content is not kept any more; or the budget of the upstream
/// is used up.
pub(super) fn prepare_retry<'a, E>(
    gateway: &GatewayService<E>,
    route: &ForwardRoute<'a>,
    request: &mut Request<'a>,
    error: &ClientError,
) -> Result<(), Ended> {
    let processed = next_attempt(gateway, request, error)
        .filter(|_| request.upload.can_repeat())
        .filter(|&processed| is_within_budget(request.retries(route), processed));
    match processed {
        Some(Processed::Perhaps) => request.repeats.perhaps_processed = true,
        Some(Processed::No) => request.repeats.unprocessed += 1,
        None => {
            request.record.rule = error.rule();
            return Err(Ended::Failed(Failure::from(error)));
        }
    }
    tracing::debug!(%error, "request is sent again");
    request.record.note_retry(Failure::from(error).token());
    request.record.is_retried = true;
    request.record.connected = None;
    request.connect_failure = None;
    request.reconnecting = Reconnecting::default();
    if let Some(upstream) = &request.record.upstream {
        request.tried.may_return_to(upstream);
    }
    if let Some(choice) = &mut request.choice {
        choice.retry_elsewhere();
    }
    Ok(())
}

/// Whether the error allows another attempt, and what it says about the last one.
fn next_attempt<E>(
    gateway: &GatewayService<E>,
    request: &Request<'_>,
    error: &ClientError,
) -> Option<Processed> {
    let repeats = &request.repeats;
    if error.is_unprocessed() {
        let in_time = request.record.duration() < gateway.options.client.response_timeout;
        let is_left = repeats.unprocessed < UNPROCESSED_RETRIES_MAX && in_time;
        return is_left.then_some(Processed::No);
    }
    let is_idempotent = request.kind.is_idempotent(request.head.method);
    let is_harmless = is_idempotent && error.is_before_response() && !repeats.perhaps_processed;
    is_harmless.then_some(Processed::Perhaps)
}

fn is_within_budget(retries: &RetryBudget, processed: Processed) -> bool {
    let is_within = retries.try_retry(processed, blitz_http::now());
    if !is_within {
        count(|counters| counters.retries_over_budget += 1);
    }
    is_within
}
