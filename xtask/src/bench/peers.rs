//! How the other servers are set up: one worker, no log, connections kept for good.

pub(crate) mod envoy;
pub(crate) mod h2o;
pub(crate) mod haproxy;
pub(crate) mod nginx;

use std::fs;
use std::path::Path;

/// More than any run makes on one connection.
const REQUESTS_PER_CONNECTION_MAX: u32 = 1_000_000_000;
/// Streams that an HTTP/2 connection may have open, for those whose default is near what is asked.
const STREAMS_MAX: u32 = 1024;

fn write(file: &Path, content: &str) -> Result<(), String> {
    fs::write(file, content).map_err(|e| format!("{}: {e}", file.display()))
}
