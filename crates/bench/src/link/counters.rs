//! The counts of a link.

use std::fmt;
use std::time::Duration;

/// The counts of one direction. Each packet, and each duplicate, is delivered, lost, dropped or still under way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DirectionCounters {
    /// Packets that were sent.
    pub packets: u64,
    /// Their bytes, with IP headers.
    pub bytes: u64,
    /// The length of the longest, in bytes.
    pub packet_bytes_max: u64,
    /// Packets that were delivered.
    pub delivered: u64,
    /// Their bytes, with IP headers.
    pub delivered_bytes: u64,
    /// Packets that were lost on the way.
    pub lost: u64,
    /// Packets that did not fit in the queue.
    pub dropped: u64,
    /// Packets that others overtook.
    pub reordered: u64,
    /// Packets that were sent twice.
    pub duplicated: u64,
}

impl fmt::Display for DirectionCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} packets with {} bytes, {} lost, {} dropped, {} reordered, {} duplicated",
            self.packets, self.bytes, self.lost, self.dropped, self.reordered, self.duplicated
        )
    }
}

/// The counts of both directions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// From the server to the client.
    pub down: DirectionCounters,
    /// From the client to the server.
    pub up: DirectionCounters,
    /// How late a packet was delivered at most.
    pub lateness_max: Duration,
}
