//! Connections that carry many exchanges. They have a task while there are streams, and are parked
//! otherwise.

use std::rc::Rc;
use std::time::Duration;

use blitz_reactor::{Cause, Resume, Slice, Socket};

use super::{Acceptor, ConnectionGuard, ParkedState, count_idle_end};
use crate::conn::exclusive::Switch;
use crate::conn::multiplexed;
use crate::counters::count;
use crate::exchange::Service;
use crate::input::Input;
use crate::transport::Transport;

/// The response to `Upgrade: h2c` (RFC 7540, section 3.2).
const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\n\
    Connection: Upgrade\r\n\
    Upgrade: h2c\r\n\
    \r\n";

/// Marks the tag of a parked connection that carries many exchanges.
pub(super) const IS_MULTIPLEXED: u64 = 1 << 63;

impl<S: Service> Acceptor<S> {
    /// Starts the connection's task.
    #[inline(never)]
    pub(super) fn start_multiplexed(
        self: Rc<Self>,
        conn: Rc<multiplexed::Conn<multiplexed::ServerRole>>,
        transport: Transport,
        key: usize,
        first: Slice,
    ) {
        self.spawn_multiplexed(conn, transport, key, first.into(), None);
    }

    fn spawn_multiplexed(
        self: Rc<Self>,
        conn: Rc<multiplexed::Conn<multiplexed::ServerRole>>,
        transport: Transport,
        key: usize,
        first: Input,
        upgraded: Option<multiplexed::IncomingRequest>,
    ) {
        let me = Rc::clone(&self);
        let task = blitz_reactor::spawn_now(|| run(self, conn, transport, key, first, upgraded));
        if task.is_some() {
            me.connections.borrow_mut()[key].task = task;
        }
    }

    /// Switches the connection to HTTP/2; the request with `Upgrade` becomes its first stream.
    #[cold]
    pub(super) fn start_switched(self: Rc<Self>, switch: Switch, key: usize) {
        count(|counters| counters.h2c_upgrades += 1);
        let Switch {
            mut transport,
            request,
            settings,
            input,
        } = switch;
        let Some(peer) = self.peer(&transport) else {
            return self.close_unknown(transport, key);
        };
        transport.send_rarely(SWITCHING);
        let conn = multiplexed::Conn::server(peer, &self.multiplexed);
        let upgraded = conn.upgrade(request, &settings);
        self.spawn_multiplexed(conn, transport, key, input, Some(upgraded));
    }

    /// Parks a connection without streams.
    pub(super) fn park_multiplexed(
        self: &Rc<Self>,
        conn: Rc<multiplexed::Conn<multiplexed::ServerRole>>,
        transport: Transport,
        key: usize,
    ) {
        if self.options.drain.is_triggered() || transport.has_ended() {
            self.remove(key);
            return conn.finish(transport);
        }
        let was_idle = conn.is_idle_since_before();
        let idle = self.idle_timeout(&transport);
        let idle = idle.min(conn.idle_left(self.options.limits.idle_timeout));
        let within = conn.settings_left().map_or(idle, |left| idle.min(left));
        let me: Rc<dyn Resume> = Rc::<Self>::clone(self);
        let tag = key as u64 | IS_MULTIPLEXED;
        conn.park(match was_idle {
            true => transport.park_idle(me, tag, within),
            false => transport.park(me, tag, within),
        });
        self.connections.borrow_mut()[key].parked_state = ParkedState::Multiplexed(conn);
    }

    /// Resumes a parked connection.
    #[inline(never)]
    pub(super) fn resume_multiplexed(self: Rc<Self>, socket: Socket, key: usize, cause: Cause) {
        let parked = std::mem::take(&mut self.connections.borrow_mut()[key].parked_state);
        let ParkedState::Multiplexed(conn) = parked else {
            unreachable!("the tag marks HTTP/2 connections")
        };
        let mut transport = conn.unpark(socket);
        match (cause, transport.secure_parts()) {
            (Cause::Received(first), None) => self.start_multiplexed(conn, transport, key, first),
            (Cause::Received(records), Some((tls, socket))) => {
                let outcome = tls.handle_received(records, socket);
                if let Some(first) = self.decrypted_content(outcome, key) {
                    self.start_multiplexed(conn, transport, key, first);
                } else if self.connections.borrow().contains(key) {
                    self.park_multiplexed(conn, transport, key);
                } else {
                    conn.finish(transport);
                }
            }
            (Cause::Expired, _) if conn.settings_left() == Some(Duration::ZERO) => {
                self.remove(key);
                conn.close_for_settings_timeout(transport);
            }
            (cause, _) => {
                count_idle_end(&cause);
                self.remove(key);
                conn.finish(transport);
            }
        }
    }
}

/// The task of a connection: from a received byte until it has no streams.
async fn run<S: Service>(
    acceptor: Rc<Acceptor<S>>,
    conn: Rc<multiplexed::Conn<multiplexed::ServerRole>>,
    transport: Transport,
    key: usize,
    first: Input,
    upgraded: Option<multiplexed::IncomingRequest>,
) {
    let mut guard = ConnectionGuard {
        acceptor: &acceptor,
        key: Some(key),
    };
    let service = &acceptor.service;
    let disposition = conn.serve(service, transport, first, upgraded).await;
    if let multiplexed::Disposition::Park(transport) = disposition {
        guard.key = None;
        acceptor.park_multiplexed(Rc::clone(&conn), transport, key);
    }
}
