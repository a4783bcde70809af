//! The content of messages in HTTP/2 and HTTP/3: how long it is, and whether all of it was received
//! or sent (RFC 9110, sections 6.4 and 8.6; RFC 9113, section 8.1; RFC 9114, section 4.1).
//!
//! Both versions end a message with its stream, so a declared length delimits nothing and is only
//! checked. HTTP/1.1 delimits content by its framing, in [`h1`](crate::h1). Frames and the end of a
//! stream are the versions' own.

use std::time::Duration;

use crate::error::ErrorKind;
use crate::informational::InformationalRate;
use crate::message::{BodyLength, Method, RequestHead, ResponseHead, Status};

/// Bytes of content that are still to be received or sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContentLeft(u64);

impl ContentLeft {
    /// No length was declared.
    pub(crate) const UNDECLARED: ContentLeft = ContentLeft(u64::MAX);

    #[inline]
    pub(crate) fn of(declared: Option<u64>) -> ContentLeft {
        declared.map_or(ContentLeft::UNDECLARED, ContentLeft)
    }

    /// The rest after `len` bytes; `None` if they are more than declared.
    #[inline]
    pub(crate) fn after(self, len: u64) -> Option<ContentLeft> {
        if self == ContentLeft::UNDECLARED {
            return Some(self);
        }
        self.0.checked_sub(len).map(ContentLeft)
    }

    /// Whether the content may end here.
    #[inline]
    pub(crate) fn may_end(self) -> bool {
        matches!(self, ContentLeft(0) | ContentLeft::UNDECLARED)
    }
}

/// The requests whose responses have other rules about content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Head,
    Connect,
    Other,
}

impl RequestKind {
    #[inline]
    pub(crate) fn of(head: &RequestHead) -> RequestKind {
        match head.method {
            Method::Head => RequestKind::Head,
            Method::Connect => RequestKind::Connect,
            _ => RequestKind::Other,
        }
    }

    #[inline]
    fn opens_tunnel(self, status: Status) -> bool {
        self == RequestKind::Connect && status.is_success()
    }

    #[inline]
    fn has_no_content(self, status: Status) -> bool {
        self == RequestKind::Head || status.forbids_content()
    }
}

/// The length of a received message that may have content; `ends` with its head or not.
pub(crate) fn received_length(declared: Option<u64>, ends: bool) -> BodyLength {
    match declared {
        Some(0) if !ends => BodyLength::NothingButTrailers,
        Some(length) => BodyLength::Known(length),
        None if ends => BodyLength::Empty,
        None => BodyLength::Unknown,
    }
}

/// The content that is still to be received of a final response, and the length that its head
/// declares.
#[inline]
pub(crate) fn received_response(
    request: RequestKind,
    head: &ResponseHead,
    declared: Option<u64>,
    ends: bool,
) -> (ContentLeft, BodyLength) {
    let has_no_content = request.has_no_content(head.status);
    match declared {
        _ if request.opens_tunnel(head.status) => (ContentLeft::UNDECLARED, BodyLength::Unknown),
        _ if head.status == Status::NO_CONTENT => (ContentLeft(0), BodyLength::Empty),
        // A response to HEAD need not declare the length that the content would have.
        None if has_no_content && !head.status.forbids_content() => {
            (ContentLeft(0), BodyLength::Unknown)
        }
        declared if has_no_content => (ContentLeft(0), received_length(declared, true)),
        declared => (ContentLeft::of(declared), received_length(declared, ends)),
    }
}

/// Takes an informational response, which must not end its stream.
pub(crate) fn received_informational(
    rate: &mut InformationalRate,
    max: usize,
    now: Duration,
    ends: bool,
) -> Result<BodyLength, ErrorKind> {
    match ends {
        true => Err(ErrorKind::HeadUnexpected),
        false => rate.admit(max, now).map(|()| BodyLength::Empty),
    }
}

/// The `Content-Length` of a request that is being sent, and whether it ends with its head.
#[inline]
pub(crate) fn sent_request(head: &RequestHead, length: BodyLength) -> (Option<u64>, bool) {
    match length {
        _ if head.method == Method::Connect => (None, false),
        BodyLength::Empty if head.method.anticipates_content() => (Some(0), true),
        length => sent_length(length),
    }
}

/// The `Content-Length` of a final response that is being sent, and whether it ends with its head.
#[inline]
pub(crate) fn sent_response(
    request: RequestKind,
    status: Status,
    length: BodyLength,
) -> (Option<u64>, bool) {
    let (declared, ends) = match length {
        _ if request.opens_tunnel(status) => (None, false),
        length => sent_length(length),
    };
    // RFC 9110, section 8.6: "A server MUST NOT send a Content-Length header field in any
    // response with a status code of 1xx (Informational) or 204 (No Content)."
    let declared = declared.filter(|_| status != Status::NO_CONTENT);
    (declared, ends || request.has_no_content(status))
}

#[inline]
fn sent_length(length: BodyLength) -> (Option<u64>, bool) {
    match length {
        BodyLength::Empty => (None, true),
        BodyLength::Known(length) => (Some(length), length == 0),
        BodyLength::NothingButTrailers => (Some(0), false),
        BodyLength::Unknown => (None, false),
    }
}
