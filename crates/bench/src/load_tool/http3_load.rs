//! The load tool for HTTP/3: the example `http3_load`, with the client of `h3` and `quinn`.

use std::path::Path;
use std::process::Command;

use super::handshakes::CLIENTS;
use super::{LoadRun, LoadSummary, last_json};
use crate::group::Requests;
use crate::process::LOAD_CORE;
use crate::tls_files::{HOST, TlsFiles};

/// Runs the load on a core and reads its summary.
pub(crate) fn run_on(
    core: &str,
    program: &Path,
    load_run: &LoadRun<'_>,
    requests: Requests,
) -> Result<LoadSummary, String> {
    let mut command = Command::new("taskset");
    command.args(["-c", core]).arg(program);
    add_target(&mut command, load_run)?;
    command
        .arg("--json")
        .args(["-t", &load_run.length.as_secs_f64().to_string()])
        .args(["-m", &load_run.streams.to_string()]);
    let connections = match requests {
        Requests::Handshakes => CLIENTS,
        _ => load_run.connections,
    };
    command.args(["-c", &connections.to_string()]);
    match requests {
        Requests::Same => {}
        Requests::Varied => drop(command.arg("--varied")),
        Requests::Handshakes => drop(command.arg("--handshakes")),
    }
    let text = output(load_run, command)?;
    last_json(&text).ok_or_else(|| format!("http3_load printed no summary: {text}"))
}

/// The content of the response to one request.
pub(crate) fn content(program: &Path, load_run: &LoadRun<'_>) -> Result<String, String> {
    let mut command = Command::new("taskset");
    command.args(["-c", LOAD_CORE]).arg(program);
    add_target(&mut command, load_run)?;
    command.arg("--once");
    output(load_run, command)
}

fn add_target(command: &mut Command, load_run: &LoadRun<'_>) -> Result<(), String> {
    let TlsFiles { authority, .. } = load_run.tls.ok_or("HTTP/3 needs a certificate")?;
    let (port, path) = (load_run.address.port(), load_run.path);
    command
        .arg(format!("https://{HOST}:{port}{path}"))
        .arg("--ca")
        .arg(authority)
        .args(["--connect", &load_run.address.to_string()]);
    Ok(())
}

fn output(load_run: &LoadRun<'_>, mut command: Command) -> Result<String, String> {
    let output = load_run
        .output(&mut command)
        .map_err(|e| format!("http3_load: {e}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("http3_load: {errors}"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
