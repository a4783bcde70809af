//! From the model of a file to sites with routes.

mod clients;
mod policies;
mod shared;
mod tls;

use std::ops::RangeInclusive;
use std::sync::Arc;

use blitz_config::{
    Action, Configuration, Diagnostic, ErrorPage, ForwardedHost, Importance, Placed, Proxy,
    ProxyProtocol, Respond, RespondBody, Settings, StatusPattern, TargetGroup, TimeLimit, Upgrades,
};
use blitz_http::{FOREVER, ProxyVersion, Status, UpgradeForm};
use blitz_site::matcher::{KeyError, Methods, PathPattern, RouteKey};
use blitz_site::{LoadedFile, NetworkSet, Pages};

use crate::answer::{Answer, FixedContent, FixedResponse};
use crate::mirror::Mirror;
use crate::request_limits::RequestLimits;
use crate::rewriting::UpstreamPrefix;
use crate::route::{self, Forward, ForwardGroup, ForwardedPath, NumberedLabel, Route};
use crate::rules::{Edits, Rules};
use crate::sites::{Site, SiteTls};
use crate::target::{Target, TargetError};
use crate::upstream::{ConnectionSettings, GroupConfig};
use crate::variants::Variants;
use shared::{Demands, SharedValues};

/// Reads files that a configuration names. An error is a problem and its remedy. A closure reads no networks.
pub trait ReadFile {
    /// The content of a file.
    ///
    /// # Errors
    /// It cannot be read.
    fn read(&mut self, file: &str) -> Result<LoadedFile, (String, String)>;

    /// The networks of a file, which sets that are in use share if it has not changed.
    ///
    /// # Errors
    /// It cannot be read, or has another line than a network.
    fn networks(&mut self, _: &str) -> Result<Arc<NetworkSet>, (String, String)> {
        Err((
            "files of networks are not read here".to_owned(),
            String::new(),
        ))
    }
}

impl<F: FnMut(&str) -> Result<LoadedFile, (String, String)>> ReadFile for F {
    fn read(&mut self, file: &str) -> Result<LoadedFile, (String, String)> {
        self(file)
    }
}

/// The sites of a configuration. Each setting that cannot be used adds a diagnostic.
pub fn compile(
    configuration: &Configuration,
    read_file: &mut dyn ReadFile,
    diagnostics: &mut Vec<Diagnostic>,
) -> Vec<Site> {
    let mut compiler = Compiler {
        claims: configuration.claims(),
        tells_users: configuration.tells_users(),
        hash_key: policies::hash_key(&configuration.process.redis),
        shared: SharedValues::new(read_file, &configuration.folder),
        diagnostics,
    };
    let mut sites = Vec::with_capacity(configuration.sites.len());
    for site in &configuration.sites {
        let mut routes = Vec::with_capacity(site.routes.len());
        routes.extend(site.routes.iter().filter_map(|route| compiler.route(route)));
        let pages = compiler.pages(&site.unrouted.errors);
        let policies = compiler.policies(&site.unrouted.policies);
        let rules = Rules::of_unrouted(&site.unrouted.headers, pages, policies);
        let rules = (rules != Rules::default()).then(|| Arc::new(rules));
        let tls = compiler.tls(site);
        let aliases = site.aliases.iter().map(|alias| alias.value.clone());
        sites.push(Site {
            hosts: std::iter::once(site.host.value.clone())
                .chain(aliases)
                .collect(),
            routes,
            canonical: None,
            rules: rules.clone(),
            redirect_https: site.tls.redirects,
            limits: RequestLimits::new(&site.limits),
            listeners: None,
            tls: tls.clone(),
        });
        sites.extend(canonical(site, rules.as_deref(), tls));
    }
    sites
}

/// The hosts whose requests are redirected to the name of the site.
fn canonical(site: &blitz_config::Site, rules: Option<&Rules>, tls: SiteTls) -> Option<Site> {
    let hosts = site.canonical_for.iter().map(|host| host.value.clone());
    let host = site.host.value.to_string();
    let route = Route {
        name: "other paths".into(),
        written: None,
        action: route::Action::Answer(Answer::Canonical(host)),
        rules: rules.map(|rules| Arc::new(rules.of_redirects())),
        variants: None,
        is_logged: true,
        label: NumberedLabel::default(),
    };
    let key = RouteKey {
        methods: None,
        path: PathPattern::everything(),
    };
    (!site.canonical_for.is_empty()).then(|| Site {
        hosts: hosts.collect(),
        routes: vec![(key, route)],
        canonical: Some(site.host.value.clone()),
        rules: None,
        redirect_https: site.tls.redirects,
        limits: RequestLimits::new(&site.limits),
        listeners: None,
        tls,
    })
}

/// The key as the router has it.
fn key(key: &blitz_config::RouteKey) -> Result<RouteKey, KeyError> {
    let Some(regex) = key.path.regex() else {
        return RouteKey::parse(&key.to_string());
    };
    let methods = key
        .methods
        .map(|methods| Methods::parse(&methods.to_string()));
    let (text, beginning) = (regex.text(), regex.beginning());
    Ok(RouteKey {
        methods: methods.transpose()?,
        path: PathPattern::regex(
            text,
            beginning,
            key.path.priority(),
            regex.compiled().clone(),
        ),
    })
}

struct Compiler<'a, 'f> {
    /// Those that limits and placeholders use.
    claims: Vec<String>,
    /// Whether somebody is told the names of clients.
    tells_users: bool,
    /// For values by which limits of several processes count.
    hash_key: [u64; 2],
    shared: SharedValues<'a, 'f>,
    diagnostics: &'a mut Vec<Diagnostic>,
}

impl<'a> Compiler<'a, '_> {
    fn route(&mut self, route: &'a blitz_config::Route) -> Option<(RouteKey, Route)> {
        let name = route.key.value.to_string();
        let key = key(&route.key.value);
        let key = key.map_err(|error: KeyError| {
            self.error("path", &route.key, error.problem(), error.fix());
        });
        let compiled = self.route_with(&name, &route.settings);
        let variants = route.variants.as_ref();
        let variants = variants.map(|variants| self.variants(&name, variants));
        let route = Route {
            variants: variants.flatten().map(Box::new),
            ..compiled?
        };
        Some((key.ok()?, route))
    }

    fn route_with(&mut self, name: &str, settings: &'a Settings) -> Option<Route> {
        let action = self.action(settings);
        let rules = self.rules(settings);
        Some(Route {
            name: name.into(),
            written: None,
            action: action?,
            rules,
            variants: None,
            is_logged: settings.access_log.as_ref().is_none_or(|is_on| is_on.value),
            label: NumberedLabel::default(),
        })
    }

    fn variants(&mut self, name: &str, variants: &'a blitz_config::Variants) -> Option<Variants> {
        let mut levels = Vec::with_capacity(variants.levels.len());
        for level in &variants.levels {
            let blocks = self.shared.blocks(level).map_err(|(block, error)| {
                self.error(
                    "regex",
                    block,
                    "a condition is no regular expression",
                    &error.to_string(),
                );
            });
            levels.push(blocks.ok()?);
        }
        let routes = variants.settings.iter();
        let routes = routes
            .map(|settings| self.route_with(name, settings))
            .collect::<Option<_>>()?;
        Some(Variants::new(levels, routes))
    }

    fn action(&mut self, settings: &'a Settings) -> Option<route::Action> {
        Some(match &settings.action.value {
            Action::Proxy(proxy) => route::Action::Forward(self.forward(proxy, settings)?),
            Action::Redirect(redirect) => {
                route::Action::Answer(Answer::Redirect((**redirect).clone()))
            }
            Action::Respond(respond) => {
                route::Action::Answer(Answer::Fixed(self.fixed_response(respond)?))
            }
            Action::Files(files) => {
                route::Action::Files(self.shared.folder(files, settings, false))
            }
        })
    }

    fn forward(&mut self, proxy: &'a Proxy, settings: &'a Settings) -> Option<Forward> {
        let host = proxy.host.as_ref().map(|host| &host.value);
        let group = match &proxy.group {
            Some(group) => Some(ForwardGroup {
                config: self.group(group)?,
                number: 0,
                sends_own_host: host == Some(&ForwardedHost::Upstream),
            }),
            None => None,
        };
        let target = self.target(&proxy.to)?;
        let others = group.iter().flat_map(|group| group.config.servers.iter());
        let mut all = std::iter::once(&target).chain(others);
        let upgrades_by_field = |target: &Arc<Target>| {
            target.protocol.capabilities().upgrade == UpgradeForm::UpgradeField
        };
        let may_upgrade = all.all(upgrades_by_field);
        let is_raw = proxy.raw_path.as_ref().is_some_and(|raw| raw.value);
        let request_trailers = settings.request_trailers.as_ref();
        Some(Forward {
            upstream: 0,
            name: proxy.name.clone(),
            files: (proxy.files.as_ref()).map(|files| self.shared.folder(files, settings, true)),
            request_trailers: request_trailers.is_some_and(|on| on.value),
            connection_settings: connection_settings(proxy, settings),
            path: match &proxy.path {
                Some(path) => ForwardedPath::Template {
                    prefix: UpstreamPrefix::of(&path.value),
                    template: path.value.clone(),
                },
                None if is_raw => ForwardedPath::Raw,
                None => ForwardedPath::OfTarget,
            },
            host: match host {
                None | Some(ForwardedHost::Keep) => None,
                Some(ForwardedHost::Upstream) => Some(target.authority.as_str().into()),
                Some(ForwardedHost::Name(name)) => Some(name.as_str().into()),
            },
            buffer: proxy.buffer_request.as_ref().map(|buffer| buffer.value),
            proxy_protocol: proxy
                .proxy_protocol
                .as_ref()
                .map(|version| match version.value {
                    ProxyProtocol::V1 => ProxyVersion::V1,
                    ProxyProtocol::V2 => ProxyVersion::V2,
                }),
            upgrades: upgrades(settings, may_upgrade),
            retries: proxy
                .retries
                .as_ref()
                .map_or(route::RETRIES, |retries| retries.value),
            importance: (settings.importance.as_ref())
                .map_or_else(Importance::default, |importance| importance.value),
            mirror: match &settings.mirror {
                Some(mirror) => Some(Box::new(self.mirror(&mirror.value, host)?)),
                None => None,
            },
            group,
            target,
        })
    }

    fn mirror(
        &mut self,
        mirror: &'a blitz_config::Mirror,
        host: Option<&ForwardedHost>,
    ) -> Option<Mirror> {
        let sends_own_host = host == Some(&ForwardedHost::Upstream);
        Some(Mirror {
            target: self.target(&mirror.to)?,
            upstream: 0,
            group: match &mirror.group {
                Some(group) => Some(ForwardGroup {
                    config: self.group(group)?,
                    number: 0,
                    sends_own_host,
                }),
                None => None,
            },
            percent: mirror.percent,
            sends_own_host,
        })
    }

    fn group(&mut self, group: &'a Arc<TargetGroup>) -> Option<Arc<GroupConfig>> {
        if let Some(known) = self.shared.group(group) {
            return known;
        }
        let config = GroupConfig::new(group, |url| self.target(url)).map(Arc::new);
        self.shared.add_group(group, config.clone());
        config
    }

    fn target(&mut self, url: &'a Placed<String>) -> Option<Arc<Target>> {
        let target = self.shared.target(&url.value);
        let target = target.map_err(|error: TargetError| {
            self.error("upstream-url", url, error.problem(), error.fix());
        });
        target.ok()
    }

    fn fixed_response(&mut self, respond: &'a Respond) -> Option<FixedResponse> {
        let content = match &respond.body {
            RespondBody::Empty => FixedContent::Empty,
            RespondBody::Text(template) => FixedContent::Text(template.clone()),
            RespondBody::File(file) => FixedContent::File(self.file(file)?),
        };
        Some(FixedResponse {
            status: Status::new(respond.status)?,
            content,
            edits: Edits::new(&respond.headers),
        })
    }

    fn rules(&mut self, settings: &'a Settings) -> Option<Arc<Rules>> {
        let demands = Demands::new(settings);
        if let Some(rules) = self.shared.rules(&demands) {
            return rules;
        }
        let access = self.access(settings);
        let pages = self.pages(&settings.errors);
        let policies = self.policies(&settings.policies);
        self.shared
            .new_rules(settings, (access, pages), policies, demands)
    }

    fn pages(&mut self, errors: &'a [Arc<ErrorPage>]) -> Pages {
        let mut pages = Vec::new();
        for page in errors {
            let file = page.file.as_ref().map(|file| self.file(file));
            match file {
                None => pages.push((statuses(page.status), None)),
                Some(file) => pages.extend(file.map(|file| (statuses(page.status), Some(file)))),
            }
        }
        Pages(pages.into())
    }

    fn file(&mut self, path: &'a Placed<String>) -> Option<LoadedFile> {
        match self.shared.file(path) {
            Ok(file) => Some(file),
            Err((problem, remedy)) => {
                self.error("file-missing", path, &problem, &remedy);
                None
            }
        }
    }

    /// A value that many routes inherit is reported once.
    fn error<T>(&mut self, code: &'static str, place: &Placed<T>, problem: &str, remedy: &str) {
        let error = Diagnostic::error(code, place.span.clone(), problem, remedy);
        if !self.diagnostics.contains(&error) {
            self.diagnostics.push(error);
        }
    }
}

fn connection_settings(proxy: &Proxy, settings: &Settings) -> ConnectionSettings {
    let connect_timeout = settings.timeouts.connect.as_ref();
    let limits = proxy.limits.as_ref().map(|limits| limits.value);
    ConnectionSettings {
        connect_timeout: connect_timeout.map(|limit| match limit.value {
            TimeLimit::After(timeout) => timeout.min(FOREVER),
            TimeLimit::Forever => FOREVER,
        }),
        limits: limits.unwrap_or_default(),
        ..ConnectionSettings::default()
    }
}

/// Protocols that clients may switch to; `None` is WebSockets only.
fn upgrades(settings: &Settings, may_upgrade: bool) -> Option<Box<Upgrades>> {
    let mut upgrades = settings.upgrade.as_ref()?.value.clone();
    // Only HTTP/1.1 has `Upgrade`.
    if !may_upgrade {
        upgrades.others.clear();
    }
    (upgrades != Upgrades::default()).then(|| Box::new(upgrades))
}

/// The statuses that a page is for.
fn statuses(pattern: StatusPattern) -> RangeInclusive<u16> {
    match pattern {
        StatusPattern::Exact(status) => status..=status,
        StatusPattern::Class(digit) => {
            let first = u16::from(digit) * 100;
            first..=first + 99
        }
    }
}
