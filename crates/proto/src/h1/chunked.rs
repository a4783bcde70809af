//! The decoder of the chunked transfer coding (RFC 9112, section 7.1).

use super::finder::LineLimits;
use super::section::SectionBuffer;
use super::{Event, Step};
use crate::error::ErrorKind;
use crate::limits::Limits;
use crate::message::Fields;
use crate::path::hex_value;
use crate::section_max::SectionMax;

/// Decodes a chunked body from pieces of any size.
#[derive(Debug)]
pub(crate) struct Chunked {
    state: ChunkedState,
    /// Bytes of the current chunk-size line.
    line_bytes: usize,
    /// Bytes of chunk extensions in the message so far.
    extension_bytes: usize,
    line_bytes_max: usize,
    extension_bytes_max: usize,
    trailer_limits: LineLimits,
}

/// The position in `*chunk last-chunk trailer-section CRLF`.
#[derive(Debug)]
enum ChunkedState {
    /// Before the first digit of a chunk size.
    SizeStart,
    /// After at least one digit.
    Size(u64),
    /// White space after the size, which only a chunk extension may follow.
    Blank(u64),
    /// In the chunk extensions, which are ignored.
    Extension(u64),
    /// After the CR of the chunk-size line.
    SizeLf(u64),
    /// This much data is left in the chunk.
    Data(u64),
    /// After the data.
    DataCr,
    /// After the data and CR.
    DataLf,
    /// After the last chunk's line: the next byte is almost always CR.
    TrailersStart,
    /// After the CR of a trailer section without fields.
    EndLf,
    /// In a trailer section with fields. Boxed, since few messages have one.
    Trailers(Box<SectionBuffer>),
    /// After the last CRLF.
    Done,
}

impl Chunked {
    pub(crate) fn new(limits: &Limits, trailers: SectionMax) -> Chunked {
        Chunked {
            state: ChunkedState::SizeStart,
            line_bytes: 0,
            extension_bytes: 0,
            line_bytes_max: limits.chunk_line_bytes_max,
            extension_bytes_max: limits.chunk_extension_bytes_max,
            trailer_limits: LineLimits::of_trailers(trailers),
        }
    }

    /// One step: `Data`, `Trailers`, `End` or `NeedMore`.
    pub(crate) fn step(&mut self, input: &[u8], trailers: &mut Fields) -> Result<Step, ErrorKind> {
        let mut at = 0;
        loop {
            match &mut self.state {
                ChunkedState::Data(left) if at < input.len() => {
                    let len = usize::try_from(*left)
                        .unwrap_or(usize::MAX)
                        .min(input.len() - at);
                    *left -= len as u64;
                    if *left == 0 {
                        self.state = ChunkedState::DataCr;
                    }
                    return Ok(Step {
                        consumed: at + len,
                        event: Event::Data(at..at + len),
                    });
                }
                ChunkedState::TrailersStart if input.get(at).is_some_and(|&byte| byte != b'\r') => {
                    let section = SectionBuffer::new(self.trailer_limits);
                    self.state = ChunkedState::Trailers(Box::new(section));
                    continue;
                }
                ChunkedState::Trailers(_) => return self.step_trailers(input, at, trailers),
                ChunkedState::Done => {
                    return Ok(Step {
                        consumed: at,
                        event: Event::End,
                    });
                }
                _ => {}
            }
            let Some(&byte) = input.get(at) else {
                return Ok(Step {
                    consumed: at,
                    event: Event::NeedMore,
                });
            };
            at += 1;
            self.take_framing(byte)?;
        }
    }

    /// Takes one byte of the framing around the data.
    fn take_framing(&mut self, byte: u8) -> Result<(), ErrorKind> {
        self.line_bytes += 1;
        if self.line_bytes > self.line_bytes_max {
            return Err(ErrorKind::ChunkLineTooLong);
        }
        self.state = match (&self.state, byte) {
            (ChunkedState::SizeStart, _) => match hex_value(byte) {
                Some(digit) => ChunkedState::Size(u64::from(digit)),
                None => return Err(ErrorKind::ChunkSizeMalformed),
            },
            (
                &(ChunkedState::Size(size)
                | ChunkedState::Blank(size)
                | ChunkedState::Extension(size)),
                b'\r',
            ) => {
                if matches!(self.state, ChunkedState::Blank(_)) {
                    return Err(ErrorKind::ChunkSizeMalformed);
                }
                ChunkedState::SizeLf(size)
            }
            (
                ChunkedState::Size(_) | ChunkedState::Blank(_) | ChunkedState::Extension(_),
                b'\n',
            ) => {
                return Err(ErrorKind::BareLf);
            }
            (&(ChunkedState::Size(size) | ChunkedState::Blank(size)), b';') => {
                ChunkedState::Extension(size)
            }
            (&(ChunkedState::Size(size) | ChunkedState::Blank(size)), b' ' | b'\t') => {
                ChunkedState::Blank(size)
            }
            (&ChunkedState::Size(size), _) => ChunkedState::Size(add_digit(size, byte)?),
            (ChunkedState::Blank(_), _) => return Err(ErrorKind::ChunkSizeMalformed),
            (&ChunkedState::Extension(size), _) => {
                self.count_extension_byte(byte)?;
                ChunkedState::Extension(size)
            }
            (&ChunkedState::SizeLf(size), b'\n') => {
                self.line_bytes = 0;
                if size == 0 {
                    ChunkedState::TrailersStart
                } else {
                    ChunkedState::Data(size)
                }
            }
            (ChunkedState::SizeLf(_), _) => return Err(ErrorKind::BareCr),
            (ChunkedState::TrailersStart, b'\r') => ChunkedState::EndLf,
            (ChunkedState::EndLf, b'\n') => ChunkedState::Done,
            (ChunkedState::EndLf, _) => return Err(ErrorKind::BareCr),
            (ChunkedState::DataCr, b'\r') => ChunkedState::DataLf,
            (ChunkedState::DataLf, b'\n') => {
                self.line_bytes = 0;
                ChunkedState::SizeStart
            }
            _ => return Err(ErrorKind::ChunkEndMalformed),
        };
        Ok(())
    }

    fn count_extension_byte(&mut self, byte: u8) -> Result<(), ErrorKind> {
        if (byte < b' ' && byte != b'\t') || byte == 0x7f {
            return Err(ErrorKind::ChunkExtensionMalformed);
        }
        self.extension_bytes += 1;
        if self.extension_bytes > self.extension_bytes_max {
            return Err(ErrorKind::ChunkLineTooLong);
        }
        Ok(())
    }

    #[inline(never)]
    fn step_trailers(
        &mut self,
        input: &[u8],
        at: usize,
        trailers: &mut Fields,
    ) -> Result<Step, ErrorKind> {
        let ChunkedState::Trailers(section) = &mut self.state else {
            unreachable!()
        };
        let taken = section
            .take(&input[at..], trailers)
            .map_err(|kind| match kind {
                ErrorKind::TooManyFields | ErrorKind::HeadTooLarge => ErrorKind::TrailersTooLarge,
                other => other,
            })?;
        let consumed = at + taken.consumed;
        if !taken.complete {
            return Ok(Step {
                consumed,
                event: Event::NeedMore,
            });
        }
        // A recipient that merged such fields into the head would accept forged framing or routing.
        trailers.retain(|name, _| !name.known().is_forbidden_in_trailers());
        self.state = ChunkedState::Done;
        let event = if trailers.is_empty() {
            Event::End
        } else {
            Event::Trailers
        };
        Ok(Step { consumed, event })
    }
}

fn add_digit(size: u64, byte: u8) -> Result<u64, ErrorKind> {
    let digit = hex_value(byte).ok_or(ErrorKind::ChunkSizeMalformed)?;
    // RFC 9112, section 7.1: "recipients MUST anticipate potentially large hexadecimal numerals
    // and prevent parsing errors due to integer conversion overflows".
    if size > (i64::MAX as u64) >> 4 {
        return Err(ErrorKind::ChunkSizeOverflow);
    }
    Ok(size << 4 | u64::from(digit))
}
