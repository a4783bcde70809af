//! Errors reach standard error in a program that sets no subscriber.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use blitz::{App, Problem, Response, StreamError};
use blitz_testing::Client;

#[test]
#[ignore = "it is the process that the next test starts"]
fn a_process_whose_handlers_fail() {
    let app = App::new()
        .get("/problem", || -> Result<&str, Problem> {
            Err(std::io::Error::other("the disk is gone").into())
        })
        .get("/stream", || {
            Response::stream(async |writer| {
                writer.send("begin").await?;
                Err(StreamError::from(std::io::Error::other("the tape is torn")))
            })
        })
        .get("/short", || {
            Response::stream_sized(6, async |writer| Ok(writer.send("12345").await?))
        })
        .get("/long", || {
            Response::stream_sized(4, async |writer| Ok(writer.send("12345").await?))
        })
        .get("/endless", || {
            Response::stream(async |writer| {
                loop {
                    writer.send(vec![b'x'; 16 * 1024]).await?;
                }
            })
        });
    app.run().expect("it serves until it is killed");
}

#[test]
fn errors_of_handlers_are_logged_and_clients_that_leave_are_not() {
    let this = std::env::current_exe().expect("it has a path");
    let mut child = Command::new(this)
        .args(["--ignored", "--nocapture", "a_process_whose_handlers_fail"])
        .env("BLITZ_LISTEN", "127.0.0.1:0")
        .env("BLITZ_CORES", "1")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("this binary runs");
    let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
    let mut next = || lines.next().expect("a line").expect("text");
    let first = next();
    let address: SocketAddr = first
        .strip_prefix("Listening on http://")
        .and_then(|rest| rest.split(' ').next())
        .and_then(|address| address.parse().ok())
        .unwrap_or_else(|| panic!("where does it listen? {first}"));
    let send = |path: &str| {
        let mut client = Client::connect(address);
        client.send(format!(
            "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"
        ));
        client
    };
    // It leaves within the response.
    drop(send("/endless"));
    for (path, text) in [
        ("/problem", "the disk is gone"),
        ("/stream", "the tape is torn"),
        ("/short", "declared length"),
        ("/long", "declared length"),
    ] {
        let mut client = send(path);
        let line = next();
        assert!(
            line.contains("ERROR") && line.contains(text),
            "{path}: {line}"
        );
        client.rest();
    }
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}
