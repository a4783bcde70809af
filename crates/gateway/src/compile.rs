//! From the model of a file to sites with targets.

use blitz_config::{Configuration, Diagnostic, PathPattern, Route};

use crate::routes::{RouteConflict, conflicts};
use crate::sites::Site;
use crate::target::{Prefix, Target, TargetError};

/// The sites of a configuration. What cannot be used is added to the diagnostics.
pub fn compile(configuration: &Configuration, diagnostics: &mut Vec<Diagnostic>) -> Vec<Site> {
    let mut sites = Vec::new();
    for site in &configuration.sites {
        let mut targets: Vec<(&Route, Target)> = Vec::new();
        for route in &site.routes {
            match target(route) {
                Ok(target) => targets.push((route, target)),
                Err(diagnostic) => diagnostics.push(diagnostic),
            }
        }
        diagnostics.extend(same_routes(&targets));
        let aliases = site.aliases.iter().map(|alias| alias.value.clone());
        sites.push(Site {
            hosts: std::iter::once(site.host.value.clone())
                .chain(aliases)
                .collect(),
            targets: targets.into_iter().map(|(_, target)| target).collect(),
            redirect_https: site.tls.redirects,
        });
    }
    sites
}

fn target(route: &Route) -> Result<Target, Diagnostic> {
    let url = &route.to;
    let invalid = |code, span: &blitz_config::Span, error: &TargetError| {
        Diagnostic::error(code, span.clone(), error.problem(), error.fix())
    };
    let target: Target = url
        .value
        .parse()
        .map_err(|error| invalid("upstream-url", &url.span, &error))?;
    let prefix =
        prefix(&route.path.value).map_err(|error| invalid("path", &route.path.span, &error))?;
    let path = match &route.replacement {
        Some(path) => {
            let checked = Prefix::segments(path);
            checked.map_err(|error| invalid("path", &route.path.span, &error))?;
            Some(path.clone())
        }
        None => None,
    };
    Ok(Target {
        prefix,
        path,
        ..target
    })
}

fn prefix(path: &PathPattern) -> Result<Prefix, TargetError> {
    match path {
        PathPattern::Segments(text) if text == "/" => Ok(Prefix::Everything),
        PathPattern::Segments(text) => Prefix::segments(text),
        PathPattern::Text(text) => Prefix::starting_with(text),
    }
}

/// The routes that contradict others before them.
fn same_routes(targets: &[(&Route, Target)]) -> Vec<Diagnostic> {
    let all: Vec<Target> = targets.iter().map(|(_, target)| target.clone()).collect();
    let conflicts = conflicts(&all);
    conflicts
        .map(|(at, conflict)| same_route(targets[at].0, &conflict))
        .collect()
}

fn same_route(route: &Route, conflict: &RouteConflict) -> Diagnostic {
    let message = match conflict {
        RouteConflict::Same { .. } => "another route of the site matches the same requests",
        RouteConflict::Slash { .. } => "a route that differs by a slash at its end goes elsewhere",
    };
    Diagnostic::error(
        "same-route",
        route.path.span.clone(),
        message,
        "keep one of them",
    )
}
