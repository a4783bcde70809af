//! Frames of HTTP/2, written and read by hand (RFC 9113, section 4).

pub(super) const DATA: u8 = 0x0;
pub(super) const HEADERS: u8 = 0x1;
pub(super) const PRIORITY: u8 = 0x2;
pub(super) const RST_STREAM: u8 = 0x3;
pub(super) const SETTINGS: u8 = 0x4;
pub(super) const PING: u8 = 0x6;
pub(super) const GOAWAY: u8 = 0x7;
pub(super) const WINDOW_UPDATE: u8 = 0x8;
pub(super) const CONTINUATION: u8 = 0x9;
/// An unknown type.
pub(super) const UNKNOWN: u8 = 0xbb;

/// Also ACK, of SETTINGS and PING.
pub(super) const END_STREAM: u8 = 0x1;
pub(super) const ACK: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
pub(super) const PADDED: u8 = 0x8;
const WITH_PRIORITY: u8 = 0x20;

pub(super) const MAX_CONCURRENT_STREAMS: u16 = 0x3;
pub(super) const INITIAL_WINDOW_SIZE: u16 = 0x4;

pub(super) const HEADER_BYTES: usize = 9;

pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

impl Frame {
    /// Removes the next frame from the received bytes, if it is complete.
    pub(super) fn take(received: &mut &[u8]) -> Option<Frame> {
        let &[a, b, c, kind, flags, ref stream @ ..] = received.first_chunk::<HEADER_BYTES>()?;
        let end = HEADER_BYTES + u32::from_be_bytes([0, a, b, c]) as usize;
        let payload = received.get(HEADER_BYTES..end)?.to_vec();
        let stream = u32::from_be_bytes(*stream);
        *received = &received[end..];
        Some(Frame {
            kind,
            flags,
            stream,
            payload,
        })
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The payload without padding and priority.
    pub(super) fn content(&self) -> Option<&[u8]> {
        let mut content = &self.payload[..];
        if self.has(PADDED) {
            let (&padding, rest) = content.split_first()?;
            content = rest.get(..rest.len().checked_sub(usize::from(padding))?)?;
        }
        match self.kind == HEADERS && self.has(WITH_PRIORITY) {
            true => content.get(5..),
            false => Some(content),
        }
    }

    /// A number at the start of the payload.
    pub(super) fn number(&self) -> Option<u32> {
        self.payload
            .first_chunk()
            .map(|bytes| u32::from_be_bytes(*bytes))
    }

    /// The settings of a SETTINGS frame.
    pub(super) fn settings(&self) -> impl Iterator<Item = (u16, u32)> {
        let (settings, _) = self.payload.as_chunks::<6>();
        settings
            .iter()
            .map(|&[a, b, ref value @ ..]| (u16::from_be_bytes([a, b]), u32::from_be_bytes(*value)))
    }
}

pub(super) fn write(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    let [_, length @ ..] = (payload.len() as u32).to_be_bytes();
    out.extend(length);
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend_from_slice(payload);
}

pub(super) fn write_settings(settings: &[(u16, u32)], out: &mut Vec<u8>) {
    let payload = settings.iter().flat_map(|(id, value)| {
        let (id, value) = (id.to_be_bytes(), value.to_be_bytes());
        id.into_iter().chain(value)
    });
    write(SETTINGS, 0, 0, &payload.collect::<Vec<u8>>(), out);
}

/// A block of literal fields that no table keeps (RFC 7541, section 6.2.2).
pub(super) fn block(fields: &[(&str, String)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name.as_bytes(), value.as_bytes()] {
            length(text.len(), &mut block);
            block.extend_from_slice(text);
        }
    }
    block
}

/// An integer with a prefix of seven bits (RFC 7541, section 5.1).
fn length(value: usize, out: &mut Vec<u8>) {
    let Some(mut left) = value.checked_sub(127) else {
        return out.push(value as u8);
    };
    out.push(127);
    while left >= 128 {
        out.push((left % 128) as u8 | 0x80);
        left /= 128;
    }
    out.push(left as u8);
}
