//! At the limit of sockets, connections that have been idle longest are closed in favour of new ones.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use blitz_http::{
    Address, BodyLength, ClientOptions, Config, IoChoice, Listener, Method, Pool, Status, TlsSlot,
};
use blitz_proto::h2::Code;
use blitz_testing::Raw;

use crate::h2_client::Client;
use crate::support::{Server, any_port, config, on_each_driver, options, scripted};
use crate::tls_server::with_tls;
use crate::tls_support::{Authority, get};

/// The limit of sockets in these tests.
const SOCKETS_MAX: usize = 8;

/// Half of the new connections must have their response within this time.
const PROMPT: Duration = Duration::from_millis(100);

/// Each must have it within this time, also on a busy machine.
const LATE: Duration = Duration::from_secs(2);

const HELLO: &str = "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n";
const BEGUN: &str = "POST /whole HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nabc";

fn limited(io: IoChoice) -> Config {
    Config {
        sockets_max: SOCKETS_MAX,
        ..config(io)
    }
}

fn server(io: IoChoice) -> Server {
    Server::with_config(&limited(io), options)
}

/// Times are compared in milliseconds.
fn pause() {
    thread::sleep(Duration::from_millis(5));
}

fn hello(client: &mut Raw) {
    client.send(HELLO);
    client.head();
    client.expect("hello");
}

/// Connections that have had a request, the one that is idle longest first.
fn idle_clients(server: &Server, count: usize) -> Vec<Raw> {
    let each = (0..count).map(|_| {
        let mut client = server.connect();
        hello(&mut client);
        pause();
        client
    });
    each.collect()
}

/// A new connection with its first response, which must come promptly.
fn newcomer(server: &Server) -> Raw {
    let start = Instant::now();
    let mut client = server.connect();
    hello(&mut client);
    assert!(start.elapsed() < LATE, "{:?}", start.elapsed());
    client
}

#[test]
fn a_new_connection_replaces_the_one_that_was_idle_longest() {
    on_each_driver(|io| {
        let server = server(io);
        let mut clients = idle_clients(&server, SOCKETS_MAX);
        // The first is no longer the one that has been idle longest.
        hello(&mut clients[0]);
        for oldest in 1..4 {
            clients.push(newcomer(&server));
            clients[oldest].expect_end();
        }
        clients.drain(1..4);
        clients.iter_mut().for_each(hello);
        let counters = server.counters();
        assert_eq!((counters.evicted, counters.accepted), (3, 11));
        assert_eq!(counters.connections, SOCKETS_MAX as u64);
    });
}

#[test]
fn connections_without_a_request_are_replaced_too() {
    on_each_driver(|io| {
        let server = server(io);
        let mut silent: Vec<Raw> = (0..SOCKETS_MAX).map(|_| server.connect()).collect();
        server.until("all accepted", |counters| counters.accepted == 8);
        pause();
        let newcomers: Vec<(Duration, Raw)> = (0..50)
            .map(|_| {
                let start = Instant::now();
                let client = newcomer(&server);
                (start.elapsed(), client)
            })
            .collect();
        let prompt = newcomers.iter().filter(|(time, _)| *time < PROMPT).count();
        assert!(prompt >= 25, "{prompt} of 50 were prompt");
        silent.iter_mut().for_each(Raw::expect_end);
    });
}

#[test]
fn connections_that_owe_only_content_of_an_answered_request_are_replaced_too() {
    on_each_driver(|io| {
        let server = server(io);
        let owing: Vec<Raw> = (0..SOCKETS_MAX)
            .map(|_| {
                let mut client = server.connect();
                client.send("POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n");
                client.head();
                client.expect("hello");
                client
            })
            .collect();
        let _newcomers: Vec<Raw> = (0..20).map(|_| newcomer(&server)).collect();
        assert!(
            server.counters().evicted >= 8,
            "{}",
            server.counters().evicted
        );
        drop(owing);
    });
}

#[test]
fn running_requests_are_never_evicted() {
    on_each_driver(|io| {
        let server = server(io);
        let mut running: Vec<Raw> = (0..SOCKETS_MAX / 2)
            .map(|_| {
                let mut client = server.connect();
                client.send(BEGUN);
                client
            })
            .collect();
        server.until("they run", |counters| counters.requests == 4);
        let _idle = idle_clients(&server, SOCKETS_MAX / 2);
        let _newcomers: Vec<Raw> = (0..20).map(|_| newcomer(&server)).collect();
        for client in &mut running {
            client.send("d");
            client.head();
            client.expect("abcd");
        }
    });
}

#[test]
fn new_connections_wait_while_all_others_have_a_running_request() {
    on_each_driver(|io| {
        let server = server(io);
        let mut running: Vec<Raw> = (0..SOCKETS_MAX).map(|_| server.connect()).collect();
        for client in &mut running {
            client.send(BEGUN);
        }
        server.until("they run", |counters| counters.requests == 8);
        let mut waiting = server.connect();
        waiting.send(HELLO);
        thread::sleep(Duration::from_millis(100));
        assert_eq!(server.counters().accepted, 8);
        let start = Instant::now();
        running[3].send("d");
        running[3].head();
        running[3].expect("abcd");
        waiting.head();
        waiting.expect("hello");
        assert!(start.elapsed() < LATE, "{:?}", start.elapsed());
        running[3].expect_end();
        running[4].send("d");
        running[4].head();
    });
}

/// The time counts since the last complete request, however many bytes of a head arrive.
#[test]
fn an_incomplete_head_does_not_protect_a_connection() {
    on_each_driver(|io| {
        let server = server(io);
        let mut slow: Vec<Raw> = (0..SOCKETS_MAX - 1)
            .map(|n| {
                let mut client = server.connect();
                // Also within the bytes that identify the protocol.
                client.send(&HELLO[..n + 1]);
                client
            })
            .collect();
        server.until("all accepted", |counters| counters.accepted == 7);
        pause();
        let mut idle = idle_clients(&server, 1);
        for client in &mut slow {
            client.send("G");
        }
        pause();
        for _ in 0..SOCKETS_MAX - 1 {
            let client = newcomer(&server);
            pause();
            slow.push(client);
        }
        for client in &mut slow[..SOCKETS_MAX - 1] {
            client.expect_end_or_reset();
        }
        assert_eq!(server.counters().evicted, SOCKETS_MAX as u64 - 1);
        assert_eq!(server.counters().heads_evicted, SOCKETS_MAX as u64 - 1);
        hello(&mut idle[0]);
    });
}

#[test]
fn the_next_head_counts_from_the_previous_request() {
    on_each_driver(|io| {
        let server = server(io);
        let mut silent = server.connect();
        server.until("accepted", |counters| counters.accepted == 1);
        pause();
        let mut pipelining = server.connect();
        pipelining.send(format!("{HELLO}GET /he"));
        pipelining.head();
        pipelining.expect("hello");
        pause();
        let mut others = idle_clients(&server, SOCKETS_MAX - 2);
        others.push(newcomer(&server));
        silent.expect_end();
        pipelining.send(&HELLO["GET /he".len()..]);
        pipelining.head();
        pipelining.expect("hello");
    });
}

#[test]
fn http2_connections_without_streams_are_told_to_go_away() {
    on_each_driver(|io| {
        let server = server(io);
        let mut idle = Client::connect(server.address);
        idle.get("/hello");
        pause();
        let mut busy = Client::connect(server.address);
        let stream = busy.request(Method::Post, "/whole", BodyLength::Known(4));
        busy.send(stream, b"abc", false);
        server.until("it runs", |counters| counters.requests == 2);
        pause();
        let _others = idle_clients(&server, SOCKETS_MAX - 2);
        // PING does not renew the time (rule 18).
        ping(&idle);
        pause();
        let start = Instant::now();
        let mut new = Client::connect(server.address);
        assert_eq!(new.get("/hello").status, Some(Status::OK));
        assert!(start.elapsed() < LATE, "{:?}", start.elapsed());
        idle.expect_end();
        assert_eq!(idle.go_away, Some(Code::NO_ERROR));
        busy.send(stream, b"d", true);
        assert_eq!(busy.answer(stream).content, b"abcd");
    });
}

#[test]
fn an_incomplete_header_section_does_not_protect_a_connection() {
    on_each_driver(|io| {
        let server = server(io);
        let mut slow = Client::connect(server.address);
        slow.get("/hello");
        // HEADERS without END_HEADERS.
        let begun = [0, 0, 1, 1, 1, 0, 0, 0, 3, 0x82];
        (&slow.stream).write_all(&begun).expect("sends");
        pause();
        let mut idle = idle_clients(&server, SOCKETS_MAX - 1);
        // CONTINUATION without END_HEADERS.
        let more = [0, 0, 1, 9, 0, 0, 0, 0, 3, 0x84];
        (&slow.stream).write_all(&more).expect("sends");
        pause();
        let _new = newcomer(&server);
        slow.expect_end();
        hello(&mut idle[0]);
    });
}

fn ping(client: &Client) {
    let frame = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    (&client.stream).write_all(&frame).expect("sends");
}

#[test]
fn idle_connections_over_tls_are_closed_with_close_notify() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let slot = TlsSlot::new(authority.server());
        let server = Server::with_config(&limited(io), move || with_tls(&slot));
        let outside = authority.client();
        let mut idle = outside.connect(server.address);
        get(&mut idle, "/hello");
        pause();
        // Silent connections are in the handshake.
        let _silent: Vec<TcpStream> = (1..SOCKETS_MAX)
            .map(|_| TcpStream::connect(server.address).expect("connects"))
            .collect();
        server.until("all accepted", |counters| counters.accepted == 8);
        pause();
        let start = Instant::now();
        let (head, _new) = outside.get(server.address, "/hello");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(start.elapsed() < LATE, "{:?}", start.elapsed());
        // An end without close_notify would be an error.
        assert_eq!(idle.read(&mut [0; 64]).expect("close_notify"), 0);
    });
}

#[test]
fn idle_upstream_connections_make_room_for_clients() {
    on_each_driver(|io| {
        let (upstream, server) = scripted(|listener| {
            let mut peers: Vec<Raw> = (0..2).map(|_| Raw::accept(&listener)).collect();
            for peer in &mut peers {
                peer.head();
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            }
            peers[0].expect_end();
            peers[1].expect_end();
        });
        let limit = Config {
            sockets_max: 2,
            ..config(io)
        };
        let done = blitz_http::block_on(&limit, async {
            let pool = Pool::new(ClientOptions::default());
            let upstream = pool.upstream(&upstream);
            let connections = [
                upstream.checkout().await.expect("connects"),
                upstream.checkout().await.expect("connects"),
            ];
            for connection in connections {
                let request = crate::client_exchange::get("/x");
                let (_, response) = connection.request(&request, BodyLength::Empty);
                let mut response = response.response().await.expect("responds");
                response.body.read_to_end(16).await.expect("content");
            }
            blitz_http::sleep(Duration::from_millis(20)).await;
            assert_eq!(pool.idle(), 2);
            let listener = Listener::bind(&any_port()).expect("a port is free");
            let Address::Tcp(address) = *listener.local() else {
                unreachable!("it is TCP")
            };
            let _client = TcpStream::connect(address).expect("connects");
            let accepted = blitz_http::timeout(LATE, listener.accept()).await;
            assert!(accepted.is_ok(), "no room");
            assert_eq!(pool.idle(), 1);
        });
        done.expect("the driver opens");
        server.join().expect("the script ran");
    });
}
