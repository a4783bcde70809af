//! Settings of the machine that limit benchmarks: advice, and on request their change until the end of the run.
//!
//! **Every changed value is restored, even after SIGKILL.** A second process, the [`guardian`], knows the old values
//! before the first of them is changed and restores them when this process ends, however it ends. It cannot help
//! where it is killed as well, for example with its whole cgroup; a restart of the machine restores everything. A value
//! that another program has set meanwhile stays.

mod command;
mod guardian;
mod setting;

use std::fs;
use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::output;
use guardian::Guardian;
use setting::Setting;

pub(crate) use command::{TuningArguments, run};
pub(crate) use setting::GOVERNOR;

/// The settings of this machine, unchanged.
#[derive(Debug)]
pub(crate) struct Tuning {
    settings: Vec<Setting>,
    open_files: Rlimit,
}

/// A change of a setting, or its failure, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    Made(String),
    NotMade(String),
}

/// The changed settings. They are restored when this is dropped.
#[derive(Debug)]
pub(crate) struct Tuned {
    pub(crate) changes: Vec<Change>,
    /// The settings, and the values that they have until the end of the run.
    expected: Vec<(Setting, String)>,
    guardian: Option<Guardian>,
    open_files_before: Rlimit,
}

impl Tuning {
    /// Reads the settings. `root` is the folder with `proc` and `sys`.
    pub(crate) fn read(root: &Path) -> Tuning {
        Tuning {
            settings: setting::all(root),
            open_files: getrlimit(Resource::Nofile),
        }
    }

    /// The settings to change, and how; empty if nothing has to be.
    pub(crate) fn advice(&self) -> Vec<String> {
        let mut advice: Vec<String> = Vec::new();
        for setting in &self.settings {
            let text = setting.advice();
            // All cores with the same governor have the same advice.
            advice.extend(text.filter(|text| !advice.contains(text)));
        }
        if self.raised_open_files().is_some() {
            advice.push(format!(
                "the limit of open files is {}, and {} are possible: ulimit -n {1}",
                limit(self.open_files.current),
                limit(self.open_files.maximum)
            ));
        }
        advice
    }

    /// The value of each setting, in words.
    pub(crate) fn facts(&self) -> Vec<(String, String)> {
        let mut facts: Vec<(String, String)> = Vec::new();
        for setting in &self.settings {
            let fact = setting.fact();
            if !facts.contains(&fact) {
                facts.push(fact);
            }
        }
        let (soft, hard) = (self.open_files.current, self.open_files.maximum);
        let open_files = format!("{}, at most {}", limit(soft), limit(hard));
        facts.push(("Open files".to_owned(), open_files));
        facts
    }

    fn raised_open_files(&self) -> Option<Rlimit> {
        let Rlimit { current, maximum } = self.open_files;
        let is_lower = current.is_some_and(|soft| maximum.is_none_or(|hard| soft < hard));
        is_lower.then_some(Rlimit {
            current: maximum,
            maximum,
        })
    }

    /// Changes what is too low. A setting that cannot be changed is a [`Change::NotMade`]. `blitz` is the program
    /// whose process restores the values. Fails without a change if that does not start.
    pub(crate) fn apply(self, blitz: &Path) -> Result<Tuned, String> {
        let mut wanted: Vec<&Setting> = Vec::new();
        let mut changes = Vec::new();
        for setting in &self.settings {
            match setting.obstacle() {
                Some(reason) => changes.push(Change::NotMade(reason)),
                None if setting.advice().is_some() => wanted.push(setting),
                None => {}
            }
        }
        let guardian = match wanted.is_empty() {
            true => None,
            false => Some(Guardian::start(blitz, &wanted)?),
        };
        let mut expected = Vec::new();
        for setting in &self.settings {
            let mut value = setting.value();
            if wanted.contains(&setting) {
                let change = change(setting);
                if matches!(change, Change::Made(_)) {
                    value = &setting.wanted;
                }
                changes.push(change);
            }
            expected.push((setting.clone(), value.to_owned()));
        }
        if let Some(raised) = self.raised_open_files() {
            let text = format!(
                "the limit of open files: {} → {}",
                limit(self.open_files.current),
                limit(raised.current)
            );
            changes.push(match setrlimit(Resource::Nofile, raised) {
                Ok(()) => Change::Made(text),
                Err(error) => Change::NotMade(format!("{text}: {error}")),
            });
        }
        Ok(Tuned {
            changes,
            expected,
            guardian,
            open_files_before: self.open_files,
        })
    }
}

fn change(setting: &Setting) -> Change {
    let text = setting.change_text();
    match fs::write(&setting.file, &setting.wanted) {
        Ok(()) => Change::Made(text),
        // Not root, or a container whose /proc/sys and /sys cannot be written.
        Err(error) => Change::NotMade(format!("{text}: {error}")),
    }
}

impl Tuned {
    /// The settings that another program has changed since, perhaps another benchmark that has ended. Later
    /// measurements had other values than the report says.
    pub(crate) fn changed_by_others(&self) -> Vec<String> {
        let change = |(setting, expected): &(Setting, String)| {
            let now = setting.value_now().filter(|now| now != expected)?;
            let name = &setting.name;
            Some(format!(
                "Another program changed {name} from {expected} to {now} during the run."
            ))
        };
        self.expected.iter().filter_map(change).collect()
    }

    /// Restores the old values. The problems, which need the attention of people; none if all went well.
    pub(crate) fn restore(mut self) -> Vec<String> {
        self.restore_now()
    }

    fn restore_now(&mut self) -> Vec<String> {
        let mut problems = self.guardian.take().map_or(Vec::new(), Guardian::restore);
        if let Err(error) = setrlimit(Resource::Nofile, self.open_files_before) {
            problems.push(format!("the limit of open files: {error}"));
        }
        problems
    }
}

impl Drop for Tuned {
    fn drop(&mut self) {
        for problem in self.restore_now() {
            output::message(&format!("not restored: {problem}"));
        }
    }
}

impl Change {
    /// In words.
    pub(crate) fn text(&self) -> String {
        match self {
            Change::Made(text) => format!("set until the end of the run: {text}"),
            Change::NotMade(text) => format!("not set: {text}"),
        }
    }
}

fn limit(limit: Option<u64>) -> String {
    limit.map_or("unlimited".to_owned(), |limit| limit.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_folder::TestFolder;

    fn tuning(soft: Option<u64>, hard: Option<u64>) -> Tuning {
        Tuning {
            settings: Vec::new(),
            open_files: Rlimit {
                current: soft,
                maximum: hard,
            },
        }
    }

    #[test]
    fn the_soft_limit_of_open_files_is_raised_to_the_hard_one() {
        let raised = tuning(Some(1024), Some(20_000)).raised_open_files();
        assert_eq!(raised.unwrap().current, Some(20_000));
        let unlimited = tuning(Some(1024), None);
        assert_eq!(unlimited.raised_open_files().unwrap().current, None);
        let advice = unlimited.advice();
        assert!(advice[0].ends_with("ulimit -n unlimited"), "{advice:?}");
        assert!(tuning(Some(20_000), Some(20_000)).advice().is_empty());
        assert!(tuning(None, None).advice().is_empty());
    }

    #[test]
    fn a_setting_that_another_program_changes_is_named() {
        let folder = TestFolder::create();
        let file = folder.path().join("proc/sys/net/core/somaxconn");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "4096\n").unwrap();
        // Nothing is to be changed: no process is started.
        let tuned = Tuning::read(folder.path())
            .apply(Path::new("/nowhere"))
            .unwrap();
        assert!(tuned.changed_by_others().is_empty());
        fs::write(&file, "128\n").unwrap();
        assert_eq!(
            tuned.changed_by_others(),
            ["Another program changed net.core.somaxconn from 4096 to 128 during the run."]
        );
    }

    #[test]
    fn this_machine_has_values_and_nothing_is_changed_without_a_request() {
        let tuning = Tuning::read(Path::new("/"));
        let facts = tuning.facts();
        assert!(facts.iter().any(|(name, _)| name == "Open files"));
        assert_eq!(tuning.facts(), Tuning::read(Path::new("/")).facts());
    }
}
