//! `files` and its options.

use std::sync::Arc;

use toml::Spanned;
use toml::de::DeValue;

use super::own::{LevelNumber, Own, OwnSettings};
use super::value::StringValue;
use super::{Entry, Reader};
use crate::pattern::{PathEnd, PathPattern};
use crate::settings::{Files, SymbolicLinks};
use crate::span::{Placed, Span};

/// The most names of `index`, and the most endings of `extensions`: each is looked for.
const NAMES_MAX: usize = 16;

/// The folder of a `files`, and the part of paths that it stands for.
#[derive(Debug, Clone)]
pub(super) struct OwnFolder {
    pub(super) folder: Placed<String>,
    pub(super) segments: usize,
    pub(super) bytes: usize,
}

/// The own options of `files`.
#[derive(Debug, Clone, Default)]
pub(super) struct OwnFileOptions {
    /// The first of them, with the place of its key.
    pub(super) first: Option<(&'static str, Span)>,
    index: Own<Arc<Placed<Vec<String>>>>,
    extensions: Own<Arc<Placed<Vec<String>>>>,
    fallback: Own<Placed<String>>,
    hidden: Own<Placed<bool>>,
    list: Own<Placed<bool>>,
    symlinks: Own<Placed<SymbolicLinks>>,
}

/// The levels that say the folder and its options, by which values that routes share are told apart.
pub(super) type FilesLevels = [Option<LevelNumber>; 7];

impl Reader<'_> {
    pub(super) fn folder(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        pattern: &PathPattern,
    ) -> Option<OwnFolder> {
        // In a preset it stands for the path of each route that uses it.
        self.has_path_placeholder = true;
        let folder = self.file(value, "\"/srv/www\"")?;
        if folder.value.is_empty() || folder.value.contains('\0') {
            let label = "write for example \"/srv/www\"";
            self.error("folder", folder.span, "this is no folder", label);
            return None;
        }
        // A regex is for whole paths, so the folder stands for the root.
        Some(OwnFolder {
            folder,
            segments: pattern.segments.len(),
            bytes: match &pattern.end {
                PathEnd::Prefix(text) => 1 + text.len(),
                PathEnd::Exact | PathEnd::Below | PathEnd::Subtree | PathEnd::Regex { .. } => 0,
            },
        })
    }

    /// An option of `files`; `false` if the key is none.
    pub(super) fn file_option(&mut self, entry: &Entry<'_, '_>, own: &mut OwnSettings) -> bool {
        let (value, options) = (entry.value, &mut own.files);
        let name = match entry.name {
            "index" => {
                options.index = match value.get_ref() {
                    // No index, and not the default.
                    DeValue::Boolean(false) => {
                        Own::Value(Arc::new(Placed::new(Vec::new(), value.span())))
                    }
                    _ => self
                        .names(value, "\"index.html\"", "the name of a file", is_name)
                        .map_or(Own::Inherited, Own::Value),
                };
                "index"
            }
            "extensions" => {
                options.extensions = self.own(value, |reader| {
                    reader.names(value, "\".html\"", "an ending with its dot", is_ending)
                });
                "extensions"
            }
            "fallback" => {
                options.fallback = self.own(value, |reader| reader.fallback(value));
                "fallback"
            }
            "hidden" => {
                options.hidden = self.own_boolean(value);
                "hidden"
            }
            "list" => {
                options.list = self.own_boolean(value);
                "list"
            }
            "symlinks" => {
                options.symlinks = self.own(value, |reader| reader.symlinks(value));
                "symlinks"
            }
            _ => return false,
        };
        options.first.get_or_insert((name, entry.key()));
        true
    }

    fn names(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        example: &str,
        wanted: &str,
        is_right: impl Fn(&str) -> bool,
    ) -> Option<Arc<Placed<Vec<String>>>> {
        let before = self.diagnostics.len();
        let mut names = Vec::new();
        for text in self.texts(value, example) {
            match is_right(&text.value) {
                true => names.push(text.value),
                false => self.no_name(&text, wanted, example),
            }
        }
        if names.len() > NAMES_MAX {
            let message = format!("more than {NAMES_MAX} are looked for");
            self.error(
                "too-many",
                value.span(),
                message,
                "keep those that you have",
            );
        }
        (self.diagnostics.len() == before).then(|| Arc::new(Placed::new(names, value.span())))
    }

    fn no_name(&mut self, text: &StringValue, wanted: &str, example: &str) {
        let message = format!("this is not {wanted}");
        let label = format!("write for example {example}");
        self.error("file-name", text.span.clone(), message, label);
    }

    /// A path beneath the folder.
    fn fallback(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Placed<String>> {
        let text = self.text(value, "\"/index.html\"")?;
        let path = text.value.strip_prefix('/').unwrap_or_default();
        if path.is_empty() || !path.split('/').all(is_name) {
            let wanted = "a path in the folder that begins with a slash";
            self.no_name(&text, wanted, "\"/index.html\"");
            return None;
        }
        Some(Placed::new(path.to_owned(), text.span))
    }

    fn symlinks(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Placed<SymbolicLinks>> {
        let text = self.text(value, "\"inside\", \"follow\" or \"deny\"")?;
        let links = match text.value.as_str() {
            "inside" => SymbolicLinks::Inside,
            "follow" => SymbolicLinks::Follow,
            "deny" => SymbolicLinks::Deny,
            _ => {
                let message = "`symlinks` has no such value";
                let label = "write \"inside\", \"follow\" or \"deny\"";
                self.error("value", text.span, message, label);
                return None;
            }
        };
        Some(Placed::new(links, text.span))
    }
}

/// Whether the text is a segment of a path in the file system.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text != "." && text != ".." && !text.contains(['/', '\0'])
}

/// Whether the text is an ending of names of files.
fn is_ending(text: &str) -> bool {
    text.len() > 1 && text.starts_with('.') && !text.contains(['/', '\0'])
}

/// Which levels say the folder and its options.
pub(super) fn levels(
    folder: Option<LevelNumber>,
    options: &[(LevelNumber, &OwnSettings)],
) -> FilesLevels {
    let last = |is_written: fn(&OwnFileOptions) -> bool| {
        let level = options.iter().rfind(|(_, own)| is_written(&own.files));
        level.map(|(level, _)| *level)
    };
    [
        folder,
        last(|own| own.index.is_written()),
        last(|own| own.extensions.is_written()),
        last(|own| own.fallback.is_written()),
        last(|own| own.hidden.is_written()),
        last(|own| own.list.is_written()),
        last(|own| own.symlinks.is_written()),
    ]
}

/// The folder with the options of these levels.
pub(super) fn merged(folder: &OwnFolder, options: &[(LevelNumber, &OwnSettings)]) -> Files {
    let mut files = Files {
        folder: folder.folder.clone(),
        segments: folder.segments,
        bytes: folder.bytes,
        index: None,
        extensions: None,
        fallback: None,
        hidden: None,
        list: None,
        symlinks: None,
    };
    for (_, own) in options {
        let own = &own.files;
        own.index.apply(&mut files.index);
        own.extensions.apply(&mut files.extensions);
        own.fallback.apply(&mut files.fallback);
        own.hidden.apply(&mut files.hidden);
        own.list.apply(&mut files.list);
        own.symlinks.apply(&mut files.symlinks);
    }
    files
}
