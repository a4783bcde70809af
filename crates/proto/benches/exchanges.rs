//! Instruction counts of whole exchanges on warm connections, with their limits: a small request
//! with its response in a service, and one that a gateway forwards.
//!
//! Needs valgrind and `gungraun-runner` in the version of the `gungraun` that is locked.
#![allow(missing_docs, unused_qualifications)] // the macros' own items

use std::hint::black_box;

use blitz_proto::h1::{Client, Event, Server};
use blitz_proto::{BodyLength, Fields, Limits, Name, RequestHead, ResponseHead};
use gungraun::{
    Callgrind, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};

/// The request of a load generator.
const SMALL_REQUEST: &[u8] = b"GET /hello HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";

/// The response of an ordinary service: six fields.
const UPSTREAM_RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\n\
Server: nginx/1.27.3\r\n\
Date: Sat, 21 Nov 2026 21:00:00 GMT\r\n\
Content-Type: application/json; charset=utf-8\r\n\
Content-Length: 13\r\n\
Cache-Control: max-age=0, private, must-revalidate\r\n\
Connection: keep-alive\r\n\
\r\n";

/// The server's end, with its buffers.
struct Serving {
    server: Server,
    request: RequestHead,
    trailers: Fields,
    response: ResponseHead,
    out: Vec<u8>,
}

/// A connection after two exchanges, so that all memory has its final size.
fn serving() -> Box<Serving> {
    let mut response = ResponseHead::default();
    response.fields.append(Name::ContentType, "text/plain");
    let mut serving = Serving {
        server: Server::new(&Limits::default()),
        request: RequestHead::default(),
        trailers: Fields::new(),
        response,
        out: Vec::with_capacity(4096),
    };
    for _ in 0..2 {
        receive(&mut serving);
        answer(&mut serving);
        serving.out.clear();
    }
    Box::new(serving)
}

fn received() -> Box<Serving> {
    let mut serving = serving();
    receive(&mut serving);
    serving
}

#[inline]
fn receive(serving: &mut Serving) {
    let Serving {
        server,
        request,
        trailers,
        ..
    } = serving;
    let step = server.handle_input(black_box(SMALL_REQUEST), request, trailers);
    assert!(step.is_ok_and(|step| step.event == Event::Head(BodyLength::Empty)));
    let end = server.handle_input(&[], request, trailers);
    assert!(end.is_ok_and(|step| step.event == Event::End));
}

#[inline]
fn answer(serving: &mut Serving) {
    let Serving {
        server,
        response,
        out,
        ..
    } = serving;
    server.send_head(black_box(response), BodyLength::Known(13), out);
    assert!(server.sends_body());
    assert!(server.send_data_prefix(13, out).is_ok());
    assert!(!server.sends_body() && server.send_end(None, out).is_ok());
}

fn limit(instructions: u64) -> LibraryBenchmarkConfig {
    let mut callgrind = Callgrind::default();
    callgrind.hard_limits([(EventKind::Ir, instructions)]);
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(callgrind);
    config
}

#[library_benchmark(config = limit(1_160))]
#[bench::warm(serving())]
fn small_exchange(mut serving: Box<Serving>) -> Box<Serving> {
    receive(&mut serving);
    answer(&mut serving);
    serving
}

#[library_benchmark]
#[bench::warm(serving())]
fn small_request(mut serving: Box<Serving>) -> Box<Serving> {
    receive(&mut serving);
    serving
}

#[library_benchmark]
#[bench::warm(received())]
fn small_response(mut serving: Box<Serving>) -> Box<Serving> {
    answer(&mut serving);
    serving
}

/// The client's end, with its buffers.
struct Asking {
    client: Client,
    request: RequestHead,
    response: ResponseHead,
    trailers: Fields,
    out: Vec<u8>,
}

/// The connection to an upstream after two exchanges.
fn asking() -> Box<Asking> {
    let Serving {
        mut request, out, ..
    } = *received();
    request.fields.append(Name::Via, "1.1 blitz");
    request.fields.append(Name::XForwardedFor, "192.0.2.17");
    request.fields.append(Name::XForwardedProto, "http");
    let forwarded = "for=192.0.2.17;host=\"127.0.0.1:8080\";proto=http";
    request.fields.append(Name::Forwarded, forwarded);
    let id = "0123456789abcdef0123456789abcdef";
    request.fields.append(Name::XRequestId, id);
    let mut asking = Asking {
        client: Client::new(&Limits::default()),
        request,
        response: ResponseHead::default(),
        trailers: Fields::new(),
        out,
    };
    for _ in 0..2 {
        ask(&mut asking);
        hear(&mut asking);
        asking.out.clear();
    }
    Box::new(asking)
}

fn asked() -> Box<Asking> {
    let mut asking = asking();
    ask(&mut asking);
    asking
}

#[inline]
fn ask(asking: &mut Asking) {
    let Asking {
        client,
        request,
        out,
        ..
    } = asking;
    client.send_request(black_box(request), BodyLength::Empty, out);
    assert!(client.send_end(None, out).is_ok());
}

#[inline]
fn hear(asking: &mut Asking) {
    let Asking {
        client,
        response,
        trailers,
        ..
    } = asking;
    let step = client.handle_input(black_box(UPSTREAM_RESPONSE), response, trailers);
    assert!(step.is_ok_and(|step| step.event == Event::Head(BodyLength::Known(13))));
    let data = client.handle_input(black_box(b"Hello, World!"), response, trailers);
    assert!(data.is_ok_and(|step| step.event == Event::Data(0..13)));
    let end = client.handle_input(&[], response, trailers);
    assert!(end.is_ok_and(|step| step.event == Event::End));
}

#[library_benchmark(config = limit(780))]
#[bench::warm(asking())]
fn upstream_request(mut asking: Box<Asking>) -> Box<Asking> {
    ask(&mut asking);
    asking
}

#[library_benchmark(config = limit(1_460))]
#[bench::warm(asked())]
fn upstream_response(mut asking: Box<Asking>) -> Box<Asking> {
    hear(&mut asking);
    asking
}

/// A response from an upstream, and a client that waits for it.
fn forwarding() -> Box<Serving> {
    let mut serving = received();
    let mut asking = asked();
    hear(&mut asking);
    serving.response = asking.response;
    let fields = &mut serving.response.fields;
    fields.remove(Name::Connection);
    fields.append(Name::Via, "1.1 blitz");
    serving
}

#[library_benchmark(config = limit(650))]
#[bench::warm(forwarding())]
fn forwarded_response(mut serving: Box<Serving>) -> Box<Serving> {
    answer(&mut serving);
    serving
}

library_benchmark_group!(
    name = service,
    benchmarks = [small_exchange, small_request, small_response]
);
library_benchmark_group!(
    name = gateway,
    benchmarks = [upstream_request, upstream_response, forwarded_response]
);
main!(library_benchmark_groups = service, gateway);
