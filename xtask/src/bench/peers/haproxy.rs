//! HAProxy.

use std::fs;
use std::process::Command;

use super::super::group::{Front, Group, Task};
use super::super::system::Surroundings;
use super::write;

const MAXCONN_MIN: u32 = 8000;

/// HAProxy with one thread.
pub(crate) fn command(group: &Group, around: &Surroundings<'_>) -> Result<Command, String> {
    let Surroundings {
        listen,
        backend,
        connections,
        requests,
        folder,
        ..
    } = around;
    let answer = match group.task {
        Task::Answer => "http-request return status 200 \
             content-type \"text/plain; charset=utf-8\" string \"Hello, World!\""
            .to_owned(),
        Task::ToHttp1 => {
            format!("default_backend backend\n\nbackend backend\n  server one {backend}")
        }
        Task::ToH2c => {
            format!("default_backend backend\n\nbackend backend\n  server one {backend} proto h2")
        }
    };
    let bind = bind(group.front, around)?;
    // HAProxy closes idle server connections once a fifth of its descriptors is in use, so a small
    // maxconn would have it connect anew for every request.
    let maxconn = (connections.max(requests) + 200).max(MAXCONN_MIN);
    // Streams stay at its default of 100 for a connection: with 1,024 it failed some requests to backends
    // of HTTP/2. Not strict: it may start although its descriptors would not do if each of that many clients
    // had a server connection too.
    let config = format!(
        "global
  nbthread 1
  no strict-limits
  maxconn {maxconn}

defaults
  mode http
  http-reuse always
  timeout connect 5s
  timeout client 1h
  timeout server 1h
  timeout http-keep-alive 1h

frontend front
  bind {listen} backlog 4096 {bind}
  {answer}
"
    );
    let file = folder.join(format!("haproxy-{}.cfg", listen.port()));
    write(&file, &config)?;
    let mut command = Command::new("haproxy");
    command.args(["-db", "-q", "-f"]).arg(&file);
    Ok(command)
}

/// What follows the address.
fn bind(front: Front, around: &Surroundings<'_>) -> Result<String, String> {
    Ok(match front {
        Front::Http1 => String::new(),
        Front::H2c => "proto h2".to_owned(),
        Front::Tls => {
            let tls = around.tls()?;
            // HAProxy wants certificate and key in one file.
            let pair = around.folder.join("haproxy.pem");
            let both: Result<Vec<_>, _> = [&tls.certificate, &tls.key]
                .map(fs::read_to_string)
                .into_iter()
                .collect();
            let both = both.map_err(|e| format!("the certificate of this run: {e}"))?;
            write(&pair, &both.concat())?;
            format!(
                "ssl crt {} alpn h2,http/1.1 ssl-min-ver TLSv1.3 curves X25519 \
                 ciphersuites TLS_AES_128_GCM_SHA256",
                pair.display()
            )
        }
    })
}
