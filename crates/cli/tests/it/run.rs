use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use blitz_testing::{Client, H1Peer, IO_TIMEOUT, Upstream};

use crate::{blitz, stderr};

/// A running `blitz`, killed when dropped.
pub(crate) struct Running {
    child: Child,
    /// Its start message.
    announced: Vec<String>,
}

impl Running {
    /// Starts on a free port of this machine and waits for the last line of the start message.
    pub(crate) fn start(flags: &[&str]) -> Running {
        Running::start_with(flags, &[])
    }

    pub(crate) fn start_with(flags: &[&str], environment: &[(&str, &str)]) -> Running {
        let lacks_address = !flags.contains(&"--control-listen");
        let mut child = Command::new(env!("CARGO_BIN_EXE_blitz"))
            .args(["run", "--listen", "127.0.0.1:0", "--cores", "1"])
            .args(lacks_address.then_some("--control-listen=off"))
            .args(flags)
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let stdout = child.stdout.take().expect("standard output is a pipe");
        let mut announced = Vec::new();
        for line in BufReader::new(stdout).lines() {
            announced.push(line.expect("the start message is text"));
            if announced
                .last()
                .is_some_and(|line| line.trim().starts_with("try"))
            {
                break;
            }
        }
        Running { child, announced }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        let line = self
            .announced
            .iter()
            .find_map(|line| line.trim().strip_prefix("listening on"));
        let url = line.expect("the start message has the address").trim();
        url.trim_start_matches("http://")
            .parse()
            .expect("an address follows")
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address())
    }

    /// Sends a signal with the shell's `kill`.
    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(
            Command::new("sh")
                .args(["-c", &kill])
                .status()
                .expect("a shell")
                .success()
        );
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + IO_TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                return status;
            }
            assert!(Instant::now() < deadline, "it has not ended");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_built_in_site_responds_and_the_start_message_has_a_command() {
    let running = Running::start(&[]);
    let text = running.announced.join("\n");
    assert!(text.contains("1 core"), "{text}");
    assert!(
        text.contains(&format!("curl http://{}/hello", running.address())),
        "{text}"
    );
    let answer = running.connect().get("/hello");
    assert_eq!((answer.status, answer.text()), (200, "Hello, World!"));
}

#[test]
fn both_drivers_can_be_chosen() {
    for io in ["uring", "epoll"] {
        // On a machine that forbids io_uring the flag must be an error.
        if io == "uring" && !uring_allowed() {
            let output = blitz(&["run", "--listen", "127.0.0.1:0", "--io", io]);
            assert_eq!(output.status.code(), Some(1));
            let message = stderr(&output);
            assert!(message.contains("io_uring"), "{message}");
            assert!(message.contains("--io epoll"), "{message}");
            continue;
        }
        let running = Running::start(&["--io", io]);
        assert!(running.announced[0].contains(io), "{:?}", running.announced);
        assert_eq!(running.connect().get("/ping").text(), "pong");
    }
}

fn uring_allowed() -> bool {
    crate::stdout(&blitz(&["version"])).contains("I/O by io_uring")
}

#[test]
fn requests_are_forwarded_and_the_longest_prefix_wins() {
    let all = Upstream::start(|request| answer(&format!("all {}", request.line)));
    let api = Upstream::start(|request| answer(&format!("api {}", request.line)));
    let running = Running::start(&[
        "--to",
        &all.url(),
        "--to",
        &format!("/api={}/v1", api.url()),
    ]);
    let mut client = running.connect();
    assert_eq!(client.get("/x?y=1").text(), "all GET /x?y=1 HTTP/1.1");
    assert_eq!(client.get("/api/x").text(), "api GET /v1/x HTTP/1.1");
    assert_eq!(client.get("/apix").text(), "all GET /apix HTTP/1.1");
}

fn answer(body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[test]
fn a_unix_socket_serves_and_is_an_upstream() {
    let folder = std::env::temp_dir().join(format!("blitz-run-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let socket = format!("unix:{}", folder.join("a.sock").display());
    let _site = Running::start(&["--listen", &socket]);
    let proxy = Running::start(&["--to", &socket]);
    assert_eq!(proxy.connect().get("/hello").text(), "Hello, World!");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_listener_for_http2_only_does_not_answer_others() {
    let running = Running::start(&["--listen", "h2c://127.0.0.1:0"]);
    let all = running.announced.join("\n");
    let only = all.split("h2c://").nth(1).expect("it is announced");
    let only: SocketAddr = only.lines().next().unwrap().parse().unwrap();
    // The suggested command is for the listener that more programs support.
    let command = format!("curl http://{}/hello", running.address());
    assert!(all.ends_with(&command), "{all}");
    assert_eq!(running.connect().get("/hello").text(), "Hello, World!");
    let mut peer = H1Peer::new(TcpStream::connect(only).unwrap());
    peer.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let (answer, has_fin) = peer.rest();
    assert!(has_fin, "{answer:?}");
    let go_away = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    assert!(answer.ends_with(&go_away), "{answer:?}");
}

#[test]
fn terminate_finishes_the_running_request() {
    let mut running = Running::start(&[]);
    let mut client = running.connect();
    client.send("GET /delay?ms=300 HTTP/1.1\r\nHost: test\r\n\r\n");
    thread::sleep(Duration::from_millis(100));
    running.signal("TERM");
    assert_eq!(client.response().status, 200);
    assert_eq!(running.wait().code(), Some(0));
}

#[test]
fn a_second_terminate_drops_the_running_request() {
    for second in ["TERM", "QUIT"] {
        let mut running = Running::start(&[]);
        let mut client = running.connect();
        client.send("GET /delay?ms=30000 HTTP/1.1\r\nHost: test\r\n\r\n");
        thread::sleep(Duration::from_millis(100));
        running.signal("TERM");
        thread::sleep(Duration::from_millis(200));
        assert!(running.child.try_wait().unwrap().is_none(), "it drains");
        running.signal(second);
        let start = Instant::now();
        assert_eq!(running.wait().code(), Some(0));
        assert!(start.elapsed() < Duration::from_secs(5), "{second}");
    }
}

#[test]
fn interrupt_does_not_wait_for_requests() {
    let mut running = Running::start(&[]);
    let mut client = running.connect();
    client.send("GET /delay?ms=30000 HTTP/1.1\r\nHost: test\r\n\r\n");
    thread::sleep(Duration::from_millis(100));
    running.signal("INT");
    assert_eq!(running.wait().code(), Some(0));
}

#[test]
fn an_address_in_use_is_a_failure_with_a_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = blitz(&["run", "--control-listen=off", "--listen", &address]);
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(
        message.contains("another program listens there"),
        "{message}"
    );
    assert!(message.contains("ss -ltnp"), "{message}");
}

#[test]
fn a_second_blitz_does_not_share_the_port_of_the_first() {
    let first = Running::start(&[]);
    let output = blitz(&["run", "--listen", &first.address().to_string()]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn half_close_grace_sets_how_long_a_half_closed_client_is_kept() {
    for (grace, is_answered) in [("100ms", false), ("9s", true)] {
        let running = Running::start(&["--half-close-grace", grace]);
        let mut client = running.connect();
        client.send("GET /delay?ms=800 HTTP/1.1\r\nHost: test\r\n\r\n");
        client.finish();
        assert_eq!(!client.rest().is_empty(), is_answered, "{grace}");
    }
}

#[test]
fn the_switch_to_http2_is_off_by_default() {
    for (flags, status) in [(&[][..], 200), (&["--h2c-upgrade"], 101)] {
        let running = Running::start(flags);
        let mut client = running.connect();
        client.send(
            "GET /hello HTTP/1.1\r\nHost: test\r\nConnection: Upgrade, HTTP2-Settings\r\n\
             Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
        );
        assert_eq!(client.response().status, status, "{flags:?}");
    }
}

#[test]
fn fields_of_a_trusted_proxy_are_kept_and_those_of_others_replaced() {
    let upstream = Upstream::start(|request| {
        let chain = request
            .fields
            .iter()
            .find(|(name, _)| name == "x-forwarded-for");
        answer(chain.map_or("", |(_, value)| value))
    });
    for (trusted, seen) in [
        ("10.0.0.0/8,127.0.0.0/8", "203.0.113.9, 127.0.0.1"),
        ("10.0.0.0/8, 192.0.2.7", "127.0.0.1"),
    ] {
        let running = Running::start(&["--to", &upstream.url(), "--trusted-proxies", trusted]);
        let mut client = running.connect();
        client.send("GET / HTTP/1.1\r\nHost: test\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n");
        assert_eq!(
            client.response().text(),
            seen,
            "--trusted-proxies {trusted}"
        );
    }
}

#[test]
fn body_max_limits_the_content_of_requests() {
    let upstream = Upstream::start(|request| answer(&request.body.len().to_string()));
    let target = format!("/up={}", upstream.url());
    let running = Running::start(&["--to", &target, "--body-max", "1k"]);
    let chunk = "x".repeat(1025);
    for path in ["/up", "/echo"] {
        let mut client = running.connect();
        let post = format!("POST {path} HTTP/1.1\r\nHost: test\r\n");
        client.send(format!("{post}Content-Length: 1024\r\n\r\n{}", &chunk[1..]));
        assert_eq!(client.response().status, 200, "{path}");
        client.send(format!(
            "{post}Transfer-Encoding: chunked\r\n\r\n401\r\n{chunk}\r\n0\r\n\r\n"
        ));
        assert_eq!(client.response().status, 413, "{path}");
        client.send(format!("{post}Content-Length: 1025\r\n\r\n{chunk}"));
        assert_eq!(client.response().status, 413, "{path}");
    }
}

#[test]
fn the_limits_of_messages_are_flags() {
    let upstream = Upstream::start(|request| answer(&request.fields.len().to_string()));
    let to = ["--to", &upstream.url()];
    let head = format!(
        "GET /{} HTTP/1.1\r\nHost: test\r\n{}\r\n",
        "a".repeat(9_000),
        "X: 1\r\n".repeat(150)
    );
    for (flags, status) in [
        (&[][..], 414),
        (&["--request-line-max", "16k"], 431),
        (&["--request-line-max", "16k", "--fields-max", "200"], 200),
    ] {
        let running = Running::start(&[&to, flags].concat());
        let mut client = running.connect();
        client.send(&head);
        assert_eq!(client.response().status, status, "{flags:?}");
    }
}

#[test]
fn via_and_the_identifier_for_loops_are_flags() {
    let upstream = Upstream::start(|request| {
        let fields = request.fields.iter();
        let value = |wanted: &str| {
            let found = fields.clone().find(|(name, _)| name == wanted);
            found.map_or("none", |(_, value)| value).to_owned()
        };
        answer(&format!("{} {}", value("via"), value("cdn-loop")))
    });
    for (flags, expected) in [
        (&["--loop-id", "edge-1"][..], "none edge-1"),
        (
            &["--via", "--loop-id", "edge.example:8080"],
            "1.1 blitz edge.example:8080",
        ),
    ] {
        let to = ["--to", &upstream.url()];
        let running = Running::start(&[&to, flags].concat());
        assert_eq!(running.connect().get("/").text(), expected);
    }
}
