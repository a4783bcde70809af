//! From runs to a report: figures, verdicts and sentences.

use std::time::Duration;

use super::series::{OnNetwork, Series};
use super::stage::Run;
use super::workload::{Client, Mode};
use crate::Distribution;
use crate::load_result::{Affects, Problem};
use crate::machine::{FOREIGN_SHARE_MAX, Facts};
use crate::noise::Noise;
use crate::number;
use crate::report::{
    Column, Comparison, Conclusion, ConclusionKind, Direction, Estimate, FactGroup, LatencySet,
    Measure, MeasureResult, NamedDistribution, Report, Section, Step, System, Table, Verdict,
};
use crate::stats::{self, Difference, Median};

const QUESTION: &str = "Which version of HTTP answers more requests in a second, for a new client and for one that has \
                        been connected for a while?";

/// What all runs have shown.
pub(super) struct Findings<'a>(&'a [OnNetwork]);

/// When and where they were made.
pub(super) struct Surroundings {
    pub(super) facts: Facts,
    pub(super) noise: Noise,
    pub(super) foreign_share: f64,
    pub(super) started_at: f64,
    pub(super) duration: Duration,
    pub(super) rounds: u32,
}

impl<'a> Findings<'a> {
    pub(super) fn new(networks: &'a [OnNetwork]) -> Findings<'a> {
        Findings(networks)
    }

    pub(super) fn report(&self, command: &str, surroundings: &Surroundings) -> Report {
        let title = "HTTP/1.1, HTTP/2 and HTTP/3 of one server";
        let mut report = Report::new(title, QUESTION, command);
        report.started_at = surroundings.started_at;
        report.duration_s = surroundings.duration.as_secs_f64();
        for network in self.0 {
            for mode in Mode::ALL {
                report.sections.push(section(network, mode, surroundings));
            }
        }
        if let [_, _, ..] = self.0 {
            report.sections.push(self.over_links());
        }
        report.conclusions = self.conclusions();
        report.problems = self.problems(surroundings);
        report.method = method(surroundings);
        report.repeat = vec![Step::command(
            "Run it on two cores that nothing else uses.",
            command,
        )];
        report.environment = environment(surroundings);
        report
    }

    /// A sentence for each workload and mode of each network.
    fn conclusions(&self) -> Vec<Conclusion> {
        let mut conclusions = Vec::new();
        for network in self.0 {
            for series in &network.series {
                let name = format!(
                    "{}, {}, {}",
                    network.name(),
                    series.workload.title.to_lowercase(),
                    series.mode.name()
                );
                conclusions.push(conclusion(series, Client::Http3, &name));
                let dials = series.runs_of(Client::Http2Dialing).is_some();
                if dials && series.workload.in_flight >= DIALING_TOLD_FROM {
                    conclusions.push(explanation(series, &name));
                }
            }
        }
        conclusions
    }

    fn problems(&self, surroundings: &Surroundings) -> Vec<Problem> {
        let mut problems: Vec<Problem> = Vec::new();
        let mut add = |message: String| {
            problems.push(Problem {
                affects: Affects::Times,
                message,
            });
        };
        if surroundings.foreign_share > FOREIGN_SHARE_MAX {
            let percent = number::fixed(surroundings.foreign_share * 100.0, 0);
            add(format!(
                "Other programs used {percent} % of a core before the first run."
            ));
        }
        surroundings
            .noise
            .void_reasons()
            .into_iter()
            .for_each(&mut add);
        for network in self.0 {
            if let Some(reason) = &network.invalid {
                add(format!("{}: {reason}", network.name()));
            }
        }
        problems
    }

    /// How the ratio of HTTP/3 to HTTP/2 changes with the link.
    fn over_links(&self) -> Section {
        let mut columns = vec![Column::text("Workload")];
        columns.extend(self.0.iter().map(|network| Column::text(&network.name())));
        let count = self.0.first().map_or(0, |network| network.series.len());
        let rows = (0..count).map(|index| {
            let series = self.0.iter().map(|network| &network.series[index]);
            let mut cells: Vec<String> = Vec::new();
            for series in series {
                if cells.is_empty() {
                    cells.push(format!("{}, {}", series.workload.title, series.mode.name()));
                }
                cells.push(
                    match series.compare(Client::Http3, Client::Http2, requests_per_second) {
                        Some(comparison) => ratio_text(&comparison),
                        None => number::NONE.to_owned(),
                    },
                );
            }
            cells
        });
        Section {
            heading: "HTTP/3 compared with HTTP/2 on each link".to_owned(),
            explanation: vec![
                "Requests per second over HTTP/3, divided by those over HTTP/2 in the same round, with the 95 % \
                 interval."
                    .to_owned(),
            ],
            tables: vec![Table {
                caption: "Ratios of requests per second; above 1 HTTP/3 answers more".to_owned(),
                columns,
                rows: rows.collect(),
            }],
            ..Section::default()
        }
    }
}

/// From so many requests in flight on, the connections of a dialing client are worth a sentence.
const DIALING_TOLD_FROM: u32 = 50;

fn requests_per_second(run: &Run) -> f64 {
    run.result.requests_per_second()
}

fn conclusion(series: &Series, client: Client, name: &str) -> Conclusion {
    let Some(comparison) = series.compare(client, Client::Http2, requests_per_second) else {
        return Conclusion::new(ConclusionKind::NotRun, format!("{name}: not run."));
    };
    let kind = match comparison.difference {
        Difference::Larger => ConclusionKind::Better,
        Difference::Smaller => ConclusionKind::Worse,
        Difference::NotSignificant => ConclusionKind::NoDifference,
    };
    let text = match comparison.difference {
        Difference::NotSignificant => {
            format!("{name}: no significant difference between HTTP/3 and HTTP/2")
        }
        _ => format!(
            "{name}: HTTP/3 answers {} as many requests as HTTP/2",
            times(comparison.ratio)
        ),
    };
    Conclusion::new(kind, format!("{text} ({}).", ratio_text(&comparison)))
}

/// What the connections of a cold client do to the comparison.
fn explanation(series: &Series, name: &str) -> Conclusion {
    let dialing = series.compare(Client::Http3, Client::Http2Dialing, requests_per_second);
    let text = match dialing {
        Some(comparison) => format!(
            "{name}: compared with a client of HTTP/2 that dials {} connections, HTTP/3 answers {} as many requests \
             ({}). That is the cost of {} TLS handshakes, and not of the protocol.",
            series.workload.in_flight,
            times(comparison.ratio),
            ratio_text(&comparison),
            series.workload.in_flight
        ),
        None => format!("{name}, dialing: not run."),
    };
    Conclusion::new(ConclusionKind::Figure, text)
}

fn times(ratio: f64) -> String {
    format!("{} times", number::significant(ratio))
}

fn ratio_text(comparison: &stats::Comparison) -> String {
    let text = number::significant;
    let stats::Interval { low, high } = comparison.interval;
    let mark = match comparison.difference {
        Difference::NotSignificant => ", not significant",
        _ => "",
    };
    format!(
        "{}, {} to {}{mark}",
        text(comparison.ratio),
        text(low),
        text(high)
    )
}

/// The figures of one network and mode.
fn section(network: &OnNetwork, mode: Mode, surroundings: &Surroundings) -> Section {
    let series: Vec<&Series> = network
        .series
        .iter()
        .filter(|series| series.mode == mode)
        .collect();
    let used = |client: &&Client| {
        series
            .iter()
            .any(|series| series.runs_of(**client).is_some())
    };
    let version = format!("blitz {}", surroundings.facts.revision);
    let systems = Client::ALL.iter().filter(used);
    let systems = systems.map(|client| System::run(client.name(), client.alpn(), &version));
    let mut section = Section {
        heading: format!("{}, {}", network.name(), mode.name()),
        explanation: vec![mode_text(mode).to_owned()],
        systems: systems.collect(),
        tables: vec![table(&series)],
        ..Section::default()
    };
    for series in series {
        section.measures.push(measure(
            series,
            ("requests per second", "requests/s", Direction::Higher),
            requests_per_second,
        ));
        if mode == Mode::Warm && network.link.is_none() {
            section.measures.push(measure(
                series,
                ("CPU time of the server per request", "µs", Direction::Lower),
                |run| run.server_us,
            ));
        }
        section.latencies.push(latencies(series));
    }
    section
}

fn mode_text(mode: Mode) -> &'static str {
    match mode {
        Mode::Cold => {
            "Each run is a new client that sends a fixed number of requests. Connecting and its handshakes are part of \
             the time. HTTP/2 and HTTP/3 use one connection, HTTP/1.1 one for each request in flight; the dialing client \
             of HTTP/2 opens so many as well, as some clients do when they are cold."
        }
        Mode::Warm => {
            "The same clients after a second of warm-up. No connection is opened within the measured time."
        }
    }
}

fn measure(
    series: &Series,
    (name, unit, better): (&str, &str, Direction),
    value: fn(&Run) -> f64,
) -> Measure {
    let results = series.runs.iter().map(|(client, runs)| {
        let comparison = series.compare(*client, Client::Http2, value);
        let comparisons = comparison.filter(|_| *client != Client::Http2);
        MeasureResult {
            system: client.name().to_owned(),
            repetitions: runs.iter().map(value).collect(),
            estimate: estimate(Median::of(runs.iter().map(value))),
            comparisons: comparisons
                .map(|comparison| Comparison {
                    baseline: Client::Http2.name().to_owned(),
                    verdict: verdict(&comparison, better),
                })
                .into_iter()
                .collect(),
        }
    });
    Measure {
        name: format!("{}: {name}", series.workload.title),
        unit: unit.to_owned(),
        better,
        explanation: series.workload.describe(),
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
    match (comparison.difference, better) {
        (Difference::NotSignificant, _) => Verdict::NoSignificantDifference { ratio },
        (Difference::Larger, Direction::Higher) | (Difference::Smaller, Direction::Lower) => {
            Verdict::Better { ratio }
        }
        _ => Verdict::Worse { ratio },
    }
}

/// The latency of all rounds together.
fn latency_of(runs: &[Run]) -> Distribution {
    let mut all = Distribution::default();
    for run in runs {
        all.merge(&run.result.times.latency);
    }
    all
}

fn latencies(series: &Series) -> LatencySet {
    LatencySet {
        title: format!("{}: latency", series.workload.title),
        explanation:
            "From the planned start of a request to the end of its response; all rounds together."
                .to_owned(),
        distributions: series
            .runs
            .iter()
            .map(|(client, runs)| NamedDistribution {
                name: client.name().to_owned(),
                distribution: latency_of(runs),
            })
            .collect(),
    }
}

/// The figures that the cited comparison has.
fn table(series: &[&Series]) -> Table {
    let titles = [
        "min",
        "mean",
        "p50",
        "p95",
        "p99",
        "p99.9",
        "max",
        "MB/s",
        "requests/s",
        "handshake p50",
    ];
    let mut columns = vec![Column::text("Workload"), Column::text("Protocol")];
    columns.extend(titles.map(Column::number));
    let rows = series.iter().flat_map(|series| {
        series
            .runs
            .iter()
            .map(|(client, runs)| row(series, *client, runs))
    });
    Table {
        caption: "All rounds together; a percentile without ten samples beyond it is left out"
            .to_owned(),
        columns,
        rows: rows.collect(),
    }
}

fn row(series: &Series, client: Client, runs: &[Run]) -> Vec<String> {
    let latency = latency_of(runs);
    let time = |duration: Option<Duration>| match duration {
        Some(duration) => number::duration(duration.as_nanos() as f64),
        None => number::NONE.to_owned(),
    };
    let median = |value: fn(&Run) -> f64| {
        let median = Median::of(runs.iter().map(value));
        median.map_or(number::NONE.to_owned(), |median| {
            number::significant(median.value)
        })
    };
    let mut handshakes = Distribution::default();
    for run in runs {
        handshakes.merge(&run.result.connects.tls);
        handshakes.merge(&run.result.connects.quic);
    }
    vec![
        series.workload.title.to_owned(),
        client.name().to_owned(),
        time(Some(Duration::from_nanos(latency.min_ns))),
        time(latency.mean()),
        time(latency.percentile(0.5)),
        time(latency.percentile(0.95)),
        time(latency.percentile(0.99)),
        time(latency.percentile(0.999)),
        time(Some(Duration::from_nanos(latency.max_ns))),
        median(|run| run.result.bytes_per_second() / 1e6),
        median(requests_per_second),
        time(handshakes.quantile(0.5)),
    ]
}

fn method(surroundings: &Surroundings) -> Vec<String> {
    vec![
        format!(
            "One server, Blitz with one core, answers all protocols over TLS 1.3. The generator, blitz load, has one core \
             and is a new process in each run. Each round runs every client once, in balanced orders; there were {} \
             rounds.",
            surroundings.rounds
        ),
        "Every response is checked: status, protocol, and the length and every byte of contents that do not change. A \
         wrong response ends the measurement."
            .to_owned(),
        "A difference is significant if the exact signed-rank test of Wilcoxon on the ratios of the rounds finds it at \
         4.5 %; with five rounds all five must agree."
            .to_owned(),
        "On loopback the generator uses as much time as the server, so that requests per second compare both ends \
         together. CPU time per request is that of the server alone."
            .to_owned(),
    ]
}

fn environment(surroundings: &Surroundings) -> Vec<FactGroup> {
    let Surroundings { facts, noise, .. } = surroundings;
    let mut notes: Vec<(String, String)> = vec![(
        "Steal".to_owned(),
        format!(
            "{} % of a core",
            number::fixed(noise.steal_share * 100.0, 1)
        ),
    )];
    let numbered = noise.notes().into_iter().enumerate();
    notes.extend(numbered.map(|(index, note)| (format!("Note {}", index + 1), note)));
    vec![
        FactGroup::new(
            "Machine",
            [
                ("Processor", facts.cpu.clone()),
                ("Processors", facts.cores.to_string()),
                ("Kernel", facts.kernel.clone()),
                ("Revision", facts.revision.clone()),
            ],
        ),
        FactGroup::new("Noise", notes),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::workload::WORKLOADS;
    use super::*;
    use crate::load_result::LoadResult;

    /// Seven rounds in which a client answers so many requests per second, with a little noise.
    fn rounds(rate: f64) -> Vec<Run> {
        let noise = [1.0, 0.99, 1.01, 1.0, 0.98, 1.02, 1.0];
        let runs = noise.iter().map(|factor| {
            let mut result = LoadResult {
                duration_s: 1.0,
                ..LoadResult::default()
            };
            result.counts.completed = (rate * factor) as u64;
            Run {
                result,
                server_us: 5.0,
            }
        });
        runs.collect()
    }

    fn network(link: Option<&str>, rates: [f64; 3]) -> OnNetwork {
        let clients = [Client::Http2, Client::Http3, Client::Http2Dialing];
        let runs = clients.into_iter().zip(rates);
        OnNetwork {
            link: link.map(|link| link.parse().unwrap()),
            series: vec![Series {
                workload: &WORKLOADS[1],
                mode: Mode::Cold,
                runs: runs.map(|(client, rate)| (client, rounds(rate))).collect(),
            }],
            invalid: None,
        }
    }

    fn report(networks: &[OnNetwork], foreign_share: f64) -> Report {
        let surroundings = Surroundings {
            facts: Facts::gather("test", []),
            noise: crate::noise::NoiseWatch::start().finish(Default::default()),
            foreign_share,
            started_at: 0.0,
            duration: Duration::from_secs(60),
            rounds: 7,
        };
        Findings::new(networks).report("blitz bench protocols", &surroundings)
    }

    #[test]
    fn the_verdict_is_that_of_the_rounds() {
        let kind = |rates| report(&[network(None, rates)], 0.0).conclusions[0].kind;
        assert_eq!(kind([1_000.0, 700.0, 500.0]), ConclusionKind::Worse);
        assert_eq!(kind([1_000.0, 1_400.0, 500.0]), ConclusionKind::Better);
        assert_eq!(
            kind([1_000.0, 1_000.0, 500.0]),
            ConclusionKind::NoDifference
        );
    }

    #[test]
    fn a_dialing_client_explains_what_its_handshakes_cost() {
        let report = report(&[network(None, [1_000.0, 900.0, 300.0])], 0.0);
        let text = &report.conclusions[1].text;
        assert!(
            text.contains("50 TLS handshakes") && text.contains("3.00 times"),
            "{text}"
        );
        let table = &report.sections[0].tables[0];
        assert_eq!(table.rows.len(), 3);
        assert!(report.html().contains("High concurrency"));
    }

    #[test]
    fn several_links_are_compared_in_one_table() {
        let networks = [
            network(Some("rtt=50ms"), [1_000.0, 990.0, 300.0]),
            network(Some("rtt=50ms,loss=3%"), [500.0, 900.0, 300.0]),
        ];
        let report = report(&networks, 0.0);
        let table = &report.sections.last().unwrap().tables[0];
        assert_eq!((table.columns.len(), table.rows.len()), (3, 1));
        assert!(table.rows[0][2].starts_with("1.8"), "{:?}", table.rows[0]);
    }

    #[test]
    fn a_busy_machine_is_a_problem() {
        let networks = [network(None, [1_000.0, 700.0, 500.0])];
        assert!(report(&networks, 0.5).problems[0].message.contains("50 %"));
    }
}
