//! The flags of `blitz run` for HTTP/3.

use std::num::NonZeroU16;
use std::time::Duration;

use blitz_config::Server;
use clap::{Args, ValueEnum};

use crate::heading;
use crate::process_flags::given;
use crate::timeouts::duration_or;

#[derive(Debug, Clone, Args)]
pub(crate) struct Http3Arguments {
    /// Serve HTTP/3 for each --listen-tls at the same port over UDP [default: on]
    ///
    /// Open that port in firewalls as well. If it cannot be bound, Blitz warns and serves HTTP/1.1 and HTTP/2.
    #[arg(long, value_enum, value_name = "SWITCH", help_heading = heading::LISTENERS)]
    http3: Option<Switch>,

    /// UDP port of HTTP/3 as clients see it, for Alt-Svc [default: that of --listen-tls]
    ///
    /// For a container or firewall that maps the port: with `docker run -p 443:8443/tcp -p 443:8443/udp` it is 443.
    #[arg(long, value_name = "PORT", help_heading = heading::LISTENERS)]
    alt_svc_port: Option<NonZeroU16>,

    /// How long clients may remember that HTTP/3 is served (Alt-Svc) [default: 1h]
    ///
    /// Whole seconds: write 60s, 5m, 24h, 30d, or 0 to leave the field out.
    #[arg(long, value_name = "DURATION", value_parser = max_age, allow_hyphen_values = true, help_heading = heading::LISTENERS)]
    alt_svc_max_age: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

impl Http3Arguments {
    /// The first flag that needs a listener for HTTPS.
    pub(crate) fn first_flag(&self) -> Option<&'static str> {
        let flags = [
            ("--http3 on", self.http3 == Some(Switch::On)),
            ("--alt-svc-port", self.alt_svc_port.is_some()),
            ("--alt-svc-max-age", self.alt_svc_max_age.is_some()),
        ];
        let given = flags.into_iter().find(|(_, is_given)| *is_given);
        given.map(|(flag, _)| flag)
    }

    /// Checks the flags against each other.
    ///
    /// # Errors
    /// The problem and the remedy.
    pub(crate) fn check(&self) -> Result<(), String> {
        let problem = if self.alt_svc_port.is_none() {
            return Ok(());
        } else if !self.is_on() {
            "--alt-svc-port is for HTTP/3, which --http3 off switches off"
        } else if self.alt_svc_max_age == Some(Duration::ZERO) {
            "--alt-svc-port is for Alt-Svc, which --alt-svc-max-age 0 leaves out"
        } else {
            return Ok(());
        };
        Err(format!("{problem}\n  leave out one of the two"))
    }

    pub(crate) fn set(&self, server: &mut Server) {
        server.http3 = given(self.http3.map(|switch| switch == Switch::On));
        server.alt_svc_port = given(self.alt_svc_port.map(|port| port.get().into()));
        server.alt_svc_max_age = given(self.alt_svc_max_age);
    }

    fn is_on(&self) -> bool {
        self.http3 != Some(Switch::Off)
    }
}

/// The field has whole seconds (RFC 7838, section 3.1).
fn max_age(value: &str) -> Result<Duration, String> {
    const REMEDY: &str = "write 60s, 5m, 24h, 30d, or 0 to leave the field out";
    match duration_or(value, REMEDY)? {
        whole if whole.subsec_nanos() == 0 => Ok(whole),
        _ => Err(format!("Alt-Svc has whole seconds\n  {REMEDY}")),
    }
}
