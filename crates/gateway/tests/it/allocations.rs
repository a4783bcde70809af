//! A forwarded request reuses the memory of earlier ones.

use std::alloc::System;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use blitz_gateway::access_log::{AccessLog, LogSettings, LogSink};
use blitz_gateway::{Options, TraceSettings};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

use crate::support::{Proxy, Upstream};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Requests per round. An allocation of each request is counted at least as often.
const REQUESTS: usize = 200;

/// A request, its response and, for peers that must not allocate, the end of both.
struct Case {
    request: &'static str,
    request_end: &'static str,
    response: &'static str,
    response_end: &'static str,
}

const CASES: &[Case] = &[
    Case {
        request: "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        request_end: "\r\n\r\n",
        response: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfixed",
        response_end: "fixed",
    },
    Case {
        request: "GET /a?q=1 HTTP/1.1\r\nHost: a\r\nConnection: x-hop\r\nX-Hop: 1\r\n\
                  TE: trailers\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n",
        request_end: "\r\n\r\n",
        response: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfixed\r\n0\r\n\r\n",
        response_end: "\r\n0\r\n\r\n",
    },
    Case {
        request: "PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
        request_end: "hello",
        response: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfixed",
        response_end: "fixed",
    },
    Case {
        request: "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                  5\r\nhello\r\n0\r\n\r\n",
        request_end: "\r\n0\r\n\r\n",
        response: "HTTP/1.1 204 No Content\r\n\r\n",
        response_end: "\r\n\r\n",
    },
];

/// Reads up to this end, without allocating; `false` if the other side closes first.
fn read_up_to(stream: &mut TcpStream, end: &str) -> bool {
    let mut buffer = [0; 4096];
    let mut length = 0;
    while !buffer[..length].ends_with(end.as_bytes()) {
        match stream.read(&mut buffer[length..]) {
            Ok(0) | Err(_) => return false,
            Ok(more) => length += more,
        }
    }
    true
}

/// An upstream that responds without allocating.
fn upstream(case: &'static Case) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            while read_up_to(&mut stream, case.request_end) {
                stream.write_all(case.response.as_bytes()).unwrap();
            }
        }
    });
    address
}

/// The fewest allocations in some rounds of [`REQUESTS`]. In some rounds tables grow; the others have
/// only the allocations of requests.
fn fewest_allocations(io: blitz_http::IoChoice, case: &'static Case) -> usize {
    let target = format!("http://{}/", upstream(case));
    let log = AccessLog::new(LogSettings::default(), Arc::new(Nowhere));
    let options = Options {
        access_log: Some(Arc::new(log)),
        // One half of the requests is recorded.
        tracing: Some(TraceSettings::new(0.5, false)),
        ..Options::default()
    };
    let proxy = Proxy::with(io, &[&target], options);
    let mut client = TcpStream::connect(proxy.address).unwrap();
    client
        .set_read_timeout(Some(blitz_testing::IO_TIMEOUT))
        .unwrap();
    let mut round = || {
        let before = ALLOCATOR.stats();
        for _ in 0..REQUESTS {
            client.write_all(case.request.as_bytes()).unwrap();
            assert!(read_up_to(&mut client, case.response_end));
        }
        let after = ALLOCATOR.stats();
        (after.allocations - before.allocations) + (after.reallocations - before.reallocations)
    };
    (0..8).map(|_| round()).min().unwrap()
}

/// Takes the lines of a log, as a thread that writes them does.
struct Nowhere;

impl LogSink for Nowhere {
    fn write(&self, mut lines: Vec<u8>) -> Vec<u8> {
        lines.clear();
        lines
    }
}

/// The preface, SETTINGS with closed windows, and a GET request.
const CLOSED_WINDOWS: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\
    \0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0\
    \0\0\x06\x01\x05\0\0\0\x01\x82\x86\x84\x41\x01a";

fn bytes_in_use() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

scenarios! {
    fn small_chunks_that_wait_for_a_window_are_joined(io) {
        if !blitz_testing::is_alone() {
            return;
        }
        let chunks = b"1\r\ny\r\n".repeat(40_000);
        let upstream = Upstream::scripted(move |_, peer| {
            peer.request();
            peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            peer.send(&chunks);
            peer.is_closed_by_peer();
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let before = bytes_in_use();
        let mut client = TcpStream::connect(proxy.address).unwrap();
        client.write_all(CLOSED_WINDOWS).unwrap();
        crate::support::eventually("the response begins", || upstream.heads().len() == 1);
        thread::sleep(Duration::from_millis(300));
        let more = bytes_in_use() - before;
        assert!(more < 256 * 1024, "{more} bytes are in use");
    }

    fn a_proxied_request_allocates_nothing_in_steady_state(io) {
        if !blitz_testing::is_alone() {
            return;
        }
        for case in CASES {
            assert_eq!(fewest_allocations(io, case), 0, "{}", case.request);
        }
    }
}
