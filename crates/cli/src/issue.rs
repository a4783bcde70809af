//! Issues certificates: a local authority and its certificates, for development and tests.

use std::fmt::Display;
use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use blitz_http::Certificate;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::constraints;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Long, because people have to add the authority to their browsers by hand.
const AUTHORITY_DAYS: u32 = 3650;
/// A year: less than the maximum of browsers and of Mozilla's intermediate profile.
const LEAF_DAYS: u32 = 365;

/// The authority's certificate, for clients to trust.
pub(crate) const AUTHORITY_FILE: &str = "ca.pem";
/// The authority's key, which is secret.
const AUTHORITY_KEY_FILE: &str = "ca.key";

/// An authority that issues certificates for certain names.
pub(crate) struct Authority {
    pem: String,
    key_pem: String,
    permitted: Vec<String>,
    issuer: Issuer<'static, KeyPair>,
}

/// The authority in a folder.
pub(crate) enum StoredAuthority {
    Valid(Box<Authority>),
    /// An authority of an earlier version of Blitz, which can issue for every name.
    Unconstrained,
    /// None that Blitz has made and that is valid for long enough.
    Missing,
}

/// A certificate and its key, both in PEM.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    /// A new authority for these names, valid from yesterday, because clocks differ.
    pub(crate) fn new(names: &[String], now: SystemTime) -> Result<Authority, String> {
        Authority::of(KeyPair::generate().map_err(text)?, names.to_vec(), now)
    }

    fn of(key: KeyPair, permitted: Vec<String>, now: SystemTime) -> Result<Authority, String> {
        let params = authority_params(&key, &permitted, now)?;
        let pem = params.self_signed(&key).map_err(text)?.pem();
        Ok(Authority {
            pem,
            key_pem: key.serialize_pem(),
            permitted,
            issuer: Issuer::new(params, key),
        })
    }

    /// Whether it can issue for all these names.
    pub(crate) fn permits(&self, names: &[String]) -> bool {
        names
            .iter()
            .all(|name| constraints::permits(&self.permitted, name))
    }

    /// The same authority with a certificate that also permits these names. Certificates that it has
    /// issued stay valid; clients have to trust the new certificate for the new names.
    pub(crate) fn extend(self, names: &[String], now: SystemTime) -> Result<Authority, String> {
        let key = KeyPair::from_pem(&self.key_pem).map_err(text)?;
        let mut permitted = self.permitted;
        let added = names
            .iter()
            .filter(|name| !constraints::permits(&permitted, name));
        let added: Vec<_> = added.cloned().collect();
        permitted.extend(added);
        Authority::of(key, permitted, now)
    }

    /// Loads the authority of a folder.
    pub(crate) fn load(folder: &Path, now: SystemTime) -> StoredAuthority {
        match Authority::find(folder, now) {
            None => StoredAuthority::Missing,
            Some(authority) if authority.permitted.is_empty() => StoredAuthority::Unconstrained,
            Some(authority) => StoredAuthority::Valid(Box::new(authority)),
        }
    }

    fn find(folder: &Path, now: SystemTime) -> Option<Authority> {
        let pem = fs::read_to_string(folder.join(AUTHORITY_FILE)).ok()?;
        let key_pem = fs::read_to_string(folder.join(AUTHORITY_KEY_FILE)).ok()?;
        // The key must match, and the authority must not expire before the certificates that it issues.
        let stored = Certificate::from_pem(pem.as_bytes(), key_pem.as_bytes()).ok()?;
        if stored.validity_problem(now + DAY * LEAF_DAYS).is_some() {
            return None;
        }
        let key = KeyPair::from_pem(&key_pem).ok()?;
        let permitted = constraints::permitted(stored.der()).unwrap_or_default();
        let params = authority_params(&key, &permitted, now).ok()?;
        // An authority of another program has another subject, which our certificates would not refer to.
        let name = authority_name(&params, &key);
        if !stored
            .der()
            .windows(name.len())
            .any(|part| part == name.as_bytes())
        {
            return None;
        }
        Some(Authority {
            pem,
            key_pem,
            permitted,
            issuer: Issuer::new(params, key),
        })
    }

    /// Stores the authority in a folder.
    pub(crate) fn save(&self, folder: &Path) -> io::Result<()> {
        write_file(&folder.join(AUTHORITY_KEY_FILE), &self.key_pem, 0o600)?;
        write_file(&folder.join(AUTHORITY_FILE), &self.pem, 0o644)
    }

    /// A certificate for servers with these names and addresses, and its key.
    pub(crate) fn issue(&self, names: &[String], now: SystemTime) -> Result<Pair, String> {
        let mut params = CertificateParams::new(names).map_err(text)?;
        // A common name is a domain name for constraints, so it must not be an address.
        let is_domain = |name: &&String| name.parse::<IpAddr>().is_err();
        let common = names.iter().find(is_domain);
        let common = common.map_or("Blitz development certificate", String::as_str);
        params.distinguished_name.remove(DnType::CommonName);
        params.distinguished_name.push(DnType::CommonName, common);
        params.not_before = rcgen::date_time_ymd(1970, 1, 1) + since_epoch(now) - DAY;
        params.not_after = params.not_before + DAY * LEAF_DAYS;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // Clients may use it as well: tests of client certificates need one.
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(text)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(text)?;
        Ok(Pair {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

/// The parameters of an authority's certificate. Its subject is derived from the key, so that it differs
/// from those of other authorities.
fn authority_params(
    key: &KeyPair,
    permitted: &[String],
    now: SystemTime,
) -> Result<CertificateParams, String> {
    let mut params = CertificateParams::new(Vec::new()).map_err(text)?;
    let name = authority_name(&params, key);
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.name_constraints = Some(constraints::constrain(permitted));
    params.not_before = rcgen::date_time_ymd(1970, 1, 1) + since_epoch(now) - DAY;
    params.not_after = params.not_before + DAY * AUTHORITY_DAYS;
    Ok(params)
}

fn authority_name(params: &CertificateParams, key: &KeyPair) -> String {
    let id = params.key_identifier(key);
    let id: String = id
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("Blitz development CA {id}")
}

/// The names of this machine, and its addresses, for local clients.
pub(crate) fn local_names() -> (Vec<String>, Vec<String>) {
    let mut names = vec!["localhost".to_owned()];
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim().to_ascii_lowercase();
    let is_domain = is_name(&host) && host.parse::<IpAddr>().is_err();
    if is_domain && !names.contains(&host) {
        names.push(host);
    }
    (names, vec!["127.0.0.1".to_owned(), "::1".to_owned()])
}

/// Whether a certificate can contain it: a name, whose first label may be `*`, or an address.
pub(crate) fn is_name(name: &str) -> bool {
    let plain = name.strip_prefix("*.").unwrap_or(name);
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    name.parse::<IpAddr>().is_ok() || plain.len() <= 253 && plain.split('.').all(label)
}

/// Makes a folder that only its owner can read.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
}

/// Writes a file atomically.
pub(crate) fn write_file(path: &Path, content: &str, mode: u32) -> io::Result<()> {
    let mut unfinished = PathBuf::from(path).into_os_string();
    unfinished.push(format!(".{}", std::process::id()));
    // A file that an earlier process with the same id has left may have other permissions.
    let _ = fs::remove_file(&unfinished);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&unfinished)?;
    file.write_all(content.as_bytes())?;
    fs::rename(&unfinished, path)
}

fn since_epoch(now: SystemTime) -> Duration {
    now.duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn text(error: impl Display) -> String {
    format!("cannot make a certificate: {error}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

    use super::*;

    #[test]
    fn only_an_authority_of_blitz_is_reused() {
        let folder = std::env::temp_dir().join(format!("blitz-authority-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let now = SystemTime::now();
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let ours = Authority::new(&names, now).unwrap();
        ours.save(&folder).unwrap();
        let is_ours = |stored: &Authority| stored.pem == ours.pem && stored.permitted == names;
        assert!(
            matches!(Authority::load(&folder, now), StoredAuthority::Valid(stored) if is_ours(&stored))
        );
        let key = KeyPair::generate().unwrap();
        let mut params = authority_params(&key, &names, now).unwrap();
        params
            .distinguished_name
            .push(DnType::CommonName, "another program's");
        let other = Authority {
            pem: params.self_signed(&key).unwrap().pem(),
            key_pem: key.serialize_pem(),
            permitted: names.to_vec(),
            issuer: Issuer::new(params, key),
        };
        for file in [AUTHORITY_FILE, AUTHORITY_KEY_FILE] {
            fs::remove_file(folder.join(file)).unwrap();
        }
        other.save(&folder).unwrap();
        assert!(matches!(
            Authority::load(&folder, now),
            StoredAuthority::Missing
        ));
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Whether clients that trust `authority` accept a certificate for `issued` when they connect to
    /// `name`. The certificate is issued even if the authority does not permit it, as with a stolen key.
    fn is_accepted(authority: &Authority, issued: &[&str], name: &str, now: SystemTime) -> bool {
        let issued: Vec<_> = issued.iter().map(|&name| name.to_owned()).collect();
        let pair = authority.issue(&issued, now).unwrap();
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap();
        roots.add(root).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let leaf = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let verified =
            verifier
                .build()
                .unwrap()
                .verify_server_cert(&leaf, &[], &name, &[], UnixTime::now());
        verified.is_ok()
    }

    #[test]
    fn a_stolen_authority_can_impersonate_only_its_permitted_names() {
        let now = SystemTime::now();
        let accepts = |authority: &Authority, name: &str| {
            let asked = name.replace('*', "www");
            is_accepted(authority, &[name], &asked, now)
        };
        for (names, good, bad) in [
            (
                &["localhost", "127.0.0.1", "::1", "my-host"][..],
                &["localhost", "127.0.0.1", "::1", "my-host"][..],
                &[
                    "example.com",
                    "127.0.0.2",
                    "10.0.0.1",
                    "::2",
                    "localhost.example",
                ][..],
            ),
            (
                &["a.example", "*.b.example"],
                &["a.example", "b.example", "*.b.example"],
                &["example", "c.example", "*.example", "127.0.0.1", "::1"],
            ),
            (
                &["127.0.0.1"],
                &["127.0.0.1"],
                &["127.0.0.2", "::1", "localhost", "a.example"],
            ),
        ] {
            let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
            let authority = Authority::new(&names, now).unwrap();
            for name in good {
                assert!(
                    authority.permits(&[(*name).to_owned()]),
                    "{names:?}: {name}"
                );
                assert!(accepts(&authority, name), "{names:?}: {name}");
            }
            for name in bad {
                assert!(
                    !authority.permits(&[(*name).to_owned()]),
                    "{names:?}: {name}"
                );
                assert!(!accepts(&authority, name), "{names:?}: {name}");
                // Not even together with a permitted name.
                let both = [good[0], name];
                assert!(!is_accepted(&authority, &both, good[0], now), "{both:?}");
            }
        }
    }

    #[test]
    fn an_authority_that_is_extended_keeps_its_key_and_its_names() {
        let now = SystemTime::now();
        let first = ["a.example".to_owned()];
        let authority = Authority::new(&first, now).unwrap();
        let old = authority.pem.clone();
        let key = authority.key_pem.clone();
        let more = ["b.example".to_owned(), "127.0.0.1".to_owned()];
        let extended = authority.extend(&more, now).unwrap();
        assert!(extended.permits(&first) && extended.permits(&more));
        assert_eq!(extended.key_pem, key);
        assert_ne!(extended.pem, old);
        for name in ["a.example", "b.example", "127.0.0.1"] {
            assert!(is_accepted(&extended, &[name], name, now), "{name}");
        }
        assert!(!is_accepted(&extended, &["c.example"], "c.example", now));
    }

    #[test]
    fn an_authority_without_constraints_is_detected() {
        let folder = std::env::temp_dir().join(format!("blitz-free-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let now = SystemTime::now();
        let key = KeyPair::generate().unwrap();
        let mut params = authority_params(&key, &[], now).unwrap();
        params.name_constraints = None;
        let free = Authority {
            pem: params.self_signed(&key).unwrap().pem(),
            key_pem: key.serialize_pem(),
            permitted: Vec::new(),
            issuer: Issuer::new(params, key),
        };
        free.save(&folder).unwrap();
        assert!(matches!(
            Authority::load(&folder, now),
            StoredAuthority::Unconstrained
        ));
        fs::remove_dir_all(&folder).unwrap();
    }
}
