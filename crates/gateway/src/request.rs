//! A request on its way to an upstream: the state that phases share.

use blitz_http::{Exchange, Pooled, RequestHead, Responder};

use crate::proxy_status::Failure;
use crate::record::{self, Record};
use crate::request_kind::RequestKind;
use crate::service::{GatewayService, Route};
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
    /// Outcome of the last attempt to connect, if it failed.
    pub(crate) connect_failure: Option<Failure>,
    pub(crate) record: Record<'a>,
}

impl<'a> Request<'a> {
    pub(crate) fn new<S>(
        gateway: &'a GatewayService<S>,
        route: &'a Route,
        exchange: Exchange,
    ) -> Request<'a> {
        let Exchange {
            request: head,
            mut body,
            responder,
            peer,
        } = exchange;
        let options = &gateway.options;
        let record = Record::new(
            &head,
            peer,
            Some(&route.target.prefix),
            options.record_hook.as_ref(),
        );
        let kind = RequestKind::of(&head, &body, &responder);
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
            connect_failure: None,
            record,
        }
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        self.record.request_bytes += self.upload.received();
        record::emit(&self.record, &self.head);
    }
}
