//! Phase `files`: a file of the route's folder answers.

use std::rc::Rc;
use std::sync::Arc;

use blitz_http::{Exchange, PooledFuture, RequestHead, Status};
use blitz_site::compress::Compressing;
use blitz_site::folder::{FileAnswer, FileStep};
use blitz_site::{CoreObservers, HandedOver, Notes, Record, Rejection};

use super::admit::check_method;
use super::finish::{reject, response_edits};
use super::route::Rejected;
use crate::files::Files;
use crate::forward;
use crate::route::Route;
use crate::service::GatewayService;
use crate::sites::SiteRoutes;

/// Answers with a file of the folder. Its future has memory of its own, since it is larger than those of other actions.
pub(super) async fn respond_file<E>(
    gateway: &GatewayService<E>,
    observers: &CoreObservers,
    site: &SiteRoutes,
    (route, files, notes): (&Route, &Arc<Files>, Option<Box<Notes<'_>>>),
    mut exchange: Exchange,
) {
    if let Err(rejection) = check_method(&mut exchange.request) {
        let rejected = Rejected {
            rejection,
            site: Some(site),
            route: Some(route),
            notes,
        };
        return reject(gateway, observers, exchange, rejected);
    }
    let route = (route, files, notes);
    respond_with(gateway, observers, site, route, exchange, None).await;
}

/// Answers with what was found; `None` looks for it.
pub(super) async fn respond_with<E>(
    gateway: &GatewayService<E>,
    observers: &CoreObservers,
    site: &SiteRoutes,
    (route, files, notes): (&Route, &Arc<Files>, Option<Box<Notes<'_>>>),
    mut exchange: Exchange,
    found: Option<FileAnswer>,
) {
    let (head, peer) = (&mut exchange.request, &exchange.peer);
    forward::ensure_request_id(&mut head.fields);
    let rules = route.rules.as_deref();
    let edits = rules.map(|rules| {
        let trusted = &gateway.options.trusted_proxies;
        rules.edit_response(head, peer, trusted, notes.as_deref())
    });
    let mut record = Record::new(head, Rc::clone(peer), site.name(), Some(route), observers);
    record.begin_with(notes.as_deref());
    let compression = files.folder.compression();
    let compressing = compression.map(|compression| Compressing::of_public(compression, head));
    let mut handed = HandedOver::new(record, &exchange.request);
    let is_busy = {
        let edits = response_edits(&notes, edits.as_deref());
        let exchange = handed.exchange(exchange, edits, None);
        let (head, responder) = (exchange.request, exchange.responder);
        let answer = match found {
            Some(answer) => answer,
            None => look_for(gateway, files, &head).await,
        };
        match answer {
            FileAnswer::Response(mut response, content) => {
                if let Some(rest) = content.send(responder, &mut response, compressing.as_ref()) {
                    rest.await;
                }
                false
            }
            // The error, or the page of the route for it.
            FileAnswer::Refused(response, detail) => {
                let is_busy = response.status == Status::SERVICE_UNAVAILABLE;
                let compresses = rules.is_some_and(|rules| rules.compression.is_some());
                let compressing = compressing.as_ref().filter(|_| compresses);
                let pages = rules.map(|rules| &rules.pages);
                let responder = responder.compressing(compressing);
                responder.send_error(&head.fields, pages, response, detail);
                is_busy
            }
        }
    };
    if is_busy {
        handed.note_rejected(Rejection::FilesBusy);
    }
}

async fn look_for<E>(gateway: &GatewayService<E>, files: &Files, head: &RequestHead) -> FileAnswer {
    let request = files.request(head);
    match request.begin(&gateway.files) {
        FileStep::Answer(answer) => answer,
        FileStep::LookUp(lookup) => {
            PooledFuture::new(request.look_up(&gateway.files, lookup)).await
        }
    }
}
