//! Requests that are recorded in traces, as examples of their series.

use std::time::SystemTime;

use super::histogram::CLASSIC_BOUNDS_NS;
use crate::trace::{SpanId, TraceId};

/// A request whose trace shows why it took as long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exemplar {
    /// Its trace.
    pub trace_id: TraceId,
    /// Its span.
    pub span_id: SpanId,
    /// The observed duration.
    pub duration_ns: u64,
    /// When it ended.
    pub time: SystemTime,
}

impl Exemplar {
    /// The position of the classic bucket that has counted it; the last one has no bound.
    #[must_use]
    pub fn bucket(&self) -> usize {
        CLASSIC_BOUNDS_NS.partition_point(|bound| *bound < self.duration_ns)
    }
}
