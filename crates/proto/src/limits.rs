//! All limits of the protocols and of the loops that drive them, each with one default for all
//! versions of HTTP.

use std::time::Duration;

/// A timeout that never passes in practice: a hundred years, which can be added to any time of a clock.
pub const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The limits. The description of each names the outcome of reaching it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a header section, the request line not included; beyond: 431. Over HTTP/2 and HTTP/3, where the target
    /// is a field, a request may have `request_line_bytes_max` more.
    pub head_bytes_max: usize,
    /// Field lines of a request's header section; beyond: 431.
    pub fields_max: usize,
    /// Field lines of a response's header section; beyond: 502.
    pub response_fields_max: usize,
    /// Bytes of a request or status line; beyond: 414 or 502.
    pub request_line_bytes_max: usize,
    /// Empty lines tolerated before a request line (RFC 9112, section 2.2); beyond: 400.
    pub empty_lines_max: usize,
    /// Bytes of one chunk-size line with its extensions; beyond: 400.
    pub chunk_line_bytes_max: usize,
    /// Bytes of chunk extensions in one message; beyond: 400.
    pub chunk_extension_bytes_max: usize,
    /// Bytes of a request's trailer section; beyond: 431. That of a response has `head_bytes_max`.
    pub trailer_bytes_max: usize,
    /// Field lines of a request's trailer section; beyond: 431. That of a response has `response_fields_max`.
    pub trailer_fields_max: usize,
    /// Lines of `Cookie` in a header section of HTTP/2 or HTTP/3, which are one field once they are joined; beyond:
    /// 431.
    pub cookie_crumbs_max: usize,
    /// Informational (1xx) responses at once before one final response, and one more for each second; beyond: 502.
    pub informational_max: usize,
    /// Bytes read ahead on an HTTP/1 connection while a request is in flight, including bytes after a
    /// request to upgrade; beyond: not read.
    pub pipelined_bytes_max: usize,

    /// Bytes buffered per stream and direction; beyond: back-pressure.
    pub stream_buffer_bytes_max: usize,
    /// Bytes buffered per connection; beyond: back-pressure.
    pub connection_buffer_bytes_max: usize,
    /// Bytes buffered per core; as they fill up, windows shrink and reading from clients pauses, and at
    /// last upstream streams with slow readers are reset.
    pub core_buffer_bytes_max: usize,
    /// Payload of at least this many bytes is forwarded without copying.
    pub slice_bytes_min: usize,
    /// Minimum initial window of an upstream stream, in bytes, when many streams are open; with few
    /// open streams the initial window is `stream_window_bytes`.
    pub stream_window_bytes_min: usize,
    /// Bytes of large request heads held per core, complete or not, which also count against
    /// `core_buffer_bytes_max`; beyond: 503, and for an incomplete HTTP/2 header section the connection
    /// is closed. `large_head_bytes_min` defines a large head.
    pub heads_bytes_max: usize,
    /// Bytes of memory from which a request head counts as large.
    pub large_head_bytes_min: usize,
    /// Bytes of a request body kept for one retry; beyond: no retry.
    pub replay_bytes_max: usize,
    /// Bytes of a request body that are read and discarded after an HTTP/1.1 response. If the declared rest is
    /// larger, the response carries `Connection: close`.
    pub discard_bytes_max: usize,
    /// The same after an HTTP/1.1 response without `Connection: close`: a client that has written the
    /// whole body to its socket considers the connection reusable, and its next request would be lost. And on a stream of
    /// HTTP/2 or HTTP/3: browsers deliver a response only when the request has ended. Beyond: the stream is reset or
    /// stopped.
    pub discard_unannounced_bytes_max: usize,
    /// Time during which body bytes of an HTTP/2 stream are discarded after the response, and bytes of a tunnel after its
    /// end (HTTP/2, HTTP/3); beyond: the stream is reset or stopped.
    pub discard_timeout: Duration,
    /// Silence of an HTTP/2 stream whose body bytes are discarded after the response; beyond: the stream is reset. Some
    /// clients, curl among them, neither end nor reset an upload that they give up.
    pub discard_silence: Duration,
    /// Time during which an HTTP/1.1 connection discards body bytes after the response, and during which
    /// any connection that is being closed discards input after the last byte was sent; beyond: closed.
    pub lingering_time: Duration,
    /// Time without a byte of that input; beyond: closed.
    pub lingering_timeout: Duration,
    /// Connections per core that discard input while they close; beyond: the one that began first is closed.
    pub lingering_connections_max: usize,

    /// Time from the first to the last byte of a head; beyond: 408.
    pub head_timeout: Duration,
    /// Time without a request on a connection; beyond: closed.
    pub idle_timeout: Duration,
    /// Minimum average rate of a request body in bytes per second; below: 408.
    pub body_rate_min: u64,
    /// Time before `body_rate_min` is enforced. Together with `body_idle_timeout` it is the shortest wait for a
    /// response while the client has not sent all of its request.
    pub body_rate_grace: Duration,
    /// Time without a byte of a request body that a reader waits for; beyond: 408 or, after the response has
    /// begun, the exchange is aborted. Also the time before `body_rate_min` is enforced on a response body.
    pub body_idle_timeout: Duration,
    /// Time without a byte sent to an HTTP/1.1 client that has closed its sending side; beyond: the
    /// client counts as disconnected and the exchange is cancelled. `None`: never.
    pub half_close_grace: Option<Duration>,
    /// Time during which a peer accepts no byte of pending output; beyond: closed.
    pub send_stall_timeout: Duration,
    /// Time without a byte in a tunnel, a gRPC call or a stream of events; beyond: closed.
    pub stream_idle_timeout: Duration,
    /// Time without a byte in a tunnel of the gateway of which one direction has ended; beyond: closed.
    pub tunnel_half_close_timeout: Duration,

    /// Time for the peer to acknowledge SETTINGS on an HTTP/2 connection (RFC 9113, section 6.5.3);
    /// beyond: closed.
    pub settings_timeout: Duration,
    /// Concurrent streams on a connection; beyond: the stream is refused.
    pub concurrent_streams_max: u32,
    /// Streams reset before their response head within `resets_window`; beyond, if they are also more
    /// than half of the opened streams: the connection is closed.
    pub resets_max: u32,
    /// Streams reset within `resets_window`, before or after their response head; beyond: the
    /// connection is closed.
    pub resets_total_max: u32,
    /// Time window in which resets are counted.
    pub resets_window: Duration,
    /// Bytes of a compressed header block; beyond: the response to a request is 431, and the connection ends after the
    /// open streams; for other blocks it is closed. A smaller block that decodes to more than `head_bytes_max` gets 431
    /// as well.
    pub header_block_bytes_max: usize,
    /// CONTINUATION frames of one header block; beyond: the connection is closed.
    pub continuations_max: u32,
    /// Bytes of each dynamic table of HPACK; the maximum is 65,535.
    pub hpack_table_bytes_max: usize,
    /// Initial window of a stream of an HTTP/2 client in bytes. The window of a server's stream begins at
    /// `stream_buffer_bytes_max`.
    pub stream_window_bytes: usize,
    /// Maximum window of a stream in bytes. The window of an HTTP/2 stream grows while its reader keeps up; that of
    /// a stream of an HTTP/3 client has this size from the start, because it cannot change.
    pub stream_window_bytes_max: usize,
    /// Maximum window of an HTTP/2 connection in bytes. It begins at `connection_buffer_bytes_max`.
    pub connection_window_bytes_max: usize,
    /// Time window in which frames of the following kinds are counted; beyond any of these counts the
    /// connection is closed.
    pub frames_window: Duration,
    /// SETTINGS within `frames_window`, and one more for each 16 DATA frames in either direction.
    pub settings_frames_max: u32,
    /// PING within `frames_window`, and one more for each KiB of content and for each DATA frame in
    /// either direction.
    pub pings_max: u32,
    /// Acknowledgements of PING within `frames_window`, and one more for each KiB of content and for
    /// each DATA frame in either direction.
    pub ping_acks_max: u32,
    /// GOAWAY within `frames_window`.
    pub goaways_max: u32,
    /// DATA without content and without END_STREAM, and HEADERS or CONTINUATION without bytes and
    /// without END_HEADERS, within `frames_window`, and one more for each stream opened and for each
    /// DATA frame with content.
    pub empty_frames_max: u32,
    /// DATA of less than 4 bytes without END_STREAM within `frames_window`, and 1,000 more for each
    /// open stream.
    pub small_data_frames_max: u32,
    /// WINDOW_UPDATE within `frames_window`, one more for each 256 bytes of content sent and for each
    /// stream opened, and two more for each DATA frame sent that no window has cut short.
    pub window_updates_max: u32,
    /// PRIORITY and PRIORITY_UPDATE within `frames_window`, and two more for each stream opened.
    pub priority_frames_max: u32,
    /// Frames of unknown types within `frames_window`, and two more for each stream opened.
    pub unknown_frames_max: u32,
    /// HEADERS and RST_STREAM from a client on closed streams within `frames_window`, and two more for
    /// each stream opened.
    pub stray_frames_max: u32,
    /// Time without a byte from an HTTP/2 upstream connection with open requests; beyond: a PING is
    /// sent, and the connection gets no new requests until a byte arrives.
    pub ping_after: Duration,
    /// Time without a byte after that PING; beyond: the connection is closed, and requests without a
    /// response may be retried.
    pub ping_timeout: Duration,
    /// Idle upstream connections kept per core; beyond: the oldest is closed.
    pub pool_idle_max: usize,
    /// Connections to an upstream address that are in use at once, per core; beyond: requests wait.
    /// Tunnels and connections that are being established count.
    pub upstream_connections_max: usize,
    /// Requests that wait at once for a connection to an upstream address, per core; beyond: 503.
    pub upstream_waiting_max: usize,
    /// Time that a request waits for an upstream connection; beyond: 503.
    pub upstream_wait_timeout: Duration,
    /// Age at which an upstream connection gets no new requests and closes after its last one. It is
    /// shortened at random by up to a tenth, so that connections opened together do not close together.
    pub connection_age_max: Duration,
    /// Time to connect to an address of an upstream, without the TLS handshake; beyond: the next address,
    /// or 504. Also the time to wait for the first result of its name, and for the SETTINGS that allow
    /// WebSockets. The default outlasts two lost SYNs, which the kernel sends again after 1 s and 3 s.
    pub connect_timeout: Duration,

    /// The limits that only connections of QUIC have.
    pub quic: QuicLimits,

    /// Time from the first byte of a connection, or from accepting it, to the end of its TLS
    /// handshake; beyond: closed.
    pub tls_handshake_timeout: Duration,
    /// Bytes of an incomplete TLS handshake message; beyond: closed.
    pub tls_handshake_bytes_max: usize,
}

impl Limits {
    /// Raises the limits of header blocks, which carry sections over HTTP/2 and HTTP/3, to what sections of the
    /// largest size need. Call it after raising the limits of heads or trailers.
    pub fn fit_header_blocks(&mut self) {
        let section = self.head_bytes_max + self.request_line_bytes_max;
        let section = section.max(self.trailer_bytes_max);
        // The lines of a cookie have lengths and names of their own, which its section does not count.
        let block = section.saturating_add(section / 2);
        self.header_block_bytes_max = self.header_block_bytes_max.max(block);
        let continuations = block.div_ceil(FRAME_BYTES_MIN);
        self.continuations_max = self
            .continuations_max
            .max(u32::try_from(continuations).unwrap_or(u32::MAX));
    }
}

/// The size of a frame that every end accepts (RFC 9113, section 4.2).
const FRAME_BYTES_MIN: usize = 16 * KIB;

/// Limits of QUIC, whose library hides what other connections are limited by. See [`Limits::quic`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuicLimits {
    /// QUIC connections of a listener per core; beyond: idle ones are closed for new ones, and new ones are refused if
    /// there is none.
    pub connections_max: usize,
    /// Window of a stream of a listener's QUIC connection in bytes, which does not change. It is less than that of
    /// HTTP/2, so that up to 31 uploads that nobody reads leave room for requests in the window of their connection.
    pub stream_window_bytes: usize,
    /// Time during which body bytes of a stream are discarded after the response; beyond: the stream is stopped. It is
    /// longer than that of HTTP/2, because Chromium 156 never delivers the response to a request that is stopped while
    /// its content waits for credit.
    pub discard_timeout: Duration,
    /// Silence of a stream whose body bytes are discarded after the response; beyond: the stream is stopped. It leaves
    /// time for credit that is lost once.
    pub discard_silence: Duration,
    /// Window of a connection of QUIC in bytes to begin with.
    pub window_bytes_min: usize,
    /// Maximum of that window, which grows while content is read as fast as it comes, and while content waits that
    /// nobody reads: requests need it as well. The growth of all connections of a listener is at most three quarters of
    /// [`Limits::core_buffer_bytes_max`] per core. The rest is for what takes more memory than its window.
    pub window_bytes_max: usize,
    /// Bytes of a QUIC connection that were sent and not acknowledged; beyond: back-pressure. All connections of a
    /// listener together have [`Limits::core_buffer_bytes_max`] per core, and each has 64 KiB beside it.
    pub unacknowledged_bytes_max: usize,
    /// Bytes of datagrams beyond its window that are held for streams of a QUIC connection because nobody has read
    /// them; beyond: the connection is closed.
    pub unread_excess_bytes_max: usize,
    /// Frames with content on a QUIC connection that nobody has read, and one more for each 512 bytes of the window;
    /// beyond: the connection is closed. With half of them, it gets no larger window.
    pub unread_frames_max: u64,
}

impl Default for QuicLimits {
    fn default() -> QuicLimits {
        QuicLimits {
            connections_max: 8_192,
            stream_window_bytes: 512 * 1024,
            discard_timeout: Duration::from_secs(30),
            discard_silence: Duration::from_secs(1),
            window_bytes_min: 64 * 1024,
            window_bytes_max: 16 * 1024 * 1024,
            unacknowledged_bytes_max: 4 * 1024 * 1024,
            unread_excess_bytes_max: 256 * 1024,
            unread_frames_max: 4_096,
        }
    }
}

const KIB: usize = 1024;

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head_bytes_max: 32 * KIB,
            fields_max: 100,
            response_fields_max: 200,
            request_line_bytes_max: 8 * KIB,
            empty_lines_max: 2,
            chunk_line_bytes_max: 256,
            chunk_extension_bytes_max: 4 * KIB,
            trailer_bytes_max: 8 * KIB,
            trailer_fields_max: 32,
            cookie_crumbs_max: 1_000,
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
            discard_silence: Duration::from_millis(500),
            lingering_time: Duration::from_secs(30),
            lingering_timeout: Duration::from_secs(5),
            lingering_connections_max: 1024,
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            body_rate_min: 240,
            body_rate_grace: Duration::from_secs(5),
            body_idle_timeout: Duration::from_secs(60),
            half_close_grace: Some(Duration::from_secs(1)),
            send_stall_timeout: Duration::from_secs(60),
            stream_idle_timeout: Duration::from_secs(300),
            tunnel_half_close_timeout: Duration::from_secs(5),
            settings_timeout: Duration::from_secs(10),
            concurrent_streams_max: 100,
            resets_max: 200,
            resets_total_max: 2_000,
            resets_window: Duration::from_secs(10),
            header_block_bytes_max: 64 * KIB,
            continuations_max: 16,
            hpack_table_bytes_max: 4096,
            stream_window_bytes: 64 * KIB,
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
            connect_timeout: Duration::from_secs(4),
            quic: QuicLimits::default(),
            tls_handshake_timeout: Duration::from_secs(10),
            tls_handshake_bytes_max: 32 * KIB,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A comparison of versions would compare windows. Over QUIC the window of the connection is the one that grows.
    #[test]
    fn an_upload_has_the_same_first_window_over_http2_and_http3() {
        let limits = Limits::default();
        let quic = &limits.quic;
        let first = quic.window_bytes_min.min(quic.stream_window_bytes);
        assert_eq!(first, limits.stream_buffer_bytes_max);
    }
}
