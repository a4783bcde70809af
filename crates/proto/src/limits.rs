//! Every bound of the protocol machines and of the loops that drive them, each with one default
//! for all versions of HTTP.

use std::time::Duration;

/// The bounds. Reaching one has a defined outcome, which the field's description names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a header section, the request line not included; beyond: 431.
    pub head_bytes_max: usize,
    /// Field lines of a header section; beyond: 431.
    pub fields_max: usize,
    /// Bytes of a request or status line; beyond: 414 or 502.
    pub request_line_bytes_max: usize,
    /// Empty lines tolerated before a request line (RFC 9112, section 2.2); beyond: 400.
    pub empty_lines_max: usize,
    /// Bytes of one chunk-size line with its extensions; beyond: 400.
    pub chunk_line_bytes_max: usize,
    /// Bytes of chunk extensions in one message; beyond: 400.
    pub chunk_extension_bytes_max: usize,
    /// Bytes of a trailer section; beyond: 431.
    pub trailer_bytes_max: usize,
    /// Field lines of a trailer section; beyond: 431.
    pub trailer_fields_max: usize,
    /// Informational (1xx) responses before one final response; beyond: 502.
    pub informational_max: usize,
    /// Bytes read ahead while a request is in flight on an HTTP/1 connection, those after a request
    /// to upgrade included; beyond: not read.
    pub pipelined_bytes_max: usize,

    /// Bytes buffered per stream and direction; beyond: back-pressure.
    pub stream_buffer_bytes_max: usize,
    /// Bytes buffered per connection; beyond: back-pressure.
    pub connection_buffer_bytes_max: usize,
    /// Bytes buffered per core; beyond: the largest holder is shed.
    pub core_buffer_bytes_max: usize,
    /// Payload of at least this many bytes is forwarded without copying.
    pub slice_bytes_min: usize,
    /// Least bytes that the window of an upstream's stream begins with, however many are open; with
    /// few it is `stream_buffer_bytes_max`.
    pub stream_window_bytes_min: usize,
    /// Bytes of large request heads held per core, which count against `core_buffer_bytes_max`, too;
    /// beyond: 503. Large are those that `large_head_bytes_min` names.
    pub heads_bytes_max: usize,
    /// Bytes of memory from which the head of a request is large.
    pub large_head_bytes_min: usize,
    /// Bytes of a request body kept for one retry; beyond: no retry.
    pub replay_bytes_max: usize,
    /// Bytes of a request body that are discarded behind its answer; when more are known to come, an answer
    /// of HTTP/1.1 says that the connection closes, and a stream of HTTP/2 is reset.
    pub discard_bytes_max: usize,
    /// The same where an answer of HTTP/1.1 has not said it: a client that has handed all of the body to its
    /// kernel takes the connection for reusable, and its next request would be lost.
    pub discard_unannounced_bytes_max: usize,
    /// Time for which they are discarded.
    pub discard_timeout: Duration,

    /// Time from a head's first byte to its last; beyond: 408.
    pub head_timeout: Duration,
    /// Time a connection may be without a request; beyond: closed.
    pub idle_timeout: Duration,
    /// Least average rate of a request body in bytes per second; below: 408.
    pub body_rate_min: u64,
    /// Time before that rate is asked for.
    pub body_rate_grace: Duration,
    /// Time a body may be silent while somebody waits for it, of a request once its answer has
    /// begun; beyond: the exchange is cut off.
    pub body_idle_timeout: Duration,
    /// Time for which a client of HTTP/1.1 that has ended its direction may be sent nothing;
    /// beyond: it counts as gone and the exchange is cancelled. `None`: never.
    pub half_close_grace: Option<Duration>,
    /// Time a peer may refuse to take a byte; beyond: closed.
    pub send_stall_timeout: Duration,
    /// Time a tunnel or long-lived stream may be silent; beyond: closed.
    pub stream_idle_timeout: Duration,

    /// Time for the peer to acknowledge the settings of a multiplexed connection (RFC 9113, section
    /// 6.5.3); beyond: closed.
    pub settings_timeout: Duration,
    /// Streams open at once on a multiplexed connection.
    pub concurrent_streams_max: u32,
    /// Resets before a response head within the window; beyond, and above half of the streams
    /// opened: the connection is closed.
    pub resets_max: u32,
    /// Resets within the window, before and after a response head; beyond: the connection is closed.
    pub resets_total_max: u32,
    /// Length of that window.
    pub resets_window: Duration,
    /// Bytes of a compressed header block. What is within them but decodes to more than
    /// `head_bytes_max` is 431; beyond: the connection is closed.
    pub header_block_bytes_max: usize,
    /// CONTINUATION frames of one header block; beyond: the connection is closed.
    pub continuations_max: u32,
    /// Bytes of each dynamic table of HPACK, at most 65,535.
    pub hpack_table_bytes_max: usize,
    /// Bytes that a stream's window grows to while its reader keeps up; it begins with
    /// `stream_buffer_bytes_max`.
    pub stream_window_bytes_max: usize,
    /// The same for a connection, which begins with `connection_buffer_bytes_max`.
    pub connection_window_bytes_max: usize,
    /// Time in which the frames of each of the following kinds are counted; beyond any of these
    /// counts the connection is closed.
    pub frames_window: Duration,
    /// SETTINGS in the window.
    pub settings_frames_max: u32,
    /// PING in the window, and one more for each KiB of content in either direction.
    pub pings_max: u32,
    /// Acknowledgements of PING in the window, and one more for each KiB of content in either
    /// direction.
    pub ping_acks_max: u32,
    /// GOAWAY in the window.
    pub goaways_max: u32,
    /// DATA without content, and CONTINUATION without bytes, that end nothing.
    pub empty_frames_max: u32,
    /// DATA of less than 4 bytes that end nothing.
    pub small_data_frames_max: u32,
    /// WINDOW_UPDATE in the window, and one more for each 256 bytes of content sent.
    pub window_updates_max: u32,
    /// PRIORITY and PRIORITY_UPDATE in the window, and two more for each stream opened.
    pub priority_frames_max: u32,
    /// Frames of unknown types in the window, and two more for each stream opened.
    pub unknown_frames_max: u32,
    /// HEADERS and RST_STREAM of a client on streams that are over, in the window, and two more for
    /// each stream opened.
    pub stray_frames_max: u32,
    /// Time for which an upstream connection with requests may be silent; beyond: it is asked with
    /// PING, and gets no more requests until something comes.
    pub ping_after: Duration,
    /// Time for something to come then; beyond: the connection is closed, and what had no answer may
    /// be sent again.
    pub ping_timeout: Duration,
    /// Idle upstream connections kept per core; beyond: the oldest is closed.
    pub pool_idle_max: usize,
    /// Connections of an upstream's address that are in use at once, per core; beyond: requests wait.
    /// Tunnels count, and connections that are being made.
    pub upstream_connections_max: usize,
    /// Requests that wait at once for a connection to an upstream's address, per core; beyond: 503.
    pub upstream_waiting_max: usize,
    /// Time for which a request waits; beyond: 503.
    pub upstream_wait_timeout: Duration,
    /// Age at which an upstream connection gets no more requests, so that it closes with its last;
    /// sooner by up to a tenth, lest those that began together end together.
    pub connection_age_max: Duration,
    /// Time to connect to an upstream; beyond: 504.
    pub connect_timeout: Duration,

    /// Time from a connection's first byte, or from its being accepted, to the end of its TLS
    /// handshake; beyond: closed.
    pub tls_handshake_timeout: Duration,
    /// Bytes of an incomplete message of a TLS handshake; beyond: closed.
    pub tls_handshake_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        const KIB: usize = 1024;
        Limits {
            head_bytes_max: 32 * KIB,
            fields_max: 100,
            request_line_bytes_max: 8 * KIB,
            empty_lines_max: 2,
            chunk_line_bytes_max: 256,
            chunk_extension_bytes_max: 4 * KIB,
            trailer_bytes_max: 8 * KIB,
            trailer_fields_max: 32,
            informational_max: 8,
            pipelined_bytes_max: 16 * KIB,

            stream_buffer_bytes_max: 64 * KIB,
            connection_buffer_bytes_max: 256 * KIB,
            core_buffer_bytes_max: 64 * KIB * KIB,
            slice_bytes_min: KIB,
            stream_window_bytes_min: 8 * KIB,
            heads_bytes_max: 16 * KIB * KIB,
            large_head_bytes_min: 4 * KIB + 1,
            replay_bytes_max: 64 * KIB,
            discard_bytes_max: 64 * KIB,
            discard_unannounced_bytes_max: 16 * KIB * KIB,
            discard_timeout: Duration::from_secs(2),

            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            body_rate_min: 240,
            body_rate_grace: Duration::from_secs(5),
            body_idle_timeout: Duration::from_secs(60),
            half_close_grace: Some(Duration::from_secs(1)),
            send_stall_timeout: Duration::from_secs(60),
            stream_idle_timeout: Duration::from_secs(300),

            settings_timeout: Duration::from_secs(10),
            concurrent_streams_max: 100,
            resets_max: 200,
            resets_total_max: 2_000,
            resets_window: Duration::from_secs(10),
            header_block_bytes_max: 64 * KIB,
            continuations_max: 16,
            hpack_table_bytes_max: 4096,
            stream_window_bytes_max: KIB * KIB,
            connection_window_bytes_max: 2 * KIB * KIB,
            frames_window: Duration::from_secs(10),
            settings_frames_max: 100,
            pings_max: 1_000,
            ping_acks_max: 1_000,
            goaways_max: 10,
            empty_frames_max: 100,
            small_data_frames_max: 10_000,
            window_updates_max: 2_000,
            priority_frames_max: 500,
            unknown_frames_max: 500,
            stray_frames_max: 500,
            ping_after: Duration::from_secs(5),
            ping_timeout: Duration::from_secs(20),
            pool_idle_max: 1024,
            upstream_connections_max: 8_192,
            upstream_waiting_max: 4_096,
            upstream_wait_timeout: Duration::from_secs(5),
            connection_age_max: Duration::from_secs(60 * 60),
            connect_timeout: Duration::from_secs(1),

            tls_handshake_timeout: Duration::from_secs(10),
            tls_handshake_bytes_max: 32 * KIB,
        }
    }
}
