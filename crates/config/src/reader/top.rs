//! The top of the file: listeners, certificates, upstreams, and then the sites.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::certificate::OwnTls;
use super::included::all_entries;
use super::own::OwnSettings;
use super::route_key::is_path;
use super::target::Upstreams;
use super::{Entry, INCLUDE, Reader, entries};
use crate::keys::{self, Scope};
use crate::model::{Configuration, Tls};
use crate::process::ControlAddress;
use crate::route_key::RouteKey;
use crate::span::Placed;

/// The only version of the language.
const VERSION: &str = "1";

/// Keys that stand for all sites.
pub(super) struct Defaults {
    pub(super) tls: Option<OwnTls>,
    pub(super) redirects: Option<bool>,
    pub(super) settings: OwnSettings,
}

impl<'a> Reader<'a> {
    /// The configuration of these files, of which the first one is the main file.
    pub(super) fn top(&mut self, tables: &[DeTable<'a>]) -> Configuration {
        let mut configuration = Configuration::default();
        let entries = all_entries(tables);
        let all = |name: &str| -> Vec<Entry<'_, 'a>> {
            let named = entries.iter().filter(|entry| entry.name == name);
            named.copied().collect()
        };
        self.presets(&all("preset"));
        let mut upstreams = self.upstreams(&all("upstream"));
        let is_of_main = |entry: &&Entry<'_, '_>| !self.document.is_included(entry.key_start);
        let defaults = all("defaults");
        let defaults = self.defaults(defaults.iter().find(is_of_main), &mut upstreams);
        for entry in &entries {
            let Some(entry) = &self.known(Scope::Top, entry) else {
                continue;
            };
            if !self.is_of_file(entry) {
                continue;
            }
            let value = entry.value;
            match entry.name {
                "config_version" => self.version(value),
                "include" => {
                    self.texts(value, INCLUDE);
                }
                "listen" => configuration.listen = Some(self.listeners(value)),
                "listen_tls" => configuration.listen_tls = Some(self.listeners(value)),
                "trusted_proxies" => {
                    let networks = self.placed_networks(value);
                    configuration.trusted_proxies = networks.unwrap_or_default();
                }
                "certificates" => configuration.certificates.extend(self.certificates(value)),
                _ => self.process(entry, &mut configuration.process),
            }
        }
        configuration.sites = self.sites(&all("site"), &defaults, &mut upstreams);
        configuration.certificates.append(&mut self.certificates);
        self.address_in_use(&configuration);
        self.limits_above_the_process(&configuration);
        self.claims_without_tokens(&configuration);
        self.certificates_without_authorities(&configuration);
        self.check_redis(&configuration);
        self.unused_presets(&mut upstreams);
        if self.diagnostics.is_empty() {
            self.proxies_without_trust(&configuration);
            self.unused(&upstreams);
            self.nothing_to_serve(&configuration);
        }
        configuration
    }
}

impl Reader<'_> {
    fn version(&mut self, value: &Spanned<DeValue<'_>>) {
        let version = match value.get_ref() {
            DeValue::Integer(version) => version.as_str().to_owned(),
            DeValue::String(text) if text.starts_with("${") => {
                let Some(text) = self.expanded(text, value.span()) else {
                    return;
                };
                text.value
            }
            other => return self.wrong_type(value.span(), other, "a number", "write 1"),
        };
        if version != VERSION {
            self.error(
                "config-version",
                value.span(),
                "this version of the language is unknown",
                format!("write {VERSION}, or install a later Blitz"),
            );
        }
    }

    fn defaults(&mut self, entry: Option<&Entry<'_, '_>>, upstreams: &mut Upstreams) -> Defaults {
        let key = Placed::new(RouteKey::everything(), 0..0);
        let mut defaults = Defaults {
            tls: None,
            redirects: None,
            settings: OwnSettings::new(key),
        };
        let Some(entry) = entry else { return defaults };
        let DeValue::Table(table) = entry.value.get_ref() else {
            let label = "write for example defaults.tls = true";
            self.wrong_type(entry.value.span(), entry.value.get_ref(), "a table", label);
            return defaults;
        };
        for entry in entries(table) {
            let is_of_site = keys::find(Scope::Defaults, entry.name).is_none()
                && keys::find(Scope::Site, entry.name).is_some();
            if is_of_site || is_path(entry.name) {
                self.not_a_default(&entry);
                continue;
            }
            let Some(entry) = self.known(Scope::Defaults, &entry) else {
                continue;
            };
            match entry.name {
                "tls" => defaults.tls = self.tls(entry.value),
                "https_redirect" => defaults.redirects = self.boolean(entry.value),
                _ => self.setting(&entry, &mut defaults.settings, upstreams),
            }
        }
        self.join_access(&mut defaults.settings, false);
        defaults
    }

    fn not_a_default(&mut self, entry: &Entry<'_, '_>) {
        let (unit, label) = match entry.name {
            "priority" => ("route to route", "write it in a route with a regex"),
            _ => ("site to site", "write it in a site"),
        };
        let message = format!("`{}` differs from {unit}", entry.name);
        self.error("not-a-default", entry.key(), message, label);
    }

    /// Settings of TLS that a site has with these defaults.
    pub(super) fn tls_of_site(
        tls: Option<OwnTls>,
        redirects: Option<bool>,
        defaults: &Defaults,
    ) -> Tls {
        let tls = tls.or_else(|| defaults.tls.clone()).unwrap_or_default();
        Tls {
            is_on: tls.is_on,
            redirects: tls.is_on && redirects.or(defaults.redirects).unwrap_or(true),
            clients: tls.clients,
            min: tls.min,
        }
    }

    /// A file without sites, or without listeners.
    fn nothing_to_serve(&mut self, configuration: &Configuration) {
        if configuration.sites.is_empty() {
            let label = "write [site.\"app.example\"] and below it to = \"http://127.0.0.1:3000\"";
            return self.error("no-site", 0..0, "the file has no site", label);
        }
        let has_own = configuration.sites.iter().any(|site| site.listen.is_some());
        let is_off = |list: &Option<Vec<_>>, has_default: bool| match list {
            Some(addresses) => addresses.is_empty(),
            None => !has_default,
        };
        let is_off = is_off(&configuration.listen, configuration.has_default_listener())
            && is_off(
                &configuration.listen_tls,
                configuration.has_default_tls_listener(),
            );
        if is_off && !has_own {
            self.error(
                "no-listener",
                0..0,
                "the file has no listener",
                "write for example listen = [\":80\"]",
            );
        }
    }

    fn address_in_use(&mut self, configuration: &Configuration) {
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        let listeners = [&configuration.listen, &configuration.listen_tls];
        for listener in listeners.into_iter().flatten().flatten() {
            let address = &listener.value.address;
            let has_any_port = address.value.ends_with(":0");
            match seen.get(address.value.as_str()) {
                Some(first) if !has_any_port => {
                    let first = self.document.place(*first);
                    self.error(
                        "address-in-use",
                        address.span.clone(),
                        format!("two listeners share the address {}", address.value),
                        format!("the first is at {first}; choose another port"),
                    );
                }
                _ => {
                    seen.insert(&address.value, address.span.start);
                }
            }
        }
        self.control_address_in_use(configuration);
    }

    /// A listener, of the file or of a site, with the address of the control interface.
    fn control_address_in_use(&mut self, configuration: &Configuration) {
        let Some(control) = &configuration.process.control.listen else {
            return;
        };
        let ControlAddress::On(written) = &control.value else {
            return;
        };
        let listeners = [&configuration.listen, &configuration.listen_tls];
        let listeners = listeners.into_iter().flatten().flatten();
        let listeners = listeners.map(|listener| &listener.value.address);
        let of_sites = configuration.sites.iter();
        let of_sites = of_sites.flat_map(|site| site.listen.iter().flatten());
        let mut all = listeners.chain(of_sites);
        let Some(shared) = all.find(|address| overlap(&address.value, written)) else {
            return;
        };
        let how = match shared.value == *written {
            true => "the same as",
            false => "a part of",
        };
        let (other, place) = (
            self.document.slice(&shared.span),
            self.document.place(shared.span.start),
        );
        self.error(
            "address-in-use",
            control.span.clone(),
            "`listen` and `control.listen` share an address",
            format!("{how} {other} at {place}; choose another port"),
        );
    }
}

/// Whether two addresses to listen on would share connections. Port 0 becomes another one each time.
fn overlap(a: &str, b: &str) -> bool {
    let (Some((a, port_a)), Some((b, port_b))) = (parts(a), parts(b)) else {
        return false;
    };
    let covers = |outer: &Option<SocketAddr>| outer.is_none_or(|one| one.ip().is_unspecified());
    let is_same = || a.zip(b).is_some_and(|(a, b)| a.ip() == b.ip());
    port_a == port_b && port_a != 0 && (covers(&a) || covers(&b) || is_same())
}

/// The address, if it is not every one, and the port; `None` for others than those of TCP.
fn parts(address: &str) -> Option<(Option<SocketAddr>, u16)> {
    let address = address.strip_prefix("h2c://").unwrap_or(address);
    if let Some(port) = address.strip_prefix(':') {
        return Some((None, port.parse().ok()?));
    }
    let address = match address.strip_prefix("localhost:") {
        Some(port) => SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().ok()?)),
        None => address.parse().ok()?,
    };
    Some((Some(address), address.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_overlap_with_the_same_port_and_a_common_address() {
        for (a, b, expected) in [
            ("127.0.0.1:9180", ":9180", true),
            ("127.0.0.1:9180", "0.0.0.0:9180", true),
            ("localhost:9180", "127.0.0.1:9180", true),
            ("h2c://[::]:9180", "127.0.0.1:9180", true),
            ("127.0.0.1:9180", "127.0.0.2:9180", false),
            ("127.0.0.1:9180", "127.0.0.1:9181", false),
            ("127.0.0.1:0", "127.0.0.1:0", false),
            ("unix:/run/x.sock", ":9180", false),
        ] {
            assert_eq!(overlap(a, b), expected, "{a} {b}");
            assert_eq!(overlap(b, a), expected, "{b} {a}");
        }
    }
}
