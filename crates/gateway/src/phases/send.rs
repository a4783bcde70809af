//! Phase `send`: the head leaves, and the content gets its way.

use blitz_http::{BodyLength, Connection, Name, ResponseStream};
use blitz_site::{Ended, Identity};

use crate::replay::Replay;
use crate::request::Request;
use crate::route::ForwardRoute;
use crate::rules::Edits;
use crate::service::GatewayService;

/// Adapts the request to this connection.
///
/// # Errors
/// The connection cannot carry the request.
#[inline]
pub(super) fn adapt(request: &mut Request<'_>, connection: &Connection) -> Result<(), Ended> {
    request.kind.prepare_request(
        &mut request.head,
        &mut request.upload,
        connection.capabilities(),
        request.record.is_retried,
    )
}

/// Sends the head on this connection. The content follows as it comes.
#[inline(always)]
pub(super) fn send<E>(
    gateway: &GatewayService<E>,
    route: &ForwardRoute<'_>,
    request: &mut Request<'_>,
    connection: Connection,
) -> ResponseStream {
    let capabilities = connection.capabilities();
    let is_retry = request.record.is_retried;
    let length = request.upload.length();
    if !matches!(length, BodyLength::Empty) {
        decide_trailers(route, request);
    }
    request.record.attempts += 1;
    request.record.is_connection_reused = connection.is_reused();
    let (body, mut stream) = connection.request(&request.head, length);
    if is_retry {
        request.upload.send_again_to(body);
    } else {
        let bytes_max = gateway.options.client.limits.replay_bytes_max;
        let replay = Replay::of(&request.head, length, bytes_max, capabilities);
        request.upload.send_to(body, replay);
    }
    if let Some(rules) = request.rules {
        stream.set_options(rules.timeouts);
    }
    if request.kind.is_call() {
        stream.disable_min_rate();
    }
    let may_be_sent_again = capabilities.refuses_unprocessed
        || request.kind.is_idempotent(&request.head)
        // An idle connection may have ended before the head leaves.
        || (request.record.is_connection_reused && has_no_content(length));
    if !may_be_sent_again {
        request.upload.forget_replay();
        request.head.reduce();
    }
    stream
}

fn has_no_content(length: BodyLength) -> bool {
    matches!(
        length,
        BodyLength::Empty | BodyLength::Known(0) | BodyLength::NothingButTrailers
    )
}

/// Drops the trailers of a request, unless the target takes them, which RFC 9110, section 6.5.1, allows. Some servers stop
/// reading at the last chunk: what follows would be their next request. Others, such as nginx 1.22, close an HTTP/2
/// connection for trailers, with the requests of others on it.
#[inline]
fn decide_trailers(route: &ForwardRoute<'_>, request: &mut Request<'_>) {
    if !route.forward.request_trailers || tells_client(request) {
        request.upload.drop_trailers();
        request.head.fields.remove(Name::Trailer);
    }
}

/// Whether the upstream learns from fields of the request who the client is, or gets credentials in fields. Trailers
/// could name another client, or have credentials that nobody has checked. They are dropped for each request of such a
/// route: where the client has proved nothing, they would stand alone.
fn tells_client(request: &Request<'_>) -> bool {
    let edits = request.rules.and_then(|rules| rules.request_edits.as_ref());
    let takes_fields = request
        .rules
        .is_some_and(|rules| rules.policies.take_fields());
    let notes = request.notes.as_ref();
    takes_fields
        || request.sends_certificate
        || edits.is_some_and(Edits::have_identity)
        || notes.is_some_and(|notes| notes.identities.iter().any(Identity::is_told))
}
