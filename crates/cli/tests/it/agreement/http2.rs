//! A client of HTTP/2 in clear text, frame by frame.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use blitz_testing::Raw;
use blitz_testing::h2::{Frame, PREFACE, flag, frame, kind, literals, read_frame, settings};

use super::ledger::Ledger;

/// The table of fields has no entries, so that each status is a literal or one of the static table.
const HEADER_TABLE_SIZE: u16 = 1;

/// Statuses of the static table (RFC 7541, appendix A), from its entry 8 on.
const STATIC: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];

/// The code of a client that needs a response no more.
const CANCEL: u32 = 8;

struct Connection {
    stream: TcpStream,
    next: u32,
    /// The requests whose statuses are awaited.
    open: BTreeMap<u32, String>,
}

impl Connection {
    fn open(address: SocketAddr) -> Connection {
        let mut connection = Connection {
            stream: Raw::connect(address).0,
            next: 1,
            open: BTreeMap::new(),
        };
        connection.send(&[PREFACE, &settings(&[(HEADER_TABLE_SIZE, 0)])].concat());
        connection
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends a head, behind which nothing comes if `is_whole`.
    fn request(&mut self, method: &str, path: &str, more: &[(&str, &str)], is_whole: bool) -> u32 {
        let fields = [
            (":method", method),
            (":scheme", "http"),
            (":authority", "localhost"),
            (":path", path),
        ];
        let block = literals([&fields[..], more].concat());
        let end = if is_whole { flag::END_STREAM } else { 0 };
        let stream = self.next;
        self.next += 2;
        self.send(&frame(
            kind::HEADERS,
            flag::END_HEADERS | end,
            stream,
            block,
        ));
        self.open.insert(stream, path.to_owned());
        stream
    }

    fn reset(&mut self, stream: u32) {
        self.send(&frame(kind::RST_STREAM, 0, stream, CANCEL.to_be_bytes()));
        self.open.remove(&stream);
    }

    /// Handles the next frame; `None` if the connection has ended.
    fn receive(&mut self, ledger: &Ledger) -> Option<Frame> {
        let received = read_frame(&mut self.stream).ok()?;
        match received.kind {
            kind::SETTINGS | kind::PING if !received.has(flag::ACK) => {
                let echoed = if received.kind == kind::PING {
                    &received.payload[..]
                } else {
                    &[]
                };
                self.send(&frame(received.kind, flag::ACK, 0, echoed));
            }
            kind::HEADERS => {
                let status = status(received.content().unwrap());
                if let (Some(status), Some(path)) = (status, self.open.get(&received.stream)) {
                    ledger.got(path, status);
                }
            }
            _ => {}
        }
        let is_end = received.kind == kind::RST_STREAM
            || matches!(received.kind, kind::HEADERS | kind::DATA)
                && received.has(flag::END_STREAM);
        if is_end {
            self.open.remove(&received.stream);
        }
        Some(received)
    }

    /// Receives until all streams have ended.
    fn receive_all(&mut self, ledger: &Ledger) {
        while !self.open.is_empty() {
            assert!(
                self.receive(ledger).is_some(),
                "{:?} have no end",
                self.open
            );
        }
    }

    /// Receives until content of this stream has come.
    fn receive_content(&mut self, ledger: &Ledger, stream: u32) {
        while let Some(frame) = self.receive(ledger) {
            if frame.kind == kind::DATA && frame.stream == stream {
                return;
            }
        }
        panic!("no content has come");
    }
}

/// A final status. A block may begin with a change of the table's size.
fn status(block: &[u8]) -> Option<u16> {
    let start = block.iter().position(|byte| byte & 0xe0 != 0x20)?;
    let status = match &block[start..] {
        [indexed @ 0x88..=0x8e, ..] => STATIC[usize::from(indexed - 0x88)],
        // A literal, whose name is one of the table: plain, or in Huffman code.
        [0x08..=0x0e | 0x18..=0x1e | 0x48..=0x4e, 3, digits @ ..] => digits[..3]
            .iter()
            .fold(0, |status, digit| status * 10 + u16::from(digit - b'0')),
        [0x08..=0x0e | 0x18..=0x1e | 0x48..=0x4e, length, coded @ ..] if length & 0x80 != 0 => {
            digits(&coded[..usize::from(length & 0x7f)])
        }
        _ => return None,
    };
    (status >= 200).then_some(status)
}

/// Three digits in Huffman code (RFC 7541, appendix B): 0 to 2 have five bits, the others six.
fn digits(coded: &[u8]) -> u16 {
    let mut bits = coded
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
    let mut status = 0;
    for _ in 0..3 {
        let mut code = (0..5).fold(0, |code, _| code << 1 | u16::from(bits.next().unwrap()));
        if code > 2 {
            code = (code << 1 | u16::from(bits.next().unwrap())) - 0x19 + 3;
        }
        status = status * 10 + code;
    }
    status
}

/// Requests of all kinds.
pub(super) fn run(ledger: &Ledger, address: SocketAddr, rounds: usize) {
    for _ in 0..rounds {
        let mut connection = Connection::open(address);
        for kind in [
            "ok", "missing", "fixed", "closed", "down", "slow", "reset", "cut", "ok", "ok",
        ] {
            connection.request("GET", &ledger.send(kind, "http2"), &[], true);
        }
        let upload = connection.request("POST", &ledger.send("ok", "http2"), &[], false);
        connection.send(&frame(kind::DATA, flag::END_STREAM, upload, "hello"));
        connection.request("HEAD", &ledger.send("ok", "http2"), &[], true);
        // RFC 9113, section 8.2.1: field names are in lower case.
        connection.request("GET", &ledger.send("bad", "http2"), &[("Bad", "x")], true);
        connection.receive_all(ledger);
        reset(ledger, &mut connection);
        leave(ledger, connection);
    }
}

/// Streams that the client resets: within a request, before its response, and within it.
fn reset(ledger: &Ledger, connection: &mut Connection) {
    let path = ledger.send("upload", "http2");
    let within_request = connection.request("POST", &path, &[], false);
    connection.send(&frame(kind::DATA, 0, within_request, "hello"));
    ledger.wait_arrived(&path);
    connection.reset(within_request);

    let path = ledger.send("slow", "http2");
    let before_response = connection.request("GET", &path, &[], true);
    ledger.wait_arrived(&path);
    connection.reset(before_response);

    let path = ledger.send("stream", "http2");
    let within_response = connection.request("GET", &path, &[], true);
    connection.receive_content(ledger, within_response);
    connection.reset(within_response);

    // The gateway may not see the request.
    let path = ledger.send("ok", "http2");
    let at_once = connection.request("GET", &path, &[], true);
    connection.reset(at_once);
}

/// A connection that ends with open streams.
fn leave(ledger: &Ledger, mut connection: Connection) {
    let paths = ["slow", "upload"].map(|kind| ledger.send(kind, "http2"));
    connection.request("GET", &paths[0], &[], true);
    let upload = connection.request("POST", &paths[1], &[], false);
    connection.send(&frame(kind::DATA, 0, upload, "hello"));
    let streamed = connection.request("GET", &ledger.send("stream", "http2"), &[], true);
    connection.receive_content(ledger, streamed);
    paths.iter().for_each(|path| ledger.wait_arrived(path));
}

/// Content that comes too slowly.
pub(super) fn upload_slowly(ledger: &Ledger, address: SocketAddr) {
    let mut connection = Connection::open(address);
    let path = ledger.send("slow-upload", "http2");
    let stream = connection.request("POST", &path, &[], false);
    let mut writer = connection.stream.try_clone().unwrap();
    thread::scope(|scope| {
        // The gateway may close the stream first.
        scope.spawn(move || {
            let piece = frame(kind::DATA, 0, stream, "hello");
            while writer.write_all(&piece).is_ok() {
                thread::sleep(Duration::from_millis(100));
            }
        });
        connection.receive_all(ledger);
        let _ = connection.stream.shutdown(Shutdown::Both);
    });
}

/// Requests that end within the drain, and one that is cut off.
pub(super) fn be_drained(ledger: &Ledger, address: SocketAddr) {
    let mut connection = Connection::open(address);
    let streamed = connection.request("GET", &ledger.send("stream", "http2"), &[], true);
    connection.receive_content(ledger, streamed);
    let paths = ["hold", "hold", "hold"].map(|kind| ledger.send(kind, "http2"));
    for path in &paths {
        connection.request("GET", path, &[], true);
    }
    paths.iter().for_each(|path| ledger.wait_arrived(path));
    ledger.is_drainable();
    while !connection.open.is_empty() && connection.receive(ledger).is_some() {}
}
