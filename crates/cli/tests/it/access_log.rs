//! The access log of a process: its file after a rotation, its changes, and mistakes in its settings.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use blitz_gateway::access_log::{Fact, LogField};
use blitz_testing::{Client, IO_TIMEOUT, Upstream};
use serde_json::Value;

use crate::https::{Folder, Running};
use crate::{blitz, stderr};

/// Waits for as many lines in a file.
fn wait_for_lines(file: &str, count: usize) -> Vec<String> {
    let deadline = Instant::now() + IO_TIMEOUT;
    loop {
        let text = fs::read_to_string(file).unwrap_or_default();
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        if lines.len() >= count {
            assert_eq!(lines.len(), count, "{text}");
            return lines;
        }
        assert!(Instant::now() < deadline, "{file}: {text}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn get(address: SocketAddr, path: &str) {
    let mut client = Client::connect(address);
    client.send(format!("GET {path} HTTP/1.1\r\nHost: app.example\r\n\r\n"));
    client.response();
}

/// A process with this access log.
fn start(folder: &Folder, log: &str, upstream: &Upstream) -> Running {
    let file = folder.file("blitz.toml");
    fs::write(&file, text(log, upstream)).unwrap();
    Running::announcing(folder, &["--config", &file], "http://")
}

fn text(log: &str, upstream: &Upstream) -> String {
    format!(
        "listen = [\"127.0.0.1:0\"]\nlog.access = {log}\n[site.\"app.example\"]\nto = \"{}\"\n",
        upstream.url()
    )
}

fn upstream() -> Upstream {
    Upstream::start(|_| b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec())
}

/// As logrotate does: it moves the file, and sends USR1.
#[test]
fn a_rotation_loses_no_line() {
    let (folder, upstream) = (Folder::new(), upstream());
    let running = start(&folder, "\"access.log\"", &upstream);
    let address = running.address("http://");
    let (file, moved) = (folder.file("access.log"), folder.file("access.log.1"));
    get(address, "/1");
    wait_for_lines(&file, 1);
    fs::rename(&file, &moved).unwrap();
    get(address, "/2");
    wait_for_lines(&moved, 2);
    let sent = Command::new("kill").args(["-USR1", &running.id()]).status();
    assert!(sent.unwrap().success());
    let deadline = Instant::now() + IO_TIMEOUT;
    while fs::metadata(&file).is_err() {
        assert!(Instant::now() < deadline, "{}", running.log());
        thread::sleep(Duration::from_millis(10));
    }
    get(address, "/3");
    let line: Value = serde_json::from_str(&wait_for_lines(&file, 1)[0]).unwrap();
    assert_eq!(line["path"], "/3");
    wait_for_lines(&moved, 2);
}

#[test]
fn a_reload_changes_the_log() {
    let (folder, upstream) = (Folder::new(), upstream());
    let running = start(&folder, "\"first.log\"", &upstream);
    let address = running.address("http://");
    get(address, "/1");
    wait_for_lines(&folder.file("first.log"), 1);
    let second = "{ to = \"second.log\", format = \"combined\" }";
    fs::write(folder.file("blitz.toml"), text(second, &upstream)).unwrap();
    running.reload("~ the access log");
    get(address, "/2");
    let line = wait_for_lines(&folder.file("second.log"), 1).remove(0);
    assert!(line.contains("\"GET /2 HTTP/1.1\" 200 2 "), "{line}");
    // A file that cannot be opened changes nothing.
    fs::write(
        folder.file("blitz.toml"),
        text("\"missing/a.log\"", &upstream),
    )
    .unwrap();
    running.reload("the access log cannot be opened");
    get(address, "/3");
    wait_for_lines(&folder.file("second.log"), 2);
    wait_for_lines(&folder.file("first.log"), 1);
}

#[test]
fn a_log_that_is_replaced_is_closed() {
    let (folder, upstream) = (Folder::new(), upstream());
    let running = start(&folder, "\"first.log\"", &upstream);
    get(running.address("http://"), "/1");
    wait_for_lines(&folder.file("first.log"), 1);
    let is_open = |file: &str| {
        let descriptors = fs::read_dir(format!("/proc/{}/fd", running.id())).unwrap();
        let mut targets = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        targets.any(|target| target.ends_with(file))
    };
    for (before, next) in [("first.log", "second.log"), ("second.log", "third.log")] {
        assert!(is_open(before));
        let next = format!("\"{next}\"");
        fs::write(folder.file("blitz.toml"), text(&next, &upstream)).unwrap();
        running.reload("~ the access log");
        get(running.address("http://"), "/2");
        let deadline = Instant::now() + IO_TIMEOUT;
        while is_open(before) {
            assert!(Instant::now() < deadline, "{before} stays open");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn lines_are_written_before_the_process_ends() {
    let (folder, upstream) = (Folder::new(), upstream());
    let running = start(&folder, "\"access.log\"", &upstream);
    let address = running.address("http://");
    for _ in 0..3 {
        get(address, "/");
    }
    let sent = Command::new("kill").args(["-TERM", &running.id()]).status();
    assert!(sent.unwrap().success());
    wait_for_lines(&folder.file("access.log"), 3);
}

/// The log needs no more of its head than the id, with which a warning would name a wrong path.
#[test]
fn an_app_that_is_cut_off_has_a_line_and_no_warning() {
    let folder = Folder::new();
    let file = folder.file("access.log");
    let log = format!("--access-log={file}");
    let flags = ["--listen=127.0.0.1:0", "--timeout-drain=100ms", &log];
    let running = Running::announcing(&folder, &flags, "http://");
    let mut client = Client::connect(running.address("http://"));
    client.send("GET /delay?ms=60000 HTTP/1.1\r\nHost: a\r\nX-Request-Id: the-id\r\n\r\n");
    // It has arrived once a later one on another connection has its response.
    get(running.address("http://"), "/hello");
    let sent = Command::new("kill").args(["-TERM", &running.id()]).status();
    assert!(sent.unwrap().success());
    let lines = wait_for_lines(&file, 2);
    let mut parsed = lines.iter().map(|line| serde_json::from_str(line).unwrap());
    let line = parsed.find(|line: &Value| line["path"] == "/delay?ms=***");
    let line = line.unwrap();
    assert_eq!(
        (line["request_id"].as_str(), line["ended"].as_str()),
        (Some("the-id"), Some("cut-off"))
    );
    assert!(!running.log().contains("the-id"), "{}", running.log());
}

#[test]
fn mistakes_have_their_repairs() {
    let folder = Folder::new();
    let file = folder.file("blitz.toml");
    let cases = [
        (
            "{ to = \"stdout\", fields = [\"stats\"] }",
            "did you mean `status`?",
        ),
        (
            "{ to = \"stdout\", format = \"combined\", fields = [\"status\"] }",
            "leave out `fields`",
        ),
        ("{ to = \"stdout\", redact = [\"a b\"] }", "or \"query\""),
        ("{ to = \"syslog:\" }", "syslog:/dev/log"),
        ("{ format = \"json\" }", "`to` is missing"),
        ("true", "write where its lines go"),
        ("{ to = \"stdout\", sample = 2 }", "a number from 0 to 1"),
        (
            "{ to = \"stdout\", when = { status = [\"6xx\"] } }",
            "\"5xx\" for all from 500",
        ),
    ];
    for (log, remedy) in cases {
        fs::write(
            &file,
            format!("log.access = {log}\n[site.\"a\"]\nrespond = 204\n"),
        )
        .unwrap();
        let output = blitz(&["check", &file]);
        assert_eq!(output.status.code(), Some(1), "{log}: {}", stderr(&output));
        assert!(
            stderr(&output).contains(remedy),
            "{log}: {}",
            stderr(&output)
        );
    }
}

/// The table of the page is that of the program.
#[test]
fn the_page_has_all_fields() {
    let page = include_str!("../../../../docs/access-log.md");
    let (_, fields) = page.split_once("| field | meaning |").unwrap();
    let (fields, _) = fields.split_once("| `header.NAME` |").unwrap();
    let rows: Vec<_> = fields
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    let text = |text: &str| {
        let text = text.trim();
        text[..1].to_lowercase() + &text[1..]
    };
    let expected: Vec<_> = Fact::ALL
        .iter()
        .map(|(fact, meaning)| format!("| `{}` | {} |", fact.name(), text(meaning)))
        .collect();
    assert_eq!(rows, expected);
    for header in ["header.Referer", "header.User-Agent"] {
        assert!(LogField::usual().contains(&header.parse().unwrap()) && page.contains(header));
    }
}
