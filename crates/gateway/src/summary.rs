//! A log line about the failures since the last one.

use std::borrow::Cow;
use std::fmt::Write;
use std::time::{Duration, Instant};

use blitz_site::{Counters, Failure, Rejection};

/// Counts that are shown, with their names and those of their parts.
type Counts = Vec<(Cow<'static, str>, u64)>;

/// Logs a line at INFO after each interval in which something was refused, failed or dropped, and at
/// the end. It also has the number of requests.
pub(crate) struct Summary {
    interval: Duration,
    due: Instant,
    last: Counts,
    last_requests: Counts,
}

impl Summary {
    pub(crate) fn new(interval: Duration, now: Instant) -> Summary {
        Summary {
            interval,
            due: now + interval,
            last: Counts::new(),
            last_requests: Counts::new(),
        }
    }

    /// Logs the line if it is due. `read` gives the counters of all cores.
    pub(crate) fn tick(
        &mut self,
        now: Instant,
        read: impl FnOnce() -> (Counters, blitz_http::Counters),
    ) {
        if !self.interval.is_zero() && now >= self.due {
            self.due = now + self.interval;
            let (gateway, http) = read();
            self.log(&gateway, &http, false);
        }
    }

    /// Logs the last line, unless there was nothing since the one before or it is turned off.
    pub(crate) fn end(&mut self, (gateway, http): (Counters, blitz_http::Counters)) {
        self.log(&gateway, &http, true);
    }

    fn log(&mut self, gateway: &Counters, http: &blitz_http::Counters, is_end: bool) {
        let counts = counts(gateway, http, blitz_host::log::dropped_lines());
        let requests = requests(http);
        let problems = changes(&self.last, &counts);
        // Requests alone are no reason for a line every minute.
        if self.interval.is_zero() || (problems.is_none() && !is_end) {
            return;
        }
        let traffic = changes(&self.last_requests, &requests);
        let text: Vec<_> = problems.into_iter().chain(traffic).collect();
        if text.is_empty() {
            return;
        }
        let dropped = blitz_host::log::dropped_lines();
        tracing::info!("since the last summary: {}", text.join(" "));
        // If this line was dropped, the next one has its counts.
        if blitz_host::log::dropped_lines() == dropped {
            (self.last, self.last_requests) = (counts, requests);
        }
    }
}

/// Requests by version of HTTP.
fn requests(http: &blitz_http::Counters) -> Counts {
    let versions = [
        "requests_http1",
        "requests_http1",
        "requests_http2",
        "requests_http3",
    ];
    let mut counts = Counts::new();
    for (name, count) in versions.into_iter().zip(http.requests_by_version) {
        add(&mut counts, Cow::from(name), count);
    }
    counts
}

/// Everything that an operator should know of. Failures, rejections and refusals are listed by cause.
fn counts(gateway: &Counters, http: &blitz_http::Counters, dropped_lines: u64) -> Counts {
    let failures = Failure::ALL
        .iter()
        .map(|&failure| (failure.token(), gateway.failed(failure)));
    let rejections = Rejection::ALL
        .iter()
        .filter(|&&rejection| !rejection.is_usual())
        .map(|&rejection| (rejection.rule(), gateway.rejected(rejection)));
    let refusals = http.refused.iter().copied();
    let client_tls = http.tls.failures.iter();
    let client_tls = client_tls.map(|(rule, n)| (Cow::from(format!("client-tls-{rule}")), *n));
    let others = [
        ("cut_off", gateway.cut_off),
        ("request_content_failed", gateway.client_faults),
        ("connect_failures", gateway.connect_failures),
        ("retries", gateway.retries),
        ("ejections", gateway.ejections),
        ("ejections_refused", gateway.ejections_refused),
        ("retries_over_budget", gateway.retries_over_budget),
        ("mirror_failures", gateway.mirror_failures),
        ("mirrors_over_limit", gateway.mirrors_over_limit),
        ("rate_limit_dry_runs", gateway.rate_limit_dry_runs),
        ("rate_limits_overflowed", gateway.rate_limits_overflowed),
        ("files_refused_open", gateway.files_refused_open),
        ("files_refused_waiting", gateway.files_refused_waiting),
        ("authorizations_skipped", gateway.authorizations_skipped),
        ("evicted", http.evicted),
        ("streams_shed", http.streams_shed),
        ("send_stalls", http.send_stalls),
        ("tunnel_timeouts", http.tunnel_timeouts),
        ("tunnels_half_closed", gateway.tunnels_half_closed),
        ("settings_timeouts", http.settings_timeouts),
        ("log_lines_dropped", dropped_lines),
    ];
    // Handshakes, connections and their moves are no problems.
    let is_usual = |name: &str| {
        matches!(
            name,
            "accepted" | "handshakes" | "migrations" | "misdelivered"
        )
    };
    let quic = http.quic.named().filter(|(name, _)| !is_usual(name));
    let quic = quic.map(|(name, n)| (Cow::from(format!("quic_{name}")), n));
    let mut counts = Counts::new();
    let named = failures.chain(rejections).chain(refusals).chain(others);
    let named = named.map(|(name, count)| (Cow::from(name), count));
    for (name, count) in named.chain(client_tls).chain(quic) {
        add(&mut counts, name, count);
    }
    counts
}

fn add(counts: &mut Counts, name: Cow<'static, str>, count: u64) {
    match counts.iter_mut().find(|(known, _)| *known == name) {
        Some((_, sum)) => *sum += count,
        None => counts.push((name, count)),
    }
}

/// The counts that have grown, as `name=difference`; `None` if there are none.
fn changes(before: &Counts, after: &Counts) -> Option<String> {
    let mut text = String::new();
    for (name, count) in after {
        let known = before.iter().find(|(known, _)| known == name);
        let grown = count.saturating_sub(known.map_or(0, |(_, count)| *count));
        if grown > 0 {
            let separator = if text.is_empty() { "" } else { " " };
            // Writing to memory cannot fail.
            let _ = write!(text, "{separator}{name}={grown}");
        }
    }
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_grown_is_told() {
        let mut gateway = Counters::default();
        let mut http = blitz_http::Counters::default();
        let nothing = counts(&gateway, &http, 0);
        assert_eq!(changes(&Counts::new(), &nothing), None);
        gateway.routed = 10;
        gateway.failures[Failure::ConnectionLimitReached as usize] = 2;
        gateway.failures[Failure::UpstreamQueueFull as usize] = 3;
        gateway.rejections[Rejection::HttpsOnly as usize] = 5;
        gateway.rejections[Rejection::Preflight as usize] = 8;
        gateway.rejections[Rejection::NoHost as usize] = 6;
        gateway.rejections[Rejection::ContentTooLarge as usize] = 1;
        http.refused = vec![("bare-lf", 4), ("host-missing", 1)];
        http.tls.failures = vec![("alert-received", 2)];
        http.quic.handshakes = 9;
        http.quic.retries = 3;
        let first = counts(&gateway, &http, 7);
        assert_eq!(
            changes(&nothing, &first).as_deref(),
            Some(
                "connection_limit_reached=5 host-missing=7 content-too-large=1 bare-lf=4 \
                 log_lines_dropped=7 client-tls-alert-received=2 quic_retries=3"
            )
        );
        http.refused[1].1 += 1;
        let second = counts(&gateway, &http, 7);
        assert_eq!(changes(&first, &second).as_deref(), Some("host-missing=1"));
        assert_eq!(changes(&second, &first), None);
    }

    #[test]
    fn requests_are_counted_by_version() {
        let mut http = blitz_http::Counters::default();
        let nothing = requests(&http);
        assert_eq!(changes(&Counts::new(), &nothing), None);
        http.requests_by_version = [1, 1, 0, 3];
        let text = changes(&nothing, &requests(&http));
        assert_eq!(text.as_deref(), Some("requests_http1=2 requests_http3=3"));
    }
}
