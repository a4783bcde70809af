//! Decodes field sections of HTTP/3 into heads and trailers.

use super::qpack::{Decoder, Prefix, SectionLines};
use crate::error::ErrorKind;
use crate::field_compression::Malformed;
use crate::field_section::FieldSectionLimits;
use crate::field_section::receive::{self, RequestFacts};
use crate::message::{Fields, RequestHead, ResponseHead, Version};

/// Decodes a request head.
pub(crate) fn request(
    decoder: &Decoder,
    prefix: &Prefix,
    section: &[u8],
    limits: &FieldSectionLimits,
    head: &mut RequestHead,
) -> Result<Result<RequestFacts, ErrorKind>, Malformed> {
    let (bytes_max, fields_max) = (limits.head_bytes_max, limits.fields_max);
    let mut lines = SectionLines::new(decoder, prefix, section, bytes_max, fields_max);
    let facts = receive::request_head(&mut lines, limits, head)?;
    head.version = Version::Http3;
    Ok(facts)
}

/// Decodes a response head; returns the length that it declares.
pub(crate) fn response(
    decoder: &Decoder,
    prefix: &Prefix,
    section: &[u8],
    limits: &FieldSectionLimits,
    head: &mut ResponseHead,
) -> Result<Result<Option<u64>, ErrorKind>, Malformed> {
    let (bytes_max, fields_max) = (limits.head_bytes_max, limits.response_fields_max);
    let mut lines = SectionLines::new(decoder, prefix, section, bytes_max, fields_max);
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
    let (bytes_max, fields_max) = (limits.trailer_bytes_max, limits.trailer_fields_max);
    let mut lines = SectionLines::new(decoder, prefix, section, bytes_max, fields_max);
    receive::trailers(&mut lines, fields)
}
