//! The report of the suite.

use super::SuitePlan;
use super::machine::MachineFacts;
use super::stage::{BLITZ, HAPROXY, NGINX};
use crate::number;
use crate::report::{Conclusion, ConclusionKind, Report, Section, System};
use crate::study::{
    Cell, Figure, Measured, P50, P99, P999, REQUESTS_PER_SECOND, RESIDENT_MIB, SERVER_US, Sentence,
    Surroundings, conclusion, section,
};

const CELLS: &[Cell] = &[
    Cell::REQUESTS,
    Cell::SERVER_US,
    Cell::P50,
    Cell::P90,
    Cell::P99,
    Cell::P999,
    Cell::MAX,
    Cell::RESIDENT,
];

/// Memory is that of the same process in all rounds, which is no repetition: it is in the tables only.
const CAPACITY: &[Figure] = &[REQUESTS_PER_SECOND, SERVER_US];
const LATENCY: &[Figure] = &[P50, P99, P999, SERVER_US];

/// The findings of all runs.
pub(super) struct Findings<'a> {
    pub(super) plan: &'a SuitePlan,
    pub(super) capacity: &'a [Measured],
    pub(super) latency: &'a [Measured],
    pub(super) machine: &'a MachineFacts,
    pub(super) surroundings: &'a Surroundings,
}

impl Findings<'_> {
    pub(super) fn report(&self, command: &str) -> Report {
        let title = format!("The built-in endpoints of Blitz: {} run", self.plan.name);
        let question =
            "How many requests does Blitz answer on this machine, how fast, and at which cost?";
        let mut report = Report::new(&title, question, command);
        report.conclusions = self.conclusions();
        let systems = self.systems();
        let of = |heading: &str, text: &str, cases: &[Measured], figures| {
            let cases: Vec<&Measured> = cases.iter().collect();
            section(heading, &[text], &cases, &systems, (figures, CELLS))
        };
        report.sections.push(of(
            "Capacity",
            "A closed loop: each connection sends its next request when it has the response to the last one. Latency is \
             that of a server at its limit.",
            self.capacity,
            CAPACITY,
        ));
        if !self.latency.is_empty() {
            report.sections.push(of(
                "Latency at a constant rate",
                "An open loop, as wrk2 has it: requests are planned at a constant rate, a share of what the slowest \
                 server of the row answers, or less where the generator would be the bottleneck. Latency counts from the \
                 planned time.",
                self.latency,
                LATENCY,
            ));
        }
        report.sections.push(Section {
            heading: "Machine".to_owned(),
            tables: vec![self.machine.table(self.surroundings)],
            ..Section::default()
        });
        report.method = self.method();
        report
    }

    fn systems(&self) -> Vec<System> {
        let version = |name: &str| {
            let mut versions = self.surroundings.facts.versions.iter();
            let found = versions.find(|version| version.to_lowercase().contains(name));
            found.cloned().unwrap_or_default()
        };
        let blitz = format!("blitz {}", self.surroundings.facts.revision);
        vec![
            System::run(BLITZ, "", &blitz),
            System::run(NGINX, "", &version(NGINX)),
            System::run(HAPROXY, "", &version(HAPROXY)),
        ]
    }

    /// The figures of Blitz in each row, then the comparisons with peers.
    fn conclusions(&self) -> Vec<Conclusion> {
        let all = self.capacity.iter().chain(self.latency);
        let mut conclusions: Vec<Conclusion> = all.filter_map(figures).collect();
        for (cases, figure, verb, object) in [
            (
                self.capacity,
                &SERVER_US,
                "takes",
                "the CPU time per request of",
            ),
            (self.latency, &P99, "has", "the p99 of"),
        ] {
            // `figures` says why a case is void.
            let of_blitz = |case: &&Measured| {
                case.subject(BLITZ)
                    .is_some_and(|blitz| blitz.void.is_none())
            };
            for case in cases.iter().filter(of_blitz) {
                for base in [NGINX, HAPROXY] {
                    let Some(_) = case.subject(base) else {
                        continue;
                    };
                    let sentence = Sentence {
                        about: &case.title,
                        subject: BLITZ,
                        base,
                        figure,
                        verb,
                        object,
                    };
                    conclusions.push(conclusion(case, &sentence));
                }
            }
        }
        conclusions
    }

    fn method(&self) -> Vec<String> {
        let placement = &self.plan.placement;
        let rounds = self.plan.rounds;
        let mut method = vec![
            format!(
                "Servers run on processors {} with {} workers each, the generator, blitz load, on {} with {} threads. Only \
                 one server has load at a time. Each round runs every server once, in balanced orders; there were \
                 {rounds} rounds.",
                placement.server.list, placement.server.count, placement.load.list, placement.load.count
            ),
            "nginx and HAProxy answer /hello with the same content from memory, without logs. Every response is checked."
                .to_owned(),
        ];
        if self.plan.placement.server.count <= self.plan.placement.load.count {
            method.push(
                "Where the generator reaches its limit before the server, requests per second are those of the generator; \
                 the CPU time per request is not affected."
                    .to_owned(),
            );
        }
        method
    }
}

/// The figures of Blitz in a case, as a sentence.
fn figures(case: &Measured) -> Option<Conclusion> {
    let blitz = case.subject(BLITZ)?;
    if let Some(reason) = &blitz.void {
        let text = format!("{}: void. {reason}", case.title);
        return Some(Conclusion::new(ConclusionKind::Void, text));
    }
    let latency = blitz.latency();
    let percentile = |name: &str, quantile| {
        let latency = latency.percentile(quantile)?;
        let text = number::duration(latency.as_nanos() as f64);
        Some(format!(", {name} {text}"))
    };
    let percentiles: Vec<String> = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)]
        .into_iter()
        .filter_map(|(name, quantile)| percentile(name, quantile))
        .collect();
    let text = format!(
        "{}: Blitz answers {} requests/s with {} µs of CPU time each{}; {} MiB of memory.",
        case.title,
        number::count(REQUESTS_PER_SECOND.median(&blitz.runs)?.round() as u64),
        number::significant(SERVER_US.median(&blitz.runs)?),
        percentiles.concat(),
        number::significant(RESIDENT_MIB.median(&blitz.runs)?)
    );
    Some(Conclusion::new(ConclusionKind::Figure, text))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::tests::{measured, subject};
    use super::super::{LOCAL, Placement, length};
    use super::*;
    use crate::study::Watch;
    use crate::tuning::Tuning;

    fn report(capacity: &[Measured], latency: &[Measured]) -> Report {
        let plan = SuitePlan {
            name: "local",
            rows: LOCAL,
            rounds: 6,
            capacity: length(std::time::Duration::from_secs(1)),
            latency: None,
            connections: 100,
            seed: 1,
            placement: Placement::one_each(),
            is_tuned: false,
            is_saved: false,
        };
        let findings = Findings {
            plan: &plan,
            capacity,
            latency,
            machine: &MachineFacts::read(&Tuning::read(Path::new("/"))),
            surroundings: &Watch::start().finish("test", [], []),
        };
        findings.report("blitz bench local")
    }

    #[test]
    fn a_void_row_is_told_once_and_one_without_peers_has_figures() {
        let void = vec![
            subject(BLITZ, 20_000, true),
            subject(NGINX, 10_000, false),
            subject(HAPROXY, 10_000, false),
        ];
        let alone = vec![subject(BLITZ, 20_000, false)];
        let conclusions = report(&[], &[measured(void), measured(alone)]).conclusions;
        let kinds: Vec<ConclusionKind> = conclusions.iter().map(|one| one.kind).collect();
        assert_eq!(kinds, [ConclusionKind::Void, ConclusionKind::Figure]);
    }

    #[test]
    fn the_report_has_figures_comparisons_and_what_was_not_valid() {
        let all = vec![
            subject(BLITZ, 20_000, false),
            subject(NGINX, 10_000, false),
            subject(HAPROXY, 10_000, true),
        ];
        let capacity = [measured(all)];
        let report = report(&capacity, &[]);
        let texts: Vec<&str> = report
            .conclusions
            .iter()
            .map(|one| one.text.as_str())
            .collect();
        assert!(
            texts[0].contains("answers 20,003 requests/s with 50.0 µs"),
            "{texts:?}"
        );
        assert!(texts[1].contains("takes 0.500 times the CPU time per request of nginx"));
        assert_eq!(report.conclusions[1].kind, ConclusionKind::Better);
        assert!(texts[2].contains("haproxy is void"), "{texts:?}");
        let headings: Vec<&str> = report
            .sections
            .iter()
            .map(|section| section.heading.as_str())
            .collect();
        assert_eq!(headings, ["Capacity", "Machine"]);
        assert!(report.html().contains("Remedy"));
    }
}
