//! Serving over QUIC: one endpoint for each core.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use blitz_quic::quinn_proto::crypto::ServerConfig as Crypto;
use blitz_quic::{Endpoint, EndpointOptions, Keys};
use blitz_reactor::{DatagramGroup, DatagramSocket};

use crate::conn::datagrams::{self, Datagrams, ServerRole};
use crate::counters::Included;
use crate::drain::Drain;
use crate::exchange::Service;
use crate::options::ServeOptions;
use crate::quic_limits;
use crate::tls::{QuicTls, ServerTls, TlsSlot};

/// The UDP sockets of one address for HTTP/3, one for each core, with the secrets that they have in common. Bound
/// before the cores start; clones are handles to the same sockets.
#[derive(Clone)]
pub struct DatagramListener {
    sockets: UdpSockets,
    keys: Keys,
    cores: usize,
    /// [`blitz_quic::Limits::retry_above`]; `None` for its default.
    retry_above: Option<usize>,
}

#[derive(Clone)]
enum UdpSockets {
    Bound(DatagramGroup),
    /// Each simulated core binds its own.
    #[cfg(feature = "simulation")]
    Simulated(SocketAddr),
}

impl DatagramListener {
    /// Binds a socket for each of `cores`. Port 0 takes a free one.
    ///
    /// # Errors
    /// The error of `bind(2)`, or there is no randomness.
    pub fn bind(address: SocketAddr, cores: usize) -> io::Result<DatagramListener> {
        DatagramListener::bound(cores, |keys| {
            DatagramGroup::bind(address, cores, keys.steering())
        })
    }

    /// [`DatagramListener::bind`] beside a listener of this process at the same port of another address, one of which
    /// includes the other.
    ///
    /// # Errors
    /// The same.
    pub fn bind_beside(address: SocketAddr, cores: usize) -> io::Result<DatagramListener> {
        DatagramListener::bound(cores, |keys| {
            DatagramGroup::bind_beside(address, cores, keys.steering())
        })
    }

    fn bound(
        cores: usize,
        bind: impl FnOnce(&Keys) -> io::Result<DatagramGroup>,
    ) -> io::Result<DatagramListener> {
        let keys = Keys::new().map_err(io::Error::other)?;
        let group = bind(&keys)?;
        Ok(DatagramListener {
            sockets: UdpSockets::Bound(group),
            keys,
            cores,
            retry_above: None,
        })
    }

    /// A listener of simulated cores. Connection IDs, tokens and random numbers of QUIC follow from `secret`; with
    /// more than `retry_above` incomplete handshakes, clients have to prove their address first.
    #[cfg(feature = "simulation")]
    #[must_use]
    pub fn simulated(
        address: SocketAddr,
        cores: usize,
        secret: &[u8; 32],
        retry_above: usize,
    ) -> DatagramListener {
        DatagramListener {
            sockets: UdpSockets::Simulated(address),
            keys: Keys::repeatable(secret),
            cores,
            retry_above: Some(retry_above),
        }
    }

    /// The bound address, with the actual port.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        match &self.sockets {
            UdpSockets::Bound(group) => group.local(),
            #[cfg(feature = "simulation")]
            UdpSockets::Simulated(address) => *address,
        }
    }

    /// The socket of the calling core. For each core once.
    ///
    /// # Errors
    /// If no descriptor is free.
    pub fn of_core(&self) -> io::Result<CoreDatagramListener> {
        let socket = match &self.sockets {
            UdpSockets::Bound(group) => group.socket()?,
            #[cfg(feature = "simulation")]
            UdpSockets::Simulated(address) => DatagramSocket::bind(*address)?,
        };
        let listener = self.clone();
        Ok(CoreDatagramListener { socket, listener })
    }
}

/// The UDP socket of one core for HTTP/3.
pub struct CoreDatagramListener {
    socket: DatagramSocket,
    listener: DatagramListener,
}

impl CoreDatagramListener {
    /// The bound address, with the actual port.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.listener.local()
    }

    /// Serves all connections of the calling core until the options' [`Drain`] is triggered, and then until the
    /// running exchanges have ended or its deadline has passed. `tls` replaces the options' own settings.
    pub async fn serve<S: Service>(self, tls: &TlsSlot, service: Rc<S>, options: Rc<ServeOptions>) {
        let CoreDatagramListener { socket, listener } = self;
        serve_socket(socket, &listener, tls, service, options).await;
    }
}

async fn serve_socket<S: Service>(
    socket: DatagramSocket,
    listener: &DatagramListener,
    tls: &TlsSlot,
    service: Rc<S>,
    options: Rc<ServeOptions>,
) {
    let drain = options.drain.clone();
    let mut limits = quic_limits::of_listener(&options.limits);
    limits.retry_above = listener.retry_above.unwrap_or(limits.retry_above);
    let settings = EndpointOptions {
        keys: listener.keys.clone(),
        cores: listener.cores,
        limits,
        crypto: crypto(tls.clone()),
    };
    let shared = datagrams::shared(service, options, socket.local());
    let endpoint = Endpoint::new(socket, Datagrams(Rc::clone(&shared)), settings);
    let counted = endpoint.clone();
    let _included = Included::new(move || counted.counters());
    let mut running = pin!(endpoint.run());
    let mut ending = pin!(end(&drain, &shared, &endpoint));
    let mut is_ended = false;
    poll_fn(|cx| {
        if !is_ended {
            is_ended = ending.as_mut().poll(cx).is_ready();
        }
        running.as_mut().poll(cx)
    })
    .await;
}

type Shared = datagrams::Shared<ServerRole>;

/// Waits for the drain, and closes the endpoint behind it.
async fn end(drain: &Drain, shared: &Rc<Shared>, endpoint: &Endpoint<Datagrams<ServerRole>>) {
    poll_fn(|cx| drain.poll_changed(cx, None)).await;
    endpoint.refuse_new();
    shared.drain_all();
    while let Some(deadline) = drain.deadline() {
        if shared.is_empty() {
            break;
        }
        if blitz_reactor::now() >= deadline {
            let connections = shared.count();
            tracing::warn!(connections, "cut off at the end of the drain");
            break;
        }
        wait_empty(drain, shared, deadline).await;
    }
    endpoint.close(datagrams::NO_ERROR, "");
}

/// Waits until no connection is left, the deadline has passed, or the deadline has changed.
async fn wait_empty(drain: &Drain, shared: &Rc<Shared>, deadline: Instant) {
    let mut timer = pin!(blitz_reactor::sleep_until(deadline));
    poll_fn(|cx| {
        shared.wake_when_empty(cx);
        let has_changed = drain.poll_changed(cx, Some(deadline)).is_ready();
        match has_changed || shared.is_empty() {
            true => Poll::Ready(()),
            false => timer.as_mut().poll(cx),
        }
    })
    .await;
}

/// Settings, and the cryptography that was made of them.
type Made = (Arc<ServerTls>, Arc<dyn Crypto>);

/// The cryptography of new connections, which follows the settings of the listener.
fn crypto(tls: TlsSlot) -> Rc<dyn Fn() -> Arc<dyn Crypto>> {
    let made: RefCell<Option<Made>> = RefCell::default();
    Rc::new(move || {
        let current = tls.current();
        let mut made = made.borrow_mut();
        if let Some((of, crypto)) = &*made
            && Arc::ptr_eq(of, &current)
        {
            return Arc::clone(crypto);
        }
        let crypto: Arc<dyn Crypto> = Arc::new(QuicTls::new(&current));
        *made = Some((current, Arc::clone(&crypto)));
        crypto
    })
}
