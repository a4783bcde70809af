//! The bytes that a server may send before they are read.

use std::fmt;
use std::str::FromStr;

use blitz_http::{Limits, Protocol};

use super::arguments::size;
use crate::load_result::WindowFacts;

/// The windows that a client announces, as browsers do: smaller ones would measure the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Windows {
    stream_bytes: u32,
    connection_bytes: u32,
}

/// Chromium's windows.
pub(super) const DEFAULT: Windows = Windows {
    stream_bytes: 6 << 20,
    connection_bytes: 15 << 20,
};

/// The window of a connection for one of a stream, if only that is given: as large in proportion as by default.
const CONNECTION_PER_STREAM: (u64, u64) = (5, 2);

/// The window of a stream over QUIC. Its library closes a connection whose stream has more than 1,024 gaps. A queue
/// that is too short for a sender loses every second packet at worst, and 2 MiB are 1,810 packets of 1,200 bytes with
/// 1,159 bytes of content: at most 905 gaps.
const QUIC_STREAM_BYTES_MAX: u32 = 2 << 20;

/// The smallest window of a connection that HTTP/2 can have (RFC 9113, section 6.9.2).
const CONNECTION_BYTES_MIN: u32 = 65_535;

/// RFC 9113, section 6.9.1.
const BYTES_MAX: u64 = (1 << 31) - 1;

impl Windows {
    /// The windows that are announced over a protocol; `None` over HTTP/1.1, where the kernel has the window.
    pub(super) fn facts(self, protocol: Protocol) -> Option<WindowFacts> {
        let stream_bytes = match protocol {
            Protocol::Http1 => return None,
            Protocol::Http2 => self.stream_bytes,
            Protocol::Http3 => self.stream_bytes.min(QUIC_STREAM_BYTES_MAX),
        };
        Some(WindowFacts {
            stream_bytes,
            connection_bytes: self.connection_bytes,
        })
    }

    /// Sets them for a client of this protocol. They do not change, also while memory is short.
    pub(super) fn apply(self, protocol: Protocol, limits: &mut Limits) {
        let Some(facts) = self.facts(protocol) else {
            return;
        };
        let stream = facts.stream_bytes as usize;
        let connection = facts.connection_bytes as usize;
        limits.stream_window_bytes = stream;
        limits.stream_window_bytes_min = stream;
        limits.stream_window_bytes_max = stream;
        limits.connection_buffer_bytes_max = connection;
        limits.connection_window_bytes_max = connection;
        limits.quic.window_bytes_min = connection;
        limits.quic.window_bytes_max = connection;
    }
}

/// The windows that are announced by default, as a sentence of a report.
pub(crate) fn sentence() -> String {
    let of = |protocol| {
        let facts = DEFAULT.facts(protocol);
        facts.map(|facts| facts.to_string()).unwrap_or_default()
    };
    format!(
        "Clients announce windows as browsers do: over HTTP/2 {}, over HTTP/3 {}, because QUIC's library keeps no more \
         gaps of a stream.",
        of(Protocol::Http2),
        of(Protocol::Http3)
    )
}

impl FromStr for Windows {
    type Err = String;

    fn from_str(text: &str) -> Result<Windows, String> {
        let (stream, connection) = match text.split_once(':') {
            Some((stream, connection)) => (size(stream)?, size(connection)?),
            None => {
                let stream = size(text)?;
                let (of, per) = CONNECTION_PER_STREAM;
                let connection = stream.saturating_mul(of) / per;
                (
                    stream,
                    connection.clamp(CONNECTION_BYTES_MIN.into(), BYTES_MAX),
                )
            }
        };
        let allowed = u64::from(CONNECTION_BYTES_MIN)..=BYTES_MAX;
        if !(1..=BYTES_MAX).contains(&stream) || !allowed.contains(&connection) {
            return Err(format!(
                "`{text}` is no window; write 64k, 6m or 6m:15m: 1 to 2147483647 bytes of a stream, and at least 65535 of \
                 a connection"
            ));
        }
        Ok(Windows {
            stream_bytes: stream as u32,
            connection_bytes: connection as u32,
        })
    }
}

impl fmt::Display for WindowFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |bytes: u32| match bytes {
            _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
            _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
            _ => format!("{bytes} bytes"),
        };
        let WindowFacts {
            stream_bytes,
            connection_bytes,
        } = *self;
        write!(
            f,
            "{} a stream, {} a connection",
            bytes(stream_bytes),
            bytes(connection_bytes)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announced(windows: Windows, protocol: Protocol) -> String {
        windows.facts(protocol).unwrap().to_string()
    }

    #[test]
    fn windows_are_those_of_a_browser_and_smaller_over_quic() {
        assert_eq!(
            announced(DEFAULT, Protocol::Http2),
            "6 MiB a stream, 15 MiB a connection"
        );
        assert_eq!(
            announced(DEFAULT, Protocol::Http3),
            "2 MiB a stream, 15 MiB a connection"
        );
        assert_eq!(DEFAULT.facts(Protocol::Http1), None);
    }

    #[test]
    fn no_loss_of_every_second_packet_leaves_more_gaps_than_quic_takes() {
        const GAPS_MAX: u32 = 1_024;
        const CONTENT_BYTES_MIN: u32 = 1_159;
        const { assert!(QUIC_STREAM_BYTES_MAX / CONTENT_BYTES_MIN / 2 < GAPS_MAX) };
        let wanted: Windows = "6m:15m".parse().unwrap();
        let mut limits = Limits::default();
        wanted.apply(Protocol::Http3, &mut limits);
        assert_eq!(limits.stream_window_bytes_max, 2 << 20);
    }

    #[test]
    fn windows_have_one_size_or_two() {
        let one: Windows = "64k".parse().unwrap();
        assert_eq!(
            announced(one, Protocol::Http2),
            "64 KiB a stream, 160 KiB a connection"
        );
        let two: Windows = "1m:1m".parse().unwrap();
        assert_eq!(
            announced(two, Protocol::Http3),
            "1 MiB a stream, 1 MiB a connection"
        );
        let least: Windows = "1".parse().unwrap();
        assert_eq!(least.connection_bytes, CONNECTION_BYTES_MIN);
        for text in ["0", "64k:64k0", "64k:1", "2g", "wide", "1m:3g"] {
            let error = text.parse::<Windows>().unwrap_err();
            assert!(error.contains("write"), "{text}: {error}");
        }
    }
}
