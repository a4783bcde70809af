//! Counters of failures, refusals and limits, by cause.

use super::exposition::{Exposition, Sample};
use super::view::grown;

/// How much a cause matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    /// A request, a connection or a line of the log was lost.
    Failure,
    /// A request or a connection was refused, delayed or closed by a rule or at a limit.
    Limit,
}

/// A counter of which some event was the cause.
#[derive(Debug, PartialEq)]
pub(crate) struct Cause {
    pub(crate) severity: Severity,
    /// From the name of the counter and its labels: `requests rejected: rate`.
    pub(crate) text: String,
    /// A sentence about the counter.
    pub(crate) meaning: String,
    /// Events of the window.
    pub(crate) recent: f64,
    /// Events since the start of the process.
    pub(crate) total: f64,
}

/// The counters without prefix and suffix. The page has the same.
const FAILURES: &[&str] = &[
    "upstream_failures",
    "upstream_connect_failures",
    "upstream_tls_failures",
    "upstream_connections_silent",
    "responses_cut_off",
    "exchanges_cancelled",
    "request_content_failures",
    "tls_failures",
    "tls_clear_text",
    "quic_handshakes_failed",
    "quic_violations",
    "quic_panics",
    "reactor_task_panics",
    "reactor_datagrams_dropped",
    "log_lines_dropped",
    "access_log_lines_dropped",
];

/// The same for refusals and limits.
const LIMITS: &[&str] = &[
    "requests_rejected",
    "requests_refused",
    "heads_refused",
    "retries",
    "retries_over_budget",
    "head_timeouts",
    "settings_timeouts",
    "request_content_timeouts",
    "send_stalls",
    "tls_record_timeouts",
    "memory_held_back",
    "streams_shed",
    "connections_evicted",
    "upstream_limit_waits",
    "upstream_queue_full",
    "upstream_queue_timeouts",
    "upstream_rests",
    "metrics_merged_requests",
    "quic_handshake_timeouts",
    "quic_handshakes_replaced",
    "quic_ignored",
    "quic_refused",
    "quic_evicted",
    "quic_invalid",
    "quic_moves_refused",
    "quic_unanswered",
    "reactor_accept_paused",
    "reactor_no_buffers",
    "reactor_shed",
    "reactor_mailbox_overflows",
];

/// The causes that have counted: those of the window first, of those failures first, and then the most frequent.
pub(super) fn causes(before: Option<&Exposition>, after: &Exposition) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (severity, families) in [(Severity::Failure, FAILURES), (Severity::Limit, LIMITS)] {
        for family in families {
            let name = format!("blitz_{family}_total");
            let meaning = after.help(&format!("blitz_{family}"));
            for (sample, recent) in grown(before, after, &name) {
                add(
                    &mut causes,
                    Cause {
                        severity,
                        text: text(family, sample),
                        meaning: meaning.to_owned(),
                        recent,
                        total: sample.value,
                    },
                );
            }
        }
    }
    causes.retain(|cause| cause.total > 0.0);
    let rank = |cause: &Cause| (cause.recent == 0.0, cause.severity);
    causes.sort_by(|a, b| {
        let more = || {
            b.recent
                .total_cmp(&a.recent)
                .then(b.total.total_cmp(&a.total))
        };
        rank(a).cmp(&rank(b)).then_with(more)
    });
    causes
}

/// The counter and its labels. A core is no cause, and the error of `Proxy-Status` follows from the cause.
fn text(family: &str, sample: &Sample) -> String {
    let labels = sample.labels.iter();
    let labels = labels.filter(|(name, _)| !matches!(&**name, "core" | "error_type"));
    let labels: Vec<_> = labels.map(|(_, text)| &**text).collect();
    let family = family.replace('_', " ");
    match labels.is_empty() {
        true => family,
        false => format!("{family}: {}", labels.join(", ")),
    }
}

/// Adds a cause, or its counts to those of the same text.
fn add(causes: &mut Vec<Cause>, cause: Cause) {
    match causes.iter_mut().find(|known| known.text == cause.text) {
        Some(known) => {
            known.recent += cause.recent;
            known.total += cause.total;
        }
        None => causes.push(cause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(lines: &str) -> Exposition {
        Exposition::parse(&format!("{lines}# EOF\n")).unwrap()
    }

    #[test]
    fn causes_that_have_grown_come_first() {
        let before = parse(
            "blitz_retries_total 900\n\
             blitz_send_stalls_total{core=\"0\"} 1\n\
             blitz_requests_rejected_total{rule=\"rate\"} 5\n",
        );
        let after = parse(
            "# HELP blitz_requests_rejected Requests that the gateway rejected, by rule.\n\
             blitz_retries_total 900\n\
             blitz_send_stalls_total{core=\"0\"} 1\n\
             blitz_send_stalls_total{core=\"1\"} 2\n\
             blitz_requests_rejected_total{rule=\"rate\"} 15\n\
             blitz_upstream_failures_total{cause=\"refused\",error_type=\"connection_refused\"} 3\n\
             blitz_requests_routed_total 1000\n\
             blitz_quic_ignored_total 0\n",
        );
        let causes = causes(Some(&before), &after);
        let seen: Vec<_> = causes
            .iter()
            .map(|cause| (&*cause.text, cause.recent, cause.total))
            .collect();
        assert_eq!(
            seen,
            [
                ("upstream failures: refused", 3.0, 3.0),
                ("requests rejected: rate", 10.0, 15.0),
                ("send stalls", 2.0, 3.0),
                ("retries", 0.0, 900.0),
            ]
        );
        assert_eq!(
            causes[1].meaning,
            "Requests that the gateway rejected, by rule."
        );
    }

    #[test]
    fn all_counters_are_metrics() {
        let page = include_str!("../../../../docs/metrics.md");
        for family in FAILURES.iter().chain(LIMITS) {
            assert!(
                page.contains(&format!("| `blitz_{family}_total` | counter |")),
                "{family}"
            );
        }
    }

    #[test]
    fn the_page_has_the_same_counters() {
        let page = include_str!("../control/page.html");
        let list = |name: &str| {
            let (_, list) = page.split_once(&format!("const {name} = `")).unwrap();
            let (list, _) = list.split_once('`').unwrap();
            list.split_whitespace().collect::<Vec<_>>()
        };
        assert_eq!(list("FAILURES"), FAILURES);
        assert_eq!(list("LIMITS"), LIMITS);
    }
}
