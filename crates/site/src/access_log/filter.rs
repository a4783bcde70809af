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
    /// Whether this request has a line. A request without a response counts as one with 499.
    pub(crate) fn takes(&self, status: Option<Status>, duration: Duration) -> bool {
        let code = status.map_or(NO_RESPONSE, Status::code);
        let is_status = self.statuses.iter().any(|logged| match *logged {
            LoggedStatus::Code(wanted) => wanted == code,
            LoggedStatus::Class(class) => class == code / 100,
        });
        let is_slow = self.slower.is_some_and(|slower| duration > slower);
        is_status || is_slow || self.is_sampled()
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
