//! The process of a measured server: start, CPU time, memory, stop.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::iter::Sum;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

/// The server's core, in the form of taskset.
pub(crate) const SERVER_CORE: &str = "0";
/// The core of the load tool and the backend.
pub(crate) const LOAD_CORE: &str = "1";
pub(crate) const CORES: &[&str] = &[SERVER_CORE, LOAD_CORE];

const START_WITHIN: Duration = Duration::from_secs(10);
const STOP_WITHIN: Duration = Duration::from_secs(10);
/// Linux reports process times in hundredths of a second, whatever the kernel's tick is.
pub(crate) const TICKS_PER_SECOND: f64 = 100.0;

/// The servers of a system and their workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workers {
    /// A server with one worker, on a core that it shares with nobody.
    One,
    /// Two servers with one worker each, on the two cores.
    TwoServers,
    /// A server with two workers, on the two cores.
    Two,
    /// A server with so many workers, on cores that its study chooses.
    Many(u32),
}

impl Workers {
    /// The workers of each server.
    pub(crate) fn count(self) -> u32 {
        match self {
            Workers::One | Workers::TwoServers => 1,
            Workers::Two => 2,
            Workers::Many(count) => count,
        }
    }

    /// The cores of each server, in the form of taskset.
    pub(crate) fn servers(self) -> &'static [&'static str] {
        match self {
            Workers::One => &[SERVER_CORE],
            Workers::TwoServers => CORES,
            Workers::Two => &["0,1"],
            Workers::Many(_) => &[],
        }
    }
}

/// Context switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(crate) struct Switches {
    /// The thread waited.
    pub(crate) voluntary: u64,
    /// Another thread took its core.
    pub(crate) involuntary: u64,
}

impl Switches {
    /// The switches after `before`.
    pub(crate) fn since(self, before: Switches) -> Switches {
        Switches {
            voluntary: self.voluntary.saturating_sub(before.voluntary),
            involuntary: self.involuntary.saturating_sub(before.involuntary),
        }
    }
}

impl Sum for Switches {
    fn sum<I: Iterator<Item = Switches>>(all: I) -> Switches {
        all.fold(Switches::default(), |sum, one| Switches {
            voluntary: sum.voluntary + one.voluntary,
            involuntary: sum.involuntary + one.involuntary,
        })
    }
}

/// A running server; stopped when dropped.
pub(crate) struct ServerProcess {
    name: String,
    child: Child,
    /// Its standard error until the end.
    errors: Option<JoinHandle<String>>,
    pub(crate) address: SocketAddr,
}

impl ServerProcess {
    /// Starts `command` on one core and waits until it accepts connections.
    pub(crate) fn start_pinned(
        name: &str,
        core: &str,
        command: &Command,
        address: SocketAddr,
    ) -> Result<ServerProcess, String> {
        let server = ServerProcess::start(name, pinned(core, command), address)?;
        server.wait_until_it_accepts()?;
        Ok(server)
    }

    /// Starts `command` unchanged and returns at once.
    pub(crate) fn start(
        name: &str,
        mut command: Command,
        address: SocketAddr,
    ) -> Result<ServerProcess, String> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|e| format!("{name} does not start: {e}"))?;
        let errors = child.stderr.take().map(|mut pipe| {
            thread::spawn(move || {
                let mut text = Vec::new();
                // The text before an error is still useful.
                let _ = pipe.read_to_end(&mut text);
                String::from_utf8_lossy(&text).into_owned()
            })
        });
        Ok(ServerProcess {
            name: name.to_owned(),
            child,
            errors,
            address,
        })
    }

    fn wait_until_it_accepts(&self) -> Result<(), String> {
        let begun = Instant::now();
        while begun.elapsed() < START_WITHIN {
            if TcpStream::connect(self.address).is_ok() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Err(format!("{} does not listen on {}", self.name, self.address))
    }

    /// User and system time of the whole process tree, in seconds.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        cpu_seconds_of(self.child.id())
    }

    /// Context switches of the whole process tree, without those of threads that have ended.
    pub(crate) fn switches(&self) -> Switches {
        let processes = tree(self.child.id());
        processes.keys().map(|&pid| switches(pid)).sum()
    }

    /// Resident memory of the whole process tree, in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        resident_bytes_of(self.child.id())
    }

    /// The sum of the processes' peaks of resident memory since their start, in bytes.
    pub(crate) fn peak_resident_bytes(&self) -> u64 {
        memory_of_tree(self.child.id(), "VmHWM:")
    }

    /// The first process of its tree.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Stops the server and returns its standard error.
    pub(crate) fn stop(mut self) -> String {
        stop_child(&mut self.child);
        self.errors
            .take()
            .and_then(|errors| errors.join().ok())
            .unwrap_or_default()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        stop_child(&mut self.child);
    }
}

/// User and system time of a process and all its descendants, in seconds.
pub(crate) fn cpu_seconds_of(process: u32) -> f64 {
    let tree = tree(process);
    tree.values().map(|process| process.cpu_seconds).sum()
}

/// Resident memory of a process and all its descendants, in bytes.
pub(crate) fn resident_bytes_of(process: u32) -> u64 {
    memory_of_tree(process, "VmRSS:")
}

fn memory_of_tree(process: u32, field: &str) -> u64 {
    let tree = tree(process);
    tree.keys().map(|&pid| memory_bytes(pid, field)).sum()
}

/// Sends TERM, then KILL, and reaps the process.
pub(crate) fn stop_child(child: &mut Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid
        && matches!(child.try_wait(), Ok(None))
    {
        // The process may have ended in between.
        let _ = kill_process(pid, Signal::TERM);
        let signalled = Instant::now();
        while signalled.elapsed() < STOP_WITHIN && matches!(child.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(10));
        }
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Runs a command to its end and returns its output. Kills it if it takes longer than `within`.
pub(crate) fn output_within(command: &mut Command, within: Duration) -> Result<Output, String> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().map_err(|e| e.to_string())?;
    wait_within(child, within)
}

/// The output of a process, at its end. Kills it if it takes longer than `within`.
pub(crate) fn wait_within(child: Child, within: Duration) -> Result<Output, String> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let (sender, receiver) = mpsc::channel();
    let waiting = thread::spawn(move || {
        // The receiver may have given up.
        let _ = sender.send(child.wait_with_output());
    });
    match receiver.recv_timeout(within) {
        Ok(output) => output.map_err(|e| e.to_string()),
        Err(_) => {
            // The thread has not reaped it, or it has just ended.
            let _ = pid.map(|pid| kill_process(pid, Signal::KILL));
            let _ = waiting.join();
            Err(format!("it did not end within {} s", within.as_secs()))
        }
    }
}

/// The same command under taskset.
fn pinned(core: &str, command: &Command) -> Command {
    let mut pinned = Command::new("taskset");
    pinned
        .args(["-c", core])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            pinned.env(name, value);
        }
    }
    pinned
}

/// An unused address.
pub(crate) fn free_address() -> Result<SocketAddr, String> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(|e| e.to_string())?;
    listener.local_addr().map_err(|e| e.to_string())
}

/// CPU time of this process and of its children that have ended, in seconds.
pub(crate) fn own_cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    fields(&stat).map_or(0.0, |fields| seconds(&fields[11..15]))
}

/// Busy time of all cores together, in seconds since boot.
pub(crate) fn busy_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().next().unwrap_or_default();
    let values: Vec<f64> = line
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq steal; guest time is part of user already.
    let busy = values
        .iter()
        .take(8)
        .enumerate()
        .filter(|(place, _)| !matches!(place, 3 | 4));
    busy.map(|(_, ticks)| ticks).sum::<f64>() / TICKS_PER_SECOND
}

struct Process {
    cpu_seconds: f64,
}

/// The process and all its descendants.
fn tree(root: u32) -> BTreeMap<u32, Process> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok());
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let (Some(pid), Some(fields)) = (pid, fields(&stat)) {
            let parent: u32 = fields[1].parse().unwrap_or(0);
            all.insert(pid, (parent, seconds(&fields[11..13])));
        }
    }
    let mut tree = BTreeMap::new();
    let mut open = vec![root];
    while let Some(pid) = open.pop() {
        if let Some(&(_, cpu_seconds)) = all.get(&pid) {
            tree.insert(pid, Process { cpu_seconds });
        }
        open.extend(
            all.iter()
                .filter(|(_, (parent, _))| *parent == pid)
                .map(|(&child, _)| child),
        );
    }
    tree
}

/// The fields after the name, which may itself contain spaces and parentheses: state, parent, …
fn fields(stat: &str) -> Option<Vec<&str>> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    (fields.len() > 15).then_some(fields)
}

fn seconds(ticks: &[&str]) -> f64 {
    ticks
        .iter()
        .filter_map(|ticks| ticks.parse::<f64>().ok())
        .sum::<f64>()
        / TICKS_PER_SECOND
}

/// A field of `/proc/<pid>/status` in KiB.
fn memory_bytes(pid: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    number_in(&status, field).unwrap_or(0) * 1024
}

/// The first number of a field of a status file.
fn number_in(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The context switches of all threads of a process.
fn switches(pid: u32) -> Switches {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let of_thread = |thread: fs::DirEntry| {
        let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        Switches {
            voluntary: number_in(&status, "voluntary_ctxt_switches:").unwrap_or(0),
            involuntary: number_in(&status, "nonvoluntary_ctxt_switches:").unwrap_or(0),
        }
    };
    threads.map(of_thread).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b) S 1 7 7 0 -1 0 0 0 0 0 150 50 25 25 20 0 1 0 0";
        let fields = fields(stat).unwrap();
        assert_eq!(fields[1], "1");
        assert_eq!(seconds(&fields[11..13]), 2.0);
        assert_eq!(seconds(&fields[11..15]), 2.5);
    }

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let within = Duration::from_secs(5);
        let output = output_within(Command::new("echo").arg("done"), within).unwrap();
        assert_eq!(output.stdout, b"done\n");
        let begun = Instant::now();
        let error = output_within(Command::new("sleep").arg("60"), Duration::from_millis(50));
        assert_eq!(error.unwrap_err(), "it did not end within 0 s");
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn this_process_is_in_its_own_tree_and_has_memory() {
        let pid = std::process::id();
        assert!(tree(pid).contains_key(&pid));
        let resident = memory_bytes(pid, "VmRSS:");
        assert!(resident > 100 * 1024 && memory_bytes(pid, "VmHWM:") >= resident);
    }

    /// Of another process with one thread: the count of this one falls when the threads of other tests end.
    #[test]
    fn a_process_that_sleeps_switches_voluntarily() {
        let mut sleeping = Command::new("sleep").arg("60").spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while switches(sleeping.id()).voluntary == 0 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        let slept = switches(sleeping.id());
        sleeping.kill().unwrap();
        sleeping.wait().unwrap();
        assert!(slept.voluntary >= 1, "{slept:?}");
    }
}
