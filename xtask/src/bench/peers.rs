//! The configuration of the other servers: one worker, no log, connections that never expire.

pub(crate) mod envoy;
pub(crate) mod h2o;
pub(crate) mod haproxy;
pub(crate) mod nginx;

use std::fs;
use std::path::Path;

/// More than the requests of any run on one connection.
const REQUESTS_PER_CONNECTION_MAX: u32 = 1_000_000_000;
/// Concurrent streams of an HTTP/2 connection, for servers whose default is close to the load.
const STREAMS_MAX: u32 = 1024;

fn write(file: &Path, content: &str) -> Result<(), String> {
    fs::write(file, content).map_err(|e| format!("{}: {e}", file.display()))
}
