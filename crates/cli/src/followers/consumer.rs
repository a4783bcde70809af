//! A follower among the consumers of records.

use std::sync::{Arc, Weak};

use blitz_gateway::access_log::{AccessLog, LineWriter, LogSettings, LogSink};
use blitz_gateway::{OwnedRecord, RecordBatch};
use blitz_http::Status;

use super::Follower;
use super::filter::Facts;
use crate::records::{Lost, RecordConsumer};

/// Makes the lines of a follower, on the thread of the records.
pub(super) struct FollowerConsumer {
    /// Gone when it has left.
    follower: Weak<Follower>,
    /// For the form of lines only. It leaves out what the access log leaves out by default.
    log: AccessLog,
    writer: LineWriter,
    lines: Vec<u8>,
}

/// The lines go to the follower's queue instead.
struct NoSink;

impl LogSink for NoSink {
    fn write(&self, mut lines: Vec<u8>) -> Vec<u8> {
        lines.clear();
        lines
    }
}

impl FollowerConsumer {
    pub(super) fn new(follower: &Arc<Follower>) -> FollowerConsumer {
        let settings = LogSettings {
            format: follower.format,
            ..LogSettings::default()
        };
        FollowerConsumer {
            follower: Arc::downgrade(follower),
            log: AccessLog::new(settings, Arc::new(NoSink)),
            writer: LineWriter::default(),
            lines: Vec::new(),
        }
    }
}

impl RecordConsumer for FollowerConsumer {
    fn take(&mut self, batch: &RecordBatch) -> bool {
        let Some(follower) = self.follower.upgrade() else {
            return false;
        };
        self.lines.clear();
        for record in &batch.records {
            if follower.filter.wants(&facts(record)) {
                let line = self.writer.line(batch, record, &self.log);
                self.lines.extend_from_slice(line);
            }
        }
        if !self.lines.is_empty() {
            follower.queue.push(&self.lines);
        }
        true
    }

    fn wants_all(&self) -> bool {
        true
    }

    fn lose(&mut self, lost: Lost) {
        if let Some(follower) = self.follower.upgrade() {
            follower.queue.lose(lost.all);
        }
    }

    fn is_over(&self) -> bool {
        self.follower.strong_count() == 0
    }
}

fn facts(record: &OwnedRecord) -> Facts<'_> {
    let text = |bytes| {
        std::str::from_utf8(bytes)
            .ok()
            .filter(|text| !text.is_empty())
    };
    Facts {
        status: record.status.map(Status::code),
        site: text(record.site()),
        route: text(record.route()),
        client: record.client(),
        duration: record.finished.saturating_duration_since(record.started),
    }
}
