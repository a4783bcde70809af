//! A request on its way to an upstream: the state that phases share.

use std::borrow::Cow;

use blitz_http::{BodyError, Drain, Exchange, Peer, Pooled, RequestHead, Responder, Upstream};

use crate::forward;
use crate::proxy_status::Failure;
use crate::reconnecting::Reconnecting;
use crate::record::{self, Ended, Record};
use crate::request_kind::RequestKind;
use crate::route::ForwardRoute;
use crate::rules::{Edit, Edits, Facts, Rules};
use crate::service::GatewayService;
use crate::upload::Upload;
use crate::upstream::Tried;

/// A request that a target matched. Dropping it emits its record.
pub(crate) struct Request<'a> {
    pub(crate) head: Pooled<RequestHead>,
    pub(crate) upload: Upload,
    /// Gone once the response has begun.
    pub(crate) responder: Option<Responder>,
    pub(crate) kind: RequestKind,
    pub(crate) tried: Tried,
    pub(crate) repeats: Repeats,
    pub(crate) reconnecting: Reconnecting,
    /// Is reported if no other address can be connected to. Boxed, so that requests without one are small.
    pub(crate) connect_failure: Option<Box<ConnectFailure>>,
    /// Of the route; `None` changes nothing.
    pub(crate) rules: Option<&'a Rules>,
    /// Changes of the fields of the final response.
    pub(crate) edits: Cow<'a, [Edit]>,
    pub(crate) record: Record<'a>,
}

/// How often a request was sent again (rule 13).
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    /// Because the upstream did not process it.
    pub(crate) unprocessed: u8,
    /// Although the upstream may have processed it.
    pub(crate) perhaps_processed: bool,
}

/// A failure to connect to one address of the upstream.
pub(crate) struct ConnectFailure {
    pub(crate) failure: Failure,
    pub(crate) upstream: Upstream,
    /// See [`Record::rule`].
    pub(crate) rule: Option<&'static str>,
}

impl<'a> Request<'a> {
    pub(crate) fn new<S>(
        gateway: &'a GatewayService<S>,
        route: &ForwardRoute<'a>,
        exchange: Exchange,
    ) -> Request<'a> {
        let Exchange {
            request: mut head,
            mut body,
            responder,
            peer,
        } = exchange;
        let options = &gateway.options;
        let rules = route.rules();
        let edits = rules.map(|rules| response_edits(gateway, rules, &mut head, &peer));
        let record = Record::new(&head, peer, Some(route.route), &gateway.observers);
        let kind = RequestKind::of(&head, &body, &responder, &route.target.upgrades);
        if kind.is_message_stream() {
            body.disable_min_rate();
        }
        let waits = !body.is_done() && responder.expects_continue();
        let hold = waits.then(|| blitz_http::sleep(options.continue_timeout));
        Request {
            head,
            upload: Upload::new(body, hold),
            responder: Some(responder),
            kind,
            tried: Tried::default(),
            repeats: Repeats::default(),
            reconnecting: Reconnecting::default(),
            connect_failure: None,
            rules,
            edits: edits.unwrap_or_default(),
            record,
        }
    }
}

/// Values of placeholders are those of the request as it came.
#[inline(never)]
fn response_edits<'a, S>(
    gateway: &GatewayService<S>,
    rules: &'a Rules,
    head: &mut RequestHead,
    peer: &Peer,
) -> Cow<'a, [Edit]> {
    match &rules.response_edits {
        None => Cow::default(),
        Some(Edits::Fixed(edits)) => Cow::Borrowed(edits),
        Some(edits) => {
            forward::ensure_request_id(&mut head.fields);
            edits.for_request(&Facts::of(head, peer, &gateway.options.trusted_proxies))
        }
    }
}

impl Request<'_> {
    /// How the request ended, if its future was dropped although the client has a response.
    #[cold]
    fn find_end(&mut self) {
        let has_begun = self.responder.is_none();
        if has_begun && self.record.has_all_content() {
            // An HTTP/2 upstream may end the response after its last byte, and the client need not wait.
            self.record.ended = Ended::Complete;
        } else if is_cut_off_by_drain() {
            self.record.ended = Ended::CutOff(Failure::DrainEnded);
        } else if !has_begun && let Some(error @ BodyError::TimedOut) = self.upload.failure() {
            self.record.status = Some(error.status());
            self.record.ended = Ended::RequestContent(error);
        }
    }
}

/// Whether this core drops the requests that still run.
#[cold]
fn is_cut_off_by_drain() -> bool {
    let deadline = Drain::of_core().deadline();
    deadline.is_some_and(|deadline| blitz_http::now() >= deadline)
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        self.record.request_bytes += self.upload.received();
        if matches!(self.record.ended, Ended::ClientGone) {
            self.find_end();
        }
        record::emit(&self.record, &self.head);
    }
}
