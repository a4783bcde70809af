//! Sites: their hosts, TLS, and routes with inherited settings.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use toml::Spanned;
use toml::de::DeValue;

use super::certificate::OwnTls;
use super::conflicts::add_head;
use super::inherit::InheritedValues;
use super::own::{OwnAction, OwnSettings};
use super::route_key::is_path;
use super::target::Upstreams;
use super::top::Defaults;
use super::tree::RouteTree;
use super::{Entry, Reader, entries};
use crate::keys::{self, Scope};
use crate::model::{Host, Route, Site};
use crate::process::MessageLimits;
use crate::route_key::RouteKey;
use crate::settings::Unrouted;
use crate::span::{Placed, Span};

/// Bytes of a host name (RFC 1035, section 2.3.4), and of a label of it.
const HOST_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

impl Reader<'_> {
    pub(super) fn sites(
        &mut self,
        all: &[Entry<'_, '_>],
        defaults: &Defaults,
        upstreams: &mut Upstreams,
    ) -> Vec<Site> {
        let mut tables = Vec::new();
        for entry in all {
            match entry.value.get_ref() {
                DeValue::Table(table) => tables.push(table),
                other => {
                    let label = "write [site.\"app.example\"]";
                    self.wrong_type(entry.value.span(), other, "a table", label);
                }
            }
        }
        let mut sites = Vec::new();
        let mut hosts: HashMap<Host, usize> = HashMap::new();
        let mut shared = InheritedValues::default();
        for entry in tables.into_iter().flat_map(entries) {
            if self.lacks_quotes(&entry) {
                continue;
            }
            let host = self.host(entry.name, entry.key());
            let site = self.site(&entry, host, defaults, upstreams, &mut shared);
            let Some(site) = site else { continue };
            let all = std::iter::once(&site.host)
                .chain(&site.aliases)
                .chain(&site.canonical_for);
            for host in all {
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
            span.clone(),
            "a host name with dots needs quotes",
            format!("write `\"{written}\"`"),
        );
        self.repair(span, format!("\"{written}\""));
        true
    }

    fn site(
        &mut self,
        entry: &Entry<'_, '_>,
        host: Option<Placed<Host>>,
        defaults: &Defaults,
        upstreams: &mut Upstreams,
        shared: &mut InheritedValues,
    ) -> Option<Site> {
        self.place = match &host {
            Some(host) => format!("site {}", host.value),
            None => "site".to_owned(),
        };
        let key = Placed::new(RouteKey::everything(), entry.key());
        let keys = match entry.value.get_ref() {
            DeValue::Table(table) => table.len(),
            _ => 0,
        };
        let mut own = Vec::with_capacity(1 + keys);
        own.push(OwnSettings::new(key));
        let (mut aliases, mut canonical_for) = (Vec::new(), Vec::new());
        let (mut tls, mut redirects, mut listen) = (None, None, None);
        let mut limits = MessageLimits::default();
        let before = self.diagnostics.len();
        match entry.value.get_ref() {
            DeValue::String(_) => {
                self.short_route(entry, &mut own[0], upstreams);
                self.certificates_of_clients(&mut own, None, defaults);
            }
            DeValue::Table(table) => {
                for entry in entries(table) {
                    if is_path(entry.name) {
                        own.extend(self.route(&entry, upstreams));
                    } else if let Some(entry) = self.known(Scope::Site, &entry) {
                        match entry.name {
                            "aliases" => aliases = self.hosts(entry.value),
                            "canonical_for" => canonical_for = self.hosts(entry.value),
                            "listen" => listen = self.own_addresses(&entry),
                            "tls" => tls = self.tls(entry.value),
                            "https_redirect" => redirects = self.boolean(entry.value),
                            "limits" => limits = self.site_limits(entry.value),
                            _ => self.setting(&entry, &mut own[0], upstreams),
                        }
                    }
                }
                self.certificates_of_clients(&mut own, tls.as_ref(), defaults);
                self.join_access(&mut own[0], false);
            }
            other => {
                let label = "write a URL, or a table with `to`";
                self.wrong_type(entry.value.span(), other, "a table", label);
                return None;
            }
        }
        // A key that is wrong may have been the action.
        let is_whole = self.diagnostics.len() == before;
        let (routes, unrouted) = self.routes(own, &defaults.settings, is_whole, shared);
        Some(Site {
            host: host?,
            aliases,
            canonical_for,
            tls: Reader::tls_of_site(tls, redirects, defaults),
            limits,
            listen,
            routes,
            unrouted,
        })
    }

    /// The consequences for routes of a `client_ca` in this `tls` of their site.
    fn certificates_of_clients(
        &mut self,
        own: &mut [OwnSettings],
        tls: Option<&OwnTls>,
        defaults: &Defaults,
    ) {
        let clients = tls.or(defaults.tls.as_ref());
        let Some(clients) = clients.and_then(|tls| tls.clients.as_deref()) else {
            return;
        };
        let inherited = tls.is_none().then_some(&defaults.settings);
        Reader::demand_certificates(&mut own[0], inherited, clients);
        self.demanded_certificates(own, clients);
    }

    fn routes(
        &mut self,
        mut own: Vec<OwnSettings>,
        defaults: &OwnSettings,
        is_whole: bool,
        shared: &mut InheritedValues,
    ) -> (Vec<Route>, Unrouted) {
        add_head(&mut own);
        self.same_routes(&own);
        let tree = RouteTree::new(own.iter().map(|own| &own.key.value).collect());
        let (routes, unrouted) = self.inherit(&own, &tree, defaults, is_whole, shared);
        self.slash_pairs(&routes);
        self.shared_cookies(&routes);
        self.access_gaps(&own, &tree);
        self.slash_gaps(&own, &tree, &routes);
        (routes, unrouted)
    }

    fn hosts(&mut self, value: &Spanned<DeValue<'_>>) -> Vec<Placed<Host>> {
        let texts = self.texts(value, "\"www.app.example\"");
        let hosts = texts
            .into_iter()
            .map(|text| self.host(&text.value, text.span));
        hosts.collect::<Vec<_>>().into_iter().flatten().collect()
    }

    fn route(&mut self, entry: &Entry<'_, '_>, upstreams: &mut Upstreams) -> Option<OwnSettings> {
        let key = self.route_key(entry);
        let is_valid = key.is_some();
        let everything = || Placed::new(RouteKey::everything(), entry.key());
        let mut own = OwnSettings::new(key.unwrap_or_else(everything));
        match entry.value.get_ref() {
            DeValue::String(_) => self.short_route(entry, &mut own, upstreams),
            DeValue::Table(table) => {
                for entry in entries(table) {
                    if let Some(entry) = self.known(Scope::Route, &entry) {
                        self.setting(&entry, &mut own, upstreams);
                    }
                }
                self.join_access(&mut own, false);
            }
            other => {
                let label = "write a URL, or a table with `to`";
                self.wrong_type(entry.value.span(), other, "a table", label);
                own.action = Some((OwnAction::Wrong, entry.key()));
            }
        }
        is_valid.then_some(own)
    }

    /// A text in place of a table is its `to`.
    fn short_route(
        &mut self,
        entry: &Entry<'_, '_>,
        own: &mut OwnSettings,
        upstreams: &mut Upstreams,
    ) {
        let to = self.target(entry.value, upstreams).map(OwnAction::To);
        own.action = Some((to.unwrap_or(OwnAction::Wrong), entry.key()));
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
        if matches!(name.as_str(), "_" | "default") {
            let message = format!("`{name}` is no host");
            self.error("host", span, message, "write \"*\" for every other host");
            return None;
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

/// The problem of a host in lower case that may have a port, and the repair.
pub(super) fn authority_problem(authority: &str) -> Option<(&'static str, &'static str)> {
    const PORT: (&str, &str) = ("write a number from 1 to 65535", "the port is invalid");
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let is_port = |port: &str| {
        let is_digits = port.bytes().all(|byte| byte.is_ascii_digit());
        is_digits && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    if port.is_some_and(|port| !is_port(port)) {
        return Some(PORT);
    }
    let address = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    if let Some(address) = address {
        let is_valid = address.parse::<Ipv6Addr>().is_ok();
        return (!is_valid).then_some(("write for example [::1]", "this is not an IPv6 address"));
    }
    if host.starts_with("*.") {
        return Some(("write the host itself", "a star is no host"));
    }
    host_problem(host)
}

/// The problem of a host name in lower case, and the repair.
fn host_problem(name: &str) -> Option<(&'static str, &'static str)> {
    let host = name.strip_prefix("*.").unwrap_or(name);
    if host.contains("://") || host.contains('/') {
        return Some(("write the host alone", "this must be a host, not a URL"));
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
