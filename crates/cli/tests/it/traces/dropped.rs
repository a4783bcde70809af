//! Spans and log records that are not exported: they are counted, and a warning tells why.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use blitz_testing::{Client, IO_TIMEOUT, Upstream};

use super::{Taken, application, get, start, text, wait_for_log};
use crate::control_support::Place;
use crate::https::{Folder, Running};

fn keys(collector: &Upstream, more: &str) -> String {
    format!(
        "tracing = {{ otlp = \"{}\", protocol = \"http\"{more} }}",
        collector.url()
    )
}

/// A file without the key, which is in use afterwards.
fn remove(folder: &Folder, running: &Running, application: &Upstream) {
    fs::write(folder.file("blitz.toml"), text("", application)).unwrap();
    running.reload("~ traces");
}

fn wait_for_metric(running: &Running, line: &str) -> String {
    let control = Place::Address(running.control_address().expect("it has an address"));
    let deadline = Instant::now() + IO_TIMEOUT;
    loop {
        let metrics = control.get("/metrics").content;
        if metrics.lines().any(|found| found == line) {
            return metrics;
        }
        assert!(Instant::now() < deadline, "{line}: {metrics}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_last_spans_are_exported_after_the_key_was_removed() {
    let (folder, application, taken) = (Folder::new(), application(), Taken::default());
    let collector = taken.collector(&[]);
    let running = start(&folder, &keys(&collector, ", logs = true"), &application);
    for _ in 0..5 {
        get(running.address("http://"), "/", "");
    }
    remove(&folder, &running, &application);
    taken.wait("/v1/traces", 10);
    taken.wait("/v1/logs", 5);
    let metrics = wait_for_metric(&running, "blitz_trace_spans_exported_total 10");
    assert!(!metrics.contains("_spans_dropped_total"), "{metrics}");
    // The next one begins anew.
    fs::write(
        folder.file("blitz.toml"),
        text(&keys(&collector, ""), &application),
    )
    .unwrap();
    running.reload("~ traces");
    get(running.address("http://"), "/", "");
    taken.wait("/v1/traces", 12);
}

/// The process ends before the second of the removed export is over.
#[test]
fn the_last_spans_of_a_removed_export_are_exported_at_the_end() {
    let (folder, application, taken) = (Folder::new(), application(), Taken::default());
    let collector = taken.collector(&[]);
    let mut running = start(&folder, &keys(&collector, ""), &application);
    get(running.address("http://"), "/", "");
    remove(&folder, &running, &application);
    running.signal("TERM");
    assert_eq!(running.wait(), Some(0));
    taken.wait("/v1/traces", 2);
}

#[test]
fn a_request_that_ends_long_after_the_removal_counts_as_dropped() {
    let (folder, taken) = (Folder::new(), Taken::default());
    let slow = Upstream::start(|_| {
        thread::sleep(Duration::from_millis(2500));
        b"HTTP/1.1 204 No Content\r\n\r\n".to_vec()
    });
    let collector = taken.collector(&[]);
    let running = start(&folder, &keys(&collector, ""), &slow);
    let address = running.address("http://");
    let request = thread::spawn(move || get(address, "/", ""));
    thread::sleep(Duration::from_millis(300));
    remove(&folder, &running, &slow);
    assert_eq!(request.join().unwrap(), 204);
    wait_for_metric(&running, "blitz_trace_spans_dropped_total 2");
    taken.wait("/v1/traces", 0);
}

#[test]
fn a_warning_tells_that_spans_came_too_fast() {
    let (folder, application) = (Folder::new(), application());
    let collector = Upstream::start(|_| {
        thread::sleep(Duration::from_millis(1500));
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()
    });
    let mut running = start(&folder, &keys(&collector, ""), &application);
    // Rejected requests with long paths, of which a span has 8 KiB of memory.
    let path = "x".repeat(4000);
    let request = format!(
        "GET /closed/{path} HTTP/1.1\r\nHost: app.example\r\nUser-Agent: {}\r\n\r\n",
        &path[..1000]
    );
    let mut client = Client::connect(running.address("http://"));
    for _ in 0..200 {
        client.send(request.repeat(50));
        for _ in 0..50 {
            assert_eq!(client.response().status, 403);
        }
    }
    wait_for_log(&running, "spans were dropped: they came faster");
    let log = running.log();
    assert!(log.contains("a smaller `tracing.sample`"), "{log}");
    assert_eq!(log.matches("they came faster").count(), 1, "{log}");
    running.signal("TERM");
    assert_eq!(running.wait(), Some(0));
    // The rest of the number.
    let told = running.log().matches("they came faster").count();
    assert!(told <= 2, "{}", running.log());
}

#[test]
fn a_warning_tells_why_all_spans_are_rejected() {
    let (folder, application) = (Folder::new(), application());
    // partial_success { rejected_spans: -1, error_message: "no\nroom" }
    let message = b"no\nroom";
    let mut partial = vec![0x08];
    partial.extend([0xff; 9]);
    partial.extend([1, 0x12, message.len() as u8]);
    partial.extend(message);
    let mut content = vec![0x0a, partial.len() as u8];
    content.extend(partial);
    let collector = Upstream::start(move |_| {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
            content.len()
        );
        [head.as_bytes(), &content].concat()
    });
    let running = start(&folder, &keys(&collector, ""), &application);
    get(running.address("http://"), "/", "");
    wait_for_log(&running, r"rejects spans: no\nroom; 2 were dropped");
    get(running.address("http://"), "/", "");
    let metrics = wait_for_metric(&running, "blitz_trace_spans_dropped_total 4");
    assert!(
        !metrics.contains("blitz_trace_spans_exported_total"),
        "{metrics}"
    );
    let log = running.log();
    assert_eq!(log.matches("the collector ").count(), 1, "{log}");
}

/// It keeps to the window of the connection, which is opened again for content of streams that were reset.
#[test]
fn a_collector_that_floods_its_response_is_cut_off() {
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const HEAD: [u8; 10] = [0, 0, 1, 1, 4, 0, 0, 0, 1, 0x88];
    const DATA: [u8; 9] = [0, 0x20, 0, 0, 0, 0, 0, 0, 1];
    const CONTENT: usize = 0x2000;
    let (folder, application) = (Folder::new(), application());
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let keys = format!("tracing = {{ otlp = \"http://{address}\", protocol = \"grpc\" }}");
    let running = start(&folder, &keys, &application);
    get(running.address("http://"), "/", "");
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(IO_TIMEOUT)).unwrap();
    stream.read_exact(&mut [0; 24]).unwrap();
    stream.write_all(&SETTINGS).unwrap();
    let (mut window, mut sent, mut has_request) = (65_535, 0, false);
    loop {
        if has_request && window >= CONTENT {
            window -= CONTENT;
            sent += CONTENT;
            assert!(sent < 16 << 20, "{}", running.log());
            if stream
                .write_all(&[&DATA[..], &[0; CONTENT]].concat())
                .is_err()
            {
                break;
            }
            continue;
        }
        let mut header = [0; 9];
        if stream.read_exact(&mut header).is_err() {
            break;
        }
        let [a, b, c, kind, flags, id @ ..] = header;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        stream.read_exact(&mut payload).unwrap();
        match (kind, u32::from_be_bytes(id)) {
            (1, 1) => {
                stream.write_all(&HEAD).unwrap();
                has_request = true;
            }
            (4, 0) if flags == 0 => stream.write_all(&[0, 0, 0, 4, 1, 0, 0, 0, 0]).unwrap(),
            (6, 0) if flags == 0 => {
                let pong = [&[0, 0, 8, 6, 1, 0, 0, 0, 0][..], &payload].concat();
                stream.write_all(&pong).unwrap();
            }
            (7, _) => break,
            (8, 0) => {
                let increment: [u8; 4] = payload.try_into().unwrap();
                window += u32::from_be_bytes(increment) as usize;
            }
            _ => {}
        }
    }
    assert!(sent > 64 * 1024, "{sent}: {}", running.log());
    wait_for_log(&running, "does not take spans");
}
