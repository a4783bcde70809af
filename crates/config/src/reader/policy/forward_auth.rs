//! `forward_auth`: a table with the URL of an authorizer.

use std::sync::Arc;
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::super::balance::client_key;
use super::super::fields::check_field_name;
use super::super::{Entry, Reader, entries};
use crate::balance::ClientKey;
use crate::keys::Scope;
use crate::policy::{AuthCache, ForwardAuth};
use crate::span::Placed;
use crate::units::{self, ValueError};

const URL: &str = "\"http://127.0.0.1:9091/api/authz/forward-auth\"";
const EXAMPLE: &str =
    "write for example { url = \"http://127.0.0.1:9091/api/authz/forward-auth\" }";
const CACHE: &str = "write for example { for = \"10s\", by = \"cookie:session\" }";
const BY: &str = "\"client\", \"header:NAME\" or \"cookie:NAME\"";

/// How long an authorizer may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The most that a timeout may be: the request waits.
const TIMEOUT_MAX: Duration = Duration::from_secs(300);

/// The longest time that a decision is remembered.
const CACHE_MAX: Duration = Duration::from_secs(3600);

impl Reader<'_> {
    pub(super) fn forward_auth(
        &mut self,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Arc<Placed<ForwardAuth>>> {
        let before = self.diagnostics.len();
        let DeValue::Table(table) = value.get_ref() else {
            self.wrong_type(value.span(), value.get_ref(), "a table", EXAMPLE);
            return None;
        };
        let mut is_named = false;
        let mut auth = ForwardAuth {
            origin: Placed::new(String::new(), value.span()),
            target: String::new(),
            send: None,
            copy: Vec::new(),
            passes_cookies: false,
            is_open: false,
            timeout: TIMEOUT,
            cache: None,
            also: Vec::new(),
        };
        for entry in entries(table) {
            let Some(entry) = self.known(Scope::ForwardAuth, &entry) else {
                continue;
            };
            is_named |= entry.name == "url";
            self.forward_auth_key(&entry, &mut auth);
        }
        if self.diagnostics.len() != before {
            return None;
        }
        if !is_named {
            self.error(
                "forward-auth",
                value.span(),
                "`url` is missing",
                format!("add url = {URL}"),
            );
            return None;
        }
        Some(Arc::new(Placed::new(auth, value.span())))
    }

    fn forward_auth_key(&mut self, entry: &Entry<'_, '_>, auth: &mut ForwardAuth) {
        let value = entry.value;
        match entry.name {
            "url" => {
                let Some(text) = self.text(value, URL) else {
                    return;
                };
                if let Some((origin, target)) = self.parsed(&text, split_url) {
                    auth.origin = Placed::new(origin, text.span.clone());
                    auth.target = target;
                }
            }
            "send" => auth.send = Some(self.field_names(value, "\"Cookie\"")),
            "copy" => auth.copy = self.field_names(value, "\"Remote-User\""),
            "cookies" => auth.passes_cookies = self.boolean(value).unwrap_or_default(),
            "on_failure" => {
                let choice = self.text(value, "\"closed\"");
                let choice = choice.and_then(|text| self.parsed(&text, is_open));
                auth.is_open = choice.unwrap_or_default();
            }
            "timeout" => {
                let time = self.time_up_to(value, "\"5s\"", TIMEOUT_MAX, "5 minutes");
                auth.timeout = time.unwrap_or(TIMEOUT);
            }
            _ => auth.cache = self.auth_cache(value),
        }
    }

    /// A name of a field, or a list of them, in lower case.
    fn field_names(&mut self, value: &Spanned<DeValue<'_>>, example: &str) -> Vec<String> {
        let texts = match value.get_ref() {
            DeValue::String(_) => self.text(value, example).into_iter().collect(),
            _ => self.texts(value, example),
        };
        // Other spellings of a field are removed from requests, and would be these.
        let spelled = |name: &str| name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let mut names: Vec<String> = Vec::new();
        for text in texts {
            let Some(name) = self.parsed(&text, check_field_name) else {
                continue;
            };
            if names.iter().any(|known| spelled(known) == spelled(&name)) {
                let message = format!("the field `{}` is named twice", text.written());
                let label = "applications take these spellings for one; keep one of them";
                self.error("defined-twice", text.span, message, label);
                continue;
            }
            names.push(name);
        }
        names
    }

    fn auth_cache(&mut self, value: &Spanned<DeValue<'_>>) -> Option<AuthCache> {
        let DeValue::Table(table) = value.get_ref() else {
            self.wrong_type(value.span(), value.get_ref(), "a table", CACHE);
            return None;
        };
        let before = self.diagnostics.len();
        let (mut time, mut by, mut any_path) = (None, Vec::new(), false);
        for entry in entries(table) {
            let Some(entry) = self.known(Scope::ForwardAuthCache, &entry) else {
                continue;
            };
            let value = entry.value;
            match entry.name {
                "for" => time = self.time_up_to(value, "\"10s\"", CACHE_MAX, "1 hour"),
                "by" => by = self.auth_keys(value),
                _ => any_path = self.boolean(value).unwrap_or_default(),
            }
        }
        let missing = match (&time, by.is_empty()) {
            _ if self.diagnostics.len() != before => return None,
            (None, _) => "for",
            (_, true) => "by",
            (Some(time), false) => {
                return Some(AuthCache {
                    time: *time,
                    by,
                    any_path,
                });
            }
        };
        let message = format!("`{missing}` is missing");
        self.error("forward-auth", value.span(), message, CACHE);
        None
    }

    fn auth_keys(&mut self, value: &Spanned<DeValue<'_>>) -> Vec<ClientKey> {
        let texts = match value.get_ref() {
            DeValue::String(_) => self.text(value, "\"cookie:session\"").into_iter().collect(),
            _ => self.texts(value, "\"cookie:session\""),
        };
        let key = |text: &str| {
            client_key(text).ok_or_else(|| {
                let message = format!("`{text}` tells no clients apart");
                ValueError::new("by", message, format!("write {BY}"))
            })
        };
        let keys = texts.iter().filter_map(|text| self.parsed(text, key));
        keys.collect()
    }

    fn time_up_to(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        example: &str,
        max: Duration,
        max_text: &str,
    ) -> Option<Duration> {
        self.unit_value(
            value,
            "duration",
            example,
            |text| match units::parse_duration(text)? {
                time if !time.is_zero() && time <= max => Ok(time),
                _ => Err(ValueError::new(
                    "forward-auth",
                    format!("this time is above zero, and at most {max_text}"),
                    format!("write for example {example}"),
                )),
            },
        )
    }
}

/// A URL without its path, and path and query. Those of a unix socket stand behind a colon.
fn split_url(text: &str) -> Result<(String, String), ValueError> {
    let no_url = || {
        let message = format!("`{text}` is no URL of an authorizer");
        ValueError::new("forward-auth", message, format!("write for example {URL}"))
    };
    let (origin, target) = match (text.strip_prefix("unix:"), text.split_once("://")) {
        (Some(socket), _) => match socket.find(":/") {
            Some(at) => text.split_at("unix:".len() + at),
            None => (text, ""),
        },
        (None, Some((scheme, rest))) => {
            let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            text.split_at(scheme.len() + "://".len() + end)
        }
        (None, None) => return Err(no_url()),
    };
    let target = target.strip_prefix(':').unwrap_or(target);
    let is_sent = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
    match target.bytes().all(is_sent) {
        true if target.starts_with('/') => Ok((origin.to_owned(), target.to_owned())),
        true => Ok((origin.to_owned(), format!("/{target}"))),
        false => Err(no_url()),
    }
}

fn is_open(text: &str) -> Result<bool, ValueError> {
    match text {
        "closed" => Ok(false),
        "open" => Ok(true),
        _ => Err(ValueError::new(
            "value",
            format!("`{text}` is no value of `on_failure`"),
            "write \"closed\" or \"open\"",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_an_origin_and_a_target() {
        for (url, origin, target) in [
            ("http://a:9091/x/y", "http://a:9091", "/x/y"),
            ("https://a", "https://a", "/"),
            ("http://a?rd=b", "http://a", "/?rd=b"),
            (
                "http://[::1]:4180/oauth2/auth?a=b/c",
                "http://[::1]:4180",
                "/oauth2/auth?a=b/c",
            ),
            ("unix:/run/a.sock", "unix:/run/a.sock", "/"),
            (
                "unix:/run/a.sock:/verify?rd=https://b",
                "unix:/run/a.sock",
                "/verify?rd=https://b",
            ),
        ] {
            let split = split_url(url).ok();
            assert_eq!(split, Some((origin.to_owned(), target.to_owned())), "{url}");
        }
        for url in [
            "a:9091/x",
            "http://a/x#y",
            "http://a/x y",
            "http://a/\u{e4}",
        ] {
            assert!(split_url(url).is_err(), "{url}");
        }
    }
}
