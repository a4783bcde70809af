//! Benchmarks whose servers and generators never outlive them, however they end.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use blitz_http::{Signal, Signals};
use rustix::process::{self, Pid, getpgrp, getpid, kill_current_process_group, kill_process_group};

use crate::output;
use crate::run_folder::RunFolder;

/// The flag of a process that somebody supervises.
pub(crate) const FLAG: &str = "--supervised";

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Signals add their number to this for the exit code, as shells have it.
const SIGNALLED: i32 = 128;

/// A benchmark in a process group of its own. All processes of the group end when this is dropped, or when this process
/// ends, by SIGKILL too.
pub(crate) struct Supervised {
    child: Child,
    /// Its end, which the kernel sees to, is the order to end.
    lifeline: Option<ChildStdin>,
    /// For the temporary files of all of its processes.
    _folder: RunFolder,
}

impl Supervised {
    /// Starts a command that has [`FLAG`].
    pub(crate) fn start(command: &mut Command) -> io::Result<Supervised> {
        let folder = RunFolder::create().map_err(io::Error::other)?;
        command.env("TMPDIR", folder.path());
        // Signals of the terminal reach this process only, which ends the group.
        let mut child = command.stdin(Stdio::piped()).process_group(0).spawn()?;
        let lifeline = child.stdin.take();
        Ok(Supervised {
            child,
            lifeline,
            _folder: folder,
        })
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends all of its processes, if they have not ended, and removes their files.
    pub(crate) fn end(mut self) -> io::Result<ExitStatus> {
        drop(self.lifeline.take());
        let status = self.child.wait()?;
        // It was killed by somebody else if others of its group are left.
        if let Some(group) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = kill_process_group(group, process::Signal::KILL);
        }
        Ok(status)
    }
}

/// The signals that end a benchmark.
pub(crate) struct EndSignals {
    signals: Signals,
    /// Started by nohup(1), it survives the end of its terminal.
    survives_hangup: bool,
}

impl EndSignals {
    pub(crate) fn install() -> io::Result<EndSignals> {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Ok(EndSignals {
            survives_hangup: ignores_hangup(&status),
            signals: Signals::install()?,
        })
    }

    /// Waits for one of them.
    pub(crate) fn wait(&self, at_most: Duration) -> Option<Signal> {
        let signal = self.signals.wait(Some(at_most)).unwrap_or_default();
        signal.filter(|signal| match signal {
            Signal::Interrupt | Signal::Terminate | Signal::Quit => true,
            Signal::Hangup => !self.survives_hangup,
            _ => false,
        })
    }
}

/// Whether HUP is among the ignored signals of proc_pid_status(5).
fn ignores_hangup(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    let hangup = process::Signal::HUP.as_raw() as u32;
    ignored.is_some_and(|set| set & (1 << (hangup - 1)) != 0)
}

/// Runs the command of this process again, supervised. The exit code is its own, or that of a signal.
///
/// # Errors
/// The process does not start.
pub(crate) fn run_supervised() -> io::Result<ExitCode> {
    let signals = EndSignals::install()?;
    let mut words = std::env::args_os();
    let mut command = Command::new(std::env::current_exe()?);
    if let Some(name) = words.next() {
        command.arg0(name);
    }
    let words: Vec<OsString> = words.collect();
    let mut supervised = Supervised::start(command.args(words).arg(FLAG))?;
    let mut signal = None;
    while signal.is_none() && !supervised.has_ended() {
        signal = signals.wait(LOOK_EVERY);
    }
    let status = supervised.end()?;
    if let Some(signal) = signal {
        output::message("blitz bench: interrupted; what was not saved before is lost");
        return Ok(exit_code(signal));
    }
    let killed = status.signal().map(|number| SIGNALLED + number);
    let code = killed.or(status.code());
    let code = code.and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// The exit code of a benchmark that a signal has ended: 130 for INT, 143 for TERM.
pub(crate) fn exit_code(signal: Signal) -> ExitCode {
    let signal = match signal {
        Signal::Hangup => process::Signal::HUP,
        Signal::Quit => process::Signal::QUIT,
        Signal::Terminate => process::Signal::TERM,
        _ => process::Signal::INT,
    };
    u8::try_from(SIGNALLED + signal.as_raw()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// When the input ends, all processes of this process group are killed: servers and generators too. The process that
/// holds the other end may end in any way, and leaves nothing running.
pub(crate) fn end_with_the_input() -> Result<(), String> {
    if getpgrp() != getpid() {
        return Err(format!("{FLAG} needs a process group of its own"));
    }
    thread::spawn(|| {
        // An error ends the input as well.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        let _ = kill_current_process_group(process::Signal::KILL);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nohup_is_noticed() {
        assert!(ignores_hangup("Name:\ta\nSigIgn:\t0000000000001001\n"));
        assert!(!ignores_hangup("SigIgn:\t0000000000001000\n"));
        assert!(!ignores_hangup(""));
    }
}
