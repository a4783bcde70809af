//! `blitz bench all`: every benchmark, one after the other, each as a process of its own.
//!
//! Completed benchmarks are recorded in a file after each of them, so that an interrupted run continues there.

mod process;
mod state;
mod summary;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use blitz_http::Signal;
use clap::{Args, Command};

use crate::goals::BenchOutcome;
use crate::invocation::Invocation;
use crate::number;
use crate::output;
use crate::supervised::EndSignals;
use process::Starter;
use state::{EndedStep, RunKey, RunState};

const EXAMPLES: &str = "\
Examples:
  blitz bench all --quick
      a first impression of everything, in under 15 minutes on two cores
  blitz bench all
      everything, with the rounds that verdicts need: hours
  blitz bench all --only h1,h2,protocols
      some of them

Interrupted with Ctrl-C, killed, or by a power failure, the same command
continues after the last benchmark that has ended; --restart begins anew.

Exit codes: 0 every goal is met, 1 a goal is missed or a benchmark failed,
2 usage error, 75 a benchmark is void.";

/// Flags of `blitz bench all`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AllArguments {
    /// The quick form of each benchmark; a verdict of a goal needs the full one
    #[arg(long)]
    quick: bool,
    /// Only these benchmarks, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    only: Vec<String>,
    /// Forget what an interrupted run has finished
    #[arg(long)]
    restart: bool,
    /// A program in the place of this one, for tests
    #[arg(long, value_name = "FILE", hide = true)]
    step_program: Option<PathBuf>,
}

/// One benchmark.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BenchmarkRun {
    name: String,
    /// Its arguments, without paths.
    words: Vec<String>,
}

/// Why a run stops before its end.
#[derive(Debug)]
struct Interrupted(Signal);

/// Runs a step, and shows this line meanwhile. An error ends the run.
type RunStep<'a> =
    &'a mut dyn FnMut(&BenchmarkRun, &str) -> Result<Result<EndedStep, Interrupted>, String>;

/// The benchmarks among the subcommands of `blitz bench`: those that measure.
fn steps(bench: &Command, arguments: &AllArguments) -> Result<Vec<BenchmarkRun>, String> {
    const OTHERS: [&str; 3] = ["all", "regression", "help"];
    let measures =
        |command: &&Command| !command.is_hide_set() && !OTHERS.contains(&command.get_name());
    let all: Vec<&Command> = bench.get_subcommands().filter(measures).collect();
    let names = || all.iter().map(|command| command.get_name());
    if let Some(unknown) = arguments
        .only
        .iter()
        .find(|only| !names().any(|name| name == **only))
    {
        let names = names().collect::<Vec<_>>().join(", ");
        return Err(format!("there is no benchmark `{unknown}`; known: {names}"));
    }
    let is_wanted = |command: &&&Command| {
        arguments.only.is_empty() || arguments.only.iter().any(|only| only == command.get_name())
    };
    let step = |command: &&Command| {
        let name = command.get_name().to_owned();
        let flag = arguments.quick.then(|| quick_flag(command)).flatten();
        BenchmarkRun {
            words: [name.clone()]
                .into_iter()
                .chain(flag.map(str::to_owned))
                .collect(),
            name,
        }
    };
    Ok(all.iter().filter(is_wanted).map(step).collect())
}

/// The flag of the quick form. A benchmark that is always quick has none; its result is not saved either.
fn quick_flag(benchmark: &Command) -> Option<&'static str> {
    let has = |id: &str| {
        benchmark
            .get_arguments()
            .any(|argument| argument.get_id() == id)
    };
    let flags = [("quick", "--quick"), ("no_save", "--no-save")];
    let (_, flag) = flags.into_iter().find(|(id, _)| has(id))?;
    Some(flag)
}

/// Runs what has not ended yet. `bench` is the command `blitz bench`.
pub(crate) fn run(
    arguments: &AllArguments,
    bench: &Command,
    invocation: &Invocation,
) -> Result<BenchOutcome, String> {
    let steps = match steps(bench, arguments) {
        Ok(steps) => steps,
        Err(message) => {
            output::message(&format!("blitz bench: {message}"));
            return Ok(BenchOutcome::Unusable);
        }
    };
    let folder = invocation
        .out
        .join(if arguments.quick { "all-quick" } else { "all" });
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let program = arguments
        .step_program
        .as_deref()
        .unwrap_or(invocation.programs.blitz());
    let key = RunKey {
        revision: invocation.revision.clone(),
        binary: state::fingerprint(program),
        steps: steps.iter().map(|step| step.words.join(" ")).collect(),
    };
    let names: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
    // A choice of benchmarks has a state of its own, and leaves that of all alone.
    let file = folder.join(match arguments.only.is_empty() {
        true => "state.json".to_owned(),
        false => format!("state-{}.json", names.join("-")),
    });
    let mut state = RunState::open(&file, (key, &names), arguments.restart)?;
    if let count @ 1.. = state.ended().len() {
        output::message(&format!(
            "continuing: {count} of {} benchmarks have ended (--restart begins anew)",
            steps.len()
        ));
    }
    let signals = EndSignals::install().map_err(|error| format!("signals: {error}"))?;
    let starter = Starter {
        program,
        invocation,
        logs: &folder,
        signals: &signals,
    };
    let ended = run_steps(&steps, &mut state, &mut |step, line| {
        starter.run(step, line)
    })?;
    if let Err(Interrupted(signal)) = ended {
        output::message("blitz bench: interrupted; the same command continues");
        return Ok(BenchOutcome::Interrupted(signal));
    }
    let outcome = summary::outcome(state.ended());
    summary::finish(&state, &folder, !arguments.quick, invocation)?;
    state.close()?;
    Ok(outcome)
}

/// Runs the steps that have not ended, and records each one.
fn run_steps(
    steps: &[BenchmarkRun],
    state: &mut RunState,
    run: RunStep<'_>,
) -> Result<Result<(), Interrupted>, String> {
    let begun = Instant::now();
    for (index, step) in steps.iter().enumerate() {
        if state.has_ended(&step.name) {
            continue;
        }
        let place = format!("[{} of {}] {}", index + 1, steps.len(), step.name);
        let rest = state.estimate(steps[index..].iter().map(|step| step.name.as_str()));
        let rest = rest.map_or(String::new(), |rest| {
            format!(", about {} left", short(rest))
        });
        let line = match index {
            0 => format!("{place}{rest}"),
            _ => format!(
                "{place}: {} since the start{rest}",
                short(begun.elapsed().as_secs_f64())
            ),
        };
        match run(step, &line)? {
            Ok(ended) => {
                output::message(&format!(
                    "{place}: {} in {}",
                    ended.outcome.text(),
                    short(ended.seconds)
                ));
                state.record(ended)?;
            }
            Err(interrupted) => return Ok(Err(interrupted)),
        }
    }
    Ok(Ok(()))
}

fn short(seconds: f64) -> String {
    number::long_time(seconds)
}

/// The files below a folder that reports have, with the times of their last changes.
fn files(folder: &Path) -> BTreeMap<PathBuf, Duration> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| {
        let changed = entry
            .metadata()
            .ok()
            .filter(fs::Metadata::is_file)?
            .modified()
            .ok()?;
        let since = changed.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some((entry.path(), since))
    });
    files.collect()
}

#[cfg(test)]
mod tests {
    use super::state::StepOutcome;
    use super::*;
    use crate::run_folder::TestFolder;

    fn named(names: &[&str]) -> Vec<BenchmarkRun> {
        let step = |name: &&str| BenchmarkRun {
            name: (*name).to_owned(),
            words: vec![(*name).to_owned()],
        };
        names.iter().map(step).collect()
    }

    fn key(revision: &str) -> RunKey {
        RunKey {
            revision: revision.to_owned(),
            binary: String::new(),
            steps: ["a", "b", "c"].map(str::to_owned).to_vec(),
        }
    }

    fn open(file: &Path, revision: &str, restart: bool) -> Result<RunState, String> {
        RunState::open(file, (key(revision), &["a", "b", "c"]), restart)
    }

    /// Runs three steps and is interrupted at one of them; the steps that were run.
    fn run_until(interrupt: &str, state: &mut RunState) -> Vec<String> {
        let mut run = Vec::new();
        let result = run_steps(&named(&["a", "b", "c"]), state, &mut |step, _| {
            if step.name == interrupt {
                return Ok(Err(Interrupted(Signal::Interrupt)));
            }
            run.push(step.name.clone());
            Ok(Ok(EndedStep {
                name: step.name.clone(),
                outcome: if step.name == "a" {
                    StepOutcome::Failed
                } else {
                    StepOutcome::Met
                },
                seconds: 10.0,
                reports: Vec::new(),
            }))
        });
        assert_eq!(result.unwrap().is_err(), !interrupt.is_empty());
        run
    }

    #[test]
    fn an_interrupted_run_continues_and_a_failed_step_does_not_stop_it() {
        let folder = TestFolder::create();
        let file = folder.path().join("state.json");
        let open = |revision, restart| open(&file, revision, restart).unwrap();
        assert_eq!(run_until("b", &mut open("1", false)), ["a"]);
        assert_eq!(run_until("c", &mut open("1", false)), ["b"]);
        // Another revision has nothing in common with it, and neither has a restart.
        assert_eq!(run_until("b", &mut open("2", false)), ["a"]);
        assert_eq!(run_until("c", &mut open("2", false)), ["b"]);
        assert_eq!(run_until("b", &mut open("2", true)), ["a"]);
        let mut state = open("2", false);
        assert_eq!(run_until("", &mut state), ["b", "c"]);
        assert_eq!(summary::outcome(state.ended()), BenchOutcome::Missed);
        state.close().unwrap();
        assert_eq!(
            run_until("", &mut open("2", false)),
            ["a", "b", "c"],
            "a new run"
        );
    }

    #[test]
    fn a_state_that_cannot_be_read_is_an_error_unless_the_run_begins_anew() {
        let folder = TestFolder::create();
        let file = folder.path().join("state.json");
        fs::write(&file, "broken").unwrap();
        let error = open(&file, "1", false).unwrap_err();
        assert!(error.contains("--restart"), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "broken");
        assert!(open(&file, "1", true).unwrap().ended().is_empty());
    }

    #[test]
    fn steps_that_do_not_exist_and_impossible_times_do_not_count() {
        let folder = TestFolder::create();
        let file = folder.path().join("state.json");
        let mut state = open(&file, "1", false).unwrap();
        for (name, seconds) in [("a", 1.0), ("b", 1e308), ("other", 1.0)] {
            let ended = EndedStep {
                name: name.to_owned(),
                outcome: StepOutcome::Met,
                seconds,
                reports: Vec::new(),
            };
            state.record(ended).unwrap();
        }
        let state = open(&file, "1", false).unwrap();
        let names: Vec<&str> = state
            .ended()
            .iter()
            .map(|ended| ended.name.as_str())
            .collect();
        assert_eq!(names, ["a"]);
    }

    #[test]
    fn the_rest_is_estimated_from_the_last_run_or_from_this_one() {
        let folder = TestFolder::create();
        let file = folder.path().join("state.json");
        let mut state = open(&file, "1", false).unwrap();
        assert_eq!(state.estimate(["a", "b"].into_iter()), None);
        run_until("c", &mut state);
        assert_eq!(
            state.estimate(["c", "d"].into_iter()),
            Some(20.0),
            "the mean of this one"
        );
        let state = open(&file, "2", false).unwrap();
        assert_eq!(state.estimate(["a", "b", "c"].into_iter()), Some(30.0));
    }

    #[test]
    fn benchmarks_are_the_subcommands_that_measure() {
        let bench = Command::new("bench").subcommands([
            Command::new("h1").arg(clap::Arg::new("quick").long("quick")),
            Command::new("start").arg(clap::Arg::new("no_save").long("no-save")),
            Command::new("regression"),
            Command::new("tuning").hide(true),
            Command::new("all"),
        ]);
        let with = |quick, only: &[&str]| {
            let only = only.iter().map(|&name| name.to_owned()).collect();
            let arguments = AllArguments {
                quick,
                only,
                restart: false,
                step_program: None,
            };
            steps(&bench, &arguments).map(|steps| {
                steps
                    .iter()
                    .map(|step| step.words.join(" "))
                    .collect::<Vec<_>>()
            })
        };
        assert_eq!(with(true, &[]).unwrap(), ["h1 --quick", "start --no-save"]);
        assert_eq!(with(false, &["h1"]).unwrap(), ["h1"]);
        assert!(
            with(false, &["h9"])
                .unwrap_err()
                .contains("known: h1, start")
        );
    }

    #[test]
    fn examples_fit_into_80_columns() {
        for line in EXAMPLES.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
