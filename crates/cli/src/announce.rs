//! What a start says: where it listens, where requests go, how, and a command to try.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use blitz::serving::ListenerConfig;
use blitz_gateway::{Origin, Prefix, Running, Target};
use blitz_http::{Address, DriverKind, Protocol};

use crate::tls::Tls;
use crate::{listen, version};

/// Says it on standard output.
pub(crate) fn announce(running: &Running, tls: Option<&Tls>) {
    let text = text_of(running, tls);
    // Nobody reading is no reason not to serve.
    let _ = io::stdout().write_all(text.as_bytes());
}

fn text_of(running: &Running, tls: Option<&Tls>) -> String {
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
    for endpoint in running.listeners() {
        text += &format!("  listening on  {}\n", shown(endpoint));
    }
    let mut takes_everything = false;
    for (prefix, target) in running.routes().iter() {
        takes_everything |= prefix.takes_all_paths();
        text += &format!("  {:<12}  -> {}\n", paths(prefix), destination(target));
    }
    if !takes_everything {
        text += "  other paths   -> the built-in site\n";
    }
    let path = if takes_everything { "/" } else { "/hello" };
    let is_plain = |endpoint: &&ListenerConfig| endpoint.tls.is_none();
    // The one that more programs can speak to comes first.
    let plain = running.listeners().iter().filter(is_plain);
    if let Some(endpoint) = plain.min_by_key(|endpoint| endpoint.http2_only) {
        text += &format!("  try           {}\n", command(endpoint, path));
    }
    let secure = running.listeners().iter().find(|at| !is_plain(at));
    if let (Some(endpoint), Some(tls)) = (secure, tls) {
        let command = secure_command(&endpoint.address, path, tls);
        text += &format!("  try           {command}\n");
    }
    text
}

fn shown(endpoint: &ListenerConfig) -> String {
    match (&endpoint.address, &endpoint.tls) {
        (address, None) if endpoint.http2_only => format!("h2c://{}", listen::text_of(address)),
        (Address::Tcp(address), None) => format!("http://{address}"),
        (Address::Tcp(address), Some(_)) => format!("https://{address}"),
        (Address::Unix(_), None) => listen::text_of(&endpoint.address),
        (Address::Unix(_), Some(_)) => format!("{} (TLS)", listen::text_of(&endpoint.address)),
    }
}

fn paths(prefix: &Prefix) -> String {
    match prefix {
        Prefix::Everything => "other paths".to_owned(),
        Prefix::Segments(path) => path.clone(),
        Prefix::Text(text) => format!("{text}*"),
    }
}

fn destination(target: &Target) -> String {
    let place = match &target.origin {
        Origin::Unix(path) => format!("unix:{}", path.display()),
        _ if target.protocol == Protocol::Http2 => format!("h2c://{}", target.authority),
        _ if target.tls => format!("https://{}", target.authority),
        _ => format!("http://{}", target.authority),
    };
    place + target.path.as_deref().unwrap_or_default()
}

fn command(endpoint: &ListenerConfig, path: &str) -> String {
    let curl = match endpoint.http2_only {
        true => "curl --http2-prior-knowledge",
        false => "curl",
    };
    match &endpoint.address {
        Address::Tcp(address) => format!("{curl} http://{}{path}", reachable(*address)),
        Address::Unix(socket) => {
            format!(
                "{curl} --unix-socket {} http://localhost{path}",
                socket.display()
            )
        }
    }
}

/// With a name that the certificate has, whatever others know by it, and an authority that curl
/// would not know.
fn secure_command(address: &Address, path: &str, tls: &Tls) -> String {
    let trust = match tls.development() {
        None => String::new(),
        Some(development) => match &development.authority {
            Some(authority) => format!("--cacert {} ", authority.display()),
            // It is forgotten with this process; nobody can be told to trust it.
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

/// "Every address" is none that one can connect to by name; this machine's own is among them.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
    };
    SocketAddr::new(ip, address.port())
}
