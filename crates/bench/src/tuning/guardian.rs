//! The process that restores the old values when the benchmark ends, however it ends.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use blitz_http::Signals;
use rustix::process::setsid;
use serde::{Deserialize, Serialize};

use super::setting::Setting;

/// What the guardian says once it can be relied on.
const READY: &str = "ready";

/// A file and the value that it had.
#[derive(Debug, Serialize, Deserialize)]
struct OldValue {
    file: PathBuf,
    value: String,
}

/// The guardian, seen from the benchmark.
#[derive(Debug)]
pub(super) struct Guardian {
    process: Child,
    /// Its end is the order to restore. The kernel closes it if this process is killed; no child process inherits it.
    order: Option<ChildStdin>,
    /// One line for each value that was not restored.
    answers: BufReader<ChildStdout>,
}

impl Guardian {
    /// Starts it, and returns when it knows the old values.
    pub(super) fn start(blitz: &Path, settings: &[&Setting]) -> Result<Guardian, String> {
        let failed = |error: io::Error| format!("the process that restores settings: {error}");
        let mut process = Command::new(blitz)
            .args(["bench", "tuning", "--guard"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let missing = || failed(io::ErrorKind::BrokenPipe.into());
        let order = process.stdin.take().ok_or_else(missing)?;
        let answers = process.stdout.take().ok_or_else(missing)?;
        let mut guardian = Guardian {
            process,
            order: Some(order),
            answers: BufReader::new(answers),
        };
        guardian.tell(settings).map_err(failed)?;
        Ok(guardian)
    }

    fn tell(&mut self, settings: &[&Setting]) -> io::Result<()> {
        let values = settings.iter().map(|setting| OldValue {
            file: setting.file.clone(),
            value: setting.value().to_owned(),
        });
        let values: Vec<OldValue> = values.collect();
        let line = serde_json::to_string(&values)? + "\n";
        if let Some(order) = &mut self.order {
            order.write_all(line.as_bytes())?;
        }
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        match answer.trim() {
            READY => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Restores the values; the problems.
    pub(super) fn restore(mut self) -> Vec<String> {
        drop(self.order.take());
        let mut text = String::new();
        let read = self.answers.read_to_string(&mut text);
        let ended = self.process.wait();
        let mut problems: Vec<String> = text.lines().map(str::to_owned).collect();
        match (read, ended) {
            (Ok(_), Ok(status)) if status.success() || !problems.is_empty() => {}
            (_, Ok(status)) => {
                problems.push(format!("the process that restores settings: {status}"));
            }
            (_, Err(error)) => {
                problems.push(format!("the process that restores settings: {error}"));
            }
        }
        problems
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        drop(self.order.take());
        // It ends by itself. Without this it would remain a zombie until the end of this process.
        let _ = self.process.wait();
    }
}

/// Is the guardian: reads the old values, waits for the end of the input, and restores them. Whether all were.
pub(super) fn guard() -> io::Result<bool> {
    // Signals of the terminal go to the process group of the benchmark, and this process is in another session.
    // It fails for the leader of a process group, which shells make of the first process of a line.
    let _ = setsid();
    // Handled and never read, they do not end this process.
    let _signals = Signals::install()?;
    let mut input = BufReader::new(io::stdin());
    let mut line = String::new();
    if input.read_line(&mut line)? == 0 {
        return Ok(true);
    }
    let values: Vec<OldValue> = serde_json::from_str(&line)?;
    let mut out = io::stdout();
    writeln!(out, "{READY}")?;
    out.flush()?;
    // An error means that nobody writes any more.
    let _ = input.read_to_end(&mut Vec::new());
    let mut are_all_restored = true;
    for OldValue { file, value } in &values {
        if let Err(error) = restore(file, value) {
            are_all_restored = false;
            // After SIGKILL nobody reads this.
            let _ = writeln!(out, "{} ({value}): {error}", file.display());
        }
    }
    Ok(are_all_restored)
}

/// Writes the old value, unless the file has it: nothing was changed, perhaps because it cannot be written.
fn restore(file: &Path, value: &str) -> io::Result<()> {
    let has_it = fs::read_to_string(file).is_ok_and(|text| text.trim() == value);
    match has_it {
        true => Ok(()),
        false => fs::write(file, value),
    }
}
