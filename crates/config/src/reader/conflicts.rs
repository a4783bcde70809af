//! Routes of a site that contradict each other.

use std::collections::{HashMap, HashSet};

use super::Reader;
use super::own::{Own, OwnSettings};
use super::tree::RouteTree;
use crate::method::{Method, Methods};
use crate::model::Route;
use crate::pattern::{PathEnd, PathPattern};
use crate::route_key::RouteKey;
use crate::settings::{Action, Proxy};

/// Whether a key is written, and whether it has a value.
type IsWritten = fn(&OwnSettings) -> (bool, bool);

/// The keys whose rules depend on the client.
const ACCESS: [(&str, IsWritten); 8] = [
    ("allow", |own| written(own, |own| &own.allow)),
    ("deny", |own| written(own, |own| &own.deny)),
    ("jwt", |own| written(own, |own| &own.policies.jwt)),
    ("forward_auth", |own| {
        written(own, |own| &own.policies.forward_auth)
    }),
    ("basic_auth", |own| {
        written(own, |own| &own.policies.basic_auth)
    }),
    ("api_keys", |own| written(own, |own| &own.policies.api_keys)),
    ("client_cert", |own| {
        written(own, |own| &own.policies.client_cert)
    }),
    ("satisfy", |own| written(own, |own| &own.policies.satisfy)),
];

/// A key with GET takes HEAD too, unless a key with the same path names HEAD.
pub(super) fn add_head(own: &mut [OwnSettings]) {
    let has = |own: &OwnSettings, method| {
        let methods = own.key.value.methods;
        methods.is_some_and(|methods| methods.contains(method))
    };
    let with_head = own.iter().filter(|own| has(own, Method::Head));
    let with_head: HashSet<String> = with_head.map(|own| own.key.value.path.shape()).collect();
    for own in own {
        if has(own, Method::Get)
            && (with_head.is_empty() || !with_head.contains(&own.key.value.path.shape()))
            && let Some(methods) = &mut own.key.value.methods
        {
            methods.insert(Method::Head);
        }
    }
}

impl Reader<'_> {
    /// Two routes that match the same requests with equal rank. The first of `own` is the site itself.
    pub(super) fn same_routes(&mut self, own: &[OwnSettings]) {
        // Another route `/` stands for a site that has no action.
        let is_route = |(at, own): &(usize, &OwnSettings)| *at > 0 || own.has_action();
        let routes = own.iter().enumerate().filter(is_route);
        let mut routes: Vec<&OwnSettings> = routes.map(|(_, route)| route).collect();
        let by_path =
            |a: &OwnSettings, b: &OwnSettings| a.key.value.path.by_rank(&b.key.value.path);
        // Those with the same paths stand together, in the order of the file.
        routes.sort_by(|a, b| by_path(a, b));
        for group in routes.chunk_by(|a, b| by_path(a, b).is_eq()) {
            for (at, route) in group.iter().enumerate() {
                let overlapping =
                    |other: &&&OwnSettings| overlap(&other.key.value, &route.key.value);
                let is_same = |other: &&&OwnSettings| {
                    other.key.value.path.regex() == route.key.value.path.regex()
                };
                let before = || group[..at].iter().filter(overlapping);
                let Some(first) = before().find(is_same) else {
                    self.regex_tie(route, before().copied());
                    continue;
                };
                let place = self.document.place(first.key.span.start);
                let label = match first.key.span == own[0].key.span {
                    true => "the site itself is the route `/`; write these keys there".to_owned(),
                    false => format!("the same as {place}; keep one of them"),
                };
                let (one, other) = (&first.key.value, &route.key.value);
                let message = format!("`{one}` and `{other}` match the same requests");
                self.error("same-route", route.key.span.clone(), message, label);
            }
        }
    }

    /// A regex with the beginning, and the priority, of another one of these.
    fn regex_tie<'o>(
        &mut self,
        route: &OwnSettings,
        mut others: impl Iterator<Item = &'o OwnSettings>,
    ) {
        let path = &route.key.value.path;
        let Some(regex) = path.regex() else { return };
        let is_tie = |other: &&OwnSettings| other.key.value.path.priority() == path.priority();
        let Some(first) = others.find(is_tie) else {
            return;
        };
        let place = self.document.place(first.key.span.start);
        let beginning = regex.beginning();
        self.error(
            "regex-tie",
            route.key.span.clone(),
            format!("two regexes begin with the same text `{beginning}`"),
            match path.priority() {
                0 => format!("give this one or {place} a `priority`"),
                _ => format!("give this one and {place} different values of `priority`"),
            },
        );
    }

    /// `/app` beside `/app/`: almost always one was meant, since the other would get a single path.
    pub(super) fn slash_pairs(&mut self, routes: &[Route]) {
        let of_end = |end: fn(&PathEnd) -> bool| {
            let routes = routes.iter();
            routes.filter(move |route| end(&route.key.value.path.end))
        };
        let mut with: HashMap<String, Vec<&Route>> = HashMap::new();
        for route in of_end(|end| *end == PathEnd::Below) {
            let without = PathPattern {
                end: PathEnd::Subtree,
                ..route.key.value.path.clone()
            };
            with.entry(without.shape()).or_default().push(route);
        }
        if with.is_empty() {
            return;
        }
        for without in of_end(|end| *end == PathEnd::Subtree) {
            let found = with.get(&without.key.value.path.shape());
            let is_pair = |with: &&&Route| {
                takes_all_methods(&with.key.value, &without.key.value)
                    && !is_same_action(&with.settings.action.value, &without.settings.action.value)
            };
            let Some(with) = found.and_then(|with| with.iter().find(is_pair)) else {
                continue;
            };
            let (path, below) = (&without.key.value.path, &with.key.value.path);
            self.error(
                "slash-pair",
                without.key.span.clone(),
                format!("`{path}` would get a single path, because `{below}` goes elsewhere"),
                format!("`{path}` also matches all below; keep one, or write \"={path}\""),
            );
        }
    }

    /// Routes that can take a request that a protected one matches, and that do not inherit its protection.
    pub(super) fn access_gaps(&mut self, own: &[OwnSettings], tree: &RouteTree<'_>) {
        for (name, check) in ACCESS {
            let mut found = HashSet::new();
            for (at, protected) in own.iter().enumerate() {
                let (_, has_value) = check(protected);
                if !has_value {
                    continue;
                }
                for other in tree.ahead(at) {
                    let key = &protected.key.value;
                    // A regex does not enclose itself.
                    let levels = tree.enclosing(&own[other].key.value).into_iter();
                    let says_own = levels
                        .chain([other])
                        .any(|level| check(&own[level]).0 && !own[level].key.value.encloses(key));
                    if !says_own && is_reached(&own[other].key.value, key, tree, own) {
                        found.insert((other, at));
                    }
                }
            }
            let mut found: Vec<_> = found.into_iter().collect();
            found.sort_unstable();
            found.dedup_by_key(|(other, _)| *other);
            for (other, at) in found {
                self.access_gap(name, &own[other], &own[at]);
            }
        }
    }

    /// Protected `/a/` or `=/a/` without `/a`, which many servers answer alike.
    pub(super) fn slash_gaps(
        &mut self,
        own: &[OwnSettings],
        tree: &RouteTree<'_>,
        routes: &[Route],
    ) {
        let has_root = || {
            routes
                .iter()
                .any(|route| route.key.value.path.is_everything())
        };
        for (name, check) in ACCESS {
            for protected in own.iter().filter(|own| check(own).1) {
                let key = &protected.key.value;
                let Some(path) = key.path.without_slash() else {
                    continue;
                };
                let bare = RouteKey {
                    path,
                    ..key.clone()
                };
                let enclosing = tree.enclosing(&bare);
                let is_covered = |level: &usize| {
                    let level = &own[*level];
                    let outer = &level.key.value;
                    outer.path.has_segments_of(&bare.path)
                        || (check(level).0 && !outer.encloses(key))
                };
                // The site is the first of them, and need not be a route.
                let taker = enclosing.last().filter(|level| **level > 0 || has_root());
                if let Some(&taker) = taker
                    && !enclosing.iter().any(is_covered)
                {
                    self.slash_gap(name, protected, &bare, &own[taker].key.value);
                }
            }
        }
    }

    fn slash_gap(
        &mut self,
        name: &str,
        protected: &OwnSettings,
        bare: &RouteKey,
        taker: &RouteKey,
    ) {
        let key = &protected.key.value;
        let both = RouteKey {
            path: PathPattern {
                end: PathEnd::Subtree,
                ..bare.path.clone()
            },
            ..bare.clone()
        };
        let label = match key.path.end {
            PathEnd::Below => {
                format!("write \"{both}\", which matches both, or a route \"{bare}\" too")
            }
            _ => format!("write a route \"{bare}\" too"),
        };
        let path = &both.path;
        self.error(
            "access-gap",
            protected.key.span.clone(),
            format!("`{path}` goes to `{taker}` without the `{name}` of `{key}`, and many servers answer both alike"),
            label,
        );
    }

    fn access_gap(&mut self, name: &str, route: &OwnSettings, protected: &OwnSettings) {
        let place = self.document.place(protected.key.span.start);
        let (key, other) = (&route.key.value, &protected.key.value);
        self.error(
            "access-gap",
            route.key.span.clone(),
            format!("`{key}` takes requests of `{other}`, and does not inherit its `{name}`"),
            format!("write `{name}` here too, or {name} = false to serve everybody; `{other}` is at {place}"),
        );
    }
}

/// A block `when` protects its route, but does not stand for a rule of a route around it.
fn written<T: Clone>(own: &OwnSettings, key: fn(&OwnSettings) -> &Own<T>) -> (bool, bool) {
    let presets = own.presets.iter().rev().map(|(_, preset)| key(preset));
    let last = std::iter::once(key(own))
        .chain(presets)
        .find(|own| own.is_written());
    let is_in_block = own
        .blocks
        .iter()
        .any(|block| key(&block.own).value().is_some());
    let has_value = last.is_some_and(|own| own.value().is_some());
    (last.is_some(), has_value || is_in_block)
}

/// Whether `route` takes some request that it shares with `protected`, because no third route comes before it for all of
/// them. Two others may share a path and what is below it, or the methods.
fn is_reached(
    route: &RouteKey,
    protected: &RouteKey,
    tree: &RouteTree<'_>,
    own: &[OwnSettings],
) -> bool {
    let Some(shared) = route.intersection(protected) else {
        return false;
    };
    let ends = match shared.path.end {
        PathEnd::Subtree => &[PathEnd::Exact, PathEnd::Below][..],
        _ => std::slice::from_ref(&shared.path.end),
    };
    let methods: Vec<Option<Methods>> = match shared.methods {
        None => vec![None],
        Some(methods) => methods
            .iter()
            .map(|one| Some([one].into_iter().collect()))
            .collect(),
    };
    let parts = ends
        .iter()
        .flat_map(|end| methods.iter().map(move |methods| (end, methods)));
    parts.into_iter().any(|(end, methods)| {
        let part = RouteKey {
            path: PathPattern {
                end: end.clone(),
                ..shared.path.clone()
            },
            methods: *methods,
        };
        let mut others = tree.enclosing(&part).into_iter();
        !others.any(|other| own[other].key.value.by_rank(route).is_lt())
    })
}

/// Whether two keys with the same paths have equal rank and a common request.
fn overlap(a: &RouteKey, b: &RouteKey) -> bool {
    match (a.methods, b.methods) {
        (None, None) => true,
        (Some(a), Some(b)) => !a.intersection(b).is_empty(),
        _ => false,
    }
}

fn takes_all_methods(outer: &RouteKey, inner: &RouteKey) -> bool {
    match (outer.methods, inner.methods) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(outer), Some(inner)) => outer.intersection(inner) == inner,
    }
}

/// Whether two actions do the same, wherever they are written.
fn is_same_action(a: &Action, b: &Action) -> bool {
    match (a, b) {
        (Action::Proxy(a), Action::Proxy(b)) => is_same_proxy(a, b),
        (Action::Redirect(a), Action::Redirect(b)) => a == b,
        (Action::Respond(a), Action::Respond(b)) => a == b,
        (Action::Files(a), Action::Files(b)) => a == b,
        _ => false,
    }
}

fn is_same_proxy(a: &Proxy, b: &Proxy) -> bool {
    let path = |proxy: &'_ Proxy| proxy.path.as_ref().map(|path| path.value.clone());
    let host = |proxy: &'_ Proxy| proxy.host.as_ref().map(|host| host.value.clone());
    let raw = |proxy: &Proxy| proxy.raw_path.as_ref().is_some_and(|raw| raw.value);
    let is_same_group = match (&a.group, &b.group) {
        (Some(a), Some(b)) => a.is_same(b),
        (None, None) => a.to.value == b.to.value,
        _ => false,
    };
    is_same_group
        && a.files == b.files
        && path(a) == path(b)
        && host(a) == host(b)
        && raw(a) == raw(b)
}
