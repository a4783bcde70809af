//! Phase `finish`: a request without a relayed response gets one from the gateway. Its record is
//! emitted.

use std::fmt::Display;
use std::rc::Rc;

use blitz_http::{BodyError, Exchange, Fields, Method, Name, Pooled, ResponseHead, Status};
use blitz_site::compress::Compressing;
use blitz_site::decompress::ACCEPTED_CODINGS;
use blitz_site::{
    CoreObservers, Edit, Ended, Failure, Notes, PolicyResponse, Record, Rejection, Responder,
    ResponseEdits, RouteName, emit,
};

use super::preflight::https_location;
use super::refused::RefusedRoute;
use super::route::Rejected;
use crate::forward;
use crate::grpc::{Call, Code};
use crate::request::Request;
use crate::route::Route;
use crate::rules::{Facts, Rules};
use crate::service::GatewayService;
use crate::sites::SiteRoutes;

/// Methods of RFC 9110 that are forwarded. Others are forwarded as well.
const ALLOWED: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// Seconds after which a client may try again when no upstream was available.
const RETRY_AFTER: &str = "1";

impl Drop for Request<'_> {
    fn drop(&mut self) {
        self.record.request_bytes += self.upload.received();
        if matches!(self.record.response.ended, Ended::ClientGone) {
            self.find_end();
        }
        emit(&mut self.record, &self.head);
    }
}

impl Request<'_> {
    /// How the request ended, if its future was dropped.
    #[cold]
    fn find_end(&mut self) {
        self.record.response.find_end();
        let has_begun = self.responder.is_none();
        if let (false, Ended::ClientGone, Some(error @ BodyError::TimedOut)) = (
            has_begun,
            &self.record.response.ended,
            self.upload.failure(),
        ) {
            if self.rules.is_some() {
                respond_too_slow(self, &error);
            }
            self.record.response.failed_content(error);
        }
    }
}

/// Responds to a request whose content came too slowly, which the server would do without the rules of the route.
#[cold]
fn respond_too_slow(request: &mut Request<'_>, error: &BodyError) {
    let Some(responder) = request.responder.take() else {
        return;
    };
    forward::ensure_request_id(&mut request.head.fields);
    let mut head = Pooled::response(error.status());
    // The rest of the content may still come.
    head.fields.append(Name::Connection, "close");
    OwnResponse::of(request).send(responder, head, error);
}

/// Responds to the request if nothing was relayed.
#[inline]
pub(super) fn finish(request: &mut Request<'_>, outcome: Result<(), Ended>) {
    request.record.response.ended = match outcome {
        Ok(()) => Ended::Complete,
        Err(ended) => {
            respond_ended(request, &ended);
            ended
        }
    };
}

#[cold]
fn respond_ended(request: &mut Request<'_>, ended: &Ended) {
    // Without a responder the response had begun. The body that was dropped unfinished cut it off.
    let Some(responder) = request.responder.take() else {
        return;
    };
    forward::ensure_request_id(&mut request.head.fields);
    match ended {
        Ended::Rejected(rejection) => respond_rejected(request, responder, *rejection),
        Ended::Failed(failure) => respond_failed(request, responder, *failure),
        Ended::RequestContent(error) => {
            tracing::debug!(%error, "request content failed");
            let response = OwnResponse::of(request);
            response.send(responder, Pooled::response(error.status()), error);
        }
        Ended::Complete
        | Ended::Refused(_)
        | Ended::Handshake(_)
        | Ended::IncompleteHead(_)
        | Ended::CutOff(_)
        | Ended::Aborted
        | Ended::ClientGone => {}
    }
}

/// Responds to a request that is rejected before its route answers, with the rules of the route. A site's own are for
/// requests that none of its routes matches.
#[cold]
pub(super) fn reject<E>(
    gateway: &GatewayService<E>,
    observers: &CoreObservers,
    exchange: Exchange,
    rejected: Rejected<'_>,
) {
    let Rejected {
        rejection,
        site,
        route,
        mut notes,
    } = rejected;
    let rules = match (rejection, route, site) {
        (_, Some(route), _) => route.rules.as_deref(),
        (
            Rejection::UnknownPath | Rejection::ContentTooLarge | Rejection::Preflight,
            None,
            Some(site),
        ) => site.rules.as_deref(),
        _ => None,
    };
    let Exchange {
        mut request,
        responder,
        peer,
        ..
    } = exchange;
    forward::ensure_request_id(&mut request.fields);
    let facts = Facts::of(&request, &peer, &gateway.options.trusted_proxies);
    let facts = facts.with_notes(notes.as_deref());
    let edits = rules.and_then(|rules| rules.response_edits.as_ref());
    let edits = edits.map(|edits| edits.for_request(&facts));
    let name = site.and_then(SiteRoutes::name);
    let refused = RefusedRoute::of(route, notes.as_deref_mut());
    let route = refused.as_ref().map(|refused| refused as &dyn RouteName);
    let mut record = Record::new(&request, peer, name, route, observers);
    record.begin_with(notes.as_deref());
    if let Some(response) = notes.as_mut().and_then(|notes| notes.response.take())
        && Call::of(&request).is_none()
    {
        let PolicyResponse { mut head, content } = *response;
        let edits = response_edits(&notes, edits.as_deref());
        Responder::new(responder, edits, &mut record.response).send(&mut head, content);
        record.response.ended = Ended::Rejected(rejection);
        return emit(&mut record, &request);
    }
    let mut head = rejection_head(rejection, rules, request.method);
    let is_redirect = rejection == Rejection::HttpsOnly;
    if is_redirect {
        let location = https_location(gateway, &request, &record.client);
        head.fields.append(Name::Location, location);
    }
    // Browsers follow redirects, and send gRPC-Web; gRPC has no redirects.
    let call = Call::of(&request).filter(|call| call.is_message_stream() || !is_redirect);
    let response = OwnResponse {
        request_fields: &request.fields,
        call: call.as_ref(),
        rules,
        edits: response_edits(&notes, edits.as_deref()),
        record: &mut record,
    };
    response.send(responder, head, rejection.detail());
    record.response.ended = Ended::Rejected(rejection);
    emit(&mut record, &request);
}

fn rejection_head(
    rejection: Rejection,
    rules: Option<&Rules>,
    method: Method,
) -> Pooled<ResponseHead> {
    let mut head = Pooled::response(rejection.status());
    match rejection {
        Rejection::MethodNotAllowed => {
            let allowed = rules.map(Rules::allowed_methods);
            head.fields.append(Name::Allow, allowed.unwrap_or_default());
        }
        Rejection::Method | Rejection::LastHop => head.fields.append(Name::Allow, ALLOWED),
        Rejection::NoBufferRoom | Rejection::DecodersFull => {
            head.fields.append(Name::RetryAfter, RETRY_AFTER);
        }
        Rejection::ContentCoding => head.fields.append(Name::AcceptEncoding, ACCEPTED_CODINGS),
        _ => {}
    }
    if method == Method::Connect {
        // The bytes that follow belong to another protocol.
        head.fields.append(Name::Connection, "close");
    }
    head
}

fn respond_rejected(
    request: &mut Request<'_>,
    responder: blitz_http::Responder,
    rejection: Rejection,
) {
    let head = rejection_head(rejection, request.rules, request.head.method);
    OwnResponse::of(request).send(responder, head, rejection.detail());
}

fn respond_failed(request: &mut Request<'_>, responder: blitz_http::Responder, failure: Failure) {
    let mut head = Pooled::response(failure.status());
    head.fields
        .append(Name::ProxyStatus, failure.proxy_status(request.record.rule));
    let response = OwnResponse::of(request);
    if response.call.is_some() {
        let code = Code::of_failure(failure);
        return response.send_call_status(responder, head, code, failure.detail());
    }
    if failure.status() == Status::SERVICE_UNAVAILABLE {
        head.fields.append(Name::RetryAfter, RETRY_AFTER);
    }
    response.send(responder, head, failure.detail());
}

/// Emits the record of a request whose client left while it waited for another thread or service.
pub(super) fn emit_left(
    exchange: &Exchange,
    observers: &CoreObservers,
    (site, route): (&SiteRoutes, &Route),
    notes: &Notes<'_>,
) {
    let (head, peer) = (&exchange.request, Rc::clone(&exchange.peer));
    let route: &dyn RouteName = route;
    let mut record = Record::new(head, peer, site.name(), Some(route), observers);
    record.begin_with(Some(notes));
    record.response.find_end();
    emit(&mut record, head);
}

/// The changes of a response: those in the notes of the policies, and those of the route.
#[inline(always)]
pub(super) fn response_edits<'a>(
    notes: &'a Option<Box<Notes<'_>>>,
    headers: Option<&'a [Edit]>,
) -> ResponseEdits<'a> {
    ResponseEdits {
        policies: match notes {
            None => &[],
            Some(notes) => &notes.response_edits,
        },
        headers: headers.unwrap_or_default(),
    }
}

/// A response of the gateway's own.
struct OwnResponse<'a, 'r> {
    /// Fields of the request.
    request_fields: &'a Fields,
    call: Option<&'a Call>,
    rules: Option<&'a Rules>,
    edits: ResponseEdits<'a>,
    record: &'a mut Record<'r>,
}

impl<'a, 'r> OwnResponse<'a, 'r> {
    fn of(request: &'a mut Request<'r>) -> OwnResponse<'a, 'r> {
        OwnResponse {
            request_fields: &request.head.fields,
            call: request.kind.call(),
            rules: request.rules,
            edits: response_edits(&request.notes, Some(&request.edits)),
            record: &mut request.record,
        }
    }

    /// `detail` is one of our own texts, which need no escaping in JSON.
    fn send(
        self,
        responder: blitz_http::Responder,
        head: Pooled<ResponseHead>,
        detail: impl Display,
    ) {
        let status = head.status;
        if self.call.is_some() {
            return self.send_call_status(responder, head, Code::of_own_status(status), detail);
        }
        let pages = self.rules.map(|rules| &rules.pages);
        let compression = self.rules.and_then(|rules| rules.compression.as_deref());
        let compressing = compression.map(|compression| {
            let (method, version) = (self.record.method, self.record.version);
            Compressing::of(compression, self.request_fields, method, version)
        });
        let responder = Responder::new(responder, self.edits, &mut self.record.response);
        let responder = responder.compressing(compressing.as_ref());
        responder.send_error(self.request_fields, pages, head, detail);
    }

    /// Ends a call; other requests have no such status.
    fn send_call_status(
        self,
        responder: blitz_http::Responder,
        mut head: Pooled<ResponseHead>,
        code: Code,
        detail: impl Display,
    ) {
        let Some(call) = self.call else { return };
        self.record.grpc_status = Some(code as u8);
        let content = call.respond(&mut head, code, detail);
        let responder = Responder::new(responder, self.edits, &mut self.record.response);
        responder.send_own(self.request_fields, head, content);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_texts_need_no_escaping() {
        let is_plain = |text: &str| {
            text.chars()
                .all(|c| c != '"' && c != '\\' && !c.is_control())
        };
        assert!(
            Failure::ALL
                .iter()
                .all(|failure| is_plain(failure.detail()))
        );
        assert!(Rejection::ALL.iter().all(|one| is_plain(one.detail())));
    }
}
