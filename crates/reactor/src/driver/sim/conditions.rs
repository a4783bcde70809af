//! The conditions of a simulation: delays, limits and faults of the network, the kernel and the machine.

use std::ops::RangeInclusive;

/// Ranges from which values are drawn, and probabilities per thousand.
#[derive(Debug, Clone)]
pub struct Conditions {
    /// One-way delay of a connection in microseconds, drawn when it is opened.
    pub delay_us: RangeInclusive<u64>,
    /// Bytes per millisecond of one direction of a connection, drawn when it is opened.
    pub bytes_per_ms: RangeInclusive<u64>,
    /// Bytes of one segment.
    pub segment_bytes: RangeInclusive<u64>,
    /// Sizes of the kernel's send and receive buffers, both drawn for every socket.
    pub buffer_bytes: RangeInclusive<u64>,
    /// Virtual time of one turn of a core, in microseconds.
    pub turn_us: RangeInclusive<u64>,
    /// Connections that may wait to be accepted by a core; further SYNs are dropped and retransmitted.
    pub backlog: usize,
    /// One-way delay of a datagram in microseconds, drawn for each: a wide range changes their order.
    pub datagram_delay_us: RangeInclusive<u64>,
    /// Larger datagrams are lost.
    pub datagram_bytes_max: usize,
    /// A datagram is lost.
    pub datagram_lost: u16,
    /// A datagram arrives twice.
    pub datagram_twice: u16,
    /// A batch is refused, as by a device without segmentation.
    pub trains_refused: u16,
    /// An operation that could complete is reported up to 2 ms later.
    pub late: u16,
    /// An operation transfers fewer bytes than it could.
    pub short: u16,
    /// A multishot receive ends although its limit is not reached.
    pub receive_ends: u16,
    /// A receive finds no buffer.
    pub no_buffers: u16,
    /// A cancelled operation completes nevertheless.
    pub cancel_loses: u16,
    /// Accepting fails with `ENOBUFS`.
    pub accept_fails: u16,
    /// Accepting or opening a socket fails with `EMFILE`, so that idle connections are evicted, even if
    /// their clients are just sending.
    pub no_descriptors: u16,
}

impl Conditions {
    /// A network without faults, delays and limits, which costs the simulation as little as possible.
    #[must_use]
    pub fn calm() -> Conditions {
        Conditions {
            delay_us: 10..=10,
            bytes_per_ms: 1_000_000..=1_000_000,
            segment_bytes: 65_536..=65_536,
            buffer_bytes: 262_144..=262_144,
            turn_us: 1..=1,
            backlog: 4_096,
            datagram_delay_us: 10..=10,
            datagram_bytes_max: 65_527,
            datagram_lost: 0,
            datagram_twice: 0,
            trains_refused: 0,
            late: 0,
            short: 0,
            receive_ends: 0,
            no_buffers: 0,
            cancel_loses: 0,
            accept_fails: 0,
            no_descriptors: 0,
        }
    }
}
