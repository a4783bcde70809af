//! The first facts to check if figures are lower than expected: facts of the machine, and remedies.

use std::fs;
use std::io::ErrorKind;
use std::net::{TcpListener, UdpSocket};

use blitz_http::probe;

use crate::machine::FOREIGN_SHARE_MAX;
use crate::noise::Noise;
use crate::number;
use crate::report::{Column, Table};
use crate::study::Surroundings;
use crate::tuning::{GOVERNOR, Tuning};

/// Less available memory than this disturbs a run.
const AVAILABLE_MIN_BYTES: f64 = 512e6;
/// More preemptions of the server in a second than this are too many.
const PREEMPTIONS_MAX: f64 = 20.0;
/// The ports that `blitz` listens on without flags.
const PORTS: [u16; 2] = [8080, 8443];

/// Facts that are read before the servers start, and those that the runs add.
#[derive(Debug, Default)]
pub(super) struct MachineFacts {
    settings: Vec<(String, String)>,
    advice: Vec<String>,
    /// The changes that `--tune` has made, in words.
    pub(super) changes: Vec<String>,
    memory: Option<(f64, f64)>,
    io_uring: Option<String>,
    used_ports: Vec<String>,
    /// Voluntary switches and preemptions of Blitz, per second of load.
    pub(super) switches: Option<(f64, f64)>,
}

/// A line of the table: what, what was found, and the remedy if there is one.
type MachineFact = (String, String, String);

impl MachineFacts {
    pub(super) fn read(tuning: &Tuning) -> MachineFacts {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        MachineFacts {
            settings: tuning.facts(),
            advice: tuning.advice(),
            memory: memory(&meminfo),
            io_uring: probe::io_uring().err().map(|reason| reason.to_string()),
            used_ports: PORTS.into_iter().flat_map(used_by).collect(),
            ..MachineFacts::default()
        }
    }

    /// All facts, those with a remedy first.
    pub(super) fn table(&self, surroundings: &Surroundings) -> Table {
        let mut lines = self.lines(surroundings);
        lines.sort_by_key(|(_, _, remedy)| remedy.is_empty());
        let row = |(what, found, remedy): MachineFact| {
            let remedy = match remedy.as_str() {
                "" => number::NONE.to_owned(),
                _ => remedy,
            };
            vec![what, found, remedy]
        };
        Table {
            caption:
                "What to look at if figures are lower than expected; lines with a remedy first"
                    .to_owned(),
            columns: ["What", "Found", "Remedy"].map(Column::text).to_vec(),
            rows: lines.into_iter().map(row).collect(),
        }
    }

    fn lines(&self, surroundings: &Surroundings) -> Vec<MachineFact> {
        let noise = &surroundings.noise;
        let mut lines = self.settings_lines();
        lines.push(match &self.io_uring {
            None => line("I/O", "io_uring", ""),
            Some(reason) => line(
                "I/O",
                format!("epoll, which takes more CPU time: {reason}"),
                "sysctl -w kernel.io_uring_disabled=0; in a container, a seccomp profile that allows io_uring",
            ),
        });
        let ports = self.used_ports.iter().map(|port| {
            line(
                "port",
                format!("{port} is in use: blitz without flags cannot listen on it (this run uses free ports)"),
                "ss -tulnp shows the program; blitz run --listen :PORT uses another port",
            )
        });
        lines.extend(ports);
        lines.extend(self.memory_line(noise));
        lines.push(match noise.throttles {
            None => line("thermal throttling", "not counted on this machine", ""),
            Some(0) => line("thermal throttling", "none during the run", ""),
            Some(count) => line(
                "thermal throttling",
                format!("{count} times during the run"),
                "cool the machine, and repeat the run",
            ),
        });
        lines.extend(self.switches_line());
        lines.push(foreign_line(surroundings));
        lines
    }

    /// The settings that `--tune` changes.
    fn settings_lines(&self) -> Vec<MachineFact> {
        let advice = self.advice.iter().map(|advice| {
            let (found, remedy) = advice.split_once(": ").unwrap_or((advice, ""));
            match self.changes.is_empty() {
                true => line("setting", found, remedy),
                false => line("setting before --tune", found, ""),
            }
        });
        let changes = self.changes.iter().map(|change| line("--tune", change, ""));
        let settings = self.settings.iter();
        let settings = settings.map(|(name, value)| line(name, value, ""));
        let mut lines: Vec<MachineFact> = advice.chain(changes).chain(settings).collect();
        if !self.settings.iter().any(|(name, _)| name == GOVERNOR) {
            let found = "none is visible, as in most virtual machines";
            lines.push(line(GOVERNOR, found, ""));
        }
        lines
    }

    fn memory_line(&self, noise: &Noise) -> Option<MachineFact> {
        let (total, available) = self.memory?;
        let bytes = number::bytes;
        let found = format!("{}, {} available", bytes(total), bytes(available));
        let is_short = available < AVAILABLE_MIN_BYTES || noise.swapped_pages > 0;
        let remedy = match is_short {
            true => "stop other programs, or swapping slows the server",
            false => "",
        };
        Some(line("memory", found, remedy))
    }

    fn switches_line(&self) -> Option<MachineFact> {
        let (voluntary, preempted) = self.switches?;
        let count = |value: f64| number::count(value.round() as u64);
        let found = format!(
            "{} waits and {} preemptions per second of load",
            count(voluntary),
            count(preempted)
        );
        let remedy = match preempted > PREEMPTIONS_MAX {
            true => {
                "stop the programs that share the core of the server; blitz doctor finds limits of containers"
            }
            false => "",
        };
        Some(line("context switches of blitz", found, remedy))
    }
}

fn line(what: &str, found: impl Into<String>, remedy: &str) -> MachineFact {
    (what.to_owned(), found.into(), remedy.to_owned())
}

/// Total and available memory in bytes.
fn memory(meminfo: &str) -> Option<(f64, f64)> {
    let field = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kib * 1024.0)
    };
    Some((field("MemTotal:")?, field("MemAvailable:")?))
}

/// The protocols for which a port is in use.
fn used_by(port: u16) -> Vec<String> {
    let is_used = |error: std::io::Error| error.kind() == ErrorKind::AddrInUse;
    let tcp = TcpListener::bind(("0.0.0.0", port))
        .err()
        .is_some_and(is_used);
    let udp = UdpSocket::bind(("0.0.0.0", port))
        .err()
        .is_some_and(is_used);
    let of = |name: &str, is_used: bool| is_used.then(|| format!("{name} port {port}"));
    of("TCP", tcp).into_iter().chain(of("UDP", udp)).collect()
}

fn foreign_line(surroundings: &Surroundings) -> MachineFact {
    let (before, during) = (surroundings.foreign_before, surroundings.foreign_during);
    let percent = |share: f64| number::fixed(share * 100.0, 0);
    let found = format!(
        "{} % of a core before the run, {} % in it",
        percent(before),
        percent(during)
    );
    let remedy = match before.max(during) > FOREIGN_SHARE_MAX {
        true => "stop them, and repeat the run",
        false => "",
    };
    line("other programs", found, remedy)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::study::Watch;

    fn surroundings() -> Surroundings {
        Surroundings {
            foreign_before: 0.0,
            ..Watch::start().finish("test", [], [])
        }
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let meminfo = "MemTotal: 2048 kB\nMemFree: 1 kB\nMemAvailable: 1024 kB\n";
        assert_eq!(memory(meminfo), Some((2_097_152.0, 1_048_576.0)));
        assert_eq!(memory(""), None);
    }

    #[test]
    fn a_port_in_use_is_found() {
        let listener = TcpListener::bind(("0.0.0.0", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(used_by(port)[0], format!("TCP port {port}"));
    }

    #[test]
    fn lines_with_a_remedy_are_first() {
        let facts = MachineFacts {
            advice: vec![
                "net.core.somaxconn is 128 (early); better 4096: sysctl -w x=4096".to_owned(),
            ],
            switches: Some((1000.0, 250.0)),
            ..MachineFacts::default()
        };
        let mut quiet = surroundings();
        quiet.noise.throttles = Some(3);
        let rows = facts.table(&quiet).rows;
        assert_eq!(rows[0][2], "sysctl -w x=4096");
        assert!(rows[1][1].starts_with("3 times"));
        assert!(rows[2][1].contains("250 preemptions"));
        assert!(
            rows[3..].iter().all(|row| row[2] == number::NONE),
            "{rows:?}"
        );
    }

    #[test]
    fn this_machine_has_all_facts() {
        let facts = MachineFacts::read(&Tuning::read(Path::new("/")));
        let rows = facts.table(&surroundings()).rows;
        for what in [
            "net.core.somaxconn",
            "Open files",
            "I/O",
            "memory",
            "thermal throttling",
        ] {
            assert!(rows.iter().any(|row| row[0] == what), "{what}: {rows:?}");
        }
    }
}
