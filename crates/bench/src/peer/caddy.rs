//! Caddy.

use std::process::Command;

use serde_json::{Value, json};

use super::{CONTENT_BYTES, CONTENT_FOLDER, CONTENT_PATH, StartOptions, write};
use crate::board;
use crate::group::{ClientProtocol, Group, ServerWork};
use crate::programs::locate;

/// Caddy with as many threads that run Go code as there are cores for it, that is, one.
pub(crate) fn command(group: &Group, options: &StartOptions<'_>) -> Result<Command, String> {
    let program = locate("caddy")?;
    let mut front = json!({
        "listen": [options.listen.to_string()],
        "automatic_https": { "disable": true },
        "routes": routes(group.role, options)?,
    });
    front["protocols"] = match group.protocol {
        ClientProtocol::Http1 => json!(["h1"]),
        ClientProtocol::H2c => json!(["h1", "h2c"]),
        ClientProtocol::Tls => json!(["h1", "h2", "h3"]),
    };
    let mut config = json!({
        "admin": { "disabled": true },
        "logging": { "logs": { "default": { "level": "ERROR" } } },
    });
    if group.protocol == ClientProtocol::Tls {
        let tls = options.tls()?;
        front["tls_connection_policies"] = json!([{
            "protocol_min": "tls1.3",
            "curves": ["x25519"],
        }]);
        config["apps"]["tls"] = json!({ "certificates": { "load_files": [{
            "certificate": tls.certificate,
            "key": tls.key,
        }] } });
    }
    config["apps"]["http"] = json!({ "servers": { "front": front } });
    let file = options
        .folder
        .join(format!("caddy-{}.json", options.listen.port()));
    write(&file, &format!("{config:#}"))?;
    let mut command = Command::new(program);
    command
        .args(["run", "--config"])
        .arg(&file)
        .env("GOMAXPROCS", "1")
        .env("XDG_DATA_HOME", options.folder)
        .env("XDG_CONFIG_HOME", options.folder);
    Ok(command)
}

fn routes(role: ServerWork, options: &StartOptions<'_>) -> Result<Value, String> {
    if let Some(response) = role.fixed_response() {
        return Ok(json!([{
            "match": [{ "path": [response.path] }],
            "handle": [{
                "handler": "static_response",
                "headers": { "Content-Type": [response.content_type] },
                "body": response.body,
            }],
        }]));
    }
    Ok(match role {
        ServerWork::Board => board_routes(options),
        ServerWork::SendFile { .. } => json!([{
            "match": [{ "path": [format!("/{CONTENT_FOLDER}/*")] }],
            "handle": [{ "handler": "file_server", "root": options.folder }],
        }]),
        ServerWork::SendContent => json!([{
            "match": [{ "path": [CONTENT_PATH] }],
            "handle": [
                { "handler": "rewrite", "uri": format!("/data-{CONTENT_BYTES}") },
                { "handler": "file_server", "root": options.folder.join(CONTENT_FOLDER) },
            ],
        }]),
        ServerWork::ProxyToH2c => {
            return Err("Caddy is not configured for HTTP/2 to upstreams".to_owned());
        }
        _ => json!([{
            "handle": [{
                "handler": "reverse_proxy",
                "upstreams": [{ "dial": options.backend.to_string() }],
                "transport": {
                    "protocol": "http",
                    // Go's client would ask for a compressed response that nobody has asked for.
                    "compression": false,
                    "keep_alive": {
                        "idle_timeout": "1h",
                        "max_idle_conns_per_host": options.requests,
                    },
                },
            }],
        }]),
    })
}

/// The requests of the board: fixed texts, pages of JSON from files, and the files with those that are compressed already.
fn board_routes(options: &StartOptions<'_>) -> Value {
    let root = options.folder.join(board::FOLDER);
    let respond = |path: &str, method: &str, text: &str| {
        json!({
            "match": [{ "path": [path], "method": [method] }],
            "handle": [{
                "handler": "static_response",
                "headers": { "Content-Type": ["text/plain"] },
                "body": text,
            }],
        })
    };
    let (sum, _) = board::SUM;
    let (without, _, with) = board::SUM_RESULTS;
    let (sum_streams, _, result) = board::SUM_STREAMS;
    json!([
        respond(board::PIPELINE.0, "GET", board::PIPELINE.1),
        respond(sum, "GET", without),
        respond(sum, "POST", with),
        respond(sum_streams, "GET", result),
        {
            "match": [{ "path": [format!("/{}/*", board::PAGES)] }],
            "handle": [
                { "handler": "rewrite", "uri": "{http.request.uri.path}.json" },
                { "handler": "file_server", "root": root },
            ],
        },
        {
            "match": [{ "path": [format!("/{}/*", board::STATIC)] }],
            "handle": [{
                "handler": "file_server",
                "root": root,
                "precompressed": { "gzip": {} },
                "precompressed_order": ["gzip"],
            }],
        },
    ])
}
