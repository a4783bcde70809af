//! The built app: immutable, and shared by all cores.

use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use blitz_http::{Method, RequestHead, TargetForm};
use blitz_site::{CoreLimits, SharedLimits, preflight_method};

use crate::app_data::{AppData, CoreData, RouteId};
use crate::outcome::Outcome;
use crate::policy::RoutePolicies;
use crate::request::Request;
use crate::router::{Params, Router};

/// A handler without the type of its function.
pub(crate) type DynHandler = Box<dyn Fn(Request) -> Outcome + Send + Sync>;

/// A middleware without the type of its function.
pub(crate) type DynMiddleware = Arc<dyn Fn(Request, Next) -> Outcome + Send + Sync>;

/// The handler of a route, with its middleware.
pub(crate) struct Route {
    pub(crate) layers: Vec<DynMiddleware>,
    /// `None` if it has none.
    pub(crate) policies: Option<RoutePolicies>,
    pub(crate) handler: DynHandler,
}

impl Route {
    /// Whether preflights for it are answered by its policies.
    pub(crate) fn takes_preflights(&self) -> bool {
        let policies = self.policies.as_ref();
        policies.is_some_and(|route| route.policies.takes_preflights())
    }
}

/// The number of variants of [`Method`].
pub(crate) const METHODS: usize = Method::Other as usize + 1;

/// The route of each method on one path; methods that are not allowed have the route that sends 405.
pub(crate) type MethodTable = [RouteId; METHODS];

/// The routes and the data of an app.
pub(crate) struct Site {
    pub(crate) router: Router<MethodTable>,
    /// By [`RouteId`].
    pub(crate) routes: Vec<Route>,
    /// For paths that no route matches.
    pub(crate) not_found: RouteId,
    /// For `OPTIONS *`, and for targets without a path.
    pub(crate) server_wide: MethodTable,
    /// Whether a route has policies.
    pub(crate) has_policies: bool,
    /// Whether a route answers preflights.
    pub(crate) takes_preflights: bool,
    /// The counts of all cores, made by the first one.
    pub(crate) limits: OnceLock<Arc<SharedLimits>>,
    pub(crate) data: Arc<AppData>,
}

impl Site {
    /// The route of a request, and the ranges of its parameters.
    pub(crate) fn find(&self, head: &RequestHead) -> (RouteId, Params) {
        match self.router.find(head.path()) {
            Some((methods, params)) if self.takes_preflights && head.method == Method::Options => {
                (self.for_options(methods, head), params)
            }
            Some((methods, params)) => (methods[head.method as usize], params),
            None if matches!(head.form(), TargetForm::Asterisk | TargetForm::Authority) => {
                (self.server_wide[head.method as usize], Params::default())
            }
            None => (self.not_found, Params::default()),
        }
    }

    /// The route for `OPTIONS`. A preflight takes that of the method that it asks for, if its policies answer it.
    #[cold]
    fn for_options(&self, methods: &MethodTable, head: &RequestHead) -> RouteId {
        let asked = preflight_method(head).map(|method| methods[Method::parse(method) as usize]);
        let answers = |id: &RouteId| self.route(*id).takes_preflights();
        asked
            .filter(answers)
            .unwrap_or(methods[Method::Options as usize])
    }

    /// The policies of a route; `None` if it has none.
    #[inline]
    pub(crate) fn policies(&self, id: RouteId) -> Option<&RoutePolicies> {
        match self.has_policies {
            false => None,
            true => self.route(id).policies.as_ref(),
        }
    }

    fn route(&self, id: RouteId) -> &Route {
        &self.routes[id.0 as usize]
    }
}

/// A core's handles to the site and its data.
pub(crate) struct CoreSite {
    pub(crate) site: Arc<Site>,
    pub(crate) data: Rc<CoreData>,
    /// `None` if no route has policies.
    pub(crate) limits: Option<CoreLimits>,
}

impl CoreSite {
    pub(crate) fn new(site: Arc<Site>) -> CoreSite {
        let data = Rc::new(CoreData::new(Arc::clone(&site.data)));
        let limits = site.has_policies.then(|| {
            let new = || {
                let (cores, now) = (blitz_http::core_count(), blitz_http::now());
                Arc::new(SharedLimits::new(cores, blitz_http::random_u64(), now))
            };
            CoreLimits::new(site.limits.get_or_init(new))
        });
        CoreSite { site, data, limits }
    }
}

/// Passes a request through the middleware of its route to the handler.
pub(crate) fn dispatch(core: &Rc<CoreSite>, request: Request) -> Outcome {
    let route = core.site.route(request.route);
    if route.layers.is_empty() {
        (route.handler)(request)
    } else {
        let next = Next {
            core: Rc::clone(core),
            depth: 0,
        };
        next.run(request)
    }
}

/// The rest of the chain: the following middleware, then the handler.
pub struct Next {
    core: Rc<CoreSite>,
    /// The number of middleware functions that were called.
    depth: usize,
}

impl Next {
    /// Calls the next middleware, or the handler.
    ///
    /// The outcome can be awaited. Middleware that only changes the response should use [`Outcome::map`]
    /// instead, so that a ready response stays ready.
    pub fn run(self, request: Request) -> Outcome {
        let core = Rc::clone(&self.core);
        let route = core.site.route(request.route);
        match route.layers.get(self.depth) {
            Some(layer) => layer(
                request,
                Next {
                    core: self.core,
                    depth: self.depth + 1,
                },
            ),
            None => (route.handler)(request),
        }
    }
}
