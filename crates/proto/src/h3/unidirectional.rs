//! Streams in one direction (RFC 9114, section 6.2): what has arrived of them.

use super::frame::{Header, Partial};
use crate::field_compression::integer;

/// The purpose of a stream of the peer.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// Its type has not arrived.
    Unknown(Partial),
    Control(ControlStream),
    /// Instructions of the peer's QPACK encoder.
    Encoder,
    /// Instructions of the peer's QPACK decoder.
    Decoder(DecoderStream),
}

/// The types of streams (RFC 9114, section 6.2; RFC 9204, section 4.2).
pub(crate) const CONTROL: u64 = 0x0;
pub(crate) const PUSH: u64 = 0x1;
pub(crate) const ENCODER: u64 = 0x2;
pub(crate) const DECODER: u64 = 0x3;

/// The control stream.
#[derive(Debug, Default)]
pub(crate) struct ControlStream {
    pub(crate) header: Partial,
    /// The frame whose payload is arriving, and how much of it is left.
    pub(crate) frame: Option<(Header, u64)>,
    pub(crate) payload: Vec<u8>,
}

/// An instruction of the peer's decoder (RFC 9204, section 4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecoderInstruction {
    /// A section with references was decoded.
    Section,
    /// The sections of a stream will not be decoded.
    Cancelled,
    /// Insertions have arrived.
    Insertions,
}

/// The decoder stream of the peer (RFC 9204, section 4.2).
#[derive(Debug, Default)]
pub(crate) struct DecoderStream {
    partial: Vec<u8>,
}

/// Bytes of a report.
const REPORT_BYTES_MAX: usize = 10;

impl DecoderStream {
    /// Takes bytes until a report is complete. Returns how many, and the report; an error if it never will be.
    pub(crate) fn next(&mut self, input: &[u8]) -> Result<(usize, Option<DecoderInstruction>), ()> {
        for (at, &byte) in input.iter().enumerate() {
            self.partial.push(byte);
            let first = self.partial[0];
            let (prefix_bits, report) = match first >> 6 {
                0b10.. => (7, DecoderInstruction::Section),
                0b01 => (6, DecoderInstruction::Cancelled),
                _ => (6, DecoderInstruction::Insertions),
            };
            if integer::read::<62>(&mut &self.partial[..], prefix_bits).is_ok() {
                self.partial.clear();
                return Ok((at + 1, Some(report)));
            }
            if self.partial.len() > REPORT_BYTES_MAX {
                return Err(());
            }
        }
        Ok((input.len(), None))
    }
}
