//! The server of the next attempt, among those of a route.

use blitz_http::{Peer, RequestHead, Scheme};
use blitz_site::{ClientAddress, Notes, cookies};

use crate::request::Request;
use crate::route::{Forward, ForwardRoute};
use crate::rules::{Facts, client_of};
use crate::service::GatewayService;
use crate::snapshot::CoreSnapshot;
use crate::trusted::TrustedProxies;
use crate::upstream::{Choice, ClientValue, Group, Pick};

/// The choice of a server by the request as it came; `None` if there is one server.
#[inline(always)]
pub(super) fn choice_of<'a, E>(
    gateway: &'a GatewayService<E>,
    snapshot: &'a CoreSnapshot,
    forward: &Forward,
    request: &Request<'_>,
) -> Option<Box<Choice<'a>>> {
    let number = forward.group.as_ref()?.number;
    let group = snapshot.group(number, &gateway.upstreams);
    let trusted = &gateway.options.trusted_proxies;
    Some(choice_among(
        group,
        &request.head,
        &request.record.client,
        request.notes.as_deref(),
        trusted,
    ))
}

#[inline(never)]
fn choice_among<'a>(
    group: &'a Group,
    head: &RequestHead,
    peer: &Peer,
    notes: Option<&Notes<'_>>,
    trusted: &TrustedProxies,
) -> Box<Choice<'a>> {
    let fields = &head.fields;
    let value = |value: ClientValue<'_>| match value {
        ClientValue::Address => match client_of(fields, peer, trusted) {
            ClientAddress::Address(ip) => Some(ip.to_canonical().to_string().into_bytes()),
            ClientAddress::Unix | ClientAddress::Unknown => None,
        },
        ClientValue::Header(name) => fields.get(name).map(<[u8]>::to_vec),
        ClientValue::Cookie(name) => cookies(fields, name).next().map(<[u8]>::to_vec),
        ClientValue::Claim(name) => Some(notes?.claim(name)?.as_bytes().to_vec()),
    };
    Choice::new(group, value, || {
        Facts::of(head, peer, trusted).scheme == Scheme::Https
    })
}

/// The next address for a request. Most routes have one server.
#[inline(always)]
pub(super) fn next_address<'a>(route: &ForwardRoute<'a>, request: &mut Request<'a>) -> Pick {
    match request.choice {
        None => route.balancer().pick(&mut request.tried, blitz_http::now),
        Some(_) => next_of_group(route, request),
    }
}

/// Chooses a server, if the current one has no further address, and adapts the request to it.
#[inline(never)]
fn next_of_group<'a>(route: &ForwardRoute<'a>, request: &mut Request<'a>) -> Pick {
    let Some(choice) = &mut request.choice else {
        return Pick::Exhausted;
    };
    let pick = choice.pick(&mut request.tried, blitz_http::now());
    if let Some((target, balancer)) = choice.server() {
        route.balancer.set(balancer);
        if let Some(rewriting) = &mut request.rewriting {
            rewriting.set_upstream(&target.authority);
        }
        let group = route.forward.group.as_ref();
        if group.is_some_and(|group| group.sends_own_host) {
            request.head.set_authority(&target.authority);
        }
    }
    pick
}
