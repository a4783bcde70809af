//! `server.watch`: files that have changed ask for a reload.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

/// How long files must stay the same, so that none is read while it is being written.
const QUIET_TIME: Duration = Duration::from_millis(900);

/// How much earlier than the clock a file system may say that a file has changed: a tick of the kernel.
const CLOCK_GRAIN: Duration = Duration::from_millis(10);

/// Files, and how they were when they were read.
pub(crate) struct Watch {
    files: Vec<PathBuf>,
    used: Vec<Stamp>,
    /// How they were at the last look, and since when.
    last: (Vec<Stamp>, Instant),
}

/// The stamp of a file, by which its next version is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stamp {
    Missing,
    /// It has changed while it was read.
    Unknown,
    File {
        device: u64,
        inode: u64,
        bytes: u64,
        modified: Option<SystemTime>,
    },
}

impl Watch {
    /// Watches files that were read from `started` on.
    pub(crate) fn new(files: Vec<PathBuf>, started: SystemTime) -> Watch {
        let now = SystemTime::now();
        let since = started - CLOCK_GRAIN;
        let stamps: Vec<Stamp> = files.iter().map(Stamp::of).collect();
        let used = stamps.iter().map(|stamp| match stamp {
            Stamp::File {
                modified: Some(modified),
                ..
            } if (since..=now).contains(modified) => Stamp::Unknown,
            stamp => *stamp,
        });
        Watch {
            used: used.collect(),
            last: (stamps, Instant::now()),
            files,
        }
    }

    /// Whether they differ from those that were read, and have stayed the same for a while. True once for each change.
    pub(crate) fn is_due(&mut self) -> bool {
        let stamps: Vec<Stamp> = self.files.iter().map(Stamp::of).collect();
        if stamps != self.last.0 {
            self.last = (stamps, Instant::now());
            return false;
        }
        let is_due = stamps != self.used && self.last.1.elapsed() >= QUIET_TIME;
        if is_due {
            self.used = stamps;
        }
        is_due
    }
}

impl Stamp {
    fn of(file: &PathBuf) -> Stamp {
        match fs::metadata(file) {
            Err(_) => Stamp::Missing,
            Ok(found) => Stamp::File {
                device: found.dev(),
                inode: found.ino(),
                bytes: found.len(),
                modified: found.modified().ok(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::*;

    fn is_due_soon(watch: &mut Watch) -> bool {
        let end = Instant::now() + 3 * QUIET_TIME;
        while Instant::now() < end {
            if watch.is_due() {
                return true;
            }
            sleep(Duration::from_millis(50));
        }
        false
    }

    #[test]
    fn each_change_is_due_once_after_a_quiet_time() {
        let name = format!("blitz-watch-{}", std::process::id());
        let file = std::env::temp_dir().join(name);
        fs::write(&file, "a").expect("the folder is ours");
        sleep(2 * CLOCK_GRAIN);
        let mut watch = Watch::new(vec![file.clone()], SystemTime::now());
        assert!(!is_due_soon(&mut watch), "nothing has changed");
        fs::write(&file, "ab").expect("the folder is ours");
        assert!(!watch.is_due(), "it may be written on");
        assert!(is_due_soon(&mut watch) && !is_due_soon(&mut watch));
        fs::remove_file(&file).expect("it is ours");
        assert!(is_due_soon(&mut watch), "it has gone");
        // A change while it was read cannot be told from one before it.
        let started = SystemTime::now();
        fs::write(&file, "a").expect("the folder is ours");
        let mut watch = Watch::new(vec![file.clone()], started);
        assert!(is_due_soon(&mut watch) && !is_due_soon(&mut watch));
        fs::remove_file(&file).expect("it is ours");
    }
}
