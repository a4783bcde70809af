//! The table of outcomes.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::short;
use super::state::{EndedStep, RunState, StepOutcome};
use crate::goals::BenchOutcome;
use crate::invocation::Invocation;
use crate::machine::Facts;
use crate::report::{Column, Conclusion, ConclusionKind, FactGroup, Report, Section, Step, Table};
use crate::study;

/// Failures weigh more than void benchmarks, which weigh more than success.
pub(super) fn outcome(ended: &[EndedStep]) -> BenchOutcome {
    let has = |outcome| ended.iter().any(|ended| ended.outcome == outcome);
    if has(StepOutcome::Failed) || has(StepOutcome::Missed) {
        BenchOutcome::Missed
    } else if has(StepOutcome::Void) {
        BenchOutcome::Void
    } else {
        BenchOutcome::Met
    }
}

/// Prints the table, and saves it beside the results unless the run was a quick one.
pub(super) fn finish(
    state: &RunState,
    logs: &Path,
    is_saved: bool,
    invocation: &Invocation,
) -> Result<(), String> {
    let facts = Facts::gather(&invocation.revision, []);
    let mut report = report(state.ended(), logs, &facts, &invocation.command);
    if !is_saved {
        report.method.push(
            "Quick comparisons in rounds (h1, h2, h3, tls, h2-proxy, cores, log, bulk) are always void: they have three rounds, \
             and a verdict takes 15."
                .to_owned(),
        );
    }
    // The runs of an interrupted one are further apart.
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    report.started_at = since.map_or(0.0, |since| since.as_secs_f64()) - report.duration_s;
    study::finish(&report, "all", &facts.date, is_saved, invocation).map(|_| ())
}

fn report(ended: &[EndedStep], logs: &Path, facts: &Facts, command: &str) -> Report {
    let mut report = Report::new(
        "All benchmarks",
        "Which benchmarks ran, and how did they end?",
        command,
    );
    report.conclusions = conclusions(ended);
    report.duration_s = ended.iter().map(|ended| ended.seconds).sum();
    report.sections = vec![Section {
        heading: "Outcomes".to_owned(),
        tables: vec![table(ended)],
        ..Section::default()
    }];
    report.method = vec![format!(
        "Each benchmark is a process of its own. Its output is in {}.",
        logs.display()
    )];
    report.repeat = vec![Step::command(
        "Run it on a machine on which nothing else runs.",
        command,
    )];
    report.environment = vec![FactGroup::new(
        "Machine",
        [
            ("Processor", facts.cpu.clone()),
            ("Processors", facts.cores.to_string()),
            ("Kernel", facts.kernel.clone()),
            ("Revision", facts.revision.clone()),
        ],
    )];
    report
}

fn conclusions(ended: &[EndedStep]) -> Vec<Conclusion> {
    let kinds = [
        (StepOutcome::Failed, ConclusionKind::Void, "failed"),
        (StepOutcome::Missed, ConclusionKind::Worse, "missed a goal"),
        (
            StepOutcome::Void,
            ConclusionKind::Void,
            "are void: their outputs have the reasons",
        ),
        (
            StepOutcome::Met,
            ConclusionKind::Better,
            "ended with every goal met",
        ),
    ];
    let mut conclusions = Vec::new();
    for (outcome, kind, text) in kinds {
        let of_kind = ended.iter().filter(|ended| ended.outcome == outcome);
        let names: Vec<&str> = of_kind.map(|ended| ended.name.as_str()).collect();
        if !names.is_empty() {
            let text = format!(
                "{} of {} {text}: {}.",
                names.len(),
                ended.len(),
                names.join(", ")
            );
            conclusions.push(Conclusion::new(kind, text));
        }
    }
    conclusions
}

fn table(ended: &[EndedStep]) -> Table {
    let row = |ended: &EndedStep| {
        let report = ended.reports.first();
        vec![
            ended.name.clone(),
            ended.outcome.text().to_owned(),
            short(ended.seconds),
            report.map_or(String::new(), |file| file.display().to_string()),
        ]
    };
    let mut rows: Vec<Vec<String>> = ended.iter().map(row).collect();
    let total = ended.iter().map(|ended| ended.seconds).sum();
    rows.push(vec![
        "total".to_owned(),
        String::new(),
        short(total),
        String::new(),
    ]);
    Table {
        caption: "In the order of the runs".to_owned(),
        columns: vec![
            Column::text("Benchmark"),
            Column::text("Outcome"),
            Column::number("Time"),
            Column::text("Report"),
        ],
        rows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(outcomes: &[StepOutcome]) -> Vec<EndedStep> {
        let of = |(index, outcome): (usize, &StepOutcome)| EndedStep {
            name: format!("step-{index}"),
            outcome: *outcome,
            seconds: 30.0,
            reports: vec![format!("results/{index}.html").into()],
        };
        outcomes.iter().enumerate().map(of).collect()
    }

    #[test]
    fn a_failure_weighs_more_than_a_void_benchmark() {
        use StepOutcome::{Failed, Met, Missed, Void};
        assert_eq!(outcome(&ended(&[Met, Void, Failed])), BenchOutcome::Missed);
        assert_eq!(outcome(&ended(&[Met, Missed])), BenchOutcome::Missed);
        assert_eq!(outcome(&ended(&[Met, Void])), BenchOutcome::Void);
        assert_eq!(outcome(&ended(&[Met])), BenchOutcome::Met);
    }

    #[test]
    fn the_table_links_reports_and_has_the_total() {
        let ended = ended(&[StepOutcome::Met, StepOutcome::Void]);
        let facts = Facts::gather("test", []);
        let text = report(&ended, Path::new("logs"), &facts, "blitz bench all").markdown();
        assert!(
            text.contains("results/1.html") && text.contains("VOID"),
            "{text}"
        );
        assert!(
            text.contains("total") && text.contains("1 of 2 are void"),
            "{text}"
        );
    }
}
