//! Routes with what they inherit: from `defaults`, the site, and enclosing routes, the least specific first.

use std::collections::HashMap;
use std::sync::Arc;

use super::Reader;
use super::own::{OwnAction, OwnMap, OwnSettings, OwnTarget};
use super::tree::Tree;
use crate::model::{Placed, Route, RouteKey};
use crate::settings::{Action, ErrorPage, FieldRule, Proxy, Settings, Timeouts, Unrouted};

/// Values that routes share, by the levels that say them: 0 is `defaults`.
#[derive(Default)]
pub(super) struct Shared {
    headers: HashMap<Vec<usize>, Arc<[Arc<FieldRule>]>>,
    request_headers: HashMap<Vec<usize>, Arc<[Arc<FieldRule>]>>,
    errors: HashMap<Vec<usize>, Arc<[Arc<ErrorPage>]>>,
    proxies: HashMap<[Option<usize>; 5], Arc<Proxy>>,
}

impl Shared {
    /// Keeps what comes from `defaults` alone.
    fn forget_site(&mut self) {
        let is_kept = |levels: &Vec<usize>| levels.iter().all(|level| *level == 0);
        self.headers.retain(|levels, _| is_kept(levels));
        self.request_headers.retain(|levels, _| is_kept(levels));
        self.errors.retain(|levels, _| is_kept(levels));
        self.proxies
            .retain(|levels, _| levels.iter().flatten().all(|level| *level == 0));
    }
}

/// The levels of a route: their numbers, and what they say. The route itself is the last one.
type Levels<'a> = Vec<(usize, &'a OwnSettings)>;

impl Reader<'_> {
    /// The routes of a site by rank, and what is said of other responses. The first of `own` is the site itself, which
    /// need not be a route.
    pub(super) fn inherit(
        &mut self,
        own: &[OwnSettings],
        tree: &Tree<'_>,
        defaults: &OwnSettings,
        is_whole: bool,
        shared: &mut Shared,
    ) -> (Vec<Route>, Unrouted) {
        let is_root = |other: &OwnSettings| other.key.value == RouteKey::everything();
        // Another route `/` stands for the site.
        let first = usize::from(own[1..].iter().any(is_root));
        let mut order: Vec<usize> = (first..own.len()).collect();
        order.sort_by(|&a, &b| own[a].key.value.by_rank(&own[b].key.value));
        let mut routes = Vec::new();
        for at in order {
            let enclosing = tree.enclosing(&own[at].key.value);
            let enclosing = enclosing.into_iter().filter(|&other| other != at);
            let of_site = enclosing.map(|other| (other + 1, &own[other]));
            let mut levels: Levels<'_> = vec![(0, defaults)];
            levels.extend(of_site);
            levels.push((at + 1, &own[at]));
            match self.resolve(&levels, shared) {
                Resolved::Action(action) => routes.push(Route {
                    key: own[at].key.clone(),
                    settings: settings(action, &levels, shared),
                }),
                Resolved::Wrong => {}
                Resolved::None if !is_whole => {}
                // A site may have nothing but the routes below it.
                Resolved::None if at == 0 && own.len() > 1 => {}
                Resolved::None => self.error(
                    "no-action",
                    own[at].key.span.clone(),
                    "this route has no action",
                    "write for example to = \"http://127.0.0.1:3000\"",
                ),
            }
        }
        let levels = vec![(0, defaults), (1, &own[0])];
        let unrouted = Unrouted {
            headers: merged(&levels, |own| &own.headers, &mut shared.headers),
            errors: merged(&levels, |own| &own.errors, &mut shared.errors),
        };
        shared.forget_site();
        (routes, unrouted)
    }

    fn resolve(&mut self, levels: &Levels<'_>, shared: &mut Shared) -> Resolved {
        let with_action = levels.iter().rposition(|(_, own)| own.action.is_some());
        let (Some(at), Some((_, own))) = (with_action, levels.last()) else {
            return Resolved::None;
        };
        let Some((action, _)) = &levels[at].1.action else {
            return Resolved::None;
        };
        let (action, span, name) = match action {
            OwnAction::Wrong => return Resolved::Wrong,
            OwnAction::To(to) => {
                let value = Action::Proxy(proxy(to, at, levels, shared));
                return Resolved::Action(Placed::new(value, to.url.span.clone()));
            }
            OwnAction::Redirect(redirect) => {
                let value = Action::Redirect(Arc::clone(&redirect.value));
                (value, redirect.span.clone(), "redirect")
            }
            OwnAction::Respond(respond) => {
                let value = Action::Respond(Arc::clone(&respond.value));
                (value, respond.span.clone(), "respond")
            }
        };
        if let Some((option, place)) = &own.option {
            let at = self.document.place(span.start);
            self.error(
                "option-of-to",
                place.clone(),
                format!("`{option}` belongs to `to`, and this route has `{name}`"),
                format!("leave it out, or write `to`; `{name}` is at {at}"),
            );
            return Resolved::Wrong;
        }
        Resolved::Action(Placed::new(action, span))
    }
}

enum Resolved {
    Action(Placed<Action>),
    /// The action is wrong, and has its diagnostic.
    Wrong,
    None,
}

/// The upstream that the level `at` says, with its options: those of this level and of the levels below it, and before
/// them those of levels above every action. What is said between belongs to the action that is replaced.
fn proxy(to: &OwnTarget, at: usize, levels: &Levels<'_>, shared: &mut Shared) -> Arc<Proxy> {
    let first = levels.iter().position(|(_, own)| own.action.is_some());
    let above = &levels[..first.unwrap_or(at)];
    let options = || above.iter().chain(&levels[at..]);
    let last = |is_written: fn(&OwnSettings) -> bool| {
        let level = options().rfind(|(_, own)| is_written(own));
        level.map(|(level, _)| *level)
    };
    let key = [
        levels.get(at).map(|(level, _)| *level),
        last(|own| own.path.is_written()),
        last(|own| own.host.is_written()),
        last(|own| own.raw_path.is_written()),
        last(|own| own.buffer_request.is_written()),
    ];
    let new = || {
        let mut proxy = Proxy {
            to: to.url.clone(),
            path: None,
            host: None,
            raw_path: None,
            buffer_request: None,
            proxy_protocol: to.proxy_protocol.clone(),
        };
        for (_, own) in options() {
            own.path.apply(&mut proxy.path);
            own.host.apply(&mut proxy.host);
            own.raw_path.apply(&mut proxy.raw_path);
            own.buffer_request.apply(&mut proxy.buffer_request);
        }
        Arc::new(proxy)
    };
    Arc::clone(shared.proxies.entry(key).or_insert_with(new))
}

fn settings(action: Placed<Action>, levels: &Levels<'_>, shared: &mut Shared) -> Settings {
    let mut settings = Settings {
        action,
        allow: None,
        deny: None,
        methods: None,
        body_max: None,
        timeouts: Timeouts::default(),
        headers: merged(levels, |own| &own.headers, &mut shared.headers),
        request_headers: merged(
            levels,
            |own| &own.request_headers,
            &mut shared.request_headers,
        ),
        errors: merged(levels, |own| &own.errors, &mut shared.errors),
        request_trailers: None,
    };
    for (_, own) in levels {
        own.allow.apply(&mut settings.allow);
        own.deny.apply(&mut settings.deny);
        own.methods.apply(&mut settings.methods);
        own.body_max.apply(&mut settings.body_max);
        own.connect.apply(&mut settings.timeouts.connect);
        own.response.apply(&mut settings.timeouts.response);
        own.idle.apply(&mut settings.timeouts.idle);
        own.request_trailers.apply(&mut settings.request_trailers);
    }
    settings
}

/// The values of a map, merged by key.
fn merged<K: Ord + Clone, V>(
    levels: &Levels<'_>,
    map: impl Fn(&OwnSettings) -> &OwnMap<K, V>,
    shared: &mut HashMap<Vec<usize>, Arc<[Arc<V>]>>,
) -> Arc<[Arc<V>]> {
    let mut maps: Vec<(usize, &OwnMap<K, V>)> = Vec::new();
    for (level, own) in levels {
        let map = map(own);
        if map.is_removed {
            maps.clear();
        }
        if map.is_written() {
            maps.push((*level, map));
        }
    }
    // That of most routes, so nothing is looked up for it.
    if maps.is_empty() {
        return Arc::default();
    }
    let numbers = maps.iter().map(|(level, _)| *level).collect();
    let new = || {
        let mut all = std::collections::BTreeMap::new();
        for (key, value) in maps.iter().flat_map(|(_, map)| &map.entries) {
            all.insert(key, value);
        }
        all.into_values().map(Arc::clone).collect()
    };
    Arc::clone(shared.entry(numbers).or_insert_with(new))
}
