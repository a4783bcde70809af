//! The comparisons in which everything is interleaved, round by round: `cargo xtask bench h1` and
//! those of HTTP/2 and TLS.

use std::fs;
use std::path::PathBuf;

use super::bars::Outcome;
use super::build::build_all;
use super::group::{Front, Load, Task};
use super::machine::{Facts, foreign_share_now, how_to_install, is_installed, require};
use super::measure::Bench;
use super::plan::{Plan, RoundsArguments};
use super::report::{self, Report};
use super::scenario::{BACKEND, BACKEND_H2C, Scenario};
use super::system::System;
use super::tls_files::TlsFiles;
use super::{bars, machine};

/// Runs the scenario and prints the table.
pub(crate) fn run(
    scenario: &'static Scenario,
    arguments: &RoundsArguments,
    command: &str,
) -> Result<Outcome, String> {
    require("taskset")?;
    let mut plan = Plan::new(scenario, arguments)?;
    let left_out = leave_out_missing_peers(scenario, &mut plan.systems);
    if plan.systems.is_empty() {
        return Err("nothing is left to measure".to_owned());
    }
    let tools = load_tools(&plan);
    let backends = backends(&plan);
    let needed = backends.iter().filter_map(|backend| backend.peer());
    tools.iter().copied().chain(needed).try_for_each(require)?;
    build_all(plan.systems.iter().chain(&backends).copied())?;
    let foreign_before = foreign_share_now();
    if foreign_before > machine::FOREIGN_SHARE_MAX {
        let percent = foreign_before * 100.0;
        eprintln!("careful: other programs use {percent:.0} % of a core; the set will be void");
    }
    let systems = plan.systems.iter().chain(&backends);
    let peers = systems.filter_map(|system| system.peer());
    let facts = Facts::gather(&tools.iter().copied().chain(peers).collect::<Vec<_>>());
    let folder = Folder::create()?;
    let with_tls = plan.systems.iter().any(|s| s.group.front == Front::Tls);
    let tls = with_tls.then(|| TlsFiles::make(&folder.0)).transpose()?;
    let mut bench = Bench::start(&plan, &backends, tls, &folder.0)?;
    for round in 1..=plan.rounds {
        eprintln!("round {round} of {}", plan.rounds);
        bench.round(round)?;
    }
    let measured = bench.finish();
    let mut void = bars::void_reasons(scenario, &measured, plan.rounds, foreign_before);
    void.extend(left_out);
    let report = Report {
        command,
        scenario,
        void,
        verdicts: bars::verdicts(scenario, &measured),
        rounds: plan.rounds,
        seconds: plan.run.as_secs(),
        connections: plan.connections,
        streams: plan.streams,
        facts,
        foreign_before,
        measured,
    };
    println!("{}", report.text());
    if plan.save {
        let markdown = report.markdown();
        report::save(&report.facts.date, scenario.name, &report, &markdown)?;
    }
    Ok(Outcome::of(&report.void, &report.verdicts))
}

/// What loads the systems of the plan, and what asks them before and after.
fn load_tools(plan: &Plan) -> Vec<&'static str> {
    let loads = |wanted: fn(Load) -> bool| plan.systems.iter().any(|s| wanted(s.group.load));
    let mut tools = Vec::new();
    tools.extend(loads(|load| load == Load::Wrk).then_some("wrk"));
    tools.extend(loads(|load| matches!(load, Load::H2load { .. })).then_some("h2load"));
    tools.extend(loads(|load| load == Load::Handshakes).then_some("openssl"));
    // It asks before and after each run, but for HTTP/1.1 in clear text.
    let by_curl = |system: &&System| system.group.front != Front::Http1;
    tools.extend(plan.systems.iter().any(by_curl).then_some("curl"));
    tools
}

/// What the proxies of the plan forward to.
fn backends(plan: &Plan) -> Vec<&'static System> {
    let forwards = |task| plan.systems.iter().any(|s| s.group.task == task);
    let mut backends = Vec::new();
    backends.extend(forwards(Task::ToHttp1).then_some(&BACKEND));
    backends.extend(forwards(Task::ToH2c).then_some(&BACKEND_H2C));
    backends
}

/// A comparison without a peer is still one; it only says less. Returns why it proves nothing, if
/// a bar needs the peer.
fn leave_out_missing_peers(scenario: &Scenario, systems: &mut Vec<&'static System>) -> Vec<String> {
    let mut reasons = Vec::new();
    systems.retain(|system| match system.peer() {
        Some(peer) if !is_installed(peer) => {
            eprintln!("{} is left out: {}", system.name, how_to_install(peer));
            if bars::is_needed(scenario, system.name) {
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
