//! What QUIC holds of streams because nobody has read it: content that waits for its reader, or behind a gap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

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

/// The unread input of a connection.
#[derive(Default)]
pub(super) struct Unread {
    /// Streams of which something is unread.
    streams: Streams<StreamId, StreamInput>,
    /// Datagrams of which something is unread, by their numbers.
    datagrams: Streams<u32, Datagram>,
    /// The sums of all streams.
    content: u64,
    datagram_bytes: u64,
    frames: u64,
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
}

/// A frame of which a part is unread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    /// The offset behind its content.
    end: u64,
    datagram: u32,
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

impl StreamInput {
    fn content(&self) -> u64 {
        self.come_to.saturating_sub(self.read_to)
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
        stream.come_to = stream.come_to.max(frame.end);
        self.content += stream.content();
        stream.held.push(Reverse(Held {
            end: frame.end,
            datagram: frame.datagram,
        }));
        self.frames += 1;
        let datagram = self.datagrams.entry(frame.datagram).or_insert_with(|| {
            // Headers and repetitions are less than a quarter of what is received.
            let bytes = frame.datagram_bytes as u64 / 4 * 3;
            self.datagram_bytes += bytes;
            Datagram { frames: 0, bytes }
        });
        datagram.frames += 1;
    }

    /// A frame is no longer held.
    fn release(&mut self, held: Held) {
        self.frames -= 1;
        let Some(datagram) = self.datagrams.get_mut(&held.datagram) else {
            return;
        };
        datagram.frames -= 1;
        if datagram.frames == 0 {
            self.datagram_bytes -= datagram.bytes;
            self.datagrams.remove(&held.datagram);
        }
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
        self.content += stream.content();
        while let Some(held) = self.pop_read(id, read_to) {
            self.release(held);
        }
    }

    /// Takes the next frame of a stream that was read completely.
    fn pop_read(&mut self, id: StreamId, read_to: u64) -> Option<Held> {
        let held = &mut self.streams.get_mut(&id)?.held;
        held.peek().filter(|held| held.0.end <= read_to)?;
        held.pop().map(|held| held.0)
    }

    /// QUIC holds nothing more of a stream.
    pub(super) fn forget(&mut self, id: StreamId) {
        let Some(mut stream) = self.streams.remove(&id) else {
            return;
        };
        self.content -= stream.content();
        for Reverse(held) in stream.held.drain() {
            self.release(held);
        }
        if self.spare.len() < SPARE_MAX && stream.held.capacity() <= SPARE_FRAMES_MAX {
            self.spare.push(stream.held);
        }
    }

    /// Gives back memory that there is nothing for.
    pub(super) fn shrink(&mut self) {
        self.streams.shrink_to_fit();
        self.datagrams.shrink_to_fit();
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

impl<R: Role> Driver<R> {
    /// Notes what has come. What is of a stream that was closed or stopped is not held.
    pub(super) fn note_come(&mut self, is_idle: bool) {
        let Some(quic) = &self.quic else { return };
        let frames = quic.take_frames();
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
    /// (rule 14), and even their heads, which the window is for as well.
    pub(super) fn keep_window_open(&mut self) {
        let used = self.unread.content as usize;
        let not_announced = self.window.bytes / ANNOUNCED_PARTS;
        if used + not_announced + HEADS_ROOM < self.window.bytes {
            self.window.is_used_up = false;
            return;
        }
        let before = self.window.bytes;
        self.set_window(before * 2);
        self.window.is_used_up = self.window.bytes == before;
    }

    /// Counts content beyond the window, up to the largest window, and as far as the memory of all connections has room for
    /// it. A client that had a larger window before it was idle may still use all of it, because nobody can take it back
    /// (RFC 9000, section 4.1).
    pub(super) fn count_beyond_window(&mut self) {
        let content = (self.unread.content as usize).min(self.limits().quic.window_bytes_max);
        let beyond = content.saturating_sub(self.window.bytes);
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
        let window = (self.window.bytes + self.window.beyond) as u64;
        self.unread.datagram_bytes > window + limits.unread_excess_bytes_max as u64
            || self.unread.frames > limits.unread_frames_max + window / 512
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 1_200;

    /// A frame in a datagram of this number.
    fn frame(datagram: u32, end: u64) -> StreamFrame {
        StreamFrame {
            stream: 0,
            end,
            datagram,
            datagram_bytes: BYTES,
        }
    }

    /// Content, bytes of datagrams, frames.
    fn sums(unread: &Unread) -> (u64, u64, u64) {
        (unread.content, unread.datagram_bytes, unread.frames)
    }

    #[test]
    fn what_was_read_is_not_held() {
        let (id, mut unread) = (StreamId::new(0), Unread::default());
        unread.come(id, &frame(1, 10), 10);
        assert_eq!(sums(&unread), (0, 0, 0));
        unread.come(id, &frame(2, 20), 10);
        unread.come(id, &frame(3, 40), 10);
        assert_eq!(sums(&unread), (30, 1_800, 2));
        unread.read(id, 20);
        assert_eq!(sums(&unread), (20, 900, 1));
        unread.read(id, 40);
        assert_eq!(sums(&unread), (0, 0, 0));
        assert!(unread.datagrams.is_empty());
    }

    #[test]
    fn a_gap_keeps_what_is_behind_it() {
        let (id, mut unread) = (StreamId::new(0), Unread::default());
        for number in (1..100).rev() {
            unread.come(id, &frame(number, u64::from(number) * 2), 0);
        }
        assert_eq!(sums(&unread), (198, 99 * 900, 99));
        // Out of order as they came.
        unread.read(id, 100);
        assert_eq!(sums(&unread), (98, 49 * 900, 49));
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
            assert!(unread.datagram_bytes <= 1_800, "{:?}", sums(&unread));
            unread.read(ids[1], end - 600);
            assert_eq!(sums(&unread), (600, 900, 1));
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
}
