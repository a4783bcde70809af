//! Records on their way from a core to those who write lines and spans of them.

use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::{AccessLog, NotedHeader};
use crate::owned_record::OwnedRecord;

/// Records of requests that have ended on one core.
pub struct RecordBatch {
    /// In the order of their ends.
    pub records: Vec<Box<OwnedRecord>>,
    /// The access log in which some of them have a line.
    pub log: Option<Arc<AccessLog>>,
    /// The fields of heads that were noted, in the order of [`OwnedRecord::header_at`].
    pub headers: Arc<[NotedHeader]>,
    /// The time at which its first record came, on both clocks.
    pub(crate) begun: (Instant, SystemTime),
}

impl RecordBatch {
    /// The time of a clock on the wall at a time of a record.
    #[must_use]
    pub fn wall_clock(&self, time: Instant) -> SystemTime {
        let (begun, wall_clock) = self.begun;
        let at = match begun.checked_duration_since(time) {
            Some(before) => wall_clock.checked_sub(before),
            None => wall_clock.checked_add(time.saturating_duration_since(begun)),
        };
        at.unwrap_or(wall_clock)
    }

    /// Tells the access log that the lines of this batch are lost.
    pub fn lose_lines(&self) {
        let logged = self.records.iter().filter(|record| record.is_logged);
        if let Some(log) = &self.log {
            log.lose(logged.count() as u64);
        }
    }
}

impl fmt::Debug for RecordBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordBatch")
            .field("records", &self.records.len())
            .finish_non_exhaustive()
    }
}
