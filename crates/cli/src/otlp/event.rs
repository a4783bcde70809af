//! The process's own warnings and errors as log records.

use std::cell::Cell;
use std::fmt::{self, Debug};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use tracing::field::{Field, Visit};
use tracing::{Event, Level};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::log_record::{ATTRIBUTES, BODY, OBSERVED_TIME, SEVERITY, SEVERITY_TEXT, TIME};
use super::protobuf::{Attribute, Message};
use super::queue::Queue;
use super::span::unix_nanos;

thread_local! {
    static IS_LEFT_OUT: Cell<bool> = const { Cell::new(false) };
}

/// Events of this thread are no log records from now on: an export that exports its own warnings would never end.
pub(super) fn leave_out_this_thread() {
    IS_LEFT_OUT.set(true);
}

/// Where events go while log records are exported. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Events(Arc<Mutex<Option<Arc<Queue>>>>);

impl Events {
    /// The queue from now on.
    pub(super) fn send_to(&self, queue: Option<Arc<Queue>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = queue;
    }
}

impl<S: tracing::Subscriber> Layer<S> for Events {
    /// Never waits for a lock: cores have events, too.
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let (severity, text) = match *event.metadata().level() {
            Level::ERROR => (17, "ERROR"),
            Level::WARN => (13, "WARN"),
            _ => return,
        };
        if IS_LEFT_OUT.get() {
            return;
        }
        let Some(queue) = self.0.try_lock().ok().and_then(|queue| queue.clone()) else {
            return;
        };
        let mut record = Message::default();
        let time = unix_nanos(SystemTime::now());
        record.fixed64(TIME, time);
        record.fixed64(OBSERVED_TIME, time);
        record.number(SEVERITY, severity);
        record.bytes(SEVERITY_TEXT, str::as_bytes(text));
        let target = Attribute::Text(event.metadata().target());
        record.attribute(ATTRIBUTES, "target", target);
        let mut fields = Fields {
            record,
            message: String::new(),
        };
        event.record(&mut fields);
        let Fields {
            mut record,
            message,
        } = fields;
        record.message(BODY, |body| body.text(1, message.as_bytes()));
        queue.try_add(record.into_bytes());
    }
}

/// Writes the fields of an event but its message.
struct Fields {
    record: Message,
    message: String,
}

impl Fields {
    fn add(&mut self, field: &Field, value: Attribute<'_>) {
        self.record.attribute(ATTRIBUTES, field.name(), value);
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        match field.name() {
            "message" => self.message = text,
            _ => self.add(field, Attribute::Text(&text)),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, Attribute::Text(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, Attribute::Number(value));
    }
}

impl Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Events")
    }
}

#[cfg(test)]
mod tests {
    use blitz_http::{Config, block_on};
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;
    use crate::otlp::protobuf::{message_of, number_of};

    #[test]
    fn warnings_and_errors_are_records_while_there_is_a_queue() {
        let (events, queue) = (Events::default(), Arc::new(Queue::new(&Arc::default())));
        let subscriber = tracing_subscriber::registry().with(events.clone());
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!("before");
            events.send_to(Some(Arc::clone(&queue)));
            tracing::warn!(count = 7_u64, "a warning");
            tracing::info!("nothing of interest");
            tracing::error!(cause = "x", "an error");
            leave_out_this_thread();
            tracing::error!("of the export itself");
            IS_LEFT_OUT.set(false);
            events.send_to(None);
            tracing::error!("after");
        });
        queue.close(std::time::Instant::now());
        let items = block_on(&Config::default(), queue.next()).unwrap().unwrap();
        let body = |item: &[u8]| message_of(message_of(item, 5).unwrap(), 1).map(<[u8]>::to_vec);
        assert_eq!(body(&items[0]), Some(b"a warning".to_vec()));
        assert_eq!(number_of(&items[0], 2), Some(13));
        assert_eq!(body(&items[1]), Some(b"an error".to_vec()));
        assert_eq!(items.len(), 2);
    }
}
