//! H2O.

use std::fs;
use std::process::Command;

use super::super::group::{Front, Group, Task};
use super::super::probe::{BODY, PATH};
use super::super::system::Surroundings;
use super::{STREAMS_MAX, write};

/// Beyond any run, in the units of the settings.
const LONG_S: u32 = 3600;
const LONG_MS: u32 = LONG_S * 1000;

/// H2O with one thread. A file of one path is the cheapest fixed answer that it has: a handler in
/// mruby took twice as much.
pub(crate) fn command(group: &Group, around: &Surroundings<'_>) -> Result<Command, String> {
    let Surroundings {
        listen,
        connections,
        requests,
        folder,
        ..
    } = around;
    let (host, port) = (listen.ip(), listen.port());
    let tls = match group.front {
        Front::Http1 | Front::H2c => String::new(),
        Front::Tls => {
            let tls = around.tls()?;
            let (certificate, key) = (tls.certificate.display(), tls.key.display());
            format!(
                "\n  ssl:\n    certificate-file: {certificate}\n    key-file: {key}\n    \
                 ocsp-update-interval: 0"
            )
        }
    };
    let paths = match group.task {
        Task::Answer => {
            let answer = folder.join(format!("h2o-{port}.txt"));
            fs::write(&answer, BODY).map_err(|e| format!("{}: {e}", answer.display()))?;
            format!("{PATH}:\n        file.file: {}", answer.display())
        }
        Task::ToHttp1 => format!(
            "/:\n        proxy.reverse.url: http://{}/\n        proxy.timeout.keepalive: {LONG_MS}",
            around.backend
        ),
        Task::ToH2c => return Err("this H2O speaks no HTTP/2 to upstreams".to_owned()),
    };
    let connections_max = connections + requests + 200;
    let config = format!(
        "num-threads: 1
max-connections: {connections_max}
http1-request-timeout: {LONG_S}
http2-idle-timeout: {LONG_S}
http2-max-concurrent-requests-per-connection: {STREAMS_MAX}
file.etag: OFF
file.send-compressed: OFF
listen:
  host: {host}
  port: {port}{tls}
hosts:
  default:
    paths:
      {paths}
"
    );
    let file = folder.join(format!("h2o-{port}.yaml"));
    write(&file, &config)?;
    let mut command = Command::new("h2o");
    command.args(["-m", "worker", "-c"]).arg(&file);
    Ok(command)
}
