//! `cargo xtask bench start`: time from the start of the process to its first response.

use std::fmt::Write;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use super::compare::Folder;
use super::goals::Outcome;
use super::machine::{Facts, is_installed};
use super::peers::StartOptions;
use super::process::{Server, free_address};
use super::system::{System, build_all};
use super::{goals, probe, report, scenario};

/// Flags of `cargo xtask bench start`.
#[derive(Debug, Args)]
pub(crate) struct StartArguments {
    /// Starts of each system; the best one counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    starts: u32,
    /// Do not save the result
    #[arg(long)]
    no_save: bool,
}

const NAMES: &[&str] = &["blitz-uring", "blitz-epoll", "nginx", "haproxy"];
const FIRST_RESPONSE_MAX: Duration = Duration::from_secs(10);
const RETRY_PAUSE: Duration = Duration::from_micros(100);
const GOAL_MS: f64 = 15.0;

#[derive(Serialize)]
struct Row {
    name: &'static str,
    /// Every start, in order.
    starts_ms: Vec<f64>,
    best_ms: f64,
}

impl Row {
    /// Whether Blitz meets the goal; `None` for other servers.
    fn met(&self) -> Option<bool> {
        let is_ours = self.name.starts_with("blitz");
        is_ours.then_some(self.best_ms <= GOAL_MS)
    }
}

/// Starts every system several times, in turn.
pub(crate) fn run(arguments: &StartArguments, command: &str) -> Result<Outcome, String> {
    let systems = NAMES.iter().filter_map(|name| scenario::find(name));
    let mut systems: Vec<&'static System> = systems.collect();
    systems.retain(|system| system.peer().is_none_or(is_installed));
    build_all(systems.iter().copied())?;
    let folder = Folder::create()?;
    let mut rows: Vec<Row> = systems
        .iter()
        .map(|system| Row {
            name: system.name,
            starts_ms: Vec::new(),
            best_ms: f64::INFINITY,
        })
        .collect();
    for _ in 0..arguments.starts {
        for (system, row) in systems.iter().zip(&mut rows) {
            let took = start_once(system, &folder).map_err(|e| format!("{}: {e}", system.name))?;
            let ms = took.as_secs_f64() * 1e3;
            row.starts_ms.push(ms);
            row.best_ms = row.best_ms.min(ms);
        }
    }
    let table = table(&rows, arguments.starts);
    println!("\n{table}");
    let outcome = Outcome::of_rows(rows.iter().map(Row::met));
    if arguments.no_save {
        return Ok(outcome);
    }
    let programs: Vec<_> = systems.iter().filter_map(|system| system.peer()).collect();
    let facts = Facts::gather(&programs);
    let date = facts.date.clone();
    let markdown = format!(
        "# {date}: start to first response\n\n`cargo xtask {command}`\n\n- revision {}\n\n{table}",
        facts.revision
    );
    let raw = serde_json::json!({ "command": command, "facts": facts, "rows": rows });
    report::save(&date, "start", &raw, &markdown)?;
    Ok(outcome)
}

/// Not pinned: taskset would be part of the time.
fn start_once(system: &System, folder: &Folder) -> Result<Duration, String> {
    let listen = free_address()?;
    let options = StartOptions {
        listen,
        backend: listen,
        connections: 100,
        requests: 100,
        small_backend: None,
        response: None,
        tls: None,
        folder: &folder.0,
    };
    let command = system.command(&options)?;
    let begun = Instant::now();
    let server = Server::start(system.name, command, listen)?;
    loop {
        // The connection is refused until the server listens.
        let response = probe::request(listen);
        let took = begun.elapsed();
        match response {
            Ok(_) => {
                drop(server);
                return Ok(took);
            }
            Err(error) if took > FIRST_RESPONSE_MAX => return Err(error),
            Err(_) => thread::sleep(RETRY_PAUSE),
        }
    }
}

fn table(rows: &[Row], starts: u32) -> String {
    let mut text = format!(
        "Start to first response, best of {starts} (goal: {GOAL_MS:.0} ms)\n\n\
         | system | best ms | all ms | |\n|---|---|---|---|\n"
    );
    for row in rows {
        let Row {
            name,
            starts_ms,
            best_ms,
        } = row;
        let all: Vec<String> = starts_ms.iter().map(|ms| format!("{ms:.1}")).collect();
        let verdict = goals::verdict_text(row.met());
        let _ = writeln!(
            text,
            "| {name} | {best_ms:.1} | {} | {verdict} |",
            all.join(" ")
        );
    }
    text
}
