//! TLS counters of a core.

/// Counts of one core since its start. They cover both sides unless a field names one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsCounters {
    /// Handshakes with clients that succeeded, resumed ones included.
    pub handshakes: u64,
    /// Handshakes with clients that resumed an earlier session.
    pub resumed: u64,
    /// Handshakes with clients that negotiated TLS 1.2.
    pub version_1_2: u64,
    /// Handshakes with clients that negotiated TLS 1.3.
    pub version_1_3: u64,
    /// Clients that sent HTTP in clear text to a TLS port (400).
    pub clear_text: u64,
    /// Handshakes with upstreams that succeeded, resumed ones included.
    pub upstream_handshakes: u64,
    /// Handshakes with upstreams that resumed an earlier session.
    pub upstream_resumed: u64,
    /// Records that were decrypted in their receive buffer.
    pub records_in_place: u64,
    /// Records that arrived in pieces and were gathered first.
    pub records_gathered: u64,
    /// Connections that were closed because the rest of a record did not arrive in time.
    pub record_timeouts: u64,
    /// Failed connections of clients, by [`TlsError::rule`](crate::TlsError::rule).
    pub failures: Vec<(&'static str, u64)>,
    /// Failed connections to upstreams, by [`TlsError::rule`](crate::TlsError::rule).
    pub upstream_failures: Vec<(&'static str, u64)>,
}

impl TlsCounters {
    /// All counts at zero.
    pub(crate) const NONE: TlsCounters = TlsCounters {
        handshakes: 0,
        resumed: 0,
        version_1_2: 0,
        version_1_3: 0,
        clear_text: 0,
        upstream_handshakes: 0,
        upstream_resumed: 0,
        records_in_place: 0,
        records_gathered: 0,
        record_timeouts: 0,
        failures: Vec::new(),
        upstream_failures: Vec::new(),
    };

    /// Adds the counts of another core.
    pub fn add(&mut self, other: &TlsCounters) {
        self.handshakes += other.handshakes;
        self.resumed += other.resumed;
        self.version_1_2 += other.version_1_2;
        self.version_1_3 += other.version_1_3;
        self.clear_text += other.clear_text;
        self.upstream_handshakes += other.upstream_handshakes;
        self.upstream_resumed += other.upstream_resumed;
        self.records_in_place += other.records_in_place;
        self.records_gathered += other.records_gathered;
        self.record_timeouts += other.record_timeouts;
        for &(rule, n) in &other.failures {
            add(&mut self.failures, rule, n);
        }
        for &(rule, n) in &other.upstream_failures {
            add(&mut self.upstream_failures, rule, n);
        }
    }

    /// Failures of clients' connections for one reason.
    #[must_use]
    pub fn failed_for(&self, rule: &str) -> u64 {
        find(&self.failures, rule)
    }

    /// Failures of connections to upstreams for one reason.
    #[must_use]
    pub fn upstream_failed_for(&self, rule: &str) -> u64 {
        find(&self.upstream_failures, rule)
    }

    pub(crate) fn count_failure(&mut self, is_server: bool, rule: &'static str) {
        match is_server {
            true => add(&mut self.failures, rule, 1),
            false => add(&mut self.upstream_failures, rule, 1),
        }
    }
}

/// There are few reasons, so a list is enough.
fn add(list: &mut Vec<(&'static str, u64)>, rule: &'static str, n: u64) {
    match list.iter_mut().find(|(name, _)| *name == rule) {
        Some((_, sum)) => *sum += n,
        None => list.push((rule, n)),
    }
}

fn find(list: &[(&'static str, u64)], rule: &str) -> u64 {
    list.iter()
        .find(|(name, _)| *name == rule)
        .map_or(0, |(_, n)| *n)
}
