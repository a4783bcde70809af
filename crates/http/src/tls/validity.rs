//! The validity period, the issuer and the subject of a certificate, read from its DER: webpki checks them but does not expose them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const VERSION: u8 = 0xa0;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const OCTET_STRING: u8 = 0x04;
const BOOLEAN: u8 = 0x01;
const ISSUER_UNIQUE_ID: u8 = 0x81;
const SUBJECT_UNIQUE_ID: u8 = 0x82;
const EXTENSIONS: u8 = 0xa3;
/// Kinds of alternative names (RFC 5280, section 4.2.1.6): e-mail address, DNS name, URI.
const NAME_KINDS: [u8; 3] = [0x81, 0x82, 0x86];

/// 2.5.4.3 and 2.5.4.10.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
/// 2.5.29.17.
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// The most bytes of a subject.
const SUBJECT_BYTES_MAX: usize = 256;

/// RFC 5280, section 4.1.2.5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) not_before: SystemTime,
    pub(super) not_after: SystemTime,
}

impl Validity {
    /// Reads the period from a certificate; `None` if the certificate is malformed.
    pub(super) fn read(certificate: &[u8]) -> Option<Validity> {
        let mut signed = from_issuer(certificate)?;
        signed.next(SEQUENCE)?;
        let mut times = Der(signed.next(SEQUENCE)?);
        Some(Validity {
            not_before: times.next_time()?,
            not_after: times.next_time()?,
        })
    }
}

/// The name of the issuer for people: its common name, or else its organization (RFC 5280, section 4.1.2.4).
pub(super) fn issuer(certificate: &[u8]) -> Option<String> {
    let mut names = Der(from_issuer(certificate)?.next(SEQUENCE)?);
    let mut organization = None;
    while let Some(set) = names.next(SET) {
        let mut attribute = Der(Der(set).next(SEQUENCE)?);
        let kind = attribute.next(OBJECT_IDENTIFIER)?;
        let Some(text) = attribute.next_text() else {
            continue;
        };
        match kind {
            COMMON_NAME => return Some(text),
            ORGANIZATION => organization = Some(text),
            _ => {}
        }
    }
    organization
}

/// The name of the subject for programs: its common name, or else the first of its alternative names that is an e-mail
/// address, a DNS name or a URI. `None` if it has none, several common names, or one that is not plain text: others may
/// read such a name differently.
pub(super) fn subject(certificate: &[u8]) -> Option<String> {
    let mut signed = from_issuer(certificate)?;
    signed.next(SEQUENCE)?;
    signed.next(SEQUENCE)?;
    let mut names = Der(signed.next(SEQUENCE)?);
    let mut common_name = None;
    while !names.0.is_empty() {
        let mut set = Der(names.next(SET)?);
        while !set.0.is_empty() {
            let mut attribute = Der(set.next(SEQUENCE)?);
            if attribute.next(OBJECT_IDENTIFIER)? == COMMON_NAME {
                let text = attribute.next_text()?;
                if common_name.replace(text).is_some() {
                    return None;
                }
            }
        }
    }
    let name = match common_name {
        Some(name) => name,
        None => alternative_name(&mut signed)?,
    };
    // Another name must not become this one, so nothing is trimmed: a field would lose spaces around it.
    let is_whole = !name.is_empty() && name.trim() == name && name.len() <= SUBJECT_BYTES_MAX;
    (is_whole && !name.contains(char::is_control)).then_some(name)
}

/// The first alternative name, from what follows the subject.
fn alternative_name(signed: &mut Der<'_>) -> Option<String> {
    // The key.
    signed.next(SEQUENCE)?;
    for unique_id in [ISSUER_UNIQUE_ID, SUBJECT_UNIQUE_ID] {
        if signed.0.first() == Some(&unique_id) {
            signed.next(unique_id)?;
        }
    }
    let mut extensions = Der(Der(signed.next(EXTENSIONS)?).next(SEQUENCE)?);
    while !extensions.0.is_empty() {
        let mut extension = Der(extensions.next(SEQUENCE)?);
        let kind = extension.next(OBJECT_IDENTIFIER)?;
        if extension.0.first() == Some(&BOOLEAN) {
            extension.next(BOOLEAN)?;
        }
        let value = extension.next(OCTET_STRING)?;
        if kind != SUBJECT_ALT_NAME {
            continue;
        }
        let mut names = Der(Der(value).next(SEQUENCE)?);
        while let Some(&kind) = names.0.first() {
            let name = names.next(kind)?;
            if NAME_KINDS.contains(&kind) {
                return String::from_utf8(name.to_vec()).ok();
            }
        }
    }
    None
}

/// The rest of the signed part of a certificate, which begins with the issuer.
fn from_issuer(certificate: &[u8]) -> Option<Der<'_>> {
    let mut outer = Der(certificate);
    let mut signed = Der(Der(outer.next(SEQUENCE)?).next(SEQUENCE)?);
    if signed.0.first() == Some(&VERSION) {
        signed.next(VERSION)?;
    }
    signed.next(INTEGER)?;
    // The algorithm.
    signed.next(SEQUENCE)?;
    Some(signed)
}

/// Reads DER elements (X.690) in order.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The content of the next element, if it has this tag.
    fn next(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (&found, rest) = self.0.split_first()?;
        let (&short, mut rest) = rest.split_first()?;
        let mut len = usize::from(short);
        if short >= 0x80 {
            let (bytes, after) = rest.split_at_checked(usize::from(short & 0x7f))?;
            if bytes.len() > 3 {
                return None;
            }
            len = bytes
                .iter()
                .fold(0, |len, &byte| len << 8 | usize::from(byte));
            rest = after;
        }
        let (content, after) = rest.split_at_checked(len)?;
        self.0 = after;
        (found == tag).then_some(content)
    }

    /// A text in UTF-8 or ASCII; others are not used any more.
    fn next_text(&mut self) -> Option<String> {
        let tag = *self.0.first()?;
        let content = self.next(tag)?;
        let is_text = matches!(tag, UTF8_STRING | PRINTABLE_STRING | IA5_STRING);
        let text = is_text.then(|| std::str::from_utf8(content).ok())??;
        Some(text.to_owned())
    }

    fn next_time(&mut self) -> Option<SystemTime> {
        match *self.0.first()? {
            UTC_TIME => {
                let (year, rest) = digits(self.next(UTC_TIME)?, 2)?;
                let century = if year < 50 { 2000 } else { 1900 };
                time(century + year, rest)
            }
            _ => {
                let (year, rest) = digits(self.next(GENERALIZED_TIME)?, 4)?;
                time(year, rest)
            }
        }
    }
}

fn digits(text: &[u8], n: usize) -> Option<(u64, &[u8])> {
    let (digits, rest) = text.split_at_checked(n)?;
    let number = digits.iter().try_fold(0, |number, byte| {
        byte.is_ascii_digit()
            .then(|| number * 10 + u64::from(byte - b'0'))
    })?;
    Some((number, rest))
}

/// `MMDDhhmmssZ` of a year. Times before 1970 count as 1970.
fn time(year: u64, text: &[u8]) -> Option<SystemTime> {
    let (month, rest) = digits(text, 2)?;
    let (day, rest) = digits(rest, 2)?;
    let (hour, rest) = digits(rest, 2)?;
    let (minute, rest) = digits(rest, 2)?;
    let (second, rest) = digits(rest, 2)?;
    let plausible = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24;
    if rest != b"Z" || !plausible || minute > 59 || second > 60 {
        return None;
    }
    let days = days_since_1970(year, month, day);
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    Some(UNIX_EPOCH + Duration::from_secs(seconds))
}

fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    if year < 1970 {
        return 0;
    }
    // Years are counted from March, so that the leap day is the last day of its year.
    let (year, month) = match month {
        1 | 2 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    let leap_days = year / 4 - year / 100 + year / 400;
    let days = year * 365 + leap_days + (153 * month + 2) / 5 + day - 1;
    // There are 719,468 days from 1 March of the year 0 to 1 January 1970.
    days.saturating_sub(719_468)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

    use super::*;

    fn seconds(year: u64, text: &str) -> Option<u64> {
        let time = time(year, text.as_bytes())?;
        Some(time.duration_since(UNIX_EPOCH).unwrap().as_secs())
    }

    #[test]
    fn times_match_the_calendar() {
        assert_eq!(seconds(1970, "0101000000Z"), Some(0));
        assert_eq!(seconds(2000, "0229120000Z"), Some(951_825_600));
        assert_eq!(seconds(2026, "1122013000Z"), Some(1_795_311_000));
        assert_eq!(seconds(2049, "1231235959Z"), Some(2_524_607_999));
        assert_eq!(seconds(9999, "1231235959Z"), Some(253_402_300_799));
        assert_eq!(seconds(2026, "1322013000Z"), None);
        assert_eq!(seconds(2026, "1122013000"), None);
        assert_eq!(seconds(2026, "11220130+0Z"), None);
    }

    #[test]
    fn truncated_or_changed_certificates_cause_no_panic() {
        let made = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
        let der = made.cert.der();
        let validity = Validity::read(der).unwrap();
        assert!(validity.not_before < validity.not_after);
        assert_eq!(issuer(der).as_deref(), Some("rcgen self signed cert"));
        for at in 0..der.len() {
            let _ = (Validity::read(&der[..at]), issuer(&der[..at]));
            let _ = subject(&der[..at]);
            for change in [0x80, 0xff, 0x7f] {
                let mut changed = der.to_vec();
                changed[at] ^= change;
                let _ = (Validity::read(&changed), issuer(&changed));
                let _ = subject(&changed);
            }
        }
    }

    #[test]
    fn a_subject_is_the_common_name_or_the_first_alternative_name() {
        let named = |common_names: &[&str], others: Vec<SanType>| {
            let mut params = CertificateParams::default();
            params.distinguished_name = DistinguishedName::new();
            for name in common_names {
                params.distinguished_name.push(DnType::CommonName, *name);
            }
            let organization = DnType::OrganizationName;
            params
                .distinguished_name
                .push(organization, "An organization");
            params.subject_alt_names = others;
            let key = KeyPair::generate().unwrap();
            subject(params.self_signed(&key).unwrap().der())
        };
        let uri = || SanType::URI("spiffe://a.example/b".try_into().unwrap());
        let dns = || SanType::DnsName("b.example".try_into().unwrap());
        let mail = || SanType::Rfc822Name("a@a.example".try_into().unwrap());
        let address = || SanType::IpAddress([192, 0, 2, 1].into());
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(named(&["alice"], vec![dns()]), text("alice"));
        assert_eq!(named(&["Zoë B"], vec![]), text("Zoë B"));
        assert_eq!(named(&[], vec![uri(), dns()]), text("spiffe://a.example/b"));
        assert_eq!(named(&[], vec![address(), mail()]), text("a@a.example"));
        assert_eq!(named(&[], vec![address()]), None);
        assert_eq!(named(&[], vec![]), None);
        for odd in ["a\r\nX-Admin: 1", "a\0b", " ", &"a".repeat(257)] {
            assert_eq!(named(&[odd], vec![dns()]), None, "{odd:?}");
        }
        // Another name does not become the one without what is around it.
        for around in [
            " ", "\n", "\r\n", "\t", "\x0b", "\x0c", "\x1f", "\0", "\u{85}", "\u{a0}", "\u{2028}",
            "\u{3000}",
        ] {
            for name in [format!("admin{around}"), format!("{around}admin")] {
                assert_eq!(named(&[&name], vec![dns()]), None, "{name:?}");
            }
        }
    }
}
