//! HTTP/3 as the endpoint of QUIC sees it.

use std::rc::Rc;

use blitz_proto::h3::Code;
use blitz_quic::quinn_proto::{ConnectionError, StreamEvent};
use blitz_quic::{Connection, Protocol};

use super::driver::{Conn, Shared, id_of};
use super::role::Role;

/// The code of a graceful close.
pub(crate) const NO_ERROR: u32 = Code::NO_ERROR.0 as u32;

/// HTTP/3 on the connections of an endpoint.
pub(crate) struct Http3<R: Role>(pub(crate) Rc<Shared<R>>);

impl<R: Role> Protocol for Http3<R> {
    type State = Rc<Conn<R>>;

    const EXCESSIVE_LOAD: u32 = Code::EXCESSIVE_LOAD.0 as u32;

    fn connected(&self, connection: &Rc<Connection<Http3<R>>>) -> Rc<Conn<R>> {
        R::connected(&self.0, connection)
    }

    fn migrated(&self, connection: &Rc<Connection<Http3<R>>>) {
        if let Some(conn) = connection.state() {
            R::migrated(conn, connection);
        }
    }

    fn before_sending(&self, connection: &Rc<Connection<Http3<R>>>) {
        if let Some(conn) = connection.state() {
            conn.driver.borrow_mut().settle();
        }
    }

    fn stream(&self, connection: &Rc<Connection<Http3<R>>>, event: StreamEvent) {
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
            StreamEvent::Available { .. } => {
                R::streams_available(driver);
                Ok(())
            }
        });
    }

    fn deadline(&self, connection: &Rc<Connection<Http3<R>>>) {
        if let Some(conn) = connection.state() {
            conn.deadline();
        }
    }

    fn evict(&self) -> bool {
        R::evict(&self.0)
    }

    fn failed(&self, connection: &Rc<Connection<Http3<R>>>, reason: &ConnectionError) {
        R::handshake_failed(&self.0, connection, reason);
    }

    fn lost(&self, connection: &Rc<Connection<Http3<R>>>, reason: &ConnectionError) {
        if let Some(conn) = connection.state() {
            tracing::trace!(cause = %reason, "QUIC connection lost");
            conn.lost();
        }
    }
}
