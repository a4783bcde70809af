//! One run: a process of `blitz load`, and what the server used meanwhile.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::case::{Length, Load, Requests, Subject};
use super::program::{Program, Reported, run_go, run_oha, run_script, run_tool};
use crate::link::Link;
use crate::load_result::{Affects, LoadResult};
use crate::number;
use crate::process::{
    busy_seconds, cpu_seconds_of, own_cpu_seconds, resident_bytes_of, wait_within,
};
use crate::programs::Programs;
use crate::run_folder::RunFolder;

/// The time that a run may take beyond its planned time.
pub(super) const SPARE: Duration = Duration::from_secs(120);

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
    /// Other processes of the run: backends.
    pub(crate) beside: Vec<u32>,
}

/// The figures of one run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Run {
    pub(crate) result: LoadResult,
    /// CPU time of the server per request, in microseconds. It covers the warm-up as well; a cold run has its connections
    /// in it.
    pub(crate) server_us: f64,
    /// CPU time of the generator per request, in microseconds: of its whole life, its start included.
    pub(crate) client_us: f64,
    /// Percentiles that another generator reports, in microseconds; those of `blitz load` are in the result.
    pub(crate) reported_p50_us: Option<u64>,
    pub(crate) reported_p99_us: Option<u64>,
    /// Resident memory of the server at the end, in bytes.
    pub(crate) resident_bytes: u64,
    /// Length of the run, in seconds.
    pub(crate) elapsed_s: f64,
    /// CPU time of programs beside server, backend and generator, in seconds. All of it is counted in ticks: in a short run
    /// it may be negative.
    pub(crate) foreign_s: f64,
}

impl Run {
    /// Why the figures of this run of a subject prove nothing. A closed loop that the generator bounds still has a
    /// valid CPU time. Failed requests are a result of a subject that may fail, if it responds to others.
    pub(super) fn void_reason(&self, subject: &Subject) -> Option<String> {
        if let Some(reason) = too_few(&self.result, subject.load.length) {
            return Some(reason);
        }
        let needed = match subject.load.rate {
            Some(_) => Affects::Times,
            None => Affects::Everything,
        };
        let is_result = |affects| {
            let has_result = subject.may_fail && self.result.counts.completed > 0;
            has_result && affects == Affects::Everything
        };
        let mut problems = self.result.problems.iter();
        let problem = problems
            .find(|problem| problem.affects.concerns(needed) && !is_result(problem.affects))?;
        Some(problem.message.clone())
    }
}

impl Generator<'_> {
    /// Runs the load of a subject once, as a new process.
    pub(crate) fn run(&self, subject: &Subject) -> Result<Run, String> {
        let load = &subject.load;
        let Watched { servers, beside } = &subject.watched;
        let seconds_of = |all: &[u32]| all.iter().map(|&pid| cpu_seconds_of(pid)).sum::<f64>();
        let (server, backends) = (seconds_of(servers), seconds_of(beside));
        let (own, busy) = (own_cpu_seconds(), busy_seconds());
        let begun = Instant::now();
        let reported = match &load.program {
            Program::Blitz => self.run_blitz(subject),
            Program::Go(program) => run_go(program, load),
            Program::Oha(program) => run_oha(program, load),
            Program::Script(script) => run_script(script, load),
            Program::Tool(tool, tls) => {
                run_tool(*tool, tls, load, (self.programs, self.folder.path()))
            }
        };
        let elapsed = begun.elapsed().as_secs_f64();
        let server = seconds_of(servers) - server;
        // The generator has ended, so its time is part of that of this process's children.
        let client = own_cpu_seconds() - own;
        let foreign = busy_seconds() - busy - server - client - (seconds_of(beside) - backends);
        let Reported {
            result,
            p50_us,
            p99_us,
        } = reported?;
        if result.counts.completed > 0 && result.target.protocol != load.version.alpn() {
            return Err(format!("it used {}", result.target.protocol));
        }
        let warm_up = result.warm_up_s / result.duration_s.max(f64::MIN_POSITIVE);
        let requests = result.counts.completed as f64 * (1.0 + warm_up);
        Ok(Run {
            server_us: server * 1e6 / requests,
            client_us: client * 1e6 / requests,
            reported_p50_us: p50_us,
            reported_p99_us: p99_us,
            resident_bytes: servers.iter().map(|&pid| resident_bytes_of(pid)).sum(),
            elapsed_s: elapsed,
            foreign_s: foreign,
            result,
        })
    }

    fn run_blitz(&self, subject: &Subject) -> Result<Reported, String> {
        let load = &subject.load;
        let child = self.spawn(&mut self.command(load)?);
        let child = child.map_err(|error| format!("blitz load does not start: {error}"))?;
        let output = wait_within(child, load.length.planned() + SPARE)?;
        let errors = String::from_utf8_lossy(&output.stderr);
        let result: LoadResult =
            serde_json::from_slice(&output.stdout).map_err(|_| errors.trim().to_owned())?;
        let code = output.status.code();
        let is_counted = code.is_some_and(|code| CODES.contains(&code));
        let is_correct = result.counts.errors() == 0;
        if !is_counted || !(is_correct || subject.may_fail) {
            return Err(failure(&result, errors.trim()));
        }
        Ok(Reported {
            result,
            p50_us: None,
            p99_us: None,
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
                command.args(["-d", &milliseconds(measured)]);
                command.args(["--warm-up", &milliseconds(warm_up)])
            }
            Length::AtLeast {
                measured,
                warm_up,
                responses,
                longest,
            } => {
                command.args(["-d", &milliseconds(measured)]);
                command.args(["--warm-up", &milliseconds(warm_up)]);
                command.args(["--min-responses", &responses.to_string()]);
                command.args(["--max-duration", &milliseconds(longest)])
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

fn milliseconds(length: Duration) -> String {
    match length.is_zero() {
        true => "0s".to_owned(),
        false => format!("{}ms", length.as_millis()),
    }
}

/// Why a run has too few responses, if its longest time has ended it.
fn too_few(result: &LoadResult, length: Length) -> Option<String> {
    let Length::AtLeast {
        responses, longest, ..
    } = length
    else {
        return None;
    };
    let completed = result.counts.completed;
    (completed < u64::from(responses)).then(|| {
        let longest = number::long_time(longest.as_secs_f64());
        format!("Only {completed} of {responses} responses came within {longest}.")
    })
}

/// The failure of a run, in one line.
fn failure(result: &LoadResult, errors: &str) -> String {
    let counts = &result.counts;
    let counted = counts.wrong.iter().chain(&counts.failed);
    let counted: Vec<_> = counted
        .map(|(what, count)| format!("{count} × {what}"))
        .collect();
    format!("{} {errors}", counted.join(", ")).trim().to_owned()
}
