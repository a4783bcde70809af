//! One setting: its file, its value, and the value that a benchmark wants.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The backlogs that `blitz doctor` recommends too.
const BACKLOG: u64 = 4096;
const NETDEV_BACKLOG: u64 = 16_384;
/// The name of the setting of each core.
pub(crate) const GOVERNOR: &str = "the CPU governor";
const PERFORMANCE: &str = "performance";

/// The numbers in `/proc/sys`: key, wanted value, and what a lower one does.
const NUMBERS: [(&str, u64, &str); 3] = [
    (
        "net/core/somaxconn",
        BACKLOG,
        "connections that wait to be accepted are dropped early",
    ),
    (
        "net/ipv4/tcp_max_syn_backlog",
        BACKLOG,
        "handshakes of a burst of connections are dropped early",
    ),
    (
        "net/core/netdev_max_backlog",
        NETDEV_BACKLOG,
        "packets of a burst may be dropped",
    ),
];

/// A setting of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    /// As sysctl names it, or in words.
    pub(super) name: String,
    pub(super) file: PathBuf,
    /// The value, or why there is none.
    found: Result<String, String>,
    pub(super) wanted: String,
    is_good: bool,
    /// The effect of the found value on benchmarks.
    effect: &'static str,
    /// The command that sets it.
    command: String,
}

/// The settings below `root`. Governors are those of the cores that have one.
pub(super) fn all(root: &Path) -> Vec<Setting> {
    let mut settings: Vec<Setting> = NUMBERS
        .iter()
        .map(|(key, wanted, effect)| number(root, key, *wanted, effect))
        .collect();
    settings.extend(governors(root));
    settings
}

fn number(root: &Path, key: &str, wanted: u64, effect: &'static str) -> Setting {
    let file = root.join("proc/sys").join(key);
    let name = key.replace('/', ".");
    let found = read(&file);
    let is_good = found.as_ref().is_ok_and(|text| {
        let number = text.parse::<u64>();
        number.is_ok_and(|number| number >= wanted)
    });
    Setting {
        command: format!("sysctl -w {name}={wanted}"),
        name,
        file,
        found,
        wanted: wanted.to_string(),
        is_good,
        effect,
    }
}

fn governors(root: &Path) -> Vec<Setting> {
    let folder = root.join("sys/devices/system/cpu");
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.path().join("cpufreq/scaling_governor"))
        .filter(|file| file.is_file())
        .collect();
    files.sort();
    let setting = |file: PathBuf| {
        let found = read(&file);
        Setting {
            name: GOVERNOR.to_owned(),
            file,
            is_good: found.as_deref() == Ok(PERFORMANCE),
            found,
            wanted: PERFORMANCE.to_owned(),
            effect: "cores raise their frequency late",
            command: "cpupower frequency-set -g performance".to_owned(),
        }
    };
    files.into_iter().map(setting).collect()
}

fn read(file: &Path) -> Result<String, String> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err("this machine, or this container, does not have it".to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

impl Setting {
    /// Name and value.
    pub(super) fn fact(&self) -> (String, String) {
        let value = match &self.found {
            Ok(value) => value.clone(),
            Err(reason) => reason.clone(),
        };
        (self.name.clone(), value)
    }

    /// The present value; empty if there is none.
    pub(super) fn value(&self) -> &str {
        self.found.as_deref().unwrap_or_default()
    }

    /// The wanted value, and the command; `None` if it is good or unknown.
    pub(super) fn advice(&self) -> Option<String> {
        let Setting {
            name,
            wanted,
            effect,
            command,
            ..
        } = self;
        let found = self.found.as_ref().ok().filter(|_| !self.is_good)?;
        Some(format!(
            "{name} is {found} ({effect}); better {wanted}: {command}"
        ))
    }

    /// Why it cannot be changed: it does not exist.
    pub(super) fn obstacle(&self) -> Option<String> {
        let reason = self.found.as_ref().err()?;
        Some(format!("{}: {reason}", self.name))
    }

    /// The value of its file now; `None` if there is none.
    pub(super) fn value_now(&self) -> Option<String> {
        read(&self.file).ok()
    }

    /// Old and new value.
    pub(super) fn change_text(&self) -> String {
        format!("{}: {} → {}", self.name, self.value(), self.wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_folder::TestFolder;

    fn folder(files: &[(&str, &str)]) -> TestFolder {
        let folder = TestFolder::create();
        for (file, text) in files {
            let file = folder.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        folder
    }

    #[test]
    fn low_values_have_advice_with_their_command_and_high_ones_none() {
        let folder = folder(&[
            ("proc/sys/net/core/somaxconn", "128\n"),
            ("proc/sys/net/ipv4/tcp_max_syn_backlog", "8192\n"),
            ("proc/sys/net/core/netdev_max_backlog", "1000\n"),
        ]);
        let settings = all(folder.path());
        let advice: Vec<String> = settings.iter().filter_map(Setting::advice).collect();
        assert_eq!(advice.len(), 2);
        assert!(advice[0].starts_with("net.core.somaxconn is 128 ("));
        assert!(advice[0].ends_with("better 4096: sysctl -w net.core.somaxconn=4096"));
        assert!(advice[1].ends_with("sysctl -w net.core.netdev_max_backlog=16384"));
    }

    #[test]
    fn a_missing_setting_is_no_advice_and_has_a_reason() {
        let settings = all(folder(&[]).path());
        assert_eq!(settings.len(), 3);
        assert!(settings.iter().all(|setting| setting.advice().is_none()));
        let reason = settings[0].obstacle().unwrap();
        assert!(reason.starts_with("net.core.somaxconn: this machine"));
    }

    #[test]
    fn every_core_with_a_governor_is_a_setting() {
        let file = |core: &str| format!("sys/devices/system/cpu/{core}/cpufreq/scaling_governor");
        let files = [file("cpu0"), file("cpu1")];
        let folder = folder(&[(&files[0], "powersave\n"), (&files[1], "performance\n")]);
        let settings = all(folder.path());
        assert!(settings[3].advice().unwrap().contains("is powersave"));
        assert_eq!(settings[4].advice(), None);
        assert_eq!(
            settings[3].change_text(),
            "the CPU governor: powersave → performance"
        );
    }
}
