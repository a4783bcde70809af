//! Receiving outside of a turn.

use std::os::fd::RawFd;
use std::rc::Rc;

use crate::buffer::{LARGE_BYTES, Pool, Slice};

/// Receives at most `limit` bytes into a large buffer. `Some(None)` if nothing was received; `None` if
/// there is no buffer.
pub(crate) fn receive_now(fd: RawFd, limit: usize, pool: &Rc<Pool>) -> Option<Option<Slice>> {
    let id = pool.lend_large()?;
    let wanted = limit.min(LARGE_BYTES);
    let buffer = pool.address(id).as_ptr().cast();
    // SAFETY: the buffer is lent to this call alone and holds LARGE_BYTES.
    let n = unsafe { libc::recv(fd, buffer, wanted, libc::MSG_DONTWAIT) };
    // The end and errors are reported by a receive of the turn.
    if n <= 0 {
        pool.give_back(id);
        return Some(None);
    }
    Some(Some(Slice::adopt(pool, id, n as usize)))
}
