//! Which fields end at the gateway, and which it alone may write.

use blitz_http::{FieldName, Fields, Name};

/// A set of known names, one bit each.
pub(super) type NameSet = u128;

pub(super) const fn set_of(names: &[Name]) -> NameSet {
    let mut bits = 0;
    let mut at = 0;
    while at < names.len() {
        bits |= 1 << names[at] as u8;
        at += 1;
    }
    bits
}

const _: () = assert!(
    (Name::Other as u8) < 128,
    "a NameSet has room for 128 names"
);

/// Ends here in both directions: connection management (RFC 9110 section 7.6.1), credentials
/// for this hop (section 11.7), upgrades that nobody asked to pass.
pub(super) const HOP: NameSet = set_of(&[
    Name::Connection,
    Name::KeepAlive,
    Name::ProxyConnection,
    Name::TransferEncoding,
    Name::Te,
    Name::Upgrade,
    Name::Http2Settings,
    Name::ProxyAuthenticate,
    Name::ProxyAuthenticationInfo,
    Name::ProxyAuthorization,
]);
/// `Proxy` would become the variable `HTTP_PROXY` of a CGI program (httpoxy); a client's
/// certificate is what TLS says, never what a field says (RFC 9440).
pub(super) const REQUEST_HOP: NameSet =
    HOP | set_of(&[Name::Proxy, Name::ClientCert, Name::ClientCertChain]);
/// The 101 that needs `Upgrade` gets it from `relay`.
pub(super) const RESPONSE_HOP: NameSet = HOP;
/// What a client says about itself and the gateway knows better.
pub(super) const CLAIMS: NameSet = set_of(&[
    Name::Forwarded,
    Name::XForwardedFor,
    Name::XForwardedHost,
    Name::XForwardedPort,
    Name::XForwardedProto,
    Name::XRealIp,
]);
pub(super) const NOT_IN_TRAILERS: NameSet = REQUEST_HOP
    | CLAIMS
    | set_of(&[
        Name::Age,
        Name::Authorization,
        Name::CacheControl,
        Name::ContentEncoding,
        Name::ContentLength,
        Name::ContentRange,
        Name::ContentType,
        Name::Cookie,
        Name::Date,
        Name::EarlyData,
        Name::Expect,
        Name::Expires,
        Name::Host,
        Name::IfMatch,
        Name::IfModifiedSince,
        Name::IfNoneMatch,
        Name::IfRange,
        Name::IfUnmodifiedSince,
        Name::Location,
        Name::MaxForwards,
        Name::Origin,
        Name::Pragma,
        Name::Range,
        Name::RetryAfter,
        Name::SetCookie,
        Name::Trailer,
        Name::Vary,
        Name::Via,
        Name::WwwAuthenticate,
        Name::XRequestId,
    ]);
/// Meant for every recipient, so naming them in `Connection` is an attack or a mistake: a proxy
/// that obeyed would strip what the application relies on (RFC 9110 section 7.6.1).
pub(super) const END_TO_END: NameSet = CLAIMS
    | set_of(&[
        Name::Authorization,
        Name::CacheControl,
        Name::ContentEncoding,
        Name::ContentLength,
        Name::ContentRange,
        Name::ContentType,
        Name::Cookie,
        Name::Date,
        Name::EarlyData,
        Name::Expect,
        Name::Host,
        Name::MaxForwards,
        Name::Origin,
        Name::Range,
        Name::SetCookie,
        Name::StrictTransportSecurity,
        Name::Traceparent,
        Name::Tracestate,
        Name::Trailer,
        Name::Vary,
        Name::Via,
        Name::XRequestId,
    ]);

/// What occurs in a section, so that most questions about it need no second look.
#[derive(Clone, Copy)]
pub(super) struct Survey {
    pub(super) names: NameSet,
    /// Some `X-Forwarded-…` that is not a known name, or an [imitation](is_imitation).
    pub(super) claims: bool,
}

impl Survey {
    pub(super) fn of(fields: &Fields) -> Survey {
        let nothing = Survey {
            names: 0,
            claims: false,
        };
        fields.iter().fold(nothing, |seen, (name, _)| Survey {
            names: seen.names | set_of(&[name.known()]),
            claims: seen.claims || is_claim(name) || is_imitation(name),
        })
    }

    pub(super) fn has(self, name: Name) -> bool {
        self.names & set_of(&[name]) != 0
    }
}

#[inline]
pub(super) fn is_in(set: NameSet, name: FieldName<'_>) -> bool {
    set & set_of(&[name.known()]) != 0
}

/// Any `X-Forwarded-…`, also those that only some proxies know.
#[inline]
pub(super) fn is_claim(name: FieldName<'_>) -> bool {
    name.known() == Name::Other && begins_like_claim(name.as_bytes())
}

pub(super) fn begins_like_claim(name: &[u8]) -> bool {
    const PREFIX: &[u8] = b"x-forwarded-";
    name.get(..PREFIX.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
}

/// Names whose other spellings are removed: fields that only the gateway may write or that end here,
/// and those that frame the content.
const IMITATED: NameSet = REQUEST_HOP | CLAIMS | set_of(&[Name::ContentLength]);

/// Whether applications behind CGI, WSGI and their like would take the field for one that only
/// the gateway may write: to them `X_Forwarded_For`, `X.Forwarded.For` and `X-Forwarded-For` are the
/// same variable, since all that is no letter or digit becomes `_`. Not even a trusted proxy has
/// reason to send such a name.
#[inline]
pub(super) fn is_imitation(name: FieldName<'_>) -> bool {
    let is_odd = |&byte: &u8| byte != b'-' && !byte.is_ascii_alphanumeric();
    name.known() == Name::Other && name.as_bytes().iter().any(is_odd) && imitates(name.as_bytes())
}

#[cold]
fn imitates(name: &[u8]) -> bool {
    // Longer than any name that could be imitated but by its beginning.
    let mut plain = [0; 32];
    let length = name.len().min(plain.len());
    for (to, &from) in plain.iter_mut().zip(name) {
        *to = if from.is_ascii_alphanumeric() {
            from
        } else {
            b'-'
        };
    }
    let plain = &plain[..length];
    begins_like_claim(plain) || IMITATED & set_of(&[Name::parse(plain)]) != 0
}
