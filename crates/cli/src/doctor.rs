//! `blitz doctor`: checks this machine and prints the problems with their remedies.
//!
//! Each line is good, bad or unknown. The checks read `/proc` and `/sys` (`files.rs`) or use the
//! reactor's probes (`probes.rs`); this file prints them.

mod files;
mod probes;

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Good,
    Bad,
    /// The check was not possible, which is not a problem by itself.
    Unknown,
}

/// One line of the report.
#[derive(Debug)]
struct Check {
    name: &'static str,
    verdict: Verdict,
    /// The value or state that was found.
    found: String,
    /// The remedy; empty if none is needed.
    advice: String,
}

impl Check {
    fn good(name: &'static str, found: impl Into<String>) -> Check {
        Check {
            name,
            verdict: Verdict::Good,
            found: found.into(),
            advice: String::new(),
        }
    }

    fn bad(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Check {
        Check {
            name,
            verdict: Verdict::Bad,
            found: found.into(),
            advice: advice.into(),
        }
    }

    fn unknown(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Check {
        Check {
            name,
            verdict: Verdict::Unknown,
            found: found.into(),
            advice: advice.into(),
        }
    }
}

/// Prints the report; the exit code is 1 if a line is bad.
pub(crate) fn run() -> ExitCode {
    let root = Path::new("/");
    let checks = [
        probes::io_uring(root),
        probes::epoll(),
        files::nofile(root),
        files::memlock(root),
        files::somaxconn(root),
        files::tcp_max_syn_backlog(root),
        files::netdev_max_backlog(root),
        files::governor(root),
        probes::reuseport(),
        probes::udp_gso(),
        files::clock_source(root),
    ];
    let mut out = io::stdout();
    let colour = out.is_terminal() && std::env::var_os("NO_COLOR").is_none();
    if print(&checks, colour, &mut out).is_err() {
        return ExitCode::FAILURE;
    }
    let bad = checks.iter().any(|check| check.verdict == Verdict::Bad);
    if bad {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn print(checks: &[Check], colour: bool, out: &mut impl Write) -> io::Result<()> {
    for check in checks {
        let (word, code) = match check.verdict {
            Verdict::Good => ("good", 32),
            Verdict::Bad => ("bad", 31),
            Verdict::Unknown => ("unknown", 33),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(check: Check, colour: bool) -> String {
        let mut out = Vec::new();
        print(&[check], colour, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_bad_line_is_followed_by_its_remedy() {
        let text = printed(Check::bad("somaxconn", "128", "sysctl -w x=4096"), false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "bad      somaxconn            128");
        assert_eq!(lines[1].trim(), "-> sysctl -w x=4096");
    }

    #[test]
    fn colour_is_used_only_on_request() {
        assert!(!printed(Check::good("epoll", "works"), false).contains('\x1b'));
        assert!(printed(Check::good("epoll", "works"), true).contains('\x1b'));
    }
}
