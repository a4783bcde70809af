//! `blitz version`: the version, the git revision and the I/O driver of this machine.

use std::io::{self, Write};
use std::process::ExitCode;

use blitz_http::probe;

/// The git revision that the binary was built from.
pub(crate) const REVISION: &str = env!("BLITZ_REVISION");

/// The text that `--version` prints after the name.
pub(crate) const LONG: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("BLITZ_REVISION"), ")");

/// Prints one line for people and for bug reports.
pub(crate) fn run() -> ExitCode {
    let text = format!("blitz {LONG}, {}\n", driver());
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// The driver that `--io auto` chooses on this machine.
fn driver() -> String {
    match probe::io_uring() {
        Ok(_) => "I/O by io_uring".to_owned(),
        Err(reason) => format!("I/O by epoll (io_uring: {reason})"),
    }
}
