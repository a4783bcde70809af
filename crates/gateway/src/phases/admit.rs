//! Phase `admit`: requests that must not be forwarded are rejected, the path becomes the upstream's, and content is
//! decompressed.

use blitz_http::{Method, Name, RequestHead};
use blitz_site::{Ended, Rejection};

use super::decompress::decompress;
use crate::request::Request;
use crate::route::ForwardRoute;
use crate::service::GatewayService;

/// Checks the request, replaces its path if the target has its own, and has its content decompressed.
#[inline(always)]
pub(super) fn admit<'a, E>(
    gateway: &GatewayService<E>,
    route: &ForwardRoute<'a>,
    request: &mut Request<'a>,
) -> Result<(), Ended> {
    let head = &mut *request.head;
    request.kind.normalize(head);
    let checked = match check_method(head) {
        Ok(()) => replace_path(gateway, request, route),
        Err(rejection) => Err(rejection),
    };
    checked.map_err(Ended::Rejected)?;
    decompress(gateway, request)
}

/// `TRACE` would show a client's credentials to scripts in its browser; `CONNECT` is for forward
/// proxies (rule 15).
///
/// # Errors
/// The method is not forwarded, or this is the last hop.
pub(crate) fn check_method(head: &mut RequestHead) -> Result<(), Rejection> {
    match head.method {
        Method::Connect | Method::Trace => Err(Rejection::Method),
        Method::Options => count_down(head),
        _ => Ok(()),
    }
}

/// RFC 9110 section 7.6.2: "Each intermediary that receives a TRACE or OPTIONS request containing
/// a Max-Forwards header field MUST check and update its value prior to forwarding the request."
fn count_down(head: &mut RequestHead) -> Result<(), Rejection> {
    let Some(value) = head.fields.get_str(Name::MaxForwards) else {
        return Ok(());
    };
    // Anything but digits is ignored, also a sign: the value is `1*DIGIT`.
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    let Some(left) = value.parse::<u64>().ok().filter(|_| digits) else {
        return Ok(());
    };
    let Some(left) = left.checked_sub(1) else {
        return Err(Rejection::LastHop);
    };
    head.fields.set(Name::MaxForwards, left.to_string());
    Ok(())
}

fn replace_path<'a, E>(
    gateway: &GatewayService<E>,
    request: &mut Request<'a>,
    route: &ForwardRoute<'a>,
) -> Result<(), Rejection> {
    let head = &mut *request.head;
    let trusted = &gateway.options.trusted_proxies;
    let client = (&*request.record.client, request.notes.as_deref());
    let path = &mut *gateway.path.borrow_mut();
    request.rewriting = route.forward.replace_path(head, client, trusted, path)?;
    Ok(())
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
        assert_eq!(count_down("0").0, Err(Rejection::LastHop));
        assert_eq!(count_down("soon"), (Ok(()), String::from("soon")));
    }

    #[test]
    fn trace_is_rejected() {
        let mut head = RequestHead::new(Method::Trace, "/");
        assert_eq!(check_method(&mut head), Err(Rejection::Method));
    }
}
