//! The development certificates: made at the first start without certificates, and stored for later ones.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use blitz_http::Certificate;

use crate::issue::{self, AUTHORITY_FILE, Authority, Pair, StoredAuthority};
use crate::state_folder;

/// The certificate for names. It and its key are in one file, so that they are always replaced together.
const NAMES_FILE: &str = "localhost.pem";
/// The certificate for addresses. BoringSSL cannot check constraints of addresses and rejects every
/// certificate with an address that they apply to, so the certificate for names has none.
const ADDRESSES_FILE: &str = "addresses.pem";

/// Certificates for this machine, and the file of their authority, for clients to trust; `None` if the
/// certificates are not stored.
pub(crate) struct Development {
    pub(crate) names: Certificate,
    /// For clients without a server name: SNI has no form for addresses (RFC 6066, section 3).
    pub(crate) addresses: Certificate,
    pub(crate) authority: Option<PathBuf>,
}

/// The stored certificates, or new ones.
pub(crate) fn certificates(now: SystemTime) -> Result<Development, String> {
    let (names, addresses) = issue::local_names();
    let all = [names.clone(), addresses.clone()].concat();
    let stored = match state_folder::folder() {
        Some(folder) => load_or_issue(&folder, &names, &addresses, now)
            .map_err(|reason| format!("{} cannot be used: {reason}", folder.display())),
        None => Err("neither XDG_STATE_HOME nor HOME is set".to_owned()),
    };
    let reason = match stored {
        Ok(development) => return Ok(development),
        Err(reason) => reason,
    };
    tracing::warn!("the development certificates are kept in memory only: {reason}");
    let authority = Authority::new(&all, now)?;
    Ok(Development {
        names: load(&authority.issue(&names, now)?)?,
        addresses: load(&authority.issue(&addresses, now)?)?,
        authority: None,
    })
}

/// The certificates in the folder if they are usable, else new ones of the folder's authority.
fn load_or_issue(
    folder: &Path,
    names: &[String],
    addresses: &[String],
    now: SystemTime,
) -> Result<Development, String> {
    let text = |error: std::io::Error| error.to_string();
    issue::make_folder(folder).map_err(text)?;
    // Two processes that start at the same time must not mix their files.
    let lock = File::create(folder.join("lock")).map_err(text)?;
    lock.lock().map_err(text)?;
    let (authority, is_new) = authority(folder, &[names, addresses].concat(), now)?;
    let certificate = |file: &str, covered: &[String], others: &[String]| {
        let file = folder.join(file);
        let stored = fs::read(&file).ok().filter(|_| !is_new);
        let stored = stored.and_then(|pem| Certificate::from_pem(&pem, &pem).ok());
        // The certificate of an earlier version has both names and addresses.
        let is_usable = |stored: &Certificate| {
            stored.validity_problem(now).is_none()
                && covered.iter().all(|name| stored.covers(name))
                && !others.iter().any(|name| stored.covers(name))
        };
        if let Some(stored) = stored.filter(is_usable) {
            return Ok(stored);
        }
        let pair = authority.issue(covered, now)?;
        let content = format!("{}{}", pair.certificate, pair.key);
        issue::write_file(&file, &content, 0o600).map_err(text)?;
        tracing::info!("made a development certificate: {}", file.display());
        load(&pair)
    };
    Ok(Development {
        names: certificate(NAMES_FILE, names, addresses)?,
        addresses: certificate(ADDRESSES_FILE, addresses, names)?,
        authority: Some(folder.join(AUTHORITY_FILE)),
    })
}

/// The folder's authority, which can issue for these names, and whether it is a new one.
fn authority(
    folder: &Path,
    names: &[String],
    now: SystemTime,
) -> Result<(Authority, bool), String> {
    let file = folder.join(AUTHORITY_FILE);
    let (authority, is_new) = match Authority::load(folder, now) {
        StoredAuthority::Valid(authority) if authority.permits(names) => {
            return Ok((*authority, false));
        }
        StoredAuthority::Valid(authority) => {
            tracing::info!(
                "{}: the certificate now permits the names of this machine; clients have to trust it",
                file.display()
            );
            (authority.extend(names, now)?, false)
        }
        StoredAuthority::Unconstrained => {
            tracing::info!(
                "{}: replaced, because it could issue for any name; clients have to trust the new one",
                file.display()
            );
            (Authority::new(names, now)?, true)
        }
        StoredAuthority::Missing => (Authority::new(names, now)?, true),
    };
    authority.save(folder).map_err(|error| error.to_string())?;
    Ok((authority, is_new))
}

fn load(pair: &Pair) -> Result<Certificate, String> {
    Certificate::from_pem(pair.certificate.as_bytes(), pair.key.as_bytes())
        .map_err(|error| error.to_string())
}
