//! What can go wrong with TLS: on a connection, and with the files it is configured by.

use std::fmt;
use std::path::{Path, PathBuf};

use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};

/// Why a TLS connection failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsError {
    /// The peer's certificate was not accepted by us.
    Certificate(CertificateProblem),
    /// The peer gave up and said why: an alert's number (RFC 8446, section 6).
    Alert(u8),
    /// Both sides have no version, cipher suite, group or signature scheme in common.
    Incompatible,
    /// The client offers application protocols, and none of ours is among them (RFC 7301).
    NoApplicationProtocol,
    /// The peer broke the protocol.
    Protocol,
    /// Bytes that were changed on their way, or are no record.
    BadRecord,
    /// The messages of the handshake are larger than `tls_handshake_bytes_max`.
    HandshakeTooLarge,
    /// The handshake took too long.
    TimedOut,
    /// The connection ended within the handshake.
    Ended,
    /// Our own fault: randomness, keys or configuration failed.
    Internal,
}

/// What is wrong with a peer's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateProblem {
    /// There is none, and one is required.
    Missing,
    /// It is valid no more.
    Expired,
    /// It is not valid yet.
    NotYetValid,
    /// Nobody whom we trust has issued it.
    UnknownIssuer,
    /// It is for another name.
    WrongName,
    /// It was revoked.
    Revoked,
    /// It is for another purpose, for example for servers and not for clients.
    WrongPurpose,
    /// It is malformed, or a signature is wrong.
    Invalid,
}

impl TlsError {
    /// Stable name of the reason, for logs and as a counter's label.
    #[must_use]
    pub fn rule(self) -> &'static str {
        match self {
            TlsError::Certificate(problem) => problem.rule(),
            TlsError::Alert(_) => "alert-received",
            TlsError::Incompatible => "nothing-in-common",
            TlsError::NoApplicationProtocol => "no-application-protocol",
            TlsError::Protocol => "protocol-violation",
            TlsError::BadRecord => "bad-record",
            TlsError::HandshakeTooLarge => "handshake-too-large",
            TlsError::TimedOut => "handshake-timeout",
            TlsError::Ended => "handshake-cut-off",
            TlsError::Internal => "internal",
        }
    }

    /// The registered name of the alert that was received.
    #[must_use]
    pub fn alert_name(self) -> Option<&'static str> {
        match self {
            TlsError::Alert(code) => AlertDescription::from(code).as_str(),
            _ => None,
        }
    }

    pub(super) fn new(error: &Error) -> TlsError {
        match error {
            Error::InvalidCertificate(problem) => TlsError::Certificate(problem.into()),
            Error::NoCertificatesPresented => TlsError::Certificate(CertificateProblem::Missing),
            Error::InvalidCertRevocationList(_) => {
                TlsError::Certificate(CertificateProblem::Invalid)
            }
            Error::AlertReceived(alert) => TlsError::Alert(u8::from(*alert)),
            Error::PeerIncompatible(
                PeerIncompatible::NoCertificateRequestSignatureSchemesInCommon,
            )
            | Error::PeerIncompatible(_) => TlsError::Incompatible,
            Error::NoApplicationProtocol => TlsError::NoApplicationProtocol,
            Error::DecryptError | Error::InvalidMessage(_) | Error::PeerSentOversizedRecord => {
                TlsError::BadRecord
            }
            Error::PeerMisbehaved(_)
            | Error::InappropriateMessage { .. }
            | Error::InappropriateHandshakeMessage { .. } => TlsError::Protocol,
            _ => TlsError::Internal,
        }
    }
}

impl CertificateProblem {
    fn rule(self) -> &'static str {
        match self {
            CertificateProblem::Missing => "certificate-missing",
            CertificateProblem::Expired => "certificate-expired",
            CertificateProblem::NotYetValid => "certificate-not-yet-valid",
            CertificateProblem::UnknownIssuer => "certificate-unknown-issuer",
            CertificateProblem::WrongName => "certificate-wrong-name",
            CertificateProblem::Revoked => "certificate-revoked",
            CertificateProblem::WrongPurpose => "certificate-wrong-purpose",
            CertificateProblem::Invalid => "certificate-invalid",
        }
    }
}

impl From<&CertificateError> for CertificateProblem {
    fn from(error: &CertificateError) -> CertificateProblem {
        match error {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                CertificateProblem::Expired
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                CertificateProblem::NotYetValid
            }
            CertificateError::UnknownIssuer => CertificateProblem::UnknownIssuer,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                CertificateProblem::WrongName
            }
            CertificateError::Revoked => CertificateProblem::Revoked,
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                CertificateProblem::WrongPurpose
            }
            _ => CertificateProblem::Invalid,
        }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TlsError::Certificate(problem) => return problem.fmt(f),
            TlsError::Alert(code) => {
                let name = self.alert_name().unwrap_or("unregistered");
                return write!(f, "the peer gave up with alert {code} ({name})");
            }
            TlsError::Incompatible => "no version, cipher suite or signature scheme in common",
            TlsError::NoApplicationProtocol => "no application protocol in common",
            TlsError::Protocol => "the peer broke the TLS protocol",
            TlsError::BadRecord => "a TLS record is malformed or was changed on its way",
            TlsError::HandshakeTooLarge => "the TLS handshake is too large",
            TlsError::TimedOut => "the TLS handshake took too long",
            TlsError::Ended => "the connection ended within the TLS handshake",
            TlsError::Internal => "TLS failed on our side",
        })
    }
}

impl std::error::Error for TlsError {}

impl fmt::Display for CertificateProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CertificateProblem::Missing => "the peer gave no certificate",
            CertificateProblem::Expired => "the peer's certificate has expired",
            CertificateProblem::NotYetValid => "the peer's certificate is not valid yet",
            CertificateProblem::UnknownIssuer => {
                "nobody whom we trust has issued the peer's certificate"
            }
            CertificateProblem::WrongName => "the peer's certificate is for another name",
            CertificateProblem::Revoked => "the peer's certificate was revoked",
            CertificateProblem::WrongPurpose => "the peer's certificate is for another purpose",
            CertificateProblem::Invalid => "the peer's certificate is malformed or badly signed",
        })
    }
}

/// Why certificates, keys or authorities cannot be used: which file, what is wrong with it, and
/// what to do.
#[derive(Debug)]
pub struct TlsConfigError {
    file: Option<PathBuf>,
    problem: String,
    remedy: &'static str,
}

impl TlsConfigError {
    pub(super) fn new(
        file: Option<&Path>,
        problem: impl Into<String>,
        remedy: &'static str,
    ) -> TlsConfigError {
        TlsConfigError {
            file: file.map(Path::to_owned),
            problem: problem.into(),
            remedy,
        }
    }

    /// The file that is at fault, if it is one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// What can be done about it: a sentence, or nothing.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        self.remedy
    }
}

impl fmt::Display for TlsConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}: ", file.display())?;
        }
        f.write_str(&self.problem)
    }
}

impl std::error::Error for TlsConfigError {}
