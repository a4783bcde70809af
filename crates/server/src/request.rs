//! The request that a handler receives.

use std::rc::Rc;

use blitz_http::{Fields, Method, Peer, Pooled, RequestHead};

use crate::app_data::{CoreData, RouteId};
use crate::body::Body;
use crate::identity::Identity;
use crate::router::Params;

/// A request: its head, the ranges of its parameters, and a body that may be incomplete.
pub struct Request {
    pub(crate) head: Pooled<RequestHead>,
    pub(crate) params: Params,
    pub(crate) route: RouteId,
    pub(crate) body: Option<Body>,
    pub(crate) peer: Rc<Peer>,
    pub(crate) core: Rc<CoreData>,
    pub(crate) identity: Identity,
}

impl Request {
    /// The method; [`head`](Request::head) has the name of an unregistered one.
    pub fn method(&self) -> Method {
        self.head.method
    }

    /// The path that was matched: normalised, still percent-encoded.
    pub fn path(&self) -> &str {
        self.head.path()
    }

    /// The query without the `?`, still percent-encoded.
    pub fn query(&self) -> Option<&str> {
        self.head.query()
    }

    /// The header section.
    pub fn fields(&self) -> &Fields {
        &self.head.fields
    }

    /// The whole head.
    pub fn head(&self) -> &RequestHead {
        &self.head
    }

    /// The whole head, mutable. Changes do not affect the route.
    pub fn head_mut(&mut self) -> &mut RequestHead {
        &mut self.head
    }

    /// The addresses and the TLS properties of the connection.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The identity of the client, as policies have verified it.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The pattern of the matched route; empty if none has matched.
    pub fn route(&self) -> &str {
        &self.core.pattern(self.route).text
    }

    /// A parameter of the route by name, still percent-encoded.
    pub fn param(&self, name: &str) -> Option<&str> {
        self.params()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    /// Names and values of the route's parameters, still percent-encoded, in their order.
    pub fn params(&self) -> impl Iterator<Item = (&str, &str)> {
        let names = &self.core.pattern(self.route).param_names;
        let values = (0..self.params.len()).filter_map(|at| self.params.get(self.path(), at));
        names.iter().map(|name| &**name).zip(values)
    }

    /// Takes the body, once. A body that is not taken is discarded.
    pub fn take_body(&mut self) -> Option<Body> {
        self.body.take()
    }
}
