//! TLS of `blitz run` towards upstreams: the flags, the settings that they name, and their reload.

use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use blitz_host::certificates::{ValidityWatch, message, unusable_reason};
use blitz_host::serving::Tick;
use blitz_http::{CaSet, Certificate, ClientTls, ClientTlsSlot, TlsConfigError};
use clap::Args;

use crate::heading;

#[derive(Debug, Clone, Args)]
pub(crate) struct UpstreamTlsArguments {
    /// Authorities (PEM) that are trusted for upstreams [default: the well-known ones]
    ///
    /// HUP reads the file again.
    #[arg(long, value_name = "FILE", help_heading = heading::TARGETS)]
    upstream_ca: Option<PathBuf>,

    /// Client certificate (PEM) for upstreams that request one
    ///
    /// HUP reads the file again.
    #[arg(long, value_name = "FILE", requires = "upstream_key", help_heading = heading::TARGETS)]
    upstream_cert: Option<PathBuf>,

    /// Key of --upstream-cert, in PEM
    #[arg(long, value_name = "FILE", requires = "upstream_cert", help_heading = heading::TARGETS)]
    upstream_key: Option<PathBuf>,
}

impl UpstreamTlsArguments {
    /// The first flag that is given.
    pub(crate) fn first_flag(&self) -> Option<&'static str> {
        let flags = [
            ("--upstream-ca", &self.upstream_ca),
            ("--upstream-cert", &self.upstream_cert),
        ];
        let given = flags.into_iter().find(|(_, file)| file.is_some());
        given.map(|(flag, _)| flag)
    }
}

/// The TLS settings for upstreams, and their files.
pub(crate) struct UpstreamTls {
    slot: ClientTlsSlot,
    arguments: UpstreamTlsArguments,
    /// The contents of the files when they were read.
    contents: Contents,
    certificate: Option<Certificate>,
    validity: ValidityWatch,
}

/// The contents of each file; `None` if it is not given or not readable.
type Contents = [Option<Vec<u8>>; 3];

impl UpstreamTls {
    /// Reads the files.
    ///
    /// # Errors
    /// The invalid file, the reason, and the remedy.
    pub(crate) fn load(arguments: &UpstreamTlsArguments) -> Result<UpstreamTls, String> {
        let contents = arguments.contents();
        let (tls, certificate) = arguments.read().map_err(|error| message(&error))?;
        Ok(UpstreamTls {
            slot: ClientTlsSlot::from(tls),
            arguments: arguments.clone(),
            contents,
            validity: ValidityWatch::start(certificate.iter(), SystemTime::now()),
            certificate,
        })
    }

    /// The slot that the gateway reads the current settings from.
    pub(crate) fn slot(&self) -> ClientTlsSlot {
        self.slot.clone()
    }

    /// Whether there are files to read.
    pub(crate) fn has_files(&self) -> bool {
        self.arguments.upstream_ca.is_some() || self.arguments.upstream_cert.is_some()
    }

    /// Reloads the files or does periodic work.
    pub(crate) fn on_tick(&mut self, tick: Tick) {
        let now = SystemTime::now();
        match tick {
            Tick::Reload if self.has_files() => self.reload(now),
            Tick::Reload | Tick::Reopen | Tick::NotReady | Tick::Drain => {}
            Tick::Periodic => self.validity.check_daily(self.certificate.iter(), now),
        }
    }

    /// Valid files that have changed apply to new connections and retire existing ones. Invalid and
    /// unchanged files have no effect.
    fn reload(&mut self, now: SystemTime) {
        let contents = self.arguments.contents();
        if contents == self.contents {
            tracing::info!("the files for upstreams over TLS have not changed");
            return;
        }
        let read = self.arguments.read().map_err(|error| message(&error));
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
                    "the TLS settings for upstreams stay, because the new files are invalid: {problem}"
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
