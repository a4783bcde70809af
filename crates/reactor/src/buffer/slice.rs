//! Views of received bytes.

use std::fmt;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::rc::Rc;

use super::Buffer;
use super::pool::{BUFFER_BYTES, LARGE_BYTES, Pool};

/// Received bytes: a range of one buffer of the core's pool.
///
/// Cloning and splitting change a non-atomic reference count; the buffer is free again when its last
/// slice is dropped. A slice stays on its core (`!Send`). Hold slices briefly: a slice of one byte
/// occupies a whole buffer (rule 3), so copy bytes that outlive the turn.
pub struct Slice {
    /// Start of the view.
    bytes: NonNull<u8>,
    /// Length of the view.
    len: u16,
    memory: Memory,
}

/// Owns the bytes, which do not move while it lives.
enum Memory {
    /// One counted view of a buffer.
    Pooled(Rc<Pool>, u16),
    /// Bytes outside the pool, for example because the pool was scarce (rule 3).
    Copied(Rc<Copy>),
}

/// Bytes outside the pool that count against the core's limit.
struct Copy {
    bytes: Buffer,
    pool: Rc<Pool>,
}

/// The bytes that a copy occupies beside its content: two allocations, and its entry in a queue. Single bytes that
/// cannot be joined count for what they cost.
const COPY_OVERHEAD_BYTES: usize = 96;

/// Maximum of bytes that are joined in one copy.
const JOINED_BYTES_MAX: usize = 4 * 1024;

impl Copy {
    fn charged(bytes: &Buffer) -> usize {
        bytes.capacity() + COPY_OVERHEAD_BYTES
    }

    /// Appends within [`JOINED_BYTES_MAX`]. The memory doubles, so that appending is cheap and little of
    /// it is unused.
    fn append(&mut self, more: &[u8]) {
        let len = self.bytes.len() + more.len();
        if len > self.bytes.capacity() {
            self.pool.discharge(Copy::charged(&self.bytes));
            let wanted = (self.bytes.capacity() * 2).clamp(len, JOINED_BYTES_MAX);
            let additional = wanted - self.bytes.len();
            self.bytes.reserve_exact(additional);
            self.pool.charge(Copy::charged(&self.bytes));
        }
        self.bytes.extend_from_slice(more);
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        self.pool.discharge(Copy::charged(&self.bytes));
    }
}

impl Clone for Memory {
    fn clone(&self) -> Memory {
        match self {
            Memory::Pooled(pool, id) => {
                pool.retain(*id);
                Memory::Pooled(Rc::clone(pool), *id)
            }
            Memory::Copied(copy) => Memory::Copied(Rc::clone(copy)),
        }
    }
}

impl Drop for Memory {
    #[inline]
    fn drop(&mut self) {
        if let Memory::Pooled(pool, id) = self {
            pool.release(*id);
        }
    }
}

impl Slice {
    /// The first `len` bytes of a lent buffer that the kernel has filled.
    #[inline]
    pub(crate) fn adopt(pool: &Rc<Pool>, id: u16, len: usize) -> Slice {
        if Pool::is_large(id) {
            return Slice::adopt_large(pool, id, len);
        }
        assert!(len <= BUFFER_BYTES, "a receive cannot exceed its buffer");
        Slice::of_buffer(pool, id, len)
    }

    /// Separate, so that the usual case has no branch for each step.
    #[cold]
    fn adopt_large(pool: &Rc<Pool>, id: u16, len: usize) -> Slice {
        assert!(len <= LARGE_BYTES, "a receive cannot exceed its buffer");
        Slice::of_buffer(pool, id, len)
    }

    #[inline(always)]
    fn of_buffer(pool: &Rc<Pool>, id: u16, len: usize) -> Slice {
        pool.retain(id);
        Slice {
            bytes: pool.address(id),
            len: len as u16,
            memory: Memory::Pooled(Rc::clone(pool), id),
        }
    }

    /// Copies the bytes out of the pool if that is scarce and the slice is at most half of a usual buffer,
    /// so that sockets with small slices do not keep others from receiving.
    #[inline(always)]
    pub(crate) fn copy_if_scarce(&mut self) {
        if let Memory::Pooled(pool, _) = &self.memory
            && pool.is_scarce()
        {
            self.copy_if_small();
        }
    }

    #[cold]
    fn copy_if_small(&mut self) {
        if self.len() <= BUFFER_BYTES / 2 {
            *self = self.copied();
        }
    }

    /// A copy outside the pool, for a small slice that waits for its reader while the rest of its buffer is
    /// unused (rule 3). The copy counts against the core's limit.
    #[must_use]
    pub fn copied(&self) -> Slice {
        Slice::gathered(self, self.to_vec())
    }

    pub(super) fn is_copy(&self) -> bool {
        matches!(self.memory, Memory::Copied(_))
    }

    /// Copies the slice out of the pool, unless it is a copy.
    pub fn keep(&mut self) {
        if let Memory::Pooled(..) = self.memory {
            *self = self.copied();
        }
    }

    /// Appends bytes that wait behind this slice, so that many small pieces take little more memory than
    /// their bytes. `false`, and no change, unless the slice is the only view of a copy, reaches to its
    /// end, and stays within 4 KiB.
    #[must_use]
    pub fn try_append(&mut self, more: &[u8]) -> bool {
        let Memory::Copied(copy) = &mut self.memory else {
            return false;
        };
        let Some(copy) = Rc::get_mut(copy) else {
            return false;
        };
        let start = self.bytes.as_ptr().addr() - copy.bytes.as_ptr().addr();
        let end = start + usize::from(self.len);
        if end != copy.bytes.len() || end + more.len() > JOINED_BYTES_MAX {
            return false;
        }
        copy.append(more);
        let view = &copy.bytes[start..];
        self.bytes = NonNull::from(view).cast();
        self.len = view.len() as u16;
        true
    }

    /// A slice of bytes that were copied together, of the same core as `like`.
    pub(crate) fn gathered(like: &Slice, mut bytes: Vec<u8>) -> Slice {
        assert!(
            bytes.len() <= BUFFER_BYTES,
            "a slice is no longer than a buffer"
        );
        let pool = match &like.memory {
            Memory::Pooled(pool, _) => pool,
            Memory::Copied(copy) => &copy.pool,
        };
        bytes.shrink_to_fit();
        Slice::of_copy(pool, Buffer::from(bytes))
    }

    /// The bytes of a small receive: a copy, which occupies no buffer of the pool.
    pub(crate) fn ration(pool: &Rc<Pool>, bytes: &[u8]) -> Slice {
        Slice::of_copy(pool, Buffer::from(bytes.to_vec()))
    }

    /// A slice of bytes outside the pool. They count against its limit.
    ///
    /// # Panics
    /// If the buffer holds 64 KiB or more.
    pub(crate) fn of_copy(pool: &Rc<Pool>, bytes: Buffer) -> Slice {
        assert!(
            bytes.len() <= usize::from(u16::MAX),
            "{} bytes are too many for a slice",
            bytes.len()
        );
        pool.charge(Copy::charged(&bytes));
        let copy = Rc::new(Copy {
            bytes,
            pool: Rc::clone(pool),
        });
        Slice {
            bytes: NonNull::from(copy.bytes.as_slice()).cast(),
            len: copy.bytes.len() as u16,
            memory: Memory::Copied(copy),
        }
    }

    /// The bytes in view, to be changed in place; `None` if other slices share their buffer.
    pub fn try_mut(&mut self) -> Option<&mut [u8]> {
        match &mut self.memory {
            Memory::Pooled(pool, id) => {
                if pool.views(*id) > 1 {
                    return None;
                }
                // SAFETY: the view is inside the bytes that `adopt` was given. It is the buffer's only
                // view, and the result borrows it, so no other can be created; and the kernel writes
                // only to lent buffers, which have no view.
                // JUSTIFICATION: decryption in place avoids a copy of all received bytes.
                Some(unsafe {
                    std::slice::from_raw_parts_mut(self.bytes.as_ptr(), usize::from(self.len))
                })
            }
            Memory::Copied(copy) => {
                let bytes = Rc::get_mut(copy)?.bytes.as_mut_slice();
                let start = self.bytes.as_ptr().addr() - bytes.as_ptr().addr();
                let view = &mut bytes[start..start + usize::from(self.len)];
                self.bytes = NonNull::from(&mut *view).cast();
                Some(view)
            }
        }
    }

    /// The number of bytes in view.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether no bytes are in view.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Removes the first `n` bytes from the view.
    ///
    /// # Panics
    /// If fewer are in view.
    pub fn advance(&mut self, n: usize) {
        assert!(
            n <= self.len(),
            "cannot advance {n} of {} bytes",
            self.len()
        );
        // SAFETY: the view has at least `n` bytes, so the pointer stays inside it or at its end.
        self.bytes = unsafe { self.bytes.add(n) };
        self.len -= n as u16;
    }

    /// Shortens the view to its first `n` bytes; a longer `n` changes nothing.
    pub fn truncate(&mut self, n: usize) {
        if n < self.len() {
            self.len = n as u16;
        }
    }

    /// Splits off the first `n` bytes.
    ///
    /// # Panics
    /// If fewer are in view.
    pub fn split_to(&mut self, n: usize) -> Slice {
        let head = self.slice(0..n);
        self.advance(n);
        head
    }

    /// A second view of `range` of this view.
    ///
    /// # Panics
    /// If the range is not inside the view.
    pub fn slice(&self, range: Range<usize>) -> Slice {
        assert!(
            range.start <= range.end && range.end <= self.len(),
            "{range:?} is not inside {} bytes",
            self.len()
        );
        Slice {
            // SAFETY: the range is inside the view, as asserted.
            bytes: unsafe { self.bytes.add(range.start) },
            len: range.len() as u16,
            memory: self.memory.clone(),
        }
    }
}

impl Clone for Slice {
    fn clone(&self) -> Slice {
        self.slice(0..self.len())
    }
}

impl Deref for Slice {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the view is always inside the bytes that `adopt` or `of_copy` was given: initialised
        // bytes, which `memory` owns and nothing changes meanwhile.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr(), self.len()) }
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slice({:?})", self.escape_ascii().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(pool: &Rc<Pool>, bytes: &[u8]) -> Slice {
        let id = pool.lend().unwrap();
        // SAFETY: the buffer is lent to this test alone and longer than `bytes`.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), pool.address(id).as_ptr(), bytes.len());
        }
        Slice::adopt(pool, id, bytes.len())
    }

    #[test]
    fn a_buffer_is_free_after_its_last_view_is_dropped() {
        let pool = Rc::new(Pool::new().unwrap());
        let all = pool.free();
        let mut rest = filled(&pool, b"head and body");
        let head = rest.split_to(4);
        assert_eq!((&*head, &*rest), (&b"head"[..], &b" and body"[..]));
        drop(rest);
        assert_eq!(pool.free(), all - 1);
        let again = head.clone();
        drop(head);
        assert_eq!(&*again, b"head");
        drop(again);
        assert_eq!(pool.free(), all);
    }

    #[test]
    fn only_a_sole_view_can_be_changed() {
        let pool = Rc::new(Pool::new().unwrap());
        let received = filled(&pool, b"0123456789");
        let gathered = Slice::gathered(&received, b"0123456789".to_vec());
        for mut slice in [received, gathered] {
            slice.advance(2);
            slice.truncate(4);
            slice.try_mut().unwrap().copy_from_slice(b"abcd");
            assert_eq!(&*slice, b"abcd");
            let mut tail = slice.split_to(1);
            std::mem::swap(&mut tail, &mut slice);
            assert!(slice.try_mut().is_none() && tail.try_mut().is_none());
            drop(slice);
            tail.try_mut().unwrap()[0] = b'x';
            assert_eq!(&*tail, b"xcd");
        }
    }

    #[test]
    fn a_copy_counts_until_its_last_view_is_dropped() {
        let pool = Rc::new(Pool::new().unwrap());
        let all = pool.available();
        let copy = Slice::gathered(&filled(&pool, b"x"), vec![7; 1000]);
        let part = copy.slice(10..20);
        drop(copy);
        assert_eq!(pool.available(), all - 1000 - COPY_OVERHEAD_BYTES);
        drop(part);
        assert_eq!(pool.available(), all);
    }

    #[test]
    fn small_pieces_join_a_copy_that_nothing_else_views() {
        let pool = Rc::new(Pool::new().unwrap());
        let all = pool.available();
        let mut received = filled(&pool, b"ab");
        assert!(!received.try_append(b"c"), "the buffer is the pool's");
        received.keep();
        assert_eq!(pool.free(), Pool::new().unwrap().free());
        received.advance(1);
        for _ in 2..JOINED_BYTES_MAX {
            assert!(received.try_append(b"c"));
        }
        assert!(!received.try_append(b"c"), "it is full");
        assert_eq!(
            pool.available(),
            all - JOINED_BYTES_MAX - COPY_OVERHEAD_BYTES
        );
        assert_eq!((received.len(), &received[..3]), (4_095, &b"bcc"[..]));
        let mut head = received.split_to(4_000);
        assert!(!received.try_append(b""), "two views");
        drop(received);
        assert!(!head.try_append(b""), "bytes follow that were dropped");
        drop(head);
        assert_eq!(pool.available(), all);
    }

    #[test]
    fn views_stay_inside_their_bytes() {
        let pool = Rc::new(Pool::new().unwrap());
        let mut slice = filled(&pool, b"0123456789");
        slice.truncate(100);
        slice.truncate(6);
        slice.advance(2);
        assert_eq!(&*slice, b"2345");
        assert_eq!(&*slice.slice(1..3), b"34");
        assert!(
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| slice.slice(1..5))).is_err()
        );
    }
}
