//! Comparisons whose systems run interleaved, round by round: `blitz bench h1`, `h2`, `h3`, `tls`,
//! `h2-proxy`, `cores` and `log`.

use crate::differences::differences;
use crate::goals::{self, BenchOutcome};
use crate::group::ClientProtocol;
use crate::invocation::Invocation;
use crate::machine::{self, Facts, current_foreign_share};
use crate::measure::Bench;
use crate::noise::NoiseWatch;
use crate::output;
use crate::programs::locate;
use crate::results::{self, Results};
use crate::rounds::{RoundsArguments, RoundsPlan};
use crate::run_folder::RunFolder;
use crate::scenario::Scenario;
use crate::system::substitutes;
use crate::tls_files::TlsFiles;

/// Runs the scenario and prints the table.
pub(crate) fn run(
    scenario: &'static Scenario,
    arguments: &RoundsArguments,
    invocation: &Invocation,
) -> Result<BenchOutcome, String> {
    locate("taskset")?;
    let programs = &invocation.programs;
    let plan = RoundsPlan::new(scenario, arguments, programs)?;
    let foreign_before = current_foreign_share();
    machine::warn_of_foreign_share(foreign_before);
    let facts = Facts::gather(&invocation.revision, plan.installed());
    let folder = RunFolder::create()?;
    let mut systems = plan.systems.iter();
    let with_tls = systems.any(|s| s.group.protocol == ClientProtocol::Tls);
    let tls = with_tls.then(|| TlsFiles::create(folder.path(), programs));
    let mut bench = Bench::start(&plan, programs, tls.transpose()?, folder.path())?;
    let mut watch = NoiseWatch::start();
    for round in 1..=plan.rounds {
        output::message(&format!("round {round} of {}", plan.rounds));
        bench.round(round)?;
        watch.read_frequencies();
    }
    let measured = bench.finish();
    let preemptions = measured.iter().filter_map(|system| {
        let per_second = system.preemptions_per_second()?;
        Some((system.name.to_owned(), per_second))
    });
    let noise = watch.finish(preemptions.collect());
    let mut void = goals::void_reasons(
        scenario,
        &measured,
        &plan.not_run,
        plan.rounds,
        foreign_before,
    );
    void.extend(noise.void_reasons());
    let notes = substitutes(&plan.systems, programs).into_iter();
    let verdicts = goals::verdicts(scenario, plan.connections, &measured, &plan.not_run);
    let verdicts = goals::settled(verdicts, &void);
    let differences = differences(scenario.groups, &measured, &void);
    let results = Results {
        command: &invocation.command,
        scenario,
        void,
        verdicts,
        not_run: plan.not_run,
        rounds: plan.rounds,
        seconds: plan.run.as_secs(),
        connections: plan.connections,
        streams: plan.streams,
        facts,
        seed: plan.seed,
        notes: notes.chain(noise.notes()).collect(),
        noise,
        foreign_before,
        differences,
        measured,
    };
    // The results are saved even if nobody can read the text.
    let printed = output::print(&(results.text() + "\n"));
    if plan.save {
        let markdown = results.markdown();
        let date = &results.facts.date;
        results::save(&invocation.out, date, scenario.name, &results, &markdown)?;
    }
    printed?;
    Ok(BenchOutcome::of(&results.void, &results.verdicts))
}
