//! The reader: from the text of a file to the model, with all mistakes at once.

mod access_log;
mod action;
mod balance;
mod buffer;
mod certificate;
mod claims;
mod compress;
mod conflicts;
mod decompress;
mod fields;
mod files;
mod health;
mod included;
mod inherit;
mod key;
mod limits;
mod listener;
mod mirror;
mod networks;
mod own;
mod policy;
mod preset;
mod process;
mod redis;
mod route_key;
mod settings;
mod shed;
mod site;
mod syntax;
mod target;
mod template;
mod top;
mod tree;
mod upstream_settings;
mod value;
mod when;

use std::ops::ControlFlow;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::diagnostic::{Diagnostic, Edit};
use crate::document::Document;
use crate::environment::Environment;
use crate::keys::{RENAMED, Renamed};
use crate::model::{CertificateFile, Configuration};
use crate::span::{Placed, Span};

/// Reads a document. The configuration must not be used if one of the diagnostics is an error. They are sorted by place.
#[must_use]
pub fn read(document: &Document, environment: &Environment) -> (Configuration, Vec<Diagnostic>) {
    read_with(document, environment, RENAMED)
}

/// The same with these earlier names of keys.
pub(crate) fn read_with(
    document: &Document,
    environment: &Environment,
    earlier_names: &'static [Renamed],
) -> (Configuration, Vec<Diagnostic>) {
    let mut reader = Reader::new(document, environment);
    reader.earlier_names = earlier_names;
    let mut tables = Vec::new();
    let mut flow = ControlFlow::Continue(());
    for (start, text) in document.parts() {
        let (table, errors) = DeTable::parse_recoverable(text);
        if reader.syntax_errors(&errors, start).is_break() {
            flow = ControlFlow::Break(());
        }
        tables.push(included::moved(table.into_inner(), start));
    }
    let configuration = match flow {
        // After a break the rest of the file may not mean what was intended.
        ControlFlow::Break(()) => Configuration::default(),
        ControlFlow::Continue(()) => reader.top(&tables),
    };
    let mut diagnostics = reader.diagnostics;
    diagnostics.append(&mut reader.renamed);
    diagnostics.sort_by_key(|diagnostic| (diagnostic.span.start, diagnostic.severity));
    diagnostics.dedup();
    (configuration, diagnostics)
}

/// The patterns of files that a file includes. Mistakes in them are diagnostics of [`read`].
#[must_use]
pub fn includes(document: &Document, environment: &Environment) -> Vec<Placed<String>> {
    let (table, _) = DeTable::parse_recoverable(&document.text);
    let entries = entries(table.get_ref());
    let Some(include) = entries.iter().find(|entry| entry.name == "include") else {
        return Vec::new();
    };
    let texts = Reader::new(document, environment).texts(include.value, INCLUDE);
    texts.into_iter().map(value::StringValue::placed).collect()
}

const INCLUDE: &str = "\"sites/*.toml\"";

struct Reader<'a> {
    document: &'a Document,
    environment: &'a Environment,
    diagnostics: Vec<Diagnostic>,
    earlier_names: &'static [Renamed],
    /// Warnings of earlier names of keys, whose values are used.
    renamed: Vec<Diagnostic>,
    /// Those of `tls`.
    certificates: Vec<Placed<CertificateFile>>,
    presets: preset::Presets<'a>,
    /// The site or preset that is being read, or `defaults`.
    place: String,
    /// The block `when` that is being read, behind a space.
    block_place: String,
    /// How many blocks `when` have been read, to number them.
    blocks_read: usize,
    /// Whether a placeholder was read whose value depends on the path of its route.
    has_path_placeholder: bool,
}

/// A key with its value.
#[derive(Clone, Copy)]
struct Entry<'a, 'i> {
    name: &'a str,
    key_start: usize,
    key_end: usize,
    value: &'a Spanned<DeValue<'i>>,
}

impl Entry<'_, '_> {
    fn key(&self) -> Span {
        self.key_start..self.key_end
    }
}

/// The entries of a table in the order of the file.
fn entries<'a, 'i>(table: &'a DeTable<'i>) -> Vec<Entry<'a, 'i>> {
    let entry = |(key, value): (&'a Spanned<_>, &'a Spanned<DeValue<'i>>)| {
        let name: &toml::de::DeString<'i> = key.get_ref();
        Entry {
            name: name.as_ref(),
            key_start: key.span().start,
            key_end: key.span().end,
            value,
        }
    };
    let mut entries: Vec<_> = table.iter().map(entry).collect();
    entries.sort_by_key(|entry| entry.key_start);
    entries
}

impl<'a> Reader<'a> {
    fn new(document: &'a Document, environment: &'a Environment) -> Reader<'a> {
        Reader {
            document,
            environment,
            diagnostics: Vec::new(),
            earlier_names: &[],
            renamed: Vec::new(),
            certificates: Vec::new(),
            presets: preset::Presets::default(),
            place: "defaults".to_owned(),
            block_place: String::new(),
            blocks_read: 0,
            has_path_placeholder: false,
        }
    }
}

impl Reader<'_> {
    fn error(
        &mut self,
        code: &'static str,
        span: Span,
        message: impl Into<String>,
        label: impl Into<String>,
    ) {
        self.diagnostics
            .push(Diagnostic::error(code, span, message, label));
    }

    /// Adds a change of the text to the last error, if the intention is certain.
    fn repair(&mut self, span: Span, text: impl Into<String>) {
        let text = text.into();
        if let Some(last) = self.diagnostics.last_mut() {
            last.edits.push(Edit { span, text });
        }
    }

    fn warning(
        &mut self,
        code: &'static str,
        span: Span,
        message: impl Into<String>,
        label: impl Into<String>,
    ) {
        self.diagnostics
            .push(Diagnostic::warning(code, span, message, label));
    }

    /// A thing of the language that this version does not have.
    fn not_yet(&mut self, span: Span, what: &str) {
        self.error(
            "not-yet",
            span,
            format!("{what} is not in this version"),
            "planned; leave it out for now",
        );
    }
}
