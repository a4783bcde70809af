//! Connections that speak HTTP/2: a task while there are streams, and parked without.

use std::rc::Rc;
use std::time::Duration;

use blitz_reactor::{Cause, Resume, Slice, Socket};

use super::{Acceptor, Guard, Rest};
use crate::counters::count;
use crate::exchange::Service;
use crate::h1::Switch;
use crate::h2;
use crate::input::Input;
use crate::transport::Transport;

/// What HTTP/1.1 ends with where HTTP/2 goes on (RFC 7540, section 3.2).
const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\n\
    Connection: Upgrade\r\n\
    Upgrade: h2c\r\n\
    \r\n";

/// Marks the tag of a parked HTTP/2 connection.
pub(super) const IS_H2: u64 = 1 << 63;

impl<S: Service> Acceptor<S> {
    /// Gives the connection its task.
    #[inline(never)]
    pub(super) fn start_h2(
        self: Rc<Self>,
        wire: Rc<h2::Wire>,
        transport: Transport,
        key: usize,
        first: Slice,
    ) {
        self.spawn_h2(wire, transport, key, first.into(), None);
    }

    fn spawn_h2(
        self: Rc<Self>,
        wire: Rc<h2::Wire>,
        transport: Transport,
        key: usize,
        first: Input,
        begun: Option<h2::Request>,
    ) {
        let me = Rc::clone(&self);
        let task = blitz_reactor::spawn_now(run(self, wire, transport, key, first, begun));
        if task.is_some() {
            me.connections.borrow_mut()[key].task = task;
        }
    }

    /// Says that the connection goes on with HTTP/2, whose first stream is the request that asked
    /// for it.
    #[cold]
    pub(super) fn start_switched(self: Rc<Self>, switch: Switch, key: usize) {
        count(|counters| counters.h2c_upgrades += 1);
        let Switch {
            mut transport,
            request,
            settings,
            input,
        } = switch;
        transport.send_rarely(SWITCHING);
        let wire = h2::Wire::server(self.peer(&transport), &self.h2);
        let stream = wire.upgrade(&request, &settings);
        let begun = h2::Request::complete(stream, request);
        self.spawn_h2(wire, transport, key, input, Some(begun));
    }

    /// Leaves a connection without streams to the reactor.
    pub(super) fn park_h2(self: &Rc<Self>, wire: Rc<h2::Wire>, transport: Transport, key: usize) {
        if self.options.drain.is_triggered() || transport.has_ended() {
            self.remove(key);
            return wire.finish(transport);
        }
        let idle = self.patience_between(&transport);
        let idle = idle.min(wire.idle_left(self.options.limits.idle_timeout));
        let within = wire.settings_patience().map_or(idle, |left| idle.min(left));
        let me: Rc<dyn Resume> = Rc::<Self>::clone(self);
        wire.rest(transport.park(me, key as u64 | IS_H2, within));
        self.connections.borrow_mut()[key].rest = Rest::H2(wire);
    }

    /// Takes back a connection that was parked.
    #[inline(never)]
    pub(super) fn resume_h2(self: Rc<Self>, socket: Socket, key: usize, cause: Cause) {
        let rest = std::mem::take(&mut self.connections.borrow_mut()[key].rest);
        let Rest::H2(wire) = rest else {
            unreachable!("its tag says what it is")
        };
        let mut transport = wire.wake(socket);
        match (cause, transport.secure_parts()) {
            (Cause::Received(first), None) => self.start_h2(wire, transport, key, first),
            (Cause::Received(records), Some((tls, socket))) => {
                let news = tls.handle_received(records, socket);
                if let Some(first) = self.content_of(news, key) {
                    self.start_h2(wire, transport, key, first);
                } else if self.connections.borrow().contains(key) {
                    self.park_h2(wire, transport, key);
                } else {
                    wire.finish(transport);
                }
            }
            (Cause::Expired, _) if wire.settings_patience() == Some(Duration::ZERO) => {
                self.remove(key);
                wire.give_up(transport);
            }
            (cause, _) => {
                if matches!(cause, Cause::Expired) {
                    count(|counters| counters.idle_timeouts += 1);
                }
                self.remove(key);
                wire.finish(transport);
            }
        }
    }
}

/// The task of a connection: from a byte until it has no streams.
async fn run<S: Service>(
    acceptor: Rc<Acceptor<S>>,
    wire: Rc<h2::Wire>,
    transport: Transport,
    key: usize,
    first: Input,
    begun: Option<h2::Request>,
) {
    let mut guard = Guard {
        acceptor: &acceptor,
        key: Some(key),
    };
    let after = h2::run_connection(&wire, &acceptor.service, transport, first, begun).await;
    if let h2::After::Park(transport) = after {
        guard.key = None;
        acceptor.park_h2(Rc::clone(&wire), transport, key);
    }
}
