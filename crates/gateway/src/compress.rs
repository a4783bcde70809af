//! Compression of responses for clients that accept it.
//!
//! The decision has two parts. The algorithm is chosen when the request arrives, from the client's own fields. Whether
//! a response is compressed follows from its head, with the changes of the route. Responses that could have been
//! compressed have `Vary: Accept-Encoding`, whatever the client accepts.

mod accept_encoding;
mod coder;
mod encoder;

use blitz_config::{Algorithm, Compression};
use blitz_http::{
    BodyLength, Chunk, Fields, Method, Name, RequestHead, ResponseHead, Status, Version,
};

use crate::request_kind::ResponseContent;
use crate::rules::Rules;
use encoder::Encoder;

pub(crate) use encoder::STEP_BYTES;

/// Fields about the bytes of the content as the upstream sent it (RFC 9530; the older fields have no RFC of today).
const OF_BYTES: [&str; 4] = ["content-digest", "repr-digest", "digest", "content-md5"];

/// The algorithm for a client; `None` is without compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Negotiated(Option<Algorithm>);

impl Negotiated {
    /// From the fields of a request as its client sent them.
    ///
    /// Browsers say when another site caused a request. With the user's credentials its response may have a secret
    /// beside text of that site, whose length would tell how much of the secret the text repeats (BREACH). So it is not
    /// compressed. Clients of HTTP/1.0 get content whose length is declared.
    pub(crate) fn of(compression: &Compression, head: &RequestHead) -> Negotiated {
        let fields = &head.fields;
        let is_plain = head.version == Version::Http10 || forbids_transform(fields);
        if is_plain || is_cross_site_with_credentials(fields) {
            return Negotiated(None);
        }
        let accepted = fields.get_all(Name::AcceptEncoding);
        Negotiated(accept_encoding::choose(accepted, &compression.algorithms))
    }
}

fn is_cross_site_with_credentials(fields: &Fields) -> bool {
    let site = fields.get("sec-fetch-site").unwrap_or_default();
    let is_cross_site = site.trim_ascii().eq_ignore_ascii_case(b"cross-site");
    is_cross_site && (fields.contains(Name::Cookie) || fields.contains(Name::Authorization))
}

/// The compression of the responses to a request.
pub(crate) struct Compressing<'a> {
    compression: &'a Compression,
    negotiated: Negotiated,
    request: &'a RequestHead,
}

impl<'a> Compressing<'a> {
    /// `None` if the route compresses no responses.
    #[inline]
    pub(crate) fn of(
        rules: Option<&'a Rules>,
        negotiated: Option<Negotiated>,
        request: &'a RequestHead,
    ) -> Option<Compressing<'a>> {
        Some(Compressing {
            negotiated: negotiated?,
            compression: rules?.compression.as_deref()?,
            request,
        })
    }

    /// The content of a response that follows its head, which becomes that of the compressed response.
    pub(crate) fn streamed(&self, head: &mut ResponseHead, length: BodyLength) -> ResponseContent {
        let algorithm = self.algorithm(head, length);
        if algorithm.is_some() && self.request.method == Method::Head {
            // The head is that of the response to GET.
            change_head(head, algorithm);
            return ResponseContent::Streamed(BodyLength::Unknown, None);
        }
        let declared = match length {
            BodyLength::Known(bytes) => Some(bytes),
            _ => None,
        };
        match algorithm.and_then(|algorithm| Encoder::new(algorithm, declared)) {
            Some(encoder) => {
                change_head(head, algorithm);
                ResponseContent::Streamed(BodyLength::Unknown, Some(Box::new(encoder)))
            }
            None => ResponseContent::Streamed(length, None),
        }
    }

    /// The compressed form of content that is there as a whole, and the head becomes its head; `None` leaves both as they
    /// are.
    pub(crate) fn whole(&self, head: &mut ResponseHead, content: &[u8]) -> Option<Chunk> {
        let algorithm = self.algorithm(head, BodyLength::Known(content.len() as u64))?;
        let compressed = encoder::whole(algorithm, content)?;
        change_head(head, Some(algorithm));
        Some(compressed)
    }

    /// The algorithm for a response; `None` leaves it as it is. Caches learn whether it depends on the client.
    fn algorithm(&self, head: &mut ResponseHead, length: BodyLength) -> Option<Algorithm> {
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
            BodyLength::Known(bytes) => bytes > 0 && bytes >= self.compression.min_size,
            BodyLength::Unknown => true,
            BodyLength::Empty => self.request.method == Method::Head,
            BodyLength::NothingButTrailers => false,
        };
        let has_coding = fields
            .get_all(Name::ContentEncoding)
            .any(|coding| !coding.trim_ascii().eq_ignore_ascii_case(b"identity"));
        is_long_enough
            && !has_coding
            && !fields.contains(Name::ContentRange)
            && !forbids_transform(fields)
            && self.has_type(fields)
    }

    fn has_type(&self, fields: &Fields) -> bool {
        let content_type = fields.get(Name::ContentType).unwrap_or_default();
        let media_type = content_type.split(|&byte| byte == b';').next();
        let media_type = media_type.unwrap_or_default().trim_ascii();
        let mut types = self.compression.types.iter();
        types.any(|range| range.includes(media_type))
    }

    /// The client may have the compressed response, whose tag is weak: then the tag of this one, which says that it is
    /// still the right one, is made so too.
    fn revalidate(&self, fields: &mut Fields) {
        let Some(tag) = fields.get(Name::Etag).and_then(weak) else {
            return;
        };
        let lines = self.request.fields.get_all(Name::IfNoneMatch);
        let mut has = lines.flat_map(|line| line.split(|&byte| byte == b','));
        if has.any(|known| known.trim_ascii() == tag) {
            fields.set(Name::Etag, tag);
            add_vary(fields);
        }
    }
}

/// The status of a part of the content.
const PARTIAL_CONTENT: Status = Status::PARTIAL_CONTENT;

/// Whether content of this length is compressed in one step.
pub(crate) fn is_one_step(length: BodyLength) -> bool {
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
fn change_head(head: &mut ResponseHead, algorithm: Option<Algorithm>) {
    let fields = &mut head.fields;
    if let Some(algorithm) = algorithm {
        fields.set(Name::ContentEncoding, algorithm.name());
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
