//! Listeners whose connections begin with a header of the PROXY protocol. It tells the client, and then the connection is
//! a new one of that client. While the header is awaited, the connection is parked like every other.

use std::rc::Rc;
use std::time::{Duration, Instant};

use blitz_proto::proxy_protocol::{Progress, Receiver};
use blitz_reactor::{Cause, Resume, Socket};

use super::{Acceptor, IS_FRESH, ParkedState, count_idle_end};
use crate::counters::{count, count_refused};
use crate::exchange::Service;

/// Marks the tag of a parked connection whose header is not complete.
pub(super) const AWAITS_PROXY_HEADER: u64 = 1 << 61;

/// A header of which some bytes have arrived.
pub(super) struct IncompleteHeader {
    receiver: Receiver,
    since: Instant,
}

impl<S: Service> Acceptor<S> {
    /// Whether a new connection may send a header. Others are counted as refused.
    #[cold]
    pub(super) fn admits_proxy(&self, socket: &Socket) -> bool {
        let peer = socket.peer();
        let rule = self.options.proxy_protocol.as_ref();
        // A connection over TCP that was reset, as load balancers end their checks, has no address any more.
        if peer.is_none() && self.listener.is_some() {
            count(|counters| counters.accepted += 1);
            return false;
        }
        let is_trusted = rule.is_some_and(|is_trusted| is_trusted(peer));
        if !is_trusted {
            count(|counters| counters.accepted += 1);
            note_refused(socket, "proxy-header-untrusted");
        }
        is_trusted
    }

    /// Parks a connection until more of its header arrives.
    #[cold]
    pub(super) fn park_for_proxy_header(
        self: &Rc<Self>,
        socket: Socket,
        key: usize,
        incomplete: Option<Box<IncompleteHeader>>,
    ) {
        let within = match &incomplete {
            None => self.first_byte_timeout(),
            Some(header) => self.proxy_header_left(header.since),
        };
        let within = self.within_drain(within);
        let tag = key as u64 | AWAITS_PROXY_HEADER;
        let me: Rc<dyn Resume> = Rc::<Self>::clone(self);
        let parked = match incomplete {
            None => socket.park(me, tag, within),
            Some(_) => socket.park_idle(me, tag, within),
        };
        let entry = &mut self.connections.borrow_mut()[key];
        entry.parked_state = ParkedState::ProxyHeader(incomplete);
        entry.parked = Some(parked);
    }

    /// The time left for a header that began then.
    fn proxy_header_left(&self, since: Instant) -> Duration {
        let limits = &self.options.limits;
        let limit = match self.options.tls {
            Some(_) => limits.tls_handshake_timeout,
            None => limits.head_timeout,
        };
        (since + limit).saturating_duration_since(blitz_reactor::now())
    }

    /// Handles what a connection has received before its header was complete.
    #[cold]
    pub(super) fn receive_proxy_header(self: Rc<Self>, socket: Socket, key: usize, cause: Cause) {
        let parked = std::mem::take(&mut self.connections.borrow_mut()[key].parked_state);
        let ParkedState::ProxyHeader(incomplete) = parked else {
            unreachable!("the tag marks connections that await a header")
        };
        let Cause::Received(mut slice) = cause else {
            return self.close_without_header(socket, key, &cause, incomplete.is_some());
        };
        let mut header = incomplete.unwrap_or_else(|| {
            Box::new(IncompleteHeader {
                receiver: Receiver::default(),
                since: blitz_reactor::now(),
            })
        });
        let (source, consumed) = match header.receiver.handle_input(&slice) {
            Ok(Progress::NeedMore) => {
                return self.park_for_proxy_header(socket, key, Some(header));
            }
            Ok(Progress::Complete { source, consumed }) => (source, consumed),
            Err(error) => {
                note_refused(&socket, error.rule());
                return self.remove(key);
            }
        };
        if let Some(source) = source {
            socket.set_peer(source);
        }
        if consumed == slice.len() {
            return self.park_fresh(socket, key);
        }
        slice.advance(consumed);
        self.connections.borrow_mut()[key].parked_state = ParkedState::Fresh;
        self.resume(socket, key as u64 | IS_FRESH, Cause::Received(slice));
    }

    fn close_without_header(&self, socket: Socket, key: usize, cause: &Cause, has_begun: bool) {
        match (cause, has_begun) {
            (Cause::Expired, true) => note_refused(&socket, "proxy-header-timeout"),
            (Cause::Ended, true) => note_refused(&socket, "proxy-header-incomplete"),
            // Load balancers connect without sending a byte to see whether the port is open.
            _ => count_idle_end(cause),
        }
        self.remove(key);
        socket.finish();
    }
}

fn note_refused(socket: &Socket, rule: &'static str) {
    count_refused(rule);
    let peer = socket.peer().map(tracing::field::display);
    tracing::debug!(
        peer,
        rule,
        "closed a connection to a listener with PROXY protocol"
    );
}
