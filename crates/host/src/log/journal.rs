//! Lines to systemd's journal, one entry each: [its native protocol](https://systemd.io/JOURNAL_NATIVE_PROTOCOL/).

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use super::sink::{Problem, Sink, first_line};
use super::syslog::open_unix;

/// `info` of syslog(3), and the name that `journalctl -t` selects.
const FIELDS: &[u8] = b"PRIORITY=6\nSYSLOG_IDENTIFIER=blitz\nMESSAGE=";

/// The daemon of the journal.
#[derive(Debug)]
pub(super) struct Journal {
    /// Entries have it as address, so that a new daemon gets them as well.
    path: PathBuf,
    socket: UnixDatagram,
    entry: Vec<u8>,
}

impl Journal {
    /// # Errors
    /// The socket is missing.
    pub(super) fn open(path: &Path) -> io::Result<Journal> {
        let named = |error: io::Error| {
            let path = path.display();
            io::Error::new(error.kind(), format!("the journal at {path}: {error}"))
        };
        Ok(Journal {
            path: path.to_owned(),
            socket: open_unix(path).map_err(named)?,
            entry: Vec::new(),
        })
    }
}

impl Sink for Journal {
    /// A value without a line break follows its name and `=`, and ends with one.
    fn write(&mut self, lines: &[u8]) -> Result<usize, Problem> {
        let (line, length) = first_line(lines);
        self.entry.clear();
        self.entry.extend_from_slice(FIELDS);
        self.entry.extend_from_slice(line);
        self.entry.push(b'\n');
        let sent = self.socket.send_to(&self.entry, &self.path);
        sent.map(|_| length).map_err(Problem::of_message)
    }
}
