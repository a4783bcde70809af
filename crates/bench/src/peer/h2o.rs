//! H2O.

use std::process::Command;

use super::{
    CONTENT_FOLDER, CONTENT_PATH, STREAMS_MAX, StartOptions, content_file, is_http3, write,
};
use crate::board;
use crate::group::{ClientProtocol, Group, ServerWork};
use crate::programs::locate;

/// Longer than any run, in the units of the settings.
const LONG_S: u32 = 3600;
const LONG_MS: u32 = LONG_S * 1000;

/// H2O with one thread. A file at one path is its cheapest fixed response: an mruby handler took twice
/// as much CPU.
pub(crate) fn command(group: &Group, options: &StartOptions<'_>) -> Result<Command, String> {
    let StartOptions {
        listen,
        connections,
        requests,
        folder,
        ..
    } = options;
    if is_http3(group) {
        return Err("H2O 2.2 does not support HTTP/3".to_owned());
    }
    let (host, port) = (listen.ip(), listen.port());
    let tls = match group.protocol {
        ClientProtocol::Http1 | ClientProtocol::H2c => String::new(),
        ClientProtocol::Tls => {
            let tls = options.tls()?;
            let (certificate, key) = (tls.certificate.display(), tls.key.display());
            format!(
                "\n  ssl:\n    certificate-file: {certificate}\n    key-file: {key}\n    \
                 ocsp-update-interval: 0"
            )
        }
    };
    let paths = paths(group.role, options)?;
    let compressed = match group.role {
        ServerWork::Board => "ON",
        _ => "OFF",
    };
    let connections_max = connections + requests + 200;
    let config = format!(
        "num-threads: 1
max-connections: {connections_max}
http1-request-timeout: {LONG_S}
http2-idle-timeout: {LONG_S}
http2-max-concurrent-requests-per-connection: {STREAMS_MAX}
file.etag: OFF
file.send-compressed: {compressed}
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
    let mut command = Command::new(locate("h2o")?);
    command.args(["-m", "worker", "-c"]).arg(&file);
    Ok(command)
}

fn paths(role: ServerWork, options: &StartOptions<'_>) -> Result<String, String> {
    if let Some(response) = role.fixed_response() {
        // The extension says what the content is.
        let extension = match response.content_type {
            "application/json" => "json",
            _ => "txt",
        };
        let name = format!("h2o-response-{}.{extension}", options.listen.port());
        let file = options.folder.join(name);
        write(&file, response.body)?;
        return Ok(format!(
            "{}:\n        file.file: {}",
            response.path,
            file.display()
        ));
    }
    match role {
        ServerWork::SendContent => {
            let content = options.folder.join(content_file());
            Ok(format!(
                "{CONTENT_PATH}:\n        file.file: {}",
                content.display()
            ))
        }
        ServerWork::SendFile { .. } => Ok(format!(
            "/{CONTENT_FOLDER}:\n        file.dir: {}",
            options.folder.join(CONTENT_FOLDER).display()
        )),
        ServerWork::Board => board_paths(options),
        ServerWork::ProxyToH2c => Err("this H2O does not support HTTP/2 to upstreams".to_owned()),
        _ => Ok(format!(
            "/:\n        proxy.reverse.url: http://{}/\n        proxy.timeout.keepalive: {LONG_MS}",
            options.backend
        )),
    }
}

/// The requests of the board: texts and pages of JSON from files, and the folder with those that are compressed already. A
/// file takes no POST, so that the sum over HTTP/1.1 is a handler.
fn board_paths(options: &StartOptions<'_>) -> Result<String, String> {
    let root = options.folder.join(board::FOLDER);
    let text = |(path, text): (&str, &str)| {
        let file = options
            .folder
            .join(format!("h2o{}.txt", path.replace('/', "-")));
        write(&file, text)?;
        Ok::<_, String>(format!("{path}:\n        file.file: {}", file.display()))
    };
    let (sum, _) = board::SUM;
    let (without, _, with) = board::SUM_RESULTS;
    let (sum_streams, _, result) = board::SUM_STREAMS;
    let mut paths = vec![
        text(board::PIPELINE)?,
        text((sum_streams, result))?,
        format!(
            "{sum}:\n        mruby.handler: |\n          Proc.new do |env|\n            \
             [200, {{\"content-type\" => \"text/plain\"}}, \
             [env[\"REQUEST_METHOD\"] == \"POST\" ? \"{with}\" : \"{without}\"]]\n          end"
        ),
        format!(
            "/{}:\n        file.dir: {}",
            board::STATIC,
            root.join(board::STATIC).display()
        ),
    ];
    for (count, _) in board::PAGE_REQUESTS {
        let file = root.join(board::PAGES).join(format!("{count}.json"));
        let path = board::page_path(count);
        paths.push(format!("{path}:\n        file.file: {}", file.display()));
    }
    Ok(paths.join("\n      "))
}
