//! `blitz load`, against servers with known behaviour.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::https::{Folder, Running};
use crate::{blitz, stderr, stdout};

/// A server on blocking sockets, with a thread for each connection. `respond` gets the number of the request and returns
/// the content of the response, after any delay.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    requests: Arc<AtomicU64>,
}

impl Server {
    fn start(respond: impl Fn(u64) -> String + Send + Sync + 'static) -> Server {
        Server::serve_on(TcpListener::bind("127.0.0.1:0").unwrap(), respond)
    }

    fn serve_on(
        listener: TcpListener,
        respond: impl Fn(u64) -> String + Send + Sync + 'static,
    ) -> Server {
        Server::start_raw(listener, move |number| Some(ok(&respond(number))))
    }

    /// `respond` returns a response, or `None` to send nothing.
    pub(crate) fn start_raw(
        listener: TcpListener,
        respond: impl Fn(u64) -> Option<String> + Send + Sync + 'static,
    ) -> Server {
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicU64::new(0));
        let (counted, respond) = (Arc::clone(&requests), Arc::new(respond));
        thread::spawn(move || {
            for client in listener.incoming() {
                let (counted, respond) = (Arc::clone(&counted), Arc::clone(&respond));
                thread::spawn(move || serve(&client.unwrap(), &counted, &*respond));
            }
        });
        Server { address, requests }
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

/// A response with this content.
pub(crate) fn ok(content: &str) -> String {
    let length = content.len();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{content}")
}

pub(crate) fn serve(
    mut client: &TcpStream,
    counted: &AtomicU64,
    respond: &dyn Fn(u64) -> Option<String>,
) {
    client.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(client);
    let mut line = String::new();
    while reader.read_line(&mut line).unwrap_or(0) > 0 {
        if line == "\r\n" {
            let response = respond(counted.fetch_add(1, Ordering::SeqCst));
            let written = response.map(|response| client.write_all(response.as_bytes()));
            if written.is_some_and(|written| written.is_err()) {
                return;
            }
        }
        line.clear();
    }
}

/// Runs `blitz load` with the result on standard output.
pub(crate) fn load(arguments: &str, url: &str) -> (Value, Output) {
    let words = ["load", "--json", "-"].into_iter();
    let words: Vec<&str> = words.chain(arguments.split(' ')).chain([url]).collect();
    let output = blitz(&words);
    let result = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    (result, output)
}

/// Whether the run had no errors; on a busy machine it may be INVALID for other reasons.
fn has_no_errors(output: &Output) -> bool {
    matches!(output.status.code(), Some(0 | 75))
}

/// A quantile of a distribution, in milliseconds.
pub(crate) fn quantile_ms(distribution: &Value, quantile: f64) -> f64 {
    let count = distribution["count"].as_f64().unwrap();
    let mut seen = 0.0;
    for bucket in distribution["buckets"].as_array().unwrap() {
        seen += bucket[1].as_f64().unwrap();
        if seen >= quantile * count {
            return bucket[0].as_f64().unwrap() / 1e6;
        }
    }
    panic!("no samples")
}

#[test]
fn a_run_goes_on_until_it_has_enough_responses_and_no_longer_than_it_may() {
    for io in ["uring", "epoll"] {
        let server = Server::start(|_| {
            thread::sleep(Duration::from_millis(10));
            "x".to_owned()
        });
        // Without the number of responses the run has about ten.
        let arguments = format!("--io {io} -d 100ms -c 1 --warm-up 50ms --min-responses 40");
        let (result, output) = load(&arguments, &server.url());
        assert!(has_no_errors(&output), "{}", stderr(&output));
        let completed = result["counts"]["completed"].as_u64().unwrap();
        let length = result["duration_s"].as_f64().unwrap();
        assert!((40..80).contains(&completed), "{completed}");
        assert!((0.4..20.0).contains(&length), "{length}");
        let rate = completed as f64 / length;
        assert!(rate < 101.0, "the time of the responses counts: {rate}");
        let arguments = format!("{arguments}000 --max-duration 300ms");
        let (result, output) = load(&arguments, &server.url());
        assert_eq!(output.status.code(), Some(75), "{}", stderr(&output));
        let problem = result["problems"][0]["message"].as_str().unwrap();
        assert!(problem.contains("of 40,000 responses"), "{problem}");
        let length = result["duration_s"].as_f64().unwrap();
        assert!((0.25..2.0).contains(&length), "{length}");
    }
}

#[test]
fn a_known_distribution_of_latency_is_measured() {
    // A tenth of the requests takes 60 ms, the others 20 ms.
    let server = Server::start(|number| {
        let slow = number.is_multiple_of(10);
        thread::sleep(Duration::from_millis(if slow { 60 } else { 20 }));
        "x".to_owned()
    });
    let (result, _) = load("-n 300 -c 5", &server.url());
    assert_eq!(result["counts"]["completed"], 300);
    // Two more are sent first, to learn what responses look like.
    assert_eq!(server.requests.load(Ordering::SeqCst), 302);
    let latency = &result["times"]["latency"];
    for (quantile, expected) in [(0.5, 20.0), (0.85, 20.0), (0.95, 60.0)] {
        let measured = quantile_ms(latency, quantile);
        let is_near = measured >= expected && measured < expected + 35.0;
        assert!(is_near, "{quantile}: {measured} ms, not {expected}");
    }
}

#[test]
fn a_stall_counts_for_every_request_that_it_kept_from_being_sent() {
    let start = Instant::now();
    let server = Server::start(move |_| {
        // Stands still once, from the second second to the third.
        let passed = start.elapsed();
        let stall = Duration::from_secs(2)..Duration::from_secs(3);
        if stall.contains(&passed) {
            thread::sleep(stall.end - passed);
        }
        "x".to_owned()
    });
    let (result, _) = load("-R 200 -d 4s --warm-up 0s -c 2 -t 1", &server.url());
    let times = &result["times"];
    assert_eq!(times["latency"]["count"], 800, "nothing is left out");
    // A quarter of the requests was planned during the stall; their mean wait is half a second.
    let late = |times: &Value| 1.0 - share_below(times, 100.0);
    assert!((0.20..0.30).contains(&late(&times["latency"])), "{times}");
    assert!(quantile_ms(&times["latency"], 0.99) > 850.0);
    // Only two requests were sent during the stall.
    assert!(late(&times["service"]) < 0.02);
}

/// The share of the samples that are shorter than `limit_ms`.
fn share_below(distribution: &Value, limit_ms: f64) -> f64 {
    let buckets = distribution["buckets"].as_array().unwrap().iter();
    let short = buckets.filter(|bucket| bucket[0].as_f64().unwrap() / 1e6 < limit_ms);
    let short: f64 = short.map(|bucket| bucket[1].as_f64().unwrap()).sum();
    short / distribution["count"].as_f64().unwrap()
}

#[test]
fn a_wrong_response_ends_the_run_with_its_evidence() {
    let server = Server::start(|number| match number {
        40 => "Hello, Mars!!".to_owned(),
        _ => "Hello, World!".to_owned(),
    });
    let (result, output) = load("-d 20s -c 2", &server.url());
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(
        text.contains("content differs") && text.contains("Hello, Mars!!"),
        "{text}"
    );
    assert!(result["duration_s"].as_f64().unwrap() < 10.0);
    let (result, output) = load("-n 100 -c 2 --keep-going", &server.url());
    assert_eq!(result["counts"]["completed"], 100);
    assert!(has_no_errors(&output));
}

#[test]
fn a_generator_that_is_too_slow_says_so() {
    let server = Server::start(|_| "x".to_owned());
    let (result, output) = load("-R 2m -d 1s --warm-up 0s -c 4 -t 1", &server.url());
    assert_eq!(output.status.code(), Some(75));
    let problems = result["problems"].to_string();
    assert!(problems.contains("The generator was"), "{problems}");
}

#[test]
fn a_server_that_goes_away_is_counted_and_the_run_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        // The first connection learns what responses look like; the second one is cut off after 50 requests.
        for client in listener.incoming().take(2) {
            thread::spawn(move || {
                serve(&client.unwrap(), &AtomicU64::new(0), &|number| {
                    assert!(number < 50, "the connection ends here");
                    Some(ok("x"))
                });
            });
        }
    });
    let (result, output) = load("-d 2s -c 1 --warm-up 0s", &format!("http://{address}/"));
    assert_eq!(output.status.code(), Some(1));
    assert!(result["counts"]["completed"].as_u64().unwrap() > 0);
    let failed = result["counts"]["failed"].to_string();
    assert!(failed.contains("refused"), "{failed}");
}

#[test]
fn placeholders_and_mixes_reach_the_server() {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let lines = Arc::clone(&seen);
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut reader = BufReader::new(client.try_clone().unwrap());
            let mut line = String::new();
            while reader.read_line(&mut line).unwrap_or(0) > 0 {
                if line == "\r\n" {
                    client
                        .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
                        .unwrap();
                } else {
                    lines.lock().unwrap().push(std::mem::take(&mut line));
                }
                line.clear();
            }
        }
    });
    let url = format!("http://{address}/item/{{{{n}}}}");
    let (result, output) = load("-n 6 -c 2 -t 1 -H X-Id:{{uuid}}", &url);
    assert!(has_no_errors(&output), "{}", stderr(&output));
    assert_eq!(result["counts"]["statuses"]["204"], 6);
    let seen = seen.lock().unwrap();
    // Two requests come before the run.
    for number in 0..8 {
        let line = format!("GET /item/{number} HTTP/1.1\r\n");
        let count = seen.iter().filter(|seen| **seen == line).count();
        assert_eq!(count, 1, "{line}");
    }
    let mut ids: Vec<_> = seen
        .iter()
        .filter(|line| line.starts_with("x-id:") || line.starts_with("X-Id:"))
        .collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 8, "{ids:?}");
}

#[test]
fn wrong_arguments_are_usage_errors() {
    for (words, part) in [
        (&["load", "localhost"][..], "write http://"),
        (&["load", "--http", "3", "http://127.0.0.1:1/"], "https://"),
        (&["load", "http://127.0.0.1:1/{{m}}"], "{{uuid}}"),
        (
            &["load", "-i", "/nowhere", "http://127.0.0.1:1/"],
            "/nowhere",
        ),
    ] {
        let output = blitz(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
    }
    let output = blitz(&["load", "http://127.0.0.1:1/"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("refused"), "{}", stderr(&output));
    assert!(stdout(&output).is_empty());
}

#[test]
fn an_unknown_name_is_named_with_a_remedy() {
    let output = blitz(&["load", "http://no-such-name.invalid/"]);
    assert_eq!(output.status.code(), Some(1));
    let error = stderr(&output);
    assert!(
        error.contains("`no-such-name.invalid`") && error.contains("--address"),
        "{error}"
    );
}

#[test]
fn the_first_address_of_a_name_that_accepts_is_used() {
    let server = Server::start(|_| "x".to_owned());
    let port = server.address.port();
    let (result, output) = load("-n 10 -c 1", &format!("http://localhost:{port}/"));
    assert!(has_no_errors(&output), "{}", stderr(&output));
    assert_eq!(result["target"]["address"], server.address.to_string());
    // On a machine without IPv6 there is no second family.
    let Some((listener, _reserved)) = listener_of_second_family() else {
        return;
    };
    let address = listener.local_addr().unwrap();
    let server = Server::serve_on(listener, |_| "x".to_owned());
    let (result, output) = load(
        "-n 10 -c 1",
        &format!("http://localhost:{}/", address.port()),
    );
    assert!(has_no_errors(&output), "{}", stderr(&output));
    assert_eq!(result["target"]["address"], server.address.to_string());
}

/// A listener on `[::1]`, and a socket that keeps its port on 127.0.0.1 from others without accepting anything; `None`
/// without IPv6.
fn listener_of_second_family() -> Option<(TcpListener, socket2::Socket)> {
    loop {
        let listener = TcpListener::bind("[::1]:0").ok()?;
        let port = listener.local_addr().unwrap().port();
        let (domain, kind) = (socket2::Domain::IPV4, socket2::Type::STREAM);
        let socket = socket2::Socket::new(domain, kind, None).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if socket.bind(&address.into()).is_ok() {
            return Some((listener, socket));
        }
    }
}

#[test]
fn every_version_of_http_is_measured_with_its_handshakes() {
    let folder = Folder::new();
    let server = Running::start(&folder, &[]);
    let url = format!("https://{}/hello", server.address("https://"));
    for (version, protocol, handshakes) in [
        ("1.1", "http/1.1", "tls"),
        ("2", "h2", "tls"),
        ("3", "h3", "quic"),
    ] {
        let streams = if version == "1.1" { 1 } else { 8 };
        let flags = format!("-n 200 -c 2 -m {streams} -t 1 --insecure --http {version}");
        let (result, output) = load(&flags, &url);
        assert!(has_no_errors(&output), "{version}: {}", stderr(&output));
        assert_eq!(result["counts"]["completed"], 200, "{version}");
        assert_eq!(result["target"]["protocol"], protocol);
        let connects = &result["connects"];
        let full = connects[handshakes]["count"].as_u64().unwrap();
        let resumed = &connects[format!("{handshakes}_resumed")]["count"];
        assert_eq!(full + resumed.as_u64().unwrap(), 2, "{connects}");
    }
}

/// The server responds before it has read everything, and reads no further while nobody reads its response.
#[test]
fn uploads_that_come_back_are_sent_and_received_at_the_same_time() {
    let folder = Folder::new();
    let server = Running::start(&folder, &[]);
    let url = format!("https://{}/echo/upload", server.address("https://"));
    for version in ["1.1", "2", "3"] {
        let flags = format!("-n 6 -c 2 -t 1 --insecure -X POST --upload 1m --http {version}");
        let (result, output) = load(&flags, &url);
        assert!(has_no_errors(&output), "{version}: {}", stderr(&output));
        assert_eq!(result["counts"]["completed"], 6, "{version}");
        assert_eq!(result["counts"]["content_bytes_received"], 6 << 20);
    }
}

#[test]
fn an_interrupt_ends_the_run_with_the_result_so_far() {
    let server = Server::start(|_| "x".to_owned());
    let child = Command::new(env!("CARGO_BIN_EXE_blitz"))
        .args([
            "load",
            "--json",
            "-",
            "-d",
            "60s",
            "--warm-up",
            "0s",
            "-c",
            "1",
        ])
        .arg(server.url())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while server.requests.load(Ordering::SeqCst) < 20 {
        assert!(Instant::now() < deadline, "no requests");
        thread::sleep(Duration::from_millis(10));
    }
    let kill = format!("kill -INT {}", child.id());
    assert!(
        Command::new("sh")
            .args(["-c", &kill])
            .status()
            .unwrap()
            .success()
    );
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(75));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(result["counts"]["completed"].as_u64().unwrap() > 0);
    assert!(result["duration_s"].as_f64().unwrap() < 30.0);
    assert!(result["problems"].to_string().contains("interrupted"));
}

#[test]
fn a_closed_standard_output_is_no_error_and_a_full_one_is() {
    let server = Server::start(|_| "x".to_owned());
    let folder = Folder::new();
    let html = folder.file("report.html");
    let run = |stdout: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_blitz"));
        command.args([
            "load", "-n", "20", "-c", "1", "--json", "-", "--html", &html,
        ]);
        let output = command.arg(server.url()).stdout(stdout).output().unwrap();
        let written = std::fs::remove_file(&html);
        assert!(
            written.is_ok(),
            "files are written before: {}",
            stderr(&output)
        );
        output
    };
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let closed = run(writer.into());
    assert!(has_no_errors(&closed), "{}", stderr(&closed));
    assert_eq!(stderr(&closed), "");
    let full = run(std::fs::File::create("/dev/full").unwrap().into());
    assert_eq!(full.status.code(), Some(1));
    assert!(
        stderr(&full).contains("standard output: No space left"),
        "{}",
        stderr(&full)
    );
}
