//! `blitz bench board`: the requests of HttpArena's infrastructure league, to Blitz, its entry, nginx, H2O and Caddy. Each
//! server is verified before it is measured.

mod findings;
mod profiles;
mod verify;

use std::time::Duration;

use clap::Args;

use super::system;
use crate::board;
use crate::goals::BenchOutcome;
use crate::invocation::Invocation;
use crate::not_run::NotRun;
use crate::number;
use crate::output;
use crate::programs::locate;
use crate::report;
use crate::run_folder::RunFolder;
use crate::study::{
    Case, Contender, Length, Load, Measured, ReportFiles, Stage, Subject, Watch, finish_files,
};
use crate::system::SystemKind;
use crate::tls_files::TlsFiles;
use findings::Findings;
use profiles::{PROFILES, Profile};

const EXAMPLES: &str = "\
Examples:
  blitz bench board
      all profiles beside the servers that are installed
  blitz bench board --quick
      a first impression of four profiles in two minutes; not saved
  blitz bench board --only static,static-h2,blitz,nginx
      two profiles on two servers
  cargo xtask bench board
      the same in the repository, with the entry, which computes its responses";

/// Flags of `blitz bench board`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BoardArguments {
    /// Rounds; 6 are the least that can show a difference
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(6..=200))]
    rounds: u32,
    /// Length of one run
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Only these profiles or systems, separated by commas; an unknown name lists the known ones
    #[arg(long, value_delimiter = ',', value_parser = word)]
    only: Vec<String>,
    /// Four profiles with an eighth of the connections, in runs of 0.2 s, or of 1 s with wrk; not saved
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    quick: bool,
    /// The seed of the order in which the systems of a round run
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The system that the others are compared with.
const BLITZ: &str = "blitz";
/// The program of `boards/httparena`, which computes what the others have as fixed texts and files.
const ENTRY: &str = "blitz-entry";

const SYSTEMS: [(&str, SystemKind); 5] = [
    (BLITZ, SystemKind::Blitz { io: "auto" }),
    (ENTRY, SystemKind::BoardEntry { io: "auto" }),
    ("nginx", SystemKind::Nginx),
    ("h2o", SystemKind::H2o),
    ("caddy", SystemKind::Caddy),
];

/// The profiles of `--quick`: one for each version of HTTP, and files.
const QUICK: [&str; 4] = ["baseline", "static", "baseline-h2", "baseline-h3"];

/// Runs of `--quick` have this part of the connections.
const QUICK_PART: u32 = 8;

/// The time of a run beside its load: the start of the generator, and its first requests.
const BETWEEN_RUNS: Duration = Duration::from_millis(300);

/// A value of `--only`.
fn word(word: &str) -> Result<String, String> {
    let profiles = PROFILES.iter().map(Profile::name);
    let known: Vec<&str> = SYSTEMS
        .map(|(name, _)| name)
        .into_iter()
        .chain(profiles)
        .collect();
    match known.contains(&word) {
        true => Ok(word.to_owned()),
        false => Err(format!(
            "there is no system or profile `{word}`; known: {}",
            known.join(", ")
        )),
    }
}

/// A profile with its runs.
struct MeasuredProfile {
    profile: &'static Profile,
    case: Measured,
    systems: Vec<report::System>,
}

/// Measures and reports.
pub(crate) fn run(
    arguments: &BoardArguments,
    invocation: &Invocation,
) -> Result<BenchOutcome, String> {
    locate("taskset")?;
    let folder = RunFolder::create()?;
    let tls = TlsFiles::create(folder.path(), &invocation.programs)?;
    board::write_all(folder.path())?;
    let watch = Watch::start();
    let profiles = arguments.profiles();
    let most = number::long_time(arguments.longest(&profiles).as_secs_f64());
    output::message(&format!("{} profiles, at most {most}", profiles.len()));
    let mut files = (!arguments.quick).then(|| ReportFiles::new("board", invocation));
    let mut all = Vec::new();
    let report_of = |all: &[MeasuredProfile]| {
        let cases = all.iter().map(|measured| &measured.case);
        let surroundings = watch.finish(&invocation.revision, [], cases);
        let report =
            Findings::new(all).report(&invocation.command, &surroundings, arguments.rounds());
        (report, surroundings.facts.date)
    };
    for (index, profile) in profiles.iter().enumerate() {
        output::message(&format!(
            "profile {} of {}: {} …",
            index + 1,
            profiles.len(),
            profile.name()
        ));
        all.push(measure(arguments, invocation, profile, (&folder, &tls))?);
        let left: Vec<&str> = profiles[index + 1..].iter().map(|it| it.title).collect();
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

impl BoardArguments {
    fn rounds(&self) -> u32 {
        if self.quick { 6 } else { self.rounds }
    }

    /// wrk measures whole seconds, and has no warm-up.
    fn length(&self, profile: &Profile) -> Length {
        match (self.quick, profile.needs_wrk()) {
            (true, true) => Length::Time {
                measured: Duration::from_secs(1),
                warm_up: Duration::ZERO,
            },
            (true, false) => Length::quick(200),
            (false, true) => Length::Time {
                measured: Duration::from_secs(self.seconds),
                warm_up: Duration::ZERO,
            },
            (false, false) => Length::warm(Duration::from_secs(self.seconds)),
        }
    }

    /// A short run would end before many connections are open.
    fn connections(&self, profile: &Profile) -> u32 {
        match self.quick {
            true => (profile.connections / QUICK_PART).max(1),
            false => profile.connections,
        }
    }

    fn profiles(&self) -> Vec<&'static Profile> {
        let is_profile = |word: &str| PROFILES.iter().any(|profile| profile.name() == word);
        let chooses = self.only.iter().any(|word| is_profile(word));
        let is_wanted = |profile: &&Profile| match self.quick && !chooses {
            true => QUICK.contains(&profile.name()),
            false => self.wants(profile.name(), is_profile),
        };
        PROFILES.iter().filter(is_wanted).collect()
    }

    fn wants_system(&self, name: &str) -> bool {
        self.wants(name, |word| SYSTEMS.iter().any(|(known, _)| *known == word))
    }

    /// Whether `name` is chosen, or nothing of its kind is.
    fn wants(&self, name: &str, is_of_kind: impl Fn(&str) -> bool) -> bool {
        let mut chosen = self.only.iter().filter(|word| is_of_kind(word)).peekable();
        chosen.peek().is_none() || chosen.any(|word| word == name)
    }

    /// The time of all runs, if every system is installed.
    fn longest(&self, profiles: &[&'static Profile]) -> Duration {
        let systems = SYSTEMS.iter().filter(|(name, _)| self.wants_system(name));
        let runs = systems.count() as u32 * self.rounds();
        let each = profiles
            .iter()
            .map(|profile| self.length(profile).planned() + BETWEEN_RUNS);
        each.sum::<Duration>() * runs
    }
}

/// Starts, verifies and measures the systems of a profile.
fn measure(
    arguments: &BoardArguments,
    invocation: &Invocation,
    profile: &'static Profile,
    (folder, tls): (&RunFolder, &TlsFiles),
) -> Result<MeasuredProfile, String> {
    let mut stage = Stage::new(&invocation.programs, folder, tls);
    for (name, kind) in SYSTEMS
        .into_iter()
        .filter(|(name, _)| arguments.wants_system(name))
    {
        let contender = Contender {
            name,
            system: system(name, &profile.group, kind),
        };
        let connections = arguments.connections(profile);
        let load = (connections, connections * profile.streams);
        let protocol = profile.version.alpn();
        stage.start(&contender, load, protocol, &invocation.revision)?;
    }
    let case = case(arguments, profile, &stage, folder)?;
    Ok(MeasuredProfile {
        profile,
        case: case.run_each(&stage.generator(), arguments.rounds(), arguments.seed)?,
        systems: stage.described().to_vec(),
    })
}

/// The load on the systems whose responses are right. A wrong response of Blitz ends the benchmark.
fn case(
    arguments: &BoardArguments,
    profile: &'static Profile,
    stage: &Stage<'_>,
    folder: &RunFolder,
) -> Result<Case, String> {
    let program = profile.program(folder.path())?;
    let missing = match profile.needs_wrk() {
        true => locate("wrk").err(),
        false => None,
    };
    let connections = arguments.connections(profile);
    let mut not_run = stage.not_run().to_vec();
    let mut subjects = Vec::new();
    for (name, base, watched) in stage.running(profile.scheme()) {
        let verified = match &missing {
            Some(reason) => Err(reason.clone()),
            None => verify::verify(profile, &base, name == ENTRY),
        };
        match verified {
            Ok(()) => {}
            Err(error) if missing.is_none() && [BLITZ, ENTRY].contains(&name) => {
                return Err(format!("{}, {name}: {error}", profile.name()));
            }
            Err(reason) => {
                let name = name.to_owned();
                not_run.push(NotRun { name, reason });
                continue;
            }
        }
        let length = arguments.length(profile);
        let load = Load::new(base, profile.requests(), profile.version, length);
        subjects.push(Subject {
            name: name.to_owned(),
            load: Load {
                program: program.clone(),
                ..load.with(connections, profile.streams)
            },
            watched,
            may_fail: false,
        });
    }
    let verified: Vec<&str> = subjects
        .iter()
        .map(|subject| subject.name.as_str())
        .collect();
    output::message(&format!("  verified: {}", verified.join(", ")));
    let has_blitz = verified.contains(&BLITZ);
    Ok(Case {
        title: profile.name().to_owned(),
        load: profile.words(connections),
        subjects,
        base: has_blitz.then(|| BLITZ.to_owned()),
        not_run,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(only: &[&str], quick: bool) -> BoardArguments {
        BoardArguments {
            rounds: 6,
            seconds: 3,
            only: only.iter().map(|&word| word.to_owned()).collect(),
            quick,
            seed: 1,
        }
    }

    #[test]
    fn profiles_and_systems_are_chosen_apart() {
        let some = arguments(&["static", "nginx"], false);
        let names: Vec<&str> = some.profiles().iter().map(|it| it.name()).collect();
        assert_eq!(names, ["static"]);
        assert!(some.wants_system("nginx") && !some.wants_system("h2o"));
        let count = |only: &[&str], quick| arguments(only, quick).profiles().len();
        assert_eq!(count(&["caddy"], false), PROFILES.len());
        assert_eq!(count(&["caddy"], true), QUICK.len());
        assert_eq!(count(&["json-tls", "static-h3"], true), 2);
    }

    #[test]
    fn a_quick_run_takes_two_minutes_and_a_full_one_less_than_an_hour() {
        let longest = |quick| {
            let arguments = arguments(&[], quick);
            arguments.longest(&arguments.profiles()).as_secs()
        };
        assert!((60..150).contains(&longest(true)), "{}", longest(true));
        assert!((600..3600).contains(&longest(false)), "{}", longest(false));
    }

    #[test]
    fn runs_of_wrk_have_whole_seconds_and_no_warm_up() {
        for profile in PROFILES.iter().filter(|it| it.needs_wrk()) {
            for quick in [true, false] {
                let Length::Time { measured, warm_up } = arguments(&[], quick).length(profile)
                else {
                    panic!("no time")
                };
                assert!(warm_up.is_zero() && measured.subsec_nanos() == 0);
            }
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = word("ngnix").unwrap_err();
        assert!(
            error.contains("blitz-entry, nginx") && error.contains("json-tls"),
            "{error}"
        );
    }
}
