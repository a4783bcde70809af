//! Phase `wait`: policies of the route that need another thread or service decide, and files before an upstream are looked
//! for.

use blitz_http::{Exchange, PooledFuture};
use blitz_site::{Notes, Rejection};

use super::file_first::{file_first, may_be_file};
use super::finish::{emit_left, reject};
use super::route::{Rejected, Routed, authorizer, check_after_policies, policy_request};
use crate::route::Route;
use crate::rules::client_of;
use crate::service::GatewayService;
use crate::sites::SiteRoutes;
use crate::snapshot::CoreSnapshot;

/// Waits until the policies of the route have decided, and until files before an upstream were looked for. Returns the
/// exchange; `None` if it was answered. It moves into the future and back, so that it takes no room twice in the future of
/// each request.
#[cold]
pub(super) fn wait<'w, 'a: 'w, E>(
    gateway: &'w GatewayService<E>,
    snapshot: &'w CoreSnapshot,
    site: &'w SiteRoutes,
    routed: &'w mut Routed<'a>,
    mut exchange: Exchange,
) -> PooledFuture<'w, Option<Exchange>> {
    PooledFuture::new(async move {
        if routed.is_suspended() {
            exchange = decide(gateway, snapshot, site, routed, exchange).await?;
        }
        let Some((route, files)) = routed
            .route
            .and_then(|route| Some((route, route.files_first()?)))
        else {
            return Some(exchange);
        };
        if !may_be_file(&exchange) {
            return Some(exchange);
        }
        let route = (route, files, &mut routed.notes);
        file_first(gateway, snapshot.observers(), site, route, exchange).await
    })
}

/// Waits until the policies have decided. `None` if the request was rejected.
async fn decide<E>(
    gateway: &GatewayService<E>,
    snapshot: &CoreSnapshot,
    site: &SiteRoutes,
    routed: &mut Routed<'_>,
    mut exchange: Exchange,
) -> Option<Exchange> {
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
        // Only rules have policies that wait.
        let rules = self.route.rules.as_deref();
        let rules = rules.ok_or(Rejection::PolicyPanicked)?;
        let authorizer = authorizer(gateway, self.snapshot, (self.site, rules), self.exchange);
        let request = policy_request(gateway, self.exchange, client, &authorizer);
        self.notes.wait(&request).await?;
        check_after_policies(gateway, rules, self.exchange, Some(self.notes))
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
