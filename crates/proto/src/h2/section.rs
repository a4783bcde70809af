//! Decodes header blocks of HTTP/2 into heads and trailers. Blocks that repeat are not decoded again.

use super::hpack::{BlockLines, Decoder, Malformed};
use crate::error::ErrorKind;
use crate::field_section::receive::{self, RequestFacts};
use crate::field_section::repeat::Repeat;
use crate::field_section::{Budget, FieldLines, FieldSectionLimits};
use crate::message::{Fields, RequestHead, ResponseHead, Version};

/// After the first requests of a connection, a block has about one byte for each field.
const BLOCK_MAX: usize = 48;

/// A request that was received before, with its facts.
pub(crate) type RepeatedRequest = Repeat<(RequestHead, RequestFacts), BLOCK_MAX>;

/// A response that was received before, with the length that it declared.
pub(crate) type RepeatedResponse = Repeat<(ResponseHead, Option<u64>), BLOCK_MAX>;

/// Decodes a request head.
#[inline]
pub(crate) fn request(
    decoder: &mut Decoder,
    repeat: &mut RepeatedRequest,
    block: &[u8],
    limits: &FieldSectionLimits,
    head: &mut RequestHead,
) -> Result<Result<RequestFacts, ErrorKind>, Malformed> {
    if let Some((known, facts)) = repeat.find(block, decoder.version()) {
        head.assign(known);
        return Ok(Ok(*facts));
    }
    let version = decoder.version();
    let facts = new_request(decoder, block, limits, head)?;
    if let Ok(facts) = facts
        && decoder.version() == version
    {
        repeat.note(block, version, head.text_len(), || (head.clone(), facts));
    }
    Ok(facts)
}

fn new_request(
    decoder: &mut Decoder,
    block: &[u8],
    limits: &FieldSectionLimits,
    head: &mut RequestHead,
) -> Result<Result<RequestFacts, ErrorKind>, Malformed> {
    let mut lines = BlockLines::new(decoder, block, limits.head_budget());
    let facts = receive::request_head(&mut lines, limits, head)?;
    head.version = Version::Http2;
    Ok(facts)
}

/// Decodes a response head; returns the length that it declares.
pub(crate) fn response(
    decoder: &mut Decoder,
    repeat: &mut RepeatedResponse,
    block: &[u8],
    limits: &FieldSectionLimits,
    head: &mut ResponseHead,
) -> Result<Result<Option<u64>, ErrorKind>, Malformed> {
    if let Some((known, length)) = repeat.find(block, decoder.version()) {
        head.assign(known);
        return Ok(Ok(*length));
    }
    let version = decoder.version();
    let length = new_response(decoder, block, limits, head)?;
    if let Ok(length) = length
        && decoder.version() == version
    {
        repeat.note(block, version, head.fields.text_len(), || {
            (head.clone(), length)
        });
    }
    Ok(length)
}

fn new_response(
    decoder: &mut Decoder,
    block: &[u8],
    limits: &FieldSectionLimits,
    head: &mut ResponseHead,
) -> Result<Result<Option<u64>, ErrorKind>, Malformed> {
    let mut lines = BlockLines::new(decoder, block, limits.head_budget());
    let length = receive::response_head(&mut lines, head)?;
    head.version = Version::Http2;
    Ok(length)
}

/// Decodes trailers.
pub(crate) fn trailers(
    decoder: &mut Decoder,
    block: &[u8],
    limits: &FieldSectionLimits,
    fields: &mut Fields,
) -> Result<Result<(), ErrorKind>, Malformed> {
    let mut lines = BlockLines::new(decoder, block, limits.trailers_budget());
    receive::trailers(&mut lines, fields)
}

/// Decodes a block for its effect on the table only.
pub(crate) fn ignored(decoder: &mut Decoder, block: &[u8]) -> Result<(), Malformed> {
    let mut lines = BlockLines::new(decoder, block, Budget::NONE);
    let mut text = Vec::new();
    while lines.next_line(&mut text)?.is_some() {}
    Ok(())
}
