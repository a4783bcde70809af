//! Sends heads and trailers as HEADERS and CONTINUATION frames.

use super::frame::{FrameType, Header, PAYLOAD_MAX, flag};
use super::hpack::Encoder;
use crate::field_section::send;
use crate::message::{Fields, Name, RequestHead, ResponseHead, Status};

/// The last response head: as given by the caller, and as encoded.
#[derive(Debug, Default)]
pub(crate) struct LastHead {
    status: Option<Status>,
    fields: Fields,
    content_length: Option<u64>,
    /// The encoded block; empty until the same head was sent twice in a row.
    written: Vec<u8>,
    /// Bytes of the block without the `content-length` at its end.
    fields_len: usize,
    /// The version of the encoder's table.
    version: Option<u32>,
    /// The head has a field `Priority`.
    is_prioritized: bool,
}

/// Longer blocks are not cached.
const WRITTEN_MAX: usize = 48;

impl LastHead {
    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.fields.memory() + self.written.capacity()
    }

    #[inline]
    fn is(&self, head: &ResponseHead) -> bool {
        self.status == Some(head.status) && self.fields.is_same(&head.fields)
    }
}

/// Appends the frames of a response head; returns whether it has a field `Priority`.
#[inline]
pub(crate) fn response_head(
    encoder: &mut Encoder,
    last: &mut LastHead,
    stream: u32,
    head: &ResponseHead,
    content_length: Option<u64>,
    end: bool,
    out: &mut Vec<u8>,
) -> bool {
    let start = begin(encoder, out);
    if !last.written.is_empty() && last.version == encoder.version() && last.is(head) {
        if last.content_length == content_length {
            out.extend_from_slice(&last.written);
        } else {
            out.extend_from_slice(&last.written[..last.fields_len]);
            send::length(encoder, content_length, out);
        }
    } else {
        new_response_head(encoder, last, head, content_length, out);
    }
    finish(start, stream, end, out);
    last.is_prioritized
}

#[inline(never)]
fn new_response_head(
    encoder: &mut Encoder,
    last: &mut LastHead,
    head: &ResponseHead,
    content_length: Option<u64>,
    out: &mut Vec<u8>,
) {
    let (start, version) = (out.len(), encoder.version());
    last.is_prioritized = head.fields.names().any(|name| name == Name::Priority);
    send::response_head(encoder, head, out);
    let fields_len = out.len() - start;
    send::length(encoder, content_length, out);
    let written = &out[start..];
    last.written.clear();
    if written.len() > WRITTEN_MAX || encoder.version() != version {
        last.status = None;
    } else if last.is(head) {
        last.written.extend_from_slice(written);
        (last.fields_len, last.content_length) = (fields_len, content_length);
        last.version = version;
    } else {
        last.status = Some(head.status);
        last.fields.assign(&head.fields);
    }
}

/// Appends the frames of a request head.
pub(crate) fn request_head(
    encoder: &mut Encoder,
    stream: u32,
    head: &RequestHead,
    scheme: &'static str,
    content_length: Option<u64>,
    end: bool,
    out: &mut Vec<u8>,
) {
    let start = begin(encoder, out);
    send::request_head(encoder, head, scheme, content_length, out);
    finish(start, stream, end, out);
}

/// Appends the frames of trailers, which end the stream; `false` if there are no trailers to send.
pub(crate) fn trailers(
    encoder: &mut Encoder,
    stream: u32,
    trailers: &Fields,
    out: &mut Vec<u8>,
) -> bool {
    if !trailers.has_trailers() {
        return false;
    }
    let start = begin(encoder, out);
    send::trailers(encoder, trailers, out);
    finish(start, stream, true, out);
    true
}

/// Reserves space for the frame's header.
#[inline]
fn begin(encoder: &mut Encoder, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; Header::LEN]);
    encoder.begin(out);
    start
}

/// Writes the frame's header; splits a block that is too long for one frame.
#[inline]
fn finish(start: usize, stream: u32, end: bool, out: &mut Vec<u8>) {
    let len = out.len() - start - Header::LEN;
    let end = if end { flag::END_STREAM } else { 0 };
    if len > PAYLOAD_MAX {
        return split(start, stream, end, out);
    }
    let header = Header {
        len,
        kind: FrameType::Headers,
        flags: end | flag::END_HEADERS,
        stream,
    };
    out[start..start + Header::LEN].copy_from_slice(&header.to_bytes());
}

#[cold]
fn split(start: usize, stream: u32, end: u8, out: &mut Vec<u8>) {
    let block = out.split_off(start + Header::LEN);
    out.truncate(start);
    let pieces = block.len().div_ceil(PAYLOAD_MAX);
    for (index, piece) in block.chunks(PAYLOAD_MAX).enumerate() {
        let (kind, first) = match index {
            0 => (FrameType::Headers, end),
            _ => (FrameType::Continuation, 0),
        };
        let last = if index + 1 == pieces {
            flag::END_HEADERS
        } else {
            0
        };
        let header = Header {
            len: piece.len(),
            kind,
            flags: first | last,
            stream,
        };
        out.extend_from_slice(&header.to_bytes());
        out.extend_from_slice(piece);
    }
}
