//! Any bytes as the header of the PROXY protocol: the outcome must not depend on how the bytes are cut.
#![no_main]

use std::net::SocketAddr;

use blitz_proto::proxy_protocol::{Progress, ProxyHeaderError, Receiver};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    let whole = read(bytes, bytes.len().max(1));
    assert_eq!(read(bytes, usize::from(piece) + 1), whole);
});

/// The client and the length of the header.
type Outcome = Result<Option<(Option<SocketAddr>, usize)>, ProxyHeaderError>;

fn read(bytes: &[u8], piece: usize) -> Outcome {
    let (mut receiver, mut before) = (Receiver::default(), 0);
    for piece in bytes.chunks(piece) {
        if let Progress::Complete { source, consumed } = receiver.handle_input(piece)? {
            assert!(consumed <= piece.len());
            return Ok(Some((source, before + consumed)));
        }
        before += piece.len();
    }
    Ok(None)
}
