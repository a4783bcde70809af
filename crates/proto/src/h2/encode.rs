//! From heads and trailers to header blocks.

use super::frame::{Header, Kind, PAYLOAD_MAX, flag};
use super::hpack::{Encoder, Label, Pseudo};
use crate::message::{Entry, Fields, Method, Name, RequestHead, ResponseHead, Status, TargetForm};

/// The response head that was sent last: as it was given, and as it was written.
#[derive(Debug, Default)]
pub(crate) struct LastHead {
    status: Option<Status>,
    fields: Fields,
    content_length: Option<u64>,
    /// The block; empty until the head was sent twice in a row.
    written: Vec<u8>,
    /// Bytes of the block without the length at its end.
    fields_len: usize,
    /// The version of the encoder's table.
    version: Option<u32>,
    /// `Priority` is among the fields.
    is_prioritized: bool,
}

/// Longer blocks are not remembered.
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

/// Appends the frames of a response head; says whether it has the field `Priority`.
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
            length(encoder, content_length, out);
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
    status(encoder, head.status, out);
    fields(encoder, &head.fields, is_left_out, out);
    let fields_len = out.len() - start;
    length(encoder, content_length, out);
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
    match head.method {
        Method::Get => Encoder::static_entry(2, out),
        Method::Post => Encoder::static_entry(3, out),
        _ => pseudo(encoder, Pseudo::Method, head.method_str(), out),
    }
    // RFC 9113, section 8.5: a plain CONNECT has neither scheme nor path.
    if !(head.method == Method::Connect && head.form() == TargetForm::Authority) {
        Encoder::static_entry(if scheme == "https" { 7 } else { 6 }, out);
        match head.path_and_query() {
            "/" => Encoder::static_entry(4, out),
            path => pseudo(encoder, Pseudo::Path, path, out),
        }
    }
    let authority = head.authority().or_else(|| head.fields.get_str(Name::Host));
    if let Some(authority) = authority.filter(|authority| !authority.is_empty()) {
        pseudo(encoder, Pseudo::Authority, authority, out);
    }
    if let Some(protocol) = head.protocol() {
        pseudo(encoder, Pseudo::Protocol, protocol, out);
    }
    fields(
        encoder,
        &head.fields,
        |name| is_left_out(name) || name == Name::Host,
        out,
    );
    length(encoder, content_length, out);
    finish(start, stream, end, out);
}

/// Appends the frames of trailers, which end the stream; `false` if there is none to send.
pub(crate) fn trailers(
    encoder: &mut Encoder,
    stream: u32,
    trailers: &Fields,
    out: &mut Vec<u8>,
) -> bool {
    let names = trailers.entries.iter().map(|entry| entry.label.name);
    if names.into_iter().all(Name::is_forbidden_in_trailers) {
        return false;
    }
    let start = begin(encoder, out);
    fields(encoder, trailers, Name::is_forbidden_in_trailers, out);
    finish(start, stream, true, out);
    true
}

/// Leaves room for the frame's header.
#[inline]
fn begin(encoder: &mut Encoder, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; Header::LEN]);
    encoder.begin(out);
    start
}

/// Writes the frame's header, or, for a block that is too long for one frame, those of several.
#[inline]
fn finish(start: usize, stream: u32, end: bool, out: &mut Vec<u8>) {
    let len = out.len() - start - Header::LEN;
    let end = if end { flag::END_STREAM } else { 0 };
    if len > PAYLOAD_MAX {
        return split(start, stream, end, out);
    }
    let header = Header {
        len,
        kind: Kind::Headers,
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
            0 => (Kind::Headers, end),
            _ => (Kind::Continuation, 0),
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

/// Fields that HTTP/2 must not have, or that the machine writes itself. `TE` is looked at apart.
#[inline]
fn is_left_out(name: Name) -> bool {
    name.is_of_machine() || matches!(name, Name::Upgrade | Name::Http2Settings)
}

#[inline]
fn fields(
    encoder: &mut Encoder,
    fields: &Fields,
    is_left_out: impl Fn(Name) -> bool,
    out: &mut Vec<u8>,
) {
    for entry in &fields.entries {
        if is_left_out(entry.label.name) {
            continue;
        }
        let value = entry.value_in(&fields.block);
        if is_special(entry) {
            special_field(encoder, entry, &fields.block, out);
        } else {
            encoder.field(Label::Field(entry.label.name), b"", value, out);
        }
    }
}

#[inline]
fn is_special(entry: &Entry) -> bool {
    entry.is_never_indexed()
        || matches!(entry.label.name, Name::Other | Name::Te)
        || matches!(entry.label.name, Name::Cookie | Name::SetCookie)
        || matches!(
            entry.label.name,
            Name::Authorization | Name::ProxyAuthorization
        )
}

fn special_field(encoder: &mut Encoder, entry: &Entry, block: &[u8], out: &mut Vec<u8>) {
    let value = entry.value_in(block);
    let label = Label::Field(entry.label.name);
    match entry.label.name {
        Name::Te => {
            // RFC 9113, section 8.2.2: TE "MUST NOT contain any value other than "trailers"".
            let is_trailers = |item: &[u8]| item.trim_ascii().eq_ignore_ascii_case(b"trailers");
            if value.split(|&byte| byte == b',').any(is_trailers) {
                encoder.field(label, b"", b"trailers", out);
            }
        }
        Name::Other => {
            let name = entry.name_in(block);
            if name.iter().any(u8::is_ascii_uppercase) {
                other_field(encoder, entry, &name.to_ascii_lowercase(), value, out);
            } else {
                other_field(encoder, entry, name, value, out);
            }
        }
        // Secrets stay out of tables, where others might guess at them (RFC 7541, section 7.1.3).
        _ => encoder.never_indexed(label, b"", value, out),
    }
}

fn other_field(encoder: &mut Encoder, entry: &Entry, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    let label = Label::Field(Name::Other);
    if entry.is_never_indexed() {
        encoder.never_indexed(label, name, value, out);
    } else {
        encoder.field(label, name, value, out);
    }
}

#[inline]
fn status(encoder: &mut Encoder, status: Status, out: &mut Vec<u8>) {
    let index = match status.code() {
        200 => 8,
        204 => 9,
        206 => 10,
        304 => 11,
        400 => 12,
        404 => 13,
        500 => 14,
        code => {
            let mut digits = itoa::Buffer::new();
            return pseudo(encoder, Pseudo::Status, digits.format(code), out);
        }
    };
    Encoder::static_entry(index, out);
}

#[inline]
fn pseudo(encoder: &mut Encoder, pseudo: Pseudo, value: &str, out: &mut Vec<u8>) {
    encoder.field(Label::Pseudo(pseudo), b"", value.as_bytes(), out);
}

#[inline]
fn length(encoder: &mut Encoder, content_length: Option<u64>, out: &mut Vec<u8>) {
    if let Some(length) = content_length {
        let mut digits = itoa::Buffer::new();
        let value = digits.format(length).as_bytes();
        encoder.field(Label::Field(Name::ContentLength), b"", value, out);
    }
}
