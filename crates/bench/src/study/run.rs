//! One run: a process of `blitz load`, and what the server used meanwhile.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::case::{Length, Load, Requests, Subject};
use crate::link::Link;
use crate::load_result::{Affects, LoadResult};
use crate::process::{
    busy_seconds, cpu_seconds_of, own_cpu_seconds, resident_bytes_of, wait_within,
};
use crate::programs::Programs;
use crate::run_folder::RunFolder;

/// What a run may take beyond its planned time.
const SPARE: Duration = Duration::from_secs(120);

/// The exit codes of `blitz load` whose result counts: a valid run, failed requests, INVALID.
const CODES: [i32; 3] = [0, 1, 75];

/// Starts the generator, on this machine's loopback or at the client's end of an emulated link.
pub(crate) struct Generator<'a> {
    pub(crate) programs: &'a Programs,
    pub(crate) folder: &'a RunFolder,
    pub(crate) link: Option<&'a Link>,
}

/// The processes behind a subject.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watched {
    /// The measured server; several, if it is several processes that are no descendants of one.
    pub(crate) servers: Vec<u32>,
    /// What else belongs to the run: backends.
    pub(crate) beside: Vec<u32>,
}

/// The figures of one run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Run {
    pub(crate) result: LoadResult,
    /// CPU time of the server per request, in microseconds. It covers the warm-up as well; a cold run has its connections
    /// in it.
    pub(crate) server_us: f64,
    /// Resident memory of the server at the end, in bytes.
    pub(crate) resident_bytes: u64,
    /// Share of one core that programs beside server, backend and generator used.
    pub(crate) foreign_share: f64,
}

impl Run {
    /// Why the figures of this run prove nothing. A closed loop that the generator bounds still has a valid CPU time.
    pub(super) fn void_reason(&self, is_open_loop: bool) -> Option<String> {
        let needed = match is_open_loop {
            true => Affects::Times,
            false => Affects::Everything,
        };
        let mut problems = self.result.problems.iter();
        let problem = problems.find(|problem| problem.affects <= needed)?;
        Some(problem.message.clone())
    }
}

impl Generator<'_> {
    /// Runs the load of a subject once, as a new process.
    pub(super) fn run(&self, subject: &Subject) -> Result<Run, String> {
        let load = &subject.load;
        let mut command = self.command(load)?;
        let Watched { servers, beside } = &subject.watched;
        let seconds_of = |all: &[u32]| all.iter().map(|&pid| cpu_seconds_of(pid)).sum::<f64>();
        let (server, others) = (seconds_of(servers), seconds_of(beside) + own_cpu_seconds());
        let busy = busy_seconds();
        let begun = std::time::Instant::now();
        let child = self.spawn(&mut command);
        let child = child.map_err(|error| format!("blitz load does not start: {error}"))?;
        let output = wait_within(child, load.length.planned() + SPARE)?;
        let elapsed = begun.elapsed().as_secs_f64();
        let server = seconds_of(servers) - server;
        // The generator has ended, so its time is part of that of this process's children.
        let others = seconds_of(beside) + own_cpu_seconds() - others;
        let foreign = busy_seconds() - busy - server - others;
        let errors = String::from_utf8_lossy(&output.stderr);
        let result: LoadResult =
            serde_json::from_slice(&output.stdout).map_err(|_| errors.trim().to_owned())?;
        let is_counted = output
            .status
            .code()
            .is_some_and(|code| CODES.contains(&code));
        let is_correct = result.counts.errors() == 0;
        if !is_counted || !(is_correct || subject.may_fail) {
            return Err(failure(&result, errors.trim()));
        }
        if result.counts.completed > 0 && result.target.protocol != load.version.alpn() {
            return Err(format!("it used {}", result.target.protocol));
        }
        let warm_up = result.warm_up_s / result.duration_s.max(f64::MIN_POSITIVE);
        let requests = result.counts.completed as f64 * (1.0 + warm_up);
        Ok(Run {
            server_us: server * 1e6 / requests,
            resident_bytes: servers.iter().map(|&pid| resident_bytes_of(pid)).sum(),
            foreign_share: foreign.max(0.0) / elapsed,
            result,
        })
    }

    fn spawn(&self, command: &mut Command) -> std::io::Result<Child> {
        match self.link {
            Some(link) => link.spawn_client(command),
            None => command.spawn(),
        }
    }

    fn command(&self, load: &Load) -> Result<Command, String> {
        let mut command = Command::new("taskset");
        command.args(["-c", load.cores]).arg(self.programs.blitz());
        command.args(["load", "--json", "-", "--quiet"]);
        command.args(["-t", &load.threads.to_string()]);
        command.args(["--http", load.version.flag()]);
        command.args(["-c", &load.connections.to_string()]);
        command.args(["-m", &load.streams.to_string()]);
        match load.length {
            Length::Requests(count) => command.args(["-n", &count.to_string()]),
            Length::Time { measured, warm_up } => {
                let milliseconds = |length: Duration| format!("{}ms", length.as_millis());
                command.args(["-d", &milliseconds(measured)]);
                match warm_up.is_zero() {
                    true => command.args(["--warm-up", "0s"]),
                    false => command.args(["--warm-up", &milliseconds(warm_up)]),
                }
            }
        };
        if let Some(rate) = load.rate {
            command.args(["--rate", &format!("{rate:.0}")]);
        }
        command.args(&load.flags);
        match &load.requests {
            Requests::Path(path) => {
                command.arg(format!("{}{path}", load.base));
            }
            Requests::Mix(lines) => {
                let file = self.folder.path().join("requests.txt");
                fs::write(&file, lines.join("\n"))
                    .map_err(|error| format!("{}: {error}", file.display()))?;
                command.arg("-i").arg(file).arg(&load.base);
            }
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(command)
    }
}

/// What went wrong in a run, in one line.
fn failure(result: &LoadResult, errors: &str) -> String {
    let counts = &result.counts;
    let counted = counts.wrong.iter().chain(&counts.failed);
    let counted: Vec<_> = counted
        .map(|(what, count)| format!("{count} × {what}"))
        .collect();
    format!("{} {errors}", counted.join(", ")).trim().to_owned()
}
