//! The content of a report, whatever the scenario, and however it is shown.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::distribution::Distribution;
use crate::load_result::{Interval, Problem};

/// The version of the JSON form. It changes when a field changes its meaning or disappears.
pub(crate) const REPORT_VERSION: u32 = 2;

/// A report of one measurement: the conclusions, the figures behind them, and how to repeat it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// The version of the format, which is 2. Version 1 did not tell equality from an open question.
    pub version: u32,
    /// The subject, for example `HTTP/1.1: proxy to one backend`.
    pub title: String,
    /// The question that the measurement answers, as a sentence.
    pub question: String,
    /// The command that was run.
    pub command: String,
    /// Start, in seconds since 1970 (UTC).
    pub started_at: f64,
    /// Length of the whole measurement, in seconds.
    pub duration_s: f64,
    /// The conclusions, the most important one first.
    pub conclusions: Vec<Conclusion>,
    /// Why figures are not to be relied on. A valid report has none.
    pub problems: Vec<Problem>,
    /// The figures.
    pub sections: Vec<Section>,
    /// How it was measured, one paragraph each.
    pub method: Vec<String>,
    /// How to repeat it.
    pub repeat: Vec<Step>,
    /// The machine, the versions and the noise.
    pub environment: Vec<FactGroup>,
}

/// One conclusion.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Conclusion {
    /// Its kind, from the view of the system that the report is about.
    pub kind: ConclusionKind,
    /// A sentence with its figures and units.
    pub text: String,
}

/// The kind of a conclusion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ConclusionKind {
    /// Significantly better, or a goal that is met.
    Better,
    /// Significantly worse, or a goal that is missed.
    Worse,
    /// No significant difference, and the interval excludes one of more than 5 %.
    Equal,
    /// No significant difference, and the interval does not exclude one.
    #[serde(alias = "no-difference")]
    Undecided,
    /// Something was not run.
    NotRun,
    /// Something was run and proves nothing.
    Void,
    /// A figure without a judgement.
    Figure,
}

/// A step of a repetition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// The instruction, as a sentence.
    pub text: String,
    /// The command that does it.
    pub command: Option<String>,
}

/// Facts about one part of the environment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FactGroup {
    /// The part, for example `Machine`, `Kernel` or `Noise`.
    pub name: String,
    /// Its facts.
    pub facts: Vec<Fact>,
}

/// One fact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fact {
    /// The name, for example `CPU model`.
    pub name: String,
    /// The value with its unit.
    pub value: String,
}

/// One part of the measurement: the same load on each system.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Section {
    /// The load, as a noun.
    pub heading: String,
    /// The load and the systems, one paragraph each.
    pub explanation: Vec<String>,
    /// The conclusions of this section.
    pub conclusions: Vec<Conclusion>,
    /// The compared systems. Their order is the order of charts, and of colours.
    pub systems: Vec<System>,
    /// Figures with repetitions.
    pub measures: Vec<Measure>,
    /// Distributions of times.
    pub latencies: Vec<LatencySet>,
    /// Figures over the time of a run.
    pub timelines: Vec<TimelineSet>,
    /// Figures against a parameter.
    pub curves: Vec<CurveSet>,
    /// Other figures.
    pub tables: Vec<Table>,
}

/// One of the compared systems.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct System {
    /// The name, which is unique in its section. Results refer to it.
    pub name: String,
    /// The protocol as in ALPN, or what else distinguishes it.
    pub protocol: String,
    /// The version, as the program prints it.
    pub version: String,
    /// Its configuration files and command lines.
    pub configuration: Vec<Configuration>,
    /// Whether it was run.
    pub state: SystemState,
}

/// A configuration file or a command line.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Configuration {
    /// The name, for example `nginx.conf`.
    pub name: String,
    /// The content.
    pub text: Option<String>,
    /// Where the content is published.
    pub link: Option<String>,
}

/// Whether a system was run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum SystemState {
    /// It was run.
    Run,
    /// It was not run.
    NotRun {
        /// Why, for example `not installed`.
        reason: String,
    },
    /// It was run, and its figures prove nothing.
    Void {
        /// Why, for example `3 wrong responses`.
        reason: String,
    },
}

/// A figure of each system, with repetitions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measure {
    /// The name, for example `CPU time per request`.
    pub name: String,
    /// The unit, for example `µs`.
    pub unit: String,
    /// Which values are better.
    pub better: Direction,
    /// The measured quantity and the method. May be empty.
    pub explanation: String,
    /// At most one result for each system.
    pub results: Vec<MeasureResult>,
}

/// Which values are better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Lower values.
    Lower,
    /// Higher values.
    Higher,
}

/// The figure of one system.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeasureResult {
    /// The name of the system.
    pub system: String,
    /// The value of each round, in the order of the rounds.
    pub repetitions: Vec<f64>,
    /// Median and interval. Absent where the rounds are too few for an interval.
    pub estimate: Option<Estimate>,
    /// Comparisons with other systems.
    pub comparisons: Vec<Comparison>,
}

/// A median and its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// The median.
    pub median: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
    /// Number of rounds.
    pub n: u32,
}

/// The comparison of a figure with that of another system.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// The name of the other system.
    pub baseline: String,
    /// How the two compare.
    pub verdict: Verdict,
}

/// How the figure of a system compares with that of its baseline. Ratios are the system's figure, divided by the
/// baseline's of the same round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Verdict {
    /// Significantly better.
    Better {
        /// The ratio to the baseline.
        ratio: Estimate,
    },
    /// Significantly worse.
    Worse {
        /// The ratio to the baseline.
        ratio: Estimate,
    },
    /// The interval lies within 5 % of equality.
    Equal {
        /// The ratio to the baseline.
        ratio: Estimate,
    },
    /// The difference may be chance, and is not shown to be too small to matter.
    #[serde(alias = "no-significant-difference")]
    Undecided {
        /// The ratio to the baseline.
        ratio: Estimate,
    },
    /// One of the two was not run.
    NotRun {
        /// Why.
        reason: String,
    },
    /// The figures prove nothing.
    Void {
        /// Why.
        reason: String,
    },
}

/// Distributions that are shown in one chart.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencySet {
    /// The time, for example `Latency at 20,000 requests/s`.
    pub title: String,
    /// From which moment to which it lasts. May be empty.
    pub explanation: String,
    /// One distribution for each system, of all its rounds.
    pub distributions: Vec<NamedDistribution>,
}

/// A distribution and its name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NamedDistribution {
    /// The name of the system, or of the time.
    pub name: String,
    /// All samples.
    pub distribution: Distribution,
}

/// Timelines that are shown in one chart.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimelineSet {
    /// The event, for example `A reload under load`.
    pub title: String,
    /// May be empty.
    pub explanation: String,
    /// One timeline for each system.
    pub timelines: Vec<Timeline>,
    /// Moments worth a mark.
    pub marks: Vec<Mark>,
}

/// The figures of one run over its time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Timeline {
    /// The name of the system.
    pub name: String,
    /// One entry for each interval, in the order of time.
    pub points: Vec<TimelinePoint>,
}

/// The figures of one interval. Percentiles are absent where the samples of the interval do not carry them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimelinePoint {
    /// End of the interval, in seconds since the start.
    pub end_s: f64,
    /// Length, in seconds.
    pub length_s: f64,
    /// Correct responses.
    pub completed: u64,
    /// Wrong responses and failures.
    pub errors: u64,
    /// The median of the latency, in nanoseconds.
    pub p50_ns: Option<u64>,
    /// The 99th percentile of the latency, in nanoseconds.
    pub p99_ns: Option<u64>,
    /// The longest latency, in nanoseconds.
    pub max_ns: Option<u64>,
}

/// A moment of a timeline.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Mark {
    /// Seconds since the start.
    pub at_s: f64,
    /// The event, in a few words.
    pub label: String,
}

/// Charts of figures against one parameter. All panels have the same axes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CurveSet {
    /// The subject, for example `Latency against load`.
    pub title: String,
    /// May be empty.
    pub explanation: String,
    /// The parameter.
    pub x: Axis,
    /// The figure.
    pub y: Axis,
    /// A value of the figure worth a line, for example that of equality.
    pub reference: Option<Reference>,
    /// One chart each.
    pub panels: Vec<Panel>,
}

/// An axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Axis {
    /// The quantity, for example `Offered load`.
    pub label: String,
    /// Its unit; empty for ratios.
    pub unit: String,
    /// Its scale.
    pub scale: AxisScale,
}

/// The scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AxisScale {
    /// Equal distances are equal differences. It begins at zero.
    Linear,
    /// Equal distances are equal ratios. Values that are not positive are not shown.
    Logarithmic,
}

/// A value worth a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reference {
    /// The value, in the unit of the axis.
    pub y: f64,
    /// Its meaning, in a few words.
    pub label: String,
}

/// One chart of a [`CurveSet`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Panel {
    /// The figure of the panel, for example `p99`. May be empty if it is the only one.
    pub title: String,
    /// One curve for each system.
    pub curves: Vec<Curve>,
}

/// The figure of one system against the parameter.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Curve {
    /// The name of the system.
    pub name: String,
    /// Its points, in the order of the parameter.
    pub points: Vec<CurvePoint>,
}

/// A point of a curve.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CurvePoint {
    /// The parameter, in the unit of its axis.
    pub x: f64,
    /// The figure, in the unit of its axis. `None` breaks the curve: not run, or too few samples.
    pub y: Option<f64>,
    /// The 95 % confidence interval of the figure, from low to high.
    pub interval: Option<(f64, f64)>,
}

/// Figures that need no chart. A ranked table has the best row first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Table {
    /// The subject of the rows.
    pub caption: String,
    /// The columns.
    pub columns: Vec<Column>,
    /// The rows, each with one text for each column.
    pub rows: Vec<Vec<String>>,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Column {
    /// The title with the unit.
    pub title: String,
    /// The kind of the cells.
    pub kind: ColumnKind,
}

/// The kind of the cells of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ColumnKind {
    /// Text, which is aligned to the left.
    Text,
    /// Numbers, which are aligned to the right.
    Number,
    /// Verdicts, which are text.
    Verdict,
}

impl Report {
    /// A report without figures, of the current version.
    #[must_use]
    pub fn new(title: &str, question: &str, command: &str) -> Report {
        Report {
            version: REPORT_VERSION,
            title: title.to_owned(),
            question: question.to_owned(),
            command: command.to_owned(),
            ..Report::default()
        }
    }
}

impl Conclusion {
    /// A conclusion of this kind.
    #[must_use]
    pub fn new(kind: ConclusionKind, text: impl Into<String>) -> Conclusion {
        let text = text.into();
        Conclusion { kind, text }
    }
}

impl Step {
    /// A step without a command.
    #[must_use]
    pub fn text(text: &str) -> Step {
        Step {
            text: text.to_owned(),
            command: None,
        }
    }

    /// A step that a command takes.
    #[must_use]
    pub fn command(text: &str, command: &str) -> Step {
        Step {
            text: text.to_owned(),
            command: Some(command.to_owned()),
        }
    }
}

impl FactGroup {
    /// A group of facts, each a name and a value.
    #[must_use]
    pub fn new<N: Into<String>, V: Into<String>>(
        name: &str,
        facts: impl IntoIterator<Item = (N, V)>,
    ) -> FactGroup {
        let facts = facts.into_iter().map(|(name, value)| Fact {
            name: name.into(),
            value: value.into(),
        });
        FactGroup {
            name: name.to_owned(),
            facts: facts.collect(),
        }
    }
}

impl System {
    /// A system that was run.
    #[must_use]
    pub fn run(name: &str, protocol: &str, version: &str) -> System {
        System::new(name, protocol, version, SystemState::Run)
    }

    /// A system that was not run, for example because it is not installed.
    #[must_use]
    pub fn not_run(name: &str, protocol: &str, reason: &str) -> System {
        let reason = reason.to_owned();
        System::new(name, protocol, "", SystemState::NotRun { reason })
    }

    /// A system that was run in vain.
    #[must_use]
    pub fn void(name: &str, protocol: &str, version: &str, reason: &str) -> System {
        let reason = reason.to_owned();
        System::new(name, protocol, version, SystemState::Void { reason })
    }

    fn new(name: &str, protocol: &str, version: &str, state: SystemState) -> System {
        System {
            name: name.to_owned(),
            protocol: protocol.to_owned(),
            version: version.to_owned(),
            configuration: Vec::new(),
            state,
        }
    }
}

impl Section {
    /// The results of a measure with a value, best first. Those of systems that were not run, or run in vain, are left
    /// out.
    pub(crate) fn ranked<'a>(&self, measure: &'a Measure) -> Vec<&'a MeasureResult> {
        let is_run = |name: &str| {
            let found = self.systems.iter().find(|system| system.name == name);
            found.is_none_or(|system| system.state == SystemState::Run)
        };
        let with_value = measure
            .results
            .iter()
            .filter(|result| result.median().is_some());
        let mut ranked: Vec<_> = with_value.filter(|result| is_run(&result.system)).collect();
        ranked.sort_by(|a, b| {
            let (a, b) = (a.median().unwrap_or(0.0), b.median().unwrap_or(0.0));
            match measure.better {
                Direction::Lower => a.total_cmp(&b),
                Direction::Higher => b.total_cmp(&a),
            }
        });
        ranked
    }
}

impl Measure {
    /// The result of a system.
    pub(crate) fn result_of(&self, system: &str) -> Option<&MeasureResult> {
        self.results.iter().find(|result| result.system == system)
    }

    /// The systems that results are compared with, in the order of their first appearance.
    pub(crate) fn baselines(&self) -> Vec<&str> {
        let comparisons = self.results.iter().flat_map(|result| &result.comparisons);
        let mut baselines = Vec::new();
        for comparison in comparisons {
            if !baselines.contains(&comparison.baseline.as_str()) {
                baselines.push(comparison.baseline.as_str());
            }
        }
        baselines
    }
}

impl MeasureResult {
    /// The median: that of the estimate, or of the rounds.
    pub(crate) fn median(&self) -> Option<f64> {
        if let Some(estimate) = &self.estimate {
            return Some(estimate.median);
        }
        let mut sorted = self.repetitions.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        Some(f64::midpoint(sorted[last / 2], sorted[last.div_ceil(2)]))
    }

    /// The comparison with this baseline.
    pub(crate) fn compared_with(&self, baseline: &str) -> Option<&Verdict> {
        let mut comparisons = self.comparisons.iter();
        let found = comparisons.find(|comparison| comparison.baseline == baseline)?;
        Some(&found.verdict)
    }
}

impl Timeline {
    /// The timeline of a run. The distributions of the intervals become percentiles, which take less space.
    #[must_use]
    pub fn of_intervals(name: &str, intervals: &[Interval]) -> Timeline {
        let points = intervals.iter().map(|interval| {
            let percentile = |quantile| {
                let duration = interval.latency.percentile(quantile)?;
                Some(duration.as_nanos() as u64)
            };
            TimelinePoint {
                end_s: interval.end_s,
                length_s: interval.length_s,
                completed: interval.completed,
                errors: interval.errors,
                p50_ns: percentile(0.5),
                p99_ns: percentile(0.99),
                max_ns: (interval.latency.count > 0).then_some(interval.latency.max_ns),
            }
        });
        Timeline {
            name: name.to_owned(),
            points: points.collect(),
        }
    }
}

impl TimelinePoint {
    /// Correct responses per second; `None` for an interval without length.
    pub(crate) fn requests_per_second(&self) -> Option<f64> {
        (self.length_s > 0.0).then(|| self.completed as f64 / self.length_s)
    }
}

impl Column {
    /// A column of text.
    #[must_use]
    pub fn text(title: &str) -> Column {
        let title = title.to_owned();
        Column {
            title,
            kind: ColumnKind::Text,
        }
    }

    /// A column of numbers.
    #[must_use]
    pub fn number(title: &str) -> Column {
        let title = title.to_owned();
        Column {
            title,
            kind: ColumnKind::Number,
        }
    }

    /// A column of verdicts.
    #[must_use]
    pub fn verdict(title: &str) -> Column {
        let title = title.to_owned();
        Column {
            title,
            kind: ColumnKind::Verdict,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(system: &str, repetitions: &[f64]) -> MeasureResult {
        MeasureResult {
            system: system.to_owned(),
            repetitions: repetitions.to_vec(),
            ..MeasureResult::default()
        }
    }

    fn measure(better: Direction) -> Measure {
        Measure {
            name: "Throughput".to_owned(),
            unit: "requests/s".to_owned(),
            better,
            explanation: String::new(),
            results: vec![
                result("a", &[3.0, 1.0, 2.0]),
                result("b", &[]),
                result("c", &[8.0, 4.0]),
                result("d", &[1.0]),
            ],
        }
    }

    #[test]
    fn the_best_median_is_first_and_results_without_values_have_no_rank() {
        let section = Section {
            systems: vec![System::void("d", "h2", "1", "wrong responses")],
            ..Section::default()
        };
        let names = |better| -> Vec<String> {
            let measure = measure(better);
            let ranked = section.ranked(&measure);
            ranked.iter().map(|result| result.system.clone()).collect()
        };
        assert_eq!(names(Direction::Lower), ["a", "c"]);
        assert_eq!(names(Direction::Higher), ["c", "a"]);
        assert_eq!(measure(Direction::Lower).results[2].median(), Some(6.0));
    }

    #[test]
    fn a_report_is_the_same_after_a_way_through_json() {
        let mut report = Report::new("Title", "Question?", "blitz bench");
        report.sections.push(Section {
            heading: "Load".to_owned(),
            systems: vec![System::not_run("nginx", "h3", "not installed")],
            measures: vec![measure(Direction::Higher)],
            ..Section::default()
        });
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
        assert!(text.contains(r#""state":{"kind":"not-run","reason":"not installed"}"#));
    }

    #[test]
    fn intervals_give_only_percentiles_that_their_samples_carry() {
        let mut recorder = crate::Recorder::new();
        for step in 1..=100_u32 {
            recorder.record(std::time::Duration::from_micros(1) * step);
        }
        let interval = Interval {
            end_s: 1.0,
            length_s: 0.5,
            completed: 100,
            latency: recorder.distribution(),
            ..Interval::default()
        };
        let timeline = Timeline::of_intervals("blitz", &[interval, Interval::default()]);
        assert_eq!(timeline.points[0].requests_per_second(), Some(200.0));
        assert!(timeline.points[0].p50_ns.is_some() && timeline.points[0].p99_ns.is_none());
        assert_eq!(timeline.points[1], TimelinePoint::default());
    }
}
