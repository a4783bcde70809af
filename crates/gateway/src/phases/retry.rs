//! Phase `prepare_retry`: whether a request is sent a second time (rule 13).

use blitz_http::ClientError;

use crate::proxy_status::Failure;
use crate::record::Ended;
use crate::request::Request;

/// Makes the request ready for its second attempt.
///
/// # Errors
/// There is none: this was the second attempt, sending twice might not have the effect of sending
/// once, a part of the response came, or the content is not kept any more.
pub(super) fn prepare_retry(request: &mut Request<'_>, error: &ClientError) -> Result<(), Ended> {
    let is_idempotent = request.kind.is_idempotent(request.head.method);
    let is_harmless = error.is_unprocessed() || (is_idempotent && error.is_before_response());
    if request.record.is_retried || !is_harmless || !request.upload.can_repeat() {
        request.record.rule = error.rule();
        return Err(Ended::Failed(Failure::from(error)));
    }
    tracing::debug!(%error, "request is sent again");
    request.record.is_retried = true;
    request.record.connected = None;
    request.connect_failure = None;
    if let Some(upstream) = &request.record.upstream {
        request.tried.may_return_to(upstream);
    }
    Ok(())
}
