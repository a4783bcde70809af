//! epoll, edge-triggered, with the same reports as io_uring: for kernels and containers without io_uring.
//!
//! The driver stores the readiness of each socket. An operation on a ready socket is tried at the end of
//! the turn; one that would block waits for the next edge.

mod datagrams;
mod readiness;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

use self::datagrams::Datagrams;
use self::readiness::{Armed, Readiness, Size, Sockets};
use super::{
    Completion, Handle, Pending, RawAddress, ReceiveOutcome, ReceivedTrain, SendBuffers,
    WaitPolicy, system,
};
use crate::buffer::{Pool, RATION_BYTES, Slice};
use crate::counters::CounterCells;
use crate::mailbox::Mailbox;
use crate::socket::SocketKey;
use crate::timer::ticks_up;

/// Most edges that one turn reads from the kernel.
const EDGES: usize = 512;

/// Most connections that one listener accepts in one turn.
const ACCEPTS_PER_TURN: usize = 64;

/// The longest wait of one call.
const WAIT_MAX: Duration = Duration::from_secs(3_600);

/// `data` of edges of other descriptors than sockets.
const NOTIFIER: u64 = u64::MAX;
const LISTENER: u64 = 1 << 63;
const DATAGRAMS: u64 = 1 << 62;

pub(crate) struct Epoll {
    epoll: OwnedFd,
    edges: Vec<libc::epoll_event>,
    sockets: Sockets,
    /// Sockets whose operations are to be tried, each at most once per turn and kind of operation.
    to_receive: VecDeque<(SocketKey, RawFd)>,
    to_send: VecDeque<(SocketKey, RawFd)>,
    /// How many of these belong to the current turn.
    receives_left: usize,
    sends_left: usize,
    datagrams: Datagrams,
    listeners: Vec<EpollListener>,
    /// Reports that need no system call, and accepted connections.
    reports: VecDeque<Completion>,
    /// Reports returned since they were last counted.
    reported: u64,
    pub(super) notified: bool,
    /// The last turn did not read edges from the kernel.
    skipped: bool,
}

struct EpollListener {
    index: u32,
    fd: RawFd,
    armed: bool,
    /// Whether it accepts one connection only.
    is_one: bool,
    ready: bool,
}

impl Epoll {
    pub(crate) fn open(mailbox: &Mailbox) -> io::Result<Epoll> {
        let epoll = create()?;
        let this = Epoll {
            epoll,
            edges: vec![libc::epoll_event { events: 0, u64: 0 }; EDGES],
            sockets: Sockets::default(),
            to_receive: VecDeque::new(),
            to_send: VecDeque::new(),
            receives_left: 0,
            sends_left: 0,
            datagrams: Datagrams::default(),
            listeners: Vec::new(),
            reports: VecDeque::new(),
            reported: 0,
            notified: false,
            skipped: false,
        };
        this.watch(mailbox.notifier().open_event()?, libc::EPOLLIN, NOTIFIER)?;
        Ok(this)
    }

    fn watch(&self, fd: RawFd, events: libc::c_int, data: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: events as u32,
            u64: data,
        };
        // SAFETY: the event is live for the call; a bad descriptor is an error, not a fault.
        let added = unsafe {
            libc::epoll_ctl(
                self.epoll.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                fd,
                &raw mut event,
            )
        };
        if added < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    pub(super) fn register(&mut self, socket: SocketKey, fd: RawFd) {
        let edges = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        self.sockets.insert(socket);
        let data = u64::from(socket.generation()) << 32 | u64::from(socket.index());
        if let Err(error) = self.watch(fd, edges, data) {
            // The limit of watches is reached: the first operation reports it.
            self.sockets.get(socket).watch_error = error.raw_os_error().unwrap_or(libc::ENOSPC);
        }
    }

    pub(super) fn unwatch(&mut self, fd: RawFd) {
        // The kernel removes a closed descriptor from the set only if no duplicate is open. Unix
        // listeners have one duplicate per core.
        // SAFETY: a plain system call; a bad descriptor is an error, not a fault.
        unsafe {
            let epoll = self.epoll.as_raw_fd();
            libc::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut());
        }
        self.listeners.retain(|listener| listener.fd != fd);
    }

    pub(super) fn accept(&mut self, index: u32, fd: RawFd, is_one: bool) {
        if let Some(listener) = self.listeners.iter_mut().find(|l| l.index == index) {
            listener.armed = true;
            listener.is_one = is_one;
            return;
        }
        let events = libc::EPOLLIN | libc::EPOLLET | libc::EPOLLEXCLUSIVE;
        let watched = self.watch(fd, events, LISTENER | u64::from(index));
        match watched {
            Ok(()) => self.listeners.push(EpollListener {
                index,
                fd,
                armed: true,
                is_one,
                ready: true,
            }),
            Err(error) => {
                let result = Err(error.raw_os_error().unwrap_or(libc::ENOSPC));
                self.reports.push_back(Completion::Accepted {
                    listener: index,
                    result,
                    more: false,
                });
            }
        }
    }

    pub(super) fn cancel_accept(&mut self, index: u32, _fd: RawFd) {
        let armed = self
            .listeners
            .iter_mut()
            .find(|l| l.index == index && l.armed);
        if let Some(listener) = armed {
            listener.armed = false;
            let result = Err(libc::ECANCELED);
            self.reports.push_back(Completion::Accepted {
                listener: index,
                result,
                more: false,
            });
        }
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "as the io_uring driver, which stores it"
    )]
    pub(super) fn connect(&mut self, socket: SocketKey, fd: RawFd, address: RawAddress) {
        // SAFETY: the address is live, and its length is right.
        let connected = unsafe { libc::connect(fd, address.as_ptr(), address.len()) };
        let error = if connected < 0 { last_error() } else { 0 };
        self.sockets.get(socket).fd = Some(fd);
        if error == libc::EINPROGRESS {
            self.sockets.get(socket).connecting = true;
        } else {
            self.reports
                .push_back(Completion::Connected { socket, error });
        }
    }

    pub(super) fn receive(&mut self, socket: SocketKey, fd: RawFd, limit: usize) {
        let size = match limit <= RATION_BYTES {
            true => Size::Ration,
            false => Size::Usual,
        };
        self.arm(socket, Armed { fd, limit, size });
    }

    pub(super) fn receive_large(&mut self, socket: SocketKey, fd: RawFd, limit: usize) {
        let size = Size::Large;
        self.arm(socket, Armed { fd, limit, size });
    }

    /// A receive outside of the turn has returned as much as it asked for, or less.
    pub(super) fn note_received(&mut self, socket: SocketKey, was_full: bool) {
        let state = self.sockets.get(socket);
        state.readable = was_full || state.hangup;
    }

    fn arm(&mut self, socket: SocketKey, armed: Armed) {
        let fd = armed.fd;
        let state = self.sockets.get(socket);
        state.receive = Some(armed);
        if state.readable || state.watch_error != 0 {
            self.to_receive.push_back((socket, fd));
        }
    }

    pub(super) fn send(&mut self, socket: SocketKey, fd: RawFd, buffers: SendBuffers) {
        let state = self.sockets.get(socket);
        state.send = Some(buffers);
        // Tried immediately: a socket that was never written to has had no edge yet.
        self.to_send.push_back((socket, fd));
    }

    /// The kernel took no byte before, so that room causes an edge.
    pub(super) fn await_room(&mut self, socket: SocketKey, _fd: RawFd) {
        self.sockets.get(socket).awaits_room = true;
    }

    pub(super) fn register_datagrams(
        &mut self,
        socket: SocketKey,
        handle: Handle,
    ) -> io::Result<()> {
        self.datagrams.register(socket)?;
        // Edges of room only while a send waits for it: each packet that leaves would be one.
        let edges = libc::EPOLLIN | libc::EPOLLET;
        self.watch(handle.fd(), edges, datagrams_data(socket))
    }

    pub(super) fn has_datagram_buffers(&self) -> bool {
        self.datagrams.has_buffers()
    }

    pub(super) fn receive_datagrams(&mut self, socket: SocketKey, fd: RawFd) {
        self.datagrams.receive(socket, fd);
    }

    pub(super) fn cancel_datagrams(&mut self, socket: SocketKey) {
        if self.datagrams.cancel(socket) {
            self.reports.push_back(Completion::TrainReceived {
                socket,
                received: ReceivedTrain::Nothing,
                more: false,
            });
        }
    }

    pub(super) fn send_datagrams(
        &mut self,
        socket: SocketKey,
        fd: RawFd,
        slot: u32,
        message: *const libc::msghdr,
    ) {
        self.datagrams.send(socket, fd, slot, message);
    }

    pub(super) fn cancel_train(&mut self, slot: u32) {
        if self.datagrams.cancel_send(slot) {
            let result = Err(libc::ECANCELED);
            self.reports
                .push_back(Completion::TrainSent { slot, result });
        }
    }

    pub(super) fn cancel(&mut self, socket: SocketKey, _fd: RawFd, operation: Pending) {
        let state = self.sockets.get(socket);
        let report = if operation.has(Pending::RECEIVE) {
            state.receive.take().map(|_| Completion::Received {
                socket,
                received: ReceiveOutcome::Nothing,
                more: false,
            })
        } else if operation.has(Pending::SEND) {
            state.send.take().map(|_| Completion::Sent {
                socket,
                result: Err(libc::ECANCELED),
            })
        } else if operation.has(Pending::ROOM) {
            let awaits_room = std::mem::take(&mut state.awaits_room);
            awaits_room.then_some(Completion::HasRoom { socket })
        } else {
            let connecting = std::mem::take(&mut state.connecting);
            connecting.then_some(Completion::Connected {
                socket,
                error: libc::ECANCELED,
            })
        };
        self.reports.extend(report);
    }

    pub(super) fn turn(&mut self, policy: WaitPolicy, counters: &CounterCells) -> io::Result<()> {
        counters.cqes.add(std::mem::take(&mut self.reported));
        let listening = self
            .listeners
            .iter()
            .any(|listener| listener.armed && listener.ready);
        let busy = listening
            || !self.to_receive.is_empty()
            || !self.reports.is_empty()
            || self.datagrams.is_receiving();
        let sending = !self.to_send.is_empty() || self.datagrams.is_sending();
        // If there are only sends, the turn reads no edges from the kernel, but never twice in a row:
        // endless sends must not delay the edges of other sockets.
        self.skipped = sending && !busy && !self.skipped;
        if !self.skipped {
            let poll_only = busy || sending;
            let wait = match poll_only {
                true => Some(Duration::ZERO),
                false => policy.timeout,
            };
            self.take_edges(wait, policy.is_precise)?;
            counters.enters.add(1);
            self.try_accepts();
        }
        // Operations that are started while these are handled wait for the next turn.
        self.sends_left = self.to_send.len();
        self.receives_left = self.to_receive.len();
        self.datagrams.begin_turn();
        Ok(())
    }

    /// Tries the operations of this turn until one has a report.
    #[inline]
    pub(crate) fn next(&mut self, pool: &Rc<Pool>) -> Option<Completion> {
        let event = self.next_event(pool);
        self.reported += u64::from(event.is_some());
        event
    }

    #[inline]
    fn next_event(&mut self, pool: &Rc<Pool>) -> Option<Completion> {
        while self.sends_left > 0 {
            self.sends_left -= 1;
            let (socket, fd) = self.to_send.pop_front()?;
            if let Some(result) = self.try_send(socket, fd) {
                return Some(Completion::Sent { socket, result });
            }
        }
        // Also before, because the report of the last send may close the descriptor.
        self.watch_room_for_datagrams();
        if let Some(event) = self.datagrams.next() {
            return Some(event);
        }
        self.watch_room_for_datagrams();
        // One receive per socket and turn, so that a fast sender starves no other.
        while self.receives_left > 0 {
            self.receives_left -= 1;
            let (socket, fd) = self.to_receive.pop_front()?;
            if let Some((received, more)) = self.try_receive(socket, fd, pool) {
                return Some(Completion::Received {
                    socket,
                    received,
                    more,
                });
            }
        }
        self.reports.pop_front()
    }

    /// Asks for edges of room for the UDP sockets that wait for it, and not for the others.
    #[inline]
    fn watch_room_for_datagrams(&mut self) {
        while let Some((socket, fd, waits)) = self.datagrams.next_change() {
            let room = if waits { libc::EPOLLOUT } else { 0 };
            let mut event = libc::epoll_event {
                events: (libc::EPOLLIN | libc::EPOLLET | room) as u32,
                u64: datagrams_data(socket),
            };
            // SAFETY: the event is live for the call; a bad descriptor is an error, not a fault.
            unsafe {
                let epoll = self.epoll.as_raw_fd();
                libc::epoll_ctl(epoll, libc::EPOLL_CTL_MOD, fd, &raw mut event);
            }
        }
    }

    /// Waits for edges, rounded up to a millisecond: a wait that ends before a timer of the wheel is due would be
    /// repeated.
    fn wait_in_ticks(&mut self, wait: Option<Duration>) -> libc::c_int {
        let timeout = wait.map_or(-1, |wait| ticks_up(wait) as libc::c_int);
        // SAFETY: the kernel writes at most EDGES events into a live buffer of that length.
        unsafe {
            let epoll = self.epoll.as_raw_fd();
            let events = self.edges.as_mut_ptr();
            libc::epoll_wait(epoll, events, EDGES as libc::c_int, timeout)
        }
    }

    /// Waits for edges, for at most `wait` without rounding (Linux 5.11).
    fn wait_precisely(&mut self, wait: Duration) -> libc::c_int {
        let timeout = libc::timespec {
            tv_sec: wait.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(wait.subsec_nanos() as i32),
        };
        // SAFETY: as in `wait_in_ticks`; the time is live for the call, and no signal mask is passed. The system call
        // is made directly, because older C libraries have no function for it.
        let edges = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.epoll.as_raw_fd(),
                self.edges.as_mut_ptr(),
                EDGES as libc::c_int,
                &raw const timeout,
                std::ptr::null::<libc::sigset_t>(),
                0_usize,
            )
        };
        match (edges < 0, last_error()) {
            (true, libc::ENOSYS | libc::EPERM) => self.wait_in_ticks(Some(wait)),
            _ => edges as libc::c_int,
        }
    }

    /// Waits for edges and stores the readiness of their sockets.
    fn take_edges(&mut self, wait: Option<Duration>, is_precise: bool) -> io::Result<()> {
        let wait = wait.map(|wait| wait.min(WAIT_MAX));
        let edges = match wait {
            Some(wait) if is_precise && !wait.is_zero() => self.wait_precisely(wait),
            _ => self.wait_in_ticks(wait),
        };
        if edges < 0 {
            return match last_error() {
                libc::EINTR => Ok(()),
                error => Err(io::Error::from_raw_os_error(error)),
            };
        }
        for edge in 0..edges as usize {
            let libc::epoll_event { events, u64: data } = self.edges[edge];
            if data == NOTIFIER {
                self.notified = true;
            } else if data & LISTENER != 0 {
                let index = (data & !LISTENER) as u32;
                let listener = self.listeners.iter_mut().find(|l| l.index == index);
                listener
                    .into_iter()
                    .for_each(|listener| listener.ready = true);
            } else if data & DATAGRAMS != 0 {
                let data = data & !DATAGRAMS;
                let socket = SocketKey::from_parts(data as u32, (data >> 32) as u32);
                self.datagrams.edge(socket, events);
            } else {
                self.edge(
                    SocketKey::from_parts(data as u32, (data >> 32) as u32),
                    events,
                );
            }
        }
        Ok(())
    }

    fn edge(&mut self, socket: SocketKey, events: u32) {
        // An edge of a socket that was closed in this turn has a stale generation.
        let Some(state) = self.sockets.find(socket) else {
            return;
        };
        let is = |bits: libc::c_int| events & bits as u32 != 0;
        if is(libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) {
            state.hangup |= is(libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR);
            if !state.readable
                && let Some(armed) = &state.receive
            {
                self.to_receive.push_back((socket, armed.fd));
            }
            state.readable = true;
        }
        if is(libc::EPOLLOUT | libc::EPOLLERR | libc::EPOLLHUP) {
            if std::mem::take(&mut state.connecting) {
                self.reports.push_back(Completion::Connected {
                    socket,
                    error: state.connect_result(),
                });
            }
            if std::mem::take(&mut state.awaits_room) {
                self.reports.push_back(Completion::HasRoom { socket });
            }
            if std::mem::take(&mut state.send_blocked)
                && let Some(fd) = state.fd
            {
                self.to_send.push_back((socket, fd));
            }
        }
    }

    fn try_accepts(&mut self) {
        for listener in &mut self.listeners {
            for _ in 0..ACCEPTS_PER_TURN {
                if !listener.armed || !listener.ready {
                    break;
                }
                let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
                let null = std::ptr::null_mut();
                // SAFETY: null pointers mean that no address is returned.
                let fd = unsafe { libc::accept4(listener.fd, null, null.cast(), flags) };
                let result = match fd {
                    ..0 => Err(last_error()),
                    fd => Ok(Handle::of(fd)),
                };
                match result {
                    Err(libc::EAGAIN) => listener.ready = false,
                    Err(libc::EINTR | libc::ECONNABORTED) => {}
                    Err(_) => {
                        listener.armed = false;
                        self.reports.push_back(Completion::Accepted {
                            listener: listener.index,
                            result,
                            more: false,
                        });
                    }
                    Ok(_) => {
                        listener.armed = !listener.is_one;
                        self.reports.push_back(Completion::Accepted {
                            listener: listener.index,
                            result,
                            more: listener.armed,
                        });
                    }
                }
            }
        }
    }

    /// Receives once; `None` if nothing was readable. The flag says whether more reports follow.
    #[inline]
    fn try_receive(
        &mut self,
        socket: SocketKey,
        fd: RawFd,
        pool: &Rc<Pool>,
    ) -> Option<(ReceiveOutcome, bool)> {
        let state = self.sockets.find(socket)?;
        let armed = state.receive.take()?;
        let received = state.try_receive(fd, &armed, pool);
        let left = match &received {
            Some(ReceiveOutcome::Bytes(_)) if armed.size == Size::Large => 0,
            Some(ReceiveOutcome::Bytes(slice)) => armed.limit - slice.len(),
            Some(_) => 0,
            None => armed.limit,
        };
        if left > 0 {
            state.receive = Some(Armed {
                limit: left,
                ..armed
            });
            if state.readable {
                self.to_receive.push_back((socket, fd));
            }
        }
        received.map(|received| (received, left > 0))
    }

    /// Sends once; `None` if the socket's buffer is full.
    #[inline]
    fn try_send(&mut self, socket: SocketKey, fd: RawFd) -> Option<Result<usize, i32>> {
        let state = self.sockets.find(socket)?;
        match try_send(fd, state.send.as_ref()?) {
            Err(libc::EAGAIN) => {
                state.send_blocked = true;
                state.fd = Some(fd);
                None
            }
            result => {
                state.send = None;
                Some(result)
            }
        }
    }
}

impl Readiness {
    /// Receives once; `None` if nothing was readable.
    fn try_receive(&mut self, fd: RawFd, armed: &Armed, pool: &Rc<Pool>) -> Option<ReceiveOutcome> {
        if self.watch_error != 0 {
            return Some(ReceiveOutcome::Failed(self.watch_error));
        }
        let lent = match armed.size {
            Size::Ration => return self.try_receive_ration(fd, armed.limit, pool),
            Size::Usual => pool.lend(),
            Size::Large => pool.lend_large(),
        };
        let Some(id) = lent else {
            return Some(ReceiveOutcome::NoBuffers);
        };
        let wanted = armed.limit.min(Pool::capacity(id));
        // SAFETY: the buffer is lent to this call alone and holds its capacity.
        let n = unsafe { libc::recv(fd, pool.address(id).as_ptr().cast(), wanted, 0) };
        if n > 0 {
            // A short receive emptied the socket: the next bytes cause a new edge. A FIN that arrived
            // with them does not, so after a hangup the socket is read to its end.
            self.readable = n as usize == wanted || self.hangup;
            return Some(ReceiveOutcome::Bytes(Slice::adopt(pool, id, n as usize)));
        }
        let error = if n < 0 { last_error() } else { 0 };
        pool.give_back(id);
        self.received_nothing(error)
    }

    /// As `try_receive`, without a buffer of the pool.
    #[cold]
    fn try_receive_ration(
        &mut self,
        fd: RawFd,
        limit: usize,
        pool: &Rc<Pool>,
    ) -> Option<ReceiveOutcome> {
        if pool.available() == 0 {
            return Some(ReceiveOutcome::NoBuffers);
        }
        let mut bytes = [0; RATION_BYTES];
        let wanted = limit.min(RATION_BYTES);
        // SAFETY: the array is live and at least `wanted` bytes long.
        let n = unsafe { libc::recv(fd, bytes.as_mut_ptr().cast(), wanted, 0) };
        if n > 0 {
            self.readable = n as usize == wanted || self.hangup;
            return Some(ReceiveOutcome::Bytes(Slice::ration(
                pool,
                &bytes[..n as usize],
            )));
        }
        self.received_nothing(if n < 0 { last_error() } else { 0 })
    }

    fn received_nothing(&mut self, error: i32) -> Option<ReceiveOutcome> {
        match error {
            0 => Some(ReceiveOutcome::End),
            libc::EAGAIN => {
                self.readable = false;
                None
            }
            libc::EINTR => None,
            error => Some(ReceiveOutcome::Failed(error)),
        }
    }

    fn connect_result(&self) -> i32 {
        self.fd.map_or(0, system::take_error)
    }
}

/// The mark of the edges of a UDP socket.
fn datagrams_data(socket: SocketKey) -> u64 {
    DATAGRAMS | u64::from(socket.generation()) << 32 | u64::from(socket.index())
}

/// A new epoll instance.
pub(super) fn create() -> io::Result<OwnedFd> {
    // SAFETY: a plain system call; the descriptor it returns is ours alone.
    unsafe {
        let fd = system::check(libc::epoll_create1(libc::EPOLL_CLOEXEC))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

fn try_send(fd: RawFd, buffers: &SendBuffers) -> Result<usize, i32> {
    // SAFETY: the caller of `Epoll::send` keeps the buffers until the report.
    let n = unsafe {
        match *buffers {
            SendBuffers::One(bytes, len) => libc::send(fd, bytes.cast(), len, libc::MSG_NOSIGNAL),
            SendBuffers::Message(message) => libc::sendmsg(fd, message, libc::MSG_NOSIGNAL),
        }
    };
    usize::try_from(n).map_err(|_| last_error())
}

fn last_error() -> i32 {
    io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}
