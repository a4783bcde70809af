//! Encodes heads and trailers, from parsed values only.

use super::framing::ConnectionOptions;
use crate::copy::{push_front, push_line, push_text};
use crate::message::{Fields, Method, Name, RequestHead, ResponseHead, Status, TargetForm};

/// The framing field of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FramingField {
    /// No framing field.
    None,
    /// `Content-Length`
    Length(u64),
    /// `Transfer-Encoding: chunked`
    Chunked,
}

/// Appends a complete head without framing and connection options.
#[inline(never)]
pub(crate) fn response_head(head: &ResponseHead, out: &mut Vec<u8>) {
    let found = begin_response(head, out);
    finish_head(found, FramingField::None, ConnectionOptions::default(), out);
}

/// Appends status line and fields; a call of [`finish_head`] must follow.
#[inline]
pub(crate) fn begin_response(head: &ResponseHead, out: &mut Vec<u8>) -> HopByHop {
    if head.status == Status::OK {
        // The compiler knows the length, so the copy is no call.
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    } else {
        push_other_status(head.status, out);
    }
    push_fields(&head.fields, Name::is_generated, out)
}

#[inline(never)]
fn push_other_status(status: Status, out: &mut Vec<u8>) {
    match status.line() {
        Some(line) => out.extend_from_slice(line.as_bytes()),
        None => {
            // Without a registered reason the phrase is empty, but the space before it is required.
            out.extend_from_slice(b"HTTP/1.1 ");
            push_number(u64::from(status.code()), out);
            out.extend_from_slice(b" \r\n");
        }
    }
}

/// Appends request line, `Host`, fields, framing and connection options.
pub(crate) fn request_head(
    head: &RequestHead,
    framing: FramingField,
    options: ConnectionOptions,
    out: &mut Vec<u8>,
) {
    if head.method == Method::Get {
        out.extend_from_slice(b"GET ");
    } else {
        out.extend_from_slice(head.method_str().as_bytes());
        out.push(b' ');
    }
    let target = match (head.method, head.form()) {
        (Method::Connect, TargetForm::Authority) => head.authority().unwrap_or(""),
        _ => head.path_and_query(),
    };
    push_text(target.as_bytes(), out);
    // RFC 9110, section 7.2: "A user agent that sends Host SHOULD send it as the first field".
    out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
    let host = match head.authority() {
        Some(authority) => authority.as_bytes(),
        None => head.fields.get(Name::Host).unwrap_or(b""),
    };
    push_line(host, out);
    // HTTP2-Settings belongs to the upgrade to h2c, which is never forwarded (rule 15).
    let is_skipped = |name: Name| {
        let is_ours = name.is_generated() || matches!(name, Name::Host | Name::Http2Settings);
        name.may_be_hop_by_hop() && is_ours
    };
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

/// Hop-by-hop fields of a head.
#[derive(Clone, Copy, Default)]
pub(crate) struct HopByHop {
    /// `Upgrade` and `TE` were written, so `Connection` must name them (RFC 9110, sections 7.8
    /// and 10.1.4).
    upgrade: bool,
    te: bool,
    /// The head has a `Connection`, which was skipped.
    pub(crate) connection: bool,
}

impl HopByHop {
    fn note(&mut self, name: Name) {
        self.upgrade |= name == Name::Upgrade;
        self.te |= name == Name::Te;
        self.connection |= name == Name::Connection;
    }
}

/// Appends all fields except the skipped ones.
#[inline]
fn push_fields(fields: &Fields, is_skipped: impl Fn(Name) -> bool, out: &mut Vec<u8>) -> HopByHop {
    let mut found = HopByHop::default();
    for entry in &fields.entries {
        let name = entry.label.name;
        if name.may_be_hop_by_hop() {
            found.note(name);
        }
        if is_skipped(name) {
            continue;
        }
        if name == Name::Other {
            push_text(entry.name_in(&fields.block), out);
            out.extend_from_slice(b": ");
        } else {
            let (start, len) = name.line_start();
            push_front(start, len, out);
        }
        push_line(entry.value_in(&fields.block), out);
    }
    found
}

/// Appends framing, connection options and the empty line.
#[inline]
pub(crate) fn finish_head(
    found: HopByHop,
    framing: FramingField,
    options: ConnectionOptions,
    out: &mut Vec<u8>,
) {
    match framing {
        FramingField::None => out.extend_from_slice(b"\r\n"),
        FramingField::Length(length @ 0..10_000) => push_short_length(length as u32, out),
        FramingField::Length(length) => {
            out.extend_from_slice(b"Content-Length: ");
            push_number(length, out);
            out.extend_from_slice(b"\r\n\r\n");
        }
        FramingField::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n"),
    }
    if options.close || options.keep_alive || found.upgrade || found.te {
        out.truncate(out.len() - b"\r\n".len());
        push_connection(found, options, out);
    }
}

/// Appends `Content-Length` with up to four digits, and the empty line: the end of most heads.
#[inline]
fn push_short_length(length: u32, out: &mut Vec<u8>) {
    let digits = [
        length / 1000,
        length / 100 % 10,
        length / 10 % 10,
        length % 10,
    ];
    let digits = u32::from_le_bytes(digits.map(|digit| b'0' + digit as u8));
    let zeros = usize::from(length < 1000) + usize::from(length < 100) + usize::from(length < 10);
    // Digits and line ends form one word; the shift removes leading zeros.
    let line_end = u64::from(u32::from_le_bytes(*b"\r\n\r\n"));
    let end = (line_end << 32 | u64::from(digits)) >> (zeros * 8);
    let mut line = *b"Content-Length: \0\0\0\0\0\0\0\0";
    line[16..].copy_from_slice(&end.to_le_bytes());
    push_front(&line, line.len() - zeros, out);
}

/// Appends `Connection` and the empty line.
#[cold]
fn push_connection(found: HopByHop, options: ConnectionOptions, out: &mut Vec<u8>) {
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
    out.extend_from_slice(b"\r\n\r\n");
}

fn push_number(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}
