//! Changes of fields, `headers` and `request_headers` of a configuration.

use std::borrow::Cow;
use std::sync::Arc;

use blitz_config::{FieldChange, FieldRule, Template};
use blitz_site::{Edit, EditName, FieldChange as Change};

use super::template::{Facts, field_value};

/// A change of a field as the configuration has it.
type Rule = (EditName, FieldChange);

/// The changes of a route.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Edits {
    /// The same for all requests.
    Fixed(Box<[Edit]>),
    /// With placeholders.
    PerRequest {
        /// The changes.
        rules: Box<[Rule]>,
        /// Whether some of them tell who the client is.
        have_identity: bool,
    },
}

impl Edits {
    /// `None` without rules.
    pub(crate) fn new(rules: &[Arc<FieldRule>]) -> Option<Edits> {
        let rule = |rule: &Arc<FieldRule>| (rule.name.as_str().into(), rule.change.value.clone());
        let rules: Box<[Rule]> = rules.iter().map(rule).collect();
        let lines = || rules.iter().flat_map(|(_, change)| lines_of(change));
        let all_are_fixed = lines().all(|line| line.as_text().is_some());
        let have_identity = lines().any(Template::has_identity);
        let fixed = |template: &Template| template.as_text().map(|text| text.as_bytes().to_vec());
        match all_are_fixed {
            _ if rules.is_empty() => None,
            true => Some(Edits::Fixed(edits(&rules, fixed))),
            false => Some(Edits::PerRequest {
                rules,
                have_identity,
            }),
        }
    }

    /// Whether they have placeholders.
    pub(crate) fn are_per_request(&self) -> bool {
        matches!(self, Edits::PerRequest { .. })
    }

    /// Whether some of the fields tell who the client is, by its certificate or its token.
    pub(crate) fn have_identity(&self) -> bool {
        matches!(
            self,
            Edits::PerRequest {
                have_identity: true,
                ..
            }
        )
    }

    /// Changes that remove the fields that tell who the client is.
    pub(crate) fn without_identity(&self) -> Vec<Edit> {
        let Edits::PerRequest { rules, .. } = self else {
            return Vec::new();
        };
        let tells = |(_, change): &&Rule| lines_of(change).iter().any(Template::has_identity);
        let removal = |(name, _): &Rule| Edit {
            name: name.clone(),
            change: Change::Set(Vec::new()),
        };
        rules.iter().filter(tells).map(removal).collect()
    }

    /// The changes for a request. Without placeholders it allocates nothing.
    pub(crate) fn for_request(&self, facts: &Facts<'_>) -> Cow<'_, [Edit]> {
        match self {
            Edits::Fixed(edits) => Cow::Borrowed(edits),
            Edits::PerRequest { rules, .. } => {
                Cow::Owned(edits(rules, |template| field_value(template, facts)).into_vec())
            }
        }
    }
}

/// The lines that a change writes.
fn lines_of(change: &FieldChange) -> &[Template] {
    match change {
        FieldChange::Set(lines) => lines,
        FieldChange::Default(line) | FieldChange::Add(line) => std::slice::from_ref(line),
        FieldChange::Remove => &[],
    }
}

/// The changes of these rules. A line whose template has no value is left out, and a field without lines is removed.
fn edits(rules: &[Rule], value: impl Fn(&Template) -> Option<Vec<u8>>) -> Box<[Edit]> {
    // Spaces around a value are not a part of it (RFC 9110, section 5.5), and HTTP/2 forbids them.
    let value = |template: &Template| Some(value(template)?.trim_ascii().to_vec());
    let edit = |(name, change): &Rule| {
        let change = match change {
            FieldChange::Set(lines) => Change::Set(lines.iter().filter_map(&value).collect()),
            FieldChange::Default(line) => Change::Default(value(line)?),
            FieldChange::Add(line) => Change::Add(value(line)?),
            FieldChange::Remove => Change::Set(Vec::new()),
        };
        let name = name.clone();
        Some(Edit { name, change })
    };
    rules.iter().filter_map(edit).collect()
}
