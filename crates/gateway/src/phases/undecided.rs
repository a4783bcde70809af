//! The route of a request on which an authorizer gave no decision, for the record of that request.

use blitz_site::metrics::RouteLabel;
use blitz_site::{NoDecision, RouteName};

use crate::route::Route;

/// A route, with the reason for which its authorizer gave no decision.
pub(super) struct UndecidedRoute<'a> {
    pub(super) route: &'a Route,
    pub(super) why: Box<NoDecision>,
}

impl RouteName for UndecidedRoute<'_> {
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
        Some(&self.why)
    }

    fn label(&self) -> RouteLabel {
        self.route.label()
    }
}
