//! The app as it serves: built once, shared by all cores, never changed.

use std::any::{Any, TypeId};
use std::rc::Rc;
use std::sync::Arc;

use blitz_http::{Method, RequestHead, TargetForm};

use crate::handler::DynHandler;
use crate::middleware::{DynMiddleware, Next};
use crate::outcome::Outcome;
use crate::request::Request;
use crate::router::{Params, Router};

/// Index of a route in its site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RouteId(pub(crate) u32);

/// A handler and all that belongs to it.
pub(crate) struct Route {
    pub(crate) text: String,
    pub(crate) param_names: Vec<Box<str>>,
    pub(crate) layers: Vec<DynMiddleware>,
    pub(crate) handler: DynHandler,
}

impl Route {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn param_names(&self) -> &[Box<str>] {
        &self.param_names
    }

    pub(crate) fn layers(&self) -> &[DynMiddleware] {
        &self.layers
    }

    /// Calls the handler.
    pub(crate) fn call(&self, request: Request) -> Outcome {
        (self.handler)(request)
    }
}

/// Number of variants of [`Method`].
pub(crate) const METHODS: usize = Method::Other as usize + 1;

/// The route of each method on one path; one that is not allowed has the route that says so.
pub(crate) type MethodTable = [RouteId; METHODS];

/// Everything that was said about the app.
pub(crate) struct Site {
    pub(crate) router: Router<MethodTable>,
    pub(crate) routes: Vec<Route>,
    /// For paths that no route matches.
    pub(crate) not_found: RouteId,
    /// For `OPTIONS *`, and for what has no path at all.
    pub(crate) server_wide: MethodTable,
    pub(crate) states: States,
    pub(crate) body_bytes_max: usize,
}

impl Site {
    /// The route of a request, and where its parameters are.
    pub(crate) fn find(&self, head: &RequestHead) -> (RouteId, Params) {
        match self.router.find(head.path()) {
            Some((methods, params)) => (methods[head.method as usize], params),
            None if matches!(head.form(), TargetForm::Asterisk | TargetForm::Authority) => {
                (self.server_wide[head.method as usize], Params::default())
            }
            None => (self.not_found, Params::default()),
        }
    }

    pub(crate) fn route(&self, id: RouteId) -> &Route {
        &self.routes[id.0 as usize]
    }

    /// Most bytes of content that extractors read whole.
    pub(crate) fn body_bytes_max(&self) -> usize {
        self.body_bytes_max
    }
}

/// What makes the states of a core.
#[derive(Default)]
pub(crate) struct States(pub(crate) Vec<(TypeId, MakeState)>);

type MakeState = Box<dyn Fn() -> Rc<dyn Any> + Send + Sync>;

impl States {
    pub(crate) fn has<T: 'static>(&self) -> bool {
        self.0.iter().any(|(id, _)| *id == TypeId::of::<T>())
    }

    /// Adds the states of a nested app; where both have a type, ours stays.
    pub(crate) fn join(&mut self, other: States) {
        for (id, make) in other.0 {
            if !self.0.iter().any(|(known, _)| *known == id) {
                self.0.push((id, make));
            }
        }
    }

    /// Adds a state, in place of one of the same type.
    pub(crate) fn set<T: 'static>(&mut self, make: impl Fn() -> T + Send + Sync + 'static) {
        self.0.retain(|(id, _)| *id != TypeId::of::<T>());
        self.0
            .push((TypeId::of::<T>(), Box::new(move || Rc::new(make()))));
    }
}

/// A core's handles to the site, so that requests touch no shared counter.
pub(crate) struct Core {
    site: Arc<Site>,
    states: Box<[(TypeId, Rc<dyn Any>)]>,
}

impl Core {
    pub(crate) fn new(site: Arc<Site>) -> Core {
        let states = site
            .states
            .0
            .iter()
            .map(|(id, make)| (*id, make()))
            .collect();
        Core { site, states }
    }

    pub(crate) fn site(&self) -> &Site {
        &self.site
    }

    pub(crate) fn state<T: 'static>(&self) -> Option<Rc<T>> {
        let (_, state) = self
            .states
            .iter()
            .find(|(id, _)| *id == TypeId::of::<T>())?;
        Rc::clone(state).downcast().ok()
    }
}

/// Sends a request through the layers of its route to the handler.
pub(crate) fn dispatch(request: Request) -> Outcome {
    let core = Rc::clone(&request.core);
    let route = core.site().route(request.route);
    if route.layers.is_empty() {
        route.call(request)
    } else {
        Next::start(core.clone()).run(request)
    }
}
