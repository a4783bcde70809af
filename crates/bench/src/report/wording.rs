//! Sentences and words of reports, the same in every form.

use super::model::{
    ConclusionKind, Direction, Estimate, Measure, MeasureResult, Report, Section, SystemState,
    Verdict,
};
use crate::load_result::Affects;
use crate::number::{self, NONE, fixed, significant};

/// From this ratio on, "times as much" is easier to understand than a percentage.
const TIMES_FROM: f64 = 2.0;

/// The note below percentiles that are absent.
pub(crate) const TOO_FEW_SAMPLES: &str = "– in place of a percentile: fewer than 10 samples lie beyond it. The 99.9th takes 10,000 samples.";

/// How a figure compares, in words: `27 % less (24 to 30 %)`.
pub(crate) fn verdict(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Better { ratio } | Verdict::Worse { ratio } => difference(ratio),
        Verdict::Equal { ratio } | Verdict::Undecided { ratio } => {
            let decimals = decimals([ratio.low, ratio.high]);
            let (low, high) = (
                one_side(ratio.low, decimals),
                one_side(ratio.high, decimals),
            );
            let word = badge(verdict_kind(verdict));
            format!("{word} ({low} to {high})")
        }
        Verdict::NotRun { reason } => with_reason("not run", reason),
        Verdict::Void { reason } => with_reason("void", reason),
    }
}

/// The kind of a verdict, for its colour and its badge.
pub(crate) fn verdict_kind(verdict: &Verdict) -> ConclusionKind {
    match verdict {
        Verdict::Better { .. } => ConclusionKind::Better,
        Verdict::Worse { .. } => ConclusionKind::Worse,
        Verdict::Equal { .. } => ConclusionKind::Equal,
        Verdict::Undecided { .. } => ConclusionKind::Undecided,
        Verdict::NotRun { .. } => ConclusionKind::NotRun,
        Verdict::Void { .. } => ConclusionKind::Void,
    }
}

/// The badge of a conclusion. A figure has none.
pub(crate) fn badge(kind: ConclusionKind) -> &'static str {
    match kind {
        ConclusionKind::Better => "better",
        ConclusionKind::Worse => "worse",
        ConclusionKind::Equal => "equal",
        ConclusionKind::Undecided => "undecided",
        ConclusionKind::NotRun => "not run",
        ConclusionKind::Void => "void",
        ConclusionKind::Figure => "",
    }
}

/// The state of a system, in words.
pub(crate) fn state(state: &SystemState) -> String {
    match state {
        SystemState::Run => "run".to_owned(),
        SystemState::NotRun { reason } => with_reason("not run", reason),
        SystemState::Void { reason } => with_reason("void", reason),
    }
}

/// Which figures a problem makes unreliable.
pub(crate) fn affected(affects: Affects) -> &'static str {
    match affects {
        Affects::Everything => "Nothing here can be relied on",
        Affects::Times => "Times and throughput cannot be relied on",
        Affects::Throughput => "Throughput cannot be relied on",
        Affects::Latency => "Latency cannot be relied on",
    }
}

/// Which values are better.
pub(crate) fn direction(better: Direction) -> &'static str {
    match better {
        Direction::Lower => "lower is better",
        Direction::Higher => "higher is better",
    }
}

/// The interval of a result: `4.86 to 5.59`.
pub(crate) fn interval(result: &MeasureResult) -> String {
    let text = |estimate: &Estimate| range(estimate.low, estimate.high);
    result
        .estimate
        .as_ref()
        .map_or_else(|| NONE.to_owned(), text)
}

/// Two ends of an interval. Where one has a decimal more, because it is below a power of ten, it goes without.
pub(crate) fn range(low: f64, high: f64) -> String {
    let decimals_of = |text: &str| {
        text.split_once('.')
            .map_or(0, |(_, decimals)| decimals.len())
    };
    let ends = [low, high].map(significant);
    let decimals = [decimals_of(&ends[0]), decimals_of(&ends[1])];
    let least = decimals[0].min(decimals[1]);
    let text = |end: f64, index: usize| match decimals[index] == least + 1 {
        true => fixed(end, least),
        false => ends[index].clone(),
    };
    format!("{} to {}", text(low, 0), text(high, 1))
}

/// Number of rounds of a result.
pub(crate) fn rounds(result: &MeasureResult) -> String {
    let rounds = match (&result.estimate, result.repetitions.len()) {
        (Some(estimate), 0) => u64::from(estimate.n),
        (_, repetitions) => repetitions as u64,
    };
    number::count(rounds)
}

/// Why a system of the section has no value for the measure; `None` for systems with one.
pub(crate) fn missing_value(section: &Section, measure: &Measure, system: &str) -> Option<String> {
    let found = section.systems.iter().find(|other| other.name == system);
    match found.map(|system| &system.state) {
        Some(other) if *other != SystemState::Run => Some(state(other)),
        _ => {
            let result = measure.result_of(system);
            let has_value = result.is_some_and(|result| result.median().is_some());
            (!has_value).then(|| "not measured".to_owned())
        }
    }
}

/// When and for how long: `2026-11-25 14:03 UTC, 12 min 30 s`.
pub(crate) fn when(report: &Report) -> String {
    let started = number::moment(report.started_at);
    format!("{started}, {}", number::long_time(report.duration_s))
}

/// The name of an axis with its unit.
pub(crate) fn with_unit(label: &str, unit: &str) -> String {
    match unit {
        "" => label.to_owned(),
        unit => format!("{label}, {unit}"),
    }
}

fn with_reason(word: &str, reason: &str) -> String {
    match reason {
        "" => word.to_owned(),
        reason => format!("{word}: {reason}"),
    }
}

/// A significant difference.
fn difference(ratio: &Estimate) -> String {
    if ratio.median >= TIMES_FROM {
        let (low, high) = (fixed(ratio.low, 2), fixed(ratio.high, 2));
        return format!("{} times as much ({low} to {high})", fixed(ratio.median, 2));
    }
    let decimals = decimals([ratio.median]);
    let median = one_side(ratio.median, decimals);
    let is_less = ratio.median < 1.0;
    if (ratio.low < 1.0) != is_less || (ratio.high < 1.0) != is_less {
        let (low, high) = (
            one_side(ratio.low, decimals),
            one_side(ratio.high, decimals),
        );
        return format!("{median} ({low} to {high})");
    }
    // The smaller difference first, on either side of equality.
    let (near, far) = match is_less {
        true => (ratio.high, ratio.low),
        false => (ratio.low, ratio.high),
    };
    let (near, far) = (percent(near, decimals), percent(far, decimals));
    format!("{median} ({near} to {far} %)")
}

/// One ratio: `4 % less`, `2 % more` or `equal`.
fn one_side(ratio: f64, decimals: usize) -> String {
    let percent = percent(ratio, decimals);
    if percent.bytes().all(|byte| matches!(byte, b'0' | b'.')) {
        return "equal".to_owned();
    }
    let word = if ratio < 1.0 { "less" } else { "more" };
    format!("{percent} % {word}")
}

fn percent(ratio: f64, decimals: usize) -> String {
    fixed((ratio - 1.0).abs() * 100.0, decimals)
}

/// Differences of less than 10 % have a decimal.
fn decimals<const N: usize>(ratios: [f64; N]) -> usize {
    usize::from(ratios.iter().all(|ratio| (ratio - 1.0).abs() < 0.0995))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(median: f64, low: f64, high: f64) -> Estimate {
        Estimate {
            median,
            low,
            high,
            n: 15,
        }
    }

    #[test]
    fn a_difference_is_a_percentage_and_from_two_on_a_multiple() {
        let better = |median, low, high| {
            let ratio = ratio(median, low, high);
            verdict(&Verdict::Better { ratio })
        };
        assert_eq!(better(0.73, 0.70, 0.76), "27 % less (24 to 30 %)");
        assert_eq!(better(1.27, 1.24, 1.30), "27 % more (24 to 30 %)");
        assert_eq!(better(0.957, 0.93, 0.986), "4.3 % less (1.4 to 7.0 %)");
        assert_eq!(better(4.8, 4.7, 4.95), "4.80 times as much (4.70 to 4.95)");
        assert_eq!(better(0.9, 0.8, 1.02), "10 % less (20 % less to 2 % more)");
    }

    #[test]
    fn equality_and_open_questions_name_both_ends() {
        let words = |low, high| {
            let ratio = ratio(1.0, low, high);
            verdict(&Verdict::of_ratio(ratio))
        };
        let words = [(0.96, 1.02), (0.8, 1.3), (1.0, 1.0)].map(|(low, high)| words(low, high));
        assert_eq!(
            words,
            [
                "equal (4.0 % less to 2.0 % more)",
                "undecided (20 % less to 30 % more)",
                "equal (equal to equal)",
            ]
        );
    }

    #[test]
    fn ends_of_an_interval_have_the_same_decimals_if_their_sizes_are_similar() {
        let ranges = [
            (9.9, 11.04),
            (0.975, 1.04),
            (86_712.0, 89_800.0),
            (0.0, 0.5),
            (999.7, 1_000.4),
        ];
        assert_eq!(
            ranges.map(|(low, high)| range(low, high)),
            [
                "9.9 to 11.0",
                "0.97 to 1.04",
                "86,700 to 89,800",
                "0 to 0.500",
                "1,000 to 1,000"
            ]
        );
    }

    #[test]
    fn what_was_not_run_says_so() {
        let reason = "not installed".to_owned();
        assert_eq!(
            verdict(&Verdict::NotRun { reason }),
            "not run: not installed"
        );
        let reason = String::new();
        assert_eq!(verdict(&Verdict::NotRun { reason }), "not run");
    }
}
