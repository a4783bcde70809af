//! `cargo xtask bench h1`: everything interleaved, round by round.

use std::fs;
use std::path::PathBuf;

use super::bars::Outcome;
use super::build::build_all;
use super::machine::{Facts, foreign_share_now, is_installed, require};
use super::measure::Bench;
use super::plan::{H1Arguments, Plan};
use super::report::{self, Report};
use super::system::{BACKEND, Group, System};
use super::{bars, machine};

/// Runs the scenario and prints the table.
pub(crate) fn run(arguments: &H1Arguments, command: &str) -> Result<Outcome, String> {
    require("taskset")?;
    require("wrk")?;
    let mut plan = Plan::new(arguments)?;
    let left_out = leave_out_missing_peers(&mut plan.systems);
    if plan.systems.is_empty() {
        return Err("nothing is left to measure".to_owned());
    }
    let backend = plan
        .systems
        .iter()
        .any(|system| system.group == Group::Proxy);
    build_all(
        plan.systems
            .iter()
            .copied()
            .chain(backend.then_some(&BACKEND)),
    )?;
    let foreign_before = foreign_share_now();
    if foreign_before > machine::FOREIGN_SHARE_MAX {
        let percent = foreign_before * 100.0;
        eprintln!("careful: other programs use {percent:.0} % of a core; the set will be void");
    }
    let mut programs = vec!["wrk"];
    programs.extend(plan.systems.iter().filter_map(|system| system.peer()));
    programs.dedup();
    let facts = Facts::gather(&programs);
    let folder = Folder::create()?;
    let mut bench = Bench::start(&plan, &folder.0)?;
    for round in 1..=plan.rounds {
        eprintln!("round {round} of {}", plan.rounds);
        bench.round(round)?;
    }
    let measured = bench.finish();
    let mut void = bars::void_reasons(&measured, plan.rounds, foreign_before);
    void.extend(left_out);
    let report = Report {
        command,
        void,
        verdicts: bars::verdicts(&measured),
        rounds: plan.rounds,
        seconds: plan.run.as_secs(),
        connections: plan.connections,
        facts,
        foreign_before,
        measured,
    };
    println!("{}", report.text());
    if plan.save {
        let markdown = report.markdown();
        report::save(&report.facts.date, "h1", &report, &markdown)?;
    }
    Ok(Outcome::of(&report.void, &report.verdicts))
}

/// A comparison without a peer is still one; it only says less. Returns why it proves nothing, if
/// a bar needs the peer.
fn leave_out_missing_peers(systems: &mut Vec<&'static System>) -> Vec<String> {
    let mut reasons = Vec::new();
    systems.retain(|system| match system.peer() {
        Some(peer) if !is_installed(peer) => {
            eprintln!("{} is left out: apt-get install {peer}", system.name);
            if bars::is_needed(system.name) {
                reasons.push(format!("{} is left out, and a bar needs it", system.name));
            }
            false
        }
        _ => true,
    });
    reasons
}

/// A folder for the files of one run, removed at its end.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn create() -> Result<Folder, String> {
        let path = std::env::temp_dir().join(format!("blitz-bench-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What stays behind is a few small files in the folder for temporary ones.
        let _ = fs::remove_dir_all(&self.0);
    }
}
