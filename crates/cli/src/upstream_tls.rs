//! TLS towards upstreams of `blitz run`: from flags to settings, and from changed files to the next
//! ones.

use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use blitz::serving::{Tick, ValidityWatch, unusable_reason};
use blitz_http::{CaSet, Certificate, ClientTls, ClientTlsSlot, TlsConfigError};
use clap::Args;

use crate::tls::said;

#[derive(Debug, Clone, Args)]
pub(crate) struct UpstreamTlsArguments {
    /// The authorities (PEM) whose word about upstreams is believed; HUP reads the file again
    /// [default: the well-known ones]
    #[arg(long, value_name = "FILE")]
    upstream_ca: Option<PathBuf>,

    /// The certificate (PEM) that upstreams are shown, if they ask for one; HUP reads it again
    #[arg(long, value_name = "FILE", requires = "upstream_key")]
    upstream_cert: Option<PathBuf>,

    /// Its key, in PEM
    #[arg(long, value_name = "FILE", requires = "upstream_cert")]
    upstream_key: Option<PathBuf>,
}

/// What upstreams over TLS are spoken to with, and the files that it comes from.
pub(crate) struct UpstreamTls {
    slot: ClientTlsSlot,
    arguments: UpstreamTlsArguments,
    /// What the files had in them.
    contents: Contents,
    certificate: Option<Certificate>,
    validity: ValidityWatch,
}

/// Of each file, as far as it could be read.
type Contents = [Option<Vec<u8>>; 3];

impl UpstreamTls {
    /// Reads the files.
    ///
    /// # Errors
    /// Which file is at fault, why, and what to do.
    pub(crate) fn load(arguments: &UpstreamTlsArguments) -> Result<UpstreamTls, String> {
        let contents = arguments.contents();
        let (tls, certificate) = arguments.read().map_err(|error| said(&error))?;
        Ok(UpstreamTls {
            slot: ClientTlsSlot::from(tls),
            arguments: arguments.clone(),
            contents,
            validity: ValidityWatch::start(certificate.iter(), SystemTime::now()),
            certificate,
        })
    }

    /// Where the gateway finds it.
    pub(crate) fn slot(&self) -> ClientTlsSlot {
        self.slot.clone()
    }

    /// Whether there are files to read.
    pub(crate) fn has_files(&self) -> bool {
        self.arguments.upstream_ca.is_some() || self.arguments.upstream_cert.is_some()
    }

    /// Does what there is to do while others serve.
    pub(crate) fn on_tick(&mut self, tick: Tick) {
        let now = SystemTime::now();
        match tick {
            Tick::Reload if self.has_files() => self.reload(now),
            Tick::Reload => {}
            Tick::Periodic => self.validity.check_daily(self.certificate.iter(), now),
        }
    }

    /// Good files replace what is in use, for connections to come; bad ones do not, and those that
    /// are what they were leave the connections alone that were made with them.
    fn reload(&mut self, now: SystemTime) {
        let contents = self.arguments.contents();
        if contents == self.contents {
            tracing::info!("the files for upstreams over TLS have not changed");
            return;
        }
        let read = self.arguments.read().map_err(|error| said(&error));
        let checked = read.and_then(|(tls, certificate)| {
            let unusable = certificate.iter().find_map(|it| unusable_reason(it, now));
            unusable.map_or(Ok((tls, certificate)), Err)
        });
        match checked {
            Ok((tls, certificate)) => {
                self.validity.check(certificate.iter(), now);
                self.slot.replace(tls);
                (self.contents, self.certificate) = (contents, certificate);
                tracing::info!("the files for upstreams over TLS were read again");
            }
            Err(problem) => {
                tracing::error!(
                    "upstreams over TLS go on with the old files, the new ones are bad: {problem}"
                );
            }
        }
    }
}

impl UpstreamTlsArguments {
    fn contents(&self) -> Contents {
        let files = [&self.upstream_ca, &self.upstream_cert, &self.upstream_key];
        files.map(|file| fs::read(file.as_ref()?).ok())
    }

    fn read(&self) -> Result<(ClientTls, Option<Certificate>), TlsConfigError> {
        let mut builder = ClientTls::builder();
        if let Some(file) = &self.upstream_ca {
            builder = builder.authorities(CaSet::load(file)?);
        }
        let certificate = match (&self.upstream_cert, &self.upstream_key) {
            (Some(certificate), Some(key)) => Some(Certificate::load(certificate, key)?),
            _ => None,
        };
        if let Some(certificate) = &certificate {
            builder = builder.certificate(certificate.clone());
        }
        Ok((builder.build()?, certificate))
    }
}
