//! The decoders of the algorithms, with one way of calling them. Their memory is known after each step.

use std::cell::Cell;
use std::rc::Rc;

use brotli::enc::StandardAlloc;
use brotli::{Allocator, BrotliDecompressStream, BrotliResult, BrotliState, SliceWrapper};
use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, InBuffer, OutBuffer};
use zstd::zstd_safe::DCtx;

use super::RequestCoding;

/// The largest window of zstd, in bits. RFC 9659, section 3: "a decoder MUST support a Window_Size of up to 8 MB", and
/// encoders must not use a larger one.
const ZSTD_WINDOW_BITS_MAX: u32 = 23;

/// The window of gzip and zlib, in bits: the largest one.
const WINDOW_BITS: u8 = 15;

/// Bytes of a decoder of gzip or zlib, whose window is 32 KiB.
const FLATE_BYTES: usize = 48 << 10;

/// Decodes content with one algorithm.
pub(super) enum Algorithm {
    Gzip(Decompress),
    Deflate(Decompress),
    Brotli(Box<Brotli>, Rc<Cell<usize>>),
    Zstandard(DCtx<'static>),
}

type Brotli = BrotliState<CountedAlloc, CountedAlloc, CountedAlloc>;

/// The outcome of a step.
pub(super) struct Step {
    /// Bytes of the input that it took.
    pub(super) taken: usize,
    /// Bytes of the output that it wrote.
    pub(super) written: usize,
    /// Whether the content, or a part of it that could stand alone, is complete.
    pub(super) is_end: bool,
}

/// The content is not what the coding says.
#[derive(Debug)]
pub(super) struct Corrupt;

impl Algorithm {
    /// `None` if there is no memory for it.
    pub(super) fn new(coding: RequestCoding) -> Option<Algorithm> {
        Some(match coding {
            RequestCoding::Gzip => Algorithm::Gzip(Decompress::new_gzip(WINDOW_BITS)),
            RequestCoding::Deflate => {
                Algorithm::Deflate(Decompress::new_with_window_bits(true, WINDOW_BITS))
            }
            RequestCoding::Brotli => {
                let bytes = Rc::new(Cell::new(0));
                let alloc = || CountedAlloc {
                    alloc: StandardAlloc::default(),
                    bytes: Rc::clone(&bytes),
                };
                // Without the large windows of another coding, of up to a GiB.
                let state = BrotliState::new_strict(alloc(), alloc(), alloc());
                Algorithm::Brotli(Box::new(state), bytes)
            }
            RequestCoding::Zstandard => {
                let mut context = DCtx::try_create()?;
                let max = DParameter::WindowLogMax(ZSTD_WINDOW_BITS_MAX);
                context.set_parameter(max).ok()?;
                Algorithm::Zstandard(context)
            }
        })
    }

    /// Begins again with what follows a complete part; `false` if nothing may follow it.
    pub(super) fn begin_again(&mut self) -> bool {
        match self {
            // RFC 1952, section 2.2: "A gzip file consists of a series of "members"".
            Algorithm::Gzip(_) => {
                *self = Algorithm::Gzip(Decompress::new_gzip(WINDOW_BITS));
                true
            }
            // RFC 8878, section 3: frames may be concatenated. The next one begins by itself.
            Algorithm::Zstandard(_) => true,
            Algorithm::Deflate(_) | Algorithm::Brotli(..) => false,
        }
    }

    /// Bytes of memory that it has.
    pub(super) fn memory(&self) -> usize {
        match self {
            Algorithm::Gzip(_) | Algorithm::Deflate(_) => FLATE_BYTES,
            Algorithm::Brotli(_, bytes) => size_of::<Brotli>() + bytes.get(),
            Algorithm::Zstandard(context) => context.sizeof(),
        }
    }

    /// Takes some of the input, and fills the output at most.
    pub(super) fn run(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, Corrupt> {
        match self {
            Algorithm::Gzip(flate) | Algorithm::Deflate(flate) => run_flate(flate, input, output),
            Algorithm::Brotli(state, _) => run_brotli(state, input, output),
            Algorithm::Zstandard(context) => run_zstd(context, input, output),
        }
    }
}

fn run_flate(flate: &mut Decompress, input: &[u8], output: &mut [u8]) -> Result<Step, Corrupt> {
    let before = (flate.total_in(), flate.total_out());
    // A preset dictionary is an error, too: nobody knows it.
    let status = flate.decompress(input, output, FlushDecompress::None);
    let status = status.map_err(|_| Corrupt)?;
    Ok(Step {
        taken: (flate.total_in() - before.0) as usize,
        written: (flate.total_out() - before.1) as usize,
        is_end: status == Status::StreamEnd,
    })
}

fn run_brotli(state: &mut Brotli, input: &[u8], output: &mut [u8]) -> Result<Step, Corrupt> {
    let (mut left, mut taken) = (input.len(), 0);
    let (mut room, mut written) = (output.len(), 0);
    let result = BrotliDecompressStream(
        &mut left,
        &mut taken,
        input,
        &mut room,
        &mut written,
        output,
        &mut 0,
        state,
    );
    let is_end = match result {
        BrotliResult::ResultSuccess => true,
        BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => false,
        BrotliResult::ResultFailure => return Err(Corrupt),
    };
    Ok(Step {
        taken,
        written,
        is_end,
    })
}

fn run_zstd(context: &mut DCtx<'static>, input: &[u8], output: &mut [u8]) -> Result<Step, Corrupt> {
    let mut input = InBuffer::around(input);
    let mut output = OutBuffer::around(output);
    let left = context.decompress_stream(&mut output, &mut input);
    let left = left.map_err(|_| Corrupt)?;
    Ok(Step {
        taken: input.pos(),
        written: output.pos(),
        is_end: left == 0,
    })
}

/// Counts the bytes of a decoder of brotli.
pub(super) struct CountedAlloc {
    alloc: StandardAlloc,
    bytes: Rc<Cell<usize>>,
}

impl<T: Clone + Default> Allocator<T> for CountedAlloc {
    type AllocatedMemory = <StandardAlloc as Allocator<T>>::AllocatedMemory;

    fn alloc_cell(&mut self, length: usize) -> Self::AllocatedMemory {
        self.bytes.set(self.bytes.get() + length * size_of::<T>());
        self.alloc.alloc_cell(length)
    }

    fn free_cell(&mut self, memory: Self::AllocatedMemory) {
        let bytes = size_of_val(SliceWrapper::<T>::slice(&memory));
        self.bytes.set(self.bytes.get().saturating_sub(bytes));
        Allocator::<T>::free_cell(&mut self.alloc, memory);
    }
}
