//! The backends of the proxies, on the load core: the example `bulk_backend` of the reactor crate, and nginx.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::peer::{StartOptions, nginx};
use crate::process::{LOAD_CORE, ServerProcess, free_address};
use crate::programs::{Example, Programs};

/// The counters of a backend since its start.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct BackendCounters {
    /// Complete uploads.
    pub(crate) uploads: u64,
    /// Content of uploads, also of those that are not complete.
    pub(crate) received_bytes: u64,
}

/// The response to a checked upload.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Checked {
    pub(crate) bytes: u64,
    /// Bytes that differ from the pattern.
    pub(crate) wrong: u64,
}

/// Starts a backend.
pub(crate) fn start(programs: &Programs, pattern: &Path) -> Result<ServerProcess, String> {
    let address = free_address()?;
    let mut command = Command::new(programs.example(Example::BulkBackend)?);
    add_flags(&mut command, pattern, address);
    ServerProcess::start_pinned("backend", LOAD_CORE, &command, address)
}

/// Starts nginx as a backend of downloads.
pub(crate) fn start_nginx(options: &StartOptions<'_>) -> Result<ServerProcess, String> {
    let command = nginx::file_backend(options)?;
    ServerProcess::start_pinned("nginx-backend", LOAD_CORE, &command, options.listen)
}

/// Starts a backend for small requests, which runs before the load tool and the other backend: the latency
/// shall show the proxy and not the queue for the load core.
pub(crate) fn start_preferred(
    programs: &Programs,
    pattern: &Path,
) -> Result<ServerProcess, String> {
    let address = free_address()?;
    let mut command = Command::new("nice");
    command
        .args(PREFERRED)
        .arg(programs.example(Example::BulkBackend)?);
    add_flags(&mut command, pattern, address);
    ServerProcess::start_pinned("small-backend", LOAD_CORE, &command, address)
}

/// The arguments of `nice` for programs that run before others. They apply for root only.
pub(crate) const PREFERRED: [&str; 2] = ["-n", "-19"];

fn add_flags(command: &mut Command, pattern: &Path, address: SocketAddr) {
    command.arg("--pattern").arg(pattern);
    command.args(["--listen", &address.to_string()]);
}

/// Reads the counters.
pub(crate) fn counters(address: SocketAddr) -> Result<BackendCounters, String> {
    let failed = |e: &dyn std::fmt::Display| format!("the counters of the backend: {e}");
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "10"])
        .arg(format!("http://{address}/counters"))
        .output()
        .map_err(|e| failed(&e))?;
    serde_json::from_slice(&output.stdout)
        .map_err(|e| failed(&format!("{e}: {}", String::from_utf8_lossy(&output.stderr))))
}
