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
use std::time::Instant;

use blitz_reactor::{Cause, PoolFuture, Slice};

use super::{Kept, Term, Upstream};
use crate::client::{Connection, Protocol};
use crate::counters::count;
use crate::error::ClientError;
use crate::h2::{self, After, Wire};
use crate::tls::{News, Offer};
use crate::transport::Transport;

/// Connections of a core to one address, whatever number of requests it has for it.
const CONNECTIONS_MAX: usize = 32;
/// The same with those that are too old for more requests and still have some.
const CONNECTIONS_ALL_MAX: usize = 256;

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
    /// The server speaks HTTP/1.1, which knows no places.
    Http1,
}

impl Upstream {
    /// A place on a connection, without waiting; if it has to be `made_since` a moment, only on one
    /// that was, unless there can be no more of them.
    pub(super) fn take_place(&self, made_since: Option<Instant>) -> Option<Connection> {
        match self.find_place(made_since) {
            Found::Place(connection) => Some(connection),
            Found::Wait | Found::Nothing | Found::Http1 => None,
        }
    }

    /// The same, waiting for a place or a new connection if need be.
    pub(super) async fn place(
        &self,
        made_since: Option<Instant>,
    ) -> Result<Connection, ClientError> {
        match self.take_place(made_since) {
            Some(connection) => Ok(connection),
            // Apart, since it is rare and large.
            None => PoolFuture::new(wait_or_connect(self.clone(), made_since)).await,
        }
    }

    fn find_place(&self, made_since: Option<Instant>) -> Found {
        self.follow_settings();
        if self.speaks_http1() {
            return Found::Http1;
        }
        let InUse {
            connections,
            connecting,
            ..
        } = &self.0.in_use;
        let (now, settings) = (blitz_reactor::now(), self.0.settings.get());
        let (mut is_coming, mut usable) = (connecting.get() > 0, 0);
        for wire in &*connections.borrow() {
            if wire.is_retired(now, settings) {
                continue;
            }
            usable += 1;
            if made_since.is_some_and(|moment| !wire.was_made_since(moment)) {
                continue;
            }
            if wire.reserve() {
                return Found::Place(self.connection_on(wire));
            }
            is_coming |= !wire.is_settled();
        }
        if made_since.is_none() {
            match self.wake_idle() {
                Found::Nothing => {}
                found => return found,
            }
        }
        let all = connections.borrow().len();
        let is_full = usable >= CONNECTIONS_MAX || all >= CONNECTIONS_ALL_MAX;
        match is_coming || is_full {
            true if !is_coming && made_since.is_some() => self.find_place(None),
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
        let Some((resting, Kept::H2(wire))) = idle.map(|idle| (idle.resting, idle.kept)) else {
            unreachable!("idle connections of HTTP/2 have a state")
        };
        let transport = resting.wake(socket);
        if wire.is_retired(blitz_reactor::now(), self.0.settings.get()) {
            wire.finish(transport);
            return self.wake_idle();
        }
        wire.reserve_first();
        let connection = self.connection_on(&wire);
        self.start(wire, transport, None);
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
        let (transport, term) = match self.open(Offer::Both).await {
            Ok(opened) => opened,
            Err(error) => {
                self.0.in_use.fail_waiting(&error);
                return Err(error);
            }
        };
        drop(connecting);
        Ok(self.begin(transport, term))
    }

    /// A place on a connection that was just made.
    pub(super) fn begin_http2(&self, transport: Transport, term: Term) -> Connection {
        let wire = Wire::client(&self.0.pool.h2, self.0.tls.is_some(), term);
        wire.reserve_first();
        let connection = self.connection_on(&wire);
        self.start(wire, transport, None);
        connection
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
        After::Park(transport) if upstream.0.protocol.get() == Some(Protocol::Http2) => {
            upstream.keep(transport, Kept::H2(wire));
        }
        After::Park(transport) => wire.finish(transport),
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

async fn wait_or_connect(
    upstream: Upstream,
    made_since: Option<Instant>,
) -> Result<Connection, ClientError> {
    let limit = upstream.0.pool.options.limits.connect_timeout;
    let mut until = pin!(blitz_reactor::sleep(limit));
    loop {
        let mut turn = Turn::new(&upstream.0.in_use);
        let found = poll_fn(|cx| {
            if let Some(error) = turn.failure.take() {
                return Poll::Ready(Err(error));
            }
            match upstream.find_place(made_since) {
                Found::Wait => {}
                found => return Poll::Ready(Ok(found)),
            }
            turn.wait(cx);
            while until.as_mut().poll(cx).is_ready() {
                // What is being made has deadlines of its own, and over TLS other ones.
                if upstream.0.in_use.connecting.get() == 0 {
                    return Poll::Ready(Err(ClientError::Busy));
                }
                until.set(blitz_reactor::sleep(limit));
            }
            Poll::Pending
        })
        .await?;
        turn.is_over = true;
        drop(turn);
        match found {
            Found::Place(connection) => return Ok(connection),
            Found::Nothing => return upstream.connect_shared().await,
            Found::Http1 => {
                let idle = made_since.is_none().then(|| upstream.take_idle());
                return match idle.flatten() {
                    Some(connection) => Ok(connection),
                    None => upstream.connect_alone().await,
                };
            }
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
    pub(super) fn wake(&self, count: usize) {
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
