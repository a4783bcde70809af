//! A certificate with its chain and its key: loading, names and validity.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::sign::CertifiedKey;
use webpki::EndEntityCert;

use super::error::TlsConfigError;
use super::pem;
use super::validity::{self, Validity};

/// A certificate that expires within this time causes a warning.
const RENEW_BEFORE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// A certificate, the chain that leads to its issuer, and its private key.
#[derive(Clone)]
pub struct Certificate {
    pub(super) key: Arc<CertifiedKey>,
    names: Vec<String>,
    validity: Validity,
    file: Option<PathBuf>,
}

/// A warning about the validity period of a certificate. The certificate can still be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValidityProblem {
    /// The certificate expired this long ago.
    Expired(Duration),
    /// The certificate expires in this time, which is less than 30 days.
    ExpiresSoon(Duration),
    /// The certificate becomes valid in this time.
    NotYetValid(Duration),
}

impl Certificate {
    /// Reads a certificate chain, the server's own certificate first, and its key from PEM files.
    ///
    /// # Errors
    /// A file cannot be read or has other contents, or the key does not belong to the certificate.
    pub fn load(
        certificate: impl AsRef<Path>,
        key: impl AsRef<Path>,
    ) -> Result<Certificate, TlsConfigError> {
        let (certificate, key) = (certificate.as_ref(), key.as_ref());
        let (chain, secret) = (pem::read(certificate)?, pem::read(key)?);
        Certificate::build(&chain, Some(certificate), &secret, Some(key))
    }

    /// As [`Certificate::load`], from the contents of the files.
    ///
    /// # Errors
    /// As [`Certificate::load`].
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Certificate, TlsConfigError> {
        Certificate::build(certificate, None, key, None)
    }

    fn build(
        chain: &[u8],
        file: Option<&Path>,
        key: &[u8],
        key_file: Option<&Path>,
    ) -> Result<Certificate, TlsConfigError> {
        let chain = pem::certificates(chain, file)?;
        let key = pem::private_key(key, key_file)?;
        let invalid = |problem: String| {
            TlsConfigError::new(file, problem, "Request the certificate again, in PEM.")
        };
        let Some(own) = chain.first() else {
            return Err(invalid("there is no certificate".to_owned()));
        };
        let own_parsed = EndEntityCert::try_from(own)
            .map_err(|error| invalid(format!("the first certificate cannot be read: {error}")))?;
        let names = own_parsed
            .valid_dns_names()
            .map(str::to_lowercase)
            .collect();
        let validity = Validity::read(own)
            .ok_or_else(|| invalid("the certificate has no readable validity period".into()))?;
        let provider = aws_lc_rs::default_provider();
        let key = provider
            .key_provider
            .load_private_key(key)
            .map_err(|error| {
                let problem = format!("the private key cannot be used: {error}");
                let remedy = "Use an RSA key of 2048 bits or more, ECDSA P-256, P-384 or P-521, \
                    or Ed25519.";
                TlsConfigError::new(key_file, problem, remedy)
            })?;
        let key = CertifiedKey::new(chain, key);
        if let Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) =
            key.keys_match()
        {
            return Err(mismatch(file, key_file));
        }
        Ok(Certificate {
            key: Arc::new(key),
            names,
            validity,
            file: file.map(Path::to_owned),
        })
    }

    /// The certificate's DNS names in lower case; the first label may be `*`.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The name of the issuer for people, if it has one.
    #[must_use]
    pub fn issuer(&self) -> Option<String> {
        validity::issuer(self.der())
    }

    /// The time at which the certificate becomes valid.
    #[must_use]
    pub fn not_before(&self) -> SystemTime {
        self.validity.not_before
    }

    /// The time at which the certificate expires.
    #[must_use]
    pub fn not_after(&self) -> SystemTime {
        self.validity.not_after
    }

    /// The file that the certificate was read from, if any.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The certificate itself (X.509, DER).
    #[must_use]
    pub fn der(&self) -> &[u8] {
        self.key.cert.first().map_or(&[], |own| own)
    }

    /// The problem with the certificate's validity period at the time `now`, if any. Callers log a
    /// warning and continue, since some clients ignore the period.
    #[must_use]
    pub fn validity_problem(&self, now: SystemTime) -> Option<ValidityProblem> {
        if let Ok(until) = self.validity.not_before.duration_since(now)
            && !until.is_zero()
        {
            return Some(ValidityProblem::NotYetValid(until));
        }
        match self.validity.not_after.duration_since(now) {
            Err(ago) => Some(ValidityProblem::Expired(ago.duration())),
            Ok(left) if left < RENEW_BEFORE => Some(ValidityProblem::ExpiresSoon(left)),
            Ok(_) => None,
        }
    }

    /// Whether the certificate is valid for this host, a name or an address.
    #[must_use]
    pub fn covers(&self, host: &str) -> bool {
        let Ok(name) = ServerName::try_from(host) else {
            return false;
        };
        let own = CertificateDer::from(self.der());
        EndEntityCert::try_from(&own)
            .is_ok_and(|parsed| parsed.verify_is_valid_for_subject_name(&name).is_ok())
    }
}

fn mismatch(file: Option<&Path>, key_file: Option<&Path>) -> TlsConfigError {
    let of = file.map_or(String::from("the certificate"), |file| {
        file.display().to_string()
    });
    let problem = format!("the private key does not belong to {of}");
    let remedy = "Use the key that the certificate was issued for. If there are several pairs, \
        check whether two were mixed up.";
    TlsConfigError::new(key_file, problem, remedy)
}

impl PartialEq for Certificate {
    fn eq(&self, other: &Certificate) -> bool {
        self.der() == other.der()
    }
}

impl Eq for Certificate {}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("names", &self.names)
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for ValidityProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = |time: &Duration| time.as_secs() / (24 * 60 * 60);
        match self {
            ValidityProblem::Expired(ago) => write!(f, "expired {} days ago", days(ago)),
            ValidityProblem::ExpiresSoon(left) => write!(f, "expires in {} days", days(left)),
            ValidityProblem::NotYetValid(until) => {
                write!(f, "becomes valid in {} days", days(until))
            }
        }
    }
}
