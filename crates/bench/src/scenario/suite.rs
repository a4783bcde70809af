//! `blitz bench local` and `blitz bench production`: the built-in endpoints of Blitz on this machine, beside nginx and
//! HAProxy where they are installed.

mod findings;
mod machine;
mod placement;
mod rows;
mod stage;

use std::path::Path;
use std::time::Duration;

use clap::Args;

use crate::goals::BenchOutcome;
use crate::invocation::Invocation;
use crate::load_result::{Affects, Problem};
use crate::number;
use crate::output;
use crate::process::Switches;
use crate::programs::locate;
use crate::run_folder::RunFolder;
use crate::study::{Generator, Length, Measured, REQUESTS_PER_SECOND, Watch, finish};
use crate::tls_files::TlsFiles;
use crate::tuning::{Change, Tuned, Tuning};
use findings::Findings;
use machine::MachineFacts;
use placement::Placement;
use rows::{LOCAL, PRODUCTION, Row};
use stage::Stage;

/// Flags of `blitz bench local`.
#[derive(Debug, Args)]
pub(crate) struct LocalArguments {
    /// Connections of HTTP/1.1
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=5000))]
    connections: u32,
    /// The seed of the order of the runs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Shorter runs; the result is not saved
    #[arg(long)]
    quick: bool,
}

/// Flags of `blitz bench production`.
#[derive(Debug, Args)]
pub(crate) struct ProductionArguments {
    /// Interleaved rounds
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(6..=200))]
    rounds: u32,
    /// Length of a run that measures the capacity
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Length of a run at a constant rate
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    latency_seconds: u64,
    /// The constant rate, as a share of the capacity of the slowest server, in percent
    ///
    /// It is lowered where the generator would be the bottleneck: requests at planned times wake it more often than those
    /// of a closed loop.
    #[arg(long, default_value_t = 75, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=95))]
    load: u32,
    /// Connections of HTTP/1.1
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=5000))]
    connections: u32,
    /// Cores of the servers; the generator has the others [default: half of them, because it needs as many]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    server_cores: Option<u32>,
    /// Change settings of the machine until the end of the run; needs root
    ///
    /// The backlogs in net.core and net.ipv4, the governor of each core, and the limit of open files. The old values are
    /// restored, even if the run is killed. Without it the report says what to change.
    #[arg(long)]
    tune: bool,
    /// The seed of the order of the runs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Six rounds of short runs; the result is not saved
    #[arg(long, conflicts_with_all = ["rounds", "seconds", "latency_seconds"])]
    quick: bool,
}

/// The largest share of the time in which a core of the generator may run in a trial. It is below the share that makes a run
/// void, because runs differ.
const BUSY_MAX: f64 = 0.85;

/// The next rate is this share of one that was too high.
const LOWER: f64 = 0.75;

/// The last rate is 0.08 of the wanted one. It is measured as it is, and the result may be void.
const TRIALS_MAX: u32 = 9;

/// Runs at a constant rate.
struct ConstantRate {
    /// A run that finds out whether the generator can send at a rate.
    trial: Length,
    length: Length,
    /// The wanted share of the capacity.
    share: f64,
}

/// The steps of a run of the suite.
struct SuitePlan {
    name: &'static str,
    rows: &'static [Row],
    rounds: u32,
    capacity: Length,
    latency: Option<ConstantRate>,
    connections: u32,
    seed: u64,
    placement: Placement,
    is_tuned: bool,
    is_saved: bool,
}

/// The quick local run: under 30 seconds.
pub(crate) fn run_local(
    arguments: &LocalArguments,
    invocation: &Invocation,
) -> Result<BenchOutcome, String> {
    // Six rounds are the least with an interval of the median.
    let (rounds, milliseconds) = if arguments.quick { (5, 300) } else { (6, 400) };
    run(
        &SuitePlan {
            name: "local",
            rows: LOCAL,
            rounds,
            capacity: length(Duration::from_millis(milliseconds)),
            latency: None,
            connections: arguments.connections,
            seed: arguments.seed,
            placement: Placement::one_each(),
            is_tuned: false,
            is_saved: !arguments.quick,
        },
        invocation,
    )
}

/// The long run, with all cores.
pub(crate) fn run_production(
    arguments: &ProductionArguments,
    invocation: &Invocation,
) -> Result<BenchOutcome, String> {
    let quick = arguments.quick;
    let seconds = |seconds| match quick {
        true => Length::quick(250),
        false => length(Duration::from_secs(seconds)),
    };
    let share = f64::from(arguments.load) / 100.0;
    run(
        &SuitePlan {
            name: "production",
            rows: PRODUCTION,
            rounds: if quick { 6 } else { arguments.rounds },
            capacity: seconds(arguments.seconds),
            latency: Some(ConstantRate {
                trial: seconds(1),
                length: seconds(arguments.latency_seconds),
                share,
            }),
            connections: arguments.connections,
            seed: arguments.seed,
            placement: Placement::of_machine(arguments.server_cores)?,
            is_tuned: arguments.tune,
            is_saved: !quick,
        },
        invocation,
    )
}

/// After a warm-up of a fifth, at most a second.
fn length(measured: Duration) -> Length {
    Length::Time {
        measured,
        warm_up: (measured / 5).clamp(Duration::from_millis(200), Duration::from_secs(1)),
    }
}

fn run(plan: &SuitePlan, invocation: &Invocation) -> Result<BenchOutcome, String> {
    locate("taskset")?;
    let tuning = Tuning::read(Path::new("/"));
    let mut machine = MachineFacts::read(&tuning);
    // Restored when it is dropped, and if this process is killed.
    let tuned = match plan.is_tuned {
        true => Some(tuning.apply(invocation.programs.blitz())?),
        false => None,
    };
    if let Some(tuned) = &tuned {
        machine.changes = tuned.changes.iter().map(Change::text).collect();
    }
    let folder = RunFolder::create()?;
    let tls = TlsFiles::create(folder.path(), &invocation.programs)?;
    let watch = Watch::start();
    let stage = Stage::start(plan, invocation, &tls, &folder)?;
    let generator = Generator {
        programs: &invocation.programs,
        folder: &folder,
        link: None,
    };
    let switches = stage.switches();
    let capacity = measure_capacity(plan, &stage, &generator)?;
    let latency = measure_latency(plan, &stage, &generator, &capacity)?;
    machine.switches = per_second(stage.switches().since(switches), &capacity, &latency);
    let programs = stage.programs();
    drop(stage);
    let cases = capacity.iter().chain(&latency);
    let surroundings = watch.finish(&invocation.revision, programs, cases);
    let findings = Findings {
        plan,
        capacity: &capacity,
        latency: &latency,
        machine: &machine,
        surroundings: &surroundings,
    };
    let mut report = findings.report(&invocation.command);
    surroundings.describe(&mut report);
    report.problems.extend(tuned.iter().flat_map(problems_of));
    for problem in tuned.map_or(Vec::new(), Tuned::restore) {
        output::message(&format!("warning: a setting was not restored: {problem}"));
    }
    let date = &surroundings.facts.date;
    finish(&report, plan.name, date, plan.is_saved, invocation)
}

/// The problems that make the report's settings untrue.
fn problems_of(tuned: &Tuned) -> Vec<Problem> {
    let problem = |message| Problem {
        affects: Affects::Everything,
        message,
    };
    tuned.changed_by_others().into_iter().map(problem).collect()
}

/// A closed loop for each row.
fn measure_capacity(
    plan: &SuitePlan,
    stage: &Stage,
    generator: &Generator<'_>,
) -> Result<Vec<Measured>, String> {
    let measure = |row: &Row| {
        output::message(&format!("{} …", row.title()));
        let case = row.case(plan, stage, plan.capacity, None);
        case.run(generator, plan.rounds, plan.seed)
    };
    plan.rows.iter().map(measure).collect()
}

/// An open loop for each row that has one, at a share of the capacity of its slowest server.
fn measure_latency(
    plan: &SuitePlan,
    stage: &Stage,
    generator: &Generator<'_>,
    capacity: &[Measured],
) -> Result<Vec<Measured>, String> {
    let Some(constant) = &plan.latency else {
        return Ok(Vec::new());
    };
    let mut all = Vec::new();
    for (row, measured) in plan.rows.iter().zip(capacity) {
        let Some(slowest) = slowest(measured).filter(|_| row.has_latency) else {
            continue;
        };
        output::message(&format!("{} at a constant rate …", row.title()));
        let case = |length, rate| row.case(plan, stage, length, Some(rate));
        let wanted = slowest * constant.share;
        let rate = sustainable_rate(wanted, |rate| {
            let measured = case(constant.trial, rate).run(generator, 1, plan.seed)?;
            Ok(busiest_core(&measured))
        })?;
        if rate < wanted {
            let [rate, wanted] = [rate, wanted].map(|rate| number::count(rate as u64));
            output::message(&format!(
                "the generator would be the bottleneck at {wanted} requests/s: the rate is {rate}"
            ));
        }
        all.push(case(constant.length, rate).run(generator, plan.rounds, plan.seed)?);
    }
    Ok(all)
}

/// The rate, or the first of lower ones at which the generator is not too busy. `busiest_core` measures a rate.
fn sustainable_rate(
    wanted: f64,
    mut busiest_core: impl FnMut(f64) -> Result<f64, String>,
) -> Result<f64, String> {
    let mut rate = wanted;
    for _ in 0..TRIALS_MAX {
        if busiest_core(rate)? <= BUSY_MAX {
            break;
        }
        rate *= LOWER;
    }
    Ok(rate)
}

/// The share of the time in which the generator's busiest core ran, in the run in which it was the largest.
fn busiest_core(measured: &Measured) -> f64 {
    let runs = measured.subjects.iter().flat_map(|subject| &subject.runs);
    let shares = runs.map(|run| run.result.generator.busiest_core);
    shares.fold(0.0, f64::max)
}

/// Requests per second of the slowest server of a case.
fn slowest(measured: &Measured) -> Option<f64> {
    let valid = measured
        .subjects
        .iter()
        .filter(|subject| subject.void.is_none());
    let rates = valid.filter_map(|subject| REQUESTS_PER_SECOND.median(&subject.runs));
    rates.min_by(f64::total_cmp)
}

/// Switches of Blitz in each second in which it had load.
fn per_second(
    switches: Switches,
    capacity: &[Measured],
    latency: &[Measured],
) -> Option<(f64, f64)> {
    let cases = capacity.iter().chain(latency);
    let runs = cases
        .filter_map(|case| case.subject(stage::BLITZ))
        .flat_map(|subject| &subject.runs);
    let seconds: f64 = runs
        .map(|run| run.result.duration_s + run.result.warm_up_s)
        .sum();
    let rate = |count: u64| count as f64 / seconds;
    (seconds > 0.0).then(|| (rate(switches.voluntary), rate(switches.involuntary)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::{MeasuredSubject, Run};

    /// A subject with 6 runs of a second, each with so many requests.
    pub(super) fn subject(name: &str, requests: u64, void: bool) -> MeasuredSubject {
        let run = |round: u64| {
            let mut run = Run {
                server_us: 1e6 / requests as f64,
                ..Run::default()
            };
            run.result.duration_s = 1.0;
            run.result.counts.completed = requests + round;
            run
        };
        MeasuredSubject {
            name: name.to_owned(),
            runs: (0..6).map(run).collect(),
            void: void.then(|| "the generator was too slow".to_owned()),
        }
    }

    pub(super) fn measured(subjects: Vec<MeasuredSubject>) -> Measured {
        Measured {
            title: LOCAL[0].title(),
            load: String::new(),
            base: Some(stage::NGINX.to_owned()),
            subjects,
            not_run: Vec::new(),
        }
    }

    #[test]
    fn the_rate_is_that_of_the_slowest_server_that_is_not_void() {
        let all = vec![
            subject("blitz", 3000, false),
            subject("nginx", 2000, false),
            subject("haproxy", 1000, true),
        ];
        assert_eq!(slowest(&measured(all)), Some(2002.5));
        assert_eq!(slowest(&measured(vec![subject("blitz", 1, true)])), None);
    }

    #[test]
    fn a_rate_is_lowered_until_the_generator_is_not_too_busy() {
        let found = |limit: f64| {
            let mut trials = 0;
            let rate = sustainable_rate(1000.0, |rate| {
                trials += 1;
                Ok(rate / limit)
            });
            (rate.unwrap().round(), trials)
        };
        assert_eq!(found(1200.0), (1000.0, 1));
        assert_eq!(found(700.0), (563.0, 3));
        assert_eq!(found(1.0), (75.0, 9));
        assert!(sustainable_rate(1.0, |_| Err("no response".to_owned())).is_err());
    }

    #[test]
    fn context_switches_count_per_second_of_load() {
        let switches = Switches {
            voluntary: 60,
            involuntary: 12,
        };
        let all = [measured(vec![
            subject("blitz", 10, false),
            subject("nginx", 10, false),
        ])];
        assert_eq!(per_second(switches, &all, &[]), Some((10.0, 2.0)));
        assert_eq!(per_second(switches, &[], &[]), None);
    }

    #[test]
    fn warm_ups_are_a_fifth_of_the_run_within_bounds() {
        let warm_up = |milliseconds| match length(Duration::from_millis(milliseconds)) {
            Length::Time { warm_up, .. } => warm_up.as_millis(),
            Length::Requests(_) | Length::AtLeast { .. } => 0,
        };
        assert_eq!(
            [warm_up(400), warm_up(2000), warm_up(60_000)],
            [200, 400, 1000]
        );
    }
}
