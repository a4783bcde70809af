//! Status codes of gRPC, and their mapping from HTTP's (gRPC's document
//! http-grpc-status-mapping).

use std::fmt::Write;

use blitz_http::{Fields, Status};
use blitz_site::Failure;

/// Codes that the gateway sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    Unknown = 2,
    DeadlineExceeded = 4,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

impl Code {
    /// The code that clients derive from an HTTP status. Unlike in that document, messages beyond our
    /// limits are RESOURCE_EXHAUSTED.
    pub(crate) fn of_status(status: Status) -> Code {
        match status.code() {
            400 => Code::Internal,
            401 => Code::Unauthenticated,
            403 => Code::PermissionDenied,
            404 => Code::Unimplemented,
            413 | 414 | 431 => Code::ResourceExhausted,
            429 | 502 | 503 | 504 => Code::Unavailable,
            _ => Code::Unknown,
        }
    }

    /// The code of a response of the gateway's own. A limit of requests says so: clients try an unavailable service
    /// again at once.
    pub(crate) fn of_own_status(status: Status) -> Code {
        match status {
            Status::TOO_MANY_REQUESTS => Code::ResourceExhausted,
            _ => Code::of_status(status),
        }
    }

    /// A failure to connect may be retried at once. A timeout of the upstream is
    /// DEADLINE_EXCEEDED, and a section beyond its limits RESOURCE_EXHAUSTED.
    pub(crate) fn of_failure(failure: Failure) -> Code {
        match failure {
            Failure::DeadlineExceeded
            | Failure::HttpResponseTimeout
            | Failure::HttpResponseStalled => Code::DeadlineExceeded,
            Failure::GrpcUnsupported => Code::Unimplemented,
            // A client that tries again gets the same.
            Failure::ProxyLoopDetected => Code::Internal,
            Failure::HttpResponseHeaderSectionSize | Failure::HttpResponseTrailerSectionSize => {
                Code::ResourceExhausted
            }
            _ => Code::of_status(failure.status()),
        }
    }

    /// Writes how the call ended to trailers, or to the head of a response without content.
    pub(crate) fn write(self, message: &str, fields: &mut Fields) {
        fields.append("grpc-status", (self as u8).to_string());
        fields.append("grpc-message", percent_encoded(message));
    }
}

/// `Percent-Encoded` of PROTOCOL-HTTP2: visible ASCII and spaces stay, except `%`.
fn percent_encoded(message: &str) -> String {
    let mut encoded = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            // Writing to a string cannot fail.
            _ => _ = write!(encoded, "%{byte:02X}"),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_and_statuses_map_to_codes() {
        let codes = |failures: &[Failure]| -> Vec<_> {
            failures
                .iter()
                .map(|&failure| Code::of_failure(failure))
                .collect()
        };
        assert_eq!(
            codes(&[
                Failure::ConnectionRefused,
                Failure::ConnectionTimeout,
                Failure::DestinationUnavailable,
                Failure::HttpResponseTimeout,
                Failure::HttpResponseStalled,
                Failure::DeadlineExceeded,
                Failure::GrpcUnsupported,
            ]),
            [
                Code::Unavailable,
                Code::Unavailable,
                Code::Unavailable,
                Code::DeadlineExceeded,
                Code::DeadlineExceeded,
                Code::DeadlineExceeded,
                Code::Unimplemented,
            ]
        );
        let of = |status| Code::of_status(status) as u8;
        assert_eq!(of(Status::NOT_FOUND), 12);
        assert_eq!(of(Status::REQUEST_HEADER_FIELDS_TOO_LARGE), 8);
        assert_eq!(of(Status::MISDIRECTED_REQUEST), 2);
    }

    #[test]
    fn messages_are_percent_encoded() {
        assert_eq!(percent_encoded("100 % äh\n"), "100 %25 %C3%A4h%0A");
    }
}
