//! The start message: listeners, routes, driver, and a command to try.

use std::net::{Ipv4Addr, SocketAddr};

use blitz_config::Host;
use blitz_gateway::{Route, Running, SiteRoutes, Sites};
use blitz_host::serving::ListenerConfig;
use blitz_http::{Address, DriverKind};

use crate::built_in::BuiltInSite;
use crate::tls::Tls;
use crate::{listen, output, version};

/// More routes are counted only.
const ROUTES_SHOWN: usize = 20;

/// Prints the start message on standard output.
pub(crate) fn announce(
    running: &Running,
    tls: Option<&Tls>,
    control: Option<SocketAddr>,
    built_in: &BuiltInSite,
) {
    output::print(&text_of(running, tls, control, built_in));
}

fn text_of(
    running: &Running,
    tls: Option<&Tls>,
    control: Option<SocketAddr>,
    built_in: &BuiltInSite,
) -> String {
    let cores = running.cores();
    let driver = match (cores.driver(), cores.fallback_reason()) {
        (DriverKind::Epoll, Some(reason)) => format!("epoll (io_uring: {reason})"),
        (driver, _) => driver.to_string(),
    };
    let plural = if cores.count() == 1 { "core" } else { "cores" };
    let mut text = format!(
        "blitz {} on {driver}, {} {plural}\n",
        version::LONG,
        cores.count()
    );
    for listener in running.listeners() {
        text += &format!("  listening on  {}\n", shown(listener));
        if let (Address::Tcp(address), true) = (&listener.address, listener.http3) {
            // For QUIC, browsers do not trust authorities that users have added.
            let clients = match tls.and_then(Tls::development) {
                Some(_) => "; browsers use it with a public certificate only",
                None => "",
            };
            text += &format!("  HTTP/3 at     {address} over UDP{clients}\n");
        }
    }
    if let Some(address) = control {
        text += &format!("  control at    http://{address}\n");
    }
    let (routes, path) = running.with_sites(|sites| routes(sites, built_in));
    text += &routes;
    let is_plain = |listener: &&ListenerConfig| listener.tls.is_none();
    // Prefers a listener for all versions of HTTP, because more clients support it.
    let plain = running.listeners().filter(is_plain);
    if let Some(listener) = plain.min_by_key(|listener| listener.http2_only) {
        text += &running.with_sites(|sites| {
            let host = first_host(sites);
            match host.is_some() || takes_any_host(sites) {
                true => format!("  try           {}\n", command(listener, host, path)),
                false => String::new(),
            }
        });
    }
    let mut secure = running.listeners().filter(|at| !is_plain(at));
    let secure = secure.find(|at| !at.proxy_protocol);
    if let (Some(listener), Some(tls)) = (secure, tls) {
        let command = secure_command(&listener.address, path, tls);
        text += &format!("  try           {command}\n");
    }
    text
}

/// The routes, and a path to try.
fn routes(sites: &Sites, built_in: &BuiltInSite) -> (String, &'static str) {
    let (mut text, mut path, mut more) = (String::new(), "/", 0);
    for (number, (site, route)) in all(sites).enumerate() {
        if number >= ROUTES_SHOWN {
            more += 1;
            continue;
        }
        let host = site.hosts.first().map(Host::to_string).unwrap_or_default();
        let from = match (host.as_str(), &*route.name) {
            ("", name) => name.to_owned(),
            (host, "/" | "other paths") => host.to_owned(),
            (host, name) if name.starts_with('/') => host.to_owned() + name,
            (host, name) => format!("{host} {name}"),
        };
        text += &format!("  {from:<12}  -> {}\n", route.destination());
    }
    if more > 0 {
        text += &format!("  and {more} more routes\n");
    }
    let matches_all = |route: &Route| {
        let target = route.target();
        target.is_some_and(|target| target.prefix.matches_all_paths())
    };
    let has_others = |site: &SiteRoutes| site.has_fallback && !site.routes.iter().any(matches_all);
    if sites.iter().any(has_others) {
        if built_in.has_protected_paths() {
            text += "  /api/json     -> the built-in site, for tokens signed with JWT_SECRET by HS256\n";
            text += "  /api/echo     -> the same\n";
        }
        text += "  other paths   -> the built-in site\n";
        path = "/hello";
    }
    (text, path)
}

fn all(sites: &Sites) -> impl Iterator<Item = (&SiteRoutes, &Route)> {
    let sites = sites.iter();
    sites.flat_map(|site| site.routes.iter().map(move |route| (site, route)))
}

/// A listener as a URL.
pub(crate) fn shown(listener: &ListenerConfig) -> String {
    shown_as(listener, listener.tls.is_some())
}

/// The same for one that may have no certificates yet.
pub(crate) fn shown_as(listener: &ListenerConfig, has_tls: bool) -> String {
    let url = match (&listener.address, has_tls) {
        (address, false) if listener.http2_only => format!("h2c://{}", listen::text_of(address)),
        (Address::Tcp(address), false) => format!("http://{address}"),
        (Address::Tcp(address), true) => format!("https://{address}"),
        (Address::Unix(_), false) => listen::text_of(&listener.address),
        (Address::Unix(_), true) => format!("{} (TLS)", listen::text_of(&listener.address)),
    };
    match listener.proxy_protocol {
        true => format!("{url} (PROXY protocol)"),
        false => url,
    }
}

/// The first host, other than a pattern, of a site that serves clear text.
fn first_host(sites: &Sites) -> Option<&str> {
    let plain = sites.iter().filter(|site| !site.redirects);
    let mut hosts = plain.flat_map(|site| site.hosts.iter());
    hosts.find_map(|host| match host {
        Host::Exact(name) => Some(name.as_str()),
        Host::Wildcard(_) | Host::Any => None,
    })
}

/// Whether a request without a known host is served in clear text.
fn takes_any_host(sites: &Sites) -> bool {
    let mut plain = sites.iter().filter(|site| !site.redirects);
    plain.any(|site| site.hosts.is_empty() || site.hosts.contains(&Host::Any))
}

fn command(listener: &ListenerConfig, host: Option<&str>, path: &str) -> String {
    let mut curl = match listener.http2_only {
        true => "curl --http2-prior-knowledge".to_owned(),
        false => "curl".to_owned(),
    };
    if let Some(host) = host {
        curl += &format!(" -H 'Host: {host}'");
    }
    if listener.proxy_protocol {
        curl += " --haproxy-protocol";
    }
    match &listener.address {
        Address::Tcp(address) => format!("{curl} http://{}{path}", reachable(*address)),
        Address::Unix(socket) => {
            format!(
                "{curl} --unix-socket {} http://localhost{path}",
                socket.display()
            )
        }
    }
}

/// The command uses a name of the certificate, even if DNS does not resolve it to this machine, and the
/// development authority, which curl does not trust by default.
fn secure_command(address: &Address, path: &str, tls: &Tls) -> String {
    let trust = match tls.development() {
        None => String::new(),
        Some(development) => match &development.authority {
            Some(authority) => format!("--cacert {} ", authority.display()),
            // The authority is not stored, so there is no file to trust.
            None => "--insecure ".to_owned(),
        },
    };
    let name = tls.first_name();
    match (address, name.as_deref()) {
        (Address::Tcp(address), Some("localhost")) => {
            format!("curl {trust}https://localhost:{}{path}", address.port())
        }
        (Address::Tcp(address), Some(name)) => {
            let port = address.port();
            let here = reachable(*address);
            format!("curl {trust}--connect-to {name}:{port}:{here} https://{name}:{port}{path}")
        }
        (Address::Tcp(address), None) => {
            format!("curl {trust}https://{}{path}", reachable(*address))
        }
        (Address::Unix(socket), name) => format!(
            "curl {trust}--unix-socket {} https://{}{path}",
            socket.display(),
            name.unwrap_or("localhost")
        ),
    }
}

/// An address that clients on this machine can connect to. The unspecified address of IPv6 includes IPv4,
/// which each machine has.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address.ip().is_unspecified() {
        true => SocketAddr::from((Ipv4Addr::LOCALHOST, address.port())),
        false => address,
    }
}
