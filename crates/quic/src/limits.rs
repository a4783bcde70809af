//! Limits of QUIC, with defaults.

use std::sync::Arc;
use std::time::Duration;

use quinn_proto::{IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt};

use crate::congestion::Congestion;
use crate::connection::UNACKNOWLEDGED_BYTES_FREE;

/// Limits of an endpoint and of each of its connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections of one core; beyond, idle ones are closed for new ones, and new ones refused if there is none.
    pub connections_max: usize,
    /// Handshakes of one core that are incomplete. Beyond, the oldest is closed for a new client that has proved its
    /// address; the client is ignored if none has lasted for 1 s.
    pub handshakes_max: usize,
    /// With so many incomplete handshakes, clients have to prove their address first (Retry: RFC 9000,
    /// section 8.1.2).
    pub retry_above: usize,
    /// How long a handshake may take.
    pub handshake_timeout: Duration,
    /// How long a connection lives without any packet of the peer (RFC 9000, section 10.1).
    pub silence_timeout: Duration,
    /// Streams in both directions that the peer may have open to begin with: the library keeps entries for all allowed
    /// streams. The protocol allows more when they are used.
    pub streams_first: u32,
    /// Streams in one direction that the peer may have open.
    pub unidirectional_streams_max: u32,
    /// Bytes that the peer may send on one stream before they are read.
    pub stream_window_bytes: u32,
    /// Bytes that the peer may send on all streams of a connection before they are read.
    pub connection_window_bytes: u32,
    /// Bytes of a connection that are sent and not acknowledged, or wait to be sent.
    pub unacknowledged_bytes_max: u64,
    /// The same for all connections of a core together, which share it; each has 64 KiB beside it.
    pub all_unacknowledged_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 8_192,
            handshakes_max: 1_024,
            retry_above: 256,
            handshake_timeout: Duration::from_secs(10),
            silence_timeout: Duration::from_secs(75),
            streams_first: 100,
            unidirectional_streams_max: 8,
            stream_window_bytes: 1024 * 1024,
            connection_window_bytes: 256 * 1024,
            unacknowledged_bytes_max: 4 * 1024 * 1024,
            all_unacknowledged_bytes_max: 64 * 1024 * 1024,
        }
    }
}

/// Bytes of handshake messages that are out of order; a long chain of certificates fits.
const HANDSHAKE_BYTES_MAX: usize = 16 * 1024;

impl Limits {
    pub(crate) fn transport(&self) -> Arc<TransportConfig> {
        let mut config = TransportConfig::default();
        config
            .max_concurrent_bidi_streams(VarInt::from_u32(self.streams_first))
            .max_concurrent_uni_streams(VarInt::from_u32(self.unidirectional_streams_max))
            .stream_receive_window(VarInt::from_u32(self.stream_window_bytes))
            .receive_window(VarInt::from_u32(self.connection_window_bytes))
            .send_window(UNACKNOWLEDGED_BYTES_FREE)
            .max_idle_timeout(IdleTimeout::try_from(self.silence_timeout).ok())
            .crypto_buffer_size(HANDSHAKE_BYTES_MAX)
            .congestion_controller_factory(Arc::new(Congestion::default()))
            .mtu_discovery_config(Some(mtu_discovery()))
            // Datagrams of applications (RFC 9221) are not offered.
            .datagram_receive_buffer_size(None)
            .datagram_send_buffer_size(0);
        Arc::new(config)
    }
}

/// The largest datagram is tried first. A binary search would send four probes to find that it arrives: short
/// connections do without them, and long ones have its size sooner. Narrower paths get 1,325 or 1,200 bytes.
fn mtu_discovery() -> MtuDiscoveryConfig {
    let mut config = MtuDiscoveryConfig::default();
    config
        .upper_bound(DATAGRAM_BYTES_MAX)
        .minimum_change((DATAGRAM_BYTES_MAX - DATAGRAM_BYTES_MIN) / 2 + 1);
    config
}

/// Sizes of datagrams: every path carries the least (RFC 9000, section 14), and Ethernet with IPv6 the largest.
const DATAGRAM_BYTES_MIN: u16 = 1200;
const DATAGRAM_BYTES_MAX: u16 = 1452;
