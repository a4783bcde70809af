//! Frames and field blocks of HTTP/2, written and read byte by byte (RFC 9113, section 4).

use std::io::{self, Read};

use crate::field_compression::string_literal;

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

/// The flags of frames (RFC 9113, section 6).
pub mod flag {
    /// The last frame of a message.
    pub const END_STREAM: u8 = 0x1;
    /// The acknowledgement of SETTINGS or a PING.
    pub const ACK: u8 = 0x1;
    /// The end of a field block.
    pub const END_HEADERS: u8 = 0x4;
    /// Padding behind the content.
    pub const PADDED: u8 = 0x8;
    /// A priority in front of the field block.
    pub const PRIORITY: u8 = 0x20;
}

/// Bytes in front of every payload.
const HEADER_BYTES: usize = 9;

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

/// A field block of literals that no table holds (RFC 7541, section 6.2.2).
pub fn literals<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        string_literal(0, 7, name, &mut block);
        string_literal(0, 7, value, &mut block);
    }
    block
}

/// The bytes of SETTINGS with these values.
pub fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let value_of =
        |(id, value): &(u16, u32)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
    let payload: Vec<u8> = values.iter().flat_map(value_of).collect();
    frame(kind::SETTINGS, 0, 0, payload)
}

/// Reads the next frame.
///
/// # Errors
/// The error of the input, also if it ends within a frame or before it.
pub fn read_frame(input: &mut impl Read) -> io::Result<Frame> {
    let mut header = [0; HEADER_BYTES];
    input.read_exact(&mut header)?;
    let (mut frame, payload_bytes) = Frame::of_header(header);
    frame.payload = vec![0; payload_bytes];
    input.read_exact(&mut frame.payload)?;
    Ok(frame)
}

impl Frame {
    /// The frame without its payload, and the length of that.
    fn of_header(header: [u8; HEADER_BYTES]) -> (Frame, usize) {
        let [a, b, c, kind, flags, stream @ ..] = header;
        let frame = Frame {
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & 0x7fff_ffff,
            payload: Vec::new(),
        };
        (frame, u32::from_be_bytes([0, a, b, c]) as usize)
    }

    /// Removes the first frame from received bytes, if it is complete.
    pub fn take(received: &mut &[u8]) -> Option<Frame> {
        let (mut frame, payload_bytes) = Frame::of_header(*received.first_chunk()?);
        let end = HEADER_BYTES + payload_bytes;
        frame.payload = received.get(HEADER_BYTES..end)?.to_vec();
        *received = &received[end..];
        Some(frame)
    }

    /// Whether it has this flag.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The payload without padding and priority, or `None` if the padding is longer.
    pub fn content(&self) -> Option<&[u8]> {
        let mut content = &self.payload[..];
        if self.has(flag::PADDED) {
            let (&padding, rest) = content.split_first()?;
            content = rest.get(..rest.len().checked_sub(usize::from(padding))?)?;
        }
        match self.kind == kind::HEADERS && self.has(flag::PRIORITY) {
            true => content.get(5..),
            false => Some(content),
        }
    }

    /// The number at the start of the payload.
    pub fn number(&self) -> Option<u32> {
        let bytes = self.payload.first_chunk()?;
        Some(u32::from_be_bytes(*bytes))
    }

    /// The values of SETTINGS.
    pub fn settings(&self) -> impl Iterator<Item = (u16, u32)> {
        let (settings, _) = self.payload.as_chunks::<6>();
        settings
            .iter()
            .map(|&[a, b, ref value @ ..]| (u16::from_be_bytes([a, b]), u32::from_be_bytes(*value)))
    }
}
