//! Copies of requests for another upstream: the settings of a route, and the content of a copy while it comes.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use blitz_config::Percent;
use blitz_site::count;

use crate::route::ForwardGroup;
use crate::target::Target;

/// The most copies of a core that are sent, or wait for their content. Requests beyond it are not copied.
const MIRRORED_MAX: usize = 256;

/// The most content of a copy, in bytes. Requests with more are not copied.
pub(crate) const CONTENT_MAX: usize = 64 * 1024;

/// The upstream of copies.
#[derive(Debug, Clone)]
pub(crate) struct Mirror {
    /// Of several servers it is the first.
    pub(crate) target: Arc<Target>,
    /// The number of the upstream in its snapshot, which sets it.
    pub(crate) upstream: usize,
    /// All servers, if there are several or they have settings.
    pub(crate) group: Option<ForwardGroup>,
    pub(crate) percent: Percent,
    /// Whether the host of copies is that of the server.
    pub(crate) sends_own_host: bool,
}

/// The number belongs to the snapshot, not to the configuration.
impl PartialEq for Mirror {
    fn eq(&self, other: &Mirror) -> bool {
        self.target == other.target
            && self.group == other.group
            && self.percent == other.percent
            && self.sends_own_host == other.sends_own_host
    }
}

impl Eq for Mirror {}

impl Mirror {
    /// For people.
    pub(crate) fn text(&self) -> String {
        let url = self.target.url();
        let count = self.group.as_ref().map(|group| group.config.servers.len());
        let others = match count {
            Some(count) if count > 1 => format!(" and {} more", count - 1),
            _ => String::new(),
        };
        format!("copies of {} % to {url}{others}", self.percent.number())
    }
}

/// A copy that is sent or will be, counted until it is dropped.
pub(crate) struct Slot(Rc<Cell<usize>>);

impl Slot {
    /// `None` if there are too many.
    pub(crate) fn take(count: &Rc<Cell<usize>>) -> Option<Slot> {
        if count.get() >= MIRRORED_MAX {
            return None;
        }
        count.set(count.get() + 1);
        Some(Slot(Rc::clone(count)))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Sends a copy whose content is complete.
type Send = dyn FnOnce(Vec<u8>);

/// The content of a copy, as it is sent to the upstream. A copy whose content is not complete is not sent.
pub(crate) struct ContentCopy {
    content: Vec<u8>,
    /// `None` if it is too long, or was sent.
    send: Option<Box<Send>>,
}

impl ContentCopy {
    pub(crate) fn new(send: impl FnOnce(Vec<u8>) + 'static) -> Box<ContentCopy> {
        Box::new(ContentCopy {
            content: Vec::new(),
            send: Some(Box::new(send)),
        })
    }

    /// These bytes were sent.
    pub(crate) fn note(&mut self, sent: &[u8]) {
        if self.send.is_none() {
            return;
        }
        if self.content.len() + sent.len() > CONTENT_MAX {
            self.abandon();
        } else {
            self.content.extend_from_slice(sent);
        }
    }

    /// All content was sent.
    pub(crate) fn complete(mut self) {
        if let Some(send) = self.send.take() {
            send(std::mem::take(&mut self.content));
        }
    }

    fn abandon(&mut self) {
        if self.send.take().is_some() {
            self.content = Vec::new();
            count(|counters| counters.mirrors_without_content += 1);
        }
    }
}

impl Drop for ContentCopy {
    fn drop(&mut self) {
        self.abandon();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(parts: &[&[u8]]) -> Option<Vec<u8>> {
        let sent = Rc::new(Cell::new(None));
        let result = Rc::clone(&sent);
        let mut copy = ContentCopy::new(move |content| sent.set(Some(content)));
        for part in parts {
            copy.note(part);
        }
        copy.complete();
        result.take()
    }

    #[test]
    fn content_is_copied_up_to_its_bound() {
        let (half, byte) = (vec![b'a'; CONTENT_MAX / 2], b"b");
        assert_eq!(copy(&[b"a", b"", b"bc"]), Some(b"abc".to_vec()));
        assert_eq!(
            copy(&[&half, &half]).map(|all| all.len()),
            Some(CONTENT_MAX)
        );
        assert_eq!(copy(&[&half, &half, byte, b""]), None);
        let before = blitz_site::counters().mirrors_without_content;
        drop(ContentCopy::new(|_| panic!("it is not complete")));
        assert_eq!(blitz_site::counters().mirrors_without_content, before + 1);
    }

    #[test]
    fn copies_are_bounded() {
        let count = Rc::default();
        let slots: Vec<_> = std::iter::from_fn(|| Slot::take(&count)).collect();
        assert_eq!(slots.len(), MIRRORED_MAX);
        drop(slots);
        assert!(Slot::take(&count).is_some());
    }
}
