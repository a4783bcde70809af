//! Only the reactor's drivers call the operating system, so that a simulated driver can replace the machine:
//! no other file takes time, threads, sockets or descriptors from it.

use super::Finding;
use super::exceptions::Exceptions;
use super::source::{Source, spells};

/// Calls that only the drivers, the binary, the laboratory and the developer tools may make.
const SYSTEM_CALLS: &[(&str, &str)] = &[
    ("Instant::now", "use the reactor's `now`"),
    ("SystemTime::now", "use the reactor's `wall_clock`"),
    (
        "thread::spawn",
        "spawn a task on the core, or use `blocking`",
    ),
    (
        "thread::Builder",
        "spawn a task on the core, or use `blocking`",
    ),
    ("thread::sleep", "a core never sleeps; use a timer"),
    ("thread::yield_now", "use the reactor's `yield_now`"),
    (
        "available_parallelism",
        "the driver counts the processors that the process may use",
    ),
    ("TcpStream", "use the reactor's `Socket`"),
    ("TcpListener", "use the reactor's `Listener`"),
    ("UdpSocket", "use the reactor's sockets"),
    ("UnixStream", "use the reactor's `Socket`"),
    ("UnixListener", "use the reactor's `Listener`"),
    ("process::exit", "return an error and let the binary decide"),
    ("io_uring", "system calls belong to the reactor's drivers"),
];

/// Names that only the drivers may use, whatever else a crate may do.
const DRIVER_NAMES: &[(&str, &str)] = &[
    ("libc", "system calls belong to the reactor's drivers"),
    ("os::fd", "descriptors belong to the reactor's drivers"),
    ("RawFd", "use the driver's `Handle`"),
    ("OwnedFd", "use the driver's `Handle`"),
    ("BorrowedFd", "use the driver's `Handle`"),
];

/// The drivers.
const DRIVERS: &[&str] = &["crates/reactor/src/driver.rs", "crates/reactor/src/driver/"];

/// Crates that call the operating system.
const SYSTEM_CRATES: &[&str] = &["crates/bench", "crates/cli", "crates/testing"];

/// Macros that belong in no commit.
const DEBUG_MACROS: &[(&str, &str)] = &[
    ("todo!", "finish or remove it"),
    ("unimplemented!", "finish or remove it"),
    ("dbg!", "remove it"),
];

/// Finds forbidden calls.
pub(crate) fn check(source: &Source, exceptions: &mut Exceptions, findings: &mut Vec<Finding>) {
    find(source, DEBUG_MACROS, exceptions, findings, |_| false);
    let is_driver = DRIVERS.iter().any(|path| source.path.starts_with(path));
    if is_driver || source.is_auxiliary() || !source.path.starts_with("crates/") {
        return;
    }
    let is_test = |line| source.is_test(line);
    find(source, DRIVER_NAMES, exceptions, findings, is_test);
    if !SYSTEM_CRATES.contains(&source.crate_folder()) {
        find(source, SYSTEM_CALLS, exceptions, findings, is_test);
    }
}

fn find(
    source: &Source,
    calls: &[(&str, &str)],
    exceptions: &mut Exceptions,
    findings: &mut Vec<Finding>,
    exempt: impl Fn(usize) -> bool,
) {
    for (call, advice) in calls {
        let words = words_of(call);
        for place in source.tokens.windows(words.len()) {
            let line = place[0].line;
            if spells(place, &words) && !exempt(line) && !exceptions.allows_call(&source.path, call)
            {
                let message = format!("`{call}` is not allowed here: {advice}");
                findings.push(Finding::new(&source.path, line, message));
            }
        }
    }
}

/// The tokens of `Instant::now`.
fn words_of(call: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in call.split("::").enumerate() {
        if index > 0 {
            words.extend([":".to_owned(), ":".to_owned()]);
        }
        match part.strip_suffix('!') {
            Some(name) => words.extend([name.to_owned(), "!".to_owned()]),
            None => words.push(part.to_owned()),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::text::TextFile;

    fn lines(path: &str, content: &str) -> Vec<usize> {
        let text = TextFile {
            path: path.into(),
            content: content.into(),
        };
        let source = Source::parse(&text).unwrap();
        let mut findings = Vec::new();
        check(&source, &mut Exceptions::parse("").unwrap(), &mut findings);
        findings.into_iter().map(|finding| finding.line).collect()
    }

    const CLOCK: &str = "use std::time::Instant;\nfn f() {\n    let now = Instant::now();\n}\n";

    #[test]
    fn only_drivers_and_the_binary_read_the_clock() {
        assert_eq!(lines("crates/http/src/pool.rs", CLOCK), [3]);
        assert_eq!(lines("crates/reactor/src/timer.rs", CLOCK), [3]);
        assert!(lines("crates/reactor/src/driver.rs", CLOCK).is_empty());
        assert!(lines("crates/reactor/src/driver/uring.rs", CLOCK).is_empty());
        assert!(lines("crates/cli/src/main.rs", CLOCK).is_empty());
        assert!(lines("crates/http/tests/it/pool.rs", CLOCK).is_empty());
        assert!(lines("crates/http/examples/clock.rs", CLOCK).is_empty());
    }

    #[test]
    fn only_drivers_know_descriptors() {
        let content =
            "use std::os::fd::OwnedFd;\nfn f(fd: i32) {\n    close(fd as libc::c_int);\n}\n";
        assert_eq!(lines("crates/reactor/src/socket.rs", content), [3, 1, 1]);
        assert_eq!(lines("crates/cli/src/main.rs", content), [3, 1, 1]);
        assert!(lines("crates/reactor/src/driver/system/event.rs", content).is_empty());
        assert!(lines("crates/reactor/tests/it/streams.rs", content).is_empty());
        assert!(lines("xtask/src/elf.rs", content).is_empty());
    }

    #[test]
    fn a_call_inside_a_macro_is_found_and_one_in_a_comment_is_not() {
        let content = "// Instant::now\nfn f() {\n    assert!(Instant::now() > then);\n}\n";
        assert_eq!(lines("crates/http/src/pool.rs", content), [3]);
    }

    #[test]
    fn a_test_module_may_read_the_clock() {
        let content = format!("#[cfg(test)]\nmod tests {{\n{CLOCK}}}\n");
        assert!(lines("crates/http/src/pool.rs", &content).is_empty());
    }

    #[test]
    fn debug_macros_are_found_even_in_tests() {
        let content = "#[cfg(test)]\nmod tests {\n    fn f() { dbg!(1); }\n}\n";
        assert_eq!(lines("crates/http/src/pool.rs", content), [3]);
        assert_eq!(lines("crates/cli/src/main.rs", "fn f() { todo!() }\n"), [1]);
    }
}
