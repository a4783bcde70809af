//! Phase `answer`: a route without an upstream answers.

use std::rc::Rc;

use blitz_http::{Chunk, Exchange, PooledFuture};
use blitz_site::compress::STEP_BYTES;
use blitz_site::{CoreObservers, HandedOver, Notes, Record, Responder, emit};

use super::admit::check_method;
use super::finish::{reject, response_edits};
use super::route::Rejected;
use crate::answer::Answer;
use crate::forward;
use crate::route::Route;
use crate::rules::Facts;
use crate::service::GatewayService;
use crate::sites::SiteRoutes;

/// Sends the response of the route, with its fields. Returns the rest of the work, if content is compressed in steps.
#[inline(never)]
pub(super) fn respond_answer<'a, E>(
    gateway: &'a GatewayService<E>,
    observers: &'a CoreObservers,
    site: &'a SiteRoutes,
    (route, answer, notes): (&'a Route, &Answer, Option<Box<Notes<'a>>>),
    mut exchange: Exchange,
) -> Option<PooledFuture<'a, ()>> {
    if let Err(rejection) = check_method(&mut exchange.request) {
        let rejected = Rejected {
            rejection,
            site: Some(site),
            route: Some(route),
            notes,
        };
        reject(gateway, observers, exchange, rejected);
        return None;
    }
    let Exchange {
        mut request,
        mut body,
        responder,
        peer,
    } = exchange;
    forward::ensure_request_id(&mut request.fields);
    let facts = Facts::of(&request, &peer, &gateway.options.trusted_proxies);
    let facts = facts.with_notes(notes.as_deref());
    let (mut head, mut content) = answer.respond(&facts);
    let rules = route.rules.as_deref();
    let edits = rules.and_then(|rules| rules.response_edits.as_ref());
    let edits = edits.map(|edits| edits.for_request(&facts));
    if head.status.forbids_content() {
        content = Chunk::from("");
    }
    let exchange_peer = Rc::clone(&peer);
    let mut record = Record::new(&request, peer, site.name(), Some(route), observers);
    record.begin_with(notes.as_deref());
    if record.is_observed() {
        record.request_bytes = body.take_whole().map_or(0, |content| content.len() as u64);
    }
    let compressing = rules.and_then(|rules| rules.compressing(&request));
    if let (Some(compressing), true) = (&compressing, content.len() > STEP_BYTES) {
        let compressing = compressing.clone();
        let handed = HandedOver::new(record, &request);
        let exchange = Exchange {
            request,
            body,
            responder,
            peer: exchange_peer,
        };
        return Some(PooledFuture::new(async move {
            let mut handed = handed;
            let exchange =
                handed.exchange(exchange, response_edits(&notes, edits.as_deref()), None);
            let responder = exchange.responder.compressing(Some(&compressing));
            if let Some(rest) = responder.send_long(&mut head, content) {
                rest.await;
            }
        }));
    }
    let edits = response_edits(&notes, edits.as_deref());
    let responder = Responder::new(responder, edits, &mut record.response);
    let responder = responder.compressing(compressing.as_ref());
    responder.send(&mut head, content);
    emit(&mut record, &request);
    None
}
