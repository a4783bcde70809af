//! The differences between the sites of two configurations.

use std::collections::HashMap;

use blitz_config::Host;

use crate::route::Route;
use crate::sites::{SiteRoutes, Sites};

/// How a site or a route differs from the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// There was none with its name.
    Added,
    /// Its hosts, routes or rules are others.
    Changed,
    /// There is none with its name any more.
    Removed,
}

/// A site that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteChange {
    /// Its first host.
    pub host: Host,
    /// How it differs.
    pub change: Change,
    /// The routes that differ, by their names, if the site is changed. Without one its hosts or its other rules differ.
    pub routes: Vec<(Change, Box<str>)>,
}

/// The sites that differ: those of the new configuration in its order, then those that are gone.
#[must_use]
pub fn site_changes(before: &Sites, after: &Sites) -> Vec<SiteChange> {
    let (old, new) = (by_host(before), by_host(after));
    let changed = |host: &Host, change, routes| SiteChange {
        host: host.clone(),
        change,
        routes,
    };
    let added_or_changed = named(after).filter_map(|(host, site)| match old.get(host) {
        None => Some(changed(host, Change::Added, Vec::new())),
        Some(other) if *other == site => None,
        Some(other) => Some(changed(host, Change::Changed, route_changes(other, site))),
    });
    let removed = named(before).filter(|(host, _)| !new.contains_key(host));
    let removed = removed.map(|(host, _)| changed(host, Change::Removed, Vec::new()));
    added_or_changed.chain(removed).collect()
}

/// The routes that differ: those that are new or changed by rank, then those that are gone.
fn route_changes(before: &SiteRoutes, after: &SiteRoutes) -> Vec<(Change, Box<str>)> {
    let by_name = |site| -> HashMap<&str, &Route> {
        let site: &SiteRoutes = site;
        site.routes
            .iter()
            .map(|route| (&*route.name, route))
            .collect()
    };
    let (old, new) = (by_name(before), by_name(after));
    let added_or_changed = after.routes.ranked().filter_map(|route| {
        let change = match old.get(&*route.name) {
            None => Change::Added,
            Some(other) if *other == route => return None,
            Some(_) => Change::Changed,
        };
        Some((change, route.name.clone()))
    });
    let removed = before.routes.ranked();
    let removed = removed.filter(|route| !new.contains_key(&*route.name));
    let removed = removed.map(|route| (Change::Removed, route.name.clone()));
    added_or_changed.chain(removed).collect()
}

fn by_host(sites: &Sites) -> HashMap<&Host, &SiteRoutes> {
    named(sites).collect()
}

/// Targets without a site have no host.
fn named(sites: &Sites) -> impl Iterator<Item = (&Host, &SiteRoutes)> {
    sites
        .iter()
        .filter_map(|site| Some((site.hosts.first()?, site)))
}

#[cfg(test)]
mod tests {
    use blitz_config::{Document, Environment, read};

    use super::*;
    use crate::compile::compile;

    fn sites(text: &str) -> Sites {
        let document = Document::new("blitz.toml", text);
        let (configuration, mut diagnostics) = read(&document, &Environment::default());
        let mut no_file = |_: &str| Err((String::new(), String::new()));
        let sites = compile(&configuration, &mut no_file, &mut diagnostics);
        assert_eq!(diagnostics, []);
        Sites::of_file(sites)
    }

    /// `+`, `~` and `-` with the host.
    fn signs(before: &str, after: &str) -> String {
        let changes = site_changes(&sites(before), &sites(after));
        let texts = changes.iter();
        let texts = texts.map(|site| format!("{}{}", sign(site.change), site.host));
        texts.collect::<Vec<_>>().join(" ")
    }

    fn sign(change: Change) -> char {
        match change {
            Change::Added => '+',
            Change::Changed => '~',
            Change::Removed => '-',
        }
    }

    #[test]
    fn routes_that_differ_are_named() {
        let site = |routes: &str| {
            sites(&format!(
                "[site.\"a.example\"]\nto = \"http://a:1\"\n{routes}"
            ))
        };
        let before =
            site("\"/a\" = \"http://a:2\"\n\"/b\" = \"http://a:3\"\n\"/c\".host = \"upstream\"\n");
        let after = site(
            "\"/b\" = \"http://a:4\"\n\"/c\".host = \"upstream\"\n\"POST /d\" = \"http://a:5\"\n",
        );
        let [changed] = &site_changes(&before, &after)[..] else {
            panic!("one site has changed");
        };
        let routes = changed.routes.iter();
        let routes: Vec<_> = routes
            .map(|(change, name)| format!("{}{name}", sign(*change)))
            .collect();
        assert_eq!(routes, ["~/b", "+POST /d", "-/a"]);
        // Its own settings, which its routes inherit.
        let other = site("allow = [\"10.0.0.0/8\"]\n");
        let changes = site_changes(&site(""), &other);
        assert_eq!(changes[0].routes, [(Change::Changed, "/".into())]);
    }

    #[test]
    fn sites_are_compared_by_what_they_say() {
        let (a, b) = (
            "\"a.example\" = \"http://a:1\"",
            "\"b.example\" = \"http://b:1\"",
        );
        let both = format!("[site]\n{a}\n{b}\n");
        // The upstream of b has another number.
        let other_order = format!("[site]\n{b}\n{a}\n");
        assert_eq!(signs(&both, &other_order), "");
        assert_eq!(signs(&format!("[site]\n{a}\n"), &both), "+b.example");
        assert_eq!(signs(&both, &format!("[site]\n{b}\n")), "-a.example");
        let other = format!(
            "[site]\n\"c.example\" = \"http://c:1\"\n{}\n",
            b.replace(":1", ":2")
        );
        assert_eq!(signs(&both, &other), "+c.example ~b.example -a.example");
        let with = |priority| {
            let route = format!("'~/x' = {{ respond = 204, priority = {priority} }}");
            format!("[site.\"a.example\"]\nto = \"http://a:1\"\n{route}\n")
        };
        assert_eq!(signs(&with(1), &with(1)), "");
        assert_eq!(signs(&with(1), &with(2)), "~a.example");
    }

    /// Settings of a route that differ from each other.
    const SETTINGS: &[&str] = &[
        "",
        "path = \"/y{rest}\"",
        "raw_path = true",
        "host = \"upstream\"",
        "retries = 0",
        "retries = 2",
        "host = \"b.example\"",
        "request_trailers = true",
        "timeout.connect = \"1s\"",
        "timeout.response = \"1s\"",
        "timeout.request = \"1s\"",
        "timeout.idle = \"1s\"",
        "allow = [\"10.0.0.0/8\"]",
        "deny = [\"10.0.0.0/8\"]",
        "deny = { networks = [\"11.0.0.0/8\"] }",
        "security_headers = true",
        "security_headers = { frame = \"sameorigin\" }",
        "security_headers = { replace = true }",
        "methods = [\"GET\"]",
        "body_max = \"1k\"",
        "jwt = { secret = \"a secret of exactly 32 bytes ...\" }",
        "jwt = { secret = \"another one of exactly 32 bytes.\" }",
        "jwt = { secret = \"a secret of exactly 32 bytes ...\", issuer = \"i\" }",
        "forward_auth = { url = \"http://127.0.0.1:1/a\" }",
        "forward_auth = { url = \"http://127.0.0.1:1/b\" }",
        "forward_auth = { url = \"http://127.0.0.1:1/b\", on_failure = \"open\" }",
        "cors = [\"https://a.example\"]",
        "early_hints = [\"</a.css>; rel=preload\"]",
        "cors = [\"https://b.example\"]",
        "rate_limit = \"1/s\"",
        "concurrency = 10",
        "decompress = true",
        "compress = true",
        "compress = { min_size = \"2k\" }",
        "when = [{ client = \"unix\", respond = 204 }]",
        "when = [{ client = \"!unix\", respond = 204 }]",
        "when = [{ header.a = \"~b\", respond = 204 }]",
        "when = [{ header.a = \"~c\", respond = 204 }]",
        "when = [{ header.a = \"~c\", respond = 205 }]",
        "headers.a = \"b\"",
        "request_headers.a = \"b\"",
        "to = [\"http://a:1\", \"http://a:2\"]",
        "to = [\"http://a:1\", \"http://a:3\"]",
        "to = { \"http://a:1\" = 1, \"http://a:2\" = 2 }",
        "to = [\"http://a:1\", \"http://a:2\"], sticky = \"client\"",
        "to = [\"http://a:1\", \"http://a:2\"], sticky = \"cookie\"",
        "to = [\"http://a:1\", \"http://a:2\"], host = \"upstream\"",
        "importance = \"low\"",
        "importance = \"high\"",
        "mirror = { to = \"http://b:1\" }",
        "mirror = { to = \"http://c:1\" }",
        "mirror = { to = [\"http://b:1\", \"http://c:1\"] }",
        "mirror = { to = \"http://b:1\", percent = 1 }",
        "files = \"/srv/a\"",
        "files = \"/srv/b\"",
        "files = \"/srv/b\", to = \"http://a:1\"",
        "files = \"/srv/b\", to = \"http://b:1\"",
        "files = \"/srv/b\", index = []",
        "files = \"/srv/b\", extensions = [\".html\"]",
        "files = \"/srv/b\", fallback = \"/a\"",
        "files = \"/srv/b\", hidden = true",
        "files = \"/srv/b\", list = true",
        "files = \"/srv/b\", symlinks = \"follow\"",
        "files = \"/srv/b\", symlinks = \"deny\"",
        "redirect = \"301 /y\"",
        "respond = 204",
    ];

    #[test]
    fn each_setting_is_compared() {
        let site = |settings: &str| {
            format!("[site.\"a.example\"]\nto = \"http://a:1\"\n\"/x\" = {{ {settings} }}\n")
        };
        for one in SETTINGS {
            for other in SETTINGS {
                let expected = if one == other { "" } else { "~a.example" };
                assert_eq!(signs(&site(one), &site(other)), expected, "{one} | {other}");
            }
        }
    }
}
