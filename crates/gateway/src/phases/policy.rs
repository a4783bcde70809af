//! Phases `request_policy` and `response_policy`: what heads look like on the other side.
//!
//! Each is the only place that edits heads of its direction, so rules about heads belong here.

use blitz_http::ResponseEvent;

use crate::forward::{self, ForwardedClient, TooManyConnectionOptions};
use crate::record::Ended;
use crate::rejection::Rejection;
use crate::request::Request;
use crate::service::{GatewayService, Route};

/// Edits the request's head for the upstream.
pub(super) fn request_policy<S>(
    gateway: &GatewayService<S>,
    route: &Route,
    request: &mut Request<'_>,
) -> Result<(), Ended> {
    let peer = &*request.record.client;
    let client = ForwardedClient {
        peer,
        is_trusted: gateway.options.trusted_proxies.contains(peer),
        is_websocket: request.kind.is_websocket(),
        default_authority: &route.target.authority,
        sends_certificate: gateway.options.client_cert_header,
        random: blitz_http::random_u64,
    };
    let scratch = &mut gateway.scratch.borrow_mut();
    forward::edit_request(&mut request.head, &client, scratch)
        .map_err(|TooManyConnectionOptions| Ended::Rejected(Rejection::ConnectionOptions))
}

/// Edits a response head for the client: interim, final, or the one that opens a tunnel.
///
/// # Errors
/// The client must not get a response like this.
pub(super) fn response_policy<S>(
    gateway: &GatewayService<S>,
    request: &mut Request<'_>,
    event: &mut ResponseEvent,
) -> Result<(), Ended> {
    let head = match event {
        ResponseEvent::Informational(head) => head,
        ResponseEvent::Final(response) => {
            request.record.responded = Some(blitz_http::now());
            let opens_tunnel = response.upgraded.is_some();
            request.kind.check_response(&response.head, opens_tunnel)?;
            &mut response.head
        }
    };
    forward::edit_response(head, &mut gateway.scratch.borrow_mut());
    Ok(())
}
