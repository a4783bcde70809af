//! Quantiles of durations from the buckets of a histogram.

/// Requests by duration. Counts are those of all requests up to a bound.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Buckets(Vec<(f64, f64)>);

/// The quantiles of some durations.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Latency {
    pub(crate) p50: Option<Quantile>,
    pub(crate) p90: Option<Quantile>,
    pub(crate) p99: Option<Quantile>,
}

/// A duration that a share of the requests did not exceed, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(crate) enum Quantile {
    /// Within a bucket, where requests are taken to be spread evenly, as Prometheus does.
    At(f64),
    /// Above the last bound.
    Above(f64),
}

impl Buckets {
    /// Adds requests up to a bound in seconds.
    pub(super) fn add(&mut self, bound: f64, count: f64) {
        match self
            .0
            .binary_search_by(|(known, _)| known.total_cmp(&bound))
        {
            Ok(at) => self.0[at].1 += count,
            Err(at) => self.0.insert(at, (bound, count)),
        }
    }

    pub(super) fn latency(&self) -> Latency {
        Latency {
            p50: self.quantile(0.5),
            p90: self.quantile(0.9),
            p99: self.quantile(0.99),
        }
    }

    /// `None` without requests.
    fn quantile(&self, share: f64) -> Option<Quantile> {
        let (_, total) = *self.0.last()?;
        if total <= 0.0 {
            return None;
        }
        let rank = share * total;
        let at = self.0.iter().position(|(_, count)| *count >= rank)?;
        let (bound, count) = self.0[at];
        let (lower, before) = match at.checked_sub(1) {
            Some(previous) => self.0[previous],
            None => (0.0, 0.0),
        };
        if bound.is_infinite() {
            return Some(Quantile::Above(lower));
        }
        let share = (rank - before) / (count - before);
        Some(Quantile::At(lower + (bound - lower) * share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(counts: &[(f64, f64)]) -> Buckets {
        let mut buckets = Buckets::default();
        for (bound, count) in counts.iter().rev() {
            buckets.add(*bound, *count);
        }
        buckets
    }

    #[test]
    fn quantiles_lie_within_their_bucket() {
        let buckets = buckets(&[
            (0.001, 50.0),
            (0.01, 90.0),
            (0.1, 100.0),
            (f64::INFINITY, 100.0),
        ]);
        let at = |share: f64| match buckets.quantile(share) {
            Some(Quantile::At(seconds)) => (seconds * 1e6).round() / 1e6,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            (at(0.25), at(0.5), at(0.9), at(0.99)),
            (0.0005, 0.001, 0.01, 0.091)
        );
    }

    #[test]
    fn requests_above_the_last_bound_have_no_exact_duration() {
        let buckets = buckets(&[(10.0, 1.0), (f64::INFINITY, 4.0)]);
        assert_eq!(buckets.quantile(0.9), Some(Quantile::Above(10.0)));
        assert!(Quantile::Above(10.0) > Quantile::At(10.0));
    }

    #[test]
    fn without_requests_there_is_no_quantile() {
        assert_eq!(buckets(&[]).latency(), Latency::default());
        let empty = buckets(&[(1.0, 0.0), (f64::INFINITY, 0.0)]);
        assert_eq!(empty.latency(), Latency::default());
    }

    #[test]
    fn the_same_bound_adds_up() {
        let mut sum = buckets(&[(1.0, 1.0)]);
        sum.add(1.0, 2.0);
        assert_eq!(sum, buckets(&[(1.0, 3.0)]));
    }
}
