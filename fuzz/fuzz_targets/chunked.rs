//! Any bytes as chunked content, compared with a trivial reference decoder.
#![no_main]

use blitz_proto::h1::{Event, Server};
use blitz_proto::{Fields, Limits, RequestHead};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    if let Some(ours) = ours(bytes, usize::from(piece) + 1) {
        assert_eq!(Some(&ours), simple(bytes).as_ref());
        assert_eq!(Some(ours), self::ours(bytes, bytes.len()));
    }
});

/// The content, if it is complete and valid.
fn ours(bytes: &[u8], piece: usize) -> Option<Vec<u8>> {
    let mut server = Server::new(&Limits::default());
    let (mut head, mut trailers) = (RequestHead::default(), Fields::new());
    let start = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    server
        .handle_input(start, &mut head, &mut trailers)
        .expect("a good head");
    let (mut content, mut pending) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(piece) {
        pending.extend_from_slice(piece);
        loop {
            let step = server
                .handle_input(&pending, &mut head, &mut trailers)
                .ok()?;
            let needs_more = step.event == Event::NeedMore;
            match step.event {
                Event::End => return Some(content),
                Event::Data(range) => content.extend_from_slice(&pending[range]),
                _ => {}
            }
            pending.drain(..step.consumed);
            if needs_more {
                break;
            }
        }
    }
    None
}

/// The same for valid content, in one call and without checks.
fn simple(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    loop {
        let line_end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
        let line = std::str::from_utf8(&bytes[..line_end]).map(str::to_owned);
        let line = line.unwrap_or_else(|error| {
            String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into_owned()
        });
        let size = line.split([';', ' ', '\t']).next()?;
        let size = usize::from_str_radix(size, 16).ok()?;
        bytes = &bytes[line_end + 2..];
        if size == 0 {
            return Some(content);
        }
        content.extend_from_slice(bytes.get(..size)?);
        bytes = bytes.get(size + 2..)?;
    }
}
