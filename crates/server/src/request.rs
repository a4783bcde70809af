//! The request as a handler sees it.

use std::rc::Rc;

use blitz_http::{Fields, Method, Peer, Pooled, RequestHead};

use crate::extract::Body;
use crate::router::Params;
use crate::site::{Core, RouteId};

/// A request: its head, where its parameters are, and a body that may still be arriving.
pub struct Request {
    pub(crate) head: Pooled<RequestHead>,
    pub(crate) params: Params,
    pub(crate) route: RouteId,
    pub(crate) body: Option<Body>,
    pub(crate) peer: Rc<Peer>,
    pub(crate) core: Rc<Core>,
}

impl Request {
    /// The method; of one that is not registered, [`head`](Request::head) knows the name.
    pub fn method(&self) -> Method {
        self.head.method
    }

    /// The path that was matched: normalised, still percent-encoded.
    pub fn path(&self) -> &str {
        self.head.path()
    }

    /// What follows the `?`, still percent-encoded.
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

    /// The whole head, to change. The route stays what it is.
    pub fn head_mut(&mut self) -> &mut RequestHead {
        &mut self.head
    }

    /// The two ends of the connection it came on.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The route that was matched, as it was written; empty where none was.
    pub fn route(&self) -> &str {
        self.core.site().route(self.route).text()
    }

    /// A parameter of the route by name, still percent-encoded.
    pub fn param(&self, name: &str) -> Option<&str> {
        self.params()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    /// Names and values of the route's parameters, still percent-encoded, in their order.
    pub fn params(&self) -> impl Iterator<Item = (&str, &str)> {
        let names = self.core.site().route(self.route).param_names();
        let values = (0..self.params.len()).filter_map(|at| self.params.get(self.path(), at));
        names.iter().map(|name| &**name).zip(values)
    }

    /// Takes the body, which can be done once; what is not taken is discarded.
    pub fn take_body(&mut self) -> Option<Body> {
        self.body.take()
    }
}
