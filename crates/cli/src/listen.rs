//! The value of `--listen`: an address to accept connections on.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blitz_host::serving::{ListenerConfig, MORE_OPEN_FILES};
use blitz_http::{Address, LocalShortage, NoInterface, parse_zoned};

/// The longest path of a unix socket: the kernel has room for 108 bytes, including a NUL.
const UNIX_PATH_MAX: usize = 107;

/// As [`parse`], with an optional prefix `h2c://`.
pub(crate) fn parse_listener(value: &str) -> Result<ListenerConfig, String> {
    ListenerConfig::parse(value, parse)
}

/// Parses `ADDR:PORT`, `localhost:PORT`, `:PORT` (every address of the machine) or `unix:/path`.
///
/// # Errors
/// The problem with the value and, on a second line, the remedy.
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
    if let Ok(address) = value.parse() {
        return Ok(Address::Tcp(address));
    }
    match zoned(value) {
        Some(Ok(address)) => Ok(Address::Tcp(address)),
        Some(Err(error)) => Err(with_remedy(
            &error.to_string(),
            "`ip link` lists the interfaces; write one after the %",
        )),
        None => Err(advice(value)),
    }
}

/// The same for the control interface, whose unix socket has a key of its own.
///
/// # Errors
/// The problem with the value and, on a second line, the remedy.
pub(crate) fn parse_control(value: &str) -> Result<SocketAddr, String> {
    match parse(value)? {
        Address::Tcp(address) => Ok(address),
        Address::Unix(_) => Err(with_remedy(
            "the control interface has a unix socket beside its address",
            "write for example 127.0.0.1:9180 here, and the path in `control.socket` or --control",
        )),
    }
}

/// `[ADDR%INTERFACE]:PORT`.
fn zoned(value: &str) -> Option<Result<SocketAddr, NoInterface>> {
    let (address, port) = value.strip_prefix('[')?.split_once("]:")?;
    parse_zoned(address, port.parse().ok()?)
}

/// The addresses of `localhost`, of both families if this machine has them: browsers try `::1` first, and
/// over HTTP/3 only that.
pub(crate) fn local(port: u16) -> Vec<Address> {
    let has_ipv6 = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    let ipv6 = has_ipv6.then_some(Ipv6Addr::LOCALHOST.into());
    [Some(Ipv4Addr::LOCALHOST.into()), ipv6]
        .into_iter()
        .flatten()
        .map(|ip: IpAddr| Address::Tcp(SocketAddr::new(ip, port)))
        .collect()
}

/// The unspecified address of IPv6, which includes IPv4, or that of IPv4 if the machine has no IPv6.
fn every_address() -> IpAddr {
    if Path::new("/proc/net/if_inet6").exists() {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    }
}

fn parse_unix(path: &str) -> Result<Address, String> {
    if !path.starts_with('/') && !path.trim_matches(['.', '/']).is_empty() {
        let path = path.trim_start_matches("./");
        let fix = match path.starts_with("run/") {
            true => format!("write unix:/{path}"),
            false => format!("write unix:$PWD/{path}, or for example unix:/run/blitz.sock"),
        };
        return Err(with_remedy("a unix socket needs an absolute path", &fix));
    }
    if !path.starts_with('/') || path.ends_with('/') {
        return Err(with_remedy(
            "a unix socket needs an absolute path of a file",
            "write for example unix:/run/blitz.sock",
        ));
    }
    // As in `unix:///run/blitz.sock`.
    let path = format!("/{}", path.trim_start_matches('/'));
    if path.len() > UNIX_PATH_MAX {
        let length = path.len();
        return Err(with_remedy(
            &format!("the path has {length} bytes, and Linux takes at most {UNIX_PATH_MAX}"),
            "choose a folder with a shorter name",
        ));
    }
    Ok(Address::Unix(Arc::new(PathBuf::from(path))))
}

/// The remedy for a value that is not an address, guessed from its form.
fn advice(value: &str) -> String {
    if value.parse::<u16>().is_ok() {
        let fix =
            format!("write 127.0.0.1:{value} for this machine only, or :{value} for every address");
        return with_remedy("this is a port alone, without an address", &fix);
    }
    if let Some((host, port)) = value.rsplit_once(':')
        && let (Ok(_), Ok(_)) = (host.parse::<Ipv6Addr>(), port.parse::<u16>())
    {
        let fix = format!("write [{host}]:{port}, or [{value}]:8080");
        return with_remedy("an IPv6 address needs brackets", &fix);
    }
    if let Ok(address) = value.parse::<IpAddr>() {
        let fix = format!("write {}", SocketAddr::new(address, 8080));
        return with_remedy("the port is missing", &fix);
    }
    if value == "localhost" {
        return with_remedy("the port is missing", "write localhost:8080");
    }
    if value.starts_with('/') {
        return with_remedy(
            "the unix: of a socket is missing",
            &format!("write unix:{value}"),
        );
    }
    if value.contains(',') {
        let fix = format!("repeat the flag for each address: {}", flags(value));
        return with_remedy("this is a list of addresses", &fix);
    }
    if value.starts_with("https://") {
        let fix = "write an address and a port, such as :8443, in `listen_tls` of the file or in --listen-tls";
        return with_remedy("HTTPS has listeners of its own", fix);
    }
    if let Some(rest) = value.strip_prefix("http://") {
        let address = rest.split('/').next().unwrap_or_default();
        let fix = match address.rsplit_once(':') {
            Some((_, port)) if port.parse::<u16>().is_ok() => format!("write {address}"),
            _ => format!("write {address}:80"),
        };
        return with_remedy("this is a URL, not an address", &fix);
    }
    if let Some(port) = value.strip_prefix("*:") {
        return with_remedy(
            "an address is numeric, or empty for every address",
            &format!("write :{port}"),
        );
    }
    let port = value.rsplit_once(':').map(|(_, port)| port);
    if let Some(port) = port.filter(|port| port.parse::<u16>().is_err()) {
        let fix = "write a number from 0 to 65535 after the last colon; 0 chooses a free port";
        return with_remedy(&format!("{port:?} is not a port"), fix);
    }
    if let Some((host, port)) = value.rsplit_once(':')
        && host.contains(|c: char| c.is_ascii_alphabetic())
        && !host.contains(':')
    {
        let fix = format!("write :{port} for every address, or the numeric address of {host}");
        return with_remedy("a name is not an address to listen on", &fix);
    }
    with_remedy(
        "this is not an address to listen on",
        "write ADDR:PORT, such as 127.0.0.1:8080 or [::1]:8080, :PORT for every address, \
         or unix:/path/to.sock",
    )
}

/// A flag for each port of a list, or an example if there are other addresses in the list.
fn flags(list: &str) -> String {
    let ports = list
        .split(',')
        .map(|one| one.trim().trim_start_matches(':'));
    let ports: Result<Vec<u16>, _> = ports.map(str::parse).collect();
    let flag = |port: &u16| match port {
        443 | 8443 => format!("--listen-tls :{port}"),
        _ => format!("--listen :{port}"),
    };
    let flags: Vec<_> = ports.unwrap_or(vec![80, 81]).iter().map(flag).collect();
    flags.join(" ")
}

/// The message for an address that cannot be listened on.
pub(crate) fn cannot_bind(flag: &str, address: &Address, cause: &io::Error) -> String {
    let (problem, fix) = match address {
        _ if LocalShortage::of(cause, address) == Some(LocalShortage::Descriptors) => {
            (cause.to_string(), MORE_OPEN_FILES.into())
        }
        Address::Tcp(ip) => tcp_refusal(flag, *ip, cause),
        Address::Unix(_) => unix_refusal(cause),
    };
    with_remedy(
        &format!("cannot listen on {}: {problem}", text_of(address)),
        &fix,
    )
}

/// Distance of the ports that are usual for users from those that are privileged: 8080 and 8443.
const HIGHER_PORTS: u16 = 8000;

/// A listener as a flag, or as the key of a file.
fn written(setting: &str, address: SocketAddr) -> String {
    match setting.starts_with('-') {
        true => format!("{setting} {address}"),
        false => format!("{setting} = [\"{address}\"]"),
    }
}

fn tcp_refusal(flag: &str, ip: SocketAddr, cause: &io::Error) -> (String, String) {
    let port = ip.port();
    match cause.kind() {
        io::ErrorKind::AddrInUse => (
            "another program listens there".into(),
            format!(
                "choose another port, such as {}, or find the program: ss -ltnp 'sport = :{port}'",
                written(
                    flag,
                    SocketAddr::new(ip.ip(), port.checked_add(1).unwrap_or(8080))
                )
            ),
        ),
        io::ErrorKind::PermissionDenied => (
            "ports below 1024 are privileged".into(),
            format!(
                "choose a higher port, such as {}, or grant it: setcap cap_net_bind_service+ep on the binary",
                written(
                    flag,
                    SocketAddr::new(ip.ip(), port.saturating_add(HIGHER_PORTS))
                )
            ),
        ),
        io::ErrorKind::AddrNotAvailable => (
            "this machine does not have that address".into(),
            "`ip address` lists its addresses; :PORT listens on all of them".into(),
        ),
        io::ErrorKind::InvalidInput if is_link_local(ip) => (
            "a link-local address needs an interface".into(),
            format!(
                "add the interface, which `ip link` shows: [{}%eth0]:{port}",
                ip.ip()
            ),
        ),
        io::ErrorKind::InvalidInput => (
            cause.to_string(),
            "leave out one of them: 0.0.0.0 is for all of IPv4, and [::] for IPv4 and IPv6".into(),
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
            "stop the other program, or choose another path".into(),
        ),
        io::ErrorKind::AlreadyExists => (
            cause.to_string(),
            "choose another path, or remove the file if it is not needed".into(),
        ),
        io::ErrorKind::NotFound => (
            "the folder does not exist".into(),
            "make it, or choose a path in an existing folder".into(),
        ),
        _ => (
            cause.to_string(),
            "choose a path in a folder that you may write to".into(),
        ),
    }
}

/// A message with the remedy on a second line.
fn with_remedy(problem: &str, fix: &str) -> String {
    format!("{problem}\n  {fix}")
}

/// The address in the form of `--listen`.
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
    fn a_unix_socket_is_no_address_of_the_control_interface() {
        assert!(parse_control("unix:/run/x.sock").is_err());
        assert!(parse_control("9180").is_err());
        assert_eq!(
            parse_control(":9180").map(|address| address.port()),
            Ok(9180)
        );
    }

    #[test]
    fn addresses_of_every_form_are_parsed() {
        assert_eq!(parse("127.0.0.1:8080"), tcp("127.0.0.1:8080"));
        assert_eq!(parse("[::1]:8080"), tcp("[::1]:8080"));
        assert_eq!(parse("localhost:80"), tcp("127.0.0.1:80"));
        assert!([tcp("[::]:8080"), tcp("0.0.0.0:8080")].contains(&parse(":8080")));
        let Ok(Address::Tcp(SocketAddr::V6(zoned))) = parse("[fe80::1%lo]:80") else {
            panic!("it has a zone");
        };
        assert!(zoned.scope_id() > 0 && zoned.port() == 80);
        assert_eq!(parse("[fe80::1%25lo]:80"), Ok(Address::Tcp(zoned.into())));
        let missing = parse("[fe80::1%none0]:80").unwrap_err();
        assert!(missing.contains("no interface \"none0\""), "{missing}");
        let path = Arc::new(PathBuf::from("/run/blitz.sock"));
        for value in ["unix:/run/blitz.sock", "unix:///run/blitz.sock"] {
            assert_eq!(parse(value), Ok(Address::Unix(Arc::clone(&path))));
        }
    }

    #[test]
    fn the_prefix_h2c_means_http2_only() {
        for (value, http2_only) in [("h2c://127.0.0.1:80", true), ("127.0.0.1:80", false)] {
            let listener = parse_listener(value).unwrap();
            assert_eq!(Ok(listener.address), tcp("127.0.0.1:80"));
            assert_eq!(
                (listener.http2_only, listener.tls.is_some()),
                (http2_only, false)
            );
        }
        assert!(
            parse_listener("h2c://80")
                .unwrap_err()
                .contains("127.0.0.1:80")
        );
        assert!(
            parse("h2c://127.0.0.1:80").is_err(),
            "a listener for HTTPS has no prefix"
        );
    }

    #[test]
    fn invalid_addresses_are_refused_with_a_remedy() {
        let long = format!("unix:/{}", "x".repeat(UNIX_PATH_MAX));
        for (value, problem, fix) in [
            ("8080", "port alone", "127.0.0.1:8080"),
            ("10.0.0.1", "port is missing", "10.0.0.1:8080"),
            ("::1", "port is missing", "[::1]:8080"),
            ("::1:7099", "brackets", "[::1]:7099, or [::1:7099]:8080"),
            ("localhost", "port is missing", "localhost:8080"),
            ("localhost:99999", "\"99999\" is not a port", "0 to 65535"),
            ("127.0.0.1:http", "\"http\" is not a port", "0 to 65535"),
            (":", "\"\" is not a port", "0 to 65535"),
            ("*:80", "numeric", "write :80"),
            ("http://127.0.0.1:80/x", "a URL", "write 127.0.0.1:80"),
            ("https://127.0.0.1", "its own", ":8443"),
            ("", "not an address", "ADDR:PORT"),
            ("300.0.0.1:80", "not an address", "ADDR:PORT"),
            ("example.com:80", "not an address", "write :80"),
            ("http://localhost", "a URL", "write localhost:80"),
            (":80,:81", "a list", "--listen :80 --listen :81"),
            ("80, 443", "a list", "--listen :80 --listen-tls :443"),
            ("[::1]:1,[::1]:2", "a list", "--listen :80 --listen :81"),
            ("/run/blitz.sock", "unix:", "unix:/run/blitz.sock"),
            ("unix:relative", "absolute", "unix:$PWD/relative"),
            ("unix:run/blitz.sock", "absolute", "unix:/run/blitz.sock"),
            ("unix:", "absolute", "unix:/run/"),
            ("unix:/run/", "absolute", "unix:/run/"),
            (&long, "108 bytes", "shorter"),
        ] {
            let message = parse(value).unwrap_err();
            let (first, second) = message.split_once('\n').unwrap();
            assert!(first.contains(problem), "{value}: {message}");
            assert!(second.contains(fix), "{value}: {message}");
        }
    }

    #[test]
    fn an_error_of_bind_is_reported_with_a_remedy() {
        let refused = |value: &str, kind: io::ErrorKind| {
            cannot_bind("--listen", &parse(value).unwrap(), &io::Error::from(kind))
        };
        let in_use = refused("127.0.0.1:8080", io::ErrorKind::AddrInUse);
        assert!(in_use.contains("--listen 127.0.0.1:8081"), "{in_use}");
        assert!(refused(":80", io::ErrorKind::PermissionDenied).contains("setcap"));
        assert!(refused("1.2.3.4:80", io::ErrorKind::AddrNotAvailable).contains("ip address"));
        assert!(refused("[fe80::1]:80", io::ErrorKind::InvalidInput).contains("fe80::1%eth0"));
        assert!(refused("unix:/x", io::ErrorKind::AddrInUse).contains("another path"));
        assert!(refused("unix:/x/y", io::ErrorKind::NotFound).contains("make it"));
    }
}
