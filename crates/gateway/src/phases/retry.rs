//! Phase `prepare_retry`: whether a request is sent again (rule 13).

use std::time::Duration;

use blitz_http::{ClientError, Name, Response, ResponseHead, Status, random_u64};
use blitz_site::{Ended, Failure, count};

use crate::reconnecting::Reconnecting;
use crate::request::Request;
use crate::route::ForwardRoute;
use crate::service::GatewayService;
use crate::upstream::Processed;

/// How often a request is sent again that the upstream certainly did not process. A server that is being
/// replaced may refuse it on one connection after the other.
const UNPROCESSED_RETRIES_MAX: u8 = 8;

/// The longest wait for a server that names a time with `Retry-After`. Its client, which may do so as well, gets the
/// response then.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(5);

/// The shortest wait before a request goes to the same server again, which has just failed; up to twice as much is
/// waited, so that requests do not come back all at once.
const PAUSE: Duration = Duration::from_millis(25);

/// Content of a response in whose place the request is sent again, in bytes; beyond, and after [`DISCARD_TIME`], its
/// connection is closed.
const DISCARD_BYTES_MAX: usize = 16 * 1024;
const DISCARD_TIME: Duration = Duration::from_secs(1);

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
    let processed = next_attempt(gateway, route, request, error)
        .filter(|_| request.upload.can_repeat())
        .filter(|&processed| is_within_budget(route, request, processed));
    match processed {
        Some(Processed::Perhaps) => request.repeats.perhaps_processed += 1,
        Some(Processed::No) => request.repeats.unprocessed += 1,
        None => {
            request.record.rule = error.rule();
            return Err(Ended::Failed(Failure::from(error)));
        }
    }
    tracing::debug!(%error, "request is sent again");
    begin_again(request, Failure::from(error).token());
    // Also if no other server can be reached in the end, a silent one would only take as long again.
    let was_silent = matches!(error, ClientError::TimedOut);
    if let Some(upstream) = request.record.upstream.as_ref().filter(|_| !was_silent) {
        request.tried.may_return_to(upstream);
    }
    match &mut request.choice {
        Some(choice) if was_silent => choice.retry_only_elsewhere(),
        Some(choice) => choice.retry_elsewhere(),
        None => {}
    }
    Ok(())
}

/// Forgets the last attempt.
fn begin_again(request: &mut Request<'_>, cause: &'static str) {
    request.record.note_retry(cause);
    request.record.is_retried = true;
    request.record.connected = None;
    request.connect_failure = None;
    request.reconnecting = Reconnecting::default();
}

/// Whether the error allows another attempt, and what it says about the last one.
fn next_attempt<'a, E>(
    gateway: &GatewayService<E>,
    route: &ForwardRoute<'a>,
    request: &Request<'a>,
    error: &ClientError,
) -> Option<Processed> {
    if error.is_unprocessed() {
        let in_time = request.record.duration() < response_timeout(gateway, request);
        let is_left = request.repeats.unprocessed < UNPROCESSED_RETRIES_MAX && in_time;
        return is_left.then_some(Processed::No);
    }
    let is_passed_over = match error {
        // The same server would only take as long again.
        ClientError::TimedOut => !request.repeats.has_interim && request.has_other(route),
        error => error.is_before_response(),
    };
    let may_repeat = is_passed_over && may_repeat(route, request);
    may_repeat.then_some(Processed::Perhaps)
}

/// Whether a request may be sent again that the upstream may have processed.
fn may_repeat(route: &ForwardRoute<'_>, request: &Request<'_>) -> bool {
    let is_left = request.repeats.perhaps_processed < route.forward.retries;
    is_left && request.kind.is_idempotent(&request.head)
}

/// How long the response to one attempt may take.
pub(super) fn response_timeout<E>(gateway: &GatewayService<E>, request: &Request<'_>) -> Duration {
    let own = request
        .rules
        .and_then(|rules| rules.timeouts.response_timeout);
    own.unwrap_or(gateway.options.client.response_timeout)
}

pub(super) fn is_within_budget<'a>(
    route: &ForwardRoute<'a>,
    request: &Request<'a>,
    processed: Processed,
) -> bool {
    let is_within = request.try_retry(route, processed);
    if !is_within {
        count(|counters| counters.retries_over_budget += 1);
    }
    is_within
}

/// Whether the response is one of those in whose place the upstream's settings have a request sent again.
#[inline]
pub(super) fn has_retried_status(request: &Request<'_>) -> bool {
    let (Some(response), Some(choice)) = (&request.response, &request.choice) else {
        return false;
    };
    let status = response.head.status.code();
    let is_retried = || {
        let retry = choice.settings()?.retry.as_ref()?;
        let mut on = retry.value.on.iter();
        Some(on.any(|pattern| pattern.matches(status)))
    };
    status >= 400 && is_retried().unwrap_or_default()
}

/// Gives up the response for another attempt, if there may be one; otherwise the client gets it. Waits if the same server
/// is the only one.
pub(super) async fn retry_response<'a, E>(
    gateway: &GatewayService<E>,
    route: &ForwardRoute<'a>,
    request: &mut Request<'a>,
) -> bool {
    let Some(pause) = pause_before(gateway, route, request) else {
        return false;
    };
    if !is_within_budget(route, request, Processed::Perhaps) {
        return false;
    }
    let Some(response) = request.response.take() else {
        return false;
    };
    request.repeats.perhaps_processed += 1;
    let status = response.head.status;
    let asks_to_wait = retry_after(&response.head).is_some();
    note_response(route, request, status);
    discard(response);
    tracing::debug!(status = status.code(), "request is sent again");
    begin_again(request, cause_of(status));
    if let Some(choice) = &mut request.choice {
        // It does not count at an upstream that sheds load while it waits.
        choice.answered(true);
    }
    match &mut request.choice {
        Some(choice) if asks_to_wait && pause.is_zero() => choice.retry_only_elsewhere(),
        Some(choice) => choice.retry_elsewhere(),
        None => {}
    }
    if !pause.is_zero() {
        blitz_http::sleep(pause).await;
    }
    true
}

/// How long to wait before the request is sent again; `None` if it is not.
fn pause_before<'a, E>(
    gateway: &GatewayService<E>,
    route: &ForwardRoute<'a>,
    request: &Request<'a>,
) -> Option<Duration> {
    let response = request.response.as_ref()?;
    let is_early = response.head.status == Status::TOO_EARLY;
    // RFC 8470, section 5.2: "Intermediaries MUST forward a 425 (Too Early) status code if the request that it received
    // and forwarded contained an Early-Data header field."
    let is_of_client = is_early && request.head.fields.contains(Name::EarlyData);
    let may_retry = response.upgraded.is_none()
        && !request.repeats.has_interim
        && !is_of_client
        && may_repeat(route, request)
        && request.upload.can_repeat();
    if !may_retry {
        return None;
    }
    if request.has_other(route) {
        return Some(Duration::ZERO);
    }
    let least = PAUSE + PAUSE * (random_u64() % 256) as u32 / 256;
    let pause = retry_after(&response.head).unwrap_or_default().max(least);
    let limit = request.rules.and_then(|rules| rules.request_timeout);
    let limit = limit.unwrap_or_else(|| response_timeout(gateway, request));
    let left = limit.saturating_sub(request.record.duration());
    (pause <= left.min(RETRY_AFTER_MAX)).then_some(pause)
}

/// The time after which the server may be asked again, if it names one: in seconds, or a date.
fn retry_after(head: &ResponseHead) -> Option<Duration> {
    let value = head.fields.get_str(Name::RetryAfter)?.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(value.parse().map_or(Duration::MAX, Duration::from_secs));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    let now = blitz_http::wall_clock();
    Some(date.duration_since(now).unwrap_or_default())
}

/// Tells the balancer of a response that the client does not get.
fn note_response(route: &ForwardRoute<'_>, request: &Request<'_>, status: Status) {
    let now = blitz_http::now();
    let record = &request.record;
    if let (Some(upstream), Some(connected)) = (&record.upstream, record.connected) {
        let time = now.saturating_duration_since(connected);
        let is_failure = status.code() >= 500;
        route.balancer().responded(upstream, time, is_failure, now);
    }
}

/// The name of the reason in traces.
fn cause_of(status: Status) -> &'static str {
    match status.code() {
        408 => "408",
        425 => "425",
        429 => "429",
        500 => "500",
        502 => "502",
        503 => "503",
        504 => "504",
        _ => "status",
    }
}

/// Reads the rest of a short response, so that its connection is used again.
fn discard(response: Response) {
    let mut body = response.body;
    if body.is_done() || body.take_whole().is_some() {
        return;
    }
    blitz_http::spawn(async move {
        // Its connection is closed if some of it is left then.
        let _ = blitz_http::timeout(DISCARD_TIME, body.read_to_end(DISCARD_BYTES_MAX)).await;
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_seconds_or_a_date() {
        let after = |value: &str| {
            let mut head = ResponseHead::new(Status::SERVICE_UNAVAILABLE);
            head.fields.append(Name::RetryAfter, value);
            retry_after(&head)
        };
        assert_eq!(after("0"), Some(Duration::ZERO));
        assert_eq!(after(" 120 "), Some(Duration::from_secs(120)));
        assert_eq!(after("99999999999999999999999"), Some(Duration::MAX));
        for value in ["", "-1", "1.5", "soon", "1s"] {
            assert_eq!(after(value), None, "{value}");
        }
    }
}
