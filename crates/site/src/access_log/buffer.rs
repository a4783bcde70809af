//! The lines of a core on their way to the sink.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::timestamp::Timestamps;
use super::{AccessLog, BUFFER_BYTES, FLUSH_AFTER};

/// An access log on one core.
pub(crate) struct CoreLog {
    pub(crate) log: Arc<AccessLog>,
    lines: RefCell<Vec<u8>>,
    /// Whether a task of the core hands the lines over after a while.
    has_flusher: Cell<bool>,
    pub(super) timestamps: Timestamps,
}

impl CoreLog {
    pub(crate) fn new(log: &Arc<AccessLog>) -> Rc<CoreLog> {
        Rc::new(CoreLog {
            log: Arc::clone(log),
            lines: RefCell::default(),
            has_flusher: Cell::new(false),
            timestamps: Timestamps::default(),
        })
    }

    /// Whether this is the log on a core.
    pub(crate) fn is(&self, log: &Arc<AccessLog>) -> bool {
        Arc::ptr_eq(&self.log, log)
    }

    /// Adds a line, which `write` writes.
    pub(super) fn add(self: &Rc<Self>, write: impl FnOnce(&mut Vec<u8>)) {
        let bytes = {
            let mut lines = self.lines.borrow_mut();
            write(&mut lines);
            lines.len()
        };
        if bytes >= BUFFER_BYTES {
            self.flush();
        } else if !self.has_flusher.replace(true) {
            self.flush_later();
        }
    }

    #[cold]
    fn flush_later(self: &Rc<Self>) {
        let log = Rc::clone(self);
        blitz_http::spawn(async move {
            blitz_http::sleep(FLUSH_AFTER).await;
            log.has_flusher.set(false);
            log.flush();
        });
    }

    fn flush(&self) {
        let mut lines = self.lines.borrow_mut();
        if !lines.is_empty() {
            *lines = self.log.sink.write(std::mem::take(&mut lines));
        }
    }
}

impl Drop for CoreLog {
    fn drop(&mut self) {
        self.flush();
    }
}
