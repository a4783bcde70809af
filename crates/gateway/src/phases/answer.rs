//! Phase `answer`: a route without an upstream answers.

use blitz_http::{Chunk, Exchange};

use super::admit::check_method;
use super::finish::reject;
use crate::answer::Answer;
use crate::forward;
use crate::record::{self, Ended, Record};
use crate::route::Route;
use crate::rules::{Facts, apply};
use crate::service::GatewayService;

/// Sends the answer of the route, with its fields.
#[inline(never)]
pub(super) fn respond_answer<S>(
    gateway: &GatewayService<S>,
    mut exchange: Exchange,
    route: &Route,
    answer: &Answer,
) {
    if let Err(rejection) = check_method(&mut exchange.request) {
        return reject(gateway, exchange, rejection, route.rules.as_deref());
    }
    let Exchange {
        mut request,
        responder,
        peer,
        ..
    } = exchange;
    forward::ensure_request_id(&mut request.fields);
    let facts = Facts::of(&request, &peer, &gateway.options.trusted_proxies);
    let (mut head, mut content) = answer.respond(&facts);
    if let Some(edits) = route
        .rules
        .as_ref()
        .and_then(|rules| rules.response_edits.as_ref())
    {
        apply(&edits.for_request(&facts), &mut head.fields);
    }
    if head.status.forbids_content() {
        content = Chunk::from("");
    }
    let mut record = Record::new(&request, peer, Some(route), &gateway.observers);
    record.ended = Ended::Complete;
    record.sent_own_response(head.status, content.len());
    responder.send(&mut head, content);
    record::emit(&record, &request);
}
