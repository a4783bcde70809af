//! Phase `route`: the route of the request, its demands on the request, and its policies.

use blitz_http::{Exchange, Scheme};
use blitz_site::{Authorizer, ClientAddress, Notes, PolicyRequest, Rejection};

use super::authorize::CoreAuthorizer;
use crate::route::Route;
use crate::rules::{Facts, Rules, client_of};
use crate::service::GatewayService;
use crate::sites::SiteRoutes;
use crate::snapshot::CoreSnapshot;
use crate::variants::Subject;

/// A request that its route takes.
pub(super) struct Routed<'a> {
    /// `None` is the fallback.
    pub(super) route: Option<&'a Route>,
    /// `None` if no policy left any.
    pub(super) notes: Option<Box<Notes<'a>>>,
}

impl Routed<'_> {
    /// Whether a policy waits, or files are before an upstream.
    #[inline]
    pub(super) fn waits(&self) -> bool {
        self.is_suspended()
            || self
                .route
                .is_some_and(|route| route.files_first().is_some())
    }

    /// Whether a policy waits.
    #[inline]
    pub(super) fn is_suspended(&self) -> bool {
        self.notes
            .as_ref()
            .is_some_and(|notes| notes.is_suspended())
    }
}

/// A request that is rejected before its route answers.
pub(super) struct Rejected<'a> {
    pub(super) rejection: Rejection,
    /// The site of its host.
    pub(super) site: Option<&'a SiteRoutes>,
    /// The route that matches.
    pub(super) route: Option<&'a Route>,
    /// Those of the policies up to the one that rejects it.
    pub(super) notes: Option<Box<Notes<'a>>>,
}

impl<'a> Rejected<'a> {
    /// A request without a route.
    pub(super) fn unrouted(rejection: Rejection, site: Option<&'a SiteRoutes>) -> Rejected<'a> {
        Rejected {
            rejection,
            site,
            route: None,
            notes: None,
        }
    }
}

/// The route of the site that matches.
///
/// # Errors
/// The request is rejected.
#[inline]
pub(super) fn route<'a, E>(
    gateway: &GatewayService<E>,
    snapshot: &CoreSnapshot,
    site: &'a SiteRoutes,
    exchange: &mut Exchange,
) -> Result<Routed<'a>, Rejected<'a>> {
    let Some(route) = site.find(&exchange.request) else {
        return unrouted(gateway, snapshot, site, exchange);
    };
    let route = match &route.variants {
        None => route,
        Some(_) => variant(gateway, route, exchange),
    };
    let mut notes = None;
    let checked = match route.rules.as_deref() {
        None if !site.has_access_rules() => limit_content(exchange, gateway.options.body_bytes_max),
        rules => check(
            gateway,
            snapshot,
            (site, route),
            rules,
            exchange,
            &mut notes,
        ),
    };
    let route = Some(route);
    match checked {
        Ok(()) => Ok(Routed { route, notes }),
        Err(rejection) => Err(Rejected {
            rejection,
            site: Some(site),
            route,
            notes,
        }),
    }
}

/// A request without a route goes to the fallback; without one it gets 404, as the policies of the site say.
fn unrouted<'a, E>(
    gateway: &GatewayService<E>,
    snapshot: &CoreSnapshot,
    site: &'a SiteRoutes,
    exchange: &mut Exchange,
) -> Result<Routed<'a>, Rejected<'a>> {
    let mut notes: Option<Box<Notes<'a>>> = None;
    let limited = limit_content(exchange, gateway.options.body_bytes_max);
    let found = match (limited, site.has_fallback) {
        (Ok(()), true) => Ok(Routed {
            route: None,
            notes: None,
        }),
        (Ok(()), false) => Err(Rejection::UnknownPath),
        (Err(rejection), _) => Err(rejection),
    };
    found.map_err(|mut rejection| {
        let rules = site.rules.as_deref();
        if let Some(rules) = rules.filter(|rules| !rules.policies.is_empty()) {
            let place = (gateway, snapshot);
            let notes = notes.get_or_insert_default();
            let decided = decide_unrouted(place, (site, rules), exchange, notes);
            rejection = decided.err().unwrap_or(rejection);
        }
        Rejected {
            rejection,
            site: Some(site),
            route: None,
            notes,
        }
    })
}

/// The policies of a site about responses to paths without a route. A preflight about one is answered, so that scripts
/// see the 404 of the request.
#[cold]
fn decide_unrouted<'a, E>(
    (gateway, snapshot): (&GatewayService<E>, &CoreSnapshot),
    (site, rules): (&SiteRoutes, &'a Rules),
    exchange: &Exchange,
    notes: &mut Notes<'a>,
) -> Result<(), Rejection> {
    let (head, trusted) = (&exchange.request, &gateway.options.trusted_proxies);
    protect_response(gateway, rules, exchange, notes);
    let client = client_of(&head.fields, &exchange.peer, trusted);
    let authorizer = authorizer(gateway, snapshot, (site, rules), exchange);
    let request = policy_request(gateway, exchange, client, &authorizer);
    rules.policies.decide(&request, notes)
}

/// Notes the fields that browsers get with each response.
fn protect_response<'a, E>(
    gateway: &GatewayService<E>,
    rules: &'a Rules,
    exchange: &Exchange,
    notes: &mut Notes<'a>,
) {
    if let Some(headers) = rules.policies.security_headers() {
        let trusted = &gateway.options.trusted_proxies;
        let scheme = Facts::of(&exchange.request, &exchange.peer, trusted).scheme;
        notes.edit_response(headers.edits(scheme == Scheme::Https));
    }
}

#[inline(never)]
fn variant<'a, E>(gateway: &GatewayService<E>, route: &'a Route, exchange: &Exchange) -> &'a Route {
    let trusted = &gateway.options.trusted_proxies;
    route.variant(&Subject::of(&exchange.request, &exchange.peer, trusted))
}

/// The order of the checks is that of the language.
#[inline(never)]
fn check<'a, E>(
    gateway: &GatewayService<E>,
    snapshot: &CoreSnapshot,
    (site, route): (&SiteRoutes, &Route),
    rules: Option<&'a Rules>,
    exchange: &mut Exchange,
    notes: &mut Option<Box<Notes<'a>>>,
) -> Result<(), Rejection> {
    let head = &exchange.request;
    let trusted = &gateway.options.trusted_proxies;
    if let Some(rules) = rules.filter(|rules| rules.policies.security_headers().is_some()) {
        protect_response(gateway, rules, exchange, notes.get_or_insert_default());
    }
    let mut client = None;
    if site.has_access_rules() {
        let known = *client.insert(client_of(&head.fields, &exchange.peer, trusted));
        site.admit(route, head, known)?;
    }
    let Some(rules) = rules else {
        return limit_content(exchange, gateway.options.body_bytes_max);
    };
    if !rules.policies.is_empty() {
        let client = client.unwrap_or_else(|| client_of(&head.fields, &exchange.peer, trusted));
        let notes = notes.get_or_insert_default();
        let authorizer = authorizer(gateway, snapshot, (site, rules), exchange);
        let request = policy_request(gateway, exchange, client, &authorizer);
        rules.policies.decide(&request, notes)?;
        if notes.is_suspended() {
            return Ok(());
        }
    }
    check_after_policies(gateway, rules, exchange, notes.as_deref())
}

pub(super) fn policy_request<'a, E>(
    gateway: &'a GatewayService<E>,
    exchange: &'a Exchange,
    client: ClientAddress,
    authorizer: &'a dyn Authorizer,
) -> PolicyRequest<'a> {
    PolicyRequest {
        head: &exchange.request,
        client,
        certificate: exchange.peer.handshake_certificate(),
        clock: Some(blitz_http::wall_clock),
        limits: Some(&gateway.limits),
        authorizer: Some(authorizer),
    }
}

pub(super) fn authorizer<'a, E>(
    gateway: &'a GatewayService<E>,
    snapshot: &'a CoreSnapshot,
    (site, rules): (&SiteRoutes, &'a Rules),
    exchange: &'a Exchange,
) -> CoreAuthorizer<'a, E> {
    CoreAuthorizer {
        gateway,
        snapshot,
        peer: &exchange.peer,
        head: &exchange.request,
        sends_certificate: gateway.options.client_cert_header || site.tls.sends_certificate,
        request_edits: rules.request_edits.as_ref(),
    }
}

#[inline]
pub(super) fn check_after_policies<E>(
    gateway: &GatewayService<E>,
    rules: &Rules,
    exchange: &mut Exchange,
    notes: Option<&Notes<'_>>,
) -> Result<(), Rejection> {
    rules.check_method(&exchange.request)?;
    let own = rules.body_bytes_max;
    limit_content(exchange, own.or(gateway.options.body_bytes_max))?;
    if let Some(hints) = notes.and_then(|notes| notes.early_hints) {
        hints.send(&mut exchange.responder);
    }
    Ok(())
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
