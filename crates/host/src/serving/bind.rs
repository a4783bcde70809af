//! The sockets of listeners, bound before a core serves them.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use blitz_http::{Address, DatagramListener, Listener, Reservation};

use super::core::Number;
use super::error::StartError;
use super::listener::ListenerConfig;

/// The listeners that a service is to have. Their addresses are kept for it, and no core serves the new ones yet.
#[derive(Debug)]
pub struct NewListeners {
    pub(super) entries: Vec<ServiceListener>,
}

/// A listener that is open, or that will be.
#[derive(Debug)]
pub(super) struct ServiceListener {
    /// As the program has asked for it.
    pub(super) asked: ListenerConfig,
    /// With the actual port, and HTTP/3 only where its port could be bound.
    pub(super) config: ListenerConfig,
    /// `None` until the cores serve it.
    pub(super) number: Option<Number>,
    /// Keeps the address until the cores listen.
    pub(super) reservation: Option<Reservation>,
}

impl ServiceListener {
    /// One whose address is kept from now on.
    fn reserved(
        asked: ListenerConfig,
        reserve: impl Fn(&Address) -> io::Result<Reservation>,
    ) -> Result<ServiceListener, StartError> {
        let address = &asked.address;
        match check_path(address).and_then(|()| reserve(address)) {
            Ok(reservation) => Ok(ServiceListener {
                config: ListenerConfig {
                    address: reservation.address().clone(),
                    ..asked.clone()
                },
                asked,
                number: None,
                reservation: Some(reservation),
            }),
            Err(error) => Err(StartError::Listen(asked.address, error)),
        }
    }

    /// Whether it is the same as one that is asked for, with port 0 or with the actual port.
    fn is_same(&self, asked: &ListenerConfig) -> bool {
        self.asked.is_same(asked) || self.config.is_same(asked)
    }
}

impl NewListeners {
    /// The listeners, with port 0 replaced by the actual port.
    pub fn configs(&self) -> impl Iterator<Item = &ListenerConfig> {
        self.entries.iter().map(|entry| &entry.config)
    }

    /// These listeners and others.
    #[must_use]
    pub fn and(mut self, others: NewListeners) -> NewListeners {
        self.entries.extend(others.entries);
        self
    }

    /// Has clients of paths that other listeners of this process have reach these.
    pub(super) fn take_paths(&self) -> Result<(), StartError> {
        let mut entries = self.entries.iter();
        entries.try_for_each(|entry| match &entry.reservation {
            Some(reservation) => reservation
                .take_path()
                .map_err(|error| StartError::Listen(entry.config.address.clone(), error)),
            None => Ok(()),
        })
    }

    /// `reserve` is called for those that no entry of `open` serves already.
    pub(super) fn new(
        configs: impl IntoIterator<Item = ListenerConfig>,
        open: &[ServiceListener],
        reserve: impl Fn(&Address) -> io::Result<Reservation>,
    ) -> Result<NewListeners, StartError> {
        let mut open: Vec<_> = open.iter().collect();
        let configs: Vec<_> = configs.into_iter().collect();
        for (at, asked) in configs.iter().enumerate() {
            let mut before = configs[..at].iter();
            if before.any(|other| overlap(&other.address, &asked.address)) {
                let problem = "another listener of this process has the address";
                let error = io::Error::new(io::ErrorKind::InvalidInput, problem);
                return Err(StartError::Listen(asked.address.clone(), error));
            }
        }
        let mut numbered: Vec<_> = configs.into_iter().enumerate().collect();
        // Clients can connect to a unix socket from now on, so no address may be waited for after it.
        numbered.sort_by_key(|(_, asked)| matches!(asked.address, Address::Unix(_)));
        let entries = numbered.into_iter().map(|(at, asked)| {
            let same = open.iter().position(|entry| entry.is_same(&asked));
            let entry = match same.map(|same| open.swap_remove(same)) {
                Some(same) => ServiceListener {
                    config: same.config.clone(),
                    number: same.number,
                    asked,
                    reservation: None,
                },
                None => ServiceListener::reserved(asked, &reserve)?,
            };
            Ok((at, entry))
        });
        let mut entries: Vec<_> = entries.collect::<Result<_, StartError>>()?;
        entries.sort_by_key(|(at, _)| *at);
        let entries = entries.into_iter().map(|(_, entry)| entry).collect();
        Ok(NewListeners { entries })
    }
}

/// Checks that no other program listens on these addresses, and keeps them until the cores listen; port 0
/// becomes a free one. Call it once, before the cores [start](super::start). Waits for about a second while an
/// address is in use, because a process that was killed may still be releasing it.
///
/// # Errors
/// [`StartError::Listen`] for the first address that cannot be listened on.
pub fn reserve(
    configs: impl IntoIterator<Item = ListenerConfig>,
) -> Result<NewListeners, StartError> {
    NewListeners::new(configs, &[], Listener::reserve)
}

/// [`reserve`] for addresses that the program can do without: it does not wait until one is released.
///
/// # Errors
/// The same.
pub fn try_reserve(
    configs: impl IntoIterator<Item = ListenerConfig>,
) -> Result<NewListeners, StartError> {
    NewListeners::new(configs, &[], Listener::try_reserve)
}

/// [`try_reserve`] for a unix socket that only the user of this process can connect to.
///
/// # Errors
/// The same.
pub fn try_reserve_private(path: PathBuf) -> Result<NewListeners, StartError> {
    let path = Arc::new(path);
    let config = ListenerConfig::from(Address::Unix(Arc::clone(&path)));
    NewListeners::new([config], &[], |_| Listener::try_reserve_private(&path))
}

/// [`reserve`] for an address beside those of the listeners that are open. Where one of them has the same port, it
/// may be open for the new address as well, which only other programs may not be.
pub(super) fn reserve_beside(
    open: &[ServiceListener],
    address: &Address,
) -> io::Result<Reservation> {
    let port = port_of(address);
    let has_port =
        |entry: &ServiceListener| port.is_some() && port_of(&entry.config.address) == port;
    match open.iter().any(has_port) {
        true => Listener::reserve_shared(address),
        // It waits for one of ours that is being closed.
        false => Listener::reserve(address),
    }
}

/// Whether two listeners would share connections. Port 0 becomes another one each time.
fn overlap(a: &Address, b: &Address) -> bool {
    let covers = |outer: &SocketAddr, inner: &SocketAddr| {
        outer.ip() == inner.ip()
            || outer.ip().is_unspecified() && (outer.is_ipv6() || inner.is_ipv4())
    };
    match (a, b) {
        (Address::Tcp(a), Address::Tcp(b)) => {
            a.port() != 0 && a.port() == b.port() && (covers(a, b) || covers(b, a))
        }
        (Address::Unix(a), Address::Unix(b)) => a == b,
        _ => false,
    }
}

/// The port that is asked for, if one is.
fn port_of(address: &Address) -> Option<u16> {
    match address {
        Address::Tcp(address) => Some(address.port()).filter(|port| *port != 0),
        Address::Unix(_) => None,
    }
}

/// Refuses a path with a file that is not a socket. Such a file refuses connections as a stale socket
/// does, but must not be removed.
fn check_path(address: &Address) -> io::Result<()> {
    let Address::Unix(path) = address else {
        return Ok(());
    };
    match fs::symlink_metadata(&**path) {
        Ok(found) if !found.file_type().is_socket() => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "the path exists and is not a socket",
        )),
        // Binding reports other problems of the path.
        _ => Ok(()),
    }
}

/// A listener, and its UDP sockets if it serves HTTP/3.
pub type BoundConfig = (ListenerConfig, Option<DatagramListener>);

/// How long the start waits for UDP ports in use: a process that was told to end keeps its port until its
/// HTTP/3 connections are closed, about 3 s after their last response, although its TCP port is free at once.
pub(super) const DATAGRAMS_WAIT_MAX: Duration = Duration::from_secs(5);

/// Time between attempts to bind them.
const DATAGRAMS_CHECK: Duration = Duration::from_millis(50);

/// Binds the UDP sockets of a new listener beside those that are open. An address that cannot be bound has no HTTP/3.
pub(super) fn bind_datagrams(
    config: &mut ListenerConfig,
    open: &[ServiceListener],
    cores: usize,
    end: Instant,
) -> Option<DatagramListener> {
    let Some(address) = datagrams_address(config) else {
        config.http3 = false;
        return None;
    };
    let bind = || bind_beside(address, open, cores);
    let datagrams = bind_until(bind, address, end).inspect_err(|error| {
        let remedy = datagrams_remedy(address, error);
        tracing::warn!(
            "no HTTP/3 at UDP {address}: {error}; clients use HTTP/2, and HTTP/3 a second after the port can be bound. \
             {remedy}"
        );
    });
    config.http3 = datagrams.is_ok();
    datagrams.ok()
}

/// The UDP sockets that an open listener lacks, if they can be bound now, and its settings with them.
pub(super) fn missing_datagrams(
    entry: &ServiceListener,
    open: &[ServiceListener],
    cores: usize,
) -> Option<(ListenerConfig, DatagramListener)> {
    if entry.config.http3 {
        return None;
    }
    let config = ListenerConfig {
        http3: entry.asked.http3,
        ..entry.config.clone()
    };
    let address = datagrams_address(&config)?;
    let datagrams = bind_beside(address, open, cores).ok()?;
    Some((config, datagrams))
}

/// Where HTTP/3 is served, if it is.
fn datagrams_address(config: &ListenerConfig) -> Option<SocketAddr> {
    match config.address {
        Address::Tcp(_) if config.proxy_protocol => None,
        Address::Tcp(address) if config.http3 && config.tls.is_some() => Some(address),
        _ => None,
    }
}

fn bind_beside(
    address: SocketAddr,
    open: &[ServiceListener],
    cores: usize,
) -> io::Result<DatagramListener> {
    let own = Address::Tcp(address);
    let is_other = |entry: &ServiceListener| {
        let other = &entry.config;
        other.http3 && other.address != own && overlap(&other.address, &own)
    };
    match open.iter().any(is_other) {
        true => DatagramListener::bind_beside(address, cores),
        false => DatagramListener::bind(address, cores),
    }
}

/// Binds the UDP sockets of an address; tries again until `end` while it is in use.
fn bind_until(
    bind: impl Fn() -> io::Result<DatagramListener>,
    address: SocketAddr,
    end: Instant,
) -> io::Result<DatagramListener> {
    let mut is_told = false;
    loop {
        match bind() {
            Err(error) if is_in_use(&error) && Instant::now() < end => {
                if !is_told {
                    is_told = true;
                    tracing::info!(
                        "UDP {address} is in use: waiting up to {DATAGRAMS_WAIT_MAX:?} for it, as a process \
                         that ends keeps it for its last HTTP/3 connections"
                    );
                }
                thread::sleep(DATAGRAMS_CHECK);
            }
            bound => return bound,
        }
    }
}

fn is_in_use(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse
}

fn datagrams_remedy(address: SocketAddr, error: &io::Error) -> String {
    let port = address.port();
    match is_in_use(error) {
        true => format!(
            "Stop the program that has this port, which `ss -lunp 'sport = :{port}'` shows, or let it end"
        ),
        false => "Remove the cause".to_owned(),
    }
}
