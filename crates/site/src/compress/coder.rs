//! The algorithms, with one way of calling them. All encoders of a core have a limit of memory.

use std::cell::RefCell;

use blitz_http::{Buffer, core_local};
use brotli::enc::StandardAlloc;
use brotli::enc::encode::{
    BrotliEncoderOperation, BrotliEncoderParameter, BrotliEncoderStateStruct,
};
use flate2::{Compress, Compression, FlushCompress, Status};
use zstd::stream::raw::{CParameter, Encoder as Zstd, InBuffer, Operation, OutBuffer};

use crate::coding::ContentCoding;
use crate::transform::TransformError;

/// Memory of all encoders in use on a core, in bytes: about 85 of zstd or br, or 340 of gzip. Further responses are not
/// compressed.
const MEMORY_MAX: usize = 128 << 20;

/// The window of zstd and br, in bits.
const WINDOW_BITS: u32 = 18;

/// The window of gzip, in bits: the largest one.
const GZIP_WINDOW_BITS: u8 = 15;

const ZSTD_LEVEL: i32 = 3;

/// The tables of zstd, in bits, a half of those that its level has for this window.
const ZSTD_HASH_BITS: u32 = 16;
const ZSTD_CHAIN_BITS: u32 = 15;

/// Better ones need twice the time, and with a window of this size find no more.
const BROTLI_QUALITY: u32 = 4;

const GZIP_LEVEL: u32 = 5;

/// Room that output gets at least.
const ROOM_BYTES_MIN: usize = 512;

/// Unused encoders that a core keeps of each algorithm that can begin again: 14 MiB at most. A new one of zstd takes 28 us
/// and one of gzip 6 us more than one that is kept. Those of br cannot begin again, and take 13 us.
const KEPT_MAX: usize = 8;

/// Whether more follows the input of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// Further input. Output may wait for it.
    More,
    /// Further input, perhaps much later: all output comes now.
    Flush,
    /// The end.
    End,
}

/// An encoder of a response.
pub(super) struct Coder {
    state: State,
    /// Its part of [`MEMORY_MAX`].
    memory: usize,
}

enum State {
    Brotli(Box<BrotliEncoderStateStruct<StandardAlloc>>),
    /// `None` once it has gone back to the free list.
    Gzip(Option<Compress>),
    /// The same.
    Zstd(Option<Zstd<'static>>),
}

struct Kept {
    gzip: Vec<Compress>,
    zstd: Vec<Zstd<'static>>,
}

core_local! {
    /// Bytes of the encoders in use.
    static MEMORY: RefCell<usize> = const { RefCell::new(0) };
}

thread_local! {
    static KEPT: RefCell<Kept> = const {
        RefCell::new(Kept {
            gzip: Vec::new(),
            zstd: Vec::new(),
        })
    };
}

/// The memory of an encoder with these settings, measured (docs/compression.md).
fn memory_of(coding: ContentCoding) -> usize {
    match coding {
        ContentCoding::Brotli => 1_542 << 10,
        ContentCoding::Gzip => 371 << 10,
        ContentCoding::Zstandard => 1_401 << 10,
    }
}

impl Coder {
    /// An encoder for content of this length, if that is known; `None` if there is no memory for it.
    pub(super) fn new(coding: ContentCoding, length: Option<u64>) -> Option<Coder> {
        let memory = memory_of(coding);
        if MEMORY.with_borrow(|held| held + memory) > MEMORY_MAX {
            return None;
        }
        let state = State::new(coding, length)?;
        MEMORY.with_borrow_mut(|held| *held += memory);
        Some(Coder { state, memory })
    }

    /// Takes all input, and appends what it yields.
    pub(super) fn run(
        &mut self,
        input: &[u8],
        then: Then,
        output: &mut Buffer,
    ) -> Result<(), TransformError> {
        match &mut self.state {
            State::Brotli(brotli) => run_brotli(brotli, input, then, output),
            State::Gzip(Some(gzip)) => run_gzip(gzip, input, then, output),
            State::Zstd(Some(zstd)) => run_zstd(zstd, input, then, output),
            State::Gzip(None) | State::Zstd(None) => Err(TransformError::Encoder),
        }
    }
}

/// The compressed form of content, by an encoder of its own that counts for no core. Nothing of it is kept.
pub(super) fn compress(coding: ContentCoding, content: &[u8]) -> Option<Vec<u8>> {
    let mut output = Buffer::take();
    let ended = match coding {
        ContentCoding::Brotli => {
            let mut brotli = brotli(Some(content.len() as u64));
            run_brotli(&mut brotli, content, Then::End, &mut output)
        }
        ContentCoding::Gzip => {
            let level = Compression::new(GZIP_LEVEL);
            let mut gzip = Compress::new_gzip(level, GZIP_WINDOW_BITS);
            run_gzip(&mut gzip, content, Then::End, &mut output)
        }
        ContentCoding::Zstandard => {
            let mut zstd = new_zstd().ok()?;
            zstd.set_pledged_src_size(Some(content.len() as u64)).ok()?;
            run_zstd(&mut zstd, content, Then::End, &mut output)
        }
    };
    ended.ok()?;
    Some(output.to_vec())
}

/// Encoders go back to the free list of their thread, wherever their response has ended.
impl Drop for Coder {
    fn drop(&mut self) {
        // While the thread ends, count and list may already be gone.
        let _ = MEMORY.try_with(|held| *held.borrow_mut() -= self.memory);
        let _ = KEPT.try_with(|kept| kept.borrow_mut().keep(&mut self.state));
    }
}

impl State {
    fn new(coding: ContentCoding, length: Option<u64>) -> Option<State> {
        match coding {
            ContentCoding::Brotli => Some(State::Brotli(Box::new(brotli(length)))),
            ContentCoding::Gzip => {
                let kept = KEPT.with_borrow_mut(|kept| kept.gzip.pop());
                let level = Compression::new(GZIP_LEVEL);
                let new = || Compress::new_gzip(level, GZIP_WINDOW_BITS);
                Some(State::Gzip(Some(kept.unwrap_or_else(new))))
            }
            ContentCoding::Zstandard => {
                let kept = KEPT.with_borrow_mut(|kept| kept.zstd.pop());
                let mut zstd = match kept {
                    Some(zstd) => zstd,
                    None => new_zstd().ok()?,
                };
                zstd.set_pledged_src_size(length).ok()?;
                Some(State::Zstd(Some(zstd)))
            }
        }
    }
}

impl Kept {
    fn keep(&mut self, state: &mut State) {
        match state {
            State::Brotli(_) => {}
            State::Gzip(gzip) => {
                if let (true, Some(mut gzip)) = (self.gzip.len() < KEPT_MAX, gzip.take()) {
                    gzip.reset();
                    self.gzip.push(gzip);
                }
            }
            State::Zstd(zstd) => {
                if let (true, Some(mut zstd)) = (self.zstd.len() < KEPT_MAX, zstd.take())
                    && zstd.reinit().is_ok()
                {
                    self.zstd.push(zstd);
                }
            }
        }
    }
}

fn brotli(length: Option<u64>) -> BrotliEncoderStateStruct<StandardAlloc> {
    let mut brotli = BrotliEncoderStateStruct::new(StandardAlloc::default());
    brotli.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_QUALITY, BROTLI_QUALITY);
    brotli.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_LGWIN, WINDOW_BITS);
    // With a hint of 1 MiB and more it would take larger tables.
    let hint = length.unwrap_or_default().min(1 << 19) as u32;
    brotli.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_SIZE_HINT, hint);
    brotli
}

fn new_zstd() -> std::io::Result<Zstd<'static>> {
    let mut zstd = Zstd::new(ZSTD_LEVEL)?;
    zstd.set_parameter(CParameter::WindowLog(WINDOW_BITS))?;
    zstd.set_parameter(CParameter::HashLog(ZSTD_HASH_BITS))?;
    zstd.set_parameter(CParameter::ChainLog(ZSTD_CHAIN_BITS))?;
    Ok(zstd)
}

fn run_brotli(
    brotli: &mut BrotliEncoderStateStruct<StandardAlloc>,
    input: &[u8],
    then: Then,
    output: &mut Buffer,
) -> Result<(), TransformError> {
    let operation = match then {
        // It would collect input, compress much of it at once, and need twice the memory.
        Then::More | Then::Flush => BrotliEncoderOperation::BROTLI_OPERATION_FLUSH,
        Then::End => BrotliEncoderOperation::BROTLI_OPERATION_FINISH,
    };
    let (mut left, mut at) = (input.len(), 0);
    loop {
        let is_sound = brotli.compress_stream(
            operation,
            &mut left,
            input,
            &mut at,
            &mut 0,
            &mut [],
            &mut 0,
            &mut None,
            &mut |_, _, _, _| (),
        );
        if !is_sound {
            return Err(TransformError::Encoder);
        }
        while brotli.has_more_output() {
            let mut size = 0;
            let bytes = brotli.take_output(&mut size);
            output.extend_from_slice(&bytes[..size]);
        }
        if left == 0 && (then != Then::End || brotli.is_finished()) {
            return Ok(());
        }
    }
}

fn run_gzip(
    gzip: &mut Compress,
    input: &[u8],
    then: Then,
    output: &mut Buffer,
) -> Result<(), TransformError> {
    let flush = match then {
        Then::More => FlushCompress::None,
        Then::Flush => FlushCompress::Sync,
        Then::End => FlushCompress::Finish,
    };
    let mut at = 0;
    loop {
        let room = (input.len() - at) / 4 + ROOM_BYTES_MIN;
        output.reserve(room);
        let before = gzip.total_in();
        let status = gzip.compress_vec(&input[at..], output, flush);
        let status = status.map_err(|_| TransformError::Encoder)?;
        at += (gzip.total_in() - before) as usize;
        let is_done = match then {
            Then::End => status == Status::StreamEnd,
            // Otherwise there may be more output than room.
            Then::More | Then::Flush => at == input.len() && output.len() < output.capacity(),
        };
        if is_done {
            return Ok(());
        }
    }
}

fn run_zstd(
    zstd: &mut Zstd<'static>,
    input: &[u8],
    then: Then,
    output: &mut Buffer,
) -> Result<(), TransformError> {
    let mut input = InBuffer::around(input);
    while input.pos() < input.src.len() {
        output.reserve((input.src.len() - input.pos()) / 4 + ROOM_BYTES_MIN);
        let end = output.len();
        let mut room = OutBuffer::around_pos(&mut **output, end);
        let run = zstd.run(&mut input, &mut room);
        run.map_err(|_| TransformError::Encoder)?;
    }
    if then == Then::More {
        return Ok(());
    }
    loop {
        output.reserve(ROOM_BYTES_MIN);
        let end = output.len();
        let mut room = OutBuffer::around_pos(&mut **output, end);
        let left = match then {
            Then::End => zstd.finish(&mut room, false),
            Then::More | Then::Flush => zstd.flush(&mut room),
        };
        match left {
            Ok(0) => return Ok(()),
            Ok(left) => output.reserve(left),
            Err(_) => return Err(TransformError::Encoder),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(coding: ContentCoding, pieces: &[&[u8]], length: Option<u64>) -> Vec<u8> {
        let mut coder = Coder::new(coding, length).unwrap();
        let mut output = Buffer::take();
        for piece in pieces {
            coder.run(piece, Then::More, &mut output).unwrap();
            coder.run(&[], Then::Flush, &mut output).unwrap();
            coder.run(&[], Then::Flush, &mut output).unwrap();
        }
        coder.run(&[], Then::End, &mut output).unwrap();
        output.to_vec()
    }

    #[test]
    fn an_encoder_that_is_used_again_begins_anew() {
        for coding in ContentCoding::ALL {
            let first = encoded(coding, &[b"some", b"text"], None);
            // This one has no end.
            let mut coder = Coder::new(coding, Some(1_000_000)).unwrap();
            let mut output = Buffer::take();
            coder.run(&[7; 100_000], Then::More, &mut output).unwrap();
            drop(coder);
            assert_eq!(encoded(coding, &[b"some", b"text"], None), first);
            assert_ne!(encoded(coding, &[b"some", b"text"], Some(8)).len(), 0);
        }
        KEPT.with_borrow(|kept| assert_eq!((kept.gzip.len(), kept.zstd.len()), (1, 1)));
    }

    #[test]
    fn nothing_is_added_by_a_flush_that_has_nothing_to_send() {
        for coding in [ContentCoding::Brotli, ContentCoding::Zstandard] {
            let mut coder = Coder::new(coding, None).unwrap();
            let mut output = Buffer::take();
            coder.run(b"text", Then::Flush, &mut output).unwrap();
            let length = output.len();
            assert!(length > 0);
            coder.run(&[], Then::Flush, &mut output).unwrap();
            assert_eq!(output.len(), length, "{}", coding.name());
        }
    }

    #[test]
    fn the_memory_of_all_encoders_is_limited() {
        for coding in ContentCoding::ALL {
            let new = || Coder::new(coding, None);
            let mut coders: Vec<Coder> = std::iter::from_fn(new).collect();
            assert_eq!(coders.len(), MEMORY_MAX / memory_of(coding));
            coders.pop();
            coders.extend(new());
            assert!(new().is_none());
            drop(coders);
            assert_eq!(MEMORY.with_borrow(|held| *held), 0);
            KEPT.with_borrow(|kept| assert!(kept.gzip.len().max(kept.zstd.len()) <= KEPT_MAX));
        }
    }

    #[test]
    fn content_whose_length_is_another_than_declared_is_an_error() {
        let mut coder = Coder::new(ContentCoding::Zstandard, Some(10)).unwrap();
        let mut output = Buffer::take();
        let ended = coder.run(b"too short", Then::End, &mut output);
        assert_eq!(ended, Err(TransformError::Encoder));
    }
}
