//! The machine, the revision and the versions that a result belongs to.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::output;
use crate::process::busy_seconds;
use crate::programs::locate;

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
    /// `programs` are the load tools and peers, in any order.
    pub(crate) fn gather(
        revision: &str,
        programs: impl IntoIterator<Item = &'static str>,
    ) -> Facts {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name"));
        Facts {
            date: date(),
            revision: revision.to_owned(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpu: model.map_or_else(
                || "unknown".to_owned(),
                |m| m.trim_matches([' ', '\t', ':']).to_owned(),
            ),
            cores: thread::available_parallelism().map_or(1, usize::from),
            versions: {
                let programs: BTreeSet<_> = programs.into_iter().collect();
                programs.into_iter().map(version).collect()
            },
        }
    }
}

/// Share of one core that other programs use, measured over a second.
pub(crate) fn current_foreign_share() -> f64 {
    let before = busy_seconds();
    thread::sleep(Duration::from_secs(1));
    busy_seconds() - before
}

/// Warns if a set that starts now will be void.
pub(crate) fn warn_of_foreign_share(share: f64) {
    if share > FOREIGN_SHARE_MAX {
        let percent = share * 100.0;
        output::message(&format!(
            "warning: other programs use {percent:.0} % of a core; the set will be void"
        ));
    }
}

/// The first line of a program's version, on standard output or standard error.
pub(crate) fn version(program: &str) -> String {
    let flag = match program {
        "h2load" | "curl" | "envoy" => "--version",
        "openssl" | "caddy" => "version",
        "varnishd" => "-V",
        _ => "-v",
    };
    let found = locate(program).unwrap_or_else(|_| program.into());
    // Envoy prints the path that it was started with, which belongs to this machine.
    let Ok(output) = Command::new(found).arg0(program).arg(flag).output() else {
        return format!("{program} (unknown version)");
    };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find(|line| !line.trim().is_empty());
    line.unwrap_or(program).trim().to_owned()
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
}
