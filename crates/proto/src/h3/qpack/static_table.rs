//! The static table (RFC 9204, Appendix A).

use crate::field_compression::table::ENTRY_OVERHEAD;
use crate::field_section::{LineName, Pseudo};
use crate::message::Name;
use LineName::{Field as F, Pseudo as P};

/// Entries of the static table; indices count from 0.
pub(crate) const LEN: usize = 99;

/// A field of the table.
#[derive(Debug)]
pub(crate) struct StaticEntry {
    pub(crate) name: LineName,
    /// The name's text, unless it is known.
    pub(crate) name_text: &'static str,
    pub(crate) value: &'static str,
    /// As RFC 9204 counts it.
    pub(crate) size: u32,
}

/// The entry at an index.
#[inline]
pub(crate) fn get(index: u64) -> Option<&'static StaticEntry> {
    ENTRIES.get(usize::try_from(index).ok()?)
}

/// The first index with a known name.
#[inline]
pub(crate) fn index_of_name(name: LineName) -> Option<u8> {
    let index = match name {
        P(pseudo) => OF_PSEUDO[pseudo as usize],
        F(name) => OF_NAME[name as usize % OF_NAME.len()],
    };
    (index != NONE).then_some(index)
}

/// The index of the entry with a known name and this value, if there is one that is at `first` or behind it.
#[inline]
pub(crate) fn find(first: u8, value: &[u8]) -> Option<u8> {
    let mut index = first;
    while index != NONE {
        if ENTRIES[usize::from(index)].value.as_bytes() == value {
            return Some(index);
        }
        index = NEXT[usize::from(index)];
    }
    None
}

const NONE: u8 = u8::MAX;

/// Names that are not known otherwise.
const OTHER: LineName = F(Name::Other);

const TABLE: [(LineName, &str, &str); LEN] = [
    (P(Pseudo::Authority), "", ""),
    (P(Pseudo::Path), "", "/"),
    (F(Name::Age), "", "0"),
    (F(Name::ContentDisposition), "", ""),
    (F(Name::ContentLength), "", "0"),
    (F(Name::Cookie), "", ""),
    (F(Name::Date), "", ""),
    (F(Name::Etag), "", ""),
    (F(Name::IfModifiedSince), "", ""),
    (F(Name::IfNoneMatch), "", ""),
    (F(Name::LastModified), "", ""),
    (F(Name::Link), "", ""),
    (F(Name::Location), "", ""),
    (F(Name::Referer), "", ""),
    (F(Name::SetCookie), "", ""),
    (P(Pseudo::Method), "", "CONNECT"),
    (P(Pseudo::Method), "", "DELETE"),
    (P(Pseudo::Method), "", "GET"),
    (P(Pseudo::Method), "", "HEAD"),
    (P(Pseudo::Method), "", "OPTIONS"),
    (P(Pseudo::Method), "", "POST"),
    (P(Pseudo::Method), "", "PUT"),
    (P(Pseudo::Scheme), "", "http"),
    (P(Pseudo::Scheme), "", "https"),
    (P(Pseudo::Status), "", "103"),
    (P(Pseudo::Status), "", "200"),
    (P(Pseudo::Status), "", "304"),
    (P(Pseudo::Status), "", "404"),
    (P(Pseudo::Status), "", "503"),
    (F(Name::Accept), "", "*/*"),
    (F(Name::Accept), "", "application/dns-message"),
    (F(Name::AcceptEncoding), "", "gzip, deflate, br"),
    (F(Name::AcceptRanges), "", "bytes"),
    (F(Name::AccessControlAllowHeaders), "", "cache-control"),
    (F(Name::AccessControlAllowHeaders), "", "content-type"),
    (F(Name::AccessControlAllowOrigin), "", "*"),
    (F(Name::CacheControl), "", "max-age=0"),
    (F(Name::CacheControl), "", "max-age=2592000"),
    (F(Name::CacheControl), "", "max-age=604800"),
    (F(Name::CacheControl), "", "no-cache"),
    (F(Name::CacheControl), "", "no-store"),
    (F(Name::CacheControl), "", "public, max-age=31536000"),
    (F(Name::ContentEncoding), "", "br"),
    (F(Name::ContentEncoding), "", "gzip"),
    (F(Name::ContentType), "", "application/dns-message"),
    (F(Name::ContentType), "", "application/javascript"),
    (F(Name::ContentType), "", "application/json"),
    (
        F(Name::ContentType),
        "",
        "application/x-www-form-urlencoded",
    ),
    (F(Name::ContentType), "", "image/gif"),
    (F(Name::ContentType), "", "image/jpeg"),
    (F(Name::ContentType), "", "image/png"),
    (F(Name::ContentType), "", "text/css"),
    (F(Name::ContentType), "", "text/html; charset=utf-8"),
    (F(Name::ContentType), "", "text/plain"),
    (F(Name::ContentType), "", "text/plain;charset=utf-8"),
    (F(Name::Range), "", "bytes=0-"),
    (F(Name::StrictTransportSecurity), "", "max-age=31536000"),
    (
        F(Name::StrictTransportSecurity),
        "",
        "max-age=31536000; includesubdomains",
    ),
    (
        F(Name::StrictTransportSecurity),
        "",
        "max-age=31536000; includesubdomains; preload",
    ),
    (F(Name::Vary), "", "accept-encoding"),
    (F(Name::Vary), "", "origin"),
    (F(Name::XContentTypeOptions), "", "nosniff"),
    (OTHER, "x-xss-protection", "1; mode=block"),
    (P(Pseudo::Status), "", "100"),
    (P(Pseudo::Status), "", "204"),
    (P(Pseudo::Status), "", "206"),
    (P(Pseudo::Status), "", "302"),
    (P(Pseudo::Status), "", "400"),
    (P(Pseudo::Status), "", "403"),
    (P(Pseudo::Status), "", "421"),
    (P(Pseudo::Status), "", "425"),
    (P(Pseudo::Status), "", "500"),
    (F(Name::AcceptLanguage), "", ""),
    (OTHER, "access-control-allow-credentials", "FALSE"),
    (OTHER, "access-control-allow-credentials", "TRUE"),
    (F(Name::AccessControlAllowHeaders), "", "*"),
    (F(Name::AccessControlAllowMethods), "", "get"),
    (F(Name::AccessControlAllowMethods), "", "get, post, options"),
    (F(Name::AccessControlAllowMethods), "", "options"),
    (F(Name::AccessControlExposeHeaders), "", "content-length"),
    (F(Name::AccessControlRequestHeaders), "", "content-type"),
    (F(Name::AccessControlRequestMethod), "", "get"),
    (F(Name::AccessControlRequestMethod), "", "post"),
    (F(Name::AltSvc), "", "clear"),
    (F(Name::Authorization), "", ""),
    (
        F(Name::ContentSecurityPolicy),
        "",
        "script-src 'none'; object-src 'none'; base-uri 'none'",
    ),
    (F(Name::EarlyData), "", "1"),
    (OTHER, "expect-ct", ""),
    (F(Name::Forwarded), "", ""),
    (F(Name::IfRange), "", ""),
    (F(Name::Origin), "", ""),
    (OTHER, "purpose", "prefetch"),
    (F(Name::Server), "", ""),
    (OTHER, "timing-allow-origin", "*"),
    (F(Name::UpgradeInsecureRequests), "", "1"),
    (F(Name::UserAgent), "", ""),
    (F(Name::XForwardedFor), "", ""),
    (F(Name::XFrameOptions), "", "deny"),
    (F(Name::XFrameOptions), "", "sameorigin"),
];

static ENTRIES: [StaticEntry; LEN] = {
    let mut entries = [const {
        StaticEntry {
            name: OTHER,
            name_text: "",
            value: "",
            size: 0,
        }
    }; LEN];
    let mut at = 0;
    while at < LEN {
        let (name, name_text, value) = TABLE[at];
        let name_len = name.known_text().len() + name_text.len();
        entries[at] = StaticEntry {
            name,
            name_text,
            value,
            size: (name_len + value.len() + ENTRY_OVERHEAD) as u32,
        };
        at += 1;
    }
    entries
};

static OF_PSEUDO: [u8; 6] = {
    let mut of = [NONE; 6];
    let mut index = LEN;
    while index > 0 {
        index -= 1;
        if let P(pseudo) = TABLE[index].0 {
            of[pseudo as usize] = index as u8;
        }
    }
    of
};

/// Indexed by name. The length is a power of two, so that the index needs no bounds check.
static OF_NAME: [u8; 128] = {
    let mut of = [NONE; 128];
    let mut index = LEN;
    while index > 0 {
        index -= 1;
        if let F(name) = TABLE[index].0
            && !matches!(name, Name::Other)
        {
            of[name as usize] = index as u8;
        }
    }
    of
};

/// The next entry with the same known name.
static NEXT: [u8; LEN] = {
    let mut next = [NONE; LEN];
    let mut last_of = [NONE; 0x200];
    let mut index = LEN;
    while index > 0 {
        index -= 1;
        let code = TABLE[index].0.code() as usize;
        next[index] = last_of[code];
        last_of[code] = index as u8;
    }
    next
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_their_entries() {
        for (name, index) in [
            (P(Pseudo::Authority), Some(0)),
            (P(Pseudo::Status), Some(24)),
            (P(Pseudo::Protocol), None),
            (F(Name::ContentType), Some(44)),
            (F(Name::XFrameOptions), Some(97)),
            (F(Name::Other), None),
            (F(Name::Traceparent), None),
        ] {
            assert_eq!(index_of_name(name), index, "{name:?}");
        }
        assert!(get(98).is_some() && get(99).is_none() && get(u64::MAX).is_none());
    }

    #[test]
    fn each_entry_is_found_by_name_and_value() {
        for (at, entry) in ENTRIES.iter().enumerate() {
            if entry.name_text.is_empty() {
                let first = index_of_name(entry.name).expect("a known name");
                assert_eq!(find(first, entry.value.as_bytes()), Some(at as u8));
                assert_eq!(find(first, b"another value"), None);
            } else {
                let (name, problem) = LineName::parse(entry.name_text.as_bytes());
                assert_eq!((name, problem), (OTHER, None), "{}", entry.name_text);
            }
        }
    }
}
