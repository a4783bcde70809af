//! A running process as an operator sees it: rates, latencies, failures and states, computed from two readings of its
//! control interface. The page of the control interface ([page.html](control/page.html)) computes the same.

mod causes;
mod exposition;
mod failures;
mod latency;
mod reading;
mod source;
mod upstreams;
mod view;

use std::collections::VecDeque;
use std::time::Duration;

pub(crate) use self::causes::{Cause, Severity};
pub(crate) use self::failures::RecentFailure;
pub(crate) use self::latency::{Latency, Quantile};
pub(crate) use self::reading::{Answers, Certificate, Reading};
pub(crate) use self::source::{Source, interval};
pub(crate) use self::upstreams::{Responses, State, Upstream};
pub(crate) use self::view::{CLASSES, Configuration, Now, Route, Routes, View};

/// Rates and latencies are those of this time, if the readings go back so far.
pub(crate) const WINDOW: Duration = Duration::from_secs(10);

/// Rates of requests that are kept for a chart.
const RATES_MAX: usize = 200;

/// The last readings of a process.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The oldest one first; the first one is a window old, if there are readings of that age.
    readings: VecDeque<Reading>,
    /// Requests per second between each reading and the next one.
    rates: VecDeque<f64>,
}

impl History {
    /// Adds a reading. One of another process begins a new history.
    pub(crate) fn add(&mut self, reading: Reading) {
        if let Some(last) = self.readings.back() {
            if last.is_of_same_process(&reading) {
                self.rates.extend(last.requests_per_second(&reading));
            } else {
                *self = History::default();
            }
        }
        if self.rates.len() > RATES_MAX {
            self.rates.pop_front();
        }
        while let Some(second) = self.readings.get(1)
            && reading.at.saturating_sub(second.at) >= WINDOW
        {
            self.readings.pop_front();
        }
        self.readings.push_back(reading);
    }

    /// The state between the oldest reading of the window and the newest; `None` without a reading.
    pub(crate) fn view(&self) -> Option<View> {
        let newest = self.readings.back()?;
        let oldest = self.readings.front();
        let oldest = oldest.filter(|_| self.readings.len() > 1);
        Some(View::new(oldest, newest))
    }

    /// Requests per second between the readings, the oldest one first.
    pub(crate) fn rates(&self) -> impl ExactSizeIterator<Item = f64> {
        self.rates.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(seconds: u64, started: u64, requests: u64) -> Reading {
        let text = format!(
            "process_start_time_seconds {started}\n\
             http_server_request_duration_seconds_count{{route=\"/\",status=\"2xx\"}} {requests}\n\
             # EOF\n"
        );
        Reading::new(
            Duration::from_secs(seconds),
            1e9,
            Answers::of_metrics(&text),
        )
        .unwrap()
    }

    #[test]
    fn rates_are_those_of_the_window() {
        let mut history = History::default();
        assert!(history.view().is_none());
        history.add(reading(0, 1, 1000));
        let first = history.view().unwrap();
        assert_eq!((first.window, first.total.rate), (None, 0.0));
        for second in 1..=30 {
            history.add(reading(second, 1, 1000 + 7 * second));
        }
        let view = history.view().unwrap();
        assert_eq!(
            (view.window, view.total.count, view.total.rate),
            (Some(WINDOW), 70.0, 7.0)
        );
        assert_eq!(history.rates().collect::<Vec<_>>(), [7.0; 30]);
    }

    #[test]
    fn another_process_has_a_history_of_its_own() {
        let mut history = History::default();
        history.add(reading(0, 1, 1000));
        history.add(reading(1, 1, 1010));
        history.add(reading(2, 2, 5));
        assert_eq!(history.view().unwrap().window, None);
        assert_eq!(history.rates().len(), 0);
    }
}
