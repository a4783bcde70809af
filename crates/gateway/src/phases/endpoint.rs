//! Phase `endpoint`: an app answers, of a route or in place of one.

use std::rc::Rc;

use blitz_http::{Exchange, Peer, Pooled, RequestHead, Scheme, Status};
use blitz_site::{
    AppClient, AppParts, CoreObservers, Endpoint, EndpointMaker, HandedOver, Notes, Record,
    RequestPages, Responder, ResponseEdits, apply_to_request, emit,
};

use super::finish::response_edits;
use crate::forward;
use crate::grpc::{Call, Code};
use crate::route::Route;
use crate::rules::{Facts, client_of};
use crate::service::GatewayService;
use crate::sites::SiteRoutes;
use crate::trusted::TrustedProxies;

/// Passes a request that no route matches to the fallback. A call gets a status, which the fallback does not know.
pub(super) async fn pass_to_fallback<E: Endpoint>(
    gateway: &GatewayService<E>,
    observers: &CoreObservers,
    site: &SiteRoutes,
    exchange: Exchange,
) {
    if let Some(call) = Call::of(&exchange.request) {
        return respond_unrouted(&call, observers, site, exchange);
    }
    let trusted = &gateway.options.trusted_proxies;
    let client = told_client(&exchange.request, &exchange.peer, trusted);
    let mut handed = HandedOver::default();
    let peer = Rc::clone(&exchange.peer);
    let record = Record::new(&exchange.request, peer, site.name(), None, observers);
    let mut exchange = handed.to_app((record, None), exchange, ResponseEdits::default(), None);
    exchange.client = client.as_ref();
    if let Some(rest) = Rc::clone(&gateway.fallback).call(exchange) {
        rest.await;
    }
}

/// Passes the request to the endpoint of its route.
pub(super) async fn pass_to_endpoint<E>(
    gateway: &GatewayService<E>,
    observers: &CoreObservers,
    site: &SiteRoutes,
    (route, maker, notes): (&Route, &EndpointMaker, Option<Box<Notes<'_>>>),
    mut exchange: Exchange,
) {
    let (head, peer) = (&mut exchange.request, &exchange.peer);
    let trusted = &gateway.options.trusted_proxies;
    let rules = route.rules.as_deref();
    let edits = rules.map(|rules| rules.edit_response(head, peer, trusted, notes.as_deref()));
    // From the fields as the client sent them.
    let compressing = rules.and_then(|rules| rules.compressing(head));
    let client = told_client(head, peer, trusted);
    if let Some(notes) = &notes {
        notes.identify(&mut head.fields);
    }
    if let Some(changes) = rules.and_then(|rules| rules.request_edits.as_ref()) {
        forward::ensure_request_id(&mut head.fields);
        let facts = Facts::of(head, peer, trusted).with_notes(notes.as_deref());
        let changes = changes.for_request(&facts);
        apply_to_request(&changes, &mut head.fields);
    }
    let pages = rules.and_then(|rules| RequestPages::new(&rules.pages, &exchange.request.fields));
    let parts = pages.as_ref().map(|pages| AppParts {
        pages: Some(pages),
        ..AppParts::default()
    });
    let mut handed = HandedOver::default();
    let (head, peer) = (&exchange.request, Rc::clone(&exchange.peer));
    let record = Record::new(head, peer, site.name(), Some(route), observers);
    let mut exchange = handed.to_app(
        (record, notes.as_deref()),
        exchange,
        response_edits(&notes, edits.as_deref()),
        parts.as_ref(),
    );
    exchange.client = client.as_ref();
    exchange.responder = exchange.responder.compressing(compressing.as_ref());
    if let Some(rest) = gateway.endpoint(maker).call(exchange) {
        rest.await;
    }
}

/// The client; `None` is the peer.
#[inline]
fn told_client(head: &RequestHead, peer: &Peer, trusted: &TrustedProxies) -> Option<AppClient> {
    match trusted.is_empty() {
        true => None,
        false => Some(AppClient {
            address: client_of(&head.fields, peer, trusted),
            is_secure: Facts::of(head, peer, trusted).scheme == Scheme::Https,
        }),
    }
}

/// Responds to a call that no target matches.
#[cold]
fn respond_unrouted(call: &Call, observers: &CoreObservers, site: &SiteRoutes, exchange: Exchange) {
    let (request, peer) = (&exchange.request, Rc::clone(&exchange.peer));
    let mut record = Record::new(request, peer, site.name(), None, observers);
    let mut head = Pooled::response(Status::NOT_FOUND);
    let code = Code::of_status(head.status);
    let content = call.respond(&mut head, code, "no target matches this path");
    record.grpc_status = Some(code as u8);
    let responder = Responder::new(
        exchange.responder,
        ResponseEdits::default(),
        &mut record.response,
    );
    responder.send(&mut head, content);
    emit(&mut record, &exchange.request);
}
