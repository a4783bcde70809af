//! Builds the site from the routes of an app.

use std::sync::{Arc, OnceLock};

use blitz_http::{Method, Name, Status};

use crate::app::{App, RouteDraft};
use crate::app_data::{AppData, RouteId, RoutePattern, States};
use crate::error::{Error, Result};
use crate::extract::Setup;
use crate::outcome::Outcome;
use crate::policy::{Kind, RoutePolicies};
use crate::problem::Problem;
use crate::response::{IntoResponse, Response};
use crate::router::{Pattern, RouterBuilder};
use crate::site::{DynHandler, DynMiddleware, METHODS, MethodTable, Route, Site};

/// Methods in the order of `Allow`.
const NAMED: [Method; 9] = [
    Method::Get,
    Method::Head,
    Method::Post,
    Method::Put,
    Method::Patch,
    Method::Delete,
    Method::Options,
    Method::Trace,
    Method::Connect,
];

/// Checks an app and builds its site.
pub(crate) fn site(app: App) -> Result<Site> {
    if let Some(error) = app.mistake {
        return Err(error);
    }
    let mut routes = Routes {
        layers: app.layers,
        policies: app.policies,
        list: Vec::new(),
        patterns: Vec::new(),
    };
    let mut builder = RouterBuilder::<PathRoutes>::default();
    // Last, because a route of its own on such a path has precedence.
    let mut nested_roots = Vec::new();
    for draft in app.drafts {
        let pattern =
            Pattern::parse(&draft.pattern).map_err(|error| Error::new(error.to_string()))?;
        let has_identity = routes.tell_identity(&draft);
        check(&draft, &pattern, &app.states, has_identity)?;
        let path = builder.entry(&pattern);
        let slot = match draft.method {
            Some(method) => &mut path.methods[method as usize],
            None => &mut path.any,
        };
        if let Some(other) = slot {
            return Err(conflict(&draft, routes.text(*other)));
        }
        let (method, nested_root) = (draft.method, draft.nested_root.clone());
        let id = routes.add(draft, &pattern)?;
        *slot = Some(id);
        let nested_root = nested_root.filter(|path| !path.is_empty());
        nested_roots.extend(nested_root.map(|path| (path, method, id)));
    }
    for (path, method, id) in nested_roots {
        let pattern = Pattern::parse(&path).map_err(|error| Error::new(error.to_string()))?;
        let path = builder.entry(&pattern);
        let slot = match method {
            Some(method) => &mut path.methods[method as usize],
            None => &mut path.any,
        };
        slot.get_or_insert(id);
    }
    // Checked here, so that implied routes need no check.
    RoutePolicies::new(routes.policies.iter())?;
    let not_found = routes.add_implied("", app.fallback);
    let mut all = PathRoutes::default();
    all.methods[Method::Get as usize] = Some(not_found);
    let server_wide = methods(&all, "*", &mut routes);
    let router = builder.build().map(|path| {
        let text = path.first().map(|id| routes.text(id).to_owned());
        methods(&path, &text.unwrap_or_default(), &mut routes)
    });
    Ok(Site {
        limits: OnceLock::new(),
        has_policies: routes.list.iter().any(|route| route.policies.is_some()),
        takes_preflights: routes.list.iter().any(Route::takes_preflights),
        router,
        routes: routes.list,
        not_found,
        server_wide,
        data: Arc::new(AppData {
            patterns: routes.patterns,
            states: app.states,
            body_bytes_max: app.body_bytes_max,
        }),
    })
}

/// The routes of one path.
#[derive(Default)]
struct PathRoutes {
    methods: [Option<RouteId>; METHODS],
    any: Option<RouteId>,
}

impl PathRoutes {
    fn first(&self) -> Option<RouteId> {
        self.methods.iter().flatten().next().copied().or(self.any)
    }
}

/// The routes that were added, and the middleware and policies of all of them.
struct Routes {
    layers: Vec<DynMiddleware>,
    policies: Vec<Kind>,
    list: Vec<Route>,
    patterns: Vec<RoutePattern>,
}

impl Routes {
    fn add(&mut self, draft: RouteDraft, pattern: &Pattern) -> Result<RouteId> {
        let mut layers = self.layers.clone();
        layers.extend(draft.layers);
        let policies = RoutePolicies::new(self.policies.iter().chain(&draft.policies))?;
        let body_max = policies.as_ref().and_then(|route| route.body_bytes_max);
        let pattern = RoutePattern {
            text: draft.pattern,
            param_names: pattern.names().to_vec(),
            body_bytes_max: body_max.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
        };
        let route = Route {
            layers,
            policies,
            handler: draft.handler,
        };
        Ok(self.push(pattern, route))
    }

    /// Whether the policies of a route prove who the client is.
    fn tell_identity(&self, draft: &RouteDraft) -> bool {
        let mut policies = self.policies.iter().chain(&draft.policies);
        policies.any(Kind::tells_identity)
    }

    /// Adds a route that the app did not declare, with the app's own middleware only.
    fn add_implied(&mut self, text: &str, handler: DynHandler) -> RouteId {
        let pattern = RoutePattern {
            text: text.to_owned(),
            param_names: Vec::new(),
            body_bytes_max: None,
        };
        // They were checked before.
        let policies = RoutePolicies::new(self.policies.iter()).unwrap_or_default();
        let route = Route {
            layers: self.layers.clone(),
            policies,
            handler,
        };
        self.push(pattern, route)
    }

    /// The pattern of a route, as written.
    fn text(&self, id: RouteId) -> &str {
        &self.patterns[id.0 as usize].text
    }

    fn push(&mut self, pattern: RoutePattern, route: Route) -> RouteId {
        self.patterns.push(pattern);
        self.list.push(route);
        RouteId(self.list.len() as u32 - 1)
    }
}

/// Adds the implied routes: HEAD, OPTIONS and 405
/// ([RFC 9110, section 15.5.6](https://www.rfc-editor.org/rfc/rfc9110#section-15.5.6)).
fn methods(path: &PathRoutes, text: &str, routes: &mut Routes) -> MethodTable {
    let given = |method: Method| path.methods[method as usize];
    let mut allowed: Vec<&str> = Vec::new();
    for method in NAMED {
        let implied = match method {
            Method::Head => given(Method::Get).is_some(),
            Method::Options => true,
            Method::Connect | Method::Trace => false,
            _ => path.any.is_some(),
        };
        if implied || given(method).is_some() {
            allowed.push(method.as_str());
        }
    }
    let allow = allowed.join(", ");
    let options = path
        .any
        .unwrap_or_else(|| routes.add_implied(text, answer_options(allow.clone())));
    let refused = routes.add_implied(text, refuse_method(allow));
    let other = path.any.unwrap_or(refused);
    let mut table = [other; METHODS];
    table[Method::Options as usize] = options;
    // An App is not a forward proxy, and TRACE would disclose fields that gateways have added.
    table[Method::Connect as usize] = refused;
    table[Method::Trace as usize] = refused;
    table[Method::Head as usize] = given(Method::Get).unwrap_or(other);
    for (method, route) in path.methods.iter().enumerate() {
        if let Some(route) = route {
            table[method] = *route;
        }
    }
    table
}

fn answer_options(allow: String) -> DynHandler {
    Box::new(move |_| Outcome::Ready(Response::new(Status::NO_CONTENT).header(Name::Allow, &allow)))
}

fn refuse_method(allow: String) -> DynHandler {
    Box::new(move |_| {
        let problem = Problem::new(Status::METHOD_NOT_ALLOWED);
        let response = problem
            .detail(format!("this path allows {allow}"))
            .into_response();
        Outcome::Ready(response.header(Name::Allow, &allow))
    })
}

/// Checks that the route and the app provide what the extractors of its handler need.
fn check(draft: &RouteDraft, pattern: &Pattern, states: &States, has_identity: bool) -> Result {
    let setup = Setup {
        param_names: pattern.names(),
        states,
        has_identity,
    };
    (draft.check)(&setup).map_err(|missing| {
        Error::new(format!(
            "the route `{}` cannot work: {missing}",
            name(draft)
        ))
    })
}

fn conflict(draft: &RouteDraft, other: &str) -> Error {
    let method = draft.method.map_or("any", Method::as_str);
    Error::new(format!(
        "`{}` and `{method} {other}` match the same paths",
        name(draft)
    ))
    .with_remedy("Remove one of the two, or restrict a parameter, for example `{id:u64}`.")
}

fn name(draft: &RouteDraft) -> String {
    format!(
        "{} {}",
        draft.method.map_or("any", Method::as_str),
        draft.pattern
    )
}
