//! Sites: their hosts, TLS, and routes with what they inherit.

use std::collections::HashMap;
use std::net::IpAddr;

use toml::Spanned;
use toml::de::DeValue;

use super::path::is_path;
use super::target::Upstreams;
use super::top::Defaults;
use super::value::Text;
use super::{Entry, Reader, entries};
use crate::keys::{self, Scope};
use crate::model::{Host, PathPattern, Placed, Route, Site, Span};

/// Bytes of a host name (RFC 1035, section 2.3.4), and of a label of it.
const HOST_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// What a route says itself.
struct OwnRoute {
    path: Placed<PathPattern>,
    /// Whether `to` is written, although it may be wrong.
    has_to: bool,
    to: Option<Placed<String>>,
    replacement: Option<String>,
}

impl OwnRoute {
    fn new(path: PathPattern, span: Span) -> OwnRoute {
        OwnRoute {
            path: Placed { value: path, span },
            has_to: false,
            to: None,
            replacement: None,
        }
    }
}

impl Reader<'_> {
    pub(super) fn sites(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        defaults: &Defaults,
        upstreams: &mut Upstreams,
    ) -> Vec<Site> {
        let DeValue::Table(table) = value.get_ref() else {
            let label = "write [site.\"app.example\"]";
            self.wrong_type(value.span(), value.get_ref(), "a table", label);
            return Vec::new();
        };
        let mut sites = Vec::new();
        let mut hosts: HashMap<Host, usize> = HashMap::new();
        for entry in entries(table) {
            if self.lacks_quotes(&entry) {
                continue;
            }
            let host = self.host(entry.name, entry.key());
            let site = self.site(&entry, host, defaults, upstreams);
            let Some(site) = site else { continue };
            for host in std::iter::once(&site.host).chain(&site.aliases) {
                let start = host.span.start;
                if let Some(first) = hosts.insert(host.value.clone(), start) {
                    let first = self.document.place(first);
                    self.error(
                        "defined-twice",
                        host.span.clone(),
                        format!("the site `{}` is defined twice", host.value),
                        format!("second definition; the first is at {first}"),
                    );
                }
            }
            sites.push(site);
        }
        sites
    }

    /// `[site.app.example]` is the table `example` in a site `app`.
    fn lacks_quotes(&mut self, entry: &Entry<'_, '_>) -> bool {
        let mut end = entry.key_end;
        let mut value = entry.value;
        while let DeValue::Table(table) = value.get_ref() {
            let nested = entries(table);
            let Some(first) = nested.first() else { break };
            let is_dotted = first.key_start == end + 1
                && self.document.text.as_bytes().get(end) == Some(&b'.')
                && keys::find(Scope::Site, first.name).is_none()
                && !is_path(first.name);
            if !is_dotted {
                break;
            }
            end = first.key_end;
            value = first.value;
        }
        if end == entry.key_end {
            return false;
        }
        let span = entry.key_start..end;
        let written = self.document.slice(&span).replace(['"', '\''], "");
        self.error(
            "host-quotes",
            span,
            "a host name with dots needs quotes",
            format!("write `\"{written}\"`"),
        );
        true
    }

    fn site(
        &mut self,
        entry: &Entry<'_, '_>,
        host: Option<Placed<Host>>,
        defaults: &Defaults,
        upstreams: &mut Upstreams,
    ) -> Option<Site> {
        let own = OwnRoute::new(PathPattern::Segments("/".to_owned()), entry.key());
        let mut routes = vec![own];
        let mut aliases = Vec::new();
        let (mut tls, mut redirects) = (None, None);
        let before = self.diagnostics.len();
        match entry.value.get_ref() {
            DeValue::String(_) => {
                routes[0].has_to = true;
                routes[0].to = self.target(entry.value, upstreams);
            }
            DeValue::Table(table) => {
                for entry in entries(table) {
                    if is_path(entry.name) {
                        routes.extend(self.route(&entry, upstreams));
                    } else if self.key(Scope::Site, &entry).is_some() {
                        match entry.name {
                            "aliases" => aliases = self.aliases(entry.value),
                            "tls" => tls = self.tls(entry.value),
                            "https_redirect" => redirects = self.boolean(entry.value),
                            _ => self.route_key(&entry, &mut routes[0], upstreams),
                        }
                    }
                }
            }
            other => {
                let label = "write a URL, or a table with `to`";
                self.wrong_type(entry.value.span(), other, "a table", label);
                return None;
            }
        }
        // A key that is wrong may have been the action.
        let is_whole = self.diagnostics.len() == before;
        self.slash_pairs(&routes);
        Some(Site {
            host: host?,
            aliases,
            tls: Reader::tls_of_site(tls, redirects, defaults),
            routes: self.inherit(&routes, defaults, is_whole),
        })
    }

    fn aliases(&mut self, value: &Spanned<DeValue<'_>>) -> Vec<Placed<Host>> {
        let texts = self.texts(value, "\"www.app.example\"");
        let hosts = texts
            .into_iter()
            .map(|text| self.host(&text.value, text.span));
        hosts.collect::<Vec<_>>().into_iter().flatten().collect()
    }

    pub(super) fn tls(&mut self, value: &Spanned<DeValue<'_>>) -> Option<bool> {
        match value.get_ref() {
            DeValue::String(text) if matches!(text.as_ref(), "acme" | "development") => {
                self.not_yet(value.span(), &format!("`{text}`"));
                None
            }
            DeValue::Table(_) => {
                self.not_yet(value.span(), "a table of TLS");
                None
            }
            _ => self.boolean(value),
        }
    }

    fn route(&mut self, entry: &Entry<'_, '_>, upstreams: &mut Upstreams) -> Option<OwnRoute> {
        let path = self.path(entry);
        let mut route = OwnRoute::new(PathPattern::Segments("/".to_owned()), entry.key());
        match entry.value.get_ref() {
            DeValue::String(_) => {
                route.has_to = true;
                route.to = self.target(entry.value, upstreams);
            }
            DeValue::Table(table) => {
                for entry in entries(table) {
                    if self.key(Scope::Route, &entry).is_some() {
                        self.route_key(&entry, &mut route, upstreams);
                    }
                }
            }
            other => {
                let label = "write a URL, or a table with `to`";
                self.wrong_type(entry.value.span(), other, "a table", label);
                route.has_to = true;
            }
        }
        route.path = path?;
        Some(route)
    }

    fn route_key(
        &mut self,
        entry: &Entry<'_, '_>,
        route: &mut OwnRoute,
        upstreams: &mut Upstreams,
    ) {
        match entry.name {
            "to" => {
                route.has_to = true;
                route.to = self.target(entry.value, upstreams);
            }
            "path" => {
                let text = self.text(entry.value, "\"/v2{rest}\"");
                route.replacement = text.and_then(|text: Text| self.replacement(&text));
            }
            _ => {}
        }
    }

    /// The routes with what they inherit: from the enclosing route with the longest path that has it.
    fn inherit(&mut self, own: &[OwnRoute], defaults: &Defaults, is_whole: bool) -> Vec<Route> {
        let mut routes = Vec::new();
        for route in own {
            let mut enclosing: Vec<&OwnRoute> = own
                .iter()
                .filter(|other| other.path.value.encloses(&route.path.value))
                .collect();
            enclosing.sort_by_key(|other| std::cmp::Reverse(other.path.value.text().len()));
            let with_to = enclosing.iter().position(|other| other.has_to);
            let to = match with_to {
                Some(at) => enclosing[at].to.clone(),
                None => defaults.to.clone(),
            };
            // `path` is an option of `to`: what encloses the route with the `to` does not apply to it.
            let until = with_to.map_or(enclosing.len(), |at| at + 1);
            let mut below = enclosing[..until].iter();
            let replacement = below.find_map(|other| replacement_below(other, &route.path.value));
            match to {
                Some(to) => routes.push(Route {
                    path: route.path.clone(),
                    to,
                    replacement,
                }),
                None if with_to.is_some() || !is_whole => {}
                // A site may have nothing but the routes below it.
                None if route.path.value.text() == "/"
                    && own.len() > 1
                    && replacement.is_none() => {}
                None => self.error(
                    "no-action",
                    route.path.span.clone(),
                    "this route has no action",
                    "write for example to = \"http://127.0.0.1:3000\"",
                ),
            }
        }
        routes
    }

    /// `/app` beside `/app/`: almost always one was meant, since the other would get a single path.
    fn slash_pairs(&mut self, routes: &[OwnRoute]) {
        for with in routes {
            let PathPattern::Segments(text) = &with.path.value else {
                continue;
            };
            let Some(stripped) = text.strip_suffix('/').filter(|text| !text.is_empty()) else {
                continue;
            };
            let is_pair = |other: &&OwnRoute| matches!(&other.path.value, PathPattern::Segments(text) if text == stripped);
            let Some(without) = routes.iter().find(is_pair) else {
                continue;
            };
            if without.to.as_ref().map(|to| &to.value) != with.to.as_ref().map(|to| &to.value) {
                self.error(
                    "slash-pair",
                    without.path.span.clone(),
                    format!(
                        "`{stripped}` would get a single path, because `{text}` goes elsewhere"
                    ),
                    format!("`{stripped}` also matches all below; keep one of them"),
                );
            }
        }
    }

    /// The name of a site.
    fn host(&mut self, written: &str, span: Span) -> Option<Placed<Host>> {
        let text = self.expanded(written, span.clone())?;
        let name = text.value.to_ascii_lowercase();
        let place = |value| {
            Some(Placed {
                value,
                span: span.clone(),
            })
        };
        if name == "*" {
            return place(Host::Any);
        }
        let address = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'));
        if let Ok(address) = address.unwrap_or(&name).parse::<IpAddr>() {
            return place(Host::Exact(address.to_string()));
        }
        if let Some((label, message)) = host_problem(&name) {
            self.error("host", span, message, label);
            return None;
        }
        match name.strip_prefix("*.") {
            Some(parent) => place(Host::Wildcard(parent.to_owned())),
            None => place(Host::Exact(name)),
        }
    }
}

/// What replaces the path of `route`, if `other`, which encloses it, says so.
fn replacement_below(other: &OwnRoute, route: &PathPattern) -> Option<String> {
    let before = other.replacement.as_ref()?;
    let path = other.path.value.text().trim_end_matches('/');
    let rest = route.text().strip_prefix(path).unwrap_or_default();
    let replaced = format!("{before}{}", rest.trim_end_matches('/'));
    Some(match replaced.is_empty() {
        true => "/".to_owned(),
        false => replaced,
    })
}

/// What is wrong with a host name in lower case, and the repair.
fn host_problem(name: &str) -> Option<(&'static str, &'static str)> {
    let host = name.strip_prefix("*.").unwrap_or(name);
    if host.contains("://") || host.contains('/') {
        return Some(("write the host alone", "a site has a host, not a URL"));
    }
    if host.contains(':') {
        return Some((
            "write ports in `listen`",
            "a site has a host without a port",
        ));
    }
    if !host.is_ascii() {
        return Some(("write it in A-labels: xn--…", "this host is not in ASCII"));
    }
    if host.contains('*') {
        return Some((
            "write *.app.example, or * for all other hosts",
            "a star stands for the whole first label",
        ));
    }
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= LABEL_BYTES_MAX
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let is_valid = host.len() <= HOST_BYTES_MAX && host.split('.').all(is_label);
    (!is_valid).then_some(("write for example app.example", "this is not a host name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_checked() {
        for (name, is_valid) in [
            ("app.example", true),
            ("localhost", true),
            ("*.app.example", true),
            ("_a.example", true),
            ("a..example", false),
            ("app.example.", false),
            ("app.example:80", false),
            ("http://app.example", false),
            ("a.*.example", false),
            ("a b.example", false),
            ("\u{e9}.example", false),
            ("", false),
        ] {
            assert_eq!(host_problem(name).is_none(), is_valid, "{name}");
        }
    }
}
