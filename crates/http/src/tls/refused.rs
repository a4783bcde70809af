//! The certificates of servers that were refused: the first fault of a certificate is in the error, and the rest here.

use std::cell::RefCell;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use blitz_reactor::core_local;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};
use webpki::EndEntityCert;

use super::validity::{self, Validity};

/// Addresses of which a core keeps the last refused certificate.
const ADDRESSES_MAX: usize = 64;

/// Names of a certificate that are kept.
const NAMES_MAX: usize = 4;

/// Longer names are cut.
const NAME_CHARS_MAX: usize = 100;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

core_local! {
    /// The last refused certificate, with the name of the server: its connection has not failed yet.
    static LAST: RefCell<Option<(String, Arc<str>)>> = const { RefCell::new(None) };
    /// The last one first.
    static OF_ADDRESSES: RefCell<Vec<(SocketAddr, Arc<str>)>> = const { RefCell::new(Vec::new()) };
}

/// The certificate that this core has refused last at an address: its names, its issuer, its end, and the faults that
/// can be seen in it alone.
#[must_use]
pub fn refused_certificate(address: SocketAddr) -> Option<Arc<str>> {
    OF_ADDRESSES.with_borrow(|all| {
        let found = all.iter().find(|(known, _)| *known == address);
        found.map(|(_, text)| Arc::clone(text))
    })
}

/// Keeps the certificate that made a connection to `address` fail.
pub(super) fn keep(address: SocketAddr, server_name: Option<&str>) -> Option<Arc<str>> {
    let (name, text) = LAST.take()?;
    if server_name.is_some_and(|expected| expected != name) {
        return None;
    }
    OF_ADDRESSES.with_borrow_mut(|all| {
        all.retain(|(known, _)| *known != address);
        all.truncate(ADDRESSES_MAX - 1);
        all.insert(0, (address, Arc::clone(&text)));
    });
    Some(text)
}

/// Verifies certificates as webpki does, and describes those that it refuses.
#[derive(Debug)]
pub(super) struct DescribingVerifier(pub(super) Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for DescribingVerifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.0.verify_server_cert(own, chain, name, ocsp, now);
        if verified.is_err() {
            let now = UNIX_EPOCH + Duration::from_secs(now.as_secs());
            let text = description(own, name, now).into();
            LAST.set(Some((name.to_str().into_owned(), text)));
        }
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// `for b.example, not for a.example; issued by Some CA; expired 3 days ago`.
fn description(certificate: &CertificateDer<'_>, name: &ServerName<'_>, now: SystemTime) -> String {
    let Ok(parsed) = EndEntityCert::try_from(certificate) else {
        return "it cannot be read".to_owned();
    };
    let mut names: Vec<_> = parsed.valid_dns_names().map(cut).collect();
    let others = names.len().saturating_sub(NAMES_MAX);
    names.truncate(NAMES_MAX);
    let mut text = match names.is_empty() {
        true => "for no DNS name".to_owned(),
        false => format!("for {}", names.join(", ")),
    };
    if others > 0 {
        let _ = write!(text, " and {others} others");
    }
    if parsed.verify_is_valid_for_subject_name(name).is_err() {
        let _ = write!(text, ", not for {}", name.to_str());
    }
    let issuer = validity::issuer(certificate);
    let issuer = issuer.as_deref().map_or_else(|| "no name".to_owned(), cut);
    let _ = write!(text, "; issued by {issuer}");
    if let Some(validity) = Validity::read(certificate) {
        let _ = write!(text, "; {}", period(validity, now));
    }
    text
}

fn period(validity: Validity, now: SystemTime) -> String {
    let days = |time: Duration| match time.as_secs() / DAY.as_secs() {
        0 => "less than a day".to_owned(),
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    };
    match (
        validity.not_before.duration_since(now),
        validity.not_after.duration_since(now),
    ) {
        (Ok(wait), _) if !wait.is_zero() => format!("not valid for {} yet", days(wait)),
        (_, Ok(left)) => format!("valid for {} more", days(left)),
        (_, Err(past)) => format!("expired {} ago", days(past.duration())),
    }
}

/// The start of a name, without control characters.
fn cut(text: &str) -> String {
    let start = text.chars().take(NAME_CHARS_MAX);
    start
        .map(|one| if one.is_control() { '?' } else { one })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(names: &[&str], of: &str, now: SystemTime) -> String {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let name = ServerName::try_from(of.to_owned()).unwrap();
        description(made.cert.der(), &name, now)
    }

    #[test]
    fn a_certificate_is_described_with_all_its_faults() {
        let now = UNIX_EPOCH + DAY * 365 * 50;
        let text = described(&["a.example", "b.example"], "a.example", now);
        assert!(
            text.starts_with(
                "for a.example, b.example; issued by rcgen self signed cert; valid for "
            ),
            "{text}"
        );
        let text = described(&["b.example"], "a.example", now + DAY * 365 * 4000);
        assert!(
            text.starts_with("for b.example, not for a.example; issued by "),
            "{text}"
        );
        assert!(
            text.contains("; expired ") && text.ends_with(" days ago"),
            "{text}"
        );
        let text = described(&["a.example"; 6], "a.example", UNIX_EPOCH);
        assert!(text.contains("a.example and 2 others; "), "{text}");
        assert!(text.ends_with(" days yet"), "{text}");
    }

    #[test]
    fn the_last_certificate_of_an_address_is_kept() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let refuse = |name: &str, text: &str| LAST.set(Some((name.to_owned(), text.into())));
        assert_eq!(keep(address(1), None), None);
        refuse("a", "one");
        assert_eq!(
            keep(address(1), Some("b")),
            None,
            "it is of another connection"
        );
        for (port, text) in [(1, "one"), (1, "two"), (2, "three")] {
            refuse("a", text);
            assert_eq!(keep(address(port), Some("a")).as_deref(), Some(text));
        }
        assert_eq!(refused_certificate(address(1)).as_deref(), Some("two"));
        for port in 3..3 + ADDRESSES_MAX as u16 {
            refuse("a", "more");
            keep(address(port), None);
        }
        assert_eq!(refused_certificate(address(1)), None);
        assert_eq!(OF_ADDRESSES.with_borrow(Vec::len), ADDRESSES_MAX);
    }
}
