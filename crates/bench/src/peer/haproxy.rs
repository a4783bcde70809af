//! HAProxy.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{SMALL_PATH, StartOptions, is_http3, write};
use crate::fixed_response::FixedResponse;
use crate::group::{ClientProtocol, Group, ServerWork};
use crate::process::Workers;
use crate::programs::locate;
use crate::sites::{self, SITES};

const MAXCONN_MIN: u32 = 8000;

/// HAProxy with a thread for each worker.
pub(crate) fn command(
    group: &Group,
    workers: Workers,
    options: &StartOptions<'_>,
) -> Result<Command, String> {
    if is_http3(group) {
        return Err("Debian builds HAProxy without HTTP/3".to_owned());
    }
    let text = Text {
        splice: match group.role {
            ServerWork::ProxyContentToHttp1 => "option splice-auto",
            _ => "",
        },
        log: ["", ""],
        bind: &bind(group.protocol, options)?,
        work: &work(group.role, options)?,
    };
    let mut command = Command::new(locate("haproxy")?);
    command.args(["-db", "-q", "-f"]);
    command.arg(text.write(workers, options)?);
    Ok(command)
}

/// HAProxy with a map of the [sites](crate::sites), and its log, if it has one, on standard output.
pub(crate) fn with_sites(
    log: Option<&Path>,
    workers: Workers,
    options: &StartOptions<'_>,
) -> Result<Command, String> {
    let StartOptions {
        listen,
        backend,
        folder,
        ..
    } = options;
    let map = folder.join(format!("hosts-{}.map", listen.port()));
    let hosts = (0..SITES).map(|site| format!("{} backend\n", sites::host(site)));
    write(&map, &hosts.collect::<String>())?;
    let work = format!(
        "use_backend %[req.hdr(host),lower,map_str({})]\n\nbackend backend\n  server one {backend}",
        map.display()
    );
    let text = Text {
        splice: "",
        log: match log {
            Some(_) => [
                "log stdout format raw local0",
                "log global\n  option httplog",
            ],
            None => ["", ""],
        },
        bind: "",
        work: &work,
    };
    let file = text.write(workers, options)?;
    let program = locate("haproxy")?;
    let Some(log) = log else {
        let mut command = Command::new(program);
        command.args(["-db", "-q", "-f"]).arg(file);
        return Ok(command);
    };
    // With -q it would close its standard output.
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" -db -f \"$1\" >>\"$2\""]);
    command.arg(program).arg(file).arg(log);
    Ok(command)
}

/// The parts of a configuration that differ.
struct Text<'a> {
    splice: &'static str,
    /// Of the sections `global` and `defaults`.
    log: [&'static str; 2],
    bind: &'a str,
    work: &'a str,
}

impl Text<'_> {
    /// Writes the file and returns its path.
    fn write(&self, workers: Workers, options: &StartOptions<'_>) -> Result<PathBuf, String> {
        let StartOptions {
            listen,
            connections,
            requests,
            folder,
            ..
        } = options;
        let threads = workers.count();
        // HAProxy closes idle server connections once a fifth of its descriptors is in use, so with a small
        // maxconn it would reconnect for every request.
        let maxconn = (connections.max(requests) + 200).max(MAXCONN_MIN);
        let Text {
            splice,
            log: [global, defaults],
            bind,
            work,
        } = self;
        // The limit of streams stays at its default of 100: with 1,024 some requests to HTTP/2 backends failed.
        // Without strict limits it starts although its descriptors do not suffice for a server connection per
        // client.
        let config = format!(
            "global
  nbthread {threads}
  no strict-limits
  maxconn {maxconn}
  {global}

defaults
  mode http
  {splice}
  {defaults}
  http-reuse always
  timeout connect 5s
  timeout client 1h
  timeout server 1h
  timeout http-keep-alive 1h

frontend front
  bind {listen} backlog 4096 {bind}
  {work}
"
        );
        let file = folder.join(format!("haproxy-{}.cfg", listen.port()));
        write(&file, &config)?;
        Ok(file)
    }
}

/// The rules of the frontend, and the backends after it.
fn work(role: ServerWork, options: &StartOptions<'_>) -> Result<String, String> {
    let backend = options.backend;
    if let Some(response) = role.fixed_response() {
        let FixedResponse {
            content_type, body, ..
        } = response;
        return Ok(format!(
            "http-request return status 200 content-type \"{content_type}\" string '{body}'"
        ));
    }
    Ok(match role {
        ServerWork::ProxyToH2c => {
            format!("default_backend backend\n\nbackend backend\n  server one {backend} proto h2")
        }
        ServerWork::ProxyContentToHttp1 => {
            let small = options.small_backend.map(|small| {
                (
                    format!("use_backend small if {{ path {SMALL_PATH} }}\n  "),
                    format!("\n\nbackend small\n  server one {small}"),
                )
            });
            let (rule, small) = small.unwrap_or_default();
            format!(
                "{rule}default_backend backend\n\nbackend backend\n  server one {backend}{small}"
            )
        }
        ServerWork::SendContent | ServerWork::SendFile { .. } | ServerWork::Board => {
            return Err("HAProxy does not serve files".to_owned());
        }
        ServerWork::ProxyToHttp1 | ServerWork::Respond | ServerWork::RespondHealth => {
            format!("default_backend backend\n\nbackend backend\n  server one {backend}")
        }
    })
}

/// The options after the address.
fn bind(protocol: ClientProtocol, options: &StartOptions<'_>) -> Result<String, String> {
    Ok(match protocol {
        ClientProtocol::Http1 => String::new(),
        ClientProtocol::H2c => "proto h2".to_owned(),
        ClientProtocol::Tls => {
            let tls = options.tls()?;
            // HAProxy reads certificate and key from one file.
            let pair = options.folder.join("haproxy.pem");
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
