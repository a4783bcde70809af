//! gRPC-Web, the form of gRPC that browsers send, and its translation (gRPC's document
//! PROTOCOL-WEB). Messages are framed as in gRPC, trailers are a last frame, and all of it may be
//! in base64.

use blitz_http::{Chunk, Fields, Name, Pooled, RequestHead, ResponseHead, Slice};
use blitz_site::{Failure, Transform, TransformError};

use super::base64::{self, Base64Decoder};
use super::content_type::{self, GRPC, is_grpc};
use super::status::Code;

/// Before each message: whether it is compressed, and its length.
const FRAME_HEADER_BYTES: usize = 5;

/// Flag of a frame with trailers.
const TRAILERS: u8 = 0x80;

/// Fields that say how a call ended, in a head or in trailers.
const STATUS_FIELDS: [&str; 3] = ["grpc-status", "grpc-message", "grpc-status-details-bin"];

/// Encoding of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WebEncoding {
    /// None.
    Binary,
    /// Base64, for clients that can read nothing else while it arrives.
    Text,
}

/// Encodings of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Web {
    /// Of its request.
    pub(super) sends: WebEncoding,
    /// Of the response.
    pub(super) accepts: WebEncoding,
}

impl Web {
    /// From `Content-Type` and `Accept` of a request.
    pub(super) fn of(fields: &Fields) -> Option<Web> {
        let (sends, _) = encoding_of(fields.get(Name::ContentType)?)?;
        let accepted = fields.get_all(Name::Accept);
        let accepted = accepted
            .flat_map(|value| value.split(|&byte| byte == b','))
            .find_map(|range| encoding_of(range.trim_ascii()));
        let accepts = accepted.map_or(sends, |(encoding, _)| encoding);
        Some(Web { sends, accepts })
    }

    /// Turns the head of a request into one of gRPC.
    pub(super) fn translate_request(head: &mut RequestHead) {
        let fields = &mut head.fields;
        let Some((_, rest)) = fields.get(Name::ContentType).and_then(encoding_of) else {
            unreachable!("the call was recognised by this content type")
        };
        let content_type = [GRPC, rest].concat();
        fields.set(Name::ContentType, content_type);
        fields.set(Name::Te, "trailers");
        fields.remove("x-grpc-web");
    }

    /// Translates the content of the request, if it needs that.
    pub(super) fn decoder(self) -> Option<Box<dyn Transform>> {
        (self.sends == WebEncoding::Text).then(|| Box::new(Base64Decoder::default()) as _)
    }

    /// Translates the response with this head, if it is one of gRPC.
    pub(super) fn encoder(self, head: &ResponseHead) -> Option<WebEncoder> {
        let content_type = head.fields.get(Name::ContentType)?;
        is_grpc(content_type).then(|| WebEncoder {
            encoding: self.accepts,
            messages: Messages::default(),
            status: None,
        })
    }

    /// Content type of the gateway's own responses.
    pub(super) fn content_type(self) -> &'static str {
        match self.accepts {
            WebEncoding::Binary => "application/grpc-web+proto",
            WebEncoding::Text => "application/grpc-web-text+proto",
        }
    }

    /// Content of a response that has trailers only.
    pub(super) fn trailers_only(self, trailers: &Fields) -> Chunk {
        self.accepts.encode(frame(trailers))
    }
}

impl WebEncoding {
    fn prefix(self) -> &'static [u8] {
        match self {
            WebEncoding::Binary => b"application/grpc-web",
            WebEncoding::Text => b"application/grpc-web-text",
        }
    }

    fn encode(self, bytes: Vec<u8>) -> Chunk {
        match self {
            WebEncoding::Binary => Chunk::from(bytes),
            WebEncoding::Text => base64::encode(&bytes),
        }
    }
}

/// The encoding that a media type names, and its suffix.
fn encoding_of(media_type: &[u8]) -> Option<(WebEncoding, &[u8])> {
    let of = |encoding: WebEncoding| {
        let rest = content_type::suffix(encoding.prefix(), media_type)?;
        Some((encoding, rest))
    };
    of(WebEncoding::Text).or_else(|| of(WebEncoding::Binary))
}

/// Translates a response.
#[derive(Debug)]
pub(crate) struct WebEncoder {
    encoding: WebEncoding,
    messages: Messages,
    /// How the call ended, from the head. Only a response without content has it there.
    status: Option<Pooled<Fields>>,
}

impl WebEncoder {
    /// Makes the head one of gRPC-Web.
    pub(crate) fn translate_head(&mut self, head: &mut ResponseHead) {
        let content_type = head.fields.get(Name::ContentType).unwrap_or_default();
        let rest = content_type::suffix(GRPC, content_type).unwrap_or_default();
        let content_type = [self.encoding.prefix(), rest].concat();
        head.fields.set(Name::ContentType, content_type);
        head.fields.remove(Name::Trailer);
        for name in STATUS_FIELDS {
            if let Some(value) = head.fields.get(name) {
                let status = self.status.get_or_insert_default();
                status.append(name, value);
                head.fields.remove(name);
            }
        }
    }

    /// The last frame of a response. Without a status it would look complete to some clients.
    pub(crate) fn end_of_response(&mut self, trailers: Option<Pooled<Fields>>) -> Chunk {
        let mut trailers = trailers.or(self.status.take()).unwrap_or_default();
        if !trailers.contains("grpc-status") {
            let message = "the upstream's response ended without a status";
            Code::Unknown.write(message, &mut trailers);
        }
        self.encoding.encode(frame(&trailers))
    }
}

impl Transform for WebEncoder {
    fn content(&mut self, slice: Slice) -> Result<Chunk, TransformError> {
        self.messages.pass(&slice);
        Ok(match self.encoding {
            WebEncoding::Binary => Chunk::from(slice),
            WebEncoding::Text => base64::encode(&slice),
        })
    }

    fn end(
        &mut self,
        trailers: &mut Option<Pooled<Fields>>,
    ) -> Result<Option<Chunk>, TransformError> {
        Ok(Some(self.end_of_response(trailers.take())))
    }

    /// Nothing within a message: the client would take the frame for the rest of it.
    fn fail(&mut self, failure: Failure) -> Option<Chunk> {
        let mut trailers = Pooled::<Fields>::take();
        Code::of_failure(failure).write(failure.detail(), &mut trailers);
        let is_between_messages = self.messages.is_between();
        is_between_messages.then(|| self.encoding.encode(frame(&trailers)))
    }
}

/// Trailers as a frame: lines as in HTTP/1.1, names in lower case.
fn frame(trailers: &Fields) -> Vec<u8> {
    let mut frame = vec![TRAILERS, 0, 0, 0, 0];
    for (name, value) in trailers.iter() {
        frame.extend(name.as_bytes().iter().map(u8::to_ascii_lowercase));
        frame.push(b':');
        frame.extend_from_slice(value);
        frame.extend_from_slice(b"\r\n");
    }
    let length = (frame.len() - FRAME_HEADER_BYTES) as u32;
    frame[1..FRAME_HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
    frame
}

/// Tracks where messages end.
#[derive(Debug, Default)]
struct Messages {
    header: [u8; FRAME_HEADER_BYTES],
    /// Bytes of the next message's header that have come, if `left` is 0.
    header_len: usize,
    /// Bytes of the message that are still to come.
    left: usize,
}

impl Messages {
    fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.left > 0 {
                let now = bytes.len().min(self.left);
                self.left -= now;
                bytes = &bytes[now..];
                continue;
            }
            let missing = FRAME_HEADER_BYTES - self.header_len;
            let (more, rest) = bytes.split_at(bytes.len().min(missing));
            self.header[self.header_len..][..more.len()].copy_from_slice(more);
            self.header_len += more.len();
            bytes = rest;
            if let (FRAME_HEADER_BYTES, [_, length @ ..]) = (self.header_len, self.header) {
                self.left = u32::from_be_bytes(length) as usize;
                self.header_len = 0;
            }
        }
    }

    fn is_between(&self) -> bool {
        self.left == 0 && self.header_len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_ends_are_found_however_content_is_split() {
        let stream = b"\0\0\0\0\0\0\0\0\0\x02hi\x01\0\0\0\x01x";
        let ends = [0, 5, 12, 18];
        for cut in 0..=stream.len() {
            let mut messages = Messages::default();
            messages.pass(&stream[..cut]);
            assert_eq!(messages.is_between(), ends.contains(&cut), "{cut}");
            for at in cut..stream.len() {
                messages.pass(&stream[at..=at]);
                assert_eq!(
                    messages.is_between(),
                    ends.contains(&(at + 1)),
                    "{cut} {at}"
                );
            }
        }
    }

    #[test]
    fn trailers_are_lines_in_a_frame() {
        let mut fields = Fields::new();
        fields.append("Grpc-Status", "0");
        fields.append(Name::ProxyStatus, "x");
        assert_eq!(
            frame(&fields),
            b"\x80\0\0\0\x1fgrpc-status:0\r\nproxy-status:x\r\n"
        );
    }

    #[test]
    fn the_response_has_the_accepted_form() {
        let web = |content_type: &str, accept: &str| {
            let mut fields = Fields::new();
            fields.append(Name::ContentType, content_type);
            fields.append(Name::Accept, accept);
            Web::of(&fields).map(|web| (web.sends, web.accepts))
        };
        let (binary, text) = (WebEncoding::Binary, WebEncoding::Text);
        for (content_type, accept, wanted) in [
            ("application/grpc-web", "*/*", Some((binary, binary))),
            ("application/grpc-web-text+proto", "*/*", Some((text, text))),
            (
                "Application/gRPC-Web+proto",
                "text/plain, application/grpc-web-text",
                Some((binary, text)),
            ),
            (
                "application/grpc-web-text;x=y",
                "application/grpc-web+proto",
                Some((text, binary)),
            ),
            ("application/grpc-web-texts", "*/*", None),
            ("application/grpc", "application/grpc-web", None),
        ] {
            assert_eq!(web(content_type, accept), wanted, "{content_type}");
        }
    }
}
