//! Types that all versions of HTTP share: heads, fields, lengths.
//!
//! A head owns its text: the target in one string, the fields in one block with ranges into it.
//! Both keep their capacity when cleared, so a reused head allocates nothing.

mod fields;
mod method;
mod name;
pub(crate) mod refused;
mod request;
mod response;
mod status;
pub(crate) mod target;
mod target_encoding;

use crate::error::ErrorKind;

pub(crate) use fields::{FieldLine, StoredName, is_token, is_token_byte, is_valid_value};
pub use fields::{FieldName, Fields, InvalidField};
pub use method::Method;
pub(crate) use name::NamePattern;
pub use name::{AsName, Name, NameSet};
pub use request::{InvalidTarget, RequestHead, TargetForm};
pub(crate) use request::{RequestTarget, Span};
pub use response::ResponseHead;
pub use status::Status;
pub use target::is_authority;
pub(crate) use target_encoding::encode_refused;

/// The version of HTTP with which a message was received or will be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// HTTP/1.0 (RFC 1945)
    Http10,
    /// HTTP/1.1 (RFC 9112)
    Http11,
    /// HTTP/2 (RFC 9113)
    Http2,
    /// HTTP/3 (RFC 9114)
    Http3,
}

impl Version {
    /// As written in logs: `HTTP/1.0`, `HTTP/1.1`, `HTTP/2`, `HTTP/3`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http2 => "HTTP/2",
            Version::Http3 => "HTTP/3",
        }
    }
}

/// The length of the content that a head declares.
///
/// For a received response to HEAD, and for a 304, it is the length that the content would have
/// had; the `End` event, not this value, marks the end of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    /// No content, and none declared.
    Empty,
    /// Exactly this many bytes, declared by `Content-Length`; at 0 the message ends with its head.
    Known(u64),
    /// 0 bytes, declared by `Content-Length`, in a message that continues after its head: trailers may
    /// follow (RFC 9113, section 8.1). HTTP/1.1 does not allow trailers after a declared length; there
    /// it is sent as `Known(0)`.
    NothingButTrailers,
    /// Not known in advance: chunked in HTTP/1.1, close-delimited for an HTTP/1.0 client.
    Unknown,
}

/// Parses the value of `Content-Length`: `1*DIGIT` within 63 bits. A list of equal numbers, which some
/// recipients accept, is refused.
pub(crate) fn parse_content_length(value: &[u8]) -> Result<u64, ErrorKind> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(ErrorKind::ContentLengthMalformed);
    }
    let mut length: u64 = 0;
    for digit in value {
        length = length
            .checked_mul(10)
            .and_then(|length| length.checked_add(u64::from(digit - b'0')))
            .filter(|&length| length <= i64::MAX as u64)
            .ok_or(ErrorKind::ContentLengthOverflow)?;
    }
    Ok(length)
}
