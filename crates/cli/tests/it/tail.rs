//! `blitz tail` and `GET /tail`: the requests of a running process, as they end.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use blitz_testing::{Client, IO_TIMEOUT, Upstream, refusing_address};
use serde_json::Value;

use crate::control_support::{Controlled, Place};
use crate::{blitz, stderr, stdout, terminal};

/// Paths of this length fill the queue of a follower soon.
const LONG: usize = 1800;

/// A process with a route to an upstream, one to an address that refuses connections, and one without lines in the
/// access log.
fn file(upstream: &Upstream) -> String {
    format!(
        "[site.\"a.example\"]\nto = \"{}\"\n\"/broken\" = \"http://{}\"\n\
         [site.\"a.example\".\"/quiet\"]\nrespond = 204\naccess_log = false\n",
        upstream.url(),
        refusing_address()
    )
}

fn start(upstream: &Upstream) -> Controlled {
    Controlled::with_file(&file(upstream))
}

fn upstream() -> Upstream {
    Upstream::start(|_| b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec())
}

fn socket(control: &Controlled) -> String {
    match &control.socket {
        Place::Socket(path) => path.clone(),
        Place::Address(_) => panic!("it is an address"),
    }
}

fn get(client: &mut Client, path: &str) -> u16 {
    client.send(format!(
        "GET {path} HTTP/1.1\r\nHost: a.example\r\nAuthorization: Bearer the-secret\r\n\r\n"
    ));
    client.response().status
}

fn client(control: &Controlled) -> Client {
    Client::connect(control.running.address("http://"))
}

/// A follower that reads when it is told to, as curl does.
struct Follower {
    stream: BufReader<UnixStream>,
    /// Content whose lines nobody has asked for.
    text: String,
}

impl Follower {
    /// Follows from now on.
    fn begin(control: &Controlled, query: &str) -> Follower {
        let mut stream = UnixStream::connect(socket(control)).unwrap();
        stream.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
        let head = format!("GET /tail{query} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut follower = Follower {
            stream: BufReader::new(stream),
            text: String::new(),
        };
        assert!(follower.raw_line().starts_with("HTTP/1.1 200 "));
        while !follower.raw_line().is_empty() {}
        follower
    }

    fn raw_line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The next line of the content, which comes in pieces of any size.
    fn line(&mut self) -> String {
        while !self.text.contains('\n') {
            let size = usize::from_str_radix(&self.raw_line(), 16).unwrap();
            assert!(size > 0, "the content has ended");
            let mut piece = vec![0; size + 2];
            self.stream.read_exact(&mut piece).unwrap();
            self.text += str::from_utf8(&piece[..size]).unwrap();
        }
        let end = self.text.find('\n').unwrap();
        let line = self.text.drain(..=end).collect::<String>();
        line.trim_end().to_owned()
    }
}

fn tail(control: &Controlled, flags: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_blitz"))
        .args(["tail", "--control", &socket(control)])
        .args(flags)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Sends requests until a program has ended.
fn load_until_it_ends(control: &Controlled, mut program: Child) -> Output {
    let mut client = client(control);
    let deadline = Instant::now() + IO_TIMEOUT;
    while program.try_wait().unwrap().is_none() {
        for (path, status) in [
            ("/", 200),
            ("/broken?token=the-secret", 502),
            ("/quiet", 204),
        ] {
            assert_eq!(get(&mut client, path), status);
        }
        assert!(Instant::now() < deadline, "it goes on");
        thread::sleep(Duration::from_millis(20));
    }
    program.wait_with_output().unwrap()
}

#[test]
fn tail_shows_the_requests_that_meet_the_conditions() {
    let upstream = upstream();
    let control = start(&upstream);
    let flags = [
        "--status=5xx,none",
        "--route=a.example/broken",
        "-n3",
        "--format=json",
    ];
    let output = load_until_it_ends(&control, tail(&control, &flags));
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 3, "{text}");
    for line in &lines {
        assert_eq!(
            (
                line["status"].as_u64(),
                line["path"].as_str(),
                line["client"].as_str()
            ),
            (Some(502), Some("/broken?token=***"), Some("127.0.0.1")),
            "{text}"
        );
    }
    assert!(!text.contains("the-secret"), "{text}");
    // Also of a route without lines in the access log.
    let output = load_until_it_ends(&control, tail(&control, &["--route", "/quiet", "-n1"]));
    let text = stdout(&output);
    assert!(text.contains("  204 ") && text.contains("GET"), "{text}");
    assert!(text.ends_with("a.example/quiet\n"), "{text}");
    assert_eq!(
        text.lines().count(),
        1,
        "no titles without a terminal: {text}"
    );
}

#[test]
fn a_follower_sees_each_request_also_after_a_reload() {
    let upstream = upstream();
    let control = start(&upstream);
    let mut follower = Follower::begin(&control, "?format=logfmt");
    let mut client = client(&control);
    assert_eq!(get(&mut client, "/1"), 200);
    let line = follower.line();
    assert!(
        line.starts_with("ts=") && line.contains(" path=/1 "),
        "{line}"
    );
    control.write(&file(&upstream).replace("/quiet", "/silent"));
    let reloaded = control.socket.post("/reload");
    assert_eq!(reloaded.status, 200, "{}", reloaded.content);
    for number in 0..200 {
        assert_eq!(get(&mut client, &format!("/after/{number}")), 200);
    }
    for number in 0..200 {
        let line = follower.line();
        assert!(line.contains(&format!(" path=/after/{number} ")), "{line}");
    }
}

#[test]
fn a_slow_follower_is_told_how_many_requests_it_misses() {
    let upstream = upstream();
    let control = start(&upstream);
    let mut follower = Follower::begin(&control, "");
    let mut client = client(&control);
    let path = format!("/{}", "x".repeat(LONG));
    let count = 3000;
    for _ in 0..count {
        assert_eq!(get(&mut client, &path), 200);
    }
    let (mut seen, mut missed) = (0, 0);
    while seen + missed < count {
        let line: Value = serde_json::from_str(&follower.line()).unwrap();
        match line["dropped"].as_u64() {
            Some(dropped) => missed += dropped,
            None => seen += 1,
        }
    }
    assert_eq!(seen + missed, count);
    assert!(seen > 50 && missed > 0, "{seen} and {missed}");
    // It goes on.
    assert_eq!(get(&mut client, "/last"), 200);
    assert!(follower.line().contains("\"path\":\"/last\""));
}

#[test]
fn a_client_with_long_fields_hides_no_requests_from_a_follower() {
    // They are one batch.
    const REQUESTS: usize = 63;
    let upstream = upstream();
    let control = start(&upstream);
    let mut follower = Follower::begin(&control, "");
    let mut client = client(&control);
    let value = [0xff; 1024];
    let head = b"GET /quiet HTTP/1.1\r\nHost: a.example\r\nUser-Agent: ";
    let request = [&head[..], &value, b"\r\nReferer: ", &value, b"\r\n\r\n"].concat();
    client.send(request.repeat(REQUESTS));
    for _ in 0..REQUESTS {
        let line = follower.line();
        assert!(line.contains("\"path\":\"/quiet\""), "{line}");
    }
}

#[test]
fn only_the_socket_shows_requests_and_mistakes_have_remedies() {
    let control = Controlled::with_file("[site.\"a.example\"]\nrespond = 204\n");
    for path in ["/tail", "/%74ail"] {
        let refused = control.address.get(path);
        assert!(
            matches!(refused.status, 403 | 404),
            "{path}: {}",
            refused.content
        );
    }
    assert_eq!(control.address.get("/tail").status, 403);
    let refused = control.socket.get("/tail?status=6xx");
    assert_eq!(refused.status, 400);
    assert!(
        refused
            .content
            .starts_with("status=6xx: this is no status\n"),
        "{}",
        refused.content
    );
    let refused = blitz(&["tail", "--status", "6xx"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("write for example 404, 5xx or none"));
    let refused = blitz(&["tail", "--control", "/no/such/socket"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("no process listens at /no/such/socket"));
    let Place::Address(address) = &control.address else {
        panic!("a control address");
    };
    let refused = blitz(&["tail", "--control", &address.to_string()]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).starts_with("blitz: only the control socket has requests"));
}

#[test]
fn followers_that_leave_make_room() {
    let control = Controlled::with_file("[site.\"a.example\"]\nrespond = 204\n");
    let mut followers: Vec<_> = (0..8).map(|_| Follower::begin(&control, "")).collect();
    let refused = control.socket.get("/tail");
    assert_eq!(refused.status, 503);
    assert!(
        refused.content.contains("8 others follow requests already"),
        "{}",
        refused.content
    );
    let output = Command::new(env!("CARGO_BIN_EXE_blitz"))
        .args(["tail", "--control", &socket(&control)])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).starts_with("blitz: 8 others follow"),
        "{}",
        stderr(&output)
    );
    followers.pop();
    let deadline = Instant::now() + IO_TIMEOUT;
    while control.socket.ask("HEAD", "/tail", "").status == 503 {
        assert!(Instant::now() < deadline, "no room");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_end_of_the_process_is_told() {
    for (signal, expected) in [
        (
            "TERM",
            "blitz: the process ends, and shows no further requests\n",
        ),
        (
            "KILL",
            "blitz: the process has ended, or nobody has read its requests for a minute\n",
        ),
    ] {
        let control = Controlled::with_file("[site.\"a.example\"]\nrespond = 204\n");
        let mut program = tail(&control, &["--format=json"]);
        let mut lines = BufReader::new(program.stdout.take().unwrap());
        let mut client = client(&control);
        let sender = thread::spawn(move || {
            for _ in 0..100 {
                assert_eq!(get(&mut client, "/"), 204);
                thread::sleep(Duration::from_millis(20));
            }
        });
        // From the first line on it follows.
        let mut line = String::new();
        assert!(lines.read_line(&mut line).unwrap() > 0);
        sender.join().unwrap();
        control.running.signal(signal);
        let mut rest = String::new();
        lines.read_to_string(&mut rest).unwrap();
        let output = program.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(stderr(&output), expected);
    }
}

#[test]
fn control_c_on_a_terminal_is_no_failure() {
    let upstream = upstream();
    let control = start(&upstream);
    let arguments = format!("tail --control {}", socket(&control));
    let mut script = terminal::start("rows 24 cols 80", &arguments);
    let mut screen = BufReader::new(script.stdout.take().unwrap());
    let mut client = client(&control);
    let mut head = String::new();
    screen.read_line(&mut head).unwrap();
    assert!(
        head.contains("TIME, UTC") && head.contains("REQUEST"),
        "{head}"
    );
    assert_eq!(get(&mut client, "/broken"), 502);
    let mut line = String::new();
    screen.read_line(&mut line).unwrap();
    assert!(
        line.contains("\x1b[31m502\x1b[0m") && line.contains("a.example/broken"),
        "{line}"
    );
    script.stdin.as_mut().unwrap().write_all(b"\x03").unwrap();
    terminal::wait(script);
}
