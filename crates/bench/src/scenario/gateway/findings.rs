//! From runs to a report.

use std::time::Duration;

use super::{BLITZ, FILE, JWT, OnProtocol, SECRET};
use crate::load_result::{Affects, Problem};
use crate::not_run::NotRun;
use crate::number;
use crate::report::{Conclusion, ConclusionKind, Report, Section};
use crate::study::{
    Cell, Measured, REQUESTS_PER_SECOND, SERVER_US, Sentence, Surroundings, conclusion, section,
};

const QUESTION: &str = "How many health checks does each server answer, how fast, and at which cost, over each version of \
                        HTTP and with few and many connections?";

/// The limit of the share of fast responses.
const FAST: Duration = Duration::from_millis(4);

const CELLS: &[Cell] = &[
    Cell::REQUESTS,
    Cell::MEAN,
    Cell::P50,
    Cell::P90,
    Cell::P99,
    Cell::P999,
    Cell {
        title: "within 4 ms",
        of: |subject| {
            let share = subject.latency().share_within(FAST);
            share.map_or(number::NONE.to_owned(), |share| {
                format!("{} %", number::fixed(share * 100.0, 2))
            })
        },
    },
    Cell::SERVER_US,
    Cell::RESIDENT,
];

/// The findings of all runs.
pub(super) struct Findings<'a>(&'a [OnProtocol]);

impl<'a> Findings<'a> {
    pub(super) fn new(all: &'a [OnProtocol]) -> Findings<'a> {
        Findings(all)
    }

    pub(super) fn report(&self, command: &str, surroundings: &Surroundings, rounds: u32) -> Report {
        let title = "A gateway's health endpoint over HTTP/1.1, HTTP/2 and HTTP/3";
        let mut report = Report::new(title, QUESTION, command);
        report.sections = self.0.iter().map(section_of).collect();
        report.conclusions = self.0.iter().flat_map(conclusions).collect();
        report.problems = self.0.iter().flat_map(problems).collect();
        report.method = method(rounds);
        surroundings.describe(&mut report);
        report
    }
}

fn section_of(on: &OnProtocol) -> Section {
    let cases: Vec<&Measured> = on.cases.iter().collect();
    section(
        on.protocol.title,
        &[
            "The load is a closed loop: every stream sends its next request when it has the response to the last one. \
             A response within 4 ms counts from the planned start of its request.",
        ],
        &cases,
        &on.systems,
        (&[REQUESTS_PER_SECOND, SERVER_US], CELLS),
    )
}

/// How Blitz compares with every other system: its cost, which does not depend on the generator. Then what was not run.
fn conclusions(on: &OnProtocol) -> Vec<Conclusion> {
    let title = on.protocol.title;
    let mut all: Vec<Conclusion> = on
        .cases
        .iter()
        .flat_map(|case| verdicts(title, case))
        .collect();
    let not_run = on.cases.first().map_or(&[][..], |case| &case.not_run);
    all.extend(not_run.iter().map(|NotRun { name, reason }| {
        let text = format!("{title}: {name} was not run: {reason}.");
        Conclusion::new(ConclusionKind::NotRun, text)
    }));
    all
}

fn verdicts(title: &str, case: &Measured) -> Vec<Conclusion> {
    let names = case.subjects.iter().map(|subject| subject.name.as_str());
    let pairs = names.filter_map(|name| match name {
        BLITZ | FILE => None,
        SECRET => Some((SECRET, BLITZ)),
        JWT => Some((JWT, FILE)),
        other => Some((BLITZ, other)),
    });
    let pairs = pairs.filter(|(one, other)| case.subject(one).and(case.subject(other)).is_some());
    let compared = pairs.map(|(subject, base)| {
        conclusion(
            case,
            &Sentence {
                about: &format!("{title}, {}", case.title),
                subject,
                base,
                figure: &SERVER_US,
                verb: "takes",
                object: "the CPU time per request of",
            },
        )
    });
    compared.collect()
}

fn problems(on: &OnProtocol) -> Vec<Problem> {
    let of_case = |case: &Measured| -> Vec<Problem> {
        let failures = case.failures().map(|(name, evidence)| Problem {
            affects: Affects::Everything,
            message: format!("{}, {}, {name}: {evidence}", on.protocol.title, case.title),
        });
        failures.collect()
    };
    on.cases.iter().flat_map(of_case).collect()
}

fn method(rounds: u32) -> Vec<String> {
    vec![
        format!(
            "Every server has one worker on a core of its own; the generator, blitz load, has the other core and is a new \
             process in each run. Each round runs every server once, in balanced orders; there were {rounds} rounds."
        ),
        "Every response is checked: status, protocol, length and every byte. A server with a wrong response is void, and \
         the report has a problem."
            .to_owned(),
        "blitz-secret has JWT_SECRET in its environment, which the health endpoint does not depend on. blitz-file has the \
         response in a file, and blitz-jwt the same behind jwt; its requests have one valid token (HS256), which is \
         verified once. Before the rounds a request without a token to a protected path of both was 401."
            .to_owned(),
        "Fast servers are bounded by the generator, so that requests per second compare both ends together. CPU time per \
         request is that of the server alone."
            .to_owned(),
    ]
}
