//! A core's records of each request of a mix.

use std::time::Duration;

use crate::distribution::{Distribution, Recorder};

/// Of more requests no figures of their own are kept: each takes 30 KB in each core.
const REQUESTS_MAX: usize = 256;

/// Figures of each request, if there are several.
#[derive(Default)]
pub(super) struct ByRequest(Vec<OneRequest>);

struct OneRequest {
    latency: Recorder,
    errors: u64,
}

/// Latency and errors of one request.
pub(super) type RequestFigures = (Distribution, u64);

impl ByRequest {
    pub(super) fn new(requests: usize) -> ByRequest {
        let count = match requests {
            2..=REQUESTS_MAX => requests,
            _ => 0,
        };
        let one = || OneRequest {
            latency: Recorder::coarse(),
            errors: 0,
        };
        ByRequest((0..count).map(|_| one()).collect())
    }

    #[inline]
    pub(super) fn completed(&mut self, request: usize, latency: Duration) {
        if let Some(one) = self.0.get_mut(request) {
            one.latency.record(latency);
        }
    }

    /// A request that has waited for so long has no response. It counts with that time, as in the latency of all.
    pub(super) fn unfinished(&mut self, request: Option<usize>, waited: Duration) {
        if let Some(request) = request {
            self.completed(request, waited);
        }
    }

    #[cold]
    pub(super) fn failed(&mut self, request: usize) {
        if let Some(one) = self.0.get_mut(request) {
            one.errors += 1;
        }
    }

    /// In the order of the requests; empty if there is only one, or if there are too many.
    pub(super) fn finish(&self) -> Vec<RequestFigures> {
        let figures = |one: &OneRequest| (one.latency.distribution(), one.errors);
        self.0.iter().map(figures).collect()
    }
}

/// Adds what another core has recorded.
pub(super) fn merge(sum: &mut Vec<RequestFigures>, other: Vec<RequestFigures>) {
    if sum.is_empty() {
        *sum = other;
        return;
    }
    for ((latency, errors), (others, more)) in sum.iter_mut().zip(other) {
        latency.merge(&others);
        *errors += more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_of_a_mix_has_its_figures() {
        let mut first = ByRequest::new(2);
        first.completed(0, Duration::from_millis(1));
        first.failed(1);
        let mut second = ByRequest::new(2);
        second.completed(0, Duration::from_millis(3));
        let mut sum = Vec::new();
        merge(&mut sum, first.finish());
        merge(&mut sum, second.finish());
        let [(fast, no_errors), (none, errors)] = &sum[..] else {
            panic!("two requests");
        };
        assert_eq!((fast.count, *no_errors), (2, 0));
        assert_eq!((none.count, *errors), (0, 1));
    }

    #[test]
    fn one_request_and_thousands_have_none() {
        for requests in [1, 10_000] {
            let mut figures = ByRequest::new(requests);
            figures.completed(0, Duration::from_millis(1));
            assert!(figures.finish().is_empty());
        }
    }
}
