//! When and where a study was made, and its report in all forms.

use std::fs;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::goals::Outcome;
use crate::invocation::Invocation;
use crate::load_result::{Affects, Problem};
use crate::machine::{FOREIGN_SHARE_MAX, Facts, current_foreign_share, warn_of_foreign_share};
use crate::noise::{Noise, NoiseWatch};
use crate::number;
use crate::report::{FactGroup, Report, Step, Terminal};
use crate::results::free_name;

/// Watches the machine from before the first run.
pub(crate) struct Watch {
    begun: Instant,
    started_at: f64,
    foreign_share: f64,
    noise: NoiseWatch,
}

/// When and where the runs were made.
#[derive(Debug)]
pub(crate) struct Surroundings {
    pub(crate) facts: Facts,
    pub(crate) noise: Noise,
    /// Share of one core that other programs used before the first run.
    pub(crate) foreign_share: f64,
    /// Seconds since 1970.
    pub(crate) started_at: f64,
    pub(crate) duration: Duration,
}

impl Watch {
    /// Takes a second, in which nothing of the study may run.
    pub(crate) fn start() -> Watch {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let foreign_share = current_foreign_share();
        warn_of_foreign_share(foreign_share);
        Watch {
            begun: Instant::now(),
            started_at: since.map_or(0.0, |since| since.as_secs_f64()),
            foreign_share,
            noise: NoiseWatch::start(),
        }
    }

    /// At the end of the last run. `programs` are the installed programs that ran.
    pub(crate) fn finish(
        self,
        revision: &str,
        programs: impl IntoIterator<Item = &'static str>,
    ) -> Surroundings {
        Surroundings {
            facts: Facts::gather(revision, programs),
            noise: self.noise.finish(Default::default()),
            foreign_share: self.foreign_share,
            started_at: self.started_at,
            duration: self.begun.elapsed(),
        }
    }
}

impl Surroundings {
    /// Adds what the machine says to the report: times, problems, how to repeat it, the environment.
    pub(crate) fn describe(&self, report: &mut Report) {
        report.started_at = self.started_at;
        report.duration_s = self.duration.as_secs_f64();
        report.problems.extend(self.problems());
        let command = report.command.clone();
        report.repeat.push(Step::command(
            "Run it on a machine on which nothing else runs.",
            &command,
        ));
        report.environment.extend(self.environment());
    }

    fn problems(&self) -> Vec<Problem> {
        let mut messages = self.noise.void_reasons();
        if self.foreign_share > FOREIGN_SHARE_MAX {
            let percent = number::fixed(self.foreign_share * 100.0, 0);
            messages.insert(
                0,
                format!("Other programs used {percent} % of a core before the first run."),
            );
        }
        let problem = |message| Problem {
            affects: Affects::Times,
            message,
        };
        messages.into_iter().map(problem).collect()
    }

    fn environment(&self) -> Vec<FactGroup> {
        let Surroundings { facts, noise, .. } = self;
        let steal = number::fixed(noise.steal_share * 100.0, 1);
        let mut notes = vec![("Steal".to_owned(), format!("{steal} % of a core"))];
        let numbered = noise.notes().into_iter().enumerate();
        notes.extend(numbered.map(|(index, note)| (format!("Note {}", index + 1), note)));
        let mut machine = vec![
            ("Processor".to_owned(), facts.cpu.clone()),
            ("Processors".to_owned(), facts.cores.to_string()),
            ("Kernel".to_owned(), facts.kernel.clone()),
            ("Revision".to_owned(), facts.revision.clone()),
        ];
        let versions = facts.versions.iter().enumerate();
        machine
            .extend(versions.map(|(index, text)| (format!("Version {}", index + 1), text.clone())));
        vec![
            FactGroup::new("Machine", machine),
            FactGroup::new("Noise", notes),
        ]
    }
}

/// Prints the report and, unless the run was a quick one, saves it as JSON, Markdown and HTML.
pub(crate) fn finish(
    report: &Report,
    name: &str,
    date: &str,
    is_saved: bool,
    invocation: &Invocation,
) -> Result<Outcome, String> {
    print!("{}", report.text(&Terminal::of_stdout()));
    if is_saved {
        save(report, name, date, invocation)?;
    }
    match report.problems.is_empty() {
        true => Ok(Outcome::Met),
        false => Ok(Outcome::Void),
    }
}

fn save(report: &Report, name: &str, date: &str, invocation: &Invocation) -> Result<(), String> {
    let folder = &invocation.out;
    let error = |error| format!("{}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(error)?;
    let name = free_name(folder, date, name)?;
    let json = serde_json::to_string(report).map_err(|error| error.to_string())? + "\n";
    for (form, text) in [
        ("json", json),
        ("md", report.markdown()),
        ("html", report.html()),
    ] {
        let file = folder.join(format!("{name}.{form}"));
        fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        eprintln!("saved {}", file.display());
    }
    Ok(())
}
