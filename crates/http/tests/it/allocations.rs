//! A request on a warm connection reuses the memory of earlier requests and allocates nothing.

use std::alloc::System;
use std::io::{Read, Write};
use std::net::TcpStream;

use blitz_http::ServeOptions;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

use crate::support::{Server, on_each_driver, options};

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
    let before = ALLOCATOR.stats();
    for _ in 0..REQUESTS {
        client.write_all(REQUEST).unwrap();
        client.read_exact(&mut answer).unwrap();
        assert!(answer == ANSWER);
    }
    let after = ALLOCATOR.stats();
    (after.allocations - before.allocations) + (after.reallocations - before.reallocations)
}
