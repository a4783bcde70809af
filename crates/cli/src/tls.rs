//! TLS of `blitz run`: from flags to a snapshot, and from changed files to the next one.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use blitz::serving::Occasion;
use blitz_http::{
    CaSet, Certificate, ClientAuth, ServerTls, TicketKeys, TlsConfigError, TlsSlot, ValidityProblem,
};
use clap::{Args, ValueEnum};

use crate::development::{self, Development};

/// Tickets are good for two of these.
const TICKET_KEYS_CHANGE: Duration = Duration::from_secs(6 * 60 * 60);

#[derive(Debug, Args)]
pub(crate) struct TlsArguments {
    /// A certificate with its chain, in PEM, for all --listen-tls; may be repeated, each with its
    /// --key in the same order: the name that a client asks for decides, the first is the default.
    /// HUP reads the files again [default: a development certificate for localhost]
    #[arg(long, value_name = "FILE")]
    cert: Vec<PathBuf>,

    /// The key of a certificate, in PEM; as many as --cert, in the same order
    #[arg(long, value_name = "FILE")]
    key: Vec<PathBuf>,

    /// Ask clients for certificates that the authorities in this file (PEM) have issued
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,

    /// Whether a client without a certificate is let in [default: required]
    #[arg(long, value_enum, value_name = "MODE", requires = "client_ca")]
    client_auth: Option<ClientAuthMode>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ClientAuthMode {
    Optional,
    Required,
}

impl TlsArguments {
    /// Whether certificates of one's own are given.
    pub(crate) fn has_certificates(&self) -> bool {
        !self.cert.is_empty() || !self.key.is_empty()
    }

    pub(crate) fn asks_clients(&self) -> bool {
        self.client_ca.is_some()
    }

    /// What is wrong with the flags as such, and what to write.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (certificates, keys) = (self.cert.len(), self.key.len());
        if certificates == keys {
            return Ok(());
        }
        Err(format!(
            "--cert is given {certificates} times and --key {keys} times\n  \
             give each certificate its key, in the same order: --cert a.pem --key a.key"
        ))
    }
}

/// The TLS of all listeners, and what it takes to make the next snapshot of it.
pub(crate) struct Tls {
    slot: TlsSlot,
    source: Source,
    arguments: Files,
    keys: TicketKeys,
    keys_made: Instant,
}

/// The files that are read again on HUP.
struct Files {
    pairs: Vec<(PathBuf, PathBuf)>,
    client_ca: Option<(PathBuf, ClientAuthMode)>,
}

enum Source {
    Files,
    Development(Development),
}

impl Tls {
    /// Reads the files, or has a development certificate made.
    ///
    /// # Errors
    /// Which file is at fault, why, and what to do.
    pub(crate) fn load(arguments: &TlsArguments) -> Result<Tls, String> {
        let mode = arguments.client_auth.unwrap_or(ClientAuthMode::Required);
        let files = Files {
            pairs: arguments
                .cert
                .iter()
                .cloned()
                .zip(arguments.key.iter().cloned())
                .collect(),
            client_ca: arguments.client_ca.clone().map(|file| (file, mode)),
        };
        let now = SystemTime::now();
        let source = match files.pairs.as_slice() {
            [] => Source::Development(development::certificate(now)?),
            _ => Source::Files,
        };
        let keys = TicketKeys::new().map_err(|error| said(&error))?;
        let snapshot = files.read(&source, &keys).map_err(|error| said(&error))?;
        warn_of_validity(&snapshot, now);
        Ok(Tls {
            slot: TlsSlot::new(snapshot),
            source,
            arguments: files,
            keys,
            keys_made: Instant::now(),
        })
    }

    /// Where listeners find it.
    pub(crate) fn slot(&self) -> TlsSlot {
        self.slot.clone()
    }

    /// The development certificate, if it is in use.
    pub(crate) fn development(&self) -> Option<&Development> {
        match &self.source {
            Source::Development(development) => Some(development),
            Source::Files => None,
        }
    }

    /// The first name of the first certificate, as far as it is a whole one.
    pub(crate) fn first_name(&self) -> Option<String> {
        let current = self.slot.current();
        let first = current.certificates().next()?;
        let mut names = first.names().iter();
        names.find(|name| !name.starts_with('*')).cloned()
    }

    /// Does what there is to do while others serve.
    pub(crate) fn keep(&mut self, occasion: Occasion) {
        match occasion {
            Occasion::Reload => self.reload(SystemTime::now()),
            Occasion::Routine if self.keys_made.elapsed() >= TICKET_KEYS_CHANGE => {
                self.change_keys();
            }
            Occasion::Routine => {}
        }
    }

    /// Good files replace what is in use, for handshakes to come; bad ones do not.
    fn reload(&mut self, now: SystemTime) {
        let snapshot = self.arguments.read(&self.source, &self.keys);
        let checked = snapshot.map_err(|error| said(&error)).and_then(|snapshot| {
            let invalid = snapshot.certificates().find_map(|certificate| {
                let problem = certificate.validity_problem(now)?;
                let is_usable = matches!(problem, ValidityProblem::ExpiresSoon(_));
                (!is_usable).then(|| said_of_validity(certificate, problem))
            });
            invalid.map_or(Ok(snapshot), Err)
        });
        match checked {
            Ok(snapshot) => {
                warn_of_validity(&snapshot, now);
                let certificates = snapshot.certificates().count();
                self.slot.replace(snapshot);
                tracing::info!(certificates, "the certificates were read again");
            }
            Err(problem) => {
                tracing::error!("the certificates in use stay, the new ones are bad: {problem}");
            }
        }
    }

    /// Whoever learns a key can read the sessions that it resumed, so none is used for long.
    fn change_keys(&mut self) {
        self.keys_made = Instant::now();
        let keys = self.keys.rotated();
        let snapshot =
            keys.and_then(|keys| Ok((self.slot.current().with_ticket_keys(&keys)?, keys)));
        match snapshot {
            Ok((snapshot, keys)) => {
                self.slot.replace(snapshot);
                self.keys = keys;
                tracing::debug!("the keys of session tickets were changed");
            }
            Err(error) => tracing::error!(%error, "the keys of session tickets stay"),
        }
    }
}

impl Files {
    fn read(&self, source: &Source, keys: &TicketKeys) -> Result<ServerTls, TlsConfigError> {
        let mut builder = ServerTls::builder().ticket_keys(keys);
        for (certificate, key) in &self.pairs {
            builder = builder.certificate(Certificate::load(certificate, key)?);
        }
        if let Source::Development(development) = source {
            builder = builder.certificate(development.certificate.clone());
        }
        let client_auth = match &self.client_ca {
            None => ClientAuth::None,
            Some((file, ClientAuthMode::Optional)) => ClientAuth::Optional(CaSet::load(file)?),
            Some((file, ClientAuthMode::Required)) => ClientAuth::Required(CaSet::load(file)?),
        };
        builder.client_auth(client_auth).build()
    }
}

fn warn_of_validity(snapshot: &ServerTls, now: SystemTime) {
    for certificate in snapshot.certificates() {
        if let Some(problem) = certificate.validity_problem(now) {
            tracing::warn!("{}", said_of_validity(certificate, problem));
        }
    }
}

fn said_of_validity(certificate: &Certificate, problem: ValidityProblem) -> String {
    let file = certificate.file().map(|file| file.display().to_string());
    let file = file.unwrap_or_else(|| "the development certificate".to_owned());
    format!("{file}: the certificate {problem}; put a new one in its place and send HUP")
}

pub(crate) fn said(error: &TlsConfigError) -> String {
    match error.remedy() {
        "" => error.to_string(),
        remedy => format!("{error}\n  {remedy}"),
    }
}
