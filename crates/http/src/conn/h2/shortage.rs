//! The limit of a connection for its peer's content while the core is short of memory (rule 4).
//!
//! The less memory is left, the smaller are the windows that the connection gives back, so that peers send less. With
//! many connections, the windows that peers already have can still exceed the memory. A client's connection
//! that holds more than its part is then not read from until some of that is taken. An upstream's
//! connection is always read from, since the requests of others share it (rule 14): the windows of
//! its streams begin smaller the more streams are open on the core, and when the core has hardly
//! any memory left, the streams whose readers do not keep up are reset.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;

use blitz_proto::h2::{Code, StreamId};
use blitz_reactor::Slice;

use super::client::ClientRole;
use super::driver::{Conn, Driver, Role, Shared};
use crate::conn::streams::room::{STREAMS_WHEN_SHORT, is_short, share_max};
use crate::counters::count;
use crate::error::BodyError;
use crate::exchange::{BodyState, Link, wake};

/// A connection that holds no more than this is always read from.
const HELD_MIN: usize = 16 * 1024;

/// The part of the core's memory that the first windows of upstreams' streams may take together.
const FIRST_WINDOWS_PART: usize = 8;

/// How long after a change of the first windows they stay as small as they are.
const GROW_PAUSE: Duration = Duration::from_secs(5);

/// The part of it that windows may have grown by together.
const GROWTH_PART: usize = 16;

/// Streams of upstreams are reset when what one may hold is less than this part of what it may hold
/// on an idle core: then there is hardly more than the reserve.
const SHED_PART: usize = 64;

/// The open streams of the connections of a pool, and the bytes that they hold together.
#[derive(Default)]
pub(crate) struct PooledStreams {
    open: Cell<usize>,
    /// Bytes that windows have grown by.
    grown: Cell<usize>,
    connections: RefCell<Vec<Weak<Conn<ClientRole>>>>,
}

/// The share of one connection in these counts.
#[derive(Clone, Copy, Default)]
pub(super) struct CountedStreams {
    open: usize,
    grown: usize,
}

impl PooledStreams {
    pub(super) fn note_connection(&self, conn: &Rc<Conn<ClientRole>>) {
        let mut connections = self.connections.borrow_mut();
        if connections.len() == connections.capacity() {
            connections.retain(|conn| conn.strong_count() > 0);
        }
        connections.push(Rc::downgrade(conn));
    }

    /// Replaces what is counted of a connection.
    #[inline]
    fn count(&self, counted: &mut CountedStreams, now: CountedStreams) {
        let before = std::mem::replace(counted, now);
        self.open.set(self.open.get() - before.open + now.open);
        self.grown.set(self.grown.get() - before.grown + now.grown);
    }

    /// Nothing of a connection is open any more.
    pub(super) fn uncount(&self, counted: &mut CountedStreams) {
        self.count(counted, CountedStreams::default());
    }
}

impl Shared<ClientRole> {
    /// The first window of the next stream to an upstream, if it is `now` at present. It becomes larger again only once
    /// four times as much fits.
    #[inline]
    fn first_window(&self, now: usize) -> usize {
        let limits = self.limits();
        let part = limits.core_buffer_bytes_max / FIRST_WINDOWS_PART;
        let all = (self.role.open.get() + 1) * now;
        if all > part {
            (now / 2).max(limits.stream_window_bytes_min).min(now)
        } else if now < limits.stream_window_bytes && all * 4 <= part {
            (now * 2).min(limits.stream_window_bytes)
        } else {
            now
        }
    }
}

impl Driver<ClientRole> {
    /// Chooses what the window of the next stream to an upstream begins with. Each change is a SETTINGS
    /// frame, and servers count those; so a window that became smaller stays so for a while.
    #[inline]
    pub(super) fn choose_first_window(&mut self) {
        let window = self.machine.stream_window();
        let wanted = self.shared.first_window(window);
        if wanted != window {
            self.change_first_window(window, wanted);
        }
    }

    #[cold]
    fn change_first_window(&mut self, window: usize, wanted: usize) {
        let now = blitz_reactor::now();
        let changed = self.role.window_changed;
        let may_grow = changed.is_none_or(|at| now - at >= GROW_PAUSE);
        if wanted < window || may_grow {
            self.role.window_changed = Some(now);
            let (machine, out) = self.machine();
            machine.set_stream_window(wanted, out);
        }
    }

    /// Tells the other connections of the pool what this one has open.
    #[inline]
    pub(super) fn count_streams(&mut self) {
        let now = CountedStreams {
            open: self.streams.len(),
            grown: self.machine.window_growth(),
        };
        self.shared.role.count(&mut self.role.counted, now);
    }

    pub(super) fn cap_windows_of_upstream(&mut self, share: usize, is_short: bool) {
        self.count_streams();
        let part = self.limits().core_buffer_bytes_max / GROWTH_PART;
        let left = part.saturating_sub(self.shared.role.grown.get());
        // Other connections may grow as well before this is computed again.
        self.machine.cap_window_growth(left / 4);
        let cap = if is_short { share } else { usize::MAX };
        self.machine.cap_windows(cap, usize::MAX);
        if is_short && share < share_max(self.limits()) / SHED_PART {
            self.shed_stalled();
        }
    }

    /// Resets the streams of upstreams that hold the most, on whatever connection, until the core
    /// has some memory again. Those whose readers keep up hold next to nothing.
    #[cold]
    fn shed_stalled(&mut self) {
        let shared = Rc::clone(&self.shared);
        let connections = shared.role.connections.borrow();
        let connections: Vec<Rc<Conn<ClientRole>>> =
            connections.iter().filter_map(Weak::upgrade).collect();
        let mut held: Vec<_> = self.held_by_streams().map(|it| (it, None)).collect();
        for conn in &connections {
            // This connection's own state is borrowed.
            if let Ok(driver) = conn.driver.try_borrow() {
                held.extend(driver.held_by_streams().map(|it| (it, Some(conn))));
            }
        }
        held.sort_unstable_by_key(|((bytes, _), _)| std::cmp::Reverse(*bytes));
        let bytes_min = self.limits().slice_bytes_min;
        // More than what it began at, so that it does not begin again at once.
        let enough = share_max(self.limits()) / SHED_PART * 4;
        for ((bytes, stream), conn) in held {
            if blitz_reactor::fair_share() >= enough || bytes <= bytes_min {
                return;
            }
            match conn {
                None => self.shed(stream),
                Some(conn) => conn.with(|driver| driver.shed(stream)),
            }
        }
    }

    /// Bytes that each stream has received and its reader has not taken.
    fn held_by_streams(&self) -> impl Iterator<Item = (usize, StreamId)> {
        self.streams.iter().map(|(stream, state)| {
            let parts = state.parts.iter();
            (parts.map(Slice::len).sum(), *stream)
        })
    }

    fn shed(&mut self, stream: StreamId) {
        let Some(state) = self.stream(stream) else {
            return;
        };
        let unread = state.drain_parts();
        state.trailers = None;
        let receiving = &mut state.exchange.receiving;
        receiving.body = BodyState::Failed(BodyError::Shed);
        wake(&mut receiving.reader);
        self.release(stream, unread);
        self.reset(stream, Code::CANCEL);
        count(|counters| counters.streams_shed += 1);
    }
}

impl<R: Role> Driver<R> {
    /// Whether nothing is received at the moment. This time does not count against the senders, nor does
    /// the time in which unread content leaves them no window.
    pub(super) fn is_held_back(&mut self) -> bool {
        let is_held_back = R::holds_too_much(self);
        let was_held_back = std::mem::replace(&mut self.was_held_back, is_held_back);
        let is_used_up = self.machine.is_window_used_up();
        let was_used_up = std::mem::replace(&mut self.was_used_up, is_used_up);
        if is_held_back && !was_held_back {
            count(|counters| counters.held_back += 1);
        }
        if (was_held_back && !is_held_back) || (was_used_up && !is_used_up) {
            let streams = self.streams.values_mut();
            streams.for_each(|stream| stream.exchange.receiving.pace.forgive());
        }
        is_held_back
    }

    /// Whether the connection holds more of its peer's content than its part, while the core is short
    /// of memory.
    pub(super) fn holds_more_than_its_share(&self) -> bool {
        let held = self.machine.held();
        if held <= HELD_MIN {
            return false;
        }
        let share = blitz_reactor::fair_share();
        is_short(share, self.limits()) && held > share * STREAMS_WHEN_SHORT
    }
}
