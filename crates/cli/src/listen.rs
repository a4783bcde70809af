//! The value of `--listen`: where to accept connections.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blitz::serving::ListenerConfig;
use blitz_http::Address;

/// Longest path of a unix socket: the kernel has room for 108 bytes, the last of them a NUL.
const UNIX_PATH_MAX: usize = 107;

/// Reads what [`parse`] reads, with or without `h2c://` in front.
pub(crate) fn parse_endpoint(value: &str) -> Result<ListenerConfig, String> {
    ListenerConfig::read(value, parse)
}

/// Reads `ADDR:PORT`, `localhost:PORT`, `:PORT` (every address of the machine) or `unix:/path`.
///
/// The error says what is wrong with the value and, in a line of its own, what to write.
pub(crate) fn parse(value: &str) -> Result<Address, String> {
    if let Some(path) = value.strip_prefix("unix:") {
        return parse_unix(path);
    }
    let port_of = |text: &str| text.parse::<u16>().ok();
    if let Some(port) = value.strip_prefix("localhost:").and_then(port_of) {
        return Ok(Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port))));
    }
    if let Some(port) = value.strip_prefix(':').and_then(port_of) {
        return Ok(Address::Tcp(SocketAddr::new(every_address(), port)));
    }
    value.parse().map(Address::Tcp).map_err(|_| advice(value))
}

/// The address of IPv6 that stands for all of IPv4 too, unless the machine knows IPv4 alone.
fn every_address() -> IpAddr {
    if Path::new("/proc/net/if_inet6").exists() {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    }
}

fn parse_unix(path: &str) -> Result<Address, String> {
    if !path.starts_with('/') || path.ends_with('/') {
        return Err(said(
            "a unix socket is named by its absolute path",
            "write for example unix:/run/blitz.sock",
        ));
    }
    if path.len() > UNIX_PATH_MAX {
        let length = path.len();
        return Err(said(
            &format!("the path has {length} bytes, and Linux takes at most {UNIX_PATH_MAX}"),
            "choose a folder with a shorter name",
        ));
    }
    Ok(Address::Unix(Arc::new(PathBuf::from(path))))
}

/// What the person may have meant by what is no address.
fn advice(value: &str) -> String {
    if value.parse::<u16>().is_ok() {
        let fix =
            format!("write 127.0.0.1:{value} for this machine only, or :{value} for every address");
        return said("a port alone does not say on which address", &fix);
    }
    if let Ok(address) = value.parse::<IpAddr>() {
        let fix = format!("write {}", SocketAddr::new(address, 8080));
        return said("the port is missing", &fix);
    }
    if value == "localhost" {
        return said("the port is missing", "write localhost:8080");
    }
    if value.starts_with("https://") {
        let fix = "write --listen-tls with an address and a port: --listen-tls :8443";
        return said("HTTPS has its own flag", fix);
    }
    if let Some(rest) = value.strip_prefix("http://") {
        let fix = format!("write {}", rest.split('/').next().unwrap_or_default());
        return said("an address to listen on is no URL", &fix);
    }
    if let Some(port) = value.strip_prefix("*:") {
        return said(
            "an address is a number, or nothing at all",
            &format!("write :{port}"),
        );
    }
    let port = value.rsplit_once(':').map(|(_, port)| port);
    if let Some(port) = port.filter(|port| port.parse::<u16>().is_err()) {
        let fix = "write a number from 0 to 65535 after the last colon; 0 takes a free port";
        return said(&format!("{port:?} is no port"), fix);
    }
    said(
        "this is no address of a machine",
        "write ADDR:PORT, such as 127.0.0.1:8080 or [::1]:8080, :PORT for every address, \
         or unix:/path/to.sock",
    )
}

/// Says why the system refused to listen there.
pub(crate) fn cannot_bind(flag: &str, address: &Address, cause: &io::Error) -> String {
    let (problem, fix) = match address {
        Address::Tcp(ip) => tcp_refusal(flag, *ip, cause),
        Address::Unix(_) => unix_refusal(cause),
    };
    said(
        &format!("cannot listen on {}: {problem}", text_of(address)),
        &fix,
    )
}

fn tcp_refusal(flag: &str, ip: SocketAddr, cause: &io::Error) -> (String, String) {
    let port = ip.port();
    match cause.kind() {
        io::ErrorKind::AddrInUse => (
            "another program listens there".into(),
            format!(
                "choose another port, such as {flag} {}, \
                 or find who has it: ss -ltnp 'sport = :{port}'",
                SocketAddr::new(ip.ip(), port.checked_add(1).unwrap_or(8080))
            ),
        ),
        io::ErrorKind::PermissionDenied => (
            "ports below 1024 are privileged".into(),
            "choose a higher port, or grant it: setcap cap_net_bind_service+ep on the binary"
                .into(),
        ),
        io::ErrorKind::AddrNotAvailable => (
            "this machine does not have that address".into(),
            "`ip address` shows those it has; :PORT listens on all of them".into(),
        ),
        io::ErrorKind::InvalidInput if is_link_local(ip) => (
            "a link-local address is one of an interface".into(),
            format!(
                "add the number that `ip link` shows for it: [{}%2]:{port}",
                ip.ip()
            ),
        ),
        _ => (cause.to_string(), "choose another address".into()),
    }
}

fn is_link_local(address: SocketAddr) -> bool {
    matches!(address.ip(), IpAddr::V6(v6) if v6.is_unicast_link_local())
}

fn unix_refusal(cause: &io::Error) -> (String, String) {
    match cause.kind() {
        io::ErrorKind::AddrInUse => (
            "another program listens there".into(),
            "end the other program, or choose another path".into(),
        ),
        io::ErrorKind::AlreadyExists => (
            cause.to_string(),
            "choose another path, or remove what is there if nobody needs it".into(),
        ),
        io::ErrorKind::NotFound => (
            "the folder does not exist".into(),
            "make it, or choose a path in one that does".into(),
        ),
        _ => (
            cause.to_string(),
            "choose a path in a folder that you may write to".into(),
        ),
    }
}

fn said(problem: &str, fix: &str) -> String {
    format!("{problem}\n  {fix}")
}

/// The address as `--listen` takes it.
pub(crate) fn text_of(address: &Address) -> String {
    match address {
        Address::Tcp(ip) => ip.to_string(),
        Address::Unix(path) => format!("unix:{}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(text: &str) -> Result<Address, String> {
        Ok(Address::Tcp(text.parse().unwrap()))
    }

    #[test]
    fn addresses_of_every_form_are_read() {
        assert_eq!(parse("127.0.0.1:8080"), tcp("127.0.0.1:8080"));
        assert_eq!(parse("[::1]:8080"), tcp("[::1]:8080"));
        assert_eq!(parse("localhost:80"), tcp("127.0.0.1:80"));
        assert!([tcp("[::]:8080"), tcp("0.0.0.0:8080")].contains(&parse(":8080")));
        let path = Arc::new(PathBuf::from("/run/blitz.sock"));
        assert_eq!(parse("unix:/run/blitz.sock"), Ok(Address::Unix(path)));
    }

    #[test]
    fn a_listener_for_http2_only_says_so_in_front() {
        for (value, http2_only) in [("h2c://127.0.0.1:80", true), ("127.0.0.1:80", false)] {
            let endpoint = parse_endpoint(value).unwrap();
            assert_eq!(Ok(endpoint.address), tcp("127.0.0.1:80"));
            assert_eq!(
                (endpoint.http2_only, endpoint.tls.is_some()),
                (http2_only, false)
            );
        }
        assert!(
            parse_endpoint("h2c://80")
                .unwrap_err()
                .contains("127.0.0.1:80")
        );
        assert!(
            parse("h2c://127.0.0.1:80").is_err(),
            "HTTPS is spoken there"
        );
    }

    #[test]
    fn what_is_no_address_is_refused_with_advice() {
        let long = format!("unix:/{}", "x".repeat(UNIX_PATH_MAX));
        for (value, problem, fix) in [
            ("8080", "port alone", "127.0.0.1:8080"),
            ("10.0.0.1", "port is missing", "10.0.0.1:8080"),
            ("::1", "port is missing", "[::1]:8080"),
            ("localhost", "port is missing", "localhost:8080"),
            ("localhost:99999", "\"99999\" is no port", "0 to 65535"),
            ("127.0.0.1:http", "\"http\" is no port", "0 to 65535"),
            (":", "\"\" is no port", "0 to 65535"),
            ("*:80", "number", "write :80"),
            ("http://127.0.0.1:80/x", "no URL", "write 127.0.0.1:80"),
            ("https://127.0.0.1", "its own", ":8443"),
            ("", "no address", "ADDR:PORT"),
            ("300.0.0.1:80", "no address", "ADDR:PORT"),
            ("example.com:80", "no address", "ADDR:PORT"),
            ("unix:relative", "absolute", "unix:/run/"),
            ("unix:/run/", "absolute", "unix:/run/"),
            (&long, "108 bytes", "shorter"),
        ] {
            let said = parse(value).unwrap_err();
            let (said_problem, said_fix) = said.split_once('\n').unwrap();
            assert!(said_problem.contains(problem), "{value}: {said}");
            assert!(said_fix.contains(fix), "{value}: {said}");
        }
    }

    #[test]
    fn a_refusal_of_the_system_comes_with_advice() {
        let refused = |value: &str, kind: io::ErrorKind| {
            cannot_bind("--listen", &parse(value).unwrap(), &io::Error::from(kind))
        };
        let in_use = refused("127.0.0.1:8080", io::ErrorKind::AddrInUse);
        assert!(in_use.contains("--listen 127.0.0.1:8081"), "{in_use}");
        assert!(refused(":80", io::ErrorKind::PermissionDenied).contains("setcap"));
        assert!(refused("1.2.3.4:80", io::ErrorKind::AddrNotAvailable).contains("ip address"));
        assert!(refused("[fe80::1]:80", io::ErrorKind::InvalidInput).contains("fe80::1%2"));
        assert!(refused("unix:/x", io::ErrorKind::AddrInUse).contains("another path"));
        assert!(refused("unix:/x/y", io::ErrorKind::NotFound).contains("make it"));
    }
}
