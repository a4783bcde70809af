//! The layout of frames (RFC 9113, sections 4 and 6; RFC 9218, section 7.1), without their semantics.

use super::Code;
use crate::error::ErrorKind;

/// The client's connection preface (RFC 9113, section 3.4).
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The largest payload that every endpoint accepts (RFC 9113, section 4.2). Blitz neither accepts nor
/// sends larger ones, so that streams alternate often.
pub(crate) const PAYLOAD_MAX: usize = 16_384;

/// The largest window (RFC 9113, section 6.9.1).
pub(crate) const WINDOW_MAX: i64 = (1 << 31) - 1;

/// The type of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameType {
    Data,
    Headers,
    Priority,
    RstStream,
    Settings,
    PushPromise,
    Ping,
    GoAway,
    WindowUpdate,
    Continuation,
    PriorityUpdate,
    /// RFC 9113, section 5.5: "Implementations MUST ignore unknown or unsupported values in all
    /// extensible protocol elements."
    Unknown,
}

/// Flags of a frame; the same bit means different things in different types.
pub(crate) mod flag {
    pub(crate) const ACK: u8 = 0x1;
    pub(crate) const END_STREAM: u8 = 0x1;
    pub(crate) const END_HEADERS: u8 = 0x4;
    pub(crate) const PADDED: u8 = 0x8;
    pub(crate) const PRIORITY: u8 = 0x20;
}

/// The nine bytes ahead of every payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) len: usize,
    pub(crate) kind: FrameType,
    pub(crate) flags: u8,
    /// 0 for the connection.
    pub(crate) stream: u32,
}

impl Header {
    pub(crate) const LEN: usize = 9;

    #[inline]
    pub(crate) fn parse(bytes: &[u8; Header::LEN]) -> Header {
        let [a, b, c, kind, flags, stream @ ..] = *bytes;
        Header {
            len: u32::from_be_bytes([0, a, b, c]) as usize,
            kind: FrameType::parse(kind),
            flags,
            // RFC 9113, section 4.1, about the highest bit: "The value MUST be ignored when
            // receiving."
            stream: u32::from_be_bytes(stream) & ID_MASK,
        }
    }

    #[inline]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    pub(crate) fn to_bytes(self) -> [u8; Header::LEN] {
        let [_, a, b, c] = (self.len as u32).to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.kind.number(), self.flags, d, e, f, g]
    }
}

impl FrameType {
    #[inline]
    fn parse(number: u8) -> FrameType {
        match number {
            0x0 => FrameType::Data,
            0x1 => FrameType::Headers,
            0x2 => FrameType::Priority,
            0x3 => FrameType::RstStream,
            0x4 => FrameType::Settings,
            0x5 => FrameType::PushPromise,
            0x6 => FrameType::Ping,
            0x7 => FrameType::GoAway,
            0x8 => FrameType::WindowUpdate,
            0x9 => FrameType::Continuation,
            0x10 => FrameType::PriorityUpdate,
            _ => FrameType::Unknown,
        }
    }

    const fn number(self) -> u8 {
        match self {
            FrameType::PriorityUpdate => 0x10,
            FrameType::Unknown => 0xff,
            other => other as u8,
        }
    }
}

pub(crate) const ID_MASK: u32 = u32::MAX >> 1;

/// A payload without its padding (RFC 9113, sections 6.1 and 6.2).
#[inline]
pub(crate) fn without_padding(header: Header, payload: &[u8]) -> Result<&[u8], ErrorKind> {
    if !header.has(flag::PADDED) {
        return Ok(payload);
    }
    let (&padding, rest) = payload.split_first().ok_or(ErrorKind::FrameSize)?;
    // RFC 9113, section 6.1: "If the length of the padding is the length of the frame payload or
    // greater, the recipient MUST treat this as a connection error".
    let len = rest
        .len()
        .checked_sub(usize::from(padding))
        .ok_or(ErrorKind::FramePadding)?;
    Ok(&rest[..len])
}

/// The 31 bits at the head of a payload, and what follows.
pub(crate) fn split_id(payload: &[u8]) -> Result<(u32, &[u8]), ErrorKind> {
    let (id, rest) = payload.split_first_chunk().ok_or(ErrorKind::FrameSize)?;
    Ok((u32::from_be_bytes(*id) & ID_MASK, rest))
}

/// A payload that is exactly one number of 32 bits.
pub(crate) fn only_number(payload: &[u8]) -> Result<u32, ErrorKind> {
    payload
        .try_into()
        .map(u32::from_be_bytes)
        .map_err(|_| ErrorKind::FrameSize)
}

/// Appends a whole frame.
pub(crate) fn write(kind: FrameType, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    let header = Header {
        len: payload.len(),
        kind,
        flags,
        stream,
    };
    out.extend_from_slice(&header.to_bytes());
    out.extend_from_slice(payload);
}

/// Appends RST_STREAM.
pub(crate) fn write_reset(stream: u32, code: Code, out: &mut Vec<u8>) {
    write(FrameType::RstStream, 0, stream, &code.0.to_be_bytes(), out);
}

/// Appends WINDOW_UPDATE, for stream 0 that of the connection.
pub(crate) fn write_window_update(stream: u32, increment: u32, out: &mut Vec<u8>) {
    write(
        FrameType::WindowUpdate,
        0,
        stream,
        &increment.to_be_bytes(),
        out,
    );
}

/// Appends GOAWAY.
pub(crate) fn write_go_away(last: u32, code: Code, out: &mut Vec<u8>) {
    let mut payload = [0; 8];
    payload[..4].copy_from_slice(&last.to_be_bytes());
    payload[4..].copy_from_slice(&code.0.to_be_bytes());
    write(FrameType::GoAway, 0, 0, &payload, out);
}
