//! The claims of tokens that a configuration uses.

use std::collections::BTreeSet;

use crate::model::{Configuration, Route};
use crate::settings::{Action, FieldChange, FieldRules, RespondBody, Settings};
use crate::span::Span;
use crate::template::Template;

impl Configuration {
    /// The names of the claims by which limits count and servers are chosen, and of those in placeholders, each once.
    #[must_use]
    pub fn claims(&self) -> Vec<String> {
        let mut names = BTreeSet::new();
        let routes = self.sites.iter().flat_map(|site| &site.routes);
        for settings in routes.flat_map(all_settings) {
            if let Some(limit) = &settings.policies.rate_limit {
                names.extend(limit.value.claims().map(str::to_owned));
            }
            names.extend(of_servers(settings).map(|(name, _)| name.to_owned()));
            of_placeholders(settings, |name, _| {
                names.insert(name.to_owned());
            });
        }
        names.into_iter().collect()
    }

    /// Whether somebody asks for the names of clients: the access log, a placeholder or a limit.
    #[must_use]
    pub fn tells_users(&self) -> bool {
        let mut tells = self.process.log.access.is_some();
        let routes = self.sites.iter().flat_map(|site| &site.routes);
        for settings in routes.flat_map(all_settings) {
            let limit = &settings.policies.rate_limit;
            tells |= limit.as_ref().is_some_and(|limit| limit.value.is_by_user());
            of_templates(settings, |template, _| tells |= template.has_user());
        }
        tells
    }
}

/// The settings of a route and of its variants.
pub(crate) fn all_settings(route: &Route) -> impl Iterator<Item = &Settings> {
    let variants = route.variants.iter();
    let variants = variants.flat_map(|variants| &variants.settings);
    std::iter::once(&route.settings).chain(variants)
}

/// The claims that choose a server, with the places that say so.
pub(crate) fn of_servers(settings: &Settings) -> impl Iterator<Item = (&str, &Span)> {
    let group = match &settings.action.value {
        Action::Proxy(proxy) => proxy.group.as_ref(),
        Action::Redirect(_) | Action::Respond(_) | Action::Files(_) => None,
    };
    group.into_iter().flat_map(|group| group.claims())
}

/// Calls a function with each claim of placeholders, and the place of its text.
pub(crate) fn of_placeholders<'s>(settings: &'s Settings, mut found: impl FnMut(&'s str, &Span)) {
    of_templates(settings, |template, span| {
        template.claims().for_each(|name| found(name, span));
    });
}

/// Calls a function with each text that may have placeholders, and its place.
pub(crate) fn of_templates<'s>(
    settings: &'s Settings,
    mut of_template: impl FnMut(&'s Template, &Span),
) {
    let of_rules = |rules: &'s FieldRules, of: &mut dyn FnMut(&'s Template, &Span)| {
        for rule in rules.iter() {
            match &rule.change.value {
                FieldChange::Set(lines) => {
                    (lines.iter()).for_each(|line| of(line, &rule.change.span));
                }
                FieldChange::Default(line) | FieldChange::Add(line) => of(line, &rule.change.span),
                FieldChange::Remove => {}
            }
        }
    };
    of_rules(&settings.headers, &mut of_template);
    of_rules(&settings.request_headers, &mut of_template);
    let span = &settings.action.span;
    match &settings.action.value {
        Action::Proxy(proxy) => {
            if let Some(path) = &proxy.path {
                of_template(&path.value, &path.span);
            }
        }
        Action::Redirect(redirect) => of_template(&redirect.target, span),
        Action::Respond(respond) => {
            if let RespondBody::Text(text) = &respond.body {
                of_template(text, span);
            }
            of_rules(&respond.headers, &mut of_template);
        }
        Action::Files(_) => {}
    }
}
