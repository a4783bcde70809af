//! The folder for the state of programs (XDG base directory specification).

use std::env;
use std::path::PathBuf;

/// That of Blitz; `None` if the environment names none.
pub(crate) fn folder() -> Option<PathBuf> {
    let absolute = |name: &str| {
        let path = PathBuf::from(env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let state = absolute("XDG_STATE_HOME");
    let state = state.or_else(|| Some(absolute("HOME")?.join(".local/state")));
    state.map(|state| state.join("blitz"))
}
