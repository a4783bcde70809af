//! The configuration of the other servers: one worker, no log, connections that never expire.

pub(crate) mod blitz;
pub(crate) mod blitz_health;
pub(crate) mod caddy;
pub(crate) mod envoy;
pub(crate) mod h2o;
pub(crate) mod haproxy;
pub(crate) mod members;
pub(crate) mod nginx;
pub(crate) mod site_proxy;
pub(crate) mod varnish;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use crate::group::{Group, LoadTool};
use crate::programs::Programs;
use crate::tls_files::TlsFiles;

/// The path of small requests beside large bodies.
pub(crate) const SMALL_PATH: &str = "/small";
/// The folder of files with content, in the folder of the run. The file for `/data?size=N` is `data-N`.
pub(crate) const CONTENT_FOLDER: &str = "content";
/// The size of the content of servers that have no rule for sizes.
pub(crate) const CONTENT_BYTES: u64 = 1 << 20;
/// The path of content.
const CONTENT_PATH: &str = "/data";
/// More than the requests of any run on one connection.
const REQUESTS_PER_CONNECTION_MAX: u32 = 1_000_000_000;
/// Concurrent streams of an HTTP/2 connection, for servers whose default is close to the load.
const STREAMS_MAX: u32 = 1024;

/// The parameters of a start.
pub(crate) struct StartOptions<'a> {
    pub(crate) listen: SocketAddr,
    /// The backend of proxies.
    pub(crate) backend: SocketAddr,
    /// The backend of `SMALL_PATH`, if it has one of its own.
    pub(crate) small_backend: Option<SocketAddr>,
    /// Most concurrent connections of clients.
    pub(crate) connections: u32,
    /// Most requests in flight.
    pub(crate) requests: u32,
    /// The bytes of the bare ring's response; by default its own.
    pub(crate) response: Option<&'a Path>,
    pub(crate) tls: Option<&'a TlsFiles>,
    pub(crate) programs: &'a Programs,
    /// An empty folder of this run.
    pub(crate) folder: &'a Path,
}

impl<'a> StartOptions<'a> {
    /// The certificate of every server of the run.
    pub(crate) fn tls(&self) -> Result<&'a TlsFiles, String> {
        self.tls
            .ok_or_else(|| "this run has no certificate".to_owned())
    }
}

/// Whether clients use HTTP/3.
fn is_http3(group: &Group) -> bool {
    matches!(group.load_tool, LoadTool::Http3(_))
}

/// The file with content, relative to the folder of the run.
fn content_file() -> String {
    format!("{CONTENT_FOLDER}/data-{CONTENT_BYTES}")
}

/// Writes a file of this run.
pub(crate) fn write(file: &Path, content: &str) -> Result<(), String> {
    fs::write(file, content).map_err(|e| format!("{}: {e}", file.display()))
}
