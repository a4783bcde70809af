//! `blitz servers`: the servers of upstreams of a running process, and draining them.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::control_client::{self, ANSWER_TIMEOUT, Chosen};
use crate::output;

const EXAMPLES: &str = "\
Examples:
  blitz servers                                  all servers, and how they are
  blitz servers drain http://10.0.0.1:3000       no new requests but those of clients with its cookie
  blitz servers undrain http://10.0.0.1:3000     requests again

A server stays drained over reloads, until it is undrained or the process ends.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServersArguments {
    #[command(subcommand)]
    action: Option<Action>,

    /// Socket of the process [default: that of the file, /run/blitz/control.sock, $XDG_RUNTIME_DIR/blitz/control.sock]
    #[arg(long, value_name = "PATH", global = true)]
    control: Option<PathBuf>,

    /// The file that names the socket, or a folder with blitz.toml [default: $BLITZ_CONFIG, ./blitz.toml or
    /// /etc/blitz/blitz.toml]
    #[arg(long, value_name = "FILE", global = true, conflicts_with = "control")]
    config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Send a server no new requests but those of clients that stay with it by a cookie
    Drain(Server),
    /// Send a server requests again
    Undrain(Server),
}

#[derive(Debug, Args)]
struct Server {
    /// Its URL, as in the configuration
    url: String,
}

pub(crate) fn run(arguments: &ServersArguments) -> ExitCode {
    let process = Chosen {
        socket: arguments.control.as_deref(),
        config: arguments.config.as_deref(),
    };
    let (method, target) = match &arguments.action {
        None => ("GET", "/upstreams".to_owned()),
        Some(Action::Drain(server)) => ("POST", target("/upstreams/drain", server)),
        Some(Action::Undrain(server)) => ("POST", target("/upstreams/undrain", server)),
    };
    let answer = match control_client::ask(process, method, &target, ANSWER_TIMEOUT) {
        Ok(answer) => answer,
        Err(problem) => return failed(&problem),
    };
    match (answer.status, &arguments.action) {
        (200, Some(_)) => output::print(&answer.content),
        (200, None) => match table(&answer.content) {
            Some(table) => output::print(&table),
            None => {
                return failed("blitz: the process has another version, whose answer is unknown");
            }
        },
        _ => return failed(&format!("blitz: {}", answer.content)),
    }
    ExitCode::SUCCESS
}

fn failed(problem: &str) -> ExitCode {
    eprintln!("{}", problem.trim_end());
    ExitCode::FAILURE
}

fn target(path: &str, server: &Server) -> String {
    control_client::target(path, &[("server", server.url.clone())])
}

/// A line for each server.
fn table(content: &str) -> Option<String> {
    let content: Value = serde_json::from_str(content).ok()?;
    let servers = content["upstreams"].as_array()?;
    let lines: Vec<[String; 3]> = servers.iter().map(line).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let (first, second) = (width(0).unwrap_or(0), width(1).unwrap_or(0));
    let lines = lines.iter().map(|[url, names, state]| {
        let line = format!("{url:first$}  {names:second$}  {state}");
        format!("{}\n", line.trim_end())
    });
    Some(lines.collect())
}

/// Its URL, the upstreams that have it, and its state.
fn line(server: &Value) -> [String; 3] {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let names = server["names"].as_array().into_iter().flatten().map(text);
    let mut states = Vec::new();
    if server["drained"] == true {
        states.push("drained".to_owned());
    }
    for check in server["checks"].as_array().into_iter().flatten() {
        states.push(match (text(&check["state"]), check["problem"].as_str()) {
            (state, Some(problem)) => format!("{state}: {problem}"),
            (state, None) => state,
        });
    }
    if let Some(failure) = server["failure"].as_str() {
        states.push(failure.to_owned());
    }
    let names: Vec<_> = names.collect();
    [text(&server["url"]), names.join(", "), states.join("; ")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_a_line_with_its_state() {
        let content = serde_json::json!({ "upstreams": [
            { "url": "http://10.0.0.1:3000", "names": ["app", "beta"], "drained": true, "failure": null,
              "checks": [{ "state": "down", "problem": "connection refused" }] },
            { "url": "http://b:1", "names": [], "drained": false, "failure": null, "checks": [] },
            { "url": "http://c:1", "names": ["app"], "drained": false, "failure": null,
              "checks": [{ "state": "up", "problem": null }] },
        ] });
        let expected = "http://10.0.0.1:3000  app, beta  drained; down: connection refused\n\
                        http://b:1\n\
                        http://c:1            app        up\n";
        assert_eq!(table(&content.to_string()).as_deref(), Some(expected));
        assert_eq!(table("{}"), None);
    }
}
