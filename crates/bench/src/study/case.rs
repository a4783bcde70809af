//! A case: one load, and the subjects that it runs on.

use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};

use super::figure::Figure;
use super::program::Program;
use super::run::{Generator, Run, Watched};
use crate::not_run::NotRun;
use crate::stats::{self, compare, order};

/// How often a run of [`Case::run_each`] that proves nothing is tried.
const ATTEMPTS_MAX: u32 = 3;

/// The beginning of the reason why a subject is void whose responses were wrong.
const FAILED: &str = "It failed: ";

/// One load on several subjects.
#[derive(Debug)]
pub(crate) struct Case {
    /// The load, as a noun: `100 connections`.
    pub(crate) title: String,
    /// The load in words: requests, connections, length.
    pub(crate) load: String,
    pub(crate) subjects: Vec<Subject>,
    /// The name of the subject that the others are compared with.
    pub(crate) base: Option<String>,
    /// Subjects that cannot run here.
    pub(crate) not_run: Vec<NotRun>,
}

/// The subject of a load.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    /// Unique in its case.
    pub(crate) name: String,
    pub(crate) load: Load,
    pub(crate) watched: Watched,
    /// Failed requests are a result, and end nothing.
    pub(crate) may_fail: bool,
}

/// The work of one process of a load generator.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    pub(crate) program: Program,
    /// `http://` or `https://`, and the address of the server.
    pub(crate) base: String,
    pub(crate) requests: Requests,
    pub(crate) version: Version,
    pub(crate) connections: u32,
    /// Requests in flight on each connection.
    pub(crate) streams: u32,
    pub(crate) length: Length,
    /// Requests per second of an open loop; `None` for a closed loop.
    pub(crate) rate: Option<f64>,
    /// Its processors, in the form of taskset.
    pub(crate) cores: &'static str,
    pub(crate) threads: u32,
    /// Other flags of `blitz load`.
    pub(crate) flags: Vec<String>,
}

/// The requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Requests {
    /// One path again and again.
    Path(String),
    /// The lines of a request file.
    Mix(Vec<String>),
}

/// A version of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    Http1,
    Http2,
    Http3,
}

/// The rule that ends a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// So many requests of a new client: no warm-up, and handshakes are part of the time.
    Requests(u32),
    /// So long, after a warm-up.
    Time {
        measured: Duration,
        warm_up: Duration,
    },
    /// So long after a warm-up, and until there are so many responses, but no longer than the longest time: a run that ends
    /// with it proves nothing.
    AtLeast {
        measured: Duration,
        warm_up: Duration,
        responses: u32,
        longest: Duration,
    },
}

/// A case with the runs of its subjects.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) title: String,
    pub(crate) load: String,
    pub(crate) base: Option<String>,
    pub(crate) subjects: Vec<MeasuredSubject>,
    pub(crate) not_run: Vec<NotRun>,
}

/// A subject with its runs.
#[derive(Debug)]
pub(crate) struct MeasuredSubject {
    pub(crate) name: String,
    /// In the order of the rounds.
    pub(crate) runs: Vec<Run>,
    /// Why its figures prove nothing.
    pub(crate) void: Option<String>,
}

impl Version {
    /// The value of `blitz load --http`.
    pub(crate) fn flag(self) -> &'static str {
        match self {
            Version::Http1 => "1.1",
            Version::Http2 => "2",
            Version::Http3 => "3",
        }
    }

    pub(crate) fn alpn(self) -> &'static str {
        match self {
            Version::Http1 => "http/1.1",
            Version::Http2 => "h2",
            Version::Http3 => "h3",
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Version::Http1 => "HTTP/1.1",
            Version::Http2 => "HTTP/2",
            Version::Http3 => "HTTP/3",
        }
    }
}

impl Length {
    /// After a second of warm-up.
    pub(crate) fn warm(measured: Duration) -> Length {
        Length::Time {
            measured,
            warm_up: Duration::from_secs(1),
        }
    }

    /// A run of `--quick`: a first impression, after a short warm-up.
    pub(crate) fn quick(milliseconds: u64) -> Length {
        let measured = Duration::from_millis(milliseconds);
        Length::Time {
            measured,
            warm_up: measured / 4,
        }
    }

    /// Warm-up and measured time, where they are known.
    pub(crate) fn planned(self) -> Duration {
        match self {
            Length::Requests(_) => Duration::ZERO,
            Length::Time { measured, warm_up } => measured + warm_up,
            Length::AtLeast {
                longest, warm_up, ..
            } => longest + warm_up,
        }
    }
}

impl Load {
    /// A closed loop of one generating core on the core of the load, which accepts the certificates of test servers.
    pub(crate) fn new(
        base: impl Into<String>,
        requests: Requests,
        version: Version,
        length: Length,
    ) -> Load {
        Load {
            program: Program::Blitz,
            base: base.into(),
            requests,
            version,
            connections: 1,
            streams: 1,
            length,
            rate: None,
            cores: crate::process::LOAD_CORE,
            threads: 1,
            flags: vec!["--insecure".to_owned()],
        }
    }

    /// The same load with so many connections, and streams on each.
    pub(crate) fn with(self, connections: u32, streams: u32) -> Load {
        Load {
            connections,
            streams,
            ..self
        }
    }

    /// The same load, whose responses must have this content.
    pub(crate) fn expecting(mut self, content: &[u8]) -> Load {
        let hash = digest(&SHA256, content);
        let digits: String = hash
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        self.flags.extend(["--expect-sha256".to_owned(), digits]);
        self
    }
}

impl Case {
    /// Runs every subject once in each round, in balanced orders.
    ///
    /// # Errors
    /// A response was wrong, or a run did not end.
    pub(crate) fn run(
        self,
        generator: &Generator<'_>,
        rounds: u32,
        seed: u64,
    ) -> Result<Measured, String> {
        self.run_with(rounds, seed, |case, subject, place| {
            let failed = |error| format!("{}, {}: {error}", case.title, subject.name);
            let run = generator.run(subject).map_err(failed)?;
            place.void = run.void_reason(subject);
            place.runs.push(run);
            Ok(())
        })
    }

    /// The same for a comparison of many systems, which one of them does not end: a wrong response makes its system void,
    /// and a run that proves nothing is repeated before it does.
    pub(crate) fn run_each(
        self,
        generator: &Generator<'_>,
        rounds: u32,
        seed: u64,
    ) -> Result<Measured, String> {
        self.run_with(rounds, seed, |_, subject, place| {
            for _ in 0..ATTEMPTS_MAX {
                match generator.run(subject) {
                    Ok(run) => match run.void_reason(subject) {
                        Some(reason) => place.void = Some(reason),
                        None => {
                            place.void = None;
                            place.runs.push(run);
                            break;
                        }
                    },
                    Err(error) => {
                        place.void = Some(format!("{FAILED}{error}"));
                        break;
                    }
                }
            }
            Ok(())
        })
    }

    fn run_with(
        self,
        rounds: u32,
        seed: u64,
        mut run: impl FnMut(&Case, &Subject, &mut MeasuredSubject) -> Result<(), String>,
    ) -> Result<Measured, String> {
        let mut measured: Vec<MeasuredSubject> =
            self.subjects.iter().map(MeasuredSubject::new).collect();
        for round in 0..rounds {
            for index in order(measured.len(), round, seed) {
                let place = &mut measured[index];
                if place.void.is_none() {
                    run(&self, &self.subjects[index], place)?;
                }
            }
        }
        Ok(Measured {
            title: self.title,
            load: self.load,
            base: self.base,
            subjects: measured,
            not_run: self.not_run,
        })
    }
}

impl MeasuredSubject {
    fn new(subject: &Subject) -> MeasuredSubject {
        MeasuredSubject {
            name: subject.name.clone(),
            runs: Vec::new(),
            void: None,
        }
    }
}

impl Measured {
    /// The subject of that name, if it was run.
    pub(crate) fn subject(&self, name: &str) -> Option<&MeasuredSubject> {
        self.subjects.iter().find(|subject| subject.name == name)
    }

    /// The subjects whose responses were wrong, each with its evidence.
    pub(crate) fn failures(&self) -> impl Iterator<Item = (&str, &str)> {
        self.subjects.iter().filter_map(|subject| {
            let evidence = subject.void.as_ref()?.strip_prefix(FAILED)?;
            Some((subject.name.as_str(), evidence))
        })
    }

    /// The median of a figure of a subject; `None` if it was not run, or is void.
    pub(crate) fn median(&self, name: &str, figure: &Figure) -> Option<f64> {
        let valid = self.subject(name).filter(|subject| subject.void.is_none());
        figure.median(&valid?.runs)
    }

    /// A figure of two subjects, by rounds. `None` if one of them was not run, or is void.
    pub(crate) fn compare(
        &self,
        name: &str,
        base: &str,
        figure: &Figure,
    ) -> Option<stats::Comparison> {
        compare(&self.pairs(name, base, figure)?)
    }

    /// How much larger a figure of a subject is than that of a base, by rounds. `None` as in [`Measured::compare`].
    pub(crate) fn beyond(&self, name: &str, base: &str, figure: &Figure) -> Option<Vec<f64>> {
        let pairs = self.pairs(name, base, figure)?;
        Some(pairs.iter().map(|(value, base)| value - base).collect())
    }

    /// A figure of two subjects in each round.
    fn pairs(&self, name: &str, base: &str, figure: &Figure) -> Option<Vec<(f64, f64)>> {
        let valid = |name| self.subject(name).filter(|subject| subject.void.is_none());
        let (subject, base) = (valid(name)?, valid(base)?);
        let pairs = subject.runs.iter().zip(&base.runs);
        pairs
            .map(|(run, base)| Some(((figure.of)(run)?, (figure.of)(base)?)))
            .collect()
    }
}
