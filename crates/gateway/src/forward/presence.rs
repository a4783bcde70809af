//! Sets of field names: hop-by-hop fields, fields that only the gateway writes, and the set that is
//! present in a message.

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

/// Removed in both directions: connection management (RFC 9110 section 7.6.1), credentials for this
/// hop (section 11.7), upgrades.
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
/// `Proxy` would become the variable `HTTP_PROXY` of a CGI program (httpoxy). A client's
/// certificate comes from TLS, never from a field (RFC 9440).
pub(super) const REQUEST_HOP: NameSet =
    HOP | set_of(&[Name::Proxy, Name::ClientCert, Name::ClientCertChain]);
/// A 101 gets its `Upgrade` in phase `relay`. `Alt-Svc` names ports of the upstream (RFC 7838), and would
/// replace the field of this server.
pub(super) const RESPONSE_HOP: NameSet = HOP | set_of(&[Name::AltSvc]);
/// Written by proxies about the client; from an untrusted client they are removed.
pub(super) const FORWARDING: NameSet = set_of(&[
    Name::Forwarded,
    Name::XForwardedFor,
    Name::XForwardedHost,
    Name::XForwardedPort,
    Name::XForwardedProto,
    Name::XRealIp,
]);
/// Written by the gateway about itself, the request and the client's certificate.
pub(super) const OWN: NameSet = set_of(&[
    Name::CdnLoop,
    Name::ClientCert,
    Name::ClientCertChain,
    Name::Via,
    Name::XRequestId,
]);
/// Fields of a head that are for every recipient.
const HEAD_ONLY: NameSet = set_of(&[
    Name::Authorization,
    Name::CacheControl,
    Name::CdnLoop,
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
    Name::Trailer,
    Name::Vary,
    Name::Via,
    Name::XRequestId,
]);
/// Fields that frame, route, authenticate or describe the message: a recipient needs them before
/// the content (RFC 9110 section 6.5.1).
pub(super) const NOT_IN_TRAILERS: NameSet = REQUEST_HOP
    | RESPONSE_HOP
    | FORWARDING
    | HEAD_ONLY
    | set_of(&[
        Name::Age,
        Name::Expires,
        Name::IfMatch,
        Name::IfModifiedSince,
        Name::IfNoneMatch,
        Name::IfRange,
        Name::IfUnmodifiedSince,
        Name::Location,
        Name::Pragma,
        Name::RetryAfter,
        Name::WwwAuthenticate,
    ]);
/// For every recipient, so naming them in `Connection` is an attack or a mistake: a proxy that
/// complied would remove fields that the application relies on (RFC 9110 section 7.6.1).
pub(super) const END_TO_END: NameSet = FORWARDING
    | HEAD_ONLY
    | set_of(&[
        Name::StrictTransportSecurity,
        Name::Traceparent,
        Name::Tracestate,
    ]);

/// Names that are present in a field section, so that most questions about it need no second pass.
#[derive(Clone, Copy)]
pub(super) struct PresenceSet {
    pub(super) names: NameSet,
    /// Some [other forwarding](is_other_forwarding) or [spoofed](is_spoofed) field.
    pub(super) has_others: bool,
}

impl PresenceSet {
    pub(super) fn of(fields: &Fields) -> PresenceSet {
        let names = fields.name_set().bits();
        // Most messages have known names only, whose text need not be read.
        let is_other =
            |(name, _): (FieldName<'_>, _)| is_other_forwarding(name) || is_spoofed(name);
        let has_others = names & set_of(&[Name::Other]) != 0 && fields.iter().any(is_other);
        PresenceSet { names, has_others }
    }

    pub(super) fn has(self, name: Name) -> bool {
        self.names & set_of(&[name]) != 0
    }
}

#[inline]
pub(super) fn is_in(set: NameSet, name: FieldName<'_>) -> bool {
    set & set_of(&[name.known()]) != 0
}

/// Whether the field is an `X-Forwarded-…` or tells the scheme, and is not in [`FORWARDING`]: only some
/// proxies know it.
#[inline]
pub(super) fn is_other_forwarding(name: FieldName<'_>) -> bool {
    name.known() == Name::Other && is_forwarding_name(name.as_bytes())
}

#[inline]
pub(super) fn is_forwarding_name(name: &[u8]) -> bool {
    has_forwarding_prefix(name) || is_scheme_name(name)
}

/// Whether it is a name without that prefix under which proxies tell the scheme.
#[inline]
pub(super) fn is_scheme_name(name: &[u8]) -> bool {
    // Few names have one of these lengths, so that most cost no comparison.
    let known = match name.len() {
        8 => "x-scheme",
        12 => "x-url-scheme",
        15 => "front-end-https",
        _ => return false,
    };
    name.eq_ignore_ascii_case(known.as_bytes())
}

fn has_forwarding_prefix(name: &[u8]) -> bool {
    const PREFIX: &[u8] = b"x-forwarded-";
    name.get(..PREFIX.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
}

/// Names whose other spellings are removed: hop-by-hop fields, fields that only the gateway writes,
/// and those that frame the content or tell its coding, which this server may have decoded.
const SPOOFABLE: NameSet =
    REQUEST_HOP | FORWARDING | set_of(&[Name::ContentEncoding, Name::ContentLength]);

/// Whether applications behind CGI, WSGI and the like would take the field for `SCRIPT_NAME`, or for one of
/// [`SPOOFABLE`]: to them `X_Forwarded_For`, `X.Forwarded.For` and `X-Forwarded-For` are the same
/// variable, since every character but letters and digits becomes `_`. Trusted proxies have no
/// reason to send such a name either.
#[inline]
pub(super) fn is_spoofed(name: FieldName<'_>) -> bool {
    let is_odd = |&byte: &u8| byte != b'-' && !byte.is_ascii_alphanumeric();
    name.known() == Name::Other
        && name.as_bytes().iter().any(is_odd)
        && is_spoofed_spelling(name.as_bytes())
}

/// Gunicorn takes these fields of a proxy on the same machine for the variables of WSGI, and drops that prefix of the path.
fn is_of_gunicorn(plain: &[u8]) -> bool {
    plain.eq_ignore_ascii_case(b"script-name") || plain.eq_ignore_ascii_case(b"path-info")
}

#[cold]
fn is_spoofed_spelling(name: &[u8]) -> bool {
    // Longer than any name in the set; of `X-Forwarded-…` the beginning is enough.
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
    is_forwarding_name(plain)
        || is_of_gunicorn(plain)
        || SPOOFABLE & set_of(&[Name::parse(plain)]) != 0
}
