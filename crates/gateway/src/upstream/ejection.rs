//! Servers that fail, or take much longer, while the others of their set do not: they get no requests for a time.

use std::time::{Duration, Instant};

use blitz_config::Outlier;
use blitz_site::count;

use super::balancer::Balancer;
use super::group::{Group, ServerIndex};
use super::outlier::ejection_time;

/// How often response times are compared.
const LATENCY_PERIOD: Duration = Duration::from_secs(1);
/// A server is judged if its last failure is not older.
const FAILURE_AGE: Duration = Duration::from_secs(10);
/// A server is not ejected for responses that take less than so much longer.
const LATENCY_MIN: f64 = 0.05;
/// How often the log says that servers are kept because half of the set is ejected.
const PANIC_PERIOD: Duration = Duration::from_secs(30);

impl Group {
    /// Ejects a server with failures, if the others have far fewer, and at most half of the set is ejected then.
    #[cold]
    pub(super) fn judge(&self, index: ServerIndex, now: Instant) {
        let balancer = self.balancer(index);
        balancer.is_suspect.set(false);
        // Failures from before an ejection say nothing: another core may have let it return.
        let failed = balancer.outcomes.failed_for(now);
        let fresh = balancer.member().available_for(now).unwrap_or(FAILURE_AGE);
        if failed.is_none_or(|failed| failed >= fresh.min(FAILURE_AGE)) {
            return balancer.outcomes.forget();
        }
        let outlier = self.settings(index).outlier();
        let Some(set) = self.set_beside(index).filter(|_| outlier.is_on) else {
            return;
        };
        if balancer
            .outcomes
            .is_worse_than(set.clone().map(|other| &other.outcomes), now)
        {
            self.eject(balancer, set, &outlier, "its requests fail", now);
        }
    }

    /// Ejects servers whose responses take much longer than those of the others, if that is wanted.
    pub(super) fn compare_latencies(&self, now: Instant) {
        let is_due = self.next_comparison.get().is_none_or(|next| now >= next);
        if !self.compares_latency || !is_due {
            return;
        }
        self.next_comparison.set(Some(now + LATENCY_PERIOD));
        for index in self.indices() {
            let outlier = self.settings(index).outlier();
            let (Some(times), Some(set)) = (outlier.latency, self.set_beside(index)) else {
                continue;
            };
            let balancer = self.balancer(index);
            let mut others: Vec<f64> = set
                .clone()
                .filter_map(|other| other.outcomes.mean_time(now))
                .collect();
            others.sort_unstable_by(f64::total_cmp);
            let own = balancer.outcomes.mean_time(now);
            let (Some(own), Some(median)) = (own, others.get(others.len() / 2)) else {
                continue;
            };
            let is_slow = own > median * f64::from(times) && own - median > LATENCY_MIN;
            if is_slow && !balancer.member().is_on_probation() {
                self.eject(balancer, set, &outlier, "its responses take long", now);
            }
        }
    }

    fn eject<'g>(
        &self,
        balancer: &Balancer,
        set: impl Iterator<Item = &'g Balancer> + Clone,
        outlier: &Outlier,
        reason: &'static str,
        now: Instant,
    ) {
        let member = balancer.member();
        let size = set.clone().count() + 1;
        // One that is being tried again may fail.
        let ejected = set.filter(|other| other.member().is_on_probation()).count() + 1;
        if ejected * 2 > size {
            count(|counters| counters.ejections_refused += 1);
            if self.next_panic.get().is_none_or(|next| now >= next) {
                self.next_panic.set(Some(now + PANIC_PERIOD));
                tracing::warn!(
                    server = %member.url,
                    "{reason}, but half of the servers get no requests already: it stays in use"
                );
            }
            return;
        }
        let time = ejection_time(outlier.time, member.count_ejection(now));
        member.avoid(time, now);
        balancer.outcomes.forget();
        count(|counters| counters.ejections += 1);
        tracing::warn!(
            server = %member.url,
            "gets no requests for {} s: {reason}, unlike those of the other servers",
            time.as_secs()
        );
    }
}
