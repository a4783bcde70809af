use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use blitz_testing::Client;

struct Served {
    child: Child,
    address: SocketAddr,
}

impl Served {
    fn start() -> Served {
        Served::of(&mut command("127.0.0.1:0"))
    }

    fn of(command: &mut Command) -> Served {
        command
            .env("BLITZ_LISTEN", "127.0.0.1:0")
            .env("BLITZ_CORES", "1");
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("this binary runs");
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let line = lines.next().expect("a line").expect("text");
        let address = line
            .strip_prefix("Listening on http://")
            .and_then(|rest| rest.split(' ').next())
            .and_then(|address| address.parse().ok())
            .unwrap_or_else(|| panic!("where does it listen? {line}"));
        assert!(line.ends_with("1 core)"), "{line}");
        Served { child, address }
    }

    fn signal(&self, name: &str) {
        self.signals(name, 1);
    }

    /// Sends a burst of signals.
    fn signals(&self, name: &str, count: u32) {
        let id = self.child.id();
        let kill = format!("for i in $(seq {count}); do kill -{name} {id} || exit; done");
        assert!(
            Command::new("sh")
                .args(["-c", &kill])
                .status()
                .expect("sh runs")
                .success()
        );
    }

    /// The exit code, and the time until the end.
    fn wait(&mut self) -> (Option<i32>, Duration) {
        let start = Instant::now();
        let status = self.child.wait().expect("it ends");
        (status.code(), start.elapsed())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An example, which `cargo test` builds beside this binary.
pub(crate) fn example(name: &str) -> PathBuf {
    let this = std::env::current_exe().expect("it has a path");
    let profile = this
        .parent()
        .and_then(Path::parent)
        .expect("it is in target/<profile>/deps");
    let example = profile.join("examples").join(name);
    assert!(
        example.exists(),
        "`cargo build --examples` makes {}",
        example.display()
    );
    example
}

fn command(listen: &str) -> Command {
    let mut command = Command::new(example("built_in"));
    command.env("BLITZ_LISTEN", listen).env("BLITZ_CORES", "1");
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// Sends a request that takes `ms` and waits until it has arrived.
fn slow_request(address: SocketAddr, ms: u64) -> Client {
    let mut client = Client::connect(address);
    assert_eq!(client.get("/ping").text(), "pong");
    client.send(format!("GET /delay?ms={ms} HTTP/1.1\r\nHost: test\r\n\r\n"));
    std::thread::sleep(Duration::from_millis(60));
    client
}

#[test]
fn term_and_quit_finish_running_requests_and_stop_accepting() {
    for signal in ["TERM", "QUIT"] {
        let mut served = Served::start();
        let mut client = slow_request(served.address, 300);
        served.signal(signal);
        std::thread::sleep(Duration::from_millis(60));
        assert!(
            TcpStream::connect(served.address).is_err(),
            "it still accepts"
        );
        let answer = client.response();
        assert_eq!(answer.text(), "waited 300 ms\n");
        assert_eq!(answer.field("connection"), Some("close"));
        assert_eq!(served.wait().0, Some(0));
    }
}

#[test]
fn a_second_term_drops_running_requests() {
    for second in ["TERM", "QUIT"] {
        let mut served = Served::start();
        let _client = slow_request(served.address, 20_000);
        served.signal("TERM");
        std::thread::sleep(Duration::from_millis(100));
        served.signal(second);
        let (code, took) = served.wait();
        assert_eq!(code, Some(0));
        assert!(took < Duration::from_millis(500), "{took:?}");
    }
}

/// timeout(1) signals the process and its group.
#[test]
fn a_burst_of_signals_is_one_signal() {
    let drains = || {
        let mut served = Served::start();
        let mut client = slow_request(served.address, 300);
        // Two different ones, because equal ones may be merged.
        let id = served.child.id();
        let kill = format!("kill -TERM {id}; kill -QUIT {id}");
        let sent = Command::new("sh").args(["-c", &kill]).status();
        assert!(sent.expect("sh runs").success());
        let answer = client.rest();
        assert_eq!(served.wait().0, Some(0));
        answer.ends_with(b"waited 300 ms\n")
    };
    // The shell may pause for longer than a burst.
    assert!((0..4).any(|_| drains()));
}

/// A server whose handler blocks its core.
#[test]
#[ignore = "it is the process that the next test starts"]
fn a_process_with_a_blocked_core() {
    let block = || {
        std::thread::sleep(Duration::from_secs(60));
        "late"
    };
    let app = blitz::App::new().get("/ping", || "pong");
    let served = app.get("/delay", block).run();
    let error = served.expect_err("the core cannot end").to_string();
    std::process::exit(if error.contains("terminated") { 77 } else { 1 });
}

#[test]
fn a_second_term_ends_a_program_whose_core_is_blocked() {
    let mut command = Command::new(std::env::current_exe().expect("it has a path"));
    let name = "signals_end_the_server::a_process_with_a_blocked_core";
    let mut served = Served::of(command.args(["--exact", name, "--ignored", "--nocapture"]));
    let _client = slow_request(served.address, 1);
    for _ in 0..2 {
        served.signal("TERM");
        std::thread::sleep(Duration::from_millis(100));
    }
    let (code, took) = served.wait();
    assert_eq!(code, Some(77));
    assert!(took < Duration::from_secs(5), "{took:?}");
}

/// A server in a process that has other threads, which block no signal: those of the test harness,
/// and one that blocks, as the threads of other libraries do.
#[test]
#[ignore = "it is the process that the next test starts"]
fn a_process_with_threads_of_its_own() {
    let beside = std::thread::spawn(|| std::thread::sleep(Duration::from_secs(60)));
    let io = match std::env::var("BLITZ_IO").as_deref() {
        Ok("epoll") => blitz::IoChoice::Epoll,
        _ => blitz::IoChoice::Auto,
    };
    let app = blitz::builtin::app().drain_timeout(Duration::from_secs(5));
    let served = app.io(io).run();
    assert!(!beside.is_finished());
    // The other threads end with the process.
    std::process::exit(i32::from(served.is_err()));
}

#[test]
fn signals_do_not_end_a_program_with_threads_of_its_own() {
    for io in ["auto", "epoll"] {
        let mut command = Command::new(std::env::current_exe().expect("it has a path"));
        let name = "signals_end_the_server::a_process_with_threads_of_its_own";
        command.args(["--exact", name, "--ignored", "--nocapture"]);
        let mut served = Served::of(command.env("BLITZ_IO", io));
        let mut client = slow_request(served.address, 500);
        served.signals("HUP", 1000);
        assert_eq!(client.response().text(), "waited 500 ms\n");
        assert_eq!(client.get("/ping").text(), "pong");
        let mut client = slow_request(served.address, 300);
        served.signal("HUP");
        served.signal("TERM");
        assert_eq!(client.response().text(), "waited 300 ms\n");
        assert_eq!(served.wait().0, Some(0));
    }
}

#[test]
fn the_drain_has_a_deadline() {
    let mut served = Served::start();
    let _client = slow_request(served.address, 20_000);
    served.signal("TERM");
    let (code, took) = served.wait();
    assert_eq!(code, Some(0));
    assert!(
        took >= Duration::from_millis(400) && took < Duration::from_secs(5),
        "{took:?}"
    );
}

#[test]
fn int_drops_running_requests() {
    let mut served = Served::start();
    let _client = slow_request(served.address, 20_000);
    served.signal("INT");
    let (code, took) = served.wait();
    assert_eq!(code, Some(0));
    assert!(took < Duration::from_millis(400), "{took:?}");
}

#[test]
fn an_address_in_use_is_named_with_a_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("bound").to_string();
    let output = command(&address).output().expect("this binary runs");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        message.contains(&format!("cannot listen on {address}")),
        "{message}"
    );
    assert!(message.contains("ss -ltnp"), "{message}");
}

#[test]
fn a_wrong_setting_is_named_with_a_remedy() {
    for (listen, io, wanted) in [
        ("nonsense", "auto", "`nonsense` is not an address"),
        (
            "127.0.0.1:0",
            "kqueue",
            "Set it to `auto`, `uring` or `epoll`",
        ),
    ] {
        let output = command(listen)
            .env("BLITZ_IO", io)
            .output()
            .expect("this binary runs");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && message.contains(wanted),
            "{message}"
        );
    }
}
