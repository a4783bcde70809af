//! Repairs: the edits of diagnostics, applied where they leave no other mistake.

use std::collections::HashSet;

use crate::diagnostic::{Diagnostic, Severity};
use crate::document::Document;
use crate::environment::Environment;
use crate::keys::{RENAMED, Renamed};
use crate::reader::read_with;

/// How many repairs are tried in a file.
const REPAIRS_MAX: usize = 1_000;

/// Mistakes that a wrong repair makes: the key that was meant is there already.
const CONFLICTS: [&str; 6] = [
    "contradiction",
    "defined-twice",
    "same-route",
    "syntax",
    "two-actions",
    "two-forms",
];

/// A file with the [edits](Diagnostic::edits) of its errors and of earlier names of keys, and the mistakes that are gone,
/// each with its place.
#[must_use]
pub fn repair(document: &Document, environment: &Environment) -> (Document, Vec<String>) {
    repair_with(document, environment, RENAMED)
}

fn repair_with(
    document: &Document,
    environment: &Environment,
    earlier_names: &'static [Renamed],
) -> (Document, Vec<String>) {
    let errors = |document: &Document| mistakes(document, environment, earlier_names);
    let mut document = document.clone();
    let mut applied = Vec::new();
    let mut tried = HashSet::new();
    let mut found = errors(&document);
    for _ in 0..REPAIRS_MAX {
        // From the end, so that the places of the others stay.
        let next = found.iter().rfind(|diagnostic| {
            let key = (diagnostic.code, diagnostic.span.start);
            !diagnostic.edits.is_empty() && !tried.contains(&key)
        });
        let Some(next) = next else { break };
        tried.insert((next.code, next.span.start));
        let Some(text) = edited(&document.text, next) else {
            continue;
        };
        let repaired = Document::new(document.name.as_str(), text);
        let left = errors(&repaired);
        if is_better(&found, &left, next.code) {
            let place = document.place(next.span.start);
            let (code, message, label) = (next.code, &next.message, &next.label);
            applied.push(format!("{place} {code}: {message}; {label}"));
            (document, found) = (repaired, left);
        }
    }
    applied.reverse();
    (document, applied)
}

fn mistakes(
    document: &Document,
    environment: &Environment,
    earlier_names: &'static [Renamed],
) -> Vec<Diagnostic> {
    let (_, mut diagnostics) = read_with(document, environment, earlier_names);
    diagnostics.retain(|one| one.severity == Severity::Error || one.code == "renamed");
    diagnostics
}

/// The text with the edits of a diagnostic, which must not overlap.
fn edited(text: &str, diagnostic: &Diagnostic) -> Option<String> {
    let mut edits: Vec<_> = diagnostic.edits.iter().collect();
    edits.sort_by_key(|edit| edit.span.start);
    let mut out = String::new();
    let mut at = 0;
    for edit in edits {
        out += text.get(at..edit.span.start)?;
        out += &edit.text;
        at = edit.span.end;
    }
    out += text.get(at..)?;
    Some(out)
}

fn is_better(before: &[Diagnostic], after: &[Diagnostic], code: &str) -> bool {
    let count = |all: &[Diagnostic], code: &str| all.iter().filter(|one| one.code == code).count();
    let has_no_conflict = |code: &str| count(after, code) <= count(before, code);
    count(after, code) < count(before, code) && CONFLICTS.iter().all(|code| has_no_conflict(code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Scope;

    const EARLIER: &[Renamed] = &[
        Renamed {
            scope: Scope::Route,
            old: "content_max",
            new: "body_max",
            until: "2027-11-30",
        },
        Renamed {
            scope: Scope::Limits,
            old: "header_max",
            new: "head_max",
            until: "2027-11-30",
        },
    ];

    const FILE: &str = "limits.header_max = \"16k\"\n\n[site.\"*\"]\nto = \"http://h:1\"\n\"/up\".content_max = \"1g\"\n";

    #[test]
    fn earlier_names_of_keys_work_with_a_warning_and_are_repaired() {
        let document = Document::new("blitz.toml", FILE);
        let environment = Environment::default();
        let (configuration, diagnostics) = read_with(&document, &environment, EARLIER);
        let found: Vec<_> = diagnostics
            .iter()
            .map(|one| (one.severity, one.code))
            .collect();
        assert_eq!(found, [(Severity::Warning, "renamed"); 2]);
        assert!(configuration.process.limits.head_max.is_some());
        let [up, _] = configuration.sites[0].routes.as_slice() else {
            panic!("{configuration:?}");
        };
        let body_max = up.settings.body_max.as_ref().map(|bytes| bytes.value);
        assert_eq!(body_max, Some(1 << 30));

        let (repaired, applied) = repair_with(&document, &environment, EARLIER);
        assert_eq!(applied.len(), 2, "{applied:?}");
        let expected = FILE
            .replace("header_max", "head_max")
            .replace("content_max", "body_max");
        assert_eq!(repaired.text, expected);
        assert_eq!(read_with(&repaired, &environment, EARLIER).1, []);
        // Elsewhere it is no key.
        let elsewhere = Document::new("blitz.toml", FILE.replace("\"/up\".", "\"/up\".timeout."));
        let (_, diagnostics) = read_with(&elsewhere, &environment, EARLIER);
        assert!(
            diagnostics.iter().any(|one| one.code == "unknown-key"),
            "{diagnostics:?}"
        );
    }

    #[test]
    fn an_earlier_name_is_that_of_no_other_key() {
        for renamed in RENAMED.iter().chain(EARLIER) {
            assert!(
                crate::keys::find(renamed.scope, renamed.old).is_none(),
                "{renamed:?}"
            );
            assert!(
                crate::keys::find(renamed.scope, renamed.new).is_some(),
                "{renamed:?}"
            );
        }
    }
}
