//! Routes with inherited settings: from `defaults`, the site, and enclosing routes, the least specific first.

use std::collections::HashMap;
use std::sync::Arc;

use super::Reader;
use super::files::{self, FilesLevels, OwnFolder};
use super::own::{BLOCKS, LevelNumber, Own, OwnAction, OwnMap, OwnSettings, OwnTarget, PRESETS};
use super::tree::RouteTree;
use crate::model::Route;
use crate::network_list::NetworkList;
use crate::policy::Policies;
use crate::route_key::RouteKey;
use crate::settings::{Action, ErrorPage, FieldRule, Files, Proxy, Settings, Timeouts, Unrouted};
use crate::span::{Placed, Span};

/// Values that routes share, by the levels that say them: 0 is `defaults`.
#[derive(Default)]
pub(super) struct InheritedValues {
    headers: HashMap<Vec<usize>, Arc<[Arc<FieldRule>]>>,
    request_headers: HashMap<Vec<usize>, Arc<[Arc<FieldRule>]>>,
    errors: HashMap<Vec<usize>, Arc<[Arc<ErrorPage>]>>,
    proxies: HashMap<ProxyLevels, Arc<Proxy>>,
    files: HashMap<FilesLevels, Arc<Files>>,
}

/// The levels that say a target and its options, and those of the files before it.
type ProxyLevels = ([Option<LevelNumber>; 7], Option<FilesLevels>);

impl InheritedValues {
    /// Keeps the settings of `defaults` and presets alone.
    fn forget_site(&mut self) {
        let is_kept = |level: &usize| *level == 0 || *level >= PRESETS;
        let are_kept = |levels: &Vec<usize>| levels.iter().all(is_kept);
        self.headers.retain(|levels, _| are_kept(levels));
        self.request_headers.retain(|levels, _| are_kept(levels));
        self.errors.retain(|levels, _| are_kept(levels));
        self.proxies.retain(|(levels, files), _| {
            let files = files.iter().flatten();
            levels.iter().chain(files).flatten().all(is_kept)
        });
        self.files
            .retain(|levels, _| levels.iter().flatten().all(is_kept));
    }
}

/// The levels of a route: their numbers and own settings. The route itself is the last one, or the outermost of the
/// blocks `when` that apply.
#[derive(Clone, Default)]
pub(super) struct Levels<'a>(Vec<(LevelNumber, &'a OwnSettings)>);

impl<'a> Levels<'a> {
    /// Adds a level, and its presets before it.
    pub(super) fn push(&mut self, number: LevelNumber, own: &'a OwnSettings) {
        for (number, preset) in &own.presets {
            self.push(*number, preset);
        }
        self.0.push((number, own));
    }
}

impl<'a> std::ops::Deref for Levels<'a> {
    type Target = [(LevelNumber, &'a OwnSettings)];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Reader<'_> {
    /// The routes of a site by rank, and the settings for other responses. The first of `own` is the site itself, which
    /// need not be a route.
    pub(super) fn inherit(
        &mut self,
        own: &[OwnSettings],
        tree: &RouteTree<'_>,
        defaults: &OwnSettings,
        is_whole: bool,
        shared: &mut InheritedValues,
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
            let of_site: Vec<usize> = enclosing.chain([at]).collect();
            let mut levels = Levels::default();
            levels.push(0, defaults);
            for &level in &of_site {
                levels.push(level + 1, &own[level]);
            }
            match self.resolve(&levels, shared) {
                Resolved::Action(action) => {
                    let outer = levels[..levels.len() - 1].iter();
                    self.parts_of_satisfy(&own[at], outer.map(|(_, own)| *own));
                    let innermost_first = of_site.iter().rev().map(|&level| &own[level]);
                    let variants = self.variants(&levels, innermost_first, shared);
                    routes.push(Route {
                        key: own[at].key.clone(),
                        priority: own[at].priority.clone(),
                        settings: settings(action, &levels, shared),
                        variants,
                    });
                }
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
        let mut levels = Levels::default();
        levels.push(0, defaults);
        levels.push(1, &own[0]);
        let mut policies = Policies::default();
        for (_, own) in levels.iter() {
            own.policies.cors.apply(&mut policies.cors);
            let headers = &own.policies.security_headers;
            headers.apply(&mut policies.security_headers);
        }
        let unrouted = Unrouted {
            policies,
            headers: merged(&levels, |own| &own.headers, &mut shared.headers),
            errors: merged(&levels, |own| &own.errors, &mut shared.errors),
        };
        shared.forget_site();
        (routes, unrouted)
    }

    pub(super) fn resolve(
        &mut self,
        levels: &Levels<'_>,
        shared: &mut InheritedValues,
    ) -> Resolved {
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
                if let Some((option, place)) = &own.files.first {
                    self.option_of_files(option, place, &to.span, "to");
                    return Resolved::Wrong;
                }
                let proxy = proxy(to, None, at, levels, shared);
                self.check_group(&proxy, &levels[at..]);
                return Resolved::Action(Placed::new(Action::Proxy(proxy), to.span.clone()));
            }
            OwnAction::Redirect(redirect) => {
                let value = Action::Redirect(Arc::clone(&redirect.value));
                (value, redirect.span.clone(), "redirect")
            }
            OwnAction::Respond(respond) => {
                let value = Action::Respond(Arc::clone(&respond.value));
                (value, respond.span.clone(), "respond")
            }
            OwnAction::FilesFirst(folder, to) => {
                let (files, key) = folder_of(folder, at, levels, shared);
                self.check_files_before(&files, to);
                let proxy = proxy(to, Some((files, key)), at, levels, shared);
                self.check_group(&proxy, &levels[at..]);
                return Resolved::Action(Placed::new(Action::Proxy(proxy), to.span.clone()));
            }
            OwnAction::Files(folder) => {
                let (files, _) = folder_of(folder, at, levels, shared);
                (Action::Files(files), folder.folder.span.clone(), "files")
            }
        };
        if let (Some((option, place)), false) = (&own.files.first, name == "files") {
            self.option_of_files(option, place, &span, name);
            return Resolved::Wrong;
        }
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

    /// A listing would take the place of all that the upstream has at paths of folders.
    fn check_files_before(&mut self, files: &Files, to: &OwnTarget) {
        if let Some(list) = files.list.as_ref().filter(|list| list.value) {
            let at = self.document.place(to.span.start);
            let message = "a folder without an index goes to the upstream, and is not listed";
            let label = format!("leave it out, or write list = false beside the `to` at {at}");
            self.error("list-before-to", list.span.clone(), message, label);
        }
    }

    fn option_of_files(&mut self, option: &str, place: &Span, action: &Span, name: &str) {
        let at = self.document.place(action.start);
        self.error(
            "option-of-files",
            place.clone(),
            format!("`{option}` belongs to `files`, and this route has `{name}`"),
            format!("leave it out, or write `files`; `{name}` is at {at}"),
        );
    }
}

/// The levels whose options belong to the action of the level `at`.
fn options<'a>(at: usize, levels: &Levels<'a>) -> Vec<(LevelNumber, &'a OwnSettings)> {
    let first = levels.iter().position(|(_, own)| own.action.is_some());
    let above = &levels[..first.unwrap_or(at)];
    above.iter().chain(&levels[at..]).copied().collect()
}

/// The folder of the level `at` with its options, and the levels that say them.
fn folder_of(
    folder: &OwnFolder,
    at: usize,
    levels: &Levels<'_>,
    shared: &mut InheritedValues,
) -> (Arc<Files>, FilesLevels) {
    let options = options(at, levels);
    let key = files::levels(levels.get(at).map(|(level, _)| *level), &options);
    let new = || Arc::new(files::merged(folder, &options));
    let files = shared.files.entry(key).or_insert_with(new);
    (Arc::clone(files), key)
}

pub(super) enum Resolved {
    Action(Placed<Action>),
    /// The action is wrong, and has its diagnostic.
    Wrong,
    None,
}

/// The upstream of the level `at`, with its options: those of this level and of the levels below it, and before them
/// those of levels above every action. Options between these levels belong to the action that is replaced.
fn proxy(
    to: &OwnTarget,
    files: Option<(Arc<Files>, FilesLevels)>,
    at: usize,
    levels: &Levels<'_>,
    shared: &mut InheritedValues,
) -> Arc<Proxy> {
    let options = options(at, levels);
    let last = |is_written: fn(&OwnSettings) -> bool| {
        let level = options.iter().rfind(|(_, own)| is_written(own));
        level.map(|(level, _)| *level)
    };
    let (files, of_files) = files.unzip();
    let levels = [
        levels.get(at).map(|(level, _)| *level),
        last(|own| own.path.is_written()),
        last(|own| own.host.is_written()),
        last(|own| own.raw_path.is_written()),
        last(|own| own.buffer_request.is_written()),
        last(|own| own.sticky.is_written()),
        last(|own| own.retries.is_written()),
    ];
    let new = || {
        let mut proxy = Proxy {
            to: to.url.clone(),
            name: to.name.clone(),
            files,
            group: None,
            path: None,
            host: None,
            raw_path: None,
            buffer_request: None,
            retries: None,
            proxy_protocol: to.proxy_protocol.clone(),
            limits: to.limits.clone(),
        };
        let mut sticky = None;
        for (_, own) in &options {
            own.sticky.apply(&mut sticky);
            own.path.apply(&mut proxy.path);
            own.host.apply(&mut proxy.host);
            own.raw_path.apply(&mut proxy.raw_path);
            own.buffer_request.apply(&mut proxy.buffer_request);
            own.retries.apply(&mut proxy.retries);
        }
        proxy.group = match (&to.group, &sticky) {
            (Some(group), Some(sticky)) => Some(Arc::new(group.with_sticky(sticky))),
            (group, _) => group.clone(),
        };
        Arc::new(proxy)
    };
    let proxy = shared.proxies.entry((levels, of_files));
    Arc::clone(proxy.or_insert_with(new))
}

pub(super) fn settings(
    action: Placed<Action>,
    levels: &Levels<'_>,
    shared: &mut InheritedValues,
) -> Settings {
    let mut settings = Settings {
        action,
        allow: None,
        deny: None,
        methods: None,
        body_max: None,
        decompress: None,
        timeouts: Timeouts::default(),
        headers: merged(levels, |own| &own.headers, &mut shared.headers),
        request_headers: merged(
            levels,
            |own| &own.request_headers,
            &mut shared.request_headers,
        ),
        errors: merged(levels, |own| &own.errors, &mut shared.errors),
        access_log: None,
        replace_errors: None,
        request_trailers: None,
        compress: None,
        upgrade: None,
        importance: None,
        mirror: None,
        policies: Policies::default(),
    };
    for (number, own) in levels.iter() {
        // Those of a block are demanded in addition.
        let is_block = (BLOCKS..PRESETS).contains(number);
        match (&own.allow, &mut settings.allow) {
            (Own::Value(further), Some(allow)) if is_block => {
                *allow = Arc::new(NetworkList::intersection(allow, further));
            }
            (own, allow) => own.apply(allow),
        }
        match (&own.deny, &mut settings.deny) {
            (Own::Value(further), Some(deny)) if is_block => {
                *deny = Arc::new(NetworkList::union(deny, further));
            }
            (own, deny) => own.apply(deny),
        }
        own.methods.apply(&mut settings.methods);
        own.body_max.apply(&mut settings.body_max);
        own.decompress.apply(&mut settings.decompress);
        own.connect.apply(&mut settings.timeouts.connect);
        own.request.apply(&mut settings.timeouts.request);
        own.response.apply(&mut settings.timeouts.response);
        own.idle.apply(&mut settings.timeouts.idle);
        own.access_log.apply(&mut settings.access_log);
        own.replace_errors.apply(&mut settings.replace_errors);
        own.request_trailers.apply(&mut settings.request_trailers);
        own.compress.apply(&mut settings.compress);
        own.upgrade.apply(&mut settings.upgrade);
        own.importance.apply(&mut settings.importance);
        own.mirror.apply(&mut settings.mirror);
        match is_block {
            true => own.policies.apply_block(&mut settings.policies),
            false => own.policies.apply_level(&mut settings.policies),
        }
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
    for (level, own) in levels.iter() {
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
