use std::time::{Duration, Instant};

use blitz_http::{Limits, ServeOptions};
use blitz_testing::Raw;

use crate::support::{Server, on_each_driver, options};
use crate::upgrade::ASK;

pub(crate) fn limits(change: impl Fn(&mut Limits)) -> ServeOptions {
    let mut options = options();
    change(&mut options.limits);
    options
}

fn expect_408(client: &mut Raw, begun: Instant, at_least: Duration) {
    let head = client.head();
    assert!(
        head.starts_with("HTTP/1.1 408 Request Timeout\r\n"),
        "{head}"
    );
    let elapsed = begun.elapsed();
    assert!(elapsed >= at_least, "{elapsed:?}");
}

#[test]
fn a_head_that_never_ends_gets_408() {
    on_each_driver(|io| {
        let server = Server::with(io, || {
            limits(|l| l.head_timeout = Duration::from_millis(150))
        });
        let mut client = server.connect();
        let begun = Instant::now();
        client.send("GET /hello HT");
        expect_408(&mut client, begun, Duration::from_millis(140));
        assert_eq!(server.counters().header_timeouts, 1);
    });
}

#[test]
fn an_idle_connection_is_closed_without_a_response() {
    on_each_driver(|io| {
        let server = Server::with(io, || {
            limits(|l| l.idle_timeout = Duration::from_millis(150))
        });
        let mut fresh = server.connect();
        let mut used = server.connect();
        used.send("GET /hello HTTP/1.1\r\nHost: a\r\n\r\n").head();
        used.expect("hello").expect_end();
        fresh.expect_end();
        assert_eq!(server.counters().idle_timeouts, 2);
    });
}

#[test]
fn a_body_below_the_minimum_rate_gets_408() {
    on_each_driver(|io| {
        let server = Server::with(io, || {
            limits(|l| {
                l.body_rate_grace = Duration::from_millis(150);
                l.body_rate_min = 1000;
            })
        });
        let mut client = server.connect();
        client.send("POST /whole HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n");
        // These bytes add 100 ms to the grace period.
        client.send(vec![b'x'; 100]);
        let begun = Instant::now();
        expect_408(&mut client, begun, Duration::from_millis(230));
        assert_eq!(server.counters().body_timeouts, 1);
    });
}

/// However much has come before.
#[test]
fn a_body_that_is_silent_gets_408() {
    on_each_driver(|io| {
        let server = Server::with(io, || {
            limits(|l| l.body_idle_timeout = Duration::from_millis(200))
        });
        let mut client = server.connect();
        client.send("POST /whole HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
        client.send(vec![b'x'; 99_000]);
        std::thread::sleep(Duration::from_millis(120));
        client.send("x");
        let begun = Instant::now();
        expect_408(&mut client, begun, Duration::from_millis(190));
        assert_eq!(server.counters().body_timeouts, 1);
    });
}

#[test]
fn a_body_that_stalls_after_the_response_head_ends_the_exchange() {
    on_each_driver(|io| {
        let server = Server::with(io, || {
            limits(|l| {
                l.body_idle_timeout = Duration::from_millis(200);
                l.body_rate_min = 1_000_000;
                l.body_rate_grace = Duration::from_millis(50);
            })
        });
        let mut client = server.connect();
        client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n");
        client.head();
        // The minimum rate no longer applies: each byte before the deadline is enough.
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(120));
            client.send("x").expect("x");
        }
        client.expect_reset();
        assert_eq!(server.counters().body_timeouts, 1);
    });
}

#[test]
fn a_body_without_a_minimum_rate_may_be_slow() {
    on_each_driver(|io| {
        let server = Server::with(io, || {
            limits(|l| l.body_rate_grace = Duration::from_millis(100))
        });
        let mut client = server.connect();
        client.send("POST /patient HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n");
        std::thread::sleep(Duration::from_millis(300));
        client.send("abc").head();
        client.expect("abc");
        // The exception does not apply to the next request on the connection.
        client.send("POST /whole HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n");
        assert!(client.head().starts_with("HTTP/1.1 408 "));
    });
}

#[test]
fn the_minimum_rate_applies_only_before_the_response() {
    on_each_driver(|io| {
        let server = Server::with(io, || {
            limits(|l| l.body_rate_grace = Duration::from_millis(100))
        });
        let mut client = server.connect();
        client
            .send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n")
            .head();
        std::thread::sleep(Duration::from_millis(300));
        client.send("abc").expect("abc");
    });
}

#[test]
fn a_client_that_reads_nothing_is_disconnected() {
    on_each_driver(|io| {
        let server = Server::with(io, || {
            limits(|l| l.send_stall_timeout = Duration::from_millis(200))
        });
        let mut client = server.connect();
        client.send("GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
        server.until("stalled", |counters| counters.send_stalls == 1);
        assert_eq!(server.counters().connections, 0);
    });
}

/// Its `SendBody` reports an error instead of waiting for ever.
#[test]
fn a_writer_in_another_task_learns_that_the_client_was_disconnected() {
    on_each_driver(|io| {
        let server = Server::with(io, || {
            limits(|l| l.send_stall_timeout = Duration::from_millis(200))
        });
        let mut client = server.connect();
        client.send("GET /big-elsewhere HTTP/1.1\r\nHost: a\r\n\r\n");
        server.until("stalled", |counters| counters.send_stalls == 1);
        server.until_writer_ended();
    });
}

/// The writer does not wait for room, so it does not report that the client takes nothing.
#[test]
fn the_stall_deadline_applies_to_content_that_another_task_queues() {
    on_each_driver(|io| {
        let server = Server::with(io, || {
            limits(|l| l.send_stall_timeout = Duration::from_millis(200))
        });
        let mut client = server.connect();
        client.send("GET /burst-elsewhere HTTP/1.1\r\nHost: a\r\n\r\n");
        server.until("stalled", |counters| counters.send_stalls == 1);
    });
}

/// Bytes that the exchange's task receives for a reader in another task are no silence.
#[test]
fn a_tunnel_that_another_task_reads_is_not_silent_while_bytes_arrive() {
    on_each_driver(|io| {
        let server = Server::with(io, || {
            limits(|l| l.stream_idle_timeout = Duration::from_millis(500))
        });
        let mut client = server.connect();
        let ask = ASK.replace("/upgrade", "/swallow-elsewhere");
        client.send(ask).head();
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(300));
            client.send("ping");
        }
        client.fin().expect("16").expect_end();
    });
}

#[test]
fn a_silent_tunnel_is_closed() {
    on_each_driver(|io| {
        let server = Server::with(io, || {
            limits(|l| l.stream_idle_timeout = Duration::from_millis(200))
        });
        let mut client = server.connect();
        client.send(ASK).head();
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(100));
            client.send("ping").expect("ping");
        }
        server.until("closed", |counters| counters.tunnel_timeouts == 1);
    });
}

#[test]
fn empty_lines_do_not_restart_the_idle_timeout() {
    on_each_driver(|io| {
        let server = Server::with(io, || {
            limits(|l| {
                l.idle_timeout = Duration::from_millis(1_000);
                l.empty_lines_max = 100;
            })
        });
        let begun = Instant::now();
        let mut fresh = server.connect();
        let mut used = server.connect();
        used.send("GET /hello HTTP/1.1\r\nHost: a\r\n\r\n").head();
        used.expect("hello");
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(150));
            fresh.send("\r\n");
            used.send("\r\n");
        }
        used.expect_end();
        fresh.expect_end();
        let took = begun.elapsed();
        assert!(took < Duration::from_millis(1_500), "{took:?}");
        assert_eq!(server.counters().idle_timeouts, 2);
    });
}

#[test]
fn empty_lines_count_for_their_own_connection() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let received = |bytes| {
            server.until("received", |_| {
                let counters = server.ask(blitz_http::reactor::counters);
                counters.received_bytes >= bytes
            });
        };
        for round in 0..4 {
            let mut other = server.connect();
            other.send("\r\n");
            received(4 * round + 2);
            other.send("\r\n");
            received(4 * round + 4);
        }
        let mut client = server.connect();
        client.send("\r\n\r\nGET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(client.head().starts_with("HTTP/1.1 200 "));
        client.expect("hello");
        // A request resets the count; three empty lines are too many, however they arrive.
        let before = server.ask(blitz_http::reactor::counters).received_bytes;
        for count in 1..=2 {
            client.send("\r\n");
            received(before + 2 * count);
        }
        client.send("\r\n");
        assert!(client.head().starts_with("HTTP/1.1 400 "));
        assert_eq!(server.counters().refused_for("empty-lines"), 1);
    });
}
