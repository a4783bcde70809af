//! Error codes (RFC 9114, section 8.1; RFC 9204, section 6), and the code for each violated rule.

use crate::error::ErrorKind;

/// The error code of a stream or connection. Peers may send codes without a registered name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub u64);

impl Code {
    /// Graceful shutdown, or a request whose remaining content is not needed.
    pub const NO_ERROR: Code = Code(0x100);
    /// A violation of the protocol that has no code of its own.
    pub const GENERAL_PROTOCOL_ERROR: Code = Code(0x101);
    /// An internal error of the sender of the code.
    pub const INTERNAL_ERROR: Code = Code(0x102);
    /// A stream that the peer must not open.
    pub const STREAM_CREATION_ERROR: Code = Code(0x103);
    /// The end of a stream that the connection needs.
    pub const CLOSED_CRITICAL_STREAM: Code = Code(0x104);
    /// A frame that is not allowed at this point or on this stream.
    pub const FRAME_UNEXPECTED: Code = Code(0x105);
    /// A frame with a wrong layout or size.
    pub const FRAME_ERROR: Code = Code(0x106);
    /// The peer causes excessive load.
    pub const EXCESSIVE_LOAD: Code = Code(0x107);
    /// An identifier that is not allowed.
    pub const ID_ERROR: Code = Code(0x108);
    /// A setting that is not allowed.
    pub const SETTINGS_ERROR: Code = Code(0x109);
    /// A control stream that does not begin with SETTINGS.
    pub const MISSING_SETTINGS: Code = Code(0x10a);
    /// The request was not processed: it may be retried.
    pub const REQUEST_REJECTED: Code = Code(0x10b);
    /// The request, or its response, is no longer needed.
    pub const REQUEST_CANCELLED: Code = Code(0x10c);
    /// The stream ended before the request was complete.
    pub const REQUEST_INCOMPLETE: Code = Code(0x10d);
    /// A malformed message.
    pub const MESSAGE_ERROR: Code = Code(0x10e);
    /// The connection of a CONNECT request failed.
    pub const CONNECT_ERROR: Code = Code(0x10f);
    /// The request must be sent with HTTP/1.1.
    pub const VERSION_FALLBACK: Code = Code(0x110);
    /// A field section that could not be decoded.
    pub const QPACK_DECOMPRESSION_FAILED: Code = Code(0x200);
    /// An invalid instruction of the peer's encoder.
    pub const QPACK_ENCODER_STREAM_ERROR: Code = Code(0x201);
    /// An invalid instruction of the peer's decoder.
    pub const QPACK_DECODER_STREAM_ERROR: Code = Code(0x202);

    /// The code to send for a violation of this rule.
    #[must_use]
    pub const fn of(kind: ErrorKind) -> Code {
        use ErrorKind as K;
        match kind {
            K::FrameSize => Code::FRAME_ERROR,
            K::FrameUnexpected | K::PushUnexpected => Code::FRAME_UNEXPECTED,
            K::StreamCreation => Code::STREAM_CREATION_ERROR,
            K::CriticalStream => Code::CLOSED_CRITICAL_STREAM,
            K::SettingsMissing => Code::MISSING_SETTINGS,
            K::Settings => Code::SETTINGS_ERROR,
            K::StreamId => Code::ID_ERROR,
            K::StreamLimit => Code::REQUEST_REJECTED,
            K::RequestIncomplete => Code::REQUEST_INCOMPLETE,
            K::Compression => Code::QPACK_DECOMPRESSION_FAILED,
            K::CompressionInstruction => Code::QPACK_ENCODER_STREAM_ERROR,
            K::CompressionReport => Code::QPACK_DECODER_STREAM_ERROR,
            K::ResetFlood | K::ResetRate | K::GoAwayFlood => Code::EXCESSIVE_LOAD,
            K::EmptyFrameFlood | K::SmallDataFlood | K::PriorityFlood => Code::EXCESSIVE_LOAD,
            K::UnknownFrameFlood | K::StreamFlood | K::UnsentFlood => Code::EXCESSIVE_LOAD,
            K::InsertionFlood => Code::EXCESSIVE_LOAD,
            K::TooManyInformational => Code::EXCESSIVE_LOAD,
            K::BodyTooLong | K::BodyTooShort | K::BodyForbidden => Code::INTERNAL_ERROR,
            _ => Code::MESSAGE_ERROR,
        }
    }

    /// The registered name, for logs; empty for a code without one.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Code::NO_ERROR => "H3_NO_ERROR",
            Code::GENERAL_PROTOCOL_ERROR => "H3_GENERAL_PROTOCOL_ERROR",
            Code::INTERNAL_ERROR => "H3_INTERNAL_ERROR",
            Code::STREAM_CREATION_ERROR => "H3_STREAM_CREATION_ERROR",
            Code::CLOSED_CRITICAL_STREAM => "H3_CLOSED_CRITICAL_STREAM",
            Code::FRAME_UNEXPECTED => "H3_FRAME_UNEXPECTED",
            Code::FRAME_ERROR => "H3_FRAME_ERROR",
            Code::EXCESSIVE_LOAD => "H3_EXCESSIVE_LOAD",
            Code::ID_ERROR => "H3_ID_ERROR",
            Code::SETTINGS_ERROR => "H3_SETTINGS_ERROR",
            Code::MISSING_SETTINGS => "H3_MISSING_SETTINGS",
            Code::REQUEST_REJECTED => "H3_REQUEST_REJECTED",
            Code::REQUEST_CANCELLED => "H3_REQUEST_CANCELLED",
            Code::REQUEST_INCOMPLETE => "H3_REQUEST_INCOMPLETE",
            Code::MESSAGE_ERROR => "H3_MESSAGE_ERROR",
            Code::CONNECT_ERROR => "H3_CONNECT_ERROR",
            Code::VERSION_FALLBACK => "H3_VERSION_FALLBACK",
            Code::QPACK_DECOMPRESSION_FAILED => "QPACK_DECOMPRESSION_FAILED",
            Code::QPACK_ENCODER_STREAM_ERROR => "QPACK_ENCODER_STREAM_ERROR",
            Code::QPACK_DECODER_STREAM_ERROR => "QPACK_DECODER_STREAM_ERROR",
            _ => "",
        }
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.as_str() {
            "" => write!(f, "{:#x}", self.0),
            name => f.write_str(name),
        }
    }
}
