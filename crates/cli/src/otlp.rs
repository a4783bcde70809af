//! The export of traces and log records with OTLP: the settings of the file, and the export that a reload may replace.

mod collector;
mod endpoint;
mod event;
mod exporter;
mod log_record;
mod protobuf;
mod queue;
mod retry_after;
mod settings;
mod signal;
mod span;
mod warnings;

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blitz_config::{Diagnostic, Process, Tracing};
use blitz_gateway::{RecordBatch, TraceContext, TraceSettings};

use self::exporter::Exporter;
use self::log_record::LogRecords;
use self::queue::{Counts, Queue};
use self::settings::ExportSettings;
use self::span::Spans;
use crate::records::{Consumers, Lost, RecordConsumer};
use crate::{access_log, differences};

pub(crate) use self::event::Events;

/// The export in use.
pub(crate) struct OpenExport {
    consumers: Consumers,
    events: Events,
    counts: ExportCounts,
    open: Option<Open>,
    /// Earlier ones that may still have items.
    replaced: Vec<Exporter>,
    receiver: Receiver,
}

struct Open {
    settings: ExportSettings,
    exporter: Exporter,
}

/// Spans and log records that were exported or dropped since the start of the process.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExportCounts {
    pub(crate) spans: Arc<Counts>,
    pub(crate) logs: Arc<Counts>,
}

/// The export of another configuration, which is not in use yet.
pub(crate) struct NewExport {
    requests: Option<TraceSettings>,
    change: Change,
    /// Whether keys of `tracing` have changed; the fields of the access log are used, too.
    is_news: bool,
}

enum Change {
    Kept,
    Replaced(Option<Box<Open>>),
}

impl OpenExport {
    /// None, whose later ones get records as one of these consumers, and these events.
    pub(crate) fn new(consumers: Consumers, events: Events) -> OpenExport {
        OpenExport {
            consumers,
            events,
            counts: ExportCounts::default(),
            open: None,
            replaced: Vec::new(),
            receiver: Receiver::default(),
        }
    }

    pub(crate) fn counts(&self) -> ExportCounts {
        self.counts.clone()
    }

    /// The export that these settings demand. An equal one that is in use stays.
    ///
    /// # Errors
    /// It cannot be started; the problem and the remedy.
    pub(crate) fn prepare(&self, process: &Process) -> Result<NewExport, String> {
        let fields = access_log::settings_of(process);
        let settings = ExportSettings::of(process, fields);
        let in_use = self.open.as_ref().map(|open| &open.settings);
        let requests = settings.as_ref();
        let requests = requests.map(|settings| TraceSettings::new(settings.sample, settings.logs));
        let is_news = match (&settings, in_use) {
            (Some(new), Some(old)) => !new.has_same_keys(old),
            (new, old) => new.is_some() || old.is_some(),
        };
        let change = match settings {
            settings if settings.as_ref() == in_use => Change::Kept,
            None => Change::Replaced(None),
            Some(settings) => Change::Replaced(Some(Box::new(self.start(settings)?))),
        };
        Ok(NewExport {
            requests,
            change,
            is_news,
        })
    }

    fn start(&self, settings: ExportSettings) -> Result<Open, String> {
        let queue = |counts| Arc::new(Queue::new(counts));
        let (spans, logs) = (queue(&self.counts.spans), queue(&self.counts.logs));
        let exporter = Exporter::start(&settings, spans, logs);
        let exporter = exporter.map_err(|error| {
            format!(
                "the export of traces cannot be started: {error}\n  \
                 leave out `tracing`, or raise the limit of threads"
            )
        })?;
        Ok(Open { settings, exporter })
    }

    /// Uses another one. The one before exports what waits; without another one it also exports what follows within a
    /// second.
    pub(crate) fn replace(&mut self, new: NewExport) {
        let Change::Replaced(open) = new.change else {
            return;
        };
        let open = open.map(|open| *open);
        let logs = open.as_ref().filter(|open| open.settings.logs);
        self.events
            .send_to(logs.map(|open| Arc::clone(&open.exporter.logs)));
        if let Some(open) = &open {
            self.receive(Maker {
                spans: Arc::clone(&open.exporter.spans),
                logs: Arc::clone(&open.exporter.logs),
                log_records: LogRecords::new(&open.settings.fields),
                redacts_query: open.settings.fields.redacts_query,
            });
        }
        let is_removed = open.is_none();
        if let Some(before) = mem::replace(&mut self.open, open) {
            match is_removed {
                true => before.exporter.remove(),
                false => before.exporter.close(),
            }
            self.replaced.retain(|exporter| !exporter.is_over());
            self.replaced.push(before.exporter);
        }
    }

    /// Has this one get all records from now on, each of them once.
    fn receive(&self, maker: Maker) {
        let before = self.receiver.lock().replace(maker);
        if before.is_some() {
            return;
        }
        let consumer = Consumer(self.receiver.clone());
        if self.consumers.add(Box::new(consumer)).is_err() {
            *self.receiver.lock() = None;
            tracing::warn!("no traces are exported: too many programs follow requests");
        }
    }

    /// Exports what waits, for at most a second.
    pub(crate) fn finish(self) {
        let open = self.open.into_iter().map(|open| open.exporter);
        let all: Vec<_> = self.replaced.into_iter().chain(open).collect();
        all.iter().for_each(Exporter::close);
        all.iter().for_each(Exporter::wait);
    }
}

impl NewExport {
    /// How requests take part in traces; `None` if they do not.
    pub(crate) fn settings(&self) -> Option<TraceSettings> {
        self.requests
    }

    /// A line for people, if it differs from the export in use.
    pub(crate) fn change(&self) -> &'static str {
        differences::tracing_line(!self.is_news)
    }
}

/// Mistakes that the file's own reader cannot see.
pub(crate) fn check(keys: &Tracing, diagnostics: &mut Vec<Diagnostic>) {
    settings::check(keys, diagnostics);
}

/// The maker of items that gets the records of requests: that of the export in use, or of the last one after it was
/// removed. Clones are the same.
#[derive(Clone, Default)]
struct Receiver(Arc<Mutex<Option<Maker>>>);

impl Receiver {
    fn lock(&self) -> MutexGuard<'_, Option<Maker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes spans and log records of requests.
struct Maker {
    spans: Arc<Queue>,
    logs: Arc<Queue>,
    log_records: LogRecords,
    redacts_query: bool,
}

impl Maker {
    fn take(&mut self, batch: &RecordBatch) {
        for record in &batch.records {
            if let Some(trace) = record.trace.filter(TraceContext::is_sampled) {
                let spans = Spans {
                    batch,
                    record,
                    trace,
                    redacts_query: self.redacts_query,
                };
                self.spans.add(spans.server());
                spans
                    .client_span()
                    .into_iter()
                    .for_each(|span| self.spans.add(span));
            }
            if record.is_exported {
                self.logs.add(self.log_records.record(batch, record));
            }
        }
    }
}

/// Gives batches to the [`Receiver`], until the end of the process.
struct Consumer(Receiver);

impl RecordConsumer for Consumer {
    fn take(&mut self, batch: &RecordBatch) -> bool {
        if let Some(maker) = &mut *self.0.lock() {
            maker.take(batch);
        }
        true
    }

    fn lose(&mut self, lost: Lost) {
        if let Some(maker) = &mut *self.0.lock() {
            maker.spans.add_overflow(lost.traced);
            maker.logs.add_overflow(lost.exported);
        }
    }

    /// Cores know from their settings which records it wants.
    fn wants_all(&self) -> bool {
        false
    }
}
