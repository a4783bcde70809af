//! Phase `admit`: what must not pass is refused, what passes is made ready for its upstream.

use blitz_http::{Method, Name, RequestHead, Status};

use crate::core::{Core, Route};
use crate::forward::{self, Client};
use crate::request::{Ended, Request};
use crate::target::Replaced;

/// What passes. `TRACE` would show a client's credentials to scripts in its browser; `CONNECT` is
/// for forward proxies (rule 15).
pub(crate) const ALLOWED: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// Why a request goes no further than the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// A method that must not pass.
    Method,
    /// `Max-Forwards` is used up, so the gateway answers `OPTIONS` itself.
    LastHop,
    /// `Connection` names more fields than any honest client has use for.
    ConnectionOptions,
    /// A WebSocket is asked for with a `Sec-WebSocket-Key` that is none, and the upstream is one
    /// that the gateway answers it for.
    WebSocketKey,
    /// A call in base64 that is none.
    Base64,
    /// The path would climb out of the one that the target puts in place of its prefix.
    Path,
}

impl Refused {
    pub(crate) fn status(self) -> Status {
        match self {
            Refused::Method => Status::METHOD_NOT_ALLOWED,
            Refused::LastHop => Status::NO_CONTENT,
            Refused::Base64
            | Refused::ConnectionOptions
            | Refused::WebSocketKey
            | Refused::Path => Status::BAD_REQUEST,
        }
    }

    pub(crate) fn detail(self) -> &'static str {
        match self {
            Refused::Method => "the method is not passed on",
            Refused::LastHop => "the request may not be forwarded any further",
            Refused::Base64 => "the content is not what its type says: base64",
            Refused::ConnectionOptions => "the Connection field names too many options",
            Refused::WebSocketKey => "the Sec-WebSocket-Key is not 16 bytes in base64",
            Refused::Path => "the path leads out of the place it is mapped to",
        }
    }
}

/// Checks the request and edits its head in place.
pub(crate) fn admit<F>(core: &Core<F>, route: &Route, request: &mut Request) -> Result<(), Ended> {
    let client = Client {
        peer: &request.peer,
        trusted: core.options.trusted_proxies.contains(&request.peer),
        websocket: request.websocket.is_some(),
        default_authority: &route.target.authority,
        client_cert: core.options.client_cert_header,
        random: blitz_http::random_u64,
    };
    let head = &mut *request.head;
    if let Some(websocket) = &request.websocket {
        websocket.normalize(head);
    }
    check_method(head)
        .and_then(|()| replace_path(head, route, &mut core.path.borrow_mut()))
        .and_then(|()| {
            forward::edit_request(head, &client, &mut core.scratch.borrow_mut())
                .map_err(|_| Refused::ConnectionOptions)
        })
        .map_err(Ended::Refused)
}

fn check_method(head: &mut RequestHead) -> Result<(), Refused> {
    match head.method {
        Method::Connect | Method::Trace => Err(Refused::Method),
        Method::Options => count_down(head),
        _ => Ok(()),
    }
}

/// RFC 9110 section 7.6.2: "Each intermediary that receives a TRACE or OPTIONS request containing
/// a Max-Forwards header field MUST check and update its value prior to forwarding the request."
fn count_down(head: &mut RequestHead) -> Result<(), Refused> {
    let Some(value) = head.fields.get_str(Name::MaxForwards) else {
        return Ok(());
    };
    // What is no number is ignored, as the field is for recipients that understand it. A sign is none.
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    let Some(left) = value.parse::<u64>().ok().filter(|_| digits) else {
        return Ok(());
    };
    let Some(left) = left.checked_sub(1) else {
        return Err(Refused::LastHop);
    };
    head.fields.set(Name::MaxForwards, left.to_string());
    Ok(())
}

fn replace_path(head: &mut RequestHead, route: &Route, path: &mut String) -> Result<(), Refused> {
    // The usual case; and `OPTIONS *`, also as `OPTIONS http://host` (RFC 9112 section 3.2.4): no path to replace.
    if route.target.path.is_none() || head.path() == "*" {
        return Ok(());
    }
    match route
        .target
        .replace_path(head.path(), head.sent_path(), path)
    {
        Replaced::Kept => Ok(()),
        Replaced::Climbs => Err(Refused::Path),
        Replaced::Written => {
            head.set_path(path);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn max_forwards_is_counted_down_to_the_last_hop() {
        let count_down = |value: &str| {
            let mut head = RequestHead::new(Method::Options, "/");
            head.fields.append(Name::MaxForwards, value);
            let outcome = check_method(&mut head);
            (
                outcome,
                head.fields.get_str(Name::MaxForwards).unwrap().to_owned(),
            )
        };
        assert_eq!(count_down("5"), (Ok(()), String::from("4")));
        assert_eq!(count_down("1"), (Ok(()), String::from("0")));
        assert_eq!(count_down("0").0, Err(Refused::LastHop));
        assert_eq!(count_down("soon"), (Ok(()), String::from("soon")));
    }

    #[test]
    fn trace_does_not_pass() {
        let mut head = RequestHead::new(Method::Trace, "/");
        assert_eq!(check_method(&mut head), Err(Refused::Method));
    }
}
