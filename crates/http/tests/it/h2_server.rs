use std::io::{Read, Write};
use std::net::Shutdown;
use std::thread;
use std::time::{Duration, Instant};

use blitz_http::{BodyLength, Fields, Limits, Method, Name, RequestHead, ServeOptions, Status};
use blitz_proto::h2::Code;
use blitz_testing::Raw;
use blitz_testing::h2::kind::SETTINGS;
use blitz_testing::h2::{PREFACE, frame};

use crate::deadlines::limits;
use crate::h2_client::{Answer, Client};
use crate::support::{BIG, BIG_GIVEN, SOON, Server, on_each_driver, options};

#[test]
fn many_requests_share_a_connection() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = Client::connect(server.address);
        let first = client.get("/hello");
        assert_eq!(
            (first.status, &*first.content),
            (Some(Status::OK), &b"hello"[..])
        );
        let streams: Vec<_> = (0..90)
            .map(|n| {
                let path = if n % 3 == 0 { "/slow" } else { "/hello" };
                (path, client.request(Method::Get, path, BodyLength::Empty))
            })
            .collect();
        for (path, stream) in streams {
            let answer = client.answer(stream);
            assert_eq!(&answer.content[..], &path.as_bytes()[1..]);
        }
        let counters = server.counters();
        assert_eq!((counters.accepted, counters.requests), (1, 91));
        assert_eq!(counters.requests_by_version, [0, 0, 91, 0]);
    });
}

/// RFC 9113, section 3.4: a connection uses HTTP/2 however its preface is split. A connection that
/// only begins like the preface uses HTTP/1.1.
#[test]
fn a_preface_is_recognised_wherever_it_is_split() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let bytes = [PREFACE, &frame(SETTINGS, 0, 0, [])].concat();
        for cut in 1..bytes.len() {
            for next in [cut + 1, bytes.len()] {
                let next = next.min(bytes.len());
                let mut client = server.connect();
                for piece in [&bytes[..cut], &bytes[cut..next], &bytes[next..]] {
                    client.0.write_all(piece).expect("sends");
                    thread::sleep(Duration::from_millis(2));
                }
                let mut kind = [0; 4];
                client.0.read_exact(&mut kind).expect("an answer");
                assert_eq!(
                    kind[3], 4,
                    "cut at {cut} and {next}: {kind:?} is no SETTINGS"
                );
            }
        }
        for cut in 1..4 {
            let mut client = server.connect();
            let request = b"PUT /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
            for piece in [&request[..cut], &request[cut..]] {
                client.0.write_all(piece).expect("sends");
                thread::sleep(Duration::from_millis(2));
            }
            let mut answer = [0; 8];
            client.0.read_exact(&mut answer).expect("an answer");
            assert_eq!(&answer, b"HTTP/1.1");
        }
        // FIN follows: HTTP/1.1 handles the bytes.
        let mut client = server.connect();
        client.0.write_all(b"PR").expect("sends");
        client.0.shutdown(Shutdown::Write).expect("FIN");
        let mut rest = Vec::new();
        client.0.read_to_end(&mut rest).expect("an end");
    });
}

/// Many requests that arrive at once are started in several turns, and all get a response.
#[test]
fn a_core_starts_a_bounded_number_of_requests_per_turn() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut clients = [(); 3].map(|()| Client::connect(server.address));
        for client in &mut clients {
            client.get("/hello");
        }
        let before = server.ask(blitz_reactor::counters).held_back;
        let mut streams = Vec::new();
        thread::scope(|scope| {
            // The core is busy while everything arrives.
            scope.spawn(|| server.ask(|| thread::sleep(Duration::from_millis(500))));
            thread::sleep(Duration::from_millis(50));
            for (n, client) in clients.iter_mut().enumerate() {
                for _ in 0..90 {
                    streams.push((n, client.request(Method::Get, "/slow", BodyLength::Empty)));
                }
                client.flush();
            }
        });
        for (n, stream) in streams {
            assert_eq!(clients[n].answer(stream).content, b"slow");
        }
        assert!(server.ask(blitz_reactor::counters).held_back > before);
        assert_eq!(server.counters().requests, 3 + 3 * 90);
    });
}

#[test]
fn a_connection_without_streams_keeps_its_state() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = Client::connect(server.address);
        for _ in 0..3 {
            assert_eq!(client.get("/hello").content, b"hello");
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(server.counters().accepted, 1);
    });
}

#[test]
fn the_preface_may_arrive_in_pieces() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = Client::connect(server.address);
        client.request(Method::Get, "/hello", BodyLength::Empty);
        let all = std::mem::take(&mut client.out);
        client.stream.write_all(&all[..3]).expect("writes");
        for byte in &all[3..] {
            thread::sleep(Duration::from_micros(200));
            client.stream.write_all(&[*byte]).expect("writes");
        }
        assert_eq!(client.get("/hello").content, b"hello");
    });
}

#[test]
fn bodies_stream_in_both_directions_with_trailers() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = Client::connect(server.address);
        let echo = client.request(Method::Post, "/echo", BodyLength::Unknown);
        for part in ["a", "bc", "def"] {
            let before = client.until(echo, |_| true).content.len();
            client.send(echo, part.as_bytes(), false);
            let answer = client.until(echo, |answer| answer.content.len() == before + part.len());
            assert!(answer.content.ends_with(part.as_bytes()));
        }
        let mut trailers = Fields::new();
        trailers.append("x-sum", "6");
        let ended = client
            .machine
            .send_end(echo, Some(&trailers), &mut client.out);
        ended.expect("the message is open");
        let answer = client.answer(echo);
        let trailers = answer.trailers.expect("they come back");
        assert_eq!(trailers.get_str("x-sum"), Some("6"));
    });
}

#[test]
fn large_bodies_arrive_whole() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = Client::connect(server.address);
        let content: Vec<u8> = (0..BIG).map(|i| (i * 7 % 251) as u8).collect();
        let echo = client.request(Method::Post, "/echo", BodyLength::Known(BIG as u64));
        client.send(echo, &content, true);
        let answer = client.answer(echo);
        assert!(answer.content == content, "{} bytes", answer.content.len());
        assert_eq!(client.get("/big").content.len(), BIG);
    });
}

#[test]
fn a_client_that_reads_nothing_does_not_delay_others() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = Client::connect(server.address);
        client.reads = false;
        let stalled = client.request(Method::Get, "/big", BodyLength::Empty);
        let held = client.until(stalled, |answer| answer.content.len() >= 32 * 1024);
        assert!(!held.is_complete);
        for _ in 0..20 {
            assert_eq!(client.get("/hello").content, b"hello");
        }
        client.reads = true;
        client.read_all();
        assert_eq!(client.answer(stalled).content.len(), BIG);
    });
}

#[test]
fn responses_without_content_keep_their_content_length() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = Client::connect(server.address);
        let stream = client.request(Method::Head, "/hello", BodyLength::Empty);
        let answer = client.answer(stream);
        assert_eq!(answer.status, Some(Status::OK));
        assert_eq!(answer.fields.get_str(Name::ContentLength), Some("5"));
        assert!(answer.content.is_empty());
    });
}

#[test]
fn interim_responses_arrive_before_the_final_one() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = Client::connect(server.address);
        let hinted = client.get("/hints");
        assert_eq!(hinted.informational, [Status::EARLY_HINTS]);
        assert_eq!(hinted.content, b"hinted");
        let mut head = RequestHead::new(Method::Post, "/whole");
        head.set_authority("a");
        head.fields.append(Name::Expect, "100-continue");
        let stream = client.send_head(&head, BodyLength::Known(4));
        client.until(stream, |answer| answer.informational == [Status::CONTINUE]);
        client.send(stream, b"body", true);
        assert_eq!(client.answer(stream).content, b"body");
    });
}

#[test]
fn the_rest_of_an_answered_request_is_discarded() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = Client::connect(server.address);
        let small = client.request(Method::Post, "/hello", BodyLength::Known(10));
        assert_eq!(client.answer(small).content, b"hello");
        client.send(small, b"0123456789", true);
        let short = client.request(Method::Post, "/hello", BodyLength::Known(10));
        assert_eq!(client.answer(short).content, b"hello");
        client.send_short_end(short);
        let large = client.request(Method::Post, "/hello", BodyLength::Unknown);
        assert_eq!(client.answer(large).content, b"hello");
        client.send(large, &vec![0; 70_000], false);
        let answer = client.until(large, |answer| answer.reset.is_some());
        assert_eq!(answer.reset, Some(Code::NO_ERROR));
        assert_eq!(client.get("/hello").content, b"hello");
        assert_eq!(server.counters().accepted, 1);
        assert_eq!(server.counters().refused_for("content-length-mismatch"), 0);
    });
}

#[test]
fn an_upload_that_is_silent_behind_its_response_is_reset() {
    on_each_driver(|io| {
        let options = || {
            limits(|limits| {
                limits.discard_timeout = Duration::from_secs(60);
                limits.discard_silence = Duration::from_secs(1);
            })
        };
        let server = Server::with(io, options);
        let mut client = Client::connect(server.address);
        let stream = client.request(Method::Post, "/hello", BodyLength::Unknown);
        assert_eq!(client.answer(stream).content, b"hello");
        for _ in 0..12 {
            thread::sleep(Duration::from_millis(100));
            client.send(stream, b"x", false);
        }
        assert_eq!(client.answer(stream).reset, None);
        let answer = client.until(stream, |answer| answer.reset.is_some());
        assert_eq!(answer.reset, Some(Code::NO_ERROR));
        assert_eq!(client.get("/hello").content, b"hello");
    });
}

#[test]
fn the_rest_of_a_refused_request_is_discarded() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = Client::connect(server.address);
        let long = format!("/{}", "x".repeat(10_000));
        let large = client.request(Method::Post, &long, BodyLength::Unknown);
        assert_eq!(client.answer(large).status, Some(Status::URI_TOO_LONG));
        client.send(large, &[0; 300_000], true);
        // More than may be open at once.
        for _ in 0..150 {
            let open = client.request(Method::Post, &long, BodyLength::Unknown);
            assert_eq!(client.answer(open).status, Some(Status::URI_TOO_LONG));
        }
        assert_eq!(client.get("/hello").content, b"hello");
        assert_eq!(server.counters().accepted, 1);
    });
}

/// Its client need not end its side: what it would send belongs to a tunnel that does not exist.
#[test]
fn a_refused_connect_ends_with_its_response() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = Client::connect(server.address);
        let mut head = RequestHead::new(Method::Get, "/nowhere");
        head.set_authority("a");
        head.set_protocol(Some("websocket"));
        let stream = client.send_head(&head, BodyLength::Unknown);
        assert_eq!(client.answer(stream).status, Some(Status::NOT_FOUND));
        let answer = client.until(stream, |answer| answer.reset.is_some());
        assert_eq!(answer.reset, Some(Code::NO_ERROR));
        assert_eq!(client.get("/hello").content, b"hello");
    });
}

#[test]
fn a_truncated_response_is_reset() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = Client::connect(server.address);
        let answer = client.get("/cut");
        assert_eq!(answer.reset, Some(Code::INTERNAL_ERROR));
        let answer = client.get("/none");
        assert_eq!(answer.status, Some(Status::INTERNAL_SERVER_ERROR));
        assert_eq!(server.counters().refused_for("no-answer"), 1);
    });
}

/// SETTINGS with SETTINGS_INITIAL_WINDOW_SIZE 0.
const NO_WINDOW: [u8; 15] = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0];

/// A client that reads nothing cannot make every stream fill its share.
#[test]
fn the_queued_bytes_of_all_streams_of_a_connection_are_bounded() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = Client::connect(server.address);
        client.out.extend_from_slice(&NO_WINDOW);
        for _ in 0..90 {
            client.request(Method::Get, "/big", BodyLength::Empty);
        }
        client.flush();
        server.until("all received", |counters| counters.requests == 90);
        thread::sleep(Duration::from_millis(100));
        let given = server.ask(|| BIG_GIVEN.get());
        assert!(
            (128 << 10..1 << 20).contains(&given),
            "{given} bytes are queued"
        );
    });
}

/// The client has no window for the response that the core generates. The stream must not stay
/// open for ever.
#[test]
fn a_response_that_cannot_be_completed_is_reset() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = Client::connect(server.address);
        client.out.extend_from_slice(&NO_WINDOW);
        for _ in 0..150 {
            let answer = client.get("/none");
            assert_eq!(answer.status, Some(Status::INTERNAL_SERVER_ERROR));
            assert_eq!(answer.reset, Some(Code::CANCEL));
        }
        assert_eq!(server.counters().accepted, 1);
    });
}

fn stalls_soon() -> ServeOptions {
    limits(|l| l.send_stall_timeout = Duration::from_millis(200))
}

/// The task of the exchange has to learn of a response that another task has begun.
#[test]
fn a_response_from_another_task_that_the_client_does_not_take_is_reset() {
    on_each_driver(|io| {
        let server = Server::with(io, stalls_soon);
        let mut client = Client::connect(server.address);
        client.out.extend_from_slice(&NO_WINDOW);
        let stream = client.request(Method::Post, "/elsewhere", BodyLength::Known(5));
        client.send(stream, b"hello", true);
        let start = Instant::now();
        let answer = client.until(stream, |answer| answer.reset.is_some());
        assert_eq!(answer.reset, Some(Code::CANCEL));
        assert_eq!(server.counters().send_stalls, 1);
        let took = start.elapsed();
        assert!(took < Duration::from_secs(3), "it took {took:?}");
    });
}

/// Its `SendBody` reports an error instead of waiting for ever.
#[test]
fn a_writer_in_another_task_learns_that_its_stream_was_reset() {
    on_each_driver(|io| {
        let server = Server::with(io, stalls_soon);
        let mut client = Client::connect(server.address);
        client.out.extend_from_slice(&NO_WINDOW);
        let stream = client.request(Method::Get, "/big-elsewhere", BodyLength::Empty);
        let answer = client.until(stream, |answer| answer.reset.is_some());
        assert_eq!(answer.reset, Some(Code::CANCEL));
        server.until_writer_ended();
    });
}

/// The writer does not wait for room, so it does not report that the client takes nothing.
#[test]
fn the_stall_deadline_applies_to_content_that_another_task_queues() {
    on_each_driver(|io| {
        let server = Server::with(io, stalls_soon);
        let mut client = Client::connect(server.address);
        client.out.extend_from_slice(&NO_WINDOW);
        let stream = client.request(Method::Get, "/burst-elsewhere", BodyLength::Empty);
        let answer = client.until(stream, |answer| answer.reset.is_some());
        assert_eq!(answer.reset, Some(Code::CANCEL));
        assert_eq!(server.counters().send_stalls, 1);
    });
}

/// SETTINGS and WINDOW_UPDATE that open all windows of a client to their maximum.
const WIDE_WINDOWS: [u8; 28] = [
    0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0x7f, 0xff, 0xff, 0xff, // each stream's
    0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0, 0, 0, // the connection's
];

/// Frames from a client do not keep its connection open while it reads nothing.
#[test]
fn a_client_that_reads_nothing_is_disconnected_whatever_it_sends() {
    on_each_driver(|io| {
        let server = Server::with(io, stalls_soon);
        let mut client = Client::connect(server.address);
        client.out.extend_from_slice(&WIDE_WINDOWS);
        for _ in 0..2 {
            client.request(Method::Get, "/big", BodyLength::Empty);
        }
        client.flush();
        for _ in 0..SOON.as_millis() / 50 {
            thread::sleep(Duration::from_millis(50));
            client.machine.ping(&mut client.out);
            // Fails after the server has closed.
            let _ = client.stream.write_all(&client.out);
            client.out.clear();
            if server.counters().connections == 0 {
                return;
            }
        }
        panic!("the connection is still there");
    });
}

#[test]
fn a_reset_ends_the_exchange_and_nothing_else() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = Client::connect(server.address);
        let stream = client.request(Method::Get, "/never", BodyLength::Empty);
        client.flush();
        server.until("a request", |counters| counters.requests == 1);
        client.machine.reset(stream, Code::CANCEL, &mut client.out);
        client.flush();
        server.until("cancelled", |counters| counters.cancelled == 1);
        assert_eq!(client.get("/hello").content, b"hello");
    });
}

#[test]
fn a_client_that_closes_cancels_all_exchanges() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = Client::connect(server.address);
        for _ in 0..5 {
            client.request(Method::Get, "/never", BodyLength::Empty);
        }
        client.request(Method::Post, "/whole", BodyLength::Known(5));
        client.flush();
        server.until("six requests", |counters| counters.requests == 6);
        // Unread bytes turn the close into a reset.
        client.stream.peek(&mut [0]).expect("settings");
        Raw::over(client.stream).reset();
        server.until("closed", |counters| counters.connections == 0);
        server.until("cancelled", |counters| counters.cancelled == 6);
        // In HTTP/2 the client's FIN is the end of the connection (rule 16).
        let mut client = Client::connect(server.address);
        client.request(Method::Get, "/never", BodyLength::Empty);
        client.request(Method::Get, "/quiet", BodyLength::Empty);
        client.request(Method::Post, "/whole", BodyLength::Known(5));
        client.flush();
        server.until("nine requests", |counters| counters.requests == 9);
        client.stream.shutdown(Shutdown::Write).expect("shuts");
        server.until("closed", |counters| counters.connections == 0);
        server.until("cancelled", |counters| counters.cancelled == 9);
    });
}

#[test]
fn draining_finishes_running_exchanges() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut idle = Client::connect(server.address);
        idle.get("/hello");
        let mut busy = Client::connect(server.address);
        let slow = busy.request(Method::Get, "/slow", BodyLength::Empty);
        busy.flush();
        server.until("two requests", |counters| counters.requests == 2);
        server.drain(SOON);
        idle.expect_end();
        assert_eq!(idle.go_away, Some(Code::NO_ERROR));
        assert_eq!(busy.answer(slow).content, b"slow");
        busy.expect_end();
        assert_eq!(busy.go_away, Some(Code::NO_ERROR));
        server.join();
    });
}

#[test]
fn exchanges_are_aborted_at_the_deadline() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = Client::connect(server.address);
        client.request(Method::Get, "/never", BodyLength::Empty);
        client.flush();
        server.until("a request", |counters| counters.requests == 1);
        server.drain(Duration::from_millis(50));
        server.join();
        client.expect_end();
    });
}

fn hurried() -> ServeOptions {
    limits(|l| {
        l.head_timeout = Duration::from_millis(80);
        l.idle_timeout = Duration::from_millis(150);
        l.body_rate_grace = Duration::from_millis(80);
    })
}

#[test]
fn slow_heads_idle_connections_and_slow_bodies_time_out() {
    on_each_driver(|io| {
        let server = Server::with(io, hurried);
        let mut dribbling = Client::connect(server.address);
        dribbling.get("/hello");
        dribbling.request(Method::Get, "/hello", BodyLength::Empty);
        dribbling.out.truncate(12);
        dribbling.flush();
        server.until("too slow", |counters| counters.header_timeouts == 1);
        let mut idle = Client::connect(server.address);
        idle.get("/hello");
        idle.expect_end();
        assert_eq!(idle.go_away, Some(Code::NO_ERROR));
        let mut slow = Client::connect(server.address);
        let stream = slow.request(Method::Post, "/whole", BodyLength::Known(10));
        let answer = slow.answer(stream);
        assert_eq!(answer.status, Some(Status::REQUEST_TIMEOUT));
        assert_eq!(server.counters().body_timeouts, 1);
    });
}

/// Clients may send the content of one request after that of another.
#[test]
fn a_body_that_waits_behind_others_of_its_connection_is_not_too_slow() {
    on_each_driver(|io| {
        let server = Server::with(io, || {
            limits(|l| {
                l.body_rate_grace = Duration::from_millis(150);
                l.body_rate_min = 1000;
                l.body_idle_timeout = Duration::from_millis(200);
            })
        });
        let mut client = Client::connect(server.address);
        let first = client.request(Method::Post, "/whole", BodyLength::Unknown);
        let second = client.request(Method::Post, "/whole", BodyLength::Known(3));
        let echo = client.request(Method::Post, "/echo", BodyLength::Known(3));
        for part in 0..10 {
            thread::sleep(Duration::from_millis(50));
            client.send(first, &[b'x'; 400], part == 9);
        }
        assert_eq!(client.answer(first).status, Some(Status::OK));
        client.send(second, b"abc", true);
        assert_eq!(client.answer(second).content, b"abc");
        client.send(echo, b"abc", true);
        assert_eq!(client.answer(echo).content, b"abc");
        assert_eq!(server.counters().body_timeouts, 0);
        // The bytes for one of two streams are not enough for both.
        let trickling = client.request(Method::Post, "/whole", BodyLength::Unknown);
        let waiting = client.request(Method::Post, "/whole", BodyLength::Known(3));
        for _ in 0..10 {
            thread::sleep(Duration::from_millis(50));
            client.send(trickling, &[b'x'; 70], false);
        }
        let answer = client.answer(waiting);
        assert_eq!(answer.status, Some(Status::REQUEST_TIMEOUT));
    });
}

#[test]
fn a_body_that_stalls_after_the_response_head_ends_the_exchange() {
    on_each_driver(|io| {
        let server = Server::with(io, || {
            limits(|l| l.body_idle_timeout = Duration::from_millis(150))
        });
        let mut client = Client::connect(server.address);
        let stream = client.request(Method::Post, "/echo", BodyLength::Known(10));
        assert!(!client.answer(stream).is_complete);
        assert_eq!(server.counters().body_timeouts, 1);
        assert_eq!(client.get("/hello").content, b"hello");
    });
}

#[test]
fn ping_does_not_restart_the_idle_timeout() {
    on_each_driver(|io| {
        let server = Server::with(io, || {
            limits(|l| l.idle_timeout = Duration::from_millis(1_000))
        });
        let mut client = Client::connect(server.address);
        for _ in 0..2 {
            // A stream restarts the timeout, PING does not.
            client.get("/hello");
            for _ in 0..4 {
                thread::sleep(Duration::from_millis(150));
                client.machine.ping(&mut client.out);
                client.flush();
            }
        }
        let begun = Instant::now();
        client.expect_end();
        assert_eq!(client.go_away, Some(Code::NO_ERROR));
        let took = begun.elapsed();
        assert!(took < Duration::from_millis(800), "{took:?}");
        assert_eq!(server.counters().idle_timeouts, 1);
    });
}

/// Both with and without an open stream.
#[test]
fn a_connection_without_settings_acknowledgement_is_closed() {
    on_each_driver(|io| {
        let server = Server::with(io, || {
            limits(|l| l.settings_timeout = Duration::from_millis(150))
        });
        let mut good = Client::connect(server.address);
        assert_eq!(good.get("/hello").content, b"hello");
        for path in [None, Some("/hello"), Some("/never")] {
            let mut client = Client::connect(server.address);
            if let Some(path) = path {
                client.request(Method::Get, path, BodyLength::Empty);
            }
            client.flush();
            client.is_mute = true;
            client.expect_end();
            assert_eq!(client.go_away, Some(Code::SETTINGS_TIMEOUT), "{path:?}");
        }
        assert_eq!(good.get("/hello").content, b"hello");
        let counters = server.counters();
        assert_eq!((counters.settings_timeouts, counters.idle_timeouts), (3, 0));
    });
}

#[test]
fn a_body_without_a_minimum_rate_may_be_slow() {
    on_each_driver(|io| {
        let server = Server::with(io, hurried);
        let mut client = Client::connect(server.address);
        let stream = client.request(Method::Post, "/patient", BodyLength::Known(3));
        client.flush();
        thread::sleep(Duration::from_millis(250));
        client.send(stream, b"abc", true);
        assert_eq!(client.answer(stream).content, b"abc");
        // The exception does not apply to the next stream.
        let stream = client.request(Method::Post, "/whole", BodyLength::Known(3));
        let answer = client.answer(stream);
        assert_eq!(answer.status, Some(Status::REQUEST_TIMEOUT));
    });
}

#[test]
fn a_rapid_reset_closes_the_connection() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = Client::connect(server.address);
        for _ in 0..300 {
            let stream = client.request(Method::Get, "/never", BodyLength::Empty);
            client.machine.reset(stream, Code::CANCEL, &mut client.out);
        }
        client.expect_end();
        assert_eq!(client.go_away, Some(Code::ENHANCE_YOUR_CALM));
        server.until("closed", |counters| counters.connections == 0);
        assert!(server.counters().requests <= 201);
    });
}

#[test]
fn bytes_that_are_not_http2_close_the_connection() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = Client::connect(server.address);
        client.get("/hello");
        client
            .out
            .extend_from_slice(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        client.expect_end();
        assert!(client.go_away.is_some_and(|code| code != Code::NO_ERROR));
    });
}

#[test]
fn a_listener_of_http2_only_answers_other_clients_with_goaway() {
    on_each_driver(|io| {
        let server = Server::with(io, || ServeOptions {
            multiplexed_only: true,
            ..options()
        });
        let mut client = Client::connect(server.address);
        assert_eq!(client.get("/hello").content, b"hello");
        for other in [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "P",
            "PRI * HTTP/2.0\r\n\r\nNO",
        ] {
            let mut client = Client::connect(server.address);
            client.out.clear();
            client.out.extend_from_slice(other.as_bytes());
            if other == "P" {
                client.flush();
                client.out.extend_from_slice(b"OST /");
            }
            client.expect_end();
            assert_eq!(client.go_away, Some(Code::PROTOCOL_ERROR), "{other}");
        }
        assert_eq!(server.counters().refused_for("preface-malformed"), 3);
    });
}

/// RFC 9218, section 8: a response may override the client's priority.
#[test]
fn a_response_with_a_higher_priority_is_sent_before_others() {
    on_each_driver(|io| {
        let server = Server::start(io);
        // The windows of the streams are larger than that of the connection.
        let limits = Limits {
            stream_window_bytes: 1 << 20,
            ..Limits::default()
        };
        let mut client = Client::connect_with(server.address, &limits);
        client.reads = false;
        let first = client.request(Method::Get, "/big", BodyLength::Empty);
        let urgent = client.request(Method::Get, "/urgent", BodyLength::Empty);
        let window = limits.connection_buffer_bytes_max;
        let mut got = 0;
        while got < window {
            client.flush();
            assert!(client.receive(), "the window is for both");
            got = client.until(first, |_| true).content.len();
            got += client.until(urgent, |_| true).content.len();
        }
        let answer = client.until(urgent, |_| true);
        assert_eq!(answer.fields.get_str(Name::Priority), Some("u=0"));
        let share = answer.content.len();
        assert!(share > window * 3 / 8, "{share} bytes of {window}");
    });
}

#[test]
fn a_refusal_is_problem_json_if_the_request_accepts_it() {
    on_each_driver(|io| {
        let server = Server::with(io, hurried);
        for (accept, wanted) in [
            (Some("*/*"), "application/problem+json"),
            (Some("text/html"), "text/plain"),
            (None, "text/plain"),
        ] {
            let mut client = Client::connect(server.address);
            let head = |method, path| {
                let mut head = RequestHead::new(method, path);
                head.set_authority("a");
                if let Some(accept) = accept {
                    head.fields.append(Name::Accept, accept);
                }
                head
            };
            let kind = |answer: &Answer| {
                let kind = answer.fields.get_str(Name::ContentType);
                kind.map(str::to_owned)
            };
            // A refusal of the head, and one of missing content.
            let mut unknown = head(Method::Get, "/hello");
            unknown.fields.append(Name::Expect, "the-moon");
            let stream = client.send_head(&unknown, BodyLength::Empty);
            let answer = client.answer(stream);
            assert_eq!(answer.status.map(Status::code), Some(417));
            assert_eq!(kind(&answer).as_deref(), Some(wanted), "{accept:?}");
            let stream = client.send_head(&head(Method::Post, "/whole"), BodyLength::Known(10));
            let answer = client.answer(stream);
            assert_eq!(answer.status, Some(Status::REQUEST_TIMEOUT));
            assert_eq!(kind(&answer).as_deref(), Some(wanted), "{accept:?}");
        }
    });
}
