//! From runs to a report: figures, verdicts and sentences.

use super::series::{OnNetwork, Series};
use super::workload::{ClientKind, Mode};
use crate::load_result::{Affects, Problem};
use crate::number;
use crate::report::{Column, Conclusion, ConclusionKind, Report, Section, System, Table, Verdict};
use crate::stats::{self, Difference};
use crate::study::{
    Cell, SERVER_US, Sentence, Surroundings, conclusion, measure, ratio_text, section,
};

const QUESTION: &str = "Which version of HTTP answers more requests in a second, for a new client and for one that has \
                        been connected for a while?";

/// The findings of all runs.
pub(super) struct Findings<'a>(&'a [OnNetwork]);

impl<'a> Findings<'a> {
    pub(super) fn new(networks: &'a [OnNetwork]) -> Findings<'a> {
        Findings(networks)
    }

    pub(super) fn report(&self, command: &str, surroundings: &Surroundings, rounds: u32) -> Report {
        let title = "HTTP/1.1, HTTP/2 and HTTP/3 of one server";
        let mut report = Report::new(title, QUESTION, command);
        let version = format!("blitz {}", surroundings.facts.revision);
        for network in self.0 {
            for mode in Mode::ALL {
                if network.series.iter().any(|series| series.mode == mode) {
                    report.sections.push(section_of(network, mode, &version));
                }
            }
        }
        let compared = self.0.iter().filter(|network| !network.is_special());
        if let compared @ [_, _, ..] = &compared.collect::<Vec<_>>()[..] {
            report.sections.push(over_links(compared));
        }
        report.conclusions = self.conclusions();
        report.problems = self.problems();
        report.method = method(rounds);
        surroundings.describe(&mut report);
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
                    series.workload.subject(),
                    series.mode.name()
                );
                conclusions.push(match network.obstacle() {
                    Some(obstacle) => no_verdict(&name, &obstacle),
                    None => verdict(series, &name),
                });
                if let Some(text) = claim(series, &name) {
                    conclusions.push(Conclusion::new(ConclusionKind::Figure, text));
                }
                let dialing = ClientKind::Http2Dialing.name();
                let dials = series.measured.subject(dialing).is_some();
                let is_told = dials && series.workload.in_flight >= DIALING_TOLD_FROM;
                if is_told && network.obstacle().is_none() {
                    conclusions.push(explanation(series, &name));
                }
            }
        }
        conclusions
    }

    fn problems(&self) -> Vec<Problem> {
        let invalid = self.0.iter().filter_map(|network| {
            let reason = network.invalid.as_ref()?;
            Some(Problem {
                affects: Affects::Times,
                message: format!("{}: {reason}", network.name()),
            })
        });
        invalid.collect()
    }
}

/// How the ratio of HTTP/3 to HTTP/2 changes with the link.
fn over_links(networks: &[&OnNetwork]) -> Section {
    let mut columns = vec![Column::text("Workload")];
    columns.extend(
        networks
            .iter()
            .map(|network| Column::verdict(&network.name())),
    );
    let count = networks.first().map_or(0, |network| network.series.len());
    let rows = (0..count).map(|index| {
        let series = networks
            .iter()
            .map(|network| (network, &network.series[index]));
        let mut cells: Vec<String> = Vec::new();
        for (network, series) in series {
            if cells.is_empty() {
                let Series { workload, mode, .. } = series;
                let (title, figure) = (workload.title, workload.figure.name);
                cells.push(format!("{title}, {}: {figure}", mode.name()));
            }
            let comparison = series.http3_to(ClientKind::Http2);
            cells.push(match comparison.filter(|_| network.obstacle().is_none()) {
                Some(comparison) => judged_ratio(&comparison),
                None => "void".to_owned(),
            });
        }
        cells
    });
    Section {
        heading: "HTTP/3 compared with HTTP/2 on each network".to_owned(),
        explanation: vec![
            "The figure of HTTP/3, divided by that of HTTP/2 in the same round, with the 95 % interval."
                .to_owned(),
        ],
        tables: vec![Table {
            caption: "Ratios; above 1 HTTP/3 has more, of times it takes longer".to_owned(),
            columns,
            rows: rows.collect(),
        }],
        ..Section::default()
    }
}

/// A row whose figures differ for another reason than the version of HTTP.
fn no_verdict(name: &str, obstacle: &str) -> Conclusion {
    let (http3, http2) = (ClientKind::Http3.name(), ClientKind::Http2.name());
    let text = format!("{name}: {http3} and {http2} are not compared. {obstacle}");
    Conclusion::new(ConclusionKind::Void, text)
}

/// The ratio with its interval, and what it leaves open.
fn judged_ratio(comparison: &stats::Comparison) -> String {
    let mark = match comparison.difference {
        Difference::Equal => ", equal",
        Difference::Undecided => ", undecided",
        Difference::Smaller | Difference::Larger => "",
    };
    ratio_text(comparison) + mark
}

/// From so many requests in flight on, the connections of a dialing client are worth a sentence.
const DIALING_TOLD_FROM: u32 = 50;

fn verdict(series: &Series, name: &str) -> Conclusion {
    let (verb, object) = match series.workload.figure.unit {
        "MB/s" => ("transfers", "as much content per second as"),
        "ms" => ("takes", "as long as"),
        "µs" => ("has a 99th percentile of latency of", "that of"),
        _ => ("answers", "as many requests as"),
    };
    conclusion(
        &series.measured,
        &Sentence {
            about: name,
            subject: ClientKind::Http3.name(),
            base: ClientKind::Http2.name(),
            figure: &series.workload.figure,
            verb,
            object,
        },
    )
}

/// The result of the cited comparison, which had its own clients.
fn claim(series: &Series, name: &str) -> Option<String> {
    let (http3, http2) = (ClientKind::GoHttp3.name(), ClientKind::GoHttp2.name());
    let figure = &series.workload.figure;
    let comparison = series.measured.compare(http3, http2, figure)?;
    Some(format!(
        "{name}: with Go's clients, HTTP/3 answers {} times as many requests as HTTP/2 ({}). Go's client of HTTP/2 dials up \
         to {} connections, its client of HTTP/3 one.",
        number::significant(comparison.ratio),
        ratio_text(&comparison),
        series.workload.in_flight
    ))
}

/// The effect of a cold client's connections on the comparison.
fn explanation(series: &Series, name: &str) -> Conclusion {
    let text = match series.http3_to(ClientKind::Http2Dialing) {
        Some(comparison) => format!(
            "{name}: compared with a client of HTTP/2 that dials {} connections, HTTP/3 answers {} times as many \
             requests ({}). That is the cost of {} TLS handshakes, and not of the protocol.",
            series.workload.in_flight,
            number::significant(comparison.ratio),
            ratio_text(&comparison),
            series.workload.in_flight
        ),
        None => format!("{name}, dialing: not run."),
    };
    Conclusion::new(ConclusionKind::Figure, text)
}

/// The figures of one network and mode.
fn section_of(network: &OnNetwork, mode: Mode, version: &str) -> Section {
    let series = network.series.iter().filter(|series| series.mode == mode);
    let series: Vec<&Series> = series.collect();
    let cases: Vec<_> = series.iter().map(|series| &series.measured).collect();
    let systems =
        ClientKind::ALL.map(|client| System::run(client.name(), client.version().alpn(), version));
    let heading = format!("{}, {}", network.name(), mode.name());
    let mut explanation = vec![mode_text(mode).to_owned()];
    explanation.extend(congestion_text(network));
    let explanation: Vec<&str> = explanation.iter().map(String::as_str).collect();
    let mut section = section(&heading, &explanation, &cases, &systems, (&[], CELLS));
    for series in series {
        let figures = match (mode, &network.link) {
            (Mode::Warm, None) => vec![series.workload.figure, SERVER_US],
            _ => vec![series.workload.figure],
        };
        let measures = figures
            .iter()
            .map(|figure| measure(&series.measured, figure));
        section.measures.extend(measures);
    }
    if let Some(reason) = network.obstacle() {
        let results = section.measures.iter_mut().flat_map(|it| &mut it.results);
        let of_http3 = results.filter(|result| result.system == ClientKind::Http3.name());
        for comparison in of_http3.flat_map(|result| &mut result.comparisons) {
            let reason = reason.clone();
            comparison.verdict = Verdict::Void { reason };
        }
    }
    section
}

/// The effect of the links on a comparison of TCP with QUIC.
fn congestion_text(network: &OnNetwork) -> Option<String> {
    match (network.tcp.as_str(), network.obstacle()) {
        ("", _) => None,
        (_, None) => Some("TCP and QUIC both use CUBIC.".to_owned()),
        (_, Some(obstacle)) => Some(format!(
            "{obstacle} This kernel has no CUBIC for TCP, which the link asks for: load the module tcp_cubic."
        )),
    }
}

/// Those of the cited comparison, and the handshakes.
const CELLS: &[Cell] = &[
    Cell::MIN,
    Cell::MEAN,
    Cell::P50,
    Cell::P95,
    Cell::P99,
    Cell::P999,
    Cell::MAX,
    Cell::MEGABYTES,
    Cell::REQUESTS,
    Cell::HANDSHAKE,
    Cell::ERRORS,
];

fn mode_text(mode: Mode) -> &'static str {
    match mode {
        Mode::Cold => {
            "Each run is a new client that sends a fixed number of requests. Connecting and its handshakes are part of \
             the time. HTTP/2 and HTTP/3 use one connection, HTTP/1.1 one for each request in flight; the dialing client \
             of HTTP/2 opens so many as well, as some clients do when they are cold."
        }
        Mode::Warm => {
            "The same clients after a second of warm-up. Only handshakes open connections within the measured time: eight \
             clients, each with a connection for each request."
        }
    }
}

fn method(rounds: u32) -> Vec<String> {
    vec![
        format!(
            "One server, Blitz with one core, answers all protocols over TLS 1.3. The generator, blitz load, has one core \
             and is a new process in each run. Each round runs every client once, in balanced orders; there were \
             {rounds} rounds."
        ),
        "Every response is checked: status, protocol, and the length and every byte of contents that do not change. A \
         wrong response ends the measurement."
            .to_owned(),
        crate::load::windows_sentence(),
        "A difference is significant if the exact signed-rank test of Wilcoxon on the ratios of the rounds finds it at \
         4.5 %; with six rounds all six must agree."
            .to_owned(),
        "On loopback the generator uses as much time as the server, so that requests per second compare both ends \
         together. CPU time per request is that of the server alone."
            .to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::workload::WORKLOADS;
    use super::*;
    use crate::load_result::LoadResult;
    use crate::study::{Measured, MeasuredSubject, Run, Watch};

    /// Seven rounds in which a client gets so many responses per second, with a little noise.
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
                ..Run::default()
            }
        });
        runs.collect()
    }

    fn network(link: Option<&str>, rates: [f64; 3]) -> OnNetwork {
        let clients = [
            ClientKind::Http2,
            ClientKind::Http3,
            ClientKind::Http2Dialing,
        ];
        let subjects = clients
            .into_iter()
            .zip(rates)
            .map(|(client, rate)| MeasuredSubject {
                name: client.name().to_owned(),
                runs: rounds(rate),
                void: None,
            });
        let measured = Measured {
            title: WORKLOADS[1].title.to_owned(),
            load: String::new(),
            base: Some(ClientKind::Http2.name().to_owned()),
            subjects: subjects.collect(),
            not_run: Vec::new(),
        };
        OnNetwork {
            link: link.map(|link| link.parse().unwrap()),
            series: vec![Series {
                workload: WORKLOADS[1],
                mode: Mode::Cold,
                measured,
            }],
            tcp: String::new(),
            invalid: None,
        }
    }

    fn report(networks: &[OnNetwork]) -> Report {
        let surroundings = Watch::start().finish("test", [], []);
        Findings::new(networks).report("blitz bench protocols", &surroundings, 7)
    }

    #[test]
    fn the_verdict_is_that_of_the_rounds() {
        let kind = |rates| report(&[network(None, rates)]).conclusions[0].kind;
        assert_eq!(kind([1_000.0, 700.0, 500.0]), ConclusionKind::Worse);
        assert_eq!(kind([1_000.0, 1_400.0, 500.0]), ConclusionKind::Better);
        assert_eq!(kind([1_000.0, 1_000.0, 500.0]), ConclusionKind::Equal);
    }

    #[test]
    fn a_dialing_client_explains_what_its_handshakes_cost() {
        let report = report(&[network(None, [1_000.0, 900.0, 300.0])]);
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
        let report = report(&networks);
        let table = &report.sections.last().unwrap().tables[0];
        assert_eq!((table.columns.len(), table.rows.len()), (3, 1));
        assert!(table.rows[0][2].starts_with("1.8"), "{:?}", table.rows[0]);
    }

    #[test]
    fn different_congestion_controls_leave_no_verdict_between_tcp_and_quic() {
        let networks = ["cubic", "bbr"].map(|tcp| OnNetwork {
            tcp: tcp.to_owned(),
            ..network(Some("rtt=50ms"), [1_000.0, 1_400.0, 300.0])
        });
        let report = report(&networks);
        assert_eq!(report.conclusions[0].kind, ConclusionKind::Better);
        let last = report.conclusions.last().unwrap();
        assert_eq!(last.kind, ConclusionKind::Void);
        assert!(last.text.contains("TCP: bbr, QUIC: cubic"), "{}", last.text);
        let verdict = |index: usize| {
            let results = &report.sections[index].measures[0].results;
            let http3 = results
                .iter()
                .find(|it| it.system == ClientKind::Http3.name());
            http3.unwrap().comparisons[0].verdict.clone()
        };
        assert!(matches!(verdict(0), Verdict::Better { .. }));
        assert!(matches!(verdict(1), Verdict::Void { .. }));
        let cells = &report.sections.last().unwrap().tables[0].rows[0];
        assert!(
            cells[1].starts_with("1.4") && cells[2] == "void",
            "{cells:?}"
        );
    }

    #[test]
    fn an_inaccurate_link_is_a_problem() {
        let mut networks = [network(Some("rtt=50ms"), [1_000.0, 700.0, 500.0])];
        networks[0].invalid = Some("it was late".to_owned());
        assert!(
            report(&networks).problems[0]
                .message
                .contains("it was late")
        );
    }
}
