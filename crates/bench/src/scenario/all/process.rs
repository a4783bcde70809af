//! The process of one benchmark, which never outlives the run.

use std::fs::{self, File};
use std::io::{IsTerminal, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::state::{EndedStep, StepOutcome};
use super::{BenchmarkRun, Interrupted, files, short};
use crate::invocation::{Invocation, NO_HTML};
use crate::output;
use crate::supervised::{self, EndSignals, Supervised};

const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A benchmark that takes longer hangs.
const STEP_MAX: Duration = Duration::from_secs(6 * 3600);

/// The last line of the errors of `blitz bench` when a goal is missed.
const GOAL_MISSED: &str = "a goal is missed";

/// Starts benchmarks.
pub(super) struct Starter<'a> {
    pub(super) program: &'a Path,
    pub(super) invocation: &'a Invocation,
    /// The folder of their outputs.
    pub(super) logs: &'a Path,
    pub(super) signals: &'a EndSignals,
}

impl Starter<'_> {
    /// Runs a step to its end, or until a signal.
    pub(super) fn run(
        &self,
        step: &BenchmarkRun,
        line: &str,
    ) -> Result<Result<EndedStep, Interrupted>, String> {
        let log = self.logs.join(format!("{}.txt", step.name));
        let failed = |error: std::io::Error| format!("{}: {error}", log.display());
        let output = File::create(&log).map_err(failed)?;
        let before = files(&self.invocation.out);
        let begun = Instant::now();
        let mut supervised = self
            .command(step, &output)
            .and_then(|mut command| Supervised::start(&mut command))
            .map_err(failed)?;
        let code = self.wait(&mut supervised, line, begun);
        let status = supervised.end().map_err(failed)?;
        if let Err(interrupted) = code {
            return Ok(Err(interrupted));
        }
        let text = fs::read(&log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let is_missed = status.code() == Some(1) && text.trim_end().ends_with(GOAL_MISSED);
        let outcome = match is_missed {
            true => StepOutcome::Missed,
            false => StepOutcome::of_code(status.code()),
        };
        Ok(Ok(EndedStep {
            name: step.name.clone(),
            outcome,
            seconds: begun.elapsed().as_secs_f64(),
            reports: self.reports(&before, log),
        }))
    }

    fn command(&self, step: &BenchmarkRun, output: &File) -> std::io::Result<Command> {
        let invocation = self.invocation;
        let mut command = Command::new(self.program);
        // Results name the command that people would enter.
        if let Some(name) = std::env::args_os().next() {
            command.arg0(name);
        }
        command.args(["bench", supervised::FLAG]).args(&step.words);
        command.arg("--out").arg(&invocation.out);
        command.args(["--revision", &invocation.revision]);
        if !invocation.with_html {
            command.arg(NO_HTML);
        }
        if let Some(folder) = invocation.programs.examples() {
            command.arg("--programs").arg(folder);
        }
        command
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?);
        Ok(command)
    }

    /// Waits for the end of the process; an error is an interruption.
    fn wait(
        &self,
        supervised: &mut Supervised,
        line: &str,
        begun: Instant,
    ) -> Result<(), Interrupted> {
        let is_terminal = std::io::stderr().is_terminal();
        if !is_terminal {
            output::message(&format!("{line} …"));
        }
        let mut result = Ok(());
        while !supervised.has_ended() {
            if is_terminal {
                // Nobody reads it if this fails.
                let _ = write!(
                    std::io::stderr(),
                    "\r{line} … {}  ",
                    short(begun.elapsed().as_secs_f64())
                );
            }
            if begun.elapsed() > STEP_MAX {
                break;
            }
            if let Some(signal) = self.signals.wait(LOOK_EVERY) {
                result = Err(Interrupted(signal));
                break;
            }
        }
        if is_terminal {
            output::message("\n");
        }
        result
    }

    /// The new files in the folder of results, pages for browsers first; the output if there are none.
    fn reports(
        &self,
        before: &std::collections::BTreeMap<PathBuf, Duration>,
        log: PathBuf,
    ) -> Vec<PathBuf> {
        let after = files(&self.invocation.out).into_iter();
        let new = after.filter(|(file, changed)| before.get(file) != Some(changed));
        let mut new: Vec<PathBuf> = new.map(|(file, _)| file).collect();
        let rank = |file: &PathBuf| match file.extension().and_then(|extension| extension.to_str())
        {
            Some("html") => 0,
            Some("md") => 1,
            _ => 2,
        };
        new.sort_by_key(rank);
        if new.is_empty() {
            new.push(log);
        }
        new
    }
}
