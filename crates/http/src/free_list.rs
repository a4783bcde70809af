//! Reused connection state, so that steady traffic allocates none.

use std::cell::RefCell;
use std::rc::Rc;

/// Maximum of values in one list.
const KEPT_MAX: usize = 1024;

pub(crate) struct FreeList<T>(RefCell<Vec<Rc<T>>>);

impl<T> FreeList<T> {
    #[inline]
    pub(crate) fn take(&self) -> Option<Rc<T>> {
        self.0.borrow_mut().pop()
    }

    /// Clears a value with `clear` and keeps it, unless there are other references to it.
    #[inline]
    pub(crate) fn put(&self, value: Rc<T>, clear: impl FnOnce(&T)) {
        let mut kept = self.0.borrow_mut();
        if Rc::strong_count(&value) == 1 && kept.len() < KEPT_MAX {
            clear(&value);
            kept.push(value);
        }
    }
}

impl<T> Default for FreeList<T> {
    fn default() -> FreeList<T> {
        FreeList(RefCell::default())
    }
}
