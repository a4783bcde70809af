//! Status codes (RFC 9110, section 15).

/// A status code from 100 to 999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(u16);

/// Declares the registered codes, their reasons and their complete HTTP/1.1 status lines.
macro_rules! statuses {
    ($($code:literal $constant:ident $reason:literal)*) => {
        impl Status {
            $(#[doc = concat!("`", $code, " ", $reason, "`")]
            pub const $constant: Status = Status($code);)*

            /// The registered reason phrase; empty for an unregistered code.
            #[must_use]
            pub fn reason(self) -> &'static str {
                match self.0 {
                    $($code => $reason,)*
                    _ => "",
                }
            }

            /// The whole status line with its line end, for registered codes.
            #[inline]
            pub(crate) fn line(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some(concat!("HTTP/1.1 ", $code, " ", $reason, "\r\n")),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    100 CONTINUE "Continue"
    101 SWITCHING_PROTOCOLS "Switching Protocols"
    102 PROCESSING "Processing"
    103 EARLY_HINTS "Early Hints"
    200 OK "OK"
    201 CREATED "Created"
    202 ACCEPTED "Accepted"
    203 NON_AUTHORITATIVE_INFORMATION "Non-Authoritative Information"
    204 NO_CONTENT "No Content"
    205 RESET_CONTENT "Reset Content"
    206 PARTIAL_CONTENT "Partial Content"
    207 MULTI_STATUS "Multi-Status"
    208 ALREADY_REPORTED "Already Reported"
    226 IM_USED "IM Used"
    300 MULTIPLE_CHOICES "Multiple Choices"
    301 MOVED_PERMANENTLY "Moved Permanently"
    302 FOUND "Found"
    303 SEE_OTHER "See Other"
    304 NOT_MODIFIED "Not Modified"
    307 TEMPORARY_REDIRECT "Temporary Redirect"
    308 PERMANENT_REDIRECT "Permanent Redirect"
    400 BAD_REQUEST "Bad Request"
    401 UNAUTHORIZED "Unauthorized"
    402 PAYMENT_REQUIRED "Payment Required"
    403 FORBIDDEN "Forbidden"
    404 NOT_FOUND "Not Found"
    405 METHOD_NOT_ALLOWED "Method Not Allowed"
    406 NOT_ACCEPTABLE "Not Acceptable"
    407 PROXY_AUTHENTICATION_REQUIRED "Proxy Authentication Required"
    408 REQUEST_TIMEOUT "Request Timeout"
    409 CONFLICT "Conflict"
    410 GONE "Gone"
    411 LENGTH_REQUIRED "Length Required"
    412 PRECONDITION_FAILED "Precondition Failed"
    413 CONTENT_TOO_LARGE "Content Too Large"
    414 URI_TOO_LONG "URI Too Long"
    415 UNSUPPORTED_MEDIA_TYPE "Unsupported Media Type"
    416 RANGE_NOT_SATISFIABLE "Range Not Satisfiable"
    417 EXPECTATION_FAILED "Expectation Failed"
    421 MISDIRECTED_REQUEST "Misdirected Request"
    422 UNPROCESSABLE_CONTENT "Unprocessable Content"
    423 LOCKED "Locked"
    424 FAILED_DEPENDENCY "Failed Dependency"
    425 TOO_EARLY "Too Early"
    426 UPGRADE_REQUIRED "Upgrade Required"
    428 PRECONDITION_REQUIRED "Precondition Required"
    429 TOO_MANY_REQUESTS "Too Many Requests"
    431 REQUEST_HEADER_FIELDS_TOO_LARGE "Request Header Fields Too Large"
    451 UNAVAILABLE_FOR_LEGAL_REASONS "Unavailable For Legal Reasons"
    500 INTERNAL_SERVER_ERROR "Internal Server Error"
    501 NOT_IMPLEMENTED "Not Implemented"
    502 BAD_GATEWAY "Bad Gateway"
    503 SERVICE_UNAVAILABLE "Service Unavailable"
    504 GATEWAY_TIMEOUT "Gateway Timeout"
    505 HTTP_VERSION_NOT_SUPPORTED "HTTP Version Not Supported"
    506 VARIANT_ALSO_NEGOTIATES "Variant Also Negotiates"
    507 INSUFFICIENT_STORAGE "Insufficient Storage"
    508 LOOP_DETECTED "Loop Detected"
    511 NETWORK_AUTHENTICATION_REQUIRED "Network Authentication Required"
}

impl Status {
    /// A code from 100 to 999; `None` for any other number.
    #[must_use]
    pub const fn new(code: u16) -> Option<Status> {
        if code >= 100 && code <= 999 {
            Some(Status(code))
        } else {
            None
        }
    }

    /// The number.
    #[inline]
    #[must_use]
    pub const fn code(self) -> u16 {
        self.0
    }

    /// 1xx: more heads follow, except after 101 (RFC 9110, section 15.2).
    #[inline]
    #[must_use]
    pub const fn is_informational(self) -> bool {
        self.0 < 200
    }

    /// 2xx.
    #[inline]
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 / 100 == 2
    }

    /// First digit, 1 to 9.
    #[inline]
    #[must_use]
    pub const fn class(self) -> u16 {
        self.0 / 100
    }

    /// Whether a response with this status never has content (RFC 9112, section 6.3).
    #[inline]
    #[must_use]
    pub const fn forbids_content(self) -> bool {
        self.0 < 200 || self.0 == 204 || self.0 == 304
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}
