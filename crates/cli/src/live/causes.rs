//! Counters of failures, refusals and limits, by cause.

use blitz_gateway::Rejection;

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
    /// The remedy; empty if clients may be the cause.
    pub(crate) remedy: &'static str,
    /// Events of the window.
    pub(crate) recent: f64,
    /// Events since the start of the process.
    pub(crate) total: f64,
}

/// A counter, without prefix and suffix, and the remedy.
struct Counter {
    family: &'static str,
    /// Empty if clients may be the cause.
    remedy: &'static str,
}

const fn counter(family: &'static str, remedy: &'static str) -> Counter {
    Counter { family, remedy }
}

const fn of_clients(family: &'static str) -> Counter {
    counter(family, "")
}

const MEMORY: &str = "cores are short of memory for what is in transit, as readers are slow: more `--cores` have \
                      more of it";
const DESCRIPTORS: &str = "allow more open files: LimitNOFILE in the unit";
const SLOW_UPSTREAM: &str = "an upstream responds too slowly for its requests: add servers";
const COLLECTOR: &str = "see whether the collector of `tracing.otlp` runs and takes as much; the log has reason and remedy";
const KEYS: &str =
    "see whether the issuer of `jwt.keys_url` responds; the log has reason and remedy";
const REPORT: &str = "report this with the log";

/// The page has the same counters.
const FAILURES: &[Counter] = &[
    counter(
        "upstream_failures",
        "`blitz top` has the routes under RECENT FAILURES; look at the log of the upstream",
    ),
    counter(
        "upstream_connect_failures",
        "see whether the upstream runs, and whether a firewall is in between",
    ),
    counter(
        "upstream_tls_failures",
        "the log has the reason; see which certificate the upstream sends",
    ),
    counter(
        "upstream_connections_silent",
        "an upstream over HTTP/2 answers no PING: see whether it hangs",
    ),
    of_clients("responses_cut_off"),
    of_clients("exchanges_cancelled"),
    of_clients("request_content_failures"),
    of_clients("tls_failures"),
    of_clients("tls_clear_text"),
    of_clients("quic_handshakes_failed"),
    of_clients("quic_violations"),
    counter("quic_panics", REPORT),
    counter("reactor_task_panics", REPORT),
    counter(
        "reactor_datagrams_dropped",
        "enlarge the UDP receive buffer (`net.core.rmem_max`)",
    ),
    counter(
        "log_lines_dropped",
        "see whether whatever reads standard error hangs, or choose a higher `log.level`",
    ),
    counter(
        "access_log_lines_dropped",
        "see whether the disk or the reader of `log.access` is full or slow, or log fewer requests with `when` or \
         `sample`",
    ),
    counter("trace_spans_dropped", COLLECTOR),
    counter("log_records_dropped", COLLECTOR),
    counter("jwt_key_fetch_failures", KEYS),
];

/// The same for refusals and limits.
const LIMITS: &[Counter] = &[
    of_clients("requests_rejected"),
    of_clients("requests_refused"),
    counter(
        "rate_limits_overflowed",
        "more clients than a table of rate limits has places for: the newest of them share one place",
    ),
    counter(
        "files_refused",
        "files are sent or found too slowly: see whether the disk of the folder hangs, or clients read slowly",
    ),
    counter(
        "authorizations_skipped",
        "authorizers of `forward_auth` fail, and `on_failure = \"open\"` lets requests pass",
    ),
    counter(
        "rate_limit_store_failures",
        "the server of `redis` does not answer: rate limits with it do what their `on_failure` says; the log has the reason",
    ),
    counter(
        "heads_refused",
        "clients send many heads above 4 KiB at once: see whether cookies can be smaller",
    ),
    counter(
        "retries",
        "an upstream refuses or loses connections: see its log, and whether it closes idle connections earlier than \
         Blitz (`--upstream-idle`)",
    ),
    counter(
        "ejections",
        "a server of several fails, or takes much longer than the others: the log names it, see its own log",
    ),
    counter(
        "ejections_refused",
        "most servers of an upstream fail at once: see their logs, and what they have in common",
    ),
    counter(
        "retries_over_budget",
        "most requests of an upstream fail: look at its log",
    ),
    of_clients("head_timeouts"),
    of_clients("heads_incomplete"),
    of_clients("settings_timeouts"),
    of_clients("request_content_timeouts"),
    of_clients("send_stalls"),
    of_clients("tls_record_timeouts"),
    counter("memory_held_back", MEMORY),
    counter("streams_shed", MEMORY),
    counter("connections_evicted", DESCRIPTORS),
    counter("requests_shed", SLOW_UPSTREAM),
    counter(
        "mirror_failures",
        "see whether the upstream of `mirror` runs; requests do not wait for it",
    ),
    counter(
        "requests_not_mirrored",
        "the upstream of `mirror` responds too slowly for its copies, or contents are above 64 KiB",
    ),
    counter("upstream_limit_waits", SLOW_UPSTREAM),
    counter("upstream_queue_full", SLOW_UPSTREAM),
    counter("upstream_queue_timeouts", SLOW_UPSTREAM),
    counter(
        "upstream_rests",
        "clients leave many requests to an upstream over HTTP/2: see whether it is too slow for them",
    ),
    counter("metrics_merged_requests", "raise `metrics.series_max`"),
    of_clients("quic_handshake_timeouts"),
    of_clients("quic_handshakes_replaced"),
    of_clients("quic_ignored"),
    counter(
        "quic_refused",
        "more clients use HTTP/3 than may at once: more `--cores` allow more",
    ),
    counter("quic_evicted", DESCRIPTORS),
    of_clients("quic_invalid"),
    of_clients("quic_moves_refused"),
    counter(
        "quic_unanswered",
        "enlarge the UDP send buffer (`net.core.wmem_max`)",
    ),
    counter("reactor_accept_paused", DESCRIPTORS),
    counter("reactor_no_buffers", MEMORY),
    counter("reactor_shed", MEMORY),
    counter("reactor_mailbox_overflows", REPORT),
];

/// The causes that have counted: those of the window first, of those failures first, and then the most frequent.
pub(super) fn causes(before: Option<&Exposition>, after: &Exposition) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (severity, counters) in [(Severity::Failure, FAILURES), (Severity::Limit, LIMITS)] {
        for &Counter { family, remedy } in counters {
            let name = format!("blitz_{family}_total");
            let meaning = after.help(&format!("blitz_{family}"));
            let counted = grown(before, after, &name);
            for (sample, recent) in counted.filter(|(sample, _)| !is_usual(sample)) {
                add(
                    &mut causes,
                    Cause {
                        severity,
                        text: text(family, sample),
                        meaning: meaning.to_owned(),
                        remedy,
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

/// Whether it counts redirects to HTTPS or the like, which are no problem.
fn is_usual(sample: &Sample) -> bool {
    let mut usual = Rejection::ALL
        .iter()
        .filter(|rejection| rejection.is_usual());
    usual.any(|rejection| {
        let mut labels = sample.labels.iter();
        labels.any(|(name, text)| &**name == "rule" && **text == *rejection.rule())
    })
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
             blitz_requests_rejected_total{rule=\"rate\"} 5\n\
             blitz_requests_rejected_total{rule=\"preflight\"} 7\n",
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
        for Counter { family, .. } in FAILURES.iter().chain(LIMITS) {
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
        let families = |counters: &[Counter]| {
            let families = counters.iter().map(|counter| counter.family);
            families.collect::<Vec<_>>()
        };
        assert_eq!(list("FAILURES"), families(FAILURES));
        assert_eq!(list("LIMITS"), families(LIMITS));
    }
}
