//! A hierarchical timer wheel (Varghese and Lauck 1987): six levels of 64 slots.
//!
//! Level 0 holds the next 64 ticks, one per slot; each higher level is 64 times coarser, and its timers
//! move to lower levels as their deadlines approach. A timer whose deadline moves later stays in its slot
//! and is linked again when that slot is due, so the deadline of a busy connection costs one store.

use std::task::Waker;

use crate::socket::SocketKey;

const LEVELS: usize = 6;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const NONE: u32 = u32::MAX;

/// The task or socket that a timer wakes.
#[derive(Debug, Clone)]
pub(crate) enum TimerTarget {
    Task(Waker),
    Socket(SocketKey),
}

/// The key of a timer; stale once the timer has fired or was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimerKey {
    index: u32,
    generation: u32,
}

struct TimerEntry {
    /// The tick at which it is due; never before the slot that it is linked in.
    deadline: u64,
    target: Option<TimerTarget>,
    generation: u32,
    /// Level and slot, as `level * SLOTS + slot`.
    slot_index: u32,
    previous: u32,
    next: u32,
}

/// The timers of one core.
pub(crate) struct Wheel {
    entries: Vec<TimerEntry>,
    vacant: Vec<u32>,
    /// First entry of each slot.
    heads: [u32; LEVELS * SLOTS],
    /// One bit per slot, set if the slot is not empty.
    occupied: [u64; LEVELS],
    /// All timers that were due up to this tick have fired.
    elapsed: u64,
}

impl Wheel {
    pub(crate) fn new() -> Wheel {
        Wheel {
            entries: Vec::new(),
            vacant: Vec::new(),
            heads: [NONE; LEVELS * SLOTS],
            occupied: [0; LEVELS],
            elapsed: 0,
        }
    }

    /// Adds a timer that is due at `deadline`; one in the past is due with the next tick.
    pub(crate) fn insert(&mut self, deadline: u64, target: TimerTarget) -> TimerKey {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.entries.push(TimerEntry {
                deadline: 0,
                target: None,
                generation: 0,
                slot_index: 0,
                previous: NONE,
                next: NONE,
            });
            (self.entries.len() - 1) as u32
        });
        let entry = &mut self.entries[index as usize];
        entry.deadline = deadline;
        entry.target = Some(target);
        let generation = entry.generation;
        self.link(index);
        TimerKey { index, generation }
    }

    /// Changes the deadline; false if the timer has fired.
    pub(crate) fn reset(&mut self, key: TimerKey, deadline: u64) -> bool {
        let Some(entry) = self.live(key) else {
            return false;
        };
        let earlier = deadline < entry.deadline;
        entry.deadline = deadline;
        if earlier {
            self.unlink(key.index);
            self.link(key.index);
        }
        true
    }

    /// Changes the target; false if the timer has fired.
    pub(crate) fn retarget(&mut self, key: TimerKey, target: &TimerTarget) -> bool {
        let Some(entry) = self.live(key) else {
            return false;
        };
        match (&mut entry.target, target) {
            (Some(TimerTarget::Task(old)), TimerTarget::Task(new)) => old.clone_from(new),
            (old, new) => *old = Some(new.clone()),
        }
        true
    }

    /// Removes a timer, if it has not fired.
    pub(crate) fn cancel(&mut self, key: TimerKey) {
        if self.live(key).is_some() {
            self.unlink(key.index);
            self.vacate(key.index);
        }
    }

    /// Moves the time to `now` and calls `fire` for every timer that is due.
    pub(crate) fn advance(&mut self, now: u64, mut fire: impl FnMut(TimerTarget)) {
        while let Some((slot_index, at)) = self.next_slot()
            && at <= now
        {
            self.elapsed = self.elapsed.max(at);
            let mut index = std::mem::replace(&mut self.heads[slot_index], NONE);
            self.occupied[slot_index / SLOTS] &= !(1 << (slot_index % SLOTS));
            while index != NONE {
                let entry = &mut self.entries[index as usize];
                let next = entry.next;
                if entry.deadline <= at {
                    let target = entry.target.take();
                    self.vacate(index);
                    target.into_iter().for_each(&mut fire);
                } else {
                    self.link(index);
                }
                index = next;
            }
        }
        self.elapsed = self.elapsed.max(now);
    }

    /// The next tick at which [`Wheel::advance`] has to be called.
    pub(crate) fn next_tick(&self) -> Option<u64> {
        self.next_slot().map(|(_, at)| at)
    }

    /// The next slot in time, and the tick at which it starts.
    fn next_slot(&self) -> Option<(usize, u64)> {
        for level in 0..LEVELS {
            if self.occupied[level] == 0 {
                continue;
            }
            // Slots before the current one belong to the next round of this level.
            let shift = SLOT_BITS * level as u32;
            let current = (self.elapsed >> shift) as u32 % SLOTS as u32;
            let ahead = self.occupied[level].rotate_right(current).trailing_zeros();
            let slot = (current + ahead) as usize % SLOTS;
            let at = ((self.elapsed >> shift) + u64::from(ahead)) << shift;
            return Some((level * SLOTS + slot, at));
        }
        None
    }

    /// Links an entry into the slot of its deadline, relative to the current tick.
    fn link(&mut self, index: u32) {
        let horizon = (1u64 << (SLOT_BITS * LEVELS as u32)) - 1;
        let wanted = self.entries[index as usize].deadline;
        let at = wanted.clamp(self.elapsed + 1, self.elapsed.saturating_add(horizon / 2));
        let differing = (self.elapsed ^ at) | (SLOTS as u64 - 1);
        let level = ((u64::BITS - 1 - differing.leading_zeros()) / SLOT_BITS) as usize;
        let level = level.min(LEVELS - 1);
        let slot = (at >> (SLOT_BITS * level as u32)) as usize % SLOTS;
        let slot_index = level * SLOTS + slot;
        let head = std::mem::replace(&mut self.heads[slot_index], index);
        self.occupied[level] |= 1 << slot;
        let entry = &mut self.entries[index as usize];
        entry.slot_index = slot_index as u32;
        entry.previous = NONE;
        entry.next = head;
        if head != NONE {
            self.entries[head as usize].previous = index;
        }
    }

    fn unlink(&mut self, index: u32) {
        let TimerEntry {
            previous,
            next,
            slot_index,
            ..
        } = self.entries[index as usize];
        let slot_index = slot_index as usize;
        match previous {
            NONE => self.heads[slot_index] = next,
            _ => self.entries[previous as usize].next = next,
        }
        if next != NONE {
            self.entries[next as usize].previous = previous;
        }
        if self.heads[slot_index] == NONE {
            self.occupied[slot_index / SLOTS] &= !(1 << (slot_index % SLOTS));
        }
    }

    fn live(&mut self, key: TimerKey) -> Option<&mut TimerEntry> {
        let entry = &mut self.entries[key.index as usize];
        (entry.generation == key.generation && entry.target.is_some()).then_some(entry)
    }

    fn vacate(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        entry.target = None;
        entry.generation = entry.generation.wrapping_add(1);
        self.vacant.push(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timer::Random;

    fn name(n: u32) -> TimerTarget {
        TimerTarget::Socket(SocketKey::from_parts(n, 0))
    }

    fn fired(wheel: &mut Wheel, now: u64) -> Vec<u32> {
        let mut names = Vec::new();
        wheel.advance(now, |target| match target {
            TimerTarget::Socket(key) => names.push(key.index()),
            TimerTarget::Task(_) => unreachable!(),
        });
        names
    }

    #[test]
    fn timers_fire_at_their_tick_and_never_before() {
        let mut wheel = Wheel::new();
        for (n, deadline) in [1, 63, 64, 65, 4_095, 4_096, 300_000, 20_000_000]
            .into_iter()
            .enumerate()
        {
            wheel.insert(deadline, name(n as u32));
        }
        let mut seen = Vec::new();
        while let Some(at) = wheel.next_tick() {
            for n in fired(&mut wheel, at) {
                seen.push((n, at));
            }
        }
        let expected = [1, 63, 64, 65, 4_095, 4_096, 300_000, 20_000_000];
        assert_eq!(
            seen,
            expected
                .iter()
                .enumerate()
                .map(|(n, &at)| (n as u32, at))
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_deadline_that_moves_later_fires_later_and_one_that_moves_earlier_earlier() {
        let mut wheel = Wheel::new();
        let later = wheel.insert(10, name(1));
        let earlier = wheel.insert(5_000, name(2));
        assert!(wheel.reset(later, 6_000));
        assert!(wheel.reset(earlier, 20));
        assert_eq!(fired(&mut wheel, 19), []);
        assert_eq!(fired(&mut wheel, 5_999), [2]);
        assert_eq!(fired(&mut wheel, 6_000), [1]);
        assert!(!wheel.reset(later, 7_000), "a timer that fired is gone");
    }

    #[test]
    fn a_cancelled_timer_never_fires_and_its_entry_is_reused() {
        let mut wheel = Wheel::new();
        let key = wheel.insert(10, name(1));
        wheel.cancel(key);
        let next = wheel.insert(10, name(2));
        assert_eq!(next.index, key.index);
        wheel.cancel(key);
        assert_eq!(fired(&mut wheel, 10), [2]);
    }

    /// Compares the wheel with a list over many random steps.
    #[test]
    fn behaves_as_a_sorted_list() {
        let mut random = Random::new(7);
        let mut wheel = Wheel::new();
        let mut list: Vec<(u64, u32, TimerKey)> = Vec::new();
        let mut now = 0;
        for n in 0..20_000 {
            let span = 1 << (random.next() % 22);
            match random.next() % 4 {
                0 | 1 => {
                    let at = now + 1 + random.next() % span;
                    list.push((at, n, wheel.insert(at, name(n))));
                }
                2 if !list.is_empty() => {
                    let pick = (random.next() % list.len() as u64) as usize;
                    list[pick].0 = now + 1 + random.next() % span;
                    assert!(wheel.reset(list[pick].2, list[pick].0));
                }
                _ => {
                    now += random.next() % span;
                    let mut due = fired(&mut wheel, now);
                    let mut expected: Vec<u32> =
                        list.iter().filter(|t| t.0 <= now).map(|t| t.1).collect();
                    list.retain(|t| t.0 > now);
                    due.sort_unstable();
                    expected.sort_unstable();
                    assert_eq!(due, expected, "at {now}");
                }
            }
        }
    }
}
