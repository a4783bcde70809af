//! A request on a warm connection reuses the memory of earlier requests and allocates nothing.

use std::alloc::System;
use std::io::{Read, Write};
use std::net::TcpStream;

use blitz_http::{BodyLength, Method, ServeOptions};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

use crate::h2_client::Client;
use crate::support::{IS_LATER, Server, on_each_driver, options};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Requests per round. An allocation per request is counted at least as often.
const REQUESTS: usize = 1_000;

const REQUEST: &[u8] = b"GET /hello HTTP/1.1\r\nHost: a\r\nAccept: */*\r\nUser-Agent: test\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nServer: test\r\n\r\nhello";

#[test]
fn requests_on_a_warm_connection_allocate_nothing() {
    if !blitz_testing::is_alone() {
        return;
    }
    on_each_driver(|io| {
        let server = Server::with(io, || ServeOptions {
            server: Some("test".into()),
            ..options()
        });
        let mut client = TcpStream::connect(server.address).unwrap();
        // Tables sometimes grow in one round; an allocation per request appears in every round.
        let rounds = [(); 4].map(|()| allocations_of_a_round(&mut client));
        assert!(rounds.contains(&0), "{rounds:?}");
    });
}

fn allocations_of_a_round(client: &mut TcpStream) -> usize {
    let mut answer = [0; ANSWER.len()];
    let before = allocations();
    for _ in 0..REQUESTS {
        client.write_all(REQUEST).unwrap();
        client.read_exact(&mut answer).unwrap();
        assert!(answer == ANSWER);
    }
    allocations() - before
}

/// Allocations that the process has made so far.
pub(crate) fn allocations() -> usize {
    let stats = ALLOCATOR.stats();
    stats.allocations + stats.reallocations
}

/// Bytes of memory that the process has in use.
fn bytes_in_use() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// Content of frames of a few bytes takes little more memory than its bytes (rule 3, rule 4).
#[test]
fn small_frames_that_wait_for_their_reader_are_joined() {
    const FRAMES: usize = 15_000;
    if !blitz_testing::is_alone() {
        return;
    }
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = Client::connect(server.address);
        client.get("/hello");
        let stream = client.request(Method::Post, "/later", BodyLength::Unknown);
        let id = stream.get().to_be_bytes();
        let frame = |flags| [&[0, 0, 4, 0, flags][..], &id, b"1234"].concat();
        let frames = frame(0).repeat(FRAMES);
        let before = bytes_in_use();
        client.flush();
        client.stream.write_all(&frames).unwrap();
        // The frames before this request are processed.
        client.get("/hello");
        let more = bytes_in_use() - before;
        assert!(
            more < 6 * 4 * FRAMES,
            "{more} bytes hold {} bytes",
            4 * FRAMES
        );
        server.ask(|| IS_LATER.set(true));
        client.stream.write_all(&frame(1)).unwrap();
        let length = (4 * FRAMES + 4).to_string();
        assert_eq!(client.answer(stream).content, length.as_bytes());
    });
}
