//! What the core knows of one socket, in three small machines: who has it, what it has received,
//! and what it has to send.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Waker;
use std::time::Instant;

use super::outgoing::Outgoing;
use super::{Resume, SocketKey};
use crate::buffer::{BUFFER_BYTES, RATION_BYTES, Slice};
use crate::driver::Handle;
use crate::timer::TimerKey;

/// One socket (rule 5: this and a timer is all that an idle connection costs).
pub(crate) struct Entry {
    pub(super) handle: Handle,
    pub(super) role: Role,
    /// Operations whose last completion has not come; the descriptor stays open as long.
    pub(super) pending: Pending,
    pub(super) receiving: Receiving,
    pub(super) sending: Sending,
    pub(super) peer: Option<SocketAddr>,
    /// The tick at which its role ends.
    pub(super) deadline: u64,
    /// Its one timer and the tick that this is filed at, which is not after the deadline. It stays
    /// filed while the socket is in use and the deadline moves on, so that a connection that is
    /// parked after each request never touches the wheel.
    pub(super) timer: Option<(TimerKey, u64)>,
    /// The last tick in which it received.
    pub(super) active_tick: u64,
    /// Bytes that its owner holds because of it, as far as it was told.
    pub(super) held: usize,
    pub(super) order: Order,
}

/// Whether bytes have arrived although it was our turn to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Order {
    /// Nothing is expected of the order.
    #[default]
    Any,
    /// We are to send first, and the kernel has taken nothing yet.
    SendFirst,
    /// The peer was first nevertheless.
    ReceivedFirst,
}

/// Who has the socket.
///
/// ```text
///           park                 bytes, FIN, error, deadline
///   Owned ─────────▶ Parked ─────────────────────────────────▶ Owned
///     │ finish
///     ├────────────▶ Finishing ──┐ sent, FIN both ways, or late
///     │ abort                    │
///     ├────────────▶ Resetting ──┤ sent, or late
///     │ drop                     ▼
///     └─────────────────────▶ Closing ──▶ (gone, when nothing is pending)
/// ```
pub(super) enum Role {
    /// A `Socket` handle has it.
    Owned,
    /// Nobody has it; `resume` is told when something happens.
    Parked(Parking),
    /// It sends the rest, then FIN, then discards some input, then closes (rule 16).
    Finishing { discard_left: usize },
    /// It sends the rest and resets.
    Resetting,
    /// It waits for its last completions.
    Closing,
}

pub(crate) struct Parking {
    pub(super) resume: Rc<dyn Resume>,
    pub(super) tag: u64,
}

/// A set of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Pending(u8);

impl Pending {
    pub(crate) const RECEIVE: Pending = Pending(1);
    pub(crate) const SEND: Pending = Pending(2);
    pub(crate) const CONNECT: Pending = Pending(4);

    pub(crate) fn has(self, operation: Pending) -> bool {
        self.0 & operation.0 != 0
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn add(&mut self, operation: Pending) {
        assert!(!self.has(operation), "an operation runs once at a time");
        self.0 |= operation.0;
    }

    pub(super) fn remove(&mut self, operation: Pending) {
        assert!(self.has(operation), "a completion belongs to an operation");
        self.0 &= !operation.0;
    }
}

/// How input ended, if it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Open,
    Fin,
    /// The error number that receiving failed with.
    Failed(i32),
}

/// Received bytes that nobody has taken, and what the kernel may still deliver (rule 1).
pub(super) struct Receiving {
    /// Most bytes that may wait here.
    pub(super) window: usize,
    /// Bytes that wait here.
    pub(super) unread: usize,
    first: Option<Slice>,
    /// Only when more than one slice waits.
    more: Option<Box<More>>,
    pub(super) end: End,
    /// Waits in the line for buffers (rule 2).
    pub(super) starved: bool,
    pub(super) waker: Option<Waker>,
}

/// What waits behind the first slice.
#[derive(Default)]
struct More {
    slices: VecDeque<Slice>,
    /// Small pieces in a row, gathered: a sender of single bytes pins no buffers (rule 3).
    small: Vec<u8>,
}

/// Pieces below this are gathered when they have to wait.
const SMALL: usize = 1024;

impl More {
    fn push(&mut self, slice: Slice) {
        if slice.len() < SMALL {
            self.small.extend_from_slice(&slice);
            if self.small.len() > BUFFER_BYTES - SMALL {
                self.gather(&slice);
            }
        } else {
            self.gather(&slice);
            self.slices.push_back(slice);
        }
    }

    fn gather(&mut self, like: &Slice) {
        if !self.small.is_empty() {
            let gathered = Slice::gathered(like, std::mem::take(&mut self.small));
            self.slices.push_back(gathered);
        }
    }

    /// The slice behind `taken`.
    fn pop(&mut self, taken: &Slice) -> Option<Slice> {
        if self.slices.is_empty() {
            self.gather(taken);
        }
        self.slices.pop_front()
    }

    fn is_empty(&self) -> bool {
        self.slices.is_empty() && self.small.is_empty()
    }
}

/// Receive window until `set_window` is called: what may be read ahead of a request (rule 17).
pub(super) const WINDOW_DEFAULT: usize = 16 * 1024;

impl Receiving {
    fn new() -> Receiving {
        Receiving {
            window: WINDOW_DEFAULT,
            unread: 0,
            first: None,
            more: None,
            end: End::Open,
            starved: false,
            waker: None,
        }
    }

    /// Nothing waits, and more may come: what arrives now is news.
    pub(super) fn is_clear(&self) -> bool {
        self.first.is_none() && self.end == End::Open
    }

    pub(super) fn push(&mut self, mut slice: Slice) {
        self.unread += slice.len();
        slice.spare_the_pool();
        if self.first.is_none() {
            self.first = Some(slice);
        } else {
            self.more.get_or_insert_default().push(slice);
        }
    }

    pub(super) fn push_front(&mut self, slice: Slice) {
        self.unread += slice.len();
        if let Some(second) = self.first.replace(slice) {
            self.more.get_or_insert_default().slices.push_front(second);
        }
    }

    pub(super) fn pop(&mut self) -> Option<Slice> {
        let slice = self.first.take()?;
        self.unread -= slice.len();
        if let Some(more) = &mut self.more {
            self.first = more.pop(&slice);
            if more.is_empty() {
                self.more = None;
            }
        }
        Some(slice)
    }

    /// Something to tell the owner: bytes, FIN or an error.
    pub(super) fn has_news(&self) -> bool {
        !self.is_clear()
    }

    /// How much the kernel may be asked for now. Nothing while more than half of the window is
    /// taken, so that a slow reader causes few and large receives instead of many small ones.
    pub(super) fn room(&self, fair_share: usize) -> usize {
        let window = self.window.min(fair_share.max(RATION_BYTES));
        if self.end == End::Open && !self.starved && self.unread * 2 <= window {
            window - self.unread
        } else {
            0
        }
    }

    /// Forgets what waits and returns how much it was.
    pub(super) fn discard(&mut self) -> usize {
        self.first = None;
        self.more = None;
        std::mem::take(&mut self.unread)
    }
}

/// What waits to be sent.
pub(super) struct Sending {
    /// Present while there is something to send.
    pub(super) queue: Option<Box<Outgoing>>,
    /// The error number that sending failed with, or 0.
    pub(super) failed: i32,
    /// Stands in the list of sockets to be served at the end of the turn.
    pub(super) listed: bool,
    pub(super) fin: Fin,
    /// When the kernel last took a byte, or the first was queued.
    pub(super) progress: Instant,
    /// Woken at `wake_at` bytes or less.
    pub(super) waker: Option<Waker>,
    pub(super) wake_at: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fin {
    No,
    /// After what is queued.
    Wanted,
    Sent,
}

impl Sending {
    fn new(now: Instant) -> Sending {
        Sending {
            queue: None,
            failed: 0,
            listed: false,
            fin: Fin::No,
            progress: now,
            waker: None,
            wake_at: 0,
        }
    }

    pub(super) fn queued(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.bytes())
    }
}

impl Entry {
    /// A socket that its handle owns.
    pub(crate) fn new(handle: Handle, now: Instant) -> Entry {
        Entry {
            handle,
            role: Role::Owned,
            pending: Pending::default(),
            receiving: Receiving::new(),
            sending: Sending::new(now),
            peer: None,
            deadline: 0,
            timer: None,
            active_tick: 0,
            held: 0,
            order: Order::Any,
        }
    }

    /// Bytes that would be free without it: what counts when somebody has to be shed (rule 4).
    pub(super) fn holds(&self) -> usize {
        self.receiving.unread + self.sending.queued() + self.held
    }

    /// Whether the timer will fire no later than the deadline.
    #[inline]
    pub(super) fn is_filed(&self) -> bool {
        self.timer.is_some_and(|(_, filed)| filed <= self.deadline)
    }
}

/// What is left to do after an event, once the tables are free to be used again.
pub(crate) enum Outcome {
    Nothing,
    /// A parked socket has news or is late.
    Resume(Parking, SocketKey, super::Cause),
}
