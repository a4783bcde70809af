//! `mirror` of a route: a table with an upstream and a share of the requests.

use std::sync::Arc;

use toml::Spanned;
use toml::de::DeValue;

use super::target::Upstreams;
use super::{Reader, entries};
use crate::keys::Scope;
use crate::mirror::{Mirror, Percent};
use crate::span::Placed;

impl Reader<'_> {
    pub(super) fn mirror(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        upstreams: &mut Upstreams,
    ) -> Option<Arc<Placed<Mirror>>> {
        let DeValue::Table(table) = value.get_ref() else {
            let label = "write for example { to = \"http://127.0.0.1:4000\", percent = 10 }";
            self.wrong_type(value.span(), value.get_ref(), "a table", label);
            return None;
        };
        let before = self.diagnostics.len();
        let (mut to, mut percent, mut has_target) = (None, Some(Percent::ALL), false);
        for entry in entries(table) {
            let Some(entry) = self.known(Scope::Mirror, &entry) else {
                continue;
            };
            match entry.name {
                "to" => {
                    has_target = true;
                    to = self.target(entry.value, upstreams);
                }
                _ => percent = self.percent(entry.value),
            }
        }
        if !has_target && self.diagnostics.len() == before {
            let label = "write for example { to = \"http://127.0.0.1:4000\", percent = 10 }";
            self.error("mirror", value.span(), "`to` is missing", label);
        }
        let (to, percent) = (to?, percent?);
        if self.diagnostics.len() > before {
            return None;
        }
        let mirror = Mirror {
            to: to.url,
            name: to.name,
            group: to.group,
            percent,
        };
        Some(Arc::new(Placed::new(mirror, value.span())))
    }

    /// A number above 0, and at most 100.
    fn percent(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Percent> {
        let text = match value.get_ref() {
            DeValue::Float(number) => number.as_str().replace('_', ""),
            DeValue::Integer(number) => number.as_str().replace('_', ""),
            DeValue::String(text) if text.starts_with("${") => {
                self.expanded(text, value.span())?.value
            }
            other => {
                let label = "write for example 10 for one of ten";
                self.wrong_type(value.span(), other, "a number up to 100", label);
                return None;
            }
        };
        let percent = text.parse().ok().and_then(Percent::new);
        if percent.is_none() {
            let label = "write a number above 0 and up to 100, such as 10 for one of ten";
            self.error("number", value.span(), "this share is not possible", label);
        }
        percent
    }
}
