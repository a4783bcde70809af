//! Field names: a number for each well-known name, text for all others.

use super::fields::is_token;
use crate::scan;

/// Declares [`Name`] together with its two spellings; other code relies on the order, see below.
macro_rules! names {
    ($($variant:ident $lower:literal $canonical:literal)*) => {
        /// A field name that Blitz or its users read (RFC 9110, section 16.3.1), or `Other`.
        ///
        /// A comparison of two known names compares two bytes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Name {
            $(#[doc = concat!("`", $canonical, "`")] $variant,)*
            /// Any name that is not in this list; the field holds its text.
            Other,
        }

        const LOWER: &[&str] = &[$($lower),*];
        const CANONICAL: &[&str] = &[$($canonical),*];
        const LINE_STARTS: &[&str] = &[$(concat!($canonical, ": ")),*];
        const KNOWN: &[Name] = &[$(Name::$variant),*];
    };
}

// The names that frame or route an HTTP/1 message come first, up to `Keep-Alive`, then the other
// hop-by-hop fields, up to `HTTP2-Settings`: each test for such a group is then a single comparison
// per field, see `Name::frames_or_routes` and `Name::may_be_hop_by_hop`.
names! {
    Host "host" "Host"
    ContentLength "content-length" "Content-Length"
    TransferEncoding "transfer-encoding" "Transfer-Encoding"
    Connection "connection" "Connection"
    Upgrade "upgrade" "Upgrade"
    Expect "expect" "Expect"
    KeepAlive "keep-alive" "Keep-Alive"
    ProxyConnection "proxy-connection" "Proxy-Connection"
    Te "te" "TE"
    Trailer "trailer" "Trailer"
    Http2Settings "http2-settings" "HTTP2-Settings"
    Accept "accept" "Accept"
    AcceptCharset "accept-charset" "Accept-Charset"
    AcceptEncoding "accept-encoding" "Accept-Encoding"
    AcceptLanguage "accept-language" "Accept-Language"
    AcceptRanges "accept-ranges" "Accept-Ranges"
    AccessControlAllowHeaders "access-control-allow-headers" "Access-Control-Allow-Headers"
    AccessControlAllowMethods "access-control-allow-methods" "Access-Control-Allow-Methods"
    AccessControlAllowOrigin "access-control-allow-origin" "Access-Control-Allow-Origin"
    AccessControlExposeHeaders "access-control-expose-headers" "Access-Control-Expose-Headers"
    AccessControlMaxAge "access-control-max-age" "Access-Control-Max-Age"
    AccessControlRequestHeaders "access-control-request-headers" "Access-Control-Request-Headers"
    AccessControlRequestMethod "access-control-request-method" "Access-Control-Request-Method"
    Age "age" "Age"
    Allow "allow" "Allow"
    AltSvc "alt-svc" "Alt-Svc"
    AuthenticationInfo "authentication-info" "Authentication-Info"
    Authorization "authorization" "Authorization"
    CacheControl "cache-control" "Cache-Control"
    CacheStatus "cache-status" "Cache-Status"
    CdnLoop "cdn-loop" "CDN-Loop"
    ClientCert "client-cert" "Client-Cert"
    ClientCertChain "client-cert-chain" "Client-Cert-Chain"
    ContentDigest "content-digest" "Content-Digest"
    ContentDisposition "content-disposition" "Content-Disposition"
    ContentEncoding "content-encoding" "Content-Encoding"
    ContentLanguage "content-language" "Content-Language"
    ContentLocation "content-location" "Content-Location"
    ContentRange "content-range" "Content-Range"
    ContentSecurityPolicy "content-security-policy" "Content-Security-Policy"
    ContentType "content-type" "Content-Type"
    Cookie "cookie" "Cookie"
    Date "date" "Date"
    Dnt "dnt" "DNT"
    EarlyData "early-data" "Early-Data"
    Etag "etag" "ETag"
    Expires "expires" "Expires"
    Forwarded "forwarded" "Forwarded"
    From "from" "From"
    IfMatch "if-match" "If-Match"
    IfModifiedSince "if-modified-since" "If-Modified-Since"
    IfNoneMatch "if-none-match" "If-None-Match"
    IfRange "if-range" "If-Range"
    IfUnmodifiedSince "if-unmodified-since" "If-Unmodified-Since"
    LastModified "last-modified" "Last-Modified"
    Link "link" "Link"
    Location "location" "Location"
    MaxForwards "max-forwards" "Max-Forwards"
    Origin "origin" "Origin"
    Pragma "pragma" "Pragma"
    Priority "priority" "Priority"
    Proxy "proxy" "Proxy"
    ProxyAuthenticate "proxy-authenticate" "Proxy-Authenticate"
    ProxyAuthenticationInfo "proxy-authentication-info" "Proxy-Authentication-Info"
    ProxyAuthorization "proxy-authorization" "Proxy-Authorization"
    ProxyStatus "proxy-status" "Proxy-Status"
    Range "range" "Range"
    RateLimit "ratelimit" "RateLimit"
    RateLimitPolicy "ratelimit-policy" "RateLimit-Policy"
    Referer "referer" "Referer"
    ReferrerPolicy "referrer-policy" "Referrer-Policy"
    Refresh "refresh" "Refresh"
    RetryAfter "retry-after" "Retry-After"
    SecChUa "sec-ch-ua" "Sec-CH-UA"
    SecChUaMobile "sec-ch-ua-mobile" "Sec-CH-UA-Mobile"
    SecChUaPlatform "sec-ch-ua-platform" "Sec-CH-UA-Platform"
    SecFetchDest "sec-fetch-dest" "Sec-Fetch-Dest"
    SecFetchMode "sec-fetch-mode" "Sec-Fetch-Mode"
    SecFetchSite "sec-fetch-site" "Sec-Fetch-Site"
    SecFetchUser "sec-fetch-user" "Sec-Fetch-User"
    SecWebSocketAccept "sec-websocket-accept" "Sec-WebSocket-Accept"
    SecWebSocketExtensions "sec-websocket-extensions" "Sec-WebSocket-Extensions"
    SecWebSocketKey "sec-websocket-key" "Sec-WebSocket-Key"
    SecWebSocketProtocol "sec-websocket-protocol" "Sec-WebSocket-Protocol"
    SecWebSocketVersion "sec-websocket-version" "Sec-WebSocket-Version"
    Server "server" "Server"
    ServerTiming "server-timing" "Server-Timing"
    SetCookie "set-cookie" "Set-Cookie"
    StrictTransportSecurity "strict-transport-security" "Strict-Transport-Security"
    Traceparent "traceparent" "Traceparent"
    Tracestate "tracestate" "Tracestate"
    UpgradeInsecureRequests "upgrade-insecure-requests" "Upgrade-Insecure-Requests"
    UserAgent "user-agent" "User-Agent"
    Vary "vary" "Vary"
    Via "via" "Via"
    WwwAuthenticate "www-authenticate" "WWW-Authenticate"
    XContentTypeOptions "x-content-type-options" "X-Content-Type-Options"
    XForwardedFor "x-forwarded-for" "X-Forwarded-For"
    XForwardedHost "x-forwarded-host" "X-Forwarded-Host"
    XForwardedPort "x-forwarded-port" "X-Forwarded-Port"
    XForwardedProto "x-forwarded-proto" "X-Forwarded-Proto"
    XFrameOptions "x-frame-options" "X-Frame-Options"
    XRealIp "x-real-ip" "X-Real-IP"
    XRequestId "x-request-id" "X-Request-Id"
    XRequestedWith "x-requested-with" "X-Requested-With"
}

impl Name {
    /// Recognises a name in any case. Unknown text, valid or not, is [`Name::Other`].
    #[inline]
    #[must_use]
    pub fn parse(text: &[u8]) -> Name {
        let guess = Name::guess(text);
        if text.eq_ignore_ascii_case(guess.as_str().as_bytes()) {
            guess
        } else {
            Name::Other
        }
    }

    /// The only known name that the text can be, or `Other`.
    #[inline]
    pub(crate) fn guess(text: &[u8]) -> Name {
        let index = SLOTS.of_index[slot_of(SLOTS.seed, text)];
        KNOWN.get(index as usize).copied().unwrap_or(Name::Other)
    }

    /// The pattern of a line that begins with this name.
    #[inline]
    pub(crate) const fn pattern(self) -> &'static NamePattern {
        &PATTERNS[self as usize % PATTERNS.len()]
    }

    /// The name in lower case, as HTTP/2 and HTTP/3 spell it; empty for [`Name::Other`].
    #[inline]
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        if (self as usize) < LOWER.len() {
            LOWER[self as usize]
        } else {
            ""
        }
    }

    /// The name as HTTP/1 traditionally spells it; empty for [`Name::Other`].
    #[inline]
    #[must_use]
    pub fn canonical(self) -> &'static str {
        CANONICAL.get(self as usize).copied().unwrap_or("")
    }

    /// The start of an HTTP/1 line with this name: a block and the number of bytes to use; 0 bytes
    /// for [`Name::Other`].
    #[inline]
    pub(crate) fn line_start(self) -> (&'static [u8; 32], usize) {
        let pattern = self.pattern();
        (&pattern.line_start, pattern.line_start_len)
    }

    /// All known names, in declaration order.
    #[must_use]
    pub fn all() -> &'static [Name] {
        KNOWN
    }

    /// Whether the HTTP/1 encoder generates this field, so that it skips the field of a head.
    #[inline]
    pub(crate) fn is_generated(self) -> bool {
        self.may_be_hop_by_hop()
            && matches!(
                self,
                Name::ContentLength
                    | Name::TransferEncoding
                    | Name::Connection
                    | Name::KeepAlive
                    | Name::ProxyConnection
            )
    }

    /// Whether the field may be hop-by-hop. Also true for a few end-to-end fields.
    #[inline]
    pub(crate) fn may_be_hop_by_hop(self) -> bool {
        self as u8 <= Name::Http2Settings as u8
    }

    /// Fields for framing, routing, authentication, request modifiers, response control and content
    /// format are forbidden: a recipient that merged them into the head would accept forged values.
    pub(crate) fn is_forbidden_in_trailers(self) -> bool {
        use Name as N;
        self.frames_or_routes()
            || matches!(self, N::ProxyConnection | N::Te | N::Trailer)
            || matches!(
                self,
                N::Http2Settings | N::Forwarded | N::Via | N::MaxForwards | N::Proxy
            )
            || matches!(
                self,
                N::XForwardedFor | N::XForwardedHost | N::XForwardedPort
            )
            || matches!(
                self,
                N::XForwardedProto | N::XRealIp | N::ClientCert | N::ClientCertChain
            )
            || matches!(
                self,
                N::Authorization | N::ProxyAuthorization | N::Cookie | N::SetCookie
            )
            || matches!(
                self,
                N::WwwAuthenticate | N::ProxyAuthenticate | N::CacheControl
            )
            || matches!(
                self,
                N::IfMatch | N::IfNoneMatch | N::IfRange | N::IfModifiedSince
            )
            || matches!(
                self,
                N::IfUnmodifiedSince | N::Age | N::Date | N::Expires | N::Location
            )
            || matches!(
                self,
                N::RetryAfter | N::Vary | N::ContentEncoding | N::ContentType
            )
            || matches!(self, N::ContentRange | N::Range)
    }

    /// Whether the HTTP/1 parser needs the value to frame or route the message, or for the connection.
    #[inline]
    pub(crate) fn frames_or_routes(self) -> bool {
        self as u8 <= Name::KeepAlive as u8
    }
}

/// A set of names, of which [`Name::Other`] is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NameSet([u64; 2]);

const _: () = assert!((Name::Other as u8) < 128, "a set has room for 128 names");

impl NameSet {
    /// The set of all names.
    pub const ALL: NameSet = NameSet([u64::MAX; 2]);

    /// Adds a name.
    #[inline]
    pub fn insert(&mut self, name: Name) {
        // Two words are shifted with fewer instructions than a number of 128 bits.
        let bit = name as usize;
        self.0[bit / 64 % 2] |= 1 << (bit % 64);
    }

    /// Whether it has the name.
    #[inline]
    #[must_use]
    pub fn has(&self, name: Name) -> bool {
        let bit = name as usize;
        self.0[bit / 64 % 2] >> (bit % 64) & 1 != 0
    }

    /// The set as a number, in which each name has the bit of its place.
    #[inline]
    #[must_use]
    pub fn bits(&self) -> u128 {
        u128::from(self.0[0]) | u128::from(self.0[1]) << 64
    }
}

/// The name of a field: a [`Name`] or its text in any case.
pub trait AsName {
    /// The known name, or [`Name::Other`].
    fn known(&self) -> Name;
    /// The text to write for a name that is [`Name::Other`].
    fn text(&self) -> &str;
    /// Whether HTTP allows the name.
    fn is_valid(&self) -> bool {
        is_token(self.text().as_bytes())
    }
}

impl AsName for Name {
    fn known(&self) -> Name {
        *self
    }
    fn text(&self) -> &str {
        self.canonical()
    }
}

impl AsName for &str {
    fn known(&self) -> Name {
        Name::parse(self.as_bytes())
    }
    fn text(&self) -> &str {
        self
    }
}

/// Matches lines that begin with a known name.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct NamePattern {
    start: scan::BytePattern,
    /// The same for the next sixteen bytes.
    end: scan::BytePattern,
    line_start: [u8; 32],
    line_start_len: usize,
    len: usize,
}

const _: () = assert!(size_of::<NamePattern>() == 128);

impl NamePattern {
    /// Bytes of the name; 0 for `Other`.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether the lines begin with the name, in any case, and a colon; always false for `Other`.
    ///
    /// This runs for every received field, so it uses few instructions. It misses names at the very end
    /// of the input, and it may match control characters instead of other characters.
    #[inline]
    pub(crate) fn is_prefix_of(&self, lines: &[u8]) -> bool {
        let starts = |chunk| scan::matches(chunk, &self.start);
        lines.first_chunk().is_some_and(starts) && (self.len < 16 || self.ends(lines))
    }

    #[cold]
    fn ends(&self, lines: &[u8]) -> bool {
        lines[16..]
            .first_chunk()
            .is_some_and(|chunk| scan::matches(chunk, &self.end))
    }
}

/// Indexed by name. The length is a power of two, so that the index needs no bounds check.
static PATTERNS: [NamePattern; 128] = {
    assert!(KNOWN.len() < 128);
    let mut all = [const { NO_PATTERN }; 128];
    let mut index = 0;
    while index < LOWER.len() {
        all[index] = pattern(LOWER[index].as_bytes());
        let line_start = LINE_STARTS[index].as_bytes();
        let (front, _) = all[index].line_start.split_at_mut(line_start.len());
        front.copy_from_slice(line_start);
        all[index].line_start_len = line_start.len();
        index += 1;
    }
    all
};

const NO_PATTERN: NamePattern = NamePattern {
    start: scan::NOTHING,
    end: scan::NOTHING,
    line_start: [0; 32],
    line_start_len: 0,
    len: 0,
};

const fn pattern(spelling: &[u8]) -> NamePattern {
    assert!(spelling.len() < 32, "no room for the colon");
    let mut text = [0; 32];
    let mut mask = [0; 32];
    let mut at = 0;
    while at <= spelling.len() {
        text[at] = if at < spelling.len() {
            spelling[at]
        } else {
            b':'
        };
        mask[at] = u8::MAX;
        at += 1;
    }
    let (text, _) = text.as_chunks();
    let (mask, _) = mask.as_chunks();
    NamePattern {
        start: scan::BytePattern {
            lower: text[0],
            mask: mask[0],
        },
        end: scan::BytePattern {
            lower: text[1],
            mask: mask[1],
        },
        len: spelling.len(),
        ..NO_PATTERN
    }
}

/// A perfect hash: with this seed, every known name has its own slot.
struct Slots {
    seed: u32,
    of_index: [u8; SLOT_COUNT],
}

// The compiler finds the seed, so a new name needs only its line above. If the compiler complains of
// a long evaluation, start from another odd number.
static SLOTS: Slots = find_slots();

const SEED_FIRST: u32 = 0x44D3_675B;

const SLOT_COUNT: usize = 1024;

const VACANT: u8 = u8::MAX;

const fn find_slots() -> Slots {
    let mut seed = SEED_FIRST;
    loop {
        if let Some(of_index) = try_seed(seed) {
            return Slots { seed, of_index };
        }
        seed = seed.wrapping_mul(5).wrapping_add(2);
    }
}

const fn try_seed(seed: u32) -> Option<[u8; SLOT_COUNT]> {
    let mut slots = [VACANT; SLOT_COUNT];
    let mut index = 0;
    while index < LOWER.len() {
        let slot = slot_of(seed, LOWER[index].as_bytes());
        if slots[slot] != VACANT {
            return None;
        }
        slots[slot] = index as u8;
        index += 1;
    }
    Some(slots)
}

/// Length, first byte and the last four bytes, without their case, distinguish all known names.
#[inline]
const fn slot_of(seed: u32, text: &[u8]) -> usize {
    let tail = match text.last_chunk::<4>() {
        Some(tail) => u32::from_le_bytes(*tail),
        None => match text {
            [a, b, c] => u32::from_le_bytes([*a, *b, *c, 0]),
            [a, b] => u32::from_le_bytes([*a, *b, 0, 0]),
            [a] => *a as u32,
            _ => return 0,
        },
    };
    let ends = text.len() as u32 | ((text[0] | 0x20) as u32) << 8;
    let key = (tail | 0x2020_2020) ^ ends.wrapping_mul(0x9E37_79B1);
    (key.wrapping_mul(seed) >> 22) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begins(name: Name, text: &[u8]) -> bool {
        name.pattern()
            .is_prefix_of(&[text, b": some value that makes the line long enough"].concat())
    }

    #[test]
    fn every_name_is_recognised_in_any_case() {
        for &name in Name::all() {
            let lower = name.as_str();
            assert_eq!(lower, name.canonical().to_ascii_lowercase());
            for text in [lower, name.canonical(), &lower.to_ascii_uppercase()] {
                assert_eq!(Name::parse(text.as_bytes()), name);
                assert!(begins(name, text.as_bytes()));
            }
        }
        assert_eq!(Name::parse(b""), Name::Other);
        assert!(!begins(Name::Other, b""));
    }

    #[test]
    fn one_changed_byte_makes_another_name() {
        for &name in Name::all() {
            for at in 0..name.as_str().len() {
                for bit in 0..8 {
                    let mut text = name.as_str().as_bytes().to_vec();
                    text[at] ^= 1 << bit;
                    let is_same = text.eq_ignore_ascii_case(name.as_str().as_bytes());
                    assert_eq!(Name::parse(&text) == name, is_same, "{text:?}");
                    if !text[at].is_ascii_control() {
                        assert_eq!(begins(name, &text), is_same, "{text:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_name_ends_with_its_colon() {
        for &name in Name::all() {
            let longer = format!("{}x", name.as_str());
            assert_eq!(Name::parse(longer.as_bytes()), Name::Other);
            assert!(!begins(name, longer.as_bytes()), "{longer}");
        }
    }
}
