//! `blitz bench compare`: proxies and servers side by side. First the capacity of each, then its latency at shares of the
//! slowest one's.

mod findings;
mod groups;
mod measure;

use std::time::Duration;

use clap::Args;

use crate::goals::BenchOutcome;
use crate::invocation::Invocation;
use crate::number;
use crate::output;
use crate::programs::locate;
use crate::run_folder::RunFolder;
use crate::study::{Length, ReportFiles, Watch, finish_files};
use crate::tls_files::TlsFiles;
use findings::Findings;
use groups::{CompareGroup, GROUPS, QUICK, SYSTEMS};
use measure::{MeasuredGroup, measure};

/// Flags of `blitz bench compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareArguments {
    /// Rounds; 6 are the least that can show a difference
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(6..=200))]
    rounds: u32,
    /// Length of one run
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Only these groups or systems, separated by commas; an unknown name lists the known ones
    ///
    /// The beginning of a group's name chooses several: static, files, proxied, proxied-h1, proxied-h1-small.
    #[arg(long, value_delimiter = ',', value_parser = word)]
    only: Vec<String>,
    /// HTTP/1.1 proxied at two rates, in runs of 0.3 s; not saved
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    quick: bool,
    /// The seed of the order in which the systems of a round run
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The share of the slowest system's capacity at which the verdicts are made, in percent.
const VERDICT_PERCENT: u32 = 75;
const PERCENTS: &[u32] = &[25, 50, VERDICT_PERCENT, 90];
const PERCENTS_QUICK: &[u32] = &[50, VERDICT_PERCENT];

/// The time of a run beside its load: the start of the generator, and its first requests.
const BETWEEN_RUNS: Duration = Duration::from_millis(100);

/// A value of `--only`.
fn word(word: &str) -> Result<String, String> {
    let is_group = GROUPS.iter().any(|group| group.matches(word));
    if is_group || SYSTEMS.contains(&word) {
        return Ok(word.to_owned());
    }
    let groups = GROUPS.iter().map(CompareGroup::name);
    let known: Vec<&str> = SYSTEMS.into_iter().chain(groups).collect();
    Err(format!(
        "there is no system or group `{word}`; known: {}",
        known.join(", ")
    ))
}

/// Measures and reports.
pub(crate) fn run(
    arguments: &CompareArguments,
    invocation: &Invocation,
) -> Result<BenchOutcome, String> {
    locate("taskset")?;
    let folder = RunFolder::create()?;
    let tls = TlsFiles::create(folder.path(), &invocation.programs)?;
    let watch = Watch::start();
    let groups = arguments.groups();
    let most = number::long_time(arguments.longest(&groups).as_secs_f64());
    output::message(&format!("{} groups, at most {most}", groups.len()));
    let mut files = (!arguments.quick).then(|| ReportFiles::new("compare", invocation));
    let mut all = Vec::new();
    let report_of = |all: &[MeasuredGroup]| {
        let cases = all.iter().flat_map(MeasuredGroup::cases);
        let surroundings = watch.finish(&invocation.revision, [], cases);
        let report = Findings::new(all).report(&invocation.command, &surroundings, arguments);
        (report, surroundings.facts.date)
    };
    for (index, group) in groups.iter().enumerate() {
        output::message(&format!(
            "group {} of {}: {} …",
            index + 1,
            groups.len(),
            group.title
        ));
        all.push(measure(arguments, invocation, group, (&folder, &tls))?);
        let left = &groups[index + 1..];
        if let Some(files) = &mut files
            && !left.is_empty()
        {
            let (report, date) = report_of(&all);
            let left: Vec<&str> = left.iter().map(|group| group.title).collect();
            files.write_part(report, &date, &left.join(", "));
        }
    }
    let (report, date) = report_of(&all);
    finish_files(&report, &date, files)
}

impl CompareArguments {
    fn rounds(&self) -> u32 {
        if self.quick { 6 } else { self.rounds }
    }

    fn length(&self) -> Length {
        match self.quick {
            true => Length::quick(150),
            false => Length::warm(Duration::from_secs(self.seconds)),
        }
    }

    fn percents(&self) -> &'static [u32] {
        if self.quick { PERCENTS_QUICK } else { PERCENTS }
    }

    /// The chosen groups; without a choice all, or that of `--quick`.
    fn groups(&self) -> Vec<&'static CompareGroup> {
        let is_chosen = |group: &&CompareGroup| self.only.iter().any(|word| group.matches(word));
        let chosen: Vec<&CompareGroup> = GROUPS.iter().filter(is_chosen).collect();
        match chosen.is_empty() {
            true => GROUPS
                .iter()
                .filter(|group| !self.quick || group.name() == QUICK)
                .collect(),
            false => chosen,
        }
    }

    /// The time of all runs, if every system is installed.
    fn longest(&self, groups: &[&'static CompareGroup]) -> Duration {
        let systems = groups.iter().flat_map(|group| group.contenders());
        let systems = systems.filter(|contender| self.wants_system(contender.name));
        let cases = 1 + self.percents().len();
        let runs = systems.count() * cases * self.rounds() as usize;
        (self.length().planned() + BETWEEN_RUNS) * runs as u32
    }

    /// Whether a system is chosen, or none is.
    fn wants_system(&self, name: &str) -> bool {
        let is_system = |word: &&String| SYSTEMS.contains(&word.as_str());
        let mut chosen = self.only.iter().filter(is_system).peekable();
        chosen.peek().is_none() || chosen.any(|word| word == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn arguments(only: &[&str], quick: bool) -> CompareArguments {
        CompareArguments {
            rounds: 7,
            seconds: 2,
            only: only.iter().map(|&word| word.to_owned()).collect(),
            quick,
            seed: 1,
        }
    }

    #[test]
    fn groups_and_systems_are_chosen_apart() {
        let names = |only: &[&str], quick| -> Vec<_> {
            let groups = arguments(only, quick).groups();
            groups.into_iter().map(CompareGroup::name).collect()
        };
        assert_eq!(names(&[], false).len(), GROUPS.len());
        assert_eq!(names(&[], true), [QUICK]);
        assert_eq!(names(&["nginx"], true), [QUICK]);
        assert_eq!(
            names(&["static-h3", "nginx"], true),
            ["static-h3-small", "static-h3-large"]
        );
        let some = arguments(&["static-h3", "nginx"], false);
        assert!(some.wants_system("nginx") && !some.wants_system("caddy"));
        assert!(arguments(&["static-h3"], false).wants_system("caddy"));
    }

    #[test]
    fn a_quick_run_takes_two_minutes_and_a_full_one_a_few_hours() {
        let longest = |only: &[&str], quick| {
            let arguments = arguments(only, quick);
            arguments.longest(&arguments.groups()).as_secs()
        };
        assert!((30..120).contains(&longest(&[], true)));
        assert!((2 * 3_600..6 * 3_600).contains(&longest(&[], false)));
        assert!(longest(&["static-h1-small", "nginx", "h2o"], false) < 300);
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = word("varnsih").unwrap_err();
        assert!(
            error.contains("varnsih") && error.contains("varnish,") && error.contains("static-h3"),
            "{error}"
        );
    }
}
