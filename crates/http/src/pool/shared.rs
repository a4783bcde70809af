//! The HTTP/2 connections of an endpoint that carry requests.
//!
//! A request takes a place on the first that has one. When none has, another connection is made,
//! up to a number; while one is being made, or has not said yet how much it takes, requests wait
//! for that, as they do once the number is reached.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use blitz_reactor::{Cause, PoolFuture, Slice};

use super::Upstream;
use crate::client::{Connection, connect};
use crate::counters::count;
use crate::error::ClientError;
use crate::h2::{self, After, Wire};
use crate::tls::News;
use crate::transport::Transport;

/// Connections of a core to one address, whatever number of requests it has for it.
const CONNECTIONS_MAX: usize = 32;

/// What is in use, and who waits for a place on it.
#[derive(Default)]
pub(super) struct InUse {
    connections: RefCell<Vec<Rc<Wire>>>,
    connecting: Cell<usize>,
    waiting: RefCell<VecDeque<Waiting>>,
    next_waiting: Cell<u64>,
}

/// A request that waits for a place.
struct Waiting {
    number: u64,
    waker: Waker,
    /// Where it finds why the connection that it waited for could not be made.
    failure: Rc<RefCell<Option<ClientError>>>,
}

/// What there is for a request.
enum Found {
    Place(Connection),
    /// Probably something in a moment.
    Wait,
    /// A connection has to be made.
    Nothing,
}

impl Upstream {
    /// A place on a connection, without waiting; on one that was idle only if it `may_be_idle`.
    pub(super) fn take_place(&self, may_be_idle: bool) -> Option<Connection> {
        match self.find_place(may_be_idle) {
            Found::Place(connection) => Some(connection),
            Found::Wait | Found::Nothing => None,
        }
    }

    /// The same, waiting for a place or a new connection if need be.
    pub(super) async fn place(&self, may_be_idle: bool) -> Result<Connection, ClientError> {
        match self.take_place(may_be_idle) {
            Some(connection) => Ok(connection),
            // Apart, since it is rare and large.
            None => PoolFuture::new(wait_or_connect(self.clone(), may_be_idle)).await,
        }
    }

    fn find_place(&self, may_be_idle: bool) -> Found {
        let InUse {
            connections,
            connecting,
            ..
        } = &self.0.in_use;
        let mut is_coming = connecting.get() > 0;
        for wire in &*connections.borrow() {
            if wire.reserve() {
                return Found::Place(self.connection_on(wire));
            }
            is_coming |= !wire.is_settled();
        }
        if may_be_idle {
            match self.wake_idle() {
                Found::Nothing => {}
                found => return found,
            }
        }
        let is_full = connections.borrow().len() >= CONNECTIONS_MAX;
        match is_coming || is_full {
            true => Found::Wait,
            false => Found::Nothing,
        }
    }

    /// Puts the connection to use that was idle the shortest.
    fn wake_idle(&self) -> Found {
        let mut list = self.0.idle.borrow_mut();
        let Some(idle) = list.back() else {
            return Found::Nothing;
        };
        // One that has just become readable is on its way back by itself.
        let Some(socket) = idle.resting.unpark() else {
            return Found::Wait;
        };
        let idle = list.pop_back();
        drop(list);
        self.0.pool.left();
        let Some((resting, Some(wire))) = idle.map(|idle| (idle.resting, idle.wire)) else {
            unreachable!("idle connections of HTTP/2 have a state")
        };
        wire.reserve_first();
        let connection = self.connection_on(&wire);
        self.start(wire, resting.wake(socket), None);
        Found::Place(connection)
    }

    fn connection_on(&self, wire: &Rc<Wire>) -> Connection {
        let reused = wire.has_served();
        if reused {
            count(|counters| counters.upstream_reused += 1);
        }
        Connection::on(Rc::clone(wire), Rc::clone(&self.0.pool.options), reused)
    }

    /// A connection that was idle has received something, which may be anything but the answer to
    /// a request, or is over.
    pub(super) fn resume(self, wire: Rc<Wire>, mut transport: Transport, cause: Cause) {
        let received = match cause {
            Cause::Received(received) => received,
            Cause::Expired => return wire.finish(transport),
            Cause::Ended => return count(|counters| counters.upstream_idle_lost += 1),
        };
        let first = match transport.secure_parts() {
            None => Some(received),
            Some((tls, socket)) => match tls.handle_received(received, socket) {
                News::Content(first) => Some(first),
                News::Nothing => None,
                News::Over => return count(|counters| counters.upstream_idle_lost += 1),
            },
        };
        self.start(wire, transport, first);
    }

    fn start(&self, wire: Rc<Wire>, transport: Transport, first: Option<Slice>) {
        self.0.active.set(self.0.active.get() + 1);
        let in_use = &self.0.in_use;
        in_use.connections.borrow_mut().push(Rc::clone(&wire));
        blitz_reactor::spawn_now(run(self.clone(), wire, transport, first));
    }

    async fn connect_shared(&self) -> Result<Connection, ClientError> {
        let connecting = Connecting::begin(self);
        let limits = &self.0.pool.options.limits;
        let transport = match connect(&self.0.address, self.0.tls.as_ref(), limits).await {
            Ok(transport) => transport,
            Err(error) => {
                self.0.in_use.fail_waiting(&error);
                return Err(error);
            }
        };
        drop(connecting);
        let wire = Wire::client(&self.0.pool.h2);
        wire.reserve_first();
        let connection = self.connection_on(&wire);
        self.start(wire, transport, None);
        Ok(connection)
    }
}

/// The task of a connection: from a request, or something received, until it has no requests.
async fn run(upstream: Upstream, wire: Rc<Wire>, transport: Transport, first: Option<Slice>) {
    let guard = Guard {
        upstream: &upstream,
        wire: &wire,
    };
    let turned = || upstream.0.in_use.turned(wire.places_free());
    let after = h2::run_client(&wire, transport, first, turned).await;
    drop(guard);
    match after {
        After::Park(transport) => upstream.keep(transport, Some(wire)),
        After::Closed => count(|counters| counters.upstream_not_reused += 1),
    }
    // There is an idle connection now, or room for another.
    upstream.0.in_use.wake(usize::MAX);
}

/// Takes the connection off the list when its task ends, also when it is aborted.
struct Guard<'a> {
    upstream: &'a Upstream,
    wire: &'a Rc<Wire>,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.upstream.lost();
        let mut connections = self.upstream.0.in_use.connections.borrow_mut();
        connections.retain(|other| !Rc::ptr_eq(other, self.wire));
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

async fn wait_or_connect(upstream: Upstream, may_be_idle: bool) -> Result<Connection, ClientError> {
    let mut until = pin!(blitz_reactor::sleep(
        upstream.0.pool.options.limits.connect_timeout
    ));
    loop {
        let mut turn = Turn::new(&upstream.0.in_use);
        let found = poll_fn(|cx| {
            if let Some(error) = turn.failure.take() {
                return Poll::Ready(Err(error));
            }
            match upstream.find_place(may_be_idle) {
                Found::Wait => {}
                found => return Poll::Ready(Ok(found)),
            }
            turn.wait(cx);
            until.as_mut().poll(cx).map(|()| Err(ClientError::Busy))
        })
        .await?;
        turn.is_over = true;
        drop(turn);
        match found {
            Found::Place(connection) => return Ok(connection),
            Found::Nothing => return upstream.connect_shared().await,
            Found::Wait => {}
        }
    }
}

/// One wait in the queue.
struct Turn<'a> {
    in_use: &'a InUse,
    number: u64,
    failure: Rc<RefCell<Option<ClientError>>>,
    /// It was used; otherwise a call that came to it goes to the next.
    is_over: bool,
}

impl Turn<'_> {
    fn new(in_use: &InUse) -> Turn<'_> {
        let number = in_use.next_waiting.get();
        in_use.next_waiting.set(number + 1);
        Turn {
            in_use,
            number,
            failure: Rc::default(),
            is_over: false,
        }
    }

    fn wait(&mut self, cx: &Context<'_>) {
        let mut waiting = self.in_use.waiting.borrow_mut();
        if !waiting.iter().any(|other| other.number == self.number) {
            waiting.push_back(Waiting {
                number: self.number,
                waker: cx.waker().clone(),
                failure: Rc::clone(&self.failure),
            });
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut waiting = self.in_use.waiting.borrow_mut();
        let before = waiting.len();
        waiting.retain(|other| other.number != self.number);
        let was_called = waiting.len() == before;
        drop(waiting);
        if was_called && !self.is_over {
            self.in_use.wake(1);
        }
    }
}

impl InUse {
    /// A connection has this many places now. When there is none anywhere, one of those who wait
    /// has to make another connection.
    fn turned(&self, free: usize) {
        if self.waiting.borrow().is_empty() {
            return;
        }
        let is_coming = self.connecting.get() > 0
            || self
                .connections
                .borrow()
                .iter()
                .any(|wire| !wire.is_settled());
        match free {
            0 if is_coming => {}
            0 => self.wake(1),
            _ => self.wake(free),
        }
    }

    /// Calls those who have waited longest.
    fn wake(&self, count: usize) {
        let mut waiting = self.waiting.borrow_mut();
        let count = count.min(waiting.len());
        waiting.drain(..count).for_each(|next| next.waker.wake());
    }

    /// The connection that they waited for was not made.
    fn fail_waiting(&self, error: &ClientError) {
        for next in self.waiting.borrow_mut().drain(..) {
            *next.failure.borrow_mut() = Some(error.clone());
            next.waker.wake();
        }
    }
}
