//! Error codes (RFC 9113, section 7), and the code for each violated rule.

use crate::error::ErrorKind;

/// The error code of RST_STREAM or GOAWAY. Peers may send codes without a registered name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub u32);

impl Code {
    /// Graceful shutdown, or a request whose remaining content is not needed.
    pub const NO_ERROR: Code = Code(0x0);
    /// A violation of the protocol that has no code of its own.
    pub const PROTOCOL_ERROR: Code = Code(0x1);
    /// An internal error of the sender of the code.
    pub const INTERNAL_ERROR: Code = Code(0x2);
    /// Data beyond a window.
    pub const FLOW_CONTROL_ERROR: Code = Code(0x3);
    /// Settings that were not acknowledged in time.
    pub const SETTINGS_TIMEOUT: Code = Code(0x4);
    /// A frame on a stream that its sender has ended.
    pub const STREAM_CLOSED: Code = Code(0x5);
    /// A frame of a wrong size.
    pub const FRAME_SIZE_ERROR: Code = Code(0x6);
    /// The stream was not processed: the request may be retried.
    pub const REFUSED_STREAM: Code = Code(0x7);
    /// The stream is no longer needed.
    pub const CANCEL: Code = Code(0x8);
    /// A header block that could not be decoded.
    pub const COMPRESSION_ERROR: Code = Code(0x9);
    /// The connection of a CONNECT request failed.
    pub const CONNECT_ERROR: Code = Code(0xa);
    /// The peer causes excessive load.
    pub const ENHANCE_YOUR_CALM: Code = Code(0xb);
    /// The transport does not meet the minimum security requirements.
    pub const INADEQUATE_SECURITY: Code = Code(0xc);
    /// The request must be sent with HTTP/1.1.
    pub const HTTP_1_1_REQUIRED: Code = Code(0xd);

    /// The code to send for a violation of this rule.
    #[must_use]
    pub const fn of(kind: ErrorKind) -> Code {
        use ErrorKind as K;
        match kind {
            K::FrameSize => Code::FRAME_SIZE_ERROR,
            K::FlowControl => Code::FLOW_CONTROL_ERROR,
            K::StreamClosed => Code::STREAM_CLOSED,
            K::StreamLimit => Code::REFUSED_STREAM,
            K::Compression => Code::COMPRESSION_ERROR,
            K::ResetFlood | K::ResetRate | K::ContinuationFlood | K::SettingsFlood => {
                Code::ENHANCE_YOUR_CALM
            }
            K::PingFlood | K::PingAckFlood | K::GoAwayFlood => Code::ENHANCE_YOUR_CALM,
            K::EmptyFrameFlood | K::SmallDataFlood | K::WindowUpdateFlood => {
                Code::ENHANCE_YOUR_CALM
            }
            K::PriorityFlood | K::UnknownFrameFlood | K::StrayFrameFlood => Code::ENHANCE_YOUR_CALM,
            K::TooManyInformational => Code::ENHANCE_YOUR_CALM,
            K::BodyTooLong | K::BodyTooShort | K::BodyForbidden => Code::INTERNAL_ERROR,
            _ => Code::PROTOCOL_ERROR,
        }
    }

    /// The registered name, for logs; empty for a code without one.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Code::NO_ERROR => "NO_ERROR",
            Code::PROTOCOL_ERROR => "PROTOCOL_ERROR",
            Code::INTERNAL_ERROR => "INTERNAL_ERROR",
            Code::FLOW_CONTROL_ERROR => "FLOW_CONTROL_ERROR",
            Code::SETTINGS_TIMEOUT => "SETTINGS_TIMEOUT",
            Code::STREAM_CLOSED => "STREAM_CLOSED",
            Code::FRAME_SIZE_ERROR => "FRAME_SIZE_ERROR",
            Code::REFUSED_STREAM => "REFUSED_STREAM",
            Code::CANCEL => "CANCEL",
            Code::COMPRESSION_ERROR => "COMPRESSION_ERROR",
            Code::CONNECT_ERROR => "CONNECT_ERROR",
            Code::ENHANCE_YOUR_CALM => "ENHANCE_YOUR_CALM",
            Code::INADEQUATE_SECURITY => "INADEQUATE_SECURITY",
            Code::HTTP_1_1_REQUIRED => "HTTP_1_1_REQUIRED",
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
