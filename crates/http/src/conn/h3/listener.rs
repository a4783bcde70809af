//! The state that the connections of a listener share.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::task::{Context, Waker};
use std::time::Instant;

use blitz_proto::h3::StreamId;
use slab::Slab;

use super::driver::{Conn, Shared};
use super::server::ServerRole;
use crate::conn::streams::exchange_task;
use crate::exchange::{Exchange, Service};
use crate::options::ServeOptions;

/// Idle connections that are remembered for eviction.
const IDLE_NOTED: usize = 256;

/// The part of [`Shared`] that only listeners have.
pub(crate) struct ListenerState {
    pub(super) address: SocketAddr,
    /// Starts an exchange; without one if the request has a response already.
    pub(super) start: Box<StartExchange>,
    /// Open connections.
    pub(super) connections: RefCell<Slab<Weak<Conn<ServerRole>>>>,
    /// The connections that had been idle longest at the last look, the longest last.
    pub(super) idle: RefCell<Vec<Weak<Conn<ServerRole>>>>,
    /// Woken when the last connection is gone.
    pub(super) empty: RefCell<Option<Waker>>,
    /// New connections get GOAWAY at once.
    pub(super) is_draining: Cell<bool>,
}

pub(super) type StartExchange = dyn Fn(&Rc<Conn<ServerRole>>, StreamId, Option<Exchange>);

/// The state that the connections of a listener share; it serves them with `service`.
pub(crate) fn shared<S: Service>(
    service: Rc<S>,
    options: Rc<ServeOptions>,
    listener: SocketAddr,
) -> Rc<Shared<ServerRole>> {
    let start = move |conn: &Rc<Conn<ServerRole>>, stream, exchange| {
        let (conn, service) = (Rc::clone(conn), Rc::clone(&service));
        let run = || exchange_task::run(conn, service, stream, exchange);
        if blitz_reactor::spawn_now(run).is_some() {
            blitz_reactor::consume_admission();
        }
    };
    let role = ListenerState {
        address: listener,
        start: Box::new(start),
        connections: RefCell::default(),
        idle: RefCell::default(),
        empty: RefCell::default(),
        is_draining: Cell::new(false),
    };
    Shared::new(options, role)
}

impl Shared<ServerRole> {
    /// Notes the connections that have been idle longest. False if there is none.
    pub(super) fn note_idle(&self) -> bool {
        let mut idle: Vec<(Instant, Rc<Conn<ServerRole>>)> = {
            let connections = self.role.connections.borrow();
            let open = connections.iter().filter_map(|(_, conn)| conn.upgrade());
            open.filter_map(|conn| Some((conn.idle_since()?, conn)))
                .collect()
        };
        idle.sort_unstable_by_key(|(since, _)| *since);
        idle.truncate(IDLE_NOTED);
        let mut noted = self.role.idle.borrow_mut();
        noted.extend(idle.iter().rev().map(|(_, conn)| Rc::downgrade(conn)));
        !noted.is_empty()
    }

    /// Sends GOAWAY to all clients, and to new ones at once.
    pub(crate) fn drain_all(&self) {
        self.role.is_draining.set(true);
        let all: Vec<Rc<Conn<ServerRole>>> = {
            let connections = self.role.connections.borrow();
            let open = connections.iter().filter_map(|(_, conn)| conn.upgrade());
            open.collect()
        };
        all.iter().for_each(Conn::drain);
    }

    /// The number of connections.
    pub(crate) fn count(&self) -> usize {
        self.role.connections.borrow().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.role.connections.borrow().is_empty()
    }

    pub(crate) fn wake_when_empty(&self, cx: &Context<'_>) {
        *self.role.empty.borrow_mut() = Some(cx.waker().clone());
    }
}
