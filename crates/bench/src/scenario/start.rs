//! `blitz bench start`: time from the start of the process to its first response.

use std::fmt::Write;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use crate::goals::BenchOutcome;
use crate::invocation::Invocation;
use crate::machine::Facts;
use crate::not_run::{self, NotRun};
use crate::output;
use crate::peer::StartOptions;
use crate::probe;
use crate::process::{ServerProcess, free_address};
use crate::programs::Programs;
use crate::results::{self, verdict_text};
use crate::run_folder::RunFolder;
use crate::system::{System, substitutes};

/// Flags of `blitz bench start`.
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
pub(crate) fn run(
    arguments: &StartArguments,
    invocation: &Invocation,
) -> Result<BenchOutcome, String> {
    let programs = &invocation.programs;
    let systems = NAMES.iter().filter_map(|name| super::find(name));
    let mut systems: Vec<&'static System> = systems.collect();
    let not_run = not_run::remove(
        &mut systems,
        |system| system.name.to_owned(),
        |system| system.missing_program(programs),
    );
    let note = substitutes(&systems, programs);
    let folder = RunFolder::create()?;
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
            let took = start_once(system, programs, &folder);
            let took = took.map_err(|e| format!("{}: {e}", system.name))?;
            let ms = took.as_secs_f64() * 1e3;
            row.starts_ms.push(ms);
            row.best_ms = row.best_ms.min(ms);
        }
    }
    let table = table(&rows, &not_run, note.as_deref(), arguments.starts);
    // The results are saved even if nobody can read the text.
    let printed = output::print(&format!("\n{table}\n"));
    let outcome = BenchOutcome::of_rows(rows.iter().map(Row::met));
    if arguments.no_save {
        return printed.map(|()| outcome);
    }
    let peers = systems.iter().filter_map(|system| system.peer());
    let facts = Facts::gather(&invocation.revision, peers);
    let (date, command) = (facts.date.clone(), &invocation.command);
    let markdown = format!(
        "# {date}: start to first response\n\n`{command}`\n\n- revision {}\n\n{table}",
        facts.revision
    );
    let raw = serde_json::json!({
        "command": command,
        "facts": facts,
        "rows": rows,
        "not_run": not_run,
    });
    results::save(&invocation.out, &date, "start", &raw, &markdown)?;
    printed.map(|()| outcome)
}

/// Not pinned: taskset would be part of the time.
fn start_once(
    system: &System,
    programs: &Programs,
    folder: &RunFolder,
) -> Result<Duration, String> {
    let listen = free_address()?;
    let options = StartOptions {
        listen,
        backend: listen,
        connections: 100,
        requests: 100,
        small_backend: None,
        response: None,
        tls: None,
        programs,
        folder: folder.path(),
    };
    let command = system.command(&options)?;
    let begun = Instant::now();
    let server = ServerProcess::start(system.name, command, listen)?;
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

fn table(rows: &[Row], not_run: &[NotRun], note: Option<&str>, starts: u32) -> String {
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
        let verdict = row.met().map_or("", |met| verdict_text(Some(met)));
        let _ = writeln!(
            text,
            "| {name} | {best_ms:.1} | {} | {verdict} |",
            all.join(" ")
        );
    }
    let remarks = not_run::lines(not_run, "- ")
        + &note
            .map(|note| format!("- note: {note}\n"))
            .unwrap_or_default();
    if !remarks.is_empty() {
        let _ = write!(text, "\n{remarks}");
    }
    text
}
