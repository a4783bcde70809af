//! The memory of unread streams, as `quinn-proto` 0.11 keeps it: content stays in its datagram until it is read, but
//! frames that are small parts of their datagrams, or very many, are merged. Their content is copied into one
//! allocation then, which lasts until all of it was read, also what lies behind a gap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use blitz_quic::StreamFrame;

use crate::conn::streams::stream::Streams;

/// Frames of a stream above which QUIC merges those that touch.
pub(super) const MERGED_ABOVE: usize = 2_048;

/// It merges earlier if the datagrams of a stream have this much more than its content, and 1.5 times as much.
const WASTE_MAX: u64 = 32 * 1024;

/// Merged content of this length, and of this part of the stream's, is not copied again.
const KEPT_BYTES: u64 = 128;
const KEPT_PARTS: u64 = 1_024;

/// A frame is small, and a stream has many, if QUIC takes long to find a place for it: it goes through all of the stream
/// for each 32 KiB of datagrams that have hardly any content.
const SMALL_FRAME_BYTES: u64 = 256;
pub(super) const MANY_FRAMES: usize = 128;

/// Marks the numbers of allocations with merged content; the others are those of datagrams.
const MERGED: u32 = 1 << 31;

/// The unread part of a stream.
#[derive(Default)]
pub(super) struct StreamInput {
    pub(super) come_to: u64,
    pub(super) read_to: u64,
    /// The one with the lowest end first. A client chooses the order in which they come, so no insertion may be slow.
    pub(super) held: BinaryHeap<Reverse<Held>>,
    /// Bytes of all of them, also of those that came twice.
    held_bytes: u64,
    /// Bytes of their datagrams, as QUIC counts them: again for each frame.
    occupied: u64,
    /// Content was merged since the stream was empty.
    pub(super) is_merged: bool,
}

/// A frame of which a part is unread, or several that QUIC has merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Held {
    /// The offset behind its content.
    end: u64,
    offset: u64,
    allocation: u32,
    /// Bytes of its datagram as QUIC counts them, or of its content if QUIC has found that to be most of it.
    occupied: u32,
    /// QUIC copies it only if it is short.
    is_kept: bool,
}

/// What QUIC holds for all streams.
#[derive(Default)]
pub(super) struct HeldMemory {
    /// Datagrams and merged content of which something is unread, by their numbers.
    pub(super) allocations: Streams<u32, Allocation>,
    /// Bytes of these.
    pub(super) bytes: u64,
    /// Those of merged content that was read since.
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

impl Held {
    fn len(&self) -> u64 {
        self.end - self.offset
    }
}

impl StreamInput {
    /// With memory for its frames.
    pub(super) fn new(held: BinaryHeap<Reverse<Held>>) -> StreamInput {
        StreamInput {
            held,
            ..StreamInput::default()
        }
    }

    /// Content that has come and is unread: neither what came twice, nor the gaps before what came.
    pub(super) fn content(&self) -> u64 {
        let distance = self.come_to.saturating_sub(self.read_to);
        distance.min(self.held_bytes)
    }

    /// Whether a frame has to be sorted in among many others, and is too small to be worth that.
    pub(super) fn is_disordered(&self, frame: &StreamFrame) -> bool {
        self.held.len() >= MANY_FRAMES
            && frame.offset != self.come_to
            && frame.offset > self.read_to
            && frame.end - frame.offset < SMALL_FRAME_BYTES
    }

    /// A frame has come that is unread.
    pub(super) fn come(&mut self, frame: &StreamFrame, memory: &mut HeldMemory) {
        let datagram = frame.datagram & !MERGED;
        memory.hold(datagram, u64::from(frame.datagram_bytes), 1);
        self.come_to = self.come_to.max(frame.end);
        self.push(Held {
            end: frame.end,
            offset: frame.offset.max(self.read_to),
            allocation: datagram,
            occupied: frame.packet_bytes.into(),
            is_kept: false,
        });
        let content = self.content();
        let waste = self.occupied.saturating_sub(content);
        if waste > WASTE_MAX.max(content * 3 / 2) || self.held.len() > MERGED_ABOVE {
            self.merge(memory);
        }
    }

    fn push(&mut self, held: Held) {
        self.held_bytes += held.len();
        self.occupied += u64::from(held.occupied);
        self.held.push(Reverse(held));
    }

    /// It was read until `read_to`.
    pub(super) fn read(&mut self, read_to: u64, memory: &mut HeldMemory) {
        self.read_to = self.read_to.max(read_to);
        while let Some(Reverse(held)) = self.held.peek().copied() {
            if held.end > self.read_to {
                break;
            }
            self.held.pop();
            self.held_bytes -= held.len();
            self.occupied -= u64::from(held.occupied);
            memory.release(&held);
        }
        let read_to = self.read_to;
        if self.held.peek().is_some_and(|next| next.0.offset < read_to)
            && let Some(mut next) = self.held.peek_mut()
        {
            let read = read_to - next.0.offset;
            self.held_bytes -= read;
            memory.note_read(&next.0, read);
            next.0.offset = read_to;
        }
    }

    /// Merges the frames that touch or overlap, as QUIC does.
    #[cold]
    fn merge(&mut self, memory: &mut HeldMemory) {
        let kept_bytes = self.held_bytes.div_ceil(KEPT_PARTS).max(KEPT_BYTES);
        let mut frames: Vec<Held> = self.held.drain().map(|held| held.0).collect();
        frames.sort_unstable_by_key(|held| (held.offset, Reverse(held.end)));
        (self.held_bytes, self.occupied) = (0, 0);
        let (mut position, mut spans): (u64, Vec<Held>) = (0, Vec::new());
        let number = memory.next_merged();
        for mut held in frames {
            if held.end <= position {
                memory.release(&held);
                continue;
            }
            let twice = position.saturating_sub(held.offset);
            memory.note_read(&held, twice);
            held.offset += twice;
            position = held.end;
            held.is_kept |= held.len() * 6 / 5 >= u64::from(held.occupied);
            if held.is_kept {
                held.occupied = held.len() as u32;
            }
            if held.is_kept && held.len() >= kept_bytes {
                self.push(held);
                continue;
            }
            memory.release(&held);
            match spans.last_mut() {
                Some(span) if span.end == held.offset => {
                    span.end = held.end;
                    span.occupied = span.len() as u32;
                }
                _ => spans.push(Held {
                    allocation: number,
                    occupied: held.len() as u32,
                    is_kept: true,
                    ..held
                }),
            }
        }
        let bytes = spans.iter().map(Held::len).sum();
        if !spans.is_empty() {
            memory.hold(number, bytes, spans.len() as u32);
            self.is_merged = true;
        }
        spans.into_iter().for_each(|span| self.push(span));
    }
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

    /// Bytes without those that were read.
    pub(super) fn unread_bytes(&self) -> u64 {
        self.bytes - self.read_bytes
    }

    /// A part of a frame was read, or has come twice.
    fn note_read(&mut self, held: &Held, bytes: u64) {
        if held.allocation & MERGED != 0 {
            self.read_bytes += bytes;
        }
    }

    /// Whether content of any stream was ever merged.
    pub(super) fn has_merged(&self) -> bool {
        self.merged != 0
    }

    /// A number for merged content.
    fn next_merged(&mut self) -> u32 {
        self.merged = self.merged.wrapping_add(1) | MERGED;
        self.merged
    }

    /// A frame is no longer held.
    pub(super) fn release(&mut self, held: &Held) {
        self.frames -= 1;
        self.note_read(held, held.len());
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
