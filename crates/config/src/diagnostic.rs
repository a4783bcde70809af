//! Mistakes with their places, for people and for programs.

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use serde_json::json;

use crate::document::Document;
use crate::span::Span;

/// How bad a mistake is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The configuration is not used.
    Error,
    /// The configuration is used, and probably not the intended one.
    Warning,
}

/// A mistake, its place and its repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// Stable name, such as `unknown-key`.
    pub code: &'static str,
    /// The wrong part of the file, in bytes.
    pub span: Span,
    /// The problem.
    pub message: String,
    /// The repair.
    pub label: String,
    /// The same as changes of the text, if the intention is certain.
    pub edits: Vec<Edit>,
}

/// A change of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The part that is replaced, in bytes.
    pub span: Span,
    /// The replacement.
    pub text: String,
}

impl Diagnostic {
    /// An error.
    pub fn error(
        code: &'static str,
        span: Span,
        message: impl Into<String>,
        label: impl Into<String>,
    ) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            code,
            span,
            message: message.into(),
            label: label.into(),
            edits: Vec::new(),
        }
    }

    /// A warning.
    pub fn warning(
        code: &'static str,
        span: Span,
        message: impl Into<String>,
        label: impl Into<String>,
    ) -> Diagnostic {
        Diagnostic {
            severity: Severity::Warning,
            ..Diagnostic::error(code, span, message, label)
        }
    }
}

/// The diagnostics as text with excerpts of the file, in their order; `is_coloured` on a terminal.
#[must_use]
pub fn render(document: &Document, diagnostics: &[Diagnostic], is_coloured: bool) -> String {
    let renderer = match is_coloured {
        true => Renderer::styled(),
        false => Renderer::plain(),
    };
    let renderer = renderer.decor_style(DecorStyle::Ascii);
    let mut out = String::new();
    for diagnostic in diagnostics {
        let level = match diagnostic.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let span = visible(document, &diagnostic.span);
        // The renderer reads all that it gets.
        let (line, start, text) = document.lines_of(&span);
        let annotation = AnnotationKind::Primary
            .span(span.start - start..span.end - start)
            .label(diagnostic.label.as_str());
        let snippet = Snippet::source(text)
            .line_start(line)
            .path(document.name_at(diagnostic.span.start))
            .annotation(annotation);
        let title = level
            .primary_title(diagnostic.message.as_str())
            .id(diagnostic.code);
        out += &renderer.render(&[title.element(snippet)]);
        out += "\n";
    }
    out
}

/// The span within its first line: a table may have many.
fn visible(document: &Document, span: &Span) -> Span {
    let first = document.slice(span).lines().next().unwrap_or_default();
    span.start..span.start + first.len()
}

/// The diagnostics as lines of JSON: `code`, `severity`, `file`, `start` and `end` with `line` and `column` from 1,
/// `message`, `label`, and `edits` with `start`, `end` and the new `text`.
#[must_use]
pub fn to_json(document: &Document, diagnostics: &[Diagnostic]) -> String {
    let position = |offset| {
        let (line, column) = document.position(offset);
        json!({ "line": line, "column": column })
    };
    let edit = |edit: &Edit| {
        json!({
            "start": position(edit.span.start),
            "end": position(edit.span.end),
            "text": edit.text,
        })
    };
    let line = |diagnostic: &Diagnostic| {
        let object = json!({
            "code": diagnostic.code,
            "severity": match diagnostic.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            },
            "file": document.name_at(diagnostic.span.start),
            "start": position(diagnostic.span.start),
            "end": position(diagnostic.span.end),
            "message": diagnostic.message,
            "label": diagnostic.label,
            "edits": diagnostic.edits.iter().map(edit).collect::<Vec<_>>(),
        });
        object.to_string() + "\n"
    };
    diagnostics.iter().map(line).collect()
}
