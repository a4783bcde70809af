//! The way of records from the cores to those who write lines and spans of them.
//!
//! A core collects the records of its requests, and hands them over when there are [`BATCH_RECORDS`] or when they are
//! [`FLUSH_AFTER`] old. So a request takes no lock and makes no system call, and nothing is formatted on a core.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use blitz_http::{RequestHead, Status};

use crate::access_log::{AccessLog, LineWriter, NotedHeader, RecordBatch};
use crate::owned_record::OwnedRecord;

/// How long records stay on their core.
const FLUSH_AFTER: Duration = Duration::from_millis(200);

/// Records of a batch.
pub(crate) const BATCH_RECORDS: usize = 64;

/// Records whose memory a core keeps for later requests.
const KEPT_MAX: usize = 1024;

thread_local! {
    #[expect(clippy::vec_box, reason = "batches move them")]
    static FREE_LIST: RefCell<Vec<Box<OwnedRecord>>> = const { RefCell::new(Vec::new()) };
}

/// Takes the records of all cores, which may call it at the same time.
pub trait RecordSink: fmt::Debug + Send + Sync {
    /// Takes a batch without waiting. Gives back one that is not needed any more, often an earlier one.
    fn take(&self, batch: RecordBatch) -> Option<RecordBatch>;

    /// Whether records are wanted that have no line in the access log. It is asked at the beginning of each request.
    fn wants_all(&self) -> bool {
        false
    }
}

/// Collects the records of one core.
pub(crate) struct Recorder {
    log: Option<Arc<AccessLog>>,
    headers: Arc<[NotedHeader]>,
    /// `None` has the core write the lines itself.
    sink: Option<Arc<dyn RecordSink>>,
    is_traced: bool,
    #[expect(clippy::vec_box, reason = "their memory is used again")]
    records: RefCell<Vec<Box<OwnedRecord>>>,
    /// See [`RecordBatch`].
    begun: Cell<Option<(Instant, SystemTime)>>,
    /// Whether a task of the core hands the records over after a while.
    has_flusher: Cell<bool>,
    lines: RefCell<LineWriter>,
}

impl Recorder {
    /// `None` if nobody wants records. With `is_traced` they have the fields of spans.
    pub(crate) fn new(
        log: Option<&Arc<AccessLog>>,
        sink: Option<&Arc<dyn RecordSink>>,
        is_traced: bool,
    ) -> Option<Rc<Recorder>> {
        let headers = match (log, sink) {
            (Some(log), None) => log.headers(),
            // Others may want the usual fields.
            (Some(log), Some(_)) => log.headers_and_usual(),
            (None, Some(_)) => NotedHeader::usual(),
            (None, None) => return None,
        };
        Some(Rc::new(Recorder {
            log: log.cloned(),
            headers,
            sink: sink.cloned(),
            is_traced,
            records: RefCell::default(),
            begun: Cell::new(None),
            has_flusher: Cell::new(false),
            lines: RefCell::default(),
        }))
    }

    /// Whether it is one for this log, and for traces or not.
    pub(crate) fn is_for(&self, log: Option<&Arc<AccessLog>>, is_traced: bool) -> bool {
        let has_log = match (&self.log, log) {
            (Some(own), Some(log)) => Arc::ptr_eq(own, log),
            (own, log) => own.is_none() && log.is_none(),
        };
        has_log && self.is_traced == is_traced
    }

    pub(crate) fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// Whether somebody wants all records.
    pub(crate) fn is_followed(&self) -> bool {
        self.sink.as_ref().is_some_and(|sink| sink.wants_all())
    }

    /// Whether somebody wants the record of a failed handshake that took so long. The log may exclude all of them.
    pub(crate) fn wants_handshake(&self, duration: Duration, exports: bool) -> bool {
        let log = self.log.as_ref();
        log.is_none_or(|log| log.settings().handshakes) && self.wants_unanswered(duration, exports)
    }

    /// Whether somebody wants a record without a response after this time.
    pub(crate) fn wants_unanswered(&self, duration: Duration, exports: bool) -> bool {
        let settings = self.log.as_ref().map(|log| log.settings());
        match settings {
            Some(settings) if settings.filter.may_take_unanswered(duration) => true,
            None if exports => true,
            _ => self.is_followed(),
        }
    }

    fn add(self: &Rc<Self>, record: Box<OwnedRecord>) {
        let count = {
            let mut records = self.records.borrow_mut();
            if records.is_empty() {
                let now = (blitz_http::now(), blitz_http::wall_clock());
                self.begun.set(Some(now));
            }
            records.push(record);
            records.len()
        };
        if count >= BATCH_RECORDS {
            self.flush();
        } else if !self.has_flusher.replace(true) {
            self.flush_later();
        }
    }

    #[cold]
    fn flush_later(self: &Rc<Self>) {
        let recorder = Rc::clone(self);
        blitz_http::spawn(async move {
            blitz_http::sleep(FLUSH_AFTER).await;
            recorder.has_flusher.set(false);
            recorder.flush();
        });
    }

    /// Works without a core as well.
    fn flush(&self) {
        let Some(begun) = self.begun.take() else {
            return;
        };
        let batch = RecordBatch {
            records: self.records.take(),
            log: self.log.clone(),
            headers: Arc::clone(&self.headers),
            begun,
        };
        let used = match &self.sink {
            Some(sink) => sink.take(batch),
            None => {
                self.lines.borrow_mut().write(&batch);
                Some(batch)
            }
        };
        if let Some(mut used) = used {
            used.records.drain(..).for_each(keep);
            self.records.replace(used.records);
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.flush();
    }
}

/// The record of a request that has not ended, with the parts of its head.
pub(crate) struct BegunRecord {
    recorder: Rc<Recorder>,
    /// Gone when it has ended.
    record: Option<Box<OwnedRecord>>,
    wanted: Wanted,
}

/// The receivers that want a record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// The access log, if its filter takes the request.
    pub(crate) by_log: bool,
    /// An export of log records, if that filter takes it.
    pub(crate) by_export: bool,
    /// Those who want all, or the trace of the request.
    pub(crate) by_others: bool,
}

impl BegunRecord {
    /// `None` if nobody wants it.
    #[inline]
    pub(crate) fn new(
        recorder: &Rc<Recorder>,
        wanted: Wanted,
        head: &RequestHead,
    ) -> Option<BegunRecord> {
        let Wanted {
            by_log,
            by_export,
            by_others,
        } = wanted;
        (by_log || by_export || by_others).then(|| BegunRecord::note(recorder, wanted, head))
    }

    #[inline(never)]
    fn note(recorder: &Rc<Recorder>, wanted: Wanted, head: &RequestHead) -> BegunRecord {
        let kept = FREE_LIST.try_with(|list| list.borrow_mut().pop());
        let mut record = kept.ok().flatten().unwrap_or_else(OwnedRecord::new);
        record.note(head, &recorder.headers);
        BegunRecord {
            recorder: Rc::clone(recorder),
            record: Some(record),
            wanted,
        }
    }

    /// Notes the id of the request, which this head has.
    pub(crate) fn note_id(&mut self, head: &RequestHead) {
        if let Some(record) = &mut self.record {
            record.note_id(head);
        }
    }

    /// Notes the name of the client.
    pub(crate) fn note_user(&mut self, user: &str) {
        if let Some(record) = &mut self.record {
            record.note_user(user);
        }
    }

    /// Notes path and query that are sent to the upstream.
    pub(crate) fn note_sent(&mut self, head: &RequestHead) {
        if let Some(record) = &mut self.record {
            record.note_sent(head);
        }
    }

    /// Notes the state of the client's trace.
    pub(crate) fn note_trace_state(&mut self, head: &RequestHead) {
        if let Some(record) = &mut self.record {
            record.note_trace_state(head);
        }
    }

    /// Hands the record of a request over that ends now, with this status. `fill` fills it, if somebody wants it.
    pub(crate) fn finish(
        mut self,
        started: Instant,
        status: Option<Status>,
        fill: impl FnOnce(&mut OwnedRecord, Instant),
    ) {
        let Some(mut record) = self.record.take() else {
            return;
        };
        let finished = blitz_http::now();
        let passes = |log: &Arc<AccessLog>| {
            let filter = &log.settings().filter;
            filter.takes_all() || filter.takes(status, finished.saturating_duration_since(started))
        };
        let wanted = self.wanted;
        let passes =
            (wanted.by_log || wanted.by_export) && self.recorder.log.as_ref().is_none_or(passes);
        record.is_logged = wanted.by_log && passes;
        record.is_exported = wanted.by_export && passes;
        if record.is_logged || record.is_exported || wanted.by_others {
            fill(&mut record, finished);
            self.recorder.add(record);
        } else {
            keep(record);
        }
    }
}

fn keep(record: Box<OwnedRecord>) {
    let Some(emptied) = record.emptied() else {
        return;
    };
    // While the thread ends, the free list may already be destroyed.
    let _ = FREE_LIST.try_with(|list| {
        let mut list = list.borrow_mut();
        if list.len() < KEPT_MAX {
            list.push(emptied);
        }
    });
}

impl Drop for BegunRecord {
    fn drop(&mut self) {
        if let Some(record) = self.record.take() {
            keep(record);
        }
    }
}
