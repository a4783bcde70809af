//! The backend of `cargo xtask bench bulk`: content of any size, and uploads that are read to their end.
//!
//! One blocking thread serves each connection, with reads and writes of up to 256 KiB.
//!
//! ```text
//! bulk_backend --pattern FILE [--listen ADDR]
//! ```
//!
//! | request | response |
//! |---|---|
//! | `GET /…?size=N` | N bytes: the pattern, repeated |
//! | `GET /counters` | a JSON object of counters |
//! | any other `GET` | `Hello, World!` |
//! | `POST /check` | `{"bytes":N,"wrong":M}`: M received bytes differ from the repeated pattern |
//! | any other `POST` | `{"bytes":N}` |
//!
//! Uploads need a Content-Length.

use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, thread};

const READ_BYTES: usize = 256 * 1024;
const SMALL: &[u8] = b"Hello, World!";

fn main() -> ExitCode {
    match Options::parse(std::env::args().skip(1)).and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("bulk_backend: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    let pattern =
        fs::read(&options.pattern).map_err(|e| format!("cannot read {}: {e}", options.pattern))?;
    if pattern.is_empty() {
        return Err(format!("{} is empty", options.pattern));
    }
    let listener = TcpListener::bind(options.listen)
        .map_err(|e| format!("cannot listen on {}: {e}", options.listen))?;
    let shared = Arc::new(Shared {
        pattern,
        counters: Counters::default(),
    });
    for stream in listener.incoming() {
        let stream = stream.map_err(|e| format!("cannot accept: {e}"))?;
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            // Proxies close connections whose clients have gone, also within a message.
            let _ = Connection::new(&stream, &shared).and_then(|mut connection| connection.serve());
        });
    }
    Ok(())
}

/// The parts that all connections use.
struct Shared {
    pattern: Vec<u8>,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    /// Complete responses with content of a requested size.
    downloads: AtomicU64,
    sent_bytes: AtomicU64,
    /// Uploads that were read to their end.
    uploads: AtomicU64,
    received_bytes: AtomicU64,
}

impl Counters {
    fn json(&self) -> String {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        format!(
            "{{\"downloads\":{},\"sent_bytes\":{},\"uploads\":{},\"received_bytes\":{}}}",
            read(&self.downloads),
            read(&self.sent_bytes),
            read(&self.uploads),
            read(&self.received_bytes)
        )
    }
}

struct Connection<'a> {
    stream: &'a TcpStream,
    shared: &'a Shared,
    buffer: Box<[u8]>,
    /// The received bytes that are not yet used.
    start: usize,
    end: usize,
}

impl<'a> Connection<'a> {
    fn new(stream: &'a TcpStream, shared: &'a Shared) -> io::Result<Connection<'a>> {
        stream.set_nodelay(true)?;
        Ok(Connection {
            stream,
            shared,
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
        })
    }

    /// One request after the other until the client closes.
    fn serve(&mut self) -> io::Result<()> {
        while let Some(head) = self.head()? {
            let (path, query) = head.target.split_once('?').unwrap_or((&head.target, ""));
            match (head.method.as_str(), path, size(query)) {
                ("GET", _, Some(size)) => self.send_content(size)?,
                ("GET", "/counters", None) => {
                    let counters = self.shared.counters.json();
                    self.respond("200 OK", counters.as_bytes())?;
                }
                ("GET", ..) => self.respond("200 OK", SMALL)?,
                ("POST", path, _) => {
                    let Some(length) = head.content_length else {
                        return self.respond("411 Length Required", b"");
                    };
                    let wrong = self.receive_content(length, path == "/check")?;
                    let response = match wrong {
                        Some(wrong) => format!("{{\"bytes\":{length},\"wrong\":{wrong}}}"),
                        None => format!("{{\"bytes\":{length}}}"),
                    };
                    self.respond("200 OK", response.as_bytes())?;
                }
                _ => return self.respond("405 Method Not Allowed", b""),
            }
        }
        Ok(())
    }

    /// The next head; `None` if the client has closed the connection between two requests.
    fn head(&mut self) -> io::Result<Option<Head>> {
        loop {
            let unused = &self.buffer[self.start..self.end];
            if let Some(length) = unused.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                let head = Head::parse(&unused[..length]).ok_or(io::ErrorKind::InvalidData)?;
                self.start += length + 4;
                return Ok(Some(head));
            }
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            match self.stream.read(&mut self.buffer[self.end..])? {
                0 if self.end == 0 => return Ok(None),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => self.end += bytes,
            }
        }
    }

    fn send_content(&mut self, size: u64) -> io::Result<()> {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n");
        let mut head = head.as_bytes();
        let mut sent = 0;
        while !head.is_empty() || sent < size {
            let block = expected(&self.shared.pattern, sent, size - sent);
            let written = self
                .stream
                .write_vectored(&[IoSlice::new(head), IoSlice::new(block)])?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            let of_head = written.min(head.len());
            head = &head[of_head..];
            let content = (written - of_head) as u64;
            sent += content;
            count(&self.shared.counters.sent_bytes, content);
        }
        count(&self.shared.counters.downloads, 1);
        Ok(())
    }

    /// Reads the content of an upload. With `check`, returns the number of bytes that differ from the
    /// pattern.
    fn receive_content(&mut self, length: u64, check: bool) -> io::Result<Option<u64>> {
        let mut received = 0;
        let mut wrong = 0;
        while received < length {
            if self.start == self.end {
                self.start = 0;
                self.end = self.stream.read(&mut self.buffer)?;
                if self.end == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            let unused = &self.buffer[self.start..self.end];
            let bytes = &unused[..smaller(unused.len(), length - received)];
            if check {
                wrong += differences(&self.shared.pattern, received, bytes);
            }
            let bytes = bytes.len();
            self.start += bytes;
            received += bytes as u64;
            count(&self.shared.counters.received_bytes, bytes as u64);
        }
        count(&self.shared.counters.uploads, 1);
        Ok(check.then_some(wrong))
    }

    fn respond(&mut self, status: &str, content: &[u8]) -> io::Result<()> {
        let length = content.len();
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n");
        self.stream.write_all(&[head.as_bytes(), content].concat())
    }
}

struct Head {
    method: String,
    target: String,
    content_length: Option<u64>,
}

impl Head {
    /// Parses a head without its final empty line.
    fn parse(bytes: &[u8]) -> Option<Head> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.split("\r\n");
        let mut words = lines.next()?.split(' ');
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut content_length = None;
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            if name.eq_ignore_ascii_case("content-length") {
                content_length = Some(value.trim().parse().ok()?);
            }
        }
        Some(Head {
            method,
            target,
            content_length,
        })
    }
}

fn size(query: &str) -> Option<u64> {
    let mut parameters = query.split('&');
    parameters.find_map(|parameter| parameter.strip_prefix("size=")?.parse().ok())
}

/// The content from `offset` on: at most `left` bytes, and at most to the end of the pattern.
fn expected(pattern: &[u8], offset: u64, left: u64) -> &[u8] {
    let start = (offset % pattern.len() as u64) as usize;
    let block = &pattern[start..];
    &block[..smaller(block.len(), left)]
}

/// The number of bytes that differ from the content at `offset`.
fn differences(pattern: &[u8], mut offset: u64, mut bytes: &[u8]) -> u64 {
    let mut wrong = 0;
    while !bytes.is_empty() {
        let block = expected(pattern, offset, bytes.len() as u64);
        let (now, later) = bytes.split_at(block.len());
        if now != block {
            wrong += now.iter().zip(block).filter(|(a, b)| a != b).count() as u64;
        }
        offset += now.len() as u64;
        bytes = later;
    }
    wrong
}

fn smaller(bytes: usize, left: u64) -> usize {
    usize::try_from(left).map_or(bytes, |left| bytes.min(left))
}

fn count(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

struct Options {
    listen: SocketAddr,
    pattern: String,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut listen = SocketAddr::from(([127, 0, 0, 1], 9000));
        let mut pattern = None;
        while let Some(flag) = args.next() {
            let value = args.next().ok_or_else(|| format!("{flag} needs a value"))?;
            match flag.as_str() {
                "--listen" => {
                    let address = value.parse();
                    listen = address.map_err(|_| format!("{flag} does not take {value}"))?;
                }
                "--pattern" => pattern = Some(value),
                _ => return Err(format!("there is no flag {flag}")),
            }
        }
        let pattern = pattern.ok_or("--pattern FILE is missing")?;
        Ok(Options { listen, pattern })
    }
}
