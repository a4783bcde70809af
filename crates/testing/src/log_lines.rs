//! The log lines of a test process.

use std::io;
use std::sync::{Mutex, Once};

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Lines;

impl io::Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line).into_owned();
        LINES.lock().expect("no test panics here").push(text);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Keeps the lines of these modules from DEBUG on, of all tests of this process. Further calls have no effect.
pub fn keep_log_lines(modules: &[&str]) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let level = tracing::Level::DEBUG;
        let filter: Targets = modules.iter().map(|module| (*module, level)).collect();
        let lines = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_writer(|| Lines);
        tracing_subscriber::registry()
            .with(filter)
            .with(lines)
            .init();
    });
}

/// The lines so far.
pub fn log_lines() -> Vec<String> {
    LINES.lock().expect("no test panics here").clone()
}
