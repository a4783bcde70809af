//! Compression of responses for clients that accept it.
//!
//! The decision has two parts. The coding is chosen when the request arrives, from the client's own fields. Whether a
//! response is compressed follows from its head, with the changes of the route. Responses that could have been
//! compressed have `Vary: Accept-Encoding`, whatever the client accepts.

mod coder;
mod encoder;
mod media_range;

use blitz_http::{
    BodyLength, Chunk, Fields, Method, Name, RequestHead, ResponseHead, Status, Version,
};

use crate::coding::{AcceptedCodings, ContentCoding};

pub use encoder::{Encoder, STEP_BYTES};
pub use media_range::MediaRange;

pub(crate) use encoder::note_compressed;

/// Fields about the bytes of the content as its sender sent it (RFC 9530; the older fields have no RFC of today).
pub(crate) const OF_BYTES: [&str; 4] = ["content-digest", "repr-digest", "digest", "content-md5"];

/// The least known length of content that is compressed by default, in bytes.
const MIN_SIZE_DEFAULT: u64 = 1024;

/// The types that are compressed by default: those of text, and binary ones that have no compression of their own.
const TYPES_DEFAULT: [&str; 19] = [
    "text/*",
    "application/*+json",
    "application/*+xml",
    "application/javascript",
    "application/json",
    "application/jsonl",
    "application/ndjson",
    "application/rtf",
    "application/vnd.ms-fontobject",
    "application/wasm",
    "application/x-javascript",
    "application/x-ndjson",
    "application/xml",
    "application/yaml",
    "font/collection",
    "font/otf",
    "font/ttf",
    "image/bmp",
    "image/svg+xml",
];

/// The codings by default, the preferred first: that of the least time.
const CODINGS_DEFAULT: [ContentCoding; 3] = [
    ContentCoding::Zstandard,
    ContentCoding::Brotli,
    ContentCoding::Gzip,
];

/// Which content is compressed, and how.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Compression {
    types: Box<[MediaRange]>,
    min_size: u64,
    codings: Box<[ContentCoding]>,
}

impl Default for Compression {
    fn default() -> Compression {
        let types = TYPES_DEFAULT.iter();
        Compression {
            types: types.filter_map(|text| MediaRange::parse(text)).collect(),
            min_size: MIN_SIZE_DEFAULT,
            codings: CODINGS_DEFAULT.into(),
        }
    }
}

impl Compression {
    /// With these types.
    #[must_use]
    pub fn with_types(mut self, types: Vec<MediaRange>) -> Compression {
        self.types = types.into();
        self
    }

    /// Shorter content is not compressed if its length is known, in bytes.
    #[must_use]
    pub fn with_min_size(mut self, bytes: u64) -> Compression {
        self.min_size = bytes;
        self
    }

    /// With these codings. Of those that a client accepts equally the first one is used.
    #[must_use]
    pub fn with_codings(mut self, codings: Vec<ContentCoding>) -> Compression {
        self.codings = codings.into();
        self
    }

    /// Whether content with this type and length is compressed for clients that accept it.
    #[must_use]
    pub fn takes(&self, content_type: &[u8], length: u64) -> bool {
        self.takes_length(length) && self.takes_type(content_type)
    }

    /// The coding for a client that accepts these.
    #[must_use]
    pub fn choose(&self, accepted: AcceptedCodings) -> Option<ContentCoding> {
        accepted.choose(&self.codings)
    }

    fn takes_length(&self, length: u64) -> bool {
        length > 0 && length >= self.min_size
    }

    fn takes_type(&self, content_type: &[u8]) -> bool {
        let media_type = content_type.split(|&byte| byte == b';').next();
        let media_type = media_type.unwrap_or_default().trim_ascii();
        self.types.iter().any(|range| range.includes(media_type))
    }
}

/// The compressed form of a file for many responses, at the cost of its time: for threads that are no cores.
#[must_use]
pub(crate) fn compress_file(coding: ContentCoding, content: &[u8]) -> Option<Vec<u8>> {
    coder::compress(coding, content)
}

/// The coding for a client; `None` is without compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Negotiated(Option<ContentCoding>);

impl Negotiated {
    /// From the fields of a request as its client sent them.
    ///
    /// Browsers say when another site caused a request. With the user's credentials its response may have a secret
    /// beside text of that site, whose length would tell how much of the secret the text repeats (BREACH). So it is not
    /// compressed. Clients of HTTP/1.0 get content whose length is declared.
    #[must_use]
    pub fn of(compression: &Compression, head: &RequestHead) -> Negotiated {
        Negotiated::of_fields(compression, &head.fields, head.version)
    }

    fn of_fields(compression: &Compression, fields: &Fields, version: Version) -> Negotiated {
        match is_cross_site_with_credentials(fields) {
            true => Negotiated(None),
            false => Negotiated::of_public(compression, fields, version),
        }
    }

    /// The same for content without secrets, such as that of files.
    fn of_public(compression: &Compression, fields: &Fields, version: Version) -> Negotiated {
        let is_plain = version == Version::Http10 || forbids_transform(fields);
        let coding = || compression.choose(AcceptedCodings::of(fields));
        Negotiated(if is_plain { None } else { coding() })
    }
}

fn is_cross_site_with_credentials(fields: &Fields) -> bool {
    let site = fields.get("sec-fetch-site").unwrap_or_default();
    let is_cross_site = site.trim_ascii().eq_ignore_ascii_case(b"cross-site");
    is_cross_site && (fields.contains(Name::Cookie) || fields.contains(Name::Authorization))
}

/// The compression of the responses to a request.
#[derive(Debug, Clone)]
pub struct Compressing<'a> {
    compression: &'a Compression,
    negotiated: Negotiated,
    method: Method,
    /// The lines of `If-None-Match`, joined.
    known_tags: Option<Box<[u8]>>,
}

impl<'a> Compressing<'a> {
    /// Of a request with these fields.
    #[must_use]
    pub fn of(
        compression: &'a Compression,
        fields: &Fields,
        method: Method,
        version: Version,
    ) -> Compressing<'a> {
        let negotiated = Negotiated::of_fields(compression, fields, version);
        Compressing::new(compression, negotiated, fields, method)
    }

    /// The same for content without secrets, such as that of files.
    #[must_use]
    pub fn of_public(compression: &'a Compression, head: &RequestHead) -> Compressing<'a> {
        let negotiated = Negotiated::of_public(compression, &head.fields, head.version);
        Compressing::new(compression, negotiated, &head.fields, head.method)
    }

    /// With a coding that was chosen before.
    #[must_use]
    pub fn new(
        compression: &'a Compression,
        negotiated: Negotiated,
        fields: &Fields,
        method: Method,
    ) -> Compressing<'a> {
        let lines: Vec<&[u8]> = fields.get_all(Name::IfNoneMatch).collect();
        Compressing {
            compression,
            negotiated,
            method,
            known_tags: (!lines.is_empty()).then(|| lines.join(&b',').into()),
        }
    }

    /// The content of a response that follows its head, which becomes that of the compressed response.
    pub fn streamed(
        &self,
        head: &mut ResponseHead,
        length: BodyLength,
    ) -> (BodyLength, Option<Box<Encoder>>) {
        let coding = self.coding(head, length);
        if coding.is_some() && self.method == Method::Head {
            // The head is that of the response to GET.
            change_head(head, coding);
            return (BodyLength::Unknown, None);
        }
        let declared = match length {
            BodyLength::Known(bytes) => Some(bytes),
            _ => None,
        };
        match coding.and_then(|coding| Encoder::new(coding, declared)) {
            Some(encoder) => {
                change_head(head, coding);
                (BodyLength::Unknown, Some(Box::new(encoder)))
            }
            None => (length, None),
        }
    }

    /// The compressed form of content that is there as a whole and has at most [`STEP_BYTES`], and the head becomes its
    /// head; `None` leaves both as they are.
    pub fn whole(&self, head: &mut ResponseHead, content: &[u8]) -> Option<Chunk> {
        let coding = self.coding(head, BodyLength::Known(content.len() as u64))?;
        let compressed = encoder::whole(coding, content)?;
        change_head(head, Some(coding));
        Some(compressed)
    }

    /// The coding for a response; `None` leaves it as it is. Caches learn whether it depends on the client.
    fn coding(&self, head: &mut ResponseHead, length: BodyLength) -> Option<ContentCoding> {
        if head.status == Status::NOT_MODIFIED {
            self.revalidate(&mut head.fields);
            return None;
        }
        if !self.is_suitable(head, length) {
            return None;
        }
        add_vary(&mut head.fields);
        self.negotiated.0
    }

    fn is_suitable(&self, head: &ResponseHead, length: BodyLength) -> bool {
        let (status, fields) = (head.status, &head.fields);
        if status.is_informational() || status.forbids_content() || status == PARTIAL_CONTENT {
            return false;
        }
        let is_long_enough = match length {
            BodyLength::Known(bytes) => self.compression.takes_length(bytes),
            BodyLength::Unknown => true,
            BodyLength::Empty => self.method == Method::Head,
            BodyLength::NothingButTrailers => false,
        };
        let has_coding = fields
            .get_all(Name::ContentEncoding)
            .any(|coding| !coding.trim_ascii().eq_ignore_ascii_case(b"identity"));
        is_long_enough
            && !has_coding
            && !fields.contains(Name::ContentRange)
            && !forbids_transform(fields)
            && {
                let content_type = fields.get(Name::ContentType);
                self.compression
                    .takes_type(content_type.unwrap_or_default())
            }
    }

    /// The client may have the compressed response, whose tag is weak: then the tag of this one, which says that it is
    /// still the right one, is made so too.
    fn revalidate(&self, fields: &mut Fields) {
        let Some(tag) = fields.get(Name::Etag).and_then(weak) else {
            return;
        };
        let known = self.known_tags.as_deref().unwrap_or_default();
        let mut has = known.split(|&byte| byte == b',');
        if has.any(|known| known.trim_ascii() == tag) {
            fields.set(Name::Etag, tag);
            add_vary(fields);
        }
    }
}

/// The status of a part of the content.
const PARTIAL_CONTENT: Status = Status::PARTIAL_CONTENT;

/// Whether content of this length is compressed in one step.
#[must_use]
pub fn is_one_step(length: BodyLength) -> bool {
    matches!(length, BodyLength::Known(bytes) if bytes <= STEP_BYTES as u64)
}

/// Removes fields of trailers that are about the bytes as the upstream sent them.
pub(crate) fn edit_trailers(trailers: &mut Fields) {
    for name in OF_BYTES {
        trailers.remove(name);
    }
}

/// RFC 9110, section 7.7: "A proxy MUST NOT transform the content [...] of a response message that contains a
/// no-transform cache directive". Clients ask for the same with it (RFC 9111, section 5.2.1.6).
fn forbids_transform(fields: &Fields) -> bool {
    let lines = fields.get_all(Name::CacheControl);
    let mut directives = lines.flat_map(|line| line.split(|&byte| byte == b','));
    directives.any(|directive| directive.trim_ascii().eq_ignore_ascii_case(b"no-transform"))
}

/// Makes a head that of the compressed response. Its bytes are others than those of the upstream's response, so a tag
/// stays only as a weak one (RFC 9110, section 8.8.1), and ranges would be of other bytes.
fn change_head(head: &mut ResponseHead, coding: Option<ContentCoding>) {
    let fields = &mut head.fields;
    if let Some(coding) = coding {
        fields.set(Name::ContentEncoding, coding.name());
    }
    fields.remove(Name::ContentLength);
    fields.remove(Name::AcceptRanges);
    for name in OF_BYTES {
        fields.remove(name);
    }
    if let Some(tag) = fields.get(Name::Etag).and_then(weak) {
        fields.set(Name::Etag, tag);
    }
}

/// The weak form of a strong tag.
fn weak(tag: &[u8]) -> Option<Vec<u8>> {
    tag.starts_with(b"\"").then(|| [b"W/", tag].concat())
}

/// Adds `Accept-Encoding` to `Vary`, if it is not there.
fn add_vary(fields: &mut Fields) {
    const NAME: &[u8] = b"Accept-Encoding";
    let is_there =
        |name: &[u8]| name.trim_ascii() == b"*" || name.trim_ascii().eq_ignore_ascii_case(NAME);
    let mut value = Vec::new();
    for line in fields.get_all(Name::Vary) {
        if line.split(|&byte| byte == b',').any(is_there) {
            return;
        }
        value.extend_from_slice(line);
        value.extend_from_slice(b", ");
    }
    value.extend_from_slice(NAME);
    fields.set(Name::Vary, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_has_all_its_types() {
        assert_eq!(Compression::default().types.len(), TYPES_DEFAULT.len());
        let types = Compression::default().types;
        let has = |media_type: &str| {
            let media_type = media_type.as_bytes();
            types.iter().any(|range| range.includes(media_type))
        };
        for media_type in [
            "text/html",
            "application/ld+json",
            "application/wasm",
            "image/svg+xml",
        ] {
            assert!(has(media_type), "{media_type}");
        }
        for media_type in [
            "image/png",
            "font/woff2",
            "text/event-stream",
            "application/zip",
        ] {
            assert!(!has(media_type), "{media_type}");
        }
    }
}
