//! From heads and trailers to field lines, in the order in which they are sent.

use super::policy::{is_left_out, is_special};
use super::{LineName, Pseudo};
use crate::message::{
    FieldLine, Fields, Method, Name, RequestHead, ResponseHead, Status, TargetForm,
};

/// Appends lines as the compression format encodes them. The first four have values that its static
/// table may hold.
pub(crate) trait LineEncoder {
    fn method(&mut self, method: Method, token: &str, out: &mut Vec<u8>);
    fn scheme(&mut self, scheme: &'static str, out: &mut Vec<u8>);
    fn path(&mut self, path: &str, out: &mut Vec<u8>);
    fn status(&mut self, status: Status, out: &mut Vec<u8>);

    /// Appends a line; `name_text` is empty for a known name.
    fn line(&mut self, name: LineName, name_text: &[u8], value: &[u8], out: &mut Vec<u8>);

    /// Appends a line that no compression table on the way may hold.
    fn never_indexed_line(
        &mut self,
        name: LineName,
        name_text: &[u8],
        value: &[u8],
        out: &mut Vec<u8>,
    );
}

/// Appends the lines of a request head. The scheme is that of the connection.
#[inline]
pub(crate) fn request_head(
    encoder: &mut impl LineEncoder,
    head: &RequestHead,
    scheme: &'static str,
    content_length: Option<u64>,
    out: &mut Vec<u8>,
) {
    encoder.method(head.method, head.method_str(), out);
    // RFC 9113, section 8.5: a plain CONNECT has neither scheme nor path.
    if !(head.method == Method::Connect && head.form() == TargetForm::Authority) {
        encoder.scheme(scheme, out);
        encoder.path(head.path_and_query(), out);
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
}

/// The size of a line beside its texts (RFC 9113, section 6.5.2).
const LINE_OVERHEAD: usize = 32;

/// More than a line has beside the texts in the block: its overhead and a known name.
const LINE_BYTES_MAX: usize = LINE_OVERHEAD + 64;

/// Lines that are not among the fields of a head: pseudo-header fields and `Content-Length`.
const LINES_ADDED_MAX: usize = 6;

/// Whether the field section of a request has at most `max` bytes, in the size of RFC 9113, section
/// 6.5.2.
#[inline]
pub(crate) fn request_fits(head: &RequestHead, scheme: &'static str, max: usize) -> bool {
    let lines = head.fields.len() + LINES_ADDED_MAX;
    head.text_len() + lines * LINE_BYTES_MAX <= max || request_size(head, scheme) <= max
}

#[cold]
fn request_size(head: &RequestHead, scheme: &'static str) -> usize {
    let authority = head.authority().or_else(|| head.fields.get_str(Name::Host));
    let pseudo = [
        (":method", Some(head.method_str())),
        (":scheme", Some(scheme)),
        (":path", Some(head.path_and_query())),
        (":authority", authority),
        (":protocol", head.protocol()),
    ];
    let pseudo_size = pseudo
        .iter()
        .filter_map(|(name, value)| Some(name.len() + (*value)?.len() + LINE_OVERHEAD))
        .sum::<usize>();
    let fields = head.fields.iter();
    let fields_size = fields
        .filter(|(name, _)| !is_left_out(name.known()) && name.known() != Name::Host)
        .map(|(name, value)| name.as_bytes().len() + value.len() + LINE_OVERHEAD)
        .sum::<usize>();
    pseudo_size + fields_size
}

/// Appends the lines of a response head, without its length.
#[inline]
pub(crate) fn response_head(
    encoder: &mut impl LineEncoder,
    head: &ResponseHead,
    out: &mut Vec<u8>,
) {
    encoder.status(head.status, out);
    fields(encoder, &head.fields, is_left_out, out);
}

/// Appends `Content-Length`, if there is one.
#[inline]
pub(crate) fn length(
    encoder: &mut impl LineEncoder,
    content_length: Option<u64>,
    out: &mut Vec<u8>,
) {
    if let Some(length) = content_length {
        let mut digits = itoa::Buffer::new();
        let value = digits.format(length).as_bytes();
        encoder.line(LineName::Field(Name::ContentLength), b"", value, out);
    }
}

/// Appends the lines of trailers.
pub(crate) fn trailers(encoder: &mut impl LineEncoder, trailers: &Fields, out: &mut Vec<u8>) {
    fields(encoder, trailers, Name::is_forbidden_in_trailers, out);
}

#[inline]
pub(crate) fn pseudo(
    encoder: &mut impl LineEncoder,
    pseudo: Pseudo,
    value: &str,
    out: &mut Vec<u8>,
) {
    encoder.line(LineName::Pseudo(pseudo), b"", value.as_bytes(), out);
}

#[inline]
fn fields(
    encoder: &mut impl LineEncoder,
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
            encoder.line(LineName::Field(entry.label.name), b"", value, out);
        }
    }
}

fn special_field(
    encoder: &mut impl LineEncoder,
    entry: &FieldLine,
    block: &[u8],
    out: &mut Vec<u8>,
) {
    let value = entry.value_in(block);
    let name = LineName::Field(entry.label.name);
    match entry.label.name {
        Name::Te => {
            // RFC 9113, section 8.2.2: TE "MUST NOT contain any value other than "trailers"".
            let is_trailers = |item: &[u8]| item.trim_ascii().eq_ignore_ascii_case(b"trailers");
            if value.split(|&byte| byte == b',').any(is_trailers) {
                encoder.line(name, b"", b"trailers", out);
            }
        }
        Name::Other => {
            let text = entry.name_in(block);
            if text.iter().any(u8::is_ascii_uppercase) {
                other_field(encoder, entry, &text.to_ascii_lowercase(), value, out);
            } else {
                other_field(encoder, entry, text, value, out);
            }
        }
        // Secrets stay out of tables, where others might guess at them (RFC 7541, section 7.1.3).
        _ => encoder.never_indexed_line(name, b"", value, out),
    }
}

fn other_field(
    encoder: &mut impl LineEncoder,
    entry: &FieldLine,
    text: &[u8],
    value: &[u8],
    out: &mut Vec<u8>,
) {
    let name = LineName::Field(Name::Other);
    if entry.is_never_indexed() {
        encoder.never_indexed_line(name, text, value, out);
    } else {
        encoder.line(name, text, value, out);
    }
}
