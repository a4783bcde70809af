//! Repairs: the edits of diagnostics, applied where they leave no other mistake.

use std::collections::HashSet;

use crate::diagnostic::{Diagnostic, Severity};
use crate::document::Document;
use crate::environment::Environment;
use crate::reader::read;

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

/// A file with the [edits](Diagnostic::edits) of its errors, and the errors that are gone, each with its place.
#[must_use]
pub fn repair(document: &Document, environment: &Environment) -> (Document, Vec<String>) {
    let mut document = document.clone();
    let mut applied = Vec::new();
    let mut tried = HashSet::new();
    let mut found = errors(&document, environment);
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
        let left = errors(&repaired, environment);
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

fn errors(document: &Document, environment: &Environment) -> Vec<Diagnostic> {
    let (_, mut diagnostics) = read(document, environment);
    diagnostics.retain(|diagnostic| diagnostic.severity == Severity::Error);
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
