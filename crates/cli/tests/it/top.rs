//! `blitz top`: the state of a running process as text and on a terminal.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use blitz_testing::{Client, Upstream, refusing_address};

use crate::control_support::{Controlled, Place};
use crate::{blitz, stderr, stdout, terminal};

/// A process with a route to an upstream, and one to an address that refuses connections.
fn start(upstream: &Upstream) -> Controlled {
    Controlled::with_file(&format!(
        "[site.\"a.example\"]\nto = \"{}\"\n\"/broken\" = \"http://{}\"\n",
        upstream.url(),
        refusing_address()
    ))
}

fn upstream() -> Upstream {
    Upstream::start(|_| b"HTTP/1.1 204 No Content\r\n\r\n".to_vec())
}

/// Where `--control` finds a process.
fn flag(place: &Place) -> String {
    match place {
        Place::Socket(path) => path.clone(),
        Place::Address(address) => address.to_string(),
    }
}

/// Sends three requests that succeed for each that fails, until a program has ended.
fn load_until_it_ends(control: &Controlled, mut program: Child) -> Output {
    let mut client = Client::connect(control.running.address("http://"));
    while program.try_wait().unwrap().is_none() {
        for (path, status) in [("/", 204), ("/", 204), ("/", 204), ("/broken", 502)] {
            client.send(format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
            assert_eq!(client.response().status, status);
        }
    }
    program.wait_with_output().unwrap()
}

#[test]
fn top_shows_the_load_of_a_process() {
    let upstream = upstream();
    let control = start(&upstream);
    for place in control.places() {
        let program = Command::new(env!("CARGO_BIN_EXE_blitz"))
            .args([
                "top",
                "--once",
                "--interval",
                "500ms",
                "--control",
                &flag(place),
            ])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = load_until_it_ends(&control, program);
        assert!(output.status.success(), "{}", stderr(&output));
        let text = stdout(&output);
        assert!(text.is_ascii() || !text.contains('\x1b'), "{text}");
        let row = |start: &str| {
            let found = text.lines().find(|line| line.starts_with(start));
            let found = found.unwrap_or_else(|| panic!("no {start} in {text}"));
            found.split_whitespace().collect::<Vec<_>>()
        };
        // Three of four, but for the requests around the readings.
        let requests = row("requests ");
        assert_eq!((requests[2], requests[8]), ("2xx", "5xx"), "{text}");
        let share = |text: &str| text.trim_end_matches('%').parse::<f64>().unwrap();
        assert!((share(requests[3]) - 75.0).abs() < 5.0, "{text}");
        assert!((share(requests[9]) - 25.0).abs() < 5.0, "{text}");
        assert_eq!(
            row("a.example/broken")
                .iter()
                .filter(|cell| **cell == "100%")
                .count(),
            1
        );
        assert!(row("a.example/ ").contains(&"0%"), "{text}");
        assert_eq!(row(&upstream.url())[1], "ok", "{text}");
        // All requests are those of one client.
        let client = row("127.0.0.1 ");
        assert_eq!(client[2..], ["100%", "1"], "{text}");
        let recent = text
            .split("\nRECENT FAILURES")
            .nth(1)
            .expect("recent failures");
        let recent = recent.lines().nth(1).unwrap_or_default();
        assert!(
            recent.contains("a.example/broken") && recent.contains(" ago"),
            "{text}"
        );
        let failures = row("upstream failures: ");
        assert!(
            failures.iter().any(|cell| cell
                .replace(',', "")
                .parse()
                .is_ok_and(|count: u64| count > 0)),
            "{text}"
        );
    }
}

#[test]
fn without_a_process_there_is_a_remedy() {
    let path = std::env::temp_dir().join("blitz-no-such-socket");
    let output = blitz(&["top", "--control", &path.display().to_string()]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(
        text.contains("no process listens at") && text.contains("--control"),
        "{text}"
    );
    let output = blitz(&["top", "--control", &refusing_address().to_string()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("no process listens at 127.0.0.1:"),
        "{}",
        stderr(&output)
    );
}

/// The address of a program that sends this response over each connection, which it closes.
fn responding(response: &'static str) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 1024];
            assert!(stream.read(&mut request).unwrap() > 0);
            stream.write_all(response.as_bytes()).unwrap();
        }
    });
    address
}

#[test]
fn another_program_is_no_process_of_blitz() {
    for (response, problem) in [
        (
            "HTTP/1.1 404 Not Found\r\n\r\nnothing here\n",
            "the process has no /metrics",
        ),
        ("HTTP/1.1 200 OK\r\n\r\nup\n", "the metrics are incomplete"),
        (
            "HTTP/1.1 503 Service Unavailable\r\n\r\nstarting\n",
            "the process answers /metrics with 503\n  starting",
        ),
    ] {
        let address = responding(response).to_string();
        let output = blitz(&["top", "--control", &address]);
        assert_eq!(output.status.code(), Some(1));
        let text = stderr(&output);
        assert!(text.contains(problem), "{text}");
    }
}

/// Its memory stays bounded, too.
#[test]
fn an_endless_answer_is_given_up() {
    for (head, problem) in [
        (
            "HTTP/1.1 200 OK\r\n\r\n",
            "blitz: the answer of the process has more than 65536 KiB for /",
        ),
        (
            "HTTP/1.1 200 OK\r\n",
            "blitz: the answer of the process has more than 64 KiB in its head\n  it is not Blitz",
        ),
    ] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                stream.write_all(head.as_bytes()).unwrap();
                let line = [[b'a'; 1023].as_slice(), b"\n"].concat().repeat(64);
                // Until the other side closes it.
                while stream.write_all(&line).is_ok() {}
            }
        });
        let output = blitz(&["top", "--once", "--control", &address]);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).starts_with(problem), "{}", stderr(&output));
    }
}

/// `blitz top` on a terminal of this size.
fn on_terminal(
    control: &str,
    size: &str,
    duration: Duration,
    ends: impl FnOnce(&mut Child),
) -> String {
    let arguments = format!("top --interval 200ms --control {control}");
    let mut script = terminal::start(size, &arguments);
    let mut out = script.stdout.take().unwrap();
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        out.read_to_end(&mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    });
    thread::sleep(duration);
    ends(&mut script);
    terminal::wait(script);
    reader.join().unwrap()
}

#[test]
fn a_terminal_is_as_before_at_the_end() {
    let upstream = upstream();
    let control = start(&upstream);
    for (size, rows, key) in [
        ("rows 24 cols 80", 24, "q"),
        ("rows 50 cols 200", 50, "\x03"),
    ] {
        let shown = Duration::from_millis(1500);
        let text = on_terminal(&flag(&control.socket), size, shown, |script| {
            script
                .stdin
                .as_mut()
                .unwrap()
                .write_all(key.as_bytes())
                .unwrap();
        });
        let (before, screen) = text.split_once("\x1b[?1049h").expect("another screen");
        assert!(!before.contains("blitz "), "{before}");
        let (screen, after) = screen
            .rsplit_once("\x1b[?1049l")
            .expect("the screen before");
        assert_eq!(after.trim(), "", "{after}");
        assert!(screen.contains("\x1b[?25l") && screen.trim_end().ends_with("\x1b[?25h"));
        // A frame fills the terminal, and has no line more.
        let frame = screen.split("\x1b[H").nth(1).unwrap();
        assert_eq!(frame.split("\r\n").count(), rows, "{frame}");
        assert!(frame.contains("\x1b[1mROUTES"), "{frame}");
    }
}

#[test]
fn a_terminal_goes_on_if_a_process_does_not_answer_at_first() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // The longest wait for a response is 5 s.
    let shown = Duration::from_millis(6500);
    let text = on_terminal(&address, "rows 24 cols 80", shown, |script| {
        script.stdin.as_mut().unwrap().write_all(b"q").unwrap();
    });
    let problem = ": the process has not answered in time; still trying";
    assert!(
        text.contains("no state for ") && text.contains(problem),
        "{text}"
    );
    assert!(!text.contains("descriptors"), "{text}");
}
