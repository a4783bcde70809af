//! Request methods (RFC 9110, section 9).

/// A request method; the head holds the text of an unregistered one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// `GET`
    Get,
    /// `HEAD`
    Head,
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `DELETE`
    Delete,
    /// `CONNECT`
    Connect,
    /// `OPTIONS`
    Options,
    /// `TRACE`
    Trace,
    /// `PATCH` (RFC 5789)
    Patch,
    /// Any other token.
    Other,
}

impl Method {
    /// Recognises a method; methods are case-sensitive (RFC 9110, section 9.1).
    #[inline]
    #[must_use]
    pub fn parse(text: &[u8]) -> Method {
        // Nearly all requests have this method, so it is tested before the jump by length.
        if text == b"GET" {
            return Method::Get;
        }
        match text {
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"CONNECT" => Method::Connect,
            b"OPTIONS" => Method::Options,
            b"TRACE" => Method::Trace,
            b"PATCH" => Method::Patch,
            _ => Method::Other,
        }
    }

    /// The token; empty for [`Method::Other`], whose text only the head holds.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
            Method::Connect => "CONNECT",
            Method::Options => "OPTIONS",
            Method::Trace => "TRACE",
            Method::Patch => "PATCH",
            Method::Other => "",
        }
    }

    /// Whether repeating the request has the effect of sending it once (RFC 9110, section 9.2.2). Of
    /// [`Method::Other`] that is not known here: see [`RequestHead::is_idempotent`](crate::RequestHead::is_idempotent).
    #[must_use]
    pub fn is_idempotent(self) -> bool {
        !matches!(
            self,
            Method::Post | Method::Patch | Method::Connect | Method::Other
        )
    }

    /// Whether a request without content should still carry `Content-Length: 0`, because the method
    /// anticipates content (RFC 9110, section 8.6).
    pub(crate) fn anticipates_content(self) -> bool {
        matches!(self, Method::Post | Method::Put | Method::Patch)
    }
}
