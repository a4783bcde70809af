//! From runs to a report.

use super::{BLITZ, ENTRY, MeasuredProfile};
use crate::load_result::{Affects, Problem};
use crate::not_run::NotRun;
use crate::report::{Conclusion, ConclusionKind, Report, Section};
use crate::study::{
    Cell, MEGABYTES_PER_SECOND, REQUESTS_PER_SECOND, RESIDENT_MIB, SERVER_US, Sentence,
    Surroundings, conclusion, section,
};

const QUESTION: &str = "How many requests of HttpArena's infrastructure league does each server answer, and at which cost?";

const CELLS: &[Cell] = &[
    Cell::REQUESTS,
    Cell::SERVER_US,
    Cell::MEGABYTES,
    Cell::RESIDENT,
];

/// The findings of all runs.
pub(super) struct Findings<'a>(&'a [MeasuredProfile]);

impl<'a> Findings<'a> {
    pub(super) fn new(all: &'a [MeasuredProfile]) -> Findings<'a> {
        Findings(all)
    }

    pub(super) fn report(&self, command: &str, surroundings: &Surroundings, rounds: u32) -> Report {
        let title = "The requests of HttpArena's infrastructure league";
        let mut report = Report::new(title, QUESTION, command);
        report.sections = self.0.iter().map(section_of).collect();
        report.conclusions = self.0.iter().flat_map(conclusions).collect();
        report.problems = self.0.iter().flat_map(problems).collect();
        report.method = method(rounds);
        surroundings.describe(&mut report);
        report
    }
}

fn section_of(measured: &MeasuredProfile) -> Section {
    let figures = [
        REQUESTS_PER_SECOND,
        SERVER_US,
        MEGABYTES_PER_SECOND,
        RESIDENT_MIB,
    ];
    let words = format!("{}. A closed loop.", measured.case.load);
    let mut section = section(
        &format!("{} ({})", measured.profile.title, measured.profile.name()),
        &[&words],
        &[&measured.case],
        &measured.systems,
        (&figures, CELLS),
    );
    // In a closed loop latency is the inverse of the throughput.
    section.latencies.clear();
    section
}

/// How Blitz compares with every other server: its cost, which does not depend on the generator. Then what was not run.
fn conclusions(measured: &MeasuredProfile) -> Vec<Conclusion> {
    let case = &measured.case;
    let has_blitz = case.subject(BLITZ).is_some();
    let names = case.subjects.iter().map(|subject| subject.name.as_str());
    let others = names.filter(|name| has_blitz && ![BLITZ, ENTRY].contains(name));
    let compared = others.map(|name| {
        conclusion(
            case,
            &Sentence {
                about: measured.profile.title,
                subject: BLITZ,
                base: name,
                figure: &SERVER_US,
                verb: "takes",
                object: "the CPU time per request of",
            },
        )
    });
    let not_run = case.not_run.iter().map(|NotRun { name, reason }| {
        let text = format!("{}: {name} was not run: {reason}.", measured.profile.title);
        Conclusion::new(ConclusionKind::NotRun, text)
    });
    compared.chain(not_run).collect()
}

fn problems(measured: &MeasuredProfile) -> Vec<Problem> {
    let failures = measured.case.failures().map(|(name, evidence)| Problem {
        affects: Affects::Everything,
        message: format!("{}, {name}: {evidence}", measured.profile.title),
    });
    failures.collect()
}

fn method(rounds: u32) -> Vec<String> {
    vec![
        format!(
            "Every server has one worker on a core of its own; the generator has the other core and is a new process in each \
             run: wrk where requests are pipelined, chunked or end their connection, blitz load otherwise. Each round runs \
             every server once, in balanced orders; there were {rounds} rounds."
        ),
        "Before a server is measured it is verified: status, media type and every byte of each response, requests in \
         pieces, and a missing file. A server with a wrong response is not run. blitz load checks every byte again during \
         the run, wrk the status."
            .to_owned(),
        "Blitz, nginx, H2O and Caddy are configured, not programmed: sums and JSON are fixed texts and files with the \
         results of these requests. blitz-entry is the program of boards/httparena, which parses, adds and serializes, and \
         is verified with other numbers too; it is shown beside the others and is no part of the verdicts. Texts have a file \
         in gzip beside them."
            .to_owned(),
        "The board has 64 cores and up to 6,800 connections, and its own files; these have the same names and types, and \
         about the same sizes. Its figures cannot be compared with these."
            .to_owned(),
    ]
}
