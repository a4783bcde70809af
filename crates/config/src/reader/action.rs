//! Actions that need no upstream: `redirect` and `respond`.

use std::sync::Arc;

use toml::Spanned;
use toml::de::DeValue;

use super::settings::without_double_slash;
use super::template::TemplateKind;
use super::value::StringValue;
use super::{Entry, Reader, entries};
use crate::keys::Scope;
use crate::pattern::PathPattern;
use crate::settings::{FieldRules, Redirect, RedirectOrigin, Respond, RespondBody};
use crate::span::{Placed, Span};
use crate::template::{Placeholder, PlainText, Template, TemplatePart};

/// Statuses with a `Location` that clients follow (RFC 9110, section 15.4).
const REDIRECTS: [u16; 5] = [301, 302, 303, 307, 308];

/// Statuses whose responses have no content (RFC 9110, section 6.4.1).
const EMPTY: [u16; 3] = [204, 205, 304];

const STATUS_MIN: u16 = 200;
const STATUS_MAX: u16 = 599;

impl Reader<'_> {
    pub(super) fn redirect(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        pattern: &PathPattern,
    ) -> Option<Placed<Arc<Redirect>>> {
        let text = self.text(value, "\"308 https://new.example{path}\"")?;
        let (status, target) = text.value.split_once(' ').unwrap_or((&text.value, ""));
        let is_number = !status.is_empty() && status.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number {
            let shown = match text.value.find("://") {
                Some(end) => format!("308 {}://…", &text.value[..end]),
                None => "308 /…".to_owned(),
            };
            let label = format!("write \"{shown}\", or 307 if it may change");
            let message = "a redirect says its status";
            self.error("status-missing", text.span.clone(), message, label);
            return None;
        }
        let Some(status) = parse_status(status).filter(|status| REDIRECTS.contains(status)) else {
            self.error(
                "status",
                text.part(0..status.len()),
                "this is no status of a redirect",
                "write 301, 302, 303, 307 or 308",
            );
            return None;
        };
        let target_start = text.value.len() - target.len();
        if target.is_empty() {
            let message = "the redirect has no target";
            let label = "write for example \"308 https://new.example{path}\"";
            self.error("redirect-target", text.span.clone(), message, label);
            return None;
        }
        let part = text.behind(target_start);
        let template = self.template(&part, pattern, TemplateKind::Url)?;
        self.check_url_text(&text, &template)?;
        let (origin, template) = self.origin(&text, &template)?;
        let has_query = template.parts().iter().any(
            |part| matches!(part, TemplatePart::Text(text) if text.split('#').next().is_some_and(|text| text.contains('?'))),
        );
        let redirect = Redirect {
            status,
            origin,
            target: without_double_slash(&template),
            has_query,
        };
        Some(Placed::new(Arc::new(redirect), text.span))
    }

    /// Characters that a URL cannot have (RFC 3986, section 2).
    fn check_url_text(&mut self, text: &StringValue, template: &Template) -> Option<()> {
        let is_invalid = |c: char| !c.is_ascii_graphic() || "\"<>\\^`{|}".contains(c);
        for part in template.parts() {
            let TemplatePart::Text(plain) = part else {
                continue;
            };
            if let Some(bad) = plain.chars().find(|&c| is_invalid(c)) {
                let message = format!("the target has {bad:?}, which is invalid in a URL");
                let label = "write it percent-encoded";
                self.error("redirect-target", text.span.clone(), message, label);
                return None;
            }
        }
        Some(())
    }

    /// Scheme and host of a target, and the rest of it.
    fn origin(
        &mut self,
        text: &StringValue,
        template: &Template,
    ) -> Option<(Option<RedirectOrigin>, Template)> {
        let parts = template.parts();
        let Some(TemplatePart::Text(first)) = parts.first() else {
            // The host would be that of a placeholder.
            let has_scheme =
                matches!(parts.get(1), Some(TemplatePart::Text(text)) if text.starts_with(':'));
            return match has_scheme {
                true => self.placeholder_in_origin(text),
                false => Some((None, template.clone())),
            };
        };
        if first.starts_with(['/', '?', '#']) && !first.starts_with("//") {
            return Some((None, template.clone()));
        }
        let Some(scheme_len) = first.find("://").map(|at| at + 3) else {
            let message = "the target is neither a URL nor a path";
            let label = "write https://… for another host, or begin with one slash";
            self.error("redirect-target", text.span.clone(), message, label);
            return None;
        };
        let (scheme, rest) = first.split_at(scheme_len);
        self.check_scheme(scheme, text)?;
        if rest.is_empty() {
            return self.origin_of_request(text, scheme, &parts[1..]);
        }
        let end = rest.find(['/', '?', '#']);
        let authority = &rest[..end.unwrap_or(rest.len())];
        let next = parts.get(1).filter(|_| end.is_none());
        // `https://a.example{path}`: a path begins with a slash, and others would be a part of the host.
        let is_after_host = match next {
            None | Some(TemplatePart::Placeholder(Placeholder::Path)) => true,
            Some(TemplatePart::Placeholder(Placeholder::Rest { bytes, .. })) => *bytes == 0,
            Some(_) => false,
        };
        if !is_after_host {
            return self.placeholder_in_origin(text);
        }
        self.check_authority(&authority.to_ascii_lowercase(), text)?;
        let origin = format!("{scheme}{authority}");
        let target = tail(first, origin.len(), &parts[1..]);
        Some((Some(RedirectOrigin::Text(origin)), target))
    }

    fn check_scheme(&mut self, scheme: &str, text: &StringValue) -> Option<()> {
        let name = scheme.trim_end_matches("://");
        let is_scheme = name.starts_with(|first: char| first.is_ascii_alphabetic())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
        if is_scheme {
            return Some(());
        }
        let message = format!("`{name}` is no scheme");
        self.error(
            "redirect-target",
            text.span.clone(),
            message,
            "write https://…",
        );
        None
    }

    /// `https://{host}`, perhaps with a port.
    fn origin_of_request(
        &mut self,
        text: &StringValue,
        scheme: &str,
        parts: &[TemplatePart],
    ) -> Option<(Option<RedirectOrigin>, Template)> {
        let Some((TemplatePart::Placeholder(Placeholder::Host), parts)) = parts.split_first()
        else {
            return self.placeholder_in_origin(text);
        };
        let origin = |after: &str| RedirectOrigin::RequestHost {
            before: scheme.to_owned(),
            after: after.to_owned(),
        };
        let (next, others) = match parts.split_first() {
            None => return Some((Some(origin("")), Template::new(Vec::new()))),
            Some((TemplatePart::Text(next), others)) => (next, others),
            Some((
                TemplatePart::Placeholder(Placeholder::Path | Placeholder::Rest { bytes: 0, .. }),
                _,
            )) => {
                return Some((Some(origin("")), Template::new(parts.to_vec())));
            }
            Some(_) => return self.placeholder_in_origin(text),
        };
        let end = next.find(['/', '?', '#']);
        let after = &next[..end.unwrap_or(next.len())];
        let is_port = after
            .strip_prefix(':')
            .is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
        let ends = end.is_some()
            || matches!(
                others.first(),
                None | Some(TemplatePart::Placeholder(
                    Placeholder::Path | Placeholder::Rest { bytes: 0, .. }
                ))
            );
        if !(after.is_empty() || after.starts_with(':')) || !is_port || !ends {
            return self.placeholder_in_origin(text);
        }
        Some((Some(origin(after)), tail(next, after.len(), others)))
    }

    fn placeholder_in_origin<T>(&mut self, text: &StringValue) -> Option<T> {
        self.error(
            "redirect-host",
            text.span.clone(),
            "a placeholder would be a part of scheme, host or port",
            "write the host itself, or {host} for the whole host of the request",
        );
        None
    }

    pub(super) fn respond(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        pattern: &PathPattern,
    ) -> Option<Placed<Arc<Respond>>> {
        let mut respond = Respond {
            status: 0,
            body: RespondBody::Empty,
            headers: FieldRules::from([]),
        };
        match value.get_ref() {
            DeValue::Integer(_) => respond.status = self.status(value)?,
            DeValue::String(_) => {
                let text = self.text(value, "204, or \"503 text\"")?;
                let (status, body) = text.value.split_once(' ').unwrap_or((&text.value, ""));
                respond.status = self.status_text(status, &text)?;
                if !body.is_empty() {
                    let start = text.value.len() - body.len();
                    let part = text.behind(start);
                    let template = self.template(&part, pattern, TemplateKind::Other)?;
                    respond.body = RespondBody::Text(template);
                }
            }
            DeValue::Table(table) => {
                let before = self.diagnostics.len();
                let list = entries(table);
                for entry in &list {
                    if let Some(entry) = self.known(Scope::Respond, entry) {
                        self.respond_key(&entry, &mut respond, pattern);
                    }
                }
                if !list.iter().any(|entry| entry.name == "status") {
                    let message = "a response says its status";
                    self.error("status-missing", value.span(), message, "add status = 200");
                }
                if self.diagnostics.len() != before {
                    return None;
                }
            }
            other => {
                let label = "write 204, \"503 text\", or a table with `status`";
                self.wrong_type(value.span(), other, "a text", label);
                return None;
            }
        }
        if EMPTY.contains(&respond.status) && respond.body != RespondBody::Empty {
            let message = format!("a response with status {} has no content", respond.status);
            self.error(
                "status",
                value.span(),
                message,
                "leave out the content, or write 200",
            );
            return None;
        }
        Some(Placed::new(Arc::new(respond), value.span()))
    }

    fn respond_key(&mut self, entry: &Entry<'_, '_>, respond: &mut Respond, pattern: &PathPattern) {
        let value = entry.value;
        let body = match entry.name {
            "status" => {
                respond.status = self.status(value).unwrap_or(STATUS_MIN);
                return;
            }
            "headers" => {
                if let DeValue::Boolean(_) = value.get_ref() {
                    let label = "write for example headers.Retry-After = \"600\"";
                    return self.wrong_type(value.span(), value.get_ref(), "a table", label);
                }
                let rules = self.fields(value, pattern, None).entries;
                respond.headers = rules.into_iter().map(|(_, rule)| rule).collect();
                return;
            }
            "body" => {
                let template = self
                    .text(value, "\"text\"")
                    .and_then(|text| self.template(&text, pattern, TemplateKind::Other));
                template.map(RespondBody::Text)
            }
            _ => {
                let file = self.file(value, "\"/srv/errors/closed.html\"");
                file.map(RespondBody::File)
            }
        };
        let Some(body) = body else { return };
        if respond.body != RespondBody::Empty {
            self.error(
                "two-bodies",
                entry.key(),
                "`body` and `file` contradict each other",
                "keep one of them",
            );
        }
        respond.body = body;
    }

    /// A number, or a text with one.
    fn status(&mut self, value: &Spanned<DeValue<'_>>) -> Option<u16> {
        match value.get_ref() {
            DeValue::Integer(number) => {
                let status = parse_status(number.as_str());
                if status.is_none() {
                    self.invalid_status(value.span());
                }
                status
            }
            _ => {
                let text = self.text(value, "200")?;
                self.status_text(&text.value, &text)
            }
        }
    }

    fn status_text(&mut self, status: &str, text: &StringValue) -> Option<u16> {
        if status.is_empty() || !status.bytes().all(|byte| byte.is_ascii_digit()) {
            let message = "a response says its status";
            let label = "write for example \"503 text\"";
            self.error("status-missing", text.span.clone(), message, label);
            return None;
        }
        let found = parse_status(status);
        if found.is_none() {
            self.invalid_status(text.part(0..status.len()));
        }
        found
    }

    fn invalid_status(&mut self, span: Span) {
        self.error(
            "status",
            span,
            "this is no status of a response",
            format!("write a number from {STATUS_MIN} to {STATUS_MAX}"),
        );
    }
}

fn parse_status(digits: &str) -> Option<u16> {
    let is_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
    let status = digits
        .parse()
        .ok()
        .filter(|_| is_digits && digits.len() == 3)?;
    (STATUS_MIN..=STATUS_MAX)
        .contains(&status)
        .then_some(status)
}

/// The parts behind the first bytes of a text.
fn tail(first: &PlainText, start: usize, others: &[TemplatePart]) -> Template {
    let first = first.behind(start).map(TemplatePart::Text);
    Template::new(first.into_iter().chain(others.iter().cloned()).collect())
}
