//! From runs to a report: tables, curves and verdicts.

use super::groups::{BLITZ, is_peer};
use super::measure::{AtRate, MeasuredGroup};
use super::{CompareArguments, VERDICT_PERCENT};
use crate::load_result::{Affects, Problem};
use crate::number;
use crate::report::{
    Axis, AxisScale, Conclusion, ConclusionKind, Curve, CurvePoint, CurveSet, Panel, Report,
    Section,
};
use crate::stats::Median;
use crate::study::{
    Cell, Figure, Measured, P50, P99, P999, REQUESTS_PER_SECOND, RESIDENT_MIB, SERVER_US, Sentence,
    Surroundings, conclusion, section,
};

const QUESTION: &str = "How much does each proxy and server answer, at which cost, and how long do its responses take while \
                        it is not overloaded?";

const CAPACITY_FIGURES: &[Figure] = &[REQUESTS_PER_SECOND, SERVER_US, RESIDENT_MIB];
const CAPACITY_CELLS: &[Cell] = &[
    Cell::REQUESTS,
    Cell::SERVER_US,
    Cell::RESIDENT,
    Cell::P50,
    Cell::P99,
    Cell::P999,
];
const RATE_CELLS: &[Cell] = &[
    Cell::REQUESTS,
    Cell::P50,
    Cell::P99,
    Cell::P999,
    Cell::MAX,
    Cell::SERVER_US,
    Cell::RESIDENT,
];
/// The panels of the curves.
const PERCENTILES: [(&str, Figure); 3] = [("p50", P50), ("p99", P99), ("p99.9", P999)];

/// The findings of all runs.
pub(super) struct Findings<'a>(&'a [MeasuredGroup]);

impl<'a> Findings<'a> {
    pub(super) fn new(all: &'a [MeasuredGroup]) -> Findings<'a> {
        Findings(all)
    }

    pub(super) fn report(
        &self,
        command: &str,
        surroundings: &Surroundings,
        arguments: &CompareArguments,
    ) -> Report {
        let title = "Proxies and servers: capacity, cost and latency against load";
        let mut report = Report::new(title, QUESTION, command);
        for group in self.0 {
            report.conclusions.extend(summary(group));
            report.sections.push(capacity_section(group));
            if !group.at_rates.is_empty() {
                report.sections.push(rates_section(group));
            }
            report.problems.extend(problems(group));
        }
        report.method = method(arguments.rounds());
        surroundings.describe(&mut report);
        report
    }
}

fn cases(group: &MeasuredGroup) -> impl Iterator<Item = &Measured> {
    let at_rates = group.at_rates.iter().map(|at| &at.measured);
    std::iter::once(&group.capacity).chain(at_rates)
}

/// The systems with the same work as Blitz whose figures in a case can be compared with its own.
fn peers(case: &Measured) -> impl Iterator<Item = &str> {
    let is_valid = |name: &str| {
        case.subject(name)
            .is_some_and(|subject| subject.void.is_none())
    };
    let names = case.subjects.iter().map(|subject| subject.name.as_str());
    names.filter(move |name| is_valid(BLITZ) && is_valid(name) && is_peer(name))
}

fn at_verdict(group: &MeasuredGroup) -> Option<&AtRate> {
    group
        .at_rates
        .iter()
        .find(|at| at.percent == VERDICT_PERCENT)
}

/// Blitz and the best peer: its cost at capacity, and its latency at the rate of the verdicts.
fn summary(group: &MeasuredGroup) -> Vec<Conclusion> {
    if group.capacity.subject(BLITZ).is_none() {
        return Vec::new();
    }
    let mut all: Vec<Conclusion> = best(&group.capacity, &SERVER_US)
        .map(|peer| of_cost(group, peer))
        .into_iter()
        .collect();
    all.extend(void_of_blitz(group));
    if let Some(at) = at_verdict(group) {
        let figure = tail(&at.measured);
        all.extend(best(&at.measured, &figure).map(|peer| of_latency(group, at, &figure, peer)));
    }
    if all.is_empty() {
        let text = format!("{}: no other system was run.", group.group.title);
        all.push(Conclusion::new(ConclusionKind::NotRun, text));
    }
    all
}

/// Why there is no verdict, if the figures of Blitz prove nothing.
fn void_of_blitz(group: &MeasuredGroup) -> Option<Conclusion> {
    let at_verdict = at_verdict(group).map(|at| &at.measured);
    let mut cases = std::iter::once(&group.capacity).chain(at_verdict);
    let (case, reason) = cases.find_map(|case| {
        let subject = case.subject(BLITZ)?;
        Some((case, subject.void.as_ref()?))
    })?;
    let text = format!(
        "{}, {}: {BLITZ} is void. {reason}",
        group.group.title, case.title
    );
    Some(Conclusion::new(ConclusionKind::Void, text))
}

/// The peer with the smallest median.
fn best<'a>(case: &'a Measured, figure: &Figure) -> Option<&'a str> {
    let with_median = peers(case).filter_map(|name| Some((name, case.median(name, figure)?)));
    let best = with_median.min_by(|(_, a), (_, b)| a.total_cmp(b));
    best.map(|(name, _)| name)
}

/// p99, if every valid run has the samples for it, and the median otherwise.
fn tail(case: &Measured) -> Figure {
    let valid = case
        .subjects
        .iter()
        .filter(|subject| subject.void.is_none());
    let mut runs = valid.flat_map(|subject| &subject.runs);
    match runs.all(|run| (P99.of)(run).is_some()) {
        true => P99,
        false => P50,
    }
}

fn of_cost(group: &MeasuredGroup, peer: &str) -> Conclusion {
    conclusion(
        &group.capacity,
        &Sentence {
            about: &format!("{}, closed loop", group.group.title),
            subject: BLITZ,
            base: peer,
            figure: &SERVER_US,
            verb: "takes",
            object: "the CPU time per request of",
        },
    )
}

fn of_latency(group: &MeasuredGroup, at: &AtRate, figure: &Figure, peer: &str) -> Conclusion {
    let percentile = match figure.name == P99.name {
        true => "the p99 latency of",
        false => "the median latency of",
    };
    conclusion(
        &at.measured,
        &Sentence {
            about: &format!(
                "{} at {} requests/s",
                group.group.title,
                number::count(at.rate as u64)
            ),
            subject: BLITZ,
            base: peer,
            figure,
            verb: "has",
            object: percentile,
        },
    )
}

fn capacity_section(group: &MeasuredGroup) -> Section {
    let title = group.group.title;
    let mut section = section(
        &format!("{title}: capacity"),
        &[
            "A closed loop: every stream sends its next request when it has the response to the last one.",
        ],
        &[&group.capacity],
        &group.systems,
        (CAPACITY_FIGURES, CAPACITY_CELLS),
    );
    // In a closed loop latency is the inverse of the throughput.
    section.latencies.clear();
    section.conclusions = peers(&group.capacity)
        .map(|peer| of_cost(group, peer))
        .collect();
    section.conclusions.extend(voids(&group.capacity));
    section
}

fn rates_section(group: &MeasuredGroup) -> Section {
    let cases: Vec<&Measured> = group.at_rates.iter().map(|at| &at.measured).collect();
    let title = group.group.title;
    let slowest = group.slowest.as_ref().map(|slowest| {
        format!(
            "An open loop at shares of {} requests/s, the capacity of the slowest system, {}. Latency counts from the planned \
             time of a request, so that the wait behind slow responses is part of it.",
            number::count(slowest.requests_per_second as u64),
            slowest.name
        )
    });
    let slowest = slowest.unwrap_or_default();
    let mut all = section(
        &format!("{title}: latency against load"),
        &[&slowest],
        &cases,
        &group.systems,
        (&[], RATE_CELLS),
    );
    all.curves.push(curves(group));
    all.latencies.clear();
    if let Some(at) = at_verdict(group) {
        let figures = PERCENTILES.map(|(_, figure)| figure);
        let at_verdict = section("", &[], &[&at.measured], &group.systems, (&figures, &[]));
        all.measures = at_verdict.measures;
        all.latencies = at_verdict.latencies;
        let figure = tail(&at.measured);
        all.conclusions = peers(&at.measured)
            .map(|peer| of_latency(group, at, &figure, peer))
            .collect();
    }
    all.conclusions.extend(cases.into_iter().flat_map(voids));
    all
}

/// A sentence for each system whose figures prove nothing.
fn voids(case: &Measured) -> Vec<Conclusion> {
    let voids = case.subjects.iter().filter_map(|subject| {
        let reason = subject.void.as_ref()?;
        let text = format!("{}, {}: void. {reason}", case.title, subject.name);
        Some(Conclusion::new(ConclusionKind::Void, text))
    });
    voids.collect()
}

/// Wrong responses; a run that the generator could not drive is no problem of the others.
fn problems(group: &MeasuredGroup) -> Vec<Problem> {
    let of_case = |case: &Measured| -> Vec<Problem> {
        let failures = case.failures().map(|(name, evidence)| Problem {
            affects: Affects::Everything,
            message: format!("{}, {}, {name}: {evidence}", group.group.title, case.title),
        });
        failures.collect()
    };
    cases(group).flat_map(of_case).collect()
}

fn curves(group: &MeasuredGroup) -> CurveSet {
    let panel = |(title, figure): (&str, Figure)| Panel {
        title: title.to_owned(),
        curves: group
            .capacity
            .subjects
            .iter()
            .map(|subject| curve(group, &subject.name, &figure))
            .filter(|curve| curve.points.iter().any(|point| point.y.is_some()))
            .collect(),
    };
    CurveSet {
        title: format!("{}: latency against load", group.group.title),
        explanation: "Medians of the rounds with their 95 % intervals. A curve breaks where a run proves nothing, or has too \
                      few samples for the percentile."
            .to_owned(),
        x: Axis {
            label: "Offered load".to_owned(),
            unit: "requests/s".to_owned(),
            scale: AxisScale::Linear,
        },
        y: Axis {
            label: "Latency".to_owned(),
            unit: "µs".to_owned(),
            scale: AxisScale::Logarithmic,
        },
        reference: None,
        panels: PERCENTILES
            .map(panel)
            .into_iter()
            .filter(|panel| !panel.curves.is_empty())
            .collect(),
    }
}

fn curve(group: &MeasuredGroup, name: &str, figure: &Figure) -> Curve {
    let points = group.at_rates.iter().map(|at| {
        let subject = at.measured.subject(name);
        let subject = subject.filter(|subject| subject.void.is_none());
        let values = subject.and_then(|subject| {
            let values: Option<Vec<f64>> = subject.runs.iter().map(figure.of).collect();
            values
        });
        let median = Median::of(values.unwrap_or_default());
        let interval = median.as_ref().and_then(Median::interval_of_95);
        CurvePoint {
            x: at.rate,
            y: median.map(|median| median.value),
            interval: interval.map(|interval| (interval.low, interval.high)),
        }
    });
    Curve {
        name: name.to_owned(),
        points: points.collect(),
    }
}

fn method(rounds: u32) -> Vec<String> {
    vec![
        format!(
            "Every server has one worker on a core of its own, and the configuration that this report contains. The \
             generator, blitz load, is a new process in each run; it shares the other core with the backend of the proxies. \
             Each round runs every system once, in balanced orders; there were {rounds} rounds."
        ),
        "Every response is checked: status, protocol, length and every byte. A system with a wrong response is void, and the \
         report has a problem. A run in which the generator was late, waited for its processor or was the bottleneck at a \
         fixed rate proves nothing; it is repeated twice, and then its system is void at this rate."
            .to_owned(),
        "A difference is significant if the exact signed-rank test of Wilcoxon on the ratios of the rounds finds it at \
         4.5 %; with six rounds all six must agree. The verdicts on latency are made at 75 % of the slowest system's \
         capacity."
            .to_owned(),
        "In a closed loop fast systems are bounded by the generator, so that requests per second compare both ends together. \
         CPU time per request is that of the server alone. The limit is a bare ring that parses nothing, and varnish-cached \
         answers without its backend: both are shown beside the others and are not part of the verdicts."
            .to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::groups::GROUPS;
    use super::super::measure::Slowest;
    use super::super::measure::tests::{measured, subject};
    use super::super::tests::arguments;
    use super::*;
    use crate::report::System;
    use crate::study::Watch;

    fn group() -> MeasuredGroup {
        let systems = || {
            vec![
                subject(BLITZ, 50_000.0, 100.0),
                subject("nginx", 40_000.0, 200.0),
                subject("caddy", 10_000.0, 900.0),
                subject("limit", 90_000.0, 50.0),
            ]
        };
        let at_rates = [25, VERDICT_PERCENT].map(|percent| AtRate {
            percent,
            rate: f64::from(percent) * 100.0,
            measured: measured(&format!("{percent} %"), systems()),
        });
        MeasuredGroup {
            group: &GROUPS[0],
            systems: ["blitz", "nginx", "caddy", "limit"]
                .map(|name| System::run(name, "http/1.1", "1"))
                .into(),
            capacity: measured("Capacity", systems()),
            slowest: Some(Slowest {
                name: "caddy".to_owned(),
                requests_per_second: 10_000.0,
            }),
            at_rates: at_rates.into(),
        }
    }

    fn report(groups: &[MeasuredGroup]) -> Report {
        let surroundings = Watch::start().finish("test", [], []);
        Findings::new(groups).report("blitz bench compare", &surroundings, &arguments(&[], false))
    }

    #[test]
    fn the_verdicts_are_against_the_best_peer_and_never_the_limit() {
        let report = report(&[group()]);
        let texts: Vec<_> = report
            .conclusions
            .iter()
            .map(|it| it.text.as_str())
            .collect();
        assert_eq!(texts.len(), 2, "{texts:?}");
        assert!(
            texts[0].contains("0.500 times the CPU time per request of nginx"),
            "{texts:?}"
        );
        assert!(texts[1].contains("7,500 requests/s") && texts[1].contains("p99 latency of nginx"));
        let kinds = report.conclusions.iter().map(|it| it.kind);
        assert!(kinds.into_iter().all(|kind| kind == ConclusionKind::Better));
        assert_eq!(report.sections[0].conclusions.len(), 2);
    }

    #[test]
    fn curves_have_a_panel_for_each_percentile_and_break_where_a_run_is_void() {
        let mut group = group();
        group.at_rates[0].measured.subjects[1].void = Some("The generator was late.".to_owned());
        let report = report(&[group]);
        let set = &report.sections[1].curves[0];
        let titles: Vec<_> = set
            .panels
            .iter()
            .map(|panel| panel.title.as_str())
            .collect();
        assert_eq!(titles, ["p50", "p99", "p99.9"]);
        let nginx = &set.panels[1].curves[1];
        assert_eq!((nginx.points[0].x, nginx.points[0].y), (2_500.0, None));
        assert!(
            nginx.points[1]
                .y
                .is_some_and(|y| (199.0..215.0).contains(&y))
        );
        let said = &report.sections[1].conclusions;
        assert!(
            said.iter()
                .any(|it| it.kind == ConclusionKind::Void && it.text.contains("late"))
        );
        let rows = &report.sections[1].tables[0].rows;
        assert!(rows[1].contains(&"void".to_owned()), "{rows:?}");
        assert!(
            report
                .problems
                .iter()
                .all(|it| !it.message.contains("late"))
        );
        assert!(report.html().contains("latency against load"));
    }

    #[test]
    fn wrong_responses_are_a_problem_and_few_samples_give_the_median() {
        let mut group = group();
        group.capacity.subjects[2].void = Some("It failed: 3 × wrong status".to_owned());
        for at in &mut group.at_rates {
            for run in &mut at.measured.subjects[0].runs {
                run.result.times.latency.count = 100;
            }
        }
        let report = report(&[group]);
        assert!(
            report
                .problems
                .iter()
                .any(|it| it.message.contains("wrong status"))
        );
        assert!(
            report.conclusions[1].text.contains("median latency"),
            "{:?}",
            report.conclusions
        );
    }
}
