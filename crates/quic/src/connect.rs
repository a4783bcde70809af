//! The part of endpoints of clients: connecting to servers.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use blitz_reactor::DatagramSocket;
use quinn_proto::ClientConfig;

use crate::connection::Connection;
use crate::endpoint::{Endpoint, Parts, Protocol, VERSION_1};
use crate::keys::Keys;
use crate::limits::Limits;

/// Why a connection was not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectError {
    /// There are [`Limits::connections_max`] connections.
    Full,
    /// The endpoint has ended, or is about to.
    Ended,
    /// The address or the cryptography cannot be used.
    Unusable,
}

impl<P: Protocol> Endpoint<P> {
    /// An endpoint of the calling core that connects to servers and accepts no connections. Its socket is its own, and
    /// all its connections share it.
    #[must_use]
    pub fn client(socket: DatagramSocket, protocol: P, keys: &Keys, limits: Limits) -> Endpoint<P> {
        let parts = Parts {
            keys: keys.clone(),
            cores: 1,
            transport: limits.transport(),
            limits,
            server: None,
            config: None,
        };
        Endpoint::of_parts(socket, protocol, parts)
    }

    /// Begins a connection to a server, with TLS and tokens (RFC 9000, section 8.1.3) from `config`, whose other
    /// settings are replaced by those of the endpoint. `server_name` is passed to the cryptography, and names the
    /// tokens. [`Connection::established`] waits for the handshake.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn connect(
        &self,
        to: SocketAddr,
        server_name: &str,
        mut config: ClientConfig,
    ) -> Result<Rc<Connection<P>>, ConnectError> {
        let shared = &self.0;
        if shared.is_closing.get() || shared.ends_when_empty.get() {
            return Err(ConnectError::Ended);
        }
        if shared.open.get() >= shared.limits.connections_max {
            return Err(ConnectError::Full);
        }
        config
            .transport_config(Arc::clone(&shared.transport))
            .version(VERSION_1);
        let now = blitz_reactor::now();
        let begun = shared.guard(|quinn| quinn.connect(now, config, to, server_name).ok());
        let Some((handle, quic)) = begun.flatten() else {
            return Err(ConnectError::Unusable);
        };
        let due = now + shared.limits.handshake_timeout;
        let connection = Connection::to_server(quic, handle, shared, due);
        shared.counters.connects.add(1);
        shared.insert(Rc::clone(&connection));
        Ok(connection)
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConnectError::Full => "the endpoint has as many connections as it may",
            ConnectError::Ended => "the endpoint has ended",
            ConnectError::Unusable => "the address or the cryptography cannot be used",
        })
    }
}

impl Error for ConnectError {}
