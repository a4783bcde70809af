//! Standard output.

use std::io::{self, Write};

/// Prints a text. A reader that has gone, such as `head`, is no failure.
pub(crate) fn print(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
}
