//! The static table (RFC 7541, Appendix A).

use crate::field_compression::table::ENTRY_OVERHEAD;
use crate::field_section::{LineName, Pseudo};
use crate::message::Name;
use LineName::{Field as F, Pseudo as P};

/// Entries of the static table; indices count from 1.
pub(crate) const LEN: usize = 61;

/// A field of the table.
#[derive(Debug)]
pub(crate) struct StaticEntry {
    pub(crate) name: LineName,
    pub(crate) value: &'static str,
    /// As RFC 7541 counts it.
    pub(crate) size: u32,
}

/// The entry at an index from 1 to [`LEN`].
#[inline]
pub(crate) fn get(index: usize) -> Option<&'static StaticEntry> {
    ENTRIES.get(index.wrapping_sub(1))
}

/// The first index with this name; 0 if there is none.
#[inline]
pub(crate) fn index_of_name(name: LineName) -> usize {
    match name {
        LineName::Pseudo(pseudo) => usize::from(OF_PSEUDO[pseudo as usize]),
        LineName::Field(name) => usize::from(OF_NAME[name as usize % OF_NAME.len()]),
    }
}

const TABLE: [(LineName, &str); LEN] = [
    (P(Pseudo::Authority), ""),
    (P(Pseudo::Method), "GET"),
    (P(Pseudo::Method), "POST"),
    (P(Pseudo::Path), "/"),
    (P(Pseudo::Path), "/index.html"),
    (P(Pseudo::Scheme), "http"),
    (P(Pseudo::Scheme), "https"),
    (P(Pseudo::Status), "200"),
    (P(Pseudo::Status), "204"),
    (P(Pseudo::Status), "206"),
    (P(Pseudo::Status), "304"),
    (P(Pseudo::Status), "400"),
    (P(Pseudo::Status), "404"),
    (P(Pseudo::Status), "500"),
    (F(Name::AcceptCharset), ""),
    (F(Name::AcceptEncoding), "gzip, deflate"),
    (F(Name::AcceptLanguage), ""),
    (F(Name::AcceptRanges), ""),
    (F(Name::Accept), ""),
    (F(Name::AccessControlAllowOrigin), ""),
    (F(Name::Age), ""),
    (F(Name::Allow), ""),
    (F(Name::Authorization), ""),
    (F(Name::CacheControl), ""),
    (F(Name::ContentDisposition), ""),
    (F(Name::ContentEncoding), ""),
    (F(Name::ContentLanguage), ""),
    (F(Name::ContentLength), ""),
    (F(Name::ContentLocation), ""),
    (F(Name::ContentRange), ""),
    (F(Name::ContentType), ""),
    (F(Name::Cookie), ""),
    (F(Name::Date), ""),
    (F(Name::Etag), ""),
    (F(Name::Expect), ""),
    (F(Name::Expires), ""),
    (F(Name::From), ""),
    (F(Name::Host), ""),
    (F(Name::IfMatch), ""),
    (F(Name::IfModifiedSince), ""),
    (F(Name::IfNoneMatch), ""),
    (F(Name::IfRange), ""),
    (F(Name::IfUnmodifiedSince), ""),
    (F(Name::LastModified), ""),
    (F(Name::Link), ""),
    (F(Name::Location), ""),
    (F(Name::MaxForwards), ""),
    (F(Name::ProxyAuthenticate), ""),
    (F(Name::ProxyAuthorization), ""),
    (F(Name::Range), ""),
    (F(Name::Referer), ""),
    (F(Name::Refresh), ""),
    (F(Name::RetryAfter), ""),
    (F(Name::Server), ""),
    (F(Name::SetCookie), ""),
    (F(Name::StrictTransportSecurity), ""),
    (F(Name::TransferEncoding), ""),
    (F(Name::UserAgent), ""),
    (F(Name::Vary), ""),
    (F(Name::Via), ""),
    (F(Name::WwwAuthenticate), ""),
];

static ENTRIES: [StaticEntry; LEN] = {
    let mut entries = [const {
        StaticEntry {
            name: TABLE[0].0,
            value: "",
            size: 0,
        }
    }; LEN];
    let mut at = 0;
    while at < LEN {
        let (name, value) = TABLE[at];
        let size = name.known_text().len() + value.len() + ENTRY_OVERHEAD;
        entries[at] = StaticEntry {
            name,
            value,
            size: size as u32,
        };
        at += 1;
    }
    entries
};

static OF_PSEUDO: [u8; 6] = {
    let mut of = [0; 6];
    let mut index = LEN;
    while index > 0 {
        if let P(pseudo) = TABLE[index - 1].0 {
            of[pseudo as usize] = index as u8;
        }
        index -= 1;
    }
    of
};

/// Indexed by name. The length is a power of two, so that the index needs no bounds check.
static OF_NAME: [u8; 128] = {
    let mut of = [0; 128];
    let mut index = LEN;
    while index > 0 {
        if let F(name) = TABLE[index - 1].0 {
            of[name as usize] = index as u8;
        }
        index -= 1;
    }
    of
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_their_first_entry() {
        for (name, index) in [
            (P(Pseudo::Authority), 1),
            (P(Pseudo::Path), 4),
            (P(Pseudo::Status), 8),
            (P(Pseudo::Protocol), 0),
            (F(Name::AcceptCharset), 15),
            (F(Name::Cookie), 32),
            (F(Name::WwwAuthenticate), 61),
            (F(Name::Other), 0),
            (F(Name::Traceparent), 0),
        ] {
            assert_eq!(index_of_name(name), index, "{name:?}");
        }
        assert!(get(0).is_none() && get(62).is_none());
    }
}
