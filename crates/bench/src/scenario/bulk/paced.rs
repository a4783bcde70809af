//! Small requests at a fixed rate beside the load: the example `paced_client` of the reactor crate.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::backend::PREFERRED;
use crate::load_tool::last_json;
use crate::peer::SMALL_PATH;
use crate::process::LOAD_CORE;

/// Requests per second.
pub(crate) const RATE: u32 = 500;
pub(crate) const CONNECTIONS: u32 = 4;
/// The load tool starts this long before the small requests and ends this long after them.
const MARGIN: Duration = Duration::from_millis(200);

/// Latencies from the planned times of the requests.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct SmallLatency {
    pub(crate) requests: u64,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    pub(crate) max_us: u64,
}

/// Sends the requests with `paced_client` while a load of `length` runs. Waits for the margin first.
pub(crate) fn run(
    program: &Path,
    address: SocketAddr,
    length: Duration,
) -> Result<SmallLatency, String> {
    thread::sleep(MARGIN);
    let milliseconds = length.saturating_sub(2 * MARGIN).as_millis();
    let output = Command::new("taskset")
        .args(["-c", LOAD_CORE, "nice"])
        .args(PREFERRED)
        .arg(program)
        .args(["--to", &address.to_string(), "--path", SMALL_PATH])
        .args(["--rate", &RATE.to_string()])
        .args(["--connections", &CONNECTIONS.to_string()])
        .args(["--milliseconds", &milliseconds.to_string()])
        .output()
        .map_err(|e| format!("paced_client: {e}"))?;
    last_json(&String::from_utf8_lossy(&output.stdout)).ok_or_else(|| {
        let error = String::from_utf8_lossy(&output.stderr);
        format!("small requests: {}", error.trim())
    })
}
