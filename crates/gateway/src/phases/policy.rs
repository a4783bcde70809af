//! Phases `request_policy` and `response_policy`: heads are edited for the other side.
//!
//! The changes that rules make in final responses are those of the [responder](blitz_site::Responder).

use std::rc::Rc;

use blitz_http::ResponseHead;
use blitz_site::{Ended, Endpoint, Failure, Rejection, apply_to_request};

use super::mirror::mirror;
use crate::forward::{self, ForwardedClient, NotForwarded};
use crate::request::Request;
use crate::route::ForwardRoute;
use crate::rules::Facts;
use crate::service::GatewayService;
use crate::snapshot::CoreSnapshot;

/// Edits the request's head for the upstream.
#[inline(always)]
fn request_policy<E>(
    gateway: &GatewayService<E>,
    route: &ForwardRoute<'_>,
    request: &mut Request<'_>,
) -> Result<(), Ended> {
    let peer = &*request.record.client;
    let client = ForwardedClient {
        peer,
        trusted_proxies: &gateway.options.trusted_proxies,
        is_trusted: gateway.options.trusted_proxies.contains(peer),
        upgrade: request.kind.upgrade(),
        length: request.upload.length(),
        default_authority: &route.target.authority,
        loop_id: &gateway.loop_id,
        sends_via: gateway.options.via,
        sends_certificate: request.sends_certificate,
        random: blitz_http::random_u64,
    };
    let scratch = &mut gateway.scratch.borrow_mut();
    let edited = forward::edit_request(&mut request.head, &client, scratch);
    let told = edited.map_err(|problem| match problem {
        NotForwarded::TooManyConnectionOptions => Ended::Rejected(Rejection::ConnectionOptions),
        NotForwarded::Loop => Ended::Failed(Failure::ProxyLoopDetected),
    })?;
    if told.is_some() {
        request.record.forwarded_client = told;
    }
    if let Some(trace) = &request.record.trace {
        trace.pass_to_upstream(&mut request.head.fields);
    }
    if route.forward.host.is_some() || request.rules.is_some() || request.rewriting.is_some() {
        change_request(gateway, route, request);
    }
    Ok(())
}

/// The same, and a copy of the request goes to the upstream of a `mirror`.
#[inline(always)]
pub(super) fn prepare<E: Endpoint>(
    gateway: &Rc<GatewayService<E>>,
    snapshot: &Rc<CoreSnapshot>,
    route: &ForwardRoute<'_>,
    request: &mut Request<'_>,
) -> Result<(), Ended> {
    request_policy(gateway, route, request)?;
    if let Some(to) = &route.forward.mirror {
        mirror(gateway, snapshot, to, request);
    }
    Ok(())
}

/// Makes the changes that the configuration demands.
#[inline(never)]
fn change_request<E>(
    gateway: &GatewayService<E>,
    route: &ForwardRoute<'_>,
    request: &mut Request<'_>,
) {
    if let Some(rewriting) = &request.rewriting {
        rewriting.edit_request(&mut request.head.fields);
    }
    // After the fields of the connection are gone, so that clients cannot name these in `Connection`.
    if let Some(notes) = &request.notes {
        request.record.begin_with(Some(notes));
        notes.identify(&mut request.head.fields);
    }
    let edits = request.rules.and_then(|rules| rules.request_edits.as_ref());
    if let Some(edits) = edits {
        let trusted = &gateway.options.trusted_proxies;
        let received = route.forward.received_head(&request.head, edits);
        let facts = Facts::of(&request.head, &request.record.client, trusted);
        let facts = facts.with_notes(request.notes.as_deref());
        let facts = facts.with_path_of(received.as_ref().unwrap_or(&request.head));
        let edits = edits.for_request(&facts);
        apply_to_request(&edits, &mut request.head.fields);
    }
    // Last, so that `{host}` is the client's.
    if let Some(host) = &route.forward.host {
        request.head.set_authority(host);
    }
}

/// Checks the final response and edits its head for the client.
///
/// # Errors
/// The client must not get a response like this.
#[inline]
pub(super) fn response_policy<E>(
    gateway: &GatewayService<E>,
    route: &ForwardRoute<'_>,
    request: &mut Request<'_>,
) -> Result<(), Ended> {
    let Some(response) = &mut request.response else {
        return Err(Ended::ClientGone);
    };
    let now = blitz_http::now();
    let record = &mut request.record;
    record.responded = Some(now);
    if let (Some(upstream), Some(connected)) = (&record.upstream, record.connected) {
        let time = now.saturating_duration_since(connected);
        let is_failure = response.head.status.code() >= 500;
        let balancer = route.balancer();
        balancer.responded(upstream, time, is_failure, now);
        if let Some(choice) = &mut request.choice {
            choice.answered(is_failure);
        }
    }
    let opens_tunnel = response.upgraded.is_some();
    request.kind.check_response(&response.head, opens_tunnel)?;
    edit_response(gateway, &mut response.head);
    if let Some(rewriting) = &request.rewriting {
        rewriting.edit_response(&mut response.head.fields);
    }
    if let Some(choice) = &request.choice {
        choice.set_cookies(&mut response.head.fields);
    }
    Ok(())
}

/// Edits any response head for the client: interim, final, or the one that opens a tunnel.
pub(super) fn edit_response<E>(gateway: &GatewayService<E>, head: &mut ResponseHead) {
    let scratch = &mut gateway.scratch.borrow_mut();
    forward::edit_response(head, gateway.options.via, scratch);
}
