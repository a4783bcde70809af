//! `basic_auth`, `api_keys` and `satisfy`.

use std::sync::Arc;

use toml::Spanned;
use toml::de::DeValue;

use super::super::own::{Own, OwnSettings};
use super::super::template::is_token;
use super::super::{Entry, Reader, entries};
use crate::keys::Scope;
use crate::policy::{ApiKeys, BasicAuth, KeySource, Satisfy};
use crate::span::{Placed, Span};
use crate::units::ValueError;

const USERS: &str = "\"admin.htpasswd\"";
const KEYS: &str = "write for example { file = \"api-keys\" }";
const SOURCE: &str = "\"header:NAME\", \"cookie:NAME\" or \"query:NAME\"";

/// The realm if nothing else is written.
const REALM: &str = "site";

/// The field of a key if nothing else is written.
const KEY_FIELD: &str = "x-api-key";

impl Reader<'_> {
    pub(super) fn basic_auth(
        &mut self,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Arc<Placed<BasicAuth>>> {
        let before = self.diagnostics.len();
        let (mut users_file, mut realm, mut forward) = (None, REALM.to_owned(), Vec::new());
        match value.get_ref() {
            DeValue::Table(table) => {
                for entry in entries(table) {
                    let Some(entry) = self.known(Scope::BasicAuth, &entry) else {
                        continue;
                    };
                    match entry.name {
                        "users_file" => users_file = self.file(entry.value, USERS),
                        "forward" => forward = self.identity_fields(&entry, "\"X-User\""),
                        _ => realm = self.realm(entry.value).unwrap_or(realm),
                    }
                }
            }
            _ => users_file = self.file(value, USERS),
        }
        if self.diagnostics.len() != before {
            return None;
        }
        let Some(users_file) = users_file else {
            let label = format!("write for example {{ users_file = {USERS} }}");
            self.error("basic-auth", value.span(), "`users_file` is missing", label);
            return None;
        };
        let basic_auth = BasicAuth {
            users_file,
            realm,
            forward,
            also: Vec::new(),
        };
        Some(Arc::new(Placed::new(basic_auth, value.span())))
    }

    fn realm(&mut self, value: &Spanned<DeValue<'_>>) -> Option<String> {
        let text = self.text(value, "\"administration\"")?;
        self.parsed(&text, |text| {
            let is_text = |c: char| c == ' ' || c.is_ascii_graphic();
            match text.chars().all(is_text) {
                true => Ok(text.to_owned()),
                false => Err(ValueError::new(
                    "realm",
                    "a realm has no control characters and none beyond ASCII",
                    "write for example \"administration\"",
                )),
            }
        })
    }

    pub(super) fn api_keys(
        &mut self,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Arc<Placed<ApiKeys>>> {
        let before = self.diagnostics.len();
        let DeValue::Table(table) = value.get_ref() else {
            self.wrong_type(value.span(), value.get_ref(), "a table", KEYS);
            return None;
        };
        let (mut file, mut sources, mut forward) = (None, Vec::new(), Vec::new());
        for entry in entries(table) {
            let Some(entry) = self.known(Scope::ApiKeys, &entry) else {
                continue;
            };
            match entry.name {
                "file" => file = self.file(entry.value, "\"api-keys\""),
                "from" => {
                    for text in self.one_or_more(entry.value, SOURCE) {
                        sources.extend(self.parsed(&text, source));
                    }
                }
                _ => forward = self.identity_fields(&entry, "\"X-Client\""),
            }
        }
        if self.diagnostics.len() != before {
            return None;
        }
        let Some(file) = file else {
            self.error("api-keys", value.span(), "`file` is missing", KEYS);
            return None;
        };
        if sources.is_empty() {
            sources.push(KeySource::Header(KEY_FIELD.to_owned()));
        }
        let api_keys = ApiKeys {
            file,
            sources,
            forward,
            also: Vec::new(),
        };
        Some(Arc::new(Placed::new(api_keys, value.span())))
    }

    /// The names of the fields that get the name of the key or user.
    fn identity_fields(&mut self, entry: &Entry<'_, '_>, example: &str) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for text in self.one_or_more(entry.value, example) {
            let Some(name) = self.field_name_at(&text.value, text.span.clone(), Some("host"))
            else {
                continue;
            };
            // Other spellings of it are removed from requests, and would be these.
            let spelled = |name: &str| name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
            if names.iter().any(|known| spelled(known) == spelled(&name)) {
                let message = "this field is defined twice";
                let label = "applications take such spellings for one; keep one of them";
                self.error("defined-twice", text.span, message, label);
                continue;
            }
            names.push(name);
        }
        names
    }

    pub(super) fn satisfy(&mut self, value: &Spanned<DeValue<'_>>, own: &mut OwnSettings) {
        if matches!(value.get_ref(), DeValue::Boolean(false)) {
            own.policies.satisfy = Own::Removed;
            return;
        }
        let Some(text) = self.text(value, "\"any\"") else {
            return;
        };
        let any = self.parsed(&text, |text| match text {
            "any" => Ok(Some(Satisfy::default())),
            "all" => Ok(None),
            _ => Err(ValueError::new(
                "satisfy",
                "`satisfy` is \"any\" or \"all\"",
                "write \"any\", if one of several suffices; all are demanded by default",
            )),
        });
        if let Some(any) = any.flatten() {
            own.policies.satisfy = Own::Value(Arc::new(Placed::new(any, text.span)));
        }
    }

    /// Joins the access keys of a level that has been read, if one of them suffices. Inherited values of these keys are
    /// replaced; in a block all are demanded in addition.
    pub(in super::super) fn join_access(&mut self, own: &mut OwnSettings, is_block: bool) {
        let Some(any) = own.policies.satisfy.value() else {
            return;
        };
        let span = any.span.clone();
        let joined = Satisfy {
            allow: taken(&mut own.allow, is_block),
            basic_auth: taken(&mut own.policies.basic_auth, is_block),
            jwt: taken(&mut own.policies.jwt, is_block),
            api_keys: taken(&mut own.policies.api_keys, is_block),
            client_cert: taken(&mut own.policies.client_cert, is_block),
            also: Vec::new(),
        };
        own.policies.satisfy = Own::Inherited;
        if let Some(jwt) = joined.jwt.as_ref().filter(|jwt| jwt.value.is_optional) {
            let place = self.document.place(jwt.span.start);
            let message = format!("every request passes: the `jwt` at {place} is optional");
            let label = "remove its `optional`, or leave `satisfy` out";
            return self.error("satisfy", span, message, label);
        }
        if let Some(auth) = own.policies.forward_auth.value() {
            let message = "`forward_auth` is demanded in any case, and is not one of several";
            let label = "leave `satisfy` out, or write `forward_auth` on a level around this one";
            return self.error("satisfy", auth.span.clone(), message, label);
        }
        if joined.written().count() < 2 {
            let message = "one of several suffices, and there are not two of them here";
            let label = "write two or more of `allow`, `basic_auth`, `jwt`, `api_keys` and `client_cert` beside it";
            return self.error("satisfy", span, message, label);
        }
        own.policies.satisfy = Own::Value(Arc::new(Placed::new(joined, span)));
    }

    /// `basic_auth = false` below a level with `satisfy` and `basic_auth`: neither all of it nor a part is meant.
    pub(in super::super) fn parts_of_satisfy<'a>(
        &mut self,
        own: &OwnSettings,
        outer: impl Iterator<Item = &'a OwnSettings>,
    ) {
        if own.policies.satisfy.is_written() {
            return;
        }
        let removed = [
            ("allow", matches!(own.allow, Own::Removed)),
            (
                "basic_auth",
                matches!(own.policies.basic_auth, Own::Removed),
            ),
            ("jwt", matches!(own.policies.jwt, Own::Removed)),
            ("api_keys", matches!(own.policies.api_keys, Own::Removed)),
            (
                "client_cert",
                matches!(own.policies.client_cert, Own::Removed),
            ),
        ];
        if removed.iter().all(|(_, is_removed)| !is_removed) {
            return;
        }
        let mut joined: Vec<(&'static str, Span)> = Vec::new();
        for level in outer {
            match &level.policies.satisfy {
                Own::Inherited => {}
                Own::Removed => joined.clear(),
                Own::Value(any) => {
                    let keys = any.value.written();
                    joined.extend(keys.map(|(key, _)| (key, any.span.clone())));
                }
            }
        }
        for (name, is_removed) in removed {
            let Some((_, span)) = joined.iter().find(|(key, _)| is_removed && *key == name) else {
                continue;
            };
            let place = self.document.place(span.start);
            self.error(
                "satisfy",
                own.key.span.clone(),
                format!("`{name} = false` takes nothing away: it is one of several at {place}"),
                format!("write satisfy = false to take all of them away, or leave `{name}` out"),
            );
        }
    }
}

/// The value of a key, which is demanded as one of several.
fn taken<T: Clone>(own: &mut Own<T>, is_block: bool) -> Option<T> {
    let value = own.value().cloned()?;
    *own = match is_block {
        true => Own::Inherited,
        false => Own::Removed,
    };
    Some(value)
}

fn source(text: &str) -> Result<KeySource, ValueError> {
    let named = text.split_once(':').filter(|(_, name)| is_token(name));
    match named {
        Some(("header", name)) => Ok(KeySource::Header(name.to_ascii_lowercase())),
        Some(("cookie", name)) => Ok(KeySource::Cookie(name.to_owned())),
        Some(("query", name)) => Ok(KeySource::Query(name.to_owned())),
        _ => Err(ValueError::new(
            "api-keys",
            format!("`{text}` is no place of a key"),
            format!("write {SOURCE}"),
        )),
    }
}
