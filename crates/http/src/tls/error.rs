//! Errors of TLS connections and of TLS configuration files.

use std::fmt;
use std::path::{Path, PathBuf};

use rustls::{
    AlertDescription, CertificateError, Error, InvalidMessage, OtherError, PeerIncompatible,
};

/// Why a TLS connection failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsError {
    /// We rejected the peer's certificate.
    Certificate(CertificateProblem),
    /// The peer sent a fatal alert with this number (RFC 8446, section 6).
    Alert(u8),
    /// Both sides have no version, cipher suite, group or signature scheme in common.
    Incompatible,
    /// The client offers application protocols, but none of ours; or the server chose none of those offered
    /// (RFC 7301).
    NoApplicationProtocol,
    /// The peer violated the protocol.
    Protocol,
    /// The received bytes are not TLS, for example HTTP in clear text.
    NotTls,
    /// A received record is malformed, or was changed in transit.
    BadRecord,
    /// The messages of the handshake are larger than `tls_handshake_bytes_max`.
    HandshakeTooLarge,
    /// The handshake took too long.
    TimedOut,
    /// The connection ended within the handshake.
    Ended,
    /// A local failure: randomness, keys or configuration.
    Internal,
}

/// The fault of a peer's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateProblem {
    /// The peer sent no certificate, but one is required.
    Missing,
    /// The certificate has expired.
    Expired,
    /// The certificate is not valid yet.
    NotYetValid,
    /// The issuer is not trusted.
    UnknownIssuer,
    /// The certificate is for another name.
    WrongName,
    /// The certificate was revoked.
    Revoked,
    /// The certificate is for another purpose, for example for servers and not for clients.
    WrongPurpose,
    /// The certificate is that of an authority, which must not be used by a server or client.
    Authority,
    /// The certificate is of X.509 version 1 or 2.
    Version,
    /// The certificate has a critical extension that is not supported.
    CriticalExtension,
    /// A signature has an algorithm that is not supported, for example with SHA-1.
    Algorithm,
    /// A signature is wrong, or was made with an RSA key of less than 2048 bits.
    Signature,
    /// The certificate is malformed, or not acceptable for another reason.
    Invalid,
}

impl TlsError {
    /// Stable name of the reason, for logs and counter labels.
    #[must_use]
    pub fn rule(self) -> &'static str {
        match self {
            TlsError::Certificate(problem) => problem.rule(),
            TlsError::Alert(_) => "alert-received",
            TlsError::Incompatible => "nothing-in-common",
            TlsError::NoApplicationProtocol => "no-application-protocol",
            TlsError::Protocol => "protocol-violation",
            TlsError::NotTls => "not-tls",
            TlsError::BadRecord => "bad-record",
            TlsError::HandshakeTooLarge => "handshake-too-large",
            TlsError::TimedOut => "handshake-timeout",
            TlsError::Ended => "handshake-cut-off",
            TlsError::Internal => "internal",
        }
    }

    /// Stable name of the cause, for records: that of the received alert (RFC 8446, appendix B.2), otherwise
    /// [`TlsError::rule`].
    #[must_use]
    pub fn cause(self) -> &'static str {
        match self {
            TlsError::Alert(code) => alert(code).unwrap_or(self.rule()),
            _ => self.rule(),
        }
    }

    /// The registered name of the received alert.
    #[must_use]
    pub fn alert_name(self) -> Option<&'static str> {
        match self {
            TlsError::Alert(code) => AlertDescription::from(code).as_str(),
            _ => None,
        }
    }

    /// The failure that this server has reported with an alert of this number.
    pub(super) fn of_own_alert(number: u8) -> TlsError {
        use CertificateProblem as P;
        match AlertDescription::from(number) {
            AlertDescription::CertificateRequired => TlsError::Certificate(P::Missing),
            AlertDescription::CertificateExpired => TlsError::Certificate(P::Expired),
            AlertDescription::CertificateRevoked => TlsError::Certificate(P::Revoked),
            AlertDescription::UnknownCA => TlsError::Certificate(P::UnknownIssuer),
            AlertDescription::UnsupportedCertificate => TlsError::Certificate(P::WrongPurpose),
            AlertDescription::BadCertificate | AlertDescription::CertificateUnknown => {
                TlsError::Certificate(P::Invalid)
            }
            AlertDescription::NoApplicationProtocol => TlsError::NoApplicationProtocol,
            AlertDescription::HandshakeFailure
            | AlertDescription::ProtocolVersion
            | AlertDescription::InsufficientSecurity => TlsError::Incompatible,
            AlertDescription::InternalError => TlsError::Internal,
            _ => TlsError::Protocol,
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
            Error::InvalidMessage(InvalidMessage::InvalidContentType) => TlsError::NotTls,
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

/// The name of an alert in the RFC.
fn alert(code: u8) -> Option<&'static str> {
    Some(match code {
        10 => "unexpected_message",
        20 => "bad_record_mac",
        22 => "record_overflow",
        40 => "handshake_failure",
        42 => "bad_certificate",
        43 => "unsupported_certificate",
        44 => "certificate_revoked",
        45 => "certificate_expired",
        46 => "certificate_unknown",
        47 => "illegal_parameter",
        48 => "unknown_ca",
        49 => "access_denied",
        50 => "decode_error",
        51 => "decrypt_error",
        70 => "protocol_version",
        71 => "insufficient_security",
        80 => "internal_error",
        86 => "inappropriate_fallback",
        90 => "user_canceled",
        109 => "missing_extension",
        110 => "unsupported_extension",
        112 => "unrecognized_name",
        113 => "bad_certificate_status_response",
        115 => "unknown_psk_identity",
        116 => "certificate_required",
        120 => "no_application_protocol",
        _ => return None,
    })
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
            CertificateProblem::Authority => "certificate-of-authority",
            CertificateProblem::Version => "certificate-unsupported-version",
            CertificateProblem::CriticalExtension => "certificate-unsupported-critical-extension",
            CertificateProblem::Algorithm => "certificate-unsupported-signature-algorithm",
            CertificateProblem::Signature => "certificate-bad-signature-or-weak-key",
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
            CertificateError::UnsupportedSignatureAlgorithmContext { .. }
            | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
                CertificateProblem::Algorithm
            }
            CertificateError::BadSignature => CertificateProblem::Signature,
            CertificateError::Other(other) => of_webpki(other),
            _ => CertificateProblem::Invalid,
        }
    }
}

/// The problems that rustls has no variants for.
fn of_webpki(error: &OtherError) -> CertificateProblem {
    match error.0.downcast_ref() {
        Some(webpki::Error::CaUsedAsEndEntity) => CertificateProblem::Authority,
        Some(webpki::Error::UnsupportedCertVersion) => CertificateProblem::Version,
        Some(webpki::Error::UnsupportedCriticalExtension) => CertificateProblem::CriticalExtension,
        _ => CertificateProblem::Invalid,
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TlsError::Certificate(problem) => return problem.fmt(f),
            TlsError::Alert(code) => {
                let name = self.alert_name().unwrap_or("unregistered");
                return write!(f, "the peer sent alert {code} ({name})");
            }
            TlsError::Incompatible => "no version, cipher suite or signature scheme in common",
            TlsError::NoApplicationProtocol => "no application protocol in common",
            TlsError::Protocol => "the peer violated the TLS protocol",
            TlsError::NotTls => "the peer does not use TLS",
            TlsError::BadRecord => "a TLS record is malformed or was changed in transit",
            TlsError::HandshakeTooLarge => "the TLS handshake is too large",
            TlsError::TimedOut => "the TLS handshake took too long",
            TlsError::Ended => "the connection ended during the TLS handshake",
            TlsError::Internal => "TLS failed locally",
        })
    }
}

impl std::error::Error for TlsError {}

impl fmt::Display for CertificateProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CertificateProblem::Missing => "the peer sent no certificate",
            CertificateProblem::Expired => "the peer's certificate has expired",
            CertificateProblem::NotYetValid => "the peer's certificate is not valid yet",
            CertificateProblem::UnknownIssuer => {
                "the peer's certificate was issued by an unknown authority, or an intermediate \
                 certificate is missing"
            }
            CertificateProblem::WrongName => "the peer's certificate is for another name",
            CertificateProblem::Revoked => "the peer's certificate was revoked",
            CertificateProblem::WrongPurpose => "the peer's certificate is for another purpose",
            CertificateProblem::Authority => "the peer's certificate is that of an authority",
            CertificateProblem::Version => "the peer's certificate is not of X.509 version 3",
            CertificateProblem::CriticalExtension => {
                "the peer's certificate has an unsupported critical extension"
            }
            CertificateProblem::Algorithm => {
                "a signature algorithm of the peer's certificate is not supported, for example SHA-1"
            }
            CertificateProblem::Signature => {
                "a signature of the peer's certificate is wrong, or its key has less than 2048 bits"
            }
            CertificateProblem::Invalid => "the peer's certificate is malformed or not acceptable",
        })
    }
}

/// Why certificates, keys or authorities cannot be used: the file, the problem and the remedy.
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

    /// The file with the problem, if the problem is in a file.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The remedy: a sentence, or nothing.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// The names of rustls are those of the RFC in another case.
    #[test]
    fn alerts_have_their_registered_names() {
        let mut named = 0;
        for code in 0..=u8::MAX {
            let Some(name) = alert(code) else { continue };
            let known = AlertDescription::from(code).as_str();
            let known = known.unwrap_or_else(|| panic!("{code} is not registered"));
            // IANA spells it as in America.
            let known = known
                .to_ascii_lowercase()
                .replace("unrecognised", "unrecognized");
            assert_eq!(name.replace('_', ""), known);
            named += 1;
        }
        assert_eq!(named, 26);
        assert_eq!(TlsError::Alert(48).cause(), "unknown_ca");
        assert_eq!(TlsError::Alert(255).cause(), "alert-received");
        assert_eq!(TlsError::TimedOut.cause(), "handshake-timeout");
    }

    #[test]
    fn certificates_that_are_not_supported_are_distinguished() {
        let other = |error| CertificateError::Other(OtherError(Arc::new(error)));
        let of_sha1 = CertificateError::UnsupportedSignatureAlgorithmContext {
            signature_algorithm_id: Vec::new(),
            supported_algorithms: Vec::new(),
        };
        for (error, rule) in [
            (
                other(webpki::Error::UnsupportedCertVersion),
                "certificate-unsupported-version",
            ),
            (
                other(webpki::Error::UnsupportedCriticalExtension),
                "certificate-unsupported-critical-extension",
            ),
            (of_sha1, "certificate-unsupported-signature-algorithm"),
            (
                CertificateError::BadSignature,
                "certificate-bad-signature-or-weak-key",
            ),
            (
                other(webpki::Error::CaUsedAsEndEntity),
                "certificate-of-authority",
            ),
            (CertificateError::BadEncoding, "certificate-invalid"),
        ] {
            assert_eq!(TlsError::new(&error.into()).rule(), rule);
        }
    }
}
