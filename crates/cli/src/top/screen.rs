//! The terminal as a screen of its own, which leaves the lines before it as they were.

use std::io::{self, Write, stdin, stdout};
use std::panic;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::frame::Size;

/// The other screen, without a cursor and without a wrap at the right side.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

const CLEAR: &str = "\x1b[2J";

/// Terminals that know these show a frame at once.
const BEGIN_FRAME: &str = "\x1b[?2026h\x1b[H";
const END_FRAME: &str = "\x1b[?2026l";

/// The size of a terminal that tells none.
const USUAL_SIZE: Size = Size {
    columns: 80,
    rows: Some(24),
};

const ESCAPE: u8 = 0x1b;

/// The screen, until it is dropped or the program panics.
pub(super) struct Screen {
    /// The settings of the terminal before.
    before: Termios,
    /// The frame that is shown.
    frame: Option<(Size, String)>,
}

impl Screen {
    pub(super) fn open() -> io::Result<Screen> {
        let before = tcgetattr(stdin())?;
        let mut settings = before.clone();
        // Keys come at once and are not shown; Control-C is a key.
        settings.local_modes -=
            LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG | LocalModes::IEXTEN;
        tcsetattr(stdin(), OptionalActions::Flush, &settings)?;
        let screen = Screen {
            before: before.clone(),
            frame: None,
        };
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |panicked| {
            restore(&before);
            previous(panicked);
        }));
        write(ENTER)?;
        Ok(screen)
    }

    pub(super) fn size() -> Size {
        match tcgetwinsize(stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => Size {
                columns: size.ws_col.into(),
                rows: Some(size.ws_row.into()),
            },
            _ => USUAL_SIZE,
        }
    }

    /// Shows these lines, each with its [end](line_end), unless they are shown.
    pub(super) fn show(&mut self, size: Size, lines: &[String]) -> io::Result<()> {
        let frame = Some((size, lines.join("\r\n")));
        if frame != self.frame {
            if self.frame.as_ref().is_none_or(|(known, _)| *known != size) {
                write(CLEAR)?;
            }
            let text = frame.as_ref().map_or("", |(_, text)| text);
            write(&format!("{BEGIN_FRAME}{text}{END_FRAME}"))?;
            self.frame = frame;
        }
        Ok(())
    }

    /// The keys that are pressed within this time, but those of several bytes.
    ///
    /// # Errors
    /// The terminal has gone.
    pub(super) fn keys(&self, timeout: Duration) -> io::Result<Vec<u8>> {
        let stdin = stdin();
        let timeout = Timespec {
            tv_sec: timeout.as_secs().cast_signed(),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let mut ready = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut ready, Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => return Ok(Vec::new()),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut bytes = [0; 64];
        let count = match read(&stdin, &mut bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        let keys = bytes[..count].iter().copied();
        Ok(keys.take_while(|key| *key != ESCAPE).collect())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore(&self.before);
    }
}

/// Erases the rest of the line. Behind a line that is full the cursor is on its last character.
pub(super) fn line_end(is_full: bool) -> &'static str {
    if is_full { "" } else { "\x1b[K" }
}

/// Shows the lines from before again.
fn restore(before: &Termios) {
    // The terminal may have gone.
    let _ = write(LEAVE);
    let _ = tcsetattr(stdin(), OptionalActions::Flush, before);
}

fn write(text: &str) -> io::Result<()> {
    let mut stdout = stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}
