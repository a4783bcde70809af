//! Texts for people at a terminal.

pub(crate) mod line;
pub(crate) mod number;

use std::env;
use std::io::{self, IsTerminal};

use rustix::termios::tcgetwinsize;

/// Whether standard output shows colours, and the user wants them.
pub(crate) fn has_colour() -> bool {
    let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::stdout().is_terminal() && !is_set("NO_COLOR") && !is_dumb
}

/// The columns of the terminal that standard output is; `None` without one, or if it tells none.
pub(crate) fn columns() -> Option<usize> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0).then_some(size.ws_col.into())
}
