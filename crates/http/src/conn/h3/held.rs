//! The memory of unread streams, as `quinn-proto` 0.11 keeps it. Content stays in its datagram until it is read. Frames
//! that are small parts of their datagrams, or very many, are merged: their content is copied into one allocation,
//! which lasts until all of it was read, including content behind a gap.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::mem;

use blitz_quic::StreamFrame;

use crate::conn::streams::stream::Streams;

/// Frames of a stream above which QUIC merges those that touch.
pub(super) const MERGED_ABOVE: usize = 2_048;

/// It merges earlier if the datagrams of a stream have this much more than its content, and 1.5 times as much.
const WASTE_MAX: u64 = 32 * 1024;

/// Merged content that has this length, or this part of the stream's content, is not copied again.
const KEPT_BYTES: u64 = 128;
const KEPT_PARTS: u64 = 1_024;

/// The size below which a frame is small, and the number of frames from which a stream has many. QUIC takes long to
/// sort a small frame in among many: it walks the whole stream for each 32 KiB of datagrams with hardly any content.
const SMALL_FRAME_BYTES: u64 = 256;
pub(super) const MANY_FRAMES: usize = 128;

/// Marks the numbers of allocations with merged content; the others are those of datagrams.
const MERGED: u32 = 1 << 31;

/// The unread part of a stream. Each frame, and each piece that is read, has the same effect here as in the library, in
/// the same order, because both decide which frames are merged.
#[derive(Default)]
pub(super) struct StreamInput {
    come_to: u64,
    pub(super) read_to: u64,
    pub(super) held: BinaryHeap<HeldFrame>,
    /// Bytes of all of them, including duplicates.
    held_bytes: u64,
    /// Bytes of their datagrams, as QUIC counts them: again for each frame.
    occupied: u64,
    /// Content was merged since the stream was empty.
    pub(super) is_merged: bool,
}

/// A frame of which a part is unread, or several that QUIC has merged.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldFrame {
    offset: u64,
    bytes: u64,
    allocation: u32,
    /// Bytes of its datagram as QUIC counts them, or of its content if QUIC has found that the content is most of it.
    occupied: u32,
    /// QUIC copies it only if it is short.
    is_kept: bool,
}

/// In the order of QUIC: the greatest frame is read first. It has the lowest offset, and is the longest one there.
impl Ord for HeldFrame {
    fn cmp(&self, other: &HeldFrame) -> Ordering {
        let by_offset = other.offset.cmp(&self.offset);
        by_offset.then(self.bytes.cmp(&other.bytes))
    }
}

impl PartialOrd for HeldFrame {
    fn partial_cmp(&self, other: &HeldFrame) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for HeldFrame {
    fn eq(&self, other: &HeldFrame) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for HeldFrame {}

/// The memory that QUIC holds for all streams.
#[derive(Default)]
pub(super) struct HeldMemory {
    /// Datagrams and merged content with unread parts, by their numbers.
    pub(super) allocations: Streams<u32, Allocation>,
    /// Bytes of these.
    pub(super) bytes: u64,
    /// Bytes of merged content in these that were read since.
    read_bytes: u64,
    pub(super) frames: u64,
    /// The last number of merged content.
    merged: u32,
}

/// Memory that is held until its last frame was read.
pub(super) struct Allocation {
    /// Frames that are unread.
    frames: u32,
    bytes: u64,
}

impl StreamInput {
    /// Of a stream that was read until `read_to`, with memory for its frames.
    pub(super) fn new(read_to: u64, held: BinaryHeap<HeldFrame>) -> StreamInput {
        StreamInput {
            come_to: read_to,
            read_to,
            held,
            ..StreamInput::default()
        }
    }

    /// The unread content, without duplicates and gaps.
    pub(super) fn content(&self) -> u64 {
        self.held_bytes.min(self.come_to - self.read_to)
    }

    /// Whether QUIC holds nothing of the stream, and no empty frame has come from beyond a gap.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.come_to == self.read_to
    }

    /// Whether a frame has to be sorted in among many others, and is too small to be worth that.
    pub(super) fn is_disordered(&self, frame: &StreamFrame) -> bool {
        self.held.len() >= MANY_FRAMES
            && frame.offset != self.come_to
            && frame.offset > self.read_to
            && frame.end - frame.offset < SMALL_FRAME_BYTES
    }

    /// A frame has come.
    pub(super) fn come(&mut self, frame: &StreamFrame, memory: &mut HeldMemory) {
        if frame.end <= self.read_to && frame.offset < self.read_to {
            return;
        }
        self.come_to = self.come_to.max(frame.end);
        let offset = frame.offset.max(self.read_to);
        if frame.end > offset {
            let datagram = frame.datagram & !MERGED;
            memory.hold(datagram, u64::from(frame.datagram_bytes), 1);
            self.push(HeldFrame {
                offset,
                bytes: frame.end - offset,
                allocation: datagram,
                occupied: frame.packet_bytes.into(),
                is_kept: false,
            });
        }
        if wastes(self.occupied, self.content()) || self.held.len() > MERGED_ABOVE {
            self.merge(memory);
        }
    }

    fn push(&mut self, held: HeldFrame) {
        self.held_bytes += held.bytes;
        self.occupied += u64::from(held.occupied);
        self.held.push(held);
    }

    /// Reads a piece of at most so many bytes, and returns its length; `None` if a gap is next. Duplicates before the
    /// piece are dropped.
    pub(super) fn next(&mut self, bytes_max: u64, memory: &mut HeldMemory) -> Option<u64> {
        loop {
            let mut next = self.held.peek_mut()?;
            if next.offset > self.read_to {
                return None;
            }
            let twice = next.bytes.min(self.read_to - next.offset);
            if twice > 0 {
                memory.note_read(&next, twice);
                next.offset += twice;
                next.bytes -= twice;
                self.held_bytes -= twice;
            }
            let bytes = next.bytes.min(bytes_max);
            self.read_to += bytes;
            self.held_bytes -= bytes;
            if bytes < next.bytes {
                memory.note_read(&next, bytes);
                next.offset += bytes;
                next.bytes -= bytes;
                return Some(bytes);
            }
            let next = PeekMut::pop(next);
            self.occupied -= u64::from(next.occupied);
            memory.release(&next);
            if bytes > 0 {
                return Some(bytes);
            }
        }
    }

    /// Merges the frames that touch or overlap.
    #[cold]
    fn merge(&mut self, memory: &mut HeldMemory) {
        let kept_bytes = self.held_bytes.div_ceil(KEPT_PARTS).max(KEPT_BYTES);
        let mut frames = mem::take(&mut self.held).into_sorted_vec();
        let (mut end, mut merged_bytes) = (0, 0);
        for held in frames.iter_mut().rev() {
            let twice = held.bytes.min(end - end.min(held.offset));
            memory.note_read(held, twice);
            held.offset = end.max(held.offset);
            held.bytes -= twice;
            if held.bytes == 0 {
                memory.release(held);
                continue;
            }
            end = held.offset + held.bytes;
            held.is_kept |= held.bytes * 6 / 5 >= u64::from(held.occupied);
            if held.is_kept {
                held.occupied = held.bytes as u32;
            }
            if !held.is_kept || held.bytes < kept_bytes {
                merged_bytes += held.bytes;
            }
        }
        (self.held_bytes, self.occupied) = (0, 0);
        let allocation = memory.next_merged();
        let mut span = HeldFrame {
            offset: 0,
            bytes: 0,
            allocation,
            occupied: 0,
            is_kept: true,
        };
        let mut spans = 0;
        for held in frames.into_iter().rev().filter(|held| held.bytes > 0) {
            if held.is_kept && held.bytes >= kept_bytes {
                self.push(held);
                continue;
            }
            memory.release(&held);
            if held.offset != span.offset + span.bytes {
                spans += self.push_span(span);
                (span.offset, span.bytes) = (held.offset, 0);
            }
            span.bytes += held.bytes;
        }
        spans += self.push_span(span);
        if spans > 0 {
            memory.hold(allocation, merged_bytes, spans);
            self.is_merged = true;
        }
    }

    /// Holds merged content; returns 1 if there is some.
    fn push_span(&mut self, mut span: HeldFrame) -> u32 {
        if span.bytes == 0 {
            return 0;
        }
        span.occupied = span.bytes as u32;
        self.push(span);
        1
    }
}

/// Whether QUIC merges the content because so much more memory than content is held.
fn wastes(occupied: u64, content: u64) -> bool {
    occupied - content > WASTE_MAX.max(content * 3 / 2)
}

/// The offset behind these frames of a stream, if QUIC merges none of them, and none was a duplicate or came before
/// another. The stream was read until `read_to`, and QUIC held nothing of it.
pub(super) fn end_if_unmerged<'a>(
    read_to: u64,
    frames: impl Iterator<Item = &'a StreamFrame>,
) -> Option<u64> {
    let (mut end, mut occupied, mut count) = (read_to, 0, 0);
    for frame in frames {
        if frame.offset != end {
            return None;
        }
        end = frame.end;
        occupied += u64::from(frame.packet_bytes);
        count += 1;
    }
    let is_unmerged =
        occupied - (end - read_to).min(occupied) <= WASTE_MAX && count <= MERGED_ABOVE;
    is_unmerged.then_some(end)
}

impl HeldMemory {
    /// Notes frames of an allocation of so many bytes.
    fn hold(&mut self, number: u32, bytes: u64, frames: u32) {
        self.frames += u64::from(frames);
        let sum = &mut self.bytes;
        let allocation = self.allocations.entry(number).or_insert_with(|| {
            *sum += bytes;
            Allocation { frames: 0, bytes }
        });
        allocation.frames += frames;
    }

    /// Bytes that are held, without those that were read.
    pub(super) fn unread_bytes(&self) -> u64 {
        self.bytes - self.read_bytes
    }

    /// Notes that a part of a frame was read, or was a duplicate.
    fn note_read(&mut self, held: &HeldFrame, bytes: u64) {
        if held.allocation & MERGED != 0 {
            self.read_bytes += bytes;
        }
    }

    /// A number for merged content.
    fn next_merged(&mut self) -> u32 {
        self.merged = self.merged.wrapping_add(1) | MERGED;
        self.merged
    }

    /// Releases a frame, or the rest of it.
    pub(super) fn release(&mut self, held: &HeldFrame) {
        self.frames -= 1;
        self.note_read(held, held.bytes);
        let Some(allocation) = self.allocations.get_mut(&held.allocation) else {
            return;
        };
        allocation.frames -= 1;
        if allocation.frames == 0 {
            self.bytes -= allocation.bytes;
            if held.allocation & MERGED != 0 {
                self.read_bytes -= allocation.bytes;
            }
            self.allocations.remove(&held.allocation);
        }
    }
}
