//! Errors in messages: the violated rule, the side at fault, the status of the response.

use crate::message::Status;

/// The kind of message that contains the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// A received request: the status is for its sender.
    Request,
    /// A received response: the status is for the gateway's own client, hence 502.
    Response,
    /// A message to send: the fault of the sending program, hence 500.
    Sending,
}

/// The party that violated the rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The other end of this connection.
    Peer,
    /// The calling code, for example with a body longer than declared.
    Caller,
}

/// A refused message. In HTTP/1 it is final for the connection: further input is discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    side: Side,
}

impl Error {
    /// An error of this kind in this kind of message.
    #[must_use]
    pub const fn new(kind: ErrorKind, side: Side) -> Error {
        Error { kind, side }
    }

    /// The violated rule.
    #[must_use]
    pub const fn kind(self) -> ErrorKind {
        self.kind
    }

    /// Stable name of the violated rule, for logs and as a counter's label.
    #[must_use]
    pub const fn rule(self) -> &'static str {
        self.kind.rule()
    }

    /// The status of the response to the client, if a response can still be sent.
    #[must_use]
    pub const fn status(self) -> Status {
        match self.side {
            Side::Request => self.kind.request_status(),
            Side::Response => Status::BAD_GATEWAY,
            Side::Sending => Status::INTERNAL_SERVER_ERROR,
        }
    }

    /// The kind of message that contains the error.
    #[must_use]
    pub const fn side(self) -> Side {
        self.side
    }

    /// The party that violated the rule.
    #[must_use]
    pub const fn blame(self) -> Blame {
        match self.side {
            Side::Request | Side::Response => Blame::Peer,
            Side::Sending => Blame::Caller,
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let message = match self.side {
            Side::Request => "request",
            Side::Response => "response",
            Side::Sending => "outgoing message",
        };
        write!(f, "{message} refused: {}", self.rule())
    }
}

impl std::error::Error for Error {}

/// Declares the rules: variant, stable name, status for a request, and description with its source.
macro_rules! rules {
    ($($variant:ident $rule:literal $status:ident $meaning:literal)*) => {
        /// The rules that a message can violate.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind {
            $(#[doc = $meaning] $variant,)*
        }

        impl ErrorKind {
            /// Every rule, in declaration order: the label values of the refusal counter.
            pub const ALL: &[ErrorKind] = &[$(ErrorKind::$variant),*];

            /// Stable kebab-case name.
            #[must_use]
            pub const fn rule(self) -> &'static str {
                match self { $(ErrorKind::$variant => $rule,)* }
            }

            const fn request_status(self) -> Status {
                match self { $(ErrorKind::$variant => Status::$status,)* }
            }
        }
    };
}

rules! {
    BareCr "bare-cr" BAD_REQUEST
        "CR that is not followed by LF (RFC 9112, section 2.2)."
    BareLf "bare-lf" BAD_REQUEST
        "LF that does not follow CR (RFC 9112, section 2.2)."
    EmptyLines "empty-lines" BAD_REQUEST
        "More empty lines before a request line than the limit (RFC 9112, section 2.2)."
    RequestLine "request-line-malformed" BAD_REQUEST
        "Not `method SP target SP version` (RFC 9112, section 3)."
    Method "method-malformed" BAD_REQUEST
        "The method is not a token (RFC 9110, section 9.1)."
    RequestLineTooLong "request-line-too-long" URI_TOO_LONG
        "The request line exceeds its limit (RFC 9112, section 3)."
    VersionMissing "version-missing" BAD_REQUEST
        "A request line without a version, as in HTTP/0.9."
    VersionMalformed "version-malformed" BAD_REQUEST
        "Not `HTTP/digit.digit` (RFC 9112, section 2.3)."
    VersionUnsupported "version-unsupported" HTTP_VERSION_NOT_SUPPORTED
        "Neither HTTP/1.0 nor HTTP/1.1, for example the preface of HTTP/2 (RFC 9110, 15.6.6)."
    Target "target-malformed" BAD_REQUEST
        "A target with forbidden characters or of the wrong form (RFC 9112, section 3.2)."
    TargetEscape "target-escape-malformed" BAD_REQUEST
        "`%` without two hexadecimal digits (RFC 3986, section 2.1)."
    TargetNul "target-nul" BAD_REQUEST
        "`%00` in a path."
    TargetAboveRoot "target-above-root" BAD_REQUEST
        "Dot segments that lead above the root (RFC 3986, section 5.2.4)."
    TargetDotSegment "target-dot-segment-ambiguous" BAD_REQUEST
        "A segment with `.` or `..` next to `%2F`, `%5C` or `;` (RFC 3986, section 3.3)."
    TargetUserinfo "target-userinfo" BAD_REQUEST
        "A user name in the authority (RFC 9110, section 4.2.4)."
    TargetScheme "target-scheme" BAD_REQUEST
        "An absolute target whose scheme is neither http nor https."
    StatusLine "status-line-malformed" BAD_REQUEST
        "Not `version SP status SP reason` (RFC 9112, section 4)."
    StatusLineTooLong "status-line-too-long" BAD_REQUEST
        "The status line exceeds its limit."
    FieldName "field-name-malformed" BAD_REQUEST
        "A field name that is not a token (RFC 9110, section 5.1)."
    SpaceBeforeColon "space-before-colon" BAD_REQUEST
        "White space between field name and colon (RFC 9112, section 5.1)."
    FieldValue "field-value-malformed" BAD_REQUEST
        "A control character in a field value (RFC 9110, section 5.5)."
    FieldNul "field-nul" BAD_REQUEST
        "NUL in a field (RFC 9110, section 5.5)."
    ObsFold "obs-fold" BAD_REQUEST
        "A folded field line (RFC 9112, section 5.2)."
    HeadTooLarge "head-too-large" REQUEST_HEADER_FIELDS_TOO_LARGE
        "The header section exceeds its limit in bytes (RFC 6585, section 5)."
    TooManyFields "too-many-fields" REQUEST_HEADER_FIELDS_TOO_LARGE
        "The header section exceeds its limit in fields (RFC 6585, section 5)."
    TooManyCookieCrumbs "too-many-cookie-crumbs" REQUEST_HEADER_FIELDS_TOO_LARGE
        "More lines of Cookie than the limit (RFC 9113, section 8.2.3; RFC 9114, section 4.2.1)."
    HostMissing "host-missing" BAD_REQUEST
        "HTTP/1.1 without Host (RFC 9112, section 3.2)."
    HostRepeated "host-repeated" BAD_REQUEST
        "More than one Host (RFC 9112, section 3.2)."
    HostMalformed "host-malformed" BAD_REQUEST
        "A Host that is not `host` or `host:port` (RFC 9112, section 3.2)."
    ContentLengthMalformed "content-length-malformed" BAD_REQUEST
        "A Content-Length that is not a number, or a list (RFC 9112, section 6.3)."
    ContentLengthRepeated "content-length-repeated" BAD_REQUEST
        "More than one Content-Length; equal ones are allowed in responses (RFC 9110, section 8.6)."
    ContentLengthOverflow "content-length-overflow" CONTENT_TOO_LARGE
        "A Content-Length beyond 63 bits (RFC 9110, section 8.6)."
    ContentLengthWithTransferEncoding "content-length-with-transfer-encoding" BAD_REQUEST
        "Both framings at once, as in request smuggling (RFC 9112, section 6.1)."
    TransferEncodingInHttp10 "transfer-encoding-in-http10" BAD_REQUEST
        "Transfer-Encoding in an HTTP/1.0 message (RFC 9112, section 6.1)."
    TransferEncodingNotChunkedLast "transfer-encoding-not-chunked-last" BAD_REQUEST
        "Transfer codings that do not end in chunked, or repeat it (RFC 9112, section 6.3)."
    TransferEncodingUnknown "transfer-encoding-unknown" NOT_IMPLEMENTED
        "A transfer coding besides chunked (RFC 9112, section 6.1)."
    TransferEncodingForbidden "transfer-encoding-forbidden" BAD_REQUEST
        "Transfer-Encoding in a 1xx or 204 response (RFC 9112, section 6.1)."
    ConnectionMalformed "connection-malformed" BAD_REQUEST
        "A Connection field that is not a list of tokens (RFC 9110, section 7.6.1)."
    UpgradeMalformed "upgrade-malformed" BAD_REQUEST
        "An Upgrade field that is not a list of protocols (RFC 9110, section 7.8)."
    ExpectationUnknown "expectation-unknown" EXPECTATION_FAILED
        "An expectation other than 100-continue (RFC 9110, section 10.1.1)."
    ConnectWithContent "connect-with-content" BAD_REQUEST
        "CONNECT with declared content, which has no meaning (RFC 9110, section 9.3.6)."
    ChunkSizeMalformed "chunk-size-malformed" BAD_REQUEST
        "A chunk size that is not hexadecimal digits (RFC 9112, section 7.1)."
    ChunkSizeOverflow "chunk-size-overflow" BAD_REQUEST
        "A chunk size beyond 63 bits (RFC 9112, section 7.1)."
    ChunkExtensionMalformed "chunk-extension-malformed" BAD_REQUEST
        "A chunk extension with forbidden characters (RFC 9112, section 7.1.1)."
    ChunkLineTooLong "chunk-line-too-long" BAD_REQUEST
        "A chunk-size line or the sum of chunk extensions exceeds its limit (RFC 9112, 7.1.1)."
    ChunkEndMalformed "chunk-end-malformed" BAD_REQUEST
        "Chunk data not followed by CRLF (RFC 9112, section 7.1)."
    TrailersTooLarge "trailers-too-large" REQUEST_HEADER_FIELDS_TOO_LARGE
        "The trailer section exceeds its limits (RFC 9112, section 7.1.2)."
    TruncatedHead "truncated-head" BAD_REQUEST
        "The peer closed within a head (RFC 9112, section 8)."
    TruncatedBody "truncated-body" BAD_REQUEST
        "The peer closed before the content was complete (RFC 9112, section 8)."
    ClosedBeforeResponse "closed-before-response" BAD_REQUEST
        "The peer closed before the first byte of its response."
    UnexpectedBytes "unexpected-bytes" BAD_REQUEST
        "Bytes after the end of a response, or before any request was sent."
    SwitchingUnrequested "switching-unrequested" BAD_REQUEST
        "101 without a request to upgrade, or without `Connection: Upgrade` (RFC 9110, section 7.8)."
    TooManyInformational "too-many-informational" BAD_REQUEST
        "1xx responses faster than the limit before the final one."
    BodyTooLong "body-too-long" BAD_REQUEST
        "More content sent than declared."
    BodyTooShort "body-too-short" BAD_REQUEST
        "Less content sent than declared."
    BodyForbidden "body-forbidden" BAD_REQUEST
        "Content sent in a message that has none."

    PseudoMissing "pseudo-header-missing" BAD_REQUEST
        "A mandatory pseudo-header field is missing (RFC 9113, section 8.3)."
    PseudoRepeated "pseudo-header-repeated" BAD_REQUEST
        "A pseudo-header field that occurs twice (RFC 9113, section 8.3)."
    PseudoLate "pseudo-header-after-field" BAD_REQUEST
        "A pseudo-header field after a regular one (RFC 9113, section 8.3)."
    PseudoUnknown "pseudo-header-unknown" BAD_REQUEST
        "A pseudo-header field that is undefined, or not for this message (RFC 9113, section 8.3)."
    StatusMalformed "status-malformed" BAD_REQUEST
        "A `:status` that is not three digits, or 101 (RFC 9113, sections 8.3.2 and 8.6)."
    FieldNameUppercase "field-name-uppercase" BAD_REQUEST
        "A field name with upper-case letters (RFC 9113, section 8.2.1)."
    ConnectionSpecificField "connection-specific-field" BAD_REQUEST
        "A connection-specific field of HTTP/1 (RFC 9113, section 8.2.2)."
    TeNotTrailers "te-not-trailers" BAD_REQUEST
        "TE with anything but `trailers` (RFC 9113, section 8.2.2)."
    HostMismatch "host-mismatch" BAD_REQUEST
        "Host names another authority than `:authority` (RFC 9113, section 8.3.1)."
    ContentLengthMismatch "content-length-mismatch" BAD_REQUEST
        "Content of another length than declared (RFC 9113, section 8.1.1)."
    HeadUnexpected "head-unexpected" BAD_REQUEST
        "A second head where only trailers are allowed, or trailers without END_STREAM (RFC 9113, 8.1)."

    Preface "preface-malformed" BAD_REQUEST
        "A connection that does not begin with the preface and SETTINGS (RFC 9113, section 3.4)."
    PrefaceNotUnderstood "http1-response" BAD_REQUEST
        "The server answers the preface of HTTP/2 with HTTP/1 (RFC 9113, section 3.3)."
    FrameSize "frame-size" BAD_REQUEST
        "A frame above the maximum, or of a size that its type forbids (RFC 9113, section 4.2)."
    FrameUnexpected "frame-unexpected" BAD_REQUEST
        "A frame that is not allowed at this point or on this stream (RFC 9113, sections 5.1 and 6)."
    FramePadding "frame-padding" BAD_REQUEST
        "Padding that is longer than its frame (RFC 9113, sections 6.1 and 6.2)."
    PushUnexpected "push-unexpected" BAD_REQUEST
        "PUSH_PROMISE, although server push is not enabled (RFC 9113, section 8.4)."
    StreamId "stream-id" BAD_REQUEST
        "A new stream with an identifier of the wrong kind or order (RFC 9113, section 5.1.1)."
    StreamClosed "stream-closed" BAD_REQUEST
        "A frame on a stream that its sender has ended (RFC 9113, section 5.1)."
    StreamLimit "stream-limit" SERVICE_UNAVAILABLE
        "More streams at once than are allowed (RFC 9113, section 5.1.2)."
    StreamDependency "stream-dependency" BAD_REQUEST
        "A stream that depends on itself (RFC 7540, section 5.3.1)."
    FlowControl "flow-control" BAD_REQUEST
        "Data beyond a window, or a window beyond 31 bits (RFC 9113, section 6.9)."
    WindowIncrement "window-increment-zero" BAD_REQUEST
        "A WINDOW_UPDATE with increment 0 (RFC 9113, section 6.9)."
    Settings "settings-invalid" BAD_REQUEST
        "A setting outside its range (RFC 9113, section 6.5.2)."
    Compression "compression" BAD_REQUEST
        "A header block that is not valid HPACK (RFC 7541)."
    StreamCreation "stream-creation" BAD_REQUEST
        "A stream that the peer must not open, or a second one for the same purpose (RFC 9114, section 6)."
    CriticalStream "critical-stream-closed" BAD_REQUEST
        "The end of a stream that the connection needs (RFC 9114, section 6.2.1)."
    SettingsMissing "settings-missing" BAD_REQUEST
        "A control stream that does not begin with SETTINGS (RFC 9114, section 6.2.1)."
    RequestIncomplete "request-incomplete" BAD_REQUEST
        "A stream that ends before its head (RFC 9114, section 4.1)."
    CompressionInstruction "compression-instruction" BAD_REQUEST
        "An invalid instruction of the peer's encoder (RFC 9204, section 4.3)."
    CompressionReport "compression-report" BAD_REQUEST
        "A report of the peer's decoder on what was never sent (RFC 9204, section 4.4)."
    PeerReset "reset-by-peer" BAD_REQUEST
        "The peer reset the stream (RFC 9113, section 6.4)."
    PeerRefused "refused-by-peer" BAD_REQUEST
        "The peer did not process the request, so it may be sent again (RFC 9113, section 8.7)."

    ResetFlood "reset-flood" TOO_MANY_REQUESTS
        "More streams reset than the limit, by the peer or for its errors (CVE-2023-44487)."
    ResetRate "reset-rate" TOO_MANY_REQUESTS
        "More streams reset in the window than the limit, before or after a response head."
    ContinuationFlood "continuation-flood" BAD_REQUEST
        "A header block in more frames or bytes than the limit (CVE-2024-27316)."
    SettingsFlood "settings-flood" BAD_REQUEST
        "More SETTINGS in the window than the limit (CVE-2019-9515)."
    PingFlood "ping-flood" BAD_REQUEST
        "More PING in the window than the limit (CVE-2019-9512)."
    PingAckFlood "ping-ack-flood" BAD_REQUEST
        "More acknowledgements of PING in the window than the limit."
    GoAwayFlood "goaway-flood" BAD_REQUEST
        "More GOAWAY in the window than the limit."
    EmptyFrameFlood "empty-frame-flood" BAD_REQUEST
        "More frames without content in the window than the limit (CVE-2019-9518)."
    SmallDataFlood "small-data-flood" BAD_REQUEST
        "More DATA of a few bytes in the window than the limit."
    WindowUpdateFlood "window-update-flood" BAD_REQUEST
        "More WINDOW_UPDATE in the window than the limit (CVE-2019-9511)."
    PriorityFlood "priority-flood" BAD_REQUEST
        "More PRIORITY or PRIORITY_UPDATE in the window than the limit (CVE-2019-9513)."
    UnknownFrameFlood "unknown-frame-flood" BAD_REQUEST
        "More frames of unknown types in the window than the limit."
    StrayFrameFlood "stray-frame-flood" BAD_REQUEST
        "More HEADERS and RST_STREAM on closed streams than the limit."
    StreamFlood "stream-flood" BAD_REQUEST
        "More streams of unknown types in the window than the limit."
    InsertionFlood "insertion-flood" BAD_REQUEST
        "More instructions or bytes for the compression's table in the window than the limit (RFC 9204, section 7.1)."
    UnsentFlood "unsent-flood" BAD_REQUEST
        "The peer causes frames and gives no credit to send them."
}
