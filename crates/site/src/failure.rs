//! Failures of upstreams: the only map from failures to status codes and to the registered
//! `Proxy-Status` errors (RFC 9209 section 2.3).

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::sync::LazyLock;

use blitz_http::{
    Address, CertificateProblem, ClientError, ErrorKind, LocalShortage, Status, TlsError,
};

/// Declares the failures with their texts, which need no formatting; then the limits of HTTP/2 that
/// upstreams may exceed, with the names of the rules.
macro_rules! failures {
    (
        $(
            $(#[$doc:meta])*
            $variant:ident $token:literal $status:ident $detail:literal
                $([$parameter:literal])?
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

            /// The description of the failure, in plain English.
            #[must_use]
            pub fn detail(self) -> &'static str {
                match self {
                    $(Failure::$variant => $detail,)*
                    $(Failure::$limit => concat!(
                        "the upstream exceeded a limit of HTTP/2 frames: ", $rule
                    ),)*
                }
            }

            /// The field's value without the name of the details.
            fn error_parameters(self) -> &'static str {
                match self {
                    $(Failure::$variant => concat!(
                        "blitz; error=", $token $(, "; ", $parameter)?
                    ),)*
                    $(Failure::$limit => "blitz; error=http_protocol_error",)*
                }
            }

            /// The failure of an upstream that violates this rule.
            pub fn of_rule(rule: ErrorKind) -> Failure {
                match rule {
                    ErrorKind::HeadTooLarge
                    | ErrorKind::TooManyFields
                    | ErrorKind::TooManyCookieCrumbs => {
                        Failure::HttpResponseHeaderSectionSize
                    }
                    ErrorKind::TrailersTooLarge => Failure::HttpResponseTrailerSectionSize,
                    ErrorKind::PrefaceNotUnderstood => Failure::PriorKnowledgeUnsupported,
                    ErrorKind::SwitchingUnrequested => Failure::HttpUpgradeFailed,
                    $(ErrorKind::$limit => Failure::$limit,)*
                    _ => Failure::HttpProtocolError,
                }
            }
        }
    };
}

failures! {
    /// The upstream's name could not be resolved for another reason than the following.
    DnsError "dns_error" BAD_GATEWAY "the upstream's name could not be resolved"
    /// The upstream's name does not exist.
    DnsNoSuchName "dns_error" BAD_GATEWAY "the upstream's name does not exist" ["rcode=\"NXDOMAIN\""]
    /// The upstream's name exists without an address.
    DnsNoAddress "dns_error" BAD_GATEWAY "the upstream's name has no address" ["rcode=\"NOERROR\""]
    /// The name server could not resolve the upstream's name.
    DnsServerFailed "dns_error" BAD_GATEWAY "the name server failed to resolve the upstream's name" ["rcode=\"SERVFAIL\""]
    /// The name server does not answer queries of this machine.
    DnsServerRefused "dns_error" BAD_GATEWAY "the name server refused to resolve the upstream's name" ["rcode=\"REFUSED\""]
    /// No name server could be reached.
    DnsUnreachable "dns_error" BAD_GATEWAY "the name server of the upstream's name cannot be reached"
    /// The name servers did not answer in time.
    DnsTimeout "dns_timeout" GATEWAY_TIMEOUT "the name server did not answer the query for the upstream's name in time"
    /// Nothing listens on the upstream's address.
    ConnectionRefused "connection_refused" BAD_GATEWAY "the upstream refused the connection"
    /// There is no unix socket at the upstream's path.
    UnixSocketMissing "connection_refused" BAD_GATEWAY "the upstream's unix socket does not exist"
    /// The upstream's path is a file, a folder or a device.
    UnixSocketNone "connection_refused" BAD_GATEWAY "the upstream's path is not a unix socket"
    /// Nothing listens on the upstream's unix socket.
    UnixSocketRefused "connection_refused" BAD_GATEWAY "no program listens on the upstream's unix socket"
    /// The gateway's user may not connect to the upstream's unix socket.
    UnixSocketDenied "destination_unavailable" SERVICE_UNAVAILABLE "the gateway has no permission to connect to the upstream's unix socket"
    /// The upstream accepts connections on its unix socket more slowly than they are made.
    UnixSocketQueueFull "destination_unavailable" SERVICE_UNAVAILABLE "too many connections wait to be accepted on the upstream's unix socket"
    /// No connection within the connect timeout.
    ConnectionTimeout "connection_timeout" GATEWAY_TIMEOUT "connecting to the upstream took too long (--timeout-connect)"
    /// The TLS handshake did not end in time.
    TlsHandshakeTimeout "connection_timeout" GATEWAY_TIMEOUT "the TLS handshake with the upstream took too long"
    /// The connection ended before the final response began.
    ConnectionTerminated "connection_terminated" BAD_GATEWAY "the upstream closed the connection without a response"
    /// Both attempts ended with a GOAWAY or REFUSED_STREAM that excludes the request.
    RequestUnprocessed "connection_terminated" BAD_GATEWAY "the upstream has not processed the request: it refused it, or closed the connection first"
    /// No connection could be made for another reason.
    DestinationUnavailable "destination_unavailable" SERVICE_UNAVAILABLE "no connection to the upstream could be made"
    /// There is no route to the upstream's address.
    DestinationIpUnroutable "destination_ip_unroutable" BAD_GATEWAY "the upstream's address cannot be reached"
    /// The upstream's certificate has expired.
    TlsCertificateExpired "tls_certificate_error" BAD_GATEWAY "the upstream's certificate has expired"
    /// The upstream's certificate will be valid later.
    TlsCertificateNotYetValid "tls_certificate_error" BAD_GATEWAY "the upstream's certificate is not valid yet"
    /// The upstream's certificate does not cover the host of the target.
    TlsCertificateWrongName "tls_certificate_error" BAD_GATEWAY "the upstream's certificate does not cover the host of its URL"
    /// The upstream's certificate is self-signed, or its authority is unknown.
    TlsCertificateUnknownIssuer "tls_certificate_error" BAD_GATEWAY "the upstream's certificate was issued by an unknown authority, or an intermediate certificate is missing: name the authority with --upstream-ca, or add the intermediate certificate to the upstream's chain"
    /// The upstream uses the certificate of an authority, usually a self-signed one.
    TlsCertificateOfAuthority "tls_certificate_error" BAD_GATEWAY "the upstream's certificate is that of an authority (CA:TRUE): the upstream needs one that the authority has issued"
    /// The upstream's certificate was not accepted for another reason.
    TlsCertificateError "tls_certificate_error" BAD_GATEWAY "the upstream's certificate was not accepted"
    /// The upstream requires a client certificate, and got none.
    TlsClientCertificateRequired "tls_alert_received" BAD_GATEWAY "the upstream requires a client certificate: name one with --upstream-cert"
    /// The upstream does not accept the client certificate. Some upstreams say the same without one.
    TlsClientCertificateRejected "tls_alert_received" BAD_GATEWAY "the upstream does not accept the client certificate, or requires one (--upstream-cert)"
    /// The upstream found no common parameters, or got no client certificate in TLS 1.2.
    TlsHandshakeFailure "tls_alert_received" BAD_GATEWAY "the upstream refused the TLS handshake: there may be no common version or cipher suite, or it requires a client certificate (--upstream-cert)"
    /// The upstream closed the TLS connection with another alert.
    TlsAlertReceived "tls_alert_received" BAD_GATEWAY "the upstream ended the TLS connection with an alert"
    /// The upstream answered the TLS handshake in clear text.
    TlsUnsupported "tls_protocol_error" BAD_GATEWAY "the upstream does not use TLS on this port: configure it with http:// if that is intended"
    /// TLS failed otherwise.
    TlsProtocolError "tls_protocol_error" BAD_GATEWAY "no TLS connection to the upstream could be made"
    /// All connections that may be opened to the upstream are full.
    ConnectionLimitReached "connection_limit_reached" SERVICE_UNAVAILABLE "all connections to the upstream are in use"
    /// The upstream has as many requests as it can take now, and requests of this importance are shed.
    LoadShed "connection_limit_reached" SERVICE_UNAVAILABLE "the upstream has as many requests as it can take, and others came first (shed)"
    /// Too many requests wait for a connection to the upstream.
    UpstreamQueueFull "connection_limit_reached" SERVICE_UNAVAILABLE "too many requests wait for the upstream"
    /// The gateway has no descriptor for a connection, and none became free in time.
    NoFreeSockets "connection_limit_reached" SERVICE_UNAVAILABLE "the gateway has no free sockets: raise its limit of open files (nofile)"
    /// All local ports are in use towards the upstream's address.
    NoFreePorts "connection_limit_reached" SERVICE_UNAVAILABLE "the gateway has no free ports for connections to the upstream: widen net.ipv4.ip_local_port_range"
    /// The kernel of the gateway has no memory for a connection.
    NoSocketMemory "proxy_internal_error" INTERNAL_SERVER_ERROR "the gateway's system has no memory for another connection"
    /// The request's head is larger than the upstream accepts.
    RequestHeadTooLarge "http_request_error" REQUEST_HEADER_FIELDS_TOO_LARGE "the header section is larger than the upstream accepts: max-header-list-size" ["details=\"max-header-list-size\""]
    /// The deadline that the client of a call has set has passed.
    DeadlineExceeded "http_response_timeout" GATEWAY_TIMEOUT "the deadline of the call has passed"
    /// No attempt has brought a response head in the time that the whole request has.
    RequestTimeout "http_response_timeout" GATEWAY_TIMEOUT "the request has taken too long, with all its attempts (timeout.request)"
    /// The response head did not come in time.
    HttpResponseTimeout "http_response_timeout" GATEWAY_TIMEOUT "the upstream took too long to respond (timeout.response or --timeout-response)"
    /// The rest of the response did not come in time.
    HttpResponseStalled "http_response_timeout" GATEWAY_TIMEOUT "the rest of the upstream's response came too slowly or not at all (timeout.idle or --timeout-idle)"
    /// The connection ended within the response head.
    HttpResponseIncomplete "http_response_incomplete" BAD_GATEWAY "the upstream's response was incomplete"
    /// The response head exceeds its limits.
    HttpResponseHeaderSectionSize "http_response_header_section_size" BAD_GATEWAY "the header section of the upstream's response is too large (--upstream-head-max, --upstream-fields-max)"
    /// The trailers of the response exceed their limits.
    HttpResponseTrailerSectionSize "http_response_trailer_section_size" BAD_GATEWAY "the trailer section of the upstream's response is too large (--upstream-head-max, --upstream-fields-max)"
    /// The response violates HTTP.
    HttpProtocolError "http_protocol_error" BAD_GATEWAY "the upstream's response is not valid HTTP"
    /// The upstream has answered HTTP/2 with HTTP/1.
    PriorKnowledgeUnsupported "http_protocol_error" BAD_GATEWAY "the upstream does not use HTTP/2 in clear text: configure it with http:// instead of h2c://"
    /// The upstream switched protocols without a request for it, to another protocol, or with an
    /// invalid response.
    HttpUpgradeFailed "http_upgrade_failed" BAD_GATEWAY "the upstream did not switch to the requested protocol"
    /// The upstream does not support WebSockets: its connections multiplex, without extended CONNECT.
    NoExtendedConnect "http_upgrade_failed" BAD_GATEWAY "the upstream does not support WebSockets over HTTP/2 (RFC 8441): configure it with http://"
    /// Connections to the upstream of a call carry no trailers.
    GrpcUnsupported "proxy_configuration_error" INTERNAL_SERVER_ERROR "gRPC needs HTTP/2, but the connection to the upstream uses HTTP/1.1: configure the upstream with h2c:// instead of http://, or with https:// if it offers h2 by ALPN"
    /// The request has passed this gateway before: `CDN-Loop` has its identifier (RFC 8586).
    ProxyLoopDetected "proxy_loop_detected" BAD_GATEWAY "the request came back to this proxy: a target leads to the proxy itself"
    /// The gateway was stopped, and the time for running requests has ended.
    DrainEnded "proxy_internal_error" SERVICE_UNAVAILABLE "the gateway was stopped before the request ended (--timeout-drain)"
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

/// The names of all failures.
static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let words = |failure: &Failure| words(&format!("{failure:?}"));
    Failure::ALL.iter().map(words).collect()
});

/// `TlsCertificateExpired` as `tls-certificate-expired`.
fn words(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push('-');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

impl Failure {
    /// Stable name, which no other failure has: such as `no-free-sockets`.
    #[must_use]
    pub fn name(self) -> &'static str {
        &NAMES[self as usize]
    }

    /// The name, if the registered error type says less.
    pub(crate) fn rule(self) -> Option<&'static str> {
        let name = self.name();
        let is_same =
            name.len() == self.token().len() && name.split('-').eq(self.token().split('_'));
        (!is_same).then_some(name)
    }

    /// Value of the `Proxy-Status` field. `rule` is the name of the details, if there are any.
    pub fn proxy_status(self, rule: Option<&str>) -> String {
        let value = self.error_parameters();
        match rule {
            Some(rule) => format!("{value}; details=\"{rule}\""),
            None => value.to_owned(),
        }
    }

    /// The failure of a connection to this address. That of a unix socket is found out with a look at
    /// its path, as connecting was: `connect` gives the same error for a file and for a socket on
    /// which nothing listens.
    #[cold]
    pub fn of_connection(address: &Address, error: &ClientError) -> Failure {
        let Address::Unix(path) = address else {
            return Failure::from(error);
        };
        let is_socket = || fs::metadata(&**path).is_ok_and(|found| found.file_type().is_socket());
        match error {
            ClientError::NoSocket => Failure::UnixSocketMissing,
            ClientError::Refused if is_socket() => Failure::UnixSocketRefused,
            ClientError::Refused => Failure::UnixSocketNone,
            ClientError::ConnectFailed(io::ErrorKind::PermissionDenied) => {
                Failure::UnixSocketDenied
            }
            ClientError::ConnectFailed(io::ErrorKind::WouldBlock) => Failure::UnixSocketQueueFull,
            _ => Failure::from(error),
        }
    }
}

impl From<&ClientError> for Failure {
    fn from(error: &ClientError) -> Failure {
        match error {
            ClientError::Refused => Failure::ConnectionRefused,
            ClientError::NoSocket => Failure::UnixSocketMissing,
            ClientError::ConnectTimedOut => Failure::ConnectionTimeout,
            ClientError::Unreachable => Failure::DestinationIpUnroutable,
            ClientError::LocalShortage(LocalShortage::Descriptors) => Failure::NoFreeSockets,
            ClientError::LocalShortage(LocalShortage::Ports) => Failure::NoFreePorts,
            ClientError::LocalShortage(LocalShortage::Memory) => Failure::NoSocketMemory,
            ClientError::ConnectFailed(_) => Failure::DestinationUnavailable,
            ClientError::TlsHandshake(error) | ClientError::Tls(error) => tls(*error),
            ClientError::Reset { .. } | ClientError::OnlyInterim => Failure::ConnectionTerminated,
            ClientError::Busy => Failure::ConnectionLimitReached,
            ClientError::QueueFull => Failure::UpstreamQueueFull,
            ClientError::NoExtendedConnect => Failure::NoExtendedConnect,
            ClientError::Unprocessed => Failure::RequestUnprocessed,
            ClientError::Suspect => Failure::ConnectionTerminated,
            ClientError::HeadTooLarge => Failure::RequestHeadTooLarge,
            ClientError::Truncated => Failure::HttpResponseIncomplete,
            ClientError::TimedOut | ClientError::HeadTimedOut => Failure::HttpResponseTimeout,
            ClientError::Malformed(error) => Failure::of_rule(error.kind()),
            ClientError::Cancelled => Failure::ProxyInternalError,
        }
    }
}

fn tls(error: TlsError) -> Failure {
    match error {
        TlsError::Certificate(problem) => certificate(problem),
        TlsError::Alert(number) => alert(number),
        TlsError::TimedOut => Failure::TlsHandshakeTimeout,
        TlsError::NotTls => Failure::TlsUnsupported,
        _ => Failure::TlsProtocolError,
    }
}

fn certificate(problem: CertificateProblem) -> Failure {
    match problem {
        CertificateProblem::Expired => Failure::TlsCertificateExpired,
        CertificateProblem::NotYetValid => Failure::TlsCertificateNotYetValid,
        CertificateProblem::WrongName => Failure::TlsCertificateWrongName,
        CertificateProblem::UnknownIssuer => Failure::TlsCertificateUnknownIssuer,
        CertificateProblem::Authority => Failure::TlsCertificateOfAuthority,
        _ => Failure::TlsCertificateError,
    }
}

/// Numbers of RFC 8446, section 6. Upstreams differ in the alert for a missing client certificate.
fn alert(number: u8) -> Failure {
    const HANDSHAKE_FAILURE: u8 = 40;
    const BAD_CERTIFICATE: u8 = 42;
    const CERTIFICATE_UNKNOWN: u8 = 46;
    const UNKNOWN_CA: u8 = 48;
    const CERTIFICATE_REQUIRED: u8 = 116;
    match number {
        CERTIFICATE_REQUIRED => Failure::TlsClientCertificateRequired,
        HANDSHAKE_FAILURE => Failure::TlsHandshakeFailure,
        // Between the two are unsupported, revoked and expired certificates.
        BAD_CERTIFICATE..=CERTIFICATE_UNKNOWN | UNKNOWN_CA => Failure::TlsClientCertificateRejected,
        _ => Failure::TlsAlertReceived,
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(
            status(ClientError::LocalShortage(LocalShortage::Descriptors)),
            503
        );
        assert_eq!(
            status(ClientError::LocalShortage(LocalShortage::Ports)),
            503
        );
        assert_eq!(status(ClientError::ConnectTimedOut), 504);
        assert_eq!(status(ClientError::TimedOut), 504);
    }

    #[test]
    fn missing_permission_and_a_full_queue_of_a_unix_socket_are_named() {
        let unix = Address::unix("/run/app.sock");
        let tcp = Address::Tcp(([127, 0, 0, 1], 80).into());
        for (kind, expected) in [
            (io::ErrorKind::PermissionDenied, Failure::UnixSocketDenied),
            (io::ErrorKind::WouldBlock, Failure::UnixSocketQueueFull),
        ] {
            let error = ClientError::ConnectFailed(kind);
            let failure = Failure::of_connection(&unix, &error);
            assert_eq!(failure, expected);
            assert_eq!(failure.token(), "destination_unavailable");
            assert_eq!(failure.status().code(), 503);
            let failure = Failure::of_connection(&tcp, &error);
            assert_eq!(failure, Failure::DestinationUnavailable);
        }
    }

    #[test]
    fn the_field_has_the_registered_token() {
        for &failure in Failure::ALL {
            let expected = format!("blitz; error={}", failure.token());
            assert!(failure.proxy_status(None).starts_with(&expected));
        }
    }

    #[test]
    fn failures_have_names_of_their_own() {
        let mut names: Vec<_> = Failure::ALL.iter().map(|failure| failure.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Failure::ALL.len());
        assert_eq!(
            Failure::TlsCertificateExpired.name(),
            "tls-certificate-expired"
        );
        assert_eq!(Failure::NoFreeSockets.rule(), Some("no-free-sockets"));
        assert_eq!(Failure::ConnectionLimitReached.rule(), None);
    }

    #[test]
    fn an_exceeded_limit_is_named() {
        for (kind, rule) in [
            (ErrorKind::PingFlood, "ping-flood"),
            (ErrorKind::WindowUpdateFlood, "window-update-flood"),
        ] {
            let error = Error::new(kind, Side::Response);
            assert_eq!(error.rule(), rule);
            let error = ClientError::Malformed(error);
            let failure = Failure::from(&error);
            assert_eq!(
                failure.proxy_status(error.rule()),
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
