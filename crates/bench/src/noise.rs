//! The disturbances of a measurement: the hypervisor, swapping, heat, changing frequencies and other programs.
//!
//! The counters of the kernel are read before and after the rounds. Some reasons make a set void; the others
//! are notes for the reader. Files that a machine does not have say nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;

use crate::process::TICKS_PER_SECOND;

/// Largest share of one core that the hypervisor may take in a valid set.
const STEAL_SHARE_MAX: f64 = 0.05;
/// Most pages that a valid set may swap: 1 MiB of pages of 4 KiB.
const SWAPPED_PAGES_MAX: u64 = 256;
/// The least frequency, divided by the greatest, without a note.
const FREQUENCY_RATIO_MIN: f64 = 0.9;
/// The load average before the start without a note.
const LOAD_MAX: f64 = 1.0;

/// Most preemptions of a server in a second without a note.
const PREEMPTIONS_MAX: f64 = 20.0;

/// Observes the machine during the rounds.
#[derive(Debug)]
pub(crate) struct NoiseWatch {
    begun: Instant,
    before: Counters,
    load_before: f64,
    frequencies_khz: Vec<u64>,
}

/// The counters of the machine since its start.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Counters {
    steal_ticks: f64,
    swapped_pages: u64,
    /// Of all cores; `None` if the machine does not count them.
    throttles: Option<u64>,
}

/// The disturbances of a set of runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Noise {
    pub(crate) seconds: f64,
    /// Average of the minute before the start: runnable and waiting tasks.
    pub(crate) load_before: f64,
    /// Share of one core that the hypervisor gave to other machines.
    pub(crate) steal_share: f64,
    /// Pages read from and written to swap.
    pub(crate) swapped_pages: u64,
    /// How often a core was slowed down because of its temperature.
    pub(crate) throttles: Option<u64>,
    /// The least and the greatest frequency of a core, at the ends of rounds.
    pub(crate) frequency_mhz: Option<(u64, u64)>,
    /// The frequency governors of all cores.
    pub(crate) governors: BTreeSet<String>,
    /// How often other threads took the core of a server, per second.
    pub(crate) preemptions: BTreeMap<String, f64>,
}

impl NoiseWatch {
    pub(crate) fn start() -> NoiseWatch {
        let mut watch = NoiseWatch {
            begun: Instant::now(),
            before: Counters::read(),
            load_before: load_average(&text("/proc/loadavg")),
            frequencies_khz: Vec::new(),
        };
        watch.read_frequencies();
        watch
    }

    /// Reads the frequencies, which have no counters.
    pub(crate) fn read_frequencies(&mut self) {
        let files = files_of_cores("cpufreq/scaling_cur_freq");
        let texts = files
            .iter()
            .filter_map(|file| fs::read_to_string(file).ok());
        let frequencies = texts.filter_map(|text| text.trim().parse::<u64>().ok());
        self.frequencies_khz.extend(frequencies);
    }

    /// `preemptions` is what each server has suffered, per second.
    pub(crate) fn finish(&self, preemptions: BTreeMap<String, f64>) -> Noise {
        let seconds = self.begun.elapsed().as_secs_f64();
        let governors = files_of_cores("cpufreq/scaling_governor");
        let governors = governors
            .iter()
            .filter_map(|file| fs::read_to_string(file).ok());
        let mhz = |khz: &u64| khz / 1000;
        let least = self.frequencies_khz.iter().min().map(mhz);
        Noise {
            load_before: self.load_before,
            frequency_mhz: least.zip(self.frequencies_khz.iter().max().map(mhz)),
            governors: governors.map(|text| text.trim().to_owned()).collect(),
            preemptions,
            ..between(&self.before, &Counters::read(), seconds)
        }
    }
}

impl Counters {
    fn read() -> Counters {
        let throttles = ["core_throttle_count", "package_throttle_count"]
            .iter()
            .flat_map(|name| files_of_cores(&format!("thermal_throttle/{name}")))
            .filter_map(|file| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok());
        Counters {
            throttles: throttles.reduce(|sum, count| sum + count),
            ..Counters::parse(&text("/proc/stat"), &text("/proc/vmstat"))
        }
    }

    fn parse(stat: &str, vmstat: &str) -> Counters {
        // cpu user nice system idle iowait irq softirq steal
        let steal = stat
            .lines()
            .next()
            .and_then(|line| line.split_whitespace().nth(8));
        let pages = |name: &str| {
            let line = vmstat.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|count| count.trim().parse::<u64>().ok())
                .unwrap_or(0)
        };
        Counters {
            steal_ticks: steal.and_then(|ticks| ticks.parse().ok()).unwrap_or(0.0),
            swapped_pages: pages("pswpin ") + pages("pswpout "),
            throttles: None,
        }
    }
}

/// The noise that the counters alone show.
fn between(before: &Counters, after: &Counters, seconds: f64) -> Noise {
    let throttles = before.throttles.zip(after.throttles);
    Noise {
        seconds,
        load_before: 0.0,
        steal_share: (after.steal_ticks - before.steal_ticks)
            / TICKS_PER_SECOND
            / seconds.max(1e-9),
        swapped_pages: after.swapped_pages.saturating_sub(before.swapped_pages),
        throttles: throttles.map(|(before, after)| after.saturating_sub(before)),
        frequency_mhz: None,
        governors: BTreeSet::new(),
        preemptions: BTreeMap::new(),
    }
}

impl Noise {
    /// The disturbances that make a set void, in words.
    pub(crate) fn void_reasons(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if self.steal_share > STEAL_SHARE_MAX {
            let percent = self.steal_share * 100.0;
            reasons.push(format!(
                "the hypervisor took {percent:.0} % of a core (steal)"
            ));
        }
        if self.swapped_pages > SWAPPED_PAGES_MAX {
            let pages = self.swapped_pages;
            reasons.push(format!("{pages} pages were swapped: memory is short"));
        }
        if let Some(count @ 1..) = self.throttles {
            reasons.push(format!(
                "the processor was too hot and slowed down {count} times"
            ));
        }
        reasons
    }

    /// The disturbances that a reader should know of, in words.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.load_before > LOAD_MAX {
            let load = self.load_before;
            notes.push(format!("the load average before the start was {load:.1}"));
        }
        if let Some((least, greatest)) = self.frequency_mhz
            && (least as f64) < FREQUENCY_RATIO_MIN * greatest as f64
        {
            notes.push(format!(
                "the cores had frequencies from {least} to {greatest} MHz"
            ));
        }
        let others = self
            .governors
            .iter()
            .filter(|governor| *governor != "performance");
        notes.extend(others.map(|governor| {
            format!("the frequency governor is {governor}; performance varies less")
        }));
        let preempted = self.preemptions.iter();
        let preempted = preempted.filter(|(_, count)| **count > PREEMPTIONS_MAX);
        notes.extend(preempted.map(|(name, count)| {
            format!("other threads took the core of {name} {count:.0} times per second")
        }));
        notes
    }
}

fn load_average(loadavg: &str) -> f64 {
    let first = loadavg.split_whitespace().next();
    first.and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

fn text(file: &str) -> String {
    fs::read_to_string(file).unwrap_or_default()
}

/// The files of this name of all cores that have one.
fn files_of_cores(name: &str) -> Vec<PathBuf> {
    let folders = fs::read_dir("/sys/devices/system/cpu")
        .into_iter()
        .flatten();
    let is_core = |folder: &PathBuf| {
        let name = folder.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.strip_prefix("cpu"));
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let cores = folders.flatten().map(|entry| entry.path()).filter(is_core);
    cores
        .map(|core| core.join(name))
        .filter(|file| file.is_file())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str =
        "cpu  463853 68287 71444 52013 21779 0 2667 7909 0 0\ncpu0 1 2 3 4 5 6 7 8\n";
    const VMSTAT: &str = "pgpgin 1\npswpin 30\npswpout 12\npswpout_zero 5\n";

    #[test]
    fn steal_and_swapped_pages_are_read() {
        let counters = Counters::parse(STAT, VMSTAT);
        assert_eq!((counters.steal_ticks, counters.swapped_pages), (7909.0, 42));
        let none = Counters::parse("", "");
        assert_eq!((none.steal_ticks, none.swapped_pages), (0.0, 0));
        assert_eq!(load_average("6.98 4.62 4.44 9/153 13682\n"), 6.98);
    }

    #[test]
    fn a_quiet_machine_has_no_reasons_and_no_notes() {
        let counters = Counters::parse(STAT, VMSTAT);
        let noise = between(&counters, &counters, 60.0);
        assert!(noise.void_reasons().is_empty() && noise.notes().is_empty());
    }

    #[test]
    fn disturbances_beyond_their_limits_void_the_set() {
        let before = Counters {
            throttles: Some(7),
            ..Counters::parse(STAT, VMSTAT)
        };
        let after = Counters {
            steal_ticks: before.steal_ticks + 600.0,
            swapped_pages: before.swapped_pages + 300,
            throttles: Some(9),
        };
        let reasons = between(&before, &after, 60.0).void_reasons();
        let expected = [
            "the hypervisor took 10 % of a core (steal)",
            "300 pages were swapped: memory is short",
            "the processor was too hot and slowed down 2 times",
        ];
        assert_eq!(reasons, expected);
    }

    #[test]
    fn frequencies_governors_load_and_preemptions_are_notes() {
        let counters = Counters::parse(STAT, VMSTAT);
        let noise = Noise {
            load_before: 2.5,
            frequency_mhz: Some((1200, 3600)),
            governors: ["performance", "powersave"].map(str::to_owned).into(),
            preemptions: [("nginx".to_owned(), 250.0), ("h2o".to_owned(), 19.0)].into(),
            ..between(&counters, &counters, 60.0)
        };
        assert!(noise.void_reasons().is_empty());
        let expected = [
            "the load average before the start was 2.5",
            "the cores had frequencies from 1200 to 3600 MHz",
            "the frequency governor is powersave; performance varies less",
            "other threads took the core of nginx 250 times per second",
        ];
        assert_eq!(noise.notes(), expected);
    }

    #[test]
    fn this_machine_can_be_observed() {
        let noise = NoiseWatch::start().finish(BTreeMap::new());
        assert!(noise.steal_share >= 0.0 && noise.load_before >= 0.0);
    }
}
