//! `blitz bench faults`: three members behind each proxy, of which one is stopped, slowed, killed or replaced under a
//! constant load. Each proxy has its defaults, and good settings.

mod fault;
mod findings;
mod measure;
mod stage;

use std::time::Duration;

use clap::Args;

use crate::goals::BenchOutcome;
use crate::invocation::Invocation;
use crate::number;
use crate::output;
use crate::peer::members::{MembersProxy, Settings};
use crate::programs::locate;
use crate::run_folder::RunFolder;
use crate::study::{ReportFiles, Watch, finish_files};
use fault::{Fault, Schedule};
use findings::Findings;
use measure::{MeasuredFault, measure};

const EXAMPLES: &str = "\
Examples:
  blitz bench faults
      all faults behind all proxies: 45 minutes
  blitz bench faults --quick
      one round of each, without verdicts; not saved
  blitz bench faults --only stopped,killed,blitz-tuned,envoy-tuned
      two faults behind two proxies
  blitz bench faults --rounds 14
      twice the rounds, for rows that are undecided";

/// Flags of `blitz bench faults`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FaultsArguments {
    /// Rounds; 6 are the least that can show a difference
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(6..=200))]
    rounds: u32,
    /// Length of one run; the fault begins after a quarter of it
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(4..=60))]
    seconds: u64,
    /// Only these faults or systems, separated by commas; an unknown name lists the known ones
    #[arg(long, value_delimiter = ',', value_parser = word)]
    only: Vec<String>,
    /// One round of runs of 2.6 s, without verdicts; not saved
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    quick: bool,
    /// The seed of the order in which the systems of a round run
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// A proxy with its settings.
#[derive(Debug)]
struct FaultContender {
    name: &'static str,
    proxy: MembersProxy,
    settings: Settings,
}

/// Blitz as it is, and with good settings: the systems that conclusions are about.
const BLITZ: &str = "blitz";
const BLITZ_TUNED: &str = "blitz-tuned";

static CONTENDERS: [FaultContender; 8] = [
    contender(BLITZ, MembersProxy::Blitz, Settings::Default),
    contender(BLITZ_TUNED, MembersProxy::Blitz, Settings::Tuned),
    contender("nginx", MembersProxy::Nginx, Settings::Default),
    contender("nginx-tuned", MembersProxy::Nginx, Settings::Tuned),
    contender("haproxy", MembersProxy::Haproxy, Settings::Default),
    contender("haproxy-tuned", MembersProxy::Haproxy, Settings::Tuned),
    contender("envoy", MembersProxy::Envoy, Settings::Default),
    contender("envoy-tuned", MembersProxy::Envoy, Settings::Tuned),
];

const fn contender(name: &'static str, proxy: MembersProxy, settings: Settings) -> FaultContender {
    FaultContender {
        name,
        proxy,
        settings,
    }
}

/// The time of a run beside its load: members, the proxy and the generator start and end.
const BETWEEN_RUNS: Duration = Duration::from_millis(1_500);

/// A value of `--only`.
fn word(word: &str) -> Result<String, String> {
    let faults = Fault::ALL.map(Fault::name);
    let known: Vec<&str> = CONTENDERS
        .iter()
        .map(|contender| contender.name)
        .chain(faults)
        .collect();
    match known.contains(&word) {
        true => Ok(word.to_owned()),
        false => Err(format!(
            "there is no system or fault `{word}`; known: {}",
            known.join(", ")
        )),
    }
}

/// Measures and reports.
pub(crate) fn run(
    arguments: &FaultsArguments,
    invocation: &Invocation,
) -> Result<BenchOutcome, String> {
    locate("taskset")?;
    let folder = RunFolder::create()?;
    let watch = Watch::start();
    let faults = arguments.faults();
    let most = number::long_time(arguments.longest().as_secs_f64());
    output::message(&format!("{} faults, about {most}", faults.len()));
    let mut files = (!arguments.quick).then(|| ReportFiles::new("faults", invocation));
    let mut all: Vec<MeasuredFault> = Vec::new();
    let report_of = |all: &[MeasuredFault]| {
        let cases = all.iter().map(|measured| &measured.case);
        let surroundings = watch.finish(&invocation.revision, [], cases);
        let report =
            Findings::new(all).report(&invocation.command, &surroundings, arguments.rounds());
        (report, surroundings.facts.date)
    };
    for (index, &fault) in faults.iter().enumerate() {
        output::message(&format!(
            "fault {} of {}: {} …",
            index + 1,
            faults.len(),
            fault.name()
        ));
        all.push(measure(arguments, invocation, fault, &folder)?);
        let left: Vec<&str> = faults[index + 1..].iter().map(|it| it.name()).collect();
        if let Some(files) = &mut files
            && !left.is_empty()
        {
            let (report, date) = report_of(&all);
            files.write_part(report, &date, &left.join(", "));
        }
    }
    let (report, date) = report_of(&all);
    finish_files(&report, &date, files)
}

impl FaultsArguments {
    fn rounds(&self) -> u32 {
        if self.quick { 1 } else { self.rounds }
    }

    fn schedule(&self) -> Schedule {
        match self.quick {
            true => Schedule::new(Duration::from_millis(400), Duration::from_millis(2_600)),
            false => Schedule::new(Duration::from_secs(1), Duration::from_secs(self.seconds)),
        }
    }

    fn faults(&self) -> Vec<Fault> {
        let is_fault = |word: &str| Fault::ALL.iter().any(|fault| fault.name() == word);
        let wanted = |fault: &Fault| self.wants(fault.name(), is_fault);
        Fault::ALL.into_iter().filter(wanted).collect()
    }

    fn contenders(&self) -> Vec<&'static FaultContender> {
        let is_system = |word: &str| CONTENDERS.iter().any(|contender| contender.name == word);
        let wanted = |contender: &&FaultContender| self.wants(contender.name, is_system);
        CONTENDERS.iter().filter(wanted).collect()
    }

    /// Whether `name` is chosen, or nothing of its kind is.
    fn wants(&self, name: &str, is_of_kind: impl Fn(&str) -> bool) -> bool {
        let mut chosen = self.only.iter().filter(|word| is_of_kind(word)).peekable();
        chosen.peek().is_none() || chosen.any(|word| word == name)
    }

    /// The time of all runs, if every system is installed.
    fn longest(&self) -> Duration {
        let runs = self.contenders().len() * self.faults().len() * self.rounds() as usize;
        (self.schedule().planned() + BETWEEN_RUNS) * runs as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(only: &[&str], quick: bool) -> FaultsArguments {
        FaultsArguments {
            rounds: 7,
            seconds: 8,
            only: only.iter().map(|&word| word.to_owned()).collect(),
            quick,
            seed: 1,
        }
    }

    #[test]
    fn faults_and_systems_are_chosen_apart() {
        let some = arguments(&["killed", "nginx", "blitz-tuned"], false);
        assert_eq!(some.faults(), [Fault::Killed]);
        let names: Vec<&str> = some.contenders().iter().map(|it| it.name).collect();
        assert_eq!(names, ["blitz-tuned", "nginx"]);
        let all = arguments(&["envoy"], false);
        assert_eq!((all.faults().len(), all.contenders().len()), (4, 1));
    }

    #[test]
    fn a_quick_run_takes_two_minutes_and_a_full_one_less_than_an_hour() {
        let longest = |quick| arguments(&[], quick).longest().as_secs();
        assert!((60..150).contains(&longest(true)), "{}", longest(true));
        assert!((600..3_600).contains(&longest(false)), "{}", longest(false));
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = word("ngnix").unwrap_err();
        assert!(
            error.contains("nginx-tuned") && error.contains("stopped, slowed"),
            "{error}"
        );
    }
}
