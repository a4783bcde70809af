//! Messages whose content changes on the way: gRPC-Web is translated, responses are compressed, and requests decompressed.

use blitz_http::{Chunk, Fields, Pooled, Slice};

use crate::failure::Failure;

/// Changes content and trailers of one message on the way.
pub trait Transform {
    /// The bytes to send for a piece of content, which may end anywhere. There may be none yet.
    fn content(&mut self, slice: Slice) -> Result<Chunk, TransformError>;

    /// Whether other tasks should run before the next step, because the last ones took long. It is said once.
    fn yields(&mut self) -> bool {
        false
    }

    /// The bytes to send for the next part of a piece that was too long for one step; `None` if nothing is left of it.
    fn proceed(&mut self) -> Result<Option<Chunk>, TransformError> {
        Ok(None)
    }

    /// The bytes to send now that no further content is at hand, so that nothing waits for the next piece.
    fn flush(&mut self) -> Result<Option<Chunk>, TransformError> {
        Ok(None)
    }

    /// The bytes to send after all content. May take the trailers.
    fn end(
        &mut self,
        trailers: &mut Option<Pooled<Fields>>,
    ) -> Result<Option<Chunk>, TransformError>;

    /// The bytes that end a message early in a form that its receiver understands, if there is one.
    fn fail(&mut self, failure: Failure) -> Option<Chunk>;
}

/// Why content cannot be transformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransformError {
    /// Content of a request that should be base64 is not, or ends within a group of four characters.
    NotBase64,
    /// The encoder of a response has failed.
    Encoder,
    /// Content of a request is not what its coding says, or ends too early.
    Undecodable,
    /// Content of a request is too large when it is decoded.
    DecodedTooLarge,
    /// The core has no memory for a further decoder.
    DecodersFull,
}
