//! From measured cases to the sections and conclusions of a report.

use super::case::{Measured, MeasuredSubject};
use super::figure::{Cell, Figure};
use crate::number;
use crate::report::{
    Column, Comparison, Conclusion, ConclusionKind, Direction, Estimate, LatencySet, Measure,
    MeasureResult, NamedDistribution, Section, System, SystemState, Table, Verdict,
};
use crate::stats::{self, Difference, Median};

/// The words of a conclusion about a figure of a subject and its base.
pub(crate) struct Sentence<'a> {
    /// The subject of the sentence: the load.
    pub(crate) about: &'a str,
    pub(crate) subject: &'a str,
    pub(crate) base: &'a str,
    pub(crate) figure: &'a Figure,
    /// The predicate before the ratio, for example `answers`.
    pub(crate) verb: &'a str,
    /// The noun after the ratio, for example `as many requests as`.
    pub(crate) object: &'a str,
}

/// A section with a table, the figures in charts, and the latency of each case. `systems` are the systems of the report, in
/// the order of charts; those without a run are marked so.
pub(crate) fn section(
    heading: &str,
    explanation: &[&str],
    cases: &[&Measured],
    systems: &[System],
    (figures, cells): (&[Figure], &[Cell]),
) -> Section {
    let mut section = Section {
        heading: heading.to_owned(),
        explanation: explanation.iter().map(|&text| text.to_owned()).collect(),
        systems: systems
            .iter()
            .filter_map(|system| with_state(system, cases))
            .collect(),
        tables: vec![table(cases, cells)],
        ..Section::default()
    };
    for case in cases {
        let measures = figures.iter().map(|figure| measure(case, figure));
        section
            .measures
            .extend(measures.filter(|measure| !measure.results.is_empty()));
        section.latencies.push(latencies(case));
    }
    section
}

/// The system with its state in these cases; `None` if no case has it.
fn with_state(system: &System, cases: &[&Measured]) -> Option<System> {
    let runs = cases.iter().filter_map(|case| case.subject(&system.name));
    let not_run = cases.iter().flat_map(|case| &case.not_run);
    let mut not_run = not_run.filter(|not_run| not_run.name == system.name);
    let runs: Vec<&MeasuredSubject> = runs.collect();
    let state = match (runs.as_slice(), not_run.next()) {
        ([], None) => return None,
        ([], Some(not_run)) => SystemState::NotRun {
            reason: not_run.reason.clone(),
        },
        (runs, _) => match runs
            .iter()
            .map(|subject| subject.void.as_ref())
            .collect::<Option<Vec<_>>>()
        {
            Some(reasons) => SystemState::Void {
                reason: reasons[0].to_owned(),
            },
            None => SystemState::Run,
        },
    };
    Some(System {
        state,
        ..system.clone()
    })
}

fn table(cases: &[&Measured], cells: &[Cell]) -> Table {
    let mut columns = vec![Column::text("Load"), Column::text("System")];
    columns.extend(cells.iter().map(|cell| Column::number(cell.title)));
    let mut rows = Vec::new();
    for case in cases {
        for subject in &case.subjects {
            let name = match &subject.void {
                Some(reason) => format!("{}: {reason}", subject.name),
                None => subject.name.clone(),
            };
            let mut row = vec![case.title.clone(), name];
            row.extend(cells.iter().map(|cell| match subject.void {
                Some(_) => "void".to_owned(),
                None => (cell.of)(subject),
            }));
            rows.push(row);
        }
        for not_run in &case.not_run {
            let mut row = vec![case.title.clone(), not_run.name.clone()];
            row.extend(cells.iter().map(|_| "not run".to_owned()));
            rows.push(row);
        }
    }
    Table {
        caption: "Medians of the rounds; latencies are those of all rounds together, and a percentile without ten \
                  samples beyond it is left out"
            .to_owned(),
        columns,
        rows,
    }
}

/// A figure of a case with its comparisons, as a chart.
pub(crate) fn measure(case: &Measured, figure: &Figure) -> Measure {
    let valid = case
        .subjects
        .iter()
        .filter(|subject| subject.void.is_none());
    let results = valid.filter_map(|subject| {
        let values: Option<Vec<f64>> = subject.runs.iter().map(figure.of).collect();
        let values = values.filter(|values| !values.is_empty())?;
        let other = case.base.as_ref().filter(|base| **base != subject.name);
        let comparison = other.and_then(|base| {
            Some(Comparison {
                baseline: base.clone(),
                verdict: verdict(&case.compare(&subject.name, base, figure)?, figure.better),
            })
        });
        Some(MeasureResult {
            system: subject.name.clone(),
            estimate: estimate(Median::of(values.iter().copied())),
            repetitions: values,
            comparisons: comparison.into_iter().collect(),
        })
    });
    Measure {
        name: format!("{}: {}", case.title, figure.name),
        unit: figure.unit.to_owned(),
        better: figure.better,
        explanation: case.load.clone(),
        results: results.collect(),
    }
}

/// The amount that the other subjects add to a figure of a base in the same round.
pub(crate) fn measure_beyond(case: &Measured, base: &str, figure: &Figure, name: &str) -> Measure {
    let others = case.subjects.iter().filter(|subject| subject.name != base);
    let results = others.filter_map(|subject| {
        let values = case.beyond(&subject.name, base, figure)?;
        Some(MeasureResult {
            system: subject.name.clone(),
            estimate: estimate(Median::of(values.iter().copied())),
            repetitions: values,
            ..MeasureResult::default()
        })
    });
    Measure {
        name: format!("{}: {name}", case.title),
        unit: figure.unit.to_owned(),
        better: figure.better,
        explanation: format!("{} {base} has zero.", case.load),
        results: results.collect(),
    }
}

fn estimate(median: Option<Median>) -> Option<Estimate> {
    let median = median?;
    let interval = median.interval_of_95()?;
    Some(Estimate {
        median: median.value,
        low: interval.low,
        high: interval.high,
        n: median.count as u32,
    })
}

fn verdict(comparison: &stats::Comparison, better: Direction) -> Verdict {
    let ratio = Estimate {
        median: comparison.ratio,
        low: comparison.interval.low,
        high: comparison.interval.high,
        n: comparison.pairs as u32,
    };
    match kind(comparison, better) {
        ConclusionKind::Better => Verdict::Better { ratio },
        ConclusionKind::Worse => Verdict::Worse { ratio },
        _ => Verdict::of_ratio(ratio),
    }
}

fn kind(comparison: &stats::Comparison, better: Direction) -> ConclusionKind {
    match (comparison.difference, better) {
        (Difference::Equal, _) => ConclusionKind::Equal,
        (Difference::Undecided, _) => ConclusionKind::Undecided,
        (Difference::Larger, Direction::Higher) | (Difference::Smaller, Direction::Lower) => {
            ConclusionKind::Better
        }
        _ => ConclusionKind::Worse,
    }
}

fn latencies(case: &Measured) -> LatencySet {
    let valid = case
        .subjects
        .iter()
        .filter(|subject| subject.void.is_none());
    let distributions = valid.map(|subject| NamedDistribution {
        name: subject.name.clone(),
        distribution: subject.latency(),
    });
    LatencySet {
        title: format!("{}: latency", case.title),
        explanation:
            "From the planned start of a request to the end of its response; all rounds together."
                .to_owned(),
        distributions: distributions
            .filter(|named| named.distribution.count > 0)
            .collect(),
    }
}

/// How a subject compares with its base, as a sentence.
pub(crate) fn conclusion(case: &Measured, sentence: &Sentence<'_>) -> Conclusion {
    let Sentence {
        about,
        subject,
        base,
        figure,
        verb,
        object,
    } = sentence;
    let Some(comparison) = case.compare(subject, base, figure) else {
        return without_comparison(case, sentence);
    };
    let number = number::significant;
    let stats::Interval { low, high } = comparison.interval;
    let interval = format!("{} to {}", number(low), number(high));
    let ratio = number(comparison.ratio);
    let text = format!("{about}: {subject} {verb} {ratio} times {object} {base} ({interval}).");
    Conclusion::new(kind(&comparison, figure.better), text)
}

fn without_comparison(case: &Measured, sentence: &Sentence<'_>) -> Conclusion {
    let Sentence {
        about,
        subject,
        base,
        ..
    } = sentence;
    let void = [subject, base].into_iter().find_map(|name| {
        let reason = case.subject(name)?.void.as_ref()?;
        Some(format!("{about}: {name} is void. {reason}"))
    });
    match void {
        Some(text) => Conclusion::new(ConclusionKind::Void, text),
        None => Conclusion::new(
            ConclusionKind::NotRun,
            format!("{about}: {subject} and {base} were not compared."),
        ),
    }
}
