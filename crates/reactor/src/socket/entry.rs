//! The state of one socket, in three small machines: its owner, its receiving and its sending side.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::task::Waker;
use std::time::Instant;

use super::SocketKey;
use super::outgoing::Outgoing;
use super::ownership::{Cause, Parking};
use crate::buffer::{BUFFER_BYTES, RATION_BYTES, Slice};
use crate::driver::{Handle, Pending};
use crate::timer::TimerKey;

/// One socket (rule 5: an idle connection costs this entry and a timer).
pub(crate) struct SocketEntry {
    pub(super) handle: Handle,
    pub(super) state: SocketState,
    /// Operations without their last completion; until then the descriptor stays open.
    pub(super) pending: Pending,
    pub(super) receiving: ReceiveSide,
    pub(super) sending: SendSide,
    pub(super) peer: Option<SocketAddr>,
    /// The tick at which the state times out.
    pub(super) deadline: u64,
    /// The socket's only timer, and the tick that it is scheduled at, which is not after the deadline. It
    /// stays scheduled while the socket is in use and the deadline moves on, so that a connection that
    /// is parked after each request does not access the timer wheel.
    pub(super) timer: Option<(TimerKey, u64)>,
    /// The tick since which it has no request: of its last parking that began or ended one, or of its
    /// acceptance (rule 20).
    pub(super) idle_since: u64,
    /// Its owner waits for the rest of a request's head; reading ends that.
    pub(super) awaits_request: bool,
    /// It is closed in favour of a new socket, without lingering.
    pub(super) is_evicted: bool,
    /// The last tick in which it received.
    pub(super) active_tick: u64,
    /// Bytes that the owner holds for this socket, as reported with `note_held`.
    pub(super) held: usize,
    pub(super) order: SendOrder,
}

/// Whether bytes have arrived before ours were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum SendOrder {
    /// Either side may send first.
    #[default]
    Any,
    /// We have to send first, and the kernel has taken no byte yet.
    SendFirst,
    /// The peer has sent first nevertheless.
    ReceivedFirst,
}

/// The state of a socket: its owner, or how it is being closed.
///
/// ```text
///           park                 bytes, FIN, error, deadline
///   Owned ─────────▶ Parked ─────────────────────────────────▶ Owned
///     │ finish
///     ├────────────▶ Finishing ──┐ FIN both ways, or late
///     │                  │ sent  │
///     │                  ▼       │
///     │              Lingering ──┤ FIN, late, or more linger than may
///     │ abort                    │
///     ├────────────▶ Resetting ──┤ sent, or late
///     │ drop                     ▼
///     └─────────────────────▶ Closing ──▶ (removed, when nothing is pending)
/// ```
pub(super) enum SocketState {
    /// A `Socket` handle owns it.
    Owned,
    /// The core owns it until it is readable or late; then `resume` gets it.
    Parked(Parking),
    /// It sends its queue, then FIN, and discards some input.
    Finishing { discard_left: usize },
    /// It has sent all and discards input until this tick at most (rule 16).
    Lingering { until: u64 },
    /// It sends its queue and resets.
    Resetting,
    /// It waits for its last completions.
    Closing,
}

/// Whether and how the input has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InputEnd {
    Open,
    Fin,
    /// The error number that receiving failed with.
    Failed(i32),
}

/// Received bytes that the owner has not taken, and the window for more (rule 1).
pub(super) struct ReceiveSide {
    /// Most unread bytes.
    pub(super) window: usize,
    /// Unread bytes.
    pub(super) unread: usize,
    first: Option<Slice>,
    /// Present if more than one slice is unread.
    more: Option<Box<More>>,
    pub(super) end: InputEnd,
    /// In the queue for buffers (rule 2).
    pub(super) starved: bool,
    /// Bytes of the last receive, or 0 if there is nothing more.
    pub(super) last: usize,
    /// Bytes of the last receives: the largest of them, halved by each later one. The size of the next
    /// receive follows.
    pub(super) recent: usize,
    /// The last receive that was started is large.
    pub(super) is_large: bool,
    pub(super) waker: Option<Waker>,
}

/// Unread bytes behind the first slice.
#[derive(Default)]
struct More {
    slices: VecDeque<Slice>,
    /// Consecutive small slices, copied together: a peer that sends single bytes pins no buffers (rule 3).
    small: Vec<u8>,
}

/// Slices shorter than this are copied together when they are queued.
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

/// After a receive of this many bytes the next one is large. Usual receives with the window of a stream
/// return at most a quarter of it at a time, just under 16 KiB.
pub(super) const LARGE_AFTER: usize = 8 * 1024;

/// Windows from here on have large receives.
const LARGE_WINDOW_MIN: usize = 2 * BUFFER_BYTES;

/// Receive window until `set_window` is called: the bytes that are read ahead of a request (rule 17).
pub(super) const WINDOW_DEFAULT: usize = 16 * 1024;

impl ReceiveSide {
    fn new() -> ReceiveSide {
        ReceiveSide {
            window: WINDOW_DEFAULT,
            unread: 0,
            first: None,
            more: None,
            end: InputEnd::Open,
            starved: false,
            last: 0,
            recent: 0,
            is_large: false,
            waker: None,
        }
    }

    /// Whether receives are large: the peer sends much, and the window is one for content (rule 4). They
    /// are started when the owner has taken all bytes and waits for more.
    #[inline]
    pub(super) fn wants_large(&self) -> bool {
        self.recent >= LARGE_AFTER && self.window >= LARGE_WINDOW_MIN
    }

    /// Notes the bytes of a receive. A single small one, such as the rest of what the peer sent at once,
    /// does not end large receives.
    #[inline]
    pub(super) fn note(&mut self, bytes: usize) {
        self.last = bytes;
        self.recent = bytes.max(self.recent / 2);
    }

    /// Whether more has probably arrived: the last receive filled at least a usual buffer.
    pub(super) fn is_more_likely(&self) -> bool {
        self.last >= BUFFER_BYTES
    }

    pub(super) fn push(&mut self, mut slice: Slice) {
        self.unread += slice.len();
        slice.copy_if_scarce();
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

    /// Whether neither FIN nor an error has come.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.end == InputEnd::Open
    }

    /// Whether bytes, FIN or an error are unread.
    pub(super) fn is_readable(&self) -> bool {
        self.first.is_some() || !self.is_open()
    }

    /// Bytes that the next receive may request. Zero while more than half of the window is unread, so
    /// that a slow reader causes few and large receives instead of many small ones.
    pub(super) fn room(&self, fair_share: usize) -> usize {
        let window = self.window.min(fair_share.max(RATION_BYTES));
        let has_room = self.unread == 0 || (self.unread * 2 <= window && !self.wants_large());
        if self.is_open() && !self.starved && has_room {
            window - self.unread
        } else {
            0
        }
    }

    /// Drops the unread bytes and returns their number.
    pub(super) fn discard(&mut self) -> usize {
        self.first = None;
        self.more = None;
        std::mem::take(&mut self.unread)
    }
}

/// The sending side of a socket.
pub(super) struct SendSide {
    /// Present while bytes are queued.
    pub(super) queue: Option<Box<Outgoing>>,
    /// The error number that sending failed with, or 0.
    pub(super) failed: i32,
    /// In the list of sockets whose sends start at the end of the turn.
    pub(super) listed: bool,
    /// Files were sent, and can be.
    pub(super) takes_files: bool,
    pub(super) fin: Fin,
    /// When the kernel last took a byte, or the first byte was queued.
    pub(super) progress: Instant,
    /// Woken when `wake_at` bytes or fewer are queued.
    pub(super) waker: Option<Waker>,
    pub(super) wake_at: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fin {
    No,
    /// Sent after the queue.
    Wanted,
    Sent,
}

impl SendSide {
    fn new(now: Instant) -> SendSide {
        SendSide {
            queue: None,
            failed: 0,
            listed: false,
            takes_files: false,
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

impl SocketEntry {
    /// A socket that is owned by its handle.
    pub(crate) fn new(handle: Handle, now: Instant, tick: u64) -> SocketEntry {
        SocketEntry {
            handle,
            state: SocketState::Owned,
            pending: Pending::default(),
            receiving: ReceiveSide::new(),
            sending: SendSide::new(now),
            peer: None,
            deadline: 0,
            timer: None,
            idle_since: tick,
            awaits_request: false,
            is_evicted: false,
            active_tick: 0,
            held: 0,
            order: SendOrder::Any,
        }
    }

    /// Bytes that closing this socket would free; shedding chooses the largest (rule 4).
    pub(super) fn held_bytes(&self) -> usize {
        self.receiving.unread + self.sending.queued() + self.held
    }

    /// Whether the timer will fire no later than the deadline.
    #[inline]
    pub(super) fn is_scheduled(&self) -> bool {
        self.timer.is_some_and(|(_, filed)| filed <= self.deadline)
    }
}

/// The work that an event causes and that runs once the table is no longer borrowed.
pub(crate) enum SocketAction {
    None,
    /// A parked socket is readable, or its deadline has passed.
    Resume(Parking, SocketKey, Cause),
}
