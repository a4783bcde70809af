use std::time::{Duration, Instant};

use crate::deadlines::limits;
use crate::support::{BIG, Server, on_each_driver};

#[test]
fn the_response_is_completed_after_a_half_close() {
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
fn a_half_closed_client_that_gets_nothing_counts_as_closed() {
    let grace = Duration::from_millis(300);
    on_each_driver(|io| {
        let server = Server::with(io, move || limits(|it| it.half_close_grace = Some(grace)));
        for path in ["/never", "/quiet"] {
            let cancelled = server.counters().cancelled;
            let mut client = server.connect();
            let begun = Instant::now();
            client
                .send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"))
                .fin();
            server.until("cancelled", |counters| counters.cancelled == cancelled + 1);
            assert!(
                begun.elapsed() >= grace,
                "{path} after {:?}",
                begun.elapsed()
            );
        }
        server.until("closed", |counters| counters.connections == 0);
    });
}

#[test]
fn a_half_closed_client_that_gets_bytes_stays_open() {
    let grace = Duration::from_millis(300);
    on_each_driver(|io| {
        let server = Server::with(io, move || limits(|it| it.half_close_grace = Some(grace)));
        let mut client = server.connect();
        client.send("GET /ticks HTTP/1.1\r\nHost: a\r\n\r\n").fin();
        client.head();
        // Ten ticks, 100 ms apart.
        client.expect("5\r\ntick\n\r\n".repeat(10));
        client.expect("0\r\n\r\n").expect_end();
    });
}

#[test]
fn a_half_closed_client_that_reads_slowly_has_the_stall_timeout() {
    let grace = Duration::from_millis(100);
    on_each_driver(|io| {
        let server = Server::with(io, move || limits(|it| it.half_close_grace = Some(grace)));
        let mut client = server.connect();
        client.send("GET /big HTTP/1.1\r\nHost: a\r\n\r\n").fin();
        client.head();
        std::thread::sleep(grace * 8);
        client.expect(vec![b'x'; BIG]).expect_end();
    });
}

#[test]
fn a_half_closed_client_waits_for_ever_without_a_timeout() {
    on_each_driver(|io| {
        let server = Server::with(io, || limits(|it| it.half_close_grace = None));
        let mut client = server.connect();
        client.send("GET /never HTTP/1.1\r\nHost: a\r\n\r\n").fin();
        server.until("a request", |counters| counters.requests == 1);
        std::thread::sleep(Duration::from_millis(1_500));
        assert_eq!(server.counters().cancelled, 0);
        assert_eq!(server.counters().connections, 1);
        server.drain(Duration::ZERO);
    });
}

#[test]
fn without_grace_a_half_close_cancels_at_once() {
    on_each_driver(|io| {
        let none = Some(Duration::ZERO);
        let server = Server::with(io, move || limits(|it| it.half_close_grace = none));
        let mut client = server.connect();
        client.send("GET /never HTTP/1.1\r\nHost: a\r\n\r\n").fin();
        server.until("cancelled", |counters| counters.cancelled == 1);
    });
}

/// Content that waits for its reader closes the window, which is open again when it was read.
#[test]
fn the_end_of_a_client_whose_content_was_read_late_is_noticed() {
    on_each_driver(|io| {
        let none = Some(Duration::ZERO);
        let server = Server::with(io, move || limits(|it| it.half_close_grace = none));
        for kib in [16, 50, 60, 100, 300] {
            let cancelled = server.counters().cancelled;
            let length = kib << 10;
            let mut client = server.connect();
            client
                .send(format!(
                    "POST /slowly-read HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"
                ))
                .send(vec![b'x'; length]);
            std::thread::sleep(Duration::from_millis(500));
            assert_eq!(server.counters().cancelled, cancelled);
            client.fin();
            server.until("cancelled", |counters| counters.cancelled == cancelled + 1);
        }
    });
}

/// The responses are queued, but not completely sent, when the server sees the end.
#[test]
fn bytes_after_the_last_request_do_not_truncate_its_response() {
    on_each_driver(|io| {
        let server = Server::start(io);
        for tail in ["\r\n", "\r\n\r\n", "\r", "GET", "GET / HTTP/1.1\r\nHo"] {
            for (path, content) in [("/slow", "slow"), ("/hello", "hello")] {
                let mut client = server.connect();
                client
                    .send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n{tail}"))
                    .fin();
                client.head();
                client.expect(content).expect_end();
            }
            let mut slow = server.connect();
            slow.send(format!("GET /big HTTP/1.1\r\nHost: a\r\n\r\n{tail}"))
                .fin();
            slow.head();
            std::thread::sleep(Duration::from_millis(100));
            slow.expect(vec![b'x'; BIG]).expect_end();
        }
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
        // An unread response turns the close into a reset.
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
fn a_body_truncated_by_fin_is_refused() {
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
fn a_head_truncated_by_fin_gets_no_response() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send("GET /hello HTTP/1.1\r\nHos").fin();
        client.expect_end();
        server.until("no connection", |counters| counters.connections == 0);
    });
}

#[test]
fn a_response_cancelled_in_the_middle_is_detectably_truncated() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send("GET /cut HTTP/1.1\r\nHost: a\r\n\r\n");
        // The bytes sent before the cancellation arrive.
        client
            .expect("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
            .expect_reset();
        assert_eq!(server.counters().cancelled, 1);
    });
}
