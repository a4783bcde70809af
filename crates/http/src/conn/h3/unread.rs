//! What QUIC holds of streams because nobody has read it: content that waits for its reader, or behind a gap.

use std::collections::HashMap;

use blitz_proto::h3::StreamId;
use blitz_quic::StreamFrame;
use blitz_quic::quinn_proto::Dir;

use super::driver::{Driver, stream_of};
use super::role::Role;

/// Bytes that a client can always send, so that its next requests come.
const HEADS_ROOM: usize = 16 * 1024;

/// QUIC tells the client what was read when it is this part of the window, and not before.
const ANNOUNCED_PARTS: usize = 8;

/// The unread input of a connection.
#[derive(Default)]
pub(super) struct Unread {
    /// Streams of which something is unread.
    streams: HashMap<StreamId, StreamInput>,
    /// The sums of all streams.
    content: u64,
    datagram_bytes: u64,
    frames: u64,
    /// Until where the open streams beside the requests were read.
    beside: Vec<(StreamId, u64)>,
}

/// What has come of a stream since all of it was read.
#[derive(Default)]
struct StreamInput {
    come_to: u64,
    read_to: u64,
    /// Most bytes of datagrams that are held for it.
    datagram_bytes: u64,
    frames: u64,
}

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
        let stream = self.streams.entry(id).or_default();
        self.content -= stream.content();
        stream.read_to = stream.read_to.max(read_to);
        stream.come_to = stream.come_to.max(frame.end);
        self.content += stream.content();
        // Headers and repetitions are less than a quarter of what is received.
        let datagram_bytes = frame.datagram_bytes as u64 / 4 * 3;
        stream.datagram_bytes += datagram_bytes;
        self.datagram_bytes += datagram_bytes;
        stream.frames += 1;
        self.frames += 1;
    }

    /// A stream was read until `read_to`: so many bytes, in so many pieces.
    pub(super) fn read(&mut self, id: StreamId, read_to: u64, bytes: usize, pieces: u64) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if read_to >= stream.come_to {
            return self.forget(id);
        }
        self.content -= stream.content();
        stream.read_to = stream.read_to.max(read_to);
        self.content += stream.content();
        let freed = stream.datagram_bytes.min(bytes as u64);
        stream.datagram_bytes -= freed;
        self.datagram_bytes -= freed;
        let freed = stream.frames.min(pieces);
        stream.frames -= freed;
        self.frames -= freed;
    }

    /// QUIC holds nothing more of a stream.
    pub(super) fn forget(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.remove(&id) {
            self.content -= stream.content();
            self.datagram_bytes -= stream.datagram_bytes;
            self.frames -= stream.frames;
        }
    }

    /// Gives back memory that there is nothing for.
    pub(super) fn shrink(&mut self) {
        self.streams.shrink_to_fit();
        self.beside.shrink_to_fit();
    }

    /// A stream beside the requests is open.
    pub(super) fn open_beside(&mut self, id: StreamId) {
        self.beside.push((id, 0));
    }

    /// A stream beside the requests was read until `read_to`, in one piece.
    pub(super) fn read_beside(&mut self, id: StreamId, read_to: u64, bytes: usize) {
        if let Some(stream) = self.beside.iter_mut().find(|(other, _)| *other == id) {
            stream.1 = read_to;
        }
        self.read(id, read_to, bytes, 1);
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

    /// What a client may make QUIC hold is limited by the window, but not if it sends little content in large
    /// datagrams or many small pieces: a datagram is held as long as a part of it is, and each piece takes memory,
    /// however small it is.
    pub(super) fn holds_too_much(&self) -> bool {
        let limits = &self.limits().quic;
        let window = self.window.bytes as u64;
        self.unread.datagram_bytes > window + limits.unread_excess_bytes_max as u64
            || self.unread.frames > limits.unread_frames_max + window / 512
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 1_200;

    fn frame(end: u64) -> StreamFrame {
        StreamFrame {
            stream: 0,
            end,
            datagram_bytes: BYTES,
        }
    }

    fn sums(unread: &Unread) -> (u64, u64, u64) {
        (unread.content, unread.datagram_bytes, unread.frames)
    }

    #[test]
    fn what_was_read_is_not_held() {
        let (id, mut unread) = (StreamId::new(0), Unread::default());
        unread.come(id, &frame(10), 10);
        assert_eq!(sums(&unread), (0, 0, 0));
        unread.come(id, &frame(20), 10);
        unread.come(id, &frame(40), 10);
        assert_eq!(sums(&unread), (30, 1_800, 2));
        unread.read(id, 20, 10, 1);
        assert_eq!(sums(&unread), (20, 1_790, 1));
        // All of it, so that nothing accumulates.
        unread.read(id, 40, 20, 1);
        assert_eq!(sums(&unread), (0, 0, 0));
    }

    #[test]
    fn a_gap_keeps_what_is_behind_it() {
        let (id, mut unread) = (StreamId::new(0), Unread::default());
        for end in 1..100 {
            unread.come(id, &frame(end * 2), 0);
        }
        assert_eq!(sums(&unread), (198, 99 * 900, 99));
        unread.forget(id);
        assert_eq!(sums(&unread), (0, 0, 0));
    }

    #[test]
    fn streams_beside_the_requests_count_while_they_are_open() {
        let (id, mut unread) = (StreamId::new(2), Unread::default());
        unread.open_beside(id);
        unread.come(id, &frame(10), 0);
        unread.read_beside(id, 10, 10);
        assert_eq!(
            (sums(&unread), &*unread.beside),
            ((0, 0, 0), &[(id, 10)][..])
        );
        unread.close_beside(id);
        assert!(unread.beside.is_empty());
    }
}
