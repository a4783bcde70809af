//! From runs to a report.

use super::cases::CaseGroup;
use super::connections::Connections;
use super::in_process::{CallTimes, InProcess};
use super::{ACTIX, AXUM, BLITZ_EPOLL, BLITZ_URING, LIMIT, SYSTEMS};
use crate::not_run::NotRun;
use crate::number;
use crate::report::{
    Column, Conclusion, ConclusionKind, Direction, Measure, MeasureResult, Report, Section, System,
    Table,
};
use crate::stats::Median;
use crate::study::{
    Cell, Figure, Measured, P50, P99, P999, REQUESTS_PER_SECOND, SERVER_US, Sentence, Surroundings,
    conclusion, section,
};

const QUESTION: &str = "How fast does the public interface of the framework answer, and at which cost, compared with \
                        other frameworks and with a server that parses nothing?";

/// The 99th percentile under load has to be less than so many microseconds.
const P99_REQUIRED_US: f64 = 2_000.0;

const CELLS: &[Cell] = &[
    Cell::REQUESTS,
    Cell::SERVER_US,
    Cell::RESIDENT,
    Cell::P50,
    Cell::P99,
    Cell::P999,
    Cell::MAX,
    Cell::ERRORS,
];

/// The parts whose cost is compared in words.
const COMPARED: [CaseGroup; 4] = [
    CaseGroup::Latency,
    CaseGroup::Requests,
    CaseGroup::One,
    CaseGroup::Churn,
];

/// The findings of all runs.
pub(super) struct Findings {
    pub(super) measured: Vec<(CaseGroup, Measured)>,
    pub(super) in_process: Option<InProcess>,
    pub(super) connections: Option<Connections>,
    pub(super) not_run: Vec<NotRun>,
    /// On systems that another program stands in for.
    pub(super) note: Option<String>,
    pub(super) rounds: u32,
}

impl Findings {
    pub(super) fn report(&self, command: &str, surroundings: &Surroundings) -> Report {
        let title = "A server framework under load";
        let mut report = Report::new(title, QUESTION, command);
        let version = format!("blitz {}", surroundings.facts.revision);
        for group in CaseGroup::ALL {
            let cases = self.measured.iter().filter(|(known, _)| *known == group);
            let cases: Vec<&Measured> = cases.map(|(_, case)| case).collect();
            if !cases.is_empty() {
                report.sections.push(section_of(group, &cases, &version));
            }
        }
        report
            .sections
            .extend(self.in_process.as_ref().map(parser_section));
        report
            .sections
            .extend(self.connections.as_ref().map(descriptor_section));
        report.conclusions = self.conclusions();
        report.method = self.method();
        surroundings.describe(&mut report);
        report
    }

    fn conclusions(&self) -> Vec<Conclusion> {
        let mut conclusions = Vec::new();
        for (group, case) in &self.measured {
            if *group == CaseGroup::Latency {
                let ours = [BLITZ_URING, BLITZ_EPOLL].into_iter();
                conclusions.extend(ours.filter_map(|name| requirement(case, name)));
            }
            if COMPARED.contains(group) {
                conclusions.extend(costs(case));
            }
        }
        let not_run = self.not_run.iter().map(|NotRun { name, reason }| {
            Conclusion::new(ConclusionKind::NotRun, format!("{name}: {reason}."))
        });
        conclusions.extend(not_run);
        conclusions
    }

    fn method(&self) -> Vec<String> {
        let mut method = vec![
            format!(
                "Every server has one worker, on a processor of its own, and answers GET /hello with 13 bytes through its \
                 public interface. Blitz is the example hello_world. The generator, blitz load, is a new process in each \
                 run. Each round runs every server once, in balanced orders; there were {} rounds.",
                self.rounds
            ),
            "The row `limit` is a ring that answers every receive with the bytes of the first server and parses nothing: \
             what kernel and loopback take."
                .to_owned(),
            "Every response is checked, and a wrong one ends the measurement. One generating core often ends before a \
             fast server does: CPU time per request then compares servers, and requests per second compare what is left \
             for the generator."
                .to_owned(),
        ];
        method.extend(
            self.note
                .iter()
                .map(|note| format!("Measured with another program: {note}.")),
        );
        method
    }
}

fn section_of(group: CaseGroup, cases: &[&Measured], version: &str) -> Section {
    let systems: Vec<System> = SYSTEMS
        .iter()
        .map(|system| {
            let version = match system.name {
                AXUM | ACTIX => "benchmarks/frameworks/Cargo.lock",
                _ => version,
            };
            System::run(system.name, "http/1.1", version)
        })
        .collect();
    let figures: &[Figure] = match group {
        CaseGroup::Latency => &[P50, P99, P999, REQUESTS_PER_SECOND, SERVER_US],
        CaseGroup::One => &[P50, REQUESTS_PER_SECOND, SERVER_US],
        _ => &[REQUESTS_PER_SECOND, SERVER_US],
    };
    section(
        group.heading(),
        &[group.explanation()],
        cases,
        &systems,
        (figures, CELLS),
    )
}

/// Whether the latency of a server is within the requirement.
fn requirement(case: &Measured, name: &str) -> Option<Conclusion> {
    let subject = case
        .subject(name)
        .filter(|subject| subject.void.is_none())?;
    let p99_us = P99.median(&subject.runs)?;
    let kind = match p99_us < P99_REQUIRED_US {
        true => ConclusionKind::Better,
        false => ConclusionKind::Worse,
    };
    let text = format!(
        "{}: the 99th percentile of {name} is {}; less than {} is required.",
        case.title,
        number::duration(p99_us * 1e3),
        number::duration(P99_REQUIRED_US * 1e3)
    );
    Some(Conclusion::new(kind, text))
}

/// The CPU time of Blitz beside that of the others that were run.
fn costs(case: &Measured) -> Vec<Conclusion> {
    let bases = [AXUM, ACTIX, LIMIT].into_iter();
    let bases = bases.filter(|base| case.subject(base).is_some());
    let sentence = |base| {
        conclusion(
            case,
            &Sentence {
                about: &case.title,
                subject: BLITZ_URING,
                base,
                figure: &SERVER_US,
                verb: "uses",
                object: "the CPU time per request of",
            },
        )
    };
    bases.map(sentence).collect()
}

fn parser_section(in_process: &InProcess) -> Section {
    let name = "blitz";
    let mut section = Section {
        heading: CaseGroup::Parser.heading().to_owned(),
        explanation: vec![CaseGroup::Parser.explanation().to_owned()],
        ..Section::default()
    };
    match in_process {
        InProcess::NotRun(reason) => {
            section
                .systems
                .push(System::not_run(name, "in process", reason));
        }
        InProcess::Run(runs) => {
            section.systems.push(System::run(name, "in process", ""));
            let works = runs.first().map_or(0, Vec::len);
            let of = |index: usize, value: fn(&CallTimes) -> f64| -> Vec<f64> {
                let times = runs.iter().filter_map(|run| run.get(index));
                times.map(value).collect()
            };
            let measures = (0..works).map(|index| {
                let CallTimes {
                    name: work,
                    calls_per_batch,
                    ..
                } = &runs[0][index];
                Measure {
                    name: format!("{work}: p50"),
                    unit: "ns".to_owned(),
                    better: Direction::Lower,
                    explanation: format!("Batches of {calls_per_batch} calls."),
                    results: vec![MeasureResult {
                        system: name.to_owned(),
                        repetitions: of(index, |times| times.p50),
                        ..MeasureResult::default()
                    }],
                }
            });
            section.measures = measures.collect();
            let rows = (0..works).map(|index| {
                let median = |value| {
                    let median = Median::of(of(index, value));
                    median.map_or(number::NONE.to_owned(), |median| {
                        number::significant(median.value)
                    })
                };
                vec![
                    runs[0][index].name.clone(),
                    number::count(runs[0][index].batches),
                    median(|times| times.min),
                    median(|times| times.p50),
                    median(|times| times.p99),
                ]
            });
            section.tables.push(Table {
                caption: "Nanoseconds of one call".to_owned(),
                columns: vec![
                    Column::text("Work"),
                    Column::number("batches of the first run"),
                    Column::number("min"),
                    Column::number("p50"),
                    Column::number("p99"),
                ],
                rows: rows.collect(),
            });
        }
    }
    section
}

fn descriptor_section(connections: &Connections) -> Section {
    let limits = &connections.limits;
    let text = |limit: Option<u64>| limit.map_or("none".to_owned(), number::count);
    let rows = connections.accepted.iter().map(|accepted| {
        vec![
            accepted.name.to_owned(),
            number::count(accepted.connections.into()),
            accepted.error.clone().unwrap_or_default(),
        ]
    });
    Section {
        heading: CaseGroup::Descriptors.heading().to_owned(),
        explanation: vec![
            CaseGroup::Descriptors.explanation().to_owned(),
            format!(
                "Limit of this process: {} (soft), {} (hard). Wanted: {} connections.",
                text(limits.soft),
                text(limits.hard),
                number::count(limits.wanted.into())
            ),
        ],
        tables: vec![Table {
            caption: "Connections that were open at the same time, each with its response"
                .to_owned(),
            columns: vec![
                Column::text("System"),
                Column::number("connections"),
                Column::text("the next one"),
            ],
            rows: rows.collect(),
        }],
        ..Section::default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Recorder;
    use crate::study::{MeasuredSubject, Run, Watch};

    fn subject(name: &str, latency: Duration, server_us: f64) -> MeasuredSubject {
        let run = |round: u32| {
            let mut recorder = Recorder::new();
            for _ in 0..2_000 {
                recorder.record(latency);
            }
            let mut run = Run {
                server_us: server_us + f64::from(round) * 0.01,
                ..Run::default()
            };
            run.result.duration_s = 1.0;
            run.result.counts.completed = 2_000;
            run.result.times.latency = recorder.distribution();
            run
        };
        MeasuredSubject {
            name: name.to_owned(),
            runs: (0..7).map(run).collect(),
            void: None,
        }
    }

    fn findings(subjects: Vec<MeasuredSubject>) -> Findings {
        let case = Measured {
            title: "100 concurrent requests".to_owned(),
            load: "GET /hello.".to_owned(),
            base: Some(AXUM.to_owned()),
            subjects,
            not_run: Vec::new(),
        };
        Findings {
            measured: vec![(CaseGroup::Latency, case)],
            in_process: None,
            connections: None,
            not_run: Vec::new(),
            note: None,
            rounds: 7,
        }
    }

    fn report(findings: &Findings) -> Report {
        let surroundings = Watch::start().finish("test", [], []);
        findings.report("blitz bench framework", &surroundings)
    }

    #[test]
    fn the_requirement_is_met_or_missed_by_the_99th_percentile() {
        let kind = |milliseconds| {
            let latency = Duration::from_millis(milliseconds);
            let findings = findings(vec![subject(BLITZ_URING, latency, 5.0)]);
            report(&findings).conclusions[0].kind
        };
        assert_eq!(kind(1), ConclusionKind::Better);
        assert_eq!(kind(3), ConclusionKind::Worse);
    }

    #[test]
    fn costs_are_compared_with_the_frameworks_that_ran() {
        let latency = Duration::from_millis(1);
        let mut findings = findings(vec![
            subject(BLITZ_URING, latency, 5.0),
            subject(AXUM, latency, 10.0),
        ]);
        findings.not_run.push(NotRun {
            name: ACTIX.to_owned(),
            reason: "there is no actix_hello in examples".to_owned(),
        });
        let conclusions = report(&findings).conclusions;
        let texts: Vec<&str> = conclusions.iter().map(|one| one.text.as_str()).collect();
        assert_eq!(conclusions.len(), 3, "{texts:?}");
        assert!(texts[1].contains("0.501 times"), "{texts:?}");
        assert_eq!(conclusions[2].kind, ConclusionKind::NotRun);
    }

    #[test]
    fn times_in_process_are_medians_of_the_processes() {
        let times = |p50| CallTimes {
            name: "router hit, 6 routes".to_owned(),
            calls_per_batch: 600,
            batches: 1_000,
            min: 10.0,
            p50,
            p99: 99.0,
        };
        let runs = [20.0, 30.0, 25.0].map(|p50| vec![times(p50)]);
        let section = parser_section(&InProcess::Run(runs.to_vec()));
        assert_eq!(section.tables[0].rows[0][3], "25.0");
        assert_eq!(section.measures[0].results[0].median(), Some(25.0));
        let missing = parser_section(&InProcess::NotRun("it is not there".to_owned()));
        assert!(missing.tables.is_empty() && missing.systems.len() == 1);
    }
}
