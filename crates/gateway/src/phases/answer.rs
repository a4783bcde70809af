//! Phase `answer`: a route without an upstream answers.

use blitz_http::{Chunk, Exchange};
use blitz_site::{CoreObservers, Notes, Record, Responder, emit};

use super::admit::check_method;
use super::finish::{reject, response_edits};
use super::route::Rejected;
use crate::answer::Answer;
use crate::forward;
use crate::route::Route;
use crate::rules::Facts;
use crate::service::GatewayService;
use crate::sites::SiteRoutes;

/// Sends the response of the route, with its fields.
#[inline(never)]
pub(super) fn respond_answer<E>(
    gateway: &GatewayService<E>,
    observers: &CoreObservers,
    site: &SiteRoutes,
    route: &Route,
    answer: &Answer,
    mut exchange: Exchange,
    notes: Option<Box<Notes<'_>>>,
) {
    if let Err(rejection) = check_method(&mut exchange.request) {
        let rejected = Rejected {
            rejection,
            route: Some(route),
            notes,
        };
        return reject(gateway, observers, exchange, Some(site), rejected);
    }
    let Exchange {
        mut request,
        mut body,
        responder,
        peer,
    } = exchange;
    forward::ensure_request_id(&mut request.fields);
    let facts = Facts::of(&request, &peer, &gateway.options.trusted_proxies);
    let (mut head, mut content) = answer.respond(&facts);
    let rules = route.rules.as_ref();
    let edits = rules.and_then(|rules| rules.response_edits.as_ref());
    let edits = edits.map(|edits| edits.for_request(&facts));
    if head.status.forbids_content() {
        content = Chunk::from("");
    }
    let mut record = Record::new(&request, peer, site.name(), Some(route), observers);
    record.begin_with(notes.as_deref());
    if record.is_observed() {
        record.request_bytes = body.take_whole().map_or(0, |content| content.len() as u64);
    }
    let edits = response_edits(&notes, edits.as_deref());
    let responder = Responder::new(responder, edits, &mut record.response);
    responder.send(&mut head, content);
    emit(&mut record, &request);
}
