//! The decoder of a request as a transform of its content: it works in steps, within bounds of memory and of size.

use std::cell::RefCell;

use blitz_http::{Buffer, Chunk, Fields, Pooled, Slice, core_local};

use super::RequestCoding;
use super::algorithm::Algorithm;
use crate::client::{ClientAddress, ClientNetwork};
use crate::client_shares::ClientShares;
use crate::compress::edit_trailers;
use crate::counters::count;
use crate::failure::Failure;
use crate::transform::{Transform, TransformError};

/// Memory of all decoders in use on a core, in bytes. A decoder of zstd has up to 8.2 MiB and one of br up to 20, as the
/// windows of their content are; further requests get 503, and so do those of a client that has its share.
const MEMORY_MAX: usize = 128 << 20;

/// Bytes that a step decodes at most: content may grow a thousand times.
const STEP_BYTES: usize = 32 * 1024;

/// Room that the output of a short piece gets.
const ROOM_BYTES_MIN: usize = 2048;

/// Bytes of work after which the core does something else: 0.1 to 0.4 ms.
const WORK_BYTES: usize = 64 * 1024;

/// The work of a step that decodes little, in bytes.
const STEP_WORK_MIN: usize = 4096;

/// The most members of gzip, or frames of zstd, that content may have.
const PARTS_MAX: u32 = 1024;

core_local! {
    /// Bytes of the decoders in use.
    static MEMORY: RefCell<ClientShares> = const { RefCell::new(ClientShares::new(MEMORY_MAX)) };
}

/// Decodes the content of a request.
pub struct Decoder {
    /// The part of a received piece that is not decoded yet.
    rest: Option<Slice>,
    steps: Steps,
}

/// The steps of a decoder.
struct Steps {
    algorithm: Algorithm,
    /// Its part of [`MEMORY_MAX`].
    memory: HeldMemory,
    /// The output was filled: there may be more without further input.
    may_have_output: bool,
    progress: Progress,
    /// Members or frames that are complete.
    parts: u32,
    /// Bytes that the decoded content may still have.
    left: u64,
    /// Bytes of work since other tasks could run.
    worked: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// No content has come. None at all is content without bytes.
    Begin,
    /// A part has begun.
    Within,
    /// A part has ended.
    End,
}

impl Decoder {
    /// A decoder of content that may have so many bytes when it is decoded; `None` if the core has no memory for it, or
    /// none for this client.
    #[must_use]
    pub fn new(coding: RequestCoding, bytes_max: u64, client: ClientAddress) -> Option<Decoder> {
        let steps = Steps::new(coding, bytes_max, client.network())?;
        count(|counters| counters.decompressed += 1);
        Some(Decoder { rest: None, steps })
    }

    fn step(&mut self) -> Result<Chunk, TransformError> {
        let input = self.rest.as_deref().unwrap_or_default();
        let (taken, output) = self.steps.step(input)?;
        if let Some(rest) = &mut self.rest {
            rest.advance(taken);
        }
        self.rest.take_if(|rest| rest.is_empty());
        Ok(Chunk::from(output))
    }
}

impl Steps {
    fn new(coding: RequestCoding, bytes_max: u64, client: ClientNetwork) -> Option<Steps> {
        let algorithm = Algorithm::new(coding)?;
        let mut memory = HeldMemory { client, bytes: 0 };
        memory.set(algorithm.memory()).then_some(())?;
        Some(Steps {
            algorithm,
            memory,
            may_have_output: false,
            progress: Progress::Begin,
            parts: 0,
            left: bytes_max,
            worked: 0,
        })
    }

    /// Decodes at most [`STEP_BYTES`]. Returns how much of the input it took, and the output.
    fn step(&mut self, input: &[u8]) -> Result<(usize, Buffer), TransformError> {
        if self.progress == Progress::End {
            let may_follow = self.parts < PARTS_MAX && self.algorithm.begin_again();
            may_follow
                .then_some(())
                .ok_or(TransformError::Undecodable)?;
        }
        let mut output = Buffer::take();
        let room = match input.len() {
            0 => STEP_BYTES,
            length => (length * 4).clamp(ROOM_BYTES_MIN, STEP_BYTES),
        };
        output.resize(room, 0);
        let step = self.algorithm.run(input, &mut output);
        let step = step.map_err(|_| TransformError::Undecodable)?;
        output.truncate(step.written);
        if !self.memory.set(self.algorithm.memory()) {
            return Err(TransformError::DecodersFull);
        }
        // It would never go on.
        if step.taken == 0 && step.written == 0 && !step.is_end && !input.is_empty() {
            return Err(TransformError::Undecodable);
        }
        let left = self.left.checked_sub(step.written as u64);
        self.left = left.ok_or(TransformError::DecodedTooLarge)?;
        self.worked += step.taken.max(step.written).max(STEP_WORK_MIN);
        self.may_have_output = !step.is_end && step.written == room;
        self.progress = match step.is_end {
            true => Progress::End,
            false => Progress::Within,
        };
        self.parts += u32::from(step.is_end);
        Ok((step.taken, output))
    }

    fn is_tired(&mut self) -> bool {
        let is_long = self.worked >= WORK_BYTES;
        if is_long {
            self.worked = 0;
        }
        is_long
    }

    fn end(&self) -> Result<(), TransformError> {
        match self.progress {
            Progress::Begin | Progress::End => Ok(()),
            Progress::Within => Err(TransformError::Undecodable),
        }
    }
}

impl Transform for Decoder {
    fn content(&mut self, slice: Slice) -> Result<Chunk, TransformError> {
        if slice.is_empty() {
            return Ok(Chunk::from(""));
        }
        self.rest = Some(slice);
        self.step()
    }

    fn yields(&mut self) -> bool {
        self.steps.is_tired()
    }

    fn proceed(&mut self) -> Result<Option<Chunk>, TransformError> {
        match self.rest.is_some() || self.steps.may_have_output {
            true => self.step().map(Some),
            false => Ok(None),
        }
    }

    fn end(
        &mut self,
        trailers: &mut Option<Pooled<Fields>>,
    ) -> Result<Option<Chunk>, TransformError> {
        if let Some(trailers) = trailers {
            edit_trailers(trailers);
        }
        self.steps.end().map(|()| None)
    }

    /// Nothing: the upstream must see that something is missing.
    fn fail(&mut self, _: Failure) -> Option<Chunk> {
        None
    }
}

/// A part of [`MEMORY_MAX`].
struct HeldMemory {
    client: ClientNetwork,
    bytes: usize,
}

impl HeldMemory {
    /// Changes what it holds; `false` if the core has not so much, or the client holds more than its share.
    fn set(&mut self, bytes: usize) -> bool {
        if bytes == self.bytes {
            return true;
        }
        let before = std::mem::replace(&mut self.bytes, bytes);
        MEMORY.with_borrow_mut(|memory| memory.change(self.client, before, bytes))
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        // While the thread ends, the count may already be gone.
        let _ = MEMORY.try_with(|memory| {
            memory.borrow_mut().change(self.client, self.bytes, 0);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};

    use super::*;

    const MAX: u64 = 1 << 30;

    const CLIENT: ClientNetwork = ClientNetwork::V4(1);

    fn text() -> Vec<u8> {
        (0..200_000_u32)
            .map(|at| (at.wrapping_mul(at) >> 7) as u8)
            .collect()
    }

    fn encoded(coding: RequestCoding, content: &[u8]) -> Vec<u8> {
        match coding {
            RequestCoding::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(content).unwrap();
                encoder.finish().unwrap()
            }
            RequestCoding::Deflate => {
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(content).unwrap();
                encoder.finish().unwrap()
            }
            RequestCoding::Brotli => {
                let mut output = Vec::new();
                let parameters = brotli::enc::BrotliEncoderParams {
                    quality: 3,
                    ..Default::default()
                };
                brotli::BrotliCompress(&mut &*content, &mut output, &parameters).unwrap();
                output
            }
            RequestCoding::Zstandard => zstd::bulk::compress(content, 1).unwrap(),
        }
    }

    fn decoded_in(
        steps: &mut Steps,
        content: &[u8],
        piece: usize,
    ) -> Result<Vec<u8>, TransformError> {
        let mut all = Vec::new();
        for mut piece in content.chunks(piece) {
            while !piece.is_empty() || steps.may_have_output {
                let (taken, output) = steps.step(piece)?;
                assert!(output.len() <= STEP_BYTES);
                all.extend_from_slice(&output);
                piece = &piece[taken..];
            }
        }
        steps.end()?;
        Ok(all)
    }

    fn decoded(coding: RequestCoding, content: &[u8]) -> Result<Vec<u8>, TransformError> {
        decoded_in(&mut Steps::new(coding, MAX, CLIENT).unwrap(), content, 8192)
    }

    #[test]
    fn content_is_decoded_at_every_split() {
        for coding in RequestCoding::ALL {
            for content in [&b""[..], b"a", &text()] {
                let encoded = encoded(coding, content);
                for piece in [1, 7, 4096, 1 << 20] {
                    let mut steps = Steps::new(coding, MAX, CLIENT).unwrap();
                    let decoded = decoded_in(&mut steps, &encoded, piece);
                    assert!(
                        decoded.unwrap() == content,
                        "{coding:?} in pieces of {piece}"
                    );
                }
            }
        }
    }

    #[test]
    fn every_cut_and_surplus_is_an_error() {
        let undecodable = Err(TransformError::Undecodable);
        for coding in RequestCoding::ALL {
            let whole = encoded(coding, b"hello hello hello");
            assert_eq!(decoded(coding, &[]), Ok(Vec::new()));
            for length in 1..whole.len() {
                assert_eq!(
                    decoded(coding, &whole[..length]),
                    undecodable,
                    "{coding:?} {length}"
                );
            }
            for surplus in [
                &b"\0"[..],
                b"x",
                b"\x1f\x8b",
                b"garbage that is long enough",
            ] {
                let content = [&whole, surplus].concat();
                assert_eq!(
                    decoded(coding, &content),
                    undecodable,
                    "{coding:?} {surplus:?}"
                );
            }
            let twice = [&whole[..], &whole].concat();
            let expected = match coding {
                RequestCoding::Gzip | RequestCoding::Zstandard => {
                    Ok(b"hello hello hellohello hello hello".to_vec())
                }
                RequestCoding::Deflate | RequestCoding::Brotli => undecodable.clone(),
            };
            assert_eq!(decoded(coding, &twice), expected, "{coding:?}");
        }
    }

    #[test]
    fn changed_bytes_are_errors_or_other_content_and_never_endless() {
        let content = text();
        for coding in RequestCoding::ALL {
            let whole = encoded(coding, &content[..400]);
            for at in 0..whole.len() {
                let mut changed = whole.clone();
                changed[at] ^= 1 << (at % 8);
                let mut steps = Steps::new(coding, 1 << 20, CLIENT).unwrap();
                let _ = decoded_in(&mut steps, &changed, 64);
            }
        }
        assert!(MEMORY.with_borrow(ClientShares::is_unused));
    }

    #[test]
    fn a_bomb_is_decoded_in_steps_up_to_its_limit() {
        let zeros = vec![0; 8 << 20];
        for coding in RequestCoding::ALL {
            let bomb = encoded(coding, &zeros);
            assert!(bomb.len() < 128 << 10, "{coding:?}: {}", bomb.len());
            let mut steps = Steps::new(coding, 1 << 20, CLIENT).unwrap();
            let (mut bytes, mut rests, mut rest) = (0, 0, &bomb[..]);
            let error = loop {
                match steps.step(rest) {
                    Ok((taken, output)) => {
                        bytes += output.len();
                        rest = &rest[taken..];
                    }
                    Err(error) => break error,
                }
                rests += usize::from(steps.is_tired());
            };
            assert_eq!(error, TransformError::DecodedTooLarge, "{coding:?}");
            assert!(bytes <= 1 << 20, "{coding:?}: {bytes}");
            assert!(rests >= (1 << 20) / WORK_BYTES / 2, "{coding:?}: {rests}");
            assert_eq!(decoded(coding, &bomb).map(|all| all.len()), Ok(zeros.len()));
        }
    }

    #[test]
    fn the_number_of_parts_is_limited() {
        let member = encoded(RequestCoding::Gzip, b"");
        let many = member.repeat(PARTS_MAX as usize);
        assert_eq!(decoded(RequestCoding::Gzip, &many), Ok(Vec::new()));
        let more = member.repeat(PARTS_MAX as usize + 1);
        let refused = Err(TransformError::Undecodable);
        assert_eq!(decoded(RequestCoding::Gzip, &more), refused);
        // A skippable frame (RFC 8878, section 3.1.2) is one as well.
        let skipped = [0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0].repeat(PARTS_MAX as usize + 1);
        assert_eq!(decoded(RequestCoding::Zstandard, &skipped), refused);
    }

    #[test]
    fn windows_beyond_the_limits_are_refused() {
        // A frame of zstd with a window of 16 MiB.
        let zstd = [0x28, 0xb5, 0x2f, 0xfd, 0, 14 << 3, 1, 0, 0];
        assert_eq!(
            decoded(RequestCoding::Zstandard, &zstd),
            Err(TransformError::Undecodable)
        );
        let zstd = [0x28, 0xb5, 0x2f, 0xfd, 0, 13 << 3, 1, 0, 0];
        assert_eq!(decoded(RequestCoding::Zstandard, &zstd), Ok(Vec::new()));
        // A large window of brotli, of 30 bits.
        let large = [0x11, 30, 0x03];
        assert_eq!(
            decoded(RequestCoding::Brotli, &large),
            Err(TransformError::Undecodable)
        );
        // A preset dictionary of zlib.
        let preset = [0x78, 0xbb, 1, 2, 3, 4, 3, 0, 0, 0, 0, 1];
        assert_eq!(
            decoded(RequestCoding::Deflate, &preset),
            Err(TransformError::Undecodable)
        );
        // Deflate without zlib.
        assert!(decoded(RequestCoding::Deflate, &[0x4b, 0x04, 0x00]).is_err());
    }

    /// Decoders in the middle of content, one for each client, up to the first that is refused.
    fn decoders_of(
        coding: RequestCoding,
        mut clients: impl Iterator<Item = ClientNetwork>,
    ) -> Vec<Steps> {
        let content = encoded(coding, &text());
        let mut decoders = Vec::new();
        loop {
            let client = clients.next().unwrap();
            let Some(mut steps) = Steps::new(coding, MAX, client) else {
                return decoders;
            };
            let mut rest = &content[..content.len() / 8];
            while !rest.is_empty() || steps.may_have_output {
                match steps.step(rest) {
                    Ok((taken, _)) => rest = &rest[taken..],
                    Err(error) => {
                        assert_eq!(error, TransformError::DecodersFull);
                        return decoders;
                    }
                }
            }
            decoders.push(steps);
        }
    }

    #[test]
    fn the_memory_of_all_decoders_and_of_those_of_a_client_is_limited() {
        for coding in RequestCoding::ALL {
            let all = decoders_of(coding, (0..).map(ClientNetwork::V4)).len();
            assert!(all > 8, "{coding:?}: {all}");
            assert!(MEMORY.with_borrow(ClientShares::is_unused));
            let of_first = decoders_of(coding, std::iter::repeat(CLIENT));
            assert!(
                of_first.len() <= all / 4 + 1,
                "{coding:?}: {}",
                of_first.len()
            );
            let of_others = decoders_of(coding, (2..).map(ClientNetwork::V4)).len();
            assert!(of_others >= all / 2, "{coding:?}: {of_others} of {all}");
            drop(of_first);
            assert!(MEMORY.with_borrow(ClientShares::is_unused));
        }
    }
}
