//! Phase `preflight`: checks before routing. Clear text goes to HTTPS if that is configured, a
//! certificate has to cover the request's host, and a site has to have it.

use blitz_http::{Exchange, Method, Peer, RequestHead, Scheme};
use blitz_site::Rejection;

use crate::forward::ProxyFacts;
use crate::service::GatewayService;
use crate::sites::{SiteRoutes, host_of, without_brackets};
use crate::trusted::TrustedProxies;

/// Authorities fetch the proof for a name in clear text (RFC 8555, section 8.3).
const ACME_CHALLENGES: &str = "/.well-known/acme-challenge/";

/// The site of the request, if there is one. Checks how it came in.
#[inline]
pub(super) fn preflight<'a, E>(
    gateway: &GatewayService<E>,
    site: Option<&'a SiteRoutes>,
    exchange: &Exchange,
) -> Result<&'a SiteRoutes, Rejection> {
    let redirects = site.is_some_and(|site| site.redirects);
    check_connection(gateway, redirects, exchange)?;
    // RFC 9110, section 15.5.20: over TLS, another connection may lead to a server of the host.
    let site = site.ok_or(match exchange.peer.tls {
        Some(_) => Rejection::Misdirected,
        None => Rejection::UnknownHost,
    })?;
    // The policy is that of the settings that the handshake ran with, whichever names the client has sent (rule 23).
    if let Some(tls) = &exchange.peer.tls
        && tls.policy != site.tls.policy_id
    {
        return Err(Rejection::TlsPolicy);
    }
    site.check_limits(&exchange.request)?;
    Ok(site)
}

/// Requests that came over HTTPS according to a trusted proxy need no redirect.
#[inline]
fn check_connection<E>(
    gateway: &GatewayService<E>,
    redirects: bool,
    exchange: &Exchange,
) -> Result<(), Rejection> {
    match &exchange.peer.tls {
        Some(_) => check_certificate(&exchange.request, &exchange.peer),
        None if redirects && !is_forwarded_https(&gateway.options.trusted_proxies, exchange) => {
            check_encryption(&exchange.request)
        }
        None => Ok(()),
    }
}

fn is_forwarded_https(trusted: &TrustedProxies, exchange: &Exchange) -> bool {
    let facts = ProxyFacts::of(&exchange.request, &exchange.peer, trusted);
    facts.is_some_and(|facts| facts.scheme == Scheme::Https)
}

/// RFC 9110, section 15.5.20: the certificate in use decides, also without SNI (rule 23).
fn check_certificate(head: &RequestHead, peer: &Peer) -> Result<(), Rejection> {
    // Without a host, which HTTP/1.0 allows, the target's own is sent.
    let Some(authority) = head.authority() else {
        return Ok(());
    };
    let host = host_of(authority);
    let is_covered = host.is_empty()
        || peer
            .tls
            .as_ref()
            .is_none_or(|tls| tls.covers(without_brackets(host)));
    match is_covered {
        true => Ok(()),
        false => Err(Rejection::Misdirected),
    }
}

/// # Errors
/// A request in clear text is redirected, or names no host that it could be redirected to.
pub(crate) fn check_encryption(head: &RequestHead) -> Result<(), Rejection> {
    let is_tunnel = head.method == Method::Connect && head.protocol().is_none();
    if is_tunnel || head.path().starts_with(ACME_CHALLENGES) {
        return Ok(());
    }
    match host_of(head.authority().unwrap_or_default()) {
        "" => Err(Rejection::NoHost),
        _ => Err(Rejection::HttpsOnly),
    }
}

/// URL of the same resource over HTTPS. The host is the client's: the
/// gateway knows no other name of its own.
pub(super) fn https_location<E>(
    gateway: &GatewayService<E>,
    head: &RequestHead,
    peer: &Peer,
) -> String {
    let told = ProxyFacts::of(head, peer, &gateway.options.trusted_proxies);
    let told = told.map(|facts| facts.authority());
    let authority = told.as_deref().or(head.authority()).unwrap_or_default();
    let redirect = gateway.snapshot().https_redirect();
    redirect.url(authority, head.path_and_query())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(authority: &str, target: &str) -> RequestHead {
        let mut head = RequestHead::new(Method::Get, target);
        if !authority.is_empty() {
            head.set_authority(authority);
        }
        head
    }

    #[test]
    fn requests_in_clear_text_are_redirected() {
        assert_eq!(
            check_encryption(&head("a.example", "/x")),
            Err(Rejection::HttpsOnly)
        );
    }

    #[test]
    fn requests_without_a_host_cannot_be_redirected() {
        assert_eq!(check_encryption(&head("", "/x")), Err(Rejection::NoHost));
    }

    #[test]
    fn acme_challenges_stay_in_clear_text() {
        let below = |path: &str| head("a.example", &format!("/.well-known/acme-challenge/{path}"));
        assert_eq!(check_encryption(&below("token")), Ok(()));
        assert!(check_encryption(&below("../../secret")).is_err());
    }
}
