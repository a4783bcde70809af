//! The runs of a group: capacity in a closed loop, then open loops at shares of the slowest system's.

use std::fs;

use super::CompareArguments;
use super::groups::{BLITZ, CompareGroup, is_peer};
use crate::board::write_old;
use crate::fixed_response::BODY;
use crate::invocation::Invocation;
use crate::output;
use crate::peer::CONTENT_FOLDER;
use crate::programs::Example;
use crate::report;
use crate::run_folder::RunFolder;
use crate::scenario::{BACKEND, BACKEND_BLITZ};
use crate::study::{Case, Load, Measured, REQUESTS_PER_SECOND, Requests, Stage, Subject};
use crate::tls_files::TlsFiles;

/// The line that `/data` of Blitz repeats; the other servers have a file with the same content.
const LINE: &str = "012345678901234567890123456789012345678901234567890123456789012\n";

/// A group with its runs.
pub(super) struct MeasuredGroup {
    pub(super) group: &'static CompareGroup,
    /// In the order of charts; also those that were not run.
    pub(super) systems: Vec<report::System>,
    pub(super) capacity: Measured,
    /// The capacity of the slowest system that was compared; `None` if none has one.
    pub(super) slowest: Option<Slowest>,
    /// One for each share of that capacity.
    pub(super) at_rates: Vec<AtRate>,
}

impl MeasuredGroup {
    /// Everything that was measured.
    pub(super) fn cases(&self) -> impl Iterator<Item = &Measured> {
        let at_rates = self.at_rates.iter().map(|at| &at.measured);
        at_rates.chain([&self.capacity])
    }
}

/// The slowest system, by which the rates are chosen.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Slowest {
    pub(super) name: String,
    pub(super) requests_per_second: f64,
}

/// An open loop.
pub(super) struct AtRate {
    pub(super) percent: u32,
    /// Requests per second.
    pub(super) rate: f64,
    pub(super) measured: Measured,
}

/// All runs of a group.
pub(super) fn measure(
    arguments: &CompareArguments,
    invocation: &Invocation,
    group: &'static CompareGroup,
    (folder, tls): (&RunFolder, &TlsFiles),
) -> Result<MeasuredGroup, String> {
    let content = content(group, folder)?;
    let stage = start(arguments, invocation, group, (folder, tls))?;
    let run = |case: Case| {
        output::message(&format!("  {} …", case.title));
        case.run_each(&stage.generator(), arguments.rounds(), arguments.seed)
    };
    let case = |title: String, rate| case(arguments, group, &stage, &content, (title, rate));
    let capacity = run(case("Capacity".to_owned(), None))?;
    let slowest = slowest(&capacity);
    let mut at_rates = Vec::new();
    for &percent in arguments.percents() {
        let Some(slowest) = &slowest else { break };
        let rate = (slowest.requests_per_second * f64::from(percent) / 100.0).round();
        let title = format!("{percent} %");
        let measured = run(case(title, Some(rate)))?;
        at_rates.push(AtRate {
            percent,
            rate,
            measured,
        });
    }
    Ok(MeasuredGroup {
        group,
        systems: stage.described().to_vec(),
        capacity,
        slowest,
        at_rates,
    })
}

/// The content of every response. Its file, unless it is the fixed response, is in the folder of the run.
fn content(group: &CompareGroup, folder: &RunFolder) -> Result<Vec<u8>, String> {
    let Some(bytes) = group.file_bytes() else {
        return Ok(BODY.to_vec());
    };
    let content = LINE.repeat(bytes as usize / LINE.len()).into_bytes();
    let folder = folder.path().join(CONTENT_FOLDER);
    let file = folder.join(format!("data-{bytes}"));
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    write_old(&file, &content)?;
    Ok(content)
}

fn start<'a>(
    arguments: &CompareArguments,
    invocation: &'a Invocation,
    group: &'static CompareGroup,
    (folder, tls): (&'a RunFolder, &'a TlsFiles),
) -> Result<Stage<'a>, String> {
    let programs = &invocation.programs;
    let mut stage = Stage::new(programs, folder, tls);
    let (connections, streams) = group.connections();
    let load = (connections, connections * streams);
    if group.is_proxied() {
        let has_ring = programs.example(Example::LimitResponder).is_ok();
        let backend = match group.is_large() || !has_ring {
            true => &BACKEND_BLITZ,
            false => &BACKEND,
        };
        stage.start_backend(backend, load.1)?;
    }
    for contender in group.contenders() {
        if arguments.wants_system(contender.name) {
            stage.start(&contender, load, group.version.alpn(), &invocation.revision)?;
        }
    }
    Ok(stage)
}

/// The load of the group in a closed loop, or at a rate.
fn case(
    arguments: &CompareArguments,
    group: &CompareGroup,
    stage: &Stage<'_>,
    content: &[u8],
    (title, rate): (String, Option<f64>),
) -> Case {
    let (connections, streams) = group.connections();
    let subjects = stage.running(group.scheme()).map(|(name, base, watched)| {
        let requests = Requests::Path(group.path());
        let load = Load::new(base, requests, group.version, arguments.length());
        let load = load.with(connections, streams).expecting(content);
        Subject {
            name: name.to_owned(),
            load: Load { rate, ..load },
            watched,
            may_fail: false,
        }
    });
    let subjects: Vec<Subject> = subjects.collect();
    let has_blitz = subjects.iter().any(|subject| subject.name == BLITZ);
    let streams = match streams {
        1 => String::new(),
        streams => format!(" with {streams} streams each"),
    };
    let pacing = match rate {
        Some(rate) => format!("{rate:.0} requests/s"),
        None => "closed loop".to_owned(),
    };
    Case {
        title,
        load: format!(
            "{}, {connections} connections{streams}, {pacing}",
            group.title
        ),
        subjects,
        base: has_blitz.then(|| BLITZ.to_owned()),
        not_run: stage.not_run().to_vec(),
    }
}

/// Of Blitz and the peers; the limit and the cache are faster than what they are shown beside.
fn slowest(capacity: &Measured) -> Option<Slowest> {
    let names = capacity.subjects.iter().map(|subject| &subject.name);
    let compared = names.filter(|name| is_peer(name) || name.as_str() == BLITZ);
    let capacities = compared.filter_map(|name| {
        Some(Slowest {
            name: name.clone(),
            requests_per_second: capacity.median(name, &REQUESTS_PER_SECOND)?,
        })
    });
    capacities.min_by(|a, b| a.requests_per_second.total_cmp(&b.requests_per_second))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::load_result::LoadResult;
    use crate::study::{MeasuredSubject, Run};
    use crate::{Distribution, Recorder};

    /// Runs with these requests per second and these latencies, with a little noise.
    pub(in super::super) fn subject(name: &str, rate: f64, latency_us: f64) -> MeasuredSubject {
        let noise = [1.0, 0.99, 1.01, 1.0, 0.98, 1.02, 1.0];
        let runs = noise.iter().map(|factor| {
            let mut result = LoadResult {
                duration_s: 1.0,
                ..LoadResult::default()
            };
            result.counts.completed = (rate * factor) as u64;
            result.times.latency = latencies(latency_us * factor);
            Run {
                result,
                server_us: latency_us * factor / 10.0,
                ..Run::default()
            }
        });
        MeasuredSubject {
            name: name.to_owned(),
            runs: runs.collect(),
            void: None,
        }
    }

    fn latencies(us: f64) -> Distribution {
        let mut recorder = Recorder::new();
        for step in 0..10_000 {
            recorder.record(std::time::Duration::from_nanos((us * 1e3) as u64 + step));
        }
        recorder.distribution()
    }

    pub(in super::super) fn measured(title: &str, subjects: Vec<MeasuredSubject>) -> Measured {
        Measured {
            title: title.to_owned(),
            load: String::new(),
            base: Some(BLITZ.to_owned()),
            subjects,
            not_run: Vec::new(),
        }
    }

    #[test]
    fn rates_are_those_of_the_slowest_system_that_has_a_capacity() {
        let mut capacity = measured(
            "Capacity",
            vec![
                subject(BLITZ, 50_000.0, 10.0),
                subject("nginx", 40_000.0, 10.0),
                subject("caddy", 10_000.0, 10.0),
                subject("varnish-cached", 9_000.0, 10.0),
                subject("limit", 8_000.0, 10.0),
            ],
        );
        let found = slowest(&capacity).unwrap();
        assert_eq!(
            (found.name.as_str(), found.requests_per_second),
            ("caddy", 10_000.0)
        );
        capacity.subjects[2].void = Some("It failed: 3 × status".to_owned());
        assert_eq!(slowest(&capacity).unwrap().name, "nginx");
        assert_eq!(capacity.failures().next(), Some(("caddy", "3 × status")));
        assert_eq!(slowest(&measured("Capacity", Vec::new())), None);
    }
}
