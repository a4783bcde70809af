//! Frames (RFC 9114, section 7), and the integers that they consist of (RFC 9000, section 16).

/// The largest integer.
pub(crate) const INTEGER_MAX: u64 = (1 << 62) - 1;

/// The type of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameType {
    Data,
    Headers,
    CancelPush,
    Settings,
    PushPromise,
    GoAway,
    MaxPushId,
    /// PRIORITY_UPDATE of a request (RFC 9218, section 7.2).
    RequestPriority,
    /// PRIORITY_UPDATE of a push.
    PushPriority,
    /// A type that HTTP/2 has and HTTP/3 must not (RFC 9114, section 7.2.8).
    OfHttp2,
    /// Ignored (RFC 9114, section 9).
    Unknown,
}

impl FrameType {
    const fn of(number: u64) -> FrameType {
        match number {
            0x0 => FrameType::Data,
            0x1 => FrameType::Headers,
            0x3 => FrameType::CancelPush,
            0x4 => FrameType::Settings,
            0x5 => FrameType::PushPromise,
            0x7 => FrameType::GoAway,
            0xd => FrameType::MaxPushId,
            0xf_0700 => FrameType::RequestPriority,
            0xf_0701 => FrameType::PushPriority,
            0x2 | 0x6 | 0x8 | 0x9 => FrameType::OfHttp2,
            _ => FrameType::Unknown,
        }
    }
}

/// The type and the length of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: FrameType,
    pub(crate) len: u64,
}

/// Two integers that arrive in any pieces.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Partial {
    bytes: [u8; 16],
    len: u8,
}

impl Partial {
    pub(crate) const EMPTY: Partial = Partial {
        bytes: [0; 16],
        len: 0,
    };

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes bytes of `input` until an integer is complete. Returns how many, and the integer.
    pub(crate) fn integer(&mut self, input: &[u8]) -> (usize, Option<u64>) {
        self.take(input, |bytes| read_integer(bytes).map(|(value, _)| value))
    }

    /// Takes bytes of `input` until the header of a frame is complete. Returns how many, and the header.
    pub(crate) fn header(&mut self, input: &[u8]) -> (usize, Option<Header>) {
        self.take(input, |bytes| {
            let (number, at) = read_integer(bytes)?;
            let (len, _) = read_integer(&bytes[at..])?;
            let kind = FrameType::of(number);
            Some(Header { kind, len })
        })
    }

    fn take<T>(&mut self, input: &[u8], parse: impl Fn(&[u8]) -> Option<T>) -> (usize, Option<T>) {
        for (at, &byte) in input.iter().enumerate() {
            self.bytes[usize::from(self.len)] = byte;
            self.len += 1;
            if let Some(parsed) = parse(&self.bytes[..usize::from(self.len)]) {
                self.len = 0;
                return (at + 1, Some(parsed));
            }
        }
        (input.len(), None)
    }
}

/// Reads the integer at the front; also returns its length.
#[inline]
pub(crate) fn read_integer(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let len = 1 << (first >> 6);
    let bytes = bytes.get(..len)?;
    let mut value = u64::from(first & 0x3f);
    for &byte in &bytes[1..] {
        value = value << 8 | u64::from(byte);
    }
    Some((value, len))
}

/// Appends an integer in its shortest form.
#[inline]
pub(crate) fn write_integer(value: u64, out: &mut Vec<u8>) {
    debug_assert!(value <= INTEGER_MAX);
    match value {
        0..0x40 => out.push(value as u8),
        0x40..0x4000 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

pub(crate) const DATA: u64 = 0x0;
pub(crate) const HEADERS: u64 = 0x1;
pub(crate) const SETTINGS: u64 = 0x4;
pub(crate) const GOAWAY: u64 = 0x7;

/// Appends the header of a frame.
#[inline]
pub(crate) fn write_header(number: u64, len: u64, out: &mut Vec<u8>) {
    write_integer(number, out);
    write_integer(len, out);
}

/// Appends a frame whose payload `write` appends.
pub(crate) fn write(number: u64, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    /// Bytes of a length that is at most 2^30.
    const LENGTH_BYTES: usize = 4;
    write_integer(number, out);
    let at = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    write(out);
    let len = out.len() - at - LENGTH_BYTES;
    // A shorter form saves bytes on the wire and moves few in memory.
    let mut short = [0; LENGTH_BYTES];
    let width = match len {
        0..0x40 => {
            short[0] = len as u8;
            1
        }
        0x40..0x4000 => {
            short[..2].copy_from_slice(&(len as u16 | 0x4000).to_be_bytes());
            2
        }
        _ => {
            short = (len as u32 | 0x8000_0000).to_be_bytes();
            LENGTH_BYTES
        }
    };
    out[at..at + width].copy_from_slice(&short[..width]);
    if width < LENGTH_BYTES {
        out.copy_within(at + LENGTH_BYTES.., at + width);
        out.truncate(at + width + len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9000, Appendix A.1.
    #[test]
    fn integers_have_the_forms_of_the_rfc() {
        for (bytes, value) in [
            (&[0x25][..], 37),
            (&[0x7b, 0xbd], 15_293),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (
                &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c],
                151_288_809_941_952_652,
            ),
        ] {
            assert_eq!(read_integer(bytes), Some((value, bytes.len())));
            let mut out = Vec::new();
            write_integer(value, &mut out);
            assert_eq!(out, bytes);
            for len in 0..bytes.len() {
                assert_eq!(read_integer(&bytes[..len]), None);
            }
        }
        assert_eq!(read_integer(&[0x40, 0x25]), Some((37, 2)));
    }

    #[test]
    fn frames_of_all_sizes_are_written_and_read() {
        for len in [0, 1, 63, 64, 16_383, 16_384, 100_000] {
            let mut out = vec![7];
            write(HEADERS, &mut out, |out| out.resize(out.len() + len, 9));
            let mut partial = Partial::default();
            let mut at = 1;
            let header = loop {
                let (taken, header) = partial.header(&out[at..=at]);
                at += taken;
                if let Some(header) = header {
                    break header;
                }
            };
            assert!(partial.is_empty());
            let expected = Header {
                kind: FrameType::Headers,
                len: len as u64,
            };
            assert_eq!(header, expected);
            assert_eq!(out.len() - at, len);
            assert!(out[at..].iter().all(|byte| *byte == 9));
        }
    }
}
