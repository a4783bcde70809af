//! The flags of `blitz run` for HTTP/3.

use std::num::NonZeroU16;
use std::time::Duration;

use blitz::serving::{AltSvc, ListenerConfig};
use clap::{Args, ValueEnum};

use crate::heading;
use crate::timeouts::duration;

#[derive(Debug, Args)]
pub(crate) struct Http3Arguments {
    /// Serve HTTP/3 for each --listen-tls at the same port over UDP
    ///
    /// Open that port in firewalls as well. If it cannot be bound, Blitz warns and serves HTTP/1.1 and HTTP/2.
    #[arg(long, value_enum, value_name = "SWITCH", default_value_t = Switch::On, help_heading = heading::LISTENERS)]
    http3: Switch,

    /// UDP port of HTTP/3 as clients see it, for Alt-Svc [default: that of --listen-tls]
    ///
    /// For a container or firewall that maps the port: with `docker run -p 443:8443/tcp -p 443:8443/udp` it is 443.
    #[arg(long, value_name = "PORT", help_heading = heading::LISTENERS)]
    alt_svc_port: Option<NonZeroU16>,

    /// How long clients may remember that HTTP/3 is served (Alt-Svc)
    ///
    /// Write 60s, 1h, 24h, or 0 to leave the field out.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1h", allow_hyphen_values = true, help_heading = heading::LISTENERS)]
    alt_svc_max_age: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

impl Http3Arguments {
    pub(crate) fn has_port(&self) -> bool {
        self.alt_svc_port.is_some()
    }

    /// Checks the flags against each other.
    ///
    /// # Errors
    /// The problem and the remedy.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.http3 == Switch::Off && self.has_port() {
            true => Err(
                "--alt-svc-port is for HTTP/3, which --http3 off switches off\n  \
                 leave out one of the two"
                    .to_owned(),
            ),
            false => Ok(()),
        }
    }

    pub(crate) fn apply(&self, listener: ListenerConfig) -> ListenerConfig {
        ListenerConfig {
            http3: self.http3 == Switch::On,
            alt_svc: AltSvc {
                port: self.alt_svc_port.map(NonZeroU16::get),
                max_age: self.alt_svc_max_age,
            },
            ..listener
        }
    }
}
