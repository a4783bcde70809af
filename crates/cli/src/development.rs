//! The certificate of those who have none: made on the first start, kept for the next.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use blitz_http::Certificate;

use crate::issue::{self, AUTHORITY_FILE, Authority, Kept, Pair};

/// Certificate and key in one file, so that never one is replaced without the other.
const FILE: &str = "localhost.pem";

/// A certificate for this machine, and the file of the authority that clients can be told to
/// trust; without that the certificate is forgotten with the process.
pub(crate) struct Development {
    pub(crate) certificate: Certificate,
    pub(crate) authority: Option<PathBuf>,
}

/// The one that is kept, or a new one.
pub(crate) fn certificate(now: SystemTime) -> Result<Development, String> {
    let names = issue::own_names();
    let kept = match folder() {
        Some(folder) => keep(&folder, &names, now)
            .map_err(|reason| format!("{} cannot be used: {reason}", folder.display())),
        None => Err("neither XDG_STATE_HOME nor HOME is set".to_owned()),
    };
    let reason = match kept {
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

/// Where programs keep what is to outlive them (XDG base directory specification).
fn folder() -> Option<PathBuf> {
    let absolute = |name: &str| {
        let path = PathBuf::from(env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let state = absolute("XDG_STATE_HOME");
    let state = state.or_else(|| Some(absolute("HOME")?.join(".local/state")));
    state.map(|state| state.join("blitz"))
}

fn keep(folder: &Path, names: &[String], now: SystemTime) -> Result<Development, String> {
    let said = |error: std::io::Error| error.to_string();
    issue::make_folder(folder).map_err(said)?;
    // Two processes that start at once must not mix their files.
    let lock = File::create(folder.join("lock")).map_err(said)?;
    lock.lock().map_err(said)?;
    let file = folder.join(FILE);
    let (authority, is_new) = authority(folder, names, now)?;
    let known = fs::read(&file).ok().filter(|_| !is_new);
    let known = known.and_then(|pem| Certificate::from_pem(&pem, &pem).ok());
    let is_good = |known: &Certificate| {
        known.validity_problem(now).is_none() && names.iter().all(|name| known.covers(name))
    };
    let certificate = match known.filter(is_good) {
        Some(known) => known,
        None => {
            let pair = authority.issue(names, now)?;
            let content = format!("{}{}", pair.certificate, pair.key);
            issue::write_file(&file, &content, 0o600).map_err(said)?;
            tracing::info!("made a development certificate: {}", file.display());
            load(&pair)?
        }
    };
    Ok(Development {
        certificate,
        authority: Some(folder.join(AUTHORITY_FILE)),
    })
}

/// The folder's authority, which can issue for these names, and whether it is another than before.
fn authority(
    folder: &Path,
    names: &[String],
    now: SystemTime,
) -> Result<(Authority, bool), String> {
    let file = folder.join(AUTHORITY_FILE);
    let (authority, is_new) = match Authority::load(folder, now) {
        Kept::Good(authority) if authority.permits(names) => return Ok((*authority, false)),
        Kept::Good(authority) => {
            tracing::info!(
                "{}: the certificate now permits the names of this machine; clients have to trust it",
                file.display()
            );
            (authority.extend(names, now)?, false)
        }
        Kept::Unconstrained => {
            tracing::info!(
                "{}: replaced, because it could issue for any name; clients have to trust the new one",
                file.display()
            );
            (Authority::new(names, now)?, true)
        }
        Kept::Nothing => (Authority::new(names, now)?, true),
    };
    authority.save(folder).map_err(|error| error.to_string())?;
    Ok((authority, is_new))
}

fn load(pair: &Pair) -> Result<Certificate, String> {
    Certificate::from_pem(pair.certificate.as_bytes(), pair.key.as_bytes())
        .map_err(|error| error.to_string())
}
