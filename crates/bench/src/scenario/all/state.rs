//! The file that records what has ended.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The longest time of a step: a year.
const SECONDS_MAX: f64 = 365.0 * 24.0 * 60.0 * 60.0;

/// The identity of a run. Results of another revision, binary or plan are not continued.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunKey {
    pub(super) revision: String,
    /// Length and time of the binary: a revision may have uncommitted changes.
    pub(super) binary: String,
    /// The command line of each step.
    pub(super) steps: Vec<String>,
}

/// How a step has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum StepOutcome {
    Met,
    Missed,
    Void,
    Failed,
}

/// A step that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct EndedStep {
    pub(super) name: String,
    pub(super) outcome: StepOutcome,
    pub(super) seconds: f64,
    /// The files of its results, or that of its output.
    pub(super) reports: Vec<PathBuf>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct SavedRun {
    key: RunKey,
    ended: Vec<EndedStep>,
    /// The run is over; the next one begins anew.
    is_closed: bool,
    /// How long each step took in the last run, for estimates.
    seconds: BTreeMap<String, f64>,
}

/// The state of a run, and its file.
#[derive(Debug)]
pub(super) struct RunState {
    file: PathBuf,
    content: SavedRun,
}

impl RunState {
    /// That of the file, if it belongs to the same key and has not been closed; otherwise a new one. `names` are those
    /// of the steps.
    ///
    /// # Errors
    /// The file cannot be read or written, or is none that this program has written: results of hours are not
    /// forgotten without a word.
    pub(super) fn open(
        file: &Path,
        (key, names): (RunKey, &[&str]),
        restart: bool,
    ) -> Result<RunState, String> {
        let mut content = match restart {
            true => read(file).unwrap_or_default(),
            false => read(file)
                .map_err(|error| format!("{}: {error}; --restart begins anew", file.display()))?,
        };
        let is_time = |seconds: f64| (0.0..=SECONDS_MAX).contains(&seconds);
        content.ended.retain(|ended| is_time(ended.seconds));
        content.seconds.retain(|_, seconds| is_time(*seconds));
        if restart || content.is_closed || content.key != key {
            let ended = std::mem::take(&mut content.ended).into_iter();
            content
                .seconds
                .extend(ended.map(|ended| (ended.name, ended.seconds)));
            content.is_closed = false;
            content.key = key;
        }
        content
            .ended
            .retain(|ended| names.contains(&ended.name.as_str()));
        let state = RunState {
            file: file.to_owned(),
            content,
        };
        state.write()?;
        Ok(state)
    }

    pub(super) fn ended(&self) -> &[EndedStep] {
        &self.content.ended
    }

    pub(super) fn has_ended(&self, step: &str) -> bool {
        self.content.ended.iter().any(|ended| ended.name == step)
    }

    pub(super) fn record(&mut self, ended: EndedStep) -> Result<(), String> {
        self.content.ended.push(ended);
        self.write()
    }

    /// The next run begins anew.
    pub(super) fn close(&mut self) -> Result<(), String> {
        self.content.is_closed = true;
        self.write()
    }

    /// The seconds of these steps: those of the last run, or the mean of all that are known. `None` if none is.
    pub(super) fn estimate<'a>(&self, steps: impl Iterator<Item = &'a str>) -> Option<f64> {
        let SavedRun { ended, seconds, .. } = &self.content;
        let ended = ended.iter().map(|ended| ended.seconds);
        let all: Vec<f64> = ended.chain(seconds.values().copied()).collect();
        let mean = (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64);
        steps.map(|step| seconds.get(step).copied().or(mean)).sum()
    }

    /// Replaces the file at once, so that a kill or a power failure leaves the old one or the new one.
    fn write(&self) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", self.file.display());
        let text = serde_json::to_string_pretty(&self.content).map_err(|error| failed(&error))?;
        let next = self.file.with_extension("json.new");
        let write = || {
            fs::write(&next, text + "\n")?;
            fs::File::open(&next)?.sync_all()?;
            fs::rename(&next, &self.file)
        };
        write().map_err(|error| failed(&error))
    }
}

/// A new content if there is no file.
fn read(file: &Path) -> Result<SavedRun, String> {
    match fs::read_to_string(file) {
        Ok(text) => {
            serde_json::from_str(&text).map_err(|error| format!("no state of a run: {error}"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(SavedRun::default()),
        Err(error) => Err(error.to_string()),
    }
}

impl StepOutcome {
    pub(super) fn of_code(code: Option<i32>) -> StepOutcome {
        match code {
            Some(0) => StepOutcome::Met,
            Some(75) => StepOutcome::Void,
            _ => StepOutcome::Failed,
        }
    }

    pub(super) fn text(self) -> &'static str {
        match self {
            StepOutcome::Met => "done",
            StepOutcome::Missed => "a goal is missed",
            StepOutcome::Void => "VOID",
            StepOutcome::Failed => "FAILED",
        }
    }
}

/// Length and time of a file, as text.
pub(super) fn fingerprint(file: &Path) -> String {
    let of = || {
        let metadata = fs::metadata(file).ok()?;
        let changed = metadata
            .modified()
            .ok()?
            .duration_since(std::time::UNIX_EPOCH)
            .ok()?;
        Some(format!(
            "{} bytes, {} ns",
            metadata.len(),
            changed.as_nanos()
        ))
    };
    of().unwrap_or_default()
}
