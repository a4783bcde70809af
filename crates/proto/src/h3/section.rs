//! Decodes field sections of HTTP/3 into heads and trailers. Sections of heads that repeat are not decoded again.

use super::qpack::{Decoder, Prefix, SectionLines};
use crate::error::ErrorKind;
use crate::field_compression::Malformed;
use crate::field_section::FieldSectionLimits;
use crate::field_section::receive::{self, RequestFacts};
use crate::field_section::repeat::Repeat;
use crate::message::{Fields, RequestHead, ResponseHead, Version};

/// Without a dynamic table, a section has the names and values that are not in the static one.
const SECTION_MAX: usize = 128;

/// A request that was received before, with its facts.
pub(crate) type RepeatedRequest = Repeat<(RequestHead, RequestFacts), SECTION_MAX>;

/// A response that was received before, with the length that it declared.
pub(crate) type RepeatedResponse = Repeat<(ResponseHead, Option<u64>), SECTION_MAX>;

/// Decodes a request head.
pub(crate) fn request(
    decoder: &Decoder,
    repeat: &mut RepeatedRequest,
    (prefix, section): (&Prefix, &[u8]),
    limits: &FieldSectionLimits,
    head: &mut RequestHead,
) -> Result<Result<RequestFacts, ErrorKind>, Malformed> {
    let version = decoder.version();
    if let Some((known, facts)) = repeat.find(section, version) {
        head.assign(known);
        return Ok(Ok(*facts));
    }
    let facts = new_request(decoder, (prefix, section), limits, head)?;
    if let Ok(facts) = facts {
        repeat.note(section, version, head.text_len(), || (head.clone(), facts));
    }
    Ok(facts)
}

fn new_request(
    decoder: &Decoder,
    (prefix, section): (&Prefix, &[u8]),
    limits: &FieldSectionLimits,
    head: &mut RequestHead,
) -> Result<Result<RequestFacts, ErrorKind>, Malformed> {
    let mut lines = SectionLines::new(decoder, prefix, section, limits.head_budget());
    let facts = receive::request_head(&mut lines, limits, head)?;
    head.version = Version::Http3;
    Ok(facts)
}

/// Decodes a response head; returns the length that it declares.
pub(crate) fn response(
    decoder: &Decoder,
    repeat: &mut RepeatedResponse,
    (prefix, section): (&Prefix, &[u8]),
    limits: &FieldSectionLimits,
    head: &mut ResponseHead,
) -> Result<Result<Option<u64>, ErrorKind>, Malformed> {
    let version = decoder.version();
    if let Some((known, length)) = repeat.find(section, version) {
        head.assign(known);
        return Ok(Ok(*length));
    }
    let length = new_response(decoder, (prefix, section), limits, head)?;
    if let Ok(length) = length {
        repeat.note(section, version, head.fields.text_len(), || {
            (head.clone(), length)
        });
    }
    Ok(length)
}

fn new_response(
    decoder: &Decoder,
    (prefix, section): (&Prefix, &[u8]),
    limits: &FieldSectionLimits,
    head: &mut ResponseHead,
) -> Result<Result<Option<u64>, ErrorKind>, Malformed> {
    let mut lines = SectionLines::new(decoder, prefix, section, limits.head_budget());
    let length = receive::response_head(&mut lines, head)?;
    head.version = Version::Http3;
    Ok(length)
}

/// Decodes trailers.
pub(crate) fn trailers(
    decoder: &Decoder,
    prefix: &Prefix,
    section: &[u8],
    limits: &FieldSectionLimits,
    fields: &mut Fields,
) -> Result<Result<(), ErrorKind>, Malformed> {
    let mut lines = SectionLines::new(decoder, prefix, section, limits.trailers_budget());
    receive::trailers(&mut lines, fields)
}
