//! The HTTP/2 connections of an endpoint that carry requests.
//!
//! A request takes a permit on the first connection that has a free stream. If there is none,
//! another connection is made, up to a limit. Requests wait while a connection is being made or has
//! not received its first SETTINGS, and once the limit is reached. HTTP/1.1 requests wait in the
//! same queue while too many connections are in use.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use blitz_reactor::{Cause, PoolFuture, Slice};

use super::{IdleState, Permit, PoolEndpoint, Upstream};
use crate::client::Connection;
use crate::conn::multiplexed::{ClientRole, Conn, Disposition, Fitness, WINDOW_WAIT};
use crate::counters::count;
use crate::error::ClientError;
use crate::input::Input;
use crate::lifetime::Lifetime;
use crate::queue::{Queue, QueueKey};
use crate::tls::{AlpnOffer, ReadOutcome};
use crate::transport::Transport;

/// Maximum of usable connections of a core to one address.
const CONNECTIONS_MAX: usize = 32;
/// The same, including retired and resting connections that still carry requests.
const CONNECTIONS_ALL_MAX: usize = 256;

/// The connections in use, and the requests that wait for one.
#[derive(Default)]
pub(super) struct InUse {
    connections: RefCell<Vec<Rc<Conn<ClientRole>>>>,
    connecting: Cell<usize>,
    /// Oldest first.
    waiting: RefCell<Queue<QueueEntry>>,
}

/// A waiting request.
struct QueueEntry {
    waker: Waker,
    /// Receives the error if the connection that the request waits for cannot be made.
    failure: Rc<RefCell<Option<ClientError>>>,
}

/// The next step of a request that needs a connection.
enum CheckoutStep {
    /// Use this connection.
    Permit(Connection),
    /// Wait for a permit or a free connection.
    Wait,
    /// Make a connection.
    Connect,
    /// Use an HTTP/1.1 connection, which has no permits.
    Exclusive,
}

impl Upstream {
    /// A permit on a connection, without waiting. With `made_since`, only on a connection that was
    /// made since then, unless the limit allows no further connections.
    pub(super) fn take_permit(&self, made_since: Option<Instant>) -> Option<Connection> {
        match self.next_step(made_since) {
            CheckoutStep::Permit(connection) => Some(connection),
            CheckoutStep::Wait | CheckoutStep::Connect | CheckoutStep::Exclusive => None,
        }
    }

    /// As [`Upstream::take_permit`], but waits for a permit or a new connection if necessary.
    pub(super) async fn permit(
        &self,
        made_since: Option<Instant>,
    ) -> Result<Connection, ClientError> {
        match self.take_permit(made_since) {
            Some(connection) => Ok(connection),
            None => self.wait(made_since).await,
        }
    }

    /// Waits for a connection, or until the limit allows a new one.
    pub(super) async fn wait(
        &self,
        made_since: Option<Instant>,
    ) -> Result<Connection, ClientError> {
        // Allocated separately, since this future is rare and large.
        PoolFuture::new(wait_or_connect(self.clone(), made_since)).await
    }

    /// Whether a shared connection is being made, or awaits the SETTINGS of its server.
    pub(super) fn is_coming(&self) -> bool {
        let InUse {
            connections,
            connecting,
            ..
        } = &self.0.in_use;
        let (now, settings) = (blitz_reactor::now(), self.0.settings.get());
        let is_coming = |conn: &Rc<Conn<ClientRole>>| {
            !conn.settings_received() && conn.fitness(now, settings) == Fitness::Usable
        };
        connecting.get() > 0 || connections.borrow().iter().any(is_coming)
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
        let all = connections.borrow().len();
        // Resting ones only where no other may be made.
        let wanted = match all >= CONNECTIONS_ALL_MAX {
            true => &[Fitness::Usable, Fitness::Resting][..],
            false => &[Fitness::Usable],
        };
        for fitness in wanted {
            for conn in &*connections.borrow() {
                if conn.fitness(now, settings) != *fitness {
                    continue;
                }
                usable += 1;
                if made_since.is_some_and(|moment| !conn.was_made_since(moment)) {
                    continue;
                }
                if conn.reserve() {
                    return CheckoutStep::Permit(self.connection_on(conn));
                }
                is_coming |= !conn.settings_received();
            }
        }
        if made_since.is_none() {
            match self.reuse_idle() {
                CheckoutStep::Connect => {}
                found => return found,
            }
        }
        let connections_max = self.0.pool.options.limits.upstream_connections_max;
        let is_full = usable >= CONNECTIONS_MAX.min(connections_max) || all >= CONNECTIONS_ALL_MAX;
        match is_coming || is_full {
            true if !is_coming && made_since.is_some() => self.next_step(None),
            true => CheckoutStep::Wait,
            false => CheckoutStep::Connect,
        }
    }

    /// Reuses the connection with the shortest idle time.
    fn reuse_idle(&self) -> CheckoutStep {
        let mut list = self.0.idle.borrow_mut();
        let Some(idle) = list.back() else {
            return CheckoutStep::Connect;
        };
        // If it has just become readable, `resume` puts it to use.
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
        if conn.fitness(blitz_reactor::now(), self.0.settings.get()) != Fitness::Usable {
            conn.finish(transport);
            return self.reuse_idle();
        }
        conn.reserve_first();
        let connection = self.connection_on(&conn);
        self.start(conn, transport, None);
        CheckoutStep::Permit(connection)
    }

    fn connection_on(&self, conn: &Rc<Conn<ClientRole>>) -> Connection {
        let reused = conn.is_used();
        if reused {
            count(|counters| counters.upstream_reused += 1);
        }
        Connection::new(Rc::<Conn<ClientRole>>::clone(conn), reused)
    }

    /// Handles received bytes or the end of an idle connection. The bytes can be anything except a
    /// response, since there was no request.
    pub(super) fn resume(self, conn: Rc<Conn<ClientRole>>, mut transport: Transport, cause: Cause) {
        let received = match cause {
            Cause::Received(received) => received,
            Cause::Expired | Cause::Evicted => return conn.finish(transport),
            Cause::Ended => return self.lose_idle(),
        };
        let first = match transport.secure_parts() {
            None => Some(received),
            Some((tls, socket)) => match tls.handle_received(received, socket) {
                ReadOutcome::Content(first) => Some(first),
                ReadOutcome::NoContent => None,
                ReadOutcome::Ended => return self.lose_idle(),
            },
        };
        self.start(conn, transport, first);
    }

    /// An idle connection has ended. A request may have found it readable, and waits for it.
    fn lose_idle(&self) {
        count(|counters| counters.upstream_idle_lost += 1);
        self.0.in_use.wake(1);
    }

    /// Wakes as many requests as a connection has free permits. If it has none and no connection is being made
    /// or set up, wakes one request, which makes another connection.
    fn wake_for_permits(&self, free: usize) {
        if self.queue_is_empty() {
            return;
        }
        match free {
            0 if self.is_coming() => {}
            0 => self.0.in_use.wake(1),
            _ => self.0.in_use.wake(free),
        }
    }

    fn start(&self, conn: Rc<Conn<ClientRole>>, transport: Transport, first: Option<Slice>) {
        self.acquire_active();
        let in_use = &self.0.in_use;
        in_use.connections.borrow_mut().push(Rc::clone(&conn));
        blitz_reactor::spawn_now(|| run(self.clone(), conn, transport, first));
    }

    async fn connect_shared(&self) -> Result<Connection, ClientError> {
        self.check_room_for_client()?;
        let connecting = Connecting::begin(self);
        let (transport, lifetime) = match self.open(AlpnOffer::All).await {
            Ok(opened) => opened,
            Err(error) => {
                self.0.in_use.fail_waiting(&error);
                return Err(error);
            }
        };
        drop(connecting);
        Ok(self.begin(transport, lifetime, Permit::new(self)))
    }

    /// A permit on a new connection.
    pub(super) fn begin_multiplexed(&self, transport: Transport, lifetime: Lifetime) -> Connection {
        let conn = Conn::client(&self.0.pool.multiplexed, self.0.tls.is_some(), lifetime);
        conn.reserve_first();
        let connection = self.connection_on(&conn);
        self.start(conn, transport, None);
        connection
    }
}

/// The task of a connection: from the first request or received byte until no request is left.
async fn run(
    upstream: Upstream,
    conn: Rc<Conn<ClientRole>>,
    transport: Transport,
    first: Option<Slice>,
) {
    let guard = InUseGuard {
        upstream: &upstream,
        conn: &conn,
    };
    let end_of_turn = || upstream.wake_for_permits(conn.permits_free());
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
    // There is an idle connection now, or room for another. The woken request wakes others.
    upstream.0.in_use.wake(1);
}

/// Removes the connection from the list when its task ends or is aborted.
struct InUseGuard<'a> {
    upstream: &'a Upstream,
    conn: &'a Rc<Conn<ClientRole>>,
}

impl Drop for InUseGuard<'_> {
    fn drop(&mut self) {
        self.upstream.release_active();
        let mut connections = self.upstream.0.in_use.connections.borrow_mut();
        connections.retain(|other| !Rc::ptr_eq(other, self.conn));
    }
}

/// Counts a connection that is being made. Dropped at the end, also if the request is cancelled.
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
    // A connection may begin to rest meanwhile, of which nobody is notified.
    let mut look_again = pin!(blitz_reactor::sleep(WINDOW_WAIT));
    let mut waiter = Waiter::new(&upstream);
    let found = poll_fn(|cx| {
        if let Some(error) = waiter.failure.take() {
            return Poll::Ready(Err(error));
        }
        while !upstream.is_exclusive() && look_again.as_mut().poll(cx).is_ready() {
            look_again.set(blitz_reactor::sleep(WINDOW_WAIT));
        }
        // A new HTTP/1.1 request must not overtake waiting ones.
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

/// A request's membership in the queue, which ends when this is dropped.
struct Waiter<'a> {
    upstream: &'a Upstream,
    /// The key of its entry. Waking the request removes the entry.
    key: Option<QueueKey>,
    failure: Rc<RefCell<Option<ClientError>>>,
    /// Whether the request no longer needs to wait. Otherwise a wake-up is passed to the next one.
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
    /// was woken in vain joins at the front.
    fn wait(&mut self, cx: &Context<'_>) -> bool {
        let PoolEndpoint { in_use, pool, .. } = &*self.upstream.0;
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
        let was_woken = in_use.waiting.borrow_mut().remove(key).is_none();
        if was_woken && !self.is_served {
            in_use.wake(1);
        }
    }
}

impl InUse {
    /// Wakes the requests that have waited longest.
    pub(super) fn wake(&self, count: usize) {
        let mut waiting = self.waiting.borrow_mut();
        for _ in 0..count {
            let Some(next) = waiting.pop_front() else {
                return;
            };
            next.waker.wake();
        }
    }

    /// Fails all waiting requests, because the connection could not be made.
    fn fail_waiting(&self, error: &ClientError) {
        let mut waiting = self.waiting.borrow_mut();
        while let Some(next) = waiting.pop_front() {
            *next.failure.borrow_mut() = Some(error.clone());
            next.waker.wake();
        }
    }
}
