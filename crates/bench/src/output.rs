//! Text for the standard output and the standard error.

use std::io::{self, ErrorKind, Write};

use crate::report::terminal_text;

/// Writes to the standard output. A closed pipe is no error: `head`, for example, reads no more than it needs.
///
/// # Errors
/// The reason why the text is lost, for example a full disk.
pub(crate) fn print(text: &str) -> Result<(), String> {
    write(&mut io::stdout().lock(), text).map_err(|error| format!("the standard output: {error}"))
}

/// Flushes as well: an error at the end of the process would be lost.
fn write(out: &mut impl Write, text: &str) -> io::Result<()> {
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Writes a message to the standard error, without the control characters that files and servers may put into it.
pub(crate) fn message(text: &str) {
    // Nobody can be told about an error.
    let _ = io::stderr().write_all(filtered(text).as_bytes());
}

/// Line by line, with the end of the last one.
fn filtered(text: &str) -> String {
    text.lines()
        .map(|line| terminal_text(line) + "\n")
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails with an error of this kind.
    struct Failing(ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_pipe_is_no_error_and_a_full_disk_is_one() {
        assert!(write(&mut Failing(ErrorKind::BrokenPipe), "text").is_ok());
        assert!(write(&mut Failing(ErrorKind::StorageFull), "text").is_err());
    }

    #[test]
    fn messages_keep_their_lines_and_no_control_characters() {
        assert_eq!(
            filtered("a\x1b[31m\n\u{202e}b"),
            "a\u{fffd}[31m\n\u{fffd}b\n"
        );
    }
}
