//! Why the gateway rejects a request, and the status and text that the client gets.

use blitz_http::Status;

/// Why the gateway does not forward a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rejection {
    /// The request came in clear text, and is redirected to HTTPS.
    HttpsOnly,
    /// The request came in clear text and names no host that it could be redirected to.
    NoHost,
    /// The certificate of the connection does not cover the request's host.
    Misdirected,
    /// The handshake of the connection did not demand what the site of the host demands.
    TlsPolicy,
    /// The method is never forwarded.
    Method,
    /// `Max-Forwards` is 0, so the gateway answers `OPTIONS` itself.
    LastHop,
    /// `Connection` names too many fields.
    ConnectionOptions,
    /// The `Sec-WebSocket-Key` is invalid, and the gateway would have to answer it.
    WebSocketKey,
    /// The content of a gRPC-Web call is not base64, although its type requires it.
    Base64,
    /// The content is larger than the limit of its route or of the gateway.
    ContentTooLarge,
    /// With the target's own path in front, the path would contain a dot segment.
    Path,
    /// No site has the host of the request.
    UnknownHost,
    /// No route of the site matches the path.
    UnknownPath,
    /// The route does not serve the address of the client.
    Forbidden,
    /// An origin may read the path as one that the client may not request.
    AmbiguousPath,
    /// The route does not take the method.
    MethodNotAllowed,
    /// The core holds as much content of requests as it may.
    NoBufferRoom,
    /// The request line is longer than the site takes.
    RequestLineTooLong,
    /// The header section is larger than the site takes.
    HeadTooLarge,
    /// The trailer section is larger than the site takes.
    TrailersTooLarge,
    /// It asks whether scripts of another origin may send a request, and its route answers that itself.
    Preflight,
    /// The route demands a token, and the request has none.
    NoToken,
    /// The request has several tokens, of which others may take another one.
    SeveralTokens,
    /// The token is not one that the route accepts.
    InvalidToken,
    /// The token has expired.
    TokenExpired,
    /// The token lacks a scope or a claim that the route demands.
    InsufficientScope,
    /// The keys that would verify the token have not been fetched yet.
    NoKeys,
    /// The route demands a name with its password, and the request has none.
    NoCredentials,
    /// The request has several credentials, of which others may take another one.
    SeveralCredentials,
    /// The password is not that of a user.
    InvalidCredentials,
    /// So many passwords are being checked that this one is not.
    AuthenticationBusy,
    /// The route demands a key, and the request has none.
    NoApiKey,
    /// The key is not one that the route accepts.
    InvalidApiKey,
    /// The key has expired.
    ApiKeyExpired,
    /// The route demands a certificate of the client, and the connection has none.
    NoClientCertificate,
    /// The certificate of the client has expired since the handshake.
    ClientCertificateExpired,
    /// The route demands one of several proofs of who the client is, and the request has none.
    NoProof,
    /// There are too many requests per time of the client, or of another value.
    RateLimited,
    /// The store of a rate limit cannot be reached, and the limit lets nothing pass without it.
    RateStore,
    /// Too many requests are under way.
    Concurrency,
    /// A policy of the route has panicked.
    PolicyPanicked,
    /// The authorizer of the route does not know the client.
    Unauthenticated,
    /// The authorizer of the route refuses the request.
    Unauthorized,
    /// The authorizer of the route cannot be connected to.
    AuthorizerUnreachable,
    /// The authorizer of the route took too long.
    AuthorizerTimeout,
    /// The authorizer of the route gave no valid decision.
    AuthorizerFailed,
    /// The response of the authorizer is larger than the gateway takes.
    AuthorizerTooLarge,
    /// Too many requests wait for authorizers.
    AuthorizerBusy,
    /// The content has a coding that the route does not decode, or several.
    ContentCoding,
    /// The content is not what its coding says, or ends too early.
    Undecodable,
    /// The content is larger than its route takes when it is decoded.
    DecodedTooLarge,
    /// The core has no memory for a further decoder.
    DecodersFull,
    /// Too many files are open or looked for.
    FilesBusy,
}

impl Rejection {
    /// All rejections; their order is that of [`Counters::rejections`](crate::Counters).
    pub const ALL: [Rejection; 53] = [
        Rejection::HttpsOnly,
        Rejection::NoHost,
        Rejection::Misdirected,
        Rejection::TlsPolicy,
        Rejection::Method,
        Rejection::LastHop,
        Rejection::ConnectionOptions,
        Rejection::WebSocketKey,
        Rejection::Base64,
        Rejection::ContentTooLarge,
        Rejection::Path,
        Rejection::UnknownHost,
        Rejection::UnknownPath,
        Rejection::Forbidden,
        Rejection::AmbiguousPath,
        Rejection::MethodNotAllowed,
        Rejection::NoBufferRoom,
        Rejection::RequestLineTooLong,
        Rejection::HeadTooLarge,
        Rejection::TrailersTooLarge,
        Rejection::Preflight,
        Rejection::NoToken,
        Rejection::SeveralTokens,
        Rejection::InvalidToken,
        Rejection::TokenExpired,
        Rejection::InsufficientScope,
        Rejection::NoKeys,
        Rejection::NoCredentials,
        Rejection::SeveralCredentials,
        Rejection::InvalidCredentials,
        Rejection::AuthenticationBusy,
        Rejection::NoApiKey,
        Rejection::InvalidApiKey,
        Rejection::ApiKeyExpired,
        Rejection::NoClientCertificate,
        Rejection::ClientCertificateExpired,
        Rejection::NoProof,
        Rejection::RateLimited,
        Rejection::RateStore,
        Rejection::Concurrency,
        Rejection::PolicyPanicked,
        Rejection::Unauthenticated,
        Rejection::Unauthorized,
        Rejection::AuthorizerUnreachable,
        Rejection::AuthorizerTimeout,
        Rejection::AuthorizerFailed,
        Rejection::AuthorizerTooLarge,
        Rejection::AuthorizerBusy,
        Rejection::ContentCoding,
        Rejection::Undecodable,
        Rejection::DecodedTooLarge,
        Rejection::DecodersFull,
        Rejection::FilesBusy,
    ];

    /// Whether it is a response that clients are to get, and no problem.
    #[must_use]
    pub fn is_usual(self) -> bool {
        matches!(self, Rejection::HttpsOnly | Rejection::Preflight)
    }

    /// Stable name, for logs and counter labels.
    #[must_use]
    pub fn rule(self) -> &'static str {
        match self {
            Rejection::HttpsOnly => "https-only",
            Rejection::NoHost => "host-missing",
            Rejection::Misdirected => "misdirected",
            Rejection::TlsPolicy => "tls-policy",
            Rejection::Method => "method-not-forwarded",
            Rejection::LastHop => "max-forwards",
            Rejection::ConnectionOptions => "connection-options",
            Rejection::WebSocketKey => "websocket-key",
            Rejection::Base64 => "not-base64",
            Rejection::ContentTooLarge => "content-too-large",
            Rejection::Path => "target-path",
            Rejection::UnknownHost => "unknown-host",
            Rejection::UnknownPath => "unknown-path",
            Rejection::Forbidden => "forbidden",
            Rejection::AmbiguousPath => "ambiguous-path",
            Rejection::MethodNotAllowed => "method-not-allowed",
            Rejection::NoBufferRoom => "no-buffer-room",
            Rejection::RequestLineTooLong => "request-line-of-site",
            Rejection::HeadTooLarge => "head-of-site",
            Rejection::TrailersTooLarge => "trailers-of-site",
            Rejection::Preflight => "preflight",
            Rejection::NoToken => "token-missing",
            Rejection::SeveralTokens => "several-tokens",
            Rejection::InvalidToken => "token-invalid",
            Rejection::TokenExpired => "token-expired",
            Rejection::InsufficientScope => "insufficient-scope",
            Rejection::NoKeys => "token-keys-missing",
            Rejection::NoCredentials => "credentials-missing",
            Rejection::SeveralCredentials => "several-credentials",
            Rejection::InvalidCredentials => "credentials-invalid",
            Rejection::AuthenticationBusy => "authentication-busy",
            Rejection::NoApiKey => "api-key-missing",
            Rejection::InvalidApiKey => "api-key-invalid",
            Rejection::ApiKeyExpired => "api-key-expired",
            Rejection::NoClientCertificate => "client-certificate-missing",
            Rejection::ClientCertificateExpired => "client-certificate-expired",
            Rejection::NoProof => "proof-missing",
            Rejection::RateLimited => "rate-limited",
            Rejection::RateStore => "rate-limit-store",
            Rejection::Concurrency => "concurrency",
            Rejection::PolicyPanicked => "policy-panicked",
            Rejection::Unauthenticated => "authorizer-unauthenticated",
            Rejection::Unauthorized => "authorizer-refused",
            Rejection::AuthorizerUnreachable => "authorizer-unreachable",
            Rejection::AuthorizerTimeout => "authorizer-timeout",
            Rejection::AuthorizerFailed => "authorizer-failed",
            Rejection::AuthorizerTooLarge => "authorizer-too-large",
            Rejection::AuthorizerBusy => "authorizer-busy",
            Rejection::ContentCoding => "content-coding",
            Rejection::Undecodable => "content-undecodable",
            Rejection::DecodedTooLarge => "decoded-content-too-large",
            Rejection::DecodersFull => "decoders-full",
            Rejection::FilesBusy => "files-busy",
        }
    }

    /// Status of the response.
    #[must_use]
    pub fn status(self) -> Status {
        match self {
            Rejection::HttpsOnly => Status::PERMANENT_REDIRECT,
            Rejection::Misdirected | Rejection::TlsPolicy => Status::MISDIRECTED_REQUEST,
            Rejection::Method | Rejection::MethodNotAllowed => Status::METHOD_NOT_ALLOWED,
            Rejection::Forbidden
            | Rejection::InsufficientScope
            | Rejection::NoClientCertificate
            | Rejection::ClientCertificateExpired
            | Rejection::Unauthorized => Status::FORBIDDEN,
            Rejection::NoToken
            | Rejection::InvalidToken
            | Rejection::TokenExpired
            | Rejection::NoCredentials
            | Rejection::InvalidCredentials
            | Rejection::NoApiKey
            | Rejection::InvalidApiKey
            | Rejection::ApiKeyExpired
            | Rejection::NoProof
            | Rejection::Unauthenticated => Status::UNAUTHORIZED,
            Rejection::LastHop | Rejection::Preflight => Status::NO_CONTENT,
            Rejection::ContentTooLarge | Rejection::DecodedTooLarge => Status::CONTENT_TOO_LARGE,
            Rejection::ContentCoding => Status::UNSUPPORTED_MEDIA_TYPE,
            Rejection::PolicyPanicked => Status::INTERNAL_SERVER_ERROR,
            Rejection::NoBufferRoom
            | Rejection::RateStore
            | Rejection::Concurrency
            | Rejection::NoKeys
            | Rejection::AuthenticationBusy
            | Rejection::AuthorizerUnreachable
            | Rejection::AuthorizerTimeout
            | Rejection::AuthorizerFailed
            | Rejection::AuthorizerTooLarge
            | Rejection::AuthorizerBusy
            | Rejection::DecodersFull
            | Rejection::FilesBusy => Status::SERVICE_UNAVAILABLE,
            Rejection::RateLimited => Status::TOO_MANY_REQUESTS,
            Rejection::RequestLineTooLong => Status::URI_TOO_LONG,
            Rejection::HeadTooLarge | Rejection::TrailersTooLarge => {
                Status::REQUEST_HEADER_FIELDS_TOO_LARGE
            }
            Rejection::UnknownHost | Rejection::UnknownPath => Status::NOT_FOUND,
            Rejection::NoHost
            | Rejection::ConnectionOptions
            | Rejection::WebSocketKey
            | Rejection::Base64
            | Rejection::Path
            | Rejection::AmbiguousPath
            | Rejection::SeveralTokens
            | Rejection::SeveralCredentials
            | Rejection::Undecodable => Status::BAD_REQUEST,
        }
    }

    /// The reason in plain English. Needs no escaping in JSON.
    #[must_use]
    pub fn detail(self) -> &'static str {
        match self {
            Rejection::HttpsOnly => "this is served over HTTPS only",
            Rejection::NoHost => "the request names no host, and this is served over HTTPS only",
            Rejection::Misdirected => "the certificate of this connection does not cover that host",
            Rejection::TlsPolicy => "that host needs a connection with a handshake of its own",
            Rejection::Method => "this method is not forwarded",
            Rejection::LastHop => "the request must not be forwarded any further",
            Rejection::ConnectionOptions => "the Connection field names too many options",
            Rejection::WebSocketKey => "the Sec-WebSocket-Key is not 16 bytes in base64",
            Rejection::Base64 => "the content is not base64, although its type requires it",
            Rejection::ContentTooLarge => "the content is larger than this server accepts",
            Rejection::Path => "the path leads out of the target's path",
            Rejection::UnknownHost => "no site has this host",
            Rejection::UnknownPath => "no route of this site matches the path",
            Rejection::Forbidden => "this address may not request the path",
            Rejection::AmbiguousPath => {
                "servers read this path in several ways, of which one is not allowed"
            }
            Rejection::MethodNotAllowed => "this method is not allowed here",
            Rejection::NoBufferRoom => "this server holds too much content of other requests",
            Rejection::RequestLineTooLong => "the request line is longer than this site takes",
            Rejection::HeadTooLarge => "the fields are larger or more than this site takes",
            Rejection::TrailersTooLarge => "the trailers are larger than this site takes",
            Rejection::Preflight => "a browser asked whether it may send a request",
            Rejection::NoToken => "this needs a token",
            Rejection::SeveralTokens => "the request has several tokens",
            Rejection::InvalidToken => "the token is not accepted here",
            Rejection::TokenExpired => "the token has expired",
            Rejection::InsufficientScope => "the token does not cover this",
            Rejection::NoKeys => "the keys for tokens are not there yet; try again later",
            Rejection::NoCredentials => "this needs a name and a password",
            Rejection::SeveralCredentials => "the request has several credentials",
            Rejection::InvalidCredentials => "the name or the password is wrong",
            Rejection::AuthenticationBusy => {
                "too many passwords are being checked; try again later"
            }
            Rejection::NoApiKey => "this needs a key",
            Rejection::InvalidApiKey => "the key is not accepted here",
            Rejection::ApiKeyExpired => "the key has expired",
            Rejection::NoClientCertificate => "this needs a certificate of the client",
            Rejection::ClientCertificateExpired => "the certificate of the client has expired",
            Rejection::NoProof => "this needs credentials",
            Rejection::RateLimited => "there are too many requests; try again later",
            Rejection::PolicyPanicked => "a policy of this route has failed",
            Rejection::RateStore => "requests cannot be counted now; try again later",
            Rejection::Concurrency => "too many requests are under way; try again later",
            Rejection::Unauthenticated => "this needs a log-in",
            Rejection::Unauthorized => "this is not allowed",
            Rejection::AuthorizerUnreachable => {
                "the service that decides on access cannot be reached"
            }
            Rejection::AuthorizerTimeout => {
                "the service that decides on access did not answer in time"
            }
            Rejection::AuthorizerFailed => "the service that decides on access failed",
            Rejection::AuthorizerTooLarge => "the service that decides on access sent too much",
            Rejection::AuthorizerBusy => {
                "too many requests wait for the service that decides on access"
            }
            Rejection::ContentCoding => "this takes one content coding: zstd, br, gzip or deflate",
            Rejection::Undecodable => "the content is not what its content coding says",
            Rejection::DecodedTooLarge => "the decoded content is larger than this server accepts",
            Rejection::FilesBusy => "too many files are open or looked for; try again later",
            Rejection::DecodersFull => "too much content is being decoded; try again later",
        }
    }
}
