//! Which requests have a line.

use std::time::Duration;

use blitz_http::Status;

/// Which requests have a line: those that meet a condition, and a share of the others.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LogFilter {
    /// Statuses of responses; empty is no condition.
    pub statuses: Vec<LoggedStatus>,
    /// A duration of requests; a longer one has a line.
    pub slower: Option<Duration>,
    /// The share, from 0 to 1, of the requests that meet no condition; without conditions of all. By default they all
    /// have a line if there are no conditions, and none has one if there are.
    pub sample: Option<f64>,
}

/// A status, or all of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoggedStatus {
    /// This one.
    Code(u16),
    /// All statuses with this first digit.
    Class(u16),
}

impl LogFilter {
    /// Whether all requests have a line.
    pub(crate) fn takes_all(&self) -> bool {
        !self.has_conditions() && self.sample.is_none()
    }

    /// Whether this request has a line. A request without a response counts as one with 499.
    pub(crate) fn takes(&self, status: Option<Status>, duration: Duration) -> bool {
        self.is_met(status, duration) || self.is_sampled()
    }

    /// Whether a request without a response may have a line.
    pub(crate) fn may_take_unanswered(&self, duration: Duration) -> bool {
        let is_sampled = match self.sample {
            Some(share) => share > 0.0,
            None => !self.has_conditions(),
        };
        is_sampled || self.is_met(None, duration)
    }

    /// Whether a condition is met.
    fn is_met(&self, status: Option<Status>, duration: Duration) -> bool {
        let code = status.map_or(NO_RESPONSE, Status::code);
        let is_status = self.statuses.iter().any(|logged| match *logged {
            LoggedStatus::Code(wanted) => wanted == code,
            LoggedStatus::Class(class) => class == code / 100,
        });
        let is_slow = self.slower.is_some_and(|slower| duration > slower);
        is_status || is_slow
    }

    fn has_conditions(&self) -> bool {
        !self.statuses.is_empty() || self.slower.is_some()
    }

    fn is_sampled(&self) -> bool {
        let Some(share) = self.sample else {
            return !self.has_conditions();
        };
        let random = (blitz_http::random_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        random < share
    }
}

/// The status of nginx for a request whose client has left before the response.
pub(super) const NO_RESPONSE: u16 = 499;

#[cfg(test)]
mod tests {
    use blitz_http::{Config, block_on};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn requests_without_a_response_count_as_499() {
        use LoggedStatus::{Class, Code};
        let filter = |statuses: &[LoggedStatus], slower, sample| LogFilter {
            statuses: statuses.to_vec(),
            slower,
            sample,
        };
        let cases = [
            (LogFilter::default(), true),
            (filter(&[Class(4)], None, None), true),
            (filter(&[Code(499)], None, None), true),
            (filter(&[Class(5), Code(404)], None, None), false),
            (filter(&[Class(5)], Some(SECOND / 2), None), true),
            (filter(&[Class(5)], Some(SECOND), None), false),
            (filter(&[], None, Some(0.0)), false),
        ];
        // Chance is that of a core.
        let takes = block_on(&Config::default(), async {
            let taken = cases.iter().map(|(filter, _)| filter.takes(None, SECOND));
            taken.collect::<Vec<_>>()
        });
        for ((filter, expected), takes) in cases.into_iter().zip(takes.unwrap()) {
            assert_eq!(filter.may_take_unanswered(SECOND), expected, "{filter:?}");
            assert_eq!(takes, expected, "{filter:?}");
        }
        assert!(filter(&[Class(5)], None, Some(0.01)).may_take_unanswered(SECOND));
    }
}
