//! `blitz bench regression`: two saved results, or two binaries, figure by figure, with an exit code for CI.

mod binaries;
mod findings;
mod judge;
mod saved;

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;

use crate::goals::BenchOutcome;
use crate::invocation::Invocation;
use crate::machine::Facts;
use crate::output;
use crate::shell_words::quote;
use crate::study::finish;
use findings::Findings;
use judge::Rounds;

const EXAMPLES: &str = "\
Examples:
  blitz bench regression old.json new.json
      two results that blitz bench has saved, with their rounds
  blitz bench regression --at-most 10% old.json new.json
      worse by up to 10 % is no regression
  blitz bench regression monday.json today.json
      two runs of blitz load --json: changes without a verdict, exit code 75
  blitz bench regression --binaries ./blitz-1.0 target/dist/blitz
      both programs, interleaved on this machine
  cargo xtask bench regression --revisions v1.0 HEAD
      in the repository: builds two revisions and compares them

Exit codes: 0 no regression, 1 a regression, 2 usage error or a file that is no
result, 75 a result is void or invalid, the two cannot be compared, or no figure
has a verdict.";

/// Flags of `blitz bench regression`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RegressionArguments {
    /// The older result, or binary
    base: PathBuf,
    /// The newer one
    new: PathBuf,
    /// The share by which a figure may become worse
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = share)]
    at_most: f64,
    /// BASE and NEW are binaries, which run interleaved
    #[arg(long)]
    binaries: bool,
    #[command(flatten)]
    plan: binaries::ComparisonPlan,
}

/// `5%` or `5`, as a share.
fn share(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').trim().parse::<f64>();
    let percent = number
        .ok()
        .filter(|percent| (0.0..1000.0).contains(percent));
    let percent = percent.ok_or_else(|| format!("`{text}` is no share; write 5% or 2.5%"))?;
    Ok(percent / 100.0)
}

/// Compares and reports.
pub(crate) fn run(
    arguments: &RegressionArguments,
    invocation: &Invocation,
) -> Result<BenchOutcome, String> {
    if arguments.binaries {
        return binaries::run(arguments, invocation);
    }
    let read = (saved::read(&arguments.base), saved::read(&arguments.new));
    let (base, new) = match read {
        (Ok(base), Ok(new)) => (base, new),
        (Err(message), _) | (_, Err(message)) => {
            output::message(&format!("blitz bench: {message}"));
            return Ok(BenchOutcome::Unusable);
        }
    };
    let findings = Findings::new(&base, &new, Rounds::Apart, arguments.at_most);
    let mut report = findings.report(&command(arguments, invocation));
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    report.started_at = since.map_or(0.0, |since| since.as_secs_f64());
    let date = Facts::gather(&invocation.revision, []).date;
    let outcome = finish(&report, "regression", &date, true, invocation)?;
    Ok(with_regression(outcome, &findings))
}

/// The command without the folders of the two files, which are paths of this machine.
fn command(arguments: &RegressionArguments, invocation: &Invocation) -> String {
    let mut command = invocation.command.clone();
    for file in [&arguments.base, &arguments.new] {
        if let (Some(path), Some(name)) = (file.to_str(), file.file_name()) {
            command = command.replace(&quote(path), &quote(&name.to_string_lossy()));
        }
    }
    command
}

/// A void comparison has no verdict, and one whose figures all have none is void.
fn with_regression(outcome: BenchOutcome, findings: &Findings<'_>) -> BenchOutcome {
    match outcome {
        BenchOutcome::Met if findings.has_regression() => BenchOutcome::Missed,
        BenchOutcome::Met if !findings.comparison.has_verdict() => BenchOutcome::Void,
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Direction;

    #[test]
    fn shares_are_percentages() {
        assert_eq!(share("5%"), Ok(0.05));
        assert_eq!(share("2.5 %"), Ok(0.025));
        assert_eq!(share("10"), Ok(0.1));
        for wrong in ["", "much", "-3%", "NaN"] {
            assert!(share(wrong).unwrap_err().contains("2.5%"), "{wrong}");
        }
    }

    #[test]
    fn a_comparison_without_any_verdict_is_void() {
        let base = judge::tests::saved(&[("cpu", Direction::Lower, 10.0)]);
        let outcome = |rounds: usize| {
            let mut new = judge::tests::saved(&[("cpu", Direction::Lower, 20.0)]);
            new.series[0].values.truncate(rounds);
            let findings = Findings::new(&base, &new, Rounds::Apart, 0.05);
            with_regression(BenchOutcome::Met, &findings)
        };
        assert_eq!(outcome(1), BenchOutcome::Void);
        assert_eq!(outcome(15), BenchOutcome::Missed);
    }

    #[test]
    fn examples_fit_into_80_columns() {
        for line in EXAMPLES.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
