//! Sites: the host of a request decides whose routes apply.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;

use blitz_config::Host;
use blitz_http::RequestHead;

use crate::routes::{RouteConflict, Routes};
use crate::target::{Prefix, Target};

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
    /// By hosts in lower case.
    exact: HashMap<Box<str>, usize>,
    /// By the part behind the first label.
    wildcard: HashMap<Box<str>, usize>,
    /// For all other hosts.
    any: Option<usize>,
    /// There are other sites than one for all hosts.
    has_names: bool,
    sites: Vec<SiteRoutes<T>>,
}

/// The routes of one site.
#[derive(Debug)]
pub struct SiteRoutes<T> {
    /// Its hosts as written, none for a gateway without sites.
    pub hosts: Vec<Host>,
    /// Its routes.
    pub routes: Routes<T>,
    /// Whether requests in clear text are redirected to HTTPS.
    pub redirects: bool,
    /// Whether requests that no route matches get the gateway's fallback instead of 404.
    pub has_fallback: bool,
}

impl<T> Sites<T> {
    /// The site of a request. Allocates for IPv6 addresses and names in upper case only.
    #[inline]
    pub(crate) fn find(&self, head: &RequestHead) -> Option<&SiteRoutes<T>> {
        match self.has_names {
            false => self.sites.first(),
            true => self.find_by_host(head.authority()),
        }
    }

    fn find_by_host(&self, authority: Option<&str>) -> Option<&SiteRoutes<T>> {
        let named = authority.and_then(|authority| self.by_name(authority));
        self.sites.get(named.or(self.any)?)
    }

    fn by_name(&self, authority: &str) -> Option<usize> {
        let host = canonical(without_brackets(host_of(authority)));
        let exact = self.exact.get(&*host);
        let wildcard = || self.wildcard.get(host.split_once('.')?.1);
        exact.or_else(wildcard).copied()
    }

    /// All sites.
    pub fn iter(&self) -> impl Iterator<Item = &SiteRoutes<T>> {
        self.sites.iter()
    }

    /// The routes of all sites with their prefixes.
    pub(crate) fn all_routes(&self) -> impl Iterator<Item = (&Prefix, &T)> {
        self.sites.iter().flat_map(|site| site.routes.iter())
    }

    /// The same sites with another value for each route.
    pub(crate) fn map<U>(&self, mut make: impl FnMut(&T) -> U) -> Sites<U> {
        let sites = self.sites.iter().map(|site| SiteRoutes {
            hosts: site.hosts.clone(),
            routes: site.routes.map(&mut make),
            redirects: site.redirects,
            has_fallback: site.has_fallback,
        });
        Sites {
            exact: self.exact.clone(),
            wildcard: self.wildcard.clone(),
            any: self.any,
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
        let mut table = Sites {
            exact: HashMap::new(),
            wildcard: HashMap::new(),
            any: None,
            has_names: false,
            sites: Vec::new(),
        };
        if sites.is_empty() || !targets.is_empty() {
            table.any = Some(0);
            table.sites.push(SiteRoutes {
                hosts: Vec::new(),
                routes: Routes::new(targets)?,
                redirects,
                has_fallback: true,
            });
        }
        for site in sites {
            let at = table.sites.len();
            for host in &site.hosts {
                match host {
                    Host::Exact(name) => drop(table.exact.insert(name.as_str().into(), at)),
                    Host::Wildcard(name) => drop(table.wildcard.insert(name.as_str().into(), at)),
                    Host::Any => table.any = Some(at),
                }
            }
            table.sites.push(SiteRoutes {
                hosts: site.hosts,
                routes: Routes::new(site.targets)?,
                redirects: site.redirect_https,
                has_fallback: false,
            });
        }
        table.has_names = !(table.exact.is_empty() && table.wildcard.is_empty());
        Ok(table)
    }
}

/// A host as sites have it: in lower case, without the dot at its end; an IPv6 address in its usual form.
fn canonical(host: &str) -> Cow<'_, str> {
    let host = host.strip_suffix('.').unwrap_or(host);
    if host.contains(':') {
        let address = host.parse::<IpAddr>();
        return address.map_or(Cow::Borrowed(host), |address| {
            Cow::Owned(address.to_string())
        });
    }
    match host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(host.to_ascii_lowercase()),
        false => Cow::Borrowed(host),
    }
}

/// The authority without its port; an IPv6 address keeps its brackets.
pub(crate) fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

/// An IPv6 address without its brackets.
pub(crate) fn without_brackets(host: &str) -> &str {
    let inner = host.strip_prefix('[');
    inner
        .and_then(|inner| inner.strip_suffix(']'))
        .unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(hosts: Vec<Host>, target: &str) -> Site {
        Site {
            hosts,
            targets: vec![target.parse().expect("it is a target")],
            redirect_https: false,
        }
    }

    #[test]
    fn hosts_are_compared_without_ports_and_brackets() {
        for (authority, host) in [
            ("a.example", "a.example"),
            ("a.example:443", "a.example"),
            ("[::1]:443", "::1"),
            ("[::1]", "::1"),
            ("a.example:", "a.example"),
        ] {
            assert_eq!(without_brackets(host_of(authority)), host);
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
            site.routes.find("/").map(|target| target.authority.clone())
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
        let found = without_sites.find(&RequestHead::new(blitz_http::Method::Get, "/"));
        assert!(found.is_some_and(|site| site.has_fallback));
    }
}
