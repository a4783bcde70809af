//! Frames of HTTP/3, written byte by byte (RFC 9114, section 7.1).

/// The types of frames (RFC 9114, section 7.2).
pub mod kind {
    /// Content.
    pub const DATA: u64 = 0x0;
    /// A field section.
    pub const HEADERS: u64 = 0x1;
    /// Settings.
    pub const SETTINGS: u64 = 0x4;
    /// The last request of a connection.
    pub const GOAWAY: u64 = 0x7;
}

/// An integer of QUIC (RFC 9000, section 16), in its shortest form.
pub fn integer(value: u64) -> Vec<u8> {
    match value {
        0..0x40 => vec![value as u8],
        0x40..0x4000 => (value as u16 | 0x4000).to_be_bytes().into(),
        0x4000..0x4000_0000 => (value as u32 | 0x8000_0000).to_be_bytes().into(),
        _ => (value | 0xC000_0000_0000_0000).to_be_bytes().into(),
    }
}

/// The bytes of a frame.
pub fn frame(kind: u64, payload: impl AsRef<[u8]>) -> Vec<u8> {
    let payload = payload.as_ref();
    [&integer(kind), &integer(payload.len() as u64), payload].concat()
}
