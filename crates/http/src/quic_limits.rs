//! The limits of QUIC, which are those of the other versions.

use blitz_proto::Limits;

/// Requests at a time that each client may have to begin with. QUIC's machine keeps entries for all, so more are
/// allowed when a client has half of them.
pub(crate) const STREAMS_FIRST: u32 = 32;

/// The limits of a listener.
pub(crate) fn of_listener(limits: &Limits) -> blitz_quic::Limits {
    blitz_quic::Limits {
        streams_first: limits.concurrent_streams_max.min(STREAMS_FIRST),
        ..of_either(limits)
    }
}

/// The limits of connections to servers, which open no streams for requests.
pub(crate) fn of_client(limits: &Limits) -> blitz_quic::Limits {
    blitz_quic::Limits {
        streams_first: 0,
        ..of_either(limits)
    }
}

fn of_either(limits: &Limits) -> blitz_quic::Limits {
    blitz_quic::Limits {
        connections_max: limits.quic.connections_max,
        handshake_timeout: limits.tls_handshake_timeout,
        silence_timeout: limits.idle_timeout,
        stream_window_bytes: bytes(limits.stream_window_bytes_max),
        connection_window_bytes: bytes(first_window(limits)),
        unacknowledged_bytes_max: limits.quic.unacknowledged_bytes_max as u64,
        all_unacknowledged_bytes_max: limits.core_buffer_bytes_max as u64,
        ..blitz_quic::Limits::default()
    }
}

/// What a peer may send on a connection to begin with, as over HTTP/2 (rule 26).
pub(crate) fn first_window(limits: &Limits) -> usize {
    let quic = &limits.quic;
    limits
        .connection_buffer_bytes_max
        .min(quic.window_bytes_max)
        .max(quic.window_bytes_min)
}

fn bytes(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
