//! The metrics that are counters and gauges of the cores. Each struct is taken apart, so that a new field of it is an
//! error here.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use blitz_config::Importance;
use blitz_http::{QuicCounters, TlsCounters, reactor};
use blitz_site::{Counters, Failure, Rejection};

use super::collect::CoreSample;
use super::family::{Families, Value};
use super::labels::OTHER;
use crate::upstream::ShedState;

/// Upstreams that have samples; the others are one.
const UPSTREAMS_MAX: usize = 1_000;

/// Classes of statuses, in the order of the counters.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Versions of HTTP, in the order of the counters.
const VERSIONS: [&str; 4] = ["1.0", "1.1", "2", "3"];

/// Adds the counters of all cores, and the gauges of each.
pub(super) fn add_counts<'s>(
    families: &mut Families,
    cores: impl Iterator<Item = (usize, &'s CoreSample)> + Clone,
    reactor: &reactor::Counters,
) {
    let mut site = Counters::default();
    let mut http = blitz_http::Counters::default();
    for (_, core) in cores.clone() {
        site.add(&core.site);
        http.add(&core.http);
    }
    add_site(families, &site);
    add_http(families, &http);
    add_connections_to_upstreams(families, &http);
    add_tls(families, &http.tls);
    add_quic(families, &http.quic);
    add_reactor(families, reactor);
    add_gauges(families, &cores);
    add_upstreams(families, cores.clone().map(|(_, core)| core));
    add_sheds(families, cores.flat_map(|(_, core)| &core.sheds));
}

fn add_site(families: &mut Families, counters: &Counters) {
    let Counters {
        routed,
        unrouted,
        rejections: _,
        responses: _,
        failures: _,
        connect_failures,
        retries,
        ejections,
        ejections_refused,
        retries_over_budget,
        hedges,
        hedges_won,
        shed: _,
        mirrored,
        mirror_failures,
        mirrors_over_limit: _,
        mirrors_without_content: _,
        cut_off,
        client_faults,
        tunnels,
        tunnels_half_closed,
        compressed,
        compressed_bytes_before,
        compressed_bytes_after,
        decompressed,
        handshakes_omitted,
        heads_omitted,
        rate_limit_dry_runs,
        rate_limits_overflowed,
        files_refused_open: _,
        files_refused_waiting: _,
        authorizations_remembered,
        authorizations_skipped,
        snapshots: _,
        in_flight: _,
    } = counters;
    for (name, count) in [
        ("blitz_requests_routed", routed),
        ("blitz_requests_unrouted", unrouted),
        ("blitz_upstream_connect_failures", connect_failures),
        ("blitz_rate_limit_dry_runs", rate_limit_dry_runs),
        ("blitz_rate_limits_overflowed", rate_limits_overflowed),
        ("blitz_authorizations_remembered", authorizations_remembered),
        ("blitz_authorizations_skipped", authorizations_skipped),
        ("blitz_retries", retries),
        ("blitz_ejections", ejections),
        ("blitz_ejections_refused", ejections_refused),
        ("blitz_retries_over_budget", retries_over_budget),
        ("blitz_hedges", hedges),
        ("blitz_hedges_won", hedges_won),
        ("blitz_requests_mirrored", mirrored),
        ("blitz_mirror_failures", mirror_failures),
        ("blitz_responses_cut_off", cut_off),
        ("blitz_request_content_failures", client_faults),
        ("blitz_tunnels_opened", tunnels),
        ("blitz_tunnels_half_closed", tunnels_half_closed),
        ("blitz_responses_compressed", compressed),
        ("blitz_compression_input_bytes", compressed_bytes_before),
        ("blitz_compression_output_bytes", compressed_bytes_after),
        ("blitz_requests_decompressed", decompressed),
        ("blitz_access_log_handshakes_omitted", handshakes_omitted),
        ("blitz_access_log_heads_omitted", heads_omitted),
    ] {
        families.count(name, *count);
    }
    add_causes(families, counters);
}

/// Counters that have a label.
fn add_causes(families: &mut Families, counters: &Counters) {
    let files_refused = [
        ("open", counters.files_refused_open),
        ("waiting", counters.files_refused_waiting),
    ];
    families.count_parts("blitz_files_refused", "limit", files_refused);
    let shed = Importance::ALL.iter().zip(counters.shed);
    let shed = shed.map(|(importance, count)| (importance.name(), count));
    families.count_parts("blitz_requests_shed", "importance", shed);
    let not_mirrored = [
        ("limit", counters.mirrors_over_limit),
        ("content", counters.mirrors_without_content),
    ];
    families.count_parts("blitz_requests_not_mirrored", "reason", not_mirrored);
    let rejected = Rejection::ALL.iter().zip(counters.rejections);
    let rejected = rejected.map(|(rejection, count)| (rejection.rule(), count));
    families.count_parts("blitz_requests_rejected", "rule", rejected);
    let responses = CLASSES.into_iter().zip(counters.responses);
    families.count_parts("blitz_upstream_responses", "status", responses);
    for (failure, count) in Failure::ALL.iter().zip(counters.failures) {
        let labels = vec![
            ("cause", failure.name().to_owned()),
            ("error_type", failure.token().to_owned()),
        ];
        families.count_with("blitz_upstream_failures", labels, count);
    }
}

fn add_http(families: &mut Families, counters: &blitz_http::Counters) {
    for (name, count) in [
        ("blitz_connections_accepted", counters.accepted),
        ("blitz_exchanges_cancelled", counters.cancelled),
        ("blitz_connections_upgraded", counters.upgrades),
        ("blitz_h2c_upgrades", counters.h2c_upgrades),
        ("blitz_head_timeouts", counters.header_timeouts),
        ("blitz_settings_timeouts", counters.settings_timeouts),
        ("blitz_memory_held_back", counters.held_back),
        ("blitz_streams_shed", counters.streams_shed),
        ("blitz_heads_refused", counters.heads_refused),
        ("blitz_idle_timeouts", counters.idle_timeouts),
        ("blitz_connections_evicted", counters.evicted),
        ("blitz_request_content_timeouts", counters.body_timeouts),
        ("blitz_send_stalls", counters.send_stalls),
        ("blitz_tunnel_timeouts", counters.tunnel_timeouts),
    ] {
        families.count(name, count);
    }
    let requests = VERSIONS.into_iter().zip(counters.requests_by_version);
    families.count_parts("blitz_http_requests", "version", requests);
    let responses = CLASSES.into_iter().zip(counters.responses);
    families.count_parts("blitz_http_responses", "status", responses);
    let refused = counters.refused.iter().copied();
    families.count_parts("blitz_requests_refused", "rule", refused);
    let incomplete = [
        ("client-gone", counters.heads_abandoned),
        ("evicted", counters.heads_evicted),
    ];
    families.count_parts("blitz_heads_incomplete", "cause", incomplete);
}

/// The other counters of HTTP. All fields are named here.
fn add_connections_to_upstreams(families: &mut Families, counters: &blitz_http::Counters) {
    let blitz_http::Counters {
        connections: _,
        accepted: _,
        requests: _,
        requests_by_version: _,
        responses: _,
        cancelled: _,
        upgrades: _,
        h2c_upgrades: _,
        header_timeouts: _,
        reading_head: _,
        heads_abandoned: _,
        heads_evicted: _,
        settings_timeouts: _,
        held_back: _,
        streams_shed: _,
        heads_refused: _,
        idle_timeouts: _,
        evicted: _,
        body_timeouts: _,
        send_stalls: _,
        tunnel_timeouts: _,
        upstream_connects,
        upstream_connect_failures,
        upstream_reused,
        upstream_not_reused,
        upstream_unexpected_bytes,
        upstream_idle_lost,
        upstream_retired,
        upstream_silent,
        upstream_rests,
        upstream_limit_waits,
        upstream_queue_full,
        upstream_queue_timeouts,
        upstream_idle: _,
        tls: _,
        quic: _,
        refused: _,
    } = counters;
    for (name, count) in [
        ("blitz_upstream_connects", upstream_connects),
        (
            "blitz_upstream_connection_attempts_failed",
            upstream_connect_failures,
        ),
        ("blitz_upstream_connections_reused", upstream_reused),
        ("blitz_upstream_connections_not_reused", upstream_not_reused),
        (
            "blitz_upstream_surplus_responses",
            upstream_unexpected_bytes,
        ),
        ("blitz_upstream_idle_connections_lost", upstream_idle_lost),
        ("blitz_upstream_connections_retired", upstream_retired),
        ("blitz_upstream_connections_silent", upstream_silent),
        ("blitz_upstream_rests", upstream_rests),
        ("blitz_upstream_limit_waits", upstream_limit_waits),
        ("blitz_upstream_queue_full", upstream_queue_full),
        ("blitz_upstream_queue_timeouts", upstream_queue_timeouts),
    ] {
        families.count(name, *count);
    }
}

fn add_tls(families: &mut Families, counters: &TlsCounters) {
    let TlsCounters {
        handshakes: _,
        resumed,
        version_1_2,
        version_1_3,
        clear_text,
        upstream_handshakes,
        upstream_resumed,
        records_in_place,
        records_gathered,
        record_timeouts,
        failures,
        upstream_failures,
    } = counters;
    let versions = [("1.2", *version_1_2), ("1.3", *version_1_3)];
    families.count_parts("blitz_tls_handshakes", "version", versions);
    for (name, count) in [
        ("blitz_tls_handshakes_resumed", resumed),
        ("blitz_tls_clear_text", clear_text),
        ("blitz_tls_records_in_place", records_in_place),
        ("blitz_tls_records_gathered", records_gathered),
        ("blitz_tls_record_timeouts", record_timeouts),
        ("blitz_upstream_tls_handshakes", upstream_handshakes),
        ("blitz_upstream_tls_handshakes_resumed", upstream_resumed),
    ] {
        families.count(name, *count);
    }
    let failures = failures.iter().copied();
    families.count_parts("blitz_tls_failures", "rule", failures);
    let failures = upstream_failures.iter().copied();
    families.count_parts("blitz_upstream_tls_failures", "rule", failures);
}

fn add_quic(families: &mut Families, counters: &QuicCounters) {
    families.count_named("blitz_quic_", counters.named());
}

fn add_reactor(families: &mut Families, counters: &reactor::Counters) {
    families.count_named("blitz_reactor_", counters.named());
}

fn add_gauges<'s>(
    families: &mut Families,
    cores: &(impl Iterator<Item = (usize, &'s CoreSample)> + Clone),
) {
    type Gauge = (&'static str, fn(&CoreSample) -> u64);
    let gauges: [Gauge; 7] = [
        ("blitz_connections", |core| core.http.connections),
        ("blitz_connections_reading_head", |core| {
            core.http.reading_head
        }),
        ("blitz_requests_in_flight", |core| core.site.in_flight),
        ("blitz_upstream_idle_connections", |core| {
            core.http.upstream_idle
        }),
        ("blitz_sockets_open", |core| core.sockets as u64),
        ("blitz_memory_available_bytes", |core| {
            core.memory_available as u64
        }),
        ("blitz_configurations_in_memory", |core| core.site.snapshots),
    ];
    for (name, value) in gauges {
        for (index, core) in cores.clone() {
            let labels = vec![("core", index.to_string())];
            families.add(name, labels, Value::Number(value(core) as f64));
        }
    }
}

/// Connections and avoided addresses of an upstream on all cores.
#[derive(Default, Clone, Copy)]
struct Upstream {
    idle: usize,
    active: usize,
    avoided: usize,
}

fn add_upstreams<'s>(families: &mut Families, cores: impl Iterator<Item = &'s CoreSample>) {
    let mut sums = BTreeMap::<&str, Upstream>::new();
    for state in cores.flat_map(|core| &core.upstreams) {
        let is_known = sums.contains_key(&*state.label);
        let label = match is_known || sums.len() < UPSTREAMS_MAX {
            true => &*state.label,
            false => OTHER,
        };
        let sum = sums.entry(label).or_default();
        sum.idle += state.idle;
        sum.active += state.active;
        sum.avoided += state.avoided;
    }
    for (upstream, sum) in &sums {
        for (state, count) in [("idle", sum.idle), ("active", sum.active)] {
            let labels = vec![
                ("upstream", (*upstream).to_owned()),
                ("state", state.to_owned()),
            ];
            let value = Value::Number(count as f64);
            families.add("blitz_upstream_connections", labels, value);
        }
    }
    for (upstream, sum) in &sums {
        let labels = vec![("upstream", (*upstream).to_owned())];
        let value = Value::Number(sum.avoided as f64);
        families.add("blitz_upstream_addresses_avoided", labels, value);
    }
}

/// Upstreams that shed load: the sums of all cores, and the time without load that they know.
fn add_sheds<'s>(families: &mut Families, states: impl Iterator<Item = &'s ShedState>) {
    let mut sums = BTreeMap::<&str, ShedState>::new();
    for state in states {
        match sums.entry(&*state.name) {
            Entry::Vacant(entry) => {
                entry.insert(state.clone());
            }
            Entry::Occupied(mut entry) => entry.get_mut().add(state),
        }
    }
    type Gauge = (&'static str, fn(&ShedState) -> f64);
    let gauges: [Gauge; 4] = [
        ("blitz_upstream_shed_limit", |state| state.limit as f64),
        ("blitz_upstream_shed_in_flight", |state| {
            state.in_flight as f64
        }),
        ("blitz_upstream_shed_waiting", |state| state.waiting as f64),
        ("blitz_upstream_unloaded_seconds", |state| {
            state.unloaded.unwrap_or_default().as_secs_f64()
        }),
    ];
    for (name, value) in gauges {
        for (upstream, state) in sums.iter().take(UPSTREAMS_MAX) {
            let labels = vec![("upstream", (*upstream).to_owned())];
            families.add(name, labels, Value::Number(value(state)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Their names are made from those of the counters.
    #[test]
    fn the_counters_of_quic_and_of_the_reactor_are_described() {
        let mut families = Families::default();
        let ones = |named: Vec<(&'static str, u64)>| named.into_iter().map(|(name, _)| (name, 1));
        let quic: Vec<_> = QuicCounters::NONE.named().collect();
        let reactor: Vec<_> = reactor::Counters::default().named().collect();
        let count = quic.len() + reactor.len();
        families.count_named("blitz_quic_", ones(quic));
        families.count_named("blitz_reactor_", ones(reactor));
        assert_eq!(families.0.len(), count);
    }
}
