//! The settings of a listener.

use std::time::Duration;

use blitz_http::{Address, TlsSlot};

/// The address and the protocols of a listener.
#[derive(Debug, Clone)]
pub struct ListenerConfig {
    /// The address.
    pub address: Address,
    /// The TLS settings; `None` for clear text.
    pub tls: Option<TlsSlot>,
    /// Clear text accepts only HTTP/2 with prior knowledge (RFC 9113, section 3.3).
    pub http2_only: bool,
    /// Connections begin with a header of the PROXY protocol, which only trusted proxies may send. Datagrams have none, so
    /// that such a listener serves no HTTP/3. It neither sends `Alt-Svc` nor switches to HTTP/2 with `Upgrade`.
    pub proxy_protocol: bool,
    /// With TLS: HTTP/3 is served at the same port over UDP. If that port cannot be bound, the start warns; if it
    /// is in use, after 5 s. HTTP/3 then begins when it can be bound.
    pub http3: bool,
    /// How clients learn of HTTP/3.
    pub alt_svc: AltSvc,
}

/// The field `Alt-Svc` (RFC 7838) in responses over TLS: where HTTP/3 is served, or `clear` if it is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AltSvc {
    /// The port that clients see, where it is another one than that of the listener.
    pub port: Option<u16>,
    /// How long clients remember it; with zero, the field is not sent.
    pub max_age: Duration,
}

impl Default for AltSvc {
    fn default() -> AltSvc {
        AltSvc {
            port: None,
            max_age: Duration::from_secs(3600),
        }
    }
}

impl AltSvc {
    /// The value of the field; `port` is that of the UDP sockets, if there are any.
    pub(super) fn value(&self, port: Option<u16>) -> Option<String> {
        let seconds = self.max_age.as_secs();
        match port {
            _ if seconds == 0 => None,
            None => Some("clear".to_owned()),
            Some(port) => {
                let port = self.port.unwrap_or(port);
                Some(format!("h3=\":{port}\"; ma={seconds}"))
            }
        }
    }
}

impl ListenerConfig {
    /// A listener for TLS, with HTTP/3.
    #[must_use]
    pub fn secure(address: Address, tls: TlsSlot) -> ListenerConfig {
        ListenerConfig {
            tls: Some(tls),
            http3: true,
            ..address.into()
        }
    }

    /// Parses a listener for clear text; the prefix `h2c://` means HTTP/2 only.
    ///
    /// # Errors
    /// Those of `parse`, which parses the address.
    pub fn parse<E>(
        text: &str,
        parse: impl FnOnce(&str) -> Result<Address, E>,
    ) -> Result<ListenerConfig, E> {
        match text.strip_prefix("h2c://") {
            Some(address) => parse(address).map(ListenerConfig::h2c),
            None => parse(text).map(ListenerConfig::from),
        }
    }

    /// A listener for clear text with HTTP/2 only.
    fn h2c(address: Address) -> ListenerConfig {
        ListenerConfig {
            http2_only: true,
            ..address.into()
        }
    }
}

impl ListenerConfig {
    /// Whether a listener with these settings serves the same clients in the same way; certificates may differ.
    pub(super) fn is_same(&self, other: &ListenerConfig) -> bool {
        let settings = |config: &ListenerConfig| {
            let is_secure = config.tls.is_some();
            (
                is_secure,
                config.http2_only,
                config.proxy_protocol,
                config.http3,
                config.alt_svc.clone(),
            )
        };
        self.address == other.address && settings(self) == settings(other)
    }
}

impl From<Address> for ListenerConfig {
    /// Clear text with all versions of HTTP.
    fn from(address: Address) -> ListenerConfig {
        ListenerConfig {
            address,
            tls: None,
            http2_only: false,
            proxy_protocol: false,
            http3: false,
            alt_svc: AltSvc::default(),
        }
    }
}
