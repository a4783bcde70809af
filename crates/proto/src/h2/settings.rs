//! Settings (RFC 9113, section 6.5; RFC 8441, section 3; RFC 9218, section 2.1).

use super::frame::{self, FrameType, PAYLOAD_MAX, WINDOW_MAX};
use crate::error::ErrorKind;
use crate::message::{Name, RequestHead};

/// The initial value before any SETTINGS (RFC 9113, section 6.5.2).
pub(crate) const WINDOW_DEFAULT: u32 = 65_535;

const HEADER_TABLE_SIZE: u16 = 0x1;
const ENABLE_PUSH: u16 = 0x2;
const MAX_CONCURRENT_STREAMS: u16 = 0x3;
const INITIAL_WINDOW_SIZE: u16 = 0x4;
const MAX_FRAME_SIZE: u16 = 0x5;
const MAX_HEADER_LIST_SIZE: u16 = 0x6;
const ENABLE_CONNECT_PROTOCOL: u16 = 0x8;
const NO_RFC7540_PRIORITIES: u16 = 0x9;

/// The peer's settings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerSettings {
    pub(crate) header_table_size: u32,
    pub(crate) concurrent_streams_max: u32,
    pub(crate) window: u32,
    /// The largest field section that the peer accepts, in the size of RFC 9113, section 6.5.2.
    pub(crate) header_list_size_max: u32,
    /// The peer accepts extended CONNECT (RFC 8441).
    pub(crate) connect_protocol: bool,
}

impl PeerSettings {
    pub(crate) const DEFAULT: PeerSettings = PeerSettings {
        header_table_size: 4096,
        // RFC 9113, section 6.5.2: "Initially, there is no limit to this value." Most servers allow
        // about this number, so the guess avoids refused streams.
        concurrent_streams_max: 100,
        window: WINDOW_DEFAULT,
        header_list_size_max: u32::MAX,
        connect_protocol: false,
    };

    /// Applies the payload of a SETTINGS frame; `from_server` tells which end sent it.
    pub(crate) fn apply(&mut self, payload: &[u8], from_server: bool) -> Result<(), ErrorKind> {
        // RFC 9113, section 6.5: "A SETTINGS frame with a length other than a multiple of 6 octets
        // MUST be treated as a connection error (Section 5.4.1) of type FRAME_SIZE_ERROR."
        let (settings, []) = payload.as_chunks::<6>() else {
            return Err(ErrorKind::FrameSize);
        };
        for &[a, b, value @ ..] in settings {
            let value = u32::from_be_bytes(value);
            self.apply_one(u16::from_be_bytes([a, b]), value, from_server)?;
        }
        Ok(())
    }

    fn apply_one(&mut self, id: u16, value: u32, from_server: bool) -> Result<(), ErrorKind> {
        match id {
            HEADER_TABLE_SIZE => self.header_table_size = value,
            MAX_CONCURRENT_STREAMS => self.concurrent_streams_max = value,
            INITIAL_WINDOW_SIZE if i64::from(value) > WINDOW_MAX => {
                return Err(ErrorKind::FlowControl);
            }
            INITIAL_WINDOW_SIZE => self.window = value,
            MAX_HEADER_LIST_SIZE => self.header_list_size_max = value,
            // RFC 9113, section 6.5.2: "A server MUST NOT explicitly set this value to 1", and for
            // either side: "Any value other than 0 or 1 MUST be treated as a connection error".
            ENABLE_PUSH if value > u32::from(!from_server) => return Err(ErrorKind::Settings),
            MAX_FRAME_SIZE if !(PAYLOAD_MAX as u32..1 << 24).contains(&value) => {
                return Err(ErrorKind::Settings);
            }
            // RFC 8441, section 3: "A sender MUST NOT send a SETTINGS_ENABLE_CONNECT_PROTOCOL
            // parameter with the value of 0 after previously sending a value of 1."
            ENABLE_CONNECT_PROTOCOL if value > 1 || (value == 0 && self.connect_protocol) => {
                return Err(ErrorKind::Settings);
            }
            ENABLE_CONNECT_PROTOCOL => self.connect_protocol = value == 1,
            NO_RFC7540_PRIORITIES if value > 1 => return Err(ErrorKind::Settings),
            _ => {}
        }
        Ok(())
    }
}

/// The settings that this end announces.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalSettings {
    pub(crate) header_table_size: u32,
    pub(crate) concurrent_streams_max: u32,
    pub(crate) window: u32,
    pub(crate) header_list_size_max: u32,
}

impl LocalSettings {
    /// Appends the first SETTINGS frame of a server or a client.
    pub(crate) fn write(&self, is_server: bool, out: &mut Vec<u8>) {
        let common = [
            (HEADER_TABLE_SIZE, self.header_table_size),
            (INITIAL_WINDOW_SIZE, self.window),
            (MAX_HEADER_LIST_SIZE, self.header_list_size_max),
            (NO_RFC7540_PRIORITIES, 1),
        ];
        let of_server = [
            (MAX_CONCURRENT_STREAMS, self.concurrent_streams_max),
            (ENABLE_CONNECT_PROTOCOL, 1),
        ];
        let of_client = [(ENABLE_PUSH, 0)];
        let of_role: &[_] = if is_server { &of_server } else { &of_client };
        let mut payload = Vec::with_capacity(36);
        for (id, value) in common.iter().chain(of_role) {
            payload.extend_from_slice(&u16::to_be_bytes(*id));
            payload.extend_from_slice(&u32::to_be_bytes(*value));
        }
        frame::write(FrameType::Settings, 0, 0, &payload, out);
    }

    /// Appends SETTINGS that only change the initial window of streams.
    pub(crate) fn write_window(window: u32, out: &mut Vec<u8>) {
        let [a, b] = INITIAL_WINDOW_SIZE.to_be_bytes();
        let [c, d, e, f] = window.to_be_bytes();
        frame::write(FrameType::Settings, 0, 0, &[a, b, c, d, e, f], out);
    }
}

/// The settings in `HTTP2-Settings` of an HTTP/1.1 request to upgrade to h2c (RFC 7540, section
/// 3.2.1).
#[derive(Debug, Clone, Copy)]
pub struct UpgradeSettings(pub(crate) PeerSettings);

impl UpgradeSettings {
    /// Parses the settings of a request.
    ///
    /// `None` if they are malformed or do not occur exactly once: "A server MUST NOT upgrade the connection
    /// to HTTP/2 if this header field is not present or if more than one is present."
    #[must_use]
    pub fn of(head: &RequestHead) -> Option<UpgradeSettings> {
        let mut values = head.fields.get_all(Name::Http2Settings);
        let (value, None) = (values.next()?, values.next()) else {
            return None;
        };
        let payload = decode_base64url(value).ok()?;
        let mut settings = PeerSettings::DEFAULT;
        settings.apply(&payload, false).ok()?;
        Some(UpgradeSettings(settings))
    }
}

/// The value of `HTTP2-Settings`: base64url without padding (RFC 7540, section 3.2.1).
fn decode_base64url(text: &[u8]) -> Result<Vec<u8>, ErrorKind> {
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut count) = (0u32, 0);
    for &digit in text {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => return Err(ErrorKind::Settings),
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    // Six remaining bits mean one digit too many; any other remaining bits must be zero.
    if count == 6 || bits & ((1 << count) - 1) != 0 {
        return Err(ErrorKind::Settings);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_an_upgrade_are_decoded() {
        assert_eq!(decode_base64url(b"AAMAAABk"), Ok(vec![0, 3, 0, 0, 0, 100]));
        assert_eq!(decode_base64url(b"_-8"), Ok(vec![0xff, 0xef]));
        assert_eq!(decode_base64url(b""), Ok(vec![]));
        for wrong in [&b"A"[..], b"AAMAAABk=", b"A+/A", b"_-9"] {
            assert_eq!(decode_base64url(wrong), Err(ErrorKind::Settings));
        }
    }
}
