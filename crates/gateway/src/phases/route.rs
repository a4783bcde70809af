//! Phase `route`: the route of the request, and what it demands of the request.

use std::net::IpAddr;

use blitz_http::{Exchange, RequestHead, path as request_path};

use crate::rejection::Rejection;
use crate::route::Route;
use crate::rules::{Rules, client_of};
use crate::service::GatewayService;
use crate::sites::SiteRoutes;

/// The route of the site that matches; `None` is the fallback.
///
/// # Errors
/// Why the request is rejected, and the rules for the response.
#[inline]
pub(super) fn route<'a, S>(
    gateway: &GatewayService<S>,
    site: &'a SiteRoutes,
    exchange: &mut Exchange,
) -> Result<Option<&'a Route>, (Rejection, Option<&'a Rules>)> {
    let Some(route) = site.routes.find(&exchange.request) else {
        limit_content(exchange, gateway.options.body_bytes_max)
            .map_err(|rejection| (rejection, None))?;
        return match site.has_fallback {
            true => Ok(None),
            false => Err((Rejection::UnknownPath, Some(&site.rules))),
        };
    };
    let rules = route.rules.as_deref();
    let checked = match rules {
        None if !site.has_access_rules => limit_content(exchange, gateway.options.body_bytes_max),
        _ => check(gateway, site, rules, exchange),
    };
    checked
        .map(|()| Some(route))
        .map_err(|rejection| (rejection, rules))
}

fn check<S>(
    gateway: &GatewayService<S>,
    site: &SiteRoutes,
    rules: Option<&Rules>,
    exchange: &mut Exchange,
) -> Result<(), Rejection> {
    let head = &exchange.request;
    if site.has_access_rules {
        let client = client_of(
            &head.fields,
            &exchange.peer,
            &gateway.options.trusted_proxies,
        );
        if rules.is_some_and(|rules| !rules.admits(client)) {
            return Err(Rejection::Forbidden);
        }
        check_other_readings(site, head, client)?;
    }
    rules.map_or(Ok(()), |rules| rules.check_method(head))?;
    let own = rules.and_then(|rules| rules.body_bytes_max);
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

/// Rejects a path that an origin may read as one that this client may not request: servlet containers drop what
/// follows a semicolon, and many servers decode `%2F` or take several slashes for one (rule 10).
fn check_other_readings(
    site: &SiteRoutes,
    head: &RequestHead,
    client: Option<IpAddr>,
) -> Result<(), Rejection> {
    let path = head.path();
    let is_refused = |reading: &str| {
        let route = site
            .routes
            .find_for(reading, head.method, head.method_str());
        let rules = route.and_then(|route| route.rules.as_deref());
        rules.is_some_and(|rules| !rules.admits(client))
    };
    match is_ambiguous(path) && readings(path).iter().any(|reading| is_refused(reading)) {
        true => Err(Rejection::AmbiguousPath),
        false => Ok(()),
    }
}

/// Whether servers read the path in several ways.
fn is_ambiguous(path: &str) -> bool {
    path.contains([';', '\\'])
        || path.contains("//")
        || path.contains("%2F")
        || path.contains("%5C")
}

/// What servers may make of a path: with or without parameters of segments, encoded slashes, and empty segments.
fn readings(path: &str) -> Vec<String> {
    let mut all = vec![path.to_owned()];
    for change in [without_parameters, with_slashes, without_empty_segments] {
        let changed: Vec<String> = all.iter().map(|reading| change(reading)).collect();
        all.extend(changed);
    }
    // What leads above the root is read as the root.
    let resolved = all.iter().map(|reading| {
        let mut out = String::new();
        match request_path::remove_dot_segments(reading, &mut out) {
            Ok(()) => out,
            Err(_) => "/".to_owned(),
        }
    });
    resolved.collect()
}

fn without_parameters(path: &str) -> String {
    let segments = path.split('/');
    let segments = segments.map(|segment| segment.split(';').next().unwrap_or_default());
    segments.collect::<Vec<_>>().join("/")
}

fn with_slashes(path: &str) -> String {
    path.replace("%2F", "/")
        .replace("%5C", "/")
        .replace('\\', "/")
}

fn without_empty_segments(path: &str) -> String {
    let mut shorter = String::new();
    for char in path.chars() {
        if char != '/' || !shorter.ends_with('/') {
            shorter.push(char);
        }
    }
    shorter
}
