//! The lingering close (rule 16): after our FIN the socket discards input, so that a peer that is still
//! sending receives the end of the response and not a reset.

mod list;

use super::SocketKey;
use super::entry::SocketState;
use super::sockets::Sockets;

pub use self::list::Lingering;
pub(super) use self::list::LingeringSockets;

impl Sockets<'_> {
    /// Begins to linger. The queue and FIN are sent.
    pub(super) fn linger(&mut self, key: SocketKey) {
        let limits = self.core.lingering;
        while self.table.lingering.open >= limits.sockets_max.max(1) {
            self.close_oldest_lingering();
        }
        self.forget_closed(limits.sockets_max);
        self.table.lingering.open += 1;
        self.table.lingering.keys.push_back(key);
        let until = self.deadline(limits.time);
        let now = self.core.clock.tick();
        let entry = self.table.entry(key);
        entry.state = SocketState::Lingering { until };
        entry.idle_since = now;
        if self.table.eviction.is_tracking {
            self.note_idle(key);
        }
        self.set_deadline(key, limits.silence.min(limits.time));
        self.arm_receive(key);
    }

    /// Bytes arrived: the socket may be silent again for as long.
    pub(super) fn linger_on(&mut self, key: SocketKey) {
        let silent_until = self.deadline(self.core.lingering.silence);
        let entry = self.table.entry(key);
        if let SocketState::Lingering { until } = entry.state {
            // The timer stays: it finds the later deadline when it expires.
            entry.deadline = silent_until.min(until);
        }
    }

    #[cold]
    fn close_oldest_lingering(&mut self) {
        while let Some(oldest) = self.table.lingering.keys.pop_front() {
            if self.is_lingering(oldest) {
                self.core.counters.lingering_cut.add(1);
                return self.close(oldest);
            }
        }
        unreachable!("every lingering socket is listed");
    }

    /// Keeps the list at twice the bound or below, at a constant cost per socket.
    fn forget_closed(&mut self, sockets_max: usize) {
        let mut keys = std::mem::take(&mut self.table.lingering.keys);
        if keys.len() >= sockets_max.max(1) * 2 {
            keys.retain(|key| self.is_lingering(*key));
        }
        self.table.lingering.keys = keys;
    }

    fn is_lingering(&self, key: SocketKey) -> bool {
        let entry = self.table.slab.get(key);
        entry.is_some_and(|entry| matches!(entry.state, SocketState::Lingering { .. }))
    }
}
