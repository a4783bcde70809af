//! The core's memory for received datagrams: buffers, each for one batch.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::rc::Rc;
use std::slice;

use crate::driver::Mapping;

/// Most batches that are received and not dropped. The kernel's buffer keeps the rest, so this also bounds
/// what one turn receives.
pub(crate) const DATAGRAM_BUFFERS: u16 = 64;

/// Bytes that the driver writes in front of a batch.
pub(crate) const DATAGRAM_HEAD_BYTES: usize = 176;

/// Bytes that one receive can fill: that and the largest batch.
pub(crate) const DATAGRAM_BUFFER_BYTES: usize = DATAGRAM_HEAD_BYTES + 64 * 1024;

/// The distance between two buffers: an odd number of cache lines, as in the pool.
const STRIDE: usize = DATAGRAM_BUFFER_BYTES.next_multiple_of(64);
const _: () = assert!(
    STRIDE / 64 % 2 == 1,
    "the first lines differ in their cache set"
);

/// Receive buffers of one core. They do not count against the limit of its pool: a core that is short of
/// memory still has to receive acknowledgements.
pub(crate) struct DatagramBuffers {
    memory: Mapping,
    /// A stack, so that epoll uses the same few buffers under light load. io_uring has all that are free.
    free: RefCell<Vec<u16>>,
}

impl DatagramBuffers {
    /// Maps the memory, which occupies none until it is used.
    pub(crate) fn new() -> io::Result<Rc<DatagramBuffers>> {
        Ok(Rc::new(DatagramBuffers {
            memory: Mapping::sparse(STRIDE * usize::from(DATAGRAM_BUFFERS))?,
            free: RefCell::new((0..DATAGRAM_BUFFERS).rev().collect()),
        }))
    }

    /// Whether no buffer is free.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.borrow().is_empty()
    }

    /// Takes a free buffer for the kernel, by its number.
    pub(crate) fn lend(&self) -> Option<u16> {
        self.free.borrow_mut().pop()
    }

    /// The address of a buffer. Valid for [`DATAGRAM_BUFFER_BYTES`] as long as this value lives.
    pub(crate) fn address(&self, id: u16) -> NonNull<u8> {
        assert!(id < DATAGRAM_BUFFERS, "there is no buffer {id}");
        // SAFETY: the offset is inside the mapping, which has DATAGRAM_BUFFERS strides.
        unsafe { self.memory.start().add(usize::from(id) * STRIDE) }
    }
}

/// A buffer that the driver has filled or may fill. Dropping it makes it free.
pub(crate) struct DatagramBuffer {
    buffers: Rc<DatagramBuffers>,
    id: u16,
}

impl DatagramBuffer {
    /// A buffer that was lent, and that the kernel does not write to any more.
    pub(crate) fn adopt(buffers: &Rc<DatagramBuffers>, id: u16) -> DatagramBuffer {
        DatagramBuffer {
            buffers: Rc::clone(buffers),
            id,
        }
    }

    /// A free buffer.
    pub(crate) fn take(buffers: &Rc<DatagramBuffers>) -> Option<DatagramBuffer> {
        let id = buffers.lend()?;
        Some(DatagramBuffer::adopt(buffers, id))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        let start = self.buffers.address(self.id).as_ptr();
        // SAFETY: only this value refers to the buffer, and nobody writes to it. The mapping began as zeros,
        // so every byte is initialised.
        unsafe { slice::from_raw_parts(start, DATAGRAM_BUFFER_BYTES) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let start = self.buffers.address(self.id).as_ptr();
        // SAFETY: as above; `self` is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(start, DATAGRAM_BUFFER_BYTES) }
    }
}

impl Drop for DatagramBuffer {
    fn drop(&mut self) {
        self.buffers.free.borrow_mut().push(self.id);
    }
}

impl fmt::Debug for DatagramBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DatagramBuffer").field(&self.id).finish()
    }
}
