//! Sites: the host of a request decides whose routes apply.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use blitz_config::Host;
use blitz_http::{Method, RequestHead, ServerNames, TlsPolicy, TlsPolicyId};
use blitz_site::matcher::{HostTable, RouteKey};
use blitz_site::{ClientAddress, EndpointMaker, Rejection, preflight_method};

use crate::readings::{is_ambiguous, readings};
use crate::request_limits::RequestLimits;
use crate::route::{Action, Forward, Route};
use crate::routes::{RouteConflict, Routes, method_of};
use crate::rules::Rules;
use crate::target::Target;
use crate::variants::Subject;

pub(crate) use blitz_site::matcher::{host_of, without_brackets};

/// Hosts and their routes, before the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Its hosts, each of which belongs to one site only.
    pub hosts: Vec<Host>,
    /// Its routes, no two of which match the same requests; requests that none matches get 404.
    pub routes: Vec<(RouteKey, Route)>,
    /// The site in whose name it redirects, if it is not one of its own.
    pub(crate) canonical: Option<Host>,
    /// The rules for requests that no route matches.
    pub(crate) rules: Option<Arc<Rules>>,
    /// Whether requests in clear text are redirected to HTTPS, except ACME challenges.
    pub redirect_https: bool,
    /// Limits of its requests; `None` is those of the process.
    pub(crate) limits: Option<RequestLimits>,
    /// The only listeners on which its hosts are known; `None` is all.
    pub listeners: Option<Box<[SocketAddr]>>,
    /// The demands of its handshakes.
    pub tls: SiteTls,
}

impl Site {
    /// Whether it is the site with this host, or redirects to it.
    #[must_use]
    pub fn is_of(&self, host: &Host) -> bool {
        self.canonical.as_ref().or(self.hosts.first()) == Some(host)
    }

    /// Has an app answer the requests of this key, with the rules of the innermost route that encloses it; without one
    /// with those for paths without a route. In a route with the same key it replaces the action.
    ///
    /// # Errors
    /// A route that the app does not inherit from matches some of its requests, and depends on the client.
    pub fn serve(&mut self, key: RouteKey, app: EndpointMaker) -> Result<(), AccessGap> {
        let enclosing = self.routes.iter().filter(|(outer, _)| outer.encloses(&key));
        let innermost = enclosing.min_by(|(a, _), (b, _)| a.cmp_rank(b));
        let rules = match innermost {
            Some((_, route)) => route.rules.clone(),
            None => self.rules.clone(),
        };
        let is_gap = |(other, route): &&(RouteKey, Route)| {
            let is_inherited = innermost.is_some_and(|(inner, _)| other.encloses(inner));
            let takes_its_own = other.cmp_rank(&key).is_lt() && !other.encloses(&key);
            let mut demanded = route
                .with_variants()
                .filter_map(|route| route.rules.as_deref());
            !is_inherited
                && !takes_its_own
                && other.overlaps(&key)
                && demanded.any(|demanded| demanded.has_other_access_rules_than(rules.as_deref()))
        };
        if let Some((protected, _)) = self.routes.iter().find(is_gap) {
            return Err(AccessGap {
                app: key,
                protected: protected.clone(),
            });
        }
        let mut route = Route::to_endpoint(&key.to_string(), app, rules);
        if let Some((_, innermost)) = innermost {
            route.inherit_variants(innermost);
        }
        self.routes
            .retain(|(other, _)| !(other.encloses(&key) && key.encloses(other)));
        self.routes.push((key, route));
        Ok(())
    }
}

/// An app would take requests of a route whose access rules it does not inherit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessGap {
    /// The key of the app.
    pub app: RouteKey,
    /// The key of the route.
    pub protected: RouteKey,
}

impl fmt::Display for AccessGap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AccessGap { app, protected } = self;
        write!(
            f,
            "the app at `{app}` takes requests of `{protected}`, and does not inherit its access rules; \
             write a route `{app}` with its own"
        )
    }
}

impl std::error::Error for AccessGap {}

/// The routes of all sites, by their hosts.
#[derive(Debug)]
pub struct Sites {
    hosts: HostTable<usize>,
    /// There are other sites than one for all hosts.
    has_names: bool,
    /// A site has listeners of its own.
    has_listeners: bool,
    sites: Vec<SiteRoutes>,
}

/// The routes of one site.
#[derive(Debug, PartialEq)]
pub struct SiteRoutes {
    /// Its hosts as written, none for a gateway without sites.
    pub hosts: Vec<Host>,
    name: Option<String>,
    /// Its routes.
    pub routes: Routes,
    pub(crate) rules: Option<Arc<Rules>>,
    /// The rules that depend on the client, each once.
    pub(crate) access_rules: Box<[Arc<Rules>]>,
    /// Whether a route with a regex asks who the client is.
    has_access_regexes: bool,
    /// Whether a route responds to preflights.
    takes_preflights: bool,
    /// Whether requests in clear text are redirected to HTTPS.
    pub redirects: bool,
    /// The only listeners on which its hosts are known; `None` is all.
    pub listeners: Option<Box<[SocketAddr]>>,
    /// Whether requests that no route matches get the gateway's fallback instead of 404.
    pub has_fallback: bool,
    /// Limits of its requests; `None` is those of the process.
    pub(crate) limits: Option<Box<RequestLimits>>,
    pub(crate) tls: SiteTlsFacts,
}

/// The demands of the handshakes of a site.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SiteTls {
    /// The policy; the default is that of the listener.
    pub policy: TlsPolicy,
    /// Whether upstreams get the certificates of its clients.
    pub sends_certificate: bool,
}

/// The demands of handshakes for the hosts of these sites.
#[must_use]
pub fn tls_policies(sites: &[Site]) -> Vec<(ServerNames, TlsPolicy)> {
    let names = |host: &Host| match host {
        Host::Exact(name) => ServerNames::Exact(name.clone()),
        Host::Wildcard(parent) => ServerNames::Below(parent.clone()),
        Host::Any => ServerNames::Any,
    };
    let of_site = |site: &Site| {
        let hosts = site.hosts.iter();
        let policies = hosts.map(|host| (names(host), site.tls.policy.clone()));
        policies.collect::<Vec<_>>()
    };
    sites.iter().flat_map(of_site).collect()
}

/// The part of them that requests depend on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SiteTlsFacts {
    /// Handshakes of its connections ran with this policy.
    pub(crate) policy_id: Option<TlsPolicyId>,
    pub(crate) sends_certificate: bool,
}

impl From<&SiteTls> for SiteTlsFacts {
    fn from(tls: &SiteTls) -> SiteTlsFacts {
        SiteTlsFacts {
            policy_id: tls.policy.id(),
            sends_certificate: tls.sends_certificate,
        }
    }
}

impl SiteRoutes {
    /// # Errors
    /// The head is larger than the site takes.
    #[inline]
    pub(crate) fn check_limits(&self, head: &RequestHead) -> Result<(), Rejection> {
        match &self.limits {
            None => Ok(()),
            Some(limits) => limits.check(head),
        }
    }

    /// The first of its hosts as written, or that to which these are redirected; `None` for a gateway without sites.
    #[inline]
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Whether its hosts are known on the listener with this address, which a unix socket does not have.
    fn is_served_at(&self, listener: Option<SocketAddr>) -> bool {
        let own = self.listeners.as_ref();
        own.is_none_or(|own| listener.is_some_and(|listener| own.contains(&listener)))
    }

    /// The route of a request, which for a preflight is that of the request that it is about.
    #[inline]
    pub(crate) fn find(&self, head: &RequestHead) -> Option<&Route> {
        match self.takes_preflights && head.method == Method::Options {
            false => self.routes.find(head),
            true => self.find_for_options(head),
        }
    }

    fn find_for_options(&self, head: &RequestHead) -> Option<&Route> {
        let asked = preflight_method(head).and_then(|method| str::from_utf8(method).ok());
        let Some(asked) = asked else {
            return self.routes.find(head);
        };
        let method = Method::parse(asked.as_bytes());
        let token = if method == Method::Other { asked } else { "" };
        let route = self.routes.find_for(head.path(), method, token);
        // No variant of it forwards a preflight, so the request never reaches the upstream of another method.
        let takes_all = |route: &&Route| route.with_variants().all(Route::takes_preflights);
        route.filter(takes_all).or_else(|| self.routes.find(head))
    }

    /// Whether a route depends on the client.
    #[inline]
    pub(crate) fn has_access_rules(&self) -> bool {
        !self.access_rules.is_empty()
    }

    /// Checks the client and the readings of the path, if a route depends on the client.
    ///
    /// # Errors
    /// The rules of the route refuse the request, or those of another route that an origin may take the path for:
    /// servlet containers drop what follows a semicolon, and many servers decode `%2F` or take several slashes for one
    /// (rule 10).
    pub(crate) fn admit(
        &self,
        route: &Route,
        head: &RequestHead,
        client: ClientAddress,
    ) -> Result<(), Rejection> {
        let taken = Taken::new(route, head, client);
        if !self
            .access_rules
            .iter()
            .any(|rules| taken.is_refused_by(rules))
        {
            return Ok(());
        }
        if self.refuses(
            head,
            head.path(),
            &Taken {
                rules: None,
                ..taken
            },
        ) {
            return Err(Rejection::Forbidden);
        }
        match self.refused_reading(route, head, client) {
            Some(_) => Err(Rejection::AmbiguousPath),
            None => Ok(()),
        }
    }

    /// Whether the rules for a path refuse the request.
    fn refuses(&self, head: &RequestHead, path: &str, taken: &Taken<'_>) -> bool {
        let find = |method, token: &str| self.routes.find_for(path, method, token);
        self.refuses_route(head, taken, find)
    }

    /// Whether the rules of a route that is found for the method refuse the request. Some servers take `post` for POST.
    fn refuses_route<'r>(
        &self,
        head: &RequestHead,
        taken: &Taken<'_>,
        find: impl Fn(Method, &str) -> Option<&'r Route>,
    ) -> bool {
        let (method, token) = method_of(head);
        let upper = token.to_ascii_uppercase();
        let upper = (upper != token).then(|| (Method::parse(upper.as_bytes()), &*upper));
        let mut readings = [Some((method, token)), upper].into_iter().flatten();
        readings.any(|(method, token)| {
            let route = find(method, token);
            let subject = Subject {
                head,
                method: (method, token),
                client: taken.client,
            };
            let route = route.map(|route| route.variant(&subject));
            let rules = route.and_then(|route| route.rules.as_deref());
            rules.is_some_and(|rules| taken.is_refused_by(rules))
        })
    }

    /// Another reading of the path or the method by a server, for which the rules refuse the client, or demand a proof of
    /// its identity that this route does not: empty if it is unknown.
    pub(crate) fn refused_reading(
        &self,
        route: &Route,
        head: &RequestHead,
        client: ClientAddress,
    ) -> Option<String> {
        let taken = &Taken::new(route, head, client);
        if self.refuses(head, head.path(), taken) {
            return Some(head.path().to_owned());
        }
        if let Some(reading) = self.refused_with_slash(head, head.path(), taken) {
            return Some(reading);
        }
        let refused = |reading: String| match self.refuses(head, &reading, taken) {
            true => Some(reading),
            false => self.refused_with_slash(head, &reading, taken),
        };
        // A raw path still has its dot segments, which servers remove after they have read the rest.
        let paths = [Some(head.path()), route.is_raw().then(|| head.raw_path())];
        let mut ambiguous = paths
            .into_iter()
            .flatten()
            .filter(|path| is_ambiguous(path));
        ambiguous.find_map(|path| match readings(path) {
            Some(all) => all.into_iter().find_map(refused),
            None => Some(String::new()),
        })
    }

    /// The path with a slash at its end, if a regex refuses the request for it: many servers answer both alike. For other
    /// routes that is a mistake of the configuration.
    fn refused_with_slash(
        &self,
        head: &RequestHead,
        path: &str,
        taken: &Taken<'_>,
    ) -> Option<String> {
        if !self.has_access_regexes || !path.starts_with('/') || path.ends_with('/') {
            return None;
        }
        let with_slash = format!("{path}/");
        let find = |method, token: &str| self.routes.find_regex_for(&with_slash, method, token);
        let is_refused = self.refuses_route(head, taken, find);
        is_refused.then_some(with_slash)
    }
}

/// A request, and the rules of the route that takes it.
#[derive(Clone, Copy)]
struct Taken<'a> {
    client: ClientAddress,
    /// `None` leaves out the comparison of proofs of identity: a preflight gets its response before one is demanded.
    rules: Option<Option<&'a Rules>>,
}

impl<'a> Taken<'a> {
    fn new(route: &'a Route, head: &RequestHead, client: ClientAddress) -> Taken<'a> {
        let is_preflight = route.takes_preflights() && preflight_method(head).is_some();
        Taken {
            client,
            rules: (!is_preflight).then_some(route.rules.as_deref()),
        }
    }

    /// Whether rules refuse the client, or demand a proof of identity that those of its route do not.
    #[inline]
    fn is_refused_by(&self, rules: &Rules) -> bool {
        // Mostly the rules are those of the route.
        let is_own = |taker: Option<&Rules>| taker.is_some_and(|taker| std::ptr::eq(taker, rules));
        let demands_more = |taker| !is_own(taker) && rules.demands_more_than(taker);
        !rules.admits(self.client) || self.rules.is_some_and(demands_more)
    }
}

impl Sites {
    /// The table of the sites of a file.
    ///
    /// # Panics
    /// Never: only targets without a site contradict each other.
    #[must_use]
    pub fn of_file(sites: Vec<Site>) -> Sites {
        Sites::new(sites, Vec::new(), false).expect("there are no targets")
    }

    /// The table of the targets of flags, which are for all hosts. `redirects` says whether clear text is redirected to
    /// HTTPS.
    ///
    /// # Errors
    /// Two targets contradict each other.
    pub fn of_targets(targets: Vec<Target>, redirects: bool) -> Result<Sites, RouteConflict> {
        Sites::new(Vec::new(), targets, redirects)
    }

    /// The table of these sites. The targets without a site are for all other hosts, and `redirects` is for them; so
    /// is the fallback.
    ///
    /// # Errors
    /// Two targets contradict each other.
    pub(crate) fn new(
        sites: Vec<Site>,
        targets: Vec<Target>,
        redirects: bool,
    ) -> Result<Sites, RouteConflict> {
        let (mut table, mut all) = (HostTable::default(), Vec::new());
        if sites.is_empty() || !targets.is_empty() {
            table.insert_any(0);
            all.push(SiteRoutes {
                hosts: Vec::new(),
                name: None,
                routes: Routes::of_targets(targets)?,
                rules: None,
                access_rules: Box::default(),
                has_access_regexes: false,
                takes_preflights: false,
                redirects,
                listeners: None,
                has_fallback: true,
                limits: None,
                tls: SiteTlsFacts::default(),
            });
        }
        let mut has_names = false;
        for site in sites {
            for host in &site.hosts {
                // A site for all hosts comes before targets without one.
                has_names |= *host != Host::Any || !all.is_empty();
                insert(&mut table, host, all.len());
            }
            all.push(SiteRoutes {
                name: site
                    .canonical
                    .as_ref()
                    .or(site.hosts.first())
                    .map(Host::to_string),
                hosts: site.hosts,
                access_rules: access_rules(&site.routes),
                has_access_regexes: has_access_regexes(&site.routes),
                takes_preflights: takes_preflights(&site.routes),
                routes: Routes::new(site.routes),
                rules: site.rules,
                redirects: site.redirect_https,
                listeners: site.listeners,
                has_fallback: false,
                limits: site.limits.map(Box::new),
                tls: SiteTlsFacts::from(&site.tls),
            });
        }
        Ok(Sites {
            hosts: table,
            has_names,
            has_listeners: all.iter().any(|site| site.listeners.is_some()),
            sites: all,
        })
    }

    /// The site of a request on the listener with this address. Never allocates.
    #[inline]
    pub(crate) fn find(
        &self,
        head: &RequestHead,
        listener: Option<SocketAddr>,
    ) -> Option<&SiteRoutes> {
        let site = match self.has_names {
            false => self.sites.first(),
            true => self.find_by_host(head.authority()),
        };
        match self.has_listeners {
            false => site,
            true => site.filter(|site| site.is_served_at(listener)),
        }
    }

    /// The site of the host of an authority.
    #[must_use]
    pub fn find_by_host(&self, authority: Option<&str>) -> Option<&SiteRoutes> {
        self.sites.get(*self.hosts.find(authority)?)
    }

    /// All sites.
    pub fn iter(&self) -> impl Iterator<Item = &SiteRoutes> {
        self.sites.iter()
    }

    /// The apps of its routes.
    pub(crate) fn endpoints(&self) -> Vec<EndpointMaker> {
        let mut endpoints = Vec::new();
        let routes = self.sites.iter().flat_map(|site| site.routes.iter());
        for route in routes.flat_map(Route::with_variants) {
            if let Action::Endpoint(maker) = &route.action
                && !endpoints.contains(maker)
            {
                endpoints.push(maker.clone());
            }
        }
        endpoints
    }

    /// The URLs of the authorizers of its routes, each once.
    pub(crate) fn authorizers(&self) -> BTreeSet<&str> {
        let routes = self.sites.iter().flat_map(|site| site.routes.iter());
        let rules = routes.flat_map(Route::with_variants);
        let rules = rules.filter_map(|route| route.rules.as_deref());
        let authorizers = rules.flat_map(|rules| rules.policies.authorizers());
        authorizers.map(|settings| &*settings.origin).collect()
    }

    /// Changes each route and its variants, with the name of their site.
    pub(crate) fn for_each_route_mut(&mut self, mut change: impl FnMut(Option<&str>, &mut Route)) {
        for site in &mut self.sites {
            let name = site.name.as_deref();
            for route in site.routes.iter_mut() {
                change(name, route);
                route
                    .variants_mut()
                    .for_each(|variant| change(name, variant));
            }
        }
    }

    pub(crate) fn forwards_mut(&mut self) -> impl Iterator<Item = &mut Forward> {
        let routes = self
            .sites
            .iter_mut()
            .flat_map(|site| site.routes.iter_mut());
        routes.flat_map(Route::forwards_mut)
    }
}

/// The rules that depend on the client, in the order of the routes. Of those with the same condition there is one.
fn access_rules(routes: &[(RouteKey, Route)]) -> Box<[Arc<Rules>]> {
    let (mut known, mut demands) = (HashSet::new(), HashSet::new());
    let routes = routes.iter().flat_map(|(_, route)| route.with_variants());
    let rules = routes.filter_map(|route| route.rules.as_ref());
    let rules = rules.filter(|rules| rules.has_access_rules());
    let rules = rules.filter(|rules| known.insert(Arc::as_ptr(rules)));
    let rules = rules.filter(|rules| {
        let identity: Vec<_> = rules.policies.of_identity().collect();
        demands.insert((rules.access(), identity))
    });
    rules.cloned().collect()
}

fn takes_preflights(routes: &[(RouteKey, Route)]) -> bool {
    let mut routes = routes.iter().flat_map(|(_, route)| route.with_variants());
    routes.any(Route::takes_preflights)
}

fn has_access_regexes(routes: &[(RouteKey, Route)]) -> bool {
    let mut regexes = routes.iter().filter(|(key, _)| key.path.is_regex());
    regexes.any(|(_, route)| {
        let mut rules = route
            .with_variants()
            .filter_map(|route| route.rules.as_ref());
        rules.any(|rules| rules.has_access_rules())
    })
}

/// Adds a host, which belongs to one site only; a site for all hosts replaces targets without one.
fn insert(table: &mut HostTable<usize>, host: &Host, site: usize) {
    match host {
        Host::Exact(name) => table.insert_exact(name, site),
        Host::Wildcard(parent) => table.insert_wildcard(parent, site),
        Host::Any => table.insert_any(site),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(hosts: Vec<Host>, target: &str) -> Site {
        Site {
            hosts,
            routes: vec![(
                RouteKey::parse("/").expect("it is a key"),
                Route::to(target.parse().expect("it is a target")),
            )],
            canonical: None,
            rules: None,
            redirect_https: false,
            tls: SiteTls::default(),
            limits: None,
            listeners: None,
        }
    }

    #[test]
    fn the_exact_host_comes_before_the_wildcard_and_all_others() {
        let exact = |name: &str| Host::Exact(name.to_owned());
        let sites = vec![
            site(vec![exact("a.example"), exact("::1")], "http://a:1"),
            site(vec![Host::Wildcard("example".to_owned())], "http://w:1"),
            site(vec![exact("b.example")], "http://b:1"),
            site(vec![Host::Any], "http://any:1"),
        ];
        let table = Sites::new(sites.clone(), Vec::new(), false).expect("no conflict");
        let port_of = |table: &Sites, authority: Option<&str>| {
            let site = table.find_by_host(authority)?;
            let route = site.routes.find_for("/", Method::Get, "")?;
            route.target().map(|target| target.authority.clone())
        };
        for (authority, expected) in [
            (Some("a.example"), "a:1"),
            (Some("A.Example:8080"), "a:1"),
            (Some("a.example."), "a:1"),
            (Some("[::1]:8080"), "a:1"),
            (Some("[0:0::1]"), "a:1"),
            (Some("b.example"), "b:1"),
            (Some("c.example"), "w:1"),
            // One label only.
            (Some("a.b.example"), "any:1"),
            (Some("example"), "any:1"),
            (Some(""), "any:1"),
            (None, "any:1"),
        ] {
            assert_eq!(
                port_of(&table, authority).as_deref(),
                Some(expected),
                "{authority:?}"
            );
        }
        let named = Sites::new(sites[..1].to_vec(), Vec::new(), false).expect("no conflict");
        assert_eq!(port_of(&named, Some("b.example")), None);
        let without_sites = Sites::new(Vec::new(), Vec::new(), false).expect("no conflict");
        let found = without_sites.find(&RequestHead::new(Method::Get, "/"), None);
        assert!(found.is_some_and(|site| site.has_fallback));
    }
}
