//! Saved results: reports, results of comparisons in rounds, and runs of the generator.

use std::path::Path;

use serde::Deserialize;

use crate::load;
use crate::load_result::LoadResult;
use crate::number;
use crate::report::{Direction, Report, SystemState};
use crate::result_file::{self, UNKNOWN};

/// A saved result, reduced to what can be compared.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Saved {
    /// Its name for people: that of the file.
    pub(super) name: String,
    pub(super) revision: Option<String>,
    pub(super) processor: Option<String>,
    /// Why its figures prove nothing; empty for a valid result.
    pub(super) invalid: Vec<String>,
    /// The facts in which loads of the generator must agree: names and values. Empty for other results.
    pub(super) load: Vec<(&'static str, String)>,
    pub(super) series: Vec<Series>,
}

/// A figure of one system in all rounds.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Series {
    pub(super) key: FigureKey,
    pub(super) unit: String,
    pub(super) better: Direction,
    /// In the order of the rounds; one value of a single run.
    pub(super) values: Vec<f64>,
}

/// The identity of a figure in two results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FigureKey {
    /// The load.
    pub(super) section: String,
    pub(super) measure: String,
    pub(super) system: String,
}

/// Programs that are measured beside Blitz. A change of their figures is a change of the machine.
const CONTROLS: [&str; 20] = [
    "actix-web",
    "axum",
    "blocking thread",
    "caddy",
    "direct",
    "envoy",
    "h2load",
    "h2o",
    "h3 and quinn",
    "haproxy",
    "limit",
    "nginx",
    "oha",
    "quic-go",
    "relay-large",
    "relay-splice",
    "thread pool",
    "varnish",
    "varnish-cached",
    "wrk",
];

impl FigureKey {
    /// Whether the system is another program than Blitz, or one of its forms: `nginx-proxy`, `limit-epoll`.
    pub(super) fn is_control(&self) -> bool {
        CONTROLS.iter().any(|control| {
            let form = self.system.strip_prefix(control);
            form.is_some_and(|form| form.is_empty() || form.starts_with('-'))
        })
    }
}

/// Limits of a result: its rounds, and its figures.
const ROUNDS_MAX: usize = 1_000;
const SERIES_MAX: usize = 10_000;
/// A value of a load that is longer is not shown.
const SHOWN_CHARACTERS_MAX: usize = 60;

impl Saved {
    /// How the loads of two results differ, in words; empty if they are the same, as far as both results know them.
    pub(super) fn load_differences(&self, new: &Saved) -> Vec<String> {
        let is_short = |value: &str| value.chars().count() <= SHOWN_CHARACTERS_MAX;
        let difference = |(name, base): &(&'static str, String)| {
            let (_, new) = new.load.iter().find(|(of_new, _)| of_new == name)?;
            match base == new {
                true => None,
                false if is_short(base) && is_short(new) => {
                    Some(format!("{name}: {base} and {new}"))
                }
                false => Some((*name).to_owned()),
            }
        };
        self.load.iter().filter_map(difference).collect()
    }
}

/// Reads a result of any kind. The error names the file.
pub(super) fn read(file: &Path) -> Result<Saved, String> {
    let failed = |error: String| format!("{}: {error}", file.display());
    let text = result_file::read_text(file).map_err(failed)?;
    let saved = parse(&text).map_err(failed)?;
    check_size(&saved).map_err(failed)?;
    Ok(Saved {
        name: result_file::name_of(file),
        ..saved
    })
}

/// Every value of a round is compared with every one of the other result.
fn check_size(saved: &Saved) -> Result<(), String> {
    let rounds = saved.series.iter().map(|series| series.values.len());
    let (figures, rounds) = (saved.series.len(), rounds.max().unwrap_or(0));
    for (found, max, what) in [
        (rounds, ROUNDS_MAX, "rounds"),
        (figures, SERIES_MAX, "figures"),
    ] {
        if found > max {
            let (found, max) = (number::count(found as u64), number::count(max as u64));
            return Err(format!("{found} {what}; at most {max} can be compared"));
        }
    }
    Ok(())
}

fn parse(text: &str) -> Result<Saved, String> {
    let json = result_file::parse(text)?;
    let has = |field: &str| json.get(field).is_some();
    let kind = ["sections", "measured", "rows", "counts"].map(has);
    let wrong = |error: serde_json::Error| format!("{UNKNOWN}: {error}");
    let of_load = |result: LoadResult| result.check().map(|()| of_load(&result));
    match kind {
        [true, ..] => serde_json::from_value(json).map(of_report).map_err(wrong),
        [_, true, ..] => serde_json::from_value(json).map(of_rounds).map_err(wrong),
        [_, _, true, _] => serde_json::from_value(json).map(of_rows).map_err(wrong),
        [.., true] => serde_json::from_value(json)
            .map_err(wrong)
            .and_then(of_load),
        _ => Err(UNKNOWN.to_owned()),
    }
}

fn of_report(report: Report) -> Saved {
    let mut saved = Saved {
        revision: fact(&report, "Revision"),
        processor: fact(&report, "Processor"),
        ..Saved::default()
    };
    let problems = report.problems.into_iter();
    saved
        .invalid
        .extend(problems.map(|problem| problem.message));
    for section in report.sections {
        for system in &section.systems {
            if let SystemState::Void { reason } = &system.state {
                let text = format!("{}, {}: {reason}", section.heading, system.name);
                saved.invalid.push(text);
            }
        }
        for measure in section.measures {
            for result in measure.results {
                saved.series.push(Series {
                    key: FigureKey {
                        section: section.heading.clone(),
                        measure: measure.name.clone(),
                        system: result.system,
                    },
                    unit: measure.unit.clone(),
                    better: measure.better,
                    values: result.repetitions,
                });
            }
        }
    }
    saved
}

fn fact(report: &Report, name: &str) -> Option<String> {
    let groups = report.environment.iter();
    let mut facts = groups.flat_map(|group| &group.facts);
    let found = facts.find(|fact| fact.name == name)?;
    Some(found.value.clone())
}

/// The results of comparisons in rounds: what this program writes, and what earlier versions wrote.
#[derive(Debug, Deserialize)]
struct Rounds {
    command: String,
    facts: RoundsFacts,
    #[serde(default)]
    connections: u32,
    #[serde(default)]
    void: Vec<String>,
    measured: Vec<RoundsSystem>,
}

#[derive(Debug, Deserialize)]
struct RoundsFacts {
    revision: String,
    cpu: String,
}

#[derive(Debug, Deserialize)]
struct RoundsSystem {
    #[serde(alias = "program")]
    name: String,
    /// The load and the size of its contents, where a result has several.
    group: Option<String>,
    size: Option<u64>,
    runs: Vec<RoundsRun>,
}

/// Results of large bodies have other figures, which stay `None`.
#[derive(Debug, Deserialize)]
struct RoundsRun {
    cpu_us_per_request: Option<f64>,
    cpu_us_per_mib: Option<f64>,
    requests_per_second: Option<f64>,
    mib_per_second: Option<f64>,
    resident_bytes: Option<f64>,
    peak_mib: Option<f64>,
}

/// Name, unit and direction of a figure of a run.
type RoundsFigure = (
    &'static str,
    &'static str,
    Direction,
    fn(&RoundsRun) -> Option<f64>,
);

const ROUNDS_FIGURES: [RoundsFigure; 6] = [
    (
        "CPU time of the server per request",
        "µs",
        Direction::Lower,
        |run| run.cpu_us_per_request,
    ),
    (
        "CPU time of the server per MiB",
        "µs",
        Direction::Lower,
        |run| run.cpu_us_per_mib,
    ),
    (
        "requests per second",
        "requests/s",
        Direction::Higher,
        |run| run.requests_per_second,
    ),
    ("MiB per second", "MiB/s", Direction::Higher, |run| {
        run.mib_per_second
    }),
    (
        "resident memory of the server",
        "MiB",
        Direction::Lower,
        |run| run.resident_bytes.map(|bytes| bytes / f64::from(1 << 20)),
    ),
    (
        "peak of the server's memory",
        "MiB",
        Direction::Lower,
        |run| run.peak_mib,
    ),
];

/// The benchmark in a command.
fn scenario_of(command: &str) -> &str {
    let mut words = command
        .split_whitespace()
        .skip_while(|word| *word != "bench");
    words.nth(1).unwrap_or("rounds")
}

fn of_rounds(rounds: Rounds) -> Saved {
    let scenario = scenario_of(&rounds.command);
    let section_of = |system: &RoundsSystem| match (&system.group, rounds.connections) {
        (Some(group), _) => {
            let size = system
                .size
                .map(|bytes| format!(", {} bytes", number::count(bytes)));
            format!("{scenario}, {group}{}", size.unwrap_or_default())
        }
        (None, 0) => scenario.to_owned(),
        (None, connections) => format!("{scenario}, {connections} connections"),
    };
    let mut saved = Saved {
        revision: Some(rounds.facts.revision),
        processor: Some(rounds.facts.cpu),
        invalid: rounds.void,
        ..Saved::default()
    };
    for (measure, unit, better, of) in ROUNDS_FIGURES {
        for system in &rounds.measured {
            let values: Option<Vec<f64>> = system.runs.iter().map(of).collect();
            let values = values.unwrap_or_default();
            if !values.is_empty() {
                saved.series.push(Series {
                    key: FigureKey {
                        section: section_of(system),
                        measure: measure.to_owned(),
                        system: system.name.clone(),
                    },
                    unit: unit.to_owned(),
                    better,
                    values,
                });
            }
        }
    }
    saved
}

/// The results of `start` and `idle`: one row for each system.
#[derive(Debug, Deserialize)]
struct Rows {
    command: String,
    facts: RoundsFacts,
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Row {
    name: String,
    #[serde(default)]
    starts_ms: Vec<f64>,
    kib_per_connection: Option<f64>,
    resident_mib: Option<f64>,
}

fn of_rows(rows: Rows) -> Saved {
    let section = scenario_of(&rows.command);
    let mut saved = Saved {
        revision: Some(rows.facts.revision),
        processor: Some(rows.facts.cpu),
        ..Saved::default()
    };
    for row in rows.rows {
        let single = |value: Option<f64>| value.into_iter().collect();
        let figures = [
            ("time from start to first response", "ms", row.starts_ms),
            (
                "memory of an idle connection",
                "KiB",
                single(row.kib_per_connection),
            ),
            (
                "resident memory of the server",
                "MiB",
                single(row.resident_mib),
            ),
        ];
        let with_values = figures
            .into_iter()
            .filter(|(_, _, values)| !values.is_empty());
        saved
            .series
            .extend(with_values.map(|(measure, unit, values)| Series {
                key: FigureKey {
                    section: section.to_owned(),
                    measure: measure.to_owned(),
                    system: row.name.clone(),
                },
                unit: unit.to_owned(),
                better: Direction::Lower,
                values,
            }));
    }
    saved
}

/// One run of the generator.
fn of_load(result: &LoadResult) -> Saved {
    let plan = &result.plan;
    let section = format!(
        "{} connections, {} in flight on each, {}",
        plan.connections, plan.streams, plan.pacing
    );
    let problems = result
        .problems
        .iter()
        .map(|problem| problem.message.clone());
    let errors = result.counts.errors();
    let wrong = (errors > 0).then(|| format!("{errors} requests failed or were answered wrongly"));
    let latency = |quantile| {
        let latency = result.times.latency.percentile(quantile);
        latency.map(|latency| latency.as_secs_f64() * 1e6)
    };
    let requests = Some(result.requests_per_second()).filter(|rate| rate.is_finite());
    let figures = [
        (
            "requests per second",
            "requests/s",
            Direction::Higher,
            requests,
        ),
        ("latency, p50", "µs", Direction::Lower, latency(0.5)),
        ("latency, p90", "µs", Direction::Lower, latency(0.9)),
        ("latency, p99", "µs", Direction::Lower, latency(0.99)),
        ("latency, p99.9", "µs", Direction::Lower, latency(0.999)),
    ];
    let series = figures
        .into_iter()
        .filter_map(|(measure, unit, better, value)| {
            Some(Series {
                key: FigureKey {
                    section: section.clone(),
                    measure: measure.to_owned(),
                    system: result.target.protocol.clone(),
                },
                unit: unit.to_owned(),
                better,
                values: vec![value?],
            })
        });
    Saved {
        invalid: problems.chain(wrong).collect(),
        load: load::facts(result),
        series: series.collect(),
        ..Saved::default()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::load_result::RESULT_VERSION;
    use crate::report::{FactGroup, Measure, MeasureResult, Section, System};

    fn results() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benchmarks/results")
    }

    #[test]
    fn results_of_comparisons_in_rounds_can_be_read_old_ones_too() {
        let run = r#"{"cpu_us_per_request":7.5,"requests_per_second":9000.0}"#;
        for (field, connections) in [("name", r#""connections":100,"#), ("program", "")] {
            let text = format!(
                r#"{{"command":"bench h1 --quick","facts":{{"revision":"abc","cpu":"CPU"}},{connections}
                    "measured":[{{"{field}":"blitz-uring","runs":[{run},{run}]}}]}}"#
            );
            let saved = parse(&text).unwrap();
            let measures: Vec<_> = saved
                .series
                .iter()
                .map(|it| it.key.measure.as_str())
                .collect();
            assert_eq!(
                measures,
                ["CPU time of the server per request", "requests per second"]
            );
            assert_eq!(saved.series[0].values, [7.5, 7.5]);
            assert_eq!(saved.series[0].key.system, "blitz-uring");
            assert!(saved.series[0].key.section.starts_with("h1"));
            assert_eq!(saved.processor.as_deref(), Some("CPU"));
        }
    }

    #[test]
    fn every_committed_result_can_be_read() {
        let mut count = 0;
        for entry in fs::read_dir(results()).unwrap() {
            let file = entry.unwrap().path();
            if file.to_string_lossy().ends_with(result_file::ENDING) {
                let saved = read(&file).unwrap();
                assert!(!saved.series.is_empty(), "{}", file.display());
                let keys: Vec<&FigureKey> = saved.series.iter().map(|series| &series.key).collect();
                for (index, key) in keys.iter().enumerate() {
                    assert!(!keys[..index].contains(key), "{}: {key:?}", file.display());
                }
                count += 1;
            }
        }
        assert!(count >= 15, "{count}");
    }

    #[test]
    fn a_report_has_its_repetitions_and_its_problems() {
        let mut report = Report::new("Title", "Question?", "blitz bench local");
        report.environment = vec![FactGroup::new(
            "Machine",
            [("Revision", "abc"), ("Processor", "CPU")],
        )];
        report.sections.push(Section {
            heading: "Load".to_owned(),
            systems: vec![System::void("nginx", "h2", "1", "wrong responses")],
            measures: vec![Measure {
                name: "requests per second".to_owned(),
                unit: "requests/s".to_owned(),
                better: Direction::Higher,
                explanation: String::new(),
                results: vec![MeasureResult {
                    system: "blitz".to_owned(),
                    repetitions: vec![1.0, 2.0],
                    ..MeasureResult::default()
                }],
            }],
            ..Section::default()
        });
        let saved = parse(&serde_json::to_string(&report).unwrap()).unwrap();
        assert_eq!(saved.series[0].values, [1.0, 2.0]);
        assert_eq!(saved.revision.as_deref(), Some("abc"));
        assert_eq!(saved.invalid, ["Load, nginx: wrong responses"]);
    }

    #[test]
    fn a_run_of_the_generator_has_single_values() {
        let mut result = LoadResult {
            version: RESULT_VERSION,
            duration_s: 2.0,
            ..LoadResult::default()
        };
        result.counts.completed = 100;
        result.counts.failed.insert("reset".to_owned(), 3);
        let saved = parse(&serde_json::to_string(&result).unwrap()).unwrap();
        assert_eq!(saved.series.len(), 1, "no percentiles without samples");
        assert_eq!(saved.series[0].values, [50.0]);
        assert!(saved.invalid[0].starts_with("3 requests failed"));
    }

    #[test]
    fn a_run_of_an_earlier_version_can_be_read() {
        let mut json = serde_json::to_value(LoadResult::default()).unwrap();
        assert!(json.as_object_mut().unwrap().remove("requests").is_some());
        let counts = json["counts"].as_object_mut().unwrap();
        assert!(counts.remove("repeated").is_some());
        parse(&json.to_string()).unwrap();
    }

    #[test]
    fn a_damaged_result_is_refused_and_not_compared() {
        let read = |damage: fn(&mut LoadResult)| {
            let mut result = LoadResult {
                duration_s: 1.0,
                ..LoadResult::default()
            };
            damage(&mut result);
            parse(&serde_json::to_string(&result).unwrap())
        };
        let error = read(|result| {
            let latency = &mut result.times.latency;
            latency.buckets = vec![(5, 1_000)];
            (latency.count, latency.min_ns, latency.max_ns) = (1_000, 10, 1);
        });
        assert!(error.unwrap_err().contains("shortest sample"));
        let error = read(|result| result.duration_s = -1.0).unwrap_err();
        assert!(error.contains("duration"), "{error}");
        let many = read(|result| {
            let failed = [("a", u64::MAX), ("b", 5)].map(|(name, count)| (name.to_owned(), count));
            result.counts.failed.extend(failed);
        });
        assert!(many.unwrap().invalid[0].contains("failed"));
    }

    #[test]
    fn more_rounds_than_can_be_compared_are_refused() {
        let saved = |rounds| {
            let mut saved = super::super::judge::tests::saved(&[("cpu", Direction::Lower, 1.0)]);
            saved.series[0].values = vec![1.0; rounds];
            saved
        };
        assert_eq!(check_size(&saved(1_000)), Ok(()));
        let error = check_size(&saved(12_000)).unwrap_err();
        assert_eq!(error, "12,000 rounds; at most 1,000 can be compared");
    }

    #[test]
    fn other_files_are_refused_with_a_reason() {
        for (text, reason) in [
            ("[1]", "no result"),
            ("text", "no result"),
            (r#"{"version":1,"sections":3}"#, "no result"),
            (r#"{"version":99,"sections":[]}"#, "newer"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        let error = read(Path::new("/nowhere.json")).unwrap_err();
        assert!(error.starts_with("/nowhere.json: "), "{error}");
    }
}
