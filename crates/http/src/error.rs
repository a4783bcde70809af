//! Errors of an exchange: whose fault they are, and whether a retry is safe.

use std::fmt;
use std::io;

use blitz_proto::{Error, Fields, Name, ResponseHead, Status};
use blitz_reactor::{Address, Chunk, LocalShortage};

use crate::counters::count;
use crate::options::ServeOptions;
use crate::recycle::Pooled;
use crate::tls::TlsError;

/// Why a received body ended early.
#[derive(Debug, Clone)]
pub enum BodyError {
    /// The peer reset the connection or the stream.
    Reset,
    /// The connection ended in the middle of the message.
    Truncated,
    /// The bytes violate the protocol.
    Malformed(Error),
    /// The sender was too slow: below the minimum rate, or silent for too long.
    TimedOut,
    /// The body exceeds the caller's maximum ([`RecvBody::limit`], [`RecvBody::read_to_end`]).
    ///
    /// [`RecvBody::limit`]: crate::RecvBody::limit
    /// [`RecvBody::read_to_end`]: crate::RecvBody::read_to_end
    TooLarge,
    /// The exchange is over on our side, so its body can no longer be read.
    Cancelled,
    /// The core was out of memory, and the reader had not read the received part of the body.
    Shed,
}

impl BodyError {
    /// The status of the response to a request with such a body.
    #[must_use]
    pub fn status(&self) -> Status {
        match self {
            BodyError::Malformed(error) => error.status(),
            BodyError::TimedOut => Status::REQUEST_TIMEOUT,
            BodyError::TooLarge => Status::CONTENT_TOO_LARGE,
            BodyError::Shed => Status::SERVICE_UNAVAILABLE,
            BodyError::Reset | BodyError::Truncated | BodyError::Cancelled => Status::BAD_REQUEST,
        }
    }
}

impl BodyError {
    /// Stable name of the violated rule, for logs.
    #[must_use]
    pub fn rule(&self) -> &'static str {
        match self {
            BodyError::Reset => "reset",
            BodyError::Truncated => "truncated-body",
            BodyError::Malformed(error) => error.rule(),
            BodyError::TimedOut => "request-body-too-slow",
            BodyError::TooLarge => "content-too-large",
            BodyError::Cancelled => "cancelled",
            BodyError::Shed => "content-memory",
        }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BodyError::Reset => f.write_str("the peer reset the connection"),
            BodyError::Truncated => f.write_str("the connection ended during the message"),
            BodyError::Malformed(error) => write!(f, "malformed body: {}", error.rule()),
            BodyError::TimedOut => f.write_str("the body was received too slowly"),
            BodyError::TooLarge => f.write_str("the body is too large"),
            BodyError::Cancelled => f.write_str("the exchange has ended"),
            BodyError::Shed => f.write_str("out of memory while the body was not read"),
        }
    }
}

impl std::error::Error for BodyError {}

/// Why no more of a body can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendError {
    /// The peer has closed, or the exchange has ended: nothing more can be sent.
    Closed,
    /// The body is longer or shorter than the declared length. The message is truncated, so that
    /// the peer cannot mistake it for complete.
    Length,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendError::Closed => "the peer has closed, or the exchange has ended",
            SendError::Length => "the content does not have its declared length",
        })
    }
}

impl std::error::Error for SendError {}

/// Why a request got no response head.
#[derive(Debug, Clone)]
pub enum ClientError {
    /// The address refused the connection.
    Refused,
    /// There is no unix socket at the path.
    NoSocket,
    /// No connection within the connect timeout.
    ConnectTimedOut,
    /// No route, or the address cannot be used from here.
    Unreachable,
    /// This machine lacked a resource for the connection, so that the address may be healthy.
    LocalShortage(LocalShortage),
    /// Another failure to connect.
    ConnectFailed(io::ErrorKind),
    /// The TLS handshake failed, so that the request was not sent.
    TlsHandshake(TlsError),
    /// TLS failed after the handshake, for example with an alert: a TLS 1.3 server can only then
    /// reject the client's certificate.
    Tls(TlsError),
    /// The connection, or the request's stream, ended before any byte of a response. On a `reused`
    /// connection that is ordinary: the peer may have closed it before the request arrived.
    Reset {
        /// Whether the connection had carried a request before.
        reused: bool,
    },
    /// The connection, or the request's stream, ended after an interim response and before any byte of
    /// the final one. The server has seen the request, so that it is not sent again.
    OnlyInterim,
    /// The connection ended within the response head.
    Truncated,
    /// The response violates the protocol.
    Malformed(Error),
    /// No byte of a final response head within the response timeout.
    TimedOut,
    /// Only a part of a response head within the response timeout.
    HeadTimedOut,
    /// The server did not process the request and reported it with GOAWAY, REFUSED_STREAM or
    /// H3_REQUEST_REJECTED (RFC 9113, section 8.7; RFC 9114, section 4.1.1), or the request was not sent because
    /// the connection takes no more. Any request may be sent again.
    Unprocessed,
    /// The server ended the connection with an error, and this request may be its cause: it is not to
    /// be sent again.
    Suspect,
    /// The head is larger than the server accepts (SETTINGS_MAX_HEADER_LIST_SIZE), so that the request
    /// was not sent.
    HeadTooLarge,
    /// The server uses HTTP/2 without extended CONNECT (RFC 8441), so that no WebSocket can be
    /// opened.
    NoExtendedConnect,
    /// All allowed connections to the server carried as many requests as the server allows, and
    /// none became free while the request waited; or the caller's own connection does.
    Busy,
    /// All allowed connections are busy, and too many requests wait already.
    QueueFull,
    /// Our side cancelled the exchange.
    Cancelled,
}

impl ClientError {
    /// Whether no usable connection was made, so that the request had no effect anywhere.
    #[must_use]
    pub fn is_connect(&self) -> bool {
        matches!(
            self,
            ClientError::Refused
                | ClientError::NoSocket
                | ClientError::ConnectTimedOut
                | ClientError::Unreachable
                | ClientError::LocalShortage(_)
                | ClientError::ConnectFailed(_)
                | ClientError::TlsHandshake(_)
                | ClientError::Busy
                | ClientError::QueueFull
        )
    }

    /// Whether the request certainly had no effect, so that rule 13 allows one more attempt with
    /// any method, if the body can be sent again.
    #[must_use]
    pub fn is_unprocessed(&self) -> bool {
        self.is_connect() || matches!(self, ClientError::Unprocessed)
    }

    /// Whether rule 13 allows one more attempt with an idempotent request whose body can be sent
    /// again: no byte of a response was received.
    #[must_use]
    pub fn is_before_response(&self) -> bool {
        self.is_unprocessed() || matches!(self, ClientError::Reset { .. })
    }

    /// Stable name of the details, if there are any: the rule that the response violates, the reason
    /// for which TLS failed, or the received alert.
    #[must_use]
    pub fn rule(&self) -> Option<&'static str> {
        match self {
            ClientError::Malformed(error) => Some(error.rule()),
            ClientError::TlsHandshake(error) | ClientError::Tls(error) => {
                Some(error.alert_name().unwrap_or(error.rule()))
            }
            _ => None,
        }
    }

    pub(crate) fn from_connect(error: &io::Error, address: &Address) -> ClientError {
        if let Some(shortage) = LocalShortage::of(error, address) {
            return ClientError::LocalShortage(shortage);
        }
        match error.kind() {
            io::ErrorKind::ConnectionRefused => ClientError::Refused,
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ClientError::NoSocket,
            io::ErrorKind::TimedOut => ClientError::ConnectTimedOut,
            io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::AddrNotAvailable => ClientError::Unreachable,
            other => ClientError::ConnectFailed(other),
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Refused => f.write_str("connection refused"),
            ClientError::NoSocket => f.write_str("there is no such socket"),
            ClientError::ConnectTimedOut => f.write_str("connecting took too long"),
            ClientError::Unreachable => f.write_str("address not reachable"),
            ClientError::LocalShortage(LocalShortage::Descriptors) => {
                f.write_str("no free descriptor")
            }
            ClientError::LocalShortage(LocalShortage::Ports) => f.write_str("no free local port"),
            ClientError::LocalShortage(LocalShortage::Memory) => {
                f.write_str("no kernel memory for a connection")
            }
            ClientError::ConnectFailed(kind) => write!(f, "connecting failed: {kind}"),
            ClientError::TlsHandshake(error) | ClientError::Tls(error) => {
                write!(f, "TLS: {error}")
            }
            ClientError::Reset { .. } => f.write_str("connection ended before a response"),
            ClientError::OnlyInterim => f.write_str("connection ended after an interim response"),
            ClientError::Truncated => f.write_str("connection ended within the response head"),
            ClientError::Malformed(error) => write!(f, "malformed response: {}", error.rule()),
            ClientError::TimedOut => f.write_str("no response in time"),
            ClientError::HeadTimedOut => f.write_str("no complete response head in time"),
            ClientError::Unprocessed => f.write_str("the server did not process the request"),
            ClientError::Suspect => f.write_str(
                "the server ended the connection with an error, perhaps for this request",
            ),
            ClientError::HeadTooLarge => {
                f.write_str("the head is larger than the server's SETTINGS_MAX_HEADER_LIST_SIZE")
            }
            ClientError::NoExtendedConnect => {
                f.write_str("the server does not support extended CONNECT")
            }
            ClientError::Busy => f.write_str("all connections to the server are busy"),
            ClientError::QueueFull => f.write_str("too many requests wait for the server"),
            ClientError::Cancelled => f.write_str("the request was cancelled"),
        }
    }
}

impl std::error::Error for ClientError {}

/// A response that the core generates, before or instead of a service.
#[derive(Debug, Clone, Copy)]
pub struct Refusal {
    /// Status of the response.
    pub status: Status,
    /// Stable name of the violated rule, as in logs and counters.
    pub rule: &'static str,
}

impl Refusal {
    /// The core has no memory for another large head.
    #[cold]
    pub(crate) fn heads_memory() -> Refusal {
        count(|counters| counters.heads_refused += 1);
        Refusal {
            status: Status::SERVICE_UNAVAILABLE,
            rule: "heads-memory",
        }
    }
}

/// Value of `Retry-After`, in seconds, if the core had no memory for a request.
const RETRY_AFTER: &str = "1";

/// The response that the core generates. `request_fields` holds the request's fields received so far;
/// `as_problem` is true if the client [accepts](crate::accepts_problem) problem+json.
pub(crate) fn refusal_response(
    refusal: Refusal,
    request_fields: &Fields,
    as_problem: bool,
    options: &ServeOptions,
) -> (Pooled<ResponseHead>, Chunk) {
    let mut head = Pooled::<ResponseHead>::response(refusal.status);
    if refusal.status == Status::SERVICE_UNAVAILABLE {
        head.fields.append(Name::RetryAfter, RETRY_AFTER);
    }
    let made = options.refusal.as_ref();
    let made = made.and_then(|make| make(refusal, request_fields, &mut head));
    let content = made.unwrap_or_else(|| match as_problem {
        true => problem(refusal, &mut head),
        false => plain(refusal, &mut head),
    });
    (head, content)
}

/// Content for programs (RFC 9457). Rule names need no escaping.
fn problem(refusal: Refusal, head: &mut ResponseHead) -> Chunk {
    head.fields
        .append(Name::ContentType, "application/problem+json");
    let Refusal { status, rule } = refusal;
    let (code, title) = (status.code(), status.reason());
    Chunk::from(format!(
        "{{\"title\":\"{title}\",\"status\":{code},\"detail\":\"{rule}\"}}\n"
    ))
}

/// One line of content for people at a terminal.
fn plain(refusal: Refusal, head: &mut ResponseHead) -> Chunk {
    head.fields.append(Name::ContentType, "text/plain");
    let Refusal { status, rule } = refusal;
    Chunk::from(format!("{} {}: {rule}\n", status.code(), status.reason()))
}
