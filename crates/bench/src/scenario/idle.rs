//! `blitz bench idle`: resident memory of an idle keep-alive connection.

use std::fmt::Write;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::descriptors;
use crate::goals::BenchOutcome;
use crate::invocation::Invocation;
use crate::machine::Facts;
use crate::not_run::{self, NotRun};
use crate::output;
use crate::peer::StartOptions;
use crate::probe;
use crate::process::{SERVER_CORE, ServerProcess, free_address};
use crate::programs::{Programs, locate};
use crate::results::{self, verdict_text};
use crate::run_folder::RunFolder;
use crate::system::{System, substitutes};

/// Flags of `blitz bench idle`.
#[derive(Debug, Args)]
pub(crate) struct IdleArguments {
    /// Idle connections
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(200..=15_000))]
    connections: u32,
    /// Only these systems, separated by commas
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "blitz-uring,blitz-epoll,nginx,haproxy"
    )]
    only: Vec<String>,
    /// Do not save the result
    #[arg(long)]
    no_save: bool,
}

/// Connections before the measurement: they load code, allocate first blocks and warm caches.
const CONNECTIONS_BEFORE: u32 = 100;
const SETTLE: Duration = Duration::from_secs(5);
/// Descriptors in addition to the connections.
const DESCRIPTORS_SPARE: u64 = 200;
const GOAL_KIB: f64 = 1.0;

#[derive(Serialize)]
struct Row {
    name: &'static str,
    kib_per_connection: f64,
    resident_mib: f64,
    /// Kernel memory of the cgroup, both ends of the connections; absent where the kernel does not count it.
    kernel_kib_per_connection: Option<f64>,
}

impl Row {
    /// Whether Blitz meets the goal; `None` for other servers.
    fn met(&self) -> Option<bool> {
        let is_ours = self.name.starts_with("blitz");
        is_ours.then_some(self.kib_per_connection <= GOAL_KIB)
    }
}

/// Measures one system after the other, each in a new process.
pub(crate) fn run(
    arguments: &IdleArguments,
    invocation: &Invocation,
) -> Result<BenchOutcome, String> {
    locate("taskset")?;
    descriptors::allow(u64::from(arguments.connections) + DESCRIPTORS_SPARE)?;
    let mut systems = chosen(&arguments.only)?;
    let programs = &invocation.programs;
    let not_run = not_run::remove(
        &mut systems,
        |system| system.name.to_owned(),
        |system| system.missing_program(programs),
    );
    not_run::require_any(&systems, &not_run)?;
    let note = substitutes(&systems, programs);
    let folder = RunFolder::create()?;
    let peers = systems.iter().filter_map(|system| system.peer());
    let facts = Facts::gather(&invocation.revision, peers);
    let mut rows = Vec::new();
    for system in systems {
        output::message(&format!(
            "{}: {} connections …",
            system.name, arguments.connections
        ));
        rows.push(measure(system, arguments.connections, programs, &folder)?);
    }
    let table = table(&rows, &not_run, note.as_deref(), arguments.connections);
    // The results are saved even if nobody can read the text.
    let printed = output::print(&format!("\n{table}\n"));
    let outcome = BenchOutcome::of_rows(rows.iter().map(Row::met));
    if arguments.no_save {
        return printed.map(|()| outcome);
    }
    let command = &invocation.command;
    let markdown = format!(
        "# {}: memory of idle connections\n\n`{command}`\n\n- revision {}\n- Linux {}\n- {}\n\n{table}",
        facts.date,
        facts.revision,
        facts.kernel,
        facts.versions.join("; "),
    );
    let date = facts.date.clone();
    let raw = serde_json::json!({
        "command": command,
        "facts": facts,
        "rows": rows,
        "not_run": not_run,
    });
    results::save(&invocation.out, &date, "idle", &raw, &markdown)?;
    printed.map(|()| outcome)
}

fn chosen(only: &[String]) -> Result<Vec<&'static System>, String> {
    let system =
        |name: &String| super::find(name).ok_or_else(|| format!("there is no system '{name}'"));
    only.iter().map(system).collect()
}

fn measure(
    system: &'static System,
    connections: u32,
    programs: &Programs,
    folder: &RunFolder,
) -> Result<Row, String> {
    let listen = free_address()?;
    let options = StartOptions {
        listen,
        backend: listen,
        connections,
        requests: connections,
        small_backend: None,
        response: None,
        tls: None,
        programs,
        folder: folder.path(),
    };
    let command = system.command(&options)?;
    let server = ServerProcess::start_pinned(system.name, SERVER_CORE, &command, listen)?;
    let mut clients = Vec::new();
    let failed = |error: String| format!("{}: {error}", system.name);
    open_until(&mut clients, CONNECTIONS_BEFORE, listen).map_err(failed)?;
    thread::sleep(SETTLE);
    let (before, kernel_before) = (server.resident_bytes(), kernel_bytes());
    open_until(&mut clients, connections, listen).map_err(failed)?;
    thread::sleep(SETTLE);
    let (after, kernel_after) = (server.resident_bytes(), kernel_bytes());
    // A connection that the server has closed costs nothing and must not count.
    for client in &clients {
        probe::request_on(client, listen).map_err(|e| failed(format!("idle connection: {e}")))?;
    }
    let grown = f64::from(connections - CONNECTIONS_BEFORE) * 1024.0;
    let per_connection = |before: u64, after: u64| (after as f64 - before as f64) / grown;
    Ok(Row {
        name: system.name,
        kib_per_connection: per_connection(before, after),
        resident_mib: after as f64 / f64::from(1 << 20),
        kernel_kib_per_connection: kernel_before
            .zip(kernel_after)
            .map(|(b, a)| per_connection(b, a)),
    })
}

/// Opens connections up to `count` and sends one request on each new one.
fn open_until(clients: &mut Vec<TcpStream>, count: u32, address: SocketAddr) -> Result<(), String> {
    while clients.len() < count as usize {
        let number = clients.len();
        let failed = |error: String| format!("connection {number}: {error}");
        let client = TcpStream::connect(address).map_err(|e| failed(e.to_string()))?;
        probe::request_on(&client, address).map_err(failed)?;
        clients.push(client);
    }
    Ok(())
}

/// Kernel memory of the control group this process runs in; the servers run in the same.
fn kernel_bytes() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let version_1 = groups.lines().find_map(|line| line.split_once(":memory:/"));
    if let Some((_, group)) = version_1 {
        let file = format!("/sys/fs/cgroup/memory/{group}/memory.kmem.usage_in_bytes");
        return fs::read_to_string(file).ok()?.trim().parse().ok();
    }
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let stat = fs::read_to_string(format!("/sys/fs/cgroup/{group}/memory.stat")).ok()?;
    stat.lines()
        .find_map(|line| line.strip_prefix("kernel ")?.parse().ok())
}

fn table(rows: &[Row], not_run: &[NotRun], note: Option<&str>, connections: u32) -> String {
    let mut text = format!(
        "{connections} idle keep-alive connections (goal: {GOAL_KIB:.1} KiB each)\n\n\
         | system | KiB per connection | RSS MiB | kernel KiB per connection, both ends | |\n\
         |---|---|---|---|---|\n"
    );
    for row in rows {
        let kernel = row
            .kernel_kib_per_connection
            .map_or("–".to_owned(), |kib| format!("{kib:.2}"));
        let verdict = row.met().map_or("", |met| verdict_text(Some(met)));
        let Row {
            name,
            kib_per_connection: each,
            resident_mib: total,
            ..
        } = row;
        let _ = writeln!(
            text,
            "| {name} | {each:.2} | {total:.1} | {kernel} | {verdict} |"
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
