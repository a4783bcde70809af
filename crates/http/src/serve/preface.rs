//! Connections whose first packet does not identify their protocol.

use std::rc::Rc;
use std::time::Duration;

use blitz_reactor::{Buffer, Slice, Socket};

use super::{Acceptor, ConnectionGuard, key_of};
use crate::conn::first_bytes;
use crate::exchange::Service;
use crate::transport::Transport;

/// Deadline for the bytes that identify the protocol. After it the connection is HTTP/1.1, whose
/// deadline for a head starts then.
const WAIT_MAX: Duration = Duration::from_secs(1);

impl<S: Service> Acceptor<S> {
    /// Waits for the byte that distinguishes HTTP/2's preface from a method like POST, and starts
    /// the connection.
    #[cold]
    pub(super) fn detect_version(self: Rc<Self>, socket: Socket, tag: u64, first: Slice) {
        let key = key_of(tag);
        let me = Rc::clone(&self);
        let task = blitz_reactor::spawn(async move {
            let mut guard = ConnectionGuard {
                acceptor: &me,
                key: Some(key),
            };
            let mut bytes = first.to_vec();
            let more = read_until_detected(&socket, &mut bytes);
            // HTTP/1.1 also handles the timeout, FIN and errors.
            let _ = blitz_reactor::timeout(WAIT_MAX, more).await;
            guard.key = None;
            let first = Slice::from_buffer(Buffer::from(bytes));
            let transport = Transport::Plain(socket);
            Rc::clone(&me).start_detected(transport, tag, first);
        });
        self.connections.borrow_mut()[key].task = Some(task);
    }
}

/// Appends received bytes until they identify the protocol or the peer has closed.
async fn read_until_detected(socket: &Socket, bytes: &mut Vec<u8>) {
    while first_bytes::may_be_multiplexed(bytes) {
        socket.await_request(false);
        let Ok(Some(slice)) = socket.recv().await else {
            return;
        };
        bytes.extend_from_slice(&slice);
    }
}
