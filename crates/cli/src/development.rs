//! The development certificate: made at the first start without certificates, and stored for later ones.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use blitz_http::Certificate;

use crate::issue::{self, AUTHORITY_FILE, Authority, Pair, StoredAuthority};

/// The certificate and its key are in one file, so that they are always replaced together.
const FILE: &str = "localhost.pem";

/// A certificate for this machine, and the file of its authority, for clients to trust; `None` if the
/// certificate is not stored.
pub(crate) struct Development {
    pub(crate) certificate: Certificate,
    pub(crate) authority: Option<PathBuf>,
}

/// The stored certificate, or a new one.
pub(crate) fn certificate(now: SystemTime) -> Result<Development, String> {
    let names = issue::local_names();
    let stored = match folder() {
        Some(folder) => load_or_issue(&folder, &names, now)
            .map_err(|reason| format!("{} cannot be used: {reason}", folder.display())),
        None => Err("neither XDG_STATE_HOME nor HOME is set".to_owned()),
    };
    let reason = match stored {
        Ok(development) => return Ok(development),
        Err(reason) => reason,
    };
    tracing::warn!("the development certificate is kept in memory only: {reason}");
    let pair = Authority::new(&names, now)?.issue(&names, now)?;
    Ok(Development {
        certificate: load(&pair)?,
        authority: None,
    })
}

/// The folder for the state of programs (XDG base directory specification).
fn folder() -> Option<PathBuf> {
    let absolute = |name: &str| {
        let path = PathBuf::from(env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let state = absolute("XDG_STATE_HOME");
    let state = state.or_else(|| Some(absolute("HOME")?.join(".local/state")));
    state.map(|state| state.join("blitz"))
}

/// The certificate in the folder if it is usable, else a new one of the folder's authority.
fn load_or_issue(folder: &Path, names: &[String], now: SystemTime) -> Result<Development, String> {
    let text = |error: std::io::Error| error.to_string();
    issue::make_folder(folder).map_err(text)?;
    // Two processes that start at the same time must not mix their files.
    let lock = File::create(folder.join("lock")).map_err(text)?;
    lock.lock().map_err(text)?;
    let file = folder.join(FILE);
    let (authority, is_new) = authority(folder, names, now)?;
    let stored = fs::read(&file).ok().filter(|_| !is_new);
    let stored = stored.and_then(|pem| Certificate::from_pem(&pem, &pem).ok());
    let is_usable = |stored: &Certificate| {
        stored.validity_problem(now).is_none() && names.iter().all(|name| stored.covers(name))
    };
    let certificate = match stored.filter(is_usable) {
        Some(stored) => stored,
        None => {
            let pair = authority.issue(names, now)?;
            let content = format!("{}{}", pair.certificate, pair.key);
            issue::write_file(&file, &content, 0o600).map_err(text)?;
            tracing::info!("made a development certificate: {}", file.display());
            load(&pair)?
        }
    };
    Ok(Development {
        certificate,
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
