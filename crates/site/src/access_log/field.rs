//! The fields of a line.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use blitz_http::{AsName, Name};

/// The start of a field with a value of the request's head: `header.User-Agent`.
const HEADER: &str = "header.";

/// A field of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogField {
    /// A fact of the record.
    Fact(Fact),
    /// A field of the request's head, as the client has sent it.
    Header(HeaderName),
}

/// The name of a field of a head.
#[derive(Debug, Clone)]
pub struct HeaderName {
    known: Name,
    text: Box<str>,
}

/// A field of a request's head that is noted for the log.
#[derive(Debug, Clone)]
pub struct NotedHeader {
    /// Its name.
    pub name: HeaderName,
    /// Whether `***` is noted in place of its value.
    pub is_redacted: bool,
}

impl NotedHeader {
    /// Those that are noted without a log.
    pub(crate) fn usual() -> Arc<[NotedHeader]> {
        let usual = LogField::combined().into_iter();
        let noted = usual.filter_map(|field| match field {
            LogField::Header(name) => Some(NotedHeader {
                name,
                is_redacted: false,
            }),
            LogField::Fact(_) => None,
        });
        noted.collect()
    }
}

/// A text that names no field of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownField(pub String);

impl HeaderName {
    /// The field with this name, in any case.
    #[must_use]
    pub fn new(name: &str) -> HeaderName {
        HeaderName {
            known: Name::parse(name.as_bytes()),
            text: name.into(),
        }
    }

    /// The name as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn is(&self, name: Name) -> bool {
        self.known == name
    }
}

impl PartialEq for HeaderName {
    fn eq(&self, other: &HeaderName) -> bool {
        self.text.eq_ignore_ascii_case(&other.text)
    }
}

impl Eq for HeaderName {}

impl AsName for &HeaderName {
    fn known(&self) -> Name {
        self.known
    }

    fn text(&self) -> &str {
        &self.text
    }
}

/// Declares the facts with their names and descriptions.
macro_rules! facts {
    ($($(#[doc = $text:literal])* $fact:ident $name:literal,)+) => {
        /// A fact of the record.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Fact {
            $($(#[doc = $text])* $fact,)+
        }

        impl Fact {
            /// All facts with their descriptions, in the order of a usual line.
            pub const ALL: &'static [(Fact, &'static str)] = &[
                $((Fact::$fact, concat!($($text),*)),)+
            ];

            /// The name in lines.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Fact::$fact => $name,)+
                }
            }
        }
    };
}

facts! {
    /// When the request was received, in UTC (RFC 3339)
    Time "ts",
    /// `X-Request-Id`, the client's or a new one
    RequestId "request_id",
    /// the address of the client, which a trusted proxy may have told
    Client "client",
    /// the user of a password, the name of an API key, `sub` of a token, or the subject of the client's certificate
    User "user",
    /// the method
    Method "method",
    /// `http` or `https`
    Scheme "scheme",
    /// the host of the request, with its port
    Host "host",
    /// the path and the query as they were received
    Path "path",
    /// the version of HTTP
    Protocol "protocol",
    /// the version of TLS
    TlsVersion "tls_version",
    /// the cipher suite of TLS
    TlsCipher "tls_cipher",
    /// the group of the key exchange
    TlsGroup "tls_group",
    /// the server name that the client sent in the handshake
    TlsServerName "sni",
    /// the protocol that was negotiated in the handshake
    TlsAlpn "alpn",
    /// the status that the client got
    Status "status",
    /// bytes of content from the client
    BytesIn "bytes_in",
    /// bytes of content to the client
    BytesOut "bytes_out",
    /// seconds from the head of the request to the end of its response; if the client has left, `half_close_grace` is part of it
    Duration "duration",
    /// seconds from the head of the request to the head of the upstream's response
    FirstByte "ttfb",
    /// the site
    Site "site",
    /// the path of the route as written
    Route "route",
    /// the address of the upstream
    Upstream "upstream",
    /// seconds from the head of the request to a connection to the upstream, with those of policies that wait: passwords, authorizers
    ConnectTime "connect_time",
    /// seconds from that connection to the end of the response
    UpstreamTime "upstream_time",
    /// how often the request was sent to an upstream
    Attempts "attempts",
    /// addresses of the upstream to which no connection could be made
    ConnectFailures "connect_failures",
    /// whether the connection to the upstream had carried a request before
    Reused "reused",
    /// the status of a gRPC call that the gateway has ended
    GrpcStatus "grpc_status",
    /// how the request ended
    Ended "ended",
    /// the cause, if it did not end with a complete response
    Cause "cause",
    /// the details of the cause: the name of a failure, of a rule that the upstream broke, or of an alert
    Rule "rule",
    /// failed handshakes or incomplete heads with this cause that have no line, because there were too many
    Omitted "omitted",
    /// the id of the trace, with `tracing`
    TraceId "trace_id",
    /// the id of the span of the request, with `tracing`
    SpanId "span_id",
}

impl LogField {
    /// The fields of a line of which nobody has chosen any.
    #[must_use]
    pub fn usual() -> Vec<LogField> {
        let facts = Fact::ALL.iter().map(|(fact, _)| LogField::Fact(*fact));
        let headers = ["Referer", "User-Agent"].map(HeaderName::new);
        facts.chain(headers.map(LogField::Header)).collect()
    }

    /// Those of the combined format that are fields of the request's head.
    pub(super) fn combined() -> Vec<LogField> {
        ["Referer", "User-Agent"]
            .map(|name| LogField::Header(HeaderName::new(name)))
            .to_vec()
    }

    pub(super) fn header(&self) -> Option<&HeaderName> {
        match self {
            LogField::Header(name) => Some(name),
            LogField::Fact(_) => None,
        }
    }

    /// The name in lines: fields of heads are lower case with underscores.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            LogField::Fact(fact) => fact.name().to_owned(),
            LogField::Header(name) => name.as_str().to_ascii_lowercase().replace('-', "_"),
        }
    }
}

impl FromStr for LogField {
    type Err = UnknownField;

    fn from_str(text: &str) -> Result<LogField, UnknownField> {
        if let Some(name) = text.strip_prefix(HEADER) {
            let is_token = !name.is_empty() && name.bytes().all(is_token_byte);
            return match is_token {
                true => Ok(LogField::Header(HeaderName::new(name))),
                false => Err(UnknownField(text.to_owned())),
            };
        }
        let mut facts = Fact::ALL.iter().map(|(fact, _)| *fact);
        let fact = facts.find(|fact| fact.name() == text);
        fact.map(LogField::Fact)
            .ok_or_else(|| UnknownField(text.to_owned()))
    }
}

/// RFC 9110, section 5.6.2.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

impl fmt::Display for UnknownField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "there is no field `{}` in lines of the access log",
            self.0
        )
    }
}

impl std::error::Error for UnknownField {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for field in LogField::usual() {
            let written = match &field {
                LogField::Fact(fact) => fact.name().to_owned(),
                LogField::Header(name) => format!("{HEADER}{}", name.as_str()),
            };
            assert_eq!(written.parse(), Ok(field));
        }
        for unknown in ["", "Status", "header.", "header.a b", "header.\u{e9}"] {
            assert!(unknown.parse::<LogField>().is_err(), "{unknown:?}");
        }
    }
}
