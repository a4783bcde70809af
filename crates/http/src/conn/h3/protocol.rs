//! HTTP/3 as the endpoint of QUIC sees it.

use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Context;
use std::time::Instant;

use blitz_proto::h3::Code;
use blitz_quic::quinn_proto::{ConnectionError, StreamEvent};
use blitz_quic::{Connection, Protocol};

use super::driver::{Conn, Shared, id_of};
use crate::conn::streams::exchange_task;
use crate::counters::count;
use crate::exchange::{Peer, Scheme, Service};
use crate::options::ServeOptions;
use crate::tls::{TlsInfo, failure_of, log_client_failure, server_name};

/// The code of a graceful close.
pub(crate) const NO_ERROR: u32 = Code::NO_ERROR.0 as u32;

/// Idle connections that are remembered for eviction.
const IDLE_NOTED: usize = 256;

/// Serves HTTP/3 on the connections of an endpoint.
pub(crate) struct Http3(pub(crate) Rc<Shared>);

impl Protocol for Http3 {
    type State = Rc<Conn>;

    fn connected(&self, connection: &Rc<Connection<Http3>>) -> Rc<Conn> {
        let tls = connection
            .look(|quic| quic.crypto_session().handshake_data())
            .flatten()
            .and_then(|data| data.downcast::<Rc<TlsInfo>>().ok());
        count(|counters| {
            counters.accepted += 1;
            counters.connections += 1;
            counters.tls.handshakes += 1;
            counters.tls.version_1_3 += 1;
            counters.tls.resumed += u64::from(tls.as_ref().is_some_and(|tls| tls.is_resumed));
        });
        let peer = Peer {
            remote: Some(connection.remote()),
            listener: Some(self.0.listener),
            scheme: Scheme::Https,
            tls: tls.map(|tls| *tls),
        };
        let conn = Conn::new(peer, connection, &self.0);
        if self.0.is_draining.get() {
            conn.drain();
        }
        conn
    }

    fn migrated(&self, connection: &Rc<Connection<Http3>>) {
        if let Some(conn) = connection.state() {
            // Requests that have begun keep the address.
            let peer = &mut conn.driver.borrow_mut().peer;
            *peer = Rc::new(Peer {
                remote: Some(connection.remote()),
                ..Peer::clone(peer)
            });
        }
    }

    fn before_sending(&self, connection: &Rc<Connection<Http3>>) {
        if let Some(conn) = connection.state() {
            conn.driver.borrow_mut().settle();
        }
    }

    fn stream(&self, connection: &Rc<Connection<Http3>>, event: StreamEvent) {
        let Some(conn) = connection.state() else {
            return;
        };
        conn.work(|driver| match event {
            StreamEvent::Opened { dir } => driver.accept(dir),
            StreamEvent::Readable { id } => driver.readable(id),
            StreamEvent::Writable { id } => {
                driver.writable(id);
                Ok(())
            }
            StreamEvent::Finished { id } => {
                driver.acknowledged(id_of(id));
                Ok(())
            }
            StreamEvent::Stopped { id, error_code } => {
                driver.handle_stopped(id_of(id), Code(error_code.into_inner()))
            }
            StreamEvent::Available { .. } => Ok(()),
        });
    }

    fn deadline(&self, connection: &Rc<Connection<Http3>>) {
        if let Some(conn) = connection.state() {
            conn.deadline();
        }
    }

    fn evict(&self) -> bool {
        loop {
            let next = self.0.idle.borrow_mut().pop();
            match next.map(|conn| conn.upgrade()) {
                Some(Some(conn)) if conn.evict() => return true,
                Some(_) => {}
                None if self.note_idle() => {}
                None => return false,
            }
        }
    }

    fn failed(&self, connection: &Rc<Connection<Http3>>, reason: &ConnectionError) {
        let error = failure_of(reason);
        count(|counters| counters.tls.count_failure(true, error.rule()));
        let name = connection.look(|quic| server_name(quic.crypto_session()));
        let name = name.flatten();
        log_client_failure(Some(connection.remote()), name.as_deref(), error, reason);
    }

    fn lost(&self, connection: &Rc<Connection<Http3>>, reason: &ConnectionError) {
        if let Some(conn) = connection.state() {
            tracing::trace!(cause = %reason, "QUIC connection lost");
            conn.lost();
        }
    }
}

impl Http3 {
    /// Notes the connections that have been idle longest. False if there is none.
    fn note_idle(&self) -> bool {
        let mut idle: Vec<(Instant, Rc<Conn>)> = {
            let connections = self.0.connections.borrow();
            let open = connections.iter().filter_map(|(_, conn)| conn.upgrade());
            open.filter_map(|conn| Some((conn.idle_since()?, conn)))
                .collect()
        };
        idle.sort_unstable_by_key(|(since, _)| *since);
        idle.truncate(IDLE_NOTED);
        let mut noted = self.0.idle.borrow_mut();
        noted.extend(idle.iter().rev().map(|(_, conn)| Rc::downgrade(conn)));
        !noted.is_empty()
    }
}

/// What the connections of a listener share; it serves them with `service`.
pub(crate) fn shared<S: Service>(
    service: Rc<S>,
    options: Rc<ServeOptions>,
    listener: SocketAddr,
) -> Rc<Shared> {
    let start = move |conn: &Rc<Conn>, stream, exchange| {
        let (conn, service) = (Rc::clone(conn), Rc::clone(&service));
        let run = || exchange_task::run(conn, service, stream, exchange);
        if blitz_reactor::spawn_now(run).is_some() {
            blitz_reactor::consume_admission();
        }
    };
    Shared::new(options, listener, Box::new(start))
}

impl Shared {
    /// Tells all clients to go, and new ones at once.
    pub(crate) fn drain_all(&self) {
        self.is_draining.set(true);
        let all: Vec<Rc<Conn>> = {
            let connections = self.connections.borrow();
            let open = connections.iter().filter_map(|(_, conn)| conn.upgrade());
            open.collect()
        };
        all.iter().for_each(Conn::drain);
    }

    /// The number of connections.
    pub(crate) fn count(&self) -> usize {
        self.connections.borrow().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.connections.borrow().is_empty()
    }

    pub(crate) fn wake_when_empty(&self, cx: &Context<'_>) {
        *self.empty.borrow_mut() = Some(cx.waker().clone());
    }
}
