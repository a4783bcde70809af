//! Endpoints: code that responds to the requests of a route, or of a gateway without sites.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use blitz_http::{Peer, Pooled, PooledFuture, RecvBody, RequestHead};

use crate::client::ClientAddress;
use crate::edit::ResponseEdits;
use crate::emit::{emit, emit_unobserved};
use crate::policy::Notes;
use crate::record::{Ended, Record};
use crate::rejection::Rejection;
use crate::responder::{AppParts, Responder};

/// Answers requests on one core.
pub trait Endpoint: 'static {
    /// Takes one request. Returns the rest of the work; the future is dropped when the client goes away or a deadline
    /// passes.
    fn call<'a>(self: Rc<Self>, exchange: Exchange<'a>) -> Option<PooledFuture<'a, ()>>;
}

/// Makes an endpoint on each core that needs it. Two are equal if they are clones of one.
#[derive(Clone)]
pub struct EndpointMaker(Arc<Make>);

type Make = dyn Fn() -> Rc<dyn Endpoint> + Send + Sync;

impl EndpointMaker {
    /// A maker of endpoints.
    pub fn new<E: Endpoint>(make: impl Fn() -> Rc<E> + Send + Sync + 'static) -> EndpointMaker {
        EndpointMaker(Arc::new(move || make()))
    }

    /// Makes the endpoint of the calling core.
    pub fn on_core(&self) -> Rc<dyn Endpoint> {
        (self.0)()
    }
}

impl PartialEq for EndpointMaker {
    fn eq(&self, other: &EndpointMaker) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for EndpointMaker {}

impl fmt::Debug for EndpointMaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EndpointMaker")
    }
}

/// The client of a request, as a trusted proxy tells it.
#[derive(Debug, Clone, Copy)]
pub struct AppClient {
    /// Its address.
    pub address: ClientAddress,
    /// Whether it uses TLS.
    pub is_secure: bool,
}

/// A request as it is handed to an [`Endpoint`].
pub struct Exchange<'a> {
    /// The head.
    pub request: Pooled<RequestHead>,
    /// The content, possibly still to come.
    pub body: RecvBody,
    /// Takes the response.
    pub responder: Responder<'a>,
    /// The connection of the client.
    pub peer: Rc<Peer>,
    /// The client, if that may be another one than the peer.
    pub client: Option<&'a AppClient>,
    /// Where to add the bytes of content that were read, if somebody will ask.
    pub received: Option<Rc<Cell<u64>>>,
}

/// The record of a request that an endpoint has taken over. Dropping it emits the record.
#[derive(Default)]
pub struct HandedOver<'a> {
    /// `None` until an endpoint gets the request.
    record: Option<Record<'a>>,
    /// The part of the head that logs and hooks show; `None` if nobody is told.
    head: Option<Pooled<RequestHead>>,
    received: Option<Rc<Cell<u64>>>,
}

impl<'a> HandedOver<'a> {
    /// The record of this request, from which the endpoint takes the head.
    #[inline(always)]
    pub fn new(mut record: Record<'a>, head: &Pooled<RequestHead>) -> HandedOver<'a> {
        let head = record.observe(head);
        let received = record.response.is_observed.then(Rc::default);
        HandedOver {
            record: Some(record),
            head,
            received,
        }
    }

    /// The request with the record of it that begins here, for an app. Spans of the app are within that of the request.
    #[inline(always)]
    pub fn to_app<'s>(
        &'s mut self,
        (record, notes): (Record<'a>, Option<&Notes<'_>>),
        mut exchange: blitz_http::Exchange,
        edits: ResponseEdits<'s>,
        app: Option<&'s AppParts<'s>>,
    ) -> Exchange<'s> {
        // It is made and changed where it stays, which spares copies of it.
        let record = self.record.insert(record);
        record.begin_with(notes);
        if let Some(trace) = &record.trace {
            trace.pass_to_app(&mut exchange.request.fields);
        }
        self.head = record.observe(&exchange.request);
        self.received = record.response.is_observed.then(Rc::default);
        self.exchange(exchange, edits, app)
    }

    /// The request with its record, for an endpoint whose responses get these changes and parts.
    #[inline]
    pub fn exchange<'s>(
        &'s mut self,
        exchange: blitz_http::Exchange,
        edits: ResponseEdits<'s>,
        app: Option<&'s AppParts<'s>>,
    ) -> Exchange<'s> {
        let responder = match &mut self.record {
            Some(record) => Responder::new(exchange.responder, edits, &mut record.response),
            None => Responder::unrecorded(exchange.responder),
        };
        Exchange {
            client: None,
            request: exchange.request,
            body: exchange.body,
            responder: responder.with_app_parts(app),
            peer: exchange.peer,
            received: self.received.clone(),
        }
    }
}

impl HandedOver<'_> {
    /// Notes that the response, which was sent, is that of a rejection.
    #[cold]
    pub fn note_rejected(&mut self, rejection: Rejection) {
        if let Some(record) = &mut self.record {
            record.response.ended = Ended::Rejected(rejection);
        }
    }
}

impl Drop for HandedOver<'_> {
    #[inline]
    fn drop(&mut self) {
        let Some(record) = &mut self.record else {
            return;
        };
        record.response.find_end();
        let received = self.received.as_ref();
        record.request_bytes = received.map_or(0, |received| received.get());
        match &self.head {
            None => emit_unobserved(record),
            Some(head) => emit(record, head),
        }
    }
}
