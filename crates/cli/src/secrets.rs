//! Values of variables of the environment may be secret: they are shown as they are written.

use blitz_config::{Action, Configuration, Diagnostic, Document, Settings};
use blitz_gateway::Site;

/// How a value with a variable begins.
const VARIABLE: &str = "${";

/// Has the routes whose actions have variables shown as they are written.
pub(crate) fn hide(configuration: &Configuration, document: &Document, sites: &mut [Site]) {
    if !document.text.contains(VARIABLE) {
        return;
    }
    let mut sites = sites.iter_mut();
    for configured in &configuration.sites {
        let Some(site) = sites.next() else { return };
        for (configured, (_, route)) in configured.routes.iter().zip(&mut site.routes) {
            route.written = written(&configured.settings, document).map(Into::into);
            let settings = configured
                .variants
                .iter()
                .flat_map(|variants| &variants.settings);
            for (settings, variant) in settings.zip(route.variants_mut()) {
                variant.written = written(settings, document).map(Into::into);
            }
        }
        // Its redirects follow.
        if !configured.canonical_for.is_empty() {
            sites.next();
        }
    }
}

/// The action as it is written, if it has a variable.
fn written(settings: &Settings, document: &Document) -> Option<String> {
    let action = &settings.action;
    let mut parts = vec![document.slice(&action.span)];
    if let Action::Proxy(proxy) = &action.value {
        match &proxy.group {
            None => parts.push(document.slice(&proxy.to.span)),
            Some(group) => {
                let targets = group.targets.iter();
                let servers = targets.flat_map(|target| &target.servers);
                parts.extend(servers.map(|server| document.slice(&server.url.span)));
            }
        }
        parts.extend(proxy.path.as_ref().map(|path| document.slice(&path.span)));
        parts.extend(proxy.host.as_ref().map(|host| document.slice(&host.span)));
        parts.dedup();
    }
    let text = parts.join(" ");
    text.contains(VARIABLE).then_some(text)
}

/// Message and repair of a wrong value that is not shown.
type Texts = (&'static str, &'static str);

const OF_VARIABLE: Texts = (
    "the value of the variable cannot stand here",
    "give the variable another value; it is not shown, as it may be secret",
);

/// Of the name of an upstream, whose server may have a variable.
const OF_NAME: Texts = (
    "the server of this upstream has no valid URL",
    "correct its `servers`",
);

/// Replaces texts of diagnostics that were made of the values of variables.
pub(crate) fn hide_in(diagnostics: &mut [Diagnostic], document: &Document) {
    for diagnostic in diagnostics {
        let written = document.slice(&diagnostic.span);
        let (message, label) = match diagnostic.code {
            "address" | "upstream-url" if written.contains(VARIABLE) => OF_VARIABLE,
            "upstream-url" if !written.contains(':') => OF_NAME,
            _ => continue,
        };
        message.clone_into(&mut diagnostic.message);
        label.clone_into(&mut diagnostic.label);
    }
}
