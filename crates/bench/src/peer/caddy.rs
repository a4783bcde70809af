//! Caddy.

use std::process::Command;

use serde_json::json;

use super::{StartOptions, write};
use crate::fixed_response::{BODY, PATH};
use crate::group::{Group, ServerRole};
use crate::programs::locate;

/// Caddy with as many threads that run Go code as there are cores for it, that is, one.
pub(crate) fn command(group: &Group, options: &StartOptions<'_>) -> Result<Command, String> {
    let program = locate("caddy")?;
    if group.role != ServerRole::Respond {
        return Err("Caddy is compared only with a fixed response".to_owned());
    }
    let tls = options.tls()?;
    let config = json!({
        "admin": { "disabled": true },
        "logging": { "logs": { "default": { "level": "ERROR" } } },
        "apps": {
            "http": { "servers": { "front": {
                "listen": [options.listen.to_string()],
                "protocols": ["h1", "h2", "h3"],
                "automatic_https": { "disable": true },
                "tls_connection_policies": [{
                    "protocol_min": "tls1.3",
                    "curves": ["x25519"],
                }],
                "routes": [{
                    "match": [{ "path": [PATH] }],
                    "handle": [{
                        "handler": "static_response",
                        "body": String::from_utf8_lossy(BODY),
                    }],
                }],
            } } },
            "tls": { "certificates": { "load_files": [{
                "certificate": tls.certificate,
                "key": tls.key,
            }] } },
        },
    });
    let file = options
        .folder
        .join(format!("caddy-{}.json", options.listen.port()));
    write(&file, &config.to_string())?;
    let mut command = Command::new(program);
    command
        .args(["run", "--config"])
        .arg(&file)
        .env("GOMAXPROCS", "1")
        .env("XDG_DATA_HOME", options.folder)
        .env("XDG_CONFIG_HOME", options.folder);
    Ok(command)
}
