use std::thread;
use std::time::Duration;

use crate::support::{BIG, Server, on_each_driver};

#[test]
fn bodies_stream_in_both_directions_at_once() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.head();
        for part in ["a", "bc", "def"] {
            let chunk = format!("{:x}\r\n{part}\r\n", part.len());
            client.send(&chunk).expect(&chunk);
        }
        client
            .send("0\r\nX-Sum: 6\r\n\r\n")
            .expect("0\r\nX-Sum: 6\r\n\r\n");
    });
}

#[test]
fn large_bodies_arrive_whole() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        let content: Vec<u8> = (0..BIG).map(|i| (i * 7 % 251) as u8).collect();
        for _ in 0..2 {
            client.send(format!(
                "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {BIG}\r\n\r\n"
            ));
            let mut sender = client.0.try_clone().unwrap();
            let sent = content.clone();
            let writer = thread::spawn(move || std::io::Write::write_all(&mut sender, &sent));
            client.head();
            client.expect(&content);
            writer.join().unwrap().unwrap();
        }
    });
}

#[test]
fn a_reader_that_stops_stops_the_sender() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send(format!(
            "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {BIG}\r\n\r\n"
        ));
        client
            .0
            .set_write_timeout(Some(Duration::from_millis(300)))
            .unwrap();
        let all = std::io::Write::write_all(&mut client.0, &vec![0; BIG]);
        assert!(
            all.is_err(),
            "the echo fills every buffer, so writing must stall"
        );
    });
}
