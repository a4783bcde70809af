use std::time::{Duration, Instant};

use crate::support::{SOON, Server, on_each_driver};

#[test]
fn draining_closes_idle_connections_and_finishes_the_rest() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut idle = server.connect();
        idle.send("GET /hello HTTP/1.1\r\nHost: a\r\n\r\n").head();
        idle.expect("hello");
        let mut busy = server.connect();
        busy.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
        server.until("two requests", |counters| counters.requests == 2);
        server.drain(SOON);
        idle.expect_end();
        let head = busy.head();
        assert!(
            head.to_lowercase().contains("\r\nconnection: close\r\n"),
            "{head}"
        );
        busy.expect("slow").expect_end();
        server.join();
    });
}

#[test]
fn a_connection_without_a_request_has_a_short_time_for_its_first() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let (mut late, mut silent) = (server.connect(), server.connect());
        server.until("two connections", |counters| counters.accepted == 2);
        server.drain(SOON);
        std::thread::sleep(Duration::from_millis(200));
        let head = late.send("GET /hello HTTP/1.1\r\nHost: a\r\n\r\n").head();
        assert!(
            head.to_lowercase().contains("\r\nconnection: close\r\n"),
            "{head}"
        );
        late.expect("hello").expect_end();
        silent.expect_end();
        server.join();
    });
}

#[test]
fn draining_stops_accepting() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut busy = server.connect();
        busy.send("GET /never HTTP/1.1\r\nHost: a\r\n\r\n");
        server.until("a request", |counters| counters.requests == 1);
        server.drain(SOON);
        let end = Instant::now() + SOON;
        while std::net::TcpStream::connect(server.address).is_ok() {
            assert!(Instant::now() < end, "still listening");
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}

#[test]
fn exchanges_are_aborted_at_the_deadline() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut busy = server.connect();
        busy.send("GET /never HTTP/1.1\r\nHost: a\r\n\r\n");
        server.until("a request", |counters| counters.requests == 1);
        server.drain(Duration::from_millis(100));
        let begun = Instant::now();
        server.join();
        assert!(begun.elapsed() < SOON);
        busy.expect_end();
    });
}
