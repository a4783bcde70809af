//! Phase `send`: the head leaves, and the content gets its way.

use blitz_http::{Connection, ResponseStream};

use crate::record::Ended;
use crate::replay::Replay;
use crate::request::Request;
use crate::service::GatewayService;

/// Sends the head on this connection. The content follows as it comes.
///
/// # Errors
/// The connection cannot carry the request.
pub(super) fn send<S>(
    gateway: &GatewayService<S>,
    request: &mut Request<'_>,
    connection: Connection,
) -> Result<ResponseStream, Ended> {
    let capabilities = connection.capabilities();
    let is_retry = request.record.is_retried;
    request.kind.prepare_request(
        &mut request.head,
        &mut request.upload,
        capabilities,
        is_retry,
    )?;
    request.record.attempts += 1;
    request.record.is_connection_reused = connection.is_reused();
    let length = request.upload.length();
    let (body, mut stream) = connection.request(&request.head, length);
    if is_retry {
        request.upload.send_again_to(body);
    } else {
        let bytes_max = gateway.options.client.limits.replay_bytes_max;
        let replay = Replay::of(&request.head, length, bytes_max, capabilities);
        request.upload.send_to(body, replay);
    }
    if request.kind.is_call() {
        stream.disable_min_rate();
    }
    let is_idempotent = || request.kind.is_idempotent(request.head.method);
    let may_be_sent_again = !is_retry && (capabilities.refuses_unprocessed || is_idempotent());
    if !may_be_sent_again {
        request.head.reduce();
    }
    Ok(stream)
}
