//! Limits of a site for its requests. They apply once the host is known, so they are at most those of the process.

use blitz_config::MessageLimits;
use blitz_http::{Fields, Name, RequestHead};
use blitz_site::Rejection;

/// Bytes of a request line beside method and target: two spaces and the version.
const REST_OF_REQUEST_LINE: usize = " ".len() + " HTTP/1.1".len();

/// Bytes of a field line beside name and value: a colon, a space and the line break.
const REST_OF_FIELD_LINE: usize = 4;

/// The limits that a site has of its own, counted as HTTP/1.1 writes a message, in whatever version it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestLimits {
    request_line_bytes_max: usize,
    head_bytes_max: usize,
    fields_max: usize,
    pub(crate) trailer_bytes_max: u32,
}

impl RequestLimits {
    /// `None` if the site has none.
    pub(crate) fn new(limits: &MessageLimits) -> Option<RequestLimits> {
        if *limits == MessageLimits::default() {
            return None;
        }
        let number = |number: Option<u64>| {
            number.map_or(usize::MAX, |number| {
                usize::try_from(number).unwrap_or(usize::MAX)
            })
        };
        let trailers = limits.trailers_max.as_ref().map(|bytes| bytes.value.0);
        Some(RequestLimits {
            request_line_bytes_max: number(
                limits.request_line_max.as_ref().map(|bytes| bytes.value.0),
            ),
            head_bytes_max: number(limits.head_max.as_ref().map(|bytes| bytes.value.0)),
            fields_max: number(limits.fields_max.as_ref().map(|fields| fields.value)),
            trailer_bytes_max: trailers
                .and_then(|bytes| u32::try_from(bytes).ok())
                .unwrap_or(u32::MAX),
        })
    }

    /// # Errors
    /// The request line or the header section is too large.
    pub(crate) fn check(&self, head: &RequestHead) -> Result<(), Rejection> {
        let request_line = head.method_str().len() + head.path_and_query().len();
        if request_line + REST_OF_REQUEST_LINE > self.request_line_bytes_max {
            return Err(Rejection::RequestLineTooLong);
        }
        // HTTP/2 and HTTP/3 have it beside the fields.
        let host = head
            .authority()
            .filter(|_| !head.fields.contains(Name::Host));
        let host = host.map_or(0, |host| "host".len() + host.len() + REST_OF_FIELD_LINE);
        let is_too_large = host + section_bytes(&head.fields) > self.head_bytes_max
            || head.fields.len() + usize::from(host > 0) > self.fields_max;
        match is_too_large {
            true => Err(Rejection::HeadTooLarge),
            false => Ok(()),
        }
    }
}

/// Bytes of a section as HTTP/1.1 writes it.
pub(crate) fn section_bytes(fields: &Fields) -> usize {
    let lines = fields.iter();
    lines
        .map(|(name, value)| name.as_bytes().len() + value.len() + REST_OF_FIELD_LINE)
        .sum()
}
