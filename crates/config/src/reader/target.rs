//! Upstreams: those with a name, and the values of `to`.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::DeValue;

use super::own::OwnTarget;
use super::value::Text;
use super::{Entry, Reader, entries};
use crate::keys::Scope;
use crate::model::{Placed, Span};
use crate::settings::ProxyProtocol;
use crate::suggestion;

const URL: &str = "\"http://127.0.0.1:3000\"";

/// The upstreams with names.
#[derive(Default)]
pub(super) struct Upstreams {
    by_name: BTreeMap<String, Upstream>,
}

struct Upstream {
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
            let upstream = Upstream {
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
        let (mut url, mut proxy_protocol) = (None, None);
        let mut has_servers = false;
        for entry in entries(table) {
            if self.key(Scope::Upstream, &entry).is_none() {
                continue;
            }
            match entry.name {
                "servers" => {
                    has_servers = true;
                    url = self.one_server(entry.value);
                }
                _ => proxy_protocol = self.proxy_version(entry.value),
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
        Some(OwnTarget {
            url: url?,
            proxy_protocol,
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

    fn one_server(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Placed<String>> {
        if let DeValue::Table(_) = value.get_ref() {
            self.not_yet(value.span(), "a weight");
            return None;
        }
        if matches!(value.get_ref(), DeValue::Array(items) if items.is_empty()) {
            let message = "the list has no server";
            self.error(
                "no-servers",
                value.span(),
                message,
                format!("write [{URL}]"),
            );
            return None;
        }
        let mut urls = self.texts(value, URL).into_iter();
        let url = urls.next()?;
        if let Some(second) = urls.next() {
            self.not_yet(second.span, "a second server");
            return None;
        }
        self.url(url)
    }

    /// The upstream that a `to` means.
    pub(super) fn target(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        upstreams: &mut Upstreams,
    ) -> Option<OwnTarget> {
        match value.get_ref() {
            DeValue::Table(_) => {
                self.not_yet(value.span(), "a weight");
                None
            }
            DeValue::Array(_) => self.one_server(value).map(OwnTarget::from),
            _ => {
                let text = self.text(value, URL)?;
                self.url_or_name(text, upstreams)
            }
        }
    }

    fn url_or_name(&mut self, text: Text, upstreams: &mut Upstreams) -> Option<OwnTarget> {
        if let Some(repaired) = repaired(&text.value) {
            // It may be the value of a variable.
            let label = match text.value == text.written() {
                true => format!("write \"{repaired}\""),
                false => "write unix:/PATH, or a URL with a host".to_owned(),
            };
            let message = format!("`{}` is no URL of an upstream", text.written());
            self.error("upstream-url", text.span, message, label);
            return None;
        }
        if is_url(&text.value) {
            return self.url(text).map(OwnTarget::from);
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
                self.repair(text.span, format!("\"http://{}\"", text.value));
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
        self.error("unknown-upstream", text.span, message, label);
        None
    }

    /// A URL without a path.
    fn url(&mut self, text: Text) -> Option<Placed<String>> {
        let Some((scheme, rest)) = text.value.split_once("://") else {
            return Some(text.placed());
        };
        let Some(at) = rest.find(['/', '?', '#']) else {
            return Some(text.placed());
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
