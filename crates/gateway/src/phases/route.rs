//! Phase `route`: the route of the request, and its demands on the request.

use blitz_http::Exchange;
use blitz_site::Rejection;

use crate::route::Route;
use crate::rules::client_of;
use crate::service::GatewayService;
use crate::sites::SiteRoutes;
use crate::variants::Subject;

/// The route of the site that matches; `None` is the fallback.
///
/// # Errors
/// Why the request is rejected, and the route that matches.
#[inline]
pub(super) fn route<'a, E>(
    gateway: &GatewayService<E>,
    site: &'a SiteRoutes,
    exchange: &mut Exchange,
) -> Result<Option<&'a Route>, (Rejection, Option<&'a Route>)> {
    let Some(route) = site.routes.find(&exchange.request) else {
        limit_content(exchange, gateway.options.body_bytes_max)
            .map_err(|rejection| (rejection, None))?;
        return match site.has_fallback {
            true => Ok(None),
            false => Err((Rejection::UnknownPath, None)),
        };
    };
    let route = match &route.variants {
        None => route,
        Some(_) => variant(gateway, route, exchange),
    };
    let checked = match route.rules.as_deref() {
        None if !site.has_access_rules() => limit_content(exchange, gateway.options.body_bytes_max),
        _ => check(gateway, site, route, exchange),
    };
    checked
        .map(|()| Some(route))
        .map_err(|rejection| (rejection, Some(route)))
}

#[inline(never)]
fn variant<'a, E>(gateway: &GatewayService<E>, route: &'a Route, exchange: &Exchange) -> &'a Route {
    let trusted = &gateway.options.trusted_proxies;
    route.variant(&Subject::of(&exchange.request, &exchange.peer, trusted))
}

#[inline(never)]
fn check<E>(
    gateway: &GatewayService<E>,
    site: &SiteRoutes,
    route: &Route,
    exchange: &mut Exchange,
) -> Result<(), Rejection> {
    let trusted = &gateway.options.trusted_proxies;
    let client = || client_of(&exchange.request.fields, &exchange.peer, trusted);
    site.admit(route, &exchange.request, client)?;
    let own = route.rules.as_ref().and_then(|rules| rules.body_bytes_max);
    limit_content(exchange, own.or(gateway.options.body_bytes_max))
}

/// Content whose length is not declared is counted while it is read.
#[inline]
fn limit_content(exchange: &mut Exchange, bytes_max: Option<u64>) -> Result<(), Rejection> {
    let Some(bytes_max) = bytes_max else {
        return Ok(());
    };
    let limited = exchange.body.limit(bytes_max);
    limited.map_err(|_| Rejection::ContentTooLarge)
}
