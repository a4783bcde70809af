//! Receiving content, under any framing (RFC 9112, section 6.3).

use super::chunked::Chunked;
use super::{Event, Step};
use crate::error::ErrorKind;
use crate::limits::Limits;
use crate::message::Fields;
use crate::section_max::SectionMax;

/// The framing of the content of a message that is being received.
#[derive(Debug)]
pub(crate) enum BodyFraming {
    /// This many bytes are left.
    Length(u64),
    /// Chunked.
    Chunked(Chunked),
    /// Everything until the peer closes; only responses.
    UntilClose,
}

impl BodyFraming {
    /// Chunked content, before its first byte.
    #[inline]
    pub(crate) fn chunked(limits: &Limits, trailers: SectionMax) -> BodyFraming {
        BodyFraming::Chunked(Chunked::new(limits, trailers))
    }

    /// One step: `Data`, `Trailers`, `End` or `NeedMore`.
    pub(crate) fn step(&mut self, input: &[u8], trailers: &mut Fields) -> Result<Step, ErrorKind> {
        let len = match self {
            BodyFraming::Chunked(chunked) => return chunked.step(input, trailers),
            BodyFraming::Length(0) => {
                return Ok(Step {
                    consumed: 0,
                    event: Event::End,
                });
            }
            BodyFraming::Length(left) => {
                let len = usize::try_from(*left)
                    .unwrap_or(usize::MAX)
                    .min(input.len());
                *left -= len as u64;
                len
            }
            BodyFraming::UntilClose => input.len(),
        };
        let event = if len == 0 {
            Event::NeedMore
        } else {
            Event::Data(0..len)
        };
        Ok(Step {
            consumed: len,
            event,
        })
    }
}
