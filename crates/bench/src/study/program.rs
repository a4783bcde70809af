//! The program that sends the load of a run: `blitz load`, or another one whose figures are compared with it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use super::case::{Length, Load, Requests, Version};
use crate::group::{ClientProtocol, LoadTool};
use crate::load_result::{Counts, LoadResult, TargetFacts};
use crate::load_tool::{LoadRun, LoadSummary, LoadTools, TIMEOUT, last_json, wrk};
use crate::process::output_within;
use crate::programs::Programs;
use crate::tls_files::TlsFiles;

/// A load generator.
#[derive(Debug, Clone)]
pub(crate) enum Program {
    Blitz,
    /// The clients of Go: net/http with HTTP/2, quic-go with HTTP/3.
    Go(PathBuf),
    Oha(PathBuf),
    /// A load tool, and the certificates that it trusts.
    Tool(LoadTool, TlsFiles),
    /// wrk over HTTP/1.1 without TLS, with the requests of a script.
    Script(PathBuf),
}

/// The report of another generator.
pub(super) struct Reported {
    pub(super) result: LoadResult,
    pub(super) p50_us: Option<u64>,
    pub(super) p99_us: Option<u64>,
}

/// Runs a load tool, which has no warm-up, and supports a single path.
pub(super) fn run_tool(
    tool: LoadTool,
    tls: &TlsFiles,
    load: &Load,
    (programs, folder): (&Programs, &Path),
) -> Result<Reported, String> {
    let (Requests::Path(path), Length::Time { measured, .. }) = (&load.requests, load.length)
    else {
        return Err("a load tool runs for a time, with one path".to_owned());
    };
    let (scheme, address) = load.base.split_once("://").unwrap_or_default();
    let address = address
        .parse()
        .map_err(|_| format!("{}: no address", load.base))?;
    let protocol = match (scheme, load.version) {
        ("https", _) => ClientProtocol::Tls,
        (_, Version::Http2) => ClientProtocol::H2c,
        _ => ClientProtocol::Http1,
    };
    let tools = LoadTools::prepare(folder, programs)?;
    let run = LoadRun {
        address,
        protocol,
        path,
        upload: None,
        timeout: TIMEOUT,
        connections: load.connections,
        streams: load.streams,
        length: measured,
        tls: (protocol == ClientProtocol::Tls).then_some(tls),
    };
    reported(load, &tools.run_on(load.cores, tool, &run)?)
}

/// Runs wrk with a script, which has no warm-up. The script decides the requests, and how many of them are sent at once.
pub(super) fn run_script(script: &Path, load: &Load) -> Result<Reported, String> {
    let Length::Time { measured, .. } = load.length else {
        return Err("wrk runs for a time".to_owned());
    };
    let address = load.base.strip_prefix("http://").map(str::parse);
    let Some(Ok(address)) = address else {
        return Err(format!("{}: no address without TLS", load.base));
    };
    let run = LoadRun {
        address,
        protocol: ClientProtocol::Http1,
        path: "/",
        upload: None,
        timeout: TIMEOUT,
        connections: load.connections,
        streams: load.streams,
        length: measured,
        tls: None,
    };
    reported(load, &wrk::run_script(load.cores, &run, script)?)
}

/// Runs the clients of Go. `connections` is the number of clients, each of which opens what it needs.
pub(super) fn run_go(program: &Path, load: &Load) -> Result<Reported, String> {
    let Requests::Path(path) = &load.requests else {
        return Err("Go's clients request one path".to_owned());
    };
    let mut command = Command::new("taskset");
    command.args(["-c", load.cores]).arg(program);
    // One thread runs Go code, as one generates the load of the others.
    command.env("GOMAXPROCS", load.threads.to_string());
    command.args([
        "-http",
        if load.version == Version::Http3 {
            "3"
        } else {
            "2"
        },
    ]);
    command.args(["-c", &load.connections.to_string()]);
    command.args(["-m", &load.streams.to_string()]);
    match load.length {
        Length::Requests(count) => command.args(["-n", &count.to_string()]),
        Length::Time { measured, .. } => {
            command.args(["-d", &format!("{}ms", measured.as_millis())])
        }
        Length::AtLeast { .. } => {
            return Err("Go's clients end after a time or a number of requests".to_owned());
        }
    };
    command.arg(format!("{}{path}", load.base));
    let output = output_within(&mut command, load.length.planned() + super::run::SPARE)?;
    let text = String::from_utf8_lossy(&output.stdout);
    match last_json::<LoadSummary>(&text) {
        Some(summary) if output.status.success() => reported(load, &summary),
        _ => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

/// The part of oha's result that is used here. Times are in seconds.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OhaResult {
    summary: OhaSummary,
    latency_percentiles: OhaPercentiles,
    status_code_distribution: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OhaSummary {
    total: f64,
    total_data: u64,
}

#[derive(Deserialize)]
struct OhaPercentiles {
    p50: Option<f64>,
    p99: Option<f64>,
}

/// Runs oha for a time.
pub(super) fn run_oha(program: &Path, load: &Load) -> Result<Reported, String> {
    let (Requests::Path(path), Length::Time { measured, .. }) = (&load.requests, load.length)
    else {
        return Err("oha runs for a time, with one path".to_owned());
    };
    let mut command = Command::new("taskset");
    command.args(["-c", load.cores]).arg(program);
    command.args(["--no-tui", "--insecure", "--output-format", "json"]);
    command.args(["-z", &format!("{}ms", measured.as_millis())]);
    command.args(["-c", &load.connections.to_string()]);
    if load.version == Version::Http2 {
        command.args(["--http2", "-p", &load.streams.to_string()]);
    }
    command.arg(format!("{}{path}", load.base));
    let output = output_within(&mut command, load.length.planned() + super::run::SPARE)?;
    let result: OhaResult = serde_json::from_slice(&output.stdout)
        .map_err(|_| String::from_utf8_lossy(&output.stderr).trim().to_owned())?;
    let us = |seconds: Option<f64>| Some((seconds? * 1e6) as u64);
    // Requests in flight at the end are aborted; oha counts them as errors of no server.
    let of_status = |status: &str| result.status_code_distribution.get(status).copied();
    let requests = of_status("200").unwrap_or_default();
    let all: u64 = result.status_code_distribution.values().sum();
    let summary = LoadSummary {
        requests,
        bytes: result.summary.total_data,
        duration_us: (result.summary.total * 1e6) as u64,
        p50_us: us(result.latency_percentiles.p50),
        p99_us: us(result.latency_percentiles.p99),
        max_us: None,
        errors: all - requests,
    };
    reported(load, &summary)
}

fn reported(load: &Load, summary: &LoadSummary) -> Result<Reported, String> {
    if summary.errors > 0 || summary.requests == 0 {
        return Err(format!(
            "{} requests, {} errors",
            summary.requests, summary.errors
        ));
    }
    let result = LoadResult {
        duration_s: summary.duration_us as f64 / 1e6,
        counts: Counts {
            completed: summary.requests,
            content_bytes_received: summary.bytes,
            ..Counts::default()
        },
        target: TargetFacts {
            protocol: load.version.alpn().to_owned(),
            ..TargetFacts::default()
        },
        ..LoadResult::default()
    };
    Ok(Reported {
        result,
        p50_us: summary.p50_us,
        p99_us: summary.p99_us,
    })
}
