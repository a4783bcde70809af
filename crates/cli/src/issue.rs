//! Making certificates: an authority of one's own and what it issues, for development and tests.

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

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Long enough that whoever has made a browser trust it need not do so again.
const AUTHORITY_DAYS: u32 = 3650;
/// A year: within what browsers and Mozilla's intermediate profile accept at most.
const LEAF_DAYS: u32 = 365;

/// The authority's certificate, for everybody to trust.
pub(crate) const AUTHORITY_FILE: &str = "ca.pem";
/// The authority's key, for nobody to see.
const AUTHORITY_KEY_FILE: &str = "ca.key";

/// An authority that issues certificates.
pub(crate) struct Authority {
    pem: String,
    key_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, both in PEM.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    /// A new one, valid from yesterday, since clocks differ.
    pub(crate) fn new(now: SystemTime) -> Result<Authority, String> {
        let key = KeyPair::generate().map_err(text)?;
        let params = authority_params(&key, now)?;
        let pem = params.self_signed(&key).map_err(text)?.pem();
        Ok(Authority {
            pem,
            key_pem: key.serialize_pem(),
            issuer: Issuer::new(params, key),
        })
    }

    /// The one that is kept in a folder, if there is one that is good.
    pub(crate) fn load(folder: &Path, now: SystemTime) -> Option<Authority> {
        let pem = fs::read_to_string(folder.join(AUTHORITY_FILE)).ok()?;
        let key_pem = fs::read_to_string(folder.join(AUTHORITY_KEY_FILE)).ok()?;
        // Certificate and key belong together, and it will not expire before what it issues does.
        let known = Certificate::from_pem(pem.as_bytes(), key_pem.as_bytes()).ok()?;
        if known.validity_problem(now + DAY * LEAF_DAYS).is_some() {
            return None;
        }
        let key = KeyPair::from_pem(&key_pem).ok()?;
        let params = authority_params(&key, now).ok()?;
        // One of somebody else has another name, and nothing that we sign would lead to it.
        let name = authority_name(&params, &key);
        if !known
            .der()
            .windows(name.len())
            .any(|part| part == name.as_bytes())
        {
            return None;
        }
        Some(Authority {
            pem,
            key_pem,
            issuer: Issuer::new(params, key),
        })
    }

    /// Keeps it in a folder.
    pub(crate) fn save(&self, folder: &Path) -> io::Result<()> {
        write_file(&folder.join(AUTHORITY_KEY_FILE), &self.key_pem, 0o600)?;
        write_file(&folder.join(AUTHORITY_FILE), &self.pem, 0o644)
    }

    /// A certificate for servers with these names and addresses, and its key.
    pub(crate) fn issue(&self, names: &[String], now: SystemTime) -> Result<Pair, String> {
        let mut params = CertificateParams::new(names).map_err(text)?;
        let first = names.first().map_or("", String::as_str);
        params.distinguished_name.remove(DnType::CommonName);
        params.distinguished_name.push(DnType::CommonName, first);
        params.not_before = rcgen::date_time_ymd(1970, 1, 1) + since_epoch(now) - DAY;
        params.not_after = params.not_before + DAY * LEAF_DAYS;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // A client may show it as well: tests of client certificates need one.
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

/// What is the same each time that an authority signs; its name tells it from others.
fn authority_params(key: &KeyPair, now: SystemTime) -> Result<CertificateParams, String> {
    let mut params = CertificateParams::new(Vec::new()).map_err(text)?;
    let name = authority_name(&params, key);
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
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

/// This machine as people and programs on it call it.
pub(crate) fn own_names() -> Vec<String> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".into(), "::1".into()];
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim().to_ascii_lowercase();
    if is_name(&host) && !names.contains(&host) {
        names.push(host);
    }
    names
}

/// Whether a certificate can be for it: a name, perhaps with `*` for its first label, or an
/// address.
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

/// A folder for secrets, which others need not look into.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
}

/// Writes a file as a whole or not at all.
pub(crate) fn write_file(path: &Path, content: &str, mode: u32) -> io::Result<()> {
    let mut unfinished = PathBuf::from(path).into_os_string();
    unfinished.push(format!(".{}", std::process::id()));
    // What a process of the same number left behind has perhaps other rights.
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
    format!("no certificate could be made: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_authority_of_ours_is_used_again() {
        let folder = std::env::temp_dir().join(format!("blitz-authority-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let now = SystemTime::now();
        let ours = Authority::new(now).unwrap();
        ours.save(&folder).unwrap();
        assert!(Authority::load(&folder, now).is_some_and(|kept| kept.pem == ours.pem));
        let key = KeyPair::generate().unwrap();
        let mut params = authority_params(&key, now).unwrap();
        params
            .distinguished_name
            .push(DnType::CommonName, "somebody else's");
        let stranger = Authority {
            pem: params.self_signed(&key).unwrap().pem(),
            key_pem: key.serialize_pem(),
            issuer: Issuer::new(params, key),
        };
        for file in [AUTHORITY_FILE, AUTHORITY_KEY_FILE] {
            fs::remove_file(folder.join(file)).unwrap();
        }
        stranger.save(&folder).unwrap();
        assert!(Authority::load(&folder, now).is_none());
        fs::remove_dir_all(&folder).unwrap();
    }
}
