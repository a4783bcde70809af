//! `blitz load` where the server, or its port, gives less than is asked for.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::https::{Folder, Running};
use crate::load::{Server, load, ok};
use crate::{blitz, stderr, stdout};

/// The limit of `blitz run` is 100 streams. A stream that has its response would go before all that wait.
#[test]
fn more_streams_than_the_server_allows_wait_in_their_order() {
    let folder = Folder::new();
    let server = Running::start(&folder, &[]);
    let url = format!("https://{}/delay?ms=60", server.address("https://"));
    for io in ["uring", "epoll"] {
        for version in ["2", "3"] {
            let flags = format!(
                "-d 3s --warm-up 0s -c 1 -m 150 -t 1 --insecure --http {version} --io {io}"
            );
            let (result, output) = load(&flags, &url);
            let counts = &result["counts"];
            assert_eq!(
                counts["unfinished"],
                0,
                "{version}, {io}: {}",
                stderr(&output)
            );
            assert_eq!(counts["failed"].as_object().unwrap().len(), 0, "{counts}");
            let (queued, completed) = (counts["queued"].as_u64(), counts["completed"].as_u64());
            assert!(
                queued > Some(100) && queued <= completed.map(|it| it + 150),
                "{counts}"
            );
            // Fifty wait for the hundred before them.
            let longest = result["times"]["latency"]["max_ns"].as_u64().unwrap();
            assert!(longest < 1_500_000_000, "{version}, {io}: {longest} ns");
            let problems = result["problems"].to_string();
            assert!(!problems.contains("limits of connections"), "{problems}");
        }
    }
}

/// A round trip more than that of other clients would be no property of HTTP/2.
#[test]
fn requests_do_not_wait_for_the_settings_of_the_server() {
    let folder = Folder::new();
    let server = Running::start(&folder, &[]);
    let url = format!("https://{}/hello", server.address("https://"));
    let (result, _) = load("-n 50 -c 1 -m 50 -t 1 --insecure --http 2", &url);
    let counts = &result["counts"];
    assert_eq!(
        (&counts["completed"], &counts["queued"]),
        (&50.into(), &0.into()),
        "{counts}"
    );
}

/// The requests of the warm-up alone take longer than the run.
#[test]
fn overload_shows_what_was_answered_in_the_measured_time() {
    let server = Server::start_raw(TcpListener::bind("127.0.0.1:0").unwrap(), |_| {
        thread::sleep(Duration::from_millis(20));
        Some(ok("x"))
    });
    let url = format!("http://{}/", server.address);
    let folder = Folder::new();
    let file = folder.file("result.json");
    let output = blitz(&[
        "load",
        "--json",
        &file,
        "-R",
        "1000",
        "-d",
        "1s",
        "--warm-up",
        "1s",
        "-c",
        "1",
        "-t",
        "1",
        &url,
    ]);
    let result: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(output.status.code(), Some(75), "{}", stderr(&output));
    assert_eq!(
        result["counts"]["completed"], 0,
        "all of them wait behind the warm-up"
    );
    let answered = result["answered"]["completed"].as_u64().unwrap();
    assert!((5..=60).contains(&answered), "{answered} of 50 a second");
    let length = result["answered"]["length_s"].as_f64().unwrap();
    assert!((length - 1.0).abs() < 1e-3, "{length}");
    let text = stderr(&output) + &stdout(&output);
    assert!(
        text.contains(&format!("({answered} answered in the measured time)")),
        "{text}"
    );
    assert!(
        text.contains("INVALID for latency: The server did not keep up"),
        "{text}"
    );
    assert!(!text.contains("No request was answered"), "{text}");
}

#[test]
fn a_refused_udp_port_fails_at_once_and_says_what_tcp_does() {
    for ip in ["127.0.0.1", "[::1]"] {
        let Ok(tcp) = TcpListener::bind(format!("{ip}:0")) else {
            continue;
        };
        let url = format!("https://{}/", tcp.local_addr().unwrap());
        let refused = || {
            let begun = Instant::now();
            let output = blitz(&["load", "--http", "3", "--insecure", "-n", "1", &url]);
            let took = begun.elapsed();
            assert!(took < Duration::from_secs(10), "{took:?}");
            assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
            stderr(&output)
        };
        let text = refused();
        assert!(text.contains("connection refused over UDP"), "{text}");
        assert!(text.contains("TCP answers at this port"), "{text}");
        drop(tcp);
        let text = refused();
        assert!(
            text.contains("TCP is refused at this port as well"),
            "{text}"
        );
    }
    // Silence is no refusal.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/", silent.local_addr().unwrap());
    let output = blitz(&[
        "load",
        "--http",
        "3",
        "--insecure",
        "--timeout",
        "1s",
        "-n",
        "1",
        &url,
    ]);
    let text = stderr(&output);
    assert!(
        text.contains("took too long over UDP; TCP is refused"),
        "{text}"
    );
}
