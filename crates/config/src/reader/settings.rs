//! Keys of routes, sites and `defaults`.

use std::sync::Arc;

use toml::Spanned;
use toml::de::DeValue;

use super::own::{Own, OwnAction, OwnMap, OwnSettings};
use super::target::Upstreams;
use super::template::TemplateKind;
use super::value::StringValue;
use super::{Entry, Reader, entries};
use crate::keys::{self, RETRIES_MAX, Scope};
use crate::method::{Method, Methods};
use crate::network::Network;
use crate::path;
use crate::settings::{ErrorPage, ForwardedHost};
use crate::span::Placed;
use crate::template::{Placeholder, Template, TemplatePart};
use crate::units::{self, StatusPattern, TimeLimit, ValueError};
use crate::upgrade::Upgrades;

const NETWORK: &str = "\"10.0.0.0/8\"";

impl Reader<'_> {
    /// The value of a key that a route may have, and this version has.
    pub(super) fn setting(
        &mut self,
        entry: &Entry<'_, '_>,
        own: &mut OwnSettings,
        upstreams: &mut Upstreams,
    ) {
        let value = entry.value;
        match entry.name {
            "to" => {
                let to = self.target(value, upstreams).map(OwnAction::To);
                self.action(entry, own, to);
            }
            "redirect" => {
                let redirect = self.redirect(value, &own.key.value.path);
                self.action(entry, own, redirect.map(OwnAction::Redirect));
            }
            "respond" => {
                let respond = self.respond(value, &own.key.value.path);
                self.action(entry, own, respond.map(OwnAction::Respond));
            }
            "files" => {
                let folder = self.folder(value, &own.key.value.path);
                self.action(entry, own, folder.map(OwnAction::Files));
            }
            "path" => {
                own.option.get_or_insert(("path", entry.key()));
                own.path = self.own(value, |reader| reader.upstream_path(value, own));
            }
            "host" => {
                own.option.get_or_insert(("host", entry.key()));
                own.host = self.own(value, |reader| reader.forwarded_host(value));
            }
            "raw_path" => {
                own.option.get_or_insert(("raw_path", entry.key()));
                own.raw_path = self.own_boolean(value);
            }
            "buffer_request" => {
                own.option.get_or_insert(("buffer_request", entry.key()));
                own.buffer_request = self.own(value, |reader| reader.buffer_request(value));
            }
            "retries" => self.retries(entry, own),
            "sticky" => {
                own.option.get_or_insert(("sticky", entry.key()));
                own.sticky = self.own(value, |reader| reader.sticky(value));
            }
            "allow" => own.allow = self.own(value, |reader| reader.networks(value)),
            "deny" => own.deny = self.own(value, |reader| reader.networks(value)),
            "methods" => own.methods = self.own(value, |reader| reader.methods(value)),
            "body_max" => own.body_max = self.own(value, |reader| reader.body_max(value)),
            "decompress" => own.decompress = self.own(value, |reader| reader.decompress(value)),
            "access_log" => own.access_log = self.own_boolean(value),
            "replace_errors" => own.replace_errors = self.own_boolean(value),
            "request_trailers" => own.request_trailers = self.own_boolean(value),
            "compress" => own.compress = self.compress(value),
            "upgrade" => own.upgrade = self.upgrades(value),
            "importance" => own.importance = self.own(value, |reader| reader.importance(value)),
            "mirror" => own.mirror = self.own(value, |reader| reader.mirror(value, upstreams)),
            "priority" => self.priority(entry, own),
            "timeout" => self.timeouts(value, own),
            "headers" => own.headers = self.fields(value, &own.key.value.path, None),
            "request_headers" => {
                own.request_headers = self.fields(value, &own.key.value.path, Some("host"));
            }
            "errors" => own.errors = self.error_pages(value),
            "use" => self.uses(value, own, upstreams),
            "when" => self.blocks(value, own, upstreams),
            _ if self.file_option(entry, own) => {}
            _ => self.policy(entry, own),
        }
    }

    fn action(&mut self, entry: &Entry<'_, '_>, own: &mut OwnSettings, action: Option<OwnAction>) {
        if let Some((known, first)) = &mut own.action {
            // `files` beside `to`.
            let pair = match (&*known, &action) {
                (OwnAction::To(to), Some(OwnAction::Files(folder)))
                | (OwnAction::Files(folder), Some(OwnAction::To(to))) => {
                    Some(OwnAction::FilesFirst(folder.clone(), to.clone()))
                }
                (OwnAction::Wrong, _) | (_, None) => {
                    let keys = [self.document.slice(first), entry.name];
                    let is_pair = matches!(keys, ["to", "files"] | ["files", "to"]);
                    is_pair.then_some(OwnAction::Wrong)
                }
                _ => None,
            };
            if let Some(pair) = pair {
                *known = pair;
                return;
            }
            let name = self.document.slice(first).to_owned();
            let place = self.document.place(first.start);
            self.error(
                "two-actions",
                entry.key(),
                format!("`{name}` and `{}` contradict each other", entry.name),
                format!("one action only; `{name}` is at {place}"),
            );
            return;
        }
        own.action = Some((action.unwrap_or(OwnAction::Wrong), entry.key()));
    }

    /// A value, or `false` in its place. A value that is wrong takes nothing away.
    pub(super) fn own<T>(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Own<T> {
        match value.get_ref() {
            DeValue::Boolean(false) => Own::Removed,
            _ => read(self).map_or(Own::Inherited, Own::Value),
        }
    }

    pub(super) fn own_boolean(&mut self, value: &Spanned<DeValue<'_>>) -> Own<Placed<bool>> {
        let is_on = self.boolean(value);
        is_on.map_or(Own::Inherited, |is_on| {
            Own::Value(Placed::new(is_on, value.span()))
        })
    }

    fn retries(&mut self, entry: &Entry<'_, '_>, own: &mut OwnSettings) {
        own.option.get_or_insert(("retries", entry.key()));
        if let Some(retries) = self.number_between(entry.value, 0, RETRIES_MAX) {
            own.retries = Own::Value(Placed::new(retries as u8, entry.value.span()));
        }
    }

    fn priority(&mut self, entry: &Entry<'_, '_>, own: &mut OwnSettings) {
        if own.key.value.path.regex().is_none() {
            let message = "`priority` orders regexes, and this route has none";
            self.error("priority", entry.key(), message, "remove it");
            return;
        }
        let key = keys::find(Scope::Route, entry.name);
        let Some(number) = key.and_then(|key| self.number(entry.value, key)) else {
            return;
        };
        own.key.value.path.set_priority(number);
        own.priority = Some(Placed::new(number, entry.value.span()));
    }

    /// The path that an upstream receives.
    fn upstream_path(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        own: &OwnSettings,
    ) -> Option<Arc<Placed<Template>>> {
        let text = self.text(value, "\"/v2{rest}\"")?;
        let template = self.template(&text, &own.key.value.path, TemplateKind::Url)?;
        self.check_path(&text, &template)?;
        let template = without_double_slash(&template);
        Some(Arc::new(Placed::new(template, text.span)))
    }

    /// The texts of a path are those of a normal path that begins with a slash.
    fn check_path(&mut self, text: &StringValue, template: &Template) -> Option<()> {
        if let Some(TemplatePart::Text(first)) = template.parts().first()
            && !first.starts_with('/')
        {
            self.error(
                "path-slash",
                text.span.clone(),
                "a path begins with a slash",
                format!("write \"/{}\"", text.written()),
            );
            return None;
        }
        for part in template.parts() {
            let TemplatePart::Text(plain) = part else {
                continue;
            };
            let checked = plain.split('/').try_for_each(path::check_segment);
            if let Err((problem, remedy)) = checked {
                let message = format!("the path {problem}");
                self.error("path", text.span.clone(), message, remedy);
                return None;
            }
        }
        Some(())
    }

    fn forwarded_host(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Placed<ForwardedHost>> {
        let text = self.text(value, "\"keep\", \"upstream\" or a name")?;
        let host = match text.value.as_str() {
            "keep" => ForwardedHost::Keep,
            "upstream" => ForwardedHost::Upstream,
            _ => {
                let name = text.value.to_ascii_lowercase();
                self.check_authority(&name, &text)?;
                ForwardedHost::Name(name)
            }
        };
        Some(Placed::new(host, text.span))
    }

    /// `None` if one of them is wrong.
    pub(super) fn placed_networks(
        &mut self,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Vec<Placed<Network>>> {
        let before = self.diagnostics.len();
        let mut networks = Vec::new();
        for text in self.texts(value, NETWORK) {
            let network = self.parsed(&text, Network::parse);
            networks.extend(network.map(|network| Placed::new(network, text.span)));
        }
        (self.diagnostics.len() == before).then_some(networks)
    }

    fn methods(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Placed<Methods>> {
        let before = self.diagnostics.len();
        let texts = self.texts(value, "\"GET\"");
        let methods = self.methods_of(texts)?;
        (self.diagnostics.len() == before).then(|| Placed::new(methods, value.span()))
    }

    /// The methods of these names; HEAD is among them where GET is.
    pub(super) fn methods_of(&mut self, texts: Vec<StringValue>) -> Option<Methods> {
        let before = self.diagnostics.len();
        let mut methods = Methods::default();
        for text in texts {
            match Method::parse(&text.value) {
                Some(method) => methods.insert(method),
                None => self.unknown_method(text.written(), text.span.clone()),
            }
        }
        if self.diagnostics.len() != before {
            return None;
        }
        if methods.contains(Method::Get) {
            methods.insert(Method::Head);
        }
        Some(methods)
    }

    /// `false` is no protocol, and not the default.
    fn upgrades(&mut self, value: &Spanned<DeValue<'_>>) -> Own<Arc<Placed<Upgrades>>> {
        let before = self.diagnostics.len();
        let mut upgrades = Upgrades::NONE;
        if !matches!(value.get_ref(), DeValue::Boolean(false)) {
            for text in self.texts(value, "\"websocket\"") {
                self.parsed(&text, |protocol| upgrades.add(protocol));
            }
        }
        match self.diagnostics.len() == before {
            true => Own::Value(Arc::new(Placed::new(upgrades, value.span()))),
            false => Own::Inherited,
        }
    }

    pub(super) fn body_max(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Placed<u64>> {
        let bytes = self.unit_value(value, "size", "\"10m\"", |text| {
            match units::parse_size(text)? {
                0 => Err(ValueError::new(
                    "size",
                    "0 would refuse all content",
                    "write false for no limit, or a size above 0",
                )),
                bytes => Ok(bytes),
            }
        })?;
        Some(Placed::new(bytes, value.span()))
    }

    fn timeouts(&mut self, value: &Spanned<DeValue<'_>>, own: &mut OwnSettings) {
        match value.get_ref() {
            DeValue::Boolean(false) => {
                own.connect = Own::Removed;
                own.request = Own::Removed;
                own.response = Own::Removed;
                own.idle = Own::Removed;
            }
            DeValue::Table(table) => {
                for entry in entries(table) {
                    let Some(entry) = self.known(Scope::Timeout, &entry) else {
                        continue;
                    };
                    let value = entry.value;
                    let limit = self.own(value, |reader| reader.time_limit(value));
                    match entry.name {
                        "connect" => own.connect = limit,
                        "request" => own.request = limit,
                        "response" => own.response = limit,
                        _ => own.idle = limit,
                    }
                }
            }
            other => {
                let label = "write for example timeout.response = \"30s\"";
                self.wrong_type(value.span(), other, "a table", label);
            }
        }
    }

    pub(super) fn time_limit(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Placed<TimeLimit>> {
        let limit = self.unit_value(value, "duration", "\"30s\"", units::parse_time_limit)?;
        Some(Placed::new(limit, value.span()))
    }

    /// A text with a unit.
    pub(super) fn unit_value<T>(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        what: &str,
        example: &str,
        parse: impl Fn(&str) -> Result<T, ValueError>,
    ) -> Option<T> {
        if let DeValue::Integer(number) = value.get_ref() {
            let label = match what {
                "duration" => units::parse_duration(number.as_str())
                    .err()
                    .map(|error| error.remedy),
                _ => units::size_text(number.as_str()).map(|size| format!("write \"{size}\"")),
            };
            let label = label.unwrap_or_else(|| format!("write {example}"));
            let message = format!("the {what} has no unit");
            self.error("unit-missing", value.span(), message, label);
            // A duration may be in seconds or in milliseconds.
            if let (Some(size), false) = (units::size_text(number.as_str()), what == "duration") {
                self.repair(value.span(), format!("\"{size}\""));
            }
            return None;
        }
        let text = self.text(value, example)?;
        self.parsed(&text, parse)
    }

    /// The value of a text, or its error.
    pub(super) fn parsed<T>(
        &mut self,
        text: &StringValue,
        parse: impl FnOnce(&str) -> Result<T, ValueError>,
    ) -> Option<T> {
        match parse(&text.value) {
            Ok(value) => Some(value),
            Err(error) => {
                // The texts of an error may have the value of a variable.
                let (message, label) = match text.literals.is_empty() {
                    true => (error.problem, error.remedy),
                    false => self.of_variable(error.code),
                };
                self.error(error.code, text.span.clone(), message, label);
                None
            }
        }
    }

    fn of_variable(&self, code: &str) -> (String, String) {
        let message = format!("with its variables replaced this is no valid {code}");
        (message, "correct the variable".to_owned())
    }

    fn error_pages(&mut self, value: &Spanned<DeValue<'_>>) -> OwnMap<StatusPattern, ErrorPage> {
        let mut pages = OwnMap::default();
        match value.get_ref() {
            DeValue::Boolean(false) => pages.is_removed = true,
            DeValue::Table(table) => {
                for entry in entries(table) {
                    let status = match units::parse_status(entry.name) {
                        Ok(status) => status,
                        Err(error) => {
                            self.error(error.code, entry.key(), error.problem, error.remedy);
                            continue;
                        }
                    };
                    let file = match entry.value.get_ref() {
                        DeValue::Boolean(false) => None,
                        _ => match self.file(entry.value, "\"/srv/errors/404.html\"") {
                            Some(file) => Some(file),
                            None => continue,
                        },
                    };
                    pages
                        .entries
                        .push((status, Arc::new(ErrorPage { status, file })));
                }
                pages.entries.sort_by_key(|(status, _)| *status);
            }
            other => {
                let label = "write for example errors.404 = \"/srv/errors/404.html\"";
                self.wrong_type(value.span(), other, "a table", label);
            }
        }
        pages
    }

    /// A host with or without a port, in lower case.
    pub(super) fn check_authority(&mut self, name: &str, text: &StringValue) -> Option<()> {
        let Some((label, message)) = super::site::authority_problem(name) else {
            return Some(());
        };
        self.error("host", text.span.clone(), message, label);
        None
    }
}

/// The same without a slash before a placeholder that begins with one.
pub(super) fn without_double_slash(template: &Template) -> Template {
    let mut parts = Vec::new();
    let mut rest = template.parts().iter().peekable();
    while let Some(part) = rest.next() {
        let begins_with_slash = matches!(
            rest.peek(),
            Some(TemplatePart::Placeholder(
                Placeholder::Path | Placeholder::Rest { bytes: 0, .. }
            ))
        );
        match part {
            TemplatePart::Text(text) if begins_with_slash && text.ends_with('/') => {
                parts.extend(text.without_last_slash().map(TemplatePart::Text));
            }
            _ => parts.push(part.clone()),
        }
    }
    Template::new(parts)
}
