//! Times of the head parser and of the router, in this process: a JSON array for `blitz bench framework`.
//!
//! A sample is the mean of a batch of calls, because a clock takes as long as one of them. Percentiles are those of
//! batches: single calls vary more. A batch parses one head on each of many connections, which have had requests before.

use std::hint::black_box;
use std::time::{Duration, Instant};

use blitz::router::{Pattern, Router, RouterBuilder};
use blitz_proto::h1::{Event, Server};
use blitz_proto::{BodyLength, Fields, Limits, RequestHead, ResponseHead};
use serde::Serialize;

const WARM_UP: Duration = Duration::from_millis(100);
const LENGTH: Duration = Duration::from_millis(300);
const BATCHES_MIN: usize = 1_000;
const CONNECTIONS: usize = 64;
const LOOK_UPS: usize = 600;

const MINIMAL: &[u8] = b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n";

const MEDIUM: &[u8] =
    b"GET /hello HTTP/1.1\r\nHost: localhost\r\nUser-Agent: blitz\r\nAccept: text/plain\r\n\
Accept-Language: en\r\nAccept-Encoding: gzip\r\n\r\n";

const LARGE: &[u8] = b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\
User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-GB,en;q=0.7\r\n\
Accept-Encoding: gzip, deflate, br, zstd\r\nReferer: https://www.example.org/articles/\r\n\
Cookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\nCache-Control: no-cache\r\n\
Sec-Fetch-Mode: navigate\r\nSec-Fetch-Site: same-origin\r\n\r\n";

const ROUTES: [&str; 6] = [
    "/",
    "/health",
    "/users",
    "/users/{id:u64}",
    "/users/{id:u64}/orders",
    "/articles/{name}",
];

/// One path for each route.
const PATHS: [&str; 6] = [
    "/",
    "/health",
    "/users",
    "/users/12345",
    "/users/12345/orders",
    "/articles/how-to-measure",
];

/// Nanoseconds of one call.
#[derive(Serialize)]
struct Times {
    name: &'static str,
    calls_per_batch: usize,
    batches: usize,
    min: f64,
    p50: f64,
    p99: f64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let router = router()?;
    let times = [
        parse("head parser, minimal request", MINIMAL),
        parse("head parser, 5 header fields", MEDIUM),
        parse("head parser, 10 header fields", LARGE),
        look_up("router hit, 6 routes", &router),
    ];
    println!("{}", serde_json::to_string(&times)?);
    Ok(())
}

fn router() -> Result<Router<usize>, Box<dyn std::error::Error>> {
    let mut builder = RouterBuilder::default();
    for (index, route) in ROUTES.iter().enumerate() {
        *builder.entry(&Pattern::parse(route)?) = index;
    }
    Ok(builder.build())
}

/// The router finds the routes in turn.
fn look_up(name: &'static str, router: &Router<usize>) -> Times {
    times(name, LOOK_UPS, || {
        let begun = Instant::now();
        for path in PATHS.iter().cycle().take(LOOK_UPS) {
            black_box(black_box(router).find(black_box(path)));
        }
        let elapsed = begun.elapsed();
        for (index, path) in PATHS.iter().enumerate() {
            let found = router.find(path).map(|(route, _)| *route);
            assert_eq!(found, Some(index), "{path}");
        }
        elapsed
    })
}

/// A connection and the memory of its exchange.
struct Connection {
    server: Server,
    head: RequestHead,
    trailers: Fields,
}

impl Connection {
    fn new() -> Connection {
        Connection {
            server: Server::new(&Limits::default()),
            head: RequestHead::default(),
            trailers: Fields::new(),
        }
    }

    fn receive(&mut self, input: &[u8]) -> Option<Event> {
        let step = self
            .server
            .handle_input(input, &mut self.head, &mut self.trailers);
        step.ok().map(|step| step.event)
    }

    /// Completes the exchange, so that the next head may come.
    fn respond(&mut self, out: &mut Vec<u8>) {
        assert_eq!(self.head.path(), "/hello");
        assert_eq!(self.receive(&[]), Some(Event::End));
        out.clear();
        self.server
            .send_head(&ResponseHead::default(), BodyLength::Empty, out);
        assert!(self.server.send_end(None, out).is_ok());
    }
}

fn parse(name: &'static str, input: &[u8]) -> Times {
    let mut connections: Vec<Connection> = (0..CONNECTIONS).map(|_| Connection::new()).collect();
    let mut out = Vec::new();
    times(name, CONNECTIONS, || {
        let begun = Instant::now();
        let mut complete = 0;
        for connection in &mut connections {
            let event = connection.receive(black_box(input));
            complete += usize::from(event == Some(Event::Head(BodyLength::Empty)));
        }
        let elapsed = begun.elapsed();
        assert_eq!(complete, CONNECTIONS, "{name}");
        for connection in &mut connections {
            connection.respond(&mut out);
        }
        elapsed
    })
}

/// Runs batches, which return their times.
fn times(name: &'static str, calls_per_batch: usize, mut batch: impl FnMut() -> Duration) -> Times {
    let begun = Instant::now();
    while begun.elapsed() < WARM_UP {
        batch();
    }
    let mut samples = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < LENGTH || samples.len() < BATCHES_MIN {
        samples.push(batch().as_secs_f64() * 1e9 / calls_per_batch as f64);
    }
    samples.sort_by(f64::total_cmp);
    let quantile = |share: f64| samples[((samples.len() - 1) as f64 * share) as usize];
    Times {
        name,
        calls_per_batch,
        batches: samples.len(),
        min: samples[0],
        p50: quantile(0.5),
        p99: quantile(0.99),
    }
}
