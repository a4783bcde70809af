//! The built app: immutable, and shared by all cores.

use std::any::{Any, TypeId};
use std::rc::Rc;
use std::sync::Arc;

use blitz_http::{Method, RequestHead, TargetForm};

use crate::handler::DynHandler;
use crate::middleware::{DynMiddleware, Next};
use crate::outcome::Outcome;
use crate::request::Request;
use crate::router::{Params, Router};

/// The index of a route in its site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RouteId(pub(crate) u32);

/// A handler with its pattern, parameters and middleware.
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

/// The number of variants of [`Method`].
pub(crate) const METHODS: usize = Method::Other as usize + 1;

/// The route of each method on one path; methods that are not allowed have the route that sends 405.
pub(crate) type MethodTable = [RouteId; METHODS];

/// The routes, states and limits of an app.
pub(crate) struct Site {
    pub(crate) router: Router<MethodTable>,
    pub(crate) routes: Vec<Route>,
    /// For paths that no route matches.
    pub(crate) not_found: RouteId,
    /// For `OPTIONS *`, and for targets without a path.
    pub(crate) server_wide: MethodTable,
    pub(crate) states: States,
    pub(crate) body_bytes_max: usize,
}

impl Site {
    /// The route of a request, and the ranges of its parameters.
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

    /// Most bytes of content that extractors buffer.
    pub(crate) fn body_bytes_max(&self) -> usize {
        self.body_bytes_max
    }
}

/// The constructors of a core's states.
#[derive(Default)]
pub(crate) struct States(pub(crate) Vec<(TypeId, MakeState)>);

type MakeState = Box<dyn Fn() -> Rc<dyn Any> + Send + Sync>;

impl States {
    pub(crate) fn has<T: 'static>(&self) -> bool {
        self.0.iter().any(|(id, _)| *id == TypeId::of::<T>())
    }

    /// Adds the states of a nested app; if both have a state of one type, ours stays.
    pub(crate) fn join(&mut self, other: States) {
        for (id, make) in other.0 {
            if !self.0.iter().any(|(known, _)| *known == id) {
                self.0.push((id, make));
            }
        }
    }

    /// Adds a state; it replaces one of the same type.
    pub(crate) fn set<T: 'static>(&mut self, make: impl Fn() -> T + Send + Sync + 'static) {
        self.0.retain(|(id, _)| *id != TypeId::of::<T>());
        self.0
            .push((TypeId::of::<T>(), Box::new(move || Rc::new(make()))));
    }
}

/// A core's handles to the site and its states. Requests clone handles of the core, so that they change no
/// atomic reference count.
pub(crate) struct CoreSite {
    site: Arc<Site>,
    states: Box<[(TypeId, Rc<dyn Any>)]>,
}

impl CoreSite {
    pub(crate) fn new(site: Arc<Site>) -> CoreSite {
        let states = site
            .states
            .0
            .iter()
            .map(|(id, make)| (*id, make()))
            .collect();
        CoreSite { site, states }
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

/// Passes a request through the middleware of its route to the handler.
pub(crate) fn dispatch(request: Request) -> Outcome {
    let core = Rc::clone(&request.core);
    let route = core.site().route(request.route);
    if route.layers.is_empty() {
        route.call(request)
    } else {
        Next::start(core.clone()).run(request)
    }
}
