//! Status codes of gRPC, and how HTTP's failures become them (gRPC's document
//! http-grpc-status-mapping).

use std::fmt::Write;

use blitz_http::{Fields, Status};

use crate::proxy_status::Failure;

/// The codes that a gateway has use for.
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
    /// What a client makes of an HTTP status; and beyond that document, what is too large for our
    /// limits is what gRPC calls a resource that is exhausted.
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

    /// Whoever could not even connect may try again at once; whoever waited in vain for the
    /// upstream has no time left.
    pub(crate) fn of_failure(failure: Failure) -> Code {
        match failure {
            Failure::DeadlineExceeded | Failure::HttpResponseTimeout => Code::DeadlineExceeded,
            Failure::GrpcUnsupported => Code::Unimplemented,
            _ => Code::of_status(failure.status()),
        }
    }

    /// Says how the call ended, in trailers or in a head that has nothing behind it.
    pub(crate) fn write(self, message: &str, fields: &mut Fields) {
        fields.append("grpc-status", (self as u8).to_string());
        fields.append("grpc-message", percent_encoded(message));
    }
}

/// `Percent-Encoded` of PROTOCOL-HTTP2: visible ASCII and blanks stay, but for `%`.
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
    fn failures_are_what_clients_of_grpc_call_them() {
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
                Failure::DeadlineExceeded,
                Failure::GrpcUnsupported,
            ]),
            [
                Code::Unavailable,
                Code::Unavailable,
                Code::Unavailable,
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
