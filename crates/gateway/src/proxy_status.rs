//! Failures of upstreams: the only map from failures to status codes and to the registered
//! `Proxy-Status` errors (RFC 9209 section 2.3).

use blitz_http::{ClientError, ErrorKind, Status, TlsError};

use crate::upstream::NameFailure;

/// Declares the failures with their texts, which need no formatting; then the limits of HTTP/2 that
/// upstreams may exceed, with the names of the rules.
macro_rules! failures {
    (
        $(
            $(#[$doc:meta])*
            $variant:ident $token:literal $status:ident $detail:literal $([$rule_of:literal])?
        )*
        ; limits: $($limit:ident $rule:literal)*
    ) => {
        /// Why an upstream did not respond. The status depends on the cause: 502 the upstream or
        /// its name, 503 no upstream is available, 504 a timeout, 500 the gateway or its settings.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Failure {
            $($(#[$doc])* $variant,)*
            $(#[doc = concat!("The connection of the upstream exceeded a limit (", $rule, ").")]
            $limit,)*
        }

        impl Failure {
            /// All failures; their order is that of [`Counters::failures`](crate::Counters).
            pub const ALL: &[Failure] = &[$(Failure::$variant,)* $(Failure::$limit,)*];

            /// The registered error type.
            #[must_use]
            pub fn token(self) -> &'static str {
                match self {
                    $(Failure::$variant => $token,)*
                    $(Failure::$limit => "http_protocol_error",)*
                }
            }

            /// The status that RFC 9209 recommends for it.
            #[must_use]
            pub fn status(self) -> Status {
                match self {
                    $(Failure::$variant => Status::$status,)*
                    $(Failure::$limit => Status::BAD_GATEWAY,)*
                }
            }

            /// What happened, in plain English.
            #[must_use]
            pub fn detail(self) -> &'static str {
                match self {
                    $(Failure::$variant => $detail,)*
                    $(Failure::$limit => concat!(
                        "the upstream exceeded a limit of HTTP/2 frames: ", $rule
                    ),)*
                }
            }

            /// Value of the `Proxy-Status` field.
            pub(crate) fn proxy_status(self) -> &'static str {
                match self {
                    $(Failure::$variant => concat!(
                        "blitz; error=", $token $(, "; details=\"", $rule_of, "\"")?
                    ),)*
                    $(Failure::$limit => concat!(
                        "blitz; error=http_protocol_error; details=\"", $rule, "\""
                    ),)*
                }
            }

            /// The failure of an upstream that violates this rule.
            pub(crate) fn of_rule(rule: ErrorKind) -> Failure {
                match rule {
                    ErrorKind::HeadTooLarge | ErrorKind::TooManyFields => {
                        Failure::HttpResponseHeaderSectionSize
                    }
                    ErrorKind::SwitchingUnrequested => Failure::HttpUpgradeFailed,
                    $(ErrorKind::$limit => Failure::$limit,)*
                    _ => Failure::HttpProtocolError,
                }
            }
        }
    };
}

failures! {
    /// The upstream's name does not exist, has no address, or its servers refuse to answer.
    DnsError "dns_error" BAD_GATEWAY "the upstream's name could not be resolved"
    /// The name servers did not answer in time.
    DnsTimeout "dns_timeout" GATEWAY_TIMEOUT "resolving the upstream's name took too long"
    /// Nothing listens on the upstream's address.
    ConnectionRefused "connection_refused" BAD_GATEWAY "the upstream refused the connection"
    /// No connection within the connect timeout.
    ConnectionTimeout "connection_timeout" GATEWAY_TIMEOUT "connecting to the upstream took too long"
    /// The connection ended before the response began.
    ConnectionTerminated "connection_terminated" BAD_GATEWAY "the upstream closed the connection without a response"
    /// No connection could be made for another reason, such as missing rights on a unix socket.
    DestinationUnavailable "destination_unavailable" SERVICE_UNAVAILABLE "no connection to the upstream could be made"
    /// There is no route to the upstream's address.
    DestinationIpUnroutable "destination_ip_unroutable" BAD_GATEWAY "the upstream's address cannot be reached"
    /// The upstream's certificate was not accepted.
    TlsCertificateError "tls_certificate_error" BAD_GATEWAY "the upstream's certificate was not accepted"
    /// The upstream closed the TLS connection with an alert.
    TlsAlertReceived "tls_alert_received" BAD_GATEWAY "the upstream refused the TLS connection"
    /// TLS failed otherwise.
    TlsProtocolError "tls_protocol_error" BAD_GATEWAY "no TLS connection to the upstream could be made"
    /// All connections that may be opened to the upstream are full.
    ConnectionLimitReached "connection_limit_reached" SERVICE_UNAVAILABLE "all connections to the upstream are in use"
    /// Too many requests wait for a connection to the upstream.
    UpstreamQueueFull "connection_limit_reached" SERVICE_UNAVAILABLE "too many requests wait for the upstream"
    /// The request's head is larger than the upstream accepts.
    RequestHeadTooLarge "http_request_error" REQUEST_HEADER_FIELDS_TOO_LARGE "the header section is larger than the upstream accepts: max-header-list-size" ["max-header-list-size"]
    /// The deadline that the client of a call has set has passed.
    DeadlineExceeded "http_response_timeout" GATEWAY_TIMEOUT "the deadline of the call has passed"
    /// The response head did not come in time.
    HttpResponseTimeout "http_response_timeout" GATEWAY_TIMEOUT "the upstream took too long to respond"
    /// The connection ended within the response head.
    HttpResponseIncomplete "http_response_incomplete" BAD_GATEWAY "the upstream's response was incomplete"
    /// The response head exceeds its limits.
    HttpResponseHeaderSectionSize "http_response_header_section_size" BAD_GATEWAY "the header section of the upstream's response is too large"
    /// The response violates HTTP.
    HttpProtocolError "http_protocol_error" BAD_GATEWAY "the upstream's response is not valid HTTP"
    /// The upstream switched protocols without a request for it, to another protocol, or with an
    /// invalid response.
    HttpUpgradeFailed "http_upgrade_failed" BAD_GATEWAY "the upstream did not switch to the requested protocol"
    /// The upstream does not support WebSockets: its connections multiplex, without extended CONNECT.
    NoExtendedConnect "http_upgrade_failed" BAD_GATEWAY "the upstream does not support WebSockets over HTTP/2 (RFC 8441): configure it with http://"
    /// Connections to the upstream of a call carry no trailers.
    GrpcUnsupported "proxy_configuration_error" INTERNAL_SERVER_ERROR "gRPC needs an upstream with HTTP/2: configure it with h2c:// or https://"
    /// The request has passed this gateway before: `CDN-Loop` has its identifier (RFC 8586).
    ProxyLoopDetected "proxy_loop_detected" BAD_GATEWAY "the request came back to this proxy: a target leads to the proxy itself"
    /// The gateway failed.
    ProxyInternalError "proxy_internal_error" INTERNAL_SERVER_ERROR "the gateway failed"
    ; limits:
    ContinuationFlood "continuation-flood"
    SettingsFlood "settings-flood"
    PingFlood "ping-flood"
    PingAckFlood "ping-ack-flood"
    GoAwayFlood "goaway-flood"
    EmptyFrameFlood "empty-frame-flood"
    SmallDataFlood "small-data-flood"
    WindowUpdateFlood "window-update-flood"
    PriorityFlood "priority-flood"
    UnknownFrameFlood "unknown-frame-flood"
}

impl From<NameFailure> for Failure {
    fn from(failure: NameFailure) -> Failure {
        match failure {
            NameFailure::Error => Failure::DnsError,
            NameFailure::Timeout => Failure::DnsTimeout,
        }
    }
}

impl From<&ClientError> for Failure {
    fn from(error: &ClientError) -> Failure {
        match error {
            ClientError::Refused => Failure::ConnectionRefused,
            ClientError::ConnectTimedOut => Failure::ConnectionTimeout,
            ClientError::Unreachable => Failure::DestinationIpUnroutable,
            ClientError::ConnectFailed(_) => Failure::DestinationUnavailable,
            ClientError::TlsHandshake(error) | ClientError::Tls(error) => tls(*error),
            ClientError::Reset { .. } => Failure::ConnectionTerminated,
            ClientError::Busy => Failure::ConnectionLimitReached,
            ClientError::QueueFull => Failure::UpstreamQueueFull,
            ClientError::NoExtendedConnect => Failure::NoExtendedConnect,
            // Both attempts were refused unprocessed.
            ClientError::Unprocessed | ClientError::Suspect => Failure::ConnectionTerminated,
            ClientError::HeadTooLarge => Failure::RequestHeadTooLarge,
            ClientError::Truncated => Failure::HttpResponseIncomplete,
            ClientError::TimedOut => Failure::HttpResponseTimeout,
            ClientError::Malformed(error) => Failure::of_rule(error.kind()),
            ClientError::Cancelled => Failure::ProxyInternalError,
        }
    }
}

fn tls(error: TlsError) -> Failure {
    match error {
        TlsError::Certificate(_) => Failure::TlsCertificateError,
        TlsError::Alert(_) => Failure::TlsAlertReceived,
        TlsError::TimedOut => Failure::ConnectionTimeout,
        _ => Failure::TlsProtocolError,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use blitz_http::{Error, Side};

    use super::*;

    #[test]
    fn bad_absent_and_slow_upstreams_have_different_statuses() {
        let status = |error: ClientError| Failure::from(&error).status().code();
        let malformed = Error::new(ErrorKind::StatusLine, Side::Response);
        assert_eq!(status(ClientError::Refused), 502);
        assert_eq!(status(ClientError::Unreachable), 502);
        assert_eq!(status(ClientError::Reset { reused: false }), 502);
        assert_eq!(status(ClientError::Truncated), 502);
        assert_eq!(status(ClientError::Malformed(malformed)), 502);
        assert_eq!(
            status(ClientError::ConnectFailed(io::ErrorKind::PermissionDenied)),
            503
        );
        assert_eq!(status(ClientError::ConnectTimedOut), 504);
        assert_eq!(status(ClientError::TimedOut), 504);
    }

    #[test]
    fn the_field_has_the_registered_token() {
        for &failure in Failure::ALL {
            let expected = format!("blitz; error={}", failure.token());
            assert!(failure.proxy_status().starts_with(&expected));
        }
    }

    #[test]
    fn an_exceeded_limit_is_named() {
        for (kind, rule) in [
            (ErrorKind::PingFlood, "ping-flood"),
            (ErrorKind::WindowUpdateFlood, "window-update-flood"),
        ] {
            let error = Error::new(kind, Side::Response);
            assert_eq!(error.rule(), rule);
            let failure = Failure::from(&ClientError::Malformed(error));
            assert_eq!(
                failure.proxy_status(),
                format!("blitz; error=http_protocol_error; details=\"{rule}\"")
            );
            assert!(failure.detail().ends_with(rule));
        }
    }

    #[test]
    fn an_oversize_head_differs_from_a_malformed_one() {
        let token = |kind| Failure::from(&ClientError::Malformed(Error::new(kind, Side::Response)));
        assert_eq!(
            token(ErrorKind::HeadTooLarge),
            Failure::HttpResponseHeaderSectionSize
        );
        assert_eq!(token(ErrorKind::BareLf), Failure::HttpProtocolError);
    }
}
