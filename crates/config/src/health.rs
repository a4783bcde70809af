//! Checks of the servers of an upstream.

use std::fmt;
use std::time::Duration;

use crate::access_log::LoggedStatus;

/// How each server of an upstream is checked, and how many outcomes in a row change its state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HealthCheck {
    /// The demand on a server.
    pub kind: HealthKind,
    /// The mean time from the start of a check to that of the next one.
    pub interval: Duration,
    /// How long a check may take.
    pub timeout: Duration,
    /// The checks in a row that succeed, after which a server that was down is up.
    pub rise: u16,
    /// The checks in a row that fail, after which a server that was up is down.
    pub fall: u16,
}

/// The demand of a check.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HealthKind {
    /// A response to a request, over the version of HTTP that the server has.
    Http(HttpCheck),
    /// `SERVING` of the [health protocol of gRPC](https://github.com/grpc/grpc/blob/master/doc/health-checking.md).
    Grpc {
        /// The service; empty for the server as a whole.
        service: String,
        /// The host of the request; `None` is that of the URL.
        host: Option<String>,
    },
    /// A connection.
    Tcp,
    /// A TLS handshake with a certificate that is trusted.
    Tls,
}

/// The request of a check, and the responses that are healthy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HttpCheck {
    /// Path and query.
    pub path: String,
    /// The host of the request; `None` is that of the URL.
    pub host: Option<String>,
    /// The statuses of a healthy response.
    pub statuses: Vec<LoggedStatus>,
    /// A text within the first [`HEALTH_BODY_MAX`] bytes of a healthy response.
    pub body: Option<String>,
}

/// The bytes of a response in which a check looks for its text.
pub const HEALTH_BODY_MAX: usize = 64 * 1024;

impl HealthKind {
    /// Its value in a file.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            HealthKind::Http(_) => "http",
            HealthKind::Grpc { .. } => "grpc",
            HealthKind::Tcp => "tcp",
            HealthKind::Tls => "tls",
        }
    }
}

impl fmt::Display for HealthCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            HealthKind::Http(check) => {
                let statuses = check.statuses.iter().map(ToString::to_string);
                let statuses: Vec<_> = statuses.collect();
                write!(f, "GET {} -> {}", check.path, statuses.join(", "))?;
                if check.body.is_some() {
                    write!(f, " with a text")?;
                }
            }
            HealthKind::Grpc { service, .. } if service.is_empty() => write!(f, "gRPC health")?,
            HealthKind::Grpc { service, .. } => write!(f, "gRPC health of {service}")?,
            HealthKind::Tcp => write!(f, "a TCP connection")?,
            HealthKind::Tls => write!(f, "a TLS handshake")?,
        }
        write!(f, " every {}", Seconds(self.interval))
    }
}

/// A duration with its unit, as files have it.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.subsec_millis() {
            0 => write!(f, "{}s", self.0.as_secs()),
            _ => write!(f, "{}ms", self.0.as_millis()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_shown_in_a_few_words() {
        let check = |kind| HealthCheck {
            kind,
            interval: Duration::from_secs(10),
            timeout: Duration::from_secs(2),
            rise: 2,
            fall: 3,
        };
        let http = HealthKind::Http(HttpCheck {
            path: "/healthz".to_owned(),
            host: None,
            statuses: vec![LoggedStatus::Class(2), LoggedStatus::Code(404)],
            body: Some("ok".to_owned()),
        });
        let text = "GET /healthz -> 2xx, 404 with a text every 10s";
        assert_eq!(check(http).to_string(), text);
        let grpc = |service: &str| HealthKind::Grpc {
            service: service.to_owned(),
            host: None,
        };
        assert_eq!(check(grpc("")).to_string(), "gRPC health every 10s");
        assert_eq!(
            check(grpc("a.B")).to_string(),
            "gRPC health of a.B every 10s"
        );
        let tcp = HealthCheck {
            interval: Duration::from_millis(1500),
            ..check(HealthKind::Tcp)
        };
        assert_eq!(tcp.to_string(), "a TCP connection every 1500ms");
    }
}
