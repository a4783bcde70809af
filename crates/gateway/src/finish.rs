//! Phase `finish`: a request that got no relayed response gets one from the gateway.

use std::fmt::Display;

use blitz_http::{
    Exchange, Fields, Method, Name, Pooled, Responder, ResponseHead, Status, accepts_problem,
};

use crate::admit::{ALLOWED, Refused};
use crate::counters::count;
use crate::entrance::Turned;
use crate::grpc::{self, Call, Code};
use crate::proxy_status::Failure;
use crate::request::{Ended, Request};

/// Seconds after which a client may ask again when nobody was there to answer.
const RETRY_AFTER: &str = "1";

/// Counts the outcome and says to the client what it does not know yet.
pub(crate) fn finish(mut request: Request, outcome: Result<(), Ended>) {
    let Err(ended) = outcome else { return };
    let responder = request.responder.take();
    match (ended, responder) {
        (Ended::Refused(refused), Some(responder)) => refuse(&request, responder, refused),
        (Ended::Failed(failure), Some(responder)) => fail(&request, responder, failure),
        (Ended::Client(error), Some(responder)) => {
            tracing::debug!(%error, "request body failed");
            count(|counters| counters.client_faults += 1);
            let head = Pooled::response(error.status());
            answer(&request.head.fields, request.call, responder, head, &error);
        }
        // The answer had begun; the body that was dropped unfinished has cut it off.
        _ => count(|counters| counters.cut_off += 1),
    }
}

/// Answers a request that came by the wrong door.
#[cold]
pub(crate) fn turn_away(exchange: Exchange, turned: &Turned) {
    tracing::debug!(?turned, "request turned away");
    let mut head = Pooled::response(turned.status());
    count(|counters| match turned {
        Turned::Encrypted(_) => counters.redirected += 1,
        Turned::Nowhere => counters.refused += 1,
        Turned::Misdirected => counters.misdirected += 1,
    });
    if let Turned::Encrypted(location) = turned {
        head.fields.append(Name::Location, location);
    }
    // A browser can follow to where it is sent; gRPC knows no redirects.
    let may_follow = matches!(turned, Turned::Encrypted(_));
    let call = Call::of(&exchange.request).filter(|call| call.streams() || !may_follow);
    let asked = &exchange.request.fields;
    answer(asked, call, exchange.responder, head, turned.detail());
}

fn refuse(request: &Request, responder: Responder, refused: Refused) {
    tracing::debug!(?refused, "request refused");
    count(|counters| counters.refused += 1);
    let mut head = Pooled::response(refused.status());
    if matches!(refused, Refused::Method | Refused::LastHop) {
        head.fields.append(Name::Allow, ALLOWED);
    }
    if request.head.method == Method::Connect {
        // What follows is meant for another protocol.
        head.fields.append(Name::Connection, "close");
    }
    let asked = &request.head.fields;
    answer(asked, request.call, responder, head, refused.detail());
}

fn fail(request: &Request, responder: Responder, failure: Failure) {
    tracing::debug!(error = failure.token(), "no answer from the upstream");
    count(|counters| counters.failures[failure as usize] += 1);
    let mut head = Pooled::response(failure.status());
    head.fields
        .append(Name::ProxyStatus, failure.proxy_status());
    if let Some(call) = request.call {
        return grpc::answer(
            call,
            responder,
            head,
            Code::of_failure(failure),
            failure.detail(),
        );
    }
    if failure.status() == Status::SERVICE_UNAVAILABLE {
        head.fields.append(Name::RetryAfter, RETRY_AFTER);
    }
    answer(
        &request.head.fields,
        None,
        responder,
        head,
        failure.detail(),
    );
}

/// `detail` is one of our own texts, which need no escaping.
fn answer(
    asked: &Fields,
    call: Option<Call>,
    responder: Responder,
    mut head: Pooled<ResponseHead>,
    detail: impl Display,
) {
    let status = head.status;
    if let Some(call) = call {
        return grpc::answer(call, responder, head, Code::of_status(status), detail);
    }
    if status.forbids_content() {
        return responder.send(&mut head, "");
    }
    let (code, title) = (status.code(), status.reason());
    let content = if accepts_problem(asked).unwrap_or(true) {
        head.fields
            .append(Name::ContentType, "application/problem+json");
        format!("{{\"title\":\"{title}\",\"status\":{code},\"detail\":\"{detail}\"}}\n")
    } else {
        head.fields
            .append(Name::ContentType, "text/plain; charset=utf-8");
        format!("{code} {title}: {detail}\n")
    };
    responder.send(&mut head, content);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_of_ours_needs_escaping() {
        let plain = |text: &str| {
            text.chars()
                .all(|c| c != '"' && c != '\\' && !c.is_control())
        };
        assert!(Failure::ALL.iter().all(|failure| plain(failure.detail())));
    }
}
