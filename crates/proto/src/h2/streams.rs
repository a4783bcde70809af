//! The streams of a connection, found by their identifiers.

use super::stream::Stream;

/// The slot of a stream. Valid until the stream is removed.
pub(crate) type Slot = u32;

/// Streams in slots that are used again, and a hash table from identifiers to slots.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// The identifier is 0 where there is none.
    slots: Vec<Stream>,
    free: Vec<Slot>,
    index: Index,
    closed: Closed,
}

impl Streams {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.index.len
    }

    #[inline]
    pub(crate) fn find(&self, id: u32) -> Option<Slot> {
        self.index.find(id)
    }

    /// The stream in a slot that [`Streams::find`] or [`Streams::insert`] returned.
    #[inline]
    pub(crate) fn at(&mut self, slot: Slot) -> &mut Stream {
        &mut self.slots[slot as usize]
    }

    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&Stream> {
        self.slots.get(self.find(id)? as usize)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut Stream> {
        let slot = self.find(id)?;
        self.slots.get_mut(slot as usize)
    }

    #[inline]
    pub(crate) fn insert(&mut self, stream: Stream) -> Slot {
        let id = stream.id;
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = stream;
                slot
            }
            None => {
                self.slots.push(stream);
                self.slots.len() as Slot - 1
            }
        };
        self.index.insert(id, slot);
        slot
    }

    /// Takes a stream out and remembers how it ended.
    #[inline]
    pub(crate) fn remove(&mut self, slot: Slot, end: StreamEnd) {
        let id = std::mem::take(&mut self.slots[slot as usize].id);
        self.index.remove(id);
        self.free.push(slot);
        self.closed.push(id, end);
    }

    /// Remembers the end of a stream that never was in the table.
    pub(crate) fn note_closed(&mut self, id: u32, end: StreamEnd) {
        self.closed.push(id, end);
    }

    /// The end of a stream that is not in the table, if it is among the remembered ones.
    pub(crate) fn end_of(&self, id: u32) -> Option<StreamEnd> {
        self.closed.end_of(id)
    }

    /// Whether the end of every stream so far is remembered.
    pub(crate) fn remembers_all(&self) -> bool {
        self.closed.count <= CLOSED_LEN
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.slots.iter_mut().filter(|stream| stream.id != 0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.slots.iter().filter(|stream| stream.id != 0)
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Stream>()
            + self.free.capacity() * size_of::<Slot>()
            + self.index.buckets.capacity() * size_of::<Bucket>()
    }
}

/// How a stream left the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// The peer ended it; further frames are an error of the peer.
    ByPeer,
    /// This side reset it; frames that the peer sent meanwhile are ignored.
    ByUs,
}

const CLOSED_LEN: usize = 32;

/// The streams that ended last: identifiers, shifted left by one bit, which holds the [`StreamEnd`].
#[derive(Debug, Default)]
struct Closed {
    ring: [u32; CLOSED_LEN],
    count: usize,
}

impl Closed {
    #[inline]
    fn push(&mut self, id: u32, end: StreamEnd) {
        self.ring[self.count % CLOSED_LEN] = id << 1 | u32::from(end == StreamEnd::ByUs);
        self.count = self.count.wrapping_add(1);
    }

    fn end_of(&self, id: u32) -> Option<StreamEnd> {
        let found = self.ring.iter().find(|&&entry| entry >> 1 == id)?;
        Some(if found & 1 == 1 {
            StreamEnd::ByUs
        } else {
            StreamEnd::ByPeer
        })
    }
}

/// An open-addressing table. The identifiers of a connection are every second number, so they spread
/// evenly, with a free bucket after each, which ends the search of a removal. A peer that skips
/// identifiers causes a longer search, which the limit of concurrent streams bounds.
#[derive(Debug, Default)]
struct Index {
    /// The length is a power of two; at most half of the buckets are in use.
    buckets: Vec<Bucket>,
    len: usize,
}

/// An identifier, 0 for none, and its slot.
#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    id: u32,
    slot: Slot,
}

impl Index {
    #[inline]
    fn find(&self, id: u32) -> Option<Slot> {
        let mask = self.buckets.len().wrapping_sub(1);
        let mut at = home_bucket(id);
        loop {
            let bucket = self.buckets.get(at & mask)?;
            if bucket.id == id {
                return Some(bucket.slot);
            }
            if bucket.id == 0 {
                return None;
            }
            at += 1;
        }
    }

    #[inline]
    fn insert(&mut self, id: u32, slot: Slot) {
        if self.len * 2 >= self.buckets.len() {
            self.grow();
        }
        self.len += 1;
        self.put(Bucket { id, slot });
    }

    #[inline]
    fn put(&mut self, bucket: Bucket) {
        let mask = self.buckets.len() - 1;
        let mut at = home_bucket(bucket.id) & mask;
        while self.buckets[at].id != 0 {
            at = (at + 1) & mask;
        }
        self.buckets[at] = bucket;
    }

    #[cold]
    fn grow(&mut self) {
        let len = (self.buckets.len() * 2).max(8);
        let old = std::mem::replace(&mut self.buckets, vec![Bucket::default(); len]);
        for bucket in old.into_iter().filter(|bucket| bucket.id != 0) {
            self.put(bucket);
        }
    }

    /// Removes an identifier and moves later ones forward, so that no search ends too early.
    #[inline]
    fn remove(&mut self, id: u32) {
        let mask = self.buckets.len().wrapping_sub(1);
        let mut gap = home_bucket(id) & mask;
        while self.buckets[gap].id != id {
            if self.buckets[gap].id == 0 {
                return;
            }
            gap = (gap + 1) & mask;
        }
        self.len -= 1;
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            let bucket = self.buckets[at];
            if bucket.id == 0 {
                break;
            }
            // An entry may move if its home bucket is not between the gap and its bucket.
            let distance = at.wrapping_sub(home_bucket(bucket.id)) & mask;
            if distance >= at.wrapping_sub(gap) & mask {
                self.buckets[gap] = bucket;
                gap = at;
            }
        }
        self.buckets[gap] = Bucket::default();
    }
}

#[inline]
fn home_bucket(id: u32) -> usize {
    id as usize
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn the_index_agrees_with_a_map() {
        let mut index = Index::default();
        let mut map = HashMap::new();
        let mut random = 1u64;
        for _ in 0..200_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            // Few homes, so that runs are long and wrap around.
            let id = (random >> 33) as u32 % 300 * 2 + 1;
            if map.remove(&id).is_some() {
                index.remove(id);
            } else if map.len() < 100 {
                map.insert(id, id * 3);
                index.insert(id, id * 3);
            }
            assert_eq!(
                (index.len, index.find(id)),
                (map.len(), map.get(&id).copied())
            );
        }
        for id in (1..600).step_by(2) {
            assert_eq!(index.find(id), map.get(&id).copied());
        }
    }

    #[test]
    fn the_last_ends_are_remembered() {
        let mut streams = Streams::default();
        for id in (1..200).step_by(2) {
            streams.note_closed(
                id,
                if id % 4 == 1 {
                    StreamEnd::ByUs
                } else {
                    StreamEnd::ByPeer
                },
            );
        }
        assert_eq!(
            (streams.end_of(199), streams.end_of(197)),
            (Some(StreamEnd::ByPeer), Some(StreamEnd::ByUs))
        );
        assert_eq!(streams.end_of(1), None);
        assert!(!streams.remembers_all());
    }
}
