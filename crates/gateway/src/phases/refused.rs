//! The route of a request that its policies refused, for the record of that request.

use blitz_site::metrics::RouteLabel;
use blitz_site::{NoDecision, Notes, RouteName};

use crate::route::Route;

/// A route, with the reasons of a refusal that operators are told.
pub(super) struct RefusedRoute<'a> {
    pub(super) route: &'a Route,
    /// Why its authorizer gave no decision.
    pub(super) no_decision: Option<Box<NoDecision>>,
    /// Why the token was refused.
    pub(super) reason: Option<Box<str>>,
}

impl<'a> RefusedRoute<'a> {
    /// The route with the reasons that policies have noted.
    pub(super) fn of(
        route: Option<&'a Route>,
        notes: Option<&mut Notes<'_>>,
    ) -> Option<RefusedRoute<'a>> {
        let told = notes.map(|notes| (notes.no_decision.take(), notes.reason.take()));
        let (no_decision, reason) = told.unwrap_or_default();
        Some(RefusedRoute {
            route: route?,
            no_decision,
            reason,
        })
    }
}

impl RouteName for RefusedRoute<'_> {
    fn name(&self) -> &str {
        self.route.name()
    }

    fn upstream(&self) -> Option<String> {
        self.route.upstream()
    }

    fn is_logged(&self) -> bool {
        self.route.is_logged()
    }

    fn no_decision(&self) -> Option<&NoDecision> {
        self.no_decision.as_deref()
    }

    fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    fn label(&self) -> RouteLabel {
        self.route.label()
    }
}
