//! The texts of routes and upstreams in metrics, by their numbers. Cores have the numbers only.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blitz_site::metrics::RouteLabel;

use crate::route::{Action, NumberedLabel, Route};
use crate::sites::Sites;

/// The route of the requests that have no series of their own, and their upstream.
pub(super) const OTHER: &str = "_other";

/// The route of the requests that no route matched.
const UNROUTED: &str = "_unrouted";

/// A longer text is cut.
const TEXT_BYTES_MAX: usize = 200;

/// The name of routes for all paths that have no path of their own.
const OTHER_PATHS: &str = "other paths";

/// All texts since the start of the process: series outlive configurations. There are at most [`RouteLabel::MAX`];
/// routes beyond have no series of their own.
pub(crate) struct Labels(Mutex<Known>);

struct Known {
    numbers: HashMap<LabelTexts, u32>,
    texts: Vec<LabelTexts>,
}

/// The texts of a label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct LabelTexts {
    /// The site and the key of the route.
    pub(crate) route: Arc<str>,
    /// The name or the URL of its upstream; `None` if it has none.
    pub(crate) upstream: Option<Arc<str>>,
}

impl Labels {
    pub(crate) fn new() -> Labels {
        let mut known = Known {
            numbers: HashMap::new(),
            texts: Vec::new(),
        };
        for (number, route) in [(RouteLabel::OTHER, OTHER), (RouteLabel::UNROUTED, UNROUTED)] {
            let added = known.number(LabelTexts {
                route: route.into(),
                upstream: None,
            });
            assert_eq!(added, number);
        }
        Labels(Mutex::new(known))
    }

    /// Numbers all routes. Those with the same texts have the same number, also in other configurations.
    pub(crate) fn number(&self, sites: &mut Sites) {
        let mut known = self.lock();
        sites.for_each_route_mut(|site, route| {
            let texts = LabelTexts {
                route: cut(route_text(site, &route.name)).into(),
                upstream: upstream_text(route).map(|text| cut(text).into()),
            };
            route.label = NumberedLabel(known.number(texts));
        });
    }

    /// The texts of some labels, in their order.
    pub(super) fn texts(&self) -> Vec<LabelTexts> {
        self.lock().texts.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn number(&mut self, texts: LabelTexts) -> RouteLabel {
        if let Some(number) = self.numbers.get(&texts) {
            return RouteLabel::new(*number);
        }
        let number = self.texts.len() as u32;
        if number >= RouteLabel::MAX {
            return RouteLabel::OTHER;
        }
        self.texts.push(texts.clone());
        self.numbers.insert(texts, number);
        RouteLabel::new(number)
    }
}

/// The site and the key of a route: `app.example/api`, `GET app.example/api`, `app.example=/health`.
fn route_text(site: Option<&str>, name: &str) -> String {
    let site = site.unwrap_or_default();
    let is_path = |text: &str| text.starts_with(['/', '=', '~', '*']);
    match name.split_once(' ') {
        _ if name == OTHER_PATHS => format!("{site}/"),
        Some((methods, path)) if !is_path(name) && is_path(path) => {
            format!("{methods} {site}{path}")
        }
        _ => format!("{site}{name}"),
    }
}

/// The texts of URLs that come from variables, whose values must not be shown.
pub(crate) fn hidden_urls(sites: &mut Sites) -> HashMap<String, Arc<str>> {
    let mut hidden = HashMap::new();
    sites.for_each_route_mut(|_, route| {
        let (Some(written), Action::Forward(forward)) = (&route.written, &route.action) else {
            return;
        };
        let group = forward.group.iter();
        let others = group.flat_map(|group| group.config.servers.iter());
        for target in std::iter::once(&forward.target).chain(others) {
            hidden.insert(target.url(), written.clone().into());
        }
    });
    hidden
}

/// The upstream of a route as the configuration has it, without the values of variables.
fn upstream_text(route: &Route) -> Option<String> {
    let Action::Forward(forward) = &route.action else {
        return None;
    };
    Some(match (&forward.name, &route.written, &forward.group) {
        (Some(name), ..) => name.to_string(),
        (None, Some(written), _) => written.to_string(),
        (None, None, Some(group)) => group.config.target_names(),
        (None, None, None) => forward.target.url(),
    })
}

fn cut(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        let mut ends = (0..=TEXT_BYTES_MAX).rev();
        let end = ends.find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_named_by_its_site_and_its_key() {
        for (site, name, text) in [
            (Some("a.example"), "/api", "a.example/api"),
            (Some("a.example"), "GET,HEAD /api", "GET,HEAD a.example/api"),
            (Some("a.example"), "=/health", "a.example=/health"),
            (Some("a.example"), r"~/a b/\d", r"a.example~/a b/\d"),
            (Some("*"), "other paths", "*/"),
            (None, "/api", "/api"),
            (None, "other paths", "/"),
        ] {
            assert_eq!(route_text(site, name), text);
        }
    }

    #[test]
    fn the_same_texts_have_the_same_number() {
        let labels = Labels::new();
        let number = |targets: &[&str]| {
            let targets = targets.iter().map(|target| target.parse().unwrap());
            let mut sites = Sites::of_targets(targets.collect(), false).unwrap();
            labels.number(&mut sites);
            let site = sites.iter().next().unwrap();
            let numbers = site.routes.iter().map(|route| route.label.0.number());
            numbers.collect::<Vec<_>>()
        };
        assert_eq!(number(&["/a=http://u:1", "/b=http://u:1"]).len(), 2);
        let texts = labels.texts();
        assert_eq!(texts.len(), 4);
        assert_eq!(
            number(&["/a=http://u:1", "/b=http://u:1"])
                .iter()
                .sum::<usize>(),
            5
        );
        assert_eq!(number(&["/a=http://v:1"]), [4]);
        assert_eq!(labels.texts()[4].upstream.as_deref(), Some("http://v:1"));
        assert_eq!(&*texts[1].route, "_unrouted");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut("é".repeat(200)).chars().count(), 101);
        assert_eq!(cut("short".into()), "short");
    }
}
