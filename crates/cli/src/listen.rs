//! The value of `--listen`: where to accept connections.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use blitz_http::Address;

/// Why a `--listen` cannot be had, and what to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ListenError {
    value: String,
    problem: String,
    advice: String,
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "--listen {}: {}\n{}",
            self.value, self.problem, self.advice
        )
    }
}

/// Reads `ADDR:PORT`, `localhost:PORT`, `:PORT` (every address of the machine) or `unix:/path`.
pub(crate) fn parse(value: &str) -> Result<Address, ListenError> {
    if let Some(path) = value.strip_prefix("unix:") {
        if path.starts_with('/') {
            return Ok(Address::Unix(Arc::new(PathBuf::from(path))));
        }
        let advice = "Write the whole path: --listen unix:/run/blitz.sock";
        return Err(error(
            value,
            "the path of a unix socket begins with '/'",
            advice,
        ));
    }
    let port_of = |text: &str| text.parse::<u16>().ok();
    if let Some(port) = value.strip_prefix("localhost:").and_then(port_of) {
        return Ok(Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port))));
    }
    if let Some(port) = value.strip_prefix(':').and_then(port_of) {
        return Ok(Address::Tcp(SocketAddr::from((
            Ipv4Addr::UNSPECIFIED,
            port,
        ))));
    }
    value
        .parse()
        .map(Address::Tcp)
        .map_err(|_| error(value, "not an address", &advice(value)))
}

/// What the person may have meant.
fn advice(value: &str) -> String {
    if value.parse::<u16>().is_ok() {
        return format!(
            "Write 127.0.0.1:{value} for this machine only, or :{value} for every address."
        );
    }
    if let Ok(address) = value.parse::<IpAddr>() {
        return format!("Add a port: {}", SocketAddr::new(address, 8080));
    }
    "Write ADDR:PORT, such as 127.0.0.1:8080 or [::1]:8080, :PORT for every address, \
     or unix:/path/to.sock."
        .to_owned()
}

/// Says why the system refused to listen there.
pub(crate) fn cannot_bind(address: &Address, cause: &io::Error) -> ListenError {
    let value = text_of(address);
    let Address::Tcp(ip) = address else {
        return match cause.kind() {
            io::ErrorKind::AddrInUse => {
                let advice = "End the other program, or choose another path.";
                error(&value, "another program listens there", advice)
            }
            _ => error(
                &value,
                &cause.to_string(),
                "Choose a path in a folder you may write to.",
            ),
        };
    };
    let port = ip.port();
    match cause.kind() {
        io::ErrorKind::AddrInUse => {
            let next = SocketAddr::new(ip.ip(), port.checked_add(1).unwrap_or(8080));
            let advice = format!(
                "Choose another port, such as --listen {next}, \
                 or find who has it: ss -ltnp 'sport = :{port}'"
            );
            error(&value, "another program listens there", &advice)
        }
        io::ErrorKind::PermissionDenied => error(
            &value,
            "ports below 1024 are privileged",
            "Choose a higher port, or grant it: setcap cap_net_bind_service+ep on the binary.",
        ),
        io::ErrorKind::AddrNotAvailable => error(
            &value,
            "this machine does not have that address",
            "`ip address` shows those it has; :PORT listens on all of them.",
        ),
        _ => error(&value, &cause.to_string(), "Choose another address."),
    }
}

/// The address as `--listen` takes it.
pub(crate) fn text_of(address: &Address) -> String {
    match address {
        Address::Tcp(ip) => ip.to_string(),
        Address::Unix(path) => format!("unix:{}", path.display()),
    }
}

fn error(value: &str, problem: &str, advice: &str) -> ListenError {
    ListenError {
        value: value.into(),
        problem: problem.into(),
        advice: advice.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(text: &str) -> Result<Address, ListenError> {
        Ok(Address::Tcp(text.parse().unwrap()))
    }

    #[test]
    fn addresses_of_every_form_are_read() {
        assert_eq!(parse("127.0.0.1:8080"), tcp("127.0.0.1:8080"));
        assert_eq!(parse("[::1]:8080"), tcp("[::1]:8080"));
        assert_eq!(parse("localhost:80"), tcp("127.0.0.1:80"));
        assert_eq!(parse(":8080"), tcp("0.0.0.0:8080"));
        let path = Arc::new(PathBuf::from("/run/blitz.sock"));
        assert_eq!(parse("unix:/run/blitz.sock"), Ok(Address::Unix(path)));
    }

    #[test]
    fn what_is_no_address_is_refused_with_advice() {
        let advice = |value: &str| parse(value).unwrap_err().advice;
        assert!(advice("8080").contains("127.0.0.1:8080"));
        assert!(advice("10.0.0.1").contains("10.0.0.1:8080"));
        assert!(advice("::1").contains("[::1]:8080"));
        for value in [
            "",
            ":",
            "300.0.0.1:80",
            "localhost:99999",
            "unix:relative",
            "example.com:80",
        ] {
            assert!(!advice(value).is_empty(), "{value}");
        }
    }

    #[test]
    fn a_refusal_of_the_system_comes_with_advice() {
        let refused = |value: &str, kind: io::ErrorKind| {
            cannot_bind(&parse(value).unwrap(), &io::Error::from(kind)).to_string()
        };
        let in_use = refused("127.0.0.1:8080", io::ErrorKind::AddrInUse);
        assert!(in_use.contains("--listen 127.0.0.1:8081"), "{in_use}");
        assert!(refused(":80", io::ErrorKind::PermissionDenied).contains("setcap"));
        assert!(refused("1.2.3.4:80", io::ErrorKind::AddrNotAvailable).contains("ip address"));
        assert!(refused("unix:/x", io::ErrorKind::AddrInUse).contains("another path"));
    }
}
