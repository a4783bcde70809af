//! The HTTP/2 connections of an endpoint that carry requests.
//!
//! A request takes a place on the first that has one. When none has, another connection is made,
//! up to a number; while one is being made, or has not said yet how much it takes, requests wait
//! for that, as they do once the number is reached. Requests for HTTP/1.1 wait in the same queue,
//! while too many of its connections are in use.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use blitz_reactor::{Cause, PoolFuture, Slice};

use super::queue::{Queue, QueueKey};
use super::{Endpoint, IdleState, Lifetime, Permit, Upstream};
use crate::client::Connection;
use crate::conn::multiplexed::{Client, Conn, Disposition};
use crate::counters::count;
use crate::error::ClientError;
use crate::input::Input;
use crate::tls::{AlpnOffer, ReadOutcome};
use crate::transport::Transport;

/// Connections of a core to one address, whatever number of requests it has for it.
const CONNECTIONS_MAX: usize = 32;
/// The same with those that are too old for more requests and still have some.
const CONNECTIONS_ALL_MAX: usize = 256;

/// What is in use, and who waits for a place on it.
#[derive(Default)]
pub(super) struct InUse {
    connections: RefCell<Vec<Rc<Conn<Client>>>>,
    connecting: Cell<usize>,
    /// Oldest first.
    waiting: RefCell<Queue<QueueEntry>>,
}

/// A request that waits for a place.
struct QueueEntry {
    waker: Waker,
    /// Where it finds why the connection that it waited for could not be made.
    failure: Rc<RefCell<Option<ClientError>>>,
}

/// What there is for a request.
enum CheckoutStep {
    Permit(Connection),
    /// Probably something in a moment.
    Wait,
    /// A connection has to be made.
    Connect,
    /// The server speaks HTTP/1.1, which knows no places.
    Exclusive,
}

impl Upstream {
    /// A place on a connection, without waiting; if it has to be `made_since` a moment, only on one
    /// that was, unless there can be no more of them.
    pub(super) fn take_permit(&self, made_since: Option<Instant>) -> Option<Connection> {
        match self.next_step(made_since) {
            CheckoutStep::Permit(connection) => Some(connection),
            CheckoutStep::Wait | CheckoutStep::Connect | CheckoutStep::Exclusive => None,
        }
    }

    /// The same, waiting for a place or a new connection if need be.
    pub(super) async fn permit(
        &self,
        made_since: Option<Instant>,
    ) -> Result<Connection, ClientError> {
        match self.take_permit(made_since) {
            Some(connection) => Ok(connection),
            None => self.wait(made_since).await,
        }
    }

    /// Waits for a connection, or for being allowed to make one.
    pub(super) async fn wait(
        &self,
        made_since: Option<Instant>,
    ) -> Result<Connection, ClientError> {
        // Apart, since it is rare and large.
        PoolFuture::new(wait_or_connect(self.clone(), made_since)).await
    }

    /// Whether no request waits for a connection.
    #[inline]
    pub(super) fn queue_is_empty(&self) -> bool {
        self.0.in_use.waiting.borrow().len() == 0
    }

    fn next_step(&self, made_since: Option<Instant>) -> CheckoutStep {
        self.refresh_tls();
        if self.is_exclusive() {
            return match self.has_room() {
                true => CheckoutStep::Exclusive,
                false => CheckoutStep::Wait,
            };
        }
        let InUse {
            connections,
            connecting,
            ..
        } = &self.0.in_use;
        let (now, settings) = (blitz_reactor::now(), self.0.settings.get());
        let (mut is_coming, mut usable) = (connecting.get() > 0, 0);
        for conn in &*connections.borrow() {
            if conn.is_retired(now, settings) {
                continue;
            }
            usable += 1;
            if made_since.is_some_and(|moment| !conn.was_made_since(moment)) {
                continue;
            }
            if conn.reserve() {
                return CheckoutStep::Permit(self.connection_on(conn));
            }
            is_coming |= !conn.is_settled();
        }
        if made_since.is_none() {
            match self.reuse_idle() {
                CheckoutStep::Connect => {}
                found => return found,
            }
        }
        let all = connections.borrow().len();
        let is_full = usable >= CONNECTIONS_MAX || all >= CONNECTIONS_ALL_MAX;
        match is_coming || is_full {
            true if !is_coming && made_since.is_some() => self.next_step(None),
            true => CheckoutStep::Wait,
            false => CheckoutStep::Connect,
        }
    }

    /// Puts the connection to use that was idle the shortest.
    fn reuse_idle(&self) -> CheckoutStep {
        let mut list = self.0.idle.borrow_mut();
        let Some(idle) = list.back() else {
            return CheckoutStep::Connect;
        };
        // One that has just become readable is on its way back by itself.
        let Some(socket) = idle.parked.unpark_socket() else {
            return CheckoutStep::Wait;
        };
        let idle = list.pop_back();
        drop(list);
        self.0.pool.decrement_idle();
        let Some((parked, IdleState::Multiplexed(conn))) =
            idle.map(|idle| (idle.parked, idle.state))
        else {
            unreachable!("idle connections of HTTP/2 have a state")
        };
        let transport = parked.unpark(socket);
        if conn.is_retired(blitz_reactor::now(), self.0.settings.get()) {
            conn.finish(transport);
            return self.reuse_idle();
        }
        conn.reserve_first();
        let connection = self.connection_on(&conn);
        self.start(conn, transport, None);
        CheckoutStep::Permit(connection)
    }

    fn connection_on(&self, conn: &Rc<Conn<Client>>) -> Connection {
        let reused = conn.is_used();
        if reused {
            count(|counters| counters.upstream_reused += 1);
        }
        Connection::new(Rc::<Conn<Client>>::clone(conn), reused)
    }

    /// A connection that was idle has received something, which may be anything but the answer to
    /// a request, or is over.
    pub(super) fn resume(self, conn: Rc<Conn<Client>>, mut transport: Transport, cause: Cause) {
        let received = match cause {
            Cause::Received(received) => received,
            Cause::Expired => return conn.finish(transport),
            Cause::Ended => return count(|counters| counters.upstream_idle_lost += 1),
        };
        let first = match transport.secure_parts() {
            None => Some(received),
            Some((tls, socket)) => match tls.handle_received(received, socket) {
                ReadOutcome::Content(first) => Some(first),
                ReadOutcome::NoContent => None,
                ReadOutcome::Ended => return count(|counters| counters.upstream_idle_lost += 1),
            },
        };
        self.start(conn, transport, first);
    }

    fn start(&self, conn: Rc<Conn<Client>>, transport: Transport, first: Option<Slice>) {
        self.0.active.set(self.0.active.get() + 1);
        let in_use = &self.0.in_use;
        in_use.connections.borrow_mut().push(Rc::clone(&conn));
        blitz_reactor::spawn_now(run(self.clone(), conn, transport, first));
    }

    async fn connect_shared(&self) -> Result<Connection, ClientError> {
        let connecting = Connecting::begin(self);
        let (transport, lifetime) = match self.open(AlpnOffer::Http2AndHttp1).await {
            Ok(opened) => opened,
            Err(error) => {
                self.0.in_use.fail_waiting(&error);
                return Err(error);
            }
        };
        drop(connecting);
        Ok(self.begin(transport, lifetime, Permit::new(self)))
    }

    /// A place on a connection that was just made.
    pub(super) fn begin_multiplexed(&self, transport: Transport, lifetime: Lifetime) -> Connection {
        let conn = Conn::client(&self.0.pool.multiplexed, self.0.tls.is_some(), lifetime);
        conn.reserve_first();
        let connection = self.connection_on(&conn);
        self.start(conn, transport, None);
        connection
    }
}

/// The task of a connection: from a request, or something received, until it has no requests.
async fn run(
    upstream: Upstream,
    conn: Rc<Conn<Client>>,
    transport: Transport,
    first: Option<Slice>,
) {
    let guard = InUseGuard {
        upstream: &upstream,
        conn: &conn,
    };
    let end_of_turn = || upstream.0.in_use.wake_for_permits(conn.permits_free());
    let first = first.map(Input::from).unwrap_or_default();
    let disposition = conn.drive(transport, first, end_of_turn).await;
    drop(guard);
    match disposition {
        Disposition::Park(transport) if !upstream.is_exclusive() => {
            upstream.keep(transport, IdleState::Multiplexed(conn));
        }
        Disposition::Park(transport) => conn.finish(transport),
        Disposition::Closed => count(|counters| counters.upstream_not_reused += 1),
    }
    // There is an idle connection now, or room for another. What comes of it wakes more.
    upstream.0.in_use.wake(1);
}

/// Takes the connection off the list when its task ends, also when it is aborted.
struct InUseGuard<'a> {
    upstream: &'a Upstream,
    conn: &'a Rc<Conn<Client>>,
}

impl Drop for InUseGuard<'_> {
    fn drop(&mut self) {
        self.upstream.release_active();
        let mut connections = self.upstream.0.in_use.connections.borrow_mut();
        connections.retain(|other| !Rc::ptr_eq(other, self.conn));
    }
}

/// A connection that is being made; dropped when that is over, also by a client that leaves.
struct Connecting<'a>(&'a InUse);

impl Connecting<'_> {
    fn begin(upstream: &Upstream) -> Connecting<'_> {
        let in_use = &upstream.0.in_use;
        in_use.connecting.set(in_use.connecting.get() + 1);
        Connecting(in_use)
    }
}

impl Drop for Connecting<'_> {
    fn drop(&mut self) {
        self.0.connecting.set(self.0.connecting.get() - 1);
        self.0.wake(1);
    }
}

async fn wait_or_connect(
    upstream: Upstream,
    made_since: Option<Instant>,
) -> Result<Connection, ClientError> {
    let limits = &upstream.0.pool.options.limits;
    let mut until = pin!(blitz_reactor::sleep(limits.upstream_wait_timeout));
    let mut waiter = Waiter::new(&upstream);
    let found = poll_fn(|cx| {
        if let Some(error) = waiter.failure.take() {
            return Poll::Ready(Err(error));
        }
        // A request of HTTP/1.1 that has just come must not overtake others.
        let overtakes =
            waiter.key.is_none() && upstream.is_exclusive() && !upstream.queue_is_empty();
        if !overtakes {
            match upstream.next_step(made_since) {
                CheckoutStep::Wait => {}
                found => return Poll::Ready(Ok(found)),
            }
        }
        if !waiter.wait(cx) {
            count(|counters| counters.upstream_queue_full += 1);
            return Poll::Ready(Err(ClientError::QueueFull));
        }
        until.as_mut().poll(cx).map(|()| {
            count(|counters| counters.upstream_queue_timeouts += 1);
            Err(ClientError::Busy)
        })
    })
    .await?;
    waiter.is_served = true;
    match found {
        CheckoutStep::Permit(connection) => Ok(connection),
        CheckoutStep::Connect => upstream.connect_shared().await,
        CheckoutStep::Exclusive => {
            let idle = made_since.is_none().then(|| upstream.take_idle_exclusive());
            match idle.flatten() {
                Some(connection) => Ok(connection),
                None => upstream.connect_alone().await,
            }
        }
        CheckoutStep::Wait => Err(ClientError::Busy),
    }
}

/// A request's time in the queue.
struct Waiter<'a> {
    upstream: &'a Upstream,
    /// Its entry; the entry is out of the queue when the request was called.
    key: Option<QueueKey>,
    failure: Rc<RefCell<Option<ClientError>>>,
    /// It was used; otherwise a call that came to it goes to the next.
    is_served: bool,
}

impl Waiter<'_> {
    fn new(upstream: &Upstream) -> Waiter<'_> {
        Waiter {
            upstream,
            key: None,
            failure: Rc::default(),
            is_served: false,
        }
    }

    /// Joins the queue, unless the request is in it; `false` if the queue is full. A request that
    /// was called in vain keeps its place in the order.
    fn wait(&mut self, cx: &Context<'_>) -> bool {
        let Endpoint { in_use, pool, .. } = &*self.upstream.0;
        let mut waiting = in_use.waiting.borrow_mut();
        if self.key.is_some_and(|key| waiting.contains(key)) {
            return true;
        }
        let entry = QueueEntry {
            waker: cx.waker().clone(),
            failure: Rc::clone(&self.failure),
        };
        self.key = match self.key {
            Some(_) => Some(waiting.push_front(entry)),
            None if waiting.len() >= pool.options.limits.upstream_waiting_max => None,
            None => Some(waiting.push_back(entry)),
        };
        self.key.is_some()
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        let in_use = &self.upstream.0.in_use;
        let was_called = in_use.waiting.borrow_mut().remove(key).is_none();
        if was_called && !self.is_served {
            in_use.wake(1);
        }
    }
}

impl InUse {
    /// A connection has this many places now. When there is none anywhere, one of those who wait
    /// has to make another connection.
    fn wake_for_permits(&self, free: usize) {
        if self.waiting.borrow().len() == 0 {
            return;
        }
        let is_coming = self.connecting.get() > 0
            || self
                .connections
                .borrow()
                .iter()
                .any(|conn| !conn.is_settled());
        match free {
            0 if is_coming => {}
            0 => self.wake(1),
            _ => self.wake(free),
        }
    }

    /// Calls those who have waited longest.
    pub(super) fn wake(&self, count: usize) {
        let mut waiting = self.waiting.borrow_mut();
        for _ in 0..count {
            let Some(next) = waiting.pop_front() else {
                return;
            };
            next.waker.wake();
        }
    }

    /// The connection that they waited for was not made.
    fn fail_waiting(&self, error: &ClientError) {
        let mut waiting = self.waiting.borrow_mut();
        while let Some(next) = waiting.pop_front() {
            *next.failure.borrow_mut() = Some(error.clone());
            next.waker.wake();
        }
    }
}
