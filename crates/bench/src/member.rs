//! The hidden command `blitz bench member`: a server with one fixed response, which signals make slower. Proxies stand
//! before several of them.
//!
//! Each connection has a thread, so that a response that takes long holds up no other.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use blitz_http::{Signal, Signals};
use clap::Args;

use crate::fixed_response::BODY;

/// The time that a response takes.
pub(crate) const RESPONSE_TAKES: Duration = Duration::from_millis(5);
/// The time that it takes longer after USR1, until USR2.
pub(crate) const SLOWER_BY: Duration = Duration::from_millis(200);
/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 8 * 1024;
/// The stack of a thread, which calls nothing deep.
const STACK_BYTES: usize = 64 * 1024;
/// After a connection that could not be accepted, for example without descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Flags of `blitz bench member`.
#[derive(Debug, Args)]
pub(crate) struct MemberArguments {
    /// The address
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
}

/// Serves until a signal ends the process.
///
/// # Errors
/// The address is in use, or signals cannot be handled.
pub(crate) fn run(arguments: &MemberArguments) -> Result<(), String> {
    // Before the first thread, which would otherwise get them.
    let signals = Signals::install().map_err(|error| format!("signals: {error}"))?;
    let listener = TcpListener::bind(arguments.listen)
        .map_err(|error| format!("{}: {error}", arguments.listen))?;
    let is_slow = Arc::new(AtomicBool::new(false));
    let of_listener = Arc::clone(&is_slow);
    thread::spawn(move || accept(&listener, &of_listener));
    loop {
        match signals.wait(None) {
            Ok(Some(Signal::User1)) => is_slow.store(true, Ordering::Relaxed),
            Ok(Some(Signal::User2)) => is_slow.store(false, Ordering::Relaxed),
            Ok(Some(Signal::Terminate | Signal::Interrupt | Signal::Quit)) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(format!("signals: {error}")),
        }
    }
}

fn accept(listener: &TcpListener, is_slow: &Arc<AtomicBool>) {
    for connection in listener.incoming() {
        let Ok(connection) = connection else {
            thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        let is_slow = Arc::clone(is_slow);
        let serving = thread::Builder::new().stack_size(STACK_BYTES);
        // Without a thread the connection is closed. A proxy that leaves is no failure either.
        let _ = serving.spawn(move || serve(connection, &is_slow));
    }
}

/// Answers the requests of a connection, which have no content.
fn serve(mut connection: TcpStream, is_slow: &AtomicBool) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        while let Some(length) = head_length(&received) {
            let is_last = is_last(&received[..length]);
            received.drain(..length);
            thread::sleep(response_takes(is_slow.load(Ordering::Relaxed)));
            connection.write_all(&response(is_last))?;
            if is_last {
                return Ok(());
            }
        }
        let count = connection.read(&mut buffer)?;
        if count == 0 || received.len() + count > HEAD_BYTES_MAX {
            return Ok(());
        }
        received.extend_from_slice(&buffer[..count]);
    }
}

fn response_takes(is_slow: bool) -> Duration {
    match is_slow {
        true => RESPONSE_TAKES + SLOWER_BY,
        false => RESPONSE_TAKES,
    }
}

/// The length of the first head, with its empty line.
fn head_length(received: &[u8]) -> Option<usize> {
    let end = b"\r\n\r\n";
    let at = received.windows(end.len()).position(|four| four == end)?;
    Some(at + end.len())
}

/// Whether the connection ends after the response. The proxies of this laboratory write `close` in lower case.
fn is_last(head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(head).to_ascii_lowercase();
    let mut lines = text.lines();
    let is_old = lines.next().is_some_and(|line| line.ends_with("http/1.0"));
    is_old || lines.any(|line| line == "connection: close")
}

fn response(is_last: bool) -> Vec<u8> {
    let connection = if is_last { "Connection: close\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n{connection}\r\n",
        BODY.len()
    );
    [head.as_bytes(), BODY].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_ends_with_an_empty_line_and_one_of_http_1_0_ends_the_connection() {
        let two = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nOPTIONS / HTTP/1.0\r\n\r\n";
        let first = head_length(two).unwrap();
        assert_eq!(&two[first..first + 7], b"OPTIONS");
        assert!(!is_last(&two[..first]) && is_last(&two[first..]));
        assert!(is_last(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n"));
        assert_eq!(head_length(b"GET / HTTP/1.1\r\nHost: a\r\n"), None);
    }

    #[test]
    fn a_connection_has_several_responses_and_a_slow_one_takes_longer() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let is_slow = Arc::new(AtomicBool::new(false));
        let of_listener = Arc::clone(&is_slow);
        thread::spawn(move || accept(&listener, &of_listener));
        let mut client = TcpStream::connect(address).unwrap();
        let expected = response(false);
        let mut received = vec![0; expected.len()];
        for _ in 0..2 {
            client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            client.read_exact(&mut received).unwrap();
            assert_eq!(received, expected);
        }
        is_slow.store(true, Ordering::Relaxed);
        let begun = std::time::Instant::now();
        client.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut last = Vec::new();
        client.read_to_end(&mut last).unwrap();
        assert_eq!(last, response(true));
        assert!(begun.elapsed() >= SLOWER_BY);
    }
}
