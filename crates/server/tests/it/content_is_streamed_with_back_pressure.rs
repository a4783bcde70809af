use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use blitz::extract::{Body, Path, State};
use blitz::{App, Problem, Response, StreamError};
use blitz_testing::Client;

use crate::server::on_both_drivers;

/// The progress of the handler of a stream.
#[derive(Default)]
struct Progress {
    bytes: AtomicU64,
    dropped: AtomicBool,
}

struct SetOnDrop(Arc<Progress>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.dropped.store(true, Ordering::SeqCst);
    }
}

fn app() -> App {
    App::new()
        .state(Progress::default())
        .get("/endless", |State(progress): State<Progress>| {
            let progress = progress.to_arc();
            Response::stream(async move |writer| {
                let guard = SetOnDrop(progress);
                loop {
                    writer.send(vec![b'x'; 16 * 1024]).await?;
                    guard.0.bytes.fetch_add(16 * 1024, Ordering::SeqCst);
                }
            })
        })
        .get("/progress", |State(progress): State<Progress>| {
            let bytes = progress.bytes.load(Ordering::SeqCst);
            format!("{bytes} {}", progress.dropped.load(Ordering::SeqCst))
        })
        .get("/sized/{bytes}", |Path(bytes): Path<u64>| {
            Response::stream_sized(bytes, async |writer| Ok(writer.send("12345").await?))
        })
        .get("/fails", || {
            Response::stream(async |writer| {
                writer.send("begin").await?;
                blitz::sleep(Duration::from_millis(20)).await;
                Err(StreamError::from(std::io::Error::other("the disk is gone")))
            })
        })
        .post("/count", async |mut body: Body| {
            let mut bytes = 0;
            while let Some(chunk) = body.chunk().await? {
                bytes += chunk.len();
            }
            Ok::<_, Problem>(bytes.to_string())
        })
}

/// Repeats a request until the response matches.
#[track_caller]
fn eventually(client: &mut Client, wanted: impl Fn(&str) -> bool) {
    let end = Instant::now() + Duration::from_secs(5);
    while !wanted(client.get("/progress").text()) {
        assert!(Instant::now() < end, "{}", client.get("/progress").text());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_client_that_does_not_read_stops_the_handler_and_disconnecting_drops_it() {
    on_both_drivers(app, |address| {
        let mut reader = Client::connect(address);
        let mut watcher = Client::connect(address);
        reader.send("GET /endless HTTP/1.1\r\nHost: test\r\n\r\n");
        eventually(&mut watcher, |progress| !progress.starts_with("0 "));
        let mut before = watcher.get("/progress").body;
        loop {
            std::thread::sleep(Duration::from_millis(100));
            let now = watcher.get("/progress").body;
            if now == before {
                break;
            }
            before = now;
        }
        // The kernel's socket buffers take a few megabytes; an endless stream would take all.
        let stuck = String::from_utf8(before).expect("text");
        let bytes: u64 = stuck
            .split(' ')
            .next()
            .and_then(|n| n.parse().ok())
            .expect("a number");
        assert!(bytes < 64 * 1024 * 1024, "{bytes}");
        drop(reader);
        eventually(&mut watcher, |progress| progress.ends_with("true"));
    });
}

#[test]
fn a_stream_that_fails_is_aborted_detectably() {
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        client.send("GET /fails HTTP/1.1\r\nHost: test\r\n\r\n");
        let answer = String::from_utf8(client.rest()).expect("text");
        assert!(answer.contains("5\r\nbegin\r\n"), "{answer}");
        assert!(!answer.contains("0\r\n\r\n"), "{answer}");
    });
}

#[test]
fn a_sized_stream_has_its_length_or_is_aborted() {
    on_both_drivers(app, |address| {
        assert_eq!(Client::connect(address).get("/sized/5").text(), "12345");
        for wrong in [4, 6] {
            let mut client = Client::connect(address);
            client.send(format!("GET /sized/{wrong} HTTP/1.1\r\nHost: test\r\n\r\n"));
            let answer = String::from_utf8(client.rest()).expect("text");
            let content = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
            assert!(content.len() != wrong, "{answer}");
        }
    });
}

#[test]
fn uploads_are_streamed() {
    const MIB: usize = 1024 * 1024;
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        client.send(format!(
            "POST /count HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n",
            8 * MIB
        ));
        for _ in 0..8 {
            client.send(vec![b'x'; MIB]);
        }
        assert_eq!(client.response().text(), (8 * MIB).to_string());
    });
}
