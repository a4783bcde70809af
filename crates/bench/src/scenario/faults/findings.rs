//! From runs to a report.

use super::fault::Fault;
use super::measure::{MeasuredFault, PATIENCE, RATE};
use super::{BLITZ, BLITZ_TUNED, CONTENDERS};
use crate::member::{RESPONSE_TAKES, SLOWER_BY};
use crate::not_run::NotRun;
use crate::number;
use crate::peer::members::{MembersProxy, Settings};
use crate::report::{Conclusion, ConclusionKind, Direction, Mark, Report, Section, TimelineSet};
use crate::study::{Cell, Figure, Measured, P99, Run, Sentence, Surroundings, conclusion, section};

const QUESTION: &str = "How many requests fail, and how long do the others take, while one of three members behind a proxy is \
                        stopped, slowed, killed or replaced?";

/// Correct responses.
const GOODPUT: Figure = Figure {
    name: "goodput",
    unit: "correct responses/s",
    better: Direction::Higher,
    of: |run| Some(run.result.requests_per_second()),
};

/// A ratio of counts needs counts above zero.
const FAILED: Figure = Figure {
    name: "failed requests of a run, plus one",
    unit: "requests",
    better: Direction::Lower,
    of: |run| Some(failed(run) as f64 + 1.0),
};

/// The figures with verdicts.
const JUDGED: [(&Figure, &str); 2] = [
    (&FAILED, "the failed requests (plus one) of"),
    (&P99, "the 99th percentile of"),
];

const CELLS: &[Cell] = &[
    Cell {
        title: "goodput/s",
        of: |subject| median(&GOODPUT, &subject.runs),
    },
    Cell {
        title: "failed %",
        of: |subject| {
            let failed: u64 = subject.runs.iter().map(failed).sum();
            let answered: u64 = subject
                .runs
                .iter()
                .map(|run| run.result.counts.completed)
                .sum();
            percent(failed, failed + answered)
        },
    },
    Cell {
        title: "failed of a run",
        of: |subject| {
            let counts: Vec<u64> = subject.runs.iter().map(failed).collect();
            range(&counts)
        },
    },
    Cell::P50,
    Cell::P99,
    Cell::P999,
    Cell::MAX,
    Cell::SERVER_US,
];

/// Failures, wrong responses, and requests without a response at the end.
fn failed(run: &Run) -> u64 {
    let counts = &run.result.counts;
    counts.errors().saturating_add(counts.unfinished)
}

fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => number::NONE.to_owned(),
        _ => number::fixed(part as f64 / whole as f64 * 100.0, 3),
    }
}

/// The least and the most.
fn range(counts: &[u64]) -> String {
    match (counts.iter().min(), counts.iter().max()) {
        (Some(least), Some(most)) if least == most => number::count(*least),
        (Some(least), Some(most)) => {
            format!("{} to {}", number::count(*least), number::count(*most))
        }
        _ => number::NONE.to_owned(),
    }
}

fn median(figure: &Figure, runs: &[Run]) -> String {
    let median = figure.median(runs);
    median.map_or(number::NONE.to_owned(), number::significant)
}

/// The findings of all faults.
pub(super) struct Findings<'a>(&'a [MeasuredFault]);

impl<'a> Findings<'a> {
    pub(super) fn new(all: &'a [MeasuredFault]) -> Findings<'a> {
        Findings(all)
    }

    pub(super) fn report(&self, command: &str, surroundings: &Surroundings, rounds: u32) -> Report {
        let title = "A member fails: goodput, errors and p99 behind four proxies";
        let mut report = Report::new(title, QUESTION, command);
        report.sections = self.0.iter().map(section_of).collect();
        report.conclusions = self.0.iter().flat_map(conclusions).collect();
        report
            .conclusions
            .extend(self.0.first().map(not_run).into_iter().flatten());
        report.method = method(rounds);
        surroundings.describe(&mut report);
        report
    }
}

fn section_of(measured: &MeasuredFault) -> Section {
    let fault = measured.fault;
    let mut section = section(
        fault.title(),
        &[fault.explanation()],
        &[&measured.case],
        &measured.systems,
        (&[GOODPUT, FAILED, P99], CELLS),
    );
    section.timelines.push(TimelineSet {
        title: format!("{}: the first round", fault.title()),
        explanation: String::new(),
        timelines: measured.timelines.clone(),
        marks: marks(measured),
    });
    section
}

fn marks(measured: &MeasuredFault) -> Vec<Mark> {
    let (fault, schedule) = (measured.fault, measured.schedule);
    let mut marks = vec![Mark {
        at_s: schedule.fault_at().as_secs_f64(),
        label: fault.name().to_owned(),
    }];
    marks.extend(schedule.repair_at(fault).map(|at| {
        Mark {
            at_s: at.as_secs_f64(),
            label: if fault == Fault::Replaced {
                "new process"
            } else {
                "well again"
            }
            .to_owned(),
        }
    }));
    marks
}

/// Blitz beside the best peer of the same settings, in errors and in p99.
fn conclusions(measured: &MeasuredFault) -> Vec<Conclusion> {
    let mut all = Vec::new();
    for (subject, settings) in [(BLITZ_TUNED, Settings::Tuned), (BLITZ, Settings::Default)] {
        if measured.case.subject(subject).is_none() {
            continue;
        }
        for (figure, object) in JUDGED {
            let about = format!("{}, {}", measured.fault.title(), figure.name);
            let Some(peer) = best_peer(&measured.case, settings, figure) else {
                let text = format!("{about}: {subject} has no peer to be compared with.");
                all.push(Conclusion::new(ConclusionKind::Void, text));
                continue;
            };
            all.push(verdict(
                &measured.case,
                (subject, peer),
                (figure, object),
                &about,
            ));
        }
    }
    // One of them might be the best.
    let void = measured.case.subjects.iter().filter_map(|subject| {
        let reason = subject.void.as_ref()?;
        let text = format!(
            "{}: {} is void. {reason}",
            measured.fault.title(),
            subject.name
        );
        Some(Conclusion::new(ConclusionKind::Void, text))
    });
    all.extend(void);
    all
}

/// The peer with the best median.
fn best_peer(case: &Measured, settings: Settings, figure: &Figure) -> Option<&'static str> {
    let peers = CONTENDERS
        .iter()
        .filter(|it| it.proxy != MembersProxy::Blitz && it.settings == settings);
    let medians = peers.filter_map(|peer| Some((peer.name, case.median(peer.name, figure)?)));
    let (name, _) = medians.min_by(|(_, a), (_, b)| a.total_cmp(b))?;
    Some(name)
}

/// A verdict; the medians alone if there are too few rounds for one.
fn verdict(
    case: &Measured,
    (subject, base): (&str, &str),
    (figure, object): (&Figure, &str),
    about: &str,
) -> Conclusion {
    let medians = (case.median(subject, figure), case.median(base, figure));
    if case.compare(subject, base, figure).is_none()
        && let (Some(own), Some(others)) = medians
    {
        let (own, others) = (number::significant(own), number::significant(others));
        let unit = figure.unit;
        let text = format!("{about}: {subject} has {own} {unit}, {base} {others} {unit}.");
        return Conclusion::new(ConclusionKind::Figure, text);
    }
    let sentence = Sentence {
        about,
        subject,
        base,
        figure,
        verb: "has",
        object,
    };
    conclusion(case, &sentence)
}

fn not_run(measured: &MeasuredFault) -> Vec<Conclusion> {
    let not_run = measured.case.not_run.iter();
    let conclusions = not_run.map(|NotRun { name, reason }| {
        Conclusion::new(
            ConclusionKind::NotRun,
            format!("{name} was not run: {reason}."),
        )
    });
    conclusions.collect()
}

fn method(rounds: u32) -> Vec<String> {
    let takes = RESPONSE_TAKES.as_millis();
    let slower = SLOWER_BY.as_millis();
    vec![
        format!(
            "Each run starts three members, which respond after {takes} ms, and a proxy with one worker before them. The \
             proxy has a core of its own; members and generator share the other one. Every fault is of the first member; a \
             slow one responds after {slower} ms more. Each round runs every proxy once, in balanced orders; there were \
             {rounds} rounds."
        ),
        format!(
            "The load is an open loop of {RATE} GET requests in a second, and latency counts from the planned start of a \
             request. A request has failed if its response is wrong, if there is none within {} s, or if there is none at \
             the end.",
            PATIENCE.as_secs()
        ),
        "One is added to the failed requests of each run, so that two proxies without any have the ratio 1. Blitz is \
         compared with the peer that has the best median of the figure: blitz-tuned with the tuned peers, blitz with their \
         defaults."
            .to_owned(),
        "All proxies keep connections to members. Tuned ones give up a connection after 500 ms and a response after 1 s, \
         repeat requests on other members, and check or eject members as their documentation recommends; the configurations \
         are in the report."
            .to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Recorder;
    use crate::load_result::LoadResult;
    use crate::scenario::faults::fault::Schedule;
    use crate::study::MeasuredSubject;

    /// Runs with so many failures, and a p99 of about so many milliseconds.
    fn subject(name: &str, failures: &[u64], milliseconds: u64) -> MeasuredSubject {
        let runs = failures.iter().enumerate().map(|(round, &failures)| {
            let mut result = LoadResult {
                duration_s: 8.0,
                ..LoadResult::default()
            };
            result.counts.completed = 3_200 - failures;
            result
                .counts
                .failed
                .insert("timed out".to_owned(), failures);
            let mut recorder = Recorder::new();
            for _ in 0..3_200 {
                recorder.record(
                    Duration::from_millis(milliseconds) + Duration::from_micros(round as u64),
                );
            }
            result.times.latency = recorder.distribution();
            Run {
                result,
                ..Run::default()
            }
        });
        MeasuredSubject {
            name: name.to_owned(),
            runs: runs.collect(),
            void: None,
        }
    }

    fn measured(subjects: Vec<MeasuredSubject>) -> MeasuredFault {
        MeasuredFault {
            fault: Fault::Stopped,
            schedule: Schedule::new(Duration::from_secs(1), Duration::from_secs(8)),
            systems: Vec::new(),
            timelines: Vec::new(),
            case: Measured {
                title: Fault::Stopped.title().to_owned(),
                load: String::new(),
                base: Some(BLITZ_TUNED.to_owned()),
                subjects,
                not_run: Vec::new(),
            },
        }
    }

    #[test]
    fn blitz_is_compared_with_the_best_peer_of_the_same_settings() {
        use ConclusionKind::{Better, Equal, Worse};
        let measured = measured(vec![
            subject(BLITZ, &[20; 7], 900),
            subject(BLITZ_TUNED, &[0; 7], 10),
            subject("nginx", &[400; 7], 2_000),
            subject("nginx-tuned", &[10; 7], 30),
            subject("envoy-tuned", &[0; 7], 40),
            subject("envoy", &[300, 310, 290, 305, 300, 299, 301], 800),
        ]);
        let all = conclusions(&measured);
        let kinds: Vec<ConclusionKind> = all.iter().map(|it| it.kind).collect();
        assert_eq!(kinds, [Equal, Better, Better, Worse], "{all:?}");
        assert!(
            all[0].text.contains("of envoy-tuned (1.00 to 1.00)"),
            "{}",
            all[0].text
        );
        assert!(all[1].text.contains("of nginx-tuned"), "{}", all[1].text);
        assert!(all[3].text.contains("of envoy "), "{}", all[3].text);
    }

    #[test]
    fn one_round_has_figures_and_no_verdicts() {
        let measured = measured(vec![
            subject(BLITZ_TUNED, &[3], 10),
            subject("haproxy-tuned", &[0], 10),
        ]);
        let all = conclusions(&measured);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].kind, ConclusionKind::Figure);
        assert!(
            all[0]
                .text
                .ends_with("blitz-tuned has 4.00 requests, haproxy-tuned 1.00 requests."),
            "{}",
            all[0].text
        );
    }

    #[test]
    fn void_systems_are_named_and_are_no_peers() {
        let mut measured = measured(vec![
            subject(BLITZ_TUNED, &[0; 7], 10),
            subject("nginx-tuned", &[0; 7], 5),
            subject("envoy-tuned", &[3; 7], 40),
        ]);
        measured.case.subjects[1].void = Some("It was late.".to_owned());
        let all = conclusions(&measured);
        assert_eq!(all.len(), 3, "{all:?}");
        assert!(
            all[..2].iter().all(|it| it.text.contains("envoy-tuned")),
            "{all:?}"
        );
        assert_eq!(all[2].kind, ConclusionKind::Void);
        measured.case.subjects[2].void = Some("It was late.".to_owned());
        let all = conclusions(&measured);
        assert!(
            all.iter().all(|it| it.kind == ConclusionKind::Void),
            "{all:?}"
        );
        assert!(all[0].text.contains("no peer"), "{all:?}");
    }

    #[test]
    fn requests_without_a_response_at_the_end_have_failed() {
        let mut one = subject(BLITZ, &[3], 10);
        one.runs[0].result.counts.unfinished = 4;
        assert_eq!(failed(&one.runs[0]), 7);
        assert_eq!(range(&[7, 3, 1_200]), "3 to 1,200");
        assert_eq!(
            (range(&[2, 2]), range(&[])),
            ("2".to_owned(), number::NONE.to_owned())
        );
        assert_eq!(percent(1, 400), "0.250");
    }

    #[test]
    fn marks_are_the_moments_of_the_fault() {
        let marks = marks(&measured(Vec::new()));
        let at: Vec<f64> = marks.iter().map(|mark| mark.at_s).collect();
        assert_eq!(at, [2.0, 6.0]);
    }
}
