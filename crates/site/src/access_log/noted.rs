//! The parts of a request's head that a line needs, copied when the request's route is known: later the head is the
//! upstream's, and parts of it are freed.

use std::cell::RefCell;
use std::rc::Rc;

use blitz_http::{Method, Name, RequestHead};

use super::escape::{REDACTED, redacted_query};
use super::{AccessLog, CoreLog, HeaderName};

/// Longest method.
const METHOD_MAX: usize = 32;
/// Longest host.
const HOST_MAX: usize = 255;
/// Longest path with its query.
const PATH_MAX: usize = 2048;
/// Longest value of a field.
const VALUE_MAX: usize = 1024;

/// The end of a text that is longer than its maximum.
const CUT: &[u8] = b"...";

/// Texts that a core keeps for later requests, and their largest capacity.
const KEPT_MAX: usize = 1024;
const KEPT_BYTES_MAX: usize = 2048;

thread_local! {
    #[expect(clippy::vec_box, reason = "records have the boxes, which are smaller")]
    static FREE_LIST: RefCell<Vec<Box<Texts>>> = const { RefCell::new(Vec::new()) };
}

/// The noted parts of a head, and the log that wants them.
pub(crate) struct Noted {
    pub(super) log: Rc<CoreLog>,
    /// Gone when it is dropped.
    texts: Option<Box<Texts>>,
}

/// Texts one after another.
#[derive(Default)]
struct Texts {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

/// The place of a text.
const METHOD: usize = 0;
const HOST: usize = 1;
const PATH: usize = 2;
const FIRST_HEADER: usize = 3;

impl Noted {
    pub(crate) fn new(log: &Rc<CoreLog>, head: &RequestHead) -> Noted {
        // While the thread ends, the free list may already be destroyed.
        let kept = FREE_LIST
            .try_with(|list| list.borrow_mut().pop())
            .ok()
            .flatten();
        let mut texts = kept.unwrap_or_default();
        texts.note(&log.log, head);
        Noted {
            log: Rc::clone(log),
            texts: Some(texts),
        }
    }

    /// A method that is not registered.
    pub(super) fn method(&self) -> &[u8] {
        self.text(METHOD)
    }

    pub(super) fn host(&self) -> &[u8] {
        self.text(HOST)
    }

    pub(super) fn path(&self) -> &[u8] {
        self.text(PATH)
    }

    /// The value of the field at this place among those of the log.
    pub(super) fn header_at(&self, index: usize) -> &[u8] {
        self.text(FIRST_HEADER + index)
    }

    fn text(&self, index: usize) -> &[u8] {
        let Some(texts) = &self.texts else { return b"" };
        let start = match index {
            0 => 0,
            _ => texts.ends[index - 1],
        };
        &texts.bytes[start as usize..texts.ends[index] as usize]
    }
}

impl Texts {
    fn note(&mut self, log: &AccessLog, head: &RequestHead) {
        if head.method == Method::Other {
            self.push(head.method_str().as_bytes(), METHOD_MAX);
        }
        self.end();
        if let Some(host) = head.authority() {
            self.push(host.as_bytes(), HOST_MAX);
        }
        self.end();
        self.push(head.raw_path().as_bytes(), PATH_MAX);
        if let Some(query) = head.query() {
            self.push_query(log, query.as_bytes());
        }
        self.end();
        for (name, is_redacted) in &log.headers {
            match is_redacted {
                true if head.fields.contains(name) => self.bytes.extend_from_slice(REDACTED),
                true => {}
                false => self.push_values(log, name, head),
            }
            self.end();
        }
    }

    fn push_query(&mut self, log: &AccessLog, query: &[u8]) {
        let before = self.bytes.len();
        self.bytes.push(b'?');
        match log.settings.redacts_query {
            true => redacted_query(start_of(query, PATH_MAX), &mut self.bytes),
            false => self.bytes.extend_from_slice(start_of(query, PATH_MAX)),
        }
        if self.bytes.len() > before + PATH_MAX {
            self.bytes.truncate(before + PATH_MAX);
            self.bytes.extend_from_slice(CUT);
        }
    }

    /// Values of several lines are one list (RFC 9110, section 5.3).
    fn push_values(&mut self, log: &AccessLog, name: &HeaderName, head: &RequestHead) {
        let start = self.bytes.len();
        for (index, value) in head.fields.get_all(name).enumerate() {
            let used = self.bytes.len() - start;
            if index > 0 {
                self.bytes.extend_from_slice(b", ");
            }
            let room = VALUE_MAX.saturating_sub(used);
            match value.iter().position(|byte| *byte == b'?') {
                Some(query) if name.is(Name::Referer) && log.settings.redacts_query => {
                    self.push(&value[..query], room);
                    self.push_query(log, &value[query + 1..]);
                }
                _ => self.push(value, room),
            }
            if room == 0 {
                return;
            }
        }
    }

    fn push(&mut self, text: &[u8], max: usize) {
        self.bytes.extend_from_slice(start_of(text, max));
        if text.len() > max {
            self.bytes.extend_from_slice(CUT);
        }
    }

    fn end(&mut self) {
        self.ends.push(self.bytes.len() as u32);
    }
}

fn start_of(text: &[u8], max: usize) -> &[u8] {
    &text[..text.len().min(max)]
}

impl Drop for Noted {
    fn drop(&mut self) {
        let Some(mut texts) = self.texts.take() else {
            return;
        };
        if texts.bytes.capacity() > KEPT_BYTES_MAX {
            return;
        }
        texts.bytes.clear();
        texts.ends.clear();
        let _ = FREE_LIST.try_with(|list| {
            let mut list = list.borrow_mut();
            if list.len() < KEPT_MAX {
                list.push(texts);
            }
        });
    }
}
