//! What QUIC holds of streams because nobody has read it: content that waits for its reader, or behind a gap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use blitz_proto::h3::StreamId;
use blitz_quic::StreamFrame;
use blitz_quic::quinn_proto::Dir;

use super::driver::{Driver, stream_of};
use super::role::Role;
use crate::conn::streams::stream::Streams;

/// Bytes that a client can always send, so that its next requests come.
const HEADS_ROOM: usize = 16 * 1024;

/// QUIC tells the client what was read when it is this part of the window, and not before.
const ANNOUNCED_PARTS: usize = 8;

/// Frames of a stream from which on QUIC merges those that touch, and copies them out of their datagrams:
/// `quinn-proto` does so above this number, and earlier if they are small parts of their datagrams.
const MERGED_ABOVE: usize = 2_048;

/// Memory of a frame beside its datagram: an entry of QUIC and one of ours, each in a heap that may have grown to twice
/// of what it has.
const FRAME_BYTES: u64 = 128;

/// Content for which one more frame may wait.
const FRAME_CONTENT_BYTES: u64 = 512;

/// Memory beyond its window that each connection may hold, beside what all share.
const EXCESS_BYTES_FREE: u64 = 32 * 1024;

/// A frame is small, and a stream has many, if QUIC takes long to find a place for it: it goes through all of the stream
/// for each 32 KiB of datagrams that have hardly any content.
const SMALL_FRAME_BYTES: u64 = 256;
const MANY_FRAMES: usize = 128;

/// Small frames out of order among many, in [`Limits::frames_window`](blitz_proto::Limits::frames_window).
const DISORDERED_MAX: u32 = 8_192;

/// The unread input of a connection.
#[derive(Default)]
pub(super) struct Unread {
    /// Streams of which something is unread.
    streams: Streams<StreamId, StreamInput>,
    held: HeldMemory,
    /// The unread content of all streams.
    content: u64,
    /// Small frames that came out of order among many, and since when they are counted.
    disordered: u32,
    disordered_since: Option<Instant>,
    /// Until where the open streams beside the requests were read.
    beside: Vec<(StreamId, u64)>,
    /// Memory for the streams to come.
    spare: Vec<BinaryHeap<Reverse<Held>>>,
}

/// The unread part of a stream.
#[derive(Default)]
struct StreamInput {
    come_to: u64,
    read_to: u64,
    /// The one with the lowest end first. A client chooses the order in which they come, so no insertion may be slow.
    held: BinaryHeap<Reverse<Held>>,
    /// Bytes of all of them, also of those that came twice.
    held_bytes: u64,
    /// Frames that were left when they were merged last.
    merged: usize,
}

/// A frame of which a part is unread, or several that QUIC has merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    /// The offset behind its content.
    end: u64,
    offset: u64,
    /// `None` once it was copied.
    datagram: Option<u32>,
}

/// What QUIC holds for all streams.
#[derive(Default)]
struct HeldMemory {
    /// Datagrams of which something is unread, by their numbers.
    datagrams: Streams<u32, Datagram>,
    /// Bytes of these, and of content that was copied out of others.
    bytes: u64,
    frames: u64,
}

/// A datagram, which is held until its last frame was read.
struct Datagram {
    /// Frames that are unread.
    frames: u32,
    bytes: u64,
}

/// The memory of this many streams is kept for those to come, if they are short.
const SPARE_MAX: usize = 32;
const SPARE_FRAMES_MAX: usize = 16;

impl Held {
    fn len(&self) -> u64 {
        self.end - self.offset
    }
}

impl StreamInput {
    /// Content that has come and is unread: neither what came twice, nor the gaps before what came.
    fn content(&self) -> u64 {
        let distance = self.come_to.saturating_sub(self.read_to);
        distance.min(self.held_bytes)
    }

    /// Whether a frame has to be sorted in among many others, and is too small to be worth that.
    fn is_disordered(&self, frame: &StreamFrame) -> bool {
        self.held.len() >= MANY_FRAMES
            && frame.offset != self.come_to
            && frame.offset > self.read_to
            && frame.end - frame.offset < SMALL_FRAME_BYTES
    }

    fn push(&mut self, held: Held) {
        self.held_bytes += held.len();
        self.held.push(Reverse(held));
    }

    /// Takes the next frame that was read completely.
    fn pop_read(&mut self) -> Option<Held> {
        self.held.peek().filter(|held| held.0.end <= self.read_to)?;
        let held = self.held.pop()?.0;
        self.held_bytes -= held.len();
        Some(held)
    }

    /// Cuts off the part of a copy that was read, and returns its length.
    fn cut_read(&mut self) -> u64 {
        let Some(mut next) = self.held.peek_mut() else {
            return 0;
        };
        let held = &mut next.0;
        if held.datagram.is_some() || held.offset >= self.read_to {
            return 0;
        }
        let cut = self.read_to - held.offset;
        held.offset = self.read_to;
        self.held_bytes -= cut;
        cut
    }
}

impl HeldMemory {
    /// Notes a frame of a datagram.
    fn hold(&mut self, frame: &StreamFrame) {
        self.frames += 1;
        let bytes = &mut self.bytes;
        let datagram = self.datagrams.entry(frame.datagram).or_insert_with(|| {
            let frame_bytes = u64::from(frame.datagram_bytes);
            *bytes += frame_bytes;
            Datagram {
                frames: 0,
                bytes: frame_bytes,
            }
        });
        datagram.frames += 1;
    }

    /// Notes merged frames that were copied.
    fn hold_copy(&mut self, held: &Held) {
        self.frames += 1;
        self.bytes += held.len();
    }

    /// A frame is no longer held.
    fn release(&mut self, held: Held) {
        self.frames -= 1;
        let Some(number) = held.datagram else {
            self.bytes -= held.len();
            return;
        };
        let Some(datagram) = self.datagrams.get_mut(&number) else {
            return;
        };
        datagram.frames -= 1;
        if datagram.frames == 0 {
            self.bytes -= datagram.bytes;
            self.datagrams.remove(&number);
        }
    }
}

impl Unread {
    /// A frame of a stream has come that was read until `read_to`.
    fn come(&mut self, id: StreamId, frame: &StreamFrame, read_to: u64) {
        if frame.end <= read_to {
            return;
        }
        let spare = &mut self.spare;
        let stream = self.streams.entry(id).or_insert_with(|| StreamInput {
            held: spare.pop().unwrap_or_default(),
            ..StreamInput::default()
        });
        self.content -= stream.content();
        stream.read_to = stream.read_to.max(read_to);
        if stream.is_disordered(frame) {
            self.disordered += 1;
        }
        stream.come_to = stream.come_to.max(frame.end);
        stream.push(Held {
            end: frame.end,
            offset: frame.offset,
            datagram: Some(frame.datagram),
        });
        self.held.hold(frame);
        if stream.held.len() > stream.merged + MERGED_ABOVE {
            merge(stream, &mut self.held);
        }
        self.content += stream.content();
    }

    /// A stream was read until `read_to`.
    pub(super) fn read(&mut self, id: StreamId, read_to: u64) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if read_to >= stream.come_to {
            return self.forget(id);
        }
        self.content -= stream.content();
        stream.read_to = stream.read_to.max(read_to);
        while let Some(held) = stream.pop_read() {
            self.held.release(held);
        }
        stream.merged = stream.merged.min(stream.held.len());
        self.held.bytes -= stream.cut_read();
        self.content += stream.content();
    }

    /// QUIC holds nothing more of a stream.
    pub(super) fn forget(&mut self, id: StreamId) {
        let Some(mut stream) = self.streams.remove(&id) else {
            return;
        };
        self.content -= stream.content();
        for Reverse(held) in stream.held.drain() {
            self.held.release(held);
        }
        if self.spare.len() < SPARE_MAX && stream.held.capacity() <= SPARE_FRAMES_MAX {
            self.spare.push(stream.held);
        }
    }

    /// The memory that it takes.
    fn memory(&self) -> u64 {
        self.held.bytes.max(self.content) + self.held.frames * FRAME_BYTES
    }

    /// Gives back memory that there is nothing for.
    pub(super) fn shrink(&mut self) {
        self.streams.shrink_to_fit();
        self.held.datagrams.shrink_to_fit();
        self.spare = Vec::new();
        self.beside.shrink_to_fit();
    }

    /// A stream beside the requests is open.
    pub(super) fn open_beside(&mut self, id: StreamId) {
        self.beside.push((id, 0));
    }

    /// A stream beside the requests was read until `read_to`.
    pub(super) fn read_beside(&mut self, id: StreamId, read_to: u64) {
        if let Some(stream) = self.beside.iter_mut().find(|(other, _)| *other == id) {
            stream.1 = read_to;
        }
        self.read(id, read_to);
    }

    /// A stream beside the requests has ended, or nobody reads it.
    pub(super) fn close_beside(&mut self, id: StreamId) {
        self.beside.retain(|(other, _)| *other != id);
        self.forget(id);
    }
}

/// Merges the frames of a stream that touch or overlap, as QUIC does.
#[cold]
fn merge(stream: &mut StreamInput, memory: &mut HeldMemory) {
    let mut frames: Vec<Held> = stream.held.drain().map(|held| held.0).collect();
    stream.held_bytes = 0;
    frames.sort_unstable_by_key(|held| held.offset);
    let mut merged: Option<Held> = None;
    for held in frames {
        memory.release(held);
        match &mut merged {
            Some(before) if held.offset <= before.end => before.end = before.end.max(held.end),
            _ => {
                let next = Held {
                    datagram: None,
                    ..held
                };
                if let Some(before) = merged.replace(next) {
                    memory.hold_copy(&before);
                    stream.push(before);
                }
            }
        }
    }
    if let Some(last) = merged {
        memory.hold_copy(&last);
        stream.push(last);
    }
    stream.merged = stream.held.len();
}

impl<R: Role> Driver<R> {
    /// Notes what has come. What is of a stream that was closed or stopped is not held.
    pub(super) fn note_come(&mut self, is_idle: bool) {
        let Some(quic) = &self.quic else { return };
        let frames = quic.take_frames();
        self.window.frames += frames.len();
        for frame in &frames {
            let id = StreamId::new(frame.stream);
            let read_to = match stream_of(id).dir() {
                Dir::Bi => self.streams.get(&id).map(|stream| stream.read_to),
                Dir::Uni => {
                    let mut beside = self.unread.beside.iter();
                    beside
                        .find(|(other, _)| *other == id)
                        .map(|stream| stream.1)
                }
            };
            if let Some(read_to) = read_to {
                self.unread.come(id, frame, read_to);
            }
        }
        if !is_idle {
            quic.recycle_frames(frames);
        }
    }

    /// Keeps the window open while content waits that nobody reads: it would stop the content of other streams
    /// (rule 14), and even their heads, which the window is for as well. Content in many small frames gets no more
    /// credit, because its frames take more memory than the window says.
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

    /// Counts memory beyond the window, as far as the memory of all connections has room for it. Content may be beyond
    /// it, too: a client that had a larger window before it was idle may still use all of it, because nobody can take
    /// it back (RFC 9000, section 4.1).
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

    /// What a client may make QUIC hold is limited by the window, but not if it sends little content in large
    /// datagrams or many small pieces: a datagram is held as long as a part of it is, and each piece takes memory,
    /// however small it is.
    pub(super) fn holds_too_much(&self) -> bool {
        let limits = &self.limits().quic;
        let unread = &self.unread;
        let room = (self.window.bytes + self.window.beyond) as u64 + EXCESS_BYTES_FREE;
        // Content beyond the window was allowed before, up to the largest window.
        let content = (unread.content as usize).min(limits.window_bytes_max);
        let window = self.window.bytes.max(content);
        // Headers and repetitions are less than a quarter of what is received.
        unread.held.bytes / 4 * 3 > (window + limits.unread_excess_bytes_max) as u64
            || unread.held.frames > self.frames_max(window)
            || unread.memory() > room
    }

    /// Whether too many small frames have come out of order within a short time, each of which costs QUIC much more
    /// than one in order. The first of them may have come at any time.
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

    const BYTES: u32 = 1_200;
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
        }
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
        unread.read(id, 20);
        assert_eq!(sums(&unread), (20, 1_200, 1));
        unread.read(id, 40);
        assert_eq!(sums(&unread), (0, 0, 0));
        assert!(unread.held.datagrams.is_empty());
    }

    #[test]
    fn a_gap_keeps_what_is_behind_it() {
        let (id, mut unread) = (StreamId::new(0), Unread::default());
        for number in (1..100).rev() {
            unread.come(id, &frame(number, u64::from(number) * 2), 0);
        }
        assert_eq!(sums(&unread), (198, 99 * 1_200, 99));
        // Out of order as they came.
        unread.read(id, 100);
        assert_eq!(sums(&unread), (98, 49 * 1_200, 49));
        unread.forget(id);
        assert_eq!(sums(&unread), (0, 0, 0));
    }

    /// Of one that is always a frame behind, as readers that send on what they read are.
    #[test]
    fn uploads_in_shared_datagrams_do_not_add_up() {
        let ids = [StreamId::new(0), StreamId::new(4)];
        let mut unread = Unread::default();
        for datagram in 1..10_000 {
            let end = u64::from(datagram) * 600;
            for id in ids {
                unread.come(id, &frame(datagram, end), end.saturating_sub(1_200));
            }
            // The first one was read, and a datagram is held for the second.
            unread.read(ids[0], end);
            assert!(unread.held.bytes <= 2_400, "{:?}", sums(&unread));
            unread.read(ids[1], end - 600);
            assert_eq!(sums(&unread), (600, 1_200, 1));
        }
    }

    #[test]
    fn streams_beside_the_requests_count_while_they_are_open() {
        let (id, mut unread) = (StreamId::new(2), Unread::default());
        unread.open_beside(id);
        unread.come(id, &frame(1, 10), 0);
        unread.read_beside(id, 10);
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
        unread.come(id, &byte(500_000), 0);
        assert_eq!(sums(&unread), (1, 1_200, 1));
        // What comes twice is held twice, and may have filled the gap.
        unread.come(id, &byte(500_000), 0);
        assert_eq!(sums(&unread), (2, 1_200, 2));
        unread.read(id, 500_000);
        assert_eq!(sums(&unread), (1, 1_200, 2));
        unread.read(id, 500_001);
        assert_eq!(sums(&unread), (0, 0, 0));
    }

    #[test]
    fn many_small_frames_without_gaps_are_merged() {
        let (id, mut unread) = (StreamId::new(0), Unread::default());
        for offset in 0..10_000 {
            unread.come(id, &byte(offset), 0);
            assert!(unread.held.frames <= MERGED_ABOVE as u64 + 1);
        }
        // 2,049 are merged four times, with those before, and the rest is as it came.
        assert_eq!(sums(&unread), (10_000, 8_196 + 1_804 * 1_200, 1_805));
        unread.read(id, 5_000);
        assert_eq!(sums(&unread), (5_000, 3_196 + 1_804 * 1_200, 1_805));
        unread.read(id, 9_999);
        assert_eq!(sums(&unread), (1, 1_200, 1));
        unread.forget(id);
        assert_eq!(sums(&unread), (0, 0, 0));
    }

    #[test]
    fn frames_with_gaps_between_them_are_not_merged() {
        let (id, mut unread) = (StreamId::new(0), Unread::default());
        for offset in 0..3_000 {
            unread.come(id, &byte(offset * 2), 0);
        }
        assert_eq!(unread.held.frames, 3_000);
        assert_eq!(unread.disordered, 3_000 - MANY_FRAMES as u32);
        unread.read(id, 6_000);
        assert_eq!(sums(&unread), (0, 0, 0));
    }
}
