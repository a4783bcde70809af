use std::time::Duration;

use crate::support::{Server, on_each_driver};

#[test]
fn the_answer_is_finished_after_a_half_close() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").fin();
        let head = client.head();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        client.expect("slow").expect_end();
    });
}

#[test]
fn pipelined_requests_before_a_half_close_are_all_answered() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client
            .send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3))
            .fin();
        for _ in 0..3 {
            client.head();
            client.expect("slow");
        }
        client.expect_end();
    });
}

#[test]
fn a_reset_cancels_the_service() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        // An answer that is never read makes the close a reset.
        client.send("GET /hello HTTP/1.1\r\nHost: a\r\n\r\nGET /never HTTP/1.1\r\nHost: a\r\n\r\n");
        server.until("two requests", |counters| counters.requests == 2);
        std::thread::sleep(Duration::from_millis(20));
        client.reset();
        server.until("cancelled", |counters| counters.cancelled == 1);
        assert_eq!(server.counters().connections, 0);
    });
}

#[test]
fn a_reset_while_more_requests_wait_cancels_too() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send("GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
        client.send("GET /never HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3));
        server.until("two requests", |counters| counters.requests == 2);
        std::thread::sleep(Duration::from_millis(20));
        client.reset();
        server.until("cancelled", |counters| counters.cancelled == 1);
    });
}

#[test]
fn a_body_cut_off_by_fin_is_refused() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client
            .send("POST /whole HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc")
            .fin();
        assert!(client.head().starts_with("HTTP/1.1 400 Bad Request\r\n"));
        assert_eq!(server.counters().refused_for("truncated-body"), 1);
    });
}

#[test]
fn a_head_cut_off_by_fin_gets_no_answer() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send("GET /hello HTTP/1.1\r\nHos").fin();
        client.expect_end();
        server.until("no connection", |counters| counters.connections == 0);
    });
}

#[test]
fn an_answer_given_up_in_the_middle_is_seen_as_such() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send("GET /cut HTTP/1.1\r\nHost: a\r\n\r\n");
        // What was sent before arrives.
        client
            .expect("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
            .expect_reset();
        assert_eq!(server.counters().cancelled, 1);
    });
}
