//! Figures of runs: their names, units and directions.

use std::time::Duration;

use super::case::MeasuredSubject;
use super::run::Run;
use crate::Distribution;
use crate::number;
use crate::report::Direction;
use crate::stats::{self, Median};

/// A figure of one run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) better: Direction,
    /// `None` where the run does not carry it.
    pub(crate) of: fn(&Run) -> Option<f64>,
}

/// A column of a table: its title, and the text for all runs of a subject.
#[derive(Clone, Copy)]
pub(crate) struct Cell {
    pub(crate) title: &'static str,
    pub(crate) of: fn(&MeasuredSubject) -> String,
}

pub(crate) const REQUESTS_PER_SECOND: Figure = Figure {
    name: "requests per second",
    unit: "requests/s",
    better: Direction::Higher,
    of: |run| Some(run.result.requests_per_second()),
};

/// Of contents that clients receive.
pub(crate) const MEGABYTES_PER_SECOND: Figure = Figure {
    name: "content per second",
    unit: "MB/s",
    better: Direction::Higher,
    of: |run| Some(run.result.bytes_per_second() / 1e6),
};

/// Of all requests of a cold run, connecting included.
pub(crate) const WHOLE_TIME: Figure = Figure {
    name: "time of all requests",
    unit: "ms",
    better: Direction::Lower,
    of: |run| Some(run.result.duration_s * 1e3),
};

pub(crate) const SERVER_US: Figure = Figure {
    name: "CPU time of the server per request",
    unit: "µs",
    better: Direction::Lower,
    of: |run| Some(run.server_us),
};

pub(crate) const CLIENT_US: Figure = Figure {
    name: "CPU time of the generator per request",
    unit: "µs",
    better: Direction::Lower,
    of: |run| Some(run.client_us),
};

pub(crate) const RESIDENT_MIB: Figure = Figure {
    name: "resident memory of the server",
    unit: "MiB",
    better: Direction::Lower,
    of: |run| Some(run.resident_bytes as f64 / f64::from(1 << 20)),
};

pub(crate) const P50: Figure = latency("latency, p50", |run| {
    quantile(run, 0.5).or(run.reported_p50_us.map(|us| us as f64))
});
pub(crate) const P99: Figure = latency("latency, p99", |run| {
    quantile(run, 0.99).or(run.reported_p99_us.map(|us| us as f64))
});
pub(crate) const P999: Figure = latency("latency, p99.9", |run| quantile(run, 0.999));

const fn latency(name: &'static str, of: fn(&Run) -> Option<f64>) -> Figure {
    Figure {
        name,
        unit: "µs",
        better: Direction::Lower,
        of,
    }
}

/// In microseconds; `None` without ten samples beyond it.
fn quantile(run: &Run, quantile: f64) -> Option<f64> {
    let latency = run.result.times.latency.percentile(quantile)?;
    Some(latency.as_secs_f64() * 1e6)
}

impl Figure {
    /// The median of the runs that carry it.
    pub(crate) fn median(&self, runs: &[Run]) -> Option<f64> {
        Some(Median::of(runs.iter().filter_map(self.of))?.value)
    }
}

/// The columns that most tables have.
impl Cell {
    pub(crate) const REQUESTS: Cell = Cell {
        title: "requests/s",
        of: |subject| median(&REQUESTS_PER_SECOND, subject),
    };
    pub(crate) const SERVER_US: Cell = Cell {
        title: "CPU µs/request",
        of: |subject| median(&SERVER_US, subject),
    };
    pub(crate) const CLIENT_US: Cell = Cell {
        title: "CPU µs/request of the generator",
        of: |subject| median(&CLIENT_US, subject),
    };
    /// Medians of the rounds, as each generator reports them.
    pub(crate) const ROUNDS_P50: Cell = Cell {
        title: "p50 µs",
        of: |subject| median(&P50, subject),
    };
    pub(crate) const ROUNDS_P99: Cell = Cell {
        title: "p99 µs",
        of: |subject| median(&P99, subject),
    };
    pub(crate) const RESIDENT: Cell = Cell {
        title: "RSS MiB",
        of: |subject| median(&RESIDENT_MIB, subject),
    };
    pub(crate) const MEGABYTES: Cell = Cell {
        title: "MB/s",
        of: |subject| {
            let rates = subject
                .runs
                .iter()
                .map(|run| run.result.bytes_per_second() / 1e6);
            Median::of(rates).map_or(none(), |median| number::significant(median.value))
        },
    };
    pub(crate) const MIN: Cell = Cell {
        title: "min",
        of: |subject| {
            let latency = subject.latency();
            let min = Duration::from_nanos(latency.min_ns);
            time(Some(min).filter(|_| latency.count > 0))
        },
    };
    pub(crate) const MEAN: Cell = Cell {
        title: "mean",
        of: |subject| time(subject.latency().mean()),
    };
    pub(crate) const P50: Cell = Cell {
        title: "p50",
        of: |subject| time(subject.latency().percentile(0.5)),
    };
    pub(crate) const P90: Cell = Cell {
        title: "p90",
        of: |subject| time(subject.latency().percentile(0.9)),
    };
    pub(crate) const P95: Cell = Cell {
        title: "p95",
        of: |subject| time(subject.latency().percentile(0.95)),
    };
    pub(crate) const P99: Cell = Cell {
        title: "p99",
        of: |subject| time(subject.latency().percentile(0.99)),
    };
    pub(crate) const P999: Cell = Cell {
        title: "p99.9",
        of: |subject| time(subject.latency().percentile(0.999)),
    };
    pub(crate) const MAX: Cell = Cell {
        title: "max",
        of: |subject| {
            let latency = subject.latency();
            let max = Duration::from_nanos(latency.max_ns);
            time(Some(max).filter(|_| latency.count > 0))
        },
    };
    /// Full and resumed TLS and QUIC handshakes.
    pub(crate) const HANDSHAKE: Cell = Cell {
        title: "handshake p50",
        of: |subject| {
            let mut handshakes = Distribution::default();
            for run in &subject.runs {
                let connects = &run.result.connects;
                for kind in [
                    &connects.tls,
                    &connects.quic,
                    &connects.tls_resumed,
                    &connects.quic_resumed,
                ] {
                    handshakes.merge(kind);
                }
            }
            time(handshakes.quantile(0.5))
        },
    };
    /// The share of correct responses among all requests that ended.
    pub(crate) const SUCCESS: Cell = Cell {
        title: "success %",
        of: |subject| {
            let (mut completed, mut ended) = (0, 0);
            for run in &subject.runs {
                let counts = &run.result.counts;
                completed += counts.completed;
                ended += counts.completed + counts.errors();
            }
            match ended {
                0 => none(),
                _ => number::fixed(completed as f64 / ended as f64 * 100.0, 2),
            }
        },
    };
    /// Failed requests and wrong responses, of all runs.
    pub(crate) const ERRORS: Cell = Cell {
        title: "errors",
        of: |subject| {
            let errors = subject.runs.iter().map(|run| run.result.counts.errors());
            number::count(errors.sum())
        },
    };
}

impl MeasuredSubject {
    /// The latency of all runs together.
    pub(crate) fn latency(&self) -> Distribution {
        let mut all = Distribution::default();
        for run in &self.runs {
            all.merge(&run.result.times.latency);
        }
        all
    }
}

fn none() -> String {
    number::NONE.to_owned()
}

fn median(figure: &Figure, subject: &MeasuredSubject) -> String {
    let median = figure.median(&subject.runs);
    median.map_or(none(), number::significant)
}

fn time(duration: Option<Duration>) -> String {
    duration.map_or(none(), |duration| {
        number::duration(duration.as_nanos() as f64)
    })
}

/// A ratio with its interval.
pub(crate) fn ratio_text(comparison: &stats::Comparison) -> String {
    let text = number::significant;
    let stats::Interval { low, high } = comparison.interval;
    format!(
        "{}, {} to {}",
        text(comparison.ratio),
        text(low),
        text(high)
    )
}
