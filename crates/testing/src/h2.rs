//! Frames of HTTP/2, written and read byte by byte (RFC 9113, section 4.1).

use std::io::{self, Read};

/// The client's connection preface (RFC 9113, section 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The types of frames (RFC 9113, section 6; RFC 9218, section 7.1).
pub mod kind {
    /// Content.
    pub const DATA: u8 = 0;
    /// A field block, or its beginning.
    pub const HEADERS: u8 = 1;
    /// A dependency, which is deprecated.
    pub const PRIORITY: u8 = 2;
    /// The end of a stream.
    pub const RST_STREAM: u8 = 3;
    /// Settings, or their acknowledgement.
    pub const SETTINGS: u8 = 4;
    /// A promised request.
    pub const PUSH_PROMISE: u8 = 5;
    /// A PING, or its acknowledgement.
    pub const PING: u8 = 6;
    /// The last stream of a connection.
    pub const GOAWAY: u8 = 7;
    /// Credit.
    pub const WINDOW_UPDATE: u8 = 8;
    /// The rest of a field block.
    pub const CONTINUATION: u8 = 9;
    /// The priority of a response.
    pub const PRIORITY_UPDATE: u8 = 16;
}

/// A received frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its type.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// The number of its stream.
    pub stream: u32,
    /// Its payload.
    pub payload: Vec<u8>,
}

/// The bytes of a frame.
///
/// # Panics
/// If the payload is longer than 24 bits can say.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: impl AsRef<[u8]>) -> Vec<u8> {
    let payload = payload.as_ref();
    assert!(payload.len() < 1 << 24, "a frame is shorter");
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Reads the next frame.
///
/// # Errors
/// The error of the input, also if it ends within a frame or before it.
pub fn read_frame(input: &mut impl Read) -> io::Result<Frame> {
    let mut head = [0; 9];
    input.read_exact(&mut head)?;
    let [a, b, c, kind, flags, stream @ ..] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    input.read_exact(&mut payload)?;
    Ok(Frame {
        kind,
        flags,
        stream: u32::from_be_bytes(stream) & 0x7fff_ffff,
        payload,
    })
}
