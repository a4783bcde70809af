//! The programs that send requests: their parameters and their counts.

pub(crate) mod h2load;
pub(crate) mod handshakes;
pub(crate) mod http3_load;
pub(crate) mod wrk;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::group::{ClientProtocol, Group, LoadTool};
use crate::process::{CORES, output_within};
use crate::programs::{Example, Programs, missing};
use crate::tls_files::TlsFiles;
use wrk::Wrk;

/// The parameters of one run of a load tool.
pub(crate) struct LoadRun<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) protocol: ClientProtocol,
    /// The target of the requests: path and query.
    pub(crate) path: &'a str,
    /// The content of every request, which is then a POST.
    pub(crate) upload: Option<&'a Path>,
    /// The longest time of one exchange.
    pub(crate) timeout: Duration,
    pub(crate) connections: u32,
    /// Requests in flight on each.
    pub(crate) streams: u32,
    pub(crate) length: Duration,
    pub(crate) tls: Option<&'a TlsFiles>,
}

/// The time that a load tool may take in addition to the length of its run and the longest exchange.
const MARGIN: Duration = Duration::from_secs(20);

impl<'a> LoadRun<'a> {
    /// Runs a load tool to its end, or kills it: h2load has been seen to wait forever on a busy machine.
    fn output(&self, command: &mut Command) -> Result<Output, String> {
        output_within(command, self.length + self.timeout + MARGIN)
    }

    /// One request over TLS.
    pub(crate) fn single(
        address: SocketAddr,
        path: &'a str,
        tls: Option<&'a TlsFiles>,
    ) -> LoadRun<'a> {
        LoadRun {
            address,
            protocol: ClientProtocol::Tls,
            path,
            upload: None,
            timeout: TIMEOUT,
            connections: 1,
            streams: 1,
            length: Duration::ZERO,
            tls,
        }
    }
}

/// Why the load of a group cannot run: a program is missing. With HTTP/1.1, one request before each run
/// needs no program; with HTTP/3 the load tool sends it, and curl otherwise.
pub(crate) fn missing_tool(group: &Group, programs: &Programs) -> Option<String> {
    let tool = match group.load_tool {
        LoadTool::Http3(_) => return programs.example(Example::Http3Load).err(),
        _ => names(group),
    };
    missing(&tool)
}

/// The installed programs that the load of a group needs.
pub(crate) fn names(group: &Group) -> Vec<&'static str> {
    let tool = match group.load_tool {
        LoadTool::Wrk | LoadTool::WrkToSites => "wrk",
        LoadTool::H2load { .. } => "h2load",
        LoadTool::Handshakes => "openssl",
        LoadTool::Http3(_) => return Vec::new(),
    };
    match group.protocol {
        ClientProtocol::Http1 => vec![tool],
        ClientProtocol::Tls | ClientProtocol::H2c => vec![tool, "curl"],
    }
}

/// The load tools of a run, with their files.
pub(crate) struct LoadTools<'a> {
    wrk: Wrk,
    http3_load: Result<PathBuf, String>,
    /// For the files of h2load.
    folder: &'a Path,
}

impl<'a> LoadTools<'a> {
    /// Writes the script of wrk.
    pub(crate) fn prepare(folder: &'a Path, programs: &Programs) -> Result<LoadTools<'a>, String> {
        Ok(LoadTools {
            wrk: Wrk::prepare(folder)?,
            http3_load: programs.example(Example::Http3Load),
            folder,
        })
    }

    /// Runs a load tool until its end. wrk and the tool for HTTP/3 run on `core`, the others on the load core.
    pub(crate) fn run_on(
        &self,
        core: &str,
        tool: LoadTool,
        load_run: &LoadRun<'_>,
    ) -> Result<LoadSummary, String> {
        match tool {
            LoadTool::Wrk => self.wrk.run_on(core, load_run, false),
            LoadTool::WrkToSites => self.wrk.run_on(core, load_run, true),
            LoadTool::H2load { varied } => h2load::run(load_run, varied, self.folder),
            LoadTool::Handshakes => handshakes::run(load_run),
            LoadTool::Http3(requests) => {
                http3_load::run_on(core, self.http3_load()?, load_run, requests)
            }
        }
    }

    /// The content of the response to one request over HTTP/3.
    pub(crate) fn http3_content(&self, load_run: &LoadRun<'_>) -> Result<String, String> {
        http3_load::content(self.http3_load()?, load_run)
    }

    fn http3_load(&self) -> Result<&Path, String> {
        self.http3_load.as_deref().map_err(Clone::clone)
    }
}

/// Runs a load tool twice on each core, and shares the connections and the servers among these.
pub(crate) fn run_on_all_cores(
    servers: &[SocketAddr],
    load_run: &LoadRun<'_>,
    run_on: impl Fn(&str, &LoadRun<'_>) -> Result<LoadSummary, String> + Sync,
) -> Result<LoadSummary, String> {
    const EACH: usize = 2;
    let runs = CORES.iter().flat_map(|core| {
        let servers = servers.iter().cycle().take(EACH);
        servers.map(|&address| {
            let connections = load_run.connections / (CORES.len() * EACH) as u32;
            let part = LoadRun {
                address,
                connections,
                ..*load_run
            };
            (*core, part)
        })
    });
    let run_on = &run_on;
    thread::scope(|scope| {
        let runs: Vec<_> = runs
            .map(|(core, part)| scope.spawn(move || run_on(core, &part)))
            .collect();
        let joined = runs
            .into_iter()
            .map(|run| run.join().expect("it does not panic"));
        let parts = joined.collect::<Result<Vec<LoadSummary>, String>>()?;
        LoadSummary::sum(&parts).ok_or_else(|| "there is no core".to_owned())
    })
}

/// The last line that is a JSON object with the counters; servers log other lines as well.
pub(crate) fn last_json<T: DeserializeOwned>(output: &str) -> Option<T> {
    output
        .lines()
        .rev()
        .find_map(|line| serde_json::from_str(line.trim()).ok())
}

/// The longest time of an exchange with a short response.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(2);

/// The counts of one run.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct LoadSummary {
    pub(crate) requests: u64,
    /// Bytes of the responses: heads and content for HTTP/1.1, content only for HTTP/2.
    pub(crate) bytes: u64,
    pub(crate) duration_us: u64,
    /// Absent if the tool does not report it.
    pub(crate) p50_us: Option<u64>,
    pub(crate) p99_us: Option<u64>,
    pub(crate) max_us: Option<u64>,
    /// Errors of connect, read and write, timeouts, and statuses other than 2xx or 3xx.
    pub(crate) errors: u64,
}

impl LoadSummary {
    /// The counts of runs at the same time. Their percentiles cannot be combined.
    pub(crate) fn sum(runs: &[LoadSummary]) -> Option<LoadSummary> {
        let sum = |of: fn(&LoadSummary) -> u64| runs.iter().map(of).sum();
        Some(LoadSummary {
            requests: sum(|run| run.requests),
            bytes: sum(|run| run.bytes),
            duration_us: runs.iter().map(|run| run.duration_us).max()?,
            p50_us: None,
            p99_us: None,
            max_us: runs.iter().filter_map(|run| run.max_us).max(),
            errors: sum(|run| run.errors),
        })
    }

    /// Checks that no request failed and that the bytes match the number of responses.
    pub(crate) fn check(&self, response_bytes: usize) -> Result<(), String> {
        if self.errors > 0 {
            return Err(format!(
                "{} of {} requests failed",
                self.errors, self.requests
            ));
        }
        if self.requests == 0 {
            return Err("no request was answered".to_owned());
        }
        // Responses in flight at the end count in bytes only: far less than one in a hundred.
        let expected = self.requests as f64 * response_bytes as f64;
        if (self.bytes as f64 / expected - 1.0).abs() > 0.01 {
            let got = self.bytes / self.requests;
            return Err(format!(
                "responses had {got} bytes instead of {response_bytes}"
            ));
        }
        Ok(())
    }

    pub(crate) fn requests_per_second(&self) -> f64 {
        self.requests as f64 / (self.duration_us.max(1) as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_other_lengths_are_reported() {
        let summary = LoadSummary {
            requests: 100,
            bytes: 13_000,
            duration_us: 500_000,
            p50_us: None,
            p99_us: None,
            max_us: None,
            errors: 0,
        };
        assert_eq!(summary.requests_per_second(), 200.0);
        assert!(summary.check(130).is_ok());
        assert!(summary.check(120).is_err(), "responses of another length");
        let failed = LoadSummary {
            errors: 1,
            ..summary
        };
        assert!(failed.check(130).is_err(), "a failed request");
        let none = LoadSummary {
            requests: 0,
            ..summary
        };
        assert!(none.check(130).is_err(), "no request at all");
    }

    #[test]
    fn counters_are_found_among_other_lines() {
        let text = "starting\n{\"enters\":3,\"sqes\":4,\"cqes\":5,\"turns\":3}\nbye\n";
        let found: std::collections::HashMap<String, u64> = last_json(text).unwrap();
        assert_eq!((found["enters"], found["sqes"], found["cqes"]), (3, 4, 5));
        assert!(last_json::<u64>("nothing here").is_none());
    }
}
