//! Received but unread bytes, in order.

use std::collections::VecDeque;

use blitz_reactor::Slice;

/// A slice of less than this that has to wait is copied out of its buffer, into which others could be
/// received (rule 3).
pub(crate) const KEPT_MIN: usize = 4 * 1024;

/// A queue of slices, optimized for one slice: most requests arrive in one piece.
#[derive(Default)]
pub(crate) struct Input {
    first: Option<Slice>,
    /// Empty if `first` is `None`.
    more: VecDeque<Slice>,
}

impl From<Slice> for Input {
    fn from(first: Slice) -> Input {
        Input {
            first: Some(first),
            more: VecDeque::new(),
        }
    }
}

impl Input {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&Slice> {
        self.first.as_ref()
    }

    #[inline]
    pub(crate) fn push(&mut self, slice: Slice) {
        match self.first {
            None => self.first = Some(slice),
            Some(_) => self.more.push_back(slice),
        }
    }

    /// Copies what waits in small slices, and joins the last one with the one before it (rule 3): a peer
    /// that sends single bytes occupies no receive buffers.
    #[cold]
    pub(crate) fn keep(&mut self) {
        let is_small = |slice: &Slice| slice.len() < KEPT_MIN;
        if let Some(first) = self.first.as_mut().filter(|first| is_small(first)) {
            first.keep();
        }
        let Some(mut last) = self.more.pop_back() else {
            return;
        };
        if is_small(&last) {
            let before = self.more.back_mut().or(self.first.as_mut());
            if before.is_some_and(|before| before.try_append(&last)) {
                return;
            }
            last.keep();
        }
        self.more.push_back(last);
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Slice> {
        let first = self.first.take()?;
        self.first = self.more.pop_front();
        Some(first)
    }

    /// Drops the first `n` bytes, all of them in the first slice.
    #[inline]
    pub(crate) fn consume(&mut self, n: usize) {
        match &mut self.first {
            None => assert_eq!(n, 0, "nothing to consume"),
            Some(first) if n < first.len() => first.advance(n),
            Some(first) => {
                assert_eq!(n, first.len(), "more was consumed than the slice holds");
                self.first = self.more.pop_front();
            }
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        let more: usize = self.more.iter().map(Slice::len).sum();
        more + self.first.as_ref().map_or(0, Slice::len)
    }

    pub(crate) fn clear(&mut self) {
        if self.first.take().is_some() {
            self.more.clear();
        }
    }
}
