//! Phase `file_first`: a file answers in place of the upstream, which gets the requests without one.

use std::sync::Arc;

use blitz_http::{Exchange, Method, PooledFuture};
use blitz_site::folder::FileStep;
use blitz_site::{CoreObservers, Notes};

use super::files::respond_with;
use super::finish::emit_left;
use crate::files::Files;
use crate::route::Route;
use crate::service::GatewayService;
use crate::sites::SiteRoutes;

/// Whether a file may answer: a request that asks for another protocol is for the upstream.
#[inline]
pub(super) fn may_be_file(exchange: &Exchange) -> bool {
    let reads = matches!(exchange.request.method, Method::Get | Method::Head);
    reads && !exchange.responder.upgrade_requested()
}

/// Answers with a file of the folder. Without one it returns the exchange, whose content is untouched, for the upstream. It
/// moves into the future and back, so that it takes no room twice in the future of each request.
#[inline(never)]
pub(super) fn file_first<'w, 'a: 'w, E>(
    gateway: &'w GatewayService<E>,
    observers: &'w CoreObservers,
    site: &'w SiteRoutes,
    (route, files, notes): (&'a Route, &'a Arc<Files>, &'w mut Option<Box<Notes<'a>>>),
    exchange: Exchange,
) -> PooledFuture<'w, Option<Exchange>> {
    PooledFuture::new(async move {
        let core = &gateway.files;
        let request = files.request(&exchange.request);
        let answer = match request.begin(core) {
            FileStep::Answer(answer) => answer,
            FileStep::LookUp(lookup) => {
                let notes = notes.get_or_insert_default();
                notes.started.get_or_insert_with(blitz_http::now);
                let mut left = Left {
                    exchange: &exchange,
                    observers,
                    site,
                    route,
                    notes,
                    is_over: false,
                };
                let answer = request.look_up(core, lookup).await;
                left.is_over = true;
                drop(left);
                answer
            }
        };
        if answer.is_missing() {
            let edits = files.upstream_edits();
            if !edits.is_empty() {
                notes.get_or_insert_default().edit_response(edits);
            }
            return Some(exchange);
        }
        let route = (route, files, notes.take());
        respond_with(gateway, observers, site, route, exchange, Some(answer)).await;
        None
    })
}

/// A request whose file is looked for. If it is dropped, its record is emitted.
struct Left<'u, 'a> {
    exchange: &'u Exchange,
    observers: &'u CoreObservers,
    site: &'u SiteRoutes,
    route: &'a Route,
    notes: &'u Notes<'a>,
    is_over: bool,
}

impl Drop for Left<'_, '_> {
    fn drop(&mut self) {
        if !self.is_over {
            let place = (self.site, self.route);
            emit_left(self.exchange, self.observers, place, self.notes);
        }
    }
}
