//! The control socket: a unix socket that only the user of the process can connect to.

use std::fmt::Display;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use blitz_config::Socket;
use blitz_host::serving::{self, NewListeners};

use super::{OFF, Places};
use crate::control_client::usual_paths;

/// For the user of the process, and nobody else.
const FOLDER_MODE: u32 = 0o700;

/// Opens the socket that was chosen, or the first of the usual ones that can be opened. `None` if there is to be none,
/// or for the usual ones if none can be opened, which is a warning.
///
/// # Errors
/// The problem and the remedy.
pub(super) fn reserve(places: &Places<'_>) -> Result<Option<NewListeners>, String> {
    match places.socket.map(|chosen| &chosen.value) {
        Some(Socket::Off) => Ok(None),
        Some(Socket::Path(path)) => reserve_at(Path::new(path)).map(Some),
        None if !places.has_usual_socket => Ok(None),
        None => {
            let reserved = reserve_usual();
            if let Err(problem) = &reserved {
                let problem = problem.replace("\n  ", "; ");
                tracing::warn!("`blitz reload` cannot reach this process: {problem}");
            }
            Ok(reserved.ok())
        }
    }
}

fn reserve_usual() -> Result<NewListeners, String> {
    let mut first_problem = None;
    for path in usual_paths() {
        if UnixStream::connect(&path).is_ok() {
            let path = path.display();
            return Err(format!(
                "the control socket {path} belongs to another process\n  choose another one with --control PATH"
            ));
        }
        let made = DirBuilder::new()
            .mode(FOLDER_MODE)
            .recursive(true)
            .create(path.parent().unwrap_or(Path::new("/")));
        let made = made.map_err(|error| cannot_open(&path, &error));
        match made.and_then(|()| reserve_at(&path)) {
            Ok(reserved) => return Ok(reserved),
            Err(problem) => first_problem.get_or_insert(problem),
        };
    }
    Err(first_problem.unwrap_or_default())
}

fn reserve_at(path: &Path) -> Result<NewListeners, String> {
    let reserved = serving::try_reserve_private(path.to_owned());
    reserved.map_err(|error| cannot_open(path, &error))
}

fn cannot_open(path: &Path, error: &dyn Display) -> String {
    format!(
        "the control socket {} cannot be opened: {error}\n  \
         choose another one with --control PATH, or none with --control {OFF}",
        path.display()
    )
}
