//! The checks of servers, and the servers that are drained.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::family::{Families, Value};
use super::labels::OTHER;

/// Servers that have samples; the others are one.
const SERVERS_MAX: usize = 1_000;

/// A server of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerFacts {
    /// The upstream in metrics.
    pub(crate) label: Arc<str>,
    /// The checks that have passed, and those that have failed.
    pub(crate) checks: [u64; 2],
    /// The verdict; `None` without one.
    pub(crate) is_up: Option<bool>,
    pub(crate) is_drained: bool,
}

pub(super) fn add_servers(families: &mut Families, servers: &[ServerFacts]) {
    let mut sums = BTreeMap::<&str, ServerFacts>::new();
    for server in servers {
        let label = match sums.contains_key(&*server.label) || sums.len() < SERVERS_MAX {
            true => &*server.label,
            false => OTHER,
        };
        let Some(sum) = sums.get_mut(label) else {
            sums.insert(label, server.clone());
            continue;
        };
        for (sum, count) in sum.checks.iter_mut().zip(server.checks) {
            *sum += count;
        }
        sum.is_up = match (sum.is_up, server.is_up) {
            (Some(one), Some(other)) => Some(one && other),
            (one, other) => one.or(other),
        };
        sum.is_drained |= server.is_drained;
    }
    let labels = |upstream: &str| vec![("upstream", upstream.to_owned())];
    for (upstream, sum) in &sums {
        for (outcome, count) in ["passed", "failed"].into_iter().zip(sum.checks) {
            let mut labels = labels(upstream);
            labels.push(("outcome", outcome.to_owned()));
            families.count_with("blitz_upstream_checks", labels, count);
        }
    }
    for (upstream, sum) in &sums {
        if let Some(is_up) = sum.is_up {
            let value = Value::Number(f64::from(u8::from(is_up)));
            families.add("blitz_upstream_up", labels(upstream), value);
        }
    }
    for (upstream, _) in sums.iter().filter(|(_, sum)| sum.is_drained) {
        families.add(
            "blitz_upstream_drained",
            labels(upstream),
            Value::Number(1.0),
        );
    }
}
