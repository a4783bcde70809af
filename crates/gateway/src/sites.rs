//! Sites: the host of a request decides whose routes apply.

use std::sync::Arc;

use blitz_config::Host;
use blitz_http::RequestHead;
use blitz_site::matcher::HostTable;

use crate::routes::{RouteConflict, Routes};
use crate::target::{Prefix, Target};

pub(crate) use blitz_site::matcher::{host_of, without_brackets};

/// Hosts and their targets, before the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Its hosts, each of which belongs to one site only.
    pub hosts: Vec<Host>,
    /// Its targets; requests that none matches get 404.
    pub targets: Vec<Target>,
    /// Whether requests in clear text are redirected to HTTPS, except ACME challenges.
    pub redirect_https: bool,
}

/// The routes of all sites, by their hosts.
#[derive(Debug)]
pub struct Sites<T> {
    hosts: Arc<HostTable<usize>>,
    /// There are other sites than one for all hosts.
    has_names: bool,
    sites: Vec<SiteRoutes<T>>,
}

/// The routes of one site.
#[derive(Debug)]
pub struct SiteRoutes<T> {
    /// Its hosts as written, none for a gateway without sites.
    pub hosts: Arc<[Host]>,
    /// Its routes.
    pub routes: Routes<T>,
    /// Whether requests in clear text are redirected to HTTPS.
    pub redirects: bool,
    /// Whether requests that no route matches get the gateway's fallback instead of 404.
    pub has_fallback: bool,
}

impl<T> Sites<T> {
    /// The site of a request. Never allocates.
    #[inline]
    pub(crate) fn find(&self, head: &RequestHead) -> Option<&SiteRoutes<T>> {
        match self.has_names {
            false => self.sites.first(),
            true => self.find_by_host(head.authority()),
        }
    }

    fn find_by_host(&self, authority: Option<&str>) -> Option<&SiteRoutes<T>> {
        self.sites.get(*self.hosts.find(authority)?)
    }

    /// All sites.
    pub fn iter(&self) -> impl Iterator<Item = &SiteRoutes<T>> {
        self.sites.iter()
    }

    /// The same sites with another value for each route.
    pub(crate) fn map<U>(&self, mut make: impl FnMut(&T) -> U) -> Sites<U> {
        let sites = self.sites.iter().map(|site| SiteRoutes {
            hosts: Arc::clone(&site.hosts),
            routes: site.routes.map(&mut make),
            redirects: site.redirects,
            has_fallback: site.has_fallback,
        });
        Sites {
            hosts: Arc::clone(&self.hosts),
            has_names: self.has_names,
            sites: sites.collect(),
        }
    }
}

impl Sites<Target> {
    /// The table of these sites. The targets without a site are for all other hosts, and `redirects` is for them; so
    /// is the fallback.
    ///
    /// # Errors
    /// Two targets of a site contradict each other.
    pub(crate) fn new(
        sites: Vec<Site>,
        targets: Vec<Target>,
        redirects: bool,
    ) -> Result<Sites<Target>, RouteConflict> {
        let (mut table, mut all) = (HostTable::default(), Vec::new());
        if sites.is_empty() || !targets.is_empty() {
            table.insert_any(0);
            all.push(SiteRoutes {
                hosts: Arc::default(),
                routes: Routes::new(targets)?,
                redirects,
                has_fallback: true,
            });
        }
        let mut has_names = false;
        for site in sites {
            for host in &site.hosts {
                has_names |= *host != Host::Any;
                insert(&mut table, host, all.len());
            }
            all.push(SiteRoutes {
                hosts: site.hosts.into(),
                routes: Routes::new(site.targets)?,
                redirects: site.redirect_https,
                has_fallback: false,
            });
        }
        Ok(Sites {
            hosts: Arc::new(table),
            has_names,
            sites: all,
        })
    }

    /// The targets of all sites with their prefixes.
    pub(crate) fn all_routes(&self) -> impl Iterator<Item = (&Prefix, &Target)> {
        self.sites.iter().flat_map(|site| site.routes.iter())
    }
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
    use blitz_http::Method;

    use super::*;

    fn site(hosts: Vec<Host>, target: &str) -> Site {
        Site {
            hosts,
            targets: vec![target.parse().expect("it is a target")],
            redirect_https: false,
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
        let port_of = |table: &Sites<Target>, authority: Option<&str>| {
            let site = table.find_by_host(authority)?;
            site.routes
                .find("/", Method::Get, "")
                .map(|target| target.authority.clone())
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
        let found = without_sites.find(&RequestHead::new(Method::Get, "/"));
        assert!(found.is_some_and(|site| site.has_fallback));
    }
}
