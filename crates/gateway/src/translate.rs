//! Messages whose content changes on the way.

use blitz_http::{Chunk, Fields, Pooled, Slice};
use blitz_site::Failure;

/// Changes content and trailers of one message on the way.
pub(crate) trait Translate {
    /// The bytes to send for a piece of content, which may end anywhere.
    fn content(&mut self, slice: Slice) -> Result<Chunk, NotBase64>;

    /// The bytes to send after all content. May take the trailers.
    fn end(&mut self, trailers: &mut Option<Pooled<Fields>>) -> Result<Option<Chunk>, NotBase64>;

    /// The bytes that end a message early in a form that its receiver understands, if there is one.
    fn fail(&mut self, failure: Failure) -> Option<Chunk>;
}

/// Content that should be base64 is not, or ends within a group of four characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotBase64;
