//! The limits of QUIC, which are those of the other versions.

use blitz_proto::Limits;

/// Requests at a time that each client may have to begin with. QUIC's machine keeps entries for all, so more are
/// allowed when a client has half of them.
pub(crate) const STREAMS_FIRST: u32 = 32;

/// The limits of a listener.
pub(crate) fn of_listener(limits: &Limits) -> blitz_quic::Limits {
    blitz_quic::Limits {
        streams_first: limits.concurrent_streams_max.min(STREAMS_FIRST),
        stream_window_bytes: bytes(limits.quic.stream_window_bytes),
        ..of_either(limits)
    }
}

/// The limits of connections to servers, which open no streams for requests.
pub(crate) fn of_client(limits: &Limits) -> blitz_quic::Limits {
    blitz_quic::Limits {
        streams_first: 0,
        stream_window_bytes: bytes(limits.stream_window_bytes_max),
        ..of_either(limits)
    }
}

fn of_either(limits: &Limits) -> blitz_quic::Limits {
    blitz_quic::Limits {
        connections_max: limits.quic.connections_max,
        handshake_timeout: limits.tls_handshake_timeout,
        silence_timeout: limits.idle_timeout,
        connection_window_bytes: bytes(limits.quic.window_bytes_min),
        unacknowledged_bytes_max: limits.quic.unacknowledged_bytes_max as u64,
        all_unacknowledged_bytes_max: limits.core_buffer_bytes_max as u64,
        ..blitz_quic::Limits::default()
    }
}

fn bytes(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
