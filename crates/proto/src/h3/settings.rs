//! Settings (RFC 9114, section 7.2.4; RFC 9204, section 5; RFC 9220, section 3).

use super::frame::{self, read_integer, write_integer};
use crate::error::ErrorKind;

const QPACK_MAX_TABLE_CAPACITY: u64 = 0x1;
const MAX_FIELD_SECTION_SIZE: u64 = 0x6;
const QPACK_BLOCKED_STREAMS: u64 = 0x7;
const ENABLE_CONNECT_PROTOCOL: u64 = 0x8;

/// A setting without meaning, so that peers keep ignoring what they do not know (RFC 9114, section 7.2.4.1).
const GREASE: (u64, u64) = (0x1f * 0x2a + 0x21, 0x17);

/// The peer's settings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerSettings {
    /// The largest field section that the peer accepts, in the size of RFC 9114, section 4.2.2.
    pub(crate) field_section_size_max: u64,
    /// The peer accepts extended CONNECT (RFC 9220).
    pub(crate) connect_protocol: bool,
}

impl PeerSettings {
    pub(crate) const DEFAULT: PeerSettings = PeerSettings {
        field_section_size_max: u64::MAX,
        connect_protocol: false,
    };

    /// Reads the payload of a SETTINGS frame.
    pub(crate) fn parse(mut payload: &[u8]) -> Result<PeerSettings, ErrorKind> {
        let mut settings = PeerSettings::DEFAULT;
        let mut seen = Vec::new();
        while !payload.is_empty() {
            let mut next = || {
                let (value, len) = read_integer(payload).ok_or(ErrorKind::FrameSize)?;
                payload = &payload[len..];
                Ok::<u64, ErrorKind>(value)
            };
            let (id, value) = (next()?, next()?);
            // RFC 9114, section 7.2.4: "The same setting identifier MUST NOT occur more than once".
            if seen.contains(&id) {
                return Err(ErrorKind::Settings);
            }
            seen.push(id);
            settings.apply(id, value)?;
        }
        Ok(settings)
    }

    fn apply(&mut self, id: u64, value: u64) -> Result<(), ErrorKind> {
        match id {
            MAX_FIELD_SECTION_SIZE => self.field_section_size_max = value,
            ENABLE_CONNECT_PROTOCOL if value > 1 => return Err(ErrorKind::Settings),
            ENABLE_CONNECT_PROTOCOL => self.connect_protocol = value == 1,
            // RFC 9114, section 7.2.4.1: identifiers of HTTP/2 without a counterpart "MUST NOT be sent, and
            // their receipt MUST be treated as a connection error of type H3_SETTINGS_ERROR."
            0x0 | 0x2..=0x5 => return Err(ErrorKind::Settings),
            _ => {}
        }
        Ok(())
    }
}

/// The settings that this end announces.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalSettings {
    pub(crate) table_capacity_max: usize,
    pub(crate) blocked_streams_max: usize,
    pub(crate) field_section_size_max: u32,
}

impl LocalSettings {
    /// Appends the SETTINGS frame of a server or a client.
    pub(crate) fn write(&self, is_server: bool, out: &mut Vec<u8>) {
        let settings = [
            (QPACK_MAX_TABLE_CAPACITY, self.table_capacity_max as u64),
            (QPACK_BLOCKED_STREAMS, self.blocked_streams_max as u64),
            (MAX_FIELD_SECTION_SIZE, self.field_section_size_max.into()),
            GREASE,
            (ENABLE_CONNECT_PROTOCOL, 1),
        ];
        let count = if is_server { 5 } else { 4 };
        frame::write(frame::SETTINGS, out, |out| {
            for (id, value) in &settings[..count] {
                write_integer(*id, out);
                write_integer(*value, out);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(settings: &[(u64, u64)]) -> Result<PeerSettings, ErrorKind> {
        let mut payload = Vec::new();
        for (id, value) in settings {
            write_integer(*id, &mut payload);
            write_integer(*value, &mut payload);
        }
        PeerSettings::parse(&payload)
    }

    #[test]
    fn settings_are_read_and_wrong_ones_refused() {
        let settings = parse(&[(0x6, 1_000), (0x8, 1), (0x21, 7), (0x33, 1)]).expect("valid");
        assert!(settings.connect_protocol);
        assert_eq!(settings.field_section_size_max, 1_000);
        for wrong in [
            &[(0x4, 1)][..],
            &[(0x8, 2)],
            &[(0x0, 0)],
            &[(0x1, 5), (0x1, 5)],
        ] {
            assert_eq!(parse(wrong).err(), Some(ErrorKind::Settings), "{wrong:?}");
        }
        for cut in [&[0x6][..], &[0x6, 0x40], &[0x40]] {
            assert_eq!(PeerSettings::parse(cut).err(), Some(ErrorKind::FrameSize));
        }
    }
}
