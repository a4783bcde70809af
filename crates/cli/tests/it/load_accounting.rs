//! `blitz load`: every request is in one figure, whatever the server does, and every run ends.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::load::{Server, load, quantile_ms, serve};
use crate::{blitz, stderr};

const GOOD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";

/// A server that writes whatever `respond` returns for the number of a request. `None` never answers.
fn server(respond: impl Fn(u64) -> Option<String> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    Server::start_raw(listener, respond).address
}

fn good() -> Option<String> {
    Some(GOOD.to_owned())
}

fn sum(counts: &Value) -> u64 {
    let all = counts.as_object().unwrap().values();
    all.map(|count| count.as_u64().unwrap()).sum()
}

/// All requests of a result: completed, wrong, failed and unfinished.
fn all(result: &Value) -> u64 {
    let counts = &result["counts"];
    let of = |name: &str| counts[name].as_u64().unwrap();
    of("completed") + of("unfinished") + sum(&counts["wrong"]) + sum(&counts["failed"])
}

fn load_on(address: SocketAddr, arguments: &str) -> (Value, Output) {
    load(arguments, &format!("http://{address}/"))
}

fn assert_problem(result: &Value, part: &str) {
    let problems = result["problems"].to_string();
    assert!(problems.contains(part), "{problems}");
}

#[test]
fn planned_requests_that_fail_after_the_end_count() {
    let start = Instant::now();
    let address = server(move |_| {
        let passed = start.elapsed();
        if passed < Duration::from_millis(1500) {
            return good();
        }
        // Nothing more comes, and the connection ends behind the end of the run.
        thread::sleep(Duration::from_secs(4).saturating_sub(passed));
        Some("HTTP/1.1 200 O".to_owned())
    });
    let arguments = "-R 100 -c 200 -d 3s --warm-up 0s --timeout 2s -t 1";
    let (result, output) = load_on(address, arguments);
    assert_eq!(all(&result), 300, "{}", result["counts"]);
    assert!(
        sum(&result["counts"]["failed"]) > 50,
        "{}",
        result["counts"]
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn planned_requests_that_wait_for_a_connection_count_with_their_wait() {
    // Four requests hang, and all later ones wait for a connection.
    let address = server(|number| if number < 150 { good() } else { None });
    let (result, output) = load_on(address, "-R 100 -c 4 -d 2s --warm-up 0s -t 1");
    assert_eq!(all(&result), 200, "{}", result["counts"]);
    let unfinished = result["counts"]["unfinished"].as_u64().unwrap();
    assert!(unfinished > 40, "{}", result["counts"]);
    assert_eq!(result["times"]["latency"]["count"], 200, "none is left out");
    assert!(quantile_ms(&result["times"]["latency"], 0.99) > 4_900.0);
    assert_problem(&result, "did not keep up");
    assert_eq!(output.status.code(), Some(75));
}

#[test]
fn connections_that_hang_in_a_closed_loop_are_told() {
    // Some of the first requests are never answered.
    let address = server(|number| {
        thread::sleep(Duration::from_millis(5));
        if (3..6).contains(&number) {
            None
        } else {
            good()
        }
    });
    let (result, _) = load_on(address, "-c 6 -d 3s --warm-up 0s -t 1");
    assert_eq!(result["counts"]["unfinished"], 3, "{}", result["counts"]);
    assert_problem(&result, "connections hang");
}

#[test]
fn requests_of_a_list_that_hang_count_in_their_rows() {
    let list = std::env::temp_dir().join(format!("blitz-hanging-{}", std::process::id()));
    let address = server(|number| (!(5..8).contains(&number)).then(good).flatten());
    std::fs::write(&list, format!("http://{address}/a\nhttp://{address}/b\n")).unwrap();
    let arguments = format!("-c 6 -d 3s --warm-up 0s -t 1 -i {}", list.display());
    let (result, _) = load_on(address, &arguments);
    std::fs::remove_file(&list).unwrap();
    let rows = result["requests"].as_array().unwrap();
    let counts = rows
        .iter()
        .map(|row| row["latency"]["count"].as_u64().unwrap());
    let counted = result["times"]["latency"]["count"].as_u64().unwrap();
    assert_eq!((rows.len(), counts.sum::<u64>()), (2, counted));
    assert_eq!(result["counts"]["unfinished"], 3, "{}", result["counts"]);
}

#[test]
fn a_server_that_always_fails_has_no_correct_response() {
    let failure = "HTTP/1.1 500 Failed\r\nContent-Length: 1\r\n\r\nx";
    let address = server(move |_| Some(failure.to_owned()));
    let url = format!("http://{address}/");
    let (result, output) = load("-n 50 -c 1 --keep-going", &url);
    assert_eq!(result["counts"]["completed"], 0);
    assert_eq!(result["counts"]["wrong"]["status"], 50);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_wrong_status_counts_although_its_content_never_comes() {
    let stalled = "HTTP/1.1 500 Failed\r\nContent-Length: 100\r\n\r\nx";
    let address = server(move |number| match number {
        20 => Some(stalled.to_owned()),
        _ => good(),
    });
    let (result, output) = load_on(address, "-d 10s -c 2 --warm-up 0s");
    assert_eq!(result["counts"]["wrong"]["status"], 1);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("its status is 500"),
        "{}",
        stderr(&output)
    );
}

const ENDLESS: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n";

#[test]
fn a_first_response_without_an_end_delays_the_run_only() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for (number, client) in listener.incoming().enumerate() {
            let mut client = client.unwrap();
            thread::spawn(move || match number {
                // The connections of the first requests, which get a byte from time to time.
                0 | 1 => {
                    let _ = client.read(&mut [0; 1024]);
                    client.write_all(ENDLESS.as_bytes()).unwrap();
                    while client.write_all(b"1\r\nx\r\n").is_ok() {
                        thread::sleep(Duration::from_millis(50));
                    }
                }
                _ => serve(&client, &AtomicU64::new(0), &|_| good()),
            });
        }
    });
    let (result, _) = load_on(address, "-n 10 -c 1 --timeout 1s");
    assert_eq!(result["counts"]["completed"], 10, "{}", result["counts"]);
}

#[test]
fn a_first_response_that_stalls_is_an_error() {
    let address = server(|_| Some(ENDLESS.to_owned()));
    let url = format!("http://{address}/");
    let output = blitz(&["load", "-d", "1s", "--timeout", "1s", &url]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("too slowly"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_number_of_requests_ends_although_the_server_is_gone() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serving = thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        serve(&client, &AtomicU64::new(0), &|_| good());
        let _ = client.shutdown(Shutdown::Both);
    });
    let (result, output) = load_on(address, "-n 20 -c 2");
    serving.join().unwrap();
    assert_eq!(all(&result), 20, "{}", result["counts"]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn surplus_bytes_behind_responses_are_told() {
    let address = server(|_| Some(format!("{GOOD}{GOOD}")));
    let (result, output) = load_on(address, "-n 20 -c 1");
    assert_eq!(result["counts"]["completed"], 20);
    assert_eq!(
        result["counts"]["failed"]["more bytes behind a response"],
        20
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn heads_without_content_have_the_length_of_content() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n";
    let address = server(move |_| Some(head.to_owned()));
    let (result, _) = load_on(address, "-n 20 -c 1 -X HEAD");
    assert_eq!(result["counts"]["completed"], 20, "{}", result["counts"]);
    let unchanged = "HTTP/1.1 304 Not Modified\r\nContent-Length: 13\r\n\r\n";
    let address = server(move |_| Some(unchanged.to_owned()));
    let (result, _) = load_on(address, "-n 20 -c 1 --expect-status 304");
    assert_eq!(result["counts"]["completed"], 20, "{}", result["counts"]);
}

#[test]
fn content_that_no_server_takes_does_not_count_as_sent() {
    let refused = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let address = server(move |_| Some(refused.to_owned()));
    let arguments = "-n 3 -c 1 --upload 100m --keep-going";
    let (result, _) = load_on(address, arguments);
    let sent = result["counts"]["content_bytes_sent"].as_u64().unwrap();
    assert!(sent < 300 * 1024 * 1024, "{}", result["counts"]);
}

#[test]
fn a_signal_ends_a_run_long_before_its_next_request() {
    let address = server(|_| good());
    let mut run = Command::new(env!("CARGO_BIN_EXE_blitz"))
        .args(["load", "-R", "0.02", "-d", "120s", "--warm-up", "0s"])
        .arg(format!("http://{address}/"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_millis(1500));
    let begun = Instant::now();
    let sent = Command::new("kill")
        .args(["-INT", &run.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
    run.wait().unwrap();
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn what_cannot_be_checked_or_sent_is_a_usage_error() {
    for arguments in [
        &["--new-connections", "-m", "8", "--http", "2"][..],
        &["-X", "POST", "-b", "x", "--check", "content"],
        &["-H", "Connection: close"],
        &["--json", "-", "--csv", "-"],
        &["--json", "/no/such/folder/result.json"],
        &["-H", "expect: 100-continue"],
    ] {
        let output = blitz(&[&["load"][..], arguments, &["http://127.0.0.1:1/"]].concat());
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?} {}",
            stderr(&output)
        );
    }
}

#[test]
fn a_rate_above_the_capacity_is_reported_as_the_capacity() {
    // One connection, 100 requests per second.
    let address = server(|_| {
        thread::sleep(Duration::from_millis(10));
        good()
    });
    let (result, output) = load_on(address, "-R 150 -c 1 -d 2s --warm-up 0s -t 1");
    let completed = result["counts"]["completed"].as_f64().unwrap();
    let rate = completed / result["duration_s"].as_f64().unwrap();
    assert!(rate < 101.0, "{rate}");
    assert_problem(&result, "did not keep up");
    assert_eq!(output.status.code(), Some(75));
}

#[test]
fn a_low_rate_is_that_of_the_whole_time() {
    let address = server(|_| good());
    let (result, _) = load_on(address, "-R 1 -c 1 -d 3s --warm-up 0s -t 1");
    assert_eq!(result["counts"]["completed"], 3);
    let length = result["duration_s"].as_f64().unwrap();
    assert!((3.0..3.5).contains(&length), "{length}");
}

#[test]
fn a_rate_beyond_everything_ends_with_responses() {
    let address = server(|_| good());
    let (result, output) = load_on(address, "-R 100m -c 2 -d 1s --warm-up 0s -t 1");
    assert!(result["counts"]["completed"].as_u64().unwrap() > 0);
    assert_ne!(output.status.code(), Some(0));
}

#[test]
fn a_number_of_requests_includes_the_time_of_those_that_fail() {
    let address = server(|number| if number < 12 { good() } else { None });
    let arguments = "-n 12 -c 2 --timeout 1s";
    let (result, _) = load_on(address, arguments);
    assert_eq!(result["counts"]["completed"], 10, "{}", result["counts"]);
    assert_eq!(sum(&result["counts"]["failed"]), 2);
    let length = result["duration_s"].as_f64().unwrap();
    assert!(length > 0.9, "{length}");
}

#[test]
fn a_handshake_has_the_timeout_as_well() {
    // It accepts connections, and says nothing.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let begun = Instant::now();
    let output = blitz(&["load", "--timeout", "1s", &format!("https://{address}/")]);
    assert!(
        begun.elapsed() < Duration::from_secs(8),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn connections_beyond_the_limit_of_descriptors_are_an_error() {
    let limited = "ulimit -n 100; exec \"$0\" load -c 1000 http://127.0.0.1:1/";
    let output = Command::new("sh")
        .args(["-c", limited, env!("CARGO_BIN_EXE_blitz")])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("descriptors are required"),
        "{}",
        stderr(&output)
    );
}
