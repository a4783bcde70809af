//! Phase `replace`: a page of the route goes to the client in place of the upstream's error.

use blitz_http::{Chunk, Name, Response};
use blitz_site::Responder;

use crate::request::Request;

/// The least status of an error (RFC 9110, section 15).
const FIRST_ERROR: u16 = 400;

/// Fields about the content of the upstream's response, which is not sent.
const OF_CONTENT: [Name; 8] = [
    Name::AcceptRanges,
    Name::ContentEncoding,
    Name::ContentLanguage,
    Name::ContentLength,
    Name::ContentRange,
    Name::ContentType,
    Name::Etag,
    Name::LastModified,
];

/// Sends the page, if the route has one for this error; `false` leaves the response to be relayed. Other fields stay,
/// such as `WWW-Authenticate`. Calls of gRPC get their own status.
#[inline]
pub(super) fn replace_error(request: &mut Request<'_>) -> bool {
    let replaces = request.rules.is_some_and(|rules| rules.replaces_errors);
    replaces && send_page(request)
}

#[inline(never)]
fn send_page(request: &mut Request<'_>) -> bool {
    let (Some(rules), Some(response)) = (request.rules, &request.response) else {
        return false;
    };
    let status = response.head.status;
    let is_error = status.code() >= FIRST_ERROR && response.upgraded.is_none();
    if !is_error || request.kind.is_call() {
        return false;
    }
    let Some(page) = rules.pages.find(status, &request.head.fields) else {
        return false;
    };
    let (Some(responder), Some(response)) = (request.responder.take(), request.response.take())
    else {
        return false;
    };
    let Response {
        mut head, mut body, ..
    } = response;
    // Content that is there as a whole leaves the connection of the upstream usable.
    drop(body.take_whole());
    for name in OF_CONTENT {
        head.fields.remove(name);
    }
    head.fields.append(Name::ContentType, page.content_type);
    let responder = Responder::new(responder, &request.edits, &mut request.record.response);
    responder
        .relaying()
        .send(&mut head, Chunk::from(page.content.to_vec()));
    true
}
