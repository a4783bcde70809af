//! A slab of sockets: pages that never move, and slots with a generation.

use std::sync::atomic::{AtomicU32, Ordering};

use super::SocketKey;

const PAGE: usize = 128;

/// Sockets by key. A page is never moved or freed: the slab grows to 10,000 connections without copying,
/// and the next 10,000 reuse it.
pub(crate) struct Slab<T> {
    /// The generation of new slots. It differs between the slabs of a process, so that a key of an ended
    /// core is stale in the next one.
    first_generation: u32,
    pages: Vec<Box<[SocketSlot<T>; PAGE]>>,
    vacant: Vec<u32>,
}

struct SocketSlot<T> {
    generation: u32,
    entry: Option<T>,
}

static TABLES: AtomicU32 = AtomicU32::new(0);

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        let table = TABLES.fetch_add(1, Ordering::Relaxed);
        let first_generation = table.wrapping_mul(0x9E37) & SocketKey::GENERATION_MASK;
        Slab {
            first_generation,
            pages: Vec::new(),
            vacant: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, entry: T) -> SocketKey {
        if self.vacant.is_empty() {
            let first = (self.pages.len() * PAGE) as u32;
            let generation = self.first_generation;
            let slot = |_| SocketSlot {
                generation,
                entry: None,
            };
            self.pages.push(Box::new(std::array::from_fn(slot)));
            self.vacant.extend((first..first + PAGE as u32).rev());
        }
        let index = self.vacant.pop().expect("a page was just added");
        let slot = self.slot_mut(index);
        slot.entry = Some(entry);
        SocketKey::from_parts(index, slot.generation)
    }

    #[inline]
    pub(crate) fn get(&self, key: SocketKey) -> Option<&T> {
        let slot = &self.pages.get(key.index as usize / PAGE)?[key.index as usize % PAGE];
        slot.entry.as_ref().filter(|_| slot.names(key))
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: SocketKey) -> Option<&mut T> {
        let page = self.pages.get_mut(key.index as usize / PAGE)?;
        let slot = &mut page[key.index as usize % PAGE];
        if slot.names(key) {
            slot.entry.as_mut()
        } else {
            None
        }
    }

    pub(crate) fn remove(&mut self, key: SocketKey) -> Option<T> {
        let slot = self.slot_mut(key.index);
        let entry = if slot.names(key) {
            slot.entry.take()
        } else {
            None
        };
        if entry.is_some() {
            slot.generation = (slot.generation + 1) & SocketKey::GENERATION_MASK;
            self.vacant.push(key.index);
        }
        entry
    }

    /// The number of sockets.
    pub(crate) fn len(&self) -> usize {
        self.pages.len() * PAGE - self.vacant.len()
    }

    /// The key of the first entry of which `is_meant` is true.
    pub(crate) fn find(&self, is_meant: impl Fn(&T) -> bool) -> Option<SocketKey> {
        let mut slots = self.pages.iter().flat_map(|page| page.iter()).enumerate();
        slots.find_map(|(index, slot)| {
            let is_found = slot.entry.as_ref().is_some_and(&is_meant);
            is_found.then(|| SocketKey::from_parts(index as u32, slot.generation))
        })
    }

    /// All keys in use.
    pub(crate) fn keys(&self) -> Vec<SocketKey> {
        let slots = self.pages.iter().flat_map(|page| page.iter()).enumerate();
        slots
            .filter(|(_, slot)| slot.entry.is_some())
            .map(|(index, slot)| SocketKey::from_parts(index as u32, slot.generation))
            .collect()
    }

    #[inline]
    fn slot_mut(&mut self, index: u32) -> &mut SocketSlot<T> {
        &mut self.pages[index as usize / PAGE][index as usize % PAGE]
    }
}

impl<T> SocketSlot<T> {
    #[inline]
    fn names(&self, key: SocketKey) -> bool {
        self.generation == key.generation
    }
}
