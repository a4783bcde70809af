//! Keys: known, planned, misspelt, or at the wrong place.

use super::{Entry, Reader};
use crate::diagnostic::{Diagnostic, Edit};
use crate::keys::{self, Key, Renamed, Scope, Since};
use crate::span::Span;
use crate::suggestion;

/// The most keys of a table that a diagnostic lists.
const LISTED_MAX: usize = 8;

/// For an unknown word in a site or a route that may be meant to restrict who is served.
const OF_ACCESS: &str = "such a key does not exist; access is restricted by `allow`, `deny`, `basic_auth`, `api_keys`, \
                         `jwt`, `client_cert`, `forward_auth`, `rate_limit` and `concurrency`";

impl Reader<'_> {
    /// An entry under the present name of its key, if this version has it here. Otherwise that is an error.
    pub(super) fn known<'e, 'i>(
        &mut self,
        scope: Scope,
        entry: &Entry<'e, 'i>,
    ) -> Option<Entry<'e, 'i>> {
        let key = self.key(scope, entry)?;
        Some(Entry {
            name: key.name,
            ..*entry
        })
    }

    /// The present key of an entry with an earlier name, and a warning.
    fn renamed(&mut self, scope: Scope, entry: &Entry<'_, '_>) -> Option<&'static Key> {
        let of_name = |renamed: &&Renamed| renamed.old == entry.name;
        let mut named = self.earlier_names.iter().filter(of_name);
        let (renamed, key) = named.find_map(|renamed| {
            let key = keys::find(scope, renamed.new)?;
            (key.scope == renamed.scope).then_some((renamed, key))
        })?;
        let Renamed {
            old, new, until, ..
        } = renamed;
        let message = format!("`{old}` has another name now");
        let label = format!("write `{new}`; the earlier name is an error from {until} on");
        let mut warning = Diagnostic::warning("renamed", entry.key(), message, label);
        warning.edits.push(Edit {
            span: entry.key(),
            text: (*new).to_owned(),
        });
        self.renamed.push(warning);
        Some(key)
    }

    /// The key of an entry, if this version has it here. Otherwise that is an error.
    pub(super) fn key(&mut self, scope: Scope, entry: &Entry<'_, '_>) -> Option<&'static Key> {
        let found = keys::find(scope, entry.name);
        let Some(key) = found.or_else(|| self.renamed(scope, entry)) else {
            self.unknown_key(scope, entry);
            return None;
        };
        match key.since {
            Since::Version(_) => Some(key),
            // Without its table's end it is meant for the whole file.
            Since::NotYet if keys::is_built(Scope::Top, key.name) => {
                self.at_top(key.name, entry.key());
                None
            }
            Since::NotYet => {
                self.not_yet(entry.key(), &format!("`{}`", key.name));
                None
            }
        }
    }

    fn unknown_key(&mut self, scope: Scope, entry: &Entry<'_, '_>) {
        let (name, span) = (entry.name, entry.key());
        // `certificate` for `cert`.
        let longer = |key: &&Key| key.name.len() > 3 && name.starts_with(key.name);
        if matches!(scope, Scope::Tls | Scope::Certificate | Scope::Listener)
            && let Some(key) = keys::of(scope).find(longer)
        {
            let message = format!("unknown key `{name}` in {}", place(scope));
            let label = format!("write `{}`", key.name);
            self.error("unknown-key", span.clone(), message, label);
            return self.repair(span, key.name);
        }
        if let Some((server, label)) = suggestion::foreign(keys::table_name(scope), name) {
            return self.error(
                "foreign-key",
                span,
                format!("`{name}` is a word of {server}"),
                label,
            );
        }
        let elsewhere = keys::KEYS.iter().find(|key| key.name == name);
        match elsewhere.map(|key| key.scope) {
            Some(Scope::Site) => self.error(
                "site-key-in-route",
                span,
                format!("`{name}` belongs to a site, not to {}", place(scope)),
                "write it below the header of the site",
            ),
            Some(Scope::Top) => self.at_top(name, span),
            Some(Scope::Route) => self.error(
                "key-of-other-table",
                span,
                format!("`{name}` belongs to a site or a route"),
                "write it below a header such as [site.\"app.example\"]",
            ),
            Some(
                scope @ (Scope::Server
                | Scope::Log
                | Scope::Limits
                | Scope::Metrics
                | Scope::Tracing
                | Scope::Control),
            ) => self.of_process(scope, name, span),
            Some(Scope::Upstream) => self.error(
                "key-of-other-table",
                span,
                format!("`{name}` belongs to an upstream"),
                "write it below a header such as [upstream.app]",
            ),
            // Words such as `file` and `status` have other meanings elsewhere.
            Some(_) | None => self.misspelt_key(scope, name, span),
        }
    }

    /// A key of a table with settings of the process.
    fn of_process(&mut self, scope: Scope, name: &str, span: Span) {
        let table = keys::table_name(scope);
        self.error(
            "key-of-other-table",
            span,
            format!("`{name}` belongs to `{table}`"),
            format!("write {table}.{name} at the top of the file"),
        );
    }

    fn misspelt_key(&mut self, scope: Scope, name: &str, span: Span) {
        let built = keys::of(scope).filter(|key| key.since != Since::NotYet);
        let names: Vec<_> = built.map(|key| key.name).collect();
        let label = match suggestion::nearest(name, names.iter().copied()) {
            Some(other) => format!("did you mean `{other}`?"),
            None if restricts(scope, name) => match scope {
                Scope::Route | Scope::Site | Scope::Defaults | Scope::Preset | Scope::When => {
                    OF_ACCESS.to_owned()
                }
                _ => format!("the keys here are `{}`", names.join("`, `")),
            },
            None if names.len() <= LISTED_MAX => {
                format!("remove it; the keys here are `{}`", names.join("`, `"))
            }
            None => "remove it".to_owned(),
        };
        let message = format!("unknown key `{name}` in {}", place(scope));
        self.error("unknown-key", span.clone(), message, label);
        if let Some(meant) = suggestion::certain(name, names.into_iter()) {
            self.repair(span, meant);
        }
    }

    fn at_top(&mut self, name: &str, span: Span) {
        let label = match self.first_header() {
            _ if self.document.is_included(span.start) => {
                "move this line to the top of the main file".to_owned()
            }
            Some(line) => format!("move this line above line {line}, the first table"),
            None => "move this line to the top of the file".to_owned(),
        };
        self.error(
            "key-of-other-table",
            span,
            format!("`{name}` belongs to the top of the file"),
            label,
        );
    }

    /// The line of the first header.
    fn first_header(&self) -> Option<usize> {
        let lines = self.document.text.lines();
        let line = lines.enumerate().find(|(_, line)| line.starts_with('['));
        line.map(|(number, _)| number + 1)
    }
}

/// Whether an unknown key may be meant to restrict who is served.
fn restricts(scope: Scope, name: &str) -> bool {
    let is_of_access = matches!(
        scope,
        Scope::Jwt
            | Scope::ForwardAuth
            | Scope::BasicAuth
            | Scope::ApiKeys
            | Scope::Networks
            | Scope::RateLimit
            | Scope::Tls
    );
    is_of_access || suggestion::may_restrict(name)
}

fn place(scope: Scope) -> String {
    match scope {
        Scope::Top => "the top of the file".to_owned(),
        Scope::Site => "a site".to_owned(),
        Scope::Route => "a route".to_owned(),
        Scope::Upstream => "an upstream".to_owned(),
        Scope::Preset => "a preset".to_owned(),
        Scope::AccessLog => "`log.access`".to_owned(),
        Scope::AccessLogWhen => "`when` of `log.access`".to_owned(),
        Scope::SiteLimits => "`limits` of a site".to_owned(),
        Scope::UpstreamLimits => "`limits` of an upstream".to_owned(),
        Scope::Retry => "`retry` of an upstream".to_owned(),
        Scope::Queue => "`queue` of an upstream".to_owned(),
        Scope::Health => "`health` of an upstream".to_owned(),
        _ => format!("`{}`", keys::table_name(scope)),
    }
}
