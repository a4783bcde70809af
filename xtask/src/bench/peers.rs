//! How the other servers are set up: one worker, no log, connections kept for good.

use std::fs;
use std::process::Command;

use super::system::{Group, Surroundings};

const HAPROXY_MAXCONN_MIN: u32 = 8000;

/// nginx with its files in the folder of this run.
pub(crate) fn nginx(group: Group, around: &Surroundings<'_>) -> Result<Command, String> {
    let Surroundings {
        listen,
        backend,
        connections,
        folder,
        ..
    } = around;
    let (upstream, location) = match group {
        Group::Fixed => (String::new(), r#"return 200 "Hello, World!";"#.to_owned()),
        Group::Proxy => (
            format!(
                "upstream backend {{ server {backend}; keepalive {connections}; \
                 keepalive_requests 1000000000; keepalive_timeout 1h; }}"
            ),
            "proxy_pass http://backend; proxy_http_version 1.1; \
             proxy_set_header Connection \"\";"
                .to_owned(),
        ),
    };
    // Each client of a proxy has a connection to the backend beside its own.
    let worker_connections = connections * 2 + 200;
    let config = format!(
        "worker_processes 1;
daemon off;
pid nginx.pid;
error_log stderr crit;
worker_rlimit_nofile 20000;
events {{ worker_connections {worker_connections}; }}
http {{
  access_log off;
  default_type \"text/plain; charset=utf-8\";
  keepalive_requests 1000000000;
  keepalive_timeout 1h;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  {upstream}
  server {{ listen {listen} backlog=4096; location / {{ {location} }} }}
}}
"
    );
    let prefix = folder.join(format!("nginx-{}", listen.port()));
    fs::create_dir_all(&prefix).map_err(|e| format!("{}: {e}", prefix.display()))?;
    let file = prefix.join("nginx.conf");
    fs::write(&file, config).map_err(|e| format!("{}: {e}", file.display()))?;
    let mut command = Command::new("nginx");
    command
        .arg("-p")
        .arg(&prefix)
        .args(["-e", "stderr", "-c"])
        .arg(&file);
    Ok(command)
}

/// HAProxy with one thread.
pub(crate) fn haproxy(group: Group, around: &Surroundings<'_>) -> Result<Command, String> {
    let Surroundings {
        listen,
        backend,
        connections,
        folder,
        ..
    } = around;
    let answer = match group {
        Group::Fixed => "http-request return status 200 \
             content-type \"text/plain; charset=utf-8\" string \"Hello, World!\""
            .to_owned(),
        Group::Proxy => {
            format!("default_backend backend\n\nbackend backend\n  server one {backend}")
        }
    };
    // HAProxy closes idle server connections once a fifth of its descriptors is in use, so a small
    // maxconn would have it connect anew for every request.
    let maxconn = (connections + 200).max(HAPROXY_MAXCONN_MIN);
    // Not strict: it may start although its descriptors would not do if each of that many clients
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
  bind {listen} backlog 4096
  {answer}
"
    );
    let file = folder.join(format!("haproxy-{}.cfg", listen.port()));
    fs::write(&file, config).map_err(|e| format!("{}: {e}", file.display()))?;
    let mut command = Command::new("haproxy");
    command.args(["-db", "-q", "-f"]).arg(&file);
    Ok(command)
}
