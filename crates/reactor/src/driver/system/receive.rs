//! Receiving outside of a turn.

use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;

use crate::buffer::{LARGE_BYTES, Pool, Slice};
use crate::driver::ReceiveOutcome;

/// Receives at most `limit` bytes into a large buffer; `None` if nothing has arrived. An error has to be
/// used: the kernel reports it once, and the end of the input afterwards.
pub(crate) fn receive_now(fd: RawFd, limit: usize, pool: &Rc<Pool>) -> Option<ReceiveOutcome> {
    let Some(id) = pool.lend_large() else {
        return Some(ReceiveOutcome::NoBuffers);
    };
    let wanted = limit.min(LARGE_BYTES);
    let buffer = pool.address(id).as_ptr().cast();
    // SAFETY: the buffer is lent to this call alone and holds LARGE_BYTES.
    let n = unsafe { libc::recv(fd, buffer, wanted, libc::MSG_DONTWAIT) };
    if n > 0 {
        return Some(ReceiveOutcome::Bytes(Slice::adopt(pool, id, n as usize)));
    }
    let error = io::Error::last_os_error().raw_os_error();
    pool.give_back(id);
    match (n, error) {
        (0, _) => Some(ReceiveOutcome::End),
        (_, Some(libc::EAGAIN)) => None,
        (_, Some(libc::EINTR)) => Some(ReceiveOutcome::Nothing),
        (_, error) => Some(ReceiveOutcome::Failed(error.unwrap_or(libc::EIO))),
    }
}
