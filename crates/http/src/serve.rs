//! Accepting connections and running their exchanges.
//!
//! A connection without a request is a parked socket and a table entry (rule 5). Its first byte
//! starts a task, which runs exchanges until the connection is idle again.

pub(crate) mod datagrams;
mod preface;
mod proxied;
mod secure;
mod shortage;
mod streams;

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use blitz_reactor::{Address, Cause, Listener, Parked, Resume, Slice, Socket, TaskKey};
use slab::Slab;

use self::proxied::{AWAITS_PROXY_HEADER, IncompleteHeader};
use self::shortage::count_idle_end;
use self::streams::IS_MULTIPLEXED;
use crate::conn::{exclusive, first_bytes, multiplexed};
use crate::counters::{count, count_refused};
use crate::default_headers::DefaultHeaders;
use crate::exchange::{Peer, Scheme, Service};
use crate::free_list::FreeList;
use crate::options::ServeOptions;
use crate::transport::{ParkedTransport, Transport};

/// After this time without a connection, none waits any more: clients acknowledge a SYN-ACK within a round trip.
const ADMIT_LAST_SILENCE: Duration = Duration::from_millis(50);

/// How long connections are admitted while draining.
const ADMIT_LAST_MAX: Duration = Duration::from_millis(500);

/// How long a connection that was admitted last may take to begin its request.
const FIRST_REQUEST_WHILE_DRAINING: Duration = Duration::from_secs(1);

/// Serves all connections of `listener` until the options' [`Drain`](crate::Drain) is triggered, and
/// then until the running exchanges have ended or its deadline has passed.
pub async fn serve<S: Service>(listener: Listener, service: Rc<S>, options: Rc<ServeOptions>) {
    let acceptor = Acceptor::new(service, options, listener.local());
    while let Some(socket) = acceptor.accept(&listener).await {
        acceptor.admit(socket);
    }
    acceptor.close_idle();
    acceptor.admit_last(&listener).await;
    drop(listener);
    acceptor.finish().await;
}

/// The state that the connections of one listener share.
struct Acceptor<S> {
    service: Rc<S>,
    options: Rc<ServeOptions>,
    default_headers: Rc<DefaultHeaders>,
    /// The same with `Alt-Svc`.
    default_headers_and_alternative: Rc<DefaultHeaders>,
    listener: Option<std::net::SocketAddr>,
    connections: RefCell<Slab<ConnectionEntry>>,
    free: FreeList<exclusive::ServerConn>,
    multiplexed: Rc<multiplexed::Shared<multiplexed::ServerRole>>,
    /// Woken when the last connection ends.
    empty: RefCell<Option<Waker>>,
}

/// The keys of a connection's socket and task. Outdated keys stay, since they do no harm and
/// removing them would cost each request an update of the table.
struct ConnectionEntry {
    /// Set when the connection is first parked.
    parked: Option<Parked>,
    /// The last task that did not finish at once.
    task: Option<TaskKey>,
    /// The other state of a parked connection.
    parked_state: ParkedState,
}

/// The state of a parked connection, apart from its socket.
#[derive(Default)]
enum ParkedState {
    /// No state: HTTP/1.1 in clear text between requests, or not parked.
    #[default]
    Nothing,
    /// No byte was received yet, or a PROXY header alone.
    Fresh,
    /// The PROXY header is not complete; `None` if no byte of it was received.
    ProxyHeader(Option<Box<IncompleteHeader>>),
    /// A TLS session between requests, or during the handshake.
    Tls(ParkedTransport),
    /// The state of HTTP/2, including the TLS session if there is one.
    Multiplexed(Rc<multiplexed::Conn<multiplexed::ServerRole>>),
}

impl<S: Service> Acceptor<S> {
    fn new(service: Rc<S>, options: Rc<ServeOptions>, address: &Address) -> Rc<Acceptor<S>> {
        let listener = match address {
            Address::Tcp(address) => Some(*address),
            Address::Unix(_) => None,
        };
        let headers = |alt_svc| {
            let server = options.server.as_deref();
            Rc::new(DefaultHeaders::new(options.date, server, alt_svc))
        };
        let default_headers = headers(None);
        let default_headers_and_alternative = headers(options.alt_svc.as_deref());
        Rc::new(Acceptor {
            service,
            multiplexed: multiplexed::Shared::new(Rc::clone(&options)),
            options,
            default_headers,
            default_headers_and_alternative,
            listener,
            connections: RefCell::default(),
            free: FreeList::default(),
            empty: RefCell::default(),
        })
    }

    /// The next connection, or `None` once draining has begun.
    async fn accept(&self, listener: &Listener) -> Option<Socket> {
        let mut accept = pin!(listener.accept());
        poll_fn(|cx| match self.options.drain.poll_changed(cx, None) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => {
                let accepted = accept.as_mut().poll(cx).map(Some);
                shortage::warn_at_limit(self.options.warn_at_limit);
                accepted
            }
        })
        .await
    }

    fn admit(self: &Rc<Self>, socket: Socket) {
        let is_proxied = self.options.proxy_protocol.is_some();
        if is_proxied && !self.admits_proxy(&socket) {
            return;
        }
        count(|counters| {
            counters.accepted += 1;
            counters.connections += 1;
        });
        let key = self.connections.borrow_mut().insert(ConnectionEntry {
            parked: None,
            task: None,
            parked_state: ParkedState::Fresh,
        });
        match is_proxied {
            true => self.park_for_proxy_header(socket, key, None),
            false => self.park_fresh(socket, key),
        }
    }

    /// Admits the connections that wait when draining begins: their clients may have sent a request already, and would
    /// get a reset.
    async fn admit_last(self: &Rc<Self>, listener: &Listener) {
        let Some(deadline) = self.options.drain.deadline() else {
            return;
        };
        listener.refuse_new();
        let begun = blitz_reactor::now();
        let end = deadline.min(begun + ADMIT_LAST_MAX);
        while blitz_reactor::now() < end {
            match blitz_reactor::timeout(ADMIT_LAST_SILENCE, listener.accept()).await {
                Ok(socket) => self.admit(socket),
                Err(_) => return,
            }
        }
    }

    /// A shorter time for a connection that has not sent its first request when draining has begun.
    fn within_drain(&self, time: Duration) -> Duration {
        match self.options.drain.is_triggered() {
            true => time.min(FIRST_REQUEST_WHILE_DRAINING),
            false => time,
        }
    }

    /// Parks the connection until it receives something or the timeout expires; closes it if the
    /// core is draining. Returns the key of the socket if the connection has no other state.
    #[inline]
    fn park(
        self: &Rc<Self>,
        transport: Transport,
        key: usize,
        tag: u64,
        within: Duration,
    ) -> Option<Parked> {
        if self.options.drain.is_triggered() {
            self.remove(key);
            transport.finish();
            return None;
        }
        let me: Rc<dyn Resume> = Rc::<Self>::clone(self);
        match transport.park(me, tag, within) {
            ParkedTransport::Plain(parked) => Some(parked),
            parked @ ParkedTransport::Tls(_) => {
                self.connections.borrow_mut()[key].parked_state = ParkedState::Tls(parked);
                None
            }
        }
    }

    /// Parks a connection that has sent no request since it was last parked. The idle timeout
    /// (rule 18) and the count of empty lines continue.
    #[cold]
    fn park_again(self: &Rc<Self>, transport: Transport, key: usize, empty_lines: usize) {
        if self.options.drain.is_triggered() || transport.has_ended() {
            self.remove(key);
            return transport.finish();
        }
        let within = self.idle_timeout(&transport);
        let me: Rc<dyn Resume> = Rc::<Self>::clone(self);
        let tag = tag_of(key, empty_lines);
        if let parked @ ParkedTransport::Tls(_) = transport.park_again(me, tag, within) {
            self.connections.borrow_mut()[key].parked_state = ParkedState::Tls(parked);
        }
    }

    /// Closes an idle connection in clear text.
    #[inline(never)]
    fn close_plain(&self, socket: Socket, key: usize, cause: &Cause) {
        // Other causes are FIN, after which the last response may still be in the socket's queue
        // (rule 16), and errors, after which nothing can be sent.
        count_idle_end(cause);
        self.remove(key);
        socket.finish();
    }

    #[inline]
    fn start(self: Rc<Self>, transport: Transport, tag: u64, first: Slice) {
        if tag & IS_FRESH != 0 {
            self.connections.borrow_mut()[key_of(tag)].parked_state = ParkedState::Nothing;
        }
        match transport {
            Transport::Plain(socket)
                if tag & IS_FRESH != 0
                    && !self.options.multiplexed_only
                    && first_bytes::may_be_multiplexed(&first) =>
            {
                self.detect_version(socket, tag, first);
            }
            transport => self.start_detected(transport, tag, first),
        }
    }

    /// Starts a connection whose first bytes identify its protocol.
    ///
    /// RFC 9113, section 3.3: "A client that knows that a server supports HTTP/2 can establish a TCP
    /// connection and send the connection preface". Later in a connection the preface is a malformed
    /// request.
    #[inline]
    fn start_detected(self: Rc<Self>, transport: Transport, tag: u64, first: Slice) {
        let (key, empty_lines) = (key_of(tag), empty_lines_of(tag));
        let is_multiplexed = match transport.info() {
            None => {
                let is_preface = tag & IS_FRESH != 0 && first_bytes::are_multiplexed(&first);
                self.options.multiplexed_only || is_preface
            }
            Some(_) => transport.protocol().capabilities().multiplexes,
        };
        let Some(peer) = self.peer(&transport) else {
            return self.close_unknown(transport, key);
        };
        if is_multiplexed {
            let conn = multiplexed::Conn::server(peer, &self.multiplexed);
            return self.start_multiplexed(conn, transport, key, first);
        }
        let default_headers = match self.options.alt_svc_for(&peer) {
            Some(_) => &self.default_headers_and_alternative,
            None => &self.default_headers,
        };
        let conn =
            exclusive::ServerConn::new(transport, peer, &self.options, default_headers, &self.free);
        if empty_lines > 0 {
            conn.note_empty_lines(empty_lines);
        }
        let me = Rc::clone(&self);
        if let Some(task) = blitz_reactor::spawn_now(|| run(self, conn, key, first)) {
            me.connections.borrow_mut()[key].task = Some(task);
            blitz_reactor::consume_resume();
        }
    }

    /// `None` if the client has reset a connection over TCP: the kernel has forgotten its address, by which access is
    /// decided. Only clients of unix sockets have none.
    fn peer(&self, transport: &Transport) -> Option<Peer> {
        let remote = transport.peer();
        if remote.is_none() && self.listener.is_some() {
            return None;
        }
        let tls = transport.info().cloned();
        let scheme = match tls {
            Some(_) => Scheme::Https,
            None => self.options.scheme,
        };
        Some(Peer {
            remote,
            listener: self.listener,
            scheme,
            tls,
        })
    }

    /// Closes a connection whose client is not known any more.
    #[cold]
    pub(super) fn close_unknown(&self, transport: Transport, key: usize) {
        count_refused("client-address-lost");
        self.remove(key);
        transport.abort();
    }

    fn remove(&self, key: usize) {
        count(|counters| counters.connections -= 1);
        let mut connections = self.connections.borrow_mut();
        connections.remove(key);
        if connections.is_empty()
            && let Some(waker) = self.empty.take()
        {
            waker.wake();
        }
    }

    /// Closes every parked connection gracefully, but for those that have not sent a request yet.
    fn close_idle(self: &Rc<Self>) {
        let idle: Vec<_> = {
            let connections = self.connections.borrow();
            let parked = connections
                .iter()
                .filter_map(|(key, connection)| Some((key, connection.parked?)));
            parked.collect()
        };
        for (key, parked) in idle {
            // A connection that has just become readable, or that is active, still responds.
            let Some(socket) = parked.unpark() else {
                continue;
            };
            let parked_state = std::mem::take(&mut self.connections.borrow_mut()[key].parked_state);
            match parked_state {
                ParkedState::Nothing => {
                    self.remove(key);
                    socket.finish();
                }
                ParkedState::Fresh => self.park_fresh(socket, key),
                ParkedState::ProxyHeader(incomplete) => {
                    self.park_for_proxy_header(socket, key, incomplete);
                }
                ParkedState::Tls(parked) => self.close_secure(parked.unpark(socket), key),
                ParkedState::Multiplexed(conn) => {
                    self.remove(key);
                    conn.finish(conn.unpark(socket));
                }
            }
        }
    }

    /// Parks a connection that has received nothing. While draining, it has a short time for its first request: its
    /// client takes the connection for new, and would not send the request again.
    fn park_fresh(self: &Rc<Self>, socket: Socket, key: usize) {
        let within = self.within_drain(self.first_byte_timeout());
        let tag = key as u64 | IS_FRESH;
        let me: Rc<dyn Resume> = Rc::<Self>::clone(self);
        let parked = Transport::Plain(socket).park(me, tag, within);
        let entry = &mut self.connections.borrow_mut()[key];
        entry.parked_state = ParkedState::Fresh;
        if let ParkedTransport::Plain(parked) = parked {
            entry.parked = Some(parked);
        }
    }

    /// Waits for the last exchange, at most until the drain's deadline; then aborts the rest.
    async fn finish(&self) {
        while let Some(deadline) = self.options.drain.deadline() {
            if self.connections.borrow().is_empty() {
                return;
            }
            if blitz_reactor::now() >= deadline {
                return self.abort_all();
            }
            self.wait_empty(deadline).await;
        }
    }

    /// Waits until no connection is left, the deadline has passed, or the deadline has changed.
    async fn wait_empty(&self, deadline: Instant) {
        let mut timer = pin!(blitz_reactor::sleep_until(deadline));
        poll_fn(|cx| {
            *self.empty.borrow_mut() = Some(cx.waker().clone());
            let has_changed = self
                .options
                .drain
                .poll_changed(cx, Some(deadline))
                .is_ready();
            let is_empty = self.connections.borrow().is_empty();
            if has_changed || is_empty {
                Poll::Ready(())
            } else {
                timer.as_mut().poll(cx)
            }
        })
        .await;
    }

    fn abort_all(&self) {
        let connections = self.connections.borrow();
        let tasks = connections
            .iter()
            .filter_map(|(_, connection)| connection.task);
        let tasks: Vec<_> = tasks.collect();
        if !tasks.is_empty() {
            let connections = tasks.len();
            tracing::warn!(connections, "cut off at the end of the drain");
        }
        drop(connections);
        // Each task's guard removes its connection from the table.
        tasks.into_iter().for_each(TaskKey::abort);
    }
}

/// A connection's task: from a received byte until the connection is idle again.
async fn run<S: Service>(
    acceptor: Rc<Acceptor<S>>,
    conn: Rc<exclusive::ServerConn>,
    key: usize,
    first: Slice,
) {
    let mut guard = ConnectionGuard {
        acceptor: &acceptor,
        key: Some(key),
    };
    match exclusive::run_exchanges(&conn, &acceptor.service, first).await {
        exclusive::Disposition::Park(transport) => {
            guard.key = None;
            acceptor.park_idle(transport, key);
        }
        exclusive::Disposition::ParkAgain(transport, empty_lines) => {
            guard.key = None;
            acceptor.park_again(transport, key, empty_lines);
        }
        exclusive::Disposition::Switch(switch) => {
            guard.key = None;
            Rc::clone(&acceptor).start_switched(*switch, key);
        }
        exclusive::Disposition::Closed => {}
    }
    acceptor.free.put(conn, exclusive::ServerConn::clear);
}

/// Removes the connection from the table when its task ends or is aborted.
struct ConnectionGuard<'a, S: Service> {
    acceptor: &'a Acceptor<S>,
    key: Option<usize>,
}

impl<S: Service> Drop for ConnectionGuard<'_, S> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.acceptor.remove(key);
        }
    }
}

impl<S: Service> Resume for Acceptor<S> {
    fn resume(self: Rc<Self>, socket: Socket, tag: u64, cause: Cause) {
        if tag & (IS_MULTIPLEXED | AWAITS_PROXY_HEADER) != 0 {
            let key = (tag & !(IS_MULTIPLEXED | AWAITS_PROXY_HEADER)) as usize;
            return match tag & IS_MULTIPLEXED {
                0 => self.receive_proxy_header(socket, key, cause),
                _ => self.resume_multiplexed(socket, key, cause),
            };
        }
        let key = key_of(tag);
        // All cases lead to one call, so that the compiler inlines it.
        let (transport, first) = match (&self.options.tls, cause) {
            (None, Cause::Received(first)) => (Transport::Plain(socket), first),
            (None, cause) => return self.close_plain(socket, key, &cause),
            (Some(_), cause) => {
                match self.receive_secure(socket, key, empty_lines_of(tag), cause) {
                    Some(arrived) => arrived,
                    None => return,
                }
            }
        };
        self.start(transport, tag, first);
    }
}

/// The tag of a parked HTTP/1.1 connection: its key, and the number of empty lines since its last
/// request.
fn tag_of(key: usize, empty_lines: usize) -> u64 {
    key as u64 | (empty_lines.min(EMPTY_LINES_MAX) as u64) << KEY_BITS
}

#[inline]
fn key_of(tag: u64) -> usize {
    (tag & ((1 << KEY_BITS) - 1)) as usize
}

#[inline]
fn empty_lines_of(tag: u64) -> usize {
    (tag >> KEY_BITS) as usize & EMPTY_LINES_MAX
}

/// Bits of a tag for the key; the highest bit of the tag marks HTTP/2.
const KEY_BITS: u32 = 32;
/// Marks the tag of a connection that has received nothing: only its first bytes may be those of HTTP/2.
const IS_FRESH: u64 = 1 << 62;
/// Maximum of empty lines that a tag can hold.
const EMPTY_LINES_MAX: usize = (1 << 16) - 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::{Exchange, ServiceFn};

    fn size_of_output<A, B, C, D, Fut>(_: impl FnOnce(A, B, C, D) -> Fut) -> usize {
        size_of::<Fut>()
    }

    /// The sizes of rule 5: a connection's task without the service's own future, and the table
    /// entry of an idle connection.
    #[test]
    fn tasks_and_idle_connections_are_small() {
        type Immediate = ServiceFn<fn(Exchange) -> std::future::Ready<()>>;
        let task = size_of_output(run::<Immediate>);
        assert!(task <= 512, "a task takes {task} bytes");
        assert!(
            size_of::<ConnectionEntry>() <= 48,
            "an entry takes {}",
            size_of::<ConnectionEntry>()
        );
    }
}
