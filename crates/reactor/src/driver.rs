//! The operations, and the drivers that execute them: one folder each, with the same file names.
//!
//! An operation is started with the socket's key and reports a [`Completion`] in a later turn. Receiving
//! and accepting may report several times (`more`). Every operation reports a last time, also when it
//! was cancelled; only then are its memory and descriptor released.

mod epoll;
mod handle;
mod notify;
mod pending;
pub mod probe;
mod report;
#[cfg(feature = "simulation")]
pub(crate) mod sim;
mod system;
mod uring;
mod wait_policy;

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use self::system::RawAddress;
use crate::buffer::Pool;
use crate::counters::CounterCells;
use crate::mailbox::Mailbox;
use crate::socket::{Address, SocketKey};

pub(crate) use self::handle::{Handle, OwnedHandle};
pub(crate) use self::notify::{Notifier, RingHandle};
pub(crate) use self::pending::Pending;
pub(crate) use self::report::{Completion, ReceiveOutcome, ReceivedTrain};

pub(crate) use self::system::{
    Bound, BoundGroup, CorePlacement, Destination, EVICTED, FileSent, Keeper, Listening, Mapping,
    MemoryNode, NO_BUFFERS, OpenFolder, OpenKind, OpenPath, Reserved, SendBuffers, SendVectors,
    SentTrain, ThreadTime, TrainHead, UnixListener, check_descriptors, enlarge_descriptor_table,
    entries, interface_index, is_aborted_by_peer, is_cancelled, is_no_path, is_out_of_descriptors,
    is_shortage, is_train_refused, open_descriptors, out_of_descriptors, parse_train, processors,
    raise_descriptor_limit, reserve, reserve_shared, set_processors, survives_io_uring,
    try_reserve, try_reserve_private,
};
pub use self::system::{
    EntryLimits, FileFacts, FolderEntry, LocalShortage, Share, Steering, SymbolicLinks, open_tun,
    prepare_descriptors, set_idle_priority, set_real_time, trim_heap,
};
pub(crate) use self::wait_policy::WaitPolicy;

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

/// The threads that run blocking jobs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Workers {
    /// The pool of the process.
    #[default]
    Threads,
    /// The calling thread, immediately.
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

    /// Returns the job if `may_refuse` and too many of the share wait already.
    pub(crate) fn submit_shared(
        self,
        share: &Arc<Share>,
        job: system::Job,
        may_refuse: bool,
    ) -> Result<(), system::Job> {
        match self {
            Workers::Threads => system::submit_shared(share, job, may_refuse),
            #[cfg(feature = "simulation")]
            Workers::Caller => {
                job();
                Ok(())
            }
        }
    }
}

/// A driver. An enum instead of a type parameter, because the choice is made at run time; it costs a
/// predictable branch.
pub(crate) enum Driver {
    Uring(Box<uring::Uring>),
    Epoll(Box<epoll::Epoll>),
    #[cfg(feature = "simulation")]
    Sim(Box<sim::Sim>),
}

/// Calls the method of the active driver.
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

/// Returns the result of the simulated driver, if that is active.
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
        let may_try = match choice {
            IoChoice::Auto => survives_io_uring().is_ok(),
            IoChoice::Uring => true,
            IoChoice::Epoll => false,
        };
        if may_try {
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

    /// The current time.
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        if_simulated!(self, sim => sim.now());
        Instant::now()
    }

    /// The current wall-clock time.
    pub(crate) fn wall(&self) -> SystemTime {
        if_simulated!(self, sim => sim.wall());
        SystemTime::now()
    }

    /// A seed for the core's generator of random numbers.
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

    /// Opens a socket for connecting to `address`.
    pub(crate) fn open_socket(&mut self, address: &Address) -> io::Result<Handle> {
        if_simulated!(self, sim => sim.open_socket(address));
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

    /// Whether bytes have arrived that no report has delivered. Only meaningful while
    /// [`Driver::is_reaped`].
    pub(crate) fn has_input(&self, handle: Handle) -> bool {
        if_simulated!(self, sim => sim.has_input(handle));
        system::has_input(handle.fd())
    }

    /// Whether no operation has completed since the reports of this turn were taken. Received bytes of
    /// one that has are neither in the kernel's buffer nor in a socket.
    pub(crate) fn is_reaped(&mut self) -> bool {
        match self {
            Driver::Uring(uring) => uring.is_reaped(),
            _ => true,
        }
    }

    /// Sends FIN. Errors are ignored, because receiving reports a broken connection.
    pub(crate) fn shutdown_write(&mut self, handle: Handle) {
        if_simulated!(self, sim => sim.shutdown_write(handle));
        system::shutdown_write(handle.fd());
    }

    /// Makes the next close send RST.
    pub(crate) fn reset_on_close(&mut self, handle: Handle) {
        if_simulated!(self, sim => sim.reset_on_close(handle));
        system::linger_zero(handle.fd());
    }

    /// Closes a socket or listener on which nothing is pending.
    pub(crate) fn close(&mut self, handle: Handle) {
        if_simulated!(self, sim => sim.close(handle));
        if let Driver::Epoll(epoll) = self {
            epoll.unwatch(handle.fd());
        }
        system::close(handle.fd());
    }

    /// Prepares the driver for operations on a new socket.
    pub(crate) fn register(&mut self, socket: SocketKey, handle: Handle) {
        if_simulated!(self, sim => sim.register(socket, handle));
        if let Driver::Epoll(epoll) = self {
            epoll.register(socket, handle.fd());
        }
    }

    /// Accepts connections until it is cancelled or fails, or only one.
    pub(crate) fn accept(&mut self, listener: u32, handle: Handle, is_one: bool) {
        each!(self, driver => driver.accept(listener, handle.fd(), is_one));
    }

    /// Cancels accepting; its last report follows.
    pub(crate) fn cancel_accept(&mut self, listener: u32, handle: Handle) {
        each!(self, driver => driver.cancel_accept(listener, handle.fd()));
    }

    /// Has a TCP listener drop new connections; those that wait already can still be accepted. Simulated listeners go on.
    pub(crate) fn refuse_new(&self, handle: Handle) {
        #[cfg(feature = "simulation")]
        if matches!(self, Driver::Sim(_)) {
            return;
        }
        system::refuse_new(handle.fd());
    }

    /// A connection that this core has accepted, in a form for another core. Simulated connections have
    /// none.
    pub(crate) fn detach(&self, connection: Handle) -> Result<OwnedHandle, Handle> {
        if_simulated!(self, _sim => Err(connection));
        Ok(OwnedHandle::of(connection))
    }

    /// Connects a socket to the address that it was opened for.
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

    /// Receives at most `limit` bytes in total, then reports a last time (rule 1). The driver may end
    /// the operation earlier.
    pub(crate) fn receive(&mut self, socket: SocketKey, handle: Handle, limit: usize) {
        each!(self, driver => driver.receive(socket, handle.fd(), limit));
    }

    /// Receives once, at most `limit` bytes into a large buffer.
    pub(crate) fn receive_large(&mut self, socket: SocketKey, handle: Handle, limit: usize) {
        each!(self, driver => driver.receive_large(socket, handle.fd(), limit));
    }

    /// Receives at most `limit` bytes into a large buffer at once; `None` if nothing has arrived. No receive
    /// may be pending.
    pub(crate) fn receive_now(
        &mut self,
        socket: SocketKey,
        handle: Handle,
        limit: usize,
        pool: &Rc<Pool>,
    ) -> Option<ReceiveOutcome> {
        if_simulated!(self, sim => sim.receive_now(handle, limit, pool));
        let received = system::receive_now(handle.fd(), limit, pool);
        let is_full = match &received {
            Some(ReceiveOutcome::Bytes(slice)) => slice.len() == limit,
            // The socket may still be readable, which epoll does not report again.
            Some(ReceiveOutcome::NoBuffers | ReceiveOutcome::Nothing) => return received,
            _ => false,
        };
        if let Driver::Epoll(epoll) = self {
            epoll.note_received(socket, is_full);
        }
        received
    }

    /// Sends some or all bytes of `buffers` at once; `None` if the kernel takes none. No send may be
    /// pending.
    pub(crate) fn send_now(&mut self, handle: Handle, buffers: &SendBuffers) -> Option<usize> {
        if_simulated!(self, _sim => None);
        system::send_now(handle.fd(), buffers)
    }

    /// Whether files can be sent to the socket from now on.
    pub(crate) fn allow_send_file(&mut self, handle: Handle) -> bool {
        if_simulated!(self, _sim => false);
        self.nonblocking() || system::allow_send_file(handle.fd()).is_ok()
    }

    /// As [`Driver::send_now`], of bytes that those of a file follow at once.
    pub(crate) fn send_before_file(
        &mut self,
        handle: Handle,
        buffers: &SendBuffers,
    ) -> Option<usize> {
        if_simulated!(self, _sim => None);
        system::send_before_file(handle.fd(), buffers)
    }

    /// Sends some or all bytes of the range of a file at once. Waits for the disk if the range is not in memory. The
    /// socket must allow it.
    pub(crate) fn send_file(
        &mut self,
        handle: Handle,
        file: &OpenPath,
        offset: u64,
        len: usize,
    ) -> FileSent {
        if_simulated!(self, _sim => FileSent::Nothing);
        file.send_to(handle.fd(), offset, len)
    }

    /// Reports when the kernel takes more bytes, after it has taken none.
    pub(crate) fn await_room(&mut self, socket: SocketKey, handle: Handle) {
        match self {
            Driver::Uring(uring) => uring.await_room(socket, handle.fd()),
            Driver::Epoll(epoll) => epoll.await_room(socket, handle.fd()),
            #[cfg(feature = "simulation")]
            Driver::Sim(_) => unreachable!("no file is sent to a simulated socket"),
        }
    }

    /// Sends some or all bytes of `buffers`. The caller keeps their memory until the report.
    pub(crate) fn send(&mut self, socket: SocketKey, handle: Handle, buffers: SendBuffers) {
        each!(self, driver => driver.send(socket, handle.fd(), buffers));
    }

    /// Binds a UDP socket; an address can be shared with other cores.
    pub(crate) fn bind_datagrams(&mut self, address: SocketAddr) -> io::Result<Bound> {
        if_simulated!(self, sim => sim.bind_datagrams(address));
        system::bind_datagrams(address, self.nonblocking())
    }

    /// One of the UDP sockets of a group.
    pub(crate) fn join_datagrams(
        &mut self,
        group: &BoundGroup,
        number: usize,
    ) -> io::Result<Bound> {
        if_simulated!(self, _sim => Err(io::ErrorKind::Unsupported.into()));
        group.socket(number, self.nonblocking())
    }

    /// Prepares the driver for operations on a new UDP socket.
    pub(crate) fn register_datagrams(
        &mut self,
        socket: SocketKey,
        handle: Handle,
    ) -> io::Result<()> {
        each!(self, driver => driver.register_datagrams(socket, handle))
    }

    /// Whether a receive of datagrams would find a buffer.
    pub(crate) fn has_datagram_buffers(&mut self) -> bool {
        each!(self, driver => driver.has_datagram_buffers())
    }

    /// Receives batches of datagrams until it is cancelled or no buffer is free.
    pub(crate) fn receive_datagrams(&mut self, socket: SocketKey, handle: Handle) {
        each!(self, driver => driver.receive_datagrams(socket, handle.fd()));
    }

    /// Cancels receiving datagrams; its last report follows.
    pub(crate) fn cancel_datagrams(&mut self, socket: SocketKey) {
        each!(self, driver => driver.cancel_datagrams(socket));
    }

    /// Sends a batch of datagrams. The caller keeps it in place until the report for `slot`.
    pub(crate) fn send_datagrams(
        &mut self,
        socket: SocketKey,
        handle: Handle,
        slot: u32,
        train: &mut SentTrain,
    ) {
        if_simulated!(self, sim => sim.send_datagrams(handle, slot, train));
        let message = train.describe();
        match self {
            Driver::Uring(uring) => uring.send_datagrams(handle.fd(), slot, message),
            Driver::Epoll(epoll) => epoll.send_datagrams(socket, handle.fd(), slot, message),
            #[cfg(feature = "simulation")]
            Driver::Sim(_) => {}
        }
    }

    /// Cancels the send of a batch; its report follows.
    pub(crate) fn cancel_train(&mut self, slot: u32) {
        each!(self, driver => driver.cancel_train(slot));
    }

    /// Closes a UDP socket on which nothing is pending.
    pub(crate) fn close_datagrams(&mut self, handle: Handle) {
        if_simulated!(self, sim => sim.close_datagrams(handle));
        self.close(handle);
    }

    /// Cancels one pending operation; its last report follows.
    pub(crate) fn cancel(&mut self, socket: SocketKey, handle: Handle, operation: Pending) {
        each!(self, driver => driver.cancel(socket, handle.fd(), operation));
    }

    /// Wakes the core of another ring; false if this driver has no ring.
    pub(crate) fn message_ring(&mut self, ring: RingHandle) -> bool {
        match self {
            Driver::Uring(uring) => uring.message_ring(ring.0),
            _ => false,
        }
    }

    /// How many receives can be started with the buffers that are free.
    pub(crate) fn buffers_ready(&mut self, pool: &Pool) -> usize {
        match self {
            Driver::Uring(uring) => uring.buffers_ready(pool),
            _ if pool.available() == 0 => 0,
            // A receive takes a buffer when it completes; a small one takes none.
            _ => pool.free(),
        }
    }

    /// Reduces the buffers that are lent to the kernel to the initial number; false if unhandled
    /// completions may refer to buffers.
    pub(crate) fn shrink(&mut self, pool: &Pool) -> bool {
        match self {
            Driver::Uring(uring) => uring.shrink(pool),
            _ => true,
        }
    }

    /// One turn: submits the started operations and waits. The caller then takes the reports one by one
    /// with the driver's own `next`.
    pub(crate) fn turn(
        &mut self,
        policy: WaitPolicy,
        pool: &Rc<Pool>,
        counters: &CounterCells,
    ) -> io::Result<()> {
        match self {
            Driver::Uring(uring) => uring.turn(policy, pool, counters),
            Driver::Epoll(epoll) => epoll.turn(policy, counters),
            #[cfg(feature = "simulation")]
            Driver::Sim(sim) => {
                sim.turn(pool, counters);
                Ok(())
            }
        }
    }

    /// Whether another thread has notified the core since the last call.
    pub(crate) fn take_notified(&mut self) -> bool {
        each!(self, driver => std::mem::take(&mut driver.notified))
    }
}
