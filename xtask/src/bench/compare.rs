//! Comparisons whose systems run interleaved, round by round: `cargo xtask bench h1`, `h2`, `tls`,
//! `h2-proxy` and `cores`.

use std::fs;
use std::path::PathBuf;

use super::build::{Artifact, build};
use super::goals::Outcome;
use super::group::{ClientProtocol, LoadTool, ServerRole};
use super::machine::{Facts, current_foreign_share, how_to_install, is_installed, require};
use super::measure::Bench;
use super::plan::{Plan, RoundsArguments};
use super::report::{self, Report};
use super::scenario::{BACKEND_H2C, Scenario};
use super::system::{System, build_all};
use super::tls_files::TlsFiles;
use super::{goals, machine};

/// Runs the scenario and prints the table.
pub(crate) fn run(
    scenario: &'static Scenario,
    arguments: &RoundsArguments,
    command: &str,
) -> Result<Outcome, String> {
    require("taskset")?;
    let mut plan = Plan::new(scenario, arguments)?;
    let removed = remove_missing_peers(scenario, &mut plan.systems);
    if plan.systems.is_empty() {
        return Err("no system is left to measure".to_owned());
    }
    let tools = load_tools(&plan);
    let backends = backends(&plan);
    let needed = backends.iter().filter_map(|backend| backend.peer());
    tools.iter().copied().chain(needed).try_for_each(require)?;
    build_all(plan.systems.iter().chain(&backends).copied())?;
    if plan
        .systems
        .iter()
        .any(|s| matches!(s.group.load_tool, LoadTool::Http3(_)))
    {
        build(Artifact::Http3Load)?;
    }
    let foreign_before = current_foreign_share();
    if foreign_before > machine::FOREIGN_SHARE_MAX {
        let percent = foreign_before * 100.0;
        eprintln!("warning: other programs use {percent:.0} % of a core; the set will be void");
    }
    let systems = plan.systems.iter().chain(&backends);
    let peers = systems.filter_map(|system| system.peer());
    let facts = Facts::gather(&tools.iter().copied().chain(peers).collect::<Vec<_>>());
    let folder = Folder::create()?;
    let with_tls = plan
        .systems
        .iter()
        .any(|s| s.group.protocol == ClientProtocol::Tls);
    let tls = with_tls.then(|| TlsFiles::create(&folder.0)).transpose()?;
    let mut bench = Bench::start(&plan, &backends, tls, &folder.0)?;
    for round in 1..=plan.rounds {
        eprintln!("round {round} of {}", plan.rounds);
        bench.round(round)?;
    }
    let measured = bench.finish();
    let mut void = goals::void_reasons(scenario, &measured, plan.rounds, foreign_before);
    void.extend(removed);
    let report = Report {
        command,
        scenario,
        void,
        verdicts: goals::verdicts(scenario, plan.connections, &measured),
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

/// The load tools of the plan, and the tool that sends the requests before and after a run.
fn load_tools(plan: &Plan) -> Vec<&'static str> {
    let loads =
        |wanted: fn(LoadTool) -> bool| plan.systems.iter().any(|s| wanted(s.group.load_tool));
    let mut tools = Vec::new();
    tools.extend(loads(|load| load == LoadTool::Wrk).then_some("wrk"));
    tools.extend(loads(|load| matches!(load, LoadTool::H2load { .. })).then_some("h2load"));
    tools.extend(loads(|load| load == LoadTool::Handshakes).then_some("openssl"));
    // It sends these requests, except for HTTP/1.1 without TLS.
    let by_curl = |system: &&System| {
        system.group.protocol != ClientProtocol::Http1
            && !matches!(system.group.load_tool, LoadTool::Http3(_))
    };
    tools.extend(plan.systems.iter().any(by_curl).then_some("curl"));
    tools
}

/// The backends of the proxies of the plan.
fn backends(plan: &Plan) -> Vec<&'static System> {
    let forwards = |role| plan.systems.iter().any(|s| s.group.role == role);
    let mut backends = Vec::new();
    backends.extend(forwards(ServerRole::ProxyToHttp1).then_some(plan.backend.system()));
    backends.extend(forwards(ServerRole::ProxyToH2c).then_some(&BACKEND_H2C));
    backends
}

/// Removes the systems whose programs are not installed. Returns the reasons that make the set void:
/// goals that need a removed system.
fn remove_missing_peers(scenario: &Scenario, systems: &mut Vec<&'static System>) -> Vec<String> {
    let mut reasons = Vec::new();
    systems.retain(|system| match system.peer() {
        Some(peer) if !is_installed(peer) => {
            eprintln!("{} is skipped: {}", system.name, how_to_install(peer));
            if goals::is_required(scenario, system.name) {
                reasons.push(format!("{} is skipped, and a goal needs it", system.name));
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
        // A failure leaves a few small files in the temporary folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}
