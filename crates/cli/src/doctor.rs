//! `blitz doctor`: checks this machine and the Blitz that runs on it, and prints the problems with their remedies, and
//! the DNS record for HTTP/3 (`record.rs`).
//!
//! A line is `stop` if Blitz cannot serve like this, and `slow` if it serves less than it could. The
//! checks read `/proc` and `/sys` (`files.rs`), use the reactor's probes (`probes.rs`) or watch a running process
//! (`running.rs`); this file prints them.

mod files;
mod probes;
mod record;
mod running;

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use self::record::RecordArguments;
use crate::control_client::{self, Place};
use crate::live;

#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Socket of the running process, or its control address [default: /run/blitz/control.sock,
    /// $XDG_RUNTIME_DIR/blitz/control.sock, 127.0.0.1:9180]
    #[arg(long, value_name = "PATH|ADDR")]
    control: Option<Place>,

    /// How long the running process is watched, to tell problems of now from earlier ones
    #[arg(long, value_name = "DURATION", value_parser = live::interval, default_value = "3s", allow_hyphen_values = true)]
    interval: Duration,

    #[command(flatten)]
    record: RecordArguments,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckResult {
    Ok,
    /// Blitz serves, but slower or fewer clients than it could.
    Slow,
    /// Blitz cannot serve.
    Stop,
    /// The check was not possible, which is not a problem by itself.
    Unknown,
}

/// One line of the report.
#[derive(Debug)]
struct Check {
    name: Cow<'static, str>,
    verdict: CheckResult,
    /// The value or state that was found.
    found: String,
    /// The remedy; empty if none is needed.
    advice: String,
}

impl Check {
    fn ok(name: impl Into<Cow<'static, str>>, found: impl Into<String>) -> Check {
        Check {
            name: name.into(),
            verdict: CheckResult::Ok,
            found: found.into(),
            advice: String::new(),
        }
    }

    fn slow(
        name: impl Into<Cow<'static, str>>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Check {
        Check {
            name: name.into(),
            verdict: CheckResult::Slow,
            found: found.into(),
            advice: advice.into(),
        }
    }

    fn stop(
        name: impl Into<Cow<'static, str>>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Check {
        Check {
            name: name.into(),
            verdict: CheckResult::Stop,
            found: found.into(),
            advice: advice.into(),
        }
    }

    fn unknown(
        name: impl Into<Cow<'static, str>>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Check {
        Check {
            name: name.into(),
            verdict: CheckResult::Unknown,
            found: found.into(),
            advice: advice.into(),
        }
    }
}

/// Prints the report; the exit code is 1 if a line is `stop`, or if the process that is named does not answer.
pub(crate) fn run(arguments: &DoctorArguments) -> ExitCode {
    match report(arguments) {
        Ok(Ok(false)) => ExitCode::SUCCESS,
        Ok(Ok(true)) | Err(_) => ExitCode::FAILURE,
        Ok(Err(problem)) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

/// Whether a line is `stop`, or the reason for which the process that is named does not answer.
///
/// # Errors
/// The report cannot be printed.
fn report(arguments: &DoctorArguments) -> io::Result<Result<bool, String>> {
    let mut out = io::stdout();
    let colour = out.is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let machine = machine();
    print(&machine, colour, &mut out)?;
    writeln!(out, "\n{}\n", summary(&machine))?;
    let named = arguments.control.clone();
    let is_named = named.is_some();
    let places = named.map_or_else(control_client::usual_places, |place| vec![place]);
    let (running, text) = match running::checks(&places, arguments.interval) {
        Ok(checks) => {
            let text = running::summary(&checks);
            (checks, text)
        }
        Err(problem) if is_named => return Ok(Err(problem)),
        Err(problem) => {
            let problem = problem.trim_start_matches("blitz: ");
            let (found, advice) = problem.split_once("\n  ").unwrap_or((problem, ""));
            let check = Check::unknown("process", found, advice);
            (vec![check], "No running Blitz was looked at.".to_owned())
        }
    };
    print(&running, colour, &mut out)?;
    writeln!(out, "\n{text}\n\n{}", arguments.record.text())?;
    let stops = count(&machine, CheckResult::Stop) + count(&running, CheckResult::Stop);
    Ok(Ok(stops > 0))
}

fn machine() -> Vec<Check> {
    let root = Path::new("/");
    vec![
        probes::io_uring(root),
        probes::epoll(),
        files::nofile(root),
        files::memlock(root),
        files::somaxconn(root),
        files::tcp_max_syn_backlog(root),
        files::netdev_max_backlog(root),
        files::governor(root),
        probes::memory_nodes(root),
        probes::reuseport(),
        probes::udp_receive_buffer(),
        probes::udp_send_buffer(),
        probes::udp_gso(),
        probes::udp_gro(),
        probes::steering(),
        files::clock_source(root),
    ]
}

fn count(checks: &[Check], verdict: CheckResult) -> usize {
    let is_counted = |check: &&Check| check.verdict == verdict;
    checks.iter().filter(is_counted).count()
}

fn print(checks: &[Check], colour: bool, out: &mut impl Write) -> io::Result<()> {
    for check in checks {
        let (word, code) = match check.verdict {
            CheckResult::Ok => ("ok", 32),
            CheckResult::Slow => ("slow", 33),
            CheckResult::Stop => ("stop", 31),
            CheckResult::Unknown => ("unknown", 36),
        };
        let Check {
            name,
            found,
            advice,
            ..
        } = check;
        if colour {
            writeln!(out, "\x1b[{code}m{word:<8}\x1b[0m {name:<20} {found}")?;
        } else {
            writeln!(out, "{word:<8} {name:<20} {found}")?;
        }
        if !advice.is_empty() {
            writeln!(out, "{:<29} -> {advice}", "")?;
        }
    }
    Ok(())
}

fn summary(checks: &[Check]) -> String {
    let stops = match count(checks, CheckResult::Stop) {
        0 => String::from("Nothing stops Blitz"),
        1 => String::from("1 setting stops Blitz"),
        stops => format!("{stops} settings stop Blitz"),
    };
    match count(checks, CheckResult::Slow) {
        0 => format!("{stops}."),
        1 => format!("{stops}; 1 setting makes it slower."),
        slow => format!("{stops}; {slow} settings make it slower."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(check: Check, colour: bool) -> String {
        let mut out = Vec::new();
        print(&[check], colour, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_slow_line_is_followed_by_its_remedy() {
        let text = printed(Check::slow("somaxconn", "128", "sysctl -w x=4096"), false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "slow     somaxconn            128");
        assert_eq!(lines[1].trim(), "-> sysctl -w x=4096");
    }

    #[test]
    fn the_summary_counts_what_stops_and_what_slows() {
        let slow = || Check::slow("governor", "powersave", "performance");
        let stop = || Check::stop("epoll", "no", "raise nofile");
        let ok = || Check::ok("epoll", "works");
        for (checks, text) in [
            (vec![ok()], "Nothing stops Blitz."),
            (
                vec![ok(), slow()],
                "Nothing stops Blitz; 1 setting makes it slower.",
            ),
            (
                vec![stop(), slow(), slow()],
                "1 setting stops Blitz; 2 settings make it slower.",
            ),
            (vec![stop(), stop()], "2 settings stop Blitz."),
        ] {
            assert_eq!(summary(&checks), text);
        }
    }

    #[test]
    fn colour_is_used_only_on_request() {
        assert!(!printed(Check::ok("epoll", "works"), false).contains('\x1b'));
        assert!(printed(Check::ok("epoll", "works"), true).contains('\x1b'));
    }
}
