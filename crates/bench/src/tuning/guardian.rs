//! The process that restores the old values when the benchmark ends, however it ends.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use blitz_http::Signals;
use rustix::process::setsid;
use serde::{Deserialize, Serialize};

use super::setting::Setting;

/// The guardian's message once it can be relied on.
const READY: &str = "ready";

/// A file, the value that it had, and that of the benchmark.
#[derive(Debug, Serialize, Deserialize)]
struct OldValue {
    file: PathBuf,
    value: String,
    changed_to: String,
}

/// The guardian, seen from the benchmark.
#[derive(Debug)]
pub(super) struct Guardian {
    process: Child,
    /// Its end is the order to restore. The kernel closes it if this process is killed; no child process inherits it.
    order: Option<ChildStdin>,
    /// One line for each value that was not restored.
    answers: BufReader<ChildStdout>,
    /// The values of the guardian, in case that it is killed.
    values: Vec<OldValue>,
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
        let values = settings.iter().map(|setting| OldValue {
            file: setting.file.clone(),
            value: setting.value().to_owned(),
            changed_to: setting.wanted.clone(),
        });
        let mut guardian = Guardian {
            process,
            order: Some(order),
            answers: BufReader::new(answers),
            values: values.collect(),
        };
        guardian.tell().map_err(failed)?;
        Ok(guardian)
    }

    fn tell(&mut self) -> io::Result<()> {
        let line = serde_json::to_string(&self.values)? + "\n";
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
        let problems: Vec<String> = text.lines().map(str::to_owned).collect();
        let has_succeeded = ended.is_ok_and(|status| status.success());
        match read.is_ok() && (has_succeeded || !problems.is_empty()) {
            true => problems,
            // It was killed.
            false => restore_all(&self.values),
        }
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
    let problems = restore_all(&values);
    for problem in &problems {
        // After SIGKILL nobody reads this.
        let _ = writeln!(out, "{problem}");
    }
    Ok(problems.is_empty())
}

/// The problems, a line for each value that was not restored.
fn restore_all(values: &[OldValue]) -> Vec<String> {
    let problem = |old: &OldValue| {
        let problem = old.restore().err()?;
        Some(format!("{} ({}): {problem}", old.file.display(), old.value))
    };
    values.iter().filter_map(problem).collect()
}

impl OldValue {
    /// Writes the old value, unless the file has it: nothing was changed, perhaps because it cannot be written.
    fn restore(&self) -> Result<(), String> {
        let found = fs::read_to_string(&self.file);
        match found.as_deref().map(str::trim) {
            Ok(found) if found == self.value => Ok(()),
            Ok(found) if found != self.changed_to => Err(format!(
                "another program has set it to {found}, and it stays so"
            )),
            _ => fs::write(&self.file, &self.value).map_err(|error| error.to_string()),
        }
    }
}
