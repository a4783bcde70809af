//! Upstreams: those with a name, and the values of `to`.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::DeValue;

use super::balance::{OwnBalance, URL, Weighted};
use super::own::OwnTarget;
use super::value::StringValue;
use super::{Entry, Reader, entries};
use crate::keys::Scope;
use crate::settings::ProxyProtocol;
use crate::span::{Placed, Span};
use crate::suggestion;

/// The upstreams with names.
#[derive(Default)]
pub(super) struct Upstreams {
    by_name: BTreeMap<String, NamedUpstream>,
}

struct NamedUpstream {
    name: Span,
    /// `None` if it is wrong.
    target: Option<OwnTarget>,
    is_used: bool,
}

impl Reader<'_> {
    /// The upstreams of all files.
    pub(super) fn upstreams(&mut self, all: &[Entry<'_, '_>]) -> Upstreams {
        let mut upstreams = Upstreams::default();
        for entry in all {
            let DeValue::Table(table) = entry.value.get_ref() else {
                let label = format!("write [upstream.app] and below it servers = [{URL}]");
                self.wrong_type(entry.value.span(), entry.value.get_ref(), "a table", &label);
                continue;
            };
            self.add_upstreams(&entries(table), &mut upstreams);
        }
        upstreams
    }

    fn add_upstreams(&mut self, entries: &[Entry<'_, '_>], upstreams: &mut Upstreams) {
        for entry in entries {
            if let Some(first) = upstreams.by_name.get(entry.name) {
                let first = first.name.start;
                self.defined_twice("upstream", entry, first);
                continue;
            }
            let upstream = NamedUpstream {
                name: entry.key(),
                target: self.upstream(entry),
                is_used: false,
            };
            upstreams.by_name.insert(entry.name.to_owned(), upstream);
        }
    }

    /// An upstream with a name.
    fn upstream(&mut self, entry: &Entry<'_, '_>) -> Option<OwnTarget> {
        let DeValue::Table(table) = entry.value.get_ref() else {
            let label = match entry.name {
                "server" | "servers" | "url" | "to" => {
                    format!(
                        "an upstream has a name: [upstream.app], and below it servers = [{URL}]"
                    )
                }
                _ => format!("write {{ servers = [{URL}] }}"),
            };
            self.wrong_type(entry.value.span(), entry.value.get_ref(), "a table", &label);
            return None;
        };
        let (mut servers, mut proxy_protocol, mut limits) = (None, None, None);
        let mut own = OwnBalance::default();
        let mut has_servers = false;
        for entry in entries(table) {
            let Some(entry) = self.known(Scope::Upstream, &entry) else {
                continue;
            };
            match entry.name {
                "servers" => {
                    has_servers = true;
                    let span = entry.value.span();
                    servers = self.servers(entry.value).map(|servers| (servers, span));
                }
                "balance" => own.balance = self.balance(entry.value),
                "hash" => own.hash = self.hash(entry.value),
                "sticky" => own.sticky = self.sticky(entry.value),
                "limits" => limits = self.upstream_limits(entry.value),
                "proxy_protocol" => proxy_protocol = self.proxy_version(entry.value),
                key => self.upstream_setting(key, entry.value, &mut own.settings),
            }
        }
        if !has_servers {
            self.error(
                "no-servers",
                entry.key(),
                format!("the upstream `{}` has no servers", entry.name),
                format!("write servers = [{URL}]"),
            );
        }
        let (servers, span) = servers?;
        if let Some(health) = &own.settings.health {
            self.check_health(health, &servers);
        }
        Some(OwnTarget {
            proxy_protocol,
            limits,
            ..self.named_group(entry.name, servers, span, own)
        })
    }

    fn proxy_version(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Placed<ProxyProtocol>> {
        let text = self.text(value, "\"v1\" or \"v2\"")?;
        let version = match text.value.as_str() {
            "v1" => ProxyProtocol::V1,
            "v2" => ProxyProtocol::V2,
            _ => {
                let message = format!("`{}` is no version of the PROXY protocol", text.written());
                self.error("value", text.span, message, "write \"v1\" or \"v2\"");
                return None;
            }
        };
        Some(Placed::new(version, text.span))
    }

    /// The upstream that a `to` means.
    pub(super) fn target(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        upstreams: &mut Upstreams,
    ) -> Option<OwnTarget> {
        if let DeValue::Table(_) | DeValue::Array(_) = value.get_ref() {
            // Those of a value that is wrong are not unused.
            for (name, upstream) in &mut upstreams.by_name {
                upstream.is_used |= names(value, name);
            }
            let all = self.weighted(value)?;
            return self.targets(all, value.span(), upstreams);
        }
        let text = self.text(value, URL)?;
        self.url_or_name(&text, upstreams)
    }

    /// The upstream that several targets are.
    fn targets(
        &mut self,
        all: Vec<Weighted>,
        span: Span,
        upstreams: &mut Upstreams,
    ) -> Option<OwnTarget> {
        let before = self.diagnostics.len();
        let mut targets = Vec::with_capacity(all.len());
        for Weighted { text, weight } in all {
            let target = self.url_or_name(&text, upstreams);
            targets.extend(target.map(|target| (text, weight, target)));
        }
        match targets.len() {
            _ if self.diagnostics.len() != before => None,
            1 => targets.pop().map(|(_, _, target)| target),
            _ => self.group(targets, span),
        }
    }

    fn url_or_name(&mut self, text: &StringValue, upstreams: &mut Upstreams) -> Option<OwnTarget> {
        if let Some(repaired) = repaired(&text.value) {
            // It may be the value of a variable.
            let label = match text.value == text.written() {
                true => format!("write \"{repaired}\""),
                false => "write unix:/PATH, or a URL with a host".to_owned(),
            };
            let message = format!("`{}` is no URL of an upstream", text.written());
            self.error("upstream-url", text.span.clone(), message, label);
            return None;
        }
        if is_url(&text.value) {
            let url = self.url(text)?;
            return Some(self.of_url(url));
        }
        if let Some(upstream) = upstreams.by_name.get_mut(&text.value) {
            upstream.is_used = true;
            return upstream.target.clone();
        }
        let is_address = text.value.contains([':', '.']) || text.value == "localhost";
        if is_address {
            self.error(
                "scheme-missing",
                text.span.clone(),
                format!(
                    "`{}` is no upstream, and a URL needs a scheme",
                    text.written()
                ),
                format!("write \"http://{}\"", text.written()),
            );
            // A name with dots may be that of an upstream in another file, of which this one is a part.
            if is_clear_text(text.written()) && text.value.contains(':') {
                self.repair(text.span.clone(), format!("\"http://{}\"", text.value));
            }
            return None;
        }
        let names = upstreams.by_name.keys().map(String::as_str);
        let label = match suggestion::nearest(&text.value, names) {
            Some(other) => {
                let place = self.document.place(upstreams.by_name[other].name.start);
                format!("did you mean `{other}` ({place})?")
            }
            None => format!(
                "write a URL such as {URL}, or add [upstream.{}]",
                text.written()
            ),
        };
        let message = format!("no upstream is named `{}`", text.written());
        self.error("unknown-upstream", text.span.clone(), message, label);
        None
    }

    /// A URL without a path.
    pub(super) fn url(&mut self, text: &StringValue) -> Option<Placed<String>> {
        let Some((scheme, rest)) = text.value.split_once("://") else {
            return Some(text.to_placed());
        };
        let Some(at) = rest.find(['/', '?', '#']) else {
            return Some(text.to_placed());
        };
        let start = scheme.len() + 3 + at;
        let (origin, path) = text.value.split_at(start);
        let label = match path {
            "/" => "leave out the slash".to_owned(),
            // It may be the value of a variable.
            _ if text.value != text.written() => "write the path as the key `path`".to_owned(),
            _ => format!(
                "write {{ to = \"{origin}\", path = \"{}{{rest}}\" }}",
                path.trim_end_matches('/')
            ),
        };
        let part = text.part(start..text.value.len());
        let message = "the URL of an upstream has no path";
        self.error("url-with-path", part.clone(), message, label);
        if self.document.slice(&part) == "/" {
            self.repair(part, "");
        }
        None
    }

    pub(super) fn unused(&mut self, upstreams: &Upstreams) {
        for (name, upstream) in &upstreams.by_name {
            if !upstream.is_used {
                self.warning(
                    "unused",
                    upstream.name.clone(),
                    format!("the upstream `{name}` is used by no route"),
                    "remove it, or name it in a `to`",
                );
            }
        }
    }
}

/// Whether a list or a map of targets has this one.
fn names(targets: &Spanned<DeValue<'_>>, name: &str) -> bool {
    match targets.get_ref() {
        DeValue::Table(table) => entries(table).iter().any(|entry| entry.name == name),
        DeValue::Array(items) => {
            let mut texts = items.iter().filter_map(|item| item.get_ref().as_str());
            texts.any(|text| text == name)
        }
        _ => false,
    }
}

/// The correct form of a socket or a port that is written as for another server.
fn repaired(text: &str) -> Option<String> {
    let of_socket = ["unix://", "http://unix:", "https://unix:"]
        .into_iter()
        .find_map(|prefix| text.strip_prefix(prefix))
        .or_else(|| text.starts_with('/').then_some(text));
    match of_socket {
        Some(path) => Some(format!("unix:{}", path.trim_end_matches(':'))),
        None => text
            .starts_with(':')
            .then(|| format!("http://127.0.0.1{text}")),
    }
}

/// Whether a host and a port are without a variable, and not those of HTTPS.
fn is_clear_text(text: &str) -> bool {
    let is_of_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:[]".contains(&byte);
    text.bytes().all(is_of_host) && !text.ends_with("443")
}

fn is_url(text: &str) -> bool {
    text.contains("://") || text.starts_with("unix:")
}
