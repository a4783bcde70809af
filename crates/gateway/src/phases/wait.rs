//! Phase `wait`: policies of the route that need another thread or service decide.

use std::rc::Rc;

use blitz_http::{Exchange, PooledFuture};
use blitz_site::{CoreObservers, Notes, Record, Rejection, RouteName, emit};

use super::finish::reject;
use super::route::{Rejected, Routed, authorizer, check_after_policies, policy_request};
use crate::route::Route;
use crate::rules::client_of;
use crate::service::GatewayService;
use crate::sites::SiteRoutes;
use crate::snapshot::CoreSnapshot;

/// Waits until the policies of the route have decided. Returns the exchange; `None` if it was rejected. It moves into the
/// future and back, so that it takes no room twice in the future of each request.
#[cold]
pub(super) fn wait<'w, E>(
    gateway: &'w GatewayService<E>,
    snapshot: &'w CoreSnapshot,
    site: &'w SiteRoutes,
    routed: &'w mut Routed<'_>,
    mut exchange: Exchange,
) -> PooledFuture<'w, Option<Exchange>> {
    PooledFuture::new(async move {
        let (Some(route), Some(notes)) = (routed.route, &mut routed.notes) else {
            return Some(exchange);
        };
        notes.started = Some(blitz_http::now());
        let mut undecided = Undecided {
            exchange: &mut exchange,
            snapshot,
            site,
            route,
            notes,
            is_decided: false,
        };
        let decided = undecided.decide(gateway).await;
        undecided.is_decided = true;
        drop(undecided);
        match decided {
            Ok(()) => Some(exchange),
            Err(rejection) => {
                let notes = routed.notes.take();
                let rejected = Rejected {
                    rejection,
                    site: Some(site),
                    route: routed.route,
                    notes,
                };
                reject(gateway, snapshot.observers(), exchange, rejected);
                None
            }
        }
    })
}

/// A request whose policies have not decided. If it is dropped, its record is emitted.
struct Undecided<'u, 'a> {
    exchange: &'u mut Exchange,
    snapshot: &'u CoreSnapshot,
    site: &'u SiteRoutes,
    route: &'a Route,
    notes: &'u mut Notes<'a>,
    is_decided: bool,
}

impl Undecided<'_, '_> {
    async fn decide<E>(&mut self, gateway: &GatewayService<E>) -> Result<(), Rejection> {
        let head = &self.exchange.request;
        let client = client_of(
            &head.fields,
            &self.exchange.peer,
            &gateway.options.trusted_proxies,
        );
        let authorizer = authorizer(gateway, self.snapshot, self.exchange);
        let request = policy_request(gateway, head, client, &authorizer);
        self.notes.wait(&request).await?;
        let rules = self.route.rules.as_deref();
        rules.map_or(Ok(()), |rules| {
            check_after_policies(gateway, rules, self.exchange, Some(self.notes))
        })
    }
}

impl Drop for Undecided<'_, '_> {
    fn drop(&mut self) {
        if self.is_decided {
            return;
        }
        let observers = self.snapshot.observers();
        emit_left(
            self.exchange,
            observers,
            (self.site, self.route),
            self.notes,
        );
    }
}

/// Emits the record of a request whose client left while it waited for another thread or service.
pub(super) fn emit_left(
    exchange: &Exchange,
    observers: &CoreObservers,
    (site, route): (&SiteRoutes, &Route),
    notes: &Notes<'_>,
) {
    let (head, peer) = (&exchange.request, Rc::clone(&exchange.peer));
    let route: &dyn RouteName = route;
    let mut record = Record::new(head, peer, site.name(), Some(route), observers);
    record.begin_with(Some(notes));
    record.response.find_end();
    emit(&mut record, head);
}
