//! The timeouts of the command line arrive where they apply.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use blitz_testing::{H1Peer, IO_TIMEOUT, LateListener, silent_address};

use crate::run::Running;

/// An upstream that sends these bytes for each request, and then nothing until the other side closes.
fn falling_silent(response: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || fall_silent(stream, response));
        }
    });
    url
}

fn fall_silent(stream: TcpStream, response: &str) {
    let mut peer = H1Peer::new(stream);
    while peer.request().is_some() {
        peer.send(response);
    }
}

#[test]
fn timeout_connect_limits_connecting() {
    let target = format!("http://{}", silent_address());
    let running = Running::start(&["--to", &target, "--timeout-connect", "300ms"]);
    let began = Instant::now();
    assert_eq!(running.connect().get("/").status, 504);
    // The default is 4 s.
    let range = Duration::from_millis(300)..Duration::from_secs(3);
    assert!(range.contains(&began.elapsed()), "{:?}", began.elapsed());
}

#[test]
fn timeout_response_limits_the_wait_for_a_response() {
    let target = falling_silent("");
    let running = Running::start(&["--to", &target, "--timeout-response", "300ms"]);
    assert_eq!(running.connect().get("/").status, 504);
}

#[test]
fn timeout_idle_limits_the_silence_within_a_response() {
    let target = falling_silent("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nsome");
    let running = Running::start(&["--to", &target, "--timeout-idle", "300ms"]);
    let mut client = running.connect();
    let began = Instant::now();
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    assert!(client.rest().ends_with(b"some"));
    assert!(began.elapsed() < IO_TIMEOUT, "{:?}", began.elapsed());
}

#[test]
fn timeout_idle_does_not_end_a_stream_of_events() {
    let target =
        falling_silent("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n");
    let running = Running::start(&["--to", &target, "--timeout-idle", "100ms"]);
    let stream = TcpStream::connect(running.address()).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    (&stream)
        .write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n")
        .unwrap();
    let mut received = Vec::new();
    let silent = (&stream).read_to_end(&mut received);
    let silent = silent.expect_err("the stream stays open").kind();
    assert_eq!(silent, ErrorKind::WouldBlock);
    let received = String::from_utf8(received).unwrap();
    assert!(received.contains("data: 1\n\n"), "{received}");
}

#[test]
fn connect_retry_waits_for_an_upstream_that_restarts() {
    let late = LateListener::bind();
    let target = format!("http://{}", late.address());
    let running = Running::start(&["--to", &target, "--connect-retry", "5s"]);
    let mut client = running.connect();
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    thread::sleep(Duration::from_millis(100));
    answer_one(&late.listen());
    assert_eq!(client.response().status, 204);
}

#[test]
fn upstream_idle_limits_idle_connections() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("http://{}", listener.local_addr().unwrap());
    let running = Running::start(&["--to", &target, "--upstream-idle", "200ms"]);
    let mut client = running.connect();
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    let mut upstream = answer_one(&listener);
    assert_eq!(client.response().status, 204);
    assert_eq!(upstream.rest(), (Vec::new(), true));
}

/// Accepts a connection, and answers its first request.
fn answer_one(listener: &TcpListener) -> H1Peer {
    let mut peer = H1Peer::new(listener.accept().unwrap().0);
    peer.request().expect("a request comes");
    assert!(peer.send("HTTP/1.1 204 No Content\r\n\r\n"));
    peer
}

#[test]
fn timeout_drain_limits_running_requests_after_term() {
    for timeout in ["300ms", "0"] {
        let mut running = Running::start(&["--timeout-drain", timeout]);
        let mut client = running.connect();
        client.send("GET /delay?ms=60000 HTTP/1.1\r\nHost: test\r\n\r\n");
        thread::sleep(Duration::from_millis(200));
        let began = Instant::now();
        running.signal("TERM");
        assert!(client.rest().is_empty(), "{timeout}");
        // `wait` fails before the default of 30 s.
        running.wait();
        let least = if timeout == "0" { 0 } else { 300 };
        assert!(began.elapsed() >= Duration::from_millis(least), "{timeout}");
    }
}
