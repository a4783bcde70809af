//! Instruction counts of the HTTP/1 machines, with their limits: a count above its limit fails.
//!
//! A limit is at least 3 % above the highest count that was seen: compilers, and the positions of functions in a
//! binary, change a count by so much. Valgrind always emulates the same processor.
//!
//! Needs valgrind and `gungraun-runner` in the version of the `gungraun` that is locked.
//! Everything is warmed up first, to measure the steady state of a server: heads and buffers have
//! their capacity, and the scanners have detected the processor.
#![allow(missing_docs, unused_qualifications)] // the macros' own items

#[path = "support/allocator.rs"]
mod allocator;

use std::hint::black_box;

use blitz_proto::h1::{Client, Event, Server, Step};
use blitz_proto::{BodyLength, Fields, Limits, Name, RequestHead, ResponseHead};
use gungraun::{
    Callgrind, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};

/// The request of a browser: 700 bytes, 12 fields.
const BROWSER_HEAD: &[u8] = b"GET /articles/2026/how-to-measure?ref=frontpage HTTP/1.1\r\n\
Host: www.example.org\r\n\
User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
Accept-Language: en-GB,en;q=0.7,de;q=0.3\r\n\
Accept-Encoding: gzip, deflate, br, zstd\r\n\
Referer: https://www.example.org/articles/\r\n\
Connection: keep-alive\r\n\
Cookie: session=0123456789abcdef0123456789abcdef; theme=dark; consent=necessary%2Cstats; visitor=1f0c7d6e-5a43-4b0b-9d0f-2d6a1c9e8b75; lang=en-GB; seen=3; cart=2b7e151628aed2a6abf715890123456789a\r\n\
Upgrade-Insecure-Requests: 1\r\n\
Sec-Fetch-Dest: document\r\n\
Sec-Fetch-Mode: navigate\r\n\
Sec-Fetch-Site: same-origin\r\n\
\r\n";

/// A server after one exchange, with warm buffers.
struct Warm {
    server: Server,
    head: RequestHead,
    trailers: Fields,
}

fn warm_server() -> Warm {
    let mut warm = Warm {
        server: Server::new(&Limits::default()),
        head: RequestHead::default(),
        trailers: Fields::new(),
    };
    let mut out = Vec::with_capacity(1024);
    receive(&mut warm, &[BROWSER_HEAD]);
    answer(&mut warm.server, &mut out);
    let bytes: Vec<&[u8]> = BROWSER_HEAD.chunks(1).collect();
    receive(&mut warm, &bytes);
    answer(&mut warm.server, &mut out);
    warm
}

fn receive(warm: &mut Warm, pieces: &[&[u8]]) {
    for piece in pieces {
        let step = warm
            .server
            .handle_input(piece, &mut warm.head, &mut warm.trailers)
            .expect("the head is good");
        if let Event::Head(length) = step.event {
            assert!(length == BodyLength::Empty && step.consumed == piece.len());
        }
    }
    let end = warm
        .server
        .handle_input(&[], &mut warm.head, &mut warm.trailers);
    assert!(end.is_ok_and(|step| step.event == Event::End));
}

fn answer(server: &mut Server, out: &mut Vec<u8>) {
    let response = ResponseHead::default();
    server.send_head(&response, BodyLength::Empty, out);
    server
        .send_end(None, out)
        .expect("an empty response is complete");
}

fn limit(instructions: u64) -> LibraryBenchmarkConfig {
    let mut callgrind = Callgrind::default();
    callgrind.hard_limits([(EventKind::Ir, instructions)]);
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(callgrind);
    config
}

/// A server at the start of a connection, with no memory of its own yet.
fn fresh_server() -> Warm {
    allocator::settle();
    Warm {
        server: Server::new(&Limits::default()),
        head: RequestHead::default(),
        trailers: Fields::new(),
    }
}

/// The same, in a process that has freed blocks of many sizes.
fn fresh_server_after_frees() -> Warm {
    let (mut kept, mut freed, mut random) = (Vec::new(), Vec::new(), 2_u64);
    for _ in 0..60 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let block = black_box(Vec::<u8>::with_capacity(
            (random >> 33) as usize % 1_500 + 1,
        ));
        match (random >> 20) & 3 {
            0 => kept.push(block),
            _ => freed.push(block),
        }
    }
    drop(freed);
    kept.leak();
    fresh_server()
}

#[library_benchmark]
#[bench::warm(config = limit(2_460), args = (Box::new(warm_server())))]
#[bench::fresh(config = limit(4_800), args = (Box::new(fresh_server())))]
#[bench::fresh_after_frees(config = limit(4_800), args = (Box::new(fresh_server_after_frees())))]
fn browser_head_whole(mut serving: Box<Warm>) -> Box<Warm> {
    let Warm {
        server,
        head,
        trailers,
    } = &mut *serving;
    let step = server.handle_input(black_box(BROWSER_HEAD), head, trailers);
    assert!(matches!(
        step,
        Ok(Step {
            event: Event::Head(_),
            ..
        })
    ));
    serving
}

// The loop below takes three instructions per byte, 2,100 in all. Storing a byte under a limit takes at
// least nine, six thousand in all; parsing each line takes the others.
#[library_benchmark]
#[bench::warm(config = limit(13_100), args = (Box::new(warm_server())))]
#[bench::fresh(config = limit(16_700), args = (Box::new(fresh_server())))]
fn browser_head_byte_by_byte(mut serving: Box<Warm>) -> Box<Warm> {
    let Warm {
        server,
        head,
        trailers,
    } = &mut *serving;
    for byte in black_box(BROWSER_HEAD) {
        let step = server.handle_input(std::slice::from_ref(byte), head, trailers);
        if matches!(
            step,
            Ok(Step {
                event: Event::Head(_),
                ..
            })
        ) {
            return serving;
        }
    }
    panic!("the head never ended");
}

/// A request without its response yet, and the response of a small service.
fn warm_response() -> Box<(Warm, ResponseHead, Vec<u8>)> {
    let mut warm = warm_server();
    receive(&mut warm, &[BROWSER_HEAD]);
    let mut head = ResponseHead::default();
    head.fields.append(Name::Server, "blitz");
    head.fields
        .append(Name::Date, "Sat, 21 Nov 2026 21:00:00 GMT");
    head.fields
        .append(Name::ContentType, "text/plain; charset=utf-8");
    Box::new((warm, head, Vec::with_capacity(4096)))
}

#[library_benchmark(config = limit(450))]
#[bench::warm(warm_response())]
fn response_head(
    mut all: Box<(Warm, ResponseHead, Vec<u8>)>,
) -> Box<(Warm, ResponseHead, Vec<u8>)> {
    let (warm, head, out) = &mut *all;
    warm.server
        .send_head(black_box(head), BodyLength::Known(13), out);
    all
}

/// A request that will be forwarded unchanged.
fn warm_request() -> Box<(Client, Warm, Vec<u8>)> {
    let mut warm = warm_server();
    receive(&mut warm, &[BROWSER_HEAD]);
    Box::new((
        Client::new(&Limits::default()),
        warm,
        Vec::with_capacity(4096),
    ))
}

#[library_benchmark(config = limit(1_450))]
#[bench::warm(warm_request())]
fn request_head(mut all: Box<(Client, Warm, Vec<u8>)>) -> Box<(Client, Warm, Vec<u8>)> {
    let (client, warm, out) = &mut *all;
    client.send_request(black_box(&warm.head), BodyLength::Empty, out);
    all
}

/// A chunked POST of 16 chunks of 1 KiB.
fn chunked_request() -> Box<(Warm, Vec<u8>)> {
    let mut warm = warm_server();
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let step = warm
        .server
        .handle_input(head, &mut warm.head, &mut warm.trailers);
    assert!(step.is_ok_and(|step| step.event == Event::Head(BodyLength::Unknown)));
    let mut content = Vec::new();
    for _ in 0..16 {
        content.extend_from_slice(b"400\r\n");
        content.extend_from_slice(&[b'x'; 1024]);
        content.extend_from_slice(b"\r\n");
    }
    content.extend_from_slice(b"0\r\n\r\n");
    Box::new((warm, content))
}

#[library_benchmark(config = limit(7_100))]
#[bench::sixteen(chunked_request())]
fn chunked_content(mut all: Box<(Warm, Vec<u8>)>) -> Box<(Warm, Vec<u8>)> {
    let (
        Warm {
            server,
            head,
            trailers,
        },
        content,
    ) = &mut *all;
    let mut rest = black_box(&content[..]);
    loop {
        let step = server
            .handle_input(rest, head, trailers)
            .expect("the content is good");
        rest = &rest[step.consumed..];
        if step.event == Event::End {
            return all;
        }
    }
}

library_benchmark_group!(
    name = heads,
    benchmarks = [
        browser_head_whole,
        browser_head_byte_by_byte,
        response_head,
        request_head
    ]
);
library_benchmark_group!(name = content, benchmarks = [chunked_content]);
main!(library_benchmark_groups = heads, content);

// The limits hold for a head of this length.
const _: () = assert!(BROWSER_HEAD.len() >= 690 && BROWSER_HEAD.len() <= 710);
