//! The unread bytes that QUIC holds of streams: content that waits for its reader, or lies behind a gap.

use std::collections::BinaryHeap;
use std::mem;
use std::ops::Range;
use std::time::Instant;

use blitz_proto::h3::StreamId;
use blitz_quic::StreamFrame;
use blitz_quic::quinn_proto::Dir;

use super::driver::{Driver, stream_of};
use super::held::{HeldFrame, HeldMemory, StreamInput, end_if_unmerged};
use super::role::Role;
use crate::conn::streams::stream::Streams;

/// Bytes that a client can always send, so that its next requests come.
const HEADS_ROOM: usize = 16 * 1024;

/// The part of the window that must be read before QUIC grants the client new credit.
const ANNOUNCED_PARTS: usize = 8;

/// Memory of a frame beside its datagram: an entry of QUIC and one of ours, each in a heap whose capacity may be twice
/// its length.
const FRAME_BYTES: u64 = 128;

/// Content for which one more frame may wait.
const FRAME_CONTENT_BYTES: u64 = 512;

/// Frames whose memory is kept for those of the next turn.
const FRESH_KEPT: usize = 64;

/// Memory beyond its window that each connection may hold, in addition to its part of the shared memory.
const EXCESS_BYTES_FREE: u64 = 32 * 1024;

/// Small frames out of order among many, in [`Limits::frames_window`](blitz_proto::Limits::frames_window).
const DISORDERED_MAX: u32 = 8_192;

/// The size of a slot for a frame in a heap of QUIC.
const SLOT_BYTES: u64 = 56;

/// Streams with fewer slots are not noted.
const SLOTS_MIN: usize = 16;

/// Bytes of heaps that QUIC may keep for an idle connection. Beyond them the connection is drained while all
/// connections together take more than a quarter of the memory that they share. Beyond half of that memory, idle
/// connections may keep none.
const IDLE_PLACES_BYTES_MAX: u64 = 256 * 1024;

/// The unread input of a connection.
#[derive(Default)]
pub(super) struct Unread {
    /// Frames in the order of their arrival that are not in `streams` yet.
    fresh: Vec<StreamFrame>,
    /// Streams of which QUIC holds bytes, without those whose frames are all in `fresh`.
    streams: Streams<StreamId, StreamInput>,
    held: HeldMemory,
    /// The unread content of all streams.
    content: u64,
    /// Small frames that came out of order among many, and the time since which they are counted.
    disordered: u32,
    disordered_since: Option<Instant>,
    /// The open streams beside the requests, with the offset until which each was read.
    beside: Vec<(StreamId, u64)>,
    /// Memory for new streams.
    spare: Vec<BinaryHeap<HeldFrame>>,
    slots: HeapSlots,
}

/// The slots in QUIC's heaps for the frames of streams. QUIC reuses the heap of an ended stream for a new stream, and
/// frees it only with the connection.
#[derive(Default)]
struct HeapSlots {
    /// The most slots of each open stream that has many.
    streams: Streams<StreamId, usize>,
    /// The largest numbers of frames that streams have had: their sum, and the largest of one stream.
    sum: u64,
    most: u64,
    /// Streams that the peer may open. Each has one heap; QUIC may have as many again of streams that have ended.
    heaps: u64,
}

/// The readable bytes of a stream.
#[derive(Clone, Copy)]
pub(super) struct Coming {
    /// The offset behind the stream's frames in `fresh`, if QUIC merges none of them and holds nothing else.
    fresh_end: Option<u64>,
    /// It shares memory with other content of the stream, which may be read much later.
    pub(super) is_merged: bool,
}

/// Ended streams whose memory is kept for new ones, and the most frames of such a stream.
const SPARE_MAX: usize = 32;
const SPARE_FRAMES_MAX: usize = 16;

impl HeapSlots {
    /// Notes that a stream has had so many frames at a time.
    #[inline]
    fn note(&mut self, id: StreamId, frames: usize) {
        if frames <= SLOTS_MIN {
            return;
        }
        let slots = frames.next_power_of_two();
        let noted = self.streams.entry(id).or_default();
        if slots > *noted {
            self.sum += (slots - *noted) as u64;
            self.most = self.most.max(slots as u64);
            *noted = slots;
        }
    }

    /// The largest memory that QUIC may keep.
    fn bytes(&self) -> u64 {
        self.sum.min(self.heaps * self.most) * SLOT_BYTES
    }
}

impl Unread {
    /// A frame has come of a stream that was read until `read_to`.
    fn come(&mut self, id: StreamId, frame: &StreamFrame, read_to: u64) {
        if frame.end <= read_to && !self.streams.contains_key(&id) {
            return;
        }
        let spare = &mut self.spare;
        let stream = self.streams.entry(id);
        let stream =
            stream.or_insert_with(|| StreamInput::new(read_to, spare.pop().unwrap_or_default()));
        self.content -= stream.content();
        if stream.is_disordered(frame) {
            self.disordered += 1;
        }
        stream.come(frame, &mut self.held);
        self.content += stream.content();
        self.slots.note(id, stream.held.len());
    }

    /// Moves the new frames of a stream into its input.
    fn take_fresh(&mut self, id: StreamId, read_to: u64) {
        let mut fresh = mem::take(&mut self.fresh);
        fresh.retain(|frame| {
            let is_other = frame.stream != id.get();
            if !is_other {
                self.come(id, frame, read_to);
            }
            is_other
        });
        self.fresh = fresh;
    }

    fn fresh_end(&self, id: StreamId, read_to: u64) -> Option<u64> {
        let fresh = self.fresh.iter().filter(|frame| frame.stream == id.get());
        end_if_unmerged(read_to, fresh)
    }

    /// A stream that was read until `read_to` is about to be read.
    pub(super) fn before_reading(&mut self, id: StreamId, read_to: u64) -> Coming {
        let is_held = self.streams.contains_key(&id);
        let fresh_end = match is_held {
            true => None,
            false => self.fresh_end(id, read_to),
        };
        if fresh_end.is_some() {
            return Coming {
                fresh_end,
                is_merged: false,
            };
        }
        self.take_fresh(id, read_to);
        let stream = self.streams.get(&id);
        let is_merged = stream.is_some_and(|stream| stream.is_merged);
        Coming {
            fresh_end,
            is_merged,
        }
    }

    /// The bytes of a stream that were `coming` were read from one offset until another, in pieces of at most
    /// `piece_bytes`. `pieces` counts the last one as well, which did not come.
    pub(super) fn read(
        &mut self,
        id: StreamId,
        coming: Coming,
        range: Range<u64>,
        pieces: usize,
        piece_bytes: usize,
    ) {
        if coming.fresh_end == Some(range.end) {
            let before = self.fresh.len();
            self.fresh.retain(|frame| frame.stream != id.get());
            return self.slots.note(id, before - self.fresh.len());
        }
        if coming.fresh_end.is_some() {
            self.take_fresh(id, range.start);
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        self.content -= stream.content();
        for _ in 0..pieces {
            if stream.next(piece_bytes as u64, &mut self.held).is_none() {
                break;
            }
        }
        self.content += stream.content();
        debug_assert_eq!(stream.read_to, range.end, "QUIC merges otherwise");
        if stream.is_empty() {
            self.forget(id);
        }
    }

    /// QUIC holds nothing more of a stream.
    pub(super) fn forget(&mut self, id: StreamId) {
        let Some(mut stream) = self.streams.remove(&id) else {
            return;
        };
        self.content -= stream.content();
        for held in stream.held.drain() {
            self.held.release(&held);
        }
        if self.spare.len() < SPARE_MAX && stream.held.capacity() <= SPARE_FRAMES_MAX {
            self.spare.push(stream.held);
        }
    }

    /// A stream has ended.
    pub(super) fn close(&mut self, id: StreamId) {
        self.forget(id);
        self.slots.streams.remove(&id);
    }

    /// The memory that it takes.
    fn memory(&self) -> u64 {
        let frames = self.held.frames * FRAME_BYTES + self.slots.bytes();
        self.held.bytes.max(self.content) + frames
    }

    /// Gives back unused memory.
    pub(super) fn shrink(&mut self) {
        self.streams.shrink_to_fit();
        self.held.allocations.shrink_to_fit();
        self.spare = Vec::new();
        self.fresh.shrink_to_fit();
        self.beside.shrink_to_fit();
    }

    /// A stream beside the requests is open.
    pub(super) fn open_beside(&mut self, id: StreamId) {
        self.beside.push((id, 0));
    }

    /// Notes that a piece of any length, or none, was read of a stream beside the requests, until this offset.
    pub(super) fn read_beside(&mut self, id: StreamId, read_to: Option<u64>) {
        let Some(stream) = self.beside.iter_mut().find(|(other, _)| *other == id) else {
            return;
        };
        let before = stream.1;
        stream.1 = read_to.unwrap_or(before);
        let range = before..stream.1;
        let coming = self.before_reading(id, before);
        self.read(id, coming, range, 1, usize::MAX);
    }

    /// A stream beside the requests has ended, or nobody reads it.
    pub(super) fn close_beside(&mut self, id: StreamId) {
        self.beside.retain(|(other, _)| *other != id);
        self.close(id);
    }
}

impl<R: Role> Driver<R> {
    /// Takes the frames that have arrived since the last call.
    pub(super) fn take_frames(&mut self) {
        let Some(quic) = &self.quic else { return };
        let before = self.unread.fresh.len();
        quic.take_frames(&mut self.unread.fresh);
        self.window.frames += self.unread.fresh.len() - before;
    }

    /// Notes the new frames. Frames of a stream that was closed or stopped are not held.
    pub(super) fn note_come(&mut self, is_idle: bool) {
        self.take_frames();
        if let Some(quic) = &self.quic {
            quic.note_passed();
        }
        let streams = self
            .streams
            .len()
            .max(self.limits().concurrent_streams_max as usize);
        let unread = &mut self.unread;
        unread.slots.heaps = unread.slots.heaps.max(2 * streams as u64);
        let mut fresh = mem::take(&mut unread.fresh);
        for frame in fresh.drain(..) {
            let id = StreamId::new(frame.stream);
            let read_to = match stream_of(id).dir() {
                Dir::Bi => self.streams.get(&id).map(|stream| stream.read_to),
                Dir::Uni => {
                    let mut beside = unread.beside.iter();
                    beside
                        .find(|(other, _)| *other == id)
                        .map(|stream| stream.1)
                }
            };
            if let Some(read_to) = read_to {
                unread.come(id, &frame, read_to);
            }
        }
        if !is_idle {
            fresh.shrink_to(FRESH_KEPT);
            unread.fresh = fresh;
        }
    }

    /// Keeps the window open while content waits that nobody reads. A full window would stop the content of other
    /// streams (rule 14), and even their heads, which take room in the window as well. Content in many small frames
    /// gets no more credit, because its frames take more memory than the window counts.
    pub(super) fn keep_window_open(&mut self) {
        let used = self.unread.content as usize;
        let not_announced = self.window.bytes / ANNOUNCED_PARTS;
        if used + not_announced + HEADS_ROOM < self.window.bytes {
            self.window.is_used_up = false;
            return;
        }
        let before = self.window.bytes;
        if self.unread.held.frames <= self.frames_usual(used) {
            self.set_window(before * 2);
        }
        self.window.is_used_up = self.window.bytes == before;
    }

    /// Counts memory beyond the window, as far as the shared memory of all connections has room for it. Content may be
    /// beyond the window too: a client that had a larger window before it was idle may still use all of it, because
    /// credit cannot be taken back (RFC 9000, section 4.1).
    pub(super) fn count_beyond_window(&mut self) {
        let free = self.window.bytes as u64 + EXCESS_BYTES_FREE;
        let beyond = self.unread.memory().saturating_sub(free) as usize;
        if beyond == 0 && self.window.beyond == 0 {
            return;
        }
        let others = self.shared.windows_grown.get() - self.window.beyond;
        let left = self.limits().core_buffer_bytes_max.saturating_sub(others);
        self.window.beyond = beyond.min(left);
        self.shared.windows_grown.set(others + self.window.beyond);
    }

    /// The window limits the bytes that a client makes QUIC hold, except for a client that sends little content in
    /// large datagrams or many small pieces: a datagram is held as long as a part of it is, and each piece takes
    /// memory, however small it is.
    pub(super) fn holds_too_much(&self) -> bool {
        let limits = &self.limits().quic;
        let unread = &self.unread;
        let room = (self.window.bytes + self.window.beyond) as u64 + EXCESS_BYTES_FREE;
        // Content beyond the window was allowed before, up to the largest window.
        let content = (unread.content as usize).min(limits.window_bytes_max);
        let window = self.window.bytes.max(content);
        // Headers and repetitions are less than a quarter of what is received.
        unread.held.unread_bytes() / 4 * 3 > (window + limits.unread_excess_bytes_max) as u64
            || unread.held.frames > self.frames_max(window)
            || unread.memory() > room
    }

    /// Whether QUIC keeps memory for an idle connection that others may need.
    pub(super) fn keeps_too_much(&self) -> bool {
        let shared = self.limits().core_buffer_bytes_max;
        let bytes_max = match self.shared.windows_grown.get() {
            taken if taken > shared / 2 => self.window.bytes as u64 + EXCESS_BYTES_FREE,
            taken if taken > shared / 4 => IDLE_PLACES_BYTES_MAX,
            _ => return false,
        };
        self.unread.slots.bytes() > bytes_max
    }

    /// Whether too many small frames have come out of order within a short time, each of which costs QUIC much more
    /// than one in order. The first one may have come at any time.
    pub(super) fn sorts_too_much(&mut self) -> bool {
        if self.unread.disordered <= DISORDERED_MAX {
            return false;
        }
        self.unread.disordered = 0;
        let now = blitz_reactor::now();
        let since = self.unread.disordered_since.replace(now);
        let window = self.limits().frames_window;
        since.is_some_and(|since| now.saturating_duration_since(since) < window)
    }

    /// Frames that may wait with so much content.
    fn frames_max(&self, content: usize) -> u64 {
        self.limits().quic.unread_frames_max + content as u64 / FRAME_CONTENT_BYTES
    }

    /// Frames that may wait with so much content before the client gets no further credit.
    pub(super) fn frames_usual(&self, content: usize) -> u64 {
        self.frames_max(content) - self.limits().quic.unread_frames_max / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conn::h3::held::{MANY_FRAMES, MERGED_ABOVE};

    const BYTES: u16 = 1_200;
    /// Content of each frame, at most.
    const PIECE: u64 = 600;

    /// A frame in a datagram of this number.
    fn frame(datagram: u32, end: u64) -> StreamFrame {
        StreamFrame {
            stream: 0,
            end,
            datagram,
            offset: end.saturating_sub(PIECE),
            datagram_bytes: BYTES,
            packet_bytes: BYTES - 40,
        }
    }

    /// Reads until an offset or a gap, and drops duplicates.
    fn read(unread: &mut Unread, id: StreamId, read_to: u64) {
        let Some(stream) = unread.streams.get_mut(&id) else {
            return;
        };
        unread.content -= stream.content();
        let held = &mut unread.held;
        while stream.read_to < read_to && stream.next(read_to - stream.read_to, held).is_some() {}
        for _ in 0..stream.held.len() {
            stream.next(0, held);
        }
        unread.content += stream.content();
        if stream.is_empty() {
            unread.forget(id);
        }
    }

    /// Reads as a connection does.
    fn read_pieces(unread: &mut Unread, id: StreamId, range: Range<u64>, pieces: usize) {
        let coming = unread.before_reading(id, range.start);
        unread.read(id, coming, range, pieces, 2_048);
    }

    /// Content, bytes of datagrams, frames.
    fn sums(unread: &Unread) -> (u64, u64, u64) {
        (unread.content, unread.held.bytes, unread.held.frames)
    }

    #[test]
    fn what_was_read_is_not_held() {
        let (id, mut unread) = (StreamId::new(0), Unread::default());
        unread.come(id, &frame(1, 10), 10);
        assert_eq!(sums(&unread), (0, 0, 0));
        unread.come(id, &frame(2, 20), 10);
        unread.come(id, &frame(3, 40), 10);
        assert_eq!(sums(&unread), (30, 2_400, 2));
        read(&mut unread, id, 20);
        assert_eq!(sums(&unread), (20, 1_200, 1));
        read(&mut unread, id, 40);
        assert_eq!(sums(&unread), (0, 0, 0));
        assert!(unread.held.allocations.is_empty());
    }

    #[test]
    fn a_gap_keeps_what_is_behind_it() {
        let (id, mut unread) = (StreamId::new(0), Unread::default());
        for number in (1..20).rev() {
            unread.come(id, &frame(number, u64::from(number) * 2), 0);
        }
        assert_eq!(sums(&unread), (38, 19 * 1_200, 19));
        // Out of order, as they came.
        read(&mut unread, id, 20);
        assert_eq!(sums(&unread), (18, 9 * 1_200, 9));
        unread.forget(id);
        assert_eq!(sums(&unread), (0, 0, 0));
    }

    /// The input of a reader that is always a frame behind, such as one that forwards the bytes that it reads.
    #[test]
    fn uploads_in_shared_datagrams_do_not_add_up() {
        let ids = [StreamId::new(0), StreamId::new(4)];
        let mut unread = Unread::default();
        for datagram in 1..10_000 {
            let end = u64::from(datagram) * 600;
            unread.come(ids[0], &frame(datagram, end), end - 600);
            unread.come(ids[1], &frame(datagram, end), end.saturating_sub(1_200));
            // The first one was read, and a datagram is held for the second.
            read(&mut unread, ids[0], end);
            assert!(unread.held.bytes <= 2_400, "{:?}", sums(&unread));
            read(&mut unread, ids[1], end - 600);
            assert_eq!(sums(&unread), (600, 1_200, 1));
        }
    }

    #[test]
    fn streams_beside_the_requests_count_while_they_are_open() {
        let (id, mut unread) = (StreamId::new(2), Unread::default());
        unread.open_beside(id);
        unread.come(id, &frame(1, 10), 0);
        unread.read_beside(id, Some(10));
        assert_eq!(
            (sums(&unread), &*unread.beside),
            ((0, 0, 0), &[(id, 10)][..])
        );
        unread.close_beside(id);
        assert!(unread.beside.is_empty());
    }

    /// One byte at this offset, in a datagram of its own.
    fn byte(offset: u64) -> StreamFrame {
        StreamFrame {
            offset,
            datagram: offset as u32,
            ..frame(0, offset + 1)
        }
    }

    #[test]
    fn a_gap_is_no_content() {
        let (id, mut unread) = (StreamId::new(0), Unread::default());
        unread.come(id, &byte(500), 0);
        assert_eq!(sums(&unread), (1, 1_200, 1));
        // A duplicate is held twice, and may have filled the gap.
        unread.come(id, &byte(500), 0);
        assert_eq!(sums(&unread), (2, 1_200, 2));
        let filling = StreamFrame {
            offset: 0,
            ..frame(1, 500)
        };
        unread.come(id, &filling, 0);
        read(&mut unread, id, 500);
        assert_eq!(sums(&unread), (1, 1_200, 2));
        read(&mut unread, id, 501);
        assert_eq!(sums(&unread), (0, 0, 0));
    }

    #[test]
    fn many_small_frames_without_gaps_are_merged() {
        let (id, mut unread) = (StreamId::new(0), Unread::default());
        for offset in 0..10_000 {
            unread.come(id, &byte(offset), 0);
            // Until then 32 KiB of datagrams are wasted; merged content of 128 bytes stays as it is.
            assert!(
                unread.held.frames <= 40 + 10_000 / 128,
                "{:?}",
                sums(&unread)
            );
        }
        assert_eq!(unread.content, 10_000);
        assert!(unread.held.bytes < 10_000 + 40 * 1_200);
        unread.forget(id);
        assert_eq!(sums(&unread), (0, 0, 0));
    }

    /// A frame of 600 bytes in a datagram of its own, which has hardly more.
    fn full(offset: u64) -> StreamFrame {
        StreamFrame {
            offset,
            datagram: offset as u32,
            datagram_bytes: 640,
            packet_bytes: 610,
            ..frame(0, offset + PIECE)
        }
    }

    /// Merged content is one allocation, which lasts until the last of it was read.
    #[test]
    fn merged_content_behind_a_gap_keeps_what_was_read() {
        let (id, mut unread) = (StreamId::new(0), Unread::default());
        let frames = MERGED_ABOVE as u64 + 1;
        // The last one lies behind a gap.
        let gap = |number| if number + 1 == frames { 100 } else { 0 };
        for number in 0..frames {
            assert!(!unread.before_reading(id, 0).is_merged);
            unread.come(id, &full(number * PIECE + gap(number)), 0);
        }
        assert!(unread.before_reading(id, 0).is_merged);
        assert_eq!(sums(&unread), (frames * PIECE, frames * PIECE, 2));
        read(&mut unread, id, (frames - 1) * PIECE);
        assert_eq!(sums(&unread), (PIECE, frames * PIECE, 1));
        assert_eq!(unread.held.unread_bytes(), PIECE);
        let filling = StreamFrame {
            offset: (frames - 1) * PIECE,
            ..frame(1, (frames - 1) * PIECE + 100)
        };
        unread.come(id, &filling, 0);
        read(&mut unread, id, frames * PIECE + 100);
        assert_eq!(sums(&unread), (0, 0, 0));
        assert!(unread.held.allocations.is_empty());
    }

    /// Long content is merged once, and stays when more is merged.
    #[test]
    fn merged_content_is_not_copied_again() {
        let (id, mut unread) = (StreamId::new(0), Unread::default());
        for number in 0..10_000 {
            unread.come(id, &full(number * PIECE), 0);
            assert!(unread.held.frames <= MERGED_ABOVE as u64 + 1);
        }
        let first = (MERGED_ABOVE as u64 + 1) * PIECE;
        let before = unread.held.bytes;
        read(&mut unread, id, first - 1);
        assert_eq!(unread.held.bytes, before);
        assert_eq!(unread.held.unread_bytes(), before - first + 1);
        read(&mut unread, id, first);
        assert_eq!(unread.held.bytes, before - first);
    }

    #[test]
    fn frames_with_gaps_between_them_are_not_merged() {
        let (id, mut unread) = (StreamId::new(0), Unread::default());
        for offset in 0..3_000 {
            unread.come(id, &byte(offset * 2), 0);
        }
        assert_eq!(unread.held.frames, 3_000);
        assert_eq!(unread.disordered, 3_000 - MANY_FRAMES as u32);
        unread.forget(id);
        assert_eq!(sums(&unread), (0, 0, 0));
    }

    /// Frames that are read in the turn in which they come are not held, if QUIC merges none of them.
    #[test]
    fn what_is_read_at_once_is_not_held_unless_it_was_merged() {
        let (id, mut unread) = (StreamId::new(0), Unread::default());
        for number in 0..20 {
            unread.fresh.push(full(number * PIECE));
        }
        assert!(!unread.before_reading(id, 0).is_merged);
        read_pieces(&mut unread, id, 0..20 * PIECE, 21);
        assert!(unread.fresh.is_empty() && unread.streams.is_empty());
        // Single bytes in datagrams of their own, and one behind a gap.
        let from = 20 * PIECE;
        for offset in (from..from + 100).chain([from + 101]) {
            unread.fresh.push(byte(offset));
        }
        assert!(unread.before_reading(id, from).is_merged);
        read_pieces(&mut unread, id, from..from + 100, 100);
        assert_eq!(sums(&unread).2, 1);
        assert!(unread.held.bytes > 1);
    }

    /// A duplicate is dropped when it is reached, and may have more merged until then.
    #[test]
    fn what_came_twice_is_held_until_it_is_reached() {
        let (id, mut unread) = (StreamId::new(0), Unread::default());
        unread.come(id, &full(0), 0);
        for _ in 0..3 {
            unread.come(id, &full(PIECE), 0);
        }
        read_pieces(&mut unread, id, 0..PIECE, 1);
        assert_eq!(sums(&unread), (PIECE, 640, 3));
        read_pieces(&mut unread, id, PIECE..2 * PIECE, 1);
        assert_eq!(sums(&unread), (0, 640, 2));
        read_pieces(&mut unread, id, 2 * PIECE..2 * PIECE, 1);
        assert_eq!(sums(&unread), (0, 0, 0));
    }

    /// QUIC keeps the heaps of streams that have ended.
    #[test]
    fn slots_of_ended_streams_count() {
        let mut unread = Unread::default();
        unread.slots.heaps = 2;
        for number in 0..50 {
            let id = StreamId::new(number * 4);
            for offset in 0..1_000 {
                unread.come(id, &byte(offset * 2), 0);
            }
            unread.close(id);
        }
        // Streams that the client may open have two heaps.
        assert_eq!(unread.memory(), 2 * 1_024 * SLOT_BYTES);
        unread.slots.heaps = 50;
        assert_eq!(unread.memory(), 50 * 1_024 * SLOT_BYTES);
        assert!(unread.slots.streams.is_empty());
    }
}
