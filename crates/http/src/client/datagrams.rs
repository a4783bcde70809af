//! Connections of QUIC to servers, and the endpoints that they share.

use std::cell::RefCell;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::{Rc, Weak};

use blitz_quic::quinn_proto::ConnectionError;
use blitz_quic::{ConnectError, Connection, Endpoint, Keys};
use blitz_reactor::{Address, DatagramSocket, core_local, read_clock};

use super::connect::ConnectTimings;
use super::connection::ConnectOptions;
use crate::conn::datagrams::{ClientRole, Conn, Datagrams, NO_ERROR, Shared};
use crate::counters::count;
use crate::error::ClientError;
use crate::options::ClientOptions;
use crate::quic_limits;
use crate::tls::{Handshakes, TlsError, failure_with_server};

/// An endpoint with a socket of its own, as long as it has users; its task ends some time after the last connection.
pub(super) struct KeptEndpoint {
    endpoint: Endpoint<Datagrams<ClientRole>>,
    shared: Rc<Shared<ClientRole>>,
    is_ipv6: bool,
}

/// A new connection, after its handshake.
pub(super) async fn connect(
    address: &Address,
    options: &ConnectOptions,
    handshakes: Handshakes,
) -> Result<(Rc<Conn<ClientRole>>, Rc<KeptEndpoint>, ConnectTimings), ClientError> {
    let began = read_clock();
    let connected = establish(address, options, handshakes).await;
    count(|counters| match connected {
        Ok(_) => counters.upstream_connects += 1,
        Err(_) => counters.upstream_connect_failures += 1,
    });
    let (conn, endpoint) = connected?;
    let timings = ConnectTimings {
        began,
        connect: None,
        handshake: Some(read_clock() - began),
        is_resumed: conn.info().is_some_and(|tls| tls.is_resumed),
    };
    Ok((conn, endpoint, timings))
}

async fn establish(
    address: &Address,
    options: &ConnectOptions,
    handshakes: Handshakes,
) -> Result<(Rc<Conn<ClientRole>>, Rc<KeptEndpoint>), ClientError> {
    let (Address::Tcp(to), Some(tls)) = (address, &options.tls) else {
        return Err(ClientError::ConnectFailed(io::ErrorKind::InvalidInput));
    };
    let endpoint =
        endpoint(options, *to).map_err(|error| ClientError::from_connect(&error, address))?;
    let (config, name) = tls.datagrams(handshakes);
    let begun = endpoint.endpoint.connect(*to, &name, config);
    let opening = Opening(begun.map_err(|error| match error {
        ConnectError::Full => ClientError::Busy,
        ConnectError::Ended | ConnectError::Unusable => {
            ClientError::ConnectFailed(io::ErrorKind::InvalidInput)
        }
    })?);
    opening
        .0
        .established()
        .await
        .map_err(|reason| error_of(&opening.0, &reason))?;
    match opening.0.state() {
        Some(conn) => Ok((Rc::clone(conn), endpoint)),
        None => Err(ClientError::TlsHandshake(TlsError::Internal)),
    }
}

/// A connection whose handshake is not awaited any more when this is dropped.
struct Opening(Rc<Connection<Datagrams<ClientRole>>>);

impl Drop for Opening {
    fn drop(&mut self) {
        if self.0.state().is_none() {
            self.0.close(NO_ERROR, "");
        }
    }
}

/// Why a handshake has failed.
fn error_of(
    connection: &Connection<Datagrams<ClientRole>>,
    reason: &ConnectionError,
) -> ClientError {
    let known = connection.look(|quic| {
        let is_silent = quic.stats().udp_rx.datagrams == 0;
        let error = failure_with_server(quic.crypto_session(), reason);
        (is_silent, error)
    });
    match (known, reason) {
        (Some((true, _)), ConnectionError::TimedOut) => ClientError::ConnectTimedOut,
        (Some((_, error)), _) => ClientError::TlsHandshake(error),
        (None, _) => ClientError::TlsHandshake(TlsError::Internal),
    }
}

/// The endpoint for a connection to this address.
fn endpoint(options: &ConnectOptions, to: SocketAddr) -> io::Result<Rc<KeptEndpoint>> {
    ENDPOINTS.with_borrow_mut(|all| {
        all.retain(|kept| kept.strong_count() > 0);
        let is_same = |kept: &Rc<KeptEndpoint>| Rc::ptr_eq(kept.shared.options(), &options.client);
        let known = || all.iter().filter_map(Weak::upgrade).filter(is_same);
        if !options.own_socket
            && let Some(kept) = known().find(|kept| kept.is_ipv6 == to.is_ipv6())
        {
            return Ok(kept);
        }
        // The state that connections share outlives their endpoint.
        let shared = known().next().map(|kept| Rc::clone(&kept.shared));
        let kept = KeptEndpoint::open(&options.client, shared, to.is_ipv6())?;
        all.push(Rc::downgrade(&kept));
        Ok(kept)
    })
}

impl KeptEndpoint {
    fn open(
        options: &Rc<ClientOptions>,
        shared: Option<Rc<Shared<ClientRole>>>,
        is_ipv6: bool,
    ) -> io::Result<Rc<KeptEndpoint>> {
        let any: SocketAddr = match is_ipv6 {
            false => (Ipv4Addr::UNSPECIFIED, 0).into(),
            true => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = DatagramSocket::bind(any)?;
        let keys = keys_of_core()?;
        let shared = shared.unwrap_or_else(|| Shared::new(Rc::clone(options), ()));
        let limits = quic_limits::of_client(&options.limits);
        let endpoint = Endpoint::client(socket, Datagrams(Rc::clone(&shared)), &keys, limits);
        let running = endpoint.clone();
        blitz_reactor::spawn(async move { running.run().await });
        Ok(Rc::new(KeptEndpoint {
            endpoint,
            shared,
            is_ipv6,
        }))
    }
}

impl Drop for KeptEndpoint {
    fn drop(&mut self) {
        self.endpoint.end_when_empty();
    }
}

/// The secrets of all endpoints of this core.
fn keys_of_core() -> io::Result<Keys> {
    KEYS.with_borrow_mut(|keys| match keys {
        Some(keys) => Ok(keys.clone()),
        None => {
            let made = Keys::new().map_err(io::Error::other)?;
            Ok(keys.insert(made).clone())
        }
    })
}

core_local! {
    static ENDPOINTS: RefCell<Vec<Weak<KeptEndpoint>>> = const { RefCell::new(Vec::new()) };
    static KEYS: RefCell<Option<Keys>> = const { RefCell::new(None) };
}
