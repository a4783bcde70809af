//! Reading PEM files, with errors that name their actual contents.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::digest;
use rustls::RootCertStore;
use rustls::pki_types::pem::{Error, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::error::TlsConfigError;

/// Certificates of trusted authorities.
#[derive(Clone)]
pub struct CaSet {
    pub(super) roots: Arc<RootCertStore>,
    /// Equal for sets with the same certificates.
    pub(super) digest: [u8; 32],
}

impl CaSet {
    /// Reads the authorities' certificates from a PEM file.
    ///
    /// # Errors
    /// The file cannot be read, or has no certificates.
    pub fn load(file: impl AsRef<Path>) -> Result<CaSet, TlsConfigError> {
        let file = file.as_ref();
        CaSet::build(&read(file)?, Some(file))
    }

    /// As [`CaSet::load`], from the contents of the file.
    ///
    /// # Errors
    /// As [`CaSet::load`].
    pub fn from_pem(content: &[u8]) -> Result<CaSet, TlsConfigError> {
        CaSet::build(content, None)
    }

    /// The authorities that Mozilla's browsers trust, as of the build of this program.
    #[must_use]
    pub fn well_known() -> CaSet {
        let roots = RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        CaSet {
            roots: Arc::new(roots),
            digest: [0; 32],
        }
    }

    /// The number of authorities.
    #[must_use]
    pub fn len(&self) -> usize {
        self.roots.len()
    }

    /// Whether the set has no authorities.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    fn build(content: &[u8], file: Option<&Path>) -> Result<CaSet, TlsConfigError> {
        let mut certificates = certificates(content, file)?;
        certificates.sort_by(|a, b| a.as_ref().cmp(b.as_ref()));
        let mut roots = RootCertStore::empty();
        let mut digest = digest::Context::new(&digest::SHA256);
        for (at, certificate) in certificates.into_iter().enumerate() {
            digest.update(&certificate);
            roots.add(certificate).map_err(|error| {
                let problem = format!("certificate {} cannot be used: {error}", at + 1);
                TlsConfigError::new(file, problem, "Use certificates of X.509 version 3.")
            })?;
        }
        let mut digest_bytes = [0; 32];
        digest_bytes.copy_from_slice(digest.finish().as_ref());
        Ok(CaSet {
            roots: Arc::new(roots),
            digest: digest_bytes,
        })
    }
}

impl fmt::Debug for CaSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CaSet({} authorities)", self.len())
    }
}

pub(super) fn read(file: &Path) -> Result<Vec<u8>, TlsConfigError> {
    std::fs::read(file).map_err(|error| {
        let remedy = match error.kind() {
            std::io::ErrorKind::NotFound => "Check the path.",
            std::io::ErrorKind::PermissionDenied => {
                "Give this process read access, for example with chgrp and chmod g+r."
            }
            _ => "",
        };
        TlsConfigError::new(Some(file), format!("cannot be read: {error}"), remedy)
    })
}

/// All certificates of a file; at least one.
pub(super) fn certificates(
    content: &[u8],
    file: Option<&Path>,
) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
    let mut certificates = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(content) {
        certificates.push(certificate.map_err(|error| malformed(file, &error))?);
    }
    if !certificates.is_empty() {
        return Ok(certificates);
    }
    let problem = format!("has no certificate: {}", contents(content));
    let remedy = "A certificate begins with a line -----BEGIN CERTIFICATE-----. Convert DER to PEM \
        with: openssl x509 -inform der -in FILE -out FILE.pem";
    Err(TlsConfigError::new(file, problem, remedy))
}

pub(super) fn private_key(
    content: &[u8],
    file: Option<&Path>,
) -> Result<PrivateKeyDer<'static>, TlsConfigError> {
    match PrivateKeyDer::from_pem_slice(content) {
        Ok(key) => Ok(key),
        Err(error) if !is_encrypted(content) && !matches!(error, Error::NoItemsFound) => {
            Err(malformed(file, &error))
        }
        Err(_) => {
            let problem = format!("has no private key: {}", contents(content));
            let remedy = if is_encrypted(content) {
                "Decrypt the key with: openssl pkey -in FILE -out FILE.key, and restrict access \
                 to that file."
            } else {
                "A key begins with a line -----BEGIN PRIVATE KEY-----. Check whether the files \
                 of the key and of the certificate were mixed up."
            };
            Err(TlsConfigError::new(file, problem, remedy))
        }
    }
}

/// Whether the file has an encrypted key, of PKCS #8 or in the traditional form (RFC 1421).
fn is_encrypted(content: &[u8]) -> bool {
    has(content, "BEGIN ENCRYPTED PRIVATE KEY") || has(content, "Proc-Type: 4,ENCRYPTED")
}

fn malformed(file: Option<&Path>, error: &Error) -> TlsConfigError {
    // The text of these errors has bytes as numbers.
    let problem = match error {
        Error::MissingSectionEnd { end_marker } => {
            let label = String::from_utf8_lossy(end_marker);
            format!("the line -----END {label}----- is missing")
        }
        Error::IllegalSectionStart { .. } => "a line -----BEGIN is incomplete".to_owned(),
        error => error.to_string(),
    };
    let remedy = "The file may be truncated or edited; copy it again.";
    TlsConfigError::new(file, format!("is not valid PEM: {problem}"), remedy)
}

/// The actual contents of a file, for messages.
fn contents(content: &[u8]) -> &'static str {
    if content.is_empty() {
        "it is empty"
    } else if is_encrypted(content) {
        "its key is encrypted"
    } else if has(content, "PRIVATE KEY-----") {
        "it has a private key"
    } else if has(content, "BEGIN CERTIFICATE REQUEST") {
        "it has a certificate request"
    } else if has(content, "BEGIN CERTIFICATE-----") {
        "it has a certificate"
    } else if has(content, "-----BEGIN") {
        "it has another kind of PEM data"
    } else {
        "it is not in PEM"
    }
}

fn has(content: &[u8], text: &str) -> bool {
    content
        .windows(text.len())
        .any(|window| window == text.as_bytes())
}
