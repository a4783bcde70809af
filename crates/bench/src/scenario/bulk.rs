//! `blitz bench bulk`: the cost of large bodies, in CPU time per MiB of content.

mod backend;
mod content;
mod exchange;
mod groups;
mod measure;
mod paced;
mod plan;
mod results;
mod size;
mod transfer;
mod verdicts;

use crate::goals::{BenchOutcome, settled};
use crate::group::ClientProtocol;
use crate::invocation::Invocation;
use crate::load_tool;
use crate::machine::{self, Facts, current_foreign_share};
use crate::noise::NoiseWatch;
use crate::output;
use crate::programs::locate;
use crate::results::save;
use crate::run_folder::RunFolder;
use crate::tls_files::TlsFiles;
use content::Contents;
use measure::Bench;
use plan::BulkPlan;
use results::Results;

pub(crate) use plan::BulkArguments;

/// Measures every size, one after the other, and prints the tables.
pub(crate) fn run(
    arguments: &BulkArguments,
    invocation: &Invocation,
) -> Result<BenchOutcome, String> {
    locate("taskset")?;
    let programs = &invocation.programs;
    let plan = BulkPlan::new(arguments, programs)?;
    let foreign_before = current_foreign_share();
    machine::warn_of_foreign_share(foreign_before);
    let folder = RunFolder::create()?;
    let mut rows = plan.rows.iter();
    let with_tls = rows.any(|row| row.group.group.protocol == ClientProtocol::Tls);
    let tls = with_tls.then(|| TlsFiles::create(folder.path(), programs));
    let tls = tls.transpose()?;
    let contents = Contents::create(folder.path())?;
    let facts = facts(&plan, invocation);
    let mut measured = Vec::new();
    let mut watch = NoiseWatch::start();
    for &size in &plan.sizes {
        let (tls, folder) = (tls.as_ref(), folder.path());
        let mut bench = Bench::start(&plan, size, &contents, tls, programs, folder)?;
        for round in 1..=plan.rounds {
            output::message(&format!("{size}: round {round} of {}", plan.rounds));
            bench.round(round)?;
            watch.read_frequencies();
        }
        measured.extend(bench.finish());
    }
    let preemptions = measured.iter().filter_map(|measured| {
        let name = format!("{}, {}", measured.row.name(), measured.size);
        Some((name, measured.preemptions_per_second()?))
    });
    let noise = watch.finish(preemptions.collect());
    let mut void = verdicts::void_reasons(&measured, &plan.not_run, plan.rounds, foreign_before);
    void.extend(noise.void_reasons());
    let verdicts = settled(verdicts::verdicts(&measured, &plan.not_run), &void);
    let results = Results {
        command: &invocation.command,
        facts,
        rounds: plan.rounds,
        streams: plan.streams,
        seed: plan.seed,
        noise,
        foreign_before,
        void,
        verdicts,
        not_run: plan.not_run,
        measured,
    };
    // The results are saved even if nobody can read the text.
    let printed = output::print(&(results.text() + "\n"));
    if plan.save {
        let markdown = results.markdown();
        let date = &results.facts.date;
        save(&invocation.out, date, "bulk", &results, &markdown)?;
    }
    printed?;
    Ok(BenchOutcome::of(&results.void, &results.verdicts))
}

/// The machine, and the versions of peers and load tools; curl sends the requests before and after a run.
fn facts(plan: &BulkPlan, invocation: &Invocation) -> Facts {
    let tools = plan
        .rows
        .iter()
        .flat_map(|row| load_tool::names(&row.group.group));
    let peers = plan.rows.iter().filter_map(|row| row.system().peer());
    Facts::gather(&invocation.revision, tools.chain(peers).chain(["curl"]))
}
