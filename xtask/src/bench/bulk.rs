//! `cargo xtask bench bulk`: the cost of large bodies, in CPU time per MiB of content.

mod backend;
mod content;
mod exchange;
mod groups;
mod measure;
mod paced;
mod plan;
mod report;
mod size;
mod transfer;
mod verdicts;

use super::build::build;
use super::compare::Folder;
use super::goals::Outcome;
use super::group::{ClientProtocol, LoadTool};
use super::machine::{
    FOREIGN_SHARE_MAX, Facts, current_foreign_share, how_to_install, is_installed, require,
};
use super::report::save;
use super::system::build_all;
use super::tls_files::TlsFiles;
use content::Contents;
use groups::Row;
use measure::Bench;
use plan::Plan;
use report::Report;

pub(crate) use plan::BulkArguments;

/// Measures every size, one after the other, and prints the tables.
pub(crate) fn run(arguments: &BulkArguments, command: &str) -> Result<Outcome, String> {
    require("taskset")?;
    let mut plan = Plan::new(arguments)?;
    let removed = remove_missing_peers(&mut plan.rows);
    if plan.rows.is_empty() {
        return Err("no system is left to measure".to_owned());
    }
    let tools = tools(&plan);
    tools.iter().copied().try_for_each(require)?;
    build_programs(&plan)?;
    let foreign_before = current_foreign_share();
    if foreign_before > FOREIGN_SHARE_MAX {
        let percent = foreign_before * 100.0;
        eprintln!("warning: other programs use {percent:.0} % of a core; the set will be void");
    }
    let peers = plan.rows.iter().filter_map(|row| row.system().peer());
    let facts = Facts::gather(&tools.iter().copied().chain(peers).collect::<Vec<_>>());
    let folder = Folder::create()?;
    let with_tls = plan
        .rows
        .iter()
        .any(|row| row.group.group.protocol == ClientProtocol::Tls);
    let tls = with_tls.then(|| TlsFiles::create(&folder.0)).transpose()?;
    let contents = Contents::create(&folder.0)?;
    let mut measured = Vec::new();
    for &size in &plan.sizes {
        let mut bench = Bench::start(&plan, size, &contents, tls.as_ref(), &folder.0)?;
        for round in 1..=plan.rounds {
            eprintln!("{size}: round {round} of {}", plan.rounds);
            bench.round(round)?;
        }
        measured.extend(bench.finish());
    }
    let mut void = verdicts::void_reasons(&measured, plan.rounds, foreign_before);
    void.extend(removed);
    let report = Report {
        command,
        facts,
        rounds: plan.rounds,
        streams: plan.streams,
        foreign_before,
        void,
        verdicts: verdicts::verdicts(&measured),
        measured,
    };
    println!("{}", report.text());
    if plan.save {
        save(&report.facts.date, "bulk", &report, &report.markdown())?;
    }
    Ok(Outcome::of(&report.void, &report.verdicts))
}

/// The load tools of the plan, and curl, which sends the requests before and after a run.
fn tools(plan: &Plan) -> Vec<&'static str> {
    let loads = |wanted: fn(LoadTool) -> bool| {
        let mut rows = plan.rows.iter();
        rows.any(|row| wanted(row.group.group.load_tool))
    };
    let mut tools = vec!["curl"];
    tools.extend(loads(|load| load == LoadTool::Wrk).then_some("wrk"));
    tools.extend(loads(|load| matches!(load, LoadTool::H2load { .. })).then_some("h2load"));
    tools
}

fn build_programs(plan: &Plan) -> Result<(), String> {
    let systems: Vec<_> = plan.rows.iter().map(Row::system).collect();
    build_all(systems.iter())?;
    build(backend::ARTIFACT)?;
    if plan.rows.iter().any(|row| row.group.small_requests) {
        build(paced::ARTIFACT)?;
    }
    Ok(())
}

/// Removes the rows whose programs are not installed. Returns the reasons that make the set void: goals
/// that need a removed row.
fn remove_missing_peers(rows: &mut Vec<Row>) -> Vec<String> {
    let mut reasons = Vec::new();
    rows.retain(|row| match row.system().peer() {
        Some(peer) if !is_installed(peer) => {
            eprintln!("{} is skipped: {}", row.name(), how_to_install(peer));
            if row
                .group
                .goals
                .iter()
                .any(|goal| goal.base == row.contender.name)
            {
                reasons.push(format!("{} is skipped, and a goal needs it", row.name()));
            }
            false
        }
        _ => true,
    });
    reasons
}
