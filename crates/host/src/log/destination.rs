//! Destinations of logs, as the configuration writes them.

use std::error::Error;
use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::str::FromStr;

/// The socket of systemd's journal.
const JOURNAL_SOCKET: &str = "/run/systemd/journal/socket";

/// A place for lines of a log.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Destination {
    /// `stdout`: standard output.
    Stdout,
    /// A path: the file gets lines at its end, and is made with mode 0640 if there is none.
    File(PathBuf),
    /// `syslog:/dev/log` or `syslog:HOST:PORT`: a message of RFC 5424 for each line, with the facility `local0`, the
    /// severity `info` and the name `blitz`.
    Syslog(SyslogAddress),
    /// `journal`: an entry of systemd's journal for each line, with the priority `info` and the identifier `blitz`. The
    /// path is that of the journal's socket.
    Journal(PathBuf),
}

/// The address of a daemon of syslog.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SyslogAddress {
    /// The path of a unix datagram socket, such as `/dev/log`.
    Unix(PathBuf),
    /// UDP. Lost messages are not noticed, except that a host without a daemon may refuse them.
    Udp {
        /// An address or a name.
        host: String,
        /// Usually 514.
        port: u16,
    },
}

/// The text is no [`Destination`]; it says what to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DestinationError(String);

impl FromStr for Destination {
    type Err = DestinationError;

    fn from_str(text: &str) -> Result<Destination, DestinationError> {
        if let Some(address) = text.strip_prefix("syslog:") {
            return syslog_address(address).map(Destination::Syslog);
        }
        let is_wrong = |problem: &str| Err(DestinationError(problem.to_owned()));
        match text {
            "stdout" => Ok(Destination::Stdout),
            "journal" => Ok(Destination::Journal(JOURNAL_SOCKET.into())),
            "" => is_wrong(
                "a destination is missing: write \"stdout\", \"journal\" or the path of a file",
            ),
            "stderr" => is_wrong(
                "standard error has the log of the program: write \"stdout\", or \"./stderr\" for a file of that name",
            ),
            "off" | "none" | "false" => is_wrong(
                "without a log leave it out, or write access = false in the table log of the file; \"./off\" is a file of \
                 that name",
            ),
            "journald" => is_wrong("write \"journal\", or \"./journald\" for a file of that name"),
            "syslog" => is_wrong(
                "the address is missing: write \"syslog:/dev/log\" or \"syslog:HOST:514\", or \"./syslog\" for a file of \
                 that name",
            ),
            path => Ok(Destination::File(path.into())),
        }
    }
}

/// `/dev/log`, `HOST:PORT` or `[::1]:514`.
fn syslog_address(text: &str) -> Result<SyslogAddress, DestinationError> {
    let is_wrong = |problem: String| Err(DestinationError(problem));
    if text.is_empty() {
        return is_wrong(
            "the address of syslog is missing: write \"syslog:/dev/log\" or \"syslog:HOST:514\""
                .into(),
        );
    }
    if let Some(rest) = text.strip_prefix("//") {
        let address = rest.trim_end_matches('/');
        return is_wrong(format!("it is no URL: write \"syslog:{address}\""));
    }
    if text.starts_with('/') {
        return Ok(SyslogAddress::Unix(text.into()));
    }
    if text.starts_with("./") || text.starts_with("../") {
        return is_wrong(format!(
            "{text:?} is no absolute path: write one, such as \"syslog:/dev/log\""
        ));
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return is_wrong(format!(
            "the port is missing: write \"syslog:[{text}]:514\""
        ));
    }
    let Some((host, port)) = text.rsplit_once(':').filter(|_| !text.ends_with(']')) else {
        return is_wrong(format!("the port is missing: write \"syslog:{text}:514\""));
    };
    let port = match port.parse() {
        Ok(0) | Err(_) => {
            return is_wrong(format!(
                "{port:?} is no port: write one from 1 to 65535, usually 514"
            ));
        }
        Ok(port) => port,
    };
    let host = match host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
    {
        Some(host) => host,
        None if host.contains(':') => {
            return is_wrong(format!(
                "an IPv6 address has brackets: write \"syslog:[{host}]:{port}\""
            ));
        }
        None => host,
    };
    match host {
        "" => is_wrong(format!(
            "the host is missing: write \"syslog:127.0.0.1:{port}\""
        )),
        host => Ok(SyslogAddress::Udp {
            host: host.to_owned(),
            port,
        }),
    }
}

/// As the configuration writes it.
impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Destination::Stdout => f.write_str("stdout"),
            Destination::File(path) => path.display().fmt(f),
            Destination::Syslog(address) => address.fmt(f),
            Destination::Journal(_) => f.write_str("journal"),
        }
    }
}

/// As the configuration writes it.
impl fmt::Display for SyslogAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SyslogAddress::Unix(path) => write!(f, "syslog:{}", path.display()),
            SyslogAddress::Udp { host, port } if host.contains(':') => {
                write!(f, "syslog:[{host}]:{port}")
            }
            SyslogAddress::Udp { host, port } => write!(f, "syslog:{host}:{port}"),
        }
    }
}

impl fmt::Display for DestinationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for DestinationError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn udp(host: &str, port: u16) -> Destination {
        let host = host.to_owned();
        Destination::Syslog(SyslogAddress::Udp { host, port })
    }

    #[test]
    fn destinations_are_written_as_they_are_read() {
        let cases = [
            ("stdout", Destination::Stdout),
            ("journal", Destination::Journal(JOURNAL_SOCKET.into())),
            (
                "/var/log/blitz.log",
                Destination::File("/var/log/blitz.log".into()),
            ),
            ("access.log", Destination::File("access.log".into())),
            ("./stderr", Destination::File("./stderr".into())),
            (
                "syslog:/dev/log",
                Destination::Syslog(SyslogAddress::Unix("/dev/log".into())),
            ),
            ("syslog:10.0.0.1:514", udp("10.0.0.1", 514)),
            ("syslog:logs.example:65535", udp("logs.example", 65535)),
            ("syslog:[::1]:514", udp("::1", 514)),
        ];
        for (text, destination) in cases {
            assert_eq!(text.parse(), Ok(destination.clone()), "{text}");
            assert_eq!(destination.to_string(), text);
        }
    }

    #[test]
    fn other_texts_are_errors_with_the_remedy() {
        let cases = [
            ("", "\"stdout\""),
            ("stderr", "\"./stderr\""),
            ("journald", "\"journal\""),
            ("syslog", "\"syslog:/dev/log\""),
            ("syslog:", "\"syslog:/dev/log\""),
            ("syslog://logs.example:514/", "\"syslog:logs.example:514\""),
            ("syslog:./log", "absolute"),
            ("syslog:logs.example", "\"syslog:logs.example:514\""),
            ("syslog:::1", "\"syslog:[::1]:514\""),
            ("syslog:[::1]", "\"syslog:[::1]:514\""),
            ("syslog:fe80::z:514", "\"syslog:[fe80::z]:514\""),
            ("syslog:logs.example:0", "1 to 65535"),
            ("syslog:logs.example:65536", "1 to 65535"),
            ("syslog:logs.example:udp", "\"udp\" is no port"),
            ("syslog::514", "\"syslog:127.0.0.1:514\""),
            ("syslog:[]:514", "\"syslog:127.0.0.1:514\""),
        ];
        for (text, remedy) in cases {
            let error = text.parse::<Destination>().unwrap_err().to_string();
            assert!(error.contains(remedy), "{text}: {error}");
        }
    }
}
