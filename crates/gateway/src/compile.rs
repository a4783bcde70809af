//! From the model of a file to sites with routes.

use std::sync::Arc;

use blitz_config::{
    Action, Configuration, Diagnostic, ErrorPage, ForwardedHost, Placed, Proxy, Respond,
    RespondBody, Settings, TimeLimit,
};
use blitz_http::{FOREVER, Status};
use blitz_site::matcher::{KeyError, PathPattern, RouteKey};

use crate::answer::{Answer, FixedContent, FixedResponse};
use crate::route::{self, Forward, ForwardedPath, Route};
use crate::rules::{Edits, LoadedFile, Pages, Rules};
use crate::sites::Site;
use crate::target::{Target, TargetError};

/// Reads a file that a configuration names. An error is a problem and its remedy.
pub type ReadFile<'a> = dyn FnMut(&str) -> Result<LoadedFile, (String, String)> + 'a;

/// The sites of a configuration. What cannot be used is added to the diagnostics.
pub fn compile(
    configuration: &Configuration,
    read_file: &mut ReadFile<'_>,
    diagnostics: &mut Vec<Diagnostic>,
) -> Vec<Site> {
    let mut compiler = Compiler {
        read_file,
        diagnostics,
    };
    let mut sites = Vec::new();
    for site in &configuration.sites {
        let routes = site.routes.iter();
        let routes: Vec<_> = routes.filter_map(|route| compiler.route(route)).collect();
        let pages = compiler.pages(&site.unrouted.errors);
        let rules = Rules::of_unrouted(&site.unrouted.headers, pages);
        let aliases = site.aliases.iter().map(|alias| alias.value.clone());
        sites.push(Site {
            hosts: std::iter::once(site.host.value.clone())
                .chain(aliases)
                .collect(),
            routes,
            rules: rules.clone(),
            redirect_https: site.tls.redirects,
        });
        sites.extend(canonical(site, &rules));
    }
    sites
}

/// The hosts whose requests are redirected to the name of the site.
fn canonical(site: &blitz_config::Site, rules: &Rules) -> Option<Site> {
    let hosts = site.canonical_for.iter().map(|host| host.value.clone());
    let host = site.host.value.to_string();
    let route = Route {
        name: "other paths".to_owned(),
        written: None,
        action: route::Action::Answer(Answer::Canonical(host)),
        rules: Some(Box::new(rules.of_redirects())),
    };
    let key = RouteKey {
        methods: None,
        path: PathPattern::everything(),
    };
    (!site.canonical_for.is_empty()).then(|| Site {
        hosts: hosts.collect(),
        routes: vec![(key, route)],
        rules: Rules::default(),
        redirect_https: site.tls.redirects,
    })
}

struct Compiler<'a, 'f> {
    read_file: &'a mut ReadFile<'f>,
    diagnostics: &'a mut Vec<Diagnostic>,
}

impl Compiler<'_, '_> {
    fn route(&mut self, route: &blitz_config::Route) -> Option<(RouteKey, Route)> {
        let name = route.key.value.to_string();
        let key = RouteKey::parse(&name);
        let key = key.map_err(|error: KeyError| {
            self.error("path", &route.key, error.problem(), error.fix());
        });
        let action = self.action(&route.settings);
        let rules = self.rules(&route.settings);
        let route = Route {
            name,
            written: None,
            action: action?,
            rules: (rules != Rules::default()).then(|| Box::new(rules)),
        };
        Some((key.ok()?, route))
    }

    fn action(&mut self, settings: &Settings) -> Option<route::Action> {
        Some(match &settings.action.value {
            Action::Proxy(proxy) => route::Action::Forward(self.forward(proxy, settings)?),
            Action::Redirect(redirect) => {
                route::Action::Answer(Answer::Redirect((**redirect).clone()))
            }
            Action::Respond(respond) => {
                route::Action::Answer(Answer::Fixed(self.fixed_response(respond)?))
            }
        })
    }

    fn forward(&mut self, proxy: &Proxy, settings: &Settings) -> Option<Forward> {
        let target = proxy.to.value.parse::<Target>();
        let target = target.map_err(|error: TargetError| {
            self.error("upstream-url", &proxy.to, error.problem(), error.fix());
        });
        let target = Target {
            request_trailers: settings
                .request_trailers
                .as_ref()
                .is_some_and(|on| on.value),
            ..target.ok()?
        };
        let is_raw = proxy.raw_path.as_ref().is_some_and(|raw| raw.value);
        Some(Forward {
            upstream: 0,
            connect_timeout: settings
                .timeouts
                .connect
                .as_ref()
                .map(|limit| match limit.value {
                    TimeLimit::After(timeout) => timeout.min(FOREVER),
                    TimeLimit::Forever => FOREVER,
                }),
            path: match &proxy.path {
                Some(path) => ForwardedPath::Template(path.value.clone()),
                None if is_raw => ForwardedPath::Raw,
                None => ForwardedPath::OfTarget,
            },
            host: match proxy.host.as_ref().map(|host| &host.value) {
                None | Some(ForwardedHost::Keep) => None,
                Some(ForwardedHost::Upstream) => Some(target.authority.clone()),
                Some(ForwardedHost::Name(name)) => Some(name.clone()),
            },
            target,
        })
    }

    fn fixed_response(&mut self, respond: &Respond) -> Option<FixedResponse> {
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

    fn rules(&mut self, settings: &Settings) -> Rules {
        Rules::new(settings, self.pages(&settings.errors))
    }

    fn pages(&mut self, errors: &[Arc<ErrorPage>]) -> Pages {
        let mut pages = Vec::new();
        for page in errors {
            let file = page.file.as_ref().map(|file| self.file(file));
            match file {
                None => pages.push((page.status, None)),
                Some(file) => pages.extend(file.map(|file| (page.status, Some(file)))),
            }
        }
        Pages(pages.into())
    }

    fn file(&mut self, path: &Placed<String>) -> Option<LoadedFile> {
        match (self.read_file)(&path.value) {
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
