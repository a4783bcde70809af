//! Phase `replace`: a page of the route goes to the client in place of the upstream's error.

use blitz_http::{Name, Response};
use blitz_site::Responder;

use super::finish::response_edits;
use crate::request::Request;

/// The least status of an error (RFC 9110, section 15).
const FIRST_ERROR: u16 = 400;

/// Fields about the content of the upstream's response, which is not sent.
const OF_CONTENT: [Name; 9] = [
    Name::AcceptRanges,
    Name::ContentEncoding,
    Name::ContentLanguage,
    Name::ContentLength,
    Name::ContentRange,
    Name::ContentType,
    Name::Etag,
    Name::LastModified,
    Name::Trailer,
];

/// The same, without names of their own in our tables.
const OTHERS_OF_CONTENT: [&str; 7] = [
    "content-digest",
    "content-disposition",
    "content-location",
    "content-md5",
    "digest",
    "refresh",
    "repr-digest",
];

/// Said to clients that take no page of the route.
const DETAIL: &str = "the upstream responded with an error";

/// Sends the page, if the route has one for this error; `false` leaves the response to be relayed. Clients that take no
/// such page get the error that is built in, never the upstream's content. Other fields stay, such as
/// `WWW-Authenticate`. Calls of gRPC get their own status.
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
    if !rules.pages.has(status) {
        return false;
    }
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
    for name in OTHERS_OF_CONTENT {
        head.fields.remove(name);
    }
    let edits = response_edits(&request.notes, Some(&request.edits));
    let compressing = rules.compressing(&request.head);
    let responder = Responder::new(responder, edits, &mut request.record.response);
    let responder = responder.compressing(compressing.as_ref());
    let pages = Some(&rules.pages);
    responder
        .relaying()
        .send_error(&request.head.fields, pages, head, DETAIL);
    true
}
