//! The log on standard error.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use blitz_testing::{Client, IO_TIMEOUT, refusing_address};

/// `blitz` on one core and a free port.
fn blitz(flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_blitz"));
    command.args(["run", "--listen", "127.0.0.1:0", "--cores", "1"]);
    command.arg("--control-listen=off");
    command.args(flags);
    command
}

/// A running `blitz`, killed when dropped.
struct Running {
    child: Child,
    address: SocketAddr,
}

impl Running {
    fn start(flags: &[&str]) -> Running {
        let mut command = blitz(flags);
        command.stderr(Stdio::piped());
        Running::of(command)
    }

    fn of(mut command: Command) -> Running {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let address = stdout.lines().map_while(Result::ok).find_map(|line| {
            let url = line.trim().strip_prefix("listening on")?.trim();
            url.strip_prefix("http://")?.parse().ok()
        });
        Running {
            child,
            address: address.expect("the start message has the address"),
        }
    }

    fn terminate(&self) {
        self.signal("TERM");
    }

    fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status().unwrap();
        assert!(sent.success());
    }

    fn stderr(&mut self) -> ChildStderr {
        self.child.stderr.take().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines in the background.
fn lines_of(stderr: ChildStderr) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        let read = BufReader::new(stderr).lines().map_while(Result::ok);
        read.map_while(|line| sender.send(line).ok()).for_each(drop);
    });
    lines
}

/// The next line with this text.
fn line_with(lines: &Receiver<String>, text: &str) -> String {
    let deadline = Instant::now() + IO_TIMEOUT;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let line = lines.recv_timeout(left);
        match line {
            Ok(line) if line.contains(text) => return line,
            Ok(_) => {}
            Err(error) => panic!("no line with {text:?}: {error}"),
        }
    }
}

#[test]
fn a_failure_is_logged_and_counted_in_the_summary() {
    let to = format!("http://{}", refusing_address());
    let mut running = Running::start(&["--to", &to, "--log-summary", "1s"]);
    let lines = lines_of(running.stderr());
    let failed = Client::connect(running.address).get("/x");
    assert_eq!(failed.status, 502);
    let line = line_with(&lines, failed.field("x-request-id").unwrap());
    assert!(line.contains(" WARN ") && line.contains(&to), "{line}");
    let summary = line_with(&lines, "since the last summary:");
    assert!(summary.contains(" INFO "), "{summary}");
    assert!(summary.contains(" connection_refused=1 "), "{summary}");
}

#[test]
fn failures_before_the_end_of_the_process_are_counted() {
    let to = format!("http://{}", refusing_address());
    let mut running = Running::start(&["--to", &to]);
    let lines = lines_of(running.stderr());
    let mut client = Client::connect(running.address);
    for _ in 0..100 {
        assert_eq!(client.get("/x").status, 502);
    }
    running.terminate();
    let summary = line_with(&lines, "since the last summary:");
    assert!(summary.contains(" connection_refused=100 "), "{summary}");
    assert!(summary.ends_with(" requests_http1=100"), "{summary}");
}

#[test]
fn requests_without_failures_are_counted_at_the_end_only() {
    let mut running = Running::start(&["--log-summary", "1s"]);
    let lines = lines_of(running.stderr());
    let mut client = Client::connect(running.address);
    assert_eq!(client.get("/hello").status, 200);
    thread::sleep(Duration::from_millis(2_500));
    assert_eq!(client.get("/hello").status, 200);
    running.terminate();
    let summary = line_with(&lines, "since the last summary:");
    assert!(summary.ends_with("summary: requests_http1=2"), "{summary}");
}

#[test]
fn a_log_that_nobody_reads_holds_no_request_up() {
    for io in ["auto", "epoll"] {
        let flags = ["--io", io, "--log", "debug", "--log-summary", "1s"];
        let mut running = Running::start(&flags);
        let mut client = Client::connect(running.address);
        // More than the pipe and the queue have room for.
        for _ in 0..8_000 {
            assert_eq!(client.get("/hello").status, 200);
        }
        let lines = lines_of(running.stderr());
        line_with(&lines, "log_lines_dropped=");
        // Later lines are written again.
        client.get("/later");
        line_with(&lines, "/later");
    }
}

#[test]
fn failures_whose_lines_were_dropped_are_counted_by_a_later_line() {
    const FAILURES: u64 = 100;
    let to = format!("/dead=http://{}", refusing_address());
    let mut running = Running::start(&["--to", &to, "--log", "debug"]);
    let mut client = Client::connect(running.address);
    for _ in 0..8_000 {
        assert_eq!(client.get("/hello").status, 200);
    }
    for _ in 0..FAILURES {
        assert_eq!(client.get("/dead").status, 502);
    }
    let lines = lines_of(running.stderr());
    // The next lines are allowed in another second.
    thread::sleep(Duration::from_millis(1_100));
    assert_eq!(client.get("/dead").status, 502);
    client.get("/last");
    let mut failures = 0;
    loop {
        let line = lines.recv_timeout(IO_TIMEOUT).unwrap();
        if line.contains("request failed") {
            let omitted = line.split("omitted=").nth(1).map(str::trim);
            failures += 1 + omitted.map_or(0, |omitted| omitted.parse::<u64>().unwrap());
        } else if line.contains("/last") {
            break;
        }
    }
    assert_eq!(failures, FAILURES + 1);
}

#[test]
fn lines_for_the_journal_begin_with_their_priority() {
    for leads_to_journal in [true, false] {
        let name = format!("blitz-journal-{}-{leads_to_journal}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file = File::create(&path).unwrap();
        let metadata = file.metadata().unwrap();
        let inode = metadata.ino() + u64::from(!leads_to_journal);
        let journal = format!("{}:{inode}", metadata.dev());
        let to = format!("http://{}", refusing_address());
        let mut command = blitz(&["--to", &to]);
        command.stderr(file).env("JOURNAL_STREAM", journal);
        let mut running = Running::of(command);
        assert_eq!(Client::connect(running.address).get("/x").status, 502);
        running.terminate();
        running.child.wait().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        let begins = |line: &str, priority| line.starts_with(priority) == leads_to_journal;
        for (words, priority) in [("request failed", "<4>"), ("draining", "<6>")] {
            let line = text.lines().find(|line| line.contains(words)).unwrap();
            assert!(begins(line, priority), "{line}");
        }
    }
}

#[test]
fn a_drain_that_cuts_requests_off_says_so() {
    let flags = ["--timeout-drain", "100ms"];
    let mut running = Running::start(&flags);
    let lines = lines_of(running.stderr());
    let mut client = Client::connect(running.address);
    client.send("GET /delay?ms=60000 HTTP/1.1\r\nHost: a\r\n\r\n");
    // The request has arrived once a later one on another connection has its response.
    assert_eq!(Client::connect(running.address).get("/hello").status, 200);
    running.terminate();
    line_with(&lines, "draining: running requests have 100ms to end");
    let line = line_with(&lines, "cut off at the end of the drain");
    assert!(
        line.contains("WARN") && line.contains("connections=1"),
        "{line}"
    );
}

#[test]
fn usr1_ends_nothing_also_during_a_drain() {
    let mut running = Running::start(&[]);
    let lines = lines_of(running.stderr());
    let mut client = Client::connect(running.address);
    running.signal("USR1");
    line_with(&lines, "nothing to reopen: no log is written to a file");
    assert_eq!(client.get("/hello").status, 200);
    client.send("GET /delay?ms=2000 HTTP/1.1\r\nHost: a\r\n\r\n");
    // The request has arrived once a later one on another connection has its response.
    assert_eq!(Client::connect(running.address).get("/hello").status, 200);
    running.terminate();
    line_with(&lines, "draining");
    running.signal("USR1");
    line_with(&lines, "nothing to reopen");
    assert_eq!(client.response().status, 200);
    let status = running.child.wait().unwrap();
    assert_eq!(status.code(), Some(0));
}
