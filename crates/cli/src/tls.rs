//! TLS of `blitz run`: the flags, and the certificates that they name, or the development certificates.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use blitz_gateway::{Site, tls_policies};
use blitz_host::certificates::{self, CertificateReloader, Certificates, PreparedCertificates};
use blitz_host::serving::Tick;
use blitz_http::{Certificate, ServerNames, TlsPolicy, TlsSlot};
use clap::{Args, ValueEnum};

use crate::development::{self, Development};
use crate::heading;

#[derive(Debug, Clone, Args)]
pub(crate) struct TlsArguments {
    /// Certificate with its chain, in PEM; may be repeated, each with its --key [default: a development
    /// certificate for localhost]
    ///
    /// The certificates are for all --listen-tls. The client's server name selects one; the first is the
    /// default. HUP reads the files again.
    #[arg(long, value_name = "FILE", help_heading = heading::CERTIFICATES)]
    cert: Vec<PathBuf>,

    /// Key of a certificate, in PEM; as many as --cert, in the same order
    #[arg(long, value_name = "FILE", help_heading = heading::CERTIFICATES)]
    key: Vec<PathBuf>,

    /// Request client certificates, issued by an authority in this file (PEM)
    #[arg(long, value_name = "FILE", help_heading = heading::CERTIFICATES)]
    client_ca: Option<PathBuf>,

    /// Whether clients need a certificate [default: required]
    #[arg(long, value_enum, value_name = "MODE", requires = "client_ca", help_heading = heading::CERTIFICATES)]
    client_auth: Option<ClientAuthMode>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ClientAuthMode {
    Optional,
    Required,
}

impl TlsArguments {
    /// Whether --cert or --key is given.
    pub(crate) fn has_certificates(&self) -> bool {
        !self.cert.is_empty() || !self.key.is_empty()
    }

    /// Each --cert with its --key.
    pub(crate) fn pairs(&self) -> Vec<(&Path, &Path)> {
        let pairs = self.cert.iter().zip(&self.key);
        pairs
            .map(|(certificate, key)| (&**certificate, &**key))
            .collect()
    }

    pub(crate) fn asks_clients(&self) -> bool {
        self.client_ca.is_some()
    }

    /// Checks the flags.
    ///
    /// # Errors
    /// The problem and the remedy.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (certificates, keys) = (self.cert.len(), self.key.len());
        if certificates == keys {
            return Ok(());
        }
        Err(format!(
            "there are {certificates} --cert and {keys} --key\n  \
             give each certificate its key, in the same order: --cert a.pem --key a.key"
        ))
    }
}

impl TlsArguments {
    /// The certificates of the flags and of a file, if there are any.
    fn certificates(&self, file: &FileTls) -> Option<Certificates> {
        let flags = self.cert.iter().zip(&self.key);
        let files = file.certificates.iter();
        let files = files.map(|(certificate, key)| (certificate, key));
        let mut pairs = flags.chain(files);
        let (certificate, key) = pairs.next()?;
        let first = Certificates::from_files(certificate, key);
        let all = pairs.fold(first, |all, (certificate, key)| {
            all.and_files(certificate, key)
        });
        Some(self.with_clients(all).with_policies(file.policies.clone()))
    }

    /// The same certificates with the flags about clients.
    fn with_clients(&self, certificates: Certificates) -> Certificates {
        let mode = self.client_auth.unwrap_or(ClientAuthMode::Required);
        match (&self.client_ca, mode) {
            (None, _) => certificates,
            (Some(authorities), ClientAuthMode::Optional) => certificates.ask_clients(authorities),
            (Some(authorities), ClientAuthMode::Required) => {
                certificates.require_clients(authorities)
            }
        }
    }
}

/// The part of a configuration file that is about TLS.
#[derive(Default)]
pub(crate) struct FileTls {
    /// Files of certificates, each with the file of its key.
    pub(crate) certificates: Vec<(PathBuf, PathBuf)>,
    /// The demands of handshakes for the hosts of its sites.
    pub(crate) policies: Vec<(ServerNames, TlsPolicy)>,
}

impl FileTls {
    pub(crate) fn new(certificates: Vec<(PathBuf, PathBuf)>, sites: &[Site]) -> FileTls {
        FileTls {
            certificates,
            policies: tls_policies(sites),
        }
    }
}

/// The TLS of a file that is not in use yet.
pub(crate) struct PreparedTls {
    certificates: PreparedCertificates,
    /// The file has certificates.
    is_new: bool,
}

/// The TLS of all listeners.
pub(crate) struct Tls {
    reloader: CertificateReloader,
    arguments: TlsArguments,
    development: Option<Development>,
}

impl Tls {
    /// Reads the files of the flags, or else these, or makes development certificates.
    ///
    /// # Errors
    /// The invalid file, the reason, and the remedy.
    pub(crate) fn load(arguments: &TlsArguments, file: &FileTls) -> Result<Tls, String> {
        let now = SystemTime::now();
        let (certificates, development) = match arguments.certificates(file) {
            Some(certificates) => (certificates, None),
            None => {
                let development = development::certificates(now)?;
                let addresses = Certificates::from(development.addresses.clone());
                let certificates = addresses.and_certificate(development.names.clone());
                let certificates = arguments.with_clients(certificates);
                (
                    certificates.with_policies(file.policies.clone()),
                    Some(development),
                )
            }
        };
        Ok(Tls {
            reloader: CertificateReloader::load(certificates, now)
                .map_err(|error| certificates::message(&error))?,
            arguments: arguments.clone(),
            development,
        })
    }

    /// Reads the certificates of a new configuration file. If it has none, those in use stay, with its policies; `None` if
    /// these are the same, too.
    ///
    /// # Errors
    /// The invalid file, the reason, and the remedy.
    pub(crate) fn prepare(&self, file: &FileTls) -> Result<Option<PreparedTls>, String> {
        let new = self.arguments.certificates(file);
        let is_new = new.is_some();
        if !is_new && self.reloader.certificates_in_use().policies() == file.policies {
            return Ok(None);
        }
        let certificates = new.unwrap_or_else(|| {
            let in_use = self.reloader.certificates_in_use().clone();
            in_use.with_policies(file.policies.clone())
        });
        let certificates = self.reloader.prepare(certificates)?;
        Ok(Some(PreparedTls {
            certificates,
            is_new,
        }))
    }

    /// Uses certificates for new handshakes.
    pub(crate) fn apply(&mut self, prepared: PreparedTls) {
        if prepared.is_new {
            self.development = None;
        }
        self.reloader
            .apply(prepared.certificates, SystemTime::now());
    }

    /// The slot that listeners read the current certificates from.
    pub(crate) fn slot(&self) -> TlsSlot {
        self.reloader.slot()
    }

    /// The development certificates, if they are in use.
    pub(crate) fn development(&self) -> Option<&Development> {
        self.development.as_ref()
    }

    /// The first name of the certificates that is not a wildcard.
    pub(crate) fn first_name(&self) -> Option<String> {
        let current = self.reloader.slot().current();
        let mut names = current.certificates().flat_map(Certificate::names);
        names.find(|name| !name.starts_with('*')).cloned()
    }

    /// Reloads the files or does periodic work.
    pub(crate) fn on_tick(&mut self, tick: Tick) {
        self.reloader.on_tick(tick, SystemTime::now());
    }
}
