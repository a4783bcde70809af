//! Sending files from the page cache.

use std::io;
use std::task::{Context, Poll};

use super::SocketKey;
use super::entry::{Fin, SendOrder, SocketState};
use super::sockets::{Sockets, wake};
use super::table::keep;
use crate::driver::{FileSent, OpenPath, Pending};

/// Bytes that are looked for in memory and sent at a time: about as many as the kernel takes of a client that does not
/// read.
const PIECE_BYTES: usize = 256 * 1024;

impl Sockets<'_> {
    /// See [`File::poll_send`](crate::File::poll_send).
    pub(super) fn poll_send_file(
        &mut self,
        key: SocketKey,
        cx: &Context<'_>,
        file: &OpenPath,
        offset: u64,
        len: usize,
    ) -> Poll<io::Result<Option<usize>>> {
        assert!(len > 0, "nothing of a file is not sent");
        let len = len.min(PIECE_BYTES);
        let table = &mut *self.table;
        let entry = table.entry(key);
        if entry.sending.failed != 0 {
            return Poll::Ready(Err(io::Error::from_raw_os_error(entry.sending.failed)));
        }
        assert!(entry.sending.fin == Fin::No, "nothing is sent after FIN");
        if entry.pending.has(Pending::SEND) || entry.pending.has(Pending::ROOM) {
            return self.wait_for_sent(key, cx);
        }
        let handle = entry.handle;
        if !entry.sending.takes_files {
            if !table.driver.allow_send_file(handle) {
                return Poll::Ready(Ok(None));
            }
            table.entry(key).sending.takes_files = true;
        }
        if table.at_once_left < len {
            // The other sockets are served first.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if !file.is_in_memory(offset, len) {
            return Poll::Ready(Ok(None));
        }
        if !self.send_queue_before_file(key) {
            return self.wait_for_sent(key, cx);
        }
        let table = &mut *self.table;
        match table.driver.send_file(handle, file, offset, len) {
            FileSent::Bytes(n) => {
                table.at_once_left -= n;
                self.core.counters.file_bytes_sent.add(n as u64);
                self.note_sent(key, n);
                Poll::Ready(Ok(Some(n)))
            }
            FileSent::NoRoom => {
                table.entry(key).pending.add(Pending::ROOM);
                table.driver.await_room(key, handle);
                self.wait_for_sent(key, cx)
            }
            // The reader finds out what is wrong with the file, or sending its bytes what is with the socket.
            FileSent::Nothing => Poll::Ready(Ok(None)),
        }
    }

    /// Waits until the queue is empty and there is room.
    fn wait_for_sent<T>(&mut self, key: SocketKey, cx: &Context<'_>) -> Poll<T> {
        let sending = &mut self.table.entry(key).sending;
        sending.waker = Some(cx.waker().clone());
        sending.wake_at = 0;
        Poll::Pending
    }

    /// Sends the queue, such as the head of a response; whether nothing is left of it. The rest is sent as usual.
    fn send_queue_before_file(&mut self, key: SocketKey) -> bool {
        let table = &mut *self.table;
        let Some(entry) = table.slab.get_mut(key) else {
            return false;
        };
        let Some(queue) = &mut entry.sending.queue else {
            return true;
        };
        if let Some(n) = table
            .driver
            .send_before_file(entry.handle, &queue.describe())
        {
            queue.sent(n, &mut table.to_drop);
            if queue.bytes() == 0
                && let Some(queue) = entry.sending.queue.take()
            {
                keep(&mut table.queues, queue);
            }
            self.note_sent(key, n);
        }
        let is_empty = self.table.entry(key).sending.queue.is_none();
        if !is_empty {
            self.list_for_sending(key);
        }
        is_empty
    }

    /// The kernel has taken bytes outside of the turn.
    fn note_sent(&mut self, key: SocketKey, n: usize) {
        let now = self.core.clock.now();
        self.core.counters.sends.add(1);
        self.core.counters.sent_bytes.add(n as u64);
        let entry = self.table.entry(key);
        entry.sending.progress = now;
        if entry.order == SendOrder::SendFirst {
            entry.order = SendOrder::Any;
        }
    }

    /// Handles the end of a wait for room.
    #[cold]
    pub(super) fn has_room(&mut self, key: SocketKey) {
        let entry = self.table.entry(key);
        entry.pending.remove(Pending::ROOM);
        wake(&mut entry.sending.waker);
        if matches!(entry.state, SocketState::Closing) {
            self.remove_if_done(key);
        }
    }
}
