//! Varnish.

use std::net::SocketAddr;
use std::process::Command;

use super::{StartOptions, write};
use crate::fixed_response::FixedResponse;
use crate::group::{ClientProtocol, Group, ServerWork};
use crate::programs::locate;

/// Longer than any run.
const LONG_S: u32 = 3600;
/// Varnish has a thread for each request in progress. These are Varnish's own default and a bound.
const THREADS_MIN: u32 = 100;
const THREADS_MAX: u32 = 2000;

/// Whether Varnish stores responses of the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Storage {
    /// Every request is forwarded.
    Pass,
    /// Only the first one is.
    Cache,
}

/// Varnish with one pool of threads. Its log is a ring in memory that nobody reads.
pub(crate) fn command(
    group: &Group,
    storage: Storage,
    options: &StartOptions<'_>,
) -> Result<Command, String> {
    if group.protocol == ClientProtocol::Tls {
        return Err("Varnish does not terminate TLS".to_owned());
    }
    let rules = match (group.role.fixed_response(), group.role) {
        (Some(response), _) => synthetic(&response),
        (None, ServerWork::SendContent | ServerWork::SendFile { .. } | ServerWork::Board) => {
            return Err("Varnish does not serve files".to_owned());
        }
        (None, ServerWork::ProxyToH2c) => {
            return Err("Varnish does not support HTTP/2 to upstreams".to_owned());
        }
        (None, _) => proxy(options.backend, storage),
    };
    let port = options.listen.port();
    let file = options.folder.join(format!("varnish-{port}.vcl"));
    write(&file, &format!("vcl 4.1;\n\n{rules}"))?;
    let threads = options.requests.clamp(THREADS_MIN, THREADS_MAX);
    let mut command = Command::new(locate("varnishd")?);
    command
        .args(["-F", "-j", "none", "-T", "none", "-S", "none"])
        .arg("-n")
        .arg(options.folder.join(format!("varnish-{port}")))
        .arg("-f")
        .arg(&file)
        .args(["-a", &options.listen.to_string(), "-s", "malloc,256m"]);
    for parameter in [
        "thread_pools=1".to_owned(),
        format!("thread_pool_min={threads}"),
        format!("timeout_idle={LONG_S}"),
        format!("backend_idle_timeout={LONG_S}"),
        "feature=+http2".to_owned(),
    ] {
        command.args(["-p", &parameter]);
    }
    Ok(command)
}

fn synthetic(response: &FixedResponse) -> String {
    let FixedResponse {
        content_type, body, ..
    } = response;
    format!(
        "backend default none;

sub vcl_recv {{ return (synth(200)); }}

sub vcl_synth {{
  set resp.http.Content-Type = \"{content_type}\";
  synthetic({{\"{body}\"}});
  return (deliver);
}}
"
    )
}

fn proxy(backend: SocketAddr, storage: Storage) -> String {
    let (host, port) = (backend.ip(), backend.port());
    let backend = format!("backend default {{ .host = \"{host}\"; .port = \"{port}\"; }}");
    match storage {
        Storage::Pass => format!("{backend}\n\nsub vcl_recv {{ return (pass); }}\n"),
        Storage::Cache => format!(
            "{backend}\n\nsub vcl_recv {{ return (hash); }}\n\n\
             sub vcl_backend_response {{ set beresp.ttl = 1h; return (deliver); }}\n"
        ),
    }
}
