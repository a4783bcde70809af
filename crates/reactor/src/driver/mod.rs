//! The operation set, and the drivers that carry it out (one folder each, same file names).
//!
//! An operation is started with the socket's key and reports back as an [`Event`] of a later
//! turn. Receiving and accepting may report several times (`more`); every operation reports a
//! last time, also when it was cancelled, and only then may its memory and descriptor go.

mod epoll;
mod notify;
pub mod probe;
#[cfg(feature = "simulation")]
pub(crate) mod sim;
mod system;
mod uring;

use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::buffer::{Pool, Slice};
use crate::counters::CounterCells;
use crate::mailbox::Mailbox;
use crate::socket::{Address, Pending, SocketKey};

pub(crate) use self::notify::{Notifier, RingHandle};
use self::system::RawAddress;
pub(crate) use self::system::{
    Mapping, NO_BUFFERS, SendBuffers, SendVectors, UnixListener, enlarge_descriptor_table,
    is_aborted_by_peer, is_cancelled, note_processors, pin_to, processors, raise_descriptor_limit,
    reserve, trim_heap,
};

/// Which driver to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IoChoice {
    /// io_uring where the kernel allows it, epoll elsewhere.
    #[default]
    Auto,
    /// io_uring, or an error.
    Uring,
    /// epoll.
    Epoll,
}

/// The driver that is active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverKind {
    /// io_uring.
    Uring,
    /// epoll, edge-triggered.
    Epoll,
    /// The network of a simulation, in tests.
    Simulated,
}

impl std::fmt::Display for DriverKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DriverKind::Uring => "io_uring",
            DriverKind::Epoll => "epoll",
            DriverKind::Simulated => "simulation",
        })
    }
}

/// What a driver calls a socket or listener that it has open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handle(RawFd);

impl Handle {
    fn of(fd: RawFd) -> Handle {
        Handle(fd)
    }

    fn fd(self) -> RawFd {
        self.0
    }
}

/// A listener that was opened.
pub(crate) struct Listening {
    pub(crate) handle: Handle,
    /// Where it listens, with the port that was settled.
    pub(crate) address: Address,
    /// Keeps the file of a unix socket.
    pub(crate) file: Option<Arc<UnixListener>>,
}

/// Who does what blocks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Workers {
    /// Threads of the process.
    #[default]
    Threads,
    /// The calling thread, at once.
    #[cfg(feature = "simulation")]
    Caller,
}

impl Workers {
    pub(crate) fn submit(self, job: system::Job) {
        match self {
            Workers::Threads => system::submit(job),
            #[cfg(feature = "simulation")]
            Workers::Caller => job(),
        }
    }
}

/// What an operation reports.
pub(crate) enum Event {
    Accepted {
        listener: u32,
        result: Result<Handle, i32>,
        more: bool,
    },
    Connected {
        socket: SocketKey,
        error: i32,
    },
    Received {
        socket: SocketKey,
        received: Received,
        more: bool,
    },
    Sent {
        socket: SocketKey,
        result: Result<usize, i32>,
    },
}

/// What a receive reports.
pub(crate) enum Received {
    Bytes(Slice),
    /// FIN.
    End,
    /// The pool was empty (rule 2).
    NoBuffers,
    /// It ended without news: cancelled, or its limit was reached.
    Nothing,
    Failed(i32),
}

/// How a driver waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// At most this long; `None` waits until something happens.
    pub(crate) wait: Option<Duration>,
    /// Sockets that are busy: with many of them, waiting a moment for several reports costs
    /// nobody anything and saves system calls.
    pub(crate) busy: usize,
    /// Whether more begins once what has happened is known: the driver then finds out about as much
    /// of it as it can, not only about as much as one call tells.
    pub(crate) thorough: bool,
}

/// A driver. An enum, not a type parameter: the choice is made at run time and costs a
/// predictable branch.
pub(crate) enum Driver {
    Uring(Box<uring::Uring>),
    Epoll(Box<epoll::Epoll>),
    #[cfg(feature = "simulation")]
    Sim(Box<sim::Sim>),
}

/// Passes a call on to the driver that is there.
macro_rules! each {
    ($self:ident, $driver:ident => $call:expr) => {
        match $self {
            Driver::Uring($driver) => $call,
            Driver::Epoll($driver) => $call,
            #[cfg(feature = "simulation")]
            Driver::Sim($driver) => $call,
        }
    };
}

/// Returns what the simulated driver says, if that is the driver.
macro_rules! if_simulated {
    ($self:ident, $driver:ident => $call:expr) => {
        #[cfg(feature = "simulation")]
        if let Driver::Sim($driver) = $self {
            return $call;
        }
    };
}

impl Driver {
    /// Opens the chosen driver.
    pub(crate) fn open(choice: IoChoice, pool: &Rc<Pool>, mailbox: &Mailbox) -> io::Result<Driver> {
        if choice != IoChoice::Epoll {
            match uring::Uring::open(pool, mailbox) {
                Ok(uring) => return Ok(Driver::Uring(Box::new(uring))),
                Err(error) if choice == IoChoice::Uring => return Err(error),
                Err(_) => {}
            }
        }
        Ok(Driver::Epoll(Box::new(epoll::Epoll::open(mailbox)?)))
    }

    pub(crate) fn kind(&self) -> DriverKind {
        match self {
            Driver::Uring(_) => DriverKind::Uring,
            Driver::Epoll(_) => DriverKind::Epoll,
            #[cfg(feature = "simulation")]
            Driver::Sim(_) => DriverKind::Simulated,
        }
    }

    /// The time at this moment.
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        if_simulated!(self, sim => sim.now());
        Instant::now()
    }

    /// Wall-clock time at this moment.
    pub(crate) fn wall(&self) -> SystemTime {
        if_simulated!(self, sim => sim.wall());
        SystemTime::now()
    }

    /// A seed for jitter and choices.
    pub(crate) fn entropy(&self) -> u64 {
        if_simulated!(self, sim => sim.entropy());
        system::entropy()
    }

    pub(crate) fn workers(&self) -> Workers {
        if_simulated!(self, _sim => Workers::Caller);
        Workers::Threads
    }

    /// Whether descriptors must be in non-blocking mode.
    fn nonblocking(&self) -> bool {
        matches!(self, Driver::Epoll(_))
    }

    /// Opens a socket that will connect to `address`.
    pub(crate) fn open_socket(&mut self, address: &Address) -> io::Result<Handle> {
        if_simulated!(self, sim => Ok(sim.open_socket(address)));
        system::open(address, self.nonblocking())
    }

    /// Binds and listens; a port can be shared with other cores.
    pub(crate) fn listen(&mut self, address: &Address) -> io::Result<Listening> {
        if_simulated!(self, sim => sim.listen(address));
        system::listen_for_core(address, self.nonblocking())
    }

    /// The address of the other end; `None` on a unix socket.
    pub(crate) fn peer(&self, handle: Handle) -> Option<SocketAddr> {
        if_simulated!(self, sim => sim.peer(handle));
        system::peer(handle.fd()).ok().flatten()
    }

    /// The address of this end; `None` on a unix socket.
    pub(crate) fn local(&self, handle: Handle) -> Option<SocketAddr> {
        if_simulated!(self, sim => sim.local(handle));
        system::local(handle.fd()).ok().flatten()
    }

    /// Sends FIN. An error means that the connection is gone, which receiving reports.
    pub(crate) fn shutdown_write(&mut self, handle: Handle) {
        if_simulated!(self, sim => sim.shutdown_write(handle));
        system::shutdown_write(handle.fd());
    }

    /// Makes the coming close send RST.
    pub(crate) fn reset_on_close(&mut self, handle: Handle) {
        if_simulated!(self, sim => sim.reset_on_close(handle));
        system::linger_zero(handle.fd());
    }

    /// Closes a socket or listener on which nothing is pending.
    pub(crate) fn close(&mut self, handle: Handle) {
        if_simulated!(self, sim => sim.close(handle));
        if let Driver::Epoll(epoll) = self {
            epoll.forget(handle.fd());
        }
        system::close(handle.fd());
    }

    /// A socket begins to exist.
    pub(crate) fn register(&mut self, socket: SocketKey, handle: Handle) {
        if_simulated!(self, sim => sim.register(socket, handle));
        if let Driver::Epoll(epoll) = self {
            epoll.register(socket, handle.fd());
        }
    }

    /// Accepts until cancelled or failed.
    pub(crate) fn accept(&mut self, listener: u32, handle: Handle) {
        each!(self, driver => driver.accept(listener, handle.fd()));
    }

    /// Ends accepting; the last report still comes.
    pub(crate) fn cancel_accept(&mut self, listener: u32, handle: Handle) {
        each!(self, driver => driver.cancel_accept(listener, handle.fd()));
    }

    /// Connects to the address that the socket was opened for.
    pub(crate) fn connect(&mut self, socket: SocketKey, handle: Handle, address: &Address) {
        if_simulated!(self, sim => sim.connect(socket, handle));
        let address = RawAddress::new(address).expect("a socket was opened for it");
        match self {
            Driver::Uring(uring) => uring.connect(socket, handle.fd(), address),
            Driver::Epoll(epoll) => epoll.connect(socket, handle.fd(), address),
            #[cfg(feature = "simulation")]
            Driver::Sim(_) => {}
        }
    }

    /// Receives at most `limit` bytes in all, then reports a last time (rule 1). The driver may
    /// end it earlier.
    pub(crate) fn receive(&mut self, socket: SocketKey, handle: Handle, limit: usize) {
        each!(self, driver => driver.receive(socket, handle.fd(), limit));
    }

    /// Sends some or all of `buffers`, whose memory the caller keeps until the report.
    pub(crate) fn send(&mut self, socket: SocketKey, handle: Handle, buffers: SendBuffers) {
        each!(self, driver => driver.send(socket, handle.fd(), buffers));
    }

    /// Ends one pending operation; its last report still comes.
    pub(crate) fn cancel(&mut self, socket: SocketKey, handle: Handle, operation: Pending) {
        each!(self, driver => driver.cancel(socket, handle.fd(), operation));
    }

    /// Wakes the core behind another ring; false if this driver has no ring.
    pub(crate) fn message_ring(&mut self, ring: RingHandle) -> bool {
        match self {
            Driver::Uring(uring) => uring.message_ring(ring.0),
            _ => false,
        }
    }

    /// How many receives can be started without running out of buffers at once.
    pub(crate) fn buffers_ready(&mut self, pool: &Pool) -> usize {
        match self {
            Driver::Uring(uring) => uring.buffers_ready(pool),
            _ if pool.available() == 0 => 0,
            // Each takes a buffer when it has received, or a ration and none.
            _ => pool.free(),
        }
    }

    /// Takes back the buffers beyond those that a core begins with, and lends no others for as long
    /// as these suffice; false if the kernel may have filled some that were not looked at.
    pub(crate) fn shrink(&mut self, pool: &Pool) -> bool {
        match self {
            Driver::Uring(uring) => uring.shrink(pool),
            _ => true,
        }
    }

    /// One turn: hands over what was started, and waits. What is reported is then taken with the
    /// driver's own `next`, until there is none.
    pub(crate) fn turn(
        &mut self,
        patience: Patience,
        pool: &Rc<Pool>,
        counters: &CounterCells,
    ) -> io::Result<()> {
        match self {
            Driver::Uring(uring) => uring.turn(patience, pool, counters),
            Driver::Epoll(epoll) => epoll.turn(patience, counters),
            #[cfg(feature = "simulation")]
            Driver::Sim(sim) => {
                sim.turn(pool, counters);
                Ok(())
            }
        }
    }

    /// Whether the mailbox was rung since the last question.
    pub(crate) fn take_mail(&mut self) -> bool {
        each!(self, driver => std::mem::take(&mut driver.mail))
    }
}
