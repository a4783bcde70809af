//! A response with 103 before the final one, so that browsers fetch meanwhile what the page will need (RFC 8297).

use blitz_http::{Method, Name, Pooled, RequestHead, Responder, Status};

/// Lines of `Link`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct EarlyHints(Box<[String]>);

impl EarlyHints {
    /// With these values of `Link`.
    #[must_use]
    pub fn new(links: Vec<String>) -> EarlyHints {
        EarlyHints(links.into())
    }

    /// Itself, if the request is for a page that a browser shows (Fetch Metadata, section 2.2). Other clients may not expect
    /// a response before the final one.
    pub(super) fn for_request(&self, head: &RequestHead) -> Option<&EarlyHints> {
        let mode = head.fields.get("sec-fetch-mode");
        let is_page = head.method == Method::Get && mode == Some(b"navigate");
        is_page.then_some(self)
    }

    /// Sends them.
    pub fn send(&self, responder: &mut Responder) {
        let mut head = Pooled::response(Status::EARLY_HINTS);
        for link in &self.0 {
            head.fields.append(Name::Link, link);
        }
        responder.informational(&head);
    }
}
