//! A first-in, first-out queue with removal from any position in constant time.

/// Slots that an empty queue keeps.
const SLOTS_KEPT_MAX: usize = 16;

/// The key of an entry. The serial number differs from later entries in the same slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueKey {
    slot: u32,
    serial: u64,
}

/// A doubly linked list in a slab.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    slots: Vec<QueueSlot<T>>,
    /// The head of the list of free slots, which are linked by `next`.
    free: Option<u32>,
    first: Option<u32>,
    last: Option<u32>,
    len: usize,
    next_serial: u64,
}

#[derive(Debug)]
struct QueueSlot<T> {
    serial: u64,
    /// `None` in a free slot.
    value: Option<T>,
    previous: Option<u32>,
    next: Option<u32>,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue {
            slots: Vec::new(),
            free: None,
            first: None,
            last: None,
            len: 0,
            next_serial: 0,
        }
    }
}

impl<T> Queue<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds an entry at the end.
    pub(crate) fn push_back(&mut self, value: T) -> QueueKey {
        let previous = self.last;
        self.insert(value, previous, None)
    }

    /// Adds an entry at the front.
    pub(crate) fn push_front(&mut self, value: T) -> QueueKey {
        let next = self.first;
        self.insert(value, None, next)
    }

    /// Removes the first entry.
    pub(crate) fn pop_front(&mut self) -> Option<T> {
        let slot = self.first?;
        let serial = self.slots[slot as usize].serial;
        self.remove(QueueKey { slot, serial })
    }

    /// An entry that is still in the queue.
    pub(crate) fn get_mut(&mut self, key: QueueKey) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.slot as usize)?;
        let is_same = slot.serial == key.serial;
        slot.value.as_mut().filter(|_| is_same)
    }

    /// Whether the entry is still in the queue.
    pub(crate) fn contains(&self, key: QueueKey) -> bool {
        let slot = self.slots.get(key.slot as usize);
        slot.is_some_and(|slot| slot.serial == key.serial && slot.value.is_some())
    }

    /// Removes an entry at any position; `None` if it has left the queue before.
    pub(crate) fn remove(&mut self, key: QueueKey) -> Option<T> {
        if !self.contains(key) {
            return None;
        }
        let free = self.free.replace(key.slot);
        let entry = &mut self.slots[key.slot as usize];
        let (previous, next) = (entry.previous.take(), entry.next);
        entry.next = free;
        let value = entry.value.take();
        self.link(previous, next);
        self.len -= 1;
        if self.len == 0 && self.slots.len() > SLOTS_KEPT_MAX {
            self.slots = Vec::new();
            self.free = None;
        }
        value
    }

    fn insert(&mut self, value: T, previous: Option<u32>, next: Option<u32>) -> QueueKey {
        let serial = self.next_serial;
        self.next_serial += 1;
        let entry = QueueSlot {
            serial,
            value: Some(value),
            previous,
            next,
        };
        let slot = match self.free {
            Some(slot) => {
                self.free = self.slots[slot as usize].next;
                self.slots[slot as usize] = entry;
                slot
            }
            None => {
                self.slots.push(entry);
                (self.slots.len() - 1) as u32
            }
        };
        match previous {
            Some(previous) => self.slots[previous as usize].next = Some(slot),
            None => self.first = Some(slot),
        }
        match next {
            Some(next) => self.slots[next as usize].previous = Some(slot),
            None => self.last = Some(slot),
        }
        self.len += 1;
        QueueKey { slot, serial }
    }

    /// Links two neighbours; `None` stands for an end of the queue.
    fn link(&mut self, previous: Option<u32>, next: Option<u32>) {
        match previous {
            Some(previous) => self.slots[previous as usize].next = next,
            None => self.first = next,
        }
        match next {
            Some(next) => self.slots[next as usize].previous = previous,
            None => self.last = previous,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    #[test]
    fn random_operations_match_a_simple_list() {
        let (mut queue, mut model) = (Queue::default(), VecDeque::new());
        let mut keys = Vec::new();
        let mut random = 1_u64;
        for number in 0..20_000_u32 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            match (random >> 33) % 8 {
                0..=2 => {
                    keys.push((number, queue.push_back(number)));
                    model.push_back(number);
                }
                3 => {
                    keys.push((number, queue.push_front(number)));
                    model.push_front(number);
                }
                4..=5 => assert_eq!(queue.pop_front(), model.pop_front()),
                // The list keeps the keys of removed entries: they must find nothing.
                _ if !keys.is_empty() => {
                    let (value, key) = keys[(random >> 40) as usize % keys.len()];
                    let at = model.iter().position(|other| *other == value);
                    assert_eq!(queue.contains(key), at.is_some());
                    assert_eq!(queue.remove(key), at.and_then(|at| model.remove(at)));
                }
                _ => {}
            }
            if number % 1_000 == 999 {
                while let Some(value) = model.pop_front() {
                    assert_eq!(queue.pop_front(), Some(value));
                }
            }
            assert_eq!(queue.len(), model.len());
        }
        assert!(
            queue.slots.len() <= SLOTS_KEPT_MAX,
            "the memory of a burst is freed"
        );
    }
}
