//! Writes heads and trailers anew, from parsed values only.

use super::framing::ConnectionOptions;
use crate::message::{Fields, Method, Name, RequestHead, ResponseHead, TargetForm};

/// How a head says where its message ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FramingField {
    /// Not at all.
    None,
    /// `Content-Length`
    Length(u64),
    /// `Transfer-Encoding: chunked`
    Chunked,
}

/// Appends status line, fields, framing and connection options.
pub(crate) fn response_head(
    head: &ResponseHead,
    framing: FramingField,
    options: ConnectionOptions,
    out: &mut Vec<u8>,
) {
    match head.status.line() {
        Some(line) => out.extend_from_slice(line.as_bytes()),
        None => {
            // Without a registered reason the phrase is empty, but its space is not optional.
            out.extend_from_slice(b"HTTP/1.1 ");
            push_number(u64::from(head.status.code()), out);
            out.extend_from_slice(b" \r\n");
        }
    }
    let found = push_fields(&head.fields, Name::is_of_machine, out);
    finish_head(found, framing, options, out);
}

/// Appends request line, `Host`, fields, framing and connection options.
pub(crate) fn request_head(
    head: &RequestHead,
    framing: FramingField,
    options: ConnectionOptions,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(head.method_str().as_bytes());
    out.push(b' ');
    let target = match (head.method, head.form()) {
        (Method::Connect, TargetForm::Authority) => head.authority().unwrap_or(""),
        _ => head.path_and_query(),
    };
    out.extend_from_slice(target.as_bytes());
    // RFC 9110, section 7.2: "A user agent that sends Host SHOULD send it as the first field".
    out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
    let host = match head.authority() {
        Some(authority) => authority.as_bytes(),
        None => head.fields.get(Name::Host).unwrap_or(b""),
    };
    out.extend_from_slice(host);
    out.extend_from_slice(b"\r\n");
    // HTTP2-Settings belongs to the upgrade to h2c, which is never forwarded (RULES 15).
    let is_skipped =
        |name: Name| name.is_of_machine() || matches!(name, Name::Host | Name::Http2Settings);
    let found = push_fields(&head.fields, is_skipped, out);
    finish_head(found, framing, options, out);
}

/// Appends trailer fields, without those that must not be sent as such, and the empty line.
pub(crate) fn trailers(trailers: Option<&Fields>, out: &mut Vec<u8>) {
    if let Some(trailers) = trailers {
        push_fields(trailers, Name::is_forbidden_in_trailers, out);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a chunk-size line (RFC 9112, section 7.1).
pub(crate) fn chunk_size(len: usize, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut line = [0; 18];
    let mut at = line.len() - 2;
    line[at..].copy_from_slice(b"\r\n");
    let mut rest = len;
    loop {
        at -= 1;
        line[at] = DIGITS[rest & 15];
        rest >>= 4;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&line[at..]);
}

/// Fields that were written and that `Connection` has to name, because they are hop-by-hop (RFC
/// 9110, sections 7.8 and 10.1.4).
#[derive(Clone, Copy, Default)]
struct HopByHop {
    upgrade: bool,
    te: bool,
}

/// Appends all fields but those to skip.
#[inline]
fn push_fields(fields: &Fields, is_skipped: impl Fn(Name) -> bool, out: &mut Vec<u8>) -> HopByHop {
    let mut found = HopByHop::default();
    for entry in &fields.entries {
        if is_skipped(entry.name) {
            continue;
        }
        found.upgrade |= entry.name == Name::Upgrade;
        found.te |= entry.name == Name::Te;
        match entry.name.line_start() {
            Some(start) => out.extend_from_slice(start.as_bytes()),
            None => {
                out.extend_from_slice(entry.name_in(&fields.block));
                out.extend_from_slice(b": ");
            }
        }
        out.extend_from_slice(entry.value_in(&fields.block));
        out.extend_from_slice(b"\r\n");
    }
    found
}

fn finish_head(
    found: HopByHop,
    framing: FramingField,
    options: ConnectionOptions,
    out: &mut Vec<u8>,
) {
    match framing {
        FramingField::None => {}
        FramingField::Length(length) => {
            out.extend_from_slice(b"Content-Length: ");
            push_number(length, out);
            out.extend_from_slice(b"\r\n");
        }
        FramingField::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
    }
    push_connection(found, options, out);
    out.extend_from_slice(b"\r\n");
}

#[inline]
fn push_connection(found: HopByHop, options: ConnectionOptions, out: &mut Vec<u8>) {
    if !(options.close || options.keep_alive || found.upgrade || found.te) {
        return;
    }
    let named = [
        (options.close, "close"),
        (options.keep_alive, "keep-alive"),
        (found.upgrade, "Upgrade"),
        (found.te, "TE"),
    ];
    let mut before: &[u8] = b"Connection: ";
    for (_, option) in named.iter().filter(|(wanted, _)| *wanted) {
        out.extend_from_slice(before);
        out.extend_from_slice(option.as_bytes());
        before = b", ";
    }
    out.extend_from_slice(b"\r\n");
}

fn push_number(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}
