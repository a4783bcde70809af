//! References to QPACK's dynamic table (RFC 9204), which `h3` does not use: each request gets a field from the table,
//! whose insertion may arrive after it, so that its stream is blocked until then.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Buf, Bytes};
use h3::quic::WriteBuf;
use quinn_proto::StreamId;

use super::quic::Quic;
use crate::content::DYNAMIC;
use crate::random::Random;

/// Types of streams and frames.
const ENCODER_STREAM: u8 = 0x2;
const HEADERS: u8 = 0x1;

/// Set Dynamic Table Capacity, to the 4,096 bytes that the gateway allows (section 4.3.1).
const SET_CAPACITY: [u8; 3] = [0x3F, 0xE1, 0x1F];

/// The prefix of a section without references (section 4.5.1): `h3` writes no other.
const STATIC_PREFIX: [u8; 2] = [0, 0];

/// An indexed field line with the newest entry of the table (section 4.5.2).
const NEWEST: u8 = 0x80;

/// Bytes of the frame header before a length of one byte, or of two.
const LENGTH_AT: usize = 1;

/// The insertions that are left for a client.
pub(super) struct Dynamic {
    random: Random,
    /// The stream of instructions, once `h3` has opened it.
    encoder: Option<StreamId>,
    /// The request that is about to be sent.
    request: Option<u64>,
    inserted: u8,
    /// Instructions that are due, in their order.
    instructions: VecDeque<Vec<u8>>,
    /// When the last instruction is sent; later ones are sent later.
    due: Duration,
    delay_max_us: u64,
}

impl Dynamic {
    pub(super) fn new(seed: u64, delay_max: Duration) -> Dynamic {
        Dynamic {
            random: Random::new(seed),
            encoder: None,
            request: None,
            inserted: 0,
            instructions: VecDeque::new(),
            due: Duration::ZERO,
            delay_max_us: delay_max.as_micros() as u64,
        }
    }

    /// The next stream carries this request.
    pub(super) fn expect(&mut self, request: u64) {
        self.request = Some(request);
    }

    /// Takes note of the stream of instructions.
    pub(super) fn note_stream(&mut self, id: StreamId, first: &[u8]) {
        if first == [ENCODER_STREAM] {
            self.encoder = Some(id);
        }
    }

    /// Adds a reference to a request's head, and has its entry inserted.
    pub(super) fn refer(&mut self, quic: &Quic, mut head: WriteBuf<Bytes>) -> Vec<u8> {
        let head = head.copy_to_bytes(head.remaining());
        let (Some(request), Some(encoder)) = (self.request.take(), self.encoder) else {
            return head.to_vec();
        };
        let length_bytes = 1 << (head[LENGTH_AT] >> 6);
        let section = &head[LENGTH_AT + length_bytes..];
        assert_eq!(head[0], HEADERS, "a request begins with its head");
        assert_eq!(section[..2], STATIC_PREFIX, "h3 has no dynamic table");
        self.inserted += 1;
        let length = section.len() as u16 + 1;
        let mut out = vec![HEADERS];
        out.extend((0x4000 | length).to_be_bytes());
        // Required Insert Count, which is encoded plus one, and a base that is the same.
        out.extend([self.inserted + 1, 0]);
        out.extend_from_slice(&section[2..]);
        out.push(NEWEST);
        let instruction = self.insertion(request);
        self.instructions.push_back(instruction);
        let world = quic.world().clone();
        let delay = Duration::from_micros(self.random.within(0..=self.delay_max_us));
        self.due = self.due.max(world.now() + delay);
        let (theirs, due) = (quic.clone(), self.due);
        quic.world().spawn(async move {
            world.sleep(due.saturating_sub(world.now())).await;
            // Each time is that of one instruction; of the same time, the first task may not be that of the first.
            let next = theirs.dynamic(|dynamic| dynamic.instructions.pop_front());
            let instruction = next.flatten().unwrap_or_default();
            // The window has room: such clients send little.
            theirs.with(|quic| quic.send_stream(encoder).write(&instruction).ok());
        });
        out
    }

    /// Insert with Literal Name (section 4.3.3).
    fn insertion(&self, request: u64) -> Vec<u8> {
        let value = request.to_string();
        let mut out = Vec::new();
        if self.inserted == 1 {
            out.extend(SET_CAPACITY);
        }
        out.push(0x40 | DYNAMIC.len() as u8);
        out.extend_from_slice(DYNAMIC.as_bytes());
        out.push(value.len() as u8);
        out.extend_from_slice(value.as_bytes());
        out
    }
}
