//! A client that sends small requests at a fixed rate, for `cargo xtask bench bulk`.
//!
//! The times of all requests are planned before the first one. The latency of a request counts from its
//! planned time, so a late response delays the latencies of the requests behind it as well.
//!
//! ```text
//! paced_client --to ADDR [--path PATH] [--rate PER_SECOND] [--connections N] [--milliseconds N]
//! ```
//!
//! Its last line on standard output is a JSON object with the latencies.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

const CONTENT: &[u8] = b"Hello, World!";
const RESPONSE_BYTES_MAX: usize = 4096;
const TIMEOUT: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    match Options::parse(std::env::args().skip(1)).and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("paced_client: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    let mut streams = Vec::new();
    for _ in 0..options.connections {
        streams.push(connect(options.to).map_err(|e| format!("cannot connect: {e}"))?);
    }
    let begun = Instant::now();
    let clients = streams.into_iter().zip(0..).map(|(stream, index)| {
        let plan = Plan {
            request: format!(
                "GET {} HTTP/1.1\r\nHost: {}\r\n\r\n",
                options.path, options.to
            ),
            first: begun + options.period() * index,
            period: options.period() * options.connections,
            end: begun + options.length,
        };
        thread::spawn(move || plan.run(&stream))
    });
    let clients: Vec<_> = clients.collect();
    let mut latencies_us = Vec::new();
    for client in clients {
        let latencies = client.join().map_err(|_| "a client panicked")?;
        latencies_us.extend(latencies.map_err(|e| format!("a request failed: {e}"))?);
    }
    println!("{}", summary(latencies_us).ok_or("no request was planned")?);
    Ok(())
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// The requests of one connection.
struct Plan {
    request: String,
    first: Instant,
    period: Duration,
    end: Instant,
}

impl Plan {
    /// Sends every request at its planned time, or at once if that has passed. Returns the latencies in
    /// microseconds.
    fn run(&self, stream: &TcpStream) -> io::Result<Vec<u64>> {
        sleep_exactly();
        let mut latencies_us = Vec::new();
        let mut planned = self.first;
        while planned < self.end {
            thread::sleep(planned.saturating_duration_since(Instant::now()));
            exchange(stream, &self.request)?;
            let latency = planned.elapsed();
            latencies_us.push(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
            planned += self.period;
        }
        Ok(latencies_us)
    }
}

/// Without this, the kernel may end a sleep 50 µs late.
fn sleep_exactly() {
    // SAFETY: no pointers; it only changes how late timers of this thread may be.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

fn exchange(mut stream: &TcpStream, request: &str) -> io::Result<()> {
    stream.write_all(request.as_bytes())?;
    let mut response = [0; RESPONSE_BYTES_MAX];
    let mut filled = 0;
    loop {
        match stream.read(&mut response[filled..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => filled += bytes,
        }
        let response = &response[..filled];
        let Some(end) = response.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
            continue;
        };
        let content = &response[end + 4..];
        if !response.starts_with(b"HTTP/1.1 200") || !CONTENT.starts_with(content) {
            return Err(io::Error::other(String::from_utf8_lossy(response)));
        }
        if content.len() == CONTENT.len() {
            return Ok(());
        }
    }
}

fn summary(mut latencies_us: Vec<u64>) -> Option<String> {
    latencies_us.sort_unstable();
    let count = latencies_us.len();
    let at = |percent: usize| latencies_us.get((count * percent / 100).min(count.checked_sub(1)?));
    let (p50, p99, max) = (at(50)?, at(99)?, latencies_us.last()?);
    Some(format!(
        "{{\"requests\":{count},\"p50_us\":{p50},\"p99_us\":{p99},\"max_us\":{max}}}"
    ))
}

struct Options {
    to: SocketAddr,
    path: String,
    rate: u32,
    connections: u32,
    length: Duration,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options {
            to: SocketAddr::from(([127, 0, 0, 1], 9001)),
            path: "/small".to_owned(),
            rate: 500,
            connections: 4,
            length: Duration::from_secs(1),
        };
        while let Some(flag) = args.next() {
            let value = args.next().ok_or_else(|| format!("{flag} needs a value"))?;
            let wrong = || format!("{flag} does not take {value}");
            match flag.as_str() {
                "--to" => options.to = value.parse().map_err(|_| wrong())?,
                "--path" => options.path = value,
                "--rate" => options.rate = value.parse().map_err(|_| wrong())?,
                "--connections" => options.connections = value.parse().map_err(|_| wrong())?,
                "--milliseconds" => {
                    options.length = Duration::from_millis(value.parse().map_err(|_| wrong())?);
                }
                _ => return Err(format!("there is no flag {flag}")),
            }
        }
        if options.rate == 0 || options.connections == 0 {
            return Err("--rate and --connections are at least 1".to_owned());
        }
        Ok(options)
    }

    /// From one request to the next, over all connections.
    fn period(&self) -> Duration {
        Duration::from_secs(1) / self.rate
    }
}
