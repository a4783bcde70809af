//! When and where a study was made, and its report in all forms.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::case::Measured;
use crate::goals::BenchOutcome;
use crate::invocation::Invocation;
use crate::load_result::{Affects, Problem};
use crate::machine::{FOREIGN_SHARE_MAX, Facts, current_foreign_share, warn_of_foreign_share};
use crate::noise::{Noise, NoiseWatch};
use crate::number;
use crate::output;
use crate::report::{Conclusion, ConclusionKind, FactGroup, Report, Step, Terminal};
use crate::result_file;
use crate::results::free_name;

/// Runs of so many seconds show what other programs used.
const SHORTEST_S: f64 = 2.0;

/// Watches the machine from before the first run.
pub(crate) struct Watch {
    begun: Instant,
    started_at: f64,
    foreign_before: f64,
    noise: NoiseWatch,
}

/// When and where the runs were made.
#[derive(Debug)]
pub(crate) struct Surroundings {
    pub(crate) facts: Facts,
    pub(crate) noise: Noise,
    /// Share of one core that other programs used before the first run.
    pub(crate) foreign_before: f64,
    /// The same during the runs.
    pub(crate) foreign_during: f64,
    /// Seconds since 1970.
    pub(crate) started_at: f64,
    pub(crate) duration: Duration,
}

impl Watch {
    /// Takes a second, in which nothing of the study may run.
    pub(crate) fn start() -> Watch {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let foreign_before = current_foreign_share();
        warn_of_foreign_share(foreign_before);
        Watch {
            begun: Instant::now(),
            started_at: since.map_or(0.0, |since| since.as_secs_f64()),
            foreign_before,
            noise: NoiseWatch::start(),
        }
    }

    /// At the end of the last run so far. `programs` are the installed programs that ran, `cases` what was measured.
    pub(crate) fn finish<'a>(
        &self,
        revision: &str,
        programs: impl IntoIterator<Item = &'static str>,
        cases: impl IntoIterator<Item = &'a Measured>,
    ) -> Surroundings {
        Surroundings {
            facts: Facts::gather(revision, programs),
            noise: self.noise.finish(Default::default()),
            foreign_before: self.foreign_before,
            foreign_during: foreign_share(cases),
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
        let foreign = [
            (self.foreign_before, "before the first run"),
            (self.foreign_during, "during the runs"),
        ];
        let foreign = foreign
            .into_iter()
            .filter(|(share, _)| *share > FOREIGN_SHARE_MAX);
        let foreign = foreign.map(|(share, when)| {
            let percent = number::fixed(share * 100.0, 0);
            format!("Other programs used {percent} % of a core {when}.")
        });
        let messages: Vec<_> = foreign.chain(self.noise.void_reasons()).collect();
        let problem = |message| Problem {
            affects: Affects::Times,
            message,
        };
        messages.into_iter().map(problem).collect()
    }

    fn environment(&self) -> Vec<FactGroup> {
        let Surroundings { facts, noise, .. } = self;
        let steal = number::fixed(noise.steal_share * 100.0, 1);
        let foreign = number::fixed(self.foreign_during * 100.0, 1);
        let mut notes = vec![
            ("Steal".to_owned(), format!("{steal} % of a core")),
            (
                "Other programs".to_owned(),
                format!("{foreign} % of a core during the runs"),
            ),
        ];
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

/// The share of one core that other programs used during all runs; 0 if these are too short for the ticks in which CPU
/// time is counted.
fn foreign_share<'a>(cases: impl IntoIterator<Item = &'a Measured>) -> f64 {
    let subjects = cases.into_iter().flat_map(|case| &case.subjects);
    let runs = subjects.flat_map(|subject| &subject.runs);
    let (foreign, elapsed) = runs.fold((0.0, 0.0), |(foreign, elapsed), run| {
        (foreign + run.foreign_s, elapsed + run.elapsed_s)
    });
    match elapsed < SHORTEST_S {
        true => 0.0,
        false => (foreign / elapsed).max(0.0),
    }
}

/// Prints the report and, unless the run was a quick one, saves it as compressed JSON, Markdown and HTML.
pub(crate) fn finish(
    report: &Report,
    name: &'static str,
    date: &str,
    is_saved: bool,
    invocation: &Invocation,
) -> Result<BenchOutcome, String> {
    let files = is_saved.then(|| ReportFiles::new(name, invocation));
    finish_files(report, date, files)
}

/// As [`finish`], with files that may already have an earlier state of the report.
pub(crate) fn finish_files(
    report: &Report,
    date: &str,
    files: Option<ReportFiles<'_>>,
) -> Result<BenchOutcome, String> {
    let report = &report.clone().settled();
    // The results are saved even if nobody can read the text.
    let printed = output::print(&report.text(&Terminal::of_stdout()));
    if let Some(mut files) = files {
        for file in files.write(report, date)? {
            output::message(&format!("saved {}", file.display()));
        }
    }
    printed?;
    match report.problems.is_empty() {
        true => Ok(BenchOutcome::Met),
        false => Ok(BenchOutcome::Void),
    }
}

/// The files of a report. They keep their name while it grows, so that a study of hours which is interrupted leaves what
/// it has measured.
pub(crate) struct ReportFiles<'a> {
    name: &'static str,
    folder: &'a Path,
    /// Whether there is a page for browsers beside the JSON.
    with_html: bool,
    /// The date, the name, and a number if there was such a report before; `None` until the first state is written.
    free_name: Option<String>,
}

impl<'a> ReportFiles<'a> {
    pub(crate) fn new(name: &'static str, invocation: &'a Invocation) -> ReportFiles<'a> {
        ReportFiles {
            name,
            folder: &invocation.out,
            with_html: invocation.with_html,
            free_name: None,
        }
    }

    /// Writes a report that is not complete, and says so: `left` names the parts that were not run. The run goes on if
    /// that fails.
    pub(crate) fn write_part(&mut self, mut report: Report, date: &str, left: &str) {
        let text = format!("The run did not get to its end. Missing: {left}");
        let conclusion = Conclusion::new(ConclusionKind::NotRun, text);
        report.conclusions.push(conclusion);
        match self.write(&report.settled(), date).as_deref() {
            Ok([file, ..]) => output::message(&format!("saved so far: {}", file.display())),
            Ok([]) => {}
            Err(error) => output::message(&format!("not saved so far: {error}")),
        }
    }

    fn write(&mut self, report: &Report, date: &str) -> Result<Vec<PathBuf>, String> {
        let folder = self.folder;
        let error = |error| format!("{}: {error}", folder.display());
        fs::create_dir_all(folder).map_err(error)?;
        let name = match &self.free_name {
            Some(name) => name.clone(),
            None => free_name(folder, date, self.name)?,
        };
        self.free_name = Some(name.clone());
        let mut forms = vec![
            (result_file::ENDING, result_file::compressed(report)?),
            ("md", report.markdown().into_bytes()),
        ];
        if self.with_html {
            forms.push(("html", report.html().into_bytes()));
        }
        let mut files = Vec::new();
        for (form, content) in forms {
            let file = folder.join(format!("{name}.{form}"));
            // Killed while it writes, the process leaves the earlier state.
            let next = folder.join(format!("{name}.{form}.part"));
            fs::write(&next, content)
                .and_then(|()| fs::rename(&next, &file))
                .map_err(|error| format!("{}: {error}", file.display()))?;
            files.push(file);
        }
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_folder::TestFolder;
    use crate::study::{MeasuredSubject, Run};

    #[test]
    fn a_report_that_grows_keeps_its_files() {
        let folder = TestFolder::create();
        let mut files = files(&folder, true);
        let report = || Report::new("Title", "Question?", "blitz bench study");
        files.write_part(report(), "2026-01-01", "the second link");
        let read = || fs::read_to_string(folder.path().join("2026-01-01-study.md")).unwrap();
        assert!(read().contains("Missing: the second link"), "{}", read());
        files.write(&report(), "2026-01-02").unwrap();
        assert!(!read().contains("Missing"));
        let expected = ["html", "json.gz", "md"].map(|form| format!("2026-01-01-study.{form}"));
        assert_eq!(names(&folder), expected);
    }

    fn files(folder: &TestFolder, with_html: bool) -> ReportFiles<'_> {
        ReportFiles {
            name: "study",
            folder: folder.path(),
            with_html,
            free_name: None,
        }
    }

    fn names(folder: &TestFolder) -> Vec<String> {
        let entries = fs::read_dir(folder.path()).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_report_without_html_is_compressed_json_and_markdown() {
        let folder = TestFolder::create();
        let report = Report::new("Title", "Question?", "blitz bench study");
        files(&folder, false).write(&report, "2026-01-01").unwrap();
        let expected = ["json.gz", "md"].map(|form| format!("2026-01-01-study.{form}"));
        assert_eq!(names(&folder), expected);
        let text = result_file::read_text(&folder.path().join(&expected[0])).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    }

    fn case(runs: &[(f64, f64)]) -> Measured {
        let run = |&(foreign_s, elapsed_s): &(f64, f64)| Run {
            foreign_s,
            elapsed_s,
            ..Run::default()
        };
        Measured {
            title: String::new(),
            load: String::new(),
            base: None,
            subjects: vec![MeasuredSubject {
                name: "blitz".to_owned(),
                runs: runs.iter().map(run).collect(),
                void: None,
            }],
            not_run: Vec::new(),
        }
    }

    #[test]
    fn other_programs_count_by_the_time_of_all_runs() {
        let long = case(&[(0.1, 1.0), (0.4, 3.0)]);
        assert_eq!(foreign_share([&long]), 0.125);
        let ticks = case(&[(-0.01, 0.05), (0.02, 0.05)]);
        assert_eq!(foreign_share([&ticks]), 0.0);
        assert_eq!(foreign_share([&case(&[(-0.1, 3.0)])]), 0.0);
    }

    #[test]
    fn other_programs_are_a_problem_before_and_during_the_runs() {
        let busy = case(&[(0.5, 2.5)]);
        let mut surroundings = Watch::start().finish("test", [], [&busy]);
        surroundings.foreign_before = 0.3;
        let texts: Vec<_> = surroundings
            .problems()
            .into_iter()
            .map(|it| it.message)
            .collect();
        assert_eq!(
            texts[0],
            "Other programs used 30 % of a core before the first run."
        );
        assert_eq!(
            texts[1],
            "Other programs used 20 % of a core during the runs."
        );
    }
}
