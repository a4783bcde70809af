//! io_uring: one ring per core, one enter per turn.
//!
//! The ring is single-issuer with deferred task work, so the kernel writes completions only inside our
//! own enter. Accepting and receiving are multishot; receives take buffers from a provided ring, and have
//! a byte limit if the kernel supports it (6.17; probed).

mod buffer_ring;
mod datagrams;
mod operation;
mod probe;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use self::buffer_ring::{BufferRing, Rations};
use self::datagrams::DatagramRing;
use self::operation::{Operation, capped_multishot_receive};
use super::{
    Completion, Handle, Pending, RawAddress, ReceiveOutcome, RingHandle, SendBuffers, WaitPolicy,
};
use crate::buffer::{BUFFER_BYTES, Pool, RATION_BYTES};
use crate::counters::CounterCells;
use crate::mailbox::{self, Mailbox};
use crate::socket::SocketKey;

pub(crate) use self::probe::probe;

/// Submissions between two enters; more cause an early enter.
const SUBMISSIONS: u32 = 1_024;

/// Completions that fit before the kernel keeps them in its own overflow list.
const COMPLETIONS: u32 = 4_096;

/// For each further number of busy sockets, an enter waits for one more completion, for at most
/// [`MIN_WAIT_US`]. Measured with 1 to 100 busy connections: about a tenth less CPU per request at 100,
/// and no change of the median latency; below 12 it waits for one only.
const BUSY_PER_REPORT: usize = 6;
const REPORTS_AWAITED_MAX: usize = 16;
const MIN_WAIT_US: u32 = 50;

/// See [`Uring::reap_more`].
const REPORTS_AT_ONCE: usize = 20;
const REPORTS_WANTED: usize = 256;

/// Buffers by which the large ones may exceed half of the core's memory, so that they are not posted and
/// taken back in turn.
const LARGE_SLACK: isize = 16;

/// The longest wait of one enter.
const WAIT_MAX: Duration = Duration::from_secs(3_600);

/// `IORING_ENTER_GETEVENTS`.
const GETEVENTS: u32 = 1;

pub(crate) struct Uring {
    ring: IoUring,
    buffers: BufferRing,
    large_buffers: BufferRing,
    rations: Rations,
    datagrams: DatagramRing,
    /// The kernel limits the total of a multishot receive, so receives are multishot.
    capped_multishot: bool,
    /// Addresses of pending connects.
    connecting: HashMap<SocketKey, Box<RawAddress>>,
    mailbox_event: RawFd,
    mailbox_armed: bool,
    pub(super) notified: bool,
    /// Submissions that the ring had no room for, in order.
    backlog: VecDeque<squeue::Entry>,
    /// Completions of this turn that are not handled yet.
    unreaped: usize,
    timespec: Timespec,
    /// The kernel can wait for several completions for a bounded time (6.12).
    minimum_wait: bool,
    /// Sends submitted since the last enter; nearly all complete within the next one.
    sends: usize,
    enters: u64,
    submitted: u64,
}

impl Uring {
    /// Opens a ring, or a smaller one if memory limits forbid the usual size.
    pub(crate) fn open(pool: &Rc<Pool>, mailbox: &Mailbox) -> io::Result<Uring> {
        let ring = build(SUBMISSIONS, COMPLETIONS)
            .or_else(|error| {
                if is_memory(&error) {
                    build(256, 1_024)
                } else {
                    Err(error)
                }
            })
            .or_else(|error| {
                if is_memory(&error) {
                    build(64, 256)
                } else {
                    Err(error)
                }
            })
            .map_err(|error| probe::explain(&error))?;
        let buffers = BufferRing::register_usual(&ring, pool)?;
        let large_buffers = BufferRing::register_large(&ring)?;
        let rations = Rations::register(&ring, pool)?;
        let capped_multishot = probe::capped_multishot(&ring, buffers.group())?;
        let minimum_wait = ring.params().is_feature_min_timeout();
        let mailbox_event = mailbox.notifier().open_event()?;
        mailbox.notifier().set_ring(ring.as_raw_fd());
        Ok(Uring {
            ring,
            buffers,
            large_buffers,
            rations,
            datagrams: DatagramRing::default(),
            capped_multishot,
            connecting: HashMap::new(),
            mailbox_event,
            mailbox_armed: false,
            notified: false,
            backlog: VecDeque::new(),
            unreaped: 0,
            timespec: Timespec::new(),
            minimum_wait,
            sends: 0,
            enters: 0,
            submitted: 0,
        })
    }

    pub(super) fn accept(&mut self, listener: u32, fd: RawFd, is_one: bool) {
        let flags = libc::SOCK_CLOEXEC;
        let null = std::ptr::null_mut();
        let entry = match is_one {
            true => opcode::Accept::new(Fd(fd), null, null.cast())
                .flags(flags)
                .build(),
            false => opcode::AcceptMulti::new(Fd(fd)).flags(flags).build(),
        };
        self.push(&entry.user_data(Operation::Accept(listener).pack()));
    }

    pub(super) fn cancel_accept(&mut self, listener: u32, _fd: RawFd) {
        self.push_cancel(Operation::Accept(listener));
    }

    pub(super) fn connect(&mut self, socket: SocketKey, fd: RawFd, address: RawAddress) {
        let address = Box::new(address);
        let entry = opcode::Connect::new(Fd(fd), address.as_ptr(), address.len()).build();
        self.connecting.insert(socket, address);
        self.push(&entry.user_data(Operation::Connect(socket).pack()));
    }

    pub(super) fn receive(&mut self, socket: SocketKey, fd: RawFd, limit: usize) {
        let entry = if limit <= RATION_BYTES {
            receive_once(fd, self.rations.group(), limit)
        } else if self.capped_multishot {
            let limit = u32::try_from(limit).unwrap_or(u32::MAX);
            capped_multishot_receive(fd, self.buffers.group(), limit)
        } else {
            receive_once(fd, self.buffers.group(), limit.min(BUFFER_BYTES))
        };
        self.push(&entry.user_data(Operation::Receive(socket).pack()));
    }

    pub(super) fn receive_large(&mut self, socket: SocketKey, fd: RawFd, limit: usize) {
        let entry = receive_once(fd, self.large_buffers.group(), limit);
        self.push(&entry.user_data(Operation::Receive(socket).pack()));
    }

    pub(super) fn send(&mut self, socket: SocketKey, fd: RawFd, buffers: SendBuffers) {
        let entry = match buffers {
            SendBuffers::One(bytes, len) => {
                let len = u32::try_from(len).unwrap_or(u32::MAX);
                opcode::Send::new(Fd(fd), bytes, len)
                    .flags(libc::MSG_NOSIGNAL)
                    .build()
            }
            SendBuffers::Message(message) => opcode::SendMsg::new(Fd(fd), message)
                .flags(libc::MSG_NOSIGNAL as u32)
                .build(),
        };
        self.sends += 1;
        self.push(&entry.user_data(Operation::Send(socket).pack()));
    }

    pub(super) fn await_room(&mut self, socket: SocketKey, fd: RawFd) {
        let entry = opcode::PollAdd::new(Fd(fd), libc::POLLOUT as u32).build();
        self.push(&entry.user_data(Operation::AwaitRoom(socket).pack()));
    }

    pub(super) fn register_datagrams(
        &mut self,
        _socket: SocketKey,
        _handle: Handle,
    ) -> io::Result<()> {
        self.datagrams.register(&self.ring)
    }

    pub(super) fn has_datagram_buffers(&mut self) -> bool {
        self.datagrams.has_buffers()
    }

    pub(super) fn receive_datagrams(&mut self, socket: SocketKey, fd: RawFd) {
        let entry = self.datagrams.receive(fd);
        self.push(&entry.user_data(Operation::ReceiveTrains(socket).pack()));
    }

    pub(super) fn cancel_datagrams(&mut self, socket: SocketKey) {
        self.push_cancel(Operation::ReceiveTrains(socket));
    }

    pub(super) fn cancel_train(&mut self, slot: u32) {
        self.push_cancel(Operation::SendTrain(slot));
    }

    pub(super) fn send_datagrams(&mut self, fd: RawFd, slot: u32, message: *const libc::msghdr) {
        let entry = opcode::SendMsg::new(Fd(fd), message)
            .flags(libc::MSG_NOSIGNAL as u32)
            .build();
        self.sends += 1;
        self.push(&entry.user_data(Operation::SendTrain(slot).pack()));
    }

    pub(super) fn cancel(&mut self, socket: SocketKey, _fd: RawFd, operation: Pending) {
        self.push_cancel(if operation.has(Pending::RECEIVE) {
            Operation::Receive(socket)
        } else if operation.has(Pending::SEND) {
            Operation::Send(socket)
        } else if operation.has(Pending::ROOM) {
            Operation::AwaitRoom(socket)
        } else {
            Operation::Connect(socket)
        });
    }

    fn push_cancel(&mut self, operation: Operation) {
        // The cancelled operation reports in any case, so the cancellation need not.
        let entry = opcode::AsyncCancel::new(operation.pack())
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS)
            .user_data(Operation::Ignored.pack());
        self.push(&entry);
    }

    pub(super) fn message_ring(&mut self, ring: RawFd) -> bool {
        let entry = opcode::MsgRingData::new(Fd(ring), 0, Operation::Notified.pack(), None)
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS)
            .user_data(Operation::Message(ring).pack());
        self.push(&entry);
        true
    }

    pub(super) fn buffers_ready(&mut self, pool: &Pool) -> usize {
        if pool.available() == 0 {
            0
        } else if pool.is_rationed() {
            self.rations.refill(pool);
            self.rations.posted()
        } else {
            self.buffers.refill(pool);
            self.buffers.posted()
        }
    }

    /// See [`Driver::shrink`](super::Driver::shrink).
    pub(super) fn shrink(&mut self, pool: &Pool) -> bool {
        let is_reaped = self.is_reaped();
        if is_reaped {
            self.buffers.shrink(pool);
            self.large_buffers.shrink(pool);
        }
        is_reaped
    }

    /// Takes posted buffers back when less memory is left than they may hold: other bytes were received or
    /// charged since.
    #[inline]
    fn take_back_excess(&mut self, pool: &Pool) {
        let large = self.large_buffers.posted() > 0 && pool.lent_large_excess() > LARGE_SLACK;
        if (large || pool.lent_excess() > 0) && self.is_reaped() {
            self.large_buffers
                .take_back_excess(pool, Pool::lent_large_excess);
            self.large_buffers.take_back_excess(pool, Pool::lent_excess);
            self.buffers.take_back_excess(pool, Pool::lent_excess);
        }
    }

    /// See [`Driver::is_reaped`](super::Driver::is_reaped). A full ring is submitted early, which may
    /// complete operations.
    pub(super) fn is_reaped(&mut self) -> bool {
        self.unreaped == 0
            && self.ring.completion().is_empty()
            && !self.ring.submission().cq_overflow()
    }

    /// Queues a submission for the next enter.
    fn push(&mut self, entry: &squeue::Entry) {
        if !self.backlog.is_empty() || !self.try_push(entry) {
            self.backlog.push_back(entry.clone());
        }
    }

    /// Puts a submission into the ring. A full ring is submitted early. False if the kernel takes no
    /// submission, because too many completions are not reaped yet.
    #[inline]
    fn try_push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: the memory that an entry points to lives until its last completion: sends in the
        // socket's queue, addresses in `connecting`, received bytes in the pool.
        if unsafe { self.ring.submission().push(entry) }.is_ok() {
            return true;
        }
        self.enters += 1;
        let queued = self.ring.submission().len();
        let submitted = self.ring.submit().is_ok();
        self.submitted += (queued - self.ring.submission().len()) as u64;
        // SAFETY: as above.
        submitted && unsafe { self.ring.submission().push(entry) }.is_ok()
    }

    /// Moves submissions of the backlog into the ring, as far as they fit.
    fn push_backlog(&mut self) {
        while let Some(entry) = self.backlog.pop_front() {
            if !self.try_push(&entry) {
                return self.backlog.push_front(entry);
            }
        }
    }

    pub(super) fn turn(
        &mut self,
        policy: WaitPolicy,
        pool: &Rc<Pool>,
        counters: &CounterCells,
    ) -> io::Result<()> {
        self.push_backlog();
        self.arm_mailbox();
        self.take_back_excess(pool);
        self.buffers.refill(pool);
        self.large_buffers.refill(pool);
        self.rations.refill(pool);
        self.datagrams.refill();
        self.enter(policy)?;
        // Operations that complete while these are handled wait for the next turn.
        self.unreaped = self.ring.completion().len();
        counters.cqes.add(self.unreaped as u64);
        counters.enters.add(std::mem::take(&mut self.enters));
        counters.sqes.add(std::mem::take(&mut self.submitted));
        Ok(())
    }

    /// The next report of this turn.
    #[inline]
    pub(crate) fn next(&mut self, pool: &Rc<Pool>) -> Option<Completion> {
        while self.unreaped > 0 {
            self.unreaped -= 1;
            let completion = self.ring.completion().next()?;
            let result = completion.result();
            let more = cqueue::more(completion.flags());
            return Some(match Operation::unpack(completion.user_data()) {
                Operation::Receive(socket) => Completion::Received {
                    socket,
                    received: self.received(&completion, pool),
                    more,
                },
                Operation::Send(socket) => Completion::Sent {
                    socket,
                    result: usize::try_from(result).map_err(|_| -result),
                },
                Operation::Accept(listener) => Completion::Accepted {
                    listener,
                    result: match result {
                        ..0 => Err(-result),
                        fd => Ok(Handle::of(fd)),
                    },
                    more,
                },
                Operation::Connect(socket) => {
                    self.connecting.remove(&socket);
                    Completion::Connected {
                        socket,
                        error: -result.min(0),
                    }
                }
                Operation::AwaitRoom(socket) => Completion::HasRoom { socket },
                Operation::ReceiveTrains(socket) => Completion::TrainReceived {
                    socket,
                    received: self.datagrams.received(&completion),
                    more,
                },
                Operation::SendTrain(slot) => Completion::TrainSent {
                    slot,
                    result: usize::try_from(result).map_err(|_| -result),
                },
                other => {
                    self.handle_internal(other, more);
                    continue;
                }
            });
        }
        None
    }

    /// Decodes the completion of a receive.
    #[inline]
    fn received(&mut self, completion: &cqueue::Entry, pool: &Rc<Pool>) -> ReceiveOutcome {
        let slice = cqueue::buffer_select(completion.flags()).map(|id| {
            let len = usize::try_from(completion.result()).unwrap_or(0);
            if Rations::has(id) {
                self.rations.taken(pool, id, len)
            } else if Pool::is_large(id) {
                self.large_buffers.taken(pool, id, len)
            } else {
                self.buffers.taken(pool, id, len)
            }
        });
        match (completion.result(), slice) {
            (1.., Some(slice)) => ReceiveOutcome::Bytes(slice),
            (0, _) => ReceiveOutcome::End,
            (error, _) => match -error {
                libc::ENOBUFS => {
                    // If only small receives are left, the pool would not lend more.
                    if !pool.is_rationed() {
                        self.buffers.grow_if_empty();
                        self.large_buffers.grow_if_empty();
                    }
                    ReceiveOutcome::NoBuffers
                }
                libc::ECANCELED | libc::EINTR | libc::EAGAIN => ReceiveOutcome::Nothing,
                error => ReceiveOutcome::Failed(error),
            },
        }
    }

    /// Handles a completion that concerns no socket or listener.
    #[cold]
    fn handle_internal(&mut self, operation: Operation, more: bool) {
        match operation {
            Operation::NotifierReadable => {
                self.mailbox_armed = more;
                self.notified = true;
            }
            Operation::Notified => self.notified = true,
            Operation::Message(ring) => mailbox::notify_by_event(RingHandle(ring)),
            _ => {}
        }
    }

    fn arm_mailbox(&mut self) {
        if !self.mailbox_armed {
            self.mailbox_armed = true;
            let entry = opcode::PollAdd::new(Fd(self.mailbox_event), libc::POLLIN as u32)
                .multi(true)
                .build();
            self.push(&entry.user_data(Operation::NotifierReadable.pack()));
        }
    }

    /// Submits and waits. Interruptions and full queues are no errors: the completions are reaped, and the
    /// next turn submits the rest.
    fn enter(&mut self, policy: WaitPolicy) -> io::Result<()> {
        self.enters += 1;
        let queued = self.ring.submission().len();
        let sends = std::mem::take(&mut self.sends);
        let entered = if policy.timeout == Some(Duration::ZERO) || !self.backlog.is_empty() {
            let known = self.ring.completion().len() + sends;
            let entered = self.enter_without_wait(queued as u32);
            if policy.reap_all && entered.is_ok() {
                self.reap_more(known);
            }
            entered
        } else {
            // A minimum wait without a timeout would always end at the minimum, also when idle.
            self.timespec = Timespec::from(policy.timeout.unwrap_or(WAIT_MAX));
            let args = SubmitArgs::new().timespec(&self.timespec);
            if self.minimum_wait && !policy.is_precise {
                let more = (policy.busy_sockets / BUSY_PER_REPORT).clamp(1, REPORTS_AWAITED_MAX);
                let args = args.min_wait_usec(MIN_WAIT_US);
                self.ring.submitter().submit_with_args(sends + more, &args)
            } else {
                self.ring.submitter().submit_with_args(1, &args)
            }
        };
        self.submitted += (queued - self.ring.submission().len()) as u64;
        match entered.map_err(|error| (error.raw_os_error(), error)) {
            Ok(_) => Ok(()),
            Err((Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN), _)) => Ok(()),
            Err((_, error)) => Err(error),
        }
    }

    /// Submits and makes completions available, without waiting.
    fn enter_without_wait(&mut self, queued: u32) -> io::Result<usize> {
        // The kernel runs deferred task work only in an enter with GETEVENTS.
        // SAFETY: no argument is passed.
        unsafe {
            self.ring
                .submitter()
                .enter::<libc::sigset_t>(queued, 0, GETEVENTS, None)
        }
    }

    /// Since Linux 6.13 an enter that does not wait completes at most [`REPORTS_AT_ONCE`] receives. While
    /// an enter reaches this number, another one may find more. `known` is the number of completions
    /// before.
    fn reap_more(&mut self, mut known: usize) {
        let enough = known + REPORTS_WANTED;
        loop {
            let found = self.ring.completion().len();
            if found < known + REPORTS_AT_ONCE || found >= enough {
                return;
            }
            known = found;
            self.enters += 1;
            if self.enter_without_wait(0).is_err() {
                return;
            }
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // Messages to other rings may still be queued.
        let _ = self.ring.submit();
    }
}

/// Receives once into a buffer of a group.
fn receive_once(fd: RawFd, group: u16, limit: usize) -> squeue::Entry {
    opcode::Recv::new(Fd(fd), std::ptr::null_mut(), limit as u32)
        .buf_group(group)
        .build()
        .flags(squeue::Flags::BUFFER_SELECT)
}

fn build(submissions: u32, completions: u32) -> io::Result<IoUring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_submit_all()
        .setup_cqsize(completions)
        .build(submissions)
}

fn is_memory(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EPERM)) && probe::is_permitted()
}
