//! All metrics: name, type, labels and meaning. `docs/metrics.md` has the same table.

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// A metric as its readers see it.
#[derive(Debug)]
pub(super) struct Description {
    pub(super) kind: Kind,
    /// Without the `_total` of counters.
    pub(super) name: &'static str,
    pub(super) labels: &'static [&'static str],
    /// One sentence or more, without quotes and backslashes.
    pub(super) help: &'static str,
}

/// The description of a metric.
///
/// # Panics
/// There is none of this name.
pub(super) fn describe(name: &str) -> &'static Description {
    let mut all = METRICS.iter();
    let found = all.find(|description| description.name == name);
    found.unwrap_or_else(|| panic!("{name} is no metric"))
}

impl Description {
    /// The unit, which ends the name; empty if it has none.
    pub(super) fn unit(&self) -> &'static str {
        let mut units = ["seconds", "bytes"].into_iter();
        let of_name = |unit: &&str| self.name.rsplit('_').next() == Some(*unit);
        units.find(of_name).unwrap_or_default()
    }

    /// The name of its samples, those of a histogram without their suffixes.
    pub(super) fn sample_name(&self) -> String {
        match self.kind {
            Kind::Counter => format!("{}_total", self.name),
            Kind::Gauge | Kind::Histogram => self.name.to_owned(),
        }
    }
}

const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Description {
    Description {
        kind: Kind::Counter,
        name,
        labels,
        help,
    }
}

const fn gauge(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Description {
    Description {
        kind: Kind::Gauge,
        name,
        labels,
        help,
    }
}

const fn histogram(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Description {
    Description {
        kind: Kind::Histogram,
        name,
        labels,
        help,
    }
}

/// All metrics.
#[rustfmt::skip] // a metric is a line
pub(super) const METRICS: &[Description] = &[
    histogram("http_server_request_duration_seconds", &["route", "method", "scheme", "status", "version"], "Time from the start of a request to its end."),
    histogram("http_client_request_duration_seconds", &["route", "method", "scheme", "status", "version", "upstream", "error_type"], "Time from the connection of the last attempt to the head of the response of the upstream, or to the failure."),
    counter("blitz_request_content_bytes", &["route", "status"], "Content received from clients. It counts when a request ends, and that of requests for apps while records are observed."),
    counter("blitz_response_content_bytes", &["route", "status"], "Content sent to clients. It counts when a request ends, and streams of apps while records are observed."),
    gauge("blitz_metrics_series", &[], "Lines that the metrics of requests fill in text."),
    counter("blitz_metrics_merged_requests", &[], "Requests that count as route _other, because metrics.series_max lines are in use."),
    gauge("blitz_metrics_series_max", &[], "The most lines that the metrics of requests may fill."),
    counter("process_cpu_seconds", &[], "Processor time of the process."),
    gauge("process_resident_memory_bytes", &[], "Memory of the process that is in use."),
    gauge("process_virtual_memory_bytes", &[], "Address space of the process."),
    gauge("process_open_fds", &[], "Open descriptors."),
    gauge("process_max_fds", &[], "The most descriptors that may be open."),
    gauge("process_start_time_seconds", &[], "Start of the process, in Unix time."),
    gauge("blitz_ready", &[], "Whether load balancers may send requests to the process: 1, or 0 while it drains."),
    gauge("blitz_build_info", &["version", "revision"], "The running version, always 1."),
    gauge("blitz_io_driver_info", &["driver"], "The I/O driver in use, always 1. Without io_uring, which containers may forbid, it is epoll."),
    gauge("blitz_cores", &[], "Cores, with a thread each."),
    gauge("blitz_cores_absent", &[], "Cores that did not answer the last reading within a second. Their earlier counts are included."),
    gauge("blitz_configuration_generation", &[], "How many configurations were in use since the start."),
    gauge("blitz_configuration_last_reload_successful", &[], "Whether the last reload was successful: 1 or 0."),
    gauge("blitz_configuration_last_reload_timestamp_seconds", &[], "When the last reload ended, in Unix time."),
    gauge("blitz_configurations_in_memory", &["core"], "Configurations that a core has: the newest one, and older ones that requests still use."),
    gauge("blitz_certificate_expiry_timestamp_seconds", &["name"], "When a certificate expires, in Unix time; at most the 1,000 that expire first."),
    counter("blitz_access_log_lines_dropped", &[], "Lines of access logs that were dropped, because they were not taken fast enough or could not be written."),
    counter("blitz_access_log_handshakes_omitted", &[], "Failed handshakes without a line in the access log, because more than ten in a second had the same cause."),
    counter("blitz_access_log_heads_omitted", &[], "Incomplete heads without a line in the access log, because more than ten in a second had the same cause."),
    counter("blitz_trace_spans_exported", &[], "Spans that the collector has taken."),
    counter("blitz_trace_spans_dropped", &[], "Spans that were dropped: the collector did not take them, they came faster than they were exported, or `tracing` had been removed."),
    counter("blitz_log_records_exported", &[], "Log records that the collector has taken."),
    counter("blitz_jwt_key_fetches", &[], "Key sets of `jwt.keys_url` that were fetched and can be used."),
    counter("blitz_jwt_key_fetch_failures", &[], "Fetches of key sets of `jwt.keys_url` that failed, or gave a document that cannot be used."),
    gauge("blitz_jwt_key_sets_failing", &[], "URLs of `jwt.keys_url` whose last fetch failed. Earlier keys stay in use for a day; without any, requests with a token get 503."),
    counter("blitz_log_records_dropped", &[], "Log records that were dropped: the collector did not take them, they came faster than they were exported, or `tracing` had been removed."),
    gauge("blitz_rate_limit_store_up", &[], "Whether the store of `redis` answers: 1, or 0. Absent without `redis`."),
    gauge("blitz_rate_limit_store_instances", &[], "Processes that share the store, as far as this one knows."),
    counter("blitz_rate_limit_store_tokens", &[], "Tokens that the store has granted to this process."),
    counter("blitz_rate_limit_store_exchanges", &[], "Messages that the store has answered."),
    counter("blitz_rate_limit_store_exchange_seconds", &[], "Time until the store has answered them, altogether."),
    counter("blitz_rate_limit_store_failures", &[], "Messages that the store has not answered, and connections to it that failed."),
    counter("blitz_log_lines_dropped", &[], "Lines of the log that were dropped, because they were not read fast enough."),
    gauge("blitz_requests_in_flight", &["core"], "Requests now."),
    counter("blitz_requests_routed", &[], "Requests that a route matched, also if its rules rejected them."),
    counter("blitz_requests_unrouted", &[], "Requests that no route matched, and that were not rejected."),
    counter("blitz_requests_rejected", &["rule"], "Requests that the gateway rejected, by rule."),
    counter("blitz_upstream_responses", &["status"], "Final responses of upstreams that were relayed."),
    counter("blitz_upstream_failures", &["cause", "error_type"], "Requests whose upstream failed, by cause and by the error of Proxy-Status (RFC 9209)."),
    counter("blitz_upstream_connect_failures", &[], "Addresses to which no connection could be made for a request, even if another one was reached."),
    counter("blitz_rate_limit_dry_runs", &[], "Requests beyond a `rate_limit` with `dry_run`, which passed."),
    counter("blitz_rate_limits_overflowed", &[], "Requests that shared a bucket of their `rate_limit`, because all others of the table were in use."),
    counter("blitz_files_refused", &["limit"], "Requests for files that got 503: `open`, because as many files are open as may be; `waiting`, because too many of the folder wait for the disk."),
    counter("blitz_authorizations_remembered", &[], "Requests that passed by a remembered decision of their `forward_auth`."),
    counter("blitz_authorizations_skipped", &[], "Requests that passed without a decision of their `forward_auth`, because `on_failure` is open."),
    counter("blitz_retries", &[], "Requests that were sent again."),
    counter("blitz_ejections", &[], "Servers that got no requests for a time, because their requests failed or took long."),
    counter("blitz_ejections_refused", &[], "Servers that were not ejected, because half of the servers of their upstream were."),
    counter("blitz_retries_over_budget", &[], "Requests that were not sent again, because the budget of the upstream was used up."),
    counter("blitz_hedges", &[], "Requests that were sent a second time, because the first response took long."),
    counter("blitz_hedges_won", &[], "Requests that were sent a second time, and whose second server responded first."),
    counter("blitz_requests_shed", &["importance"], "Requests that were shed, because their upstream had as many as it could take, by their importance."),
    counter("blitz_requests_mirrored", &[], "Copies of requests that were sent to the upstream of a `mirror`."),
    counter("blitz_mirror_failures", &[], "Copies of requests that got no response."),
    counter("blitz_requests_not_mirrored", &["reason"], "Requests that were not copied: `limit`, because as many copies were under way as may be; `content`, because their content was too long or not complete."),
    counter("blitz_responses_cut_off", &[], "Responses that ended early, because those of the upstream did or the client left."),
    counter("blitz_request_content_failures", &[], "Requests whose content ended early, came too slowly or broke the rules, before a response."),
    counter("blitz_tunnels_opened", &[], "Connections and streams that became tunnels of the gateway."),
    counter("blitz_tunnels_half_closed", &[], "Tunnels that were closed because one side had ended and the other was silent."),
    counter("blitz_responses_compressed", &[], "Responses that were compressed for their client."),
    counter("blitz_compression_input_bytes", &[], "Content of those responses before the compression."),
    counter("blitz_compression_output_bytes", &[], "Content of those responses after the compression."),
    counter("blitz_requests_decompressed", &[], "Requests whose content was decompressed for the upstream."),
    gauge("blitz_connections", &["core"], "Connections of clients, idle ones included."),
    gauge("blitz_connections_reading_head", &["core"], "Connections over HTTP/1.1 that have sent a part of a head, whose rest is awaited."),
    counter("blitz_connections_accepted", &[], "Connections of clients that were accepted."),
    counter("blitz_http_requests", &["version"], "Heads of requests that were passed to a service."),
    counter("blitz_http_responses", &["status"], "Final responses that were sent."),
    counter("blitz_exchanges_cancelled", &[], "Exchanges without a complete response: the client left, or the service gave up."),
    counter("blitz_connections_upgraded", &[], "Connections that became tunnels."),
    counter("blitz_h2c_upgrades", &[], "Connections that switched from HTTP/1.1 to HTTP/2."),
    counter("blitz_head_timeouts", &[], "Heads that did not arrive in time (408)."),
    counter("blitz_heads_incomplete", &["cause"], "Heads over HTTP/1.1 whose connection ended before they were complete: the client left, or the connection was evicted."),
    counter("blitz_settings_timeouts", &[], "Connections of HTTP/2 that were closed, because the peer did not acknowledge the settings in time."),
    counter("blitz_memory_held_back", &[], "How often lack of memory stopped the reading from a connection with streams, or delayed a stream."),
    counter("blitz_streams_shed", &[], "Streams of upstreams that were reset, because the core was out of memory and they held the most."),
    counter("blitz_heads_refused", &[], "Requests that were refused (503), because the core held too many large heads."),
    counter("blitz_idle_timeouts", &[], "Idle connections that were closed at their deadline."),
    counter("blitz_connections_evicted", &[], "Connections that were closed in favour of new ones, at the limit of sockets."),
    counter("blitz_request_content_timeouts", &[], "Requests whose content came below the least rate (408)."),
    counter("blitz_send_stalls", &[], "Connections that were closed, because the peer took no bytes for too long."),
    counter("blitz_tunnel_timeouts", &[], "Tunnels that were closed, because no bytes were transferred for too long."),
    counter("blitz_requests_refused", &["rule"], "Requests that the server refused before a site saw them, by rule."),
    counter("blitz_upstream_connects", &[], "Connections to upstreams that were opened."),
    counter("blitz_upstream_connection_attempts_failed", &[], "Attempts to connect to upstreams that failed."),
    counter("blitz_upstream_connections_reused", &[], "Requests that were sent on a connection of the pool."),
    counter("blitz_upstream_connections_not_reused", &[], "Connections that could not return to the pool after their response."),
    counter("blitz_upstream_surplus_responses", &[], "Responses of HTTP/1.1 with more bytes behind them, after which the connection is closed."),
    counter("blitz_upstream_idle_connections_lost", &[], "Idle connections that received bytes or were closed by the upstream."),
    counter("blitz_upstream_connections_retired", &[], "Connections that get no more requests, because of their age or because their TLS settings were replaced."),
    counter("blitz_upstream_connections_silent", &[], "Connections to upstreams that were closed, because they were silent and did not acknowledge a PING."),
    counter("blitz_upstream_rests", &[], "Times that a shared connection to an upstream got no new requests for a while."),
    counter("blitz_upstream_limit_waits", &[], "Requests that waited, because the most connections to the upstream were in use."),
    counter("blitz_upstream_queue_full", &[], "Requests that were refused, because too many waited for a connection to the upstream."),
    counter("blitz_upstream_queue_timeouts", &[], "Requests that were refused, because they had waited too long for a connection to the upstream."),
    gauge("blitz_upstream_idle_connections", &["core"], "Idle connections in the pool."),
    gauge("blitz_upstream_connections", &["upstream", "state"], "Connections to an upstream by state: idle or active. Those for heads above 8 KiB and with PROXY headers are not included."),
    gauge("blitz_upstream_shed_limit", &["upstream"], "How many requests an upstream that sheds load may have at a time, summed over the cores."),
    gauge("blitz_upstream_shed_in_flight", &["upstream"], "Requests that it has without the head of a response."),
    gauge("blitz_upstream_shed_waiting", &["upstream"], "Requests that wait for it."),
    gauge("blitz_upstream_unloaded_seconds", &["upstream"], "The time of its responses without load, from which the limit follows; 0 before the first one."),
    gauge("blitz_upstream_addresses_avoided", &["upstream"], "Addresses of an upstream that requests avoid, because no connection could be made, summed over the cores."),
    counter("blitz_upstream_checks", &["upstream", "outcome"], "Checks of a server: passed, or failed."),
    gauge("blitz_upstream_up", &["upstream"], "Whether the checks of a server say that it is up: 1 or 0. Of several ways to check it, one that fails is enough."),
    gauge("blitz_upstream_drained", &["upstream"], "Servers that an operator has drained, always 1."),
    counter("blitz_tls_handshakes", &["version"], "Handshakes with clients that succeeded, by version."),
    counter("blitz_tls_handshakes_resumed", &[], "Handshakes with clients that resumed a session."),
    counter("blitz_tls_clear_text", &[], "Clients that sent HTTP in clear text to a port with TLS (400)."),
    counter("blitz_tls_failures", &["rule"], "Connections of clients whose TLS failed, by rule."),
    counter("blitz_tls_records_in_place", &[], "Records that were decrypted in their receive buffer."),
    counter("blitz_tls_records_gathered", &[], "Records that arrived in pieces and were gathered first."),
    counter("blitz_tls_record_timeouts", &[], "Connections that were closed, because the rest of a record did not arrive in time."),
    counter("blitz_upstream_tls_handshakes", &[], "Handshakes with upstreams that succeeded."),
    counter("blitz_upstream_tls_handshakes_resumed", &[], "Handshakes with upstreams that resumed a session."),
    counter("blitz_upstream_tls_failures", &["rule"], "Connections to upstreams whose TLS failed, by rule."),
    counter("blitz_quic_accepted", &[], "QUIC: Connections that have begun their handshake."),
    counter("blitz_quic_connects", &[], "QUIC: Connections to servers that have begun their handshake."),
    counter("blitz_quic_handshakes", &[], "QUIC: Handshakes that were completed."),
    counter("blitz_quic_handshakes_failed", &[], "QUIC: Connections that ended before their handshake was complete."),
    counter("blitz_quic_handshake_timeouts", &[], "QUIC: Handshakes that took too long."),
    counter("blitz_quic_handshakes_replaced", &[], "QUIC: Handshakes that were closed for new clients, at the limit of incomplete ones."),
    counter("blitz_quic_retries", &[], "QUIC: Clients that had to prove their address first."),
    counter("blitz_quic_ignored", &[], "QUIC: Attempts to connect that were ignored at the limit of incomplete handshakes."),
    counter("blitz_quic_refused", &[], "QUIC: Attempts to connect that were refused at the limit of connections."),
    counter("blitz_quic_evicted", &[], "QUIC: Idle connections that were closed for new ones."),
    counter("blitz_quic_invalid", &[], "QUIC: Attempts to connect whose first packet was invalid."),
    counter("blitz_quic_violations", &[], "QUIC: Connections that ended for a violation of the protocol by the peer."),
    counter("blitz_quic_panics", &[], "QUIC: Connections that ended because the state machine has panicked."),
    counter("blitz_quic_migrations", &[], "QUIC: New addresses of clients that were validated."),
    counter("blitz_quic_moves_refused", &[], "QUIC: Datagrams that were ignored, because their connection came from too many hosts."),
    counter("blitz_quic_too_long", &[], "QUIC: Datagrams that were ignored, because they were longer than QUIC permits."),
    counter("blitz_quic_unanswered", &[], "QUIC: Replies that were not sent, because too many bytes waited for the kernel."),
    counter("blitz_quic_misdelivered", &[], "QUIC: Datagrams for connections of other cores."),
    gauge("blitz_sockets_open", &["core"], "Open sockets."),
    gauge("blitz_sockets_max", &[], "The most sockets of a core, which closes idle ones from 90 % of them on."),
    gauge("blitz_memory_available_bytes", &["core"], "Bytes that a core can receive before it reaches its limit of memory."),
    counter("blitz_reactor_turns", &[], "Reactor: Turns of the loops."),
    counter("blitz_reactor_enters", &[], "Reactor: System calls that submit or wait."),
    counter("blitz_reactor_sqes", &[], "Reactor: Operations that were submitted to io_uring."),
    counter("blitz_reactor_cqes", &[], "Reactor: Completions of io_uring, or reports of epoll."),
    counter("blitz_reactor_accepted", &[], "Reactor: Connections that were accepted."),
    counter("blitz_reactor_accepts_given", &[], "Reactor: Connections that a busy core gave to another one."),
    counter("blitz_reactor_accept_paused", &[], "Reactor: Pauses of accepting, at the limit of sockets or for lack of descriptors."),
    counter("blitz_reactor_evicted", &[], "Reactor: Idle connections that were closed in favour of new ones."),
    counter("blitz_reactor_receives", &[], "Reactor: Receives that delivered bytes."),
    counter("blitz_reactor_received_bytes", &[], "Reactor: Bytes that were received."),
    counter("blitz_reactor_sends", &[], "Reactor: Sends of which the kernel took all bytes or a part."),
    counter("blitz_reactor_sent_bytes", &[], "Reactor: Bytes that the kernel took for sending."),
    counter("blitz_reactor_file_bytes_sent", &[], "Reactor: Those of them that were sent from files in memory, without a copy."),
    counter("blitz_reactor_datagrams_received", &[], "Reactor: Datagrams that were received."),
    counter("blitz_reactor_trains_received", &[], "Reactor: Batches of datagrams that were received."),
    counter("blitz_reactor_datagrams_sent", &[], "Reactor: Datagrams that the kernel took for sending."),
    counter("blitz_reactor_trains_sent", &[], "Reactor: Batches of datagrams that the kernel took."),
    counter("blitz_reactor_datagrams_unsent", &[], "Reactor: Datagrams that the kernel did not send."),
    counter("blitz_reactor_datagrams_dropped", &[], "Reactor: Datagrams or batches that the kernel received and dropped."),
    counter("blitz_reactor_trains_unusable", &[], "Reactor: Batches that were received and cannot be used."),
    counter("blitz_reactor_trains_paused", &[], "Reactor: Times that a UDP socket received nothing for a while, because its reader had not read."),
    counter("blitz_reactor_datagrams_forwarded", &[], "Reactor: Datagrams that were forwarded to another core."),
    counter("blitz_reactor_datagrams_not_forwarded", &[], "Reactor: Datagrams that could not be forwarded to another core."),
    counter("blitz_reactor_no_buffers", &[], "Reactor: Receives that found no free buffer and were queued."),
    counter("blitz_reactor_shed", &[], "Reactor: Connections that were closed, because they held the most memory while no socket could receive."),
    counter("blitz_reactor_lingering_cut", &[], "Reactor: Lingering connections that were closed early."),
    counter("blitz_reactor_held_back", &[], "Reactor: Tasks that were held back, because the turn had started enough requests."),
    counter("blitz_reactor_trims", &[], "Reactor: Times that memory was given back to the operating system."),
    counter("blitz_reactor_mailbox_overflows", &[], "Reactor: Wakes from other threads that found the mailbox full."),
    counter("blitz_reactor_task_panics", &[], "Reactor: Tasks that panicked and were dropped."),
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The table of the page about metrics.
    fn table() -> String {
        let mut table = String::from("| metric | type | labels | meaning |\n|---|---|---|---|\n");
        for metric in METRICS {
            let kind = format!("{:?}", metric.kind).to_lowercase();
            let labels: Vec<_> = metric
                .labels
                .iter()
                .map(|label| format!("`{label}`"))
                .collect();
            let (name, labels, help) = (metric.sample_name(), labels.join(", "), metric.help);
            table += &format!("| `{name}` | {kind} | {labels} | {help} |\n");
        }
        table
    }

    #[test]
    fn the_page_has_the_table_of_all_metrics() {
        let page = include_str!("../../../../docs/metrics.md");
        let table = table();
        if !page.contains(&table) {
            panic!("docs/metrics.md has another table than this one:\n{table}");
        }
    }

    #[test]
    fn names_follow_the_conventions() {
        let mut names = HashSet::new();
        for metric in METRICS {
            assert!(names.insert(metric.name), "{} twice", metric.name);
            let is_plain = |text: &str| {
                text.bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
            };
            assert!(is_plain(metric.name) && metric.labels.iter().all(|label| is_plain(label)));
            let prefixes = ["blitz_", "http_", "process_"];
            assert!(
                prefixes
                    .iter()
                    .any(|prefix| metric.name.starts_with(prefix))
            );
            for suffix in ["_total", "_count", "_sum", "_bucket", "_created"] {
                assert!(!metric.name.ends_with(suffix), "{}", metric.name);
            }
            assert!(metric.help.ends_with('.') && !metric.help.contains(['"', '\\', '\n', '|']));
        }
    }
}
