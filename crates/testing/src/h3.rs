//! Frames and field sections of HTTP/3, written and read byte by byte (RFC 9114, section 7).

use crate::field_compression::string_literal;

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

/// The types of unidirectional streams (RFC 9114, section 6.2; RFC 9204, section 4.2).
pub mod stream {
    /// The control stream.
    pub const CONTROL: u64 = 0x0;
    /// The encoder stream of QPACK.
    pub const ENCODER: u64 = 0x2;
    /// The decoder stream of QPACK.
    pub const DECODER: u64 = 0x3;
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

/// An integer of QUIC and the number of its bytes, or `None` if it is incomplete.
pub fn read_integer(bytes: &[u8]) -> Option<(u64, usize)> {
    let len = 1 << (bytes.first()? >> 6);
    let mut value = u64::from(bytes[0] & 0x3f);
    for byte in bytes.get(1..len)? {
        value = value << 8 | u64::from(*byte);
    }
    Some((value, len))
}

/// The bytes of a frame.
pub fn frame(kind: u64, payload: impl AsRef<[u8]>) -> Vec<u8> {
    let payload = payload.as_ref();
    [&integer(kind), &integer(payload.len() as u64), payload].concat()
}

/// The type and the payload of the first frame of `bytes`, and its length, or `None` if it is incomplete.
pub fn read_frame(bytes: &[u8]) -> Option<(u64, &[u8], usize)> {
    let (kind, first) = read_integer(bytes)?;
    let (len, second) = read_integer(&bytes[first..])?;
    let start = first + second;
    let payload = bytes.get(start..start + len as usize)?;
    Some((kind, payload, start + payload.len()))
}

/// DATA.
pub fn data(content: impl AsRef<[u8]>) -> Vec<u8> {
    frame(kind::DATA, content)
}

/// HEADERS with literal fields.
pub fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    frame(kind::HEADERS, section(fields))
}

/// A field section of literals (RFC 9204, section 4.5.6), which refers to no table.
pub fn section(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut section = vec![0, 0];
    for (name, value) in fields {
        string_literal(0x20, 3, name, &mut section);
        string_literal(0, 7, value, &mut section);
    }
    section
}

/// HEADERS of a request to `localhost`.
pub fn request(method: &str, path: &str) -> Vec<u8> {
    request_with(method, path, &[])
}

/// HEADERS of a request to `localhost` with more fields.
pub fn request_with(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let fields = [
        (":method", method),
        (":scheme", "https"),
        (":authority", "localhost"),
        (":path", path),
    ];
    headers(&[&fields, more].concat())
}

/// `:status`, if it is the first line of a section that refers to the static table only.
///
/// # Panics
/// If the section refers to the dynamic table, or the status has other digits than three.
pub fn status(section: &[u8]) -> Option<u16> {
    assert_eq!(section[..2], [0, 0], "there is no dynamic table");
    let line = &section[2..];
    let index = match line {
        // An indexed line of the static table.
        [first, ..] if first & 0xC0 == 0xC0 && first & 0x3f != 0x3f => u64::from(first & 0x3f),
        [0xff, second, ..] => 63 + u64::from(*second),
        // A literal with a name of the static table: 24 or later is `:status`.
        [0x5f, index, length, value @ ..]
            if (9..14).contains(index) || (48..57).contains(index) =>
        {
            let len = usize::from(length & 0x7f);
            return Some(digits(&value[..len], length & 0x80 != 0));
        }
        _ => return None,
    };
    let statuses = [(24..29, &[103, 200, 304, 404, 503][..]), (63..72, LATE)];
    let found = statuses.iter().find(|(range, _)| range.contains(&index))?;
    Some(found.1[(index - found.0.start) as usize])
}

/// Statuses from 63 on in the static table (RFC 9204, appendix A).
const LATE: &[u16] = &[100, 204, 206, 302, 400, 403, 421, 425, 500];

/// Three digits, in Huffman code or not.
fn digits(value: &[u8], is_coded: bool) -> u16 {
    if !is_coded {
        let text = std::str::from_utf8(value).expect("digits are text");
        return text.parse().expect("a status is a number");
    }
    let bits = value
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1));
    let (mut number, mut code, mut len, mut count) = (0, 0, 0, 0);
    for bit in bits {
        (code, len) = (code << 1 | u16::from(bit), len + 1);
        let digit = match (len, code) {
            (5, 0..=2) => code,
            (6, 25..=31) => code - 22,
            _ => continue,
        };
        (number, code, len, count) = (number * 10 + digit, 0, 0, count + 1);
        if count == 3 {
            break;
        }
    }
    assert_eq!(count, 3, "three digits: {value:x?}");
    number
}
