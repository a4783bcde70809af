//! Content of requests with a content coding, which is decoded on its way to the upstream (RFC 9110, section 8.4).

mod algorithm;
mod decoder;

use blitz_http::{Fields, Name};

use crate::compress::OF_BYTES;
use crate::rejection::Rejection;

pub use decoder::Decoder;

/// The codings that are decoded, as a response tells them: RFC 9110, section 15.5.16: "the Accept-Encoding response header
/// field ought to be used to indicate which (if any) content codings would have been accepted".
pub const ACCEPTED_CODINGS: &str = "zstd, br, gzip, deflate";

/// A coding of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestCoding {
    /// RFC 1952, also called `x-gzip`.
    Gzip,
    /// RFC 1950: zlib.
    Deflate,
    /// RFC 7932.
    Brotli,
    /// RFC 8878.
    Zstandard,
}

impl RequestCoding {
    /// All.
    pub const ALL: [RequestCoding; 4] = [
        RequestCoding::Gzip,
        RequestCoding::Deflate,
        RequestCoding::Brotli,
        RequestCoding::Zstandard,
    ];

    /// The coding of a request; `None` if it has none.
    ///
    /// # Errors
    /// The coding is not known, or there are several, which nobody but attackers sends: filters may know one of them only.
    pub fn of(fields: &Fields) -> Result<Option<RequestCoding>, Rejection> {
        let mut found = None;
        let lines = fields.get_all(Name::ContentEncoding);
        for member in lines.flat_map(|line| line.split(|byte| *byte == b',')) {
            let name = member.trim_ascii();
            if name.is_empty() || name.eq_ignore_ascii_case(b"identity") {
                continue;
            }
            let coding = RequestCoding::named(name).ok_or(Rejection::ContentCoding)?;
            if found.replace(coding).is_some() {
                return Err(Rejection::ContentCoding);
            }
        }
        Ok(found)
    }

    fn named(name: &[u8]) -> Option<RequestCoding> {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        match () {
            () if is("gzip") || is("x-gzip") => Some(RequestCoding::Gzip),
            () if is("deflate") => Some(RequestCoding::Deflate),
            () if is("br") => Some(RequestCoding::Brotli),
            () if is("zstd") => Some(RequestCoding::Zstandard),
            () => None,
        }
    }

    /// Removes the fields of a request that are about the bytes of its content as the client sent them.
    pub fn remove_from(fields: &mut Fields) {
        fields.remove(Name::ContentEncoding);
        fields.remove(Name::ContentLength);
        for name in OF_BYTES {
            fields.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_known_coding_is_decoded() {
        let of = |lines: &[&str]| {
            let mut fields = Fields::new();
            for line in lines {
                fields.append(Name::ContentEncoding, *line);
            }
            RequestCoding::of(&fields)
        };
        let refused = Err(Rejection::ContentCoding);
        for (lines, expected) in [
            (&[][..], Ok(None)),
            (&[""], Ok(None)),
            (&["identity"], Ok(None)),
            (&["gzip"], Ok(Some(RequestCoding::Gzip))),
            (&["X-GZip"], Ok(Some(RequestCoding::Gzip))),
            (&[" br , ,identity"], Ok(Some(RequestCoding::Brotli))),
            (&["identity", "zstd"], Ok(Some(RequestCoding::Zstandard))),
            (&["DEFLATE"], Ok(Some(RequestCoding::Deflate))),
            (&["gzip, gzip"], refused),
            (&["gzip", "br"], refused),
            (&["compress"], refused),
            (&["gzip;q=1"], refused),
            (&["*"], refused),
            (&["gzip\u{a0}"], refused),
        ] {
            assert_eq!(of(lines), expected, "{lines:?}");
        }
    }
}
