//! Instruction counts of the HTTP/2 machine, with their limits: a count above its limit fails.
//!
//! Needs valgrind and `gungraun-runner` in the version of the `gungraun` that is locked. Everything
//! is warmed up first: the tables of both ends hold repeated fields, and buffers have their capacity.
#![allow(missing_docs, unused_qualifications)] // the macros' own items

#[path = "support/allocator.rs"]
mod allocator;

use std::hint::black_box;
use std::time::Duration;

use blitz_proto::h2::hpack::{Decoder, Encoder};
use blitz_proto::h2::{Connection, Event, Received, StreamId};
use blitz_proto::{BodyLength, Limits, Method, Name, RequestHead, ResponseHead};
use gungraun::{
    Callgrind, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};

const NOW: Duration = Duration::from_secs(1);
const BODY: &[u8] = b"Hello, World!";

/// Both ends of a connection after some exchanges, and the next request in flight.
struct Warm {
    client: Connection,
    server: Connection,
    request: RequestHead,
    response: ResponseHead,
    received: Received,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
}

/// The request that load generators send.
fn load_request() -> RequestHead {
    let mut head = RequestHead::new(Method::Get, "/hello");
    head.set_authority("127.0.0.1:8443");
    head.fields.append(Name::UserAgent, "h2load nghttp2/1.64.0");
    head
}

/// The request of a browser: 11 fields besides cookies.
fn browser_request() -> RequestHead {
    let mut head = RequestHead::new(Method::Get, "/articles/2026/how-to-measure?ref=frontpage");
    head.set_authority("www.example.org");
    for (name, value) in [
        (
            "user-agent",
            "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
        ),
        (
            "accept",
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
        ),
        ("accept-language", "en-GB,en;q=0.7,de;q=0.3"),
        ("accept-encoding", "gzip, deflate, br, zstd"),
        ("referer", "https://www.example.org/articles/"),
        (
            "cookie",
            "session=0123456789abcdef0123456789abcdef; theme=dark; consent=necessary%2Cstats",
        ),
        ("upgrade-insecure-requests", "1"),
        ("sec-fetch-dest", "document"),
        ("sec-fetch-mode", "navigate"),
        ("sec-fetch-site", "same-origin"),
        ("priority", "u=0, i"),
    ] {
        head.fields.append(name, value);
    }
    head
}

fn warm(request: RequestHead) -> Box<Warm> {
    let limits = Limits::default();
    let mut response = ResponseHead::default();
    response.fields.append(Name::Server, "blitz");
    response
        .fields
        .append(Name::Date, "Sat, 21 Nov 2026 21:00:00 GMT");
    response
        .fields
        .append(Name::ContentType, "text/plain; charset=utf-8");
    let mut warm = Box::new(Warm {
        client: Connection::client(&limits, true),
        server: Connection::server(&limits),
        request,
        response,
        received: Received::default(),
        to_server: Vec::with_capacity(1 << 16),
        to_client: Vec::with_capacity(1 << 16),
    });
    warm.client.start(&mut warm.to_server);
    warm.server.start(&mut warm.to_client);
    for _ in 0..40 {
        send_request(&mut warm);
        serve(&mut warm);
        receive_response(&mut warm);
    }
    send_request(&mut warm);
    warm
}

/// As `warm`, but request and response differ from the previous ones.
fn warm_and_varied() -> Box<Warm> {
    let mut warm = warm(load_request());
    for round in 0..40 {
        serve(&mut warm);
        receive_response(&mut warm);
        warm.request.set_path(["/one", "/two", "/three"][round % 3]);
        let kind = ["text/plain", "text/html", "text/css"][round % 3];
        warm.response.fields.set(Name::ContentType, kind);
        send_request(&mut warm);
    }
    warm
}

fn send_request(warm: &mut Warm) {
    let sent = warm
        .client
        .send_request(&warm.request, BodyLength::Empty, &mut warm.to_server);
    assert!(sent.is_some());
}

/// The server's part of one exchange.
#[inline(always)]
fn serve(warm: &mut Warm) {
    let mut rest = black_box(&warm.to_server[..]);
    loop {
        let out = &mut warm.to_client;
        let step = warm.server.handle_input(rest, NOW, &mut warm.received, out);
        let step = step.expect("a good client");
        rest = &rest[step.consumed..];
        match step.event {
            Event::NeedMore => break,
            Event::Head { stream, .. } => respond(&mut warm.server, stream, &warm.response, out),
            _ => panic!("only requests"),
        }
    }
    warm.to_server.clear();
}

#[inline(always)]
fn respond(server: &mut Connection, stream: StreamId, head: &ResponseHead, out: &mut Vec<u8>) {
    server.send_head(stream, head, BodyLength::Known(BODY.len() as u64), out);
    let sent = server.send_data(stream, BODY.len(), true, out);
    assert!(sent.is_ok_and(|sent| sent == BODY.len()));
    out.extend_from_slice(BODY);
}

fn receive_response(warm: &mut Warm) {
    let mut rest = &warm.to_client[..];
    loop {
        let out = &mut warm.to_server;
        let step = warm.client.handle_input(rest, NOW, &mut warm.received, out);
        let step = step.expect("a good server");
        rest = &rest[step.consumed..];
        match step.event {
            Event::NeedMore => break,
            Event::Data { stream, range, .. } => warm.client.release(stream, range.len(), out),
            _ => {}
        }
    }
    warm.to_client.clear();
}

fn limit(instructions: u64) -> LibraryBenchmarkConfig {
    let mut callgrind = Callgrind::default();
    callgrind.hard_limits([(EventKind::Ir, instructions)]);
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(callgrind);
    config
}

#[library_benchmark(config = limit(1_200))]
#[bench::warm(warm(load_request()))]
fn small_exchange(mut warm: Box<Warm>) -> Box<Warm> {
    serve(&mut warm);
    warm
}

#[library_benchmark(config = limit(3_100))]
#[bench::warm(warm_and_varied())]
fn varied_exchange(mut warm: Box<Warm>) -> Box<Warm> {
    serve(&mut warm);
    warm
}

// The cookie, which is sent as a literal each time, takes a fifth of the instructions.
#[library_benchmark(config = limit(5_600))]
#[bench::warm(warm(browser_request()))]
fn browser_exchange(mut warm: Box<Warm>) -> Box<Warm> {
    serve(&mut warm);
    warm
}

/// A response that was not parsed yet.
fn answered() -> Box<Warm> {
    let mut warm = warm(load_request());
    serve(&mut warm);
    warm
}

// As in a gateway: sends a request and receives the response.
#[library_benchmark(config = limit(1_750))]
#[bench::warm(answered())]
fn client_exchange(mut warm: Box<Warm>) -> Box<Warm> {
    send_request(&mut warm);
    receive_response(&mut warm);
    warm
}

/// 1 KiB of text as it comes in a field.
fn huffman() -> (Decoder, Vec<u8>) {
    allocator::settle();
    let text = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0".repeat(15);
    let mut block = Vec::new();
    Encoder::new(4096).encode(b"user-agent", &text.as_bytes()[..1024], true, &mut block);
    (Decoder::new(4096), block)
}

#[library_benchmark(config = limit(17_000))]
#[bench::kib(huffman())]
fn huffman_decode(mut all: (Decoder, Vec<u8>)) -> (Decoder, Vec<u8>) {
    let mut len = 0;
    let decoded = all
        .0
        .decode(black_box(&all.1), |_, value, _| len += value.len());
    assert!(decoded.is_ok() && len == 1024);
    all
}

library_benchmark_group!(
    name = exchanges,
    benchmarks = [
        small_exchange,
        varied_exchange,
        browser_exchange,
        client_exchange
    ]
);
library_benchmark_group!(name = primitives, benchmarks = [huffman_decode]);
main!(library_benchmark_groups = exchanges, primitives);
