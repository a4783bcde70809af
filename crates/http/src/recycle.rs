//! Reused heads and field sections: they return to a free list of their core, so that steady
//! traffic allocates none.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::thread::LocalKey;

use blitz_proto::{Fields, Limits, Name, RequestHead, ResponseHead, Status, is_authority};
use blitz_reactor::core_local;

/// Maximum of values of one type that a core keeps, enough for that many concurrent requests.
const KEPT_MAX: usize = 1024;
/// Field sections with more lines than this, or with more text capacity, are freed: they hold
/// unusually much memory.
const KEPT_FIELDS_MAX: usize = 48;
const KEPT_TEXT_MAX: usize = 4096;

type CoreFreeList<T> = LocalKey<RefCell<Vec<Box<PoolSlot<T>>>>>;

/// A value from the core's free list. Dropping it clears it and returns it there.
pub struct Pooled<T: Recycle>(Option<Box<PoolSlot<T>>>);

/// A value, and its memory charge.
#[doc(hidden)]
#[derive(Default)]
pub struct PoolSlot<T> {
    value: T,
    charge: HeadCharge,
}

/// Bytes of a large request head, or of a part of one, that count against the core's budget for
/// heads until this is dropped.
#[derive(Default)]
pub(crate) struct HeadCharge(u32);

core_local! {
    /// Bytes of the core's large request heads.
    static CHARGED: RefCell<usize> = const { RefCell::new(0) };
}

/// A type whose values can be cleared and reused.
pub trait Recycle: Default + 'static {
    #[doc(hidden)]
    fn free_list() -> &'static CoreFreeList<Self>;
    /// Clears the value but keeps its memory; `false` if it has too much memory for the pool.
    #[doc(hidden)]
    fn recycle(&mut self) -> bool;
}

impl<T: Recycle> Pooled<T> {
    /// A cleared value, reused if possible.
    #[must_use]
    pub fn take() -> Pooled<T> {
        // While the thread ends, the free list may already be destroyed.
        let kept = T::free_list()
            .try_with(|list| list.borrow_mut().pop())
            .ok()
            .flatten();
        Pooled(Some(kept.unwrap_or_default()))
    }

    #[inline]
    fn slot(&self) -> &PoolSlot<T> {
        let Some(slot) = &self.0 else {
            unreachable!("only drop empties it")
        };
        slot
    }

    #[inline]
    fn slot_mut(&mut self) -> &mut PoolSlot<T> {
        let Some(slot) = &mut self.0 else {
            unreachable!("only drop empties it")
        };
        slot
    }
}

impl HeadCharge {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0 == 0
    }

    /// Charges this many bytes instead of those so far; `false`, and no change, if that would exceed
    /// the budget.
    #[cold]
    pub(crate) fn replace(&mut self, bytes: usize, limits: &Limits) -> bool {
        let before = self.0 as usize;
        let Ok(charged) = u32::try_from(bytes) else {
            return false;
        };
        if bytes <= before {
            release(before - bytes);
            self.0 = charged;
            return true;
        }
        let more = bytes - before;
        let all = CHARGED.with_borrow(|charged| charged + more);
        if all > limits.heads_bytes_max {
            return false;
        }
        CHARGED.replace(all);
        blitz_reactor::charge(more);
        self.0 = charged;
        true
    }

    #[cold]
    pub(crate) fn clear(&mut self) {
        release(std::mem::take(&mut self.0) as usize);
    }
}

impl Drop for HeadCharge {
    #[inline]
    fn drop(&mut self) {
        if !self.is_empty() {
            self.clear();
        }
    }
}

/// Takes bytes of heads back from the budget.
fn release(bytes: usize) {
    let _ = CHARGED.try_with(|charged| *charged.borrow_mut() -= bytes);
    blitz_reactor::discharge(bytes);
}

impl Pooled<RequestHead> {
    /// Charges a large head, complete or not, to the core's budget for heads; `false` if the budget
    /// is exceeded. A head that has grown since it was charged is charged with the difference.
    #[inline]
    pub(crate) fn charge(&mut self, limits: &Limits) -> bool {
        let bytes = self.fields.text_capacity();
        bytes < limits.large_head_bytes_min || self.charge_large(bytes, limits)
    }

    #[cold]
    fn charge_large(&mut self, bytes: usize, limits: &Limits) -> bool {
        self.slot_mut().charge.replace(bytes, limits)
    }

    /// Frees the memory of a large head, except for what responses and logs still need: method, a
    /// short path and host, `Accept` and `X-Request-Id`. A small head does not change.
    #[inline]
    pub fn reduce(&mut self) {
        if !self.slot().charge.is_empty() {
            self.reduce_large();
        }
    }

    #[cold]
    fn reduce_large(&mut self) {
        *self = self.reduced();
    }

    /// A head with the part of this one that [`reduce`](Self::reduce) leaves of a large one.
    #[cold]
    #[must_use]
    pub fn reduced(&self) -> Pooled<RequestHead> {
        /// The longest path and the longest host that are kept.
        const PATH_MAX: usize = 512;
        let mut left = Pooled::<RequestHead>::take();
        let path = match self.raw_path() {
            path if path.len() > PATH_MAX => "/",
            path => path,
        };
        match RequestHead::parse(self.method_str(), path) {
            Ok(head) => *left = head,
            Err(_) => left.method.clone_from(&self.method),
        }
        let is_kept = |host: &&str| host.len() <= PATH_MAX && is_authority(host.as_bytes());
        if let Some(authority) = self.authority().filter(is_kept) {
            left.set_authority(authority);
        }
        for name in [Name::Accept, Name::XRequestId] {
            for value in self.fields.get_all(name) {
                left.fields.append(name, value);
            }
        }
        left
    }
}

impl Pooled<ResponseHead> {
    /// A response head with this status and no fields.
    #[must_use]
    pub fn response(status: Status) -> Pooled<ResponseHead> {
        let mut head = Pooled::<ResponseHead>::take();
        head.status = status;
        head
    }
}

impl<T: Recycle> Drop for Pooled<T> {
    fn drop(&mut self) {
        let Some(mut slot) = self.0.take() else {
            return;
        };
        if !slot.charge.is_empty() {
            slot.charge.clear();
        }
        if !slot.value.recycle() {
            return;
        }
        let _ = T::free_list().try_with(|list| {
            let mut list = list.borrow_mut();
            if list.len() < KEPT_MAX {
                list.push(slot);
            }
        });
    }
}

impl<T: Recycle> Default for Pooled<T> {
    fn default() -> Pooled<T> {
        Pooled::take()
    }
}

impl<T: Recycle> From<T> for Pooled<T> {
    fn from(value: T) -> Pooled<T> {
        let mut pooled = Pooled::take();
        *pooled = value;
        pooled
    }
}

impl<T: Recycle> Deref for Pooled<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.slot().value
    }
}

impl<T: Recycle> DerefMut for Pooled<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.slot_mut().value
    }
}

impl<T: Recycle + fmt::Debug> fmt::Debug for Pooled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

macro_rules! recycle {
    ($type:ty, $value:ident => $fields:expr) => {
        impl Recycle for $type {
            fn free_list() -> &'static CoreFreeList<$type> {
                core_local! {
                    static FREE_LIST: RefCell<Vec<Box<PoolSlot<$type>>>> = const { RefCell::new(Vec::new()) };
                }
                &FREE_LIST
            }

            fn recycle(&mut self) -> bool {
                let $value = &*self;
                let fits_pool =
                    $fields.len() <= KEPT_FIELDS_MAX && $fields.text_capacity() <= KEPT_TEXT_MAX;
                self.clear();
                fits_pool
            }
        }
    };
}
recycle!(RequestHead, head => head.fields);
recycle!(ResponseHead, head => head.fields);
recycle!(Fields, fields => fields);

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn a_dropped_head_is_cleared_and_reused() {
        let mut head = Pooled::response(Status::NOT_FOUND);
        head.fields.append(Name::ContentType, "text/plain");
        let address: *const ResponseHead = &*head;
        drop(head);
        let again = Pooled::<ResponseHead>::take();
        assert!(std::ptr::eq(address, &*again), "the memory is reused");
        assert_eq!(again.status, Status::OK);
        assert!(again.fields.is_empty());
    }

    #[test]
    fn a_head_with_much_text_frees_its_memory() {
        let mut head = Pooled::response(Status::OK);
        head.fields
            .append(Name::SetCookie, vec![b'c'; KEPT_TEXT_MAX + 1]);
        drop(head);
        assert!(Pooled::<ResponseHead>::take().fields.text_capacity() <= KEPT_TEXT_MAX);
    }
}
